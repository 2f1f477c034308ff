"""Notation on paper: symbols two on a line, each with its value behind its meaning, since most of a line of three columns would stay empty."""

from __future__ import annotations

from dataclasses import replace

from symsim.report.document import Column, Row, Table, as_spans, spans
from symsim.report.widths import BETWEEN, breadth

_SYMBOL = 5.5  # em, of the symbols that stand beside others
_SLACK = 0.4
WIDE = "wide"


def two_on_a_line(table: Table, line: float) -> Table:
    """A table of symbols, meanings and values on a line of so many em: what is too long for half of it has a line of its own."""
    said = (line - 4 * BETWEEN) / 2 - _SYMBOL
    made: list[Row] = []
    left: Row | None = None
    for row in map(_in_two, table.rows):
        short = row.role != "group" and breadth(row.cells[0]) <= _SYMBOL - _SLACK and breadth(row.cells[1]) <= said - _SLACK
        if left is not None and short:
            made.append(Row((*left.cells, *row.cells)))
            left = None
            continue
        made += [_alone(left)] if left is not None else []
        left = row if short else None
        made += [] if short else [row if row.role == "group" else _alone(row)]
    made += [_alone(left)] if left is not None else []
    first, middle, last = table.columns
    heading = spans(*as_spans(middle.heading), ": ", *as_spans(last.heading))
    return replace(table, columns=(replace(first, share=_SYMBOL), Column(heading, said)) * 2, rows=tuple(made))


def _in_two(row: Row) -> Row:
    if row.role == "group":
        return row
    name, meaning, value = row.cells
    return replace(row, cells=(name, (*as_spans(meaning), *((": ", *as_spans(value)) if value else ()))))


def _alone(row: Row) -> Row:
    return replace(row, role=WIDE)
