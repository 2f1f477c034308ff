"""Bytes that layers of small configs keep for backward in the eager profile, against PyTorch.

Measured with transformers 5.23 and torch 2.13 on fake CUDA tensors: the storages that forward made and that are alive after
it, the layer's input where it is kept, and apart the rotary tables that come from outside the layer. The layers of gated
delta nets were measured without saved-tensor hooks, which keep the results of unused branches alive.
"""

from __future__ import annotations

from typing import Any

import pytest
from gemma_cases import EQUAL_KEYS, LAYERS

from symsim.algebra.kinds import spelt
from symsim.api.result import derive
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 176, "vocab_size": 512}
GROUPED = SMALL | {"num_key_value_heads": 4}
OLMO, OLMOE = GROUPED | {"model_type": "olmo"}, GROUPED | {"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 2}
ERNIE = GROUPED | {
    "model_type": "ernie4_5_moe",
    "moe_num_experts": 8,
    "moe_k": 2,
    "moe_intermediate_size": 48,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
}
_ROUTED = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 120} | {
    **{"moe_intermediate_size": 24, "n_routed_experts": 4, "num_experts_per_tok": 2},
}
SARVAM = _ROUTED | {"model_type": "sarvam_moe", "num_key_value_heads": 2, "head_dim": 16}
_LATENT = _ROUTED | {"kv_lora_rank": 24, "qk_nope_head_dim": 16, "v_head_dim": 16}
SARVAM_LATENT = _LATENT | {"model_type": "sarvam_mla", "qk_rope_head_dim": 8}
HY_V4_VL = _LATENT | {
    **{"model_type": "hy_v4_vl_text", "q_lora_rank": 20, "qk_rope_head_dim": 64, "index_topk": 8, "index_head_dim": 128, "index_n_heads": 2},
}
MUSE = {"model_type": "muse_glimmer_text", "vocab_size": 659, "hidden_size": 32, "intermediate_size": 144, "num_hidden_layers": 4} | {
    **{"num_attention_heads": 2, "layer_rope_theta": [0.0, 10000.0, 10000.0, 0.0], "pad_token_id": 0, "max_position_embeddings": 149},
    "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention"],
}
GPT_SW3 = {"model_type": "gpt-sw3", "vocab_size": 382, "n_positions": 262, "n_embd": 48, "n_layer": 3, "n_head": 3, "n_inner": 16}
GLM4 = GROUPED | {"model_type": "glm4", "head_dim": 16}
PHIMOE = GROUPED | {"model_type": "phimoe", "num_local_experts": 8, "attention_bias": True}
FALCON = {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 512}
MPT = {"model_type": "mpt", "d_model": 64, "n_layers": 2, "n_heads": 8, "vocab_size": 512}
NEXT = GROUPED | {
    "model_type": "qwen3_next",
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 40,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
SPLIT = {key: value for key, value in NEXT.items() if key != "intermediate_size"} | {"model_type": "qwen3_5_moe_text"}
SPLIT_DENSE = {key: value for key, value in NEXT.items() if "expert" not in key and "moe" not in key} | {"model_type": "qwen3_5_text"}
LFM2 = GROUPED | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_multiple_of": 16}
LFM2_MOE = {key: value for key, value in NEXT.items() if "linear" not in key and key != "head_dim"} | {
    "model_type": "lfm2_moe",
    "layer_types": ["conv", "full_attention"],
    "num_dense_layers": 0,
}
INDEXED = SMALL | {
    "model_type": "deepseek_v32",
    "num_key_value_heads": 8,
    "moe_intermediate_size": 48,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "index_topk": 16,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "first_k_dense_replace": 1,
}
AXK2 = {key: value for key, value in INDEXED.items() if key not in ("n_group", "topk_group")} | {"model_type": "axk2", "gated_norm_rank": 6}
LARGE4 = {key: value for key, value in INDEXED.items() if key != "q_lora_rank"} | {
    "model_type": "mistral_large4_text",
    "num_hidden_layers": 4,
    "no_rope_layers": [1, 0, 1, 1],
    "indexer_types": ["full", "full", "shared", "full"],
    "mlp_layer_types": ["dense", "dense", "sparse", "sparse"],
}
MINIMAX = GROUPED | {
    "model_type": "minimax",
    "intermediate_size": 48,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "block_size": 16,
    "layer_types": ["linear_attention", "full_attention"],
}
THREE_TAPS = {"linear_num_key_heads": 4, "linear_conv_kernel_dim": 3}

SPACES = GROUPED | {
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 12,
    "mamba_chunk_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
}
BAMBA = SPACES | {"model_type": "bamba", "attn_layer_indices": [1]}
GRANITE = SPACES | {"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"], "num_local_experts": 4, "shared_intermediate_size": 40}
NEMOTRON = {
    "model_type": "nemotron_h",
    "hidden_size": 64,
    "hybrid_override_pattern": "M",
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 12,
    "chunk_size": 16,
}

FALCON_H1 = GROUPED | {
    "model_type": "falcon_h1",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "mamba_d_ssm": 48,
    "mamba_n_heads": 4,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_chunk_size": 16,
}
MAMBA2 = {
    "model_type": "mamba2",
    "hidden_size": 32,
    "num_heads": 4,
    "head_dim": 16,
    "n_groups": 2,
    "state_size": 8,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "chunk_size": 16,
}
MAMBA1 = {"model_type": "mamba", "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2, "vocab_size": 100}
ZAMBA2 = {
    "model_type": "zamba2",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "layers_block_type": ["mamba", "hybrid", "hybrid"],
    "n_mamba_heads": 8,
    "mamba_ngroups": 2,
    "mamba_d_state": 8,
    "chunk_size": 16,
    "adapter_rank": 6,
}
GEMMA4 = GROUPED | LAYERS | {"model_type": "gemma4_text", "global_head_dim": 24}
OLMO_HYBRID = (
    GROUPED
    | {"model_type": "olmo_hybrid", "num_hidden_layers": 4, "intermediate_size": 96}
    | {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
    }
)
JAMBA = {
    "model_type": "jamba",
    "hidden_size": 32,
    "mamba_d_state": 4,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "expert_layer_period": 4,
    "expert_layer_offset": 3,
}
LING = GROUPED | {
    "model_type": "bailing_hybrid",
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "layer_types": ["full_attention", "linear_attention"],
    "first_k_dense_replace": 2,
}

# name: config, layer, attention kernel, b, s, bytes kept, bytes of tables from outside the layer
PLAIN = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128}
EARLY = {"n_embd": 64, "n_inner": 160, "n_layer": 2, "n_head": 4, "vocab_size": 128}
NEO = PLAIN | {"model_type": "gpt_neo", "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 16}
XGLM = PLAIN | {"model_type": "xglm", "d_model": 64, "ffn_dim": 160, "num_layers": 2, "attention_heads": 4}
OPT = PLAIN | {"model_type": "opt", "ffn_dim": 160, "word_embed_proj_dim": 64}
STABLELM = PLAIN | {"model_type": "stablelm", "partial_rotary_factor": 0.25}
BLOOM = {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}

BERT = {"model_type": "bert", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 0}  # fmt: skip
MEASURED: dict[str, tuple[dict[str, Any], int, str, int, int, int, int]] = {
    "olmo": (OLMO, 0, "flash", 2, 48, 250392, 3072),
    "olmo clipped": (OLMO | {"clip_qkv": 8.0}, 0, "flash", 2, 48, 274968, 3072),
    "olmo clipped, eager": (OLMO | {"clip_qkv": 8.0}, 0, "eager", 2, 48, 505344, 3072),
    "olmo clipped, all heads, biases": (SMALL | {"model_type": "olmo", "clip_qkv": 8.0, "attention_bias": True}, 0, "flash", 2, 48, 299544, 3072),
    "olmoe": (OLMOE, 0, "flash", 2, 48, 524216, 1536),
    "olmoe clipped": (OLMOE | {"clip_qkv": 8.0, "norm_topk_prob": True}, 0, "flash", 2, 48, 549944, 1536),
    "mpt": (MPT, 0, "eager", 2, 48, 419328, 4608),
    "bert": (BERT, 0, "eager", 2, 48, 173568, 0),
    "mpt clipped": (MPT | {"attn_config": {"clip_qkv": 6.0}}, 0, "eager", 2, 48, 456192, 4608),
    "ernie dense layer": (ERNIE, 0, "flash", 2, 48, 277272, 0),
    "ernie layer of experts": (ERNIE, 1, "flash", 2, 48, 374456, 0),
    "glm4": (GLM4, 0, "flash", 2, 48, 411672, 0),
    "glm4 all rotary": (GLM4 | {"attention_bias": False, "partial_rotary_factor": 1.0}, 0, "flash", 2, 48, 413208, 0),
    "phimoe": (PHIMOE, 0, "flash", 2, 48, 421688, 1536),
    "falcon": (FALCON, 0, "eager", 2, 48, 246544, 1536),
    "falcon new decoder": (FALCON | {"new_decoder_architecture": True, "num_kv_heads": 4}, 0, "eager", 2, 48, 259600, 1536),
    "falcon all heads": (FALCON | {"multi_query": False, "parallel_attn": False, "bias": True}, 0, "eager", 2, 48, 271872, 1536),
    "qwen3_next delta net, a chunk": (NEXT, 0, "flash", 2, 48, 1256640, 0),
    "qwen3_next delta net, chunks": (NEXT, 0, "flash", 3, 200, 7833040, 0),
    "qwen3_next delta net, three taps, a chunk": (NEXT | THREE_TAPS, 0, "flash", 2, 48, 1268864, 0),
    "qwen3_next delta net, three taps, chunks": (NEXT | THREE_TAPS, 0, "flash", 3, 200, 7909744, 0),
    "bamba state space, a chunk": (BAMBA, 0, "eager", 2, 11, 355592, 0),
    "bamba state space, chunks": (BAMBA, 0, "eager", 3, 48, 1830080, 0),
    "bamba attention": (BAMBA, 1, "eager", 2, 40, 261760, 1280),
    "granitemoehybrid state space and experts": (GRANITE, 0, "eager", 2, 40, 1263216, 0),
    "granitemoehybrid attention": (GRANITE, 1, "eager", 3, 48, 740176, 0),
    "nemotron_h state space, a whole chunk": (NEMOTRON, 0, "eager", 2, 16, 318088, 0),
    "nemotron_h state space, chunks": (NEMOTRON, 0, "eager", 2, 40, 881888, 0),
    "qwen3_next attention": (NEXT, 1, "flash", 2, 48, 603768, 768),
    "qwen3_next attention, longer": (NEXT, 1, "flash", 3, 200, 3769896, 3200),
    # python tests/draws/kept.py, on the CPU
    "qwen3.5 delta net, a chunk": (SPLIT_DENSE, 0, "eager", 2, 48, 1214944, 0),
    "qwen3.5 delta net, chunks": (SPLIT_DENSE, 0, "eager", 3, 200, 7572608, 0),
    "qwen3.5 attention": (SPLIT_DENSE, 1, "eager", 2, 48, 780160, 1536),
    "qwen3.5 mixture, delta net, three taps": (SPLIT | THREE_TAPS, 0, "eager", 3, 200, 7909744, 0),
    "lfm2 convolution": (LFM2, 0, "eager", 2, 48, 271616, 0),
    "lfm2 convolution, biases, five taps": (LFM2 | {"conv_bias": True, "conv_L_cache": 5}, 0, "eager", 3, 200, 1695936, 0),
    "lfm2 attention": (LFM2, 1, "eager", 2, 48, 527616, 1536),
    "lfm2 mixture": (LFM2_MOE, 0, "eager", 2, 48, 304864, 0),
    "lfm2 mixture without a bias of the choice": (LFM2_MOE | {"use_expert_bias": False, "norm_topk_prob": False}, 0, "eager", 2, 48, 304288, 0),
    "deepseek v3.2": (INDEXED, 0, "eager", 2, 48, 548352, 768),
    "deepseek v3.2, mixture": (INDEXED, 1, "eager", 3, 40, 716800, 640),
    "a.x k2, a dense network": (AXK2, 0, "eager", 2, 48, 628992, 768),
    "a.x k2, mixture": (AXK2, 1, "eager", 3, 40, 866560, 640),
    "mistral large 4, without positions": (LARGE4, 1, "eager", 2, 48, 548832, 0),
    "mistral large 4, mixture, indices of another layer": (LARGE4, 2, "eager", 3, 40, 717040, 640),
    "glm 5": (INDEXED | {"model_type": "glm_moe_dsa"}, 0, "eager", 2, 48, 548352, 768),
    "minimax lightning, blocks": (MINIMAX, 0, "eager", 2, 48, 436272, 0),
    "minimax lightning, one row": (MINIMAX, 0, "eager", 1, 48, 214064, 0),
    "minimax lightning, a part of a block": (MINIMAX, 0, "eager", 2, 40, 364592, 0),
    "minimax lightning, one block": (MINIMAX, 0, "eager", 2, 16, 137248, 0),
    "minimax attention": (MINIMAX, 1, "eager", 2, 48, 503456, 1536),
    "falcon h1": (FALCON_H1, 1, "eager", 2, 48, 680960, 3072),
    "falcon h1, norms": (FALCON_H1 | {"mamba_rms_norm": True, "mamba_norm_before_gate": False}, 1, "eager", 2, 48, 746240, 3072),
    "mamba 2": (MAMBA2, 1, "eager", 2, 48, 507456, 0),
    "mamba 1": (MAMBA1, 1, "eager", 2, 20, 223808, 0),
    "mamba 1, other biases": (MAMBA1 | {"use_bias": True, "use_conv_bias": False, "time_step_rank": 3}, 1, "eager", 2, 20, 223888, 0),
    "falcon mamba": (MAMBA1 | {"model_type": "falcon_mamba"}, 1, "eager", 2, 20, 225568, 0),
    "jamba": (JAMBA, 1, "eager", 2, 20, 252128, 0),
    "jamba mixture": (JAMBA | {"num_hidden_layers": 5, "expert_layer_offset": 0, "num_experts": 4}, 0, "eager", 2, 20, 281104, 0),
    "zamba 2, a block that is borrowed": (ZAMBA2, 2, "eager", 2, 48, 1444832, 0),
    "zamba 2, adapters of attention": (ZAMBA2 | {"use_shared_attention_adapter": True, "use_mem_rope": True}, 1, "eager", 2, 40, 1288736, 5120),
    # with the layer's own embeddings, a slice of what PyTorch keeps once for all six: 1920 bytes of 11520
    "gemma 4, a window": (GEMMA4, 0, "eager", 2, 40, 501888 + 1920, 2560),
    "gemma 4, others' keys": (GEMMA4, 4, "eager", 2, 40, 468544 + 1920, 2560),
    "gemma 4, others' keys, all of them": (GEMMA4, 5, "eager", 2, 40, 509536 + 1920, 3840),
    "gemma 4, keys as values": (GEMMA4 | EQUAL_KEYS, 1, "eager", 2, 48, 589504, 4608),
    "olmo hybrid, delta net": (OLMO_HYBRID, 0, "eager", 2, 48, 1152992, 0),
    "olmo hybrid, delta net, chunks": (OLMO_HYBRID, 0, "eager", 3, 200, 7188096, 0),
    "olmo hybrid, attention": (OLMO_HYBRID, 3, "eager", 2, 48, 542208, 3072),
    "ling 3 attention, gates of heads": (LING, 0, "eager", 2, 48, 350592, 1536),
    "qwen3.5 mixture, attention": (SPLIT, 1, "eager", 2, 48, 821856, 1536),
    "gpt 2": (EARLY | {"model_type": "gpt2"}, 1, "eager", 2, 48, 290304, 0),
    "gpt j": (EARLY | {"model_type": "gptj", "rotary_dim": 8}, 1, "eager", 2, 48, 366336, 0),
    "gpt j, all of two heads": (EARLY | {"model_type": "gptj", "n_head": 2, "rotary_dim": 32}, 1, "eager", 3, 40, 383680, 0),
    "codegen": (EARLY | {"model_type": "codegen", "rotary_dim": 8}, 1, "eager", 2, 48, 369408, 0),
    "codegen, all of a head": (EARLY | {"model_type": "codegen", "rotary_dim": 16}, 1, "eager", 3, 40, 441280, 0),
    "gpt neo, a window": (NEO, 1, "eager", 2, 48, 388608, 0),
    "gpt neox": (PLAIN | {"model_type": "gpt_neox", "use_parallel_residual": True}, 1, "eager", 2, 48, 259584, 768),
    "gpt neox, one after the other": (
        PLAIN | {"model_type": "gpt_neox", "use_parallel_residual": False, "rotary_pct": 1.0},
        1,
        "eager",
        2,
        48,
        271872,
        3072,
    ),
    "sarvam, mixture": (SARVAM, 1, "eager", 2, 48, 455056, 3072),  # of transformers 5.24, as the next two
    "sarvam 105b, mixture": (SARVAM_LATENT, 1, "eager", 2, 48, 428560, 1536),
    "hy v4 vl, offsets in fp32": (HY_V4_VL, 1, "eager", 2, 48, 971920, 0),
    "muse glimmer, norms without a weight": (MUSE, 0, "eager", 2, 20, 308992, 0),
    "gpt-sw3": (GPT_SW3, 0, "eager", 2, 20, 42560, 0),
    "opt": (OPT, 1, "eager", 2, 48, 241152, 0),
    "phi": (PLAIN | {"model_type": "phi", "partial_rotary_factor": 0.5}, 1, "eager", 2, 48, 338688, 1536),
    "bloom": (BLOOM, 1, "eager", 2, 48, 308736, 0),
    "stablelm": (STABLELM, 1, "eager", 2, 48, 333312, 768),
    "stablelm, parallel": (STABLELM | {"use_parallel_residual": True, "use_qkv_bias": True}, 1, "eager", 2, 48, 307968, 768),
    "nemotron": (PLAIN | {"model_type": "nemotron", "partial_rotary_factor": 0.5}, 1, "eager", 2, 48, 272128, 1536),
    "persimmon": (PLAIN | {"model_type": "persimmon", "partial_rotary_factor": 0.5}, 1, "eager", 2, 48, 314880, 1536),
    "biogpt": (PLAIN | {"model_type": "biogpt"}, 1, "eager", 2, 48, 198144, 0),
    "xglm": (XGLM, 1, "eager", 2, 48, 235012, 0),
    "helium": (PLAIN | {"model_type": "helium", "head_dim": 16}, 1, "eager", 2, 48, 409856, 0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_bytes_that_a_layer_keeps(name: str) -> None:
    config, layer, kernel, b, s, kept, tables = MEASURED[name]
    architecture = read_config(config, "small", "config.json")[0]
    architecture = architecture.model_copy(update={"hidden_dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": None})
    result = derive(architecture, Strategy(fusion="eager", micro_batch_size=b, seq_length=s), {"attention_kernel": kernel})
    kinds = [kind for segment in architecture.layers for _ in range(segment.repeat) for kind in segment.kinds]
    block = result.lowered.blocks[spelt(kinds[layer])]
    saved, shared = (sum(int(item.bytes.evaluate(result.numbers)) for item in items) for items in (block.saved, block.shared))
    assert (saved, shared) == (kept, tables)
