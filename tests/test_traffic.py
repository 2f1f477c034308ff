"""Messages of stages beyond the oracles' single layers: pipeline, data parallelism, tied embeddings, experts under FSDP."""

from __future__ import annotations

import pytest

import symsim
from symsim.api.result import Result, derive
from symsim.evaluation.buffers import buckets
from symsim.evaluation.traffic import longest_calls
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy


def messages(result: Result, stage: int, **wanted: object) -> list[tuple[int, int, int]]:
    """(calls, send bytes, receive bytes) of a stage's messages with these attributes."""
    at = result.stage_numbers(result.stages[stage])
    return [
        (int(m.count.evaluate(at)), int(m.send_bytes.evaluate(at)), int(m.receive_bytes.evaluate(at)))
        for m in result.stage_messages(result.stages[stage])
        if all(getattr(m, key) == value for key, value in wanted.items())
    ]


def of(model: str, **strategy: object) -> Result:
    return derive(load_model(model).architecture, Strategy(**strategy))  # type: ignore[arg-type]


def test_pipeline_boundaries() -> None:
    """Sends of a stage are 2v - [first] - [last] a micro-batch (Megatron-Core schedules.py), of [s/(c t), b, h]."""
    result = of("llama3-70b", tp=8, sp=True, cp=2, pp=4, vpp=5)
    size = 4096 // 16 * 8192 * 2
    sends = {s: sum(n for n, out, _ in messages(result, s, op="p2p", axis="pp") if out) for s in range(4)}
    assert sends == {0: 9, 1: 10, 2: 10, 3: 9}
    assert {out + back for s in range(4) for _, out, back in messages(result, s, op="p2p", axis="pp")} == {size}


def test_distributed_optimizer() -> None:
    result = of("llama3-8b", tp=2, sp=True, dp=8)
    held = 4015263744
    assert messages(result, 0, phase="step", op="reduce_scatter", axis="dp_cp") == [(1, 4 * held, 4 * held // 8)]
    assert messages(result, 0, phase="step", op="all_gather", axis="dp_cp") == [(1, 2 * held // 8, 2 * held)]


def test_optimizer_instances() -> None:
    result = of("llama3-8b", tp=2, sp=True, dp=8, num_distributed_optimizer_instances=2)
    held = 4015263744
    assert messages(result, 0, op="reduce_scatter", axis="intra_dp_cp") == [(1, 4 * held, held)]
    assert messages(result, 0, op="all_reduce", axis="inter_dp_cp") == [(1, held, held)]


def test_tied_embedding_is_summed_between_the_stages_that_hold_it() -> None:
    result = of("qwen3-0.6b", pp=4)
    table = 151936 * 1024 * 4
    assert [messages(result, s, axis="embd") for s in range(4)] == [[(1, table, table)], [], [], [(1, table, table)]]


def test_expert_gradients_have_their_own_ranks() -> None:
    result = of("mixtral-8x7b", tp=2, sp=True, ep=4, etp=1, dp=16)
    experts = 11274289152  # two experts a rank, as Megatron-Core's expert buffer
    assert messages(result, 0, op="reduce_scatter", axis="edp") == [(1, 4 * experts, 4 * experts // 8)]


def test_experts_under_fsdp() -> None:
    result = of("mixtral-8x7b", ep=4, dp=8, zero=3)
    layer = 2 * 3 * 4096 * 14336  # two experts a rank
    assert messages(result, 0, phase="forward", op="all_gather", axis="edp") == [(32, 2 * layer // 2, 2 * layer)]
    assert messages(result, 0, phase="backward", op="reduce_scatter", axis="edp") == [(32, 4 * layer, 4 * layer // 2)]


def test_whole_experts_beside_tensor_parallel_attention_have_their_own_ranks() -> None:
    """etp=1 with tp=2 and ep=1: every rank holds all experts whole, so their gradients are summed over tp * dp ranks."""
    result = of("mixtral-8x7b", tp=2, sp=True, etp=1, dp=2)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert messages(result, 0, op="reduce_scatter", axis="edp") == [(1, 4 * experts, experts)]


def test_parameters_start_at_multiples_of_64_in_a_gradient_buffer() -> None:
    """Sizes 96 and 160: 96 fills to 128, 160 more end at 288, which is padded to lcm(ranks, 128) = 384 (last parameter
    first); multiples of 32 would end at 256. Megatron-Core optimizer/param_layout.py pads with 64 and lcm(dp, 128)."""
    assert list(buckets([(160, False), (96, False)], 2, None, True, False)) == [384]
    assert list(buckets([(160, False), (96, False)], 2, None, False, False)) == [256]


@pytest.mark.parametrize(
    ("model", "strategy", "axis"),
    [
        ("mixtral-8x7b", "tp=2,sp=true,pp=2,ep=8,etp=1,dp=8,num_microbatches=4", "pp"),
        ("deepseek-v2-lite", "ep=8,dp=16", "ep"),
        ("llama3-8b", "zero=3,dp=16", "dp_cp"),
        ("llama3-8b", "tp=8,sp=true", "tp"),
    ],
)
def test_the_longest_call_is_that_of_all_definitions(model: str, strategy: str, axis: str) -> None:
    """Of a micro-batch's messages, and of those that a step sends once, where there are any, on every stage."""
    result = symsim.derive(model, strategy, system="h100-sxm")
    longest: dict[str, float] = {}
    for definition in result.definitions("call_seconds"):
        made = result.formula(definition.symbol)
        per = "step" if definition.key.phase == "step" else "microbatch"
        here = [float(made.value({**result.values, **result.stage_values(stage)})) for stage in result.stages]
        longest[per] = max(longest.get(per, 0.0), *here)
    found = longest_calls(result)
    assert {per: seconds for per, (seconds, _, _) in found.items()} == pytest.approx(longest)
    assert found["microbatch"][2].axis == axis
