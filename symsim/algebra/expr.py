"""Exact expressions: Laurent polynomials with rational coefficients over symbols and named functions.

Every count symsim derives is a product of sizes over a product of degrees, so this closed, canonical form
covers the derivation exactly, builds in microseconds, and evaluates to integers without rounding. Functions
that are not polynomial (max, min, sqrt, ceil, floor, log2) appear as opaque atoms and are never rewritten, so
ceil(x/y) keeps its true division. `algebra.view` is the SymPy view, for algebra.
Seconds are evaluated in floating point: a rate given as a float makes everything that stands on it a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from operator import attrgetter, mul
from typing import Any, Union

from symsim.algebra.operators import EXACT, FUNCTIONS, Number


class Symbol:
    """A named quantity; its LaTeX, unit, meaning and domain live in `vocabulary`. There is one object of a name, so that
    comparing and hashing look at the object alone."""

    __slots__ = ("name", "key")
    name: str
    key: tuple[int, str]

    def __new__(cls, name: str) -> "Symbol":
        found = _SYMBOLS.get(name)
        if found is None:
            found = object.__new__(cls)
            object.__setattr__(found, "name", name)
            object.__setattr__(found, "key", (0, name))
            found = _SYMBOLS.setdefault(name, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a symbol's {name} cannot be changed")

    def __reduce__(self) -> tuple[type["Symbol"], tuple[str]]:
        return Symbol, (self.name,)

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"


_SYMBOLS: dict[str, Symbol] = {}


@dataclass(frozen=True)
class Call:
    """A function of expressions kept as one atom: one of `operators.FUNCTIONS` (of 'at' the arguments are value, key, value, key, ...), or a
    reduction over pipeline stages (`reductions.py`)."""

    function: str
    arguments: tuple["Expr", ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.function, self.arguments))

    def __getstate__(self) -> dict[str, Any]:
        # names hash differently in every process
        return {"function": self.function, "arguments": self.arguments}

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols in the arguments."""
        return frozenset().union(*(a.symbols() for a in self.arguments))

    @cached_property
    def key(self) -> tuple[int, str]:
        return (1, f"{self.function}({', '.join(map(str, self.arguments))})")

    @property
    def branches(self) -> tuple[tuple["Expr", ...], tuple["Expr", ...]]:
        """Of a call that is one of its arguments, those that it may be, and the key of each."""
        return (self.arguments[::2], self.arguments[1::2]) if self.function == "at" else (self.arguments, self.arguments)


Atom = Union[Symbol, Call]
Monomial = tuple[tuple[Atom, int], ...]


_KEY = attrgetter("key")


@lru_cache(maxsize=1 << 15)
def _times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        total = powers.get(atom, 0) + power
        if total:
            powers[atom] = total
        else:
            del powers[atom]
    return tuple((atom, powers[atom]) for atom in sorted(powers, key=_KEY))


def _plain(value: Number) -> Number:
    return value.numerator if type(value) is Fraction and value.denominator == 1 else value


def _add(terms: dict[Monomial, Number], more: Mapping[Monomial, Number]) -> dict[Monomial, Number]:
    for monomial, coefficient in more.items():
        before = terms.get(monomial)
        total = coefficient if before is None else before + coefficient
        if total:
            terms[monomial] = total if type(total) is int else _plain(total)
        else:
            del terms[monomial]
    return terms


def _made(terms: dict[Monomial, Number]) -> "Expr":
    """Of coefficients that are plain and not zero."""
    result = object.__new__(Expr)
    result.terms = terms
    result._hash = None
    return result


class Expr:
    """A sum of monomials; immutable, hashable, compared by value."""

    __slots__ = ("terms", "_hash", "_symbols")
    terms: dict[Monomial, Number]
    _symbols: frozenset[str]  # only where it was asked for

    def __init__(self, terms: Mapping[Monomial, Number]):
        self.terms = {m: c if type(c) is int else _plain(c) for m, c in terms.items() if c}
        self._hash: int | None = None

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        # names hash differently in every process
        return None, {"terms": self.terms, "_hash": None}

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # Fraction's class is an abstract one, of which isinstance asks slowly
        if not isinstance(other, Expr):
            if not isinstance(other, (int, Fraction)):
                return False
            other = expr(other)
        return self.terms == other.terms

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: "Expr | Number") -> "Expr":
        if type(other) is not Expr:
            other = expr(other)
        if not self.terms or not other.terms:
            return other if other.terms else self
        return _made(_add(dict(self.terms), other.terms))

    __radd__ = __add__

    def __neg__(self) -> "Expr":
        return _made({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: "Expr | Number") -> "Expr":
        return self + -expr(other)

    def __rsub__(self, other: "Expr | Number") -> "Expr":
        return expr(other) + -self

    def __mul__(self, other: "Expr | Number") -> "Expr":
        if type(other) is not Expr:
            other = expr(other)
        if len(self.terms) == 1:
            return other._scaled(self)
        if len(other.terms) == 1:
            return self._scaled(other)
        terms: dict[Monomial, Number] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                m = _times(m1, m2)
                terms[m] = terms.get(m, 0) + c1 * c2
        return Expr(terms)

    __rmul__ = __mul__

    def _scaled(self, factor: "Expr") -> "Expr":
        """Times an expression of one term: no two terms can meet."""
        ((by, times),) = factor.terms.items()
        if type(times) is int and times == 1:
            return _made({_times(m, by) if m else by: c for m, c in self.terms.items()}) if by else self
        return Expr({_times(m, by) if m and by else m or by: c * times for m, c in self.terms.items()})

    def __truediv__(self, other: "Expr | Number") -> "Expr":
        return self * _inverse(expr(other))

    def __rtruediv__(self, other: "Expr | Number") -> "Expr":
        return expr(other) * _inverse(self)

    def __pow__(self, power: int) -> "Expr":
        base = self if power >= 0 else _inverse(self)
        result = ONE
        for _ in range(abs(power)):
            result = result * base
        return result

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and () in self.terms)

    def constant(self) -> Number:
        """The value of a constant expression; ValueError when symbols remain."""
        if not self.is_constant:
            raise ValueError(f"{self} is not a constant")
        return self.terms.get((), 0)

    def symbols(self) -> frozenset[str]:
        """Names of all symbols, those inside function arguments included."""
        try:
            return self._symbols
        except AttributeError:
            self._symbols = self._found_symbols()
            return self._symbols

    def _found_symbols(self) -> frozenset[str]:
        found: set[str] = set()
        for monomial in self.terms:
            for atom, _ in monomial:
                if isinstance(atom, Symbol):
                    found.add(atom.name)
                else:
                    found |= atom.symbols
        return frozenset(found)

    def evaluate(self, values: Mapping[str, Number], calls: dict[Call, Number] | None = None) -> Number:
        """Exact value with every symbol given; KeyError names a missing symbol. calls: values of calls known at these values, added to."""
        # a schedule's expression is a tree of exponential size over few calls
        calls = {} if calls is None else calls
        total: Number = 0
        for monomial, coefficient in self.terms.items():
            numerator: Number = coefficient
            denominator: Number = 1
            for atom, power in monomial:
                value = values[atom.name] if isinstance(atom, Symbol) else _call(atom, values, calls)
                if power == 1:
                    numerator = numerator * value
                elif power == -1:
                    denominator = denominator * value
                elif power > 0:
                    numerator = numerator * value**power
                else:
                    denominator = denominator * value**-power
            total = total + (numerator if denominator == 1 else _divided(numerator, denominator))
        return _plain(total)

    def substitute(self, values: Mapping[str, "Expr | Number"]) -> "Expr":
        """Replace symbols by expressions, inside function arguments too."""
        if self.symbols().isdisjoint(values):
            return self
        terms: dict[Monomial, Number] = {}
        for monomial, coefficient in self.terms.items():
            same, others = [], []
            for factor in monomial:
                atom, power = factor
                if not _has(atom, values):
                    same.append(factor)
                    continue
                put: Expr | Number
                if isinstance(atom, Symbol):
                    put = values[atom.name]
                else:
                    put = _make_call(atom.function, tuple(a.substitute(values) for a in atom.arguments))
                if not isinstance(put, Expr) or put.is_constant:
                    number = put.constant() if isinstance(put, Expr) else put
                    coefficient = coefficient * (number if power == 1 else _powered(number, power))
                else:
                    others.append(put if power == 1 else put**power)
            if not others:
                left = monomial if len(same) == len(monomial) else tuple(same)
                terms[left] = terms.get(left, 0) + coefficient
                continue
            made = _made({tuple(same): coefficient} if coefficient else {})
            for other in others:
                made = made * other
            for found, times in made.terms.items():
                terms[found] = terms.get(found, 0) + times
        return Expr(terms)

    def diff(self, name: str, values: Mapping[str, Number] | None = None) -> "Expr":
        """The derivative by a symbol, of max, min and `at` along the branch that is active at the values, of ties the first.

        ceil, floor and log2 are constant between their jumps. ValueError where a branch must be known and no values are given.
        """
        total = ZERO
        for monomial, coefficient in self.terms.items():
            for atom, power in monomial:
                slope = _atom_slope(atom, name, values)
                if slope:
                    rest = Expr({_times(monomial, ((atom, -1),)): coefficient * power})
                    total = total + rest * slope
        return total

    def __str__(self) -> str:
        """A Python expression in the formula grammar (`grammar.parse` reads it back)."""
        if not self.terms:
            return "0"
        parts = []
        for monomial, coefficient in sorted(self.terms.items(), key=_reading_order):
            top = [_atom_text(a, p) for a, p in monomial if p > 0]
            bottom = [_atom_text(a, -p) for a, p in monomial if p < 0]
            fraction = Fraction(coefficient)
            if abs(fraction.numerator) != 1 or not top:
                top.insert(0, str(abs(fraction.numerator)))
            if fraction.denominator != 1:
                bottom.insert(0, str(fraction.denominator))
            text = "*".join(top)
            if bottom:
                text += "/" + (bottom[0] if len(bottom) == 1 else f"({'*'.join(bottom)})")
            parts.append(("- " if coefficient < 0 else "+ ") + text)
        joined = " ".join(parts)
        return joined[2:] if joined.startswith("+ ") else "-" + joined[2:]

    __repr__ = __str__


def _has(atom: Atom, values: Mapping[str, object]) -> bool:
    return atom.name in values if isinstance(atom, Symbol) else not atom.symbols.isdisjoint(values)


def _divided(numerator: Number, denominator: Number) -> Number:
    if type(numerator) is int and type(denominator) is int:
        whole, rest = divmod(numerator, denominator)
        return Fraction(numerator, denominator) if rest else whole
    if isinstance(numerator, float) or isinstance(denominator, float):
        return numerator / denominator
    return numerator if denominator == 1 else Fraction(numerator) / denominator


def _powered(number: Number, power: int) -> Number:
    if power > 0:
        return number**power
    if not number:
        raise ZeroDivisionError("division by an expression that is zero")
    return _divided(1, number**-power)


def _reading_order(term: tuple[Monomial, Number]) -> list[tuple[tuple[int, str], int]]:
    return [(atom.key, -power) for atom, power in term[0]]


def _atom_text(atom: Atom, power: int) -> str:
    if isinstance(atom, Symbol):
        text = atom.name
    elif atom.function == "sum":
        text = f"({atom.arguments[0]})"
    else:
        text = atom.key[1]
    return text if power == 1 else f"{text}**{power}"


def _call(atom: Call, values: Mapping[str, Number], calls: dict[Call, Number]) -> Number:
    if atom not in calls:
        calls[atom] = EXACT[atom.function](*(a.evaluate(values, calls) for a in atom.arguments))
    return calls[atom]


def _atom_slope(atom: Atom, name: str, values: Mapping[str, Number] | None) -> Expr:
    if isinstance(atom, Symbol):
        return ONE if atom.name == name else ZERO
    row = FUNCTIONS.get(atom.function)
    if row is None:
        if all(name not in a.symbols() for a in atom.arguments):
            return ZERO
        raise ValueError(f"{atom.function} has no derivative by {name}: expand it first")
    if callable(row.slope):
        slope: Expr = row.slope(Expr({((atom, 1),): 1})) * atom.arguments[0].diff(name, values)
        return slope
    if row.slope is not None:
        return row.slope * atom.arguments[0].diff(name, values) if row.slope else ZERO
    assert row.chosen is not None
    branches, keys = atom.branches
    slopes = [b.diff(name, values) for b in branches] if values is None or len(branches) == 1 else []
    if slopes and all(s == slopes[0] for s in slopes):
        return slopes[0]
    if values is None:
        raise ValueError(f"which argument of {atom.key[1]} counts depends on values: give them")
    reached = [k.evaluate(values) for k in keys]
    return branches[reached.index(row.chosen(*reached))].diff(name, values)


@lru_cache(maxsize=1 << 14)
def _upside_down(monomial: Monomial) -> Monomial | None:
    """One over a monomial; None where a sum that it is divided by would be none any more."""
    if any(p < 0 and isinstance(a, Call) and a.function == "sum" for a, p in monomial):
        return None
    return tuple((a, -p) for a, p in monomial)


def _inverse(divisor: Expr) -> Expr:
    if not divisor:
        raise ZeroDivisionError("division by an expression that is zero")
    if len(divisor.terms) == 1:
        ((monomial, coefficient),) = divisor.terms.items()
        over = 1 if coefficient == 1 and type(coefficient) is int else _plain(Fraction(1) / coefficient)
        upside_down = _upside_down(monomial)
        if upside_down is not None:
            return _made({upside_down: over})
        sums = product(a.arguments[0] ** -p for a, p in monomial if isinstance(a, Call) and a.function == "sum" and p < 0)
        rest = tuple((a, -p) for a, p in monomial if not (isinstance(a, Call) and a.function == "sum" and p < 0))
        return Expr({rest: over}) * sums
    return Expr({((Call("sum", (divisor,)), -1),): 1})


def _make_call(function: str, arguments: tuple[Expr, ...]) -> Expr:
    arguments = tuple(dict.fromkeys(arguments)) if function in ("max", "min") else arguments
    if function == "sum" or (function in ("max", "min") and len(arguments) == 1):
        return arguments[0]
    if function == "at":
        return of_largest(zip(arguments[::2], arguments[1::2]))
    if function in FUNCTIONS and all(a.is_constant for a in arguments):
        value = EXACT[function](*(a.constant() for a in arguments))
        if value == value and (function != "sqrt" or not isinstance(value, float)):
            return expr(value)
    return Expr({((Call(function, arguments), 1),): 1})


def expr(value: "Expr | Number") -> Expr:
    """An expression from a number (or an expression, unchanged)."""
    if isinstance(value, Expr):
        return value
    return _made({(): value} if value else {}) if type(value) is int else Expr({(): value})


def summed(parts: Iterable[Expr]) -> Expr:
    """The sum of expressions, as `+` of one after the other."""
    return _made(reduce(_add, (part.terms for part in parts), {}))


@lru_cache(maxsize=1 << 12)
def symbol(name: str) -> Expr:
    return _made({((Symbol(name), 1),): 1})


def function(name: str, *arguments: "Expr | Number") -> Expr:
    """A function of `operators.FUNCTIONS` of these arguments."""
    return _make_call(name, tuple(map(expr, arguments)))


def maximum(*values: "Expr | Number") -> Expr:
    return function("max", *values)


def minimum(*values: "Expr | Number") -> Expr:
    return function("min", *values)


def of_largest(pairs: Iterable[tuple["Expr | Number", "Expr | Number"]]) -> Expr:
    """Of (value, key) pairs the value whose key is the largest, the first of equal ones."""
    made = tuple(dict.fromkeys((expr(value), expr(key)) for value, key in pairs))
    values, keys = {v for v, _ in made}, [k for _, k in made]
    if len(values) == 1:
        return made[0][0]
    if all(v == k for v, k in made):
        return maximum(*keys)
    if all(k.is_constant for k in keys):
        return made[max(range(len(made)), key=lambda n: keys[n].constant())][0]
    return Expr({((Call("at", tuple(part for pair in made for part in pair)), 1),): 1})


def ceil(value: "Expr | Number") -> Expr:
    return function("ceil", value)


def floor(value: "Expr | Number") -> Expr:
    return function("floor", value)


def log2(value: "Expr | Number") -> Expr:
    """The depth of a binary tree over so many leaves (`operators.tree_depth`)."""
    return function("log2", value)


def sqrt(value: "Expr | Number") -> Expr:
    return function("sqrt", value)


def product(factors: Iterable["Expr | Number"]) -> Expr:
    return reduce(mul, factors, ONE)


ZERO = Expr({})
ONE = Expr({(): 1})
