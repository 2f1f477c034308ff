"""Numbers for claims: exact points at which the facts hold, where no proof is found; and the smallest one at which a claim fails."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction
from itertools import combinations_with_replacement, count, islice

from symsim.algebra.expr import Expr, Number, symbol
from symsim.algebra.facts import Fact, declared, solved
from symsim.algebra.vocabulary import domain

POINTS = 64
_FEWEST = 16
_TRIES = 6_000
_MOST_TRIED = 20_000
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)

Point = dict[str, Number]


class Points:
    """Points at which facts hold: the other symbols are free, those that equalities give follow and must lie in their domains."""

    def __init__(self, names: Set[str], facts: Sequence[Fact]) -> None:
        said = declared(facts)
        self.kind = {n: said.get(n) or domain(n) for f in facts for n in f.symbols} | {n: said.get(n) or domain(n) for n in names}
        self.given = solved(facts)
        self.inequalities = [f for f in facts if f.relation in ("<", "<=", ">", ">=")]
        bounds = [(f.left, f.right) for f in self.inequalities if f.relation == ">=" and isinstance(f.right, Expr) and not f.right.symbols()]
        self.least = {name: int(right.evaluate({})) for left, right in bounds for name in left.symbols() if left == symbol(name)}
        self.free = sorted((names | self.kind.keys() | {n for v in self.given.values() for n in v.symbols()}) - self.given.keys())
        self.kind |= {n: domain(n) for n in self.free if n not in self.kind}

    def complete(self, free: Mapping[str, Number]) -> Point | None:
        """The point with the symbols that follow, None where it is not one."""
        point: Point = dict(free)
        try:
            for name, value in self.given.items():
                point[name] = value.evaluate(point)
            if not all(_lies(point[n], self.kind.get(n, "real")) for n in self.given):
                return None
            held = all(_holds(f, point) for f in self.inequalities)
        except ZeroDivisionError:
            return None
        return point if held else None

    def drawn(self, seed: int = 0) -> Iterator[Point]:
        """Random ones."""
        draw = random.Random(seed)
        for _ in range(_TRIES):
            point = self.complete({n: _number(draw, self.kind[n]) for n in self.free})
            if point is not None:
                yield point

    def smallest(self) -> Iterator[Point]:
        """Those of small integers, the least sum first."""
        first = [_first(self.kind[n], self.least.get(n, 0)) for n in self.free]
        moved = [k for k, n in enumerate(self.free) if self.kind[n] != "share"]
        tried = 0
        for more in count():
            steps = islice(combinations_with_replacement(moved, more), _MOST_TRIED - tried)
            found = sorted([start + taken.count(k) for k, start in enumerate(first)] for taken in steps)
            tried += len(found)
            for values in found:
                point = self.complete(dict(zip(self.free, values)))
                if point is not None:
                    yield point
            if not moved or tried >= _MOST_TRIED:
                return


def _first(kind: str, least: int) -> int:
    """The least integer that there is."""
    return 1 if kind == "share" else max(least, 0 if kind.startswith("non-negative") else 1)


def _number(draw: random.Random, kind: str) -> Number:
    if kind == "share":
        return Fraction(draw.randint(1, 8), 8)
    size = draw.choice(_SIZES) if draw.random() < 0.8 else draw.randint(1, 100)
    if kind.startswith("non-negative") and draw.random() < 0.2:
        return 0
    return size if kind.endswith("integer") else Fraction(size, draw.choice((1, 2, 3, 5)))


def _lies(value: Number, kind: str) -> bool:
    if kind.endswith("integer") and Fraction(value).denominator != 1:
        return False
    if kind == "share" and value > 1:
        return False
    return value > 0 if kind.startswith("positive") or kind == "share" else value >= 0 if kind.startswith("non-negative") else True


def _holds(fact: Fact, point: Point) -> bool:
    value = fact.difference.evaluate(point)
    return value > 0 if fact.relation in ("<", ">") else value >= 0


def tested_points(amount: Expr, facts: Sequence[Fact]) -> int:
    """At how many random exact points, where the facts hold, an expression is zero; 0 where it is not, or where few are found."""
    count = 0
    for point in Points(amount.symbols(), facts).drawn():
        try:
            if amount.evaluate(point):
                return 0
        except ZeroDivisionError:
            continue
        count += 1
        if count == POINTS:
            break
    return count if count >= _FEWEST or (count and not amount.symbols()) else 0


def counter_model(amount: Expr, facts: Sequence[Fact], possible: Sequence[Fact] = ()) -> tuple[Point, Number] | None:
    """The smallest integers where the facts hold and an expression is not zero, and what it is there. possible: what holds besides of all
    points that there can be, as far as it is of the same symbols and facts do not say what these are."""
    names = amount.symbols() | {n for f in facts for n in f.symbols}
    said = {name for name, value in solved(facts).items() if not value.symbols()}
    for point in Points(amount.symbols(), (*facts, *(f for f in possible if f.symbols <= names and not f.symbols <= said))).smallest():
        try:
            value = amount.evaluate(point)
        except ZeroDivisionError:
            continue
        if value:
            return point, value
    return None
