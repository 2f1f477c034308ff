"""The branch of a curve that is active at a value: the formula without max and min that holds there, and how far it holds.

What rounds (ceil, floor, log2) stays in it: it jumps from integer to integer and is no branch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.active import counting, remade
from symsim.algebra.expr import ZERO, Atom, Call, Expr, Number, Symbol, expr, function, symbol
from symsim.algebra.formula import Formula
from symsim.algebra.vocabulary import domain
from symsim.asking.curve import Curve
from symsim.asking.enclosure import Enclosed, looked_at
from symsim.asking.signs import Range

# by which share of the symbol a branch's end is looked for at first, and how finely it is found
_FIRST, _FINE = 0.1, 1e-7
_MOST_STEPS = 200
# of a closed form, which is said where it is a few lines long
_MOST_TERMS = 400
_ROUNDS = ("ceil", "floor")


@dataclass(frozen=True)
class End:
    """Where a branch ends: the last value at which it holds, and the definitions in which something else counts from there on, with the
    function that decides; none where it may go on and that is not proved."""

    at: float
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Branch:
    """active: over the symbol alone where it has no root and no divisor of several terms that holds the symbol, else None. below, above: where it
    ends; None where it holds to the end of the range."""

    active: Expr | None
    below: End | None
    above: End | None


def branch(curve: Curve, x: Number, within: Range) -> Branch:
    """The branch of a curve at x, and where it changes within a range."""
    here = choices(curve, x)
    enclosed = Enclosed(curve)
    ends = [_end(curve, enclosed, here, float(x), bound, within.whole) for bound in (within.low, within.high)]
    return Branch(_active(curve, x, here), ends[0], ends[1])


def choices(curve: Curve, x: Number) -> dict[str, int]:
    """Of the nodes that the result stands on at x, the argument that counts; 0 where a node does not choose."""
    numbers, needed = curve.numbers(x), curve.result.symbols()
    found: dict[str, int] = {}
    for node in reversed(curve.nodes):
        if node.name in needed:
            found[node.name] = counting(node.call, numbers) or 0
            needed |= looked_at(node, found[node.name])
    return found


def _active(curve: Curve, x: Number, here: Mapping[str, int]) -> Expr | None:
    known: dict[str, Expr] = {}
    open_: set[str] = set()
    for node in curve.nodes:
        if node.name not in here:
            continue
        if node.chooses:
            found = node.call.branches[0][here[node.name]].substitute(known)
        elif node.steps:
            found = function(node.call.function, *(a.substitute(known) for a in node.call.arguments))
        else:
            found = symbol(node.name)
            open_.add(node.name)
        known[node.name] = found
    made = curve.result.substitute(known)
    return None if made.symbols() & open_ else made


def _end(curve: Curve, enclosed: Enclosed, here: Mapping[str, int], x: float, bound: float, whole: bool) -> End | None:
    """How far the branch goes on from x towards a bound: in steps over each of which it is proved to stay."""
    way, at = (1 if bound > x else -1), x
    step = max(abs(x) * _FIRST, 1.0 if whole else 0.0) or abs(bound - x) * _FIRST
    finest = 1.0 if whole else max(abs(x) * _FINE, abs(bound - x) * _FINE**2)
    for _ in range(_MOST_STEPS):
        if at == bound:
            return None
        to = bound if (bound - (at + way * step)) * way <= 0 else at + way * step
        to = float(round(to)) if whole else to
        if _stays(enclosed, here, *sorted((at, to))):
            at, step = to, 2 * step
        elif whole and abs(to - at) <= 1 and choices(curve, int(to)) == here:
            # between two integers something else may count
            at = to
        elif step <= finest:
            break
        else:
            step = max(step / 2, finest)
    return End(at, _changes(curve, here, at + way * step))


def _stays(enclosed: Enclosed, here: Mapping[str, int], low: float, high: float) -> bool:
    return {node.name: choice for node, choice in enclosed.over(low, high).reached} == here


def _changes(curve: Curve, here: Mapping[str, int], x: float) -> tuple[str, ...]:
    there = choices(curve, Fraction(x))
    if there == here:
        return ()
    found = {n.inside: n.call.function for n in reversed(curve.nodes) if n.name in here and here[n.name] != there.get(n.name, here[n.name])}
    return tuple(f"{function_} in {inside}" for inside, function_ in reversed(found.items()))


def unrounded(amount: Expr) -> Expr:
    """An expression over one symbol without ceil and floor."""

    def of(atom: Atom) -> Expr:
        return unrounded(atom.arguments[0]) if isinstance(atom, Call) and atom.function in _ROUNDS else Expr({((atom, 1),): 1})

    return remade(amount, of)


def in_symbols(
    formula: Formula, values: Mapping[str, Number], kept: str, follows: Mapping[str, Expr] | None = None, *, smooth: bool = False
) -> Expr | None:
    """The closed form of the branch that is active at these values, every symbol kept but shares and factors of 1 and times of 0; None where it has
    more terms than anyone reads. follows: what moves with the one that is kept. What rounds up or down is its argument where that is whole at these
    values and does not move, and where it moves, if the form is smooth."""
    put_in = {n: v for n, v in values.items() if n != kept and v in (0, 1) and not domain(n).endswith("integer")}
    known: dict[str, Expr | None] = {n: expr(int(v) if v == int(v) else v) for n, v in put_in.items()}
    known |= follows or {}
    numbers = dict(values)
    made = _Resolved(known, numbers, kept, smooth)
    for definition in formula.written_out().definitions:
        known[definition.symbol] = made.of(definition.expr)
        numbers[definition.symbol] = definition.expr.evaluate(numbers)
    return known[formula.result.symbol]


@dataclass(frozen=True)
class _Resolved:
    """known: symbols and definitions as they are written; numbers: of the same; kept, smooth: as of `in_symbols`."""

    known: Mapping[str, Expr | None]
    numbers: Mapping[str, Number]
    kept: str
    smooth: bool

    def of(self, amount: Expr) -> Expr | None:
        total = ZERO
        for monomial, coefficient in amount.terms.items():
            term = expr(coefficient)
            for atom, power in monomial:
                base = self.known.get(atom.name, symbol(atom.name)) if isinstance(atom, Symbol) else self._decided(atom)
                if base is None or len(term.terms) * math.comb(len(base.terms) + max(power, 1) - 1, max(power, 1)) > _MOST_TERMS:
                    return None
                term = term * base**power
            total = total + term
            if len(total.terms) > _MOST_TERMS:
                return None
        return total

    def _decided(self, call: Call) -> Expr | None:
        at = counting(call, self.numbers)
        if at is None:
            inside = [one for a in call.arguments if (one := self.of(a)) is not None]
            if len(inside) < len(call.arguments):
                return None
            if call.function in _ROUNDS:
                value = call.arguments[0].evaluate(self.numbers)
                if self.smooth if self.kept in inside[0].symbols() else value == int(value):
                    return inside[0]
            return function(call.function, *inside)
        return self.of(call.branches[0][at])


@dataclass(frozen=True)
class Closed:
    """The solution: over the other symbols as text ('' where there are none, or too many to read), and its number. degree: 1 or 2. smooth: without
    the rounding of what holds the symbol."""

    text: str
    value: float
    degree: int
    smooth: bool = False


def solved(amount: Expr | None, name: str, values: Mapping[str, Number], near: float) -> Closed | None:
    """amount = 0 for a symbol that stands in it in a linear or a quadratic way, the solution next to a value; None where it does not, and of None."""
    if amount is None:
        return None
    parts: dict[int, Expr] = {}
    for monomial, coefficient in amount.terms.items():
        powers = dict(monomial)
        rest = tuple(i for i in monomial if i[0] != Symbol(name))
        power = powers.get(Symbol(name), 0)
        parts[power] = parts.get(power, ZERO) + Expr({rest: coefficient})
    parts = {p: e for p, e in parts.items() if e}
    if len(parts) < 2 or any(name in e.symbols() for e in parts.values()):
        return None
    lowest = min(parts)
    parts = {p - lowest: e for p, e in _reduced(parts).items()}
    if set(parts) == {0, 1}:
        return Closed(*_linear(parts[0], parts[1], values), 1)
    return _quadratic(parts, values, near) if max(parts) == 2 else None


def _linear(free: Expr, factor: Expr, values: Mapping[str, Number]) -> tuple[str, float]:
    if all(c > 0 for c in free.terms.values()):
        free, factor = -free, -factor
    return str(-free / factor), float(-free.evaluate(values)) / float(factor.evaluate(values))


def _quadratic(parts: Mapping[int, Expr], values: Mapping[str, Number], near: float) -> Closed | None:
    c, b, a = (parts.get(p, ZERO) for p in range(3))
    numbers = [float(e.evaluate(values)) for e in (a, b, c)]
    under = numbers[1] ** 2 - 4 * numbers[0] * numbers[2]
    if under < 0 or not numbers[0]:
        return None
    sign = min((1, -1), key=lambda s: abs((-numbers[1] + s * math.sqrt(under)) / (2 * numbers[0]) - near))
    root = function("sqrt", b * b - 4 * a * c)
    return Closed(str((sign * root - b) / (2 * a)), (-numbers[1] + sign * math.sqrt(under)) / (2 * numbers[0]), 2)


def _reduced(parts: Mapping[int, Expr]) -> dict[int, Expr]:
    """The parts without the factors that all their terms have."""
    monomials = [dict(m) for e in parts.values() for m in e.terms]
    atoms = {a for m in monomials for a in m}
    shared = Expr({(): 1})
    for atom in atoms:
        lowest = min(m.get(atom, 0) for m in monomials)
        if lowest and not (isinstance(atom, Call) and atom.function == "sum"):
            shared = shared * Expr({((atom, lowest),): 1})
    first = next(iter(next(iter(parts.values())).terms.values()))
    scale = shared * abs(Fraction(first)) if not isinstance(first, float) else shared
    return {p: e / scale for p, e in parts.items()}
