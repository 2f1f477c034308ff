"""Keys that a config may have beside its sizes: each counts as transformers 5.24 builds the model, or is refused where that ends in an error.

Parameters by module are facts of transformers 5.24 and torch 2.13 on the meta device; `tests/draws/huggingface_keys.py` draws many more.
"""

from __future__ import annotations

from typing import Any

import pytest

from symsim.api.result import derive
from symsim.cost.count import MODULES
from symsim.errors import InputError
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1}  # fmt: skip
SPARSE = {"num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32, "num_experts_per_tok": 2}
TYPES = ["mamba", "hybrid", "mamba", "hybrid"]
ZAMBA2 = {**SIZES, "model_type": "zamba2", "n_mamba_heads": 8, "mamba_d_state": 8, "mamba_ngroups": 2, "adapter_rank": 4, "layers_block_type": TYPES}
ZAMBA2_PARTS = {"embedding": 6400, "norm": 1024, "mlp": 28672}
NEMOTRON = {"model_type": "nemotron_h", "num_key_value_heads": 2, "layers_block_type": ["mlp", "attention"]}
DBRX = {"model_type": "dbrx", "n_layers": 2, "n_heads": 4, "vocab_size": 100, "attn_config": {"kv_n_heads": 2},
        "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2}}  # fmt: skip

COUNTED: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "olmo_hybrid, head_dim": (
        {**SIZES, "model_type": "olmo_hybrid", "head_dim": 12},
        {"embedding": 6400, "mlp": 73728, "norm": 744, "attention": 89880, "lm_head": 6400},
    ),
    "zamba2, head_dim": (ZAMBA2 | {"head_dim": 24}, ZAMBA2_PARTS | {"attention": 154848}),
    "zamba2, attention_head_dim": (ZAMBA2 | {"attention_head_dim": 48}, ZAMBA2_PARTS | {"attention": 197856}),
    "zamba2, both names of its layers": (ZAMBA2 | {"layer_types": TYPES}, ZAMBA2_PARTS | {"attention": 169184}),
    # a width of 0 is none given: the network beside the experts is as wide as that of a dense layer
    "hy_v3, num_shared_experts": (
        {**SIZES, **SPARSE, "model_type": "hy_v3", "num_experts": 4, "num_shared_experts": 0},
        {"embedding": 6400, "attention": 49152, "norm": 704, "mlp": 18432, "router": 768, "experts": 73728, "shared_experts": 55296, "lm_head": 6400},
    ),
    # another name of qk_rope_head_dim
    "glm4_moe_lite, head_dim": (
        {**SIZES, **LATENT, "model_type": "glm4_moe_lite", "head_dim": 12},
        {"embedding": 6400, "attention": 33280, "norm": 736, "mlp": 18432, "experts": 73728, "router": 768, "shared_experts": 18432, "lm_head": 6400},
    ),
    # the default of n_routed_experts, 288, is set behind the key that the config has
    "step3p5, num_local_experts": (
        {**SIZES, **SPARSE, "model_type": "step3p5", "num_local_experts": 4, "share_expert_dim": 16},
        {"embedding": 6400, "attention": 50176, "norm": 704, "mlp": 55296, "router": 18432, "experts": 1769472, "shared_experts": 3072,
         "lm_head": 6400},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_of_a_key(name: str) -> None:
    config, modules = COUNTED[name]
    result = derive(read_config(config, "m", "config.json")[0], Strategy())
    assert {m: int(result.value(f"N_{m}")) for m in MODULES if result.numbers.get(f"N_{m}")} == modules


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        read_config(config, "m", "config.json")
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {k: v for k, v in ZAMBA2.items() if k != "layers_block_type"} | {"layer_types": TYPES},
            "key 'layer_types' must be called layers_block_type",
        ),
        (ZAMBA2 | {"layer_types": TYPES[::-1]}, "which are two names of one setting"),
        (ZAMBA2 | {"head_dim": 24, "attention_head_dim": 48}, "which are two names of one size"),
        (ZAMBA2 | {"head_dim": 24, "use_shared_attention_adapter": True}, "key 'head_dim' must be 32 with use_shared_attention_adapter"),
        (ZAMBA2 | {"attention_hidden_size": 96}, "key 'attention_hidden_size' must be twice hidden_size, which is 128, not 96"),
        (ZAMBA2 | {"mamba_headdim": 8}, "key 'mamba_headdim' must be mamba_expand * hidden_size over n_mamba_heads, which is 16, not 8"),
        (ZAMBA2 | {"hybrid_layer_ids": [3]}, "key 'hybrid_layer_ids' must be the hybrid layers of layers_block_type, which is [1, 3], not [3]"),
        (
            SIZES | {"model_type": "llama", "per_layer_config": {"1": {"intermediate_size": 32}}},
            "key 'per_layer_config' gives layers keys of their own",
        ),
        (
            {**SIZES, **NEMOTRON, "attention_head_dim": 16},
            "key 'attention_head_dim' must be given as head_dim, which transformers reads (128 without it)",
        ),
        (DBRX | {"hidden_size": 64}, "key 'hidden_size' must be given as d_model, by which experts are sized (2048 without it), not 64"),
        (DBRX | {"d_model": 64, "hidden_size": 128}, "key 'd_model' is 64 and 'hidden_size' is 128, which are two names of one size"),
        ({**SIZES, **LATENT, "model_type": "glm4_moe_lite", "head_dim": 12, "qk_rope_head_dim": 8}, "which are two names of one size"),
        (
            {**SIZES, "model_type": "exaone", "num_key_value_heads": 4, "hidden_act": "silu", "activation_function": "gelu"},
            "which are two names of one setting",
        ),
    ],
)
def test_keys_that_do_not_agree(config: dict[str, Any], words: str) -> None:
    assert words in refusal(config)


def test_keys_that_agree_are_all_mapped() -> None:
    saved = {
        "attention_head_dim": 32,
        "head_dim": 32,
        "attention_hidden_size": 128,
        "mamba_headdim": 16,
        "hybrid_layer_ids": [1, 3],
        "layer_types": TYPES,
    }
    for config, keys in ((ZAMBA2 | saved, saved), (DBRX | {"d_model": 64, "hidden_size": 64}, ("d_model", "hidden_size"))):
        told = {key: fate for key, fate, _ in read_config(config, "m", "config.json")[1]}
        assert {told[key] for key in keys} == {"mapped"}


@pytest.mark.parametrize(
    ("config", "key", "words"),
    [
        (
            {**SIZES, "model_type": "exaone_moe", "num_key_value_heads": 2, "num_experts_per_tok": 2, "n_routed_experts": 4},
            "n_routed_experts",
            "num_experts is",
        ),
        ({**SIZES, "model_type": "phimoe", "num_key_value_heads": 2, "num_experts": 4}, "num_experts", "num_local_experts is"),
        ({**SIZES, "model_type": "gpt_oss", "num_key_value_heads": 2, "experts_per_token": 2}, "experts_per_token", "num_experts_per_tok is"),
    ],
)
def test_names_that_transformers_does_not_know_are_not_read(config: dict[str, Any], key: str, words: str) -> None:
    """The model is the one that a config without the key makes."""
    model, rows = read_config(config, "m", "config.json")
    assert ("no cost effect", f"not read by transformers: {words}") in {row[1:] for row in rows if row[0] == key}
    assert model == read_config({name: value for name, value in config.items() if name != key}, "m", "config.json")[0]


@pytest.mark.parametrize(("model_type", "own"), [("ctrl", "dff"), ("opt", "ffn_dim"), ("xglm", "ffn_dim"), ("distilbert", "hidden_dim")])
def test_a_width_is_asked_for_by_the_name_that_transformers_reads(model_type: str, own: str) -> None:
    assert f"key '{own}' is missing" in refusal({**SIZES, "model_type": model_type})


def test_keys_of_a_mixer_that_no_layer_has_are_known() -> None:
    told = {key: (fate, note) for key, fate, note in read_config({**SIZES, **NEMOTRON, "mamba_num_heads": 4}, "m", "config.json")[1]}
    assert told["mamba_num_heads"] == ("no cost effect", "no layer uses it")


ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}}
ODD = SIZES | {"hidden_size": 36}
# without RoPE unless it says so
GRANITE = {"model_type": "granitemoehybrid", "num_local_experts": 0, "mamba_n_heads": 8, "layer_types": ["attention"] * 4}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        # transformers refuses the first two itself; of the others queries and tables of RoPE do not fit, or (heads of one) make heads of two
        (SIZES | {"model_type": "llama", "head_dim": 9}, "key 'head_dim' must be even: RoPE turns pairs of elements, not 9"),
        (SIZES | GRANITE | {"head_dim": 9}, "key 'head_dim' must be even: transformers refuses others"),
        (SIZES | {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 3}, "key 'head_dim' must be even: RoPE turns pairs"),
        (SIZES | {"model_type": "llama", "head_dim": 1}, "key 'head_dim' must be even: RoPE turns pairs of elements, not 1"),
        (ODD | {"model_type": "mixtral", "num_key_value_heads": 2}, "keys 'hidden_size' 36 and 'num_attention_heads' 4 give heads of 9 elements"),
        (ODD | {"model_type": "modernbert"}, "give heads of 9 elements, which must be even: RoPE turns pairs of them"),
        (SIZES | LATENT | {"model_type": "deepseek_v3", "qk_rope_head_dim": 7}, "key 'qk_rope_head_dim' must be even"),
        ({"model_type": "gptj", "vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 5}, "key 'rotary_dim' must be even"),
        (SIZES | {"model_type": "stablelm", "hidden_size": 3, "num_key_value_heads": 4}, "key 'num_attention_heads' is 4, which does not divide"),
        # heads of 14, cut at 3 elements
        ({**SIZES, "hidden_size": 56, "model_type": "phi", **ROTARY}, "key 'rope_parameters.partial_rotary_factor' must be such that"),
        ({**SIZES, "hidden_size": 56, "model_type": "persimmon", "partial_rotary_factor": 0.5}, "key 'partial_rotary_factor' must be such that"),
    ],
)  # fmt: skip
def test_heads_that_rope_does_not_turn_in_pairs_are_refused(config: dict[str, Any], words: str) -> None:
    assert words in refusal(config)


@pytest.mark.parametrize(
    "config",
    [
        # no layer turns; learned positions; a part that is rounded up to pairs, of the head or of a table
        ODD | GRANITE,
        {"model_type": "gpt2", "vocab_size": 100, "n_embd": 36, "n_layer": 2, "n_head": 4},
        ODD | {"model_type": "glm4_moe", "num_key_value_heads": 2, "moe_intermediate_size": 32, "head_dim": 9, "num_experts_per_tok": 2},
        {**SIZES, "hidden_size": 56, "model_type": "phi3", **ROTARY},
        SIZES | {"model_type": "smollm3", "hidden_size": 36, "no_rope_layers": [0, 0, 0, 0]},
        SIZES | {"model_type": "kimi_linear", "qk_rope_head_dim": 7, "moe_intermediate_size": 32, "num_experts_per_token": 2},
    ],
)
def test_heads_that_are_not_turned_whole_may_be_odd(config: dict[str, Any]) -> None:
    """As transformers runs each of these."""
    assert derive(read_config(config, "m", "config.json")[0], Strategy()).value("N") > 0
