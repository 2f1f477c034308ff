"""A report as data: sections of paragraphs, tables, equations and bars, whatever it is written as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class Math:
    """Inline mathematics, in LaTeX."""

    latex: str


@dataclass(frozen=True)
class Code:
    """The name of something in a file, on the command line or in a model."""

    text: str


@dataclass(frozen=True)
class Emphasis:
    text: str


Span = Union[str, Math, Code, Emphasis]
Spans = tuple[Span, ...]
Cell = Union[Span, Spans]


@dataclass(frozen=True)
class Paragraph:
    spans: Spans
    kind: str = "paragraph"


@dataclass(frozen=True)
class Column:
    """share: how much of the line the column wants, in the units of its neighbours."""

    heading: Cell
    share: float
    right: bool = False


@dataclass(frozen=True)
class Row:
    """role: plain; inner (an operation of the group above it); group (a heading over the rows below); message (a row about communication); total."""

    cells: tuple[Cell, ...]
    role: str = "plain"


@dataclass(frozen=True)
class Table:
    caption: Spans
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: str = "table"


@dataclass(frozen=True)
class Equation:
    """left = lines[0] lines[1] ...; the lines are broken where they fit a page."""

    left: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Equations:
    equations: tuple[Equation, ...]
    kind: str = "equations"


@dataclass(frozen=True)
class Bar:
    """A total in words, and its parts: (module, share of the total, amount in words)."""

    label: str
    total: str
    parts: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Picture:
    caption: Spans
    bars: tuple[Bar, ...]
    kind: str = "picture"

    @property
    def modules(self) -> list[str]:
        """Every module in some bar, in order of first appearance."""
        return list(dict.fromkeys(m for bar in self.bars for m, _, _ in bar.parts))


Part = Union[Paragraph, Table, Equations, Picture]


@dataclass(frozen=True)
class Section:
    heading: str
    parts: tuple[Part, ...]
    level: int = 1


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    sections: tuple[Section, ...] = field(default_factory=tuple)


def spans(*parts: Span) -> Spans:
    return tuple(p for p in parts if p != "")


def as_spans(cell: Cell) -> Spans:
    return cell if isinstance(cell, tuple) else (cell,)


def joined(parts: Sequence[Spans], between: str = ", ") -> Spans:
    made: list[Span] = []
    for n, part in enumerate(parts):
        made += [between] * bool(n) + list(part)
    return tuple(made)
