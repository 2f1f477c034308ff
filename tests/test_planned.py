"""docs/planned.md: plans beside published runs. The page is of its rows, no plan is slower than what the authors ran, and what is fixed of a run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))

import planned  # noqa: E402
from measured_row import Case  # noqa: E402

from symsim.inputs.models import load_model  # noqa: E402
from symsim.inputs.strategies import load_strategy  # noqa: E402

ROWS = [planned.Row(**row) for row in json.loads((DOCS / "planned.json").read_text())]


def test_the_page_is_of_its_rows() -> None:
    assert (DOCS / "planned.md").read_text() == planned.page(ROWS)


def test_no_plan_is_slower_than_what_the_authors_ran() -> None:
    found = [row for row in ROWS if row.best is not None]
    assert len(found) >= 8 and all(row.why for row in ROWS if row.best is None)
    for row in found:
        assert row.best is not None and row.best <= row.theirs * (1 + 1e-9), row.run


def test_a_page_counts_what_is_slower_and_what_there_is_no_plan_for() -> None:
    row = replace(ROWS[0], best=2.0, theirs=1.0, took=40.0)
    page = planned.page([row, replace(row, run="other", best=0.5), replace(row, run="third", best=None, why="a | b", took=1.0)])
    assert "3 plans; the best is at least as fast in 1 and slower in 1; 1 have none." in page
    assert "40 s of CPU at most; 2 took more than 30 s." in page and "200.0%" in page and "a &#124; b" in page


def test_what_a_plan_chooses_is_not_fixed_and_all_else_is() -> None:
    text = "tp=2,sp=true,pp=2,dp=2,num_microbatches=4,precision=fp16,recompute=full,cross_entropy_fusion=te,num_layers_in_last_pipeline_stage=10"
    case = Case("a", "b", load_model("llama3-8b").architecture, load_strategy(text), {}, "h100-sxm", 1.0, None)
    # how boundary tensors travel is the authors' too
    travel = {"p2p_comm": "asynchronous", "batch_p2p_sync": False}
    assert planned.fixed(case) == {"precision": "fp16", "cross_entropy_fusion": "te", **travel}
    asked = planned.asked_of(case, {})
    assert (asked.world, asked.batch, asked.framework.title) == (8, 8, "Megatron-LM")
