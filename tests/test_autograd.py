"""Kernels of derivatives where a module runs operation by operation, held against what PyTorch ran (tests/draws/moved_bytes.py)."""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.algebra.key import of_block
from symsim.api.result import Result
from symsim.cost.hbm import beside_gradient
from symsim.ir.operations import PRODUCTS

TOKENS, H, F, ROTATED = 64, 64, 176, 64 + 32


def layer(**options: Any) -> Result:
    model = symsim.load_model("llama3-8b")
    attention = model.attention.model_copy(update={"num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 16})
    sizes = {"hidden_size": H, "vocab_size": 97, "attention": attention, "mlp": model.mlp.model_copy(update={"ffn_hidden_size": F})}
    model = model.model_copy(update=sizes)
    strategy = {"fusion": "eager", "micro_batch_size": 2, "seq_length": 32, "num_microbatches": 1, "grad_reduce_in_fp32": False, **options}
    return symsim.derive(model, strategy, {"attention_kernel": "flash"})


def moved(result: Result, phase: str) -> float:
    """Bytes of a layer's kernels but products and attention, with what stands beside products."""
    placed, found = result.lowered.blocks["dense"].placed, 0.0
    letter, suffix = ("Q", "") if phase == "forward" else ("U", "_backward")
    for index, op in enumerate(placed.block.ops):
        name = f"{letter}_dense_{op.name.replace('.', '_')}{suffix}"
        if op.kind in PRODUCTS:
            beside = beside_gradient(placed, index, "dgrad", result.lowered.profile) if phase == "backward" else []
            found += sum(float(e.evaluate(result.values)) for e in beside)
        elif op.kind != "attention" and name in result.numbers:
            found += float(result.numbers[name])
    return found


def test_a_layer_moves_what_pytorch_moved() -> None:
    """torch 2.13 and transformers' LlamaDecoderLayer on the CPU: 587,008 and 1,302,016 bytes of all operations that are no views, products or
    attention. Of them are the sums of a norm's epsilon; what starts backward; and copies of gradients in the order that the CPU's attention has
    them. A fill and a copy are one operation there, for each half of what is turned."""
    result = layer()
    assert moved(result, "forward") == 587_008 - 2 * 2 * TOKENS * 4
    assert moved(result, "backward") == 1_302_016 - 2 * TOKENS * H * 2 - 2 * TOKENS * ROTATED * 2 + 2 * (TOKENS * ROTATED * 2 // 2)


def test_kernels_of_a_derivative_one_by_one() -> None:
    """Of the norm: the scale's product and its sum, of two factors; mean, power and the sum where both come together."""
    found, wide = layer().numbers, TOKENS * H * 4
    norm = {name: float(found[f"U_dense_pre_attention_norm_{name}_backward"]) for name in ("mul", "rsqrt", "mean", "pow", "cast_2", "cast")}
    row = TOKENS * 4
    assert norm == {
        "mul": (2 * wide + row) + 3 * wide + (wide + row),
        "rsqrt": 7 * row,
        "mean": wide + row,
        "pow": (2 + 2 + 3) * wide + 3 * wide,
        "cast_2": wide + wide / 2,
        "cast": wide + wide / 2 + 3 * wide / 2,
    }
    assert found["U_dense_add_ffn_add_backward"] == 0


def test_what_is_not_trained_has_no_product_of_its_own() -> None:
    """Of LoRA the weight of a norm is frozen: its gradient is neither made nor summed over tokens."""
    whole, frozen = (layer(**options).numbers["U_dense_pre_mlp_norm_mul_2_backward"] for options in ({}, {"tuner_type": "lora"}))
    narrow = TOKENS * H * 2
    assert whole - frozen == 3 * narrow + (narrow + 2 * H)


def test_a_layer_norm_has_a_kernel_for_its_weights() -> None:
    """Which reads the gradient and the input once more; one that Liger has as one kernel does not."""
    model = symsim.load_model("gpt2")
    options = {"fusion": "eager", "seq_length": 64, "num_microbatches": 1}
    whole, frozen = (symsim.derive(model, {**options, **more}).numbers["U_dense_pre_mlp_norm_backward"] for more in ({}, {"tuner_type": "lora"}))
    assert whole - frozen == 2 * 64 * 768 * 2 + 2 * 768 * 2
    fused = {"fusion": "eager", "fused_kernels": ("norm",), "micro_batch_size": 2, "seq_length": 32, "num_microbatches": 1}
    result = symsim.derive(layer().model, fused, {"attention_kernel": "flash"})
    # gradient, input and a number a row, the weight; the input's gradient and the weight's; and its sum with that of the residual
    assert result.numbers["U_dense_pre_mlp_norm_backward"] == 6 * TOKENS * H * 2 + TOKENS * 4 + 2 * H


def test_a_loss_of_statistics_is_differentiated_once() -> None:
    model = symsim.load_model("mixtral-8x7b")
    found = [symsim.derive(model, {"fusion": "eager", "seq_length": 64, "moe_z_loss": z}).numbers for z in (False, True)]
    (name,) = (n for n in found[1] if "z_loss" in n and n.startswith("U_moe"))
    assert name not in found[0] and found[1]["U_moe"] > found[0]["U_moe"]


@pytest.mark.parametrize(("name", "kernels"), [("pre_attention_norm.pow", 4), ("attention.rope_q.rotate_half", 7), ("mlp.act.mul", 2)])
def test_each_kernel_starts(name: str, kernels: int) -> None:
    """A bandwidth without bound leaves a start for each."""
    result = symsim.derive(layer().model, layer().strategy, {"attention_kernel": "flash"}, system=symsim.load_system("h100-sxm"))
    seconds = result.derivation.formula(of_block("t", "dense", operation=name, phase="backward").text).value({**result.values, "B_hbm": 10**30})
    assert float(seconds) == pytest.approx(kernels * float(result.values["t_mem"]))


def test_slices_beside_one_another_share_no_gradient() -> None:
    """Gate and up of one product (Phi-3) have a reader each: their gradients are laid side by side, and not added up."""
    model = layer().model
    fused = model.model_copy(update={"mlp": model.mlp.model_copy(update={"fused_gate_up": True})})
    apart, halves = (symsim.derive(m, layer().strategy, {"attention_kernel": "flash"}).numbers for m in (model, fused))
    assert halves["U_dense_mlp_act_silu_backward"] == apart["U_dense_mlp_act_silu_backward"] == 3 * TOKENS * F * 2


def test_a_bias_has_a_sum_of_its_own() -> None:
    """grad.sum over tokens, which the product of the weight's gradient leaves out: a gradient read, a bias written; none where it is frozen."""
    model = symsim.load_model("gpt2")
    options = {"fusion": "eager", "seq_length": 64, "num_microbatches": 1}
    told = ({}, {"freeze_parameters": ("bias",)})
    whole, frozen = (symsim.derive(model, {**options, **more}).numbers["U_dense_attention_qkv_wgrad"] for more in told)
    assert whole - frozen == 64 * 2304 * 2 + 2304 * 2
