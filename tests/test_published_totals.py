"""Every published parameter total in derivations/published_totals.yaml equals its formula, to the last unit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from symsim.algebra import grammar
from symsim.api.result import Result, derive
from symsim.inputs.models import load_model
from symsim.inputs.reading import read_yaml
from symsim.inputs.strategy import Strategy

FILE = Path(__file__).parents[1] / "derivations" / "published_totals.yaml"
ROWS = read_yaml(FILE).data["totals"]


@cache
def derived(model: str, changes: tuple[tuple[str, int], ...]) -> Result:
    return derive(load_model(model).architecture.model_copy(update=dict(changes)), Strategy(seq_length=128))


@pytest.mark.parametrize("row", ROWS, ids=[f"{r['model']}-{r['total']}" for r in ROWS])
def test_total(row: dict) -> None:
    numbers = derived(row["model"], tuple((row.get("set") or {}).items())).numbers
    assert grammar.parse(row["formula"], numbers, str(FILE)).evaluate(numbers) == row["total"]


def test_there_are_many() -> None:
    assert len(ROWS) >= 110
