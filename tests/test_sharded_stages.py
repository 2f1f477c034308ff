"""Gradients and parameters that are sharded over data ranks, in a pipeline: ZeRO-2, ZeRO-3 and FSDP with pp above 1."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from symsim.api.python import derive
from symsim.api.result import Result

PLAN: dict[str, Any] = {"pp": 4, "dp": 8, "num_microbatches": 8, "seq_length": 1024}
INTERLEAVED = {**PLAN, "vpp": 2}
KEPT = {"reshard_after_forward": False}
UNTIL_THE_STEP = {**KEPT, "reshard_after_backward": False}


@cache
def _made(settings: tuple[tuple[str, Any], ...], fusion: str, system: str | None) -> Result:
    return derive("llama3-8b", {**dict(settings), "fusion": fusion}, {"te_dummy_wgrad": "false"}, system=system)


def made(fusion: str = "te", system: str | None = None, **settings: Any) -> Result:
    return _made(tuple(sorted(settings.items())), fusion, system)


def calls(result: Result, stage: int) -> dict[tuple[str, str, str], int]:
    """Calls a stage makes over its data ranks, by phase, collective and how often."""
    at, found = result.stage_numbers(result.stages[stage]), {}
    for m in result.stage_messages(result.stages[stage]):
        if m.axis == "dp_cp" and m.send_elements.evaluate(at):
            key = (m.phase, m.op, m.per)
            found[key] = found.get(key, 0) + int(m.count.evaluate(at))
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # 8 layers a stage: gathered for a micro-batch's forward and again for its backward
        ({}, {(*way, "microbatch"): 8 for way in (("forward", "all_gather"), ("backward", "all_gather"), ("backward", "reduce_scatter"))}),
        # each backward frees what the next forward gathers: as often as there are micro-batches
        (KEPT, {("forward", "all_gather", "microbatch"): 8, ("backward", "reduce_scatter", "microbatch"): 8}),
        (
            {**UNTIL_THE_STEP, "gradient_sync": "last_microbatch"},
            {("forward", "all_gather", "step"): 8, ("backward", "reduce_scatter", "step"): 8},
        ),
    ],
)
def test_a_middle_stage_gathers_its_own_layers(settings: dict[str, Any], expected: dict[tuple[str, str, str], int]) -> None:
    """The root's unit, embedding or output layer, is of the ends alone."""
    result = made(**PLAN, zero=3, **settings)
    assert calls(result, 1) == expected
    assert calls(result, 0) == {key: n + 1 for key, n in expected.items()}


@pytest.mark.parametrize(("zero", "weights", "gradients"), [(1, 2, 4), (2, 2, 4 / 8), (3, 2 / 8, 4 / 8)])
def test_what_stays_is_sharded(zero: int, weights: float, gradients: float) -> None:
    result = made(**PLAN, zero=zero)
    held = result.to_json()["params"]["per_rank"][1]["total"]
    stage = result.to_json()["memory"]["stages"][1]
    assert (stage["weights"], stage["gradients"], stage["optimizer"]) == (weights * held, gradients * held, 12 * held / 8)


def test_a_stage_holds_what_it_has_gathered() -> None:
    """Resharded: the layer at work and the next one; never: all 8 layers of the stage, in bf16."""
    freed, kept = (made(**PLAN, zero=3, **more) for more in ({}, KEPT))
    layer = 2 * float(freed.numbers["P_dense_attention"] + freed.numbers["P_dense_mlp"] + freed.numbers["P_dense_norm"])
    at = {name: r.stage_numbers(r.stages[1]) for name, r in (("freed", freed), ("kept", kept))}
    assert float(at["kept"]["M_at_backward_dense"] - at["freed"]["M_at_backward_dense"]) == (8 - 2) * layer


def test_other_chunks_stay_gathered() -> None:
    """At a chunk's first layer, of two chunks the other's four layers are gathered still where forward frees none."""
    freed, kept = (made(**INTERLEAVED, zero=3, **more) for more in ({}, KEPT))
    layer = 2 * float(freed.numbers["P_dense_attention"] + freed.numbers["P_dense_mlp"] + freed.numbers["P_dense_norm"])
    difference = [r.stage_numbers(r.stages[1])["M_at_first_layers"] for r in (freed, kept)]
    assert float(difference[1] - difference[0]) == 4 * layer


@pytest.mark.parametrize("zero", [2, 3])
def test_one_chunk_of_gradients_is_whole_at_a_time(zero: int) -> None:
    """every_group: m / pp reductions of every chunk, and of two chunks one whole in fp32."""
    each, group = (made(**INTERLEAVED, zero=zero, gradient_sync=sync) for sync in ("every_microbatch", "every_group"))
    held = group.to_json()["params"]["per_rank"][1]["total"]
    layer = held / 8
    at = [r.stage_numbers(r.stages[1]) for r in (each, group)]
    already = 4 * layer if zero == 2 else 0
    assert float(at[1]["M_at_backward_dense"] - at[0]["M_at_backward_dense"]) == 4 * held / 2 - already
    reduced = {key: n for key, n in calls(group, 1).items() if key[1] == "reduce_scatter"}
    assert reduced == {("backward", "reduce_scatter", "step"): 2 * (1 if zero == 2 else 8)}


def test_waiting_for_the_last_micro_batch_is_zero_1() -> None:
    waits, states = made(**PLAN, zero=2, gradient_sync="last_microbatch"), made(**PLAN, zero=1)
    assert waits.value("memory.peak") == states.value("memory.peak")


def test_a_chunk_begins_with_a_gather_that_nothing_hides() -> None:
    """Of 8 layers in 2 chunks two wait for their parameters, and two for their gradients to leave, however long layers compute."""
    result = made(system="h100-sxm", **{**INTERLEAVED, "seq_length": 65536}, zero=3)
    at = result.stage_numbers(result.stages[1])
    assert float(at["e_f_fsdp_stage"]) == pytest.approx(float(at["c_f_fsdp_stage"]) * 2 / 8, rel=1e-12)
    step = {zero: made(system="h100-sxm", **PLAN, zero=zero).value("time.step") for zero in (1, 3)}
    assert step[3] > step[1]


def test_reductions_of_groups_hide_beside_the_next() -> None:
    plans = ({"gradient_sync": sync, "zero": 2, "overlap_grad_reduce": True, "seq_length": 256} for sync in ("every_microbatch", "every_group"))
    each, group = (made(system="h100-sxm", **{**INTERLEAVED, **plan}) for plan in plans)
    at = group.stage_numbers(group.stages[1])
    backward = float(at["ti_stage"] + at["tw_stage"] + at["tr_stage"])
    reduced = float(at["c_grad_stage"])
    hidden = max(reduced - backward * (8 * 3 / 4 + 1 / 2), reduced / 4 - backward / 2, reduced / float(at["n_bucket"]))
    assert float(at["e_grad_stage"]) == pytest.approx(hidden, rel=1e-12)
    assert group.value("time.step") < each.value("time.step")


@pytest.mark.parametrize("strategy", ["llama3-405b-16k", "llama3-405b-long"])
def test_llama_3_405b_fits_as_published(strategy: str) -> None:
    """arXiv:2407.21783, sec. 3.3.2: 8K tokens without activation checkpointing on 80 GB; table 4: 41 and 38 % MFU of 16,384 H100."""
    result = derive("llama3.1-405b", strategy, {"causal": "half"}, system="h100-sxm")
    assert result.strategy.world_size == 16384
    assert 70 * 2**30 < result.value("memory.peak") < 80 * 10**9
    published = {"llama3-405b-16k": 400e12, "llama3-405b-long": 380e12}[strategy]
    tflops = result.value("mfu") * 989.4e12
    assert published < tflops < 1.2 * published
