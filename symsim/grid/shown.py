"""The points of a sweep as a table as wide as the terminal, or as JSON."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from textwrap import wrap
from typing import Any

from symsim.algebra.quantity import BYTE, SECOND
from symsim.grid.rows import Column
from symsim.report.amounts import THIN, human, percent, plain
from symsim.report.columns import WIDTH, table
from symsim.report.notebook import Grid, Shown

_SHORT = {
    "micro_batch_size": "b",
    "num_microbatches": "m",
    "global_batch_size": "gbs",
    "seq_length": "s",
    "time.step": "step",
    "tokens_per_second": "tokens/s",
    "memory.peak": "memory",
    "num_distributed_optimizer_instances": "inst",
}
_SHARES = ("mfu", "hfu")
BY = "what the points were compared by"
_FIRST = ("world", "time.step", "tokens_per_second", "mfu", "memory.peak")


def sweep_table(columns: Sequence[Column], rows: Mapping[str, Any], width: int = WIDTH, whole: str = "-o FILE.csv", by: Collection[str] = ()) -> str:
    """Points as lines, best first; an axis with one value in all lines is named once above, and columns
    that do not fit are left out; `whole` says what has them. by: the columns that points were compared by."""
    count, (same, shown, rest) = _count(rows), _ordered(columns, rows, by)
    cells = {c.name: [_cell(c, v) for v in rows[c.name]] for c in (*shown, *rest)}
    widths = {c.name: max([len(_SHORT.get(c.name, c.name)), *map(len, cells[c.name])]) for c in (*shown, *rest)}
    kept: list[Column] = []
    # however many axes vary, what they lead to is shown
    room = width - 4 - sum(widths[c.name] + 2 for c in rest[:2])
    for c in shown:
        if room >= widths[c.name] + 2:
            kept.append(c)
            room -= widths[c.name] + 2
    room += sum(widths[c.name] + 2 for c in rest[:2])
    for c in rest:
        if room >= widths[c.name] + 2:
            kept.append(c)
            room -= widths[c.name] + 2
    title = _of_all(same, rows)
    lines = [[str(k + 1), *(cells[c.name][k] for c in kept)] for k in range(count)]
    body = table(title, ["", *(_SHORT.get(c.name, c.name) for c in kept)], lines, left=0, width=width)
    left_out = [c.name for c in (*shown, *rest) if c not in kept]
    more = [f"(not shown: {', '.join(left_out)}; {whole} has every column)"] if left_out else []
    return "\n".join([body.lstrip("\n"), *(line for said in more for line in wrap(said, width, subsequent_indent="  "))]) + "\n"


def sweep_shown(of: str, columns: Sequence[Column], rows: Mapping[str, Any], most: int) -> Shown:
    """The first `most` points with every column, for a notebook's cell."""
    count, (same, shown, rest) = _count(rows), _ordered(columns, rows)
    named = (*shown, *rest)
    lines = tuple((str(k + 1), *(_cell(c, rows[c.name][k]) for c in named)) for k in range(min(count, most)))
    caption = f"The first {most} of {count:,} rows" if count > most else f"{count:,} row{'s' if count != 1 else ''}"
    grid = Grid(caption, ("", *(_SHORT.get(c.name, c.name) for c in named)), lines)
    return Shown(of, (_of_all(same, rows),) if same else (), (grid,), ("to_pandas() and to_xarray() have all rows; plot() draws them.",))


def _count(rows: Mapping[str, Any]) -> int:
    return len(next(iter(rows.values()))) if rows else 0


def _ordered(columns: Sequence[Column], rows: Mapping[str, Any], by: Collection[str] = ()) -> tuple[list[Column], list[Column], list[Column]]:
    """Axes with one value in all points, all other axes, and what they lead to, the most asked for first."""
    axes = [c for c in columns if c.meaning == "an axis" or c.meaning.startswith("derived: ")]
    same = [c for c in axes if _count(rows) > 1 and len({_plain(v) for v in rows[c.name]}) == 1]
    rest = [c for c in columns if c not in axes]
    rest.sort(key=lambda c: _FIRST.index(c.name) if c.name in _FIRST else -1 if c.meaning == BY or c.name in by else len(_FIRST))
    return same, [c for c in axes if c not in same], rest


def _of_all(same: Sequence[Column], rows: Mapping[str, Any]) -> str:
    return "all: " + ", ".join(f"{_SHORT.get(c.name, c.name)}={_cell(c, rows[c.name][0])}" for c in same) if same else ""


def sweep_json(columns: Sequence[Column], rows: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One object a point, by column name; counts are integers, and null is what JSON has for no number and for infinity."""
    count = len(next(iter(rows.values()))) if rows else 0
    return [{c.name: _finite(_plain(rows[c.name][k])) for c in columns} for k in range(count)]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(column: Column, value: Any) -> str:
    value = _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if column.name in _SHARES:
        return percent(value).replace(THIN, " ")
    if column.unit == "s":
        return human(float(value), SECOND)
    if column.unit == "byte":
        return human(int(value), BYTE)
    if isinstance(value, int):
        return str(value)
    return plain(value).replace(THIN, ",")
