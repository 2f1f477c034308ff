"""Stages of a pipeline as a few slots: what stages hold, tabulated over the degrees of a grid, and the reductions over them.

Stages that hold the same cost the same, so a pipeline of any depth is a handful of classes with a number of members each.
Over all (pp, vpp) of a grid the classes are sorted into slots by what they hold at all (the embedding, layers of a kind, the
head): whether a part is there is then a constant of the slot, and how much of it a table over (pp, vpp).

That a stage which holds no more than another is never slower rests on times that are not negative, and on a layer that is
recomputed taking no less than one that is not; the tests compare with every stage of `symsim eval`.

Reductions over stages are the nodes of `symsim.algebra.reductions`, whose rule goes over slots here: a stage that holds no more than
another of the same pipeline is never the slower one, and of equal stages the one with the most micro-batches in flight holds the most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from symsim.algebra.expr import Call, Expr, Monomial, Number, Symbol, symbol
from symsim.algebra.reductions import Holdings, Line, Run, counted, reduced, stages_at, stages_max, within
from symsim.program.program import Program
from symsim.program.scope import Outline, Scope
from symsim.program.value import Value

# of which a stage has no less than one that holds no more
_RISING = (symbol("t_stage"),)


@dataclass
class Slot:
    """One stage class over the grid: the scope of its definitions, and tables over (pp, vpp).

    count: stages it stands for (0 where it repeats another slot's). there: 1 where the pipeline has such a stage, or a repetition.
    slowest: whether it can be the slowest stage anywhere. held: per (pp, vpp) what it holds.
    """

    scope: "Scope | _Chosen"
    count: Value
    there: Value
    slowest: bool
    held: tuple[Holdings | None, ...]


_Rank = tuple[Slot, ...]


@dataclass
class Slots:
    """All slots of a grid: what `symsim.algebra.reductions.reduced` goes over there."""

    program: Program
    slots: list[Slot]
    memory: list[Slot]
    pipelines: list[Line]
    table: Callable[[Sequence[Number]], Value]
    base: Scope
    stage_definitions: Mapping[str, tuple[Expr, bool]]
    outline: Outline

    @cached_property
    def placed(self) -> frozenset[str]:
        """Names of a stage that depend on its place."""
        found = {"i"}
        for name, (expression, _) in self.stage_definitions.items():
            if not found.isdisjoint(self.program.number_of(expression)[1]):
                found.add(name)
        return frozenset(found)

    # over stages -------------------------------------------------------------------------------------------------------

    def reduced(self, call: Call) -> Value:
        """A reduction over stages (`symsim.algebra.reductions`)."""
        key, known = (id(self.table), call, *map(self.outline.number, sorted(call.symbols))), self.program.outlined
        found = known.get(key)
        if found is None:
            found = known[key] = reduced(call, self, _RISING)
        return found

    def largest_of(self, name: str) -> Value:
        """The largest of a stage's definition over stages."""
        return self._reduced(stages_max(symbol(name)))

    def of_fullest(self, name: str) -> Value:
        """A definition at the stage with the largest peak of memory."""
        return self._reduced(stages_at(symbol(name), symbol("M_stage_peak")))

    def _reduced(self, node: Expr) -> Value:
        ((((call, _),), _),) = node.terms.items()
        assert isinstance(call, Call)
        return self.reduced(call)

    # what reductions go over -------------------------------------------------------------------------------------------

    def at(self, stage: Slot, body: Expr, given: Mapping[str, Value]) -> Value:
        """An expression at a slot, where some symbols are given."""
        if not given:
            assert isinstance(stage.scope, Scope)
            return stage.scope.lower(body)
        program = self.program
        scope = Scope(program, {name: given[name] if name in given else stage.scope.value(name) for name in body.symbols()}, {})
        # a stage's seconds are multiplied once, by all that stands beside them, which is over few points
        beside: dict[Monomial, dict[Monomial, Number]] = {}
        for monomial, coefficient in body.terms.items():
            own = tuple(f for f in monomial if isinstance(f[0], Symbol) and self._of_place(f[0].name, given))
            beside.setdefault(own, {})[tuple(f for f in monomial if f not in own)] = coefficient
        parts = [(scope.lower(Expr({own: 1})), scope.lower(Expr(rest))) for own, rest in beside.items()]
        return program.total([(program.product(1, [(value, 1), (by, 1)]), 1) for value, by in parts])

    def _of_place(self, name: str, given: Mapping[str, Value]) -> bool:
        return name in self.stage_definitions or (name in given and name != "i")

    def ranks(self, pairs: bool) -> Sequence[tuple[_Rank, Value]]:
        """Slots and how many stages each stands for; of pairs those of the one pipeline of the grid."""
        if not pairs:
            return [((slot,), slot.count) for slot in self.slots]
        (line,) = self.pipelines
        of_class = {line.first[held]: slot for slot in self.slots for held in slot.held if held is not None}
        return [(tuple(of_class[stage] for stage in rank), self.program.number(count)) for rank, count in counted(line.pairs).items()]

    def heaviest(self) -> Sequence[_Rank]:
        """Slots that can be the slowest stage."""
        return [(slot,) for slot in self.slots if slot.slowest]

    def places(self) -> Sequence[_Rank]:
        """Slots at every place that can hold the most."""
        return [(slot,) for slot in self.memory]

    def waiting(self, pairs: bool) -> Iterator[tuple[_Rank, Value, Sequence[tuple[_Rank, Value]]]]:
        """The k-th run of every pipeline as one slot; a run before a later one that holds as much waits no longer."""
        assert not pairs
        runs = [_waiting(p.runs) for p in self.pipelines]
        for k in range(max(map(len, runs))):
            own = [r[min(k, len(r) - 1)] for r in runs]
            later = []
            for slot in self.slots:
                behind = [
                    sum(r.last - r.first + 1 for r in p.runs if r.first > run.last and r.holdings == held) if first else 0
                    for p, run, held, first in zip(self.pipelines, own, slot.held, self._counted(slot))
                ]
                later.append(((slot,), self.table(behind)))
            held = tuple(run.holdings for run in own)
            one = self.program.number(1)
            yield (Slot(_Chosen(self, held), one, one, True, held),), self.table([run.last for run in own]), later

    def between(self) -> Iterator[tuple[_Rank, Value, Sequence[tuple[_Rank, Value]], Sequence[tuple[_Rank, Value]]]]:
        """The first and the last of the k-th run of every pipeline."""
        one = self.program.number(1)
        for k in range(max(len(p.runs) for p in self.pipelines)):
            own = [p.runs[min(k, len(p.runs) - 1)] for p in self.pipelines]
            held = tuple(run.holdings for run in own)
            slot = Slot(_Chosen(self, held), one, one, True, held)
            for places in dict.fromkeys((tuple(run.first for run in own), tuple(run.last for run in own))):
                yield (slot,), self.table(places), self._counts(0, places), self._counts(1, places)

    def _counts(self, side: int, places: Sequence[int]) -> list[tuple[_Rank, Value]]:
        """Of every slot how many stages lie before each pipeline's place, or after it."""
        found: list[tuple[_Rank, Value]] = []
        for slot in self.slots:
            numbers = []
            for line, place, held, first in zip(self.pipelines, places, slot.held, self._counted(slot)):
                there = [stage for stage in line.members[held] if (stage > place if side else stage < place)] if first and held is not None else []
                numbers.append(len(there))
            found.append(((slot,), self.table(numbers)))
        return found

    def total(self, parts: Sequence[tuple[Value, Value]]) -> Value:
        """The sum of values times numbers of stages."""
        return self.program.total([(self.program.product(1, [(value, 1), (count, 1)]), 1) for value, count in parts])

    def mean(self, values: Sequence[Value]) -> Value:
        """The mean of a rank's values."""
        return self.program.product(Fraction(1, len(values)), [(self.program.total([(value, 1) for value in values]), 1)])

    def largest(self, values: Sequence[tuple[_Rank, Value]]) -> Value:
        """The largest value of slots that are there."""
        return self.program.extreme("max", [self._present(rank, value) for rank, value in values])

    def chosen(self, values: Sequence[tuple[_Rank, Value, Value]]) -> Value:
        """The value of the first largest key, of slots that are there."""
        return self.program.of_largest([(value, self._present(rank, key)) for rank, value, key in values])

    def _present(self, rank: _Rank, value: Value) -> Value:
        return self.program.product(1, [(value, 1), (rank[0].there, 1)])

    def holding(self, held: Sequence[Holdings | None], name: str) -> Value:
        """A stage's definition where each pipeline has the class that it holds."""
        found: list[tuple[Value, int]] = []
        for slot in self.slots:
            here = [int(own == asked and first) for own, asked, first in zip(slot.held, held, self._counted(slot))]
            if any(here):
                found.append((self.program.product(1, [(slot.scope.value(name), 1), (self.table(here), 1)]), 1))
        return self.program.total(found)

    def _counted(self, slot: Slot) -> list[bool]:
        """Per pipeline, whether this slot is the first to stand for its class."""
        found = []
        for k, held in enumerate(slot.held):
            found.append(held is not None and next(s for s in self.slots if s.held[k] == held) is slot)
        return found

    def summed_holding(self, name: str) -> Value:
        """A stage's own symbol, summed over stages."""
        at = self.pipelines[0].names.index(name)
        return self.table([sum(h[at] * n for h, n in line.classes.items()) for line in self.pipelines])


class _Chosen:
    """The stage of every pipeline of a grid that holds one of these."""

    def __init__(self, slots: Slots, held: Sequence[Holdings | None]):
        self.slots, self.held = slots, held

    def value(self, name: str) -> Value:
        of_stage = name in self.slots.pipelines[0].names or name in self.slots.stage_definitions
        return self.slots.holding(self.held, name) if of_stage else self.slots.base.value(name)


def _waiting(runs: Sequence[Run]) -> list[Run]:
    """Runs that no later one, with nothing above it between them, outweighs: the candidates for the longest wait."""
    kept = []
    for k, run in enumerate(runs):
        outweighed = False
        for later in range(k + 1, len(runs)):
            if all(within(runs[j].holdings, runs[later].holdings) for j in range(k, later)):
                outweighed = True
                break
        if not outweighed:
            kept.append(run)
    return kept


@dataclass(frozen=True)
class _Place:
    """Of a slot, or of a further place that holds as much, what follows from the pipelines alone. first: whether it is a slot."""

    symbols: Mapping[str, Value]
    count: Value
    there: Value
    slowest: bool
    held: tuple[Holdings | None, ...]
    label: str
    first: bool


def make_slots(
    program: Program,
    base: Scope,
    pipelines: list[Line],
    codes: np.ndarray,
    stage_definitions: Mapping[str, tuple[Expr, bool]],
) -> Slots:
    """codes: over the axes of pp and vpp, which of `pipelines` a point has."""

    def tabulated(values: Sequence[Number]) -> Value:
        return program.array(np.array([float(v) for v in values])[codes])

    key = ("slots", *map(id, pipelines), codes.shape, codes.tobytes())
    if key not in program.known:
        # kept with the pipelines, whose places in memory nothing else takes then
        program.known[key] = list(_places(pipelines, tabulated)), tabulated, pipelines
    places, table, _ = program.known[key]
    outline = Outline(base, stage_definitions, places[0].symbols)
    memory: list[Slot] = []
    slots: list[Slot] = []
    for place in places:
        scope = Scope(program, place.symbols, stage_definitions, base, place.label, outline)
        slot = Slot(scope, place.count, place.there, place.slowest, place.held)
        memory.append(slot)
        if place.first:
            slots.append(slot)
    return Slots(program, slots, memory, pipelines, table, base, stage_definitions, outline)


def _places(pipelines: list[Line], table: Callable[[Sequence[Number]], Value]) -> Iterator[_Place]:
    """Slots, each followed by further places of stages that hold as much."""
    names = pipelines[0].names
    signatures: dict[tuple[bool, ...], list[list[Holdings]]] = {}
    for k, line in enumerate(pipelines):
        for holdings in line.classes:
            signatures.setdefault(tuple(h > 0 for h in holdings), [[] for _ in pipelines])[k].append(holdings)
    slots = 0
    for per_pipeline in signatures.values():
        somewhere = next(h for own in per_pipeline for h in own)
        for k in range(max(map(len, per_pipeline))):
            own = [classes[min(k, len(classes) - 1)] if classes else None for classes in per_pipeline]
            first = [k < len(classes) for classes in per_pipeline]
            held = [h if h is not None else somewhere for h in own]
            symbols = {name: table([h[at] for h in held]) for at, name in enumerate(names)}
            count = table([line.classes[h] if h is not None and new else 0 for line, h, new in zip(pipelines, own, first)])
            there = table([int(h is not None) for h in own])
            slowest = any(h is not None and not _outweighed(h, line) for h, line in zip(own, pipelines))
            deepest = max(len(line.fullest[h]) for h, line in zip(own, pipelines) if h is not None)
            for again in range(deepest):
                places = [line.fullest[h][min(again, len(line.fullest[h]) - 1)] if h is not None else 0 for h, line in zip(own, pipelines)]
                label = f"@{slots}" if not again else f"@{slots}.{again}"
                yield _Place({**symbols, "i": table(places)}, count, there, slowest, tuple(own), label, not again)
            slots += 1


def _outweighed(holdings: Holdings, line: Line) -> bool:
    """Whether another class of the pipeline holds as much of everything and more of something."""
    return any(other != holdings and within(holdings, other) for other in line.classes)
