"""The axes of a sweep as the user writes them, one text an axis:

    tp=1,2,4    schedule=1f1b,zb_h1    sp=true,false    values; words joined by + or - are one text (recompute_modules=core_attn+mlp)
    pp=1:8      seq_length=8:64:8      tp=1:64:*2       ranges, both ends included: by 1, by a step, by a factor
    tp=1,2,8:32:8                                       any of these together
    B_1=50 GB/s    B_1=200:900:50 GB/s                  numbers of a system come with their unit, a range's behind any of its numbers
    tp=@FILE    tp=@FILE#COLUMN                         distinct values of a column of a CSV or Parquet file, as they first appear
    @FILE                                               one joint axis: every row is a point, its columns vary together
    dp==world/(tp*pp)    sp==tp>1                       derived: `symsim.grid.conditions` has the grammar

A lone expression after a single = is derived too (dp=world/(tp*pp)). What reads as text is text (order=tp-cp-pp): of words joined by + or -
one word with numbers alone is an expression (first=layers-1), and == makes one of anything.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, Union

from symsim.algebra.grammar import _LARGEST_DECIMAL_EXPONENT, _NUMBER, parse_value
from symsim.errors import InputError, cut, nearest
from symsim.grid.conditions import Node, names, parse_any
from symsim.inputs.reading import read_text

Value = Union[int, float, bool, str]

# each is looked at by the rules of a strategy, some 30 us of it
_MOST_VALUES = 10**5
_LARGEST = 10**300
_OUT_OF_RANGE = f"is out of range: numbers lie between 1e-300 and 1e300 and have at most {_LARGEST_DECIMAL_EXPONENT} digits"
# a fine factor makes fractions that grow with every step
_MOST_BITS = 2**17

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SIGNED = re.compile(r"[-+]?" + _NUMBER.pattern)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_JOINED = re.compile(r"[A-Za-z0-9_.]+(?:[-+][A-Za-z0-9_.]+)*")
_LETTER = re.compile(r"[A-Za-z_]")
# a number of a system comes with its unit: 50 GB/s
_MEASURED = re.compile(_SIGNED.pattern + r" ?[A-Za-z]+(?:/[A-Za-z]+)?")
# and so does any part of a range of them
_MEASURED_PART = re.compile(r"([-+0-9.*eE\s]*[0-9.])\s?(?P<unit>[A-Za-z]+(?:/[A-Za-z]+)?)")
# a system is a name or a file
_PATH = re.compile(r"[^,|()=<>*]*\.ya?ml")
# stages of a pipeline's layout stand between bars, which no expression has
_LAYOUT = re.compile(r"(?=[^|]*\|)[A-Za-z0-9_.+*()|-]+")


@dataclass(frozen=True)
class Axis:
    """Names that vary together: `columns` holds the values of each name, all of one length."""

    names: tuple[str, ...]
    columns: tuple[tuple[Value, ...], ...]

    @property
    def size(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True)
class DerivedAxis:
    """A name whose value follows from other names at every point."""

    name: str
    expression: Node
    text: str


def parse_axes(texts: Iterable[str]) -> tuple[tuple[Axis, ...], tuple[DerivedAxis, ...]]:
    """The axes of several texts, free and derived, each in the order given; InputError where a name is given twice."""
    free: list[Axis] = []
    derived: list[DerivedAxis] = []
    given: dict[str, str] = {}
    for text in texts:
        axis = parse_axis(text)
        for name in axis.names if isinstance(axis, Axis) else (axis.name,):
            if name in given:
                raise InputError(f"axis {name} is given twice: as '{_quoted(given[name])}' and as '{_quoted(text)}'")
            given[name] = text
        if isinstance(axis, Axis):
            free.append(axis)
        else:
            derived.append(axis)
    return tuple(free), tuple(derived)


def parse_axis(text: str) -> Axis | DerivedAxis:
    """The axis that one text stands for; InputError says what does not read, and where.

    Names are checked for their spelling alone. Whole numbers are int, others float.
    """
    stripped = text.strip()
    if stripped.startswith("@"):
        return _joint(stripped[1:].strip())
    name, equals, rest = (part.strip() for part in stripped.partition("="))
    if not equals:
        raise InputError(f"axis '{_quoted(text)}': it has no '='; write NAME=VALUES, as in tp=1,2,4, or @FILE")
    if not _NAME.fullmatch(name):
        raise InputError(f"axis '{_quoted(text)}': '{_quoted(name)}' is not a name: letters, digits, _ and . are, a letter or _ first")
    where = f"axis {cut(name)}"
    if rest.startswith("="):
        expression = rest[1:].strip()
        return DerivedAxis(name, parse_any(expression, where), expression)
    if not rest:
        raise InputError(f"{where}: no values are given; write them after the =, as in {cut(name)}=1,2,4")
    items = [item.strip() for item in _split(rest)]
    if "" in items:
        raise InputError(f"{where}: item {items.index('') + 1} of the list is empty")
    if len(items) == 1 and not _is_item(rest):
        return _derived(name, rest, where)
    return Axis((name,), (_joined([_values(item, name, where) for item in items], where),))


def _quoted(text: str) -> str:
    return cut(" ".join(text.split()))


def _split(text: str) -> list[str]:
    """Parts between commas that stand outside parentheses and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _is_range(item: str) -> bool:
    return ":" in item and not set("'\"") & set(item)


def _is_text(item: str) -> bool:
    return bool(_PATH.fullmatch(item) or _LAYOUT.fullmatch(item) or (_JOINED.fullmatch(item) and _LETTER.search(item)))


def _is_item(text: str) -> bool:
    """Whether a text that stands alone is a value, a range or a file rather than an expression."""
    if (
        text.startswith("@")
        or _is_range(text)
        or _SIGNED.fullmatch(text)
        or _NOT_FINITE.fullmatch(text)
        or _LAYOUT.fullmatch(text)
        or _MEASURED.fullmatch(text)
    ):
        return True
    parts = re.split("[-+]", text)
    return _is_text(text) and (len(parts) == 1 or sum(bool(_LETTER.search(part)) for part in parts) > 1)


def _derived(name: str, text: str, where: str) -> Axis | DerivedAxis:
    if text[0] in "'\"" and text[-1] == text[0]:
        raise InputError(f"{where}: text stands without quotes, as in schedule=1f1b")
    try:
        expression = parse_any(text, where)
    except InputError:
        # a text such as gemma-2b, which no expression is
        if _is_text(text):
            return Axis((name,), ((text,),))
        raise
    if expression.kind == "name" or not names(expression):
        raise InputError(f"{where}: '{_quoted(text)}' is neither a value nor a range; as an expression it is written {cut(name)}=={_quoted(text)}")
    return DerivedAxis(name, expression, text)


def _values(item: str, name: str, where: str) -> Sequence[Value]:
    if item.startswith("@"):
        return _column(item[1:].strip(), name, where)
    if _is_range(item):
        plain, unit = _without_unit(item, where)
        return [f"{value} {unit}" for value in _range(plain, where)] if unit else _range(plain, where)
    value = _value(item, where)
    if isinstance(value, str) and not _is_text(value) and not _MEASURED.fullmatch(value):
        raise InputError(f"{where}: '{_quoted(item)}' is neither a value, nor a range, nor @FILE; an expression is an axis of its own")
    return (value,)


def _without_unit(item: str, where: str) -> tuple[str, str]:
    """The numbers of a range, and the one unit that stands behind any of them."""
    parts = [part.strip() for part in item.split(":")]
    measured = [_MEASURED_PART.fullmatch(part) for part in parts]
    units = list(dict.fromkeys(match["unit"] for match in measured if match))
    if len(units) > 1:
        raise InputError(f"{where}: the range {_quoted(item)} is in {' and in '.join(units)}; one unit for all of it would be right")
    plain = ":".join(match[1] if match else part for part, match in zip(parts, measured))
    return plain, units[0] if units else ""


def _value(text: str, where: str) -> Value:
    """A value as it is written; numbers are finite."""
    value = parse_value(text)
    if _NOT_FINITE.fullmatch(text):
        raise InputError(f"{where}: {text} is not a number that can be used here")
    if _SIGNED.fullmatch(text) and (isinstance(value, str) or abs(value) > _LARGEST):
        raise InputError(f"{where}: {cut(text)} {_OUT_OF_RANGE}")
    return value


def _joined(parts: Sequence[Sequence[Value]], where: str) -> tuple[Value, ...]:
    """The values of a list's items one after another, each there once."""
    count = sum(map(len, parts))
    if count > _MOST_VALUES:
        raise InputError(f"{where} has {count} values, and {_MOST_VALUES} are the most")
    values = tuple(value for part in parts for value in part)
    if len(parts) == 1 and isinstance(parts[0], range):
        return values
    seen: set[Any] = set()
    for value in values:
        if _key(value) in seen:
            raise InputError(f"{where}: {_shown(value)} is given twice")
        seen.add(_key(value))
    return values


def _key(value: Value) -> Any:
    """What tells values apart: true equals 1 in Python, and is another value here."""
    return (True, value) if isinstance(value, bool) else value


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else _quoted(str(value))


# ranges ----------------------------------------------------------------------------------------------------------------


def _range(text: str, where: str) -> Sequence[Value]:
    """Values of start:end, start:end:step or start:end:*factor, exact until they are written as numbers."""
    quoted = f"{where}: the range {_quoted(text)}"
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 3:
        raise InputError(f"{quoted} has {len(parts)} parts; it is START:END, START:END:STEP or START:END:*FACTOR")
    for part, what in zip(parts, ("start", "end", "step")):
        if part in ("", "*"):
            raise InputError(f"{quoted} has no {'factor' if part else what}; 1:8 or 1:8:2 or 1:8:*2 would be right")
    start, end = (_exact(part, quoted) for part in parts[:2])
    geometric = len(parts) == 3 and parts[2].startswith("*")
    step = _exact(parts[2].removeprefix("*").strip(), quoted) if len(parts) == 3 else Fraction(1)
    if end < start:
        right = ":".join([parts[1], parts[0], *(part.lstrip("-") for part in parts[2:])])
        raise InputError(f"{quoted} runs downwards; {right} would be right")
    if geometric:
        if start <= 0:
            raise InputError(f"{quoted} starts at {parts[0]}; with a factor it starts above 0")
        if step <= 1:
            raise InputError(f"{quoted} has the factor {parts[2][1:].strip()}; a factor is above 1")
        return _geometric(start, end, step, quoted)
    if step <= 0:
        raise InputError(f"{quoted} has the step {parts[2]}; a step is above 0")
    return _additive(start, end, step, quoted)


def _exact(text: str, quoted: str) -> Fraction:
    match = _NUMBER.fullmatch(text.lstrip("+-"))
    if not match or not _SIGNED.fullmatch(text):
        raise InputError(f"{quoted}: '{_quoted(text)}' is not a number")
    if len(text) > _LARGEST_DECIMAL_EXPONENT or abs(int(match[1] or 0)) > 300 or abs(Fraction(text)) > _LARGEST:
        raise InputError(f"{quoted}: {cut(text)} {_OUT_OF_RANGE}")
    return Fraction(text)


def _additive(start: Fraction, end: Fraction, step: Fraction, quoted: str) -> Sequence[Value]:
    count = (end - start) // step + 1
    if count > _MOST_VALUES:
        raise InputError(f"{quoted} has more than {_MOST_VALUES} values, which are the most of one axis")
    unit = math.lcm(start.denominator, step.denominator)
    first, stride = int(start * unit), int(step * unit)
    steps = range(first, first + count * stride, stride)
    return steps if unit == 1 else [_number(n, unit) for n in steps]


def _geometric(start: Fraction, end: Fraction, factor: Fraction, quoted: str) -> Sequence[Value]:
    growth = math.log1p(float(factor - 1))
    span = math.log(end.numerator * start.denominator) - math.log(end.denominator * start.numerator)
    if growth * _MOST_BITS < span * factor.numerator.bit_length():
        raise InputError(f"{quoted} has too many values so close together; a larger factor would be right")
    values: list[Value] = []
    above, below = start.numerator, start.denominator
    while above * end.denominator <= end.numerator * below:
        values.append(_number(above, below))
        above, below = above * factor.numerator, below * factor.denominator
    return values


def _number(above: int, below: int) -> Value:
    """The whole number, or else the float nearest to the quotient."""
    return above // below if above % below == 0 else above / below


# files -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """Columns of a file; an empty cell is None. Row i stands on `lines[i]`, a line of text or else a row."""

    path: str
    header: tuple[str, ...]
    columns: tuple[tuple[Any, ...], ...]
    lines: Sequence[int]
    text: bool

    def place(self, row: int) -> str:
        return f"{self.path}:{self.lines[row]}" if self.text else f"{self.path}: row {self.lines[row]}"


def _joint(path: str) -> Axis:
    if not path:
        raise InputError("axis '@': no file is named; write @FILE, as in @points.csv")
    table = _read_table(path, None)
    for name in table.header:
        if not _NAME.fullmatch(name):
            raise InputError(f"{path}: the column '{_quoted(name)}' is not a name: letters, digits, _ and . are, a letter or _ first")
    columns = []
    for name, cells in zip(table.header, table.columns):
        if None in cells:
            raise InputError(f"{table.place(cells.index(None))}: {name} is empty; a row of a joint axis has a value in every column")
        columns.append(tuple(_cell(cell, name, table.place(row)) for row, cell in enumerate(cells)))
    first: dict[tuple[Any, ...], int] = {}
    for row, values in enumerate(zip(*columns)):
        before = first.setdefault(tuple(map(_key, values)), row)
        if before != row:
            raise InputError(f"{table.place(row)}: the row repeats that of {table.place(before)}")
    return Axis(table.header, tuple(columns))


def _column(reference: str, name: str, where: str) -> Sequence[Value]:
    path, _, column = reference.rpartition("#") if "#" in reference else (reference, "", name)
    if not path or not column:
        raise InputError(f"{where}: '@{_quoted(reference)}' names no {'column' if path else 'file'}; write @FILE or @FILE#COLUMN")
    table = _read_table(path, column)
    distinct: dict[Any, Value] = {}
    for row, cell in enumerate(table.columns[0]):
        if cell is not None:
            value = _cell(cell, column, table.place(row))
            distinct.setdefault(_key(value), value)
    if not distinct:
        raise InputError(f"{path}: the column {_quoted(column)} is empty")
    return list(distinct.values())


def _cell(cell: Any, column: str, place: str) -> Value:
    if isinstance(cell, str):
        return _value(cell, place)
    if not isinstance(cell, (bool, int, float)):
        raise InputError(f"{place}: {_quoted(column)} holds {type(cell).__name__}; an axis holds numbers, true or false, or text")
    if isinstance(cell, float) and not math.isfinite(cell):
        raise InputError(f"{place}: {_quoted(column)} is {cell}, which is not a number that can be used here")
    return cell


def _read_table(path: str, column: str | None) -> _Table:
    """All columns of a file, or the one named `column`; one row at least."""
    kind = os.path.splitext(path)[1].lower()
    if kind not in (".csv", ".parquet"):
        raise InputError(f"'{_quoted(path)}': values of an axis come in a .csv or .parquet file")
    return _read_csv(path, column) if kind == ".csv" else _read_parquet(path, column)


def _chosen(header: Sequence[str], column: str | None, path: str) -> list[int]:
    """Positions of the columns to read."""
    for position, name in enumerate(header):
        if column in (None, name) and name in header[:position]:
            raise InputError(f"{path}: the column '{_quoted(name)}' is there twice")
    if column is not None and column not in header:
        raise InputError(f"{path}: there is no column '{_quoted(column)}': {nearest(column, list(header))}")
    return list(range(len(header))) if column is None else [header.index(column)]


def _read_csv(path: str, column: str | None) -> _Table:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        # an empty line is passed over, as it is an empty cell where there is one column
        rows = [(reader.line_num, cells) for cells in reader if len(cells) > 1 or any(map(str.strip, cells))]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    if not rows:
        raise InputError(f"{path}: the file is empty")
    header = [" ".join(cell.split()) for cell in rows.pop(0)[1]]
    chosen = _chosen(header, column, path)
    if not rows:
        raise InputError(f"{path}: there are no rows below the header")
    for line, cells in rows:
        if len(cells) != len(header):
            raise InputError(f"{path}:{line}: {len(cells)} cells, and the header names {len(header)} columns")
    columns = tuple(tuple(cells[at].strip() or None for _, cells in rows) for at in chosen)
    return _Table(path, tuple(header[at] for at in chosen), columns, [line for line, _ in rows], text=True)


def _read_parquet(path: str, column: str | None) -> _Table:
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    try:
        # by name, as it may not be installed and says nothing of its types
        parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    except ImportError:
        raise InputError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow); a .csv file needs nothing") from None
    try:
        with open(path, "rb") as file:
            source = parquet.ParquetFile(file)
            if source.metadata.num_rows > _MOST_VALUES:
                raise InputError(f"{path}: has {source.metadata.num_rows} rows, and {_MOST_VALUES} are the most of one axis")
            header = list(source.schema_arrow.names)
            chosen = _chosen(header, column, path)
            data = source.read(columns=[header[at] for at in chosen])
            columns = tuple(tuple(None if cell == "" else cell for cell in data.column(header[at]).to_pylist()) for at in chosen)
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a Parquet file that can be read: {cut(' '.join(str(error).split()), 120)}") from None
    if not data.num_rows:
        raise InputError(f"{path}: there are no rows in it")
    return _Table(path, tuple(header[at] for at in chosen), columns, range(1, data.num_rows + 1), text=False)
