"""Decoders in the manner of GPT-2 and GPT-3, a table each (source: transformers 5.23, as in families.py)."""

from __future__ import annotations

from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, choose, flag, integer, number
from symsim.inputs.hf.families_encoder import AFTER, TIED, unless_decoder
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import FUSED_MHA, LAYERNORM, PLAIN, SQUARE, four_wide
from symsim.inputs.hf.rotary import cut_pct, gpt_rotary

# fmt: off


_HEADS = SQUARE | {"num_query_groups": None}


_WIDE = PLAIN | {"bias": True, "ffn_hidden_size": lambda c: c.optional("n_inner") or four_wide(c)}


_POSITIONS = {"position_embedding": "learned", "position_embedding_rows": integer("max_position_embeddings")}


_NO_INNER_DROPOUT = {"activation_dropout": (0.0, "dropout inside of the feed-forward network is not supported"),
                     "layerdrop": (0.0, "layers skipped at random are not supported")}


def gpt_neo_layers(c: Config) -> list[LayerKind]:
    """configuration_gpt_neo.py: attention_types, [[[kind, ...], times], ...]."""
    name, types = c.look("attention_types")
    window, depth = c.integer("window_size"), c.depth
    try:
        kinds = [kind for names, times in (types or [[["global", "local"], 12]]) for kind in names * times][: depth + 1]
    except (TypeError, ValueError):
        raise c.refuse(name, "a list of [[kind, ...], times]", types) from None
    if len(kinds) != depth or any(kind not in ("global", "local") for kind in kinds):
        raise c.refuse(name, f"global or local for {depth} layers", types)
    return [LayerKind(window=window if kind == "local" else None) for kind in kinds]


def last_biased(c: Config) -> list[LayerKind]:
    """modeling_gpt_neox_japanese.py: the last layer alone has a bias behind attention."""
    return [LayerKind()] * (c.depth - 1) + [LayerKind(out_bias=True)]


_GPT_J = Family(
    attention=_HEADS | {"rotary_fraction": gpt_rotary}, mlp=_WIDE,
    model=LAYERNORM | {"parallel_block": True, "norms": ("pre_attention",), "lm_head_bias": True, "hidden_dropout": number("resid_pdrop"),
                       "embedding_dropout": number("embd_pdrop")},
    names={"hidden_act": ("activation_function",), "attention_dropout": ("attn_pdrop",)})


OLD: dict[str, Family] = {
    "gptj": _GPT_J,
    "codegen": Family(attention=_GPT_J.attention | {"fused_qkv": True}, mlp=_WIDE, model=_GPT_J.model, names=_GPT_J.names),
    "openai-gpt": Family(
        attention=FUSED_MHA | {"qkv_bias": True, "out_bias": True},
        # modeling_openai.py, ACT_FNS: its gelu is gelu_new
        mlp=PLAIN | {"bias": True, "ffn_hidden_size": four_wide,
                     "activation": lambda c: c.word("afn", {"relu": "relu", "silu": "silu", "gelu": "gelu_new", "swish": "silu"})},
        model=LAYERNORM | _POSITIONS | {"norms_after_residual": True, "norms": ("post_attention", "post_mlp"), "final_norm": False,
                                        "hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")},
        names={"attention_dropout": ("attn_pdrop",)}),
    "ctrl": Family(
        attention=_HEADS | {"qkv_bias": True, "out_bias": True}, mlp=PLAIN | {"bias": True, "activation": "relu"},
        model=LAYERNORM | {"position_embedding": "none", "embedding_scale": True, "lm_head_bias": True,
                           "hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")},
        names={"intermediate_size": ("dff",)}),
    "gpt_bigcode": Family(
        attention=FUSED_MHA | {"qkv_bias": True, "out_bias": True, "num_query_groups": choose("multi_query", 1, None)}, mlp=_WIDE,
        model=LAYERNORM | _POSITIONS | {"hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")},
        names={"hidden_act": ("activation_function",), "attention_dropout": ("attn_pdrop",)},
        unread={"scale_attention_softmax_in_fp32": "how transformers runs", "num_key_value_heads": "set from multi_query"}),
    "gpt_neo": Family(
        {"attention_types": None},
        attention=_HEADS | {"out_bias": True}, mixers=gpt_neo_layers,
        mlp=PLAIN | {"bias": True, "ffn_hidden_size": lambda c: c.optional("intermediate_size") or four_wide(c)},
        model=LAYERNORM | {"position_embedding": "learned", "position_embedding_rows": integer("max_position_embeddings"),
                           "hidden_dropout": number("resid_dropout"), "embedding_dropout": number("embed_dropout")},
        names={"hidden_act": ("activation_function",)}, unread={"attention_layers": "attention_types written out"}),
    "gpt_neox_japanese": Family(
        {"rotary_pct": 1.0},
        attention=FUSED_MHA | {"rotary_fraction": cut_pct}, mixers=last_biased,
        mlp=PLAIN | {"ffn_hidden_size": lambda c: c.integer("hidden_size") * c.integer("intermediate_multiple_size")},
        model=LAYERNORM | {"hidden_dropout": number("hidden_dropout"), "embedding_dropout": 0.0},
        unread={"partial_rotary_factor": "not read by transformers: rotary_pct is"}, heads_divide=True),
    "biogpt": Family(
        attention=_HEADS | {"qkv_bias": True, "out_bias": True}, mlp=PLAIN | {"bias": True}, require=_NO_INNER_DROPOUT,
        model=LAYERNORM | {"position_embedding": "learned", "embedding_scale": flag("scale_embedding"),
                           # modeling_biogpt.py, BioGptLearnedPositionalEmbedding: positions start at 2
                           "position_embedding_rows": lambda c: c.integer("max_position_embeddings") + 2,
                           "hidden_dropout": number("hidden_dropout_prob")},
        names={"attention_dropout": ("attention_probs_dropout_prob",)}),
    "bert-generation": Family(
        {"is_decoder": False}, attention=_HEADS | {"qkv_bias": True, "out_bias": True}, mlp=PLAIN | {"bias": True}, mixers=unless_decoder,
        model=LAYERNORM | _POSITIONS | AFTER | {"embedding_norm": True, "lm_head_bias": True, "hidden_dropout": number("hidden_dropout_prob")},
        names={"attention_dropout": ("attention_probs_dropout_prob",)}, require=TIED),
    "kosmos_2_text_model": Family(
        attention=_HEADS | {"qkv_bias": True, "out_bias": True, "out_norm": True}, mlp=PLAIN | {"bias": True, "inner_norm": True},
        require=_NO_INNER_DROPOUT | {"layerdrop": (0.0, "layers skipped at random are not supported")},
        model=LAYERNORM | {"position_embedding": "none", "embedding_scale": flag("scale_embedding"), "hidden_dropout": number("dropout")},
        names={"intermediate_size": ("ffn_dim",), "hidden_act": ("activation_function",)}),
    "xglm": Family(
        attention=_HEADS | {"qkv_bias": True, "out_bias": True}, mlp=PLAIN | {"bias": True}, require=_NO_INNER_DROPOUT,
        model=LAYERNORM | {"position_embedding": "none", "embedding_scale": flag("scale_embedding"), "hidden_dropout": number("dropout")},
        names={"intermediate_size": ("ffn_dim",), "hidden_act": ("activation_function",)}),
}
