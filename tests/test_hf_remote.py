"""Configs of model types whose code comes with their weights: parameters as the published weights have them, and what becomes of every key.

Sources: config.json of each repository on the hub, and total_size of its index of weights over the bytes of a number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.inputs.hf import read_config

_LLAMA = {"hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True}


def _sizes(hidden: int, width: int, layers: int, heads: int, words: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": words}
    return _LLAMA | sizes | more


def _qwen(hidden: int, width: int, layers: int, heads: int, words: int) -> dict[str, Any]:
    config = _sizes(hidden, width, layers, heads, words, model_type="qwen", kv_channels=128, no_bias=True, rotary_pct=1.0, use_logn_attn=True)
    del config["hidden_act"]
    return config | {"attn_dropout_prob": 0.0, "emb_dropout_prob": 0.0, "bf16": False, "fp16": False, "fp32": False, "onnx_safe": None}


def _chatglm(layers: int, words: int, **more: Any) -> dict[str, Any]:
    said = {"add_bias_linear": False, "add_qkv_bias": True, "multi_query_attention": True, "rmsnorm": True, "post_layer_norm": True}
    said |= {"original_rope": True, "apply_residual_connection_post_layernorm": False, "hidden_dropout": 0.0, "layernorm_epsilon": 1e-5}
    sizes = {"hidden_size": 4096, "ffn_hidden_size": 13696, "kv_channels": 128, "multi_query_group_num": 2, "num_attention_heads": 32}
    classes = {"model_type": "chatglm", "architectures": ["ChatGLMModel"]}
    return classes | said | sizes | {"num_layers": layers, "padded_vocab_size": words, "tie_word_embeddings": False} | more


INTERNLM2 = _sizes(4096, 14336, 32, 32, 92544, model_type="internlm2", num_key_value_heads=8, bias=False, attn_implementation="eager")
LING = _sizes(2048, 5632, 28, 16, 126464, model_type="bailing_moe", architectures=["BailingMoeForCausalLM"]) | {
    **{"num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408, "num_key_value_heads": 4},
    **{"first_k_dense_replace": 0, "head_dim": 128, "norm_topk_prob": True, "norm_head": True, "norm_softmax": False, "use_bias": False},
    **{"use_qkv_bias": False, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "output_dropout": 0.0},
}
LING_2 = _sizes(2048, 5120, 20, 16, 157184, model_type="bailing_moe", architectures=["BailingMoeV2ForCausalLM"]) | {
    **{"num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 512, "num_key_value_heads": 4},
    **{"first_k_dense_replace": 1, "head_dim": 128, "norm_topk_prob": True, "n_group": 8, "topk_group": 4, "partial_rotary_factor": 0.5},
    **{"use_qk_norm": True, "use_qkv_bias": False, "use_bias": False, "score_function": "sigmoid", "moe_router_enable_expert_bias": True},
}
DEEPSEEK = _sizes(2048, 10944, 28, 16, 102400, model_type="deepseek", num_key_value_heads=16, attention_bias=False) | {
    **{"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "norm_topk_prob": False},
    **{"first_k_dense_replace": 1, "moe_layer_freq": 1, "scoring_func": "softmax", "seq_aux": True, "aux_loss_alpha": 0.001},
}
MINIMAX = _sizes(6144, 9216, 80, 64, 200064, model_type="minimax_text_01", num_key_value_heads=8, head_dim=128, rotary_dim=64) | {
    **{"attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10, "num_local_experts": 32, "num_experts_per_tok": 2, "shared_intermediate_size": 0},
    **{"layernorm_mlp_alpha": 3.55, "layernorm_full_attention_beta": 1.0, "postnorm": True, "shared_moe_mode": "sigmoid", "sliding_window": None},
}
MINICPM = _sizes(2304, 5760, 40, 36, 122753, model_type="minicpm", scale_emb=12, scale_depth=1.4, dim_model_base=256, num_key_value_heads=36)
del MINICPM["tie_word_embeddings"]
BAICHUAN = {"model_type": "baichuan", "model_max_length": 4096, "z_loss_weight": 0}
TOTALS = {
    "internlm2-7b": (INTERNLM2, 7_737_708_544),
    "Baichuan2-7B": (_sizes(4096, 11008, 32, 32, 125696, max_position_embeddings=4096) | BAICHUAN, 7_505_973_248),
    "Baichuan2-13B": (_sizes(5120, 13696, 40, 40, 125696) | BAICHUAN, 13_896_668_160),
    # less a table of frequencies, of 32
    "chatglm3-6b": (_chatglm(28, 65024), 6_243_584_000),
    "glm-4-9b": (_chatglm(40, 151552, vocab_size=151552, num_hidden_layers=40, rope_ratio=500), 9_399_951_360),
    "Qwen-7B": (_qwen(4096, 22016, 32, 32, 151936), 7_721_324_544),
    "Qwen-14B": (_qwen(5120, 27392, 40, 40, 152064), 14_167_290_880),
    "Qwen-72B": (_qwen(8192, 49152, 80, 64, 152064), 72_287_920_128),
    "deepseek-moe-16b": (DEEPSEEK, 16_375_728_128),
    "Ling-lite": (LING, 16_801_974_272),
    # less what is added to the scores of 256 experts in 19 layers, which is no parameter
    "Ling-mini-2.0": (LING_2, 16_255_643_392 - 19 * 256),
    "MiniCPM-2B": (MINICPM, 2_724_880_896),
    "MiniMax-Text-01": (MINIMAX, 456_089_655_296),
}


@pytest.mark.parametrize("name", TOTALS)
def test_parameters_are_those_of_the_weights(name: str) -> None:
    config, total = TOTALS[name]
    architecture, rows = read_config(config, name, name)
    assert symsim.derive(architecture).value("params.total") == total
    assert {key for key, fate, _ in rows if fate in ("unknown", "refused")} == set()


def test_what_is_kept_of_the_code() -> None:
    first, second = (read_config(config, "ling", "ling")[0] for config in (LING, LING_2))
    assert first.moe is not None and second.moe is not None
    assert (first.moe.moe_router_score_function, second.moe.moe_router_score_function) == ("softmax", "sigmoid")
    assert (first.attention.qk_norm, second.attention.qk_norm, second.attention.rotary_fraction) == ("none", "head", 0.5)
    assert (second.moe.moe_router_num_groups, second.moe.moe_router_group_topk, second.moe.norm_topk_prob) == (8, 4, True)
    positions = [read_config(TOTALS[f"Baichuan2-{size}"][0], "b", "b")[0].position_embedding for size in ("7B", "13B")]
    assert positions == ["rope", "alibi"]
    kinds = read_config(MINIMAX, "m", "m")[0]
    assert symsim.derive(kinds).value("params.total") and str(kinds.layers) == str(symsim.load_model("minimax-text-01").layers)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LING | {"use_bias": True}, "key 'use_bias' is True, but experts with biases are not read (where"),
        (_chatglm(28, 150528, position_encoding_2d=True), "key 'position_encoding_2d' is True, but the first ChatGLM"),
        (MINICPM | {"num_experts": 8}, "key 'num_experts' is 8, but MiniCPM's experts are not read"),
        (MINIMAX | {"attn_type_list": [2] * 80}, "key 'attn_type_list' must be a list of 0 and 1, not 2"),
        (MINIMAX | {"shared_intermediate_size": 64}, "key 'shared_intermediate_size' is 64, but its shared experts are not read"),
        ({"model_type": "internlm4"}, "did you mean 'internlm"),
    ],
)
def test_what_is_not_read_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_config(config, "x", "x")
    assert said in str(refused.value)


@pytest.mark.parametrize("held", ["llm_config", "language_config"])
def test_a_text_tower_stands_under_other_keys_too(held: str, tmp_path: Path) -> None:
    """InternVL's and Ovis' config has an llm_config, DeepSeek-VL2's a language_config."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "internvl_chat", held: INTERNLM2, "vision_config": {"hidden_size": 1024}}))
    assert symsim.derive(tmp_path).value("params.total") == 7_737_708_544
    _, rows = read_config(json.loads((tmp_path / "config.json").read_text()), "x", "x")
    found = {key: fate for key, fate, _ in rows}
    assert found[f"{held}.hidden_size"] == "mapped" and found["vision_config"] == "refused"
    assert not any(key.startswith("text_config") for key in found)


def test_numbers_that_are_none_stand_in_configs(tmp_path: Path) -> None:
    """Python writes Infinity into the config.json of a state space (Mamba-Codestral, Nemotron-H), transformers 5 an object."""
    values = []
    for limit in ("Infinity", '{"__float__": "Infinity"}'):
        (tmp_path / "config.json").write_text(f'{{"model_type": "nemotron_h", "time_step_limit": [0.0, {limit}]}}')
        values.append(symsim.derive(tmp_path / "config.json").value("params.total"))
    assert values[0] == values[1] > 0
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": Infinity}')
    with pytest.raises(InputError, match="key 'hidden_size' must be a positive integer"):
        symsim.derive(tmp_path / "config.json")
