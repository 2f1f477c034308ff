"""What the ways of points that share a derivation come to, over the points of a grid.

Each is evaluated once, over the points at which it is asked for first: of a block over the few axes that it depends on, of what stays in memory and
what follows the pipeline at every point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, cast

import numpy as np

from symsim.algebra.expr import ZERO, Expr, expr
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_stage
from symsim.algebra.key import of_block as block_key
from symsim.algebra.quantity import SECOND, Definition
from symsim.cost.count import Counted
from symsim.cost.memory_activations import in_flight
from symsim.grid.family import Array
from symsim.grid.reported import Reported
from symsim.grid.variant import Variant
from symsim.lowering.lower import blocks_of
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import runs
from symsim.planning.ways import BOUNDARY, KEPT_FREE, STAY, TAIL, Way
from symsim.program.points import Points
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.slots import Slot
from symsim.program.value import Value

_PHASES = ("forward", "inputs", "weights", "again")
# longer than any stage
_EVER = 1e12


@dataclass(frozen=True)
class Amounts:
    """Of a block's way, of a micro-batch on one rank: seconds of a layer that does not run again in full, and of one that does; bytes that they keep;
    and those that wait for a weight gradient. Over the axes of the grid; None where there is none such."""

    seconds: tuple[Array, Array | None]
    kept: tuple[Array | None, Array | None]
    waiting: Array | None


@dataclass(frozen=True)
class Place:
    """A stage of every pipeline, at points. there: whether there is one; count: how many it stands for; often: of each block that runs at one how
    often; alive: micro-batches in flight; loss: whether it has the head."""

    there: Array
    count: Array
    often: Mapping[str, Array]
    alive: Array
    loss: Array

    def worked(self, known: Mapping[str, Array], at: Array) -> Array:
        """Of an amount of every block, what the stage has of it at some of the points."""
        return sum((often[at] * known[name] for name, often in self.often.items() if name in known), np.zeros(len(at)))


class Tables:
    """points: rising, of which everything is known."""

    def __init__(self, variant: Variant, points: Array, program: Program, shared: dict[Hashable, Amounts]):
        """shared: amounts of other points too."""
        self._variant, self.points, self._program, self._shared = variant, points, program, shared
        self._around = Reported(variant, program)
        self._inside = Points(points, program.sizes)
        self._amounts: dict[Hashable, Amounts] = {}
        self._vectors: dict[Hashable, Any] = {}

    def has(self, points: Array) -> bool:
        at = self.at(points)
        return bool((at < len(self.points)).all()) and bool((self.points[at] == points).all())

    def at(self, points: Array) -> Array:
        return np.searchsorted(self.points, points)

    def spread(self, amount: Array, at: Array) -> Array:
        """What is known over some axes, at points."""
        return self._inside.spread(amount, at)

    @cached_property
    def m(self) -> Array:
        return self._values([self._around.base.value("m")])[0]

    @cached_property
    def rounds(self) -> tuple[Array, Array, Array]:
        """Stages, chunks of each, and micro-batches that a chunk has in a row."""
        pp, vpp, group = self._values([self._around.base.value(name) for name in ("pp", "vpp", "group")])
        return pp, vpp, np.minimum(group, self.m)

    @cached_property
    def exchanges(self) -> Array:
        """How often the pipeline waits for a boundary tensor, where its closed form says how often."""
        bubble = schedule_of(self._variant.result.strategy).bubble
        return self.of_sizes(bubble.substitute({"tc": expr(1)}) - bubble.substitute({"tc": ZERO}))

    def of_sizes(self, amount: Expr) -> Array:
        """What follows from sizes alone, at points."""
        key = "sizes", amount
        if key not in self._vectors:
            self._vectors[key] = self._values([self._around.base.lower(amount)])[0]
        return cast(Array, self._vectors[key])

    @cached_property
    def capacity(self) -> Array:
        return self._values([self._around.quantity("memory.capacity")])[0]

    @cached_property
    def places(self) -> tuple[list[Place], int]:
        """Stages, one of every class first, so many of them, and then further places of the same that may hold more micro-batches in flight."""
        names, alive = blocks_of(self._variant.result.model), in_flight(self._variant.result.strategy)
        wanted: list[Value] = []
        for slot in _in_order(self._around):
            scope = cast(Scope, slot.scope)
            wanted += [slot.there, slot.count, scope.value("loss_i"), scope.lower(alive), *(scope.value(runs(name)) for name in names)]
        values = self._values(wanted)
        found = []
        for k in range(0, len(values), len(names) + 4):
            there, count, loss, waiting, *often = values[k : k + len(names) + 4]
            found.append(Place(there > 0, count, {name: n for name, n in zip(names, often) if n.any()}, waiting, loss))
        return found, len(self._around.slots.slots)

    def amounts(self, way: Way, name: str, kernels: bool, late: bool, partly: bool) -> Amounts:
        """kernels: of these alone. late: without weight gradients of what is behind the layers. partly: some micro-batches run again, others not."""
        key = way, kernels, late, partly
        found = self._amounts.get(key)
        if found is None:
            symbols = tuple(self._around.base.value(name).id for name in way.symbols)
            found = self._shared.get((key, symbols))
            if found is None:
                found = self._shared[key, symbols] = _amounts(way, name, self._around, self._program, kernels, late, partly)
            self._amounts[key] = found
        return found

    def stay(self, way: Way, at: Array | slice, gradients: bool = True) -> list[Array]:
        """Of every place bytes that stay for the whole step, at points, with gradients or without."""
        # kept for every way, these sums would be a third of what a plan holds
        parts = [self._part(way, (key,), self._at_places) for key in STAY if gradients or key.part != "gradients"]
        return [reduce(np.add, [one[at] for one in of_place]) for of_place in zip(*parts)]

    def kept_free(self, way: Way) -> tuple[Array, Array]:
        """What is kept free beside the peak at points, and that for a byte of the peak."""
        return cast("tuple[Array, Array]", self._part(way, KEPT_FREE, self._kept_free))

    def _part(self, way: Way, keys: tuple[Key, ...], make: Callable[[Mapping[str, Definition], tuple[Key, ...]], Any]) -> Any:
        """What follows from some of a way's definitions, which other ways have too."""
        same, own = way.part(keys)
        known = keys, same
        if known not in self._vectors:
            self._vectors[known] = make(own, keys)
        return self._vectors[known]

    def _at_places(self, definitions: Mapping[str, Definition], keys: tuple[Key, ...]) -> list[Array]:
        order = _in_order(self._reported(definitions.values()))
        return self._values([cast(Scope, slot.scope).value(key.text) for slot in order for key in keys])

    def _kept_free(self, definitions: Mapping[str, Definition], keys: tuple[Key, ...]) -> tuple[Array, Array]:
        own, reserve = self._reported(definitions.values()), sum((definitions[key.text].expr for key in keys), ZERO)
        none, one = (own.base.lower(reserve.substitute({"M_peak": expr(k)})) for k in (0, 1))
        nothing, share = self._values([none, one])
        return nothing, share - nothing

    def most_that_stays(self, way: Way) -> tuple[Array, Array]:
        """Bytes of the rank that holds most for the whole step; and those with what is kept free."""
        return cast("tuple[Array, Array]", self._vector(way, self._most_that_stays))

    def _most_that_stays(self, way: Way) -> tuple[Array, Array]:
        kept_free, share = self.kept_free(way)
        each = zip(self.places[0], self.stay(way, slice(None)))
        most = np.maximum.reduce([np.where(place.there, whole, 0.0) for place, whole in each])
        return most, most * (1 + share) + kept_free

    def tail(self, way: Way) -> tuple[Array, Array]:
        """Seconds that follow the pipeline at least (computation hides of messages what it never does), and those of a boundary tensor, at points."""
        return cast("tuple[Array, Array]", self._vector(way, self._tail))

    def _tail(self, way: Way) -> tuple[Array, Array]:
        ever = [Definition(of_stage("t", phase=phase), expr(_EVER), SECOND, "longer than any stage") for phase in _PHASES]
        own = self._reported([*way.definitions.values(), *ever])
        tail, boundary = self._values([own.quantity(TAIL.text), own.base.value(BOUNDARY.text)])
        return tail, boundary

    def _vector(self, way: Way, make: Callable[[Way], Any]) -> Any:
        key = make.__name__, way
        if key not in self._vectors:
            self._vectors[key] = make(way)
        return self._vectors[key]

    def _reported(self, definitions: Iterable[Definition]) -> Reported:
        counted = Counted(Derivation({d.symbol: d for d in definitions}), {})
        return Reported(replace(self._variant, result=replace(self._variant.result, counted=counted)), self._program, alike=self._around)

    def _values(self, values: Sequence[Value]) -> list[Array]:
        return self._inside.values(values)


def _amounts(way: Way, name: str, around: Reported, program: Program, kernels: bool, late: bool, partly: bool) -> Amounts:
    keys = [d.key for d in way.definitions.values() if d.key.scope == "block" and d.key.block == name]
    own = [k for k in keys if (k.quantity == "t" and (k.operation or k.phase == "again") if kernels else not k.operation and k.phase)]
    always = [k for k in own if k.quantity == "t" and k.phase != "again" and not (late and k.phase in ("weights", "wgrad"))]
    varies = [k for k in own if (k.quantity == "t" and k.phase == "again") or (k.quantity == "e" and k.axis)] if not partly else []
    scope = around.scope(way.definitions)

    def summed(some: Iterable[Key]) -> Array:
        return _known(program.total([(scope.value(k.text), 1) for k in some]), program)

    def kept(whole: bool, part: str = "") -> Array | None:
        key = block_key("A", name, whole, part=part)
        return _known(scope.value(key.text), program) if key.text in way.definitions else None

    plain = summed([*always, *(k for k in varies if not k.again)])
    in_full = summed([*always, *(k for k in varies if k.again)]) if any(k.again for k in varies) else None
    return Amounts((plain, in_full), (kept(False), kept(True)), kept(False, "waiting"))


def _in_order(reported: Reported) -> list[Slot]:
    """Stages, one of every class first, then further places of the same that may hold more micro-batches in flight."""
    slots = reported.slots
    return [*slots.slots, *(slot for slot in slots.memory if slot not in slots.slots)]


def _known(value: Value, program: Program) -> Array:
    """A value as an array with a dimension for every axis."""
    if not value.known:
        numbers = np.arange(math.prod(program.sizes))
        return Points(numbers, program.sizes).values([value])[0].reshape(program.sizes)
    data = np.asarray(value.data, dtype=float)
    return data if data.ndim == len(program.sizes) else data.reshape([1] * len(program.sizes))
