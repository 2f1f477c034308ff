"""A function of a strategy over a grid: asked once for every set of the values that it reads, however many points share them.

The rules of `symsim.lowering.checks` and the properties of a strategy are written for one strategy; here they hold for arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from symsim.errors import InputError
from symsim.inputs.strategy import Strategy, default_dp

# more sets of values than this are not asked for one by one
_MOST_ASKED = 3_000_000
# fewer are not worth a try with whole arrays
_WORTH_ARRAYS = 20_000


class Watched:
    """A strategy whose fields may be arrays' elements, and which remembers the fields that were read."""

    def __init__(self, values: Mapping[str, Any]):
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "read", set())

    def __getattr__(self, name: str) -> Any:
        values = self._values
        if name in values:
            self.read.add(name)
            return values[name]
        found = getattr(Strategy, name, None)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        if name == "dp":
            return default_dp(self.tp, self.cp, self.ep, self.expert_tp)
        raise AttributeError(name)


def tabulate(function: Callable[[Any], Any], fields: Mapping[str, Any]) -> Any:
    """A function of a strategy over the axes of the fields that it reads, called once for each set of their values.

    InputError where these are too many to ask one by one.
    """
    read: set[str] = set()
    while True:
        varying = sorted(n for n in read if isinstance(fields[n], np.ndarray))
        if not varying:
            watched = Watched({n: v.reshape(-1)[0].item() if isinstance(v, np.ndarray) else v for n, v in fields.items()})
            result = function(watched)
            if all(not isinstance(fields[n], np.ndarray) for n in watched.read):
                return result
            read |= watched.read
            continue
        arrays = np.broadcast_arrays(*(fields[n] for n in varying))
        if arrays[0].size > _WORTH_ARRAYS:
            whole = _of_arrays(function, fields, read)
            if whole is not None:
                return whole
        codes = np.zeros(arrays[0].shape, dtype=np.int64)
        for name in varying:
            distinct, own = np.unique(fields[name], return_inverse=True)
            codes = codes * len(distinct) + own.reshape(fields[name].shape)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        if len(first) > _MOST_ASKED:
            raise InputError(f"{', '.join(varying)} take {len(first):,} different values together, too many to check (at most {_MOST_ASKED:,})")
        flat = [a.reshape(-1) for a in arrays]
        values = []
        missed: set[str] = set()
        constants = {n: v for n, v in fields.items() if not isinstance(v, np.ndarray)}
        stand_in = {n: v.reshape(-1)[0].item() for n, v in fields.items() if isinstance(v, np.ndarray)}
        for at in first:
            watched = Watched({**constants, **stand_in, **{n: f[at].item() for n, f in zip(varying, flat)}})
            values.append(function(watched))
            missed |= {n for n in watched.read if n not in read and isinstance(fields[n], np.ndarray)}
            if missed:
                break
        if not missed:
            return np.array(values)[inverse.reshape(codes.shape)]
        read |= missed


def _of_arrays(function: Callable[[Any], Any], fields: Mapping[str, Any], read: set[str]) -> Any:
    """The function on whole arrays, where it is plain arithmetic; None where it decides something, as arrays cannot."""
    watched = Watched(fields)
    try:
        result = function(watched)
    except (ValueError, TypeError):
        return None
    return result if isinstance(result, np.ndarray) and watched.read <= read else None
