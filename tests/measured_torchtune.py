"""torchtune's table of techniques for Llama 3.2 3B on one A100 (its README, "Optimization flags", at 2025-04).

A step is two rows of 4096 packed tokens in bf16, Adam's states too. Each row adds to the one before it; LoRA and QLoRA have the
recipes' adapters (recipes/configs/llama3_2/3B_lora_single_device.yaml, 3B_qlora_single_device.yaml) in place of the optimizer's rows. Two
rows have no name here: an optimizer step inside backward, and what is added to that. That of the first row, whose samples are not packed, has
no length.
"""

from __future__ import annotations

from typing import Any

from measured_row import GIB, Case, Rows, Uncovered, architecture, strategy

SECTION = "torchtune_optimization_flags"
TOKENS = 2 * 4096
_STEP: dict[str, Any] = {
    **{"fusion": "eager", "micro_batch_size": 2, "seq_length": 4096, "zero": 0},
    **{"main_params_dtype": "bf16", "grad_reduce_in_fp32": False, "clip_grad": 0},
}
_COMPILED = {**_STEP, "fused_kernels": ("norm", "activation", "rope")}
_CHUNKED = {**_COMPILED, "cross_entropy_fusion": "compiled_chunks"}
_CHECKPOINTED = {**_CHUNKED, "recompute": "full"}
_TARGETS = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_LORA = {**_CHECKPOINTED, "cpu_offloading_num_layers": 27, "tuner_type": "lora", "lora_rank": 64, "target_modules": _TARGETS}
# what it is called, settings, GiB at the peak, tokens a second
PRINTED: tuple[tuple[str, dict[str, Any] | str, float, int], ...] = (
    ("baseline", "rows are as long as samples of unknown length", 25.5, 2091),
    ("packed", _STEP, 60.0, 7075),
    ("compiled", _COMPILED, 51.0, 8998),
    ("chunked loss", _CHUNKED, 42.9, 9174),
    ("checkpoints", _CHECKPOINTED, 24.9, 7210),
    ("optimizer in backward", "gradients of one parameter at a time have no name here", 23.1, 7309),
    ("offloaded checkpoints", "gradients of one parameter at a time have no name here", 21.8, 7301),
    ("8-bit AdamW", "gradients of one parameter at a time have no name here", 17.6, 6960),
    ("LoRA", _LORA, 8.5, 8210),
    ("QLoRA", {**_LORA, "quantize_base": "nf4_torchao_compiled"}, 4.6, 8035),
)


def rows(_: dict[str, Any]) -> Rows:
    """The table's rows."""
    return [_row(f"torchtune/llama3.2-3b {name}", settings, gib, speed) for name, settings, gib, speed in PRINTED]


def _row(name: str, settings: dict[str, Any] | str, gib: float, speed: int) -> Case | Uncovered:
    if isinstance(settings, str):
        return Uncovered(name, SECTION, settings)
    plan, unnamed = strategy(settings)
    assert not unnamed, unnamed
    note = f"step: {TOKENS} tokens over {speed} tokens/s; memory: active bytes, whose peak PyTorch reports"
    guessed = ("torch.compile's fusions as three fused kernels",) if settings is not _STEP else ()
    return Case(name, SECTION, architecture("llama3.2-3b", {}), plan, {}, "a100-sxm-80", TOKENS / speed, gib * GIB, note, guessed)
