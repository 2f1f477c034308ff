"""Stages of a pipeline as a few slots: what stages hold, tabulated over the degrees of a grid, and the reductions over them.

Stages that hold the same cost the same, so a pipeline of any depth is a handful of classes with a number of members each.
Over all (pp, vpp) of a grid the classes are sorted into slots by what they hold at all (the embedding, layers of a kind, the
head): whether a part is there is then a constant of the slot, and how much of it a table over (pp, vpp).

That a stage which holds no more than another is never slower rests on times that are not negative, and on a layer that is
recomputed taking no less than one that is not; the tests compare with every stage of `symsim eval`.

Reductions over stages that follow are those of `symsim.step_time.reductions` and of the largest peak: a stage that holds no
more than another of the same pipeline is never the slower one, and of equal stages the one with the most micro-batches in
flight holds the most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from symsim.evaluation import Evaluation
from symsim.expr import Expr, Number
from symsim.grid.program import Program, Value
from symsim.grid.scope import Scope
from symsim.schedules import Schedule, schedule_of

Holdings = tuple[int, ...]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Run:
    """Consecutive stages that hold the same: their class, how many, and the first and last index."""

    holdings: Holdings
    first: int
    last: int


@dataclass(frozen=True)
class Pipeline:
    """The stages of one (pp, vpp): runs of equal ones, and the index (of each class) that has the most in flight."""

    names: tuple[str, ...]
    runs: tuple[Run, ...]
    fullest: Mapping[Holdings, tuple[int, ...]]

    @property
    def classes(self) -> dict[Holdings, int]:
        """Stages of each class, in order of the first."""
        found: dict[Holdings, int] = {}
        for run in self.runs:
            found[run.holdings] = found.get(run.holdings, 0) + run.last - run.first + 1
        return found


def pipeline(at: Evaluation, microbatches: np.ndarray, groups: np.ndarray) -> Pipeline:
    """The stages of a strategy, of which in-flight counts are compared at each of these (micro-batches, group size)."""
    names: tuple[str, ...] = ()
    runs: list[Run] = []
    for stage in at.stages:
        own = {n: int(v) for n, v in at.stage_values(stage).items() if n != "i"}
        names = tuple(own)
        holdings = tuple(own.values())
        if runs and runs[-1].holdings == holdings:
            runs[-1] = replace(runs[-1], last=stage.index)
        else:
            runs.append(Run(holdings, stage.index, stage.index))
    members: dict[Holdings, list[int]] = {}
    for run in runs:
        members.setdefault(run.holdings, []).extend(range(run.first, run.last + 1))
    schedule = schedule_of(at.strategy)
    sizes = {"pp": at.strategy.pp, "vpp": at.strategy.vpp}
    fullest = {h: _fullest(schedule, own, sizes, microbatches, groups) for h, own in members.items()}
    return Pipeline(names, tuple(runs), fullest)


def _fullest(schedule: Schedule, members: list[int], sizes: Mapping[str, int], microbatches: np.ndarray, groups: np.ndarray) -> tuple[int, ...]:
    """Of stages that hold the same, those that no other matches in what is in flight at every number of micro-batches."""
    if len(members) == 1:
        return tuple(members)
    counts = [_over_stages(e, members, sizes, microbatches, groups) for e in (schedule.in_flight, schedule.whole)]
    left: list[int] = []
    for k in sorted(range(len(members)), key=lambda k: -float(counts[0][k].sum())):
        if not any(all((c[other] >= c[k]).all() for c in counts) for other in left):
            left.append(k)
    return tuple(members[k] for k in left)


def _over_stages(expression: Expr, members: list[int], sizes: Mapping[str, int], microbatches: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """An expression over stages (rows) and (micro-batches, group) pairs (columns)."""
    program = Program((len(members), len(microbatches)), small=1 << 62)
    values = {
        "i": program.array(np.array(members, dtype=float).reshape(-1, 1)),
        "m": program.array(microbatches.astype(float).reshape(1, -1)),
        "group": program.array(groups.astype(float).reshape(1, -1)),
        **{name: program.number(n) for name, n in sizes.items()},
    }
    found = Scope(program, values, {}).lower(expression, exact=True).data
    return np.broadcast_to(np.asarray(found, dtype=float), (len(members), len(microbatches)))


@dataclass
class Slot:
    """One stage class over the grid: the scope of its definitions, and tables over (pp, vpp).

    count: stages it stands for (0 where it repeats another slot's). there: 1 where the pipeline has such a stage, or a repetition.
    slowest: whether it can be the slowest stage anywhere. held: per (pp, vpp) what it holds.
    """

    scope: "Scope | _Means"
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
    pipelines: list[Pipeline]
    table: Callable[[Sequence[Number]], Value]
    base: Scope

    # over stages -------------------------------------------------------------------------------------------------------

    def largest(self, name: str) -> Value:
        """The largest of a definition over stages."""
        own = self.slots if name in ("t_stage", "t_tail_stage") else self.memory
        return self.program.extreme("max", [self._present(s, s.scope.value(name)) for s in own])

    def _present(self, slot: Slot, value: Value) -> Value:
        return self.program.product(1, [(value, 1), (slot.there, 1)])

    def summed_holding(self, name: str) -> Value:
        """A stage's own symbol, summed over stages."""
        at = self.pipelines[0].names.index(name)
        return self.table([sum(h[at] * n for h, n in line.classes.items()) for line in self.pipelines])

    def summed(self, name: str) -> Value:
        return self.program.total([(self.program.product(1, [(s.scope.value(name), 1), (s.count, 1)]), 1) for s in self.slots])

    def of_slowest(self, name: str) -> Value:
        """A definition at the slowest stage: the first for which t_stage is largest."""
        return self._of_largest(name, "t_stage", [s for s in self.slots if s.slowest])

    def of_last(self, name: str) -> Value:
        """A definition at the stage with the longest tail."""
        return self._of_largest(name, "t_tail_stage", self.slots)

    def of_fullest(self, name: str) -> Value:
        """A definition at the stage with the largest peak of memory."""
        return self._of_largest(name, "M_stage_peak", self.memory)

    def slow(self) -> Value:
        """t_stage of the slowest stage."""
        return self.program.extreme("max", [self._present(s, s.scope.value("t_stage")) for s in self.slots if s.slowest])

    def _of_largest(self, name: str, by: str, slots: list[Slot]) -> Value:
        program = self.program
        found, most = slots[0].scope.value(name), self._present(slots[0], slots[0].scope.value(by))
        for slot in slots[1:]:
            own = self._present(slot, slot.scope.value(by))
            found = program.where(program.apply("lt", most, own), slot.scope.value(name), found)
            most = program.apply("max", most, own)
        return found

    def place_gain(self) -> Value:
        """What the place of the slowest stage saves in 1F1B (schedules.place_gain): of consecutive equal stages any one waits
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
                after.append((program.product(1, [(slot.scope.value("t_stage"), 1), (self.table(behind), 1)]), 1))
            waited = program.total([(program.product(1, [(left, 1), (time, 1)]), 1), *after])
            counts = self.table([1 if run.last == p.runs[-1].last else 0 for p, run in zip(self.pipelines, own)])
            if not (not counts.mask and counts.data == 1):
                # a stage so early that it starts none of the last micro-batches waits for nobody
                waited = program.where(program.apply("lt", left, program.number(0)), program.number(0), waited)
            waits.append(waited)
        longest = program.extreme("max", waits)
        return program.total([(program.product(1, [(m, 1), (self.slow(), 1)]), 1), (self.slow(), -1), (longest, -1)])

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
                found.append((self.program.product(1, [(slot.scope.value("t_stage"), 1), (self.table(here), 1)]), 1))
        return self.program.total(found)


def _waiting(runs: Sequence[Run]) -> list[Run]:
    """Runs that no later one, with nothing above it between them, outweighs: the candidates for the longest wait."""
    kept = []
    for k, run in enumerate(runs):
        outweighed = False
        for later in range(k + 1, len(runs)):
            if all(_within(runs[j].holdings, runs[later].holdings) for j in range(k, later)):
                outweighed = True
                break
        if not outweighed:
            kept.append(run)
    return kept


def _within(one: Holdings, other: Holdings) -> bool:
    return all(a <= b for a, b in zip(one, other))


def make_slots(
    program: Program,
    base: Scope,
    pipelines: list[Pipeline],
    codes: np.ndarray,
    stage_definitions: Mapping[str, tuple[Expr, bool]],
    *,
    mirrored: Collection[str] = (),
) -> Slots:
    """codes: over the axes of pp and vpp, which of `pipelines` a point has. mirrored: names of a stage's seconds, of a schedule whose ranks
    hold a stage and its mirror image (there is one pipeline then)."""

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
    if mirrored:
        slots = _pairs(program, slots, pipelines[0], mirrored)
    return Slots(program, slots, memory, pipelines, table, base)


class _Means:
    """The scope of a rank that holds a stage and its mirror image, and half of the micro-batches pass each: times are means."""

    def __init__(self, program: Program, one: "Scope | _Means", two: "Scope | _Means", timed: Collection[str]):
        self.program, self.one, self.two, self.timed = program, one, two, timed

    def value(self, name: str) -> Value:
        if name not in self.timed:
            return self.one.value(name)
        return self.program.product(Fraction(1, 2), [(self.program.total([(self.one.value(name), 1), (self.two.value(name), 1)]), 1)])


def _pairs(program: Program, slots: list[Slot], line: Pipeline, timed: Collection[str]) -> list[Slot]:
    """Slots of the pairs (i, pp - 1 - i) of one pipeline."""
    stages = [run.holdings for run in line.runs for _ in range(run.first, run.last + 1)]
    of_class = {slot.held[0]: slot for slot in slots}
    counts: dict[tuple[Holdings, Holdings], int] = {}
    for one, two in zip(stages, reversed(stages)):
        counts[one, two] = counts.get((one, two), 0) + 1
    made = []
    for (one, two), count in counts.items():
        scope = _Means(program, of_class[one].scope, of_class[two].scope, timed)
        made.append(Slot(scope, program.number(count), program.number(1), True, (one,)))
    return made


def _outweighed(holdings: Holdings, line: Pipeline) -> bool:
    """Whether another class of the pipeline holds as much of everything and more of something."""
    return any(other != holdings and _within(holdings, other) for other in line.classes)
