"""Where the one rule does not hold: each place stands in a table, the page prints the tables, and no pass has a further one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from symsim.ir.exceptions import EXCEPTIONS
from symsim.placement.exceptions import TABLE

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "docs/rules.md").read_text().split("## Exceptions to the rule\n")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("| `")]


def test_the_page_prints_the_tables() -> None:
    places = [row.where.split(":") for row in TABLE]
    first = [[f"`{'/'.join(m.split('.')[1:])}.py` `{name}`", r.rule, r.instead, r.source] for (m, name), r in zip(places, TABLE)]
    second = [[f"`{name}`", r.what, ", ".join(sorted(r.labels)), r.reason, r.source] for name, r in EXCEPTIONS.items()]
    assert ROWS == first + second


@pytest.mark.parametrize("where", [row.where for row in TABLE])
def test_each_stands_where_it_says(where: str) -> None:
    module, name = where.split(":")
    found = getattr(importlib.import_module(module), name)
    assert callable(found) and found.__module__ == module


def test_each_has_its_source() -> None:
    known = ("Megatron-Core ", "TransformerEngine ", "torch ")
    assert all(row.rule and row.instead and row.source.startswith(known) for row in TABLE)
    assert len({row.where for row in TABLE}) == len(TABLE)


def test_no_pass_asks_for_a_kind_of_operation_by_name() -> None:
    """Whoever adds a kind adds a row: passes read what the row says."""
    asking = re.compile(r"\b(?:op|o|ops\[\w+\])\.kind (?:==|!=|in|not in) [\[({]*\"(\w+)\"")
    rooms = ("layers", "placement", "lowering", "cost", "evaluation")
    paths = [path for room in rooms for path in (ROOT / "symsim" / room).glob("*.py")]
    assert not {(p.name, kind) for p in paths for kind in asking.findall(p.read_text())}


def test_no_layer_knows_an_axis_of_the_mesh() -> None:
    axes = re.compile(r"\"(tp|cp|dp|ep|etp|edp|pp)\"")
    assert not [p.name for p in (ROOT / "symsim/layers").glob("*.py") if axes.search(p.read_text())]
