"""torchtune's published tables (its README, "Memory and training speed" of 2024-09 and "Optimization flags" of 2024-11).

Optimization flags: Llama 3.2 3B on one A100, two rows of 4096 packed tokens in bf16, Adam's states too. Each row adds to the one before it;
LoRA and QLoRA have the recipes' adapters (recipes/configs/llama3_2/3B_lora_single_device.yaml, 3B_qlora_single_device.yaml) in place of the
optimizer's rows. That of the first row, whose samples are not packed, has no length. AdamW in 8 bits is torchao's (the README names AdamW8bit; its
page on memory gives torchao.prototype.low_bit_optim first). Of the modules that run as they are written, the rotary embedding is in fp32 and works
on pairs (torchtune/modules/position_embeddings.py), for which the one of transformers is taken here.

Memory and training speed: Llama 3.1 in the recipes of recipes/configs/llama3_1, two rows of 2048 packed tokens, compiled.

Keys and values are repeated to every query head before attention (torchtune/modules/attention.py), as its kernel `efficient` has them.
"""

from __future__ import annotations

from typing import Any

from measured_row import GIB, Case, Rows, Uncovered, architecture, strategy

SECTION, SPEED = "torchtune_optimization_flags", "torchtune_memory_and_speed"
ASSUMED = {"attention_kernel": "efficient"}
_STEP: dict[str, Any] = {
    **{"fusion": "eager", "micro_batch_size": 2, "seq_length": 4096, "zero": 0},
    **{"main_params_dtype": "bf16", "grad_reduce_in_fp32": False, "clip_grad": 0},
}
_COMPILED = {**_STEP, "fusion": "compile"}
_CHUNKED = {**_COMPILED, "cross_entropy_fusion": "compiled_chunks"}
_CHECKPOINTED = {**_CHUNKED, "recompute": "full"}
_TARGETS = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_LORA = {**_CHECKPOINTED, "cpu_offloading_num_layers": 27, "tuner_type": "lora", "lora_rank": 64, "target_modules": _TARGETS}
_IN_BACKWARD = {**_CHECKPOINTED, "optimizer_in_bwd": True}
_OFFLOADED = {**_IN_BACKWARD, "cpu_offloading_num_layers": 27}
# what it is called, settings, GiB at the peak, tokens a second
PRINTED: tuple[tuple[str, dict[str, Any] | str, float, int], ...] = (
    ("baseline", "rows are as long as samples of unknown length", 25.5, 2091),
    ("packed", _STEP, 60.0, 7075),
    ("compiled", _COMPILED, 51.0, 8998),
    ("chunked loss", _CHUNKED, 42.9, 9174),
    ("checkpoints", _CHECKPOINTED, 24.9, 7210),
    ("optimizer in backward", _IN_BACKWARD, 23.1, 7309),
    ("offloaded checkpoints", _OFFLOADED, 21.8, 7301),
    ("8-bit AdamW", {**_OFFLOADED, "optimizer_bits": 8}, 17.6, 6960),
    ("LoRA", _LORA, 8.5, 8210),
    ("QLoRA", {**_LORA, "quantize_base": "nf4_torchao_compiled"}, 4.6, 8035),
)

_RANK_8 = {**_CHUNKED, "seq_length": 2048, "tuner_type": "lora", "lora_rank": 8, "target_modules": ("q_proj", "v_proj")}
_ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_QLORA = {"recompute": "full", "target_modules": _ALL, "quantize_base": "nf4_torchao_compiled"}
_PAGED = "states that CUDA pages between host and device, which PyTorch's peak leaves out, have no name here"
_SHARDED = {"dp": 8, "zero": 3, "recompute": "full", "lora_rank": 16}
# model, what it is called, settings, bytes at the peak. Tokens a second are of a whole epoch, with what it loads and saves
PUBLISHED: tuple[tuple[str, str, dict[str, Any] | str, float], ...] = (
    ("llama3.1-8b", "full on 4090", _PAGED, 18.9 * GIB),
    ("llama3.1-8b", "full on A6000", _PAGED, 37.4 * GIB),
    ("llama3.1-8b", "LoRA on 4090", {**_RANK_8, "recompute": "full"}, 16.2 * GIB),
    ("llama3.1-8b", "LoRA on A6000", _RANK_8, 30.3 * GIB),
    ("llama3.1-8b", "QLoRA on 4090", {**_RANK_8, **_QLORA}, 7.4 * GIB),
    ("llama3.1-70b", "full", "parameters that lie on the host have no name here", 13.9 * GIB),
    ("llama3.1-70b", "LoRA", {**_RANK_8, **_SHARDED, "target_modules": ("q_proj", "k_proj", "v_proj")}, 27.6 * GIB),
    ("llama3.1-405b", "QLoRA", "two rows a step in the table's heading, one in its recipe", 44.8e9),
)


def rows(_: dict[str, Any]) -> Rows:
    """Rows of both tables."""
    flags = [_row(f"torchtune/llama3.2-3b {name}", SECTION, "llama3.2-3b", at, gib * GIB, speed) for name, at, gib, speed in PRINTED]
    return flags + [_row(f"torchtune/{model} {name}", SPEED, model, at, peak, None) for model, name, at, peak in PUBLISHED]


def _row(name: str, section: str, model: str, settings: dict[str, Any] | str, peak: float, speed: int | None) -> Case | Uncovered:
    if isinstance(settings, str):
        return Uncovered(name, section, settings)
    plan, unnamed = strategy(settings)
    assert not unnamed, unnamed
    tokens = plan.micro_batch_size * plan.seq_length * plan.dp
    note = f"step: {tokens} tokens over {speed} tokens/s; memory: active bytes, whose peak PyTorch reports" if speed else "memory alone"
    # whether a packed row attends within its documents depends on a version that is not said, and their lengths are not published
    # AdamW8bit is torchao's, whose update is compiled (torchtune docs/source/tutorials/memory_optimizations.rst)
    assumed = {**ASSUMED, "optimizer_implementation": "compiled"} if plan.optimizer_bits == 8 else ASSUMED
    return Case(name, section, architecture(model, {}), plan, assumed, "a100-sxm-80", tokens / speed if speed else None, peak, note, ("packed rows",))
