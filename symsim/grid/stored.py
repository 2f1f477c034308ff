"""Derivations kept on disk by content: a variant of a sweep is derived once, whatever its sizes.

The key is all that the terms of a derivation follow from: the model, the assumptions, a strategy without its sizes and
with its degrees only as above 1 or not, and which parts a system has. What is kept are the definitions, read back by an
unpickler that makes expressions and nothing else.
"""

from __future__ import annotations

import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from symsim.algebra.expr import Number
from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import Definition
from symsim.cost.count import Counted
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import DEGREES, SIZES
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.lengths import documents
from symsim.inputs.run import run_shape
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.trained import respelt, trained
from symsim.lowering.lowered import Lowered
from symsim.lowering.tuned import tuned
from symsim.program import cache

# of what is kept: another one is another entry
_FORMAT = "3"


@dataclass(frozen=True)
class Kept:
    """Of a lowering, what an evaluation asks for: which blocks are under full recomputation, and that there are others than layers."""

    checkpointed: Mapping[str, None]
    alone: bool = False


def deciding(model: Architecture) -> dict[str, Callable[[Any], Any]]:
    """What of a strategy's degrees decides the terms of a derivation: which are above 1, and how some compare.

    The depth matters where ranks hold pairs of stages, which differ from one depth to the next.
    """
    above = {name: partial(_is_above_one, name) for name in (*DEGREES, "expert_tp", "expert_dp")}
    return {
        **above,
        "same_tp": lambda s: s.expert_tp == s.tp,
        "few_groups": lambda s: s.tp > model.query_groups,
        "one_group": lambda s: model.keeps_projected_queries and s.tp == model.query_groups,
        "depth": lambda s: s.pp if s.schedule == "dualpipe" else 0,
    }


def _is_above_one(name: str, strategy: Any) -> bool:
    return bool((getattr(strategy, name) or 1) > 1)


def shape(strategy: Strategy, model: Architecture) -> dict[str, Any]:
    """What of a strategy decides the terms of a derivation: its options, which sizes are given, and of its degrees `deciding`."""
    options = strategy.model_dump(mode="json", exclude={*SIZES, *DEGREES})
    given = {name: getattr(strategy, name) is not None for name in SIZES}
    lengths = documents(strategy)
    if lengths is not None:
        # a file of lengths may be another by now: whether they differ is all that formulas know of it
        given["document_lengths"] = lengths.varied
    return {**options, **given, "degrees": {name: read(strategy) for name, read in deciding(model).items()}}


def _parts(system: System | None) -> Any:
    """Which numbers a system gives; what they are does not matter to the terms."""
    if system is None:
        return None

    def present(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: present(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [present(v) for v in value]
        return value is not None

    data = system.model_dump(exclude={"sources", "title"}, mode="python")
    names = [(t.name, t.ranks == "all", t.ring is not None) for t in system.network]
    return [system.name, names, present(data)]


def key_of(
    model: Architecture, strategy: Strategy, assumptions: Mapping[str, str], system: System | None, symbols: Mapping[str, Number] | None = None
) -> str:
    """The name under which a derivation is kept. symbols: what the user gives besides, of which a run's numbers decide its formulas."""
    return cache.key_of(
        _FORMAT,
        model.model_dump_json(),
        json.dumps(shape(strategy, model), sort_keys=True),
        json.dumps(resolve(assumptions), sort_keys=True),
        json.dumps(_parts(system), sort_keys=True, default=str),
        *run_shape(symbols or {}),
    )


def evaluation(
    model: Architecture,
    strategy: Strategy,
    assumptions: Mapping[str, str],
    overrides: Mapping[str, Number],
    system: System | None,
) -> Evaluation:
    """`symsim.derive`, from the disk where it has been derived before (without the lowering, which numbers do not need)."""
    model = trained(model, strategy.mtp_num_layers, strategy.task_type)
    key = key_of(model, strategy, assumptions, system, overrides)
    kept = cache.load("derivations", key)
    found = _unpacked(kept) if kept is not None else None
    if found is None:
        result = evaluated(model, strategy, assumptions, overrides, system)
        found = (list(result.derivation.definitions.values()), list(result.lowered.checkpointed))
        cache.save("derivations", key, zlib.compress(pickle.dumps(found, 5), 1))
    definitions, checkpointed = found
    counted = Counted(Derivation({d.symbol: d for d in definitions}), {})
    lowered = cast(Lowered, Kept(dict.fromkeys(checkpointed)))
    return Evaluation(respelt(tuned(model, strategy)), strategy, resolve(assumptions), lowered, counted, dict(overrides), system)


_ALLOWED = {
    ("symsim.algebra.expr", "Expr"),
    ("symsim.algebra.expr", "Symbol"),
    ("symsim.algebra.expr", "Call"),
    ("symsim.algebra.key", "Key"),
    ("symsim.algebra.quantity", "Definition"),
    ("symsim.algebra.quantity", "Unit"),
    ("fractions", "Fraction"),
    ("copyreg", "__newobj__"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a derivation")
        return super().find_class(module, name)


def _unpacked(raw: bytes) -> tuple[list[Definition], list[str]] | None:
    try:
        found: tuple[list[Definition], list[str]] = _Unpickler(io.BytesIO(zlib.decompress(raw))).load()
    except (pickle.UnpicklingError, zlib.error, EOFError, AttributeError, ValueError, TypeError, KeyError):
        return None
    return found
