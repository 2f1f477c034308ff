"""What a sweep says beside its rows: why the others cannot run, a table as wide as the terminal, and what to give `symsim eval`."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import in_process
import pytest

import symsim
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.lowering.checks import RULES

ROOT = Path(__file__).parents[1]


def said(*arguments: str, columns: str | None = None) -> subprocess.CompletedProcess[str]:
    return in_process.run(*arguments, cwd=ROOT, columns=columns)


def first_broken(model: str, axes: dict, strategy: str) -> Counter:
    """One configuration after the other."""
    architecture, found = load_model(model).architecture, Counter()
    for values in itertools.product(*axes.values()):
        placed = load_strategy(strategy, dict(zip(axes, values)))
        for rule in RULES:
            try:
                rule(architecture, placed)
            except InputError:
                found[rule.__name__.strip("_")] += 1
                break
    return found


@pytest.mark.parametrize(
    ("model", "axes", "strategy"),
    [
        ("llama3-8b", {"tp": [1, 2, 3, 4, 64], "sp": [True, False], "pp": [1, 2, 5], "micro_batch_size": [1, 3]}, "global_batch_size=8"),
        ("mixtral-8x7b", {"tp": [1, 2], "ep": [1, 2, 3, 8], "etp": [1, 2], "sp": [True, False], "recompute": ["none", "full"]}, "dp=2"),
        ("gpt2", {"cp": [1, 2, 5], "zero": [0, 3], "num_distributed_optimizer_instances": [1, 2], "fp8": ["none", "mxfp8"]}, "dp=4,fusion=eager"),
    ],
)
def test_refused_points_are_counted_by_the_first_rule_that_they_break(model: str, axes: dict, strategy: str):
    found = symsim.sweep(model, axes, strategy, columns="world")
    wanted = first_broken(model, axes, strategy)
    assert len(wanted) >= 2 and dict(found.refused) == dict(wanted)
    total = 1
    for values in axes.values():
        total *= len(values)
    assert len(found) + sum(found.refused.values()) == total


def test_reasons_are_said_with_an_example():
    done = said("sweep", "llama3-8b", "-s", "world=16", "--axis", "tp=1,2,3,32", "--axis", "sp=true,false", "--top", "2", "--by", "memory.peak")
    assert "8 configurations, 3 can run" in done.stderr
    assert "4 refused by derived dp, one of them: dp=world/(tp*cp*pp) is none that dp can be" in done.stderr
    assert "1 refused by tensor_parallel, one of them: sp=true needs tp above 1" in done.stderr


def test_as_json_the_reasons_are_one_object():
    done = said("sweep", "llama3-8b", "--axis", "tp=1,2", "--axis", "sp=true,false", "--json")
    assert len(json.loads(done.stdout)) == 3
    (line,) = [line for line in done.stderr.splitlines() if "refused" in line]
    assert json.loads(line.removeprefix("symsim: refused ")) == {"tensor_parallel": 1}


def test_where_all_run_nothing_is_refused():
    assert "refused" not in said("sweep", "llama3-8b", "--axis", "tp=1,2").stderr
    assert symsim.sweep("llama3-8b", {"tp": [1, 2]}).refused == {}


@pytest.mark.parametrize("columns", [None, "60", "80", "200"])
def test_the_table_is_as_wide_as_the_terminal(columns: str | None):
    done = said("sweep", "llama3-8b", "-y", "h100-sxm", "--axis", "tp=1,2,4", "--axis", "pp=1,2", columns=columns)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("first:")]
    assert max(map(len, lines)) <= int(columns or 80)
    if columns == "200":
        assert "not shown" not in done.stdout and max(map(len, lines)) > 80 and "time.optimizer" in done.stdout
    else:
        assert "not shown" in done.stdout


def test_the_best_row_is_given_as_eval_takes_it():
    asked = ["-y", "h100-sxm", "--axis", "tp=2,4", "--axis", "sp=true,false", "--axis", "L=8,16", "--top", "1", "--by", "time.step"]
    done = said("sweep", "llama3-8b", "-s", "world=16,recompute_modules=mlp+core_attn,recompute=selective", *asked)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("first: ")]
    again = said("eval", "llama3-8b", *shlex.split(line.removeprefix("first: ")), "--json")
    step = json.loads(again.stdout)["time"]["step"]
    (row,) = json.loads(said("sweep", "llama3-8b", "-s", "world=16,recompute_modules=mlp+core_attn,recompute=selective", *asked, "--json").stdout)
    assert step == pytest.approx(row["time.step"], rel=1e-12)
    assert re.search(r"dp=\d", line) and "--set L=8" in line and "recompute_modules=mlp+core_attn" in line


@pytest.mark.parametrize(("tp", "more", "too_large"), [("1", (), True), ("4", (), False), ("1", ("--fits",), False)])
def test_a_first_point_that_does_not_fit_is_said(tp: str, more: tuple[str, ...], too_large: bool):
    asked = ["-s", "global_batch_size=64,micro_batch_size=4", "--axis", f"tp={tp},8", "--axis", "world=8", "--top", "1", "--by", "tp", *more]
    done = said("sweep", "llama3-8b", "-y", "h100-sxm", *asked)
    assert ("of 80 GiB; --fits leaves out what does not fit" in done.stderr) == too_large, done.stderr


@pytest.mark.parametrize(("by", "more"), [("run.cost", ("--set", "tokens=1T")), ("cost_per_trillion_tokens", ()), ("hfu", ())])
def test_what_points_are_compared_by_is_shown(by: str, more: tuple[str, ...]):
    ended = said(
        "sweep", "llama3-8b", "-y", "h100-sxm", "-s", "global_batch_size=32,dp=8", "--axis", "recompute=none,full", "--top", "1", "--by", by, *more
    )
    header = ended.stdout.splitlines()[0].split()
    assert header[:2] == ["recompute", by], ended.stdout
