"""Widths of a table's columns on paper: what each asks for, room for what no line is broken in, and as few lines as that leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from symsim.algebra.typeset import pieces, width
from symsim.report.amounts import unbroken as kept
from symsim.report.document import Cell, Code, Fold, Math, Printed, Row, Table, as_spans

BETWEEN = 0.6  # em from one column to the next
_LETTER = 0.475  # em of a letter of an identifier
_SPACE = 0.33
_HYPHEN = 0.34
_LONG_WORD = 16  # letters, of a word that is broken where an identifier is
_BREAKS = re.compile(r"(?<=[._/=,+*])|(?<=[a-z])(?=[A-Z])")
_SLACK = 0.2
_SMALL = 1.2  # letters of small type, and of its scripts more so, are wider than it is small
_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0)  # em that one column gives another

# em of what stands on one line, and of the space behind it
Piece = tuple[float, float]
Widths = tuple[float, ...]


@lru_cache(maxsize=256)
def widths(table: Table, line: float) -> Widths:
    """em of every column, on a line of so many. Columns are narrowed together where the line is too short, and none of them below what it holds
    that is not broken, as long as all of that has room; then one gives another of its own, and of what the line has left, where that saves lines."""
    room = line - BETWEEN * len(table.columns)
    asked = [column.share for column in table.columns]
    found = [share * min(1.0, room / sum(asked)) for share in asked]
    cells = [[_pieces(cell) for cell in column] for column in _by_column(table)]
    least = [max((one for cell in column for one, _ in cell), default=0.0) + _SLACK for column in cells]
    if sum(least) > room:
        return tuple(found)
    found = [max(one, needed) for one, needed in zip(found, least)]
    if (over := sum(found) - room) > 0:
        spare = [one - needed for one, needed in zip(found, least)]
        found = [one - over * free / sum(spare) for one, free in zip(found, spare)]
    return _fewest_lines(tuple(found), least, room, cells)


def _by_column(table: Table) -> list[list[Cell]]:
    """The cells of each column, the heading first; where a row spans columns, none."""
    empty: list[Cell] = [""] * (len(table.columns) - 2)
    rows = [_cells(row, empty) for row in table.rows if row.role != "group"]
    return [[column.heading, *(cells[k] for cells in rows)] for k, column in enumerate(table.columns)]


def _cells(row: Row, empty: list[Cell]) -> Sequence[Cell]:
    if row.role == "message":
        return (*row.cells[:2], *empty)
    return ("", "", *empty) if row.role == "wide" else row.cells


def breadth(cell: Cell) -> float:
    """em of a cell on one line."""
    return sum(wide + space for wide, space in _pieces(cell))


def _fewest_lines(found: Widths, least: Sequence[float], room: float, cells: Sequence[Sequence[Sequence[Piece]]]) -> Widths:
    """Widths from which no step saves lines, whether another column gives the room or the line has it left."""

    @cache
    def lines(column: int, wide: float) -> list[int]:
        return [_lines(cell, wide - _SLACK) for cell in cells[column]]

    def all_lines(wide: Widths) -> int:
        return sum(map(max, zip(*(lines(k, one) for k, one in enumerate(wide)))))

    now, left = all_lines(found), room - sum(found)
    while now > len(cells[0]):
        best, more = min(((all_lines(wide), wide) for wide in _moved(found, least, left)), default=(now, found), key=lambda one: one[0])
        if best >= now:
            break
        now, found, left = best, more, room - sum(more)
    return found


def _moved(found: Widths, least: Sequence[float], left: float) -> Iterator[Widths]:
    for step in _STEPS:
        for to in range(len(found)):
            if step <= left:
                yield tuple(round(one + step * (k == to), 2) for k, one in enumerate(found))
            for of in range(len(found)):
                if of != to and found[of] - step >= least[of]:
                    yield tuple(round(one + step * ((k == to) - (k == of)), 2) for k, one in enumerate(found))


def _lines(cell: Sequence[Piece], room: float) -> int:
    count, used = 1, 0.0
    for one, space in cell:
        if used and used + one > room:
            count, used = count + 1, 0.0
        used += one + space
    return count


def _pieces(cell: Cell) -> list[Piece]:
    found: list[Piece] = []
    for span in as_spans(cell):
        if isinstance(span, (Math, Printed)):
            found += [(_SMALL * one, 0.0) for one in pieces(span.latex)]
        elif isinstance(span, (Code, Fold)):
            found += [(_LETTER * len(part), 0.0) for part in _BREAKS.split(span.text if isinstance(span, Code) else span.name)]
        else:
            found += _of_words(kept(span if isinstance(span, str) else span.text))
    return found


def _of_words(text: str) -> Iterator[Piece]:
    for word in re.split(r"(?<=[ \u00ad\u200b-])", text):
        plain = word.rstrip(" \u00ad\u200b")
        parts = _BREAKS.split(plain) if len(plain) > _LONG_WORD else [plain]
        for n, part in enumerate(parts):
            yield _word(part), _SPACE if n == len(parts) - 1 and word.endswith(" ") else 0.0


@lru_cache(maxsize=4096)
def _word(text: str) -> float:
    """em of an upright word; what is no letter has the room of one, but for hyphens."""
    return width(rf"\mathrm{{{re.sub('[^A-Za-z]', 'n', text.replace('-', ''))}}}") + _HYPHEN * text.count("-")
