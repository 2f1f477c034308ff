"""A job of another system in place of a model: its own strategy, system and assumptions, what changes them and what takes their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import symsim
from symsim.importers.job import Job, write_job
from tests.in_process import run

IMPORTED = Path(__file__).parent / "imported/simumax/dense"
WORDS = "--tensor-model-parallel-size 4 --sequence-parallel --bf16 --micro-batch-size 2 --global-batch-size 64 --world-size 8".split()
REPLACES = "-s replaces the strategy of {}, all of it; --set NAME=VALUE changes single options of it"


@pytest.fixture(scope="module")
def job() -> Job:
    return symsim.load_job("megatron", *WORDS, model="llama3-8b")


@pytest.fixture(scope="module")
def directory(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("jobs") / "job"
    write_job(job, made)
    return made


def test_an_option_is_changed_by_set_and_a_strategy_replaces_all(directory: Path) -> None:
    changed = run("eval", str(directory), "--set", "tp=2", "--json")
    assert json.loads(changed.stdout)["strategy"] | {"sp": True, "micro_batch_size": 2, "tp": 2} == json.loads(changed.stdout)["strategy"]
    assert "replaces" not in changed.stderr
    replaced = run("eval", str(directory), "-s", "tp=2", "--json")
    assert json.loads(replaced.stdout)["strategy"].get("sp", False) is False and REPLACES.format(directory) in replaced.stderr
    assert "replaces" not in run("eval", "llama3-8b", "-s", "tp=2").stderr


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--compat", "megatron"],
        ["compare", "--compat", "megatron"],
        ["derive"],
        ["run", "-y", "h100-sxm", "--tokens", "1B"],
        ["sweep", "--axis", "tp=1,2"],
        ["ask", "elasticity M_peak by b"],
        ["formula", "N"],
        ["compile"],
        ["diff", "-y", "h100-sxm", "-y", "b200-sxm"],
        ["export", "megatron"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_every_command_says_that_a_strategy_is_replaced(words: list[str], directory: Path, tmp_path: Path) -> None:
    command, *rest = words
    kind, rest = ([rest[0]], ["-o", str(tmp_path / "train.sh")]) if command == "export" else ([], rest)
    ended = run(command, *kind, str(directory), *rest, "-s", "tp=2,num_microbatches=4")
    assert ended.returncode == 0 and ended.stderr.count(REPLACES.format(directory)) == 1, ended.stderr


def test_a_job_is_model_strategy_and_assumptions_in_python(job: Job, directory: Path) -> None:
    made, there = symsim.derive(job), symsim.derive(str(directory))
    assert made.strategy == there.strategy == job.placed() and made.assumptions == there.assumptions != {}
    assert symsim.derive(job, overrides={"tp": 2}).strategy == symsim.load_strategy(job.strategy, tp=2)
    assert symsim.derive(job, "tp=2").strategy == symsim.load_strategy("tp=2")
    assert symsim.derive(job, overrides={"assume.causal": "half"}).assumptions == {**made.assumptions, "causal": "half"}
    swept = symsim.sweep(job, "tp=2,4", system="h100-sxm")
    assert swept.rows["time.step"][1] == pytest.approx(symsim.derive(job, system="h100-sxm").value("time.step"), rel=1e-12)
    with pytest.raises(symsim.InputError, match=r"the job of deepspeed names no model: load_job\(..., model='llama3-8b'\) gives it one"):
        symsim.derive(Job("deepspeed", ()))


def test_a_job_has_its_system(tmp_path: Path) -> None:
    """In memory as in the directory that it is written to; what reads a system by its file says so."""
    job = symsim.load_job("simumax", *(str(IMPORTED / f"{name}.json") for name in ("system", "strategy", "model")))
    write_job(job, tmp_path / "job")
    made, there = symsim.derive(job), symsim.derive(tmp_path / "job")
    assert made.system is not None and made.value("time.step") == there.value("time.step") and made.system.name == job.system["name"]  # type: ignore[index]
    anchored = symsim.anchor(job, step=1.5 * float(made.value("time.step"))).system
    assert anchored.name == made.system.name and symsim.derive(job, system=anchored).value("time.step") == pytest.approx(
        1.5 * made.value("time.step")
    )
    assert symsim.derive(job, system="h100-sxm").system.name == "h100-sxm"  # type: ignore[union-attr]
    with pytest.raises(symsim.InputError, match="has no file: 'symsim import -o DIR' writes one; give DIR as the model"):
        symsim.sweep(job, "tp=1,2")
    assert len(symsim.sweep(job, "micro_batch_size=1,2", system="h100-sxm")) == 2


def test_a_run_shows_its_table(job: Job, directory: Path) -> None:
    made = symsim.run(job, system="h100-sxm", tokens="1B")
    printed = run("run", str(directory), "-y", "h100-sxm", "--tokens", "1B").stdout
    assert str(made) + "\n" == printed and "Where the time of the run goes" in printed
