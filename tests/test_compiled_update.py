"""What lies beside a parameter whose update in blocks torch.compile made a kernel of: behind backward and inside it, in memory and in time."""

from __future__ import annotations

from typing import Any

import pytest

import symsim

# an element: what passes through memory, and two copies of what changes: bf16, and of two moments the scales, in 8 bits the codes too
EACH = {8: 4 + 2 * (2 + 2 * (1 + 4 / 256)), 4: 32 + 2 * (2 + 2 * 4 / 128)}
FLUSHED = 256_000_000
ALONE = {"fusion": "compile", "zero": 0, "clip_grad": 0, "num_microbatches": 1, "main_params_dtype": "bf16", "grad_reduce_in_fp32": False}


def held(model: str, how: str, **options: Any) -> dict[str, float]:
    result = symsim.derive(symsim.load_model(model), {**ALONE, **options}, {"optimizer_implementation": how})
    (stage,) = result.stages
    return {name: float(value) for name, value in result.stage_numbers(stage).items()}


@pytest.mark.parametrize("bits", [8, 4])
def test_behind_backward_it_is_of_the_largest_parameter(bits: int) -> None:
    table = 128256 * 4096
    fused, compiled = (held("llama3-8b", how, optimizer_bits=bits)["M_at_optimizer"] for how in ("fused", "compiled"))
    assert compiled - fused == EACH[bits] * table + FLUSHED
    # a rank updates its share of each
    fused, compiled = (held("llama3-8b", how, optimizer_bits=bits, dp=8, zero=3)["M_at_optimizer"] for how in ("fused", "compiled"))
    assert compiled - fused == EACH[bits] * table / 8 + FLUSHED


def test_it_is_of_moments_in_blocks_alone() -> None:
    fused, compiled = (held("llama3-8b", how) for how in ("fused", "compiled"))
    assert fused == compiled
    fused, compiled = (held("llama3-8b", how, optimizer="lion", optimizer_bits=8) for how in ("fused", "compiled"))
    assert fused == compiled


def test_inside_backward_it_lies_beside_what_each_gradient_leaves() -> None:
    options = {"optimizer_bits": 8, "optimizer_in_bwd": True, "micro_batch_size": 1, "seq_length": 128, "recompute": "full"}
    fused, compiled = (held("llama3-8b", how, **options) for how in ("fused", "compiled"))
    tokens, h, f, table = 128, 4096, 14336, 128256 * 4096
    # the embedding's comes last, when nothing but its gradient is left
    assert compiled["M_at_optimizer"] - fused["M_at_optimizer"] == (2 + EACH[8]) * table + FLUSHED
    # the output layer's beside the gradient of what it read, and what the norm before it keeps: its input, and a number a token
    assert compiled["W_bwd_head"] == (2 + EACH[8]) * table + FLUSHED + tokens * (2 * h + 2 * h + 4)
    # a layer has let go of the gradient that it was given and of the activation that a projection read, but not of the rest
    assert compiled["W_bwd_dense_ckpt"] > (2 + EACH[8]) * h * f + FLUSHED + tokens * 2 * f > fused["W_bwd_dense_ckpt"]
    assert compiled["W_bwd_embedding"] == fused["W_bwd_embedding"]


@pytest.mark.parametrize("bits", [8, 4])
def test_what_it_writes_on_its_way_is_moved_twice(bits: int) -> None:
    """LAMB's update moves 12 bytes a parameter more than Adam's, at the same rate."""

    def seconds(how: str, **options: Any) -> float:
        model, system = symsim.load_model("llama3-8b"), symsim.load_system("h100-sxm")
        return float(symsim.derive(model, {**ALONE, **options}, {"optimizer_implementation": how}, system=system).value("time.optimizer"))

    adam, lamb = seconds("fused"), seconds("fused", optimizer="lamb")
    more = seconds("compiled", optimizer_bits=bits) - seconds("fused", optimizer_bits=bits)
    assert more == pytest.approx((lamb - adam) * 2 * {8: 4, 4: 32}[bits] / 12)
