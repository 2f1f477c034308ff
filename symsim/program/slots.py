"""Stages of a pipeline as a few slots: what stages hold, tabulated over the degrees of a grid, and the reductions over them.

Stages that hold the same cost the same, so a pipeline of any depth is a handful of classes with a number of members each.
Over all (pp, vpp) of a grid the classes are sorted into slots by what they hold at all (the embedding, layers of a kind, the
head): whether a part is there is then a constant of the slot, and how much of it a table over (pp, vpp).

That a stage which holds no more than another is never slower rests on times that are not negative, and on a layer that is
recomputed taking no less than one that is not; the tests compare with every stage of `symsim eval`.

Reductions over stages are the nodes of `symsim.algebra.reductions`: a stage that holds no
more than another of the same pipeline is never the slower one, and of equal stages the one with the most micro-batches in
flight holds the most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from symsim.algebra.expr import Call, Expr, Number, symbol
from symsim.algebra.reductions import Holdings, Line, Run, counted, longest_wait, named, paired, within
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.value import Value

_TIME = symbol("t_stage")
(_WAIT,) = named(longest_wait(_TIME))[1].values()


@dataclass
class Slot:
    """One stage class over the grid: the scope of its definitions, and tables over (pp, vpp).

    count: stages it stands for (0 where it repeats another slot's). there: 1 where the pipeline has such a stage, or a repetition.
    slowest: whether it can be the slowest stage anywhere. held: per (pp, vpp) what it holds.
    """

    scope: "Scope | _Pair"
    count: Value
    there: Value
    slowest: bool
    held: tuple[Holdings | None, ...]


@dataclass
class Slots:
    """All slots of a grid, and the reductions over them."""

    program: Program
    slots: list[Slot]
    memory: list[Slot]
    pipelines: list[Line]
    table: Callable[[Sequence[Number]], Value]
    base: Scope

    # over stages -------------------------------------------------------------------------------------------------------

    def reduced(self, call: Call) -> Value:
        """A reduction over stages (`symsim.algebra.reductions`)."""
        program, body = self.program, call.arguments[0]
        if call.function == "stages_sum":
            own = self._pairs if paired(call) else self.slots
            return program.total([(program.product(1, [(s.scope.lower(body), 1), (s.count, 1)]), 1) for s in own])
        if call.function == "stages_at":
            return self._at(body, call.arguments[1])
        assert call.function == "stages_max", call.function
        if call == _WAIT:
            return self._longest_wait()
        assert not any(node.function == "stages_after" for node in named(body)[1].values()), call
        return self.largest(body)

    @cached_property
    def _pairs(self) -> list[Slot]:
        """Ranks that hold a stage and its mirror image, of the one pipeline of the grid."""
        (line,) = self.pipelines
        of_class = {line.first[held]: slot for slot in self.slots for held in slot.held if held is not None}
        made = []
        for (one, two), count in counted(line.pairs).items():
            scope = _Pair(self.program, of_class[one].scope, of_class[two].scope)
            made.append(Slot(scope, self.program.number(count), self.program.number(1), True, of_class[one].held))
        return made

    def largest(self, body: Expr) -> Value:
        """The largest of an expression over stages."""
        return self.program.extreme("max", [self._present(s, s.scope.lower(body)) for s in self._those(body)])

    def _those(self, body: Expr) -> list[Slot]:
        """Slots that can have the largest: of a micro-batch's seconds those that hold the most, of what depends on the place all places."""
        if any(map(paired, named(body)[1].values())):
            return self._pairs
        if body == _TIME:
            return [s for s in self.slots if s.slowest]
        return self.slots if body == symbol("t_tail_stage") else self.memory

    def _present(self, slot: Slot, value: Value) -> Value:
        return self.program.product(1, [(value, 1), (slot.there, 1)])

    def summed_holding(self, name: str) -> Value:
        """A stage's own symbol, summed over stages."""
        at = self.pipelines[0].names.index(name)
        return self.table([sum(h[at] * n for h, n in line.classes.items()) for line in self.pipelines])

    def of_fullest(self, name: str) -> Value:
        """A definition at the stage with the largest peak of memory."""
        return self._at(symbol(name), symbol("M_stage_peak"))

    def _at(self, body: Expr, by: Expr) -> Value:
        """An expression at the stage for which another is largest: the first of equal ones."""
        return self.program.of_largest([(s.scope.lower(body), self._present(s, s.scope.lower(by))) for s in self._those(by)])

    def _longest_wait(self) -> Value:
        """symsim.algebra.reductions.longest_wait: of consecutive equal stages any one waits
        as long, so the last of each run stands for it; a run before a later one that holds as much waits no longer."""
        program, m, pp = self.program, self.base.value("m"), self.base.value("pp")
        runs = [_waiting(p.runs) for p in self.pipelines]
        waits = []
        for k in range(max(map(len, runs))):
            own = [r[min(k, len(r) - 1)] for r in runs]
            last = self.table([run.last for run in own])
            left = program.total([(m, 1), (pp, -1), (last, 1)])
            time = self._run_time([run.holdings for run in own])
            after = []
            for slot in self.slots:
                behind = [
                    sum(r.last - r.first + 1 for r in p.runs if r.first > run.last and r.holdings == held) if first else 0
                    for p, run, held, first in zip(self.pipelines, own, slot.held, self._counted(slot))
                ]
                after.append((program.product(1, [(slot.scope.lower(_TIME), 1), (self.table(behind), 1)]), 1))
            waited = program.total([(program.product(1, [(left, 1), (time, 1)]), 1), *after])
            counts = self.table([1 if run.last == p.runs[-1].last else 0 for p, run in zip(self.pipelines, own)])
            if not (not counts.mask and counts.data == 1):
                # a stage so early that it starts none of the last micro-batches waits for nobody
                waited = program.where(program.apply("lt", left, program.number(0)), program.number(0), waited)
            waits.append(waited)
        return program.extreme("max", waits)

    def _counted(self, slot: Slot) -> list[bool]:
        """Per pipeline, whether this slot is the first to stand for its class."""
        found = []
        for k, held in enumerate(slot.held):
            found.append(held is not None and next(s for s in self.slots if s.held[k] == held) is slot)
        return found

    def _run_time(self, holdings: Sequence[Holdings]) -> Value:
        """t_stage of a class per pipeline: the slot that stands for it."""
        found: list[tuple[Value, int]] = []
        for slot in self.slots:
            here = [int(held == own and first) for held, own, first in zip(slot.held, holdings, self._counted(slot))]
            if any(here):
                found.append((self.program.product(1, [(slot.scope.lower(_TIME), 1), (self.table(here), 1)]), 1))
        return self.program.total(found)


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


def make_slots(
    program: Program,
    base: Scope,
    pipelines: list[Line],
    codes: np.ndarray,
    stage_definitions: Mapping[str, tuple[Expr, bool]],
) -> Slots:
    """codes: over the axes of pp and vpp, which of `pipelines` a point has."""

    def table(values: Sequence[Number]) -> Value:
        return program.array(np.array([float(v) for v in values])[codes])

    names = pipelines[0].names
    signatures: dict[tuple[bool, ...], list[list[Holdings]]] = {}
    for k, line in enumerate(pipelines):
        for holdings in line.classes:
            signatures.setdefault(tuple(h > 0 for h in holdings), [[] for _ in pipelines])[k].append(holdings)
    slots: list[Slot] = []
    memory: list[Slot] = []
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
            label = f"@{len(slots)}"
            deepest = max(len(line.fullest[h]) for h, line in zip(own, pipelines) if h is not None)
            for again in range(deepest):
                places = [line.fullest[h][min(again, len(line.fullest[h]) - 1)] if h is not None else 0 for h, line in zip(own, pipelines)]
                scope = Scope(program, {**symbols, "i": table(places)}, stage_definitions, base, label if not again else f"{label}.{again}")
                slot = Slot(scope, count, there, slowest, tuple(own))
                memory.append(slot)
                if not again:
                    slots.append(slot)
    return Slots(program, slots, memory, pipelines, table, base)


class _Pair:
    """The scope of a rank that holds a stage and its mirror image: what stages_pair stands for there."""

    def __init__(self, program: Program, one: "Scope | _Pair", two: "Scope | _Pair"):
        self.program, self.one, self.two = program, one, two

    def lower(self, expression: Expr) -> Value:
        (pair,) = named(expression)[1].values()
        parts = [own.lower(pair.arguments[0]) for own in (self.one, self.two)]
        return self.program.product(Fraction(1, 2), [(self.program.total([(part, 1) for part in parts]), 1)])


def _outweighed(holdings: Holdings, line: Line) -> bool:
    """Whether another class of the pipeline holds as much of everything and more of something."""
    return any(other != holdings and within(holdings, other) for other in line.classes)
