"""Widths of a table's columns on paper: what each asks for, and room for what no line is broken in."""

from __future__ import annotations

import re

from symsim.algebra.typeset import unbroken, width
from symsim.report.amounts import unbroken as kept
from symsim.report.document import Cell, Code, Fold, Math, Printed, Table, as_spans

BETWEEN = 0.6  # em from one column to the next
_LETTER = 0.475  # em of a letter of an identifier
_LONG_WORD = 16  # letters, of a word that is broken where an identifier is
_BREAKS = re.compile(r"(?<=[._/=,+*])|(?<=[a-z])(?=[A-Z])")
_SLACK = 0.2
_SMALL = 1.2  # letters of small type, and of its scripts more so, are wider than it is small


def widths(table: Table, line: float) -> list[float]:
    """em of every column, on a line of so many. Columns are narrowed together where the line is too short, and none of them below what it holds
    that is not broken, as long as all of that has room."""
    room = line - BETWEEN * len(table.columns)
    asked = [column.share for column in table.columns]
    found = [share * min(1.0, room / sum(asked)) for share in asked]
    least = [_least(table, k) for k in range(len(asked))]
    if sum(least) > room:
        return found
    found = [max(one, needed) for one, needed in zip(found, least)]
    if (over := sum(found) - room) > 0:
        spare = [one - needed for one, needed in zip(found, least)]
        found = [one - over * free / sum(spare) for one, free in zip(found, spare)]
    return found


def _least(table: Table, column: int) -> float:
    cells = [row.cells[column] for row in table.rows if not (row.role == "group" or row.role == "message" and column > 1)]
    return max(map(_longest, (table.columns[column].heading, *cells))) + _SLACK


def _longest(cell: Cell) -> float:
    """em of the longest part of a cell that stands on one line."""
    longest = 0.0
    for span in as_spans(cell):
        if isinstance(span, (Math, Printed)):
            parts = [_SMALL * unbroken(span.latex)]
        elif isinstance(span, (Code, Fold)):
            parts = [_LETTER * len(part) for part in _BREAKS.split(span.text if isinstance(span, Code) else span.name)]
        else:
            words = re.split(r"[ \u00ad\u200b-]", kept(span if isinstance(span, str) else span.text))
            parts = [_word(part) for word in words for part in (_BREAKS.split(word) if len(word) > _LONG_WORD else [word])]
        longest = max(longest, *parts)
    return longest


def _word(text: str) -> float:
    """em of an upright word; what is no letter has the room of one."""
    return width(rf"\mathrm{{{re.sub('[^A-Za-z]', 'n', text)}}}")
