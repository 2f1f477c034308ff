"""A function of a strategy over a grid: asked once for every set of the values that it reads, however many points share them.

The rules of `symsim.lowering.checks` and the properties of a strategy are written for one strategy; here they hold for arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
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
        computed = _property(name)
        if computed is not None:
            return computed(self)
        if name == "dp":
            return default_dp(self.tp, self.cp, self.ep, self.expert_tp)
        raise AttributeError(name)


@cache
def _property(name: str) -> Callable[[Any], Any] | None:
    """What computes a property of a strategy."""
    found = getattr(Strategy, name, None)
    return found.fget if isinstance(found, property) else None


class Tables:
    """What functions of a strategy came to over a grid, for all parts of it: where all that one reads is the same, it is not asked again."""

    def __init__(self) -> None:
        # by function, by the fields that it reads, by their values; with these, whose places in memory nothing else takes then
        self._known: dict[Hashable, dict[tuple[str, ...], dict[tuple[Hashable, ...], tuple[Any, list[Any]]]]] = {}

    def of(self, key: Hashable, function: Callable[[Any], Any], fields: Mapping[str, Any]) -> Any:
        """As `tabulate`; key: what tells the function from others."""
        known = self._known.setdefault(key, {})
        for read, made in known.items():
            found = made.get(tuple(told_apart(fields.get(name)) for name in read))
            if found is not None:
                return found[0]
        seen = set[str]()
        result = tabulate(function, fields, seen)
        values = [fields[name] for name in sorted(seen)]
        known.setdefault(tuple(sorted(seen)), {})[tuple(map(told_apart, values))] = result, values
        return result


def told_apart(value: Any) -> Hashable:
    """What tells a field's value from another: of an array that it is this one."""
    return id(value) if isinstance(value, np.ndarray) else repr(value)


def tabulate(function: Callable[[Any], Any], fields: Mapping[str, Any], seen: set[str] | None = None) -> Any:
    """A function of a strategy over the axes of the fields that it reads, called once for each set of their values.

    seen: takes up the names of all fields that were read. InputError where these are too many to ask one by one.
    """
    read: set[str] = set()
    seen = set() if seen is None else seen
    while True:
        varying = sorted(n for n in read if isinstance(fields[n], np.ndarray))
        if not varying:
            watched = Watched({n: v.item(0) if isinstance(v, np.ndarray) else v for n, v in fields.items()})
            result = function(watched)
            seen |= watched.read
            if all(not isinstance(fields[n], np.ndarray) for n in watched.read):
                return result
            read |= watched.read
            continue
        arrays = np.broadcast_arrays(*(fields[n] for n in varying))
        if arrays[0].size > _WORTH_ARRAYS:
            whole = _of_arrays(function, fields, read)
            if whole is not None:
                seen |= read
                return whole
        codes = np.zeros(arrays[0].shape, dtype=np.int64)
        for name in varying:
            distinct, own = np.unique(fields[name], return_inverse=True)
            codes = codes * len(distinct) + own.reshape(fields[name].shape)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        if len(first) > _MOST_ASKED:
            raise InputError(f"{', '.join(varying)} take {len(first):,} different values together, too many to check (at most {_MOST_ASKED:,})")
        made, missed, heard = [], set[str](), set(read)
        values = {n: v.item(0) if isinstance(v, np.ndarray) else v for n, v in fields.items()}
        watched = Watched(values)
        for at in zip(*(a.reshape(-1)[first].tolist() for a in arrays)):
            values.update(zip(varying, at))
            watched.read.clear()
            made.append(function(watched))
            if not watched.read <= heard:
                heard |= watched.read
                missed = {n for n in watched.read if n not in read and isinstance(fields[n], np.ndarray)}
                if missed:
                    break
        seen |= heard
        if not missed:
            return np.array(made)[inverse.reshape(codes.shape)]
        read |= missed


def _of_arrays(function: Callable[[Any], Any], fields: Mapping[str, Any], read: set[str]) -> Any:
    """The function on whole arrays, where it is plain arithmetic; None where it decides something, as arrays cannot."""
    watched = Watched(fields)
    try:
        result = function(watched)
    except (ValueError, TypeError):
        return None
    return result if isinstance(result, np.ndarray) and watched.read <= read else None
