"""What kernels wait for the host: of a block the larger of two in its formula, of a step its own part, and the parts still add up."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from in_process import run

import symsim
from symsim.evaluation.launches import launching, launching_of_step
from symsim.planning.difference import difference
from symsim.report import render_markdown
from symsim.report.kernels import stage_kernels
from symsim.report.step import LAUNCHES, Step

SHORT = "tp=8,dp=2,seq_length=512"
CASES = {
    "one stage": ("llama3-8b", SHORT, "h100-sxm"),
    "modules gathered": ("smollm2-360m", "dp=8,zero=3,fusion=eager", "a800-sxm"),
    "recomputed in full": (
        "llama3-8b",
        f"{SHORT},pp=2,vpp=2,num_microbatches=4,recompute=full,recompute_method=block,recompute_num_layers=2",
        "h100-sxm",
    ),
    "split backward": ("llama3-8b", f"{SHORT},pp=4,schedule=zb_h1,num_microbatches=8", "h100-sxm"),
    "mirrored": ("mixtral-8x7b", "pp=4,ep=8,dp=8,schedule=dualpipe,num_microbatches=16,seq_length=512", "h800-sxm"),
    "timed": ("llama3-8b", f"{SHORT},host_waits=2", "h100-sxm"),
    "deferred": ("llama3-8b", f"{SHORT},pp=2,num_microbatches=4,defer_embedding_wgrad_compute=true", "h100-sxm"),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def result(request: pytest.FixtureRequest) -> Any:
    model, plan, system = request.param
    return symsim.derive(model, plan, system=system)


@pytest.mark.parametrize("launch", [None, "20 ms"])
def test_a_stage_waits_as_long_as_its_kernels_and_messages_are_short_of_it(result: Any, launch: str | None) -> None:
    """Of kernels one by one, and messages that show: what is left of the stage. A deferred gradient of the output layer is in no micro-batch."""
    slow = symsim.derive(result.model, result.strategy, system=result.system, overrides={"t_launch": launch}) if launch else result
    step, deferred = Step(slow), result.strategy.defer_embedding_wgrad_compute
    for stage in range(len(result.stages)):
        numbers = step.stage(stage)
        kernels = sum(k.total for k in stage_kernels(slow, stage, step.block_kernels) if not (deferred and (k.block, k.phase) == ("head", "wgrad")))
        left = float(numbers["t_stage"]) - kernels - step.exposed(stage)
        assert launching(slow, stage) == pytest.approx(left, rel=1e-9, abs=1e-12) and left > 0


def test_micro_batches_that_do_not_run_again_wait_less() -> None:
    plain = f"{SHORT},pp=2,num_microbatches=8"
    again = f"{plain},recompute=full,recompute_method=uniform,recompute_num_layers=1"
    some = f"{again},num_microbatches_with_partial_activation_checkpoints=1"
    none, every, mixed = (symsim.derive("llama3-8b", plan, system="h100-sxm") for plan in (plain, again, some))
    shares = []
    for stage in range(2):
        numbers = mixed.stage_numbers(mixed.stages[stage])
        shares.append(1 - float(numbers["whole_i"]) / float(numbers["window_i"]))
        least, most = launching(none, stage), launching(every, stage)
        assert launching(mixed, stage) == pytest.approx(least + shares[-1] * (most - least), rel=1e-9) and least < most
    assert shares == [0.5, 0]


def test_a_host_that_launches_at_once_is_not_waited_for(result: Any) -> None:
    at_once = symsim.derive(result.model, result.strategy, system=result.system, overrides={"t_launch": "0 s", "t_gather": "0 s"})
    assert launching_of_step(at_once) == 0 and "launching" not in at_once.to_json()["time"] and LAUNCHES not in at_once.table()


def test_the_parts_of_a_step_add_up_and_its_keys_mean_what_they_did(result: Any) -> None:
    step, told = Step(result), result.to_json()["time"]
    parts = {p.name: p.seconds for p in step.parts}
    assert sum(parts.values()) == pytest.approx(told["step"], rel=1e-12)
    assert told["compute"] + told["bubble"] + sum(told["exposed"].values()) + told["optimizer"] == pytest.approx(told["step"], rel=1e-12)
    assert 0 < told["launching"] == parts[LAUNCHES] <= told["compute"]
    assert parts["kernels of the slowest stage"] == pytest.approx(told["compute"] - told["launching"], rel=1e-12)
    each = [launching(result, stage) for stage in range(len(result.stages))]
    place = step.slowest
    mean = (each[place] + each[-1 - place]) / 2 if result.strategy.schedule == "dualpipe" else each[place]
    assert told["launching"] == pytest.approx(result.strategy.microbatches * mean, rel=1e-12)


def test_it_is_shown_wherever_parts_are() -> None:
    waits, graphs = (symsim.derive("llama3-8b", plan, system="h100-sxm") for plan in (SHORT, f"{SHORT},cuda_graph_impl=local"))
    assert LAUNCHES in waits.table() and LAUNCHES in render_markdown(waits) and LAUNCHES.replace("'", "&#39;") in waits.plot().svg
    rows = {row.name: row.more for row in difference(waits, graphs).time}
    assert rows[LAUNCHES] < 0 == rows["kernels of the slowest stage"]
    asked = partial(run, "eval", "llama3-8b", "-y", "h100-sxm", "--next", "--json")
    found = [one for one in json.loads(asked("-s", SHORT).stdout)["next"]["changes"] if one["part"]["name"] == LAUNCHES]
    assert [one["change"] for one in found] == ["cuda_graph_impl=local"]
