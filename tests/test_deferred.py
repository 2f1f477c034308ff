"""Weight gradients of the output layer that wait for the drain of the pipeline: against a replay, and what they keep."""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.importers.reading import Options, read_job
from symsim.pipeline.orders import Operation, order, replay

ON = ",defer_embedding_wgrad_compute=true"


def made(options: str, model: str = "llama3.2-1b", **overrides: str) -> Result:
    # a network without latency, so that a message delays nothing
    result = symsim.derive(model, options, system="h100-sxm", overrides={"alpha_1": "0 s", "B_1": "1000 TB/s", **overrides})
    assert isinstance(result, Result)
    return result


def replayed(result: Result, options: str, waits: int) -> float:
    """Every stage's own seconds in the order of 1F1B; on the last, `waits` micro-batches run their products at the end."""
    stages = [result.stage_numbers(s) for s in result.stages]
    p, m = result.strategy.pp, result.strategy.microbatches
    head = float(result.numbers["t_w_head"])

    def seconds(operation: Operation) -> float:
        at = stages[operation.stage]
        if operation.kind == "F":
            return float(at["tf_stage"])
        late = operation.stage == p - 1 and operation.microbatch < waits
        return float(at["ti_stage"] + at["tw_stage"] + at["tr_stage"]) - (head if late else 0)

    timed = replay(order("1f1b", p, m), seconds)
    last = max(t.end for t in timed if t.rank == p - 1) + waits * head
    return max(last, max(t.end for t in timed))


@pytest.mark.parametrize("options", ["pp=4,num_microbatches=8", "pp=2,num_microbatches=16", "pp=8,num_microbatches=8,recompute=full"])
def test_the_pipeline_is_a_replay(options: str) -> None:
    """All of them wait: where the drain is longer, and where it is not."""
    plain, late = made(options), made(options + ON)
    assert float(plain.value("t_pipeline")) == pytest.approx(replayed(plain, options, 0), rel=1e-3)
    m = plain.strategy.microbatches
    assert float(late.value("t_pipeline")) == pytest.approx(replayed(plain, options, m), rel=0.03)
    assert late.value("t_pipeline") < plain.value("t_pipeline")


def test_what_outlasts_the_drain() -> None:
    """Two stages and many micro-batches: the products of all wait, less the backward of one stage."""
    late = made("pp=2,num_microbatches=64" + ON)
    first = late.stage_numbers(late.stages[0])
    drain = float(first["ti_stage"] + first["tw_stage"] + first["tr_stage"]) + float(late.numbers["tc"])
    assert float(late.value("t_deferred")) == pytest.approx(64 * float(late.numbers["t_w_head"]) - drain)


def test_a_limit() -> None:
    """Two of eight wait: the last stage's weight gradients are shorter by two eighths of the head's, as a mean."""
    plain, late, some = (made("pp=4,num_microbatches=8" + more) for more in ("", ON, f"{ON},wgrad_deferral_limit=2"))
    head = float(plain.numbers["t_w_head"])
    weights = [float(r.stage_numbers(r.stages[-1])["tw_stage"]) for r in (plain, late, some)]
    assert weights[0] - weights[1] == pytest.approx(head) and weights[0] - weights[2] == pytest.approx(head / 4)
    assert made(f"pp=4,num_microbatches=8{ON},wgrad_deferral_limit=100").value("t_step") == pytest.approx(late.value("t_step"), rel=1e-14)


@pytest.mark.parametrize("more", ["", ",tp=4,sp=true"])
def test_what_waits_is_kept(more: str) -> None:
    """The last stage keeps the layer's input, a shard under sequence parallelism, and the gradient of the logits, two bytes each."""
    plain, late = (made(f"pp=4,num_microbatches=8{more}{on}") for on in ("", ON))
    t = 4 if more else 1
    kept = 8 * 2 * (4096 * 2048 / t + 4096 * 128256 / t)
    grown = [float(late.stage_numbers(s)["M_stage_peak"] - plain.stage_numbers(s)["M_stage_peak"]) for s in late.stages]
    assert grown[:-1] == [0, 0, 0] and grown[-1] == pytest.approx(kept)


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="pp=1 has no stage"):
        made("pp=1,defer_embedding_wgrad_compute=true")
    with pytest.raises(InputError, match="zb_h1 runs them apart"):
        made("pp=4,num_microbatches=8,schedule=zb_h1,defer_embedding_wgrad_compute=true")


def test_arguments_of_megatron() -> None:
    words = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 1024 --seq-length 64 --micro-batch-size 1 --bf16 --world-size 8"

    def imported(more: str) -> dict[str, Any]:
        job = read_job("megatron", f"{words} --global-batch-size 32 --defer-embedding-wgrad-compute {more}".split(), Options())
        assert job.strategy is not None
        return dict(job.strategy)

    found = imported("--pipeline-model-parallel-size 2 --wgrad-deferral-limit 3")
    assert found["defer_embedding_wgrad_compute"] is True and found["wgrad_deferral_limit"] == 3
    assert "defer_embedding_wgrad_compute" not in imported("--wgrad-deferral-limit 3")
