"""Which of the stages that hold the same can hold the most in flight, at any number of micro-batches that is asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from symsim.algebra.expr import Expr, Number
from symsim.algebra.reductions import Line, members, stage_runs
from symsim.algebra.vocabulary import domain
from symsim.inputs.strategy import Strategy
from symsim.pipeline.fullest import falls
from symsim.pipeline.schedule import Schedule
from symsim.pipeline.schedules import round_of, schedule_of
from symsim.program.program import Program
from symsim.program.scope import Scope


def line_of(strategy: Strategy, stages: Iterable[Mapping[str, Number]], microbatches: np.ndarray, groups: np.ndarray) -> Line:
    """The stages of a strategy, given the symbols of each, of which in-flight counts are compared at each of these
    (micro-batches, group size)."""
    given = list(stages)
    runs, schedule = stage_runs(given), schedule_of(strategy)
    sizes = {"pp": strategy.pp, "vpp": strategy.vpp}
    fullest = {h: _fullest(schedule, own, sizes, microbatches, groups) for h, own in members(runs).items()}
    return Line(tuple(n for n in given[0] if n != "i"), runs, fullest)


@dataclass(frozen=True)
class Pipeline:
    """The stages of a strategy, with the symbols of each, and its lines that were asked for."""

    strategy: Strategy
    stages: Sequence[Mapping[str, Number]]
    _lines: dict[tuple[bytes, bytes], Line] = field(default_factory=dict)
    _with: dict[tuple[str, ...], "Pipeline"] = field(default_factory=dict)

    @cached_property
    def held(self) -> Hashable:
        """What its stages hold: of equal pipelines the same."""
        return tuple(tuple(stage.items()) for stage in self.stages)

    def of(self, names: Iterable[str]) -> "Pipeline":
        """With these symbols, of which a stage that does not have one holds none; one of what is never none, which formulas divide by."""
        own = tuple(names)
        if own == tuple(self.stages[0]):
            return self
        if own not in self._with:
            self._with[own] = Pipeline(self.strategy, [{n: stage.get(n, _fewest(n)) for n in own} for stage in self.stages])
        return self._with[own]

    def line(self, microbatches: np.ndarray, groups: np.ndarray) -> Line:
        """As of `line_of`, the same object for the same numbers."""
        key = microbatches.tobytes(), groups.tobytes()
        if key not in self._lines:
            self._lines[key] = line_of(self.strategy, self.stages, microbatches, groups)
        return self._lines[key]


def _fewest(name: str) -> int:
    return int(domain(name) == "positive integer")


def line_at_any(strategy: Strategy, stages: Iterable[Mapping[str, Number]], group: int) -> Line:
    """The stages of a strategy at whatever number of micro-batches: what is in flight bends where it passes a group, a round or twice
    the depth, and nowhere beyond."""
    often = strategy.pipeline_flushes
    several = [often] if falls(schedule_of(strategy)) else [*range(often, often * (4 * strategy.pp + 2 * group), often), often << 20]
    return line_of(strategy, stages, np.array(several), np.array([round_of(strategy, n) or group for n in several]))


def _fullest(schedule: Schedule, stages: Sequence[int], sizes: Mapping[str, int], microbatches: np.ndarray, groups: np.ndarray) -> tuple[int, ...]:
    """Of stages that hold the same, those that no other matches in what is in flight at every number of micro-batches."""
    if len(stages) == 1 or falls(schedule):
        return (stages[0],)
    counts = [_over_stages(e, stages, sizes, microbatches, groups) for e in (schedule.in_flight, schedule.whole)]
    left: list[int] = []
    for k in sorted(range(len(stages)), key=lambda k: -float(counts[0][k].sum())):
        if not any(all((c[other] >= c[k]).all() for c in counts) for other in left):
            left.append(k)
    return tuple(stages[k] for k in left)


def _over_stages(expression: Expr, stages: Sequence[int], sizes: Mapping[str, int], microbatches: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """An expression over stages (rows) and (micro-batches, group) pairs (columns)."""
    program = Program((len(stages), len(microbatches)), small=1 << 62)
    values = {
        "i": program.array(np.array(stages, dtype=float).reshape(-1, 1)),
        "m": program.array(microbatches.astype(float).reshape(1, -1)),
        "group": program.array(groups.astype(float).reshape(1, -1)),
        **{name: program.number(n) for name, n in sizes.items()},
    }
    found = Scope(program, values, {}).lower(expression, exact=True).data
    return np.broadcast_to(np.asarray(found, dtype=float), (len(stages), len(microbatches)))
