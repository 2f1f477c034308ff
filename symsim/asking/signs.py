"""Where a curve is above zero, at it, and below, along its symbol.

Where its trend is proved (`enclosure.py`) the one place at which its sign changes is found by bisection. Elsewhere the range is cut into
cells until each has a sign, or a trend; how many have neither when there are too many cells is told, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from symsim.algebra.expr import Number
from symsim.asking.curve import Curve
from symsim.asking.enclosure import Enclosed

_MOST_CELLS = 4000
_TREND_CELLS = 256
_NARROW = 1e-12


@dataclass(frozen=True)
class Range:
    """Where a symbol is looked at: from low to high, both included; whole: integers alone."""

    low: float
    high: float
    whole: bool


@dataclass(frozen=True)
class Stretch:
    """From low to high, both included, the curve has this sign."""

    low: float
    high: float
    sign: int


@dataclass(frozen=True)
class Signs:
    """Stretches from left to right. trend: 1 or -1 where the curve is proved to rise or to fall (or to stay) all along; cells: how many it
    took; open: cells without an answer, of which the ends alone were looked at."""

    stretches: tuple[Stretch, ...]
    trend: int | None
    cells: int
    open: int = 0


def trend(enclosed: Enclosed, low: float, high: float, most: int = _TREND_CELLS) -> tuple[int | None, int]:
    """1, -1 or 0 where the curve is proved to rise, to fall or to stay from low to high, and the cells that this took; else None."""
    found: set[int] = set()
    waiting, cells = [(low, high)], 0
    while waiting:
        a, b = waiting.pop()
        way = enclosed.over(a, b).bounds.trend
        cells += 1
        if way is None:
            middle = _middle(a, b)
            if cells + len(waiting) >= most or not a < middle < b:
                return None, cells
            waiting += [(middle, b), (a, middle)]
            continue
        found.add(way)
        if {1, -1} <= found:
            return None, cells
    return next(iter(found - {0}), 0), cells


def signs(curve: Curve, within: Range) -> Signs:
    """Where the curve is above, at and below zero within a range."""
    enclosed = Enclosed(curve)
    way, cells = trend(enclosed, within.low, within.high)
    if way is not None:
        return Signs(tuple(_monotone(curve.at, within.low, within.high, within.whole)), way, cells)
    return _by_cells(curve, enclosed, within)


def _by_cells(curve: Curve, enclosed: Enclosed, within: Range) -> Signs:
    found: list[Stretch] = []
    waiting, cells, unknown = [(within.low, within.high)], 0, 0
    while waiting:
        a, b = waiting.pop()
        bounds, cells = enclosed.over(a, b).bounds, cells + 1
        low, high = bounds.values
        if low > 0 or high < 0:
            found.append(Stretch(a, b, 1 if low > 0 else -1))
        elif bounds.trend is not None or b - a <= (0.5 if within.whole else _NARROW * max(abs(a), abs(b))):
            found += _monotone(curve.at, a, b, within.whole)
        elif cells + len(waiting) >= _MOST_CELLS:
            unknown += 1
            found += _monotone(curve.at, a, b, within.whole)
        else:
            middle = _middle(a, b)
            middle = float(math.floor(middle)) if within.whole and math.floor(middle) >= a else middle
            after = middle + 1 if within.whole and middle == math.floor(middle) and middle + 1 <= b else middle
            waiting += [(after, b), (a, middle)]
    return Signs(_joined(found), None, cells, unknown)


def _joined(found: list[Stretch]) -> tuple[Stretch, ...]:
    made: list[Stretch] = []
    for one in found:
        if made and made[-1].sign == one.sign:
            made[-1] = Stretch(made[-1].low, one.high, one.sign)
        else:
            made.append(one)
    return tuple(made)


def sign(value: Number) -> int:
    return (value > 0) - (value < 0)


def _monotone(at: Callable[[Number], Number], low: float, high: float, whole: bool) -> list[Stretch]:
    """The stretches of a curve that rises or falls: below, at and above, or the other way round."""
    found: list[Stretch] = []
    last = sign(at(_number(high, whole)))
    while (first := sign(at(_number(low, whole)))) != last:
        end, after = change(partial(_has_sign, at, first), low, high, whole)
        found.append(Stretch(low, end, first))
        low = after
    return [*found, Stretch(low, high, last)]


def _has_sign(at: Callable[[Number], Number], wanted: int, x: Number) -> bool:
    return sign(at(x)) == wanted


def change(holds: Callable[[Number], bool], low: float, high: float, whole: bool) -> tuple[float, float]:
    """Where what holds at low stops: the last point at which it does and the next one, neighbours among integers or among floats."""
    while True:
        middle = float((int(low) + int(high)) // 2) if whole else _middle(low, high)
        if not low < middle < high:
            return low, high
        if holds(_number(middle, whole)):
            low = middle
        else:
            high = middle


def _number(x: float, whole: bool) -> Number:
    return int(x) if whole else Fraction(x)


def _middle(low: float, high: float) -> float:
    """Between the two: of ends far apart by their digits, else halfway."""
    return math.sqrt(low * high) if low > 0 and high > 4 * low else low + (high - low) / 2
