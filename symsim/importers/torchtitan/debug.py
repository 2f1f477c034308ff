"""torchtitan's debug models, which no hub has: their sizes as configs of Hugging Face.

torchtitan b5bcd76c (2026-08-21), torchtitan/models/llama3/__init__.py, qwen3/__init__.py, deepseek_v3/__init__.py _debugmodel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

_LLAMA: dict[str, Any] = dict(
    model_type="llama",
    hidden_size=256,
    num_hidden_layers=6,
    num_attention_heads=16,
    num_key_value_heads=16,
    intermediate_size=768,
    vocab_size=2048,
    max_position_embeddings=131072,
    hidden_act="silu",
)
_QWEN: dict[str, Any] = dict(
    model_type="qwen3",
    hidden_size=256,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=3072,
    vocab_size=2048,
    max_position_embeddings=4096,
    hidden_act="silu",
    tie_word_embeddings=True,
)
_DEEPSEEK: dict[str, Any] = dict(
    model_type="deepseek_v3",
    hidden_size=256,
    num_hidden_layers=6,
    num_attention_heads=16,
    num_key_value_heads=16,
    q_lora_rank=None,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    intermediate_size=1024,
    moe_intermediate_size=256,
    n_routed_experts=8,
    n_shared_experts=2,
    num_experts_per_tok=3,
    first_k_dense_replace=1,
    n_group=1,
    topk_group=1,
    vocab_size=2048,
    max_position_embeddings=16384,
    hidden_act="silu",
)
# another kernel of attention is no other model
DEBUG = ("debugmodel", "debugmodel_flex_attn", "debugmodel_varlen_attn", "debugmodel_non_fused_qkv")
_MODELS = {"llama3": _LLAMA, "qwen3": _QWEN, "deepseek_v3": _DEEPSEEK}


def debug_model(name: str) -> "Architecture | None":
    """The debug model of a family; None of one whose sizes are not known here."""
    from symsim.inputs.hf.reader import read_config

    config = _MODELS.get(name)
    return read_config(config, f"{name}-debugmodel", f"torchtitan's {name}")[0] if config is not None else None
