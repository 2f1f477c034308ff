"""Bounds of a curve over an interval of its symbol: of its values, and of its slopes between any two points in it.

The slopes are those of all chords, (f(y) - f(x))/(y - x), so that a function that jumps has them too: what rounds up or down rises as steeply
as one likes where its argument rises. Where none of them is negative the curve rises all along, and that is the proof of it. Of max, min and
`at`, only the arguments that may count somewhere in the interval are looked at. Ends are floats, moved outwards by more than
rounding does where terms of both signs meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from symsim.algebra.expr import Expr, Symbol
from symsim.algebra.operators import EXACT
from symsim.asking.curve import Curve, Node

Ends = tuple[float, float]
# more than the rounding of a sum of some thousand terms
_ROUNDING = 1e-12
_ANY = (-math.inf, math.inf)
_RISES, _FALLS, _FLAT = (0.0, math.inf), (-math.inf, 0.0), (0.0, 0.0)


@dataclass(frozen=True)
class Bounds:
    """Of an expression over an interval: its values, and the slopes of its chords."""

    values: Ends
    slopes: Ends

    @property
    def trend(self) -> int | None:
        """1 where it rises or stays, -1 where it falls or stays, 0 where it stays; None where that is not known."""
        low, high = self.slopes
        return 0 if low == high == 0 else 1 if low >= 0 else -1 if high <= 0 else None


class Enclosed:
    """A curve with its coefficients as floats."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self._nodes = [(node, [_terms(a) for a in node.call.arguments]) for node in curve.nodes]
        self._result = _terms(curve.result)
        self._apart: dict[tuple[str, int, int], Terms] = {}

    def over(self, low: float, high: float) -> "Within":
        """Bounds of all nodes and of the result for low <= symbol <= high."""
        known = {self.curve.symbol: Bounds((low, high), (1.0, 1.0))}
        settled: dict[str, int | None] = {}
        for node, arguments in self._nodes:
            parts = [_bounded(terms, known) for terms in arguments]
            if node.chooses:
                known[node.name], settled[node.name] = self._chosen(node, parts, known)
            else:
                known[node.name], settled[node.name] = _of_node(node, parts[0])
        return Within(self.curve, _bounded(self._result, known), settled)

    def _chosen(self, node: Node, parts: list[Bounds], known: dict[str, Bounds]) -> tuple[Bounds, int | None]:
        """Of a max, a min or `at`: what the arguments that may count come to, and the one that does, where one alone may."""
        sign = -1 if node.call.function == "min" else 1
        values, keys = (parts[::2], parts[1::2]) if node.call.function == "at" else (parts, parts)
        lows = [min(sign * k.values[0], sign * k.values[1]) for k in keys]
        highs = [max(sign * k.values[0], sign * k.values[1]) for k in keys]
        floor = max(lows)
        may = [n for n, high in enumerate(highs) if high >= floor]
        if len(may) > 1:
            # what two keys have in common cancels in their difference
            may = [n for n in may if not any(o != n and self._beats(node, o, n, sign, known) for o in may)] or may
        slopes = min(values[n].slopes[0] for n in may), max(values[n].slopes[1] for n in may)
        if node.call.function == "at":
            ends = min(values[n].values[0] for n in may), max(values[n].values[1] for n in may)
            return Bounds(ends, slopes if len(may) == 1 else _ANY), may[0] if len(may) == 1 else None
        low, high = sorted((sign * floor, sign * max(highs[n] for n in may)))
        return Bounds((low, high), slopes), may[0] if len(may) == 1 else None

    def _beats(self, node: Node, one: int, other: int, sign: int, known: dict[str, Bounds]) -> bool:
        """Whether a key is larger (of a min smaller) than another all over the interval; of equal ones the first counts."""
        place = (node.name, one, other)
        if place not in self._apart:
            keys = node.call.branches[1]
            self._apart[place] = _terms((keys[one] - keys[other]) * sign)
        low = _bounded(self._apart[place], known).values[0]
        return low > 0 or (low == 0 and one < other)


@dataclass(frozen=True)
class Within:
    """settled: by node the argument of a max, min or `at` that counts all over the interval, None where more than one may; 0 for other nodes."""

    curve: Curve
    bounds: Bounds
    settled: dict[str, int | None]

    @cached_property
    def reached(self) -> list[tuple[Node, int]]:
        """The nodes that the result stands on through arguments that count, with these; empty where one of them is not settled."""
        needed, found = self.curve.result.symbols(), []
        for node in reversed(self.curve.nodes):
            if node.name in needed:
                choice = self.settled[node.name]
                if choice is None:
                    return []
                found.append((node, choice))
                needed |= looked_at(node, choice)
        return found


def looked_at(node: Node, choice: int) -> frozenset[str]:
    """The names that a node's value stands on, where this of its arguments counts."""
    return node.call.branches[0][choice].symbols() if node.chooses else node.call.symbols


Terms = list[tuple[float, list[tuple[str, int]]]]


def _terms(amount: Expr) -> Terms:
    # a curve holds no call but by its name
    return [(float(c), [(a.name, p) for a, p in m if isinstance(a, Symbol)]) for m, c in amount.terms.items()]


def _bounded(terms: Terms, known: dict[str, Bounds]) -> Bounds:
    values, slopes = [], []
    for coefficient, factors in terms:
        value, slope = (coefficient, coefficient), _FLAT
        for name, power in factors:
            base = known[name]
            raised, steep = _power(base, power)
            slope = _sum([_times(value, steep), _times(raised, slope)])
            value = _times(value, raised)
        values.append(value)
        slopes.append(slope)
    value, slope = _sum(values), _sum(slopes)
    return Bounds(_met(value, _around(terms, known, slope)), slope)


def _around(terms: Terms, known: dict[str, Bounds], slope: Ends) -> Ends:
    """The value in the middle and what the steepest chords add, where every factor is the symbol itself."""
    symbol, moved = next(iter(known.items()))
    if any(name != symbol for _, factors in terms for name, _ in factors) or not all(map(math.isfinite, slope)):
        return _ANY
    low, high = moved.values
    middle = (low + high) / 2
    parts = [c * math.prod(middle**p for _, p in factors) for c, factors in terms]
    total, slack = math.fsum(parts), _ROUNDING * math.fsum(map(abs, parts))
    far = max(map(abs, slope)) * (high - low) / 2 * (1 + _ROUNDING) + slack
    return total - far, total + far


def _met(one: Ends, other: Ends) -> Ends:
    return max(one[0], other[0]), min(one[1], other[1])


def _sum(parts: list[Ends]) -> Ends:
    """A sum, moved outwards where terms of both signs meet."""
    try:
        low, high = math.fsum(p[0] for p in parts), math.fsum(p[1] for p in parts)
    except (ValueError, OverflowError):
        # infinities of both signs meet, as where something is divided by what may be zero
        return _ANY
    if math.isnan(low) or math.isnan(high):
        return _ANY
    least, most = min((p[0] for p in parts), default=0.0), max((p[1] for p in parts), default=0.0)
    if least < 0 < most:
        slack = _ROUNDING * math.fsum(max(abs(p[0]), abs(p[1])) for p in parts)
        return (low, high) if not math.isfinite(slack) else (low - slack, high + slack)
    return low, high


def _times(one: Ends, other: Ends) -> Ends:
    corners = [0.0 if not x or not y else x * y for x in one for y in other]
    return min(corners), max(corners)


def _power(base: Bounds, power: int) -> tuple[Ends, Ends]:
    """base**power, and its slopes."""
    if power == 1:
        return base.values, base.slopes
    low, high = base.values
    if low < 0 or (low == 0 and power < 0):
        return _crossing(base, power)
    ends = sorted((_raised(low, power), _raised(high, power)))
    steep = sorted((power * _raised(low, power - 1), power * _raised(high, power - 1)))
    return (ends[0], ends[1]), _times((steep[0], steep[1]), base.slopes)


def _crossing(base: Bounds, power: int) -> tuple[Ends, Ends]:
    """The same of a base that may be zero or negative."""
    low, high = base.values
    if power < 0:
        return _ANY, _ANY
    most = max(abs(low), abs(high))
    steep = power * most ** (power - 1)
    slopes = _times((-steep, steep), base.slopes)
    return ((0.0, most**power), slopes) if power % 2 == 0 else ((low**power, high**power), slopes)


def _raised(base: float, power: int) -> float:
    return math.inf if not base and power < 0 else base**power


def _of_node(node: Node, part: Bounds) -> tuple[Bounds, int | None]:
    """Of a divisor, a root or what rounds."""
    if node.call.function == "sum":
        return part, 0
    low, high = part.values
    if node.call.function == "sqrt":
        low, high = math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0))
        steep = (1 / (2 * high) if high else math.inf, 1 / (2 * low) if low else math.inf)
        return Bounds((low, high), _times(steep, part.slopes)), 0
    function = EXACT[node.call.function]
    # what rounding may have moved past an integer
    low, high = (float(function(v + way * _ROUNDING * abs(v))) for v, way in ((low, -1), (high, 1)))
    if low == high:
        return Bounds((low, high), _FLAT), 0
    return Bounds((low, high), {1: _RISES, -1: _FALLS, 0: _FLAT, None: _ANY}[part.trend]), 0
