"""Answers as data: what `symsim ask --json` prints, and what stands behind the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symsim.algebra.expr import Expr, Number
from symsim.asking.branch import Branch, Closed, End
from symsim.asking.text import along_text, crossing_text, elasticities_text, extreme_text, over_text, tornado


def plain(value: Number) -> int | float:
    """A number as JSON has it."""
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 or isinstance(value, int) else float(value)


@dataclass(frozen=True)
class Valued:
    """A quantity at a value: its text, its number and its unit."""

    text: str
    value: Number
    unit: str

    def to_json(self) -> dict[str, Any]:
        return {"quantity": self.text, "value": plain(self.value), "unit": self.unit}


@dataclass(frozen=True)
class Holding:
    """The branch of a quantity that is active at an answer. form: over the symbol alone, where there is one; symbols: the same with every symbol
    kept, where it is short."""

    text: str
    unit: str
    branch: Branch
    symbols: Expr | None

    def to_json(self) -> dict[str, Any]:
        return {
            "quantity": self.text,
            "over_the_symbol": None if self.branch.active is None else over_text(self.branch.active),
            "formula": None if self.symbols is None else str(self.symbols),
            "changes_below": _end(self.branch.below),
            "changes_above": _end(self.branch.above),
        }


def _end(end: End | None) -> dict[str, Any] | None:
    return None if end is None else {"at": end.at, "what": list(end.changes)}


@dataclass(frozen=True, repr=False)
class Extreme:
    """The largest, the smallest or the needed value of a symbol under a condition.

    value: None where no value does. now: the present one, and whether the condition holds there. sides: the compared quantities at the value.
    beyond: the next value that can run, or the next float, with the sides there; None at the end of the range. low, high: the range.
    """

    question: str
    symbol: str
    unit: str
    whole: bool
    value: Number | None
    now: Number
    holds_now: bool
    low: float
    high: float
    sides: tuple[Valued, ...]
    beyond: Number | None
    beyond_sides: tuple[Valued, ...]
    how: str
    proved: bool
    holding: tuple[Holding, ...]
    closed: Closed | None
    note: str = ""

    def __repr__(self) -> str:
        """As `symsim ask` prints it."""
        return extreme_text(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "symbol": self.symbol,
            "unit": self.unit,
            "value": None if self.value is None else plain(self.value),
            "now": plain(self.now),
            "holds_now": self.holds_now,
            "range": [self.low, self.high],
            "at_value": [v.to_json() for v in self.sides],
            "next": None if self.beyond is None else plain(self.beyond),
            "at_next": [v.to_json() for v in self.beyond_sides],
            "how": self.how,
            "proved": self.proved,
            "branch": [h.to_json() for h in self.holding],
            "closed_form": None if self.closed is None else self.closed.text,
            "note": self.note,
        }


@dataclass(frozen=True)
class Meeting:
    """Where two quantities are equal: at a value of a real symbol, or between two integers that can run.

    sides: at the first, until_sides: at the second. before, after: which is larger there, 1 the left one."""

    value: float
    until: float
    before: int
    after: int
    sides: tuple[Valued, ...]
    until_sides: tuple[Valued, ...]
    holding: tuple[Holding, ...]
    closed: Closed | None

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "until": self.until,
            "larger_before": self.before,
            "larger_after": self.after,
            "at_value": [v.to_json() for v in self.sides],
            "at_until": [v.to_json() for v in self.until_sides],
            "branch": [h.to_json() for h in self.holding],
            "closed_form": None if self.closed is None else self.closed.text,
        }


@dataclass(frozen=True, repr=False)
class Crossing:
    """Where two quantities are equal as one symbol moves. sides: both at the present value, but for numbers; larger_now: 1 where the left one
    is larger there, -1 where the right one is, 0 where they are equal."""

    question: str
    left: str
    right: str
    symbol: str
    unit: str
    whole: bool
    now: Number
    low: float
    high: float
    sides: tuple[Valued, ...]
    larger_now: int
    meetings: tuple[Meeting, ...]
    how: str
    proved: bool

    @property
    def value(self) -> float | None:
        """The meeting next to the present value, None where there is none."""
        return min((m.value for m in self.meetings), key=lambda x: abs(x - float(self.now)), default=None)

    def __repr__(self) -> str:
        """As `symsim ask` prints it."""
        return crossing_text(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "symbol": self.symbol,
            "unit": self.unit,
            "now": plain(self.now),
            "range": [self.low, self.high],
            "at_now": [v.to_json() for v in self.sides],
            "crossings": [m.to_json() for m in self.meetings],
            "how": self.how,
            "proved": self.proved,
        }


@dataclass(frozen=True)
class Move:
    """elasticity: percent of the quantity for a percent of the symbol; to: of an integer the value that the difference is to, else None.

    along: what else of the quantity's formula moves with it: names, values at `to` (of a real symbol the present ones), and now."""

    symbol: str
    value: Number
    unit: str
    meaning: str
    elasticity: float
    to: int | None
    along: tuple[tuple[str, Number, Number], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "value": plain(self.value),
            "unit": self.unit,
            "elasticity": self.elasticity,
            "difference_to": self.to,
            "moves_along": [{"symbol": name, "to": None if self.to is None else plain(to), "now": plain(now)} for name, to, now in self.along],
        }


@dataclass(frozen=True, repr=False)
class Elasticities:
    """Moves from the largest to the smallest. still: symbols that move nothing; left: those without an answer, and why."""

    question: str
    of: Valued
    moves: tuple[Move, ...]
    still: tuple[str, ...]
    left: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> float:
        return next(m.elasticity for m in self.moves if m.symbol == name)

    def __float__(self) -> float:
        """Of one symbol its elasticity."""
        (move,) = self.moves
        return move.elasticity

    def svg(self) -> str:
        """A tornado plot."""
        return tornado(self)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        """As `symsim ask` prints it."""
        return elasticities_text(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "of": self.of.to_json(),
            "elasticities": [m.to_json() for m in self.moves],
            "no_effect": list(self.still),
            "left_out": [{"symbol": name, "why": why} for name, why in self.left],
        }


@dataclass(frozen=True)
class Row:
    """A value of the symbol, the numbers there, or why it cannot run."""

    value: Number
    numbers: tuple[Number, ...]
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"value": plain(self.value), "numbers": [plain(n) for n in self.numbers], **({"refused": self.refused} if self.refused else {})}


@dataclass(frozen=True, repr=False)
class Along:
    """Quantities along a range of a symbol."""

    question: str
    symbol: str
    unit: str
    quantities: tuple[tuple[str, str], ...]
    rows: Sequence[Row]

    def __repr__(self) -> str:
        """As `symsim ask` prints it."""
        return along_text(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "symbol": self.symbol,
            "unit": self.unit,
            "quantities": [{"quantity": text, "unit": unit} for text, unit in self.quantities],
            "rows": [row.to_json() for row in self.rows],
        }


Answer = Extreme | Crossing | Elasticities | Along
