"""Reference models and other forwards without gradients: what they hold, what they compute, and how long a step takes with them."""

from __future__ import annotations

import json
from functools import cache

import in_process
import pytest

from symsim.algebra.key import of_stage
from symsim.api.python import derive
from symsim.api.result import Result

MODEL, SYSTEM = "llama3.2-1b", "h100-sxm"


@cache
def made(strategy: str) -> Result:
    return derive(MODEL, strategy, system=SYSTEM)


@pytest.mark.parametrize("strategy", ["tp=2,sp=true,dp=2,zero=1", "dp=4,zero=3", "pp=2,num_microbatches=8", "tuner_type=lora,lora_rank=8"])
def test_a_reference_model_is_its_weights(strategy: str) -> None:
    """On every stage: frozen weights in bf16 where the trained ones lie, without adapters; nothing else that is kept is more."""
    alone, beside = made(strategy), made(f"{strategy},reference_models=1")
    # the embedding lies on the first stage; tied, on the last one too
    for one, other in zip(alone.stages, beside.stages):
        before, after = alone.stage_numbers(one), beside.stage_numbers(other)
        held = before["P_stage"] - (before[of_stage("P_trained", "dense").text] if "lora" in strategy else 0)
        shards = 4 if "zero=3" in strategy else 1
        assert after["M_stage_weights"] - before["M_stage_weights"] == 2 * held / shards
        assert after["M_stage_peak"] - before["M_stage_peak"] == 2 * held / shards
        for part in ("gradients", "optimizer", "activations"):
            assert after[f"M_stage_{part}"] == before[f"M_stage_{part}"]


def test_a_forward_of_the_trained_model_holds_nothing() -> None:
    alone, again = made("dp=2"), made("dp=2,further_forwards=1")
    assert again.value("memory.peak") == alone.value("memory.peak")
    assert again.value("time.step") == made("dp=2,reference_models=1").value("time.step") > alone.value("time.step")


@pytest.mark.parametrize("strategy", ["dp=2", "pp=4,num_microbatches=8", "pp=4,num_microbatches=3"])
def test_micro_batches_go_through_the_stages_once_more(strategy: str) -> None:
    """Stage by stage: a micro-batch begins where the one before it and the stage before are done."""
    found = made(f"{strategy},reference_models=1,further_forwards=1")
    forward = [float(found.stage_numbers(stage)["tf_stage"]) for stage in found.stages]
    done = [0.0] * len(forward)
    for _ in range(found.strategy.microbatches):
        before = 0.0
        for stage, seconds in enumerate(forward):
            before = done[stage] = max(before, done[stage]) + seconds
    assert float(found.value("t_further")) == pytest.approx(2 * done[-1])
    assert float(found.value("time.step") - made(strategy).value("time.step")) == pytest.approx(2 * done[-1])


def test_what_is_executed_counts_and_what_the_model_needs_stays() -> None:
    alone, beside = made("dp=2"), made("dp=2,reference_models=2")
    assert beside.value("F_further") == 2 * alone.value("flops.forward")
    executed = alone.value("F") + alone.value("G")
    share = beside.value("hfu") * beside.value("time.step") / (alone.value("hfu") * alone.value("time.step"))
    assert float(share) == pytest.approx(float((executed + beside.value("F_further")) / executed))
    assert float(beside.value("mfu") * beside.value("time.step")) == pytest.approx(float(alone.value("mfu") * alone.value("time.step")))


def test_they_are_printed() -> None:
    asked = f"{MODEL} -s pp=2,num_microbatches=4,reference_models=1 -y {SYSTEM}".split()
    printed, told = in_process.run("eval", *asked).stdout, json.loads(in_process.run("eval", *asked, "--json").stdout)
    assert "reference and further forwards" in printed and "FLOPs of further forwards" in printed
    time = told["time"]
    parts = time["compute"] + time["bubble"] + sum(time["exposed"].values()) + time["optimizer"] + time["further_forwards"]
    assert parts == pytest.approx(time["step"]) and told["flops"]["further_forwards"] == told["flops"]["forward"]
    refused = in_process.run("eval", MODEL, "-s", "dp=2,zero=3,offload_parameters=true,reference_models=1", "-y", SYSTEM)
    assert refused.returncode == 2 and "reference_models=1 with offload_parameters=true" in refused.stderr
