"""Conventions as data: every choice that does not follow from the einsums and placements.

Each has a default, its choices, a meaning and a source. `--set assume.NAME=VALUE` overrides one, and every
report prints those in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symsim.errors import InputError, nearest


@dataclass(frozen=True)
class Assumption:
    default: str
    choices: tuple[str, ...]
    meaning: str
    source: str


ASSUMPTIONS: dict[str, Assumption] = {
    "causal": Assumption(
        "full",
        ("full", "half", "exact"),
        "keys a query is charged for: full: all s; half: s/2; exact: (s+1)/2, or the exact mean inside a window",
        "full: torch FlopCounterMode, PaLM App. B, Narayanan et al. 2021; half: Megatron-LM training.py; exact: counting",
    ),
    "attention_kernel": Assumption(
        "flash",
        ("flash", "efficient", "math", "eager"),
        "flash: fused, keeps q, k, v, out and log-sum-exp, recomputes scores in backward (5 products for 2); efficient: "
        "the same with keys and values repeated to every query head; math: two products each way, scores kept; eager: the "
        "same written out in the modules (fusion=eager)",
        "Dao 2023 (FlashAttention-2) sec. 3; torch.utils.flop_counter; TransformerEngine FusedAttention",
    ),
    "recompute_early_stop": Assumption(
        "profile",
        ("profile", "true", "false"),
        "recomputation stops at the last tensor backward needs (true), or runs the whole region (false); profile: true under eager, false under te",
        "torch.utils.checkpoint early_stop; megatron.core.tensor_parallel.random.CheckpointFunction runs the whole region",
    ),
    "layernorm_linear_fusion": Assumption(
        "separate",
        ("separate", "fused"),
        "separate: a norm before a GEMM is a module of its own, so recompute_modules=layernorm drops its output; fused: "
        "LayerNormLinear keeps the output, and layernorm recompute has no effect on dense layers",
        "megatron.core local spec; TransformerEngine module/layernorm_linear.py",
    ),
    "moe_permute_fusion": Assumption(
        "false",
        ("false", "true"),
        "saved index tensors of token permutation: unfused int64 sort indices, or one fused int32 row map [T, 2E+1]",
        "megatron.core transformer/moe/moe_utils.py permute; TransformerEngine permutation.py",
    ),
    "mla_k_pe_gradient": Assumption(
        "omitted",
        ("omitted", "reduced"),
        "without sequence parallelism the rotary key's gradient is a partial sum over TP; Megatron-Core 0.20 issues no "
        "all-reduce for it (omitted), the placement rule asks for one (reduced)",
        "megatron.core transformer/multi_latent_attention.py, trace of mla_tp2_nosp",
    ),
    "shared_redistribution": Assumption(
        "true",
        ("true", "false"),
        "projections that read one tensor share its gather and sum their gradients before one reduction (true), or each "
        "reduces its own (false: DTensor ColwiseParallel without PrepareModuleInput)",
        "torch.distributed.tensor.parallel; Megatron-Core runs them as one GEMM",
    ),
    "loss_parallel": Assumption(
        "true",
        ("true", "false"),
        "cross entropy on vocabulary-sharded logits (true), or logits gathered to every rank first (false)",
        "megatron.core vocab_parallel_cross_entropy; torch.distributed.tensor.parallel.loss_parallel",
    ),
    "save_gathered": Assumption(
        "profile",
        ("profile", "true", "false"),
        "an input gathered over TP or CP is kept as its shard and gathered again for the weight gradient (false), or kept "
        "gathered (true); profile: true under eager, false under te",
        "megatron.core tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication; torch DTensor",
    ),
    "expert_load": Assumption(
        "balanced",
        ("balanced",),
        "rows an expert-parallel rank receives: the mean times the load imbalance (symbol lam, 1 unless set)",
        "balanced routing; set lam for a measured imbalance",
    ),
    "dispatcher_metadata": Assumption(
        "counted",
        ("counted", "omitted"),
        "token counts (int64) and routing maps that dispatchers exchange besides tokens",
        "megatron.core transformer/moe/token_dispatcher.py",
    ),
    "padding": Assumption(
        "none",
        ("none",),
        "vocabulary and expert rows are not padded; give the padded vocab_size where a system pads",
        "megatron.core pads the vocabulary in its tokenizer, outside the model",
    ),
}


def resolve(given: Mapping[str, str]) -> dict[str, str]:
    """All assumptions with the given overrides; InputError for an unknown name or choice."""
    for name, value in given.items():
        if name not in ASSUMPTIONS:
            raise InputError(f"assume.{name} is not an assumption: {nearest(name, list(ASSUMPTIONS))}")
        if str(value).lower() not in ASSUMPTIONS[name].choices:
            raise InputError(f"assume.{name}={value} is not a choice: {nearest(str(value), ASSUMPTIONS[name].choices)}")
    return {name: str(given.get(name, a.default)).lower() for name, a in ASSUMPTIONS.items()}
