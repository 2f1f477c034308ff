"""What each row of the table of operations says, seen in what is derived from it."""

from __future__ import annotations

import pytest

from symsim.api.result import Result, derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.ir.exceptions import EXCEPTIONS
from symsim.ir.operations import OPERATIONS
from symsim.lowering.lower import lower
from symsim.lowering.remember import Remembered


def blocks(name: str, **strategy: object) -> dict[str, Remembered]:
    model = load_model(name).architecture
    return lower(model if name != "deepseek-v3" else model.model_copy(update={"mtp_num_layers": 1}), Strategy(**strategy), {}).blocks  # type: ignore[arg-type]


def messages(block: Remembered, of: str) -> list[str]:
    """Messages of both directions that belong to operations of a name, each as phase, collective, axis, elements and type."""
    made = [*block.differentiated.forward_messages, *block.backward_messages]
    names = [op.name for op in block.placed.block.ops]
    return [f"{m.phase} {m.op} {m.axis} {m.send_elements} {m.dtype}" for i, m in made if names[i] == of]


def timed(name: str, **strategy: object) -> Result:
    return derive(load_model(name).architecture, Strategy(**strategy), system=load_system("h100-sxm"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "strategy", "block", "operation", "sent"),
    [
        # a sum over a split dimension, and its transpose
        ("llama3-8b", {"tp": 2}, "dense", "attention.o_proj.all_reduce", ["forward all_reduce tp b*h*s bf16"]),
        (
            "llama3-8b",
            {"tp": 2, "sp": True},
            "embedding",
            "embedding.lookup.reduce_scatter",
            ["forward reduce_scatter tp b*h*s bf16", "backward all_gather tp b*h*s/tp bf16"],
        ),
        # a mean over split channels is summed each way
        ("olmo2-7b", {"tp": 2}, "dense", "attention.q_norm", ["forward all_reduce tp b*s fp32", "backward all_reduce tp b*s fp32"]),
        # three sums over a split vocabulary, forward alone
        ("llama3-8b", {"tp": 2}, "head", "loss.cross_entropy", ["forward all_reduce tp b*s fp32"] * 3),
        # loads of experts, forward alone
        (
            "mixtral-8x7b",
            {"tp": 2, "sp": True, "moe_router_load_balancing_type": "aux_loss"},
            "moe",
            "moe.gate.top_k",
            ["forward all_reduce tp_cp E int64"],
        ),
        # keys and values around the ring, and their gradients
        (
            "llama3-8b",
            {"cp": 2},
            "dense",
            "attention.core",
            ["forward p2p cp 2*b*d*g*s/cp bf16", "backward p2p cp 2*b*d*g*s/cp bf16", "backward p2p cp 2*b*d*g*s/cp bf16"],
        ),
        # an exchange back is an exchange both ways
        (
            "mixtral-8x7b",
            {"ep": 2, "dp": 2},
            "moe",
            "moe.experts.combine.exchange",
            ["forward all_to_all ep K*b*h*lam*s bf16", "backward all_to_all ep K*b*h*s bf16"],
        ),
        # gathered heads of fewer groups than ranks: the gradient is scattered
        (
            "llama3-8b",
            {"tp": 16},
            "dense",
            "attention.qkv.split.regroup",
            ["forward all_gather tp a*b*d*s/tp + 2*b*d*g*s/tp bf16", "backward reduce_scatter tp a*b*d*s + 2*b*d*g*s bf16"],
        ),
        # a slice is gathered, an exchange of dimensions exchanged back
        ("gpt2", {"tp": 2, "sp": True}, "embedding", "embedding.dropout.slice", ["backward all_gather tp b*h*s/tp bf16"]),
        (
            "llama3-8b",
            {"cp": 2, "cp_comm_type": "a2a"},
            "dense",
            "attention.o_proj.all_to_all",
            ["forward all_to_all cp a*b*d*s/cp bf16", "backward all_to_all cp a*b*d*s/cp bf16"],
        ),
        # a gather is scattered where the gradient is a partial sum, and where it is whole nothing is sent
        (
            "deepseek-v2-lite",
            {"tp": 2, "sp": True},
            "moe",
            "attention.k_pe_gather.all_gather",
            ["forward all_gather tp b*d_r*s/tp bf16", "backward reduce_scatter tp b*d_r*s bf16"],
        ),
        ("deepseek-v3", {"tp": 2, "sp": True}, "mtp", "mtp.merged.all_gather", ["forward all_gather tp b*h*s/tp bf16"]),
    ],
)
def test_messages_of_an_operation(model: str, strategy: dict[str, object], block: str, operation: str, sent: list[str]) -> None:
    found = messages(blocks(model, **strategy)[block], operation)
    assert found == sent


@pytest.mark.parametrize(
    ("strategy", "kernel", "rate"),
    [
        ({"fusion": "eager"}, "moe_moe_experts_dispatch_index", "eta_permute"),
        ({"fusion": "eager"}, "moe_moe_experts_dispatch_sort", "eta_permute"),
        ({}, "moe_moe_experts_dispatch_permute", "eta_permute"),
        ({}, "moe_moe_experts_combine", "eta_permute"),
        ({}, "moe_moe_gate_top_k", "eta_permute"),
        ({}, "head_loss_cross_entropy", "eta_ce"),
        ({}, "moe_add_ffn", "eta_mem"),
        ({}, "moe_attention_o_proj", "eta_gemm"),
        ({}, "moe_moe_experts_fc1", "eta_group"),
    ],
)
def test_what_bounds_a_kernel(strategy: dict[str, object], kernel: str, rate: str) -> None:
    found = timed("mixtral-8x7b", **strategy).derivation.definitions[f"t_f_{kernel}"].expr.symbols()
    assert rate in found, found


def test_what_counts_rest_on() -> None:
    found = timed("mixtral-8x7b", ep=2, dp=2).derivation.definitions
    assert found["G_moe"].assumptions == ("attention_kernel",)
    assert found["A_moe"].assumptions == (
        *("attention_kernel", "moe_permute_fusion", "expert_load", "dispatcher_metadata", "layernorm_linear_fusion"),
    )
    qwen = timed("qwen3-next-80b-a3b").derivation.definitions
    kind = next(n for n in qwen if n.startswith("G_") and "linear_attention_flops" in qwen[n].assumptions)
    assert kind
    assert all("linear_attention_flops" in d.assumptions for n, d in qwen.items() if n.startswith("F_") and n.endswith(("conv1d", "delta_rule")))


@pytest.mark.parametrize(
    ("recompute", "kept"),
    [("sac_mm", {"einsum"}), ("sac_attn", {"attention"}), ("sac_mm_attn", {"einsum", "attention", "grouped"})],
)
def test_what_selective_checkpointing_keeps(recompute: str, kept: set[str]) -> None:
    strategy = Strategy(fusion="eager", recompute=recompute)  # type: ignore[arg-type]
    block = lower(load_model("mixtral-8x7b").architecture, strategy, {}).checkpointed["moe"]
    makers = {op.name: op.kind for op in block.placed.block.ops}
    assert {makers[by.operation] for saved in block.saved for by in saved.by if not by.again and by.operation in makers} == kept
    of_adapters = {"column_product"} if "einsum" in kept else set()
    assert {kind for kind, row in OPERATIONS.items() if recompute in row.stored_by} == kept | of_adapters


def test_exceptions_in_fp8() -> None:
    """Router, gate of the shared experts and output layer multiply in bf16; the output projection keeps its input as it is."""
    definitions = timed("qwen2-57b-a14b", fp8="tensorwise").derivation.definitions
    rates = {n: {s for s in d.expr.symbols() if s.startswith("Phi_")} for n, d in definitions.items() if n.startswith("t_f_")}
    for kernel in ("head_lm_head_lm_head", "moe_moe_gate_router", "moe_moe_shared_expert_gate_shared_expert_gate"):
        assert rates[f"t_f_{kernel}"] == {"Phi_bf16"}, kernel
    for kernel in ("moe_attention_qkv", "moe_moe_experts_fc1", "moe_attention_o_proj"):
        assert rates[f"t_f_{kernel}"] == {"Phi_fp8"}, kernel
    saved = {s.tensor.name: s.tensor.dtype for s in blocks("qwen2-57b-a14b", fp8="tensorwise")["moe"].saved}
    assert saved["attention.core.out"] == "bf16" and "attention.o_proj.input.fp8" not in saved
    assert saved["attention.qkv.input.fp8"] == "fp8"
    assert all(row.reason and row.source for row in EXCEPTIONS.values())
