"""Hugging Face configs: what is read, what is refused, and that every model file reads back as written."""

from __future__ import annotations

import copy
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.hf import SUPPORTED, read_config
from symsim.inputs.hf.families import FAMILIES
from symsim.inputs.hf.family import _facts
from symsim.inputs.hf.refused import REFUSED
from symsim.inputs.layer_pattern import format_layers, parse_layers
from symsim.inputs.models import format_model, load_model
from symsim.inputs.reading import read_yaml
from symsim.inputs.strategy import Strategy

MODELS = sorted((Path(__file__).parent.parent / "models").glob("*.yaml"))

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_group": 8,
    "topk_group": 4,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "quantization_config": {"quant_method": "fp8"},
}
# the sizes without which no architecture is read, as each family spells them
SIZES: dict[str, dict[str, Any]] = {
    "bitnet": {"num_key_value_heads": 8},
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4},
    "bloom": {"hidden_size": 64, "n_layer": 4, "n_head": 4},
    "mpt": {"d_model": 64, "n_layers": 4, "n_heads": 4},
    "dbrx": {"d_model": 64, "n_layers": 4, "n_heads": 4},
    **{name: {"n_embd": 2048, "n_layer": 4, "n_head": 32} for name in ("gptj", "codegen", "gpt_bigcode")},
    "gpt_neo": {"hidden_size": 64, "num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]]},
    "openai-gpt": {"n_embd": 2048, "n_layer": 4, "n_head": 32},
    "ctrl": {"n_embd": 2048, "n_layer": 4, "n_head": 32, "dff": 128},
    "distilbert": {"dim": 64, "n_layers": 4, "n_heads": 4, "hidden_dim": 128},
    "electra": {"embedding_size": 512},
    "gpt_neox_japanese": {"intermediate_multiple_size": 2},
    "big_bird": {"attention_type": "original_full"},
    **{name: {"emb_dim": 2048, "n_layers": 4, "n_heads": 32} for name in ("xlm", "flaubert")},
    "xglm": {"d_model": 64, "num_layers": 4, "attention_heads": 4, "ffn_dim": 128},
    "kosmos_2_text_model": {"embed_dim": 64, "layers": 4, "attention_heads": 4, "ffn_dim": 128},
    "opt": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "ffn_dim": 128},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "deepseek_ocr2_text": {"num_experts_per_tok": 2},
    "helium": {"head_dim": 64, "num_key_value_heads": 4},
    "gemma3n_text": {"num_kv_shared_layers": 2},
    "mamba2": {"num_heads": 64},
    "zamba2": {"layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 8, "n_shared_experts": 1},
}


def small(model_type: str) -> dict[str, Any]:
    """The shortest config of a family: transformers' defaults for everything but the sizes."""
    plain = {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32, "intermediate_size": 128}
    own = SIZES.get(model_type, {})
    sizes = own if {"n_embd", "n_layer", "n_layers", "num_layers", "ffn_dim"} & own.keys() else plain | own
    return {"model_type": model_type, "vocab_size": 256, **sizes}


def read(config: Any) -> Architecture:
    return read_config(config, "m", "config.json")[0]


def fates(config: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {key: (fate, note) for key, fate, note in read_config(config, "m", "config.json")[1]}


def refusal(config: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(config)
    message = str(caught.value)
    assert "config.json" in message and "\n" not in message
    return message


@pytest.mark.parametrize("model_type", SUPPORTED)
def test_every_supported_type_reads(model_type: str) -> None:
    config = small(model_type)
    architecture, rows = read_config(config, "m", "config.json")
    assert architecture.num_layers == 4
    assert architecture.modelling == ("deepseek_v3" if model_type == "kimi_k2" else model_type)
    told = [key for key, fate, _ in rows if fate != "default"]
    assert told == list(config)
    assert not [row for row in rows if row[1] in ("unknown", "refused")]


@pytest.mark.parametrize("model_type", sorted(set(SUPPORTED) - {"kimi_k2"}))
def test_every_key_of_a_config_class_is_accounted_for(model_type: str) -> None:
    """A config with every key that transformers' class declares: none is unknown. DBRX's tables are read by their keys."""
    facts, config = _facts()[model_type], small(model_type)
    spelled = [{ours, *theirs} for ours, theirs in FAMILIES[model_type].names.items()]
    written = set(config).union(*(names for names in spelled if names & config.keys()))
    config |= {key: value for key, value in facts["defaults"].items() if key not in written and key not in ("attn_config", "ffn_config")}
    assert [key for key, (fate, _) in fates(config).items() if fate == "unknown"] == []


def test_llama3_8b() -> None:
    architecture = read(LLAMA)
    assert architecture.hidden_size == 4096 and architecture.query_groups == 8 and architecture.head_dim == 128
    assert format_layers(architecture.layers) == "32 * dense"
    assert architecture.mlp is not None and architecture.mlp.ffn_hidden_size == 14336 and architecture.mlp.gated
    assert not architecture.attention.qkv_bias and not architecture.tie_word_embeddings


def test_every_key_is_accounted_for() -> None:
    told = fates(LLAMA)
    assert list(LLAMA) == [key for key in told if told[key][0] != "default"]
    assert told["num_key_value_heads"] == ("mapped", "attention.num_query_groups")
    assert told["rope_theta"][0] == told["bos_token_id"][0] == told["torch_dtype"][0] == "no cost effect"


def test_unknown_keys_are_listed() -> None:
    assert fates(LLAMA | {"frobnicate": 3})["frobnicate"][0] == "unknown"


def test_omitted_keys_take_transformers_defaults() -> None:
    config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"} | {"model_type": "mistral"}
    architecture, told = read(config), fates(config)
    assert architecture.query_groups == 8 and architecture.layer_kinds["dense"].window == 4096
    assert told["num_key_value_heads"] == ("default", "omitted; transformers takes 8")
    plain = {k: v for k, v in LLAMA.items() if k not in ("model_type", "num_key_value_heads")}
    moe = read({"model_type": "deepseek_v3", **plain}).moe
    assert moe is not None and (moe.moe_router_topk, moe.num_moe_experts, moe.moe_router_num_groups) == (8, 256, 8)


def test_deepseek_v3() -> None:
    architecture, told = read(DEEPSEEK), fates(DEEPSEEK)
    assert format_layers(architecture.layers) == "3 * dense + 58 * moe"
    assert architecture.attention.kind == "mla" and architecture.moe is not None
    assert architecture.moe.moe_router_enable_expert_bias == "buffer" and architecture.moe.moe_router_num_groups == 8
    assert architecture.mtp_num_layers == 0
    assert told["num_nextn_predict_layers"] == ("refused", "not built by transformers; train with mtp_num_layers=1")
    assert told["quantization_config"][0] == "refused"
    assert read(DEEPSEEK | {"model_type": "kimi_k2"}) == architecture


@pytest.mark.parametrize(
    ("changes", "pattern", "windows"),
    [
        ({"model_type": "qwen2", "num_key_value_heads": 8}, "8 * dense", {"dense": None}),
        (
            {"model_type": "qwen2", "num_key_value_heads": 8, "use_sliding_window": True, "sliding_window": 99, "max_window_layers": 6},
            "6 * full + 2 * local",
            {"full": None, "local": 99},
        ),
        ({"model_type": "mistral"}, "8 * dense", {"dense": 4096}),
        ({"model_type": "mistral", "sliding_window": None}, "8 * dense", {"dense": None}),
        ({"model_type": "gemma2"}, "4 * (local + full)", {"local": 4096, "full": None}),
        ({"model_type": "gemma3_text", "sliding_window": 512}, "5 * local + full + 2 * local", {"local": 512, "full": None}),
        ({"model_type": "gpt_oss"}, "4 * (local + full)", {"local": 128, "full": None}),
        ({"model_type": "llama4_text"}, "2 * (3 * chunked + nope)", {"chunked": 8192, "nope": None}),
        ({"model_type": "llama4_text", "no_rope_layers": []}, "2 * (3 * chunked + nope)", {"chunked": 8192, "nope": None}),
        (
            {"model_type": "llama4_text", "interleave_moe_layer_step": 2},
            "2 * (chunked_dense + chunked_moe + chunked_dense + nope_moe)",
            {"chunked_dense": 8192, "chunked_moe": 8192, "nope_moe": None},
        ),
        ({"model_type": "smollm3"}, "2 * (3 * full + nope)", {"full": None, "nope": None}),
        ({"model_type": "qwen3_next"}, "2 * (3 * linear + full)", {"linear": None, "full": None}),
        ({"model_type": "qwen3_5_text"}, "2 * (3 * linear + full)", {"linear": None, "full": None}),
        (
            {"model_type": "kimi_linear", "linear_attn_config": {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7]}},
            "linear_dense + 2 * linear_moe + nope_moe + 3 * linear_moe + nope_moe",
            {"linear_dense": None, "linear_moe": None, "nope_moe": None},
        ),
        ({"model_type": "lfm2", "full_attn_idxs": [2, 5]}, "2 * (2 * conv + full) + 2 * conv", {"conv": None, "full": None}),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [0], "decoder_sparse_step": 2}, "4 * (dense + moe)", {"dense": None, "moe": None}),
        ({"model_type": "ernie4_5_moe"}, "dense + 7 * moe", {"dense": None, "moe": None}),
    ],
)
def test_layer_patterns(changes: dict[str, Any], pattern: str, windows: dict[str, int | None]) -> None:
    architecture = read({"hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 32, "intermediate_size": 64, "vocab_size": 99} | changes)
    assert parse_layers(pattern) == architecture.layers or format_layers(architecture.layers) == pattern
    assert {name: kind.window for name, kind in architecture.layer_kinds.items()} == windows
    assert all(kind.rope == (not name.startswith("nope")) for name, kind in architecture.layer_kinds.items())
    assert all(kind.chunked == name.startswith("chunked") for name, kind in architecture.layer_kinds.items())


@pytest.mark.parametrize(("wrapper", "text_type"), [("gemma3", "gemma3_text"), ("llama4", "llama4_text"), ("mistral3", "mistral")])
def test_text_tower_of_a_multimodal_config(wrapper: str, text_type: str) -> None:
    text = small(text_type)
    config = {"model_type": wrapper, "text_config": text, "vision_config": {"hidden_size": 1152}}
    told = fates(config)
    assert read(config).modelling == text_type
    assert told["text_config"][0] == "mapped" and text_type in told["text_config"][1]
    assert told["vision_config"][0] == "refused" and told["text_config.hidden_size"][0] == "mapped"


@pytest.mark.parametrize(
    ("wrapper", "tower", "outer", "inner", "tied"),
    [
        ("gemma3", "gemma3_text", {}, {}, True),
        ("gemma3", "gemma3_text", {}, {"tie_word_embeddings": False}, True),
        ("gemma3", "gemma3_text", {"tie_word_embeddings": False}, {}, False),
        ("gemma3", "gemma3_text", {"tie_word_embeddings": False}, {"tie_word_embeddings": True}, False),
        ("mistral3", "mistral", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, True),
        ("mistral3", "mistral", {"tie_word_embeddings": False}, {"tie_word_embeddings": True}, False),
        ("mistral3", "mistral", {}, {"tie_word_embeddings": False}, True),
        ("internvl", "qwen2", {}, {"tie_word_embeddings": False}, True),
        ("llama4", "llama4_text", {"tie_word_embeddings": True}, {}, False),
        ("llama4", "llama4_text", {"tie_word_embeddings": False}, {"tie_word_embeddings": True}, True),
        ("idefics3", "llama", {}, {"tie_word_embeddings": True}, False),
        ("llava", "llama", {"tie_word_embeddings": False}, {"tie_word_embeddings": True}, True),
        ("llava", "llama", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, True),
        ("voxtral", "llama", {}, {"tie_word_embeddings": True}, False),
        ("a_wrapper_unheard_of", "llama", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, True),
        ("a_wrapper_unheard_of", "llama", {}, {"tie_word_embeddings": True}, True),
    ],
)
def test_whose_tie_word_embeddings_decides(wrapper: str, tower: str, outer: dict[str, Any], inner: dict[str, Any], tied: bool) -> None:
    """As transformers 5.23 built each of these on the meta device (_tied_weights_keys and the wrappers' defaults)."""
    text = small(tower) | inner
    config = {"model_type": wrapper, "text_config": text} | outer
    assert read(config).tie_word_embeddings == tied
    told = fates(config)
    if inner and inner["tie_word_embeddings"] != tied:
        assert told["text_config.tie_word_embeddings"] == ("no cost effect", "overruled by the wrapper's")


def test_sizes_that_a_text_config_omits_are_those_of_transformers() -> None:
    """llava-1.5-7b-hf writes vocab_size alone; Voxtral's defaults are its own, not Llama's."""
    llava = read({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    assert (llava.hidden_size, llava.num_layers, llava.vocab_size, llava.query_groups) == (4096, 32, 32064, 32)
    voxtral = {"model_type": "voxtral", "text_config": {"model_type": "llama", "num_attention_heads": 32}}
    assert (read(voxtral).hidden_size, read(voxtral).head_dim, read(voxtral).query_groups) == (3072, 128, 8)
    assert fates(voxtral)["text_config.head_dim"] == ("default", "omitted; transformers takes 128")
    assert "hidden_size" in refusal({"model_type": "llama", "vocab_size": 32064})


@pytest.mark.parametrize(
    ("model_type", "key", "more"),
    [
        # heads 32 of 64: q, k, v, o; MLP 128; shared experts 2 * 1536; one dense layer, three of experts; a tied head of 256
        ("ernie4_5_moe", "use_bias", 256 + 4 * (2 * 2048 + 2 * 4 * 64) + 2 * 128 + 2048 + 3 * (2 * 3072 + 2048)),
        # first_k_dense_replace 0: four layers of experts, shared experts 2 * 1407
        ("deepseek_v2", "mlp_bias", 4 * (2 * 2814 + 2048)),
        # a weight and a bias of 64 for queries and keys
        ("phi", "qk_layernorm", 4 * 2 * 2 * 64),
    ],
)
def test_biases_and_norms_that_a_key_adds(model_type: str, key: str, more: int) -> None:
    without, with_it = (derive(read(small(model_type) | {key: value}), Strategy()).value("N") for value in (False, True))
    assert with_it - without == more


@pytest.mark.parametrize(
    ("model_type", "maps"),
    [
        (name, 4)
        for name in ("cohere2", "cohere_compass_text", "phi4_multimodal", "qwen2_5_omni_text", "glm_ocr_text", "emu3_text_model", "phi", "gte")
    ],
)
def test_heads_of_another_width_are_read(model_type: str, maps: int) -> None:
    """transformers 5.24 takes config.head_dim wherever a config has one: 4 more columns of queries, keys, values and rows of the output."""
    config = small(model_type) | {"num_key_value_heads": 32}
    narrow, wide = (derive(read(config | {"head_dim": width}), Strategy()).value("N_attention") for width in (40, 44))
    heads = 4 * 32 * 4
    biases = {"phi": 3, "gte": 3, "phi4_multimodal": 0, "qwen2_5_omni_text": 3}.get(model_type, 0)
    assert wide - narrow == heads * (maps * 2048 + biases)


@pytest.mark.parametrize(("model_type", "more"), [("bitnet", {}), ("olmoe", {}), ("phi", {"qk_layernorm": True})])
def test_heads_whose_norm_is_as_wide_as_the_model_are_no_others(model_type: str, more: dict[str, Any]) -> None:
    assert "key 'head_dim' must be hidden_size / num_attention_heads = 64, not 40" in refusal(small(model_type) | more | {"head_dim": 40})


@pytest.mark.parametrize(
    ("model_type", "more", "said"),
    [
        ("axk2", {"n_group": 2, "topk_group": None}, "key 'topk_group' must be given, as n_group is, or neither, not None"),
        ("axk2", {"n_group": None, "topk_group": 1}, "key 'n_group' must be given, as topk_group is, or neither, not None"),
        ("esmc", {"num_key_value_heads": 1}, "key 'num_key_value_heads' must be num_attention_heads"),
        ("internlm3", {"attention_bias": True}, "key 'attention_bias' must be as mlp_bias is: transformers refuses others, not True"),
        ("deepseek_v4", {"scoring_func": "softmax"}, "key 'scoring_func'"),
        ("deepseek_v4", {"mlp_layer_types": ["sparse"] * 4}, "key 'mlp_layer_types' must be a list of moe and hash_moe"),
        ("gemma4_text", {"sliding_window": None}, "key 'sliding_window' must be a positive integer"),
        ("gemma3n_text", {"sliding_window": None}, "key 'sliding_window' must be a positive integer"),
        ("gptj", {"rotary_dim": None}, "key 'rotary_dim' is null, which transformers refuses; give a value, or leave it out"),
        ("llama", {"attention_bias": None}, "key 'attention_bias' is null, which transformers refuses"),
        ("qwen3", {"head_dim": None}, "key 'head_dim' is null, which transformers refuses"),
        ("glm", {"num_key_value_heads": None}, "key 'num_key_value_heads' is null, which transformers refuses"),
        ("cohere_compass_text", {"rope_parameters": {"sliding_attention": {}}}, "for each type of layer, of which it lacks full_attention"),
        (
            "gemma4_text",
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            "for each type of layer, of which it lacks sliding_attention",
        ),
        ("mellum", {"rope_parameters": {"sliding_attention": {"rope_type": "default"}}}, "for each type of layer, of which it lacks full_attention"),
        (
            "lfm3",
            {"layer_types": ["conv", "conv", "full_attention", "conv"], "rope_parameters": {"sliding_attention": {"rope_type": "default"}}},
            "for each type of layer, of which it lacks full_attention",
        ),
        (
            "gpt_oss",
            {"layer_types": ["sliding_attention"] * 4, "sliding_window": None},
            "key 'sliding_window' must be a positive integer where layer_types has sliding_attention, not None",
        ),
        (
            "cosmos3_edge_text",
            {"head_dim": 64},
            "key 'rope_parameters.mrope_section' must be three sections of half of a head's 64 elements together",
        ),
        ("cosmos3_edge_text", {"rope_parameters": {"rope_type": "default"}}, "key 'rope_parameters.mrope_section' must be three sections"),
    ],
)
def test_what_a_type_of_transformers_has_not_is_refused(model_type: str, more: dict[str, Any], said: str) -> None:
    assert said in refusal(small(model_type) | more)


def test_biases_of_emu3_and_layers_of_experts_of_axk1() -> None:
    emu = small("emu3_text_model") | {"num_key_value_heads": 32}
    more = derive(read(emu | {"attention_bias": True, "mlp_bias": True}), Strategy()).value("N") - derive(read(emu), Strategy()).value("N")
    assert more == 4 * (4 * 2048 + 2 * 128 + 2048)
    for given, experts in (({}, [1, 2, 3]), ({"first_k_dense_replace": 0}, [0, 1, 2, 3]), ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, [2])):
        made = read(small("axk1") | given)
        kinds = [made.layer_kinds[kind] for stretch in made.layers for kind in stretch.kinds * stretch.repeat]
        assert [i for i, kind in enumerate(kinds) if kind.ffn == "moe"] == experts
        assert [i for i, kind in enumerate(kinds) if "post_mlp" in (kind.norms or ())] == experts


def test_two_names_of_one_setting_agree() -> None:
    assert "key 'attention_bias' is false and 'qkv_bias' is true, which are two names of one setting" in refusal(
        small("molmo2_text") | {"attention_bias": False, "qkv_bias": True}
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # as the files of weights on the hub have them
        ("apertus-8b", 8_053_338_176),
        ("bert-base", 109_514_298),
        ("bert-large", 335_174_458),
        ("command-r7b", 8_028_033_024),
        ("distilbert-base", 66_985_530),
        ("ernie-4.5-0.3b", 360_748_032),
        ("exaone-4-32b", 32_003_216_384),
        ("gpt-j-6b", 6_050_882_784),
        ("gpt-neo-1.3b", 1_315_575_808),
        ("olmo3-7b", 7_298_011_136),
        ("opt-350m", 331_196_416),
        ("roberta-base", 124_697_433),
        ("roberta-large", 355_412_057),
        ("starcoder-15b", 15_517_456_384),
        ("xlm-roberta-base", 278_295_186),
    ],
)
def test_published_counts(name: str, parameters: int) -> None:
    assert derive(load_model(name).architecture, Strategy()).value("N") == parameters


def test_an_encoder_attends_both_ways_whatever_is_assumed_of_causal_masks() -> None:
    """Scores and values of bert-base: 4 s^2 h FLOPs a layer; as a decoder with causal=exact the half of it."""
    bert = load_model("bert-base").architecture
    decoder = bert.model_copy(update={"layer_kinds": {"dense": LayerKind()}})
    exact = {"causal": "exact"}
    both, one = (derive(model, Strategy(seq_length=512), exact).value("F") for model in (bert, decoder))
    assert both - one == 12 * 4 * 512 * 768 * (512 - Fraction(513, 2))
    assert derive(bert, Strategy(seq_length=512), {"causal": "full"}).value("F") == both


def test_norms_after_the_residual_and_a_narrower_table() -> None:
    """OPT-350m: two projections of 512 by 1024 beside what a table of 1024 would have; no norm at the end."""
    opt = load_model("opt-350m").architecture
    wide = derive(opt.model_copy(update={"embedding_size": None}), Strategy()).value("N")
    assert wide - derive(opt, Strategy()).value("N") == 50272 * 512 - 2 * 512 * 1024
    with pytest.raises(ValidationError, match="norms_after_residual"):
        Architecture.model_validate(opt.model_dump() | {"norms": ("pre_attention", "post_mlp")})


def test_flat_configs_of_qwen_vl_are_read() -> None:
    """Qwen2.5-VL's config.json on the hub has the text tower's keys beside vision_config."""
    text = {k: v for k, v in small("qwen2_5_vl_text").items() if k != "model_type"}
    config = {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32}, "tie_word_embeddings": True, **text}
    nested = {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32}, "tie_word_embeddings": True, "text_config": text}
    assert read(config) == read(nested) and read(config).tie_word_embeddings
    assert [key for key, fate, _ in read_config(config, "m", "config.json")[1] if fate == "unknown"] == []


def test_a_model_of_several_models_is_read_at_its_text_tower() -> None:
    """Qwen2.5-Omni's thinker is one of three models, and has the text tower."""
    thinker = {"text_config": {k: v for k, v in small("qwen2_5_omni_text").items() if k != "model_type"}, "vision_config": {"depth": 32}}
    config = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"hidden_size": 8}}
    assert read(config) == read({"model_type": "qwen2_5_omni_thinker", **thinker})
    told = fates(config)
    assert told["talker_config"][0] == told["thinker_config.vision_config"][0] == "refused"
    assert told["thinker_config.text_config.hidden_size"] == ("mapped", "hidden_size, layers, attention.kv_channels")
    assert "'thinker_config'" in refusal({"model_type": "qwen2_5_omni"})


@pytest.mark.parametrize(("model_type", "width"), [("distilbert", 64), ("gte", 2048), ("electra", 512)])
def test_a_masked_head_with_a_table_of_its_own(model_type: str, width: int) -> None:
    """One bias, tied or not: 256 words of a width more. BERT's and those after it have a second bias then, which nothing reads."""
    tied, own = (derive(read(small(model_type) | {"tie_word_embeddings": said}), Strategy()).value("N") for said in (True, False))
    assert own - tied == 256 * width
    assert "with two biases" in refusal(small("bert") | {"tie_word_embeddings": False})


@pytest.mark.parametrize(
    ("called", "said"),
    [
        ("LlamaForCausalLM", ""),
        (
            "LlamaForSequenceClassification",
            "LlamaForSequenceClassification is read as its model_type with a head of words (task_type=seq_cls: of classes)",
        ),
        ("LlamaForTokenClassification", "task_type=token_cls"),
        ("LlamaModel", "task_type=embedding: without"),
        ("LlamaForCausalLMEagle3", "LlamaForCausalLMEagle3 is read as its model_type"),
    ],
)
def test_a_class_with_another_head_is_named(tmp_path: Path, called: str, said: str) -> None:
    (tmp_path / "m.json").write_text(json.dumps(LLAMA | {"architectures": [called]}))
    note = load_model(str(tmp_path / "m.json")).note
    assert said in note if said else not note


@pytest.mark.parametrize("model_type", ["t5", "mllama", "longcat_flash", "zamba", "ouro"])
def test_what_is_refused_says_why(model_type: str) -> None:
    assert REFUSED[model_type] in refusal(small(model_type) | {"text_config": {}})


def test_norms_of_cohere_have_a_weight_for_every_head() -> None:
    """CohereAttention: q_norm and k_norm of (heads, head_dim); Qwen 3 has one of head_dim for all."""
    small = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 256}
    architecture = read_config({"model_type": "cohere", "use_qk_norm": True, **small}, "small", "config.json")[0]
    assert architecture.attention.qk_norm == "per_head"
    assert derive(architecture, Strategy()).value("N_norm") == 2 * (64 + 2 * 64) + 64


def test_phimoe_routes_to_two_experts_whatever_its_config_says() -> None:
    config = small("phimoe") | {"num_experts_per_tok": 4}
    architecture = read(config)
    assert architecture.moe is not None and architecture.moe.moe_router_topk == 2
    assert fates(config)["num_experts_per_tok"][0] == "no cost effect"


def test_a_fixed_tower_is_itself_whatever_it_is_called() -> None:
    text = small("gemma3_text") | {"model_type": "gemma2"}
    assert read({"model_type": "gemma3", "text_config": text}).modelling == "gemma3_text"


def test_unsupported_type_names_the_nearest() -> None:
    assert "'qwen3_moe'" in refusal(small("qwen3_mo"))
    assert "t5" in refusal(small("t5"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "4096"),
        ("hidden_size", 0),
        ("hidden_size", -4096),
        ("hidden_size", None),
        ("hidden_size", 4096.5),
        ("hidden_size", True),
        ("num_attention_heads", 33),
        ("num_key_value_heads", 5),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", []),
        ("hidden_act", "sillu"),
        ("hidden_act", 3),
        ("tie_word_embeddings", "yes"),
        ("attention_dropout", 2),
        ("attention_dropout", float("nan")),
        ("vocab_size", {}),
        ("model_type", None),
        ("model_type", 7),
        ("model_type", ["llama"]),
        ("is_encoder_decoder", True),
    ],
)
def test_a_wrong_value_names_its_key(key: str, value: Any) -> None:
    assert f"{key}" in refusal(LLAMA | {key: value})


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "model_type"])
def test_a_missing_key_is_named(key: str) -> None:
    assert key in refusal({k: v for k, v in LLAMA.items() if k != key})


@pytest.mark.parametrize(
    "changes",
    [
        {"num_experts_per_tok": 300},
        {"n_group": 7},
        {"first_k_dense_replace": -1},
        {"kv_lora_rank": None},
        {"v_head_dim": "128"},
        {"moe_intermediate_size": 0},
        {"num_experts_per_tok": 0},
    ],
)
def test_wrong_expert_values(changes: dict[str, Any]) -> None:
    assert next(iter(changes)) in refusal(DEEPSEEK | changes)


@pytest.mark.parametrize(
    "config", [[], None, 3, "llama", {}, {"text_config": {}}, {"model_type": "gemma3"}, {"model_type": "gemma3", "text_config": 1}]
)
def test_not_a_config(config: Any) -> None:
    assert refusal(config).startswith("config.json")


@pytest.mark.long_after(60)
@pytest.mark.parametrize("model_type", SUPPORTED)
def test_garbage_is_refused_with_a_sentence(model_type: str) -> None:
    """Any one value replaced by junk either reads or is refused: no other exception gets out."""
    generator = random.Random(model_type)
    junk = [None, True, -1, 0, 2.5, "x", [], {}, [1, "a"], {"a": 1}, 10**30, "9" * 200]
    base = small(model_type) | {
        "layer_types": None,
        "rope_parameters": None,
        "sliding_window": None,
        "num_key_value_heads": 4,
        "num_experts": 4,
        "n_group": 1,
        "attn_config": {},
        "ffn_config": {},
        "head_dim": 64,
        "no_rope_layers": None,
        "tie_word_embeddings": False,
    }
    for key in base:
        for value in generator.sample(junk, 8):
            config = copy.deepcopy(base) | {key: value}
            try:
                read(config)
            except InputError as error:
                assert "config.json" in str(error) and "\n" not in str(error)


def test_there_are_models() -> None:
    assert len(MODELS) >= 45
    assert {"deepseek-v3", "llama3-70b", "llama3-8b", "gpt3-175b", "mixtral-8x7b"} <= {path.stem for path in MODELS}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_model_file_reads_back(path: Path) -> None:
    architecture = Architecture.model_validate(dict(read_yaml(path).data))
    assert architecture.name == path.stem and architecture.source
    assert parse_layers(format_layers(architecture.layers)) == architecture.layers
    assert Architecture.model_validate(json.loads(architecture.model_dump_json())) == architecture
    assert format_model(architecture) == path.read_text(encoding="utf-8")


def test_latents_that_layers_take_over_are_refused() -> None:
    """Mistral Large 4: a layer's latents of keys are its own, and layers without positions are a kind apart."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 50}
    config = {"model_type": "mistral_large4_text", "no_rope_layers": [1, 0, 1], **sizes}
    model = read_config(config | {"kv_source_layers": [0, 1, 2]}, "large", "config.json")[0]
    assert [model.layer_kinds[k].rope for s in model.layers for k in s.kinds * s.repeat] == [True, False, True]
    with pytest.raises(InputError, match="key 'kv_source_layers' has layers take latents of keys from others"):
        read_config(config | {"kv_source_layers": [0, 1, 0]}, "large", "config.json")


def test_null_where_transformers_takes_it() -> None:
    """Llama's heads of keys are as many as the others; of Mamba-2's groups only the type has null, and a size is needed."""
    assert read(small("llama") | {"num_key_value_heads": None}) == read(small("llama"))
    assert "key 'mamba_n_groups' must be a positive integer" in refusal(small("bamba") | {"mamba_n_groups": None})


def test_another_tower_is_projected_to_the_size_of_the_text() -> None:
    """transformers refuses Granite Docling's otherwise; its own default is 1,024."""
    text = small("granite_docling_text")
    whole = {"model_type": "granite_docling", "text_config": text, "vision_config": {"out_hidden_size": text["hidden_size"]}}
    assert read_config(whole, "x", "config.json")[0].hidden_size == text["hidden_size"]
    said = f"key 'vision_config.out_hidden_size' must be text_config's hidden_size {text['hidden_size']}, not 1024"
    assert text["hidden_size"] != 1024 and said in refusal(whole | {"vision_config": {}}) and said in refusal(whole | {"vision_config": None})
