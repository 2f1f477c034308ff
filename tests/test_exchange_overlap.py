"""Exchanges of tokens beside the experts' weight gradients, and with attention's backward ahead of the other micro-batch's experts."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.importers.reading import Options, read_job

MODELS = Path(__file__).parents[1] / "models"
TAKEN = 16 / 132  # of h100-sxm, by a collective
BASE = "ep=8,dp=8,seq_length=2048,num_microbatches=4"


@cache
def made(options: str, rate: str = "40 GB/s") -> Result:
    result = symsim.derive("mixtral-8x7b", BASE + options, system="h100-sxm", overrides={"B_1": rate, "lambda_1": "0 s", "alpha_1": "0 s"})
    assert isinstance(result, Result)
    return result


def of(result: Result, name: str) -> float:
    return float(result.numbers[name])


@pytest.mark.parametrize("rate", ["40 GB/s", "450 GB/s"])
def test_weight_gradients_beside_the_dispatch(rate: str) -> None:
    """Half of backward's exchange, less the weight gradients of both of the experts' products, but what waits for the 16 multiprocessors that it
    takes; forward stays."""
    plain, beside = made("", rate), made(",overlap_dispatch_backward_with_experts_wgrad=true", rate)
    kernels = [n for n in plain.numbers if n.startswith("t_b_moe_moe_experts") and n.endswith("wgrad")]
    assert len(kernels) == 2
    sent = of(plain, "c_b_moe_ep")
    # tokens with their probabilities one way, tokens alone the other: the halves are all but equal
    expected = sent / 2 + max(TAKEN * sent / 2, sent / 2 - sum(of(plain, n) for n in kernels))
    assert of(beside, "e_b_moe_ep") == pytest.approx(expected, rel=0.01) and of(plain, "e_b_moe_ep") == sent
    assert of(beside, "e_f_moe_ep") == of(plain, "e_f_moe_ep")


def test_attention_first() -> None:
    """One of two exchanges each way is exposed; the other still hides beside the other micro-batch."""
    paired, early = (made(f",overlap_moe_expert_parallel_comm=true{more}") for more in ("", ",ep_overlap_early_attn_memory_release=true"))
    half = of(paired, "c_f_moe_ep") / 2
    backward = of(paired, "t_i_moe") + of(paired, "t_w_moe")
    assert of(early, "e_f_moe_ep") == pytest.approx(half + max(TAKEN * half, half - backward), rel=0.01)
    assert of(early, "e_f_moe_ep") > of(paired, "e_f_moe_ep")
    stage = early.stages[0]
    fell = float(paired.stage_numbers(stage)["M_stage_peak"] - early.stage_numbers(stage)["M_stage_peak"])
    # at most what attention keeps: q, k, v, the result and its sums, and the projections' input
    assert 0 < fell <= of(early, "A_moe")


FLEX = ",moe_token_dispatcher_type=flex,moe_flex_dispatcher_num_sms=33"


def seconds(result: Result, experts: bool, *phases: str) -> float:
    """Kernels of the layer's experts, or of all the rest of it; no kernel has two of these names."""
    ending = {"forward": ("t_f_moe_", ""), "inputs": ("t_b_moe_", ("dgrad", "backward")), "weights": ("t_b_moe_", "wgrad")}
    found = 0.0
    for phase in phases:
        head, tail = ending[phase]
        own = [n for n in result.numbers if n.startswith(head) and n.endswith(tail)]
        found += sum(of(result, n) for n in own if any(part in n for part in ("permute", "experts_fc", "experts_act")) == experts)
    return found


@pytest.mark.parametrize("rate", ["8 GB/s", "40 GB/s", "450 GB/s"])
def test_each_exchange_has_its_part_of_the_layer_beside_it(rate: str) -> None:
    """Of 33 multiprocessors of 132 that an exchange takes, a quarter of its seconds shows; where its part is too short, what is left over."""
    alone, beside = made(FLEX, rate), made(FLEX + ",overlap_moe_expert_parallel_comm=true", rate)
    half = of(alone, "c_f_moe_ep") / 2
    for phase, parts in (("f", ("inputs", "weights")), ("b", ("forward",))):
        expected = sum(max(half / 4, half - seconds(alone, experts, *parts)) for experts in (True, False))
        assert of(beside, f"e_{phase}_moe_ep") == pytest.approx(expected, rel=0.01)
    assert of(alone, "e_f_moe_ep") == of(alone, "c_f_moe_ep")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (",ep_overlap_early_attn_memory_release=true", "needs overlap_moe_expert_parallel_comm"),
        (",overlap_dispatch_backward_with_experts_wgrad=true,overlap_moe_expert_parallel_comm=true", "hide the same message"),
        (",overlap_dispatch_backward_with_experts_wgrad=true,moe_token_dispatcher_type=allgather", "all-to-all over experts"),
    ],
)
def test_what_cannot_be(options: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(options)


def test_arguments_of_megatron() -> None:
    words = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 1024 --seq-length 64 --micro-batch-size 1 --global-batch-size 8"
    experts = "--num-experts 4 --expert-model-parallel-size 4 --moe-ffn-hidden-size 32 --moe-token-dispatcher-type alltoall --bf16 --world-size 8"

    def imported(more: str) -> dict[str, Any]:
        job = read_job("megatron", f"{words} {experts} {more}".split(), Options())
        assert job.strategy is not None
        return dict(job.strategy)

    assert imported("--overlap-dispatch-backward-with-experts-wgrad")["overlap_dispatch_backward_with_experts_wgrad"] is True
    early = imported("--overlap-moe-expert-parallel-comm --ep-overlap-early-attn-memory-release")
    assert early["ep_overlap_early_attn_memory_release"] is True


def test_a_published_pair_of_steps() -> None:
    """Qwen3 30B on 16 H100, HybridEP with 16 multiprocessors, router and sorting as graphs: 24.71 s without the overlap, 20.99 with it (of
    Megatron-Bridge,
    skills/nemo-mbridge-perf-moe-comm-overlap). With all messages beside all of the layer, and no multiprocessors taken, twice as much was hidden."""
    common = "ep=16,dp=16,global_batch_size=1024,overlap_grad_reduce=true,overlap_param_gather=true,cross_entropy_fusion=te,grad_reduce_in_fp32=false"
    kernels = "cuda_graph_impl=transformer_engine,cuda_graph_scope=moe_router+moe_preprocess,moe_token_dispatcher_type=flex"
    backend = "moe_flex_dispatcher_backend=hybridep,moe_flex_dispatcher_num_sms=16"
    found = []
    for overlap in ("false", "true"):
        options = f"{common},{kernels},{backend},overlap_moe_expert_parallel_comm={overlap}"
        result = symsim.derive("qwen3-30b-a3b", options, system="h100-sxm", assumptions={"moe_permute_fusion": "true"})
        found.append(float(result.value("time.step")))
    assert found == [pytest.approx(24.71, rel=0.1), pytest.approx(20.99, rel=0.17)]
    assert 24.71 - 20.99 < found[0] - found[1] < 1.5 * (24.71 - 20.99)


@pytest.mark.parametrize(
    "model, options, sent, shown, axis",
    [
        ("llama3-8b", "tp=8,sp=true,tp_comm_overlap=true,fusion=te", "c_f_dense_tp", "e_f_dense_tp", 1),
        ("llama3-8b", "dp=16,overlap_grad_reduce=true,num_microbatches=2", "c_grad_stage", "e_grad_stage", 2),
        ("llama3-8b", "dp=16,zero=3", "c_f_fsdp_stage", "e_f_fsdp_stage", 2),
        ("llama3-8b", "dp=16,zero=2,overlap_grad_reduce=true", "", "e_b_zero2_stage", 2),
        ("llama3-8b", "cp=2,cp_comm_type=p2p,seq_length=8192", "c_f_dense_cp", "e_f_dense_cp", 1),
        ("mixtral-8x7b", "ep=8,dp=8,overlap_moe_expert_parallel_comm=true", "c_f_moe_ep", "e_f_moe_ep", 1),
    ],
)
def test_messages_that_take_multiprocessors(tmp_path: Path, model: str, options: str, sent: str, shown: str, axis: int) -> None:
    """A tier says what share its messages take: that share of their time shows, whatever hides the rest."""
    plain = (MODELS / "systems" / "h100-sxm.yaml").read_text()
    (tmp_path / "taking.yaml").write_text(re.sub(r"(\n +latency: \[)", r"\n    processors: [0.9, estimated, nvidia]\1", plain))
    before, after = (symsim.derive(model, options, system=str(one)) for one in ("h100-sxm", tmp_path / "taking.yaml"))
    assert isinstance(before, Result) and isinstance(after, Result)

    def number(result: Result, name: str) -> float:
        return float({**result.numbers, **result.stage_numbers(result.stages[0])}[name])

    assert number(after, shown) > number(before, shown)
    if sent:
        assert 0.85 * number(after, sent) <= number(after, shown) <= number(after, sent) * (1 + 1e-12)
    assert f"chi_{axis}" in after.values and "chi_1" not in before.values
