"""Another system's numbers beside symsim's: the ledger of differences, and that their options do nothing unless asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import symsim
from symsim.api.cli import app
from symsim.compat.difference import Question, applied
from symsim.compat.registry import KINDS, differences
from symsim.errors import InputError
from symsim.importers.job import write_job
from symsim.inputs.conventions import OWN, Conventions, changed

IMPORTED = Path(__file__).parent / "imported" / "simumax" / "dense"
MOE = "ep=8,pp=2,num_microbatches=4,recompute=full,recompute_num_layers=1,recompute_method=block"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = symsim.load_job("simumax", str(IMPORTED / "strategy.json"), str(IMPORTED / "model.json"))
    directory = tmp_path_factory.mktemp("job")
    write_job(made, directory)
    return directory


def test_every_row_is_options_of_the_rules() -> None:
    """A difference consists of nothing but options, assumptions and a strategy; names are unlike."""
    asked = {"simumax": ("deepseek-v3", MOE), "megatron": ("deepseek-v3", MOE), "calculon": ("gpt3-175b", "tp=8,sp=true,pp=2,recompute=full")}
    for kind in KINDS:
        model, strategy = asked[kind]
        rows = differences(kind, Question(symsim.load_model(model), symsim.load_strategy(strategy)))
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            assert row.here and row.there and row.source and row.moves
            assert isinstance(changed(OWN, row.options), Conventions)


def test_applied_in_any_order() -> None:
    question = Question(symsim.load_model("deepseek-v3"), symsim.load_strategy(MOE))
    rows = differences("simumax", question)
    forth, back = applied(question, rows), applied(question, rows[::-1])
    assert forth.conventions == back.conventions and forth.strategy == back.strategy and forth.assumptions == back.assumptions
    with pytest.raises(InputError, match="there is no convention 'keep'"):
        changed(OWN, {"keep": {}})


def test_a_ledger_of_a_directory(job: Path) -> None:
    found = CliRunner().invoke(app, ["compare", str(job), "--compat", "simumax"])
    assert found.exit_code == 0 and "rotary-tables" in found.stdout and max(map(len, found.stdout.splitlines())) <= 80
    told = json.loads(CliRunner().invoke(app, ["compare", str(job), "--compat", "simumax", "--json"]).stdout)
    shares = [abs(row["moves"]) for row in told["differences"]]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0
    whole = json.loads(CliRunner().invoke(app, ["eval", str(job), "--compat", "simumax", "--json"]).stdout)
    assert [stage["weights"] for stage in whole["memory"]["stages"]] == told["quantities"]["weights"]["simumax"]
    assert whole["activations"]["saved_per_microbatch"] == told["quantities"]["saved bytes"]["simumax"]
    own = symsim.derive(job).to_json()
    assert own["activations"]["saved_per_microbatch"] == told["quantities"]["saved bytes"]["symsim"]


def test_what_cannot_be_compared(job: Path) -> None:
    with pytest.raises(InputError, match="there is no such system: did you mean 'simumax'"):
        symsim.compare(job, "simmax")
    with pytest.raises(InputError, match="its seconds need a system file of SimuMax"):
        symsim.compare(job, "simumax", system="h100-sxm")
    with pytest.raises(InputError, match="at the sizes of the job alone"):
        symsim.compare(job, "simumax", settings=["lam=2"])
