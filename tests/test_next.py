"""The next knob: changes of one option or size against `derive`, one at a time; what `symsim eval --next` says."""

from __future__ import annotations

import json

import pytest

import symsim
from symsim.planning.knobs import Next, next_knobs
from symsim.program.base import read_base
from tests.in_process import run

MODEL, SYSTEM = "llama3-8b", "h100-sxm"
START = "tp=4,sp=true,pp=2,dp=2,num_microbatches=8"
# the same ranks and batch, with one of them changed
OTHERS = (
    "tp=1,sp=false",
    "pp=1",
    "pp=4",
    "micro_batch_size=2",
    "micro_batch_size=4",
    "cp=2",
    "vpp=4,overlap_p2p_comm=true",
    "recompute=full",
    "zero=1",
)


@pytest.fixture(scope="module")
def found() -> Next:
    return next_knobs(read_base(MODEL, START, SYSTEM, []), most=99)


def at(change: str) -> symsim.Result:
    changed = {part.split("=")[0] for part in change.split(",")} | {"dp", "num_microbatches"}
    kept = [part for part in START.split(",") if part.split("=")[0] not in changed]
    return symsim.derive(MODEL, ",".join([*kept, change, "world=16,global_batch_size=16"]), system=SYSTEM)


def test_each_change_is_what_derive_says(found: Next) -> None:
    here = symsim.derive(MODEL, START, system=SYSTEM)
    assert len(found.changes) > 3 and found.fits and found.batch is None
    for change in found.changes:
        there = at(change.text)
        assert (change.before, change.after) == (float(here.value("time.step")), float(there.value("time.step")))
        assert change.memory == there.value("memory.peak") - here.value("memory.peak")
        assert change.after < change.before and change.part_after < change.part_before


def test_the_first_is_the_best_and_knobs_differ(found: Next) -> None:
    steps = [c.after for c in found.changes]
    assert steps == sorted(steps)
    assert len({c.text.split("=")[0] for c in found.changes}) == len(found.changes)
    assert min(float(at(other).value("time.step")) for other in OTHERS) >= steps[0]
    by_knob = {c.text.split("=")[0]: c.after for c in found.changes}
    assert by_knob["micro_batch_size"] == min(float(at(f"micro_batch_size={b}").value("time.step")) for b in (2, 4, 8))


def test_a_change_of_precision_or_of_what_is_trained_is_none(found: Next) -> None:
    assert not {c.text.split("=")[0] for c in found.changes} & {"precision", "optimizer", "seq_length", "global_batch_size", "tuner_type", "world"}


def test_where_it_does_not_fit_the_changes_make_it_fit() -> None:
    made = next_knobs(read_base("llama3-8b", "dp=2,global_batch_size=16", SYSTEM, []))
    assert not made.fits and made.changes
    for change in made.changes:
        text = f"{change.text},global_batch_size=16,world=2"
        there = symsim.derive("llama3-8b", text, system=SYSTEM)
        assert there.value("memory.peak") + there.value("memory.reserve") <= there.value("memory.capacity")


def test_without_a_batch_micro_batches_that_are_enough_are_said() -> None:
    made = next_knobs(read_base(MODEL, "fusion=compile,pp=2,dp=2", SYSTEM, [])).batch
    assert made is not None
    rate = {
        m: symsim.derive(MODEL, f"fusion=compile,pp=2,dp=2,num_microbatches={m}", system=SYSTEM).value("tokens_per_second")
        for m in (1, made.enough, 2 * made.enough)
    }
    assert (made.before, made.after) == (rate[1], rate[made.enough]) and rate[2 * made.enough] < 1.05 * rate[made.enough]


def test_eval_ends_with_them_where_asked() -> None:
    asked = ("eval", MODEL, "-s", "fusion=compile,zero=3,dp=8,num_microbatches=2", "-y", SYSTEM)
    plain, more = run(*asked), run(*asked, "--next")
    table, hint = plain.stdout.rsplit("\n\n", 1)
    assert hint.startswith("--next: ") and more.stdout.startswith(table) and "Changes that shorten the step most" in more.stdout
    assert max(map(len, more.stdout.splitlines())) <= 80
    assert "--next" not in run("eval", MODEL).stdout
    own, further = (json.loads(run(*asked, "--json", *extra).stdout) for extra in ((), ("--next",)))
    assert further.pop("next")["changes"][0].keys() == {"change", "before", "after", "memory", "part"} and further == own


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["-s", "tp=2"], "--next compares steps on a system: give one with -y"),
        (["-s", "tp=2", "-y", SYSTEM, "--compat", "megatron"], "--next changes options under symsim's own rules: give it without --compat"),
        (["-s", "tp=7", "-y", SYSTEM], "tp=7 does not divide"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(asked: list[str], said: str) -> None:
    ended = run("eval", MODEL, *asked, "--next")
    assert ended.returncode == 2 and said in ended.stderr and ended.stderr.count("\n") == 1 and not ended.stdout
