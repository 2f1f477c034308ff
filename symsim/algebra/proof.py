"""Whether an expression is never negative, or always positive, for all values of its symbols: decided by shifts.

A fact `m >= p` is the substitution m := p + k with k >= 0, a positive integer is 1 + k, a share is 1/(1 + k), and a symbol
between two bounds is (low + high*k)/(1 + k). What has no negative coefficient once that is done is never negative. Divisors
that are positive are multiplied away; a max or a min is decided case by case, each with the inequalities that hold in it; ceil
and floor lie within one of their argument. "No" means not proven: what is negative at one of a few points is given up at once,
and the work of a proof is bounded.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from symsim.algebra.expr import ONE, Call, Expr, Monomial, Number, Symbol, expr, symbol
from symsim.algebra.operators import FUNCTIONS

_MOST_TERMS = 600
_MOST_WORK = 5_000  # terms looked at in one proof

_POINTS = 6
# of a sum of floats the share that rounding is less than, whatever its terms; below the other number terms may have come to nothing
_ROUNDING, _LEAST = 1e-9, 1e-200

Used = frozenset[int]
"""The numbers of the facts that a proof needed."""
_NOTHING: Used = frozenset()
_INTEGERS = ("positive integer", "non-negative integer")


@dataclass(frozen=True)
class Inequality:
    """`amount` >= 0, or > 0 where strict; fact: its number among the facts given, -1 for what holds in one case only."""

    amount: Expr
    strict: bool
    fact: int

    def holds(self, point: "_Point") -> bool:
        """Whether it holds at a point, or has no value there."""
        try:
            value = point.near(self.amount) or self.amount.evaluate(point, point.calls)
        except ZeroDivisionError:
            return True
        return value > 0 if self.strict else value >= 0


class _Point(dict[str, Number]):
    """Values of symbols: each is drawn, small and in its domain, when it is first asked for."""

    def __init__(self, seed: int, domain: Callable[[str], str]) -> None:
        super().__init__()
        self._draw, self._domain = random.Random(seed), domain
        self.calls: dict[Call, Number] = {}
        self._rounded: dict[Symbol | Call, float] = {}

    def __missing__(self, name: str) -> Number:
        kind = "non-negative" if name[0] == ">" else self._domain(name)
        draw = self._draw.randrange
        size = 2 ** draw(7)
        whole = size if draw(3) else draw(1, size + 1)
        number: Number = whole
        if kind.startswith("non-negative") and not draw(3):
            number = 0
        elif kind == "share":
            number = Fraction(draw(1, 9), 8)
        elif not kind.endswith("integer"):
            number = Fraction(whole, 2 ** draw(4)) * (-1 if kind == "real" and not draw(3) else 1)
        self[name] = number
        return number

    def near(self, amount: Expr) -> float:
        """The value in floats where they tell its sign, being further from 0 than all their rounding; else 0."""
        known, total, size = self._rounded, 0.0, 0.0
        try:
            for monomial, coefficient in amount.terms.items():
                above, below = float(coefficient), 1.0
                for atom, power in monomial:
                    if atom not in known:
                        known[atom] = float(self[atom.name] if isinstance(atom, Symbol) else Expr({((atom, 1),): 1}).evaluate(self, self.calls))
                    if power > 0:
                        above *= known[atom] ** power
                    else:
                        below *= known[atom] ** -power
                total += above / below
                size += abs(above / below)
        except (OverflowError, ZeroDivisionError):
            return 0.0
        return total if _ROUNDING * size + _LEAST < abs(total) < math.inf else 0.0

    def move(self, shift: "tuple[str, Expr, Expr] | None") -> None:
        """Put a symbol where a bound wants it, as far as its domain goes."""
        if shift is None:
            return
        name, above, below = shift
        value = Fraction(*(above.evaluate(self) / below.evaluate(self)).as_integer_ratio())
        lowest = {"positive integer": Fraction(1), "positive": Fraction(1, 64), "share": Fraction(1, 64)}.get(self._domain(name))
        if self._domain(name) in _INTEGERS:
            value = Fraction(value.__ceil__() if below == ONE else value.__floor__())
        if self._domain(name) != "real":
            value = max(value, lowest or Fraction(0))
        self.calls.clear()
        self._rounded.clear()
        self[name] = min(value, Fraction(1)) if self._domain(name) == "share" else value


def is_whole(amount: Expr, domain: Callable[[str], str]) -> bool:
    """Whether an expression is seen to be an integer: integer coefficients, and integers multiplied with each other."""
    return all(c == int(c) and all(p > 0 and _whole_atom(a, domain) for a, p in m) for m, c in amount.terms.items())


def _whole_atom(atom: Symbol | Call, domain: Callable[[str], str]) -> bool:
    if isinstance(atom, Symbol):
        return domain(atom.name) in _INTEGERS
    row = FUNCTIONS.get(atom.function)
    return row is not None and (row.whole or (row.chosen is not None and all(is_whole(a, domain) for a in atom.branches[0])))


class Prover:
    """Proofs about expressions whose symbols lie in their `domain` and satisfy the inequalities; answers are remembered."""

    def __init__(self, domain: Callable[[str], str], said: Sequence[Inequality]) -> None:
        self.domain = domain
        self.said = tuple(part for one in said for part in _conjunction(one))
        self.used: set[int] = set()
        self._answers: dict[tuple[Expr, bool], Used | None] = {}
        self._signs: dict[str, str] = {}
        self._slacks: dict[tuple[Expr, str, str], int] = {}
        self._left = 0
        self._tried: dict[tuple[Expr, tuple[Inequality, ...], bool], Used | None] = {}

    def nonnegative(self, amount: Expr) -> bool:
        return self._holds(amount, False)

    def positive(self, amount: Expr) -> bool:
        return self._holds(amount, True)

    def _holds(self, amount: Expr, strict: bool) -> bool:
        key = (amount, strict)
        if key not in self._answers:
            self._left, self._tried = _MOST_WORK, {}
            self._answers[key] = self._prove(amount, self.said, strict)
        found = self._answers[key]
        self.used |= found or _NOTHING
        return found is not None

    def _prove(self, amount: Expr, said: tuple[Inequality, ...], strict: bool) -> Used | None:
        if self._plain(amount, strict):
            return _NOTHING
        said = _about(amount, said)
        key = (amount, said, strict)
        if key in self._tried:
            return self._tried[key]
        if self._left <= 0 or amount.is_constant or len(amount.terms) > _MOST_TERMS or self._refuted(amount, said, strict):
            return None
        self._tried[key] = None
        self._left -= len(amount.terms)
        found = self._without_divisors(amount, said)
        if found is not None:
            amount, used = found
            calls = dict.fromkeys(a for m in amount.terms for a, _ in m if isinstance(a, Call))
            proof = self._by_cases(amount, tuple(calls), said, strict) if calls else self._by_shifts(amount, said, strict)
            self._tried[key] = None if proof is None else proof | used
        return self._tried[key]

    @cached_property
    def _points(self) -> list["_Point"]:
        """Values of the symbols in their domains that satisfy the inequalities; fewer than asked where they are hard to find."""
        found: list[_Point] = []
        for seed in range(4 * _POINTS):
            point = _Point(seed, self.domain)
            for one in (*self.said, *reversed(self.said)):
                if not one.holds(point):
                    point.move(next(self._shifts(one, True), None))
            if all(one.holds(point) for one in self.said):
                found.append(point)
            if len(found) == _POINTS:
                break
        return found

    def _refuted(self, amount: Expr, said: tuple[Inequality, ...], strict: bool) -> bool:
        """Whether the expression is negative somewhere, so that no proof need be looked for."""
        if any(name[0] == ">" for name in amount.symbols()):
            return False
        claim, cases = Inequality(amount, strict, -1), [one for one in said if one.fact < 0]
        return any(not claim.holds(point) and all(one.holds(point) for one in cases) for point in self._points)

    def _sign(self, name: str) -> str:
        if name not in self._signs:
            kind = self.domain(name) if name[0] != ">" else "non-negative" if name[1] == "=" else "positive"
            above = kind in ("positive", "positive integer", "share")
            self._signs[name] = "positive" if above else "non-negative" if kind.startswith("non-negative") else "real"
        return self._signs[name]

    def _plain(self, amount: Expr, strict: bool) -> bool:
        """Whether no term is negative at a glance, and, where strict, one is positive."""
        some = not strict
        for monomial, coefficient in amount.terms.items():
            if coefficient < 0:
                return False
            positive = True
            for atom, power in monomial:
                sign = self._sign(atom.name) if isinstance(atom, Symbol) else "real"
                if sign == "real" and power % 2:
                    return False
                # what divides is not zero
                positive &= sign == "positive" or (sign == "non-negative" and power < 0)
            some |= positive
        return some

    def _without_divisors(self, amount: Expr, said: tuple[Inequality, ...]) -> tuple[Expr, Used] | None:
        """The expression times its divisors, where each is positive; None where that is not known of one."""
        lowest: dict[Symbol | Call, int] = {}
        for monomial in amount.terms:
            for atom, power in monomial:
                if power < lowest.get(atom, 0):
                    lowest[atom] = power
        used = _NOTHING
        for atom in lowest:
            if isinstance(atom, Symbol):
                proof = _NOTHING if self._sign(atom.name) != "real" else None
            elif atom.function == "sum":
                proof = self._prove(atom.arguments[0], said, True)
            else:
                proof = self._prove(Expr({((atom, 1),): 1}), said, True)
            if proof is None:
                return None
            used |= proof
        return (cleared(amount, lowest) if lowest else amount), used

    def _by_cases(self, amount: Expr, calls: tuple[Call, ...], said: tuple[Inequality, ...], strict: bool) -> Used | None:
        """Put what a call may be in its place: first for one all of whose arguments must do, else one of which any does."""
        ways: list[int] = []
        for call in calls:
            ways.append(self._way(amount, call, said))
            if (call.function, ways[-1]) in (("max", -1), ("min", 1)):
                return self._all(amount, call, said, strict, with_cases=False)
        call, way = calls[0], ways[0]
        arguments, name = call.arguments, call.function
        if name in ("max", "min") and way:
            for argument in arguments:
                proof = self._prove(_put(amount, call, argument), said, strict)
                if proof is not None:
                    return proof
        row = FUNCTIONS.get(name)
        if row is not None and row.chosen is not None:
            # what holds in a case makes many shifts: of few arguments only
            return self._all(amount, call, said, strict, with_cases=True) if not way or len(arguments) == 2 else None
        if not way or row is None:
            return None
        rest = _put(amount, call, expr(0))
        if (name, way) in (("ceil", -1), ("floor", 1)) and _slope(amount, call) == expr(way) and is_whole(rest, self.domain):
            # no integer lies between a number and its rounding
            return self._prove(rest - (1 if strict else 0) + way * arguments[0], said, False)
        for bound, condition, inside in row.below if way > 0 else row.above:
            needed = self._prove(expr(condition(arguments[0])), said, inside)
            proof = None if needed is None else self._prove(_put(amount, call, expr(bound(arguments[0]))), said, strict)
            if proof is not None and needed is not None:
                return proof | needed
        return None

    def _way(self, amount: Expr, call: Call, said: tuple[Inequality, ...]) -> int:
        """1 where the expression does not fall as the call grows, -1 where it does not rise, 0 where that is not known."""
        slope = _slope(amount, call)
        if slope is None:
            return 0
        return 1 if self._prove(slope, said, False) is not None else -1 if self._prove(-slope, said, False) is not None else 0

    def _all(self, amount: Expr, call: Call, said: tuple[Inequality, ...], strict: bool, with_cases: bool) -> Used | None:
        values, keys = call.branches
        used = _NOTHING
        for key, value in zip(keys, values):
            holds = [Inequality(other - key if call.function == "min" else key - other, False, -1) for other in keys if with_cases and other != key]
            proof = self._prove(_put(amount, call, value), (*said, *(part for one in holds for part in _conjunction(one))), strict)
            if proof is None:
                return None
            used |= proof
        return used

    def _by_shifts(self, amount: Expr, said: tuple[Inequality, ...], strict: bool) -> Used | None:
        if self._above_their_least(amount, strict):
            return _NOTHING
        for number, one in enumerate(said):
            rest = said[:number] + said[number + 1 :]
            for name, above, below in self._shifts(one, strict):
                if not any(a.name == name for m in amount.terms for a, _ in m if isinstance(a, Symbol)):
                    continue
                left = tuple(Inequality(_shifted(r.amount, name, above, below), r.strict, r.fact) for r in rest)
                self._left -= sum(len(r.amount.terms) for r in left)
                proof = self._prove(_shifted(amount, name, above, below), left, strict)
                if proof is not None:
                    return proof | {one.fact} if one.fact >= 0 else proof
        return None

    def _above_their_least(self, amount: Expr, strict: bool) -> bool:
        """Whether no term is negative once integers are 1 + k and shares 1/(1 + k), put in one by one as negative terms need."""
        for name in sorted(amount.symbols()):
            kind, key = self.domain(name) if name[0] != ">" else "", Symbol(name)
            powers = {m: dict(m).get(key, 0) for m in amount.terms}
            short = min((p for m, p in powers.items() if amount.terms[m] < 0), default=0)
            more = symbol(f">={name}")
            if kind == "positive integer" and any(p > short for m, p in powers.items() if amount.terms[m] > 0):
                amount = _shifted(amount, name, 1 + more, ONE)
            elif kind == "share":
                amount = _shifted(amount, name, ONE, 1 + more)
            else:
                continue
            self._left -= len(amount.terms)
            if self._plain(amount, strict):
                return True
            if self._left <= 0 or len(amount.terms) > _MOST_TERMS:
                return False
        return self._plain(amount, strict)

    def _shifts(self, one: Inequality, strict: bool) -> Iterator[tuple[str, Expr, Expr]]:
        """Symbols that the inequality bounds, and the numerator and the denominator to put for each."""
        found = self._without_divisors(one.amount, ())
        if found is None or any(isinstance(a, Call) for m in found[0].terms for a, _ in m):
            return
        amount = found[0]
        for name in sorted(amount.symbols()):
            holding = [m for m in amount.terms if any(a == Symbol(name) for a, _ in m)]
            if len(holding) > 1 or dict(holding[0])[Symbol(name)] != 1:
                continue
            factor = Expr({tuple(i for i in holding[0] if i[0] != Symbol(name)): amount.terms[holding[0]]})
            if any(isinstance(a, Symbol) and self._sign(a.name) != "positive" for m in factor.terms for a, _ in m):
                continue
            bound = symbol(name) - amount / factor
            rises, within = amount.terms[holding[0]] > 0, self._slack(bound, "~", name)
            slack = self._slack(bound, "+" if rises else "-", name, one.strict)
            if rises:
                yield name, bound + slack, ONE
            elif self._sign(name) == "real":
                yield name, bound - slack, ONE
            elif name[0] != ">" and self.domain(name) == "positive integer" and not strict:
                yield name, 1 + bound * within, 1 + within
            elif self._sign(name) == "positive" or not strict:
                # down from the upper bound: all that is above zero
                yield name, bound, 1 + within

    def _slack(self, bound: Expr, way: str, name: str, strict: bool = False) -> Expr:
        """The symbol of what lies between a symbol and its bound: the same one for the same bound, so that proofs meet."""
        number = self._slacks.setdefault((bound, way, name), len(self._slacks))
        return symbol(f"{'>' if strict else '>='}{number}")


def _conjunction(one: Inequality) -> Iterator[Inequality]:
    """m >= max(p, q) is m >= p and m >= q, and min(p, q) >= m the same: an inequality for each."""
    for monomial, coefficient in one.amount.terms.items():
        if len(monomial) == 1 and isinstance(monomial[0][0], Call) and monomial[0][1] == 1:
            call = monomial[0][0]
            if call.function == ("min" if coefficient > 0 else "max") and _slope(one.amount, call) == expr(coefficient):
                for argument in call.arguments:
                    yield from _conjunction(Inequality(_put(one.amount, call, argument), one.strict, one.fact))
                return
    yield one


def _about(amount: Expr, said: tuple[Inequality, ...]) -> tuple[Inequality, ...]:
    """The inequalities that share a symbol with the expression, or with one that does."""
    names, found, left = set(amount.symbols()), [False] * len(said), [one.amount.symbols() for one in said]
    while True:
        new = [k for k, mine in enumerate(left) if not found[k] and mine & names]
        if not new:
            return tuple(one for one, taken in zip(said, found) if taken)
        for k in new:
            found[k] = True
            names |= left[k]


def cleared(amount: Expr, lowest: Mapping[Symbol | Call, int]) -> Expr:
    """The expression times these atoms (of a sum, its argument) to the power -lowest, multiplied out."""
    parts = []
    for monomial, coefficient in amount.terms.items():
        powers = dict(monomial)
        term = Expr({tuple((a, p) for a, p in monomial if a not in lowest): coefficient})
        for atom, low in lowest.items():
            base = atom.arguments[0] if isinstance(atom, Call) and atom.function == "sum" else Expr({((atom, 1),): 1})
            term = term * base ** (powers.get(atom, 0) - low)
        parts.append(term)
    return _sum(parts)


def _slope(amount: Expr, call: Call) -> Expr | None:
    """What the call is multiplied by, where it is a factor of the first power only and in no other call."""
    total = expr(0)
    for monomial, coefficient in amount.terms.items():
        powers = dict(monomial)
        if powers.get(call, 0) == 1:
            total = total + Expr({tuple(i for i in monomial if i[0] != call): coefficient})
        elif call in powers:
            return None
    return total


def _put(amount: Expr, call: Call, value: Expr) -> Expr:
    def parts() -> Iterator[Expr]:
        for monomial, coefficient in amount.terms.items():
            power = dict(monomial).get(call)
            rest = tuple(i for i in monomial if i[0] != call) if power else monomial
            yield Expr({rest: coefficient}) * value**power if power else Expr({rest: coefficient})

    return _sum(parts())


def _sum(parts: Iterable[Expr]) -> Expr:
    terms: dict[Monomial, Number] = {}
    for part in parts:
        for monomial, coefficient in part.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
    return Expr(terms)


def _shifted(amount: Expr, name: str, above: Expr, below: Expr) -> Expr:
    """The expression with above/below for a symbol, times the power of `below` that keeps it free of that divisor."""
    if name not in amount.symbols():
        return amount
    key = Symbol(name)
    powers = [dict(m).get(key, 0) for m in amount.terms]
    highest, inside = max(0, *powers), {name: above / below}
    factors = {power: above**power * below ** (highest - power) for power in {*powers}}

    def parts() -> Iterator[Expr]:
        for (monomial, coefficient), power in zip(amount.terms.items(), powers):
            rest = Expr({tuple(i for i in monomial if i[0] != key) if power else monomial: coefficient})
            if any(isinstance(atom, Call) and name in atom.symbols for atom, _ in monomial):
                rest = rest.substitute(inside)
            yield rest * factors[power]

    return _sum(parts())
