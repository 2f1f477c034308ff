"""Which of the stages that hold the same can hold the most in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symsim.algebra.expr import Call, Expr, Number
from symsim.pipeline.schedule import Schedule


def falls(schedule: Schedule) -> bool:
    """Whether no stage holds more in flight than one before it, at any number of micro-batches: the first of equal stages is then
    the fullest."""
    return all((slope := _slope(counted, "i")) is not None and slope <= 0 for counted in (schedule.in_flight, schedule.whole))


def fullest(schedule: Schedule, stages: Sequence[int], sizes: Mapping[str, Number]) -> tuple[int, ...]:
    """Of stages that hold the same, those that no other matches in what is in flight at these sizes; the first of equal ones."""
    if len(stages) == 1 or falls(schedule):
        return (stages[0],)
    counts = [tuple(e.evaluate({**sizes, "i": stage}) for e in (schedule.in_flight, schedule.whole)) for stage in stages]
    left: list[int] = []
    for k in sorted(range(len(stages)), key=lambda k: -counts[k][0]):
        if not any(all(more >= less for more, less in zip(counts[other], counts[k])) for other in left):
            left.append(k)
    return tuple(stages[k] for k in left)


def _slope(expression: Expr, name: str) -> int | None:
    """The sign of the change with a symbol, the others being positive sizes: 0 where it does not occur, None where it is not seen."""
    found = 0
    for monomial, coefficient in expression.terms.items():
        inside = [(atom, power) for atom, power in monomial if name in Expr({((atom, 1),): 1}).symbols()]
        if not inside:
            continue
        (atom, power), *others = inside
        if others or power != 1 or any(isinstance(a, Call) for a, _ in monomial if a != atom):
            return None
        slope: int | None = 1
        if isinstance(atom, Call):
            slopes = {_slope(argument, name) for argument in atom.arguments} - {0}
            if atom.function not in ("min", "max", "floor", "ceil") or len(slopes) > 1:
                return None
            slope = slopes.pop() if slopes else 0
        if slope is None:
            return None
        slope = slope if coefficient > 0 else -slope
        if slope * found < 0:
            return None
        found = found or slope
    return found
