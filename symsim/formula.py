"""Formulas: short trees of named definitions with units, meanings and sources.

A `Quantity` is an expression with a unit; arithmetic on quantities checks units where the formula is built,
so adding bytes to FLOPs is an error. A `Derivation` collects definitions in order; `Formula` is one result
with the definitions it stands on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from symsim.expr import ONE, Expr, Number, expr, symbol


class UnitError(TypeError):
    """Two quantities of different units were added, or a definition does not have the unit it declares."""


@dataclass(frozen=True)
class Unit:
    """A product of powers of the base units FLOP, byte, element, second."""

    powers: tuple[tuple[str, int], ...] = ()

    def __mul__(self, other: "Unit") -> "Unit":
        powers = dict(self.powers)
        for base, power in other.powers:
            powers[base] = powers.get(base, 0) + power
        return Unit(tuple(sorted((b, p) for b, p in powers.items() if p)))

    def __truediv__(self, other: "Unit") -> "Unit":
        return self * Unit(tuple((b, -p) for b, p in other.powers))

    def __str__(self) -> str:
        top = "·".join(b if p == 1 else f"{b}^{p}" for b, p in self.powers if p > 0) or "1"
        bottom = "·".join(b if p == -1 else f"{b}^{-p}" for b, p in self.powers if p < 0)
        return f"{top}/{bottom}" if bottom else top


NONE = Unit()
FLOP = Unit((("FLOP", 1),))
BYTE = Unit((("byte", 1),))
ELEMENT = Unit((("element", 1),))
SECOND = Unit((("second", 1),))


@dataclass(frozen=True)
class Quantity:
    """An exact expression with a unit."""

    expr: Expr
    unit: Unit = NONE

    def _same_unit(self, other: "Quantity") -> None:
        if self.unit != other.unit and self.expr and other.expr:
            raise UnitError(f"cannot add {other.unit} to {self.unit}: ({self.expr}) and ({other.expr})")

    def __add__(self, other: "Quantity") -> "Quantity":
        self._same_unit(other)
        return Quantity(self.expr + other.expr, self.unit if self.expr else other.unit)

    def __sub__(self, other: "Quantity") -> "Quantity":
        self._same_unit(other)
        return Quantity(self.expr - other.expr, self.unit if self.expr else other.unit)

    def __mul__(self, other: "Quantity | Expr | Number") -> "Quantity":
        other = other if isinstance(other, Quantity) else Quantity(expr(other))
        return Quantity(self.expr * other.expr, self.unit * other.unit)

    __rmul__ = __mul__

    def __truediv__(self, other: "Quantity | Expr | Number") -> "Quantity":
        other = other if isinstance(other, Quantity) else Quantity(expr(other))
        return Quantity(self.expr / other.expr, self.unit / other.unit)


def total(quantities: Iterable[Quantity], unit: Unit) -> Quantity:
    """The sum of quantities of one unit (zero of that unit when there are none)."""
    result = Quantity(expr(0), unit)
    for quantity in quantities:
        result = result + quantity
    return result


@dataclass(frozen=True)
class Definition:
    """symbol := expr [unit], with its meaning and where it comes from."""

    symbol: str
    expr: Expr
    unit: Unit
    meaning: str
    latex: str = ""
    source: str = ""
    assumptions: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True)
class Formula:
    """A result and, in order, the definitions it stands on (the last one is the result)."""

    definitions: tuple[Definition, ...]

    @property
    def result(self) -> Definition:
        return self.definitions[-1]

    @property
    def symbols(self) -> set[str]:
        """Free symbols: those no definition of this formula defines."""
        defined = {d.symbol for d in self.definitions}
        return {s for d in self.definitions for s in d.expr.symbols()} - defined

    def expand(self) -> Expr:
        """One closed form over the free symbols."""
        known: dict[str, Expr | Number] = {}
        for definition in self.definitions:
            known[definition.symbol] = definition.expr.substitute(known)
        return expr(known[self.result.symbol])

    def value(self, values: Mapping[str, Number]) -> Number:
        """Exact value at the given sizes; KeyError names a missing symbol."""
        known = dict(values)
        for definition in self.definitions:
            known[definition.symbol] = definition.expr.evaluate(known)
        return known[self.result.symbol]

    def sympy(self) -> Any:
        """The expanded closed form as a SymPy expression, its symbols in the domains of the vocabulary."""
        return self.expand().to_sympy()

    def latex(self) -> str:
        """`name = closed form` in LaTeX."""
        from symsim.typeset import definition_latex

        last = self.result
        return definition_latex(Definition(last.symbol, self.expand(), last.unit, last.meaning, last.latex))

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def __str__(self) -> str:
        return "\n".join(f"{d.symbol} = {d.expr}  [{d.unit}] {d.meaning}" for d in self.definitions)


@dataclass
class Derivation:
    """Definitions in the order in which they were made; every name is defined once."""

    definitions: dict[str, Definition] = field(default_factory=dict)

    def define(
        self,
        name: str,
        quantity: Quantity,
        meaning: str,
        *,
        latex: str = "",
        source: str = "",
        assumptions: tuple[str, ...] = (),
        group: str = "",
        unit: Unit | None = None,
    ) -> Quantity:
        """Name a quantity; returns a reference to it. UnitError when it does not have the unit declared."""
        if unit is not None and quantity.expr and quantity.unit != unit:
            raise UnitError(f"{name} is {quantity.unit}, declared {unit}")
        unit = unit if unit is not None else quantity.unit
        made = Definition(name, quantity.expr, unit, meaning, latex, source, assumptions, group)
        known = self.definitions.get(name)
        if known is not None and known != made:
            raise ValueError(f"{name} is defined twice: {known.expr} and {made.expr}")
        self.definitions[name] = made
        return Quantity(symbol(name), unit)

    def formula(self, name: str) -> Formula:
        """The named result with everything it stands on, in order of definition."""
        needed = {name}
        for candidate in reversed(list(self.definitions.values())):
            if candidate.symbol in needed:
                needed |= candidate.expr.symbols()
        return Formula(tuple(d for d in self.definitions.values() if d.symbol in needed))


def scalar(value: "Expr | Number") -> Quantity:
    return Quantity(expr(value), NONE)


def elements(sizes: Iterable["Expr | Number"]) -> Quantity:
    """The number of elements of a tensor with these local sizes."""
    result = ONE
    for size in sizes:
        result = result * size
    return Quantity(result, ELEMENT)


def bytes_per_element(width: "Expr | Number") -> Quantity:
    return Quantity(expr(width), BYTE / ELEMENT)
