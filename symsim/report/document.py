"""A report as data: sections of paragraphs, tables, equations and bars, whatever it is written as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class Math:
    """Inline mathematics, in LaTeX."""

    latex: str


@dataclass(frozen=True)
class Printed:
    """Mathematics in a source's own LaTeX, which may not convert."""

    latex: str


@dataclass(frozen=True)
class Code:
    """The name of something in a file, on the command line or in a model."""

    text: str


@dataclass(frozen=True)
class Emphasis:
    text: str


@dataclass(frozen=True)
class Fold:
    """A name, and what it means: opened in place on a screen, beside it on paper."""

    name: str
    meaning: str


@dataclass(frozen=True)
class Ref:
    """A place of the report by its key: a heading, '=' and the symbol that an equation defines, the key of a table or figure, or the anchor of a
    row. said: the words around its number. Left out where the report has no such place; number and anchor are given by `numbered`."""

    key: str
    said: str = "{}"
    number: str = ""
    anchor: str = ""

    @property
    def text(self) -> str:
        return self.said.format(self.number)


Span = Union[str, Math, Code, Emphasis, Fold, Printed, Ref]
Spans = tuple[Span, ...]
Cell = Union[Span, Spans]


@dataclass(frozen=True)
class Paragraph:
    spans: Spans
    kind: str = "paragraph"


@dataclass(frozen=True)
class Column:
    """share: how much of the line the column wants, in the units of its neighbours. names: symbols, which the next column says what they are."""

    heading: Cell
    share: float
    right: bool = False
    names: bool = False


@dataclass(frozen=True)
class Row:
    """role: plain; inner (an operation of the group above it); group (a heading over the rows below); message (a row about communication); total;
    wide (its second cell spans all columns behind it).
    anchor: of a row that is referred to."""

    cells: tuple[Cell, ...]
    role: str = "plain"
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """key: by which it is referred to; number: from 1, given by `numbered`. beside: a PDF has two rows on a line where they have room;
    broken: pages may break between its rows, however few they are."""

    caption: Spans
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: str = "table"
    key: str = ""
    number: int = 0
    beside: bool = False
    broken: bool = False


@dataclass(frozen=True)
class Equation:
    """left = lines[0] lines[1] ...; the lines are broken where they fit a page. key: the symbol that it defines, what that means, and its value."""

    left: str
    lines: tuple[str, ...]
    key: str = ""
    number: int = 0
    meaning: str = ""
    value: str = ""

    @property
    def length(self) -> int:
        """Characters of its LaTeX."""
        return len(f"{self.left} = {' '.join(self.lines)}")


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
    key: str = ""
    number: int = 0

    @property
    def modules(self) -> list[str]:
        """Every module in some bar, in order of first appearance."""
        return list(dict.fromkeys(m for bar in self.bars for m, _, _ in bar.parts))


@dataclass(frozen=True)
class Gauge:
    """A total in words, and its parts: (name, share of the picture's scale, amount in words)."""

    label: str
    total: str
    parts: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Gauges:
    """Bars on one scale, with a line at a limit (a share of the scale) that says what it is."""

    caption: Spans
    gauges: tuple[Gauge, ...]
    limit: float
    limit_words: str
    kind: str = "gauges"
    key: str = ""
    number: int = 0

    @property
    def parts(self) -> list[str]:
        """Every part of some bar, in order of first appearance."""
        return list(dict.fromkeys(p for g in self.gauges for p, _, _ in g.parts))


@dataclass(frozen=True)
class Point:
    """A kernel in a roofline: FLOP a byte, FLOP/s, its share of all kernels' time, and a label for the largest."""

    intensity: float
    reached: float
    share: float
    label: str = ""


@dataclass(frozen=True)
class Roofline:
    """FLOP/s against FLOP a byte, both logarithmic, under the HBM bandwidth (byte/s) and peak rates (name, FLOP/s)."""

    caption: Spans
    points: tuple[Point, ...]
    bandwidth: float
    peaks: tuple[tuple[str, float], ...]
    kind: str = "roofline"
    key: str = ""
    number: int = 0


@dataclass(frozen=True)
class Timeline:
    """A pipeline schedule to be drawn (`report.timeline`): stages, micro-batches, chunks a rank, durations by symbol, group size, their unit."""

    caption: Spans
    schedule: str
    stages: int
    microbatches: int
    chunks: int
    durations: Mapping[str, float]
    group: int
    unit: str = "ms"
    kind: str = "timeline"
    key: str = ""
    number: int = 0


Figure = Union[Picture, Gauges, Roofline, Timeline]
Part = Union[Paragraph, Table, Equations, Figure]


@dataclass(frozen=True)
class Section:
    """number: '4.1', given by `numbered`; key: by which it is referred to, its heading unless given."""

    heading: str
    parts: tuple[Part, ...]
    level: int = 1
    key: str = ""
    number: str = ""


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    sections: tuple[Section, ...] = field(default_factory=tuple)
    short: bool = False


def spans(*parts: Span) -> Spans:
    return tuple(p for p in parts if p != "")


def as_spans(cell: Cell) -> Spans:
    return cell if isinstance(cell, tuple) else (cell,)


def joined(parts: Sequence[Spans], between: str = ", ") -> Spans:
    made: list[Span] = []
    for n, part in enumerate(parts):
        made += [between] * bool(n) + list(part)
    return tuple(made)
