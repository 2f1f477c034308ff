"""Quantities: expressions with units, and the named definitions that hold them.

Arithmetic on quantities checks units where a formula is built, so adding bytes to FLOPs is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from symsim.algebra.expr import ONE, Expr, Number, expr, summed
from symsim.algebra.key import Key


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
        return self._text

    @cached_property
    def _text(self) -> str:
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
    one, several = Quantity(ONE, unit), []
    for quantity in quantities:
        one._same_unit(quantity)
        several.append(quantity.expr)
    return Quantity(summed(several), unit)


@dataclass(frozen=True)
class Definition:
    """symbol := expr [unit], with its meaning and where it comes from. key: what it is of, which `symbol` spells."""

    key: Key
    expr: Expr
    unit: Unit
    meaning: str
    latex: str = ""
    source: str = ""
    assumptions: tuple[str, ...] = ()
    symbol: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbol", self.key.text)

    @cached_property
    def counts(self) -> bool:
        """Whether it counts something, so that quotients must come out whole."""
        return self.key.scope != "step" and (self.unit in (FLOP, BYTE, ELEMENT) or not self.unit.powers)
