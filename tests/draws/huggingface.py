"""Random Hugging Face configs of every accepted model_type, counted by transformers on the meta device and by symsim.

    python tests/draws/huggingface.py --count 10000 --seed 1

Parameters are compared as integers, in total and by module, and for one config in `--flops-every` the forward FLOPs that
torch's FlopCounterMode counts (causal=full). A config that transformers itself refuses is drawn again; one that symsim
refuses counts as refused, with the sentence. Exit code 1 when a count differs. Needs transformers and torch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from symsim.api.result import Result
from symsim.cost.count import count
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.hf import SUPPORTED, read_config
from symsim.inputs.hf.config import ACTIVATIONS
from symsim.inputs.hf.families_encoder import ENCODERS
from symsim.inputs.hf.wrappers import WRAPPERS
from symsim.inputs.strategy import Strategy
from symsim.ir.block import MODULES
from symsim.lowering.checks import check
from symsim.lowering.lower import lower

Json = dict[str, Any]
Counts = dict[str, int]

# not those wrappers that transformers builds with more than a text_config and one layer of the other towers, or with timm
NOT_SMALL = {"perception_lm", "fast_vlm", "fun_asr_nano", "blip-2", "instructblip", "instructblipvideo", "gemma3n", "apertus1p5"}
WRAPPED = tuple(name for name in WRAPPERS if name not in NOT_SMALL)
TYPES = (*SUPPORTED, *WRAPPED)
SAME_CLASS = {"kimi_k2": "deepseek_v3"}  # not a model_type of transformers: the same module code

# text towers that are no model of their own: drawn alone, and built inside of a wrapper
INSIDE = {"qwen2_vl_text": "qwen2_vl", "qwen2_5_vl_text": "qwen2_5_vl", "qwen3_vl_text": "qwen3_vl", "qwen3_vl_moe_text": "qwen3_vl_moe",
          "glm4v_text": "glm4v", "glm4v_moe_text": "glm4v_moe", "mistral4": "mistral3", "glm_ocr_text": "glm_ocr",
          "hunyuan_vl_text": "hunyuan_vl", "paddleocr_vl_text": "paddleocr_vl", "cosmos3_edge_text": "cosmos3_edge",
          "qwen2_5_omni_text": "qwen2_5_omni_thinker", "qwen3_omni_moe_text": "qwen3_omni_moe_thinker",
          "deepseek_ocr2_text": "deepseek_ocr2", "granite_docling_text": "granite_docling",
          "granite4_vision_text": "granite4_vision", "step3p5": "step3p7",
    "mistral_large4_text": "mistral_large4", "hy_v4_vl_text": "hy_v4_vl",
    "molmo2_text": "molmo2", "muse_glimmer_text": "muse_glimmer", "kosmos_2_text_model": "kosmos-2", "emu3_text_model": "emu3"}  # fmt: skip

# ---------------------------------------------------------------- drawing


@dataclass
class Draw:
    """One config being drawn: sizes that other keys must agree with."""

    rng: random.Random

    def __post_init__(self) -> None:
        rng = self.rng
        self.layers = rng.randint(1, 6)
        self.heads = rng.choice([1, 2, 3, 4, 6, 8])
        self.groups = rng.choice([g for g in range(1, self.heads + 1) if self.heads % g == 0])
        self.head_dim = rng.choice([8, 12, 16, 32])
        self.hidden = self.heads * self.head_dim if rng.random() < 0.7 else self.heads * rng.choice([10, 14, 20, 24])
        self.experts = rng.choice([2, 3, 4, 6, 8])
        self.n_group = rng.choice([g for g in range(1, self.experts + 1) if self.experts % g == 0 and self.experts // g >= 2])
        self.key_heads = rng.choice([1, 2, 3])
        self.vocabulary = rng.randint(3, 900)

    def flag(self) -> bool:
        return self.rng.random() < 0.5

    def width(self) -> int:
        return self.rng.randint(3, 160)

    def maybe(self, value: Any, chance: float = 0.4) -> Any:
        return value if self.rng.random() < chance else None

    def some_layers(self) -> list[int]:
        return [i for i in range(self.layers) if self.flag()]


Drawn = Callable[[Draw], Any]
FLAG: Drawn = Draw.flag
WIDTH: Drawn = Draw.width


def within(low: int, high: int) -> Drawn:
    return lambda d: d.rng.randint(low, high)


def layer_types(*names: str) -> Drawn:
    return lambda d: d.maybe([d.rng.choice(names) for _ in range(d.layers)])


DROPOUT: Drawn = lambda d: d.rng.choice([0.0, 0.1])  # noqa: E731

# what is always written (as the family spells it), because the defaults are too large to build
SIZES: dict[str, Drawn] = {
    "hidden_size": lambda d: d.hidden,
    "num_hidden_layers": lambda d: d.layers,
    "num_attention_heads": lambda d: d.heads,
    "vocab_size": lambda d: d.vocabulary,
    "intermediate_size": WIDTH,
    "ffn_dim": WIDTH,
    "hidden_dim": WIDTH,
    "dff": WIDTH,
    "pad_token_id": lambda d: 0,
    "num_experts_per_tok": lambda d: d.rng.randint(1, min(d.experts, 4)),
    "num_local_experts": lambda d: d.experts,
    "num_experts": lambda d: d.experts,
    "n_routed_experts": lambda d: d.experts,
    "moe_num_experts": lambda d: d.experts,
    "moe_topk": lambda d: d.rng.randint(1, min(d.experts, 4)),
    "prefix_dense_intermediate_size": WIDTH,
    "n_group": lambda d: d.n_group,
    "topk_group": lambda d: d.rng.randint(1, d.n_group),
    "linear_num_key_heads": lambda d: d.key_heads,
    "linear_num_value_heads": lambda d: d.key_heads * d.rng.randint(1, 3),
    "mamba_n_heads": lambda d: d.heads,
    "mamba_num_heads": lambda d: d.heads,
    "mamba_n_groups": lambda d: d.groups,
    "n_groups": lambda d: d.groups,
    "mamba_d_state": within(2, 20),
    "ssm_state_size": within(2, 20),
    "mamba_head_dim": within(2, 20),
    "mamba_chunk_size": within(2, 20),
    "chunk_size": within(2, 20),
    "moe_shared_expert_intermediate_size": WIDTH,
    "shared_intermediate_size": WIDTH,
}
# what is written in about half of the configs; otherwise transformers' default counts
KEYS: dict[str, Drawn] = {
    "num_key_value_heads": lambda d: d.maybe(d.groups, 0.8),
    "head_dim": lambda d: d.maybe(d.head_dim, 0.7),
    "hidden_act": lambda d: d.rng.choice(sorted(ACTIVATIONS)),
    "hidden_activation": lambda d: d.rng.choice(sorted(ACTIVATIONS)),
    "attention_bias": FLAG,
    "mlp_bias": FLAG,
    "tie_word_embeddings": FLAG,
    "attention_dropout": DROPOUT,
    "hidden_dropout": DROPOUT,
    "residual_dropout": DROPOUT,
    "resid_pdrop": DROPOUT,
    "embd_pdrop": DROPOUT,
    "dropout": DROPOUT,
    "resid_dropout": DROPOUT,
    "embed_dropout": DROPOUT,
    "hidden_dropout_prob": DROPOUT,
    "type_vocab_size": within(1, 3),
    "is_decoder": FLAG,
    "afn": lambda d: d.rng.choice(["relu", "gelu", "swish"]),
    "attention_probs_dropout_prob": DROPOUT,
    "scale_embedding": FLAG,
    "n_positions": within(40, 300),
    "window_size": within(1, 40),
    "sliding_window": lambda d: d.maybe(d.rng.randint(1, 40), 0.8),
    "use_sliding_window": FLAG,
    "max_window_layers": lambda d: d.rng.randint(0, d.layers + 1),
    "decoder_sparse_step": within(1, 3),
    "mlp_only_layers": lambda d: d.maybe(d.some_layers(), 0.6),
    "moe_intermediate_size": WIDTH,
    "shared_expert_intermediate_size": WIDTH,
    "norm_topk_prob": FLAG,
    "qkv_bias": FLAG,
    "n_shared_experts": within(1, 3),
    "first_k_dense_replace": lambda d: d.rng.randint(0, d.layers + 1),
    "topk_method": lambda d: d.rng.choice(["greedy", "group_limited_greedy"]),
    "q_lora_rank": lambda d: d.maybe(d.width(), 0.6),
    "kv_lora_rank": WIDTH,
    "qk_rope_head_dim": lambda d: 2 * d.rng.randint(1, 8),
    "qk_nope_head_dim": within(1, 20),
    "v_head_dim": within(1, 20),
    "linear_conv_kernel_dim": within(1, 6),
    "linear_key_head_dim": within(4, 20),
    "linear_value_head_dim": within(4, 20),
    "n_inner": lambda d: d.maybe(d.width(), 0.6),
    "activation_function": lambda d: d.rng.choice(sorted(ACTIVATIONS)),
    "activation": lambda d: d.rng.choice(sorted(ACTIVATIONS)),
    "max_position_embeddings": within(40, 300),
    "attn_logit_softcapping": lambda d: d.maybe(30.0),
    "final_logit_softcapping": lambda d: d.maybe(30.0),
    "clip_qkv": lambda d: d.maybe(8.0),
    "lm_head_bias": FLAG,
    "qk_layernorm": FLAG,
    "use_qk_norm": FLAG,
    "use_bias": FLAG,
    "use_qkv_bias": FLAG,
    "use_parallel_residual": FLAG,
    "num_kv_heads": lambda d: d.maybe(d.groups, 0.7),
    "multi_query": FLAG,
    "parallel_attn": FLAG,
    "new_decoder_architecture": FLAG,
    "num_ln_in_parallel_attn": lambda d: d.rng.choice([None, 1, 2]),
    "ffn_hidden_size": lambda d: d.maybe(d.width(), 0.7),
    "bias": FLAG,
    "alibi": FLAG,
    "do_layer_norm_before": lambda d: d.rng.random() < 0.9,
    "_remove_final_layer_norm": FLAG,
    "word_embed_proj_dim": lambda d: d.maybe(d.hidden if d.rng.random() < 0.8 else d.width()),
    "layerdrop": lambda d: d.rng.choice([0.0] * 9 + [0.1]),
    "enable_bias": FLAG,
    "layer_norm_elementwise_affine": FLAG,
    "apply_residual_connection_post_layernorm": FLAG,
    "attention_out_bias": FLAG,
    "intermediate_size_mlp": WIDTH,
    "moe_layers": lambda d: d.maybe(d.some_layers()),
    "interleave_moe_layer_step": within(1, 3),
    "no_rope_layers": lambda d: d.maybe([d.rng.randint(0, 1) for _ in range(d.layers)]),
    "no_rope_layer_interval": within(1, 4),
    "attention_chunk_size": within(1, 40),
    "moe_num_shared_experts": within(1, 3),
    "moe_layer_start_index": lambda d: d.rng.randint(0, d.layers),
    "moe_layer_end_index": lambda d: d.rng.randint(-1, d.layers - 1),
    "moe_layer_interval": within(1, 3),
    "mamba_expand": within(1, 3),
    "mamba_d_conv": within(2, 6),
    "conv_kernel": within(2, 6),
    "mamba_conv_bias": FLAG,
    "mamba_proj_bias": FLAG,
    "use_conv_bias": FLAG,
    "attn_layer_indices": lambda d: d.maybe(d.some_layers(), 0.8),
    "position_embedding_type": lambda d: d.maybe("rope"),
    "moe_latent_size": lambda d: d.maybe(d.width()),
    "mlp_hidden_act": lambda d: d.rng.choice(sorted(ACTIVATIONS)),
    "expansion_ratio": within(1, 5),
    "learned_pos_emb": FLAG,
    "no_bias": FLAG,
    "num_nextn_predict_layers": within(0, 2),
    "num_dense_layers": lambda d: d.rng.randint(0, d.layers + 1),
    "global_attn_every_n_layers": within(1, 4),
    "sliding_window_pattern": within(1, 4),
    "prefix_dense_sliding_window_pattern": within(1, 4),
    "mup_enabled": FLAG,
    "use_post_norm": FLAG,
    "num_shared_experts": within(1, 3),
    "expert_selection_fn": lambda d: d.rng.choice(["softmax", "sigmoid"]),
    "shared_expert_combination_strategy": lambda d: d.rng.choice(["sum", "average"]),
    "shared_intermediate_size": within(0, 60),
    "layer_rope_theta": lambda d: d.maybe([d.rng.choice([0.0, 1e4]) for _ in range(d.layers)]),
    "mlp_layer_types": layer_types("dense", "sparse"),
    "rope_parameters": lambda d: d.maybe({"rope_type": "default", "rope_theta": 1e4}),
    "conv_bias": FLAG,
    "conv_L_cache": within(1, 5),
    "block_multiple_of": within(1, 40),
    "block_ffn_dim_multiplier": lambda d: d.rng.choice([0.5, 1.0, 1.3]),
    "block_auto_adjust_ff_dim": FLAG,
    "full_attn_idxs": lambda d: d.maybe(d.some_layers()),
    "use_expert_bias": FLAG,
    "use_sandwich_norm": FLAG,
    "use_attention_gate": FLAG,
    "block_size": within(2, 20),
    "gated_norm_rank": within(1, 20),
    "linear_num_heads": within(1, 4),
    "linear_head_dim": within(4, 16),
    "index_topk": within(1, 20),
    "index_n_heads": within(1, 5),
    "index_head_dim": lambda d: 2 * d.rng.randint(9, 16),
    "indexer_types": lambda d: d.maybe(["full", *(d.rng.choice(["full", "shared"]) for _ in range(d.layers - 1))]),
    "bos_token_id": lambda d: d.maybe(1),
    "gelu_activation": FLAG,
    "causal": FLAG,
    "n_langs": within(1, 3),
    "use_lang_emb": FLAG,
    "pre_norm": FLAG,
    "rescale_embeddings": FLAG,
    "input_embedding_size": WIDTH,
    "output_embedding_size": WIDTH,
}
ROPE = {"rope_type": "default", "rope_theta": 1e4}
HEAD: Drawn = lambda d: d.head_dim  # noqa: E731


def by_type(d: Draw) -> Json | None:
    """RoPE by type of layer, which may turn a part of a head."""
    part = d.rng.choice([0.25, 0.334, 1.0])
    made = {name: {"rope_type": "default", "rope_theta": 1e4} for name in ("full_attention", "sliding_attention")}
    return d.maybe(made | {"full_attention": made["full_attention"] | {"partial_rotary_factor": part}})


WINDOWED = ("muse_glimmer_text",
    "dots1", "cohere_compass_text", "cohere2", "cohere2_moe",
            "cwm", "exaone4", "exaone_moe", "ministral", "olmo3", "vaultgemma", "granite_swa", "granitemoe_swa",
            "afmoe", "kolibri1", "flint", "mimo_v2_flash", "laguna", "step3p5", "beam", "mellum",
            "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text")  # fmt: skip
HY_V4: dict[str, Drawn] = {"hc_mult": within(1, 4), "hidden_act": lambda d: "silu" if d.rng.random() < 0.9 else "relu"}
# keys that differ from family to family, or that transformers takes although its config class does not declare them
FAMILY: dict[str, dict[str, Drawn]] = {
    "qwen2": {"layer_types": layer_types("full_attention", "sliding_attention")},
    "qwen2_moe": {"layer_types": layer_types("full_attention", "sliding_attention")},
    "qwen3": {"layer_types": layer_types("full_attention", "sliding_attention")},
    **{
        kind: {"layer_types": layer_types("full_attention", "linear_attention"), "full_attention_interval": within(1, 4)}
        for kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
    },
    "lara_mini": {
        "layer_types": layer_types("full_attention", "sliding_attention", "linear_attention"),
        "num_key_value_heads": lambda d: d.groups,
        "linear_num_key_heads": lambda d: d.key_heads,
        "linear_num_value_heads": lambda d: d.key_heads * d.rng.randint(1, 3),
        "head_dim": HEAD,
        "rope_parameters": lambda d: None,
    },
    "apertus1p5_text": {"output_vocab_size": lambda d: d.maybe(d.rng.randint(1, 3)), "tie_word_embeddings": lambda d: False},
    "molmo2_text": {
        "qk_norm_type": lambda d: d.rng.choice(["qwen3", "olmo"]),
        "norm_after": FLAG,
        "additional_vocab_size": within(0, 60),
        "num_key_value_heads": lambda d: d.groups,
        "head_dim": HEAD,
    },
    "diffllama": {
        "num_key_value_heads": lambda d: d.rng.choice([k for k in range(2, d.heads + 1, 2) if d.heads % k == 0] or [1]),
        "attention_dropout": lambda d: 0.0,
    },
    "sarvam_moe": {"num_key_value_heads": lambda d: d.groups},
    "sarvam_mla": {"head_dim": lambda d: None},
    "olmo_hybrid": {"layer_types": layer_types("full_attention", "linear_attention"), "hidden_act": lambda d: "silu"},
    "minimax": {"layer_types": layer_types("full_attention", "linear_attention")},
    "kimi_linear": {"layer_types": layer_types("full_attention", "linear_attention"), "first_k_dense_replace": within(0, 3)},
    "lfm2": {"layer_types": layer_types("full_attention", "conv")},
    "lfm3": {
        "layer_types": layer_types("full_attention", "sliding_attention", "conv"),
        "head_dim": lambda d: d.head_dim,
        "rope_parameters": lambda d: None,
    },
    "mimo_v2_flash": {
        "num_key_value_heads": lambda d: d.rng.choice([k for k in range(1, d.heads + 1) if d.heads % (2 * k) == 0] or [1]),
        "head_dim": HEAD,
        "rope_parameters": by_type,
    },
    "laguna": {
        "num_attention_heads_per_layer": lambda d: [d.groups * d.rng.randint(1, 3) for _ in range(d.layers)],
        "head_dim": HEAD,
        "gating": lambda d: d.rng.choice([True, "per-head", "per-element"]),
        "rope_parameters": by_type,
    },
    "step3p5": {
        "num_sliding_attention_heads": lambda d: d.groups * d.rng.randint(1, 3),
        "head_dim": HEAD,
        "share_expert_dim": WIDTH,
        "num_nextn_predict_layers": lambda d: 0,
        "rope_parameters": lambda d: None,
    },
    "beam": {"rope_parameters": lambda d: None, "head_dim": HEAD},
    "minimax_m3_vl_text": {
        "layer_types": layer_types("minimax_m3_sparse", "full_attention"),
        "index_n_heads": lambda d: d.rng.choice([n for n in range(1, d.heads + 1) if d.heads % n == 0]),
        "index_head_dim": lambda d: d.head_dim,
        "index_block_size": within(2, 9),
        "index_topk_blocks": within(1, 4),
        "dense_intermediate_size": WIDTH,
        "head_dim": HEAD,
        "num_key_value_heads": lambda d: d.groups,
        "shared_intermediate_size": WIDTH,
    },
    "hy_v4": HY_V4,
    "hy_v4_vl_text": HY_V4 | {"qk_rope_head_dim": lambda d: 64, "rope_parameters": lambda d: None},  # sections of positions of 64
    "deepseek_v4": {
        "layer_types": layer_types("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"),
        "compress_rates": lambda d: d.maybe(
            {"compressed_sparse_attention": d.rng.randint(1, 5), "heavily_compressed_attention": d.rng.randint(2, 9)}, 0.8
        ),
        "o_groups": lambda d: d.rng.choice([g for g in range(1, d.heads + 1) if d.heads % g == 0]),
        "o_lora_rank": within(1, 20),
        "hc_mult": within(1, 4),
        "hc_sinkhorn_iters": within(1, 4),
        "head_dim": HEAD,
        "sliding_window": within(1, 12),
        "scoring_func": lambda d: d.rng.choice(["sqrtsoftplus", "sigmoid", "softmax"]),
        "num_key_value_heads": lambda d: 1,
        "mlp_layer_types": layer_types("hash_moe", "moe"),
        "partial_rotary_factor": lambda d: d.maybe(0.5),
        "index_head_dim": lambda d: 2 * d.rng.randint(9, 16),
        "q_lora_rank": WIDTH,
        "rope_parameters": lambda d: None,
    },
    "modernbert-decoder": {
        "layer_types": layer_types("full_attention", "sliding_attention"),
        "local_attention": within(2, 40),
        "norm_bias": FLAG,
        "decoder_bias": FLAG,
        "classifier_bias": FLAG,
        "attention_dropout": lambda d: 0.0,
        "rope_parameters": lambda d: None,
    },
    "lfm2_moe": {"layer_types": lambda d: [d.rng.choice(["full_attention", "conv"]) for _ in range(d.layers)]},
    "gpt_oss": {"layer_types": layer_types("full_attention", "sliding_attention")},
    "gemma2": {"layer_types": layer_types("full_attention", "sliding_attention")},
    "gemma3_text": {"layer_types": layer_types("full_attention", "sliding_attention"), "sliding_window_pattern": within(1, 4)},
    "llama4_text": {"layer_types": layer_types("full_attention", "chunked_attention")},
    **{name: {"layer_types": layer_types("full_attention", "sliding_attention")} for name in WINDOWED},
    **{name: {"rotary_dim": lambda d: d.maybe(2 * d.rng.randint(1, max(1, d.hidden // d.heads // 2)))} for name in ("gptj", "codegen")},
    **{name: {"tie_word_embeddings": lambda d: d.rng.random() < 0.9} for name in ENCODERS},
    "electra": {"embedding_size": lambda d: d.rng.choice([d.hidden, d.width()]), "tie_word_embeddings": lambda d: d.rng.random() < 0.5},
    **{name: {"tie_word_embeddings": lambda d: d.rng.random() < 0.5} for name in ("distilbert", "gte")},
    "roformer": {"embedding_size": lambda d: d.rng.choice([None, d.hidden, d.width()]), "tie_word_embeddings": lambda d: True},
    "rembert": {"tie_word_embeddings": lambda d: False},
    "emu3_text_model": {"bos_token_id": lambda d: 1},
    "big_bird": {"attention_type": lambda d: "original_full"},
    "ibert": {"hidden_act": lambda d: "gelu"},
    "modernbert": {
        "layer_types": layer_types("full_attention", "sliding_attention"),
        "local_attention": within(2, 40),
        "norm_bias": FLAG,
        "decoder_bias": FLAG,
        "classifier_bias": FLAG,
        "attention_dropout": lambda d: 0.0,
        "rope_parameters": lambda d: None,
    },
    "albert": {
        "embedding_size": WIDTH,
        "num_hidden_groups": lambda d: d.rng.randint(1, d.layers),
        "inner_group_num": within(1, 2),
        "hidden_dropout_prob": lambda d: 0.0,
    },
    "esm": {"emb_layer_norm_before": FLAG, "position_embedding_type": lambda d: d.rng.choice(["absolute", "rotary"])},
    "gte": {"type_vocab_size": within(0, 3)},
    "gpt_neox_japanese": {"intermediate_multiple_size": within(1, 5)},
    "cohere_compass_text": {
        "rope_parameters": lambda d: d.maybe({"full_attention": d.maybe(ROPE), "sliding_attention": ROPE}),
    },
    "gpt_neo": {"attention_types": lambda d: [[[d.rng.choice(["global", "local"]) for _ in range(d.layers)], 1]]},
    "helium": {"head_dim": lambda d: d.hidden // d.heads},
    "apertus": {"hidden_act": lambda d: d.rng.choice(["xielu", *sorted(ACTIVATIONS)])},
    "smollm3": {"layer_types": layer_types("full_attention", "sliding_attention")},
    "granitemoehybrid": {
        "layer_types": layer_types("mamba", "attention", "linear_attention", "full_attention"),
        "num_local_experts": lambda d: d.rng.choice([0, d.experts]),
    },
    "bailing_hybrid": {
        "layer_types": layer_types("full_attention", "linear_attention"),
        "layer_group_size": within(1, 4),
        "mlp_layer_types": layer_types("dense", "sparse"),
        "short_conv_kernel_size": within(2, 6),
    },
    "falcon_h1": {
        "hidden_act": lambda d: "silu",
        "mamba_norm_before_gate": lambda d: False,
        "mamba_rms_norm": FLAG,
        "projectors_bias": FLAG,
        "mamba_d_ssm": lambda d: d.maybe(d.heads * d.rng.randint(1, 20), 0.8),
        "num_key_value_heads": lambda d: d.groups,
    },
    "mamba2": {
        "hidden_act": lambda d: "silu",
        "num_heads": lambda d: d.heads,
        "head_dim": lambda d: 2 * d.hidden // d.heads,
        "state_size": within(2, 20),
    },
    **{
        kind: {"hidden_act": lambda d: "silu", "state_size": within(2, 20), "time_step_rank": lambda d: d.rng.choice(["auto", d.rng.randint(1, 9)])}
        for kind in ("mamba", "falcon_mamba")
    },
    "jamba": {
        "hidden_act": lambda d: "silu",
        "attn_layer_period": within(2, 4),
        "attn_layer_offset": within(0, 1),
        "expert_layer_offset": within(0, 1),
        "mamba_dt_rank": within(1, 9),
        "num_key_value_heads": lambda d: d.groups,
    },
    "gemma3n_text": {
        "intermediate_size": lambda d: d.width() if d.flag() else [d.rng.choice([24, 40]) for _ in range(d.layers)],
        "layer_types": layer_types("full_attention", "sliding_attention"),
        "activation_sparsity_pattern": lambda d: d.maybe([d.rng.choice([0.0, 0.9]) for _ in range(d.layers)]),
        "num_key_value_heads": lambda d: d.groups,
        "head_dim": lambda d: d.head_dim,
        "num_kv_shared_layers": within(0, 2),
        "hidden_size_per_layer_input": within(1, 20),
        "vocab_size_per_layer_input": within(3, 900),
        "altup_num_inputs": within(2, 5),
        "altup_correct_scale": FLAG,
        "laurel_rank": within(1, 9),
    },
    "gemma4_unified_text": {
        "global_head_dim": lambda d: d.rng.choice([8, 12, 16, 32]),
        "num_key_value_heads": lambda d: d.groups,
        "num_global_key_value_heads": lambda d: d.maybe(d.rng.choice([g for g in range(1, d.heads + 1) if d.heads % g == 0])),
        "attention_k_eq_v": FLAG,
        "use_double_wide_mlp": FLAG,
    },
    "gemma4_text": {
        "layer_types": lambda d: d.maybe([*(d.rng.choice(["full_attention", "sliding_attention"]) for _ in range(d.layers - 1)), "full_attention"]),
        "global_head_dim": lambda d: d.rng.choice([8, 12, 16, 32]),
        "num_key_value_heads": lambda d: d.groups,
        "num_global_key_value_heads": lambda d: d.maybe(d.rng.choice([g for g in range(1, d.heads + 1) if d.heads % g == 0])),
        "attention_k_eq_v": FLAG,
        "num_kv_shared_layers": within(0, 2),
        "use_double_wide_mlp": FLAG,
        "enable_moe_block": FLAG,
        "num_experts": lambda d: d.experts,
        "top_k_experts": lambda d: d.rng.randint(1, d.experts),
        "moe_intermediate_size": WIDTH,
        "hidden_size_per_layer_input": lambda d: d.rng.choice([0, d.rng.randint(1, 20)]),
        "vocab_size_per_layer_input": within(3, 900),
    },
    "zamba2": {
        "layers_block_type": lambda d: [d.rng.choice(["mamba", "hybrid", "linear_attention"]) for _ in range(d.layers)],
        "num_mem_blocks": within(1, 3),
        "n_mamba_heads": lambda d: d.heads,
        "mamba_ngroups": lambda d: d.groups,
        "mamba_d_state": within(2, 20),
        "adapter_rank": within(1, 9),
        "use_shared_attention_adapter": FLAG,
        "use_mem_rope": FLAG,
        "add_bias_linear": FLAG,
        "num_key_value_heads": lambda d: None,
        "tie_word_embeddings": lambda d: d.rng.random() < 0.95,
    },
    "nemotron_h": {"layers_block_type": lambda d: [d.rng.choice(["mamba", "full_attention", "moe", "mlp"]) for _ in range(d.layers)]},
    "dbrx": {
        "attn_config": lambda d: {"kv_n_heads": d.groups, "clip_qkv": d.maybe(8.0), "rope_theta": 5e5},
        "ffn_config": lambda d: (
            {"ffn_hidden_size": d.width(), "moe_num_experts": d.experts, "moe_top_k": d.rng.randint(1, d.experts)}
            | ({"hidden_size": d.hidden} if d.flag() else {})
        ),
    },
    "mpt": {"attn_config": lambda d: d.maybe({"attn_pdrop": d.rng.choice([0.0, 0.1]), "clip_qkv": d.maybe(6.0)})},
}
PARTIAL_ROTARY = frozenset({"minimax_m3_vl_text",
                            "gpt_neox_japanese", "glm", "nemotron", "persimmon", "solar_open", "glm4v_text", "glm4v_moe_text", "glm4", "glm4_moe",
                            "phi", "phi3",
                            "stablelm", "gpt_neox", "minimax_m2", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})  # fmt: skip
# needed where the config class has no usable default
REQUIRED = {"helium": ("head_dim",), "molmo2_text": ("head_dim", "num_key_value_heads"),
            "mimo_v2_flash": ("num_key_value_heads", "head_dim"), "lfm3": ("head_dim", "rope_parameters"),
            "beam": ("head_dim", "rope_parameters"), "step3p5": ("rope_parameters", "num_nextn_predict_layers"),
            "modernbert": ("attention_dropout", "rope_parameters"),
            "deepseek_v4": ("o_groups", "head_dim", "num_key_value_heads", "index_head_dim", "q_lora_rank", "rope_parameters"),
            "modernbert-decoder": ("attention_dropout", "rope_parameters"),
            "lfm2_moe": ("layer_types",), "gpt_neo": ("attention_types",), "electra": ("embedding_size",),
            "big_bird": ("attention_type",), "emu3_text_model": ("bos_token_id",), "ibert": ("hidden_act",), "hy_v4": ("hidden_act",),
            "hy_v4_vl_text": ("hidden_act", "rope_parameters", "qk_rope_head_dim"),
            "lara_mini": ("layer_types", "num_key_value_heads", "head_dim", "rope_parameters"),
            "minimax_m3_vl_text": ("head_dim", "num_key_value_heads", "index_n_heads", "index_head_dim", "shared_intermediate_size"),
            "albert": ("embedding_size", "num_hidden_groups", "hidden_dropout_prob"), "esm": ("position_embedding_type",),
            "rembert": ("input_embedding_size", "output_embedding_size"),
            "gptj": ("rotary_dim",), "codegen": ("rotary_dim",),
            "dots1": ("n_shared_experts", "moe_intermediate_size"), "dbrx": ("attn_config", "ffn_config"),
            "falcon_h1": ("hidden_act", "mamba_norm_before_gate", "mamba_d_ssm", "num_key_value_heads"),
            "mamba": ("hidden_act",), "falcon_mamba": ("hidden_act",),
            "gemma3n_text": ("num_key_value_heads", "head_dim", "hidden_size_per_layer_input", "vocab_size_per_layer_input"),
            "gemma4_unified_text": ("global_head_dim", "num_key_value_heads"),
            "gemma4_text": ("num_experts", "top_k_experts", "moe_intermediate_size", "global_head_dim",
                            "num_key_value_heads", "hidden_size_per_layer_input", "vocab_size_per_layer_input"),
            "zamba2": ("layers_block_type", "n_mamba_heads", "mamba_ngroups", "num_key_value_heads", "tie_word_embeddings"),
            "jamba": ("hidden_act", "attn_layer_period", "attn_layer_offset", "num_key_value_heads"),
            "mamba2": ("hidden_act", "num_heads", "head_dim", "state_size"), "nemotron_h": ("layers_block_type",)}  # fmt: skip


def draw_text(rng: random.Random, model_type: str, sizes: type[Draw] = Draw) -> Json:
    """A config of one family: its sizes, and about half of the other keys it has."""
    from transformers import CONFIG_MAPPING

    d = sizes(rng)
    cls = CONFIG_MAPPING[SAME_CLASS.get(model_type, model_type)]
    own = [f.name for f in fields(cls)]
    aliases = {theirs: ours for ours, theirs in cls.attribute_map.items()}  # the class's own name -> the common one
    config: Json = {"model_type": model_type}
    for key in own:
        common = aliases.get(key, key) if key not in SIZES else key
        if common in SIZES:
            if key not in ("n_group", "topk_group") or rng.random() < 0.7 or model_type == "deepseek_v3":
                # DBRX sizes its experts before it knows the common name of d_model: such a model does not run
                config[common if common != key and model_type != "dbrx" and rng.random() < 0.2 else key] = SIZES[common](d)
        elif key in KEYS and (rng.random() < 0.5 or key in REQUIRED.get(model_type, ())):
            config[key] = KEYS[key](d)
    default = next((f.default for f in fields(cls) if f.name == "num_key_value_heads"), None)
    if isinstance(default, int) and d.heads % default and rng.random() < 0.95:
        config["num_key_value_heads"] = d.groups
    for key, drawn in FAMILY.get(model_type, {}).items():
        if rng.random() < 0.5 or key in REQUIRED.get(model_type, ()):
            config[key] = drawn(d)
    if model_type in PARTIAL_ROTARY and rng.random() < 0.5:
        part = rng.choice([0.25, 0.5, 0.75, 1.0])
        if config.get("rope_parameters"):
            config["rope_parameters"]["partial_rotary_factor"] = part
        else:
            config["partial_rotary_factor"] = part
    return config


def draw(rng: random.Random, model_type: str, sizes: type[Draw] = Draw) -> Json:
    """A config of a family, or of a wrapper around one."""
    if model_type not in WRAPPERS:
        return draw_text(rng, model_type, sizes)
    known = WRAPPERS[model_type]
    if known.inside:
        return {"model_type": model_type, known.inside: draw(rng, known.tower, sizes)}
    text = draw_text(rng, known.tower, sizes)
    if rng.random() < 0.3:
        del text["model_type"]
    config: Json = {"model_type": model_type, "text_config": text}
    if rng.random() < 0.6:
        config["tie_word_embeddings"] = rng.random() < 0.5
    return config


def saved(config: Json) -> Json:
    """The same as transformers writes it beside a trained model."""
    from transformers import AutoConfig

    values = json.loads(json.dumps(config))
    model_type = values.pop("model_type")
    if model_type == "granite_docling":  # its towers have to agree
        values["vision_config"] = {"out_hidden_size": values["text_config"]["hidden_size"]}
    written = AutoConfig.for_model(SAME_CLASS.get(model_type, model_type), **values).to_json_string()
    return json.loads(written, object_hook=lambda one: 1e9 if one == {"__float__": "Infinity"} else one) | {"model_type": model_type}


# ---------------------------------------------------------------- counted by transformers


@cache
def _quiet() -> None:
    """Torch and transformers say nothing, and neither asks the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()


def build(config: Json) -> Any:
    """transformers' model of a config on the meta device, without what no loss over words reaches; its own exception where it refuses."""
    model = _built(config)
    for module in model.modules():
        for unreached in {"pooler", "contact_head"} & module._modules.keys():
            setattr(module, unreached, None)
    return model


def _built(config: Json) -> Any:
    _quiet()
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
    from transformers.models.auto import modeling_auto

    values = json.loads(json.dumps(config))
    if values["model_type"] in WRAPPERS and WRAPPERS[values["model_type"]].inside:
        values = values[WRAPPERS[values["model_type"]].inside]
    if values["model_type"] in INSIDE:
        tied = next((f.default for f in fields(CONFIG_MAPPING[values["model_type"]]) if f.name == "tie_word_embeddings"), False)
        outer = {"tie_word_embeddings": values.get("tie_word_embeddings", tied)}
        values = {"model_type": INSIDE[values["model_type"]], "text_config": values, **outer}
    model_type = values.pop("model_type")
    wraps = model_type in WRAPPERS or model_type in INSIDE.values()
    if wraps:
        for tower in set(CONFIG_MAPPING[model_type].sub_configs) - {"text_config"}:
            values[tower] = dict.fromkeys(("num_hidden_layers", "depth", "encoder_layers", "num_layers"), 1)
        if model_type == "nemotron_h_omni":
            values["vision_config"]["video_temporal_patch_size"] = 2
            del values["audio_config"]
        if model_type == "musicflamingo":
            values["audio_config"]["model_type"] = "audioflamingo3_encoder"
        if model_type == "molmo2":
            values["adapter_config"] = {"vision_feature_layer": [0]}
        if model_type == "emu3":
            values["vocabulary_map"] = {"<image>": 0, "<|extra_200|>": 1, "<|visual token 000000|>": 2}
        if model_type == "granite_docling":
            values["vision_config"]["out_hidden_size"] = values["text_config"]["hidden_size"]
        if model_type == "granite4_vision":
            values |= {"deepstack_layer_map": [], "spatial_target_layers": [], "downsample_rate": "1/2"}
    made = AutoConfig.for_model(SAME_CLASS.get(model_type, model_type), **values)
    tasks = ("MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    found = next((of[model_type] for task in tasks if model_type in (of := getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES"))), None)
    cls = getattr(transformers, found) if wraps and found else None
    kind = AutoModelForMaskedLM if model_type in ENCODERS else AutoModelForCausalLM
    with torch.device("meta"):
        for more in ({"experts_implementation": "batched_mm"}, {}):
            try:
                if cls is not None:
                    return cls._from_config(made, attn_implementation="eager", dtype=torch.bfloat16, **more)
                return kind.from_config(made, attn_implementation="eager", dtype=torch.bfloat16, **more)
            except (ValueError, TypeError) as error:
                if "experts" not in str(error) or not more:
                    raise
    raise AssertionError


NOT_OF_TEXT = re.compile(
    r"vision|vqmodel|embed_tokens_extend|audio|(?<!vocab_)projector|connector|adapter(?!_list)|aligner|image_newline|multi_modal|mm_|visual"
)


def module_of(name: str) -> str | None:
    """Where symsim counts a parameter of that name (docs/json.md); None for what is not of the text tower."""
    if NOT_OF_TEXT.search(name):
        return None
    owner = name.split(".")[:-1]
    if name.endswith(("expert_bias", "e_score_correction_bias")):
        return "router"
    if owner[-1] in ("fc1", "fc2") and owner[-3].endswith("layernorm"):  # what gates a norm
        return "norm"
    if re.search(r"norm|^ln_|_ln$|^ln$|^layernorm", owner[-1], re.IGNORECASE) or any(part.startswith(("norms", "layer_norm")) for part in owner):
        return "norm"
    head = {"lm_head", "predictions", "generator_predictions"} & set(owner)
    if {"project_out", "vocab_transform", "attn_hc", "ffn_hc", "hc_head"} & set(owner) or (owner[-1] == "dense" and head):
        return "mlp"
    if owner == ["decoder"] or head or {"embed_out", "output_projection", "vocab_projector", "generator_lm_head", "pred_layer"} & set(owner):
        return "lm_head"
    if {"project_in", "embeddings_project", "embedding_hidden_mapping_in"} & set(owner):
        return "embedding"
    if owner[-1] == "per_layer_model_projection":
        return "embedding"
    if re.search(r"embed|^wte$|^wpe$|^w$", owner[-1]):
        return "embedding"
    if {"shared_expert_gate", "router", "gate"} & set(owner):
        return "router"
    of_states = {"in_proj", "out_proj", "conv1d", "x_proj", "dt_proj", "A_log", "D", "dt_bias"}
    if {"mamba", "mixer"} & set(owner) and {*owner, name.rsplit(".", 1)[-1]} & of_states:
        return "attention"
    if {"fc1_latent_proj", "fc2_latent_proj"} & set(owner):
        return "router"
    if {"shared_expert", "shared_experts", "shared_mlp"} & set(owner):
        return "shared_experts"
    if "experts" in owner:
        return "experts"
    of_attention = {"q_proj", "k_proj", "v_proj", "o_proj"} & set(owner)
    return "attention" if of_attention or any("attn" in part or "attention" in part or part == "conv" for part in owner) else "mlp"


def parameters(model: Any, wrapped: bool = False) -> Counts:
    """Parameters by module; a tied one counts once, where it comes first. Of a wrapper only the text tower's."""
    heads = [getattr(model, "lm_head", None) or model.get_output_embeddings() or model.language_model] if wrapped else []
    parts = [model.get_decoder(), *heads] if wrapped else []
    text = {id(p) for part in parts for p in part.parameters()}
    table, found = model.get_input_embeddings(), Counter[str]()
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and not parameter.requires_grad:  # fixed positions
            continue
        if name.endswith("rotary_emb.alpha"):  # of transformers 5.24 a parameter, of 5.23 a buffer (docs/accuracy.md)
            continue
        module = "embedding" if parameter is table.weight and not wrapped else module_of(name)
        if module and (not wrapped or id(parameter) in text):
            found[module] += parameter.numel()
    if not found["experts"]:  # what Granite 4 calls shared stands alone where there are no experts
        found["mlp"] += found.pop("shared_experts", 0)
    return dict(found)


# elements of a model that is given values: towers beside a small text are large
MOST_HELD = 4 * 10**7


def forward_flops(model: Any, b: int, s: int) -> int | None:
    """Forward FLOPs as FlopCounterMode counts them, of what has no values where the module code runs so; None where it does neither."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    attends = hasattr(model.config, "num_attention_heads")  # a model without attention takes no mask of scores
    mask = torch.zeros(b, 1, s, s, dtype=torch.bfloat16, device="meta") if attends else None
    for device, given in (("meta", mask), ("cpu", None)):
        if device == "cpu" and sum(held.numel() for held in (*model.parameters(), *model.buffers())) > MOST_HELD:
            return None
        if device == "cpu":
            model = model.to_empty(device="cpu")
            for held in (*model.parameters(), *model.buffers()):
                held.data.zero_()
        ids = torch.ones(b, s, dtype=torch.long, device=device)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            try:
                model(input_ids=ids, attention_mask=given, use_cache=False)
            except Exception:  # noqa: BLE001, S112 (whatever the module code raises, it could not be traced)
                continue
        return int(counter.get_total_flops())
    return None


# ---------------------------------------------------------------- compared


@dataclass(frozen=True)
class Outcome:
    model_type: str
    fate: str  # equal, refused, different
    note: str
    flops: str  # equal, untraced, or "" where not asked for
    config: Json


def counts(architecture: Architecture, b: int, s: int) -> Result:
    """What `derive` makes of it, without memory and time."""
    strategy = Strategy(fusion="eager", micro_batch_size=b, seq_length=s)
    check(architecture, strategy)
    # of chosen keys, transformers' written-out attention has a mask
    given = resolve({"attention_kernel": "eager"} if architecture.attention.dsa_indexer_topk else {})
    lowered = lower(architecture, strategy, given)
    return Result(lowered.profile.model, strategy, given, lowered, count(lowered), {})


def own_flops(result: Result) -> int:
    """Forward FLOPs, with what Llama 4's module code does differently: it runs every expert on every token."""
    found = int(result.value("F"))
    if result.model.modelling == "llama4_text" and result.model.moe:
        experts = result.flops_by_module().get("experts", {}).get("forward", 0)
        found += experts * (result.model.moe.num_moe_experts - result.model.moe.moe_router_topk) // result.model.moe.moe_router_topk
    if result.model.modelling in ("kimi_linear", "bailing_hybrid") and result.model.linear_attention:
        # torch's chunk_kimi_delta_attention makes the scores of a chunk elementwise, of keys with keys and of queries with keys
        numbers, layers = result.numbers, [k for s in result.model.layers for k in s.kinds * s.repeat]
        deltas = sum(result.model.layer_kinds[kind].mixer == "linear_attention" for kind in layers)
        padded = 64 * -(-int(numbers["s"]) // 64)
        found -= deltas * 2 * 2 * int(numbers["b"]) * padded * int(numbers["H_k"]) * 64 * int(numbers["D_k"])
    return found


def compare(config: Json, model: Any, flops: bool = False, b: int = 2, s: int = 11) -> Outcome:
    """A config counted by symsim, against transformers' model of it."""
    kind = config["model_type"]
    try:
        architecture, _ = read_config(config, "drawn", "config.json")
        result = counts(architecture, b, s)
    except InputError as error:
        return Outcome(kind, "refused", str(error), "", config)
    theirs = parameters(model, kind in WRAPPERS or kind in INSIDE)
    ours = {m: int(result.value(f"N_{m}")) for m in MODULES if result.numbers.get(f"N_{m}")}
    theirs = {m: n for m, n in theirs.items() if n}
    if ours != theirs:
        wrong = {m: (ours.get(m, 0), theirs.get(m, 0)) for m in ours.keys() | theirs.keys() if ours.get(m, 0) != theirs.get(m, 0)}
        return Outcome(kind, "different", f"parameters (ours, transformers): {wrong}", "", config)
    if int(result.value("N")) != sum(theirs.values()):
        return Outcome(kind, "different", f"total: {result.value('N')} is not {sum(theirs.values())}", "", config)
    if not flops or kind in WRAPPERS:
        return Outcome(kind, "equal", "", "", config)
    counted = forward_flops(model, b, s)
    if counted is None:
        return Outcome(kind, "equal", "", "untraced", config)
    if counted != own_flops(result):
        return Outcome(kind, "different", f"forward FLOPs: {own_flops(result)} is not {counted}", "", config)
    return Outcome(kind, "equal", "", "equal", config)


def outcomes(count: int, seed: int, flops_every: int = 5, types: tuple[str, ...] = TYPES) -> Iterator[Outcome]:
    """`count` configs that transformers builds, over the types in turn; config i follows from (seed, i) alone."""
    for index in range(count):
        yield outcome(seed, index, flops_every, types)


def outcome(seed: int, index: int, flops_every: int, types: tuple[str, ...], as_saved: bool = False) -> Outcome:
    rng = random.Random(f"{seed} {index}")
    for _ in range(200):
        config = draw(rng, types[index % len(types)])
        try:
            config = saved(config) if as_saved else config
            model = build(config)
        except Exception as error:  # noqa: BLE001 (transformers refuses: any of its own exceptions)
            refusal = error
            continue
        return compare(config, model, flops=flops_every > 0 and index // len(types) % flops_every == 0)
    return Outcome(types[index % len(types)], "different", f"transformers builds none: {refusal}", "", config)


def table(found: list[Outcome]) -> str:
    """type, drawn, equal, refused, different, FLOPs equal (and not traced); then every reason for a refusal, and what differs."""
    rows = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        rows[one.model_type].update({"drawn": 1, one.fate: 1, f"flops {one.flops}": 1})
        if one.fate == "refused":
            reasons[one.model_type][re.sub(r"\d+", "N", one.note)] += 1
    lines = [f"{'type':16} {'drawn':>6} {'equal':>6} {'refused':>8} {'different':>10} {'FLOPs equal':>12} {'untraced':>9}"]
    for name in sorted(rows, key=TYPES.index):
        row = rows[name]
        numbers = (row["drawn"], row["equal"], row["refused"], row["different"], row["flops equal"], row["flops untraced"])
        lines.append("{:16} {:6} {:6} {:8} {:10} {:12} {:9}".format(name, *numbers))
    whole = sum(rows.values(), Counter())
    numbers = (whole["drawn"], whole["equal"], whole["refused"], whole["different"], whole["flops equal"], whole["flops untraced"])
    lines.append("{:16} {:6} {:6} {:8} {:10} {:12} {:9}".format("all", *numbers))
    lines += [f"refused {n:5}  {name}: {text}" for name, counted in reasons.items() for text, n in counted.most_common()]
    lines += [f"DIFFERENT {one.model_type}: {one.note}\n    {json.dumps(one.config)}" for one in found if one.fate == "different"]
    return "\n".join(lines)


def _one(task: tuple[int, int, int, tuple[str, ...], bool]) -> Outcome:
    return outcome(*task)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--flops-every", type=int, default=10, help="0: never")
    parser.add_argument("--saved", action="store_true", help="configs as transformers writes them, not as they are drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    from transformers import CONFIG_MAPPING

    # one that the transformers at hand has not is not drawn, unless it is asked for
    types = tuple(n for n in given.types.split(",") if given.types != ",".join(TYPES) or SAME_CLASS.get(n, n) in CONFIG_MAPPING)
    start = time.time()
    tasks = [(given.seed, i, given.flops_every, types, given.saved) for i in range(given.count)]
    if given.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            found = list(pool.imap_unordered(_one, tasks, chunksize=20))
    else:
        found = [_one(task) for task in tasks]
    print(table(found))
    took = time.time() - start
    print(f"{len(found)} configs in {took:.0f} s, {len(found) / took:.1f} a second")
    return int(any(one.fate == "different" for one in found))


if __name__ == "__main__":
    sys.exit(main())
