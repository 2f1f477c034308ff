"""recompute_layers_per_stage: other numbers of recomputed layers on every stage, against equal ones and by hand."""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError

MODEL = "llama3-8b"
PIPE = "pp=4,num_microbatches=8,recompute=full"


def derived(strategy: str) -> Result:
    made = symsim.derive(MODEL, strategy, system="h100-sxm")
    assert isinstance(made, Result)
    return made


def stages(strategy: str) -> list[dict[str, Any]]:
    result = derived(strategy)
    return [dict(result.stage_numbers(stage)) for stage in result.stages]


@pytest.mark.parametrize("method", ["recompute_method=block,recompute_num_layers=3", "recompute_method=block,recompute_num_layers=8"])
def test_equal_numbers_are_the_block_method(method):
    count = int(method[-1])
    named = "M_stage_peak Z_stage A_stage t_stage".split()
    alike, given = stages(f"{PIPE},{method}"), stages(f"{PIPE},recompute_method=block,recompute_layers_per_stage={'+'.join([str(count)] * 4)}")
    assert [[s[n] for n in named] for s in alike] == [[s[n] for n in named] for s in given]


def test_groups_of_one_layer_are_the_block_method():
    moments = ["M_at_forward_dense_ckpt", "M_at_backward_dense_ckpt", "M_at_backward_dense", "M_stage_peak"]
    block, uniform = stages(f"{PIPE},recompute_method=block,recompute_layers_per_stage=5+5+5+5"), stages(f"{PIPE},recompute_layers_per_stage=5+5+5+5")
    assert [[s[n] for n in moments] for s in block] == [[s[n] for n in moments] for s in uniform]


def test_all_layers_are_the_uniform_method():
    named = "M_stage_peak Z_stage A_stage t_stage".split()
    for group in (1, 2, 4):
        alike = stages(f"{PIPE},recompute_num_layers={group}")
        given = stages(f"{PIPE},recompute_num_layers={group},recompute_layers_per_stage=8+8+8+8")
        assert [[s[n] for n in named] for s in alike] == [[s[n] for n in named] for s in given]


def test_layers_of_several_chunks_are_counted_together():
    """All of them are the uniform method; five of four and four are all of the first chunk and one of the second."""
    named = "M_stage_peak Z_stage A_stage t_stage".split()
    alike, given = stages(f"{PIPE},vpp=2"), stages(f"{PIPE},vpp=2,recompute_layers_per_stage=8+8+8+8")
    assert [[s[n] for n in named] for s in alike] == [[s[n] for n in named] for s in given]
    part = stages(f"{PIPE},vpp=2,recompute_layers_per_stage=5+5+5+5")
    assert [s["A_stage"] - w["A_stage"] for s, w in zip(part, alike)] == [3 * (s["A_dense"] - s["A_dense_ckpt"]) for s in part]


def test_each_stage_has_its_own_number():
    """FLOPs run again are those of as many layers; what the others keep replaces their inputs."""
    counts = (8, 5, 2, 0)
    result = derived(f"{PIPE},recompute_layers_per_stage={'+'.join(map(str, counts))}")
    numbers = result.numbers
    for stage, count, before in zip(result.stages, counts, stages(f"{PIPE},recompute_layers_per_stage=4+4+4+4")):
        own = result.stage_numbers(stage)
        assert own["L_dense_ckpt_i"] == count and own["checkpoints_i"] == count
        assert own["Z_stage"] == count * numbers["Z_dense_ckpt"]
        assert own["A_stage"] - before["A_stage"] == (4 - count) * (numbers["A_dense"] - numbers["A_dense_ckpt"])
    assert result.value("flops.recompute") == sum(counts) * numbers["R_dense_ckpt"]


def test_groups_smaller_than_the_rest_are_whole():
    """Five layers in groups of two keep three inputs, and rebuild two layers at a time; one layer rebuilds itself alone."""
    result = derived(f"{PIPE},recompute_num_layers=2,recompute_layers_per_stage=5+1+0+8")
    assert [result.stage_numbers(s)["checkpoints_i"] for s in result.stages] == [3, 1, 0, 4]
    numbers = result.numbers
    own = [result.stage_numbers(s) for s in result.stages]
    assert own[1]["A_stage"] - own[2]["A_stage"] == numbers["A_dense_ckpt"] - numbers["A_dense"]
    kept = 5 * numbers["A_dense"] - 3 * numbers["A_dense_ckpt"]
    whole = derived(f"{PIPE},recompute_layers_per_stage=0+1+0+8").stage_numbers(result.stages[0])["A_stage"]
    assert whole - own[0]["A_stage"] == kept
    rows = "M_at_backward_dense_ckpt"
    alone = derived(f"{PIPE},recompute_num_layers=1,recompute_layers_per_stage=5+1+0+8")
    assert own[1][rows] == alone.stage_numbers(alone.stages[1])[rows]
    assert own[3][rows] > alone.stage_numbers(alone.stages[3])[rows] - 4 * numbers["A_dense_ckpt"]


def test_what_a_hoisted_recompute_keeps():
    """Under pre_recompute_1f1b one micro-batch more is whole: eight layers in place of three of them and three inputs."""
    result = derived(f"{PIPE},schedule=pre_recompute_1f1b,recompute_num_layers=2,recompute_layers_per_stage=5+5+5+5")
    own, numbers = result.stage_numbers(result.stages[1]), result.numbers
    more = own["M_stage_earlier"] - (own["alive_i"] - 1) * own["A_stage"]
    assert more == 5 * numbers["A_dense"] - 3 * numbers["A_dense_ckpt"]


@pytest.mark.parametrize("text", ["8+8+8+8", "8+5+2+0", "0+0+0+8", "7+5+2+0,vpp=2"])
def test_a_sweep_says_the_same(text):
    axes = {"num_microbatches": [4, 8], "tp": [1, 2]}
    found = symsim.sweep(MODEL, axes, f"pp=4,recompute=full,recompute_layers_per_stage={text}", "h100-sxm", columns="time.step,memory.peak").rows
    assert len(found["time.step"]) == 4
    for m, tp, step, peak in zip(found["num_microbatches"], found["tp"], found["time.step"], found["memory.peak"]):
        one = derived(f"pp=4,recompute=full,recompute_layers_per_stage={text},num_microbatches={m},tp={tp}")
        assert step == pytest.approx(float(one.value("time.step")), rel=1e-9) and peak == one.value("memory.peak")


@pytest.mark.parametrize(
    "strategy, said",
    [
        ("pp=4,num_microbatches=4,recompute_layers_per_stage=1+1+1+1", "needs recompute=full, and recompute is none"),
        (f"{PIPE},recompute_layers_per_stage=1+1", "is for 2 stages, and pp=4"),
        (f"{PIPE},recompute_layers_per_stage=8+8+8+9", "stage 3 has 8 layers, and 9 of them are to be recomputed"),
        (f"{PIPE},recompute_layers_per_stage=1+1+1+-1", "recompute_layers_per_stage"),
    ],
)
def test_what_cannot_be_is_refused(strategy, said):
    with pytest.raises(InputError, match=said.replace("+", r"\+")):
        derived(strategy)


# micro-batches that keep what they need ---------------------------------------------------------------------------------------

PARTIAL = "num_microbatches_with_partial_activation_checkpoints"


def test_some_micro_batches_of_a_window_run_nothing_again():
    """As Megatron-Core's loop decides: micro-batch k of stage i runs its layers again where k % (warm-up + 1) >= N."""
    pp, m, kept = 4, 24, 2
    result, plain = derived(f"pp={pp},num_microbatches={m},recompute=full,{PARTIAL}={kept}"), derived(f"pp={pp},num_microbatches={m},recompute=full")
    whole = result.numbers["A_dense"] - result.numbers["A_dense_ckpt"]
    for stage, before in zip(result.stages, plain.stages):
        own, alike = result.stage_numbers(stage), plain.stage_numbers(before)
        window = pp - stage.index
        again = [k % window >= kept for k in range(m)]
        assert own["tr_stage"] * m == pytest.approx(alike["tr_stage"] * sum(again))
        held = max(sum(not a for a in again[k : k + window]) for k in range(m - window + 1))
        assert own["M_stage_activations"] - alike["M_stage_activations"] == held * 8 * whole
        assert own["Z_stage"] == alike["Z_stage"]
    assert plain.value("time.step") > result.value("time.step")
    shares = [1 - min(kept, pp - i) / (pp - i) for i in range(pp)]
    partly, wholly = (float(r.value("hfu") * r.value("time.step")) for r in (result, plain))
    forward = float(plain.value("F") + plain.value("G"))
    again = float(plain.value("R"))
    assert partly / wholly == pytest.approx((forward + again * sum(shares) / pp) / (forward + again))


def test_layers_that_do_not_run_again_do_not_send_again():
    """The last stage holds one micro-batch, and keeps it: its messages are those without recomputation; stage 0 sends again for 3 of 4."""
    common = "tp=2,sp=true,pp=4,num_microbatches=24"
    none, some, all_ = (derived(f"{common}{more}") for more in ("", f",recompute=full,{PARTIAL}=1", ",recompute=full"))
    kept, sent, again = ([float(r.stage_numbers(stage)["e_b_tp_stage"]) for stage in r.stages] for r in (none, some, all_))
    assert kept[3] < again[3] and sent[3] == pytest.approx(kept[3])
    assert sent[0] - kept[0] == pytest.approx((again[0] - kept[0]) * 3 / 4)
    assert some.stage_numbers(some.stages[3])["t_stage"] == pytest.approx(none.stage_numbers(none.stages[3])["t_stage"])


def test_some_passes_of_a_rank_of_several_chunks_run_nothing_again():
    """The interleaved loop counts passes through a chunk: pass k runs again where k % (warm-up + 1) >= N."""
    pp, vpp, m, kept = 4, 2, 315, 3
    options = f"pp={pp},vpp={vpp},num_microbatches={m},microbatch_group_size_per_vp_stage=5,recompute=full"
    result, plain = derived(f"{options},{PARTIAL}={kept}"), derived(options)
    whole = result.numbers["A_dense"] - result.numbers["A_dense_ckpt"]
    for stage, before in zip(result.stages, plain.stages):
        own, alike = result.stage_numbers(stage), plain.stage_numbers(before)
        window = 2 * (pp - 1 - stage.index) + (vpp - 1) * 5 + 1
        again = [k % window >= kept for k in range(m * vpp)]
        # windows of 5, 7, 9 and 11 passes: the last one is not whole
        assert own["tr_stage"] * m * vpp == pytest.approx(alike["tr_stage"] * sum(again), rel=6e-3)
        held = max(sum(not a for a in again[k : k + window]) for k in range(m * vpp - window + 1))
        assert own["M_stage_activations"] - alike["M_stage_activations"] == held * 8 * whole / vpp
    assert plain.value("time.step") > result.value("time.step")


def test_all_or_none_of_the_micro_batches():
    options = "pp=4,num_microbatches=8,recompute=full"
    none, plain = derived(f"{options},{PARTIAL}=0"), derived(options)
    assert none.value("time.step") == plain.value("time.step") and none.value("memory.peak") == plain.value("memory.peak")
    every = derived(f"{options},{PARTIAL}=8")
    assert all(abs(every.stage_numbers(s)["tr_stage"]) < 1e-15 for s in every.stages)
    assert every.value("time.step") == pytest.approx(derived("pp=4,num_microbatches=8").value("time.step"))


def test_a_grid_of_micro_batches_that_keep_what_they_need():
    base = f"pp=4,recompute=full,{PARTIAL}=1"
    found = symsim.sweep(MODEL, ["num_microbatches=8,16", "tp=2,4"], base, "h100-sxm", columns="time.step,memory.peak")
    for at in range(len(found)):
        point = ",".join(f"{n}={int(found.rows[n][at])}" for n in ("num_microbatches", "tp"))
        one = derived(f"{base},{point}")
        assert found.rows["time.step"][at] == pytest.approx(float(one.value("time.step")), rel=1e-12)
        assert found.rows["memory.peak"][at] == one.value("memory.peak")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("pp=4,num_microbatches=8", "needs recompute=full, and recompute is none"),
        ("pp=4,schedule=gpipe,num_microbatches=8,recompute=full", "is of the schedule 1f1b with pp above 1"),
        ("pp=4,vpp=2,num_microbatches=4,recompute=full", "pp=4 needs 6 or more, and there are 4"),
        ("recompute=full", "is of the schedule 1f1b"),
        ("pp=4,num_microbatches=2,recompute=full", "pp=4 needs 4 or more, and there are 2"),
    ],
)
def test_micro_batches_that_cannot_keep(options, said):
    with pytest.raises(InputError, match=said):
        derived(f"{options},{PARTIAL}=1")


@pytest.mark.parametrize(
    ("more", "fate"),
    [
        ("--recompute-granularity full --recompute-method uniform", "mapped"),
        ("--recompute-granularity selective", "not_modelled"),
        ("", "no_cost_effect"),
        ("--recompute-granularity full --recompute-method uniform --num-layers-per-virtual-pipeline-stage 1", "mapped"),
    ],
)
def test_megatrons_argument(more, fate):
    base = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 256 --micro-batch-size 1 --global-batch-size 8"
    argument = "--num-microbatches-with-partial-activation-checkpoints"
    job = symsim.load_job("megatron", *f"{base} --pipeline-model-parallel-size 4 {more} {argument} 2".split())
    (row,) = [row for row in job.rows if row.key == argument]
    assert row.fate == fate and (job.strategy.get(PARTIAL) == 2) == (fate == "mapped")


def test_a_host_that_waits_at_the_ends_of_a_checkpoint() -> None:
    """Four launches a checkpoint and micro-batch, of one layer or of several."""

    def step(more: str, **assumed: str) -> tuple[float, float]:
        strategy = f"recompute=full,micro_batch_size=1,num_microbatches=2{more}"
        result = symsim.derive("llama3-8b", strategy, system="h100-sxm", assumptions=assumed)
        assert isinstance(result, Result)
        return float(result.step_numbers["t_step"]), float(result.values["t_launch"])

    (plain, launch), (waits, _) = step(""), step(",synchronize_checkpoint_boundary=true")
    assert waits - plain == pytest.approx(2 * 32 * 4 * launch, rel=1e-6)
    (plain, _), (waits, _) = (step(f",recompute_num_layers=4{more}") for more in ("", ",synchronize_checkpoint_boundary=true"))
    assert waits - plain == pytest.approx(2 * 8 * 4 * launch, rel=1e-6)
    assert step(",synchronize_checkpoint_boundary=true", host_launch="hidden")[0] == step("", host_launch="hidden")[0]
    with pytest.raises(InputError, match="synchronize_checkpoint_boundary=true needs recompute=full, and recompute is none"):
        derived("synchronize_checkpoint_boundary=true")


@pytest.mark.parametrize("ends", [f"pipeline_model_parallel_layout=E{'t' * 32}|L", f"pipeline_model_parallel_layout=E|{'t' * 32}L"])
def test_a_stage_without_layers_keeps_nothing_for_them(ends: str) -> None:
    """A mask that all layers share is kept by checkpoints: where a stage has none, it is not."""
    whole, again = (stages(f"pp=2,num_microbatches=4,{ends},{more}") for more in ("recompute=none", "recompute=full"))
    empty = next(k for k, s in enumerate(whole) if not s["L_dense_i"])
    assert again[empty]["A_stage"] == whole[empty]["A_stage"]
    assert again[1 - empty]["A_stage"] < whole[1 - empty]["A_stage"]
