"""Facts of Hugging Face module code that no config key tells, by model_type: what the eager profile follows.

Read at transformers 5.23, src/transformers/models/<model_type>/modeling_<model_type>.py; types that came later at 5.24, whose routers hold their
weights in fp32 (docs/accuracy.md says what that moves of the others).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Op
from symsim.ir.operations import Projection


@dataclass(frozen=True)
class ModuleCode:
    """Where a family's modules differ from Llama's."""

    norm_weight_in_fp32: bool = False
    """*RMSNorm: (weight * x).to(dtype), where Llama casts x first."""
    norm_weight_cast: bool = False
    """The same, of an fp32 copy of the weight."""
    gated_norm_in_fp32: bool = False
    """The norm of a delta net too, which is multiplied by its gate before it is cast; in other families it is as Llama's."""
    decay_bounded: bool = False
    """The decay of a delta rule's channels is a sigmoid between bounds, in the type of the others that are read; else a softplus, in fp32."""
    norm_by_power: bool = False
    """*RMSNorm: torch.pow(mean, -0.5) for rsqrt(mean), which keeps the mean."""
    plain_norm_by_power: bool = False
    """The same of norms without a weight alone."""
    norm_in_fp32: bool = False
    """layer_norm of an fp32 copy."""
    norm_by_steps: bool = False
    """LayerNorm written out in the type of the computation: divided by the root of the variance."""
    centred_norm: bool = False
    """LayerNorm written out in fp32, with an fp32 weight, which is a matrix where every head has its own."""
    router_in_fp32: bool = False
    """F.linear of fp32 copies of x and weight."""
    router_weight_in_fp32: bool = False
    """The router's parameter itself is fp32: no copy."""
    router_is_linear: bool = False
    """The router is a linear module, which all linear maps of adapters have with them; else a parameter."""
    experts_in_rows: bool = False
    """Weights of all experts lie one below the other in matrices, gate and up apart, that of down turned."""
    shared_experts_first: bool = False
    """Shared experts run in front of the router and its experts."""
    shared_gate_up_joined: bool = False
    """Gate and up of shared experts are one linear module."""
    router_casts_weights: bool = False
    """The weights of the chosen experts .to(dtype)."""
    router_clamps: bool = False
    """The sum of the chosen weights is clamped before they are divided by it."""
    router_gathers: bool = False
    """Weights gathered by indices chosen from biased scores, as all sigmoid routers do."""
    router_in_compute_type: bool = False
    """Scores and weights as the logits are, without a copy in fp32."""
    top_k_first: bool = False
    """Softmax over the chosen experts only; every other softmax router is over all."""
    chosen_first: bool = False
    """The logits of the chosen experts are gathered, and scored and divided by their sum in their own type; a softmax of them is in fp32."""
    sparsemixer: bool = False
    """Two experts, one after the other, each with a softmax over the scores near the best."""
    rotary_concatenates: bool = False
    """apply_rotary_pos_emb ends in a cat."""
    rotary_in_fp32: bool = False
    """*RotaryEmbedding leaves cos and sin in fp32."""
    rotary_widened: bool = False
    """apply_rotary_pos_emb multiplies fp32 copies of queries and keys by tables in the type of the computation."""
    rotary_repeated: bool = False
    """apply_rotary_pos_emb makes interleaved tables anew in every layer."""
    rotary_repeated_by_call: bool = False
    """The same of every call."""
    norm_scale_cast: bool = False
    """A norm without a weight multiplies x by a copy of the scale in x's type."""
    rotary_half: bool = False
    """Tables of half the width."""
    rotary_by_row: bool = False
    """Tables for every row of a micro-batch, since positions are three numbers (time, height, width)."""
    rotary_complex: bool = False
    """One complex64 table in place of cos and sin."""
    softmax_in_compute_type: bool = False
    """eager_attention_forward without dtype=float32."""
    scores_in_fp32: bool = False
    """eager_attention_forward multiplies fp32 copies of queries and keys."""
    queries_scaled: Literal["", "every", "unturned", "unturned_by_table"] = ""
    """Queries are multiplied by a factor of their position: in every layer; in those without RoPE, in fp32; by factors that these share."""
    sinks_scale_result: bool = False
    """Softmax offsets are no column of the scores: what attention gives is multiplied by a sigmoid of the logarithm of their sum over the offset."""
    sinks_in_fp32: bool = False
    """Offsets of the softmax are fp32 parameters, and so are the scores that they are put beside."""
    scores_bounded: bool = False
    """The scores' maximum with the least number of their type, which keeps them and that number in fp32."""
    scores_shifted: bool = False
    """eager_attention_forward takes the largest score from all of a row, and keeps its index."""
    scores_filled: bool = False
    """Scores behind a mask of every row's are filled with the least number of their type, which keeps the mask; in others it is added."""
    glu_in_fp32: bool = False
    """The gated activation works on fp32 copies of both its operands."""
    glu_clamps: bool = False
    """What is activated, and what it is multiplied with, are clamped."""
    qkv_indexed: bool = False
    """Queries, keys and values are taken by indices from what one linear module makes of all, not by a split."""
    qkv_heads_first: bool = False
    """They are taken from heads that are transposed already."""
    rotary_tokens_first: bool = False
    """apply_rotary_pos_emb turns queries and keys before their heads are transposed."""
    picks_heads: bool = False
    """_split_heads takes keys and values by a list of one index, which autograd keeps."""
    factors: frozenset[str] = frozenset()
    """What is multiplied by a number of the configuration, 1 too: the embedding, each branch before it is added to the residual, logits."""
    linears_of_its_own: frozenset[str] = frozenset()
    """Weights of linear maps whose modules are no torch.nn.Linear: no library puts adapters beside them, or stores them in few bits."""


_GRANITE = frozenset({"embedded", "residual", "logits"})
_OLMO2 = ModuleCode(norm_weight_in_fp32=True, rotary_in_fp32=True)
_CENTRED = ModuleCode(centred_norm=True, rotary_widened=True, factors=frozenset({"logits"}))
_GEMMA4 = ModuleCode(norm_weight_in_fp32=True, norm_weight_cast=True, norm_by_power=True, router_is_linear=True)
_ROUTER = ModuleCode(router_in_fp32=True)
_WIDE_ROUTER = ModuleCode(router_in_fp32=True, router_weight_in_fp32=True)


MODULE_CODE = {
    "afmoe": ModuleCode(norm_weight_in_fp32=True, router_is_linear=True),
    "aria_text": ModuleCode(top_k_first=True),
    "axk1": _ROUTER,
    "axk2": _ROUTER,
    "bailing_hybrid": ModuleCode(router_in_fp32=True, gated_norm_in_fp32=True, decay_bounded=True),
    "beam": ModuleCode(queries_scaled="unturned_by_table", router_in_fp32=True, norm_weight_in_fp32=True, rotary_in_fp32=True, glu_in_fp32=True),
    "biogpt": ModuleCode(softmax_in_compute_type=True),
    "bloom": ModuleCode(qkv_indexed=True),
    "codegen": ModuleCode(scores_in_fp32=True, rotary_in_fp32=True, rotary_repeated_by_call=True, rotary_tokens_first=True),
    "cohere": _CENTRED,
    "cohere2": _CENTRED,
    "cohere2_moe": ModuleCode(centred_norm=True, chosen_first=True, router_casts_weights=True, rotary_widened=True, factors=frozenset({"logits"})),
    "cohere_compass_text": ModuleCode(centred_norm=True, rotary_by_row=True, rotary_widened=True, factors=frozenset({"logits"})),
    "dbrx": ModuleCode(router_is_linear=True, router_in_compute_type=True, experts_in_rows=True),
    "cosmos3_edge_text": ModuleCode(rotary_by_row=True),
    "deepseek_v2": ModuleCode(router_in_fp32=True, rotary_complex=True),
    "deepseek_v3": _ROUTER,
    "deepseek_ocr2_text": _ROUTER,
    "deepseek_v32": _ROUTER,
    "deepseek_v4": ModuleCode(
        norm_weight_in_fp32=True,
        norm_scale_cast=True,
        router_in_compute_type=True,
        softmax_in_compute_type=True,
        rotary_repeated_by_call=True,
    ),
    "dots1": _ROUTER,
    "ernie4_5": ModuleCode(rotary_in_fp32=True, rotary_repeated=True),
    "ernie4_5_moe": ModuleCode(
        router_in_fp32=True,
        router_weight_in_fp32=True,
        router_casts_weights=True,
        router_gathers=True,
        router_clamps=True,
        rotary_in_fp32=True,
        rotary_repeated=True,
        shared_experts_first=True,
    ),
    "exaone_moe": _ROUTER,
    "falcon": ModuleCode(softmax_in_compute_type=True, picks_heads=True, qkv_indexed=True),
    "flex_olmo": ModuleCode(norm_weight_in_fp32=True, rotary_in_fp32=True, router_casts_weights=True),
    "flint": ModuleCode(router_in_fp32=True, norm_weight_in_fp32=True, scores_in_fp32=True),
    "gemma3n_text": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm": ModuleCode(rotary_concatenates=True, rotary_repeated=True),
    "glm4": ModuleCode(rotary_concatenates=True, rotary_repeated=True),
    "glm4_moe": ModuleCode(router_in_fp32=True, rotary_concatenates=True),
    "glm4_moe_lite": _ROUTER,
    "glm_moe_dsa": _ROUTER,
    "gpt-sw3": ModuleCode(softmax_in_compute_type=True),
    "gpt2": ModuleCode(softmax_in_compute_type=True),
    "gpt_neo": ModuleCode(scores_in_fp32=True),
    "gptj": ModuleCode(scores_in_fp32=True, rotary_repeated_by_call=True, rotary_tokens_first=True),
    "gpt_neox": ModuleCode(rotary_concatenates=True, qkv_heads_first=True),
    "gpt_oss": ModuleCode(norm_weight_in_fp32=True, top_k_first=True, rotary_concatenates=True, rotary_half=True, softmax_in_compute_type=True),
    "helium": ModuleCode(norm_weight_in_fp32=True, norm_weight_cast=True, rotary_repeated=True),
    "hunyuan_v1_moe": ModuleCode(router_in_fp32=True, router_weight_in_fp32=True, router_is_linear=True, shared_experts_first=True),
    "hy_v3": _ROUTER,
    "hy_v4": ModuleCode(router_in_fp32=True, softmax_in_compute_type=True),
    "hy_v4_vl_text": ModuleCode(
        router_in_fp32=True,
        router_weight_in_fp32=True,
        softmax_in_compute_type=True,
        sinks_in_fp32=True,
        rotary_by_row=True,
        rotary_repeated=True,
    ),
    "roformer": ModuleCode(softmax_in_compute_type=True, rotary_repeated=True),
    "ibert": ModuleCode(
        norm_by_steps=True,
        softmax_in_compute_type=True,
        linears_of_its_own=frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"}),
    ),
    "jamba": ModuleCode(router_casts_weights=True),
    "kolibri1": ModuleCode(router_in_fp32=True, chosen_first=True),
    "kimi_linear": ModuleCode(router_in_fp32=True, gated_norm_in_fp32=True),
    "laguna": ModuleCode(router_casts_weights=True, shared_experts_first=True),
    "lara_mini": ModuleCode(norm_weight_in_fp32=True, norm_weight_cast=True, gated_norm_in_fp32=True, router_in_fp32=True, router_casts_weights=True),
    "lfm3": ModuleCode(rotary_in_fp32=True),
    "lfm2_moe": ModuleCode(router_in_compute_type=True),
    "llama4_text": ModuleCode(
        queries_scaled="unturned", router_casts_weights=True, rotary_complex=True, softmax_in_compute_type=True, router_is_linear=True
    ),
    "mimo_v2_flash": ModuleCode(router_in_fp32=True, softmax_in_compute_type=True, scores_shifted=True, rotary_concatenates=True),
    "mpt": ModuleCode(scores_filled=True),
    "ministral3": ModuleCode(queries_scaled="every"),
    "mistral4": ModuleCode(router_in_compute_type=True, router_gathers=True, queries_scaled="every"),
    "minimax_m2": ModuleCode(rotary_concatenates=True),
    "falcon_h1": ModuleCode(factors=frozenset({"embedded", "logits"})),
    "granite": ModuleCode(factors=_GRANITE),
    "granite_docling_text": ModuleCode(factors=_GRANITE),
    "granite_swa": ModuleCode(sinks_scale_result=True, factors=_GRANITE),
    "granitemoe": ModuleCode(router_casts_weights=True, top_k_first=True, factors=_GRANITE),
    "granitemoe_swa": ModuleCode(router_casts_weights=True, top_k_first=True, shared_gate_up_joined=True, sinks_scale_result=True, factors=_GRANITE),
    "granitemoehybrid": ModuleCode(router_casts_weights=True, top_k_first=True, shared_gate_up_joined=True, factors=_GRANITE),
    "granitemoeshared": ModuleCode(router_casts_weights=True, top_k_first=True, shared_gate_up_joined=True, factors=_GRANITE),
    "minicpm3": ModuleCode(factors=frozenset({"residual"})),
    "mistral_large4_text": ModuleCode(router_in_fp32=True, router_gathers=True),
    "minimax_m3_vl_text": ModuleCode(rotary_concatenates=True, shared_experts_first=True, shared_gate_up_joined=True),
    "muse_glimmer_text": ModuleCode(plain_norm_by_power=True),
    "nemotron_h": ModuleCode(norm_weight_in_fp32=True, norm_weight_cast=True, router_in_fp32=True),
    "modernbert": ModuleCode(rotary_widened=True),
    "modernbert-decoder": ModuleCode(rotary_widened=True, rotary_by_row=True),
    "olmo": ModuleCode(norm_in_fp32=True, rotary_in_fp32=True),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "olmo_hybrid": _OLMO2,
    "persimmon": ModuleCode(rotary_concatenates=True, qkv_indexed=True),
    "mellum": ModuleCode(router_casts_weights=True),
    "sarvam_mla": _WIDE_ROUTER,
    "sarvam_moe": ModuleCode(router_in_fp32=True, router_weight_in_fp32=True, rotary_concatenates=True),
    "solar_open": _ROUTER,
    "olmoe": ModuleCode(router_casts_weights=True),
    "phi3": ModuleCode(rotary_concatenates=True, qkv_indexed=True),
    "phimoe": ModuleCode(sparsemixer=True, router_is_linear=True),
    "qwen2_moe": ModuleCode(router_casts_weights=True, shared_experts_first=True),
    "qwen3_moe": ModuleCode(router_casts_weights=True),
    "qwen3_vl_text": ModuleCode(rotary_by_row=True),
    "qwen3_vl_moe_text": ModuleCode(router_casts_weights=True, rotary_by_row=True),
    **dict.fromkeys(
        "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text paddleocr_vl_text glm4v_text glm_ocr_text".split(), ModuleCode(rotary_by_row=True)
    ),
    "qwen3_omni_moe_text": ModuleCode(router_casts_weights=True, rotary_by_row=True),
    "glm4v_moe_text": ModuleCode(router_in_fp32=True, rotary_by_row=True),
    "step3p5": ModuleCode(glu_clamps=True),
    "qwen3_5_moe_text": ModuleCode(router_casts_weights=True, rotary_by_row=True, shared_experts_first=True),
    "qwen3_5_text": ModuleCode(rotary_by_row=True),
    "qwen3_next": ModuleCode(router_casts_weights=True, shared_experts_first=True),
    "stablelm": ModuleCode(rotary_concatenates=True),
    "xglm": ModuleCode(softmax_in_compute_type=True, scores_bounded=True),
}
# attention of encoders, and of older decoders
MODULE_CODE |= dict.fromkeys(
    "albert bert bert-generation big_bird camembert ctrl data2vec-text distilbert electra ernie esm esmc gpt_neox_japanese gte jina_embeddings_v3 "
    "kosmos_2_text_model megatron-bert nomic_bert openai-gpt rembert roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl".split(),
    ModuleCode(softmax_in_compute_type=True),
)
_LLAMA = ModuleCode()


def module_code(model: Architecture) -> ModuleCode:
    """What the modules of a model's family do, Llama's where nothing is said."""
    return MODULE_CODE.get(model.modelling, _LLAMA)


def of_its_own(op: Op, model: Architecture) -> bool:
    """Whether a linear map is a module that libraries of adapters and of few bits pass over."""
    return not module_code(model).linears_of_its_own.isdisjoint(op.of(Projection).labels)


def in_order(ops: Sequence[Op], model: Architecture) -> list[Op]:
    """A block's declared operations in the order in which the modules of a model's family call them."""
    first = [op for op in ops if module_code(model).shared_experts_first and "shared_experts" in op.parts]
    if not first:
        return list(ops)
    others = [op for op in ops if op not in first]
    mixture = next(i for i, op in enumerate(others) if "gate" in op.parts)
    return [*others[:mixture], *first, *others[mixture:]]
