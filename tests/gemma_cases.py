"""Layers of small Gemma 3n and Gemma 4 configs, of two kinds in turn, the last two of which take over keys and values."""

from typing import Any

LAYERS: dict[str, Any] = {
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 16,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 12,
}
# Gemma 4 without either, whose full layers have keys for values
EQUAL_KEYS = {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0}
