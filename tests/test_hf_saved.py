"""Configs as transformers saves a trained model (`save_pretrained`), which have other keys than those that were published: both say one model.

The saved keys are those of transformers 5.23; `tests/draws/huggingface.py --saved` draws many more.
"""

from __future__ import annotations

from typing import Any

import pytest

from symsim.errors import InputError
from symsim.inputs.hf import read_config

SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 96}
BAILING = {**SIZES, "model_type": "bailing_hybrid", "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
           "moe_intermediate_size": 32, "num_local_experts": 8, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2}  # fmt: skip
GEMMA = {**SIZES, "model_type": "gemma4_text", "num_key_value_heads": 2, "head_dim": 16, "attention_k_eq_v": True,
         "hidden_size_per_layer_input": 0}  # fmt: skip
MAMBA = {"model_type": "mamba", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "expand": 3}
# what is written, and what transformers makes of it
SAVED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "bailing_hybrid": (BAILING, {"head_dim": 16}, {"head_dim": 4, "linear_head_dim": 16, "linear_num_heads": 4, "linear_conv_kernel_dim": 4}),
    "gemma4_text": (
        GEMMA,
        {"global_head_dim": 32, "num_global_key_value_heads": 1},
        {"per_layer_config": {"5": {"head_dim": 32, "num_key_value_heads": 1}}},
    ),
    "mamba": (MAMBA, {}, {"intermediate_size": 192}),
    "paligemma": (
        {"model_type": "paligemma", "text_config": {**SIZES, "num_key_value_heads": 2, "model_type": "gemma"}},
        {},
        {"text_config": {**SIZES, "num_key_value_heads": 2, "model_type": "gemma", "use_bidirectional_attention": True}},
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_says_what_was_published(name: str) -> None:
    config, published, saved = SAVED[name]
    said = [read_config({**config, **more}, name, "config.json")[0] for more in (published, saved)]
    assert said[0] == said[1]
    assert name != "bailing_hybrid" or (said[0].linear_attention is not None and said[0].linear_attention.linear_key_head_dim == 16)
    assert name != "mamba" or (said[0].selective_scan is not None and said[0].selective_scan.channels == 192)


def test_layers_that_per_layer_config_leaves_out_have_the_usual_heads() -> None:
    """Whatever their type: transformers writes an entry for those of other sizes."""
    model = read_config({**GEMMA, "per_layer_config": {}}, "saved", "config.json")[0]
    assert {kind.kv_channels for kind in model.layer_kinds.values()} == {None}


@pytest.mark.parametrize("said", [3, {"6": {"head_dim": 8}}, {"5": {"sliding_window": 8}}, {"5": {"head_dim": 0}}, {"5": {"num_key_value_heads": 3}}])
def test_sizes_of_single_layers_that_are_refused(said: object) -> None:
    with pytest.raises(InputError, match="key 'per_layer_config"):
        read_config({**GEMMA, "per_layer_config": said}, "saved", "config.json")


def test_two_names_of_one_size_agree() -> None:
    """transformers takes one of them by the order in the file."""
    config = {**BAILING, "head_dim": 16}
    assert read_config({**config, "num_experts": 8}, "saved", "config.json")[0].moe is not None
    with pytest.raises(InputError, match="key 'num_local_experts' is 8 and 'num_experts' is 6, which are two names of one size; give one"):
        read_config({**config, "num_experts": 6}, "saved", "config.json")


def test_attention_both_ways_of_gemma_3() -> None:
    """EmbeddingGemma: a token sees half of the window to either side, and itself (configuration_gemma3.py)."""
    config = {**SIZES, "model_type": "gemma3_text", "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 32}
    kinds = read_config({**config, "use_bidirectional_attention": True}, "saved", "config.json")[0].layer_kinds
    assert {name: (kind.bidirectional, kind.window) for name, kind in kinds.items()} == {"local": (True, 17), "full": (True, None)}


def test_older_names_of_a_hub_that_transformers_reads() -> None:
    """MiMo-V2-Flash's window is the tokens in front of the one that attends; GPT-NeoX's share of a head that turns is rotary_pct alone."""
    mimo = {**SIZES, "model_type": "mimo_v2_flash", "num_key_value_heads": 2, "head_dim": 16, "n_routed_experts": 8, "moe_intermediate_size": 32}
    windows = [
        read_config({**mimo, **more}, "mimo", "config.json")[0] for more in ({"sliding_window": 9}, {"sliding_window_size": 8, "sliding_window": 5})
    ]
    named = {"layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2, "sliding_window_size": 8}
    assert windows[0] == windows[1]
    assert {kind.window for kind in read_config({**mimo, **named}, "mimo", "config.json")[0].layer_kinds.values()} == {None, 9}
    neox = {**SIZES, "model_type": "gpt_neox"}
    turned = [
        read_config({**neox, **more}, "neox", "config.json")[0].attention.rotary_fraction
        for more in ({"partial_rotary_factor": 1.0}, {"rotary_pct": 1.0})
    ]
    assert turned == [0.25, 1.0]
