"""Operators on intervals, where more is to be said than that they rise or fall with an operand (`operators.py`).

Of arrays (or numbers) of the ends of intervals, one pair (low, high) an operand, the ends of all results; an end that is no number
bounds nothing. Truths are (surely true, possibly true). np: NumPy, handed in so that it is loaded where there are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Interval = tuple[Any, Any]


def monotone(function: Callable[..., Any], way: Callable[[int], int], operands: Sequence[Interval]) -> Interval:
    """Of a function that rises (way 1) or falls (-1) with each operand."""
    rising = [way(k) > 0 for k in range(len(operands))]
    low = function(*(x[0] if up else x[1] for x, up in zip(operands, rising)))
    return low, function(*(x[1] if up else x[0] for x, up in zip(operands, rising)))


def product(np: Any, x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    if np.min(a) >= 0 and np.min(c) >= 0:
        return a * c, b * d
    corners = (a * c, a * d, b * c, b * d)
    return _least(np, corners), _most(np, corners)


def quotient(np: Any, x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    if np.min(a) >= 0 and np.min(c) > 0:
        return a / d, b / c
    corners = (a / c, a / d, b / c, b / d)
    crosses = (np.asarray(c) <= 0) & (np.asarray(d) >= 0)
    return np.where(crosses, -np.inf, _least(np, corners)), np.where(crosses, np.inf, _most(np, corners))


def remainder(np: Any, x: Interval, y: Interval) -> Interval:
    """Between zero and the divisor."""
    c, d = np.asarray(y[0], dtype=float), np.asarray(y[1], dtype=float)
    crosses = (c <= 0) & (d >= 0)
    return np.where(crosses, -np.inf, np.minimum(c, 0)), np.where(crosses, np.inf, np.maximum(d, 0))


def absolute(np: Any, x: Interval) -> Interval:
    a, b = x
    return np.where((np.asarray(a) <= 0) & (np.asarray(b) >= 0), 0.0, np.minimum(abs(a), abs(b))), np.maximum(abs(a), abs(b))


def equal(np: Any, x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    return np.equal(a, b) & np.equal(c, d) & np.equal(a, c), np.less_equal(a, d) & np.less_equal(c, b)


def unequal(np: Any, x: Interval, y: Interval) -> Interval:
    surely, possibly = equal(np, x, y)
    return np.logical_not(possibly), np.logical_not(surely)


def choice(np: Any, condition: Interval, yes: Interval, no: Interval) -> Interval:
    (sure, can), (a, b), (c, d) = condition, yes, no
    low = np.where(sure, a, np.where(can, np.minimum(a, c), c))
    return low, np.where(sure, b, np.where(can, np.maximum(b, d), d))


def _least(np: Any, corners: Sequence[Any]) -> Any:
    return np.fmin(np.fmin(corners[0], corners[1]), np.fmin(corners[2], corners[3]))


def _most(np: Any, corners: Sequence[Any]) -> Any:
    return np.fmax(np.fmax(corners[0], corners[1]), np.fmax(corners[2], corners[3]))
