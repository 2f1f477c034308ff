"""Tables of printed numbers, recomputed from what is derived: not from the formulas that a source prints beside them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symsim.algebra.expr import Expr, Number
from symsim.algebra.grammar import parse
from symsim.audit.claims import Subject, shipped_sources, subject_of
from symsim.audit.schema import Amount, File, Source
from symsim.audit.subjects import Derivations, Derived
from symsim.audit.table import counted
from symsim.errors import InputError, cut, nearest
from symsim.inputs.reading import Document, parse_yaml, read_text
from symsim.inputs.validation import validate


@dataclass(frozen=True)
class Cell:
    """A printed number, of what it is, and how near symsim's must be: `within` a share of it. misses: why it is not met, where that is known."""

    subject: Subject
    says: str
    printed: Number
    within: float
    stage: int = 0
    values: Mapping[str, Number] = field(default_factory=dict)
    of: str = ""
    misses: str = ""
    place: str = ""


@dataclass(frozen=True)
class Table:
    id: str
    at: str
    status: str
    title: str
    unit: str
    source: Source
    cells: tuple[Cell, ...]
    note: str = ""
    file: str = ""


@dataclass(frozen=True)
class Recomputed:
    """A table with symsim's numbers beside its own."""

    table: Table
    values: tuple[Number, ...]

    @property
    def errors(self) -> list[float]:
        """Of each cell, symsim over printed less one."""
        return [float(v) / float(c.printed) - 1 for v, c in zip(self.values, self.table.cells)]

    @property
    def mape(self) -> float:
        return sum(map(abs, self.errors)) / len(self.errors)

    @property
    def worst(self) -> float:
        """The error that is largest in size."""
        return max(self.errors, key=abs)

    @property
    def red(self) -> list[str]:
        """Cells that are not met, and those that are although it is said why not."""
        found = []
        for cell, error, value in zip(self.table.cells, self.errors, self.values):
            if (abs(error) > cell.within) != bool(cell.misses):
                words = "is met, and said to be missed" if cell.misses else f"is missed by {100 * error:+.3g} %"
                of = f"{self.table.id}, {cell.of}" if cell.of else self.table.id
                found.append(f"{cell.place}: {of}: {float(cell.printed):.6g} {words} ({float(value):.6g})")
        return found

    @property
    def passes(self) -> bool:
        return not self.red

    def to_json(self) -> dict[str, Any]:
        """A row of `tables` of `symsim audit --json`."""
        cells = [
            {"of": c.of, "printed": float(c.printed), "symsim": float(v), "error": e, "within": c.within, "misses": c.misses}
            for c, v, e in zip(self.table.cells, self.values, self.errors)
        ]
        named = {"id": self.table.id, "source": str(self.table.source), "locator": self.table.at, "unit": self.table.unit}
        return {**named, "rows": len(cells), "mape": self.mape, "worst": self.worst, "passes": self.passes, "cells": cells}


def read_tables(path: "str | Path") -> list[Table]:
    """The tables of a file of claims. InputError names file and line of what does not fit."""
    return tables_of(parse_yaml(read_text(path), str(path)))


def tables_of(document: Document) -> list[Table]:
    read = validate(File, document.data, document.where, document)
    found = []
    for number, entry in enumerate(read.tables):
        cells = tuple(_cell(read, number, row, document) for row in range(len(entry.rows)))
        named = (entry.id, entry.at, entry.status, entry.title, entry.unit)
        found.append(Table(*named, read.source, cells, entry.note, document.where))
    return found


def _cell(read: File, number: int, row: int, document: Document) -> Cell:
    table, here = read.tables[number], ("tables", number, "rows", row)
    entry = table.rows[row]
    place = document.place(here)
    says = entry.says if entry.says is not None else table.says
    if not says:
        raise InputError(f"{place}: neither the row nor its table has says")
    default = table.of.model_copy(update={n: getattr(read.of, n) for n in ("model", "strategy", "system") if getattr(table.of, n) is None})
    whole = default.model_copy(update={"set": {**read.of.set, **table.of.set}, "assume": {**read.of.assume, **table.of.assume}})
    return Cell(
        subject=subject_of(whole, entry.of, place),
        says=says,
        printed=_number(entry.printed, place),
        within=entry.within if entry.within is not None else table.within,
        stage=entry.stage,
        values={n: _number(v, place) for n, v in {**table.values, **entry.values}.items()},
        of=entry.what,
        misses=entry.misses,
        place=place,
    )


def _number(amount: Amount, place: str) -> Number:
    found = parse(str(amount), where=place)
    if not found.is_constant:
        raise InputError(f"{place}: '{cut(str(amount))}' is no number")
    return found.constant()


def recompute(table: Table, derivations: Derivations) -> Recomputed:
    """symsim's numbers of all cells. InputError names file and line of a cell that cannot be."""
    return Recomputed(table, tuple(_value(cell, derivations) for cell in table.cells))


def _value(cell: Cell, derivations: Derivations) -> Number:
    try:
        derived = derivations.of(cell.subject)
    except InputError as error:
        raise InputError(f"{cell.place}: {error}") from None
    said = parse(cell.says, where=cell.place)
    _check_names(said, derived, cell)
    result = derived.result
    if not 0 <= cell.stage < len(result.stages):
        raise InputError(f"{cell.place}: there is no stage {cell.stage} of {len(result.stages)}")
    known = {**result.values, **result.stage_values(result.stages[cell.stage]), **cell.values}
    return result.formula_of(said, tuple(cell.values)).value(known)


def _check_names(said: Expr, derived: Derived, cell: Cell) -> None:
    for name in sorted(said.symbols() - cell.values.keys()):
        if not derived.known(name):
            raise InputError(f"{cell.place}: {derived.subject.model} has no '{cut(name)}': {nearest(name, derived.names())}")
    stands = said.symbols() | {n for d in derived.result.formula_of(said).definitions for n in d.expr.symbols()} if cell.values else set()
    for name in sorted(cell.values.keys() - stands):
        raise InputError(f"{cell.place}: {cut(cell.says)} does not stand on '{cut(name)}': {nearest(name, sorted(stands))}")


@dataclass(frozen=True)
class Tables:
    """Tables with symsim's numbers, and sentences for those that are none as they stand."""

    found: tuple[Recomputed, ...]
    errors: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        return not self.errors and all(t.passes for t in self.found)


def audit_tables(names: Sequence[str], derivations: Derivations) -> Tables:
    """The tables of sources by name, of files, or by id; of all sources where none is named. What is wrong with one is a sentence, and
    the others go on."""
    found, errors = [], []
    for table in _asked(names):
        try:
            found.append(recompute(table, derivations))
        except InputError as error:
            errors.append(str(error))
    return Tables(tuple(found), tuple(errors))


def _asked(names: Sequence[str]) -> list[Table]:
    shipped = shipped_sources()
    named = [str(shipped.get(n, n)) for n in names if n in shipped or n.endswith((".yaml", ".yml"))] if names else list(map(str, shipped.values()))
    homes = {name: home for name, home in _homes().items() if name in names and home not in named}
    whole = [t for file in named if "tables:" in read_text(file) for t in read_tables(file)]
    return whole + [t for home in dict.fromkeys(homes.values()) for t in read_tables(home) if t.id in homes]


def table_ids() -> set[str]:
    """The ids of tables that come with symsim."""
    return set(_homes())


def _homes() -> dict[str, str]:
    """The id of every table that comes with symsim, and its file."""
    found = {}
    for file in shipped_sources().values():
        tables = read_text(file).partition("\ntables:")[2]
        found.update(dict.fromkeys(re.findall(r"^- id: (\S+)", tables, re.MULTILINE), str(file)))
    return found


def tables_text(tables: Tables) -> str:
    """In 80 columns: of each table its id, place, cells and errors, and below it the cells that are missed."""
    if not tables.found:
        return ""
    lines = ["", "Printed numbers, recomputed"]
    for one in tables.found:
        errors = f"{counted(len(one.values), 'cell')}, mean {100 * one.mape:.2g} %, worst {100 * one.worst:+.2g} %"
        lines.append(f"{' ' if one.passes else '!'} {f'{one.table.id}, {one.table.at}'[: 76 - len(errors)]:{76 - len(errors)}}  {errors}")
        missed = (f"{c.of}: {float(c.printed):.6g} for {float(v):.6g}, {c.misses}" for c, v in zip(one.table.cells, one.values) if c.misses)
        for text in (*missed, *(f"NOT MET: {r}" for r in one.red)):
            lines += textwrap.wrap(text, 80, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)
    cells, red = sum(len(t.values) for t in tables.found), sum(len(t.red) for t in tables.found)
    said = f"{counted(cells, 'cell')} of {counted(len(tables.found), 'table')}: {f'{red} not met' if red else 'all as said'}"
    return "\n".join([*lines, said]) + "\n"
