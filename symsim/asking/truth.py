"""Where a condition holds along a symbol: comparisons as signs of curves, joined by and, or and not."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from symsim.algebra.expr import Number
from symsim.asking.curve import Curve
from symsim.asking.moving import Moving
from symsim.asking.signs import Range, Signs, sign, signs
from symsim.asking.subject import Subject, measured, of_node
from symsim.errors import InputError, cut, nearest
from symsim.evaluation.numbers import Evaluation
from symsim.grid.conditions import Node, parse_condition, show
from symsim.grid.units import combined

_HOLDS: dict[str, Callable[[int], bool]] = {
    "lt": lambda s: s < 0,
    "le": lambda s: s <= 0,
    "gt": lambda s: s > 0,
    "ge": lambda s: s >= 0,
    "eq": lambda s: s == 0,
    "ne": lambda s: s != 0,
}
_MOST_SCANNED = 64
_ROUNDING = 1e-12
# of sizes of which each value has its own formulas, how far beyond the present one is looked
_FAR = 64


@dataclass(frozen=True)
class Comparison:
    """left OPERATOR right."""

    kind: str
    left: Subject
    right: Subject
    text: str

    @property
    def difference(self) -> Subject:
        return Subject(self.text, self.left.amount - self.right.amount, self.left.unit or self.right.unit, "")

    def close(self, at: Evaluation) -> bool:
        """Whether both sides are so near that rounding decides."""
        left, right = float(self.left.number(at)), float(self.right.number(at))
        return math.isclose(left, right, rel_tol=_ROUNDING)

    def holds(self, at: Evaluation) -> bool:
        return _HOLDS[self.kind](sign(self.difference.number(at)))


@dataclass(frozen=True)
class Condition:
    """A comparison, or several joined: kind is that of a comparison, or and, or, not."""

    kind: str
    text: str
    parts: tuple["Condition", ...] = ()
    comparison: Comparison | None = None

    @property
    def comparisons(self) -> list[Comparison]:
        own = [self.comparison] if self.comparison else []
        return [*own, *(c for p in self.parts for c in p.comparisons)]

    def holds(self, answers: Callable[[Comparison], bool]) -> bool:
        if self.comparison is not None:
            return answers(self.comparison)
        found = (p.holds(answers) for p in self.parts)
        return not next(found) if self.kind == "not" else all(found) if self.kind == "and" else any(found)


def condition(result: Evaluation, text: str) -> Condition:
    """A condition with units ('M_peak <= 80 GiB and t_step < 4 s'); InputError says what does not read, or which units differ."""
    return _of_node(result, parse_condition(text, "the condition"))


def _of_node(result: Evaluation, node: Node) -> Condition:
    if node.kind in ("and", "or", "not"):
        return Condition(node.kind, show(node), tuple(_of_node(result, a) for a in node.arguments))
    sides = node.arguments
    if node.kind == "name" or (node.kind == "eq" and sides[0].kind == "name" and sides[1] == Node("bool", value=True)):
        name = str(node.value if node.kind == "name" else sides[0].value)
        raise InputError(f"'{cut(name)}' is no condition: {nearest(name, ['fits'], 'M_peak <= 80 GiB is one')}")
    if node.kind not in _HOLDS or any(a.kind in ("bool", "text") for a in sides):
        raise InputError(f"'{cut(show(node))}' is no comparison of two numbers, as M_peak <= 80 GiB is")
    left, right = (of_node(result, a) for a in sides)
    combined(node, [left.unit, right.unit])
    measured((left, right), show(node))
    return Condition(node.kind, show(node), comparison=Comparison(node.kind, left, right, show(node)))


@dataclass(frozen=True)
class Part:
    """From low to high, both included, the condition holds or does not."""

    low: float
    high: float
    holds: bool


@dataclass(frozen=True)
class Truth:
    """Parts from left to right. curves: of every comparison, where it has one. how: what the answer rests on, in words; proved: whether nothing
    was left open."""

    parts: tuple[Part, ...]
    curves: tuple[tuple[Comparison, Curve, Signs], ...]
    how: str
    proved: bool


def truth(moving: Moving, asked: Condition, within: Range) -> Truth:
    """Where a condition holds within a range. InputError where too many values would have to be derived one by one."""
    found: dict[str, tuple[Comparison, Curve, Signs]] = {}
    for comparison in asked.comparisons:
        made = moving.curve(comparison.difference.amount)
        if made is None:
            return one_by_one(moving, asked, within)
        found[comparison.text] = (comparison, made, signs(made, within))
    starts = sorted({s.low for _, _, of in found.values() for s in of.stretches})
    ends = [*starts[1:], within.high]

    def holds_at(x: float) -> bool:
        return asked.holds(lambda c: _HOLDS[c.kind](_sign_at(found[c.text][2], x)))

    parts = [Part(a, b, holds_at(a)) for a, b in zip(starts, ends)]
    every = tuple(found.values())
    shown = tuple(_joined(parts, within.whole))
    return Truth(shown, every, _how(every), not any(s.open for _, _, s in every))


def _sign_at(found: Signs, x: float) -> int:
    lows = [s.low for s in found.stretches]
    return found.stretches[bisect.bisect_right(lows, x) - 1].sign


def _joined(parts: Sequence[Part], whole: bool) -> Iterator[Part]:
    """Neighbours of one kind as one; of integers a part ends before the next begins."""
    last: Part | None = None
    for part in parts:
        if last is not None and last.holds == part.holds:
            last = replace(last, high=part.high)
            continue
        if last is not None:
            yield replace(last, high=part.low - 1) if whole else last
        last = part
    if last is not None:
        yield last


def _how(curves: Sequence[tuple[Comparison, Curve, Signs]]) -> str:
    ways = [s.trend for _, _, s in curves]
    if len(ways) == 1 and ways[0] is not None:
        word = {1: "rises", -1: "falls", 0: "stays the same"}[ways[0]]
        return f"bisection: the difference {word} all along, proved by bounds of its slope on {_cells(curves)}"
    if all(way is not None for way in ways):
        return f"bisection: each side's difference is monotone, proved by bounds of its slope on {_cells(curves)}"
    opened = sum(s.open for _, _, s in curves)
    left = f"; {opened} of them stayed open, and their ends alone were looked at" if opened else ", each proved to keep its sign or its trend"
    return f"cells: no trend is proved all along, so the range was cut into {_cells(curves)}{left}"


def _cells(curves: Sequence[tuple[Comparison, Curve, Signs]]) -> str:
    count = sum(s.cells for _, _, s in curves)
    return f"{count:,} cell{'s' if count > 1 else ''}"


def one_by_one(moving: Moving, asked: Condition, within: Range) -> Truth:
    """Values that have formulas of their own: each that can run is derived, or where these are many, those that a bisection looks at."""
    if not within.whole and not moving.now:
        raise InputError(f"{moving.name} is 0 here, and formulas are others where it is not: ask from there, with --set {moving.name}=VALUE")
    if not within.whole:
        raise InputError(f"{moving.name} decides which formula holds; symsim sweep --axis {moving.name}=... looks at its values")

    def holds(value: int) -> bool:
        at = moving.at(value)
        return asked.holds(lambda c: c.holds(at))

    if not moving.degree:
        return _bisected(moving, holds, int(within.low), int(min(within.high, _FAR * max(1.0, float(moving.now)))))
    values = []
    for value in moving.runnable(int(within.low), 1, within.high):
        values.append(value)
        if len(values) > _MOST_SCANNED:
            raise InputError(f"more than {_MOST_SCANNED} values of {moving.name} can run: give a range, as {moving.name}=1:64 in its place")
    if not values:
        raise _none(moving, int(within.low), int(within.high))
    parts = tuple(Part(v, v, holds(v)) for v in values)
    return Truth(parts, (), f"all {len(values)} values that can run, each derived by itself", True)


def _none(moving: Moving, low: int, high: int) -> InputError:
    return InputError(f"no value of {moving.name} from {low:,} to {high:,} can run: {moving.refused(low) or moving.refused(low + 1)}")


def _bisected(moving: Moving, holds: Callable[[int], bool], low: int, high: int) -> Truth:
    """Of values that each have formulas of their own, where what holds changes, if it does so once."""
    least, most = next(moving.runnable(low, 1, high), None), next(moving.runnable(high, -1, low), None)
    if least is None or most is None:
        raise _none(moving, low, high)
    first, last, looked = holds(least), holds(most), 2
    parts = [Part(least, most, first)]
    if first != last:
        left, right = least, most
        while (middle := _between(moving, left, right)) is not None:
            looked += 1
            left, right = (middle, right) if holds(middle) == first else (left, middle)
        parts = [Part(least, left, first), Part(right, most, last)]
    said = f"bisection of values that can run, {looked} of them derived; that it changes once alone from {least:,} to {most:,} is not proved"
    return Truth(tuple(parts), (), said, False)


def _between(moving: Moving, left: int, right: int) -> int | None:
    """A value that can run near the middle of two, None where no other lies between them."""
    middle = (left + right) // 2
    below = next(moving.runnable(middle, -1, left + 1), None)
    return below if below is not None else next(moving.runnable(middle + 1, 1, right - 1), None)


def value_at(moving: Moving, of: Subject, x: Number) -> Number:
    """The exact number of a subject with another value of the symbol."""
    if not moving.whole and moving.part == "system":
        return moving.formula(of.amount).value(moving.values(x))
    return of.number(moving.at(x))
