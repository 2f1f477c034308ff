"""Derivations of a sweep together: what their passes share is made once, and they are kept on disk by content, whatever their sizes.

The key is all that the terms of a derivation follow from: the model, the assumptions, a strategy without its sizes and
with its degrees only as above 1 or not, and which parts a system has. What is kept are the definitions, read back by an
unpickler that makes expressions and nothing else.
"""

from __future__ import annotations

import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from symsim.algebra.expr import Number
from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import Definition
from symsim.cost.count import Counted
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.grid.processes import forked, shared
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.deciding import DEGREES, SIZES, deciding
from symsim.inputs.lengths import documents
from symsim.inputs.run import run_shape
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.traced import Memory
from symsim.inputs.trained import respelt, trained
from symsim.lowering.lowered import Kept, Lowered
from symsim.lowering.tuned import tuned
from symsim.program import cache

# of what is kept: another one is another entry
_FORMAT = "4"
# so many derivations are worth a process
_FORK_DERIVATIONS = 64
# of the options that are neither sizes nor degrees
_DEFAULTS = {name: field.get_default() for name, field in Strategy.model_fields.items() if name not in (*SIZES, *DEGREES)}
# definitions, and the kinds of layers under full recomputation
_Derived = tuple[list[Definition], list[str]]


def shape(strategy: Strategy, model: Architecture) -> dict[str, Any]:
    """What of a strategy decides the terms of a derivation: its options, which sizes are given, and of its degrees `deciding`."""
    options = {name: value for name, default in _DEFAULTS.items() if not _same(value := strategy.__dict__[name], default)}
    given = {name: getattr(strategy, name) is not None for name in SIZES}
    lengths = documents(strategy)
    if lengths is not None:
        # a file of lengths may be another by now: whether they differ is all that formulas know of it
        given["document_lengths"] = lengths.varied
    return {**options, **given, "degrees": {name: read(strategy) for name, read in deciding(model).items()}}


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same; true is another than 1."""
    return one is other or (type(one) is type(other) and bool(one == other))


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


class Memories:
    """What passes made (`symsim/inputs/traced.py`), for each model, set of assumptions and shape of a system; and how these are spelt in keys."""

    def __init__(self) -> None:
        self._spelt: dict[int, tuple[Any, str]] = {}
        self._known: dict[tuple[str, str, str], tuple[Memory, Architecture]] = {}
        # what was derived before
        self.found: dict[str, _Derived] = {}

    def spelt(self, model: Architecture, assumptions: Mapping[str, str], system: System | None) -> tuple[str, str, str]:
        """All but the strategy that the terms of a derivation follow from."""
        given = self._once(assumptions, lambda: json.dumps(resolve(assumptions), sort_keys=True))
        parts = self._once(system, lambda: json.dumps(_parts(system), sort_keys=True, default=str))
        return self._once(model, model.model_dump_json), given, parts

    def _once(self, thing: Any, spell: Callable[[], str]) -> str:
        if id(thing) not in self._spelt:
            self._spelt[id(thing)] = thing, spell()
        return self._spelt[id(thing)][1]

    def of(self, model: Architecture, assumptions: Mapping[str, str], system: System | None) -> tuple[Memory, Architecture]:
        """The memory of a model, and the one object of equal models that it knows."""
        key = self.spelt(model, assumptions, system)
        if key not in self._known:
            self._known[key] = Memory(SIZES, DEGREES, deciding(model)), model
        return self._known[key]

    def know(self, asked: "Asked", result: Evaluation) -> None:
        """What was derived by itself."""
        self.found[_key(asked, self)] = list(result.derivation.definitions.values()), list(result.lowered.checkpointed)


@dataclass(frozen=True)
class Asked:
    """A derivation that is asked for, as `evaluated` is."""

    model: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str]
    overrides: Mapping[str, Number]
    system: System | None

    @cached_property
    def trained(self) -> Architecture:
        return trained(self.model, self.strategy)


def _key(asked: "Asked", memories: Memories) -> str:
    spelt = memories.spelt(asked.trained, asked.assumptions, asked.system)
    return repr((spelt, shape(asked.strategy, asked.trained), *run_shape(asked.overrides)))


def evaluations(
    asked: Sequence[Asked], memories: Memories, progress: Callable[[int], None] = lambda done: None, workers: int = 1
) -> list[Evaluation]:
    """`symsim.derive` of each (without the lowering, which numbers do not need), from the disk where they have been derived together before.

    workers: how many processes may derive; each knows what passes made in its own share alone.
    """
    keys = [_key(one, memories) for one in asked]
    known = memories.found
    missing = [at for at, key in enumerate(keys) if key not in known]
    entry = cache.key_of(_FORMAT, *(keys[at] for at in missing))
    kept = cache.load("derivations", entry) if missing else None
    found = _unpacked(kept) if kept is not None else None
    if found is None:
        found = _derived([asked[at] for at in missing], memories, progress, workers)
        if missing and cache.directory() is not None:
            cache.save("derivations", entry, zlib.compress(pickle.dumps(found, 5), 1))
    known.update(zip((keys[at] for at in missing), found))
    return [_evaluation(one, *known[key]) for one, key in zip(asked, keys)]


def _derived(asked: Sequence[Asked], memories: Memories, progress: Callable[[int], None], workers: int) -> list[_Derived]:
    """The first share is derived here, the others by forked processes."""
    shares = min(workers, len(asked) // _FORK_DERIVATIONS)
    if shares < 2:
        return _share(asked, memories, progress)
    cuts = [len(asked) * k // shares for k in range(shares + 1)]
    pool = forked((asked, memories), shares - 1)
    try:
        others = [pool.submit(_of_share, first, last) for first, last in zip(cuts[1:], cuts[2:])]
        found = _share(asked[: cuts[1]], memories, lambda done: progress(done * shares))
        for other in others:
            found += other.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return _once_each(found)


def _once_each(found: list[_Derived]) -> list[_Derived]:
    """The same with one object for definitions that are equal, as all those of one share are."""
    distinct = {id(d): d for definitions, _ in found for d in definitions}
    first: dict[Definition, Definition] = {}
    own = {at: first.setdefault(d, d) for at, d in distinct.items()}
    return [([own[id(d)] for d in definitions], kinds) for definitions, kinds in found]


def _of_share(first: int, last: int) -> list[_Derived]:
    asked, memories = shared()
    return _share(asked[first:last], memories, lambda done: None)


def _share(asked: Sequence[Asked], memories: Memories, progress: Callable[[int], None]) -> list[_Derived]:
    found: list[_Derived] = []
    for one in asked:
        memory, model = memories.of(one.trained, one.assumptions, one.system)
        result = evaluated(model, one.strategy, one.assumptions, one.overrides, one.system, memory=memory if len(asked) > 1 else None)
        found.append((list(result.derivation.definitions.values()), list(result.lowered.checkpointed)))
        progress(len(found))
    return found


def _evaluation(asked: Asked, definitions: list[Definition], checkpointed: list[str]) -> Evaluation:
    counted = Counted(Derivation({d.symbol: d for d in definitions}), {})
    lowered = cast(Lowered, Kept(dict.fromkeys(checkpointed)))
    model = respelt(tuned(asked.trained, asked.strategy))
    return Evaluation(model, asked.strategy, resolve(asked.assumptions), lowered, counted, dict(asked.overrides), asked.system)


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


def _unpacked(raw: bytes) -> list[_Derived] | None:
    try:
        found: list[_Derived] = _Unpickler(io.BytesIO(zlib.decompress(raw))).load()
    except (pickle.UnpicklingError, zlib.error, EOFError, AttributeError, ValueError, TypeError, KeyError):
        return None
    return found
