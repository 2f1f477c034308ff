"""Mixers beside transformers' module code on real tensors: forward FLOPs of a small model of each, and what a layer of it keeps.

FLOPs: FlopCounterMode of torch 2.13, transformers 5.23, 2 rows of 70 tokens; kept bytes: `test_eager_bytes.py`, `families.json`, and KEPT here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import test_eager_bytes

from symsim.algebra.kinds import spelt
from symsim.api.result import Result
from symsim.cost.count import count
from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.assumptions import resolve
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy
from symsim.lowering.lower import lower

ROWS, TOKENS = 2, 70
FAMILIES = json.loads((Path(__file__).parent / "oracle" / "families.json").read_text(encoding="utf-8"))
_SIZE = FAMILIES["source"]["rows"], FAMILIES["source"]["tokens"]
_SMALL = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "pad_token_id": 0}
KIMI = _SMALL | {
    **{"model_type": "kimi_linear", "num_key_value_heads": 4, "linear_head_dim": 16, "linear_num_heads": 4, "moe_intermediate_size": 32},
    **{"num_local_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "kv_lora_rank": 16},
    **{"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16},
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}
LING = KIMI | {"model_type": "bailing_hybrid"}
LLAMA4 = _SMALL | {
    **{"model_type": "llama4_text", "num_key_value_heads": 2, "head_dim": 16, "intermediate_size_mlp": 112, "num_local_experts": 4},
    **{"attention_chunk_size": 8, "interleave_moe_layer_step": 2},
}
GEMMA3N = _SMALL | {
    **{"model_type": "gemma3n_text", "num_key_value_heads": 2, "head_dim": 16, "vocab_size_per_layer_input": 100, "sliding_window": 16},
    **{"hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0]},
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}
MINIMAX_M3 = {
    **{"model_type": "minimax_m3_vl_text", "vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"head_dim": 16, "num_hidden_layers": 2, "dense_intermediate_size": 96, "intermediate_size": 32, "shared_intermediate_size": 48},
    **{"num_local_experts": 4, "num_experts_per_tok": 2, "index_n_heads": 2, "index_head_dim": 16, "index_block_size": 4, "index_topk_blocks": 3},
    **{"mlp_layer_types": ["dense", "sparse"], "layer_types": ["minimax_m3_sparse", "minimax_m3_sparse"]},
}
DIFFLLAMA = _SMALL | {"model_type": "diffllama", "num_hidden_layers": 2, "num_key_value_heads": 2}
CONFIGS = {"diffllama": DIFFLLAMA, "minimax m3": MINIMAX_M3, "kimi linear": KIMI, "llama 4": LLAMA4, "gemma 3n": GEMMA3N}
# (config, layer, b, s, kept bytes): of delta rules with a decay of every channel beside a kernel that keeps what it reads (tests/draws/kept.py)
KEPT: dict[str, tuple[dict[str, Any], int, int, int, int]] = {
    "kimi linear, delta rule": (KIMI, 0, 2, 48, 509280),
    "kimi linear, delta rule, mixture": (KIMI, 3, 2, 48, 593648),
    "kimi linear, attention": (KIMI, 2, 2, 48, 429584),
    "ling 3, delta rule": (LING, 0, 2, 48, 460104),
    "diffllama": (DIFFLLAMA, 0, 2, 48, 529930),
    "llama 4, chunks": (LLAMA4, 0, 2, 48, 310272),
    "minimax m3, chosen blocks": (MINIMAX_M3, 0, 2, 48, 489088),
    "minimax m3, chosen blocks, mixture": (MINIMAX_M3, 1, 2, 48, 569360),
    # embeddings of all four layers are one tensor of 6144 bytes, of which a layer counts its own
    "gemma 3n, others' keys": (GEMMA3N, 2, 2, 48, 884576 + 6144 // 4),
}
FLOPS: dict[str, int] = {
    "qwen3_next delta net, a chunk": 45963520,
    "qwen3_next delta net, three taps, a chunk": 46540288,
    "bamba state space, a chunk": 35887872,
    "granitemoehybrid state space and experts": 50653952,
    "nemotron_h state space, a whole chunk": 2357029120,
    "qwen3.5 delta net, a chunk": 49941760,
    "qwen3.5 mixture, delta net, three taps": 46540288,
    "lfm2 convolution": 33529856,
    "lfm2 convolution, biases, five taps": 33569280,
    "lfm2 mixture": 30375936,
    "deepseek v3.2": 43344000,
    "a.x k2, a dense network": 46999680,
    "mistral large 4, without positions": 80194240,
    "glm 5": 43344000,
    "minimax lightning, blocks": 32296960,
    "mamba 2": 6991872,
    "mamba 1": 5059584,
    "mamba 1, other biases": 5131264,
    "falcon mamba": 5059584,
    "jamba": 7640064,
    "jamba mixture": 20441088,
    "zamba 2, a block that is borrowed": 86128128,
    "zamba 2, adapters of attention": 88708608,
    "gemma 4, a window": 85765120,
    "olmo hybrid, delta net": 58720000,
    "ling 3 attention, gates of heads": 232470272,
    "diffllama": 29030400,
    "kimi linear": 69997568,
    "llama 4": 89384960,
    "gemma 3n": 63526400,
    "minimax m3": 28421120,
}
_Has = Callable[[Architecture, LayerKind], Any]
MIXERS: dict[str, _Has] = {
    "Mamba-2": lambda a, k: "mamba" in k.mixers,
    "Mamba-1": lambda a, k: "selective_scan" in k.mixers,
    "gated delta net": lambda a, k: k.mixer == "linear_attention" and a.linear_attention is not None and a.linear_attention.kind != "kda",
    "KDA": lambda a, k: k.mixer == "linear_attention" and a.linear_attention is not None and a.linear_attention.kind == "kda",
    "lightning attention": lambda a, k: k.mixer == "lightning_attention",
    "short convolution": lambda a, k: k.mixer == "short_convolution",
    "DSA: indexer, and attention to chosen keys": lambda a, k: a.attention.dsa_indexer_topk and not a.attention.dsa_indexer_block and k.indexer,
    "indexer of blocks": lambda a, k: a.attention.dsa_indexer_block and k.indexer,
    "differential attention": lambda a, k: a.attention.differential and k.mixer == "attention",
    "compressed attention": lambda a, k: k.mixer == "compressed_attention",
    "chunked attention": lambda a, k: k.chunked,
    "hyper-connections": lambda a, k: a.hyper_connections,
    "embeddings of layers": lambda a, k: a.per_layer_input,
    "streams that layers predict and correct": lambda a, k: a.altup,
    "blocks that layers share": lambda a, k: k.shared_block != "none",
}


def _kinds(architecture: Architecture) -> list[Any]:
    return [kind for segment in architecture.layers for kind in segment.kinds * segment.repeat]


def _read(config: dict[str, Any]) -> Architecture:
    plain = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": None}
    return read_config(config, "small", "config.json")[0].model_copy(update=plain)


def _derived(architecture: Architecture, b: int, s: int, kernel: str = "eager") -> Result:
    strategy, assumptions = Strategy(fusion="eager", micro_batch_size=b, seq_length=s), resolve({"attention_kernel": kernel})
    lowered = lower(architecture, strategy, assumptions)
    return Result(lowered.profile.model, strategy, assumptions, lowered, count(lowered), {})


def flops_elsewhere(result: Result) -> int:
    """Forward FLOPs of a model as torch counts them of its module code (docs/accuracy.md says why these two differ)."""
    model, found = result.model, int(result.value("F"))
    if model.modelling == "llama4_text" and model.moe:  # every expert runs on every token
        experts = result.flops_by_module().get("experts", {}).get("forward", 0)
        found += experts * (model.moe.num_moe_experts - model.moe.moe_router_topk) // model.moe.moe_router_topk
    if model.linear_attention and model.linear_attention.kind == "kda":  # scores of chunks elementwise, of keys and of queries with keys
        layers = sum(model.layer_kinds[kind].mixer == "linear_attention" for kind in _kinds(model))
        n = {name: int(result.numbers[name]) for name in ("b", "s", "H_k", "D_k")}
        found -= layers * 4 * n["b"] * 64 * -(-n["s"] // 64) * n["H_k"] * 64 * n["D_k"]
    return found


@cache
def flop_cases() -> tuple[tuple[str, Architecture, int, Callable[[], int]], ...]:
    """(case, model, FLOPs that torch counts, what counts those here)."""
    return tuple(_flop_cases())


def _flop_cases() -> Iterator[tuple[str, Architecture, int, Callable[[], int]]]:
    def ours(architecture: Architecture, b: int, s: int) -> int:
        return flops_elsewhere(_derived(architecture, b, s))

    for name, counted in FLOPS.items():
        architecture = _read(CONFIGS[name] if name in CONFIGS else test_eager_bytes.MEASURED[name][0])
        yield name, architecture, counted, partial(ours, architecture, ROWS, TOKENS)
    for name, row in FAMILIES["families"].items():
        architecture = _read(row["config"])
        if row["flops"] is not None and any(has(architecture, kind) for has in MIXERS.values() for kind in architecture.layer_kinds.values()):
            yield name, architecture, row["flops"], partial(ours, architecture, *_SIZE)


@cache
def kept_cases() -> tuple[tuple[str, Architecture, LayerKind, int, Callable[[], int]], ...]:
    """(case, model, kind of layer, bytes that torch keeps, what counts those here)."""
    return tuple(_kept_cases())


def _kept_cases() -> Iterator[tuple[str, Architecture, LayerKind, int, Callable[[], int]]]:
    def ours(architecture: Architecture, kind: str, b: int, s: int, kernel: str) -> int:
        result = _derived(architecture, b, s, kernel)
        return sum(int(item.bytes.evaluate(result.numbers)) for item in result.lowered.blocks[spelt(kind)].saved)

    cases = [(name, *case[:6]) for name, case in test_eager_bytes.MEASURED.items()]
    cases += [(name, config, layer, "eager", b, s, kept) for name, (config, layer, b, s, kept) in KEPT.items()]
    cases += [(f"{name}, layer {layer}", row["config"], int(layer), "eager", *_SIZE, kept)
              for name, row in FAMILIES["families"].items() for layer, kept in row["kept"].items()]  # fmt: skip
    for name, config, layer, kernel, b, s, kept in cases:
        architecture = _read(config)
        kind = _kinds(architecture)[layer]
        if any(has(architecture, architecture.layer_kinds[kind]) for has in MIXERS.values()):
            yield name, architecture, architecture.layer_kinds[kind], kept, partial(ours, architecture, kind, b, s, kernel)
