"""Decoders of dense blocks, a table each (source: transformers 5.23, as in families.py); their defaults are the facts of family.py."""

from __future__ import annotations

from dataclasses import replace

from symsim.inputs.hf.config import ACTIVATIONS, Config, Fields, choose, flag, given, number
from symsim.inputs.hf.families_encoder import MODERN
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import (
    BIASED,
    FOUR_NORMS,
    GATED,
    GEMMA,
    LAYERNORM,
    MLA,
    PLAIN,
    SQUARE,
    TWO_NORMS,
    joined,
    minicpm_values,
    qwen_windows,
    windowed,
)
from symsim.inputs.hf.patterns import (
    compass_mixers,
    every,
    every_from_the_last,
    granite_rope,
    listed,
    starting,
    turned_where_windowed,
    where_no_window,
)
from symsim.inputs.hf.patterns_heads import tabled
from symsim.inputs.hf.rotary import cut_fraction, in_three, rotary_fraction

# fmt: off


_BIASED_MLP = GATED | {"bias": flag("mlp_bias")}


_LLAMA_BLOCKS = Family(attention=BIASED, mlp=_BIASED_MLP, heads_divide=True)


def _one_bias(c: Config) -> bool:
    """configuration_internlm3.py: the Llama code has one bias for queries, keys, values and what follows attention."""
    if c.flag("attention_bias") != c.flag("mlp_bias"):
        raise c.refuse(c.look("attention_bias")[0], f"as {c.look('mlp_bias')[0]} is: transformers refuses others", c.look("attention_bias")[1])
    return c.flag("attention_bias")


_LATENT_UNREAD = {"num_key_value_heads": "latent attention has a key and a value for every query head", "head_dim": "set by qk_rope_head_dim",
                  "qk_head_dim": "the sum of the two given", "embedding_initializer_range": "initial weights",
                  "scale_emb": "scale, clamp or noise, elementwise", "scale_depth": "scale, clamp or noise, elementwise",
                  "dim_model_base": "scale, clamp or noise, elementwise"}


_COHERE: Fields = {"normalization": "LayerNorm", "parallel_block": True, "norms": ("pre_attention",)}


def _pruned(c: Config) -> bool:
    """configuration_apertus1p5.py: a head of the first rows alone."""
    return c.optional("output_vocab_size") not in (None, c.integer("vocab_size"))


DENSE: dict[str, Family] = {
    "muse_glimmer_text": Family(
        attention=BIASED | {"qk_norm": "plain", "output_gate": True, "output_gate_bias": False}, heads_divide=True,
        mixers=granite_rope(every_from_the_last(4), every_from_the_last(4)), names={"hidden_act": ("hidden_activation",)},
        model={"norm_unit_offset": True, "norms": FOUR_NORMS, "embedding_norm": True, "embedding_norm_weight": False,
               "logit_softcap": given("final_logit_softcapping")},
        unread={"qk_scale_factor": "scale, clamp or noise, elementwise", "output_multiplier": "scale, clamp or noise, elementwise",
                "post_norm_eps": "small constant of a norm"}),
    "internlm3": replace(_LLAMA_BLOCKS, attention=BIASED | {"qkv_bias": _one_bias}),
    "iquestcoder": _LLAMA_BLOCKS,
    "exaone": _LLAMA_BLOCKS,
    "diffllama": Family(attention=BIASED | {"differential": True}, unread={"lambda_std_dev": "initial weights"},
                        require={"attention_dropout": (0.0, "what a dropout of two maps that are subtracted drops is not defined")}),
    "arcee": Family(attention=BIASED, mlp=PLAIN | {"bias": flag("mlp_bias")}, heads_divide=True),
    "apertus": Family(attention=BIASED | {"qk_norm": "head"},
                      mlp=PLAIN | {"activation": lambda c: c.word("hidden_act", ACTIVATIONS | {"xielu": "xielu"})}),
    "apertus1p5_text": Family(attention=BIASED | {"qk_norm": "head"},
                              mlp=PLAIN | {"activation": lambda c: c.word("hidden_act", ACTIVATIONS | {"xielu": "xielu"})},
                              model={"vocab_size": lambda c: c.optional("output_vocab_size") or c.integer("vocab_size"),
                                     "embedding_rows": lambda c: c.integer("vocab_size") if _pruned(c) else None}),
    "molmo2_text": Family(
        attention={"qkv_bias": flag("attention_bias"), "qk_norm": lambda c: c.word("qk_norm_type", {"qwen3": "head", "olmo": "full"})},
        model={"norms": lambda c: ("post_attention", "post_mlp") if c.flag("norm_after") else TWO_NORMS, "tie_word_embeddings": False,
               "embedding_rows": lambda c: c.integer("vocab_size") + more if (more := c.integer("additional_vocab_size", 0)) else None},
        unread={"rope_scaling_layers": "positions: tables, elementwise", "tie_word_embeddings": "transformers ties nothing"}),
    "bitnet": Family(attention=BIASED | {"kv_channels": joined, "out_norm": True}, mlp=GATED | {"inner_norm": True}),
    "jais2": Family(attention=BIASED, mlp=PLAIN | {"bias": flag("mlp_bias")}, model=LAYERNORM),
    "nemotron": Family({"partial_rotary_factor": 0.5}, attention=BIASED | {"rotary_fraction": rotary_fraction},
                       mlp=PLAIN | {"bias": flag("mlp_bias")}, model=LAYERNORM | {"norm_unit_offset": True}),
    "cohere2": Family({"sliding_window_pattern": 4}, attention=BIASED, mixers=listed(every("sliding_window_pattern"), windowed_turn=True),
                      model=_COHERE),
    "cohere_compass_text": Family(attention=BIASED, mixers=tabled(compass_mixers), model=_COHERE,
                                  unread={"pooling": "classification and generation heads"}),
    "cwm": Family(mixers=listed(starting(4)), mlp=_BIASED_MLP, heads_divide=True),
    "ernie4_5": Family(attention={"qkv_bias": flag("use_bias"), "out_bias": flag("use_bias")}, mlp=GATED | {"bias": flag("use_bias")}),
    "exaone4": Family(attention={"qk_norm": "head"}, mixers=turned_where_windowed(every("sliding_window_pattern")),
                      model={"norms": ("post_attention", "post_mlp")}),
    "glm": Family({"partial_rotary_factor": 0.5}, attention={"qkv_bias": flag("attention_bias"), "rotary_fraction": rotary_fraction},
                  mlp=GATED | {"fused_gate_up": True}),
    "helium": Family(attention={"qkv_bias": flag("attention_bias"), "kv_channels": joined}, mlp=_BIASED_MLP),
    "hunyuan_v1_dense": Family(attention=BIASED | {"qk_norm": "head", "qk_norm_position": "after_rope"},
                               unread={"eod_token_id": "names a token"}),
    "hyperclovax": Family(attention=BIASED, mlp=_BIASED_MLP, model={"norms": choose("use_post_norm", FOUR_NORMS, TWO_NORMS)}),
    "ministral": Family(mixers=listed(where_no_window)),
    "ministral3": Family(mixers=windowed),
    "minicpm3": Family(attention=MLA | {"v_head_dim": minicpm_values}, mlp=_BIASED_MLP, heads_divide=True, unread=_LATENT_UNREAD),
    "youtu": Family(attention=MLA, unread=_LATENT_UNREAD),
    "nanochat": Family(attention=BIASED | {"qk_norm": "l2", "qk_norm_position": "after_rope"}, mlp=PLAIN,
                       model={"norm_weight": False, "embedding_norm": True, "logit_softcap": given("final_logit_softcapping")}),
    "olmo3": Family(attention=BIASED | {"qk_norm": "full"}, mixers=listed(every(4)), model={"norms": ("post_attention", "post_mlp")}),
    "persimmon": Family({"partial_rotary_factor": 0.5},
                        attention=SQUARE | {"num_query_groups": None, "qkv_bias": True, "out_bias": True, "fused_qkv": True,
                                            "qk_norm": choose("qk_layernorm", "head", "none"), "rotary_fraction": cut_fraction},
                        mlp=PLAIN | {"bias": True}, model=LAYERNORM | {"hidden_dropout": lambda c: c.number("hidden_dropout"),
                                                                       "embedding_dropout": 0.0}),
    "vaultgemma": Family(attention=BIASED | {"logit_softcap": given("attn_logit_softcapping")}, mixers=listed(every(2)), heads_divide=True,
                         model=GEMMA | {"logit_softcap": given("final_logit_softcapping")}, names={"hidden_act": ("hidden_activation",)}),
    "granite_swa": Family(attention=BIASED | {"sinks": True}, mlp=_BIASED_MLP, mixers=granite_rope(starting(4))),
    "modernbert-decoder": MODERN,
    # text towers
    "qwen2_vl_text": Family(attention=SQUARE | {"qkv_bias": True}, mixers=qwen_windows(first=False)),
    "qwen2_5_vl_text": Family(attention=SQUARE | {"qkv_bias": True}, mixers=qwen_windows(first=False)),
    "qwen3_vl_text": Family(attention=BIASED | {"qk_norm": "head"}),
    "qwen2_5_omni_text": Family(attention={"qkv_bias": True}, mixers=qwen_windows(first=False)),
    "glm4v_text": Family({"partial_rotary_factor": 0.5}, attention=SQUARE | {"qkv_bias": True, "rotary_fraction": rotary_fraction},
                         mlp=GATED | {"fused_gate_up": True}, model={"norms": FOUR_NORMS}),
    "glm_ocr_text": Family(attention={"rotary_fraction": rotary_fraction}, mlp=GATED | {"fused_gate_up": True},
                           model={"norms": FOUR_NORMS}),
    "granite4_vision_text": _LLAMA_BLOCKS,
    "granite_docling_text": _LLAMA_BLOCKS,
    "hunyuan_vl_text": Family(attention=BIASED | {"qk_norm": "head", "qk_norm_position": "after_rope"}, unread={"eod_token_id": "names a token"}),
    "paddleocr_vl_text": Family(attention={"qkv_bias": flag("use_bias"), "out_bias": flag("use_bias")}, mlp=GATED | {"bias": flag("use_bias")}),
    "emu3_text_model": Family(attention=BIASED, mlp=_BIASED_MLP, model={"hidden_dropout": number("attention_dropout"), "embedding_dropout": 0.0}),
    "cosmos3_edge_text": Family(attention=BIASED | {"rotary_fraction": in_three}, mlp=PLAIN | {"bias": flag("mlp_bias")},
                                model={"tie_word_embeddings": False}, unread={"tie_word_embeddings": "the head is never tied"}),
}
