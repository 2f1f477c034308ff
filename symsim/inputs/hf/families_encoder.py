"""Encoders that are stacks of the same blocks, with the head of a masked language model (source: transformers 5.23, as in families.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, Fields, act, choose, flag, integer, number
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import BIASED, GATED, LAYERNORM, PLAIN, SQUARE, TWO_NORMS, four_wide, head_dim, joined, narrower
from symsim.inputs.hf.patterns_heads import modern_both_ways, modern_mixers

# fmt: off


def both_ways(c: Config) -> list[LayerKind]:
    return [LayerKind(bidirectional=True)] * c.depth


def unless_decoder(c: Config) -> list[LayerKind]:
    """modeling_bert.py: is_decoder makes attention causal."""
    return [LayerKind(bidirectional=not c.flag("is_decoder"))] * c.depth


def unless_causal(c: Config) -> list[LayerKind]:
    """modeling_xlm.py: causal makes attention causal."""
    return [LayerKind(bidirectional=not c.flag("causal"))] * c.depth


def languages(c: Config) -> int | None:
    """modeling_xlm.py: a row for every language, where there are several and use_lang_emb asks for them."""
    count, asked = c.integer("n_langs"), c.flag("use_lang_emb")
    return count if count > 1 and asked else None


def exact_gelu(c: Config) -> str:
    """modeling_ibert.py takes no other activation."""
    return c.word("hidden_act", {"gelu": "gelu"})


def albert_groups(c: Config) -> list[LayerKind]:
    """modeling_albert.py: consecutive layers of a group run the same weights, `inner_group_num` layers of them one after the other."""
    depth, groups, inner = c.depth, c.integer("num_hidden_groups"), c.integer("inner_group_num")
    first = LayerKind(bidirectional=True, weights="held")
    again = first.model_copy(update={"weights": "borrowed", "in_turn": inner})
    of_group = [int(i / (depth / groups)) for i in range(depth)]
    if len(set(of_group)) < groups:
        raise c.refuse(c.look("num_hidden_groups")[0], f"at most num_hidden_layers {depth}", groups)
    return [first if i == 0 or of_group[i] != of_group[i - 1] else again for i in range(depth) for _ in range(inner)]


def albert_ffns(c: Config) -> list[str]:
    return ["mlp"] * (c.depth * c.integer("inner_group_num"))


def esm_positions(c: Config) -> str:
    return c.word("position_embedding_type", {"absolute": "learned", "rotary": "rope"})


_HEADS: Fields = SQUARE | {"num_query_groups": None}


_BOTH_BIASES: Fields = _HEADS | {"qkv_bias": True, "out_bias": True}


# a projection, the activation and a norm, then the words' own table with a bias
_MASKED_HEAD: Fields = LAYERNORM | {"head_transform": act(), "lm_head_bias": True}


_TABLES: Fields = {"position_embedding": "learned", "position_embedding_rows": integer("max_position_embeddings"), "embedding_norm": True,
                   "token_types": integer("type_vocab_size")}


AFTER: Fields = {"norms_after_residual": True, "norms": ("post_attention", "post_mlp"), "final_norm": False}


# ELECTRA projects where widths differ
_FACTORED: Fields = {"embedding_size": narrower("embedding_size"), "factored_embedding": lambda c: narrower("embedding_size")(c) is not None}


_DROPOUT: Fields = {"hidden_dropout": number("hidden_dropout_prob")}


_NAMES: dict[str, tuple[str, ...]] = {"attention_dropout": ("attention_probs_dropout_prob",)}


TIED: dict[str, tuple[Any, str]] = {"tie_word_embeddings": (True, "a masked head of its own, with two biases, is not supported")}


_CAUSES: dict[str, Any] = {"is_decoder": False}


def _no_groups(c: Config) -> None:
    """configuration_esmc.py: as many heads of keys and values as of queries."""
    heads, groups = c.integer("num_attention_heads"), c.optional("num_key_value_heads")
    if groups not in (None, heads):
        raise c.refuse("num_key_value_heads", f"num_attention_heads {heads}: this model_type has no groups of queries", groups)


_BERT = Family(_CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES, require=TIED,
               model=_MASKED_HEAD | _TABLES | AFTER | _DROPOUT)


_BEFORE = Family(_CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES, require=TIED,
                 model=_MASKED_HEAD | _TABLES | _DROPOUT | {"embedding_norm": False})


_FIXED: dict[str, tuple[Any, str]] = {"layerdrop": (0.0, "layers skipped at random are not supported")}


_XLM = Family(
    attention=_BOTH_BIASES, mixers=unless_causal,
    mlp=PLAIN | {"bias": True, "ffn_hidden_size": four_wide, "activation": choose("gelu_activation", "gelu", "relu")},
    model=LAYERNORM | _TABLES | AFTER | {"lm_head_bias": True, "token_types": languages, "hidden_dropout": number("dropout")},
    require={"asm": (False, "a softmax over clusters of words is not supported"),
             "is_encoder": (True, "transformers refuses anything but true"),
             "sinusoidal_embeddings": (False, "fixed positions in a table of their own are not supported")},
    unread={key: why for why, keys in {
        "names a token": "unk_index mask_index mask_token_id lang_id bos_index eos_index pad_index", "initial weights": "embed_init_std",
        "classification and generation heads": "start_n_top end_n_top"}.items() for key in keys.split()})


MODERN = Family(
    {"global_attn_every_n_layers": 3, "sliding_window": None}, attention=BIASED | SQUARE | {"num_query_groups": None}, mixers=modern_mixers,
    mlp=GATED | {"fused_gate_up": True, "bias": flag("mlp_bias"), "inner_dropout": number("mlp_dropout")},
    names={"hidden_act": ("hidden_activation",)},
    model={"normalization": "LayerNorm", "norm_bias": flag("norm_bias"), "embedding_norm": True, "head_transform": act("classifier_activation"),
           "head_transform_bias": flag("classifier_bias"), "lm_head_bias": flag("decoder_bias"), "hidden_dropout": 0.0,
           "embedding_dropout": lambda c: c.number("embedding_dropout") or None},
    require={"attention_dropout": (0.0, "a dropout of attention's output that networks do not have is not supported")})


ENCODERS: dict[str, Family] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "data2vec-text": _BERT,
    "ernie": Family(_BERT.defaults, attention=_BERT.attention, mlp=_BERT.mlp, mixers=_BERT.mixers, names=_NAMES, model=_BERT.model,
                    require=TIED | {"use_task_id": (False, "a table of task types is not supported")},
                    unread={"task_type_vocab_size": "without use_task_id there is no such table"}),
    "electra": Family(_BERT.defaults, attention=_BERT.attention, mlp=_BERT.mlp, mixers=_BERT.mixers, names=_NAMES,
                      model=_BERT.model | _FACTORED,
                      unread={"summary_last_dropout": "classification and generation heads"}),
    "roberta-prelayernorm": Family(_CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES, require=TIED,
                                   model=_BEFORE.model | {"embedding_norm": True}),
    "megatron-bert": _BEFORE,
    "xlm-roberta-xl": _BEFORE,
    "distilbert": Family(
        attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=both_ways, require={
            "sinusoidal_pos_embds": (False, "fixed positions in a table of their own are not supported")},
        model=_MASKED_HEAD | _TABLES | AFTER | {"token_types": None, "hidden_dropout": number("dropout")},
        names={"intermediate_size": ("hidden_dim",), "hidden_act": ("activation",)},
        unread={"qa_dropout": "classification and generation heads", "seq_classif_dropout": "classification and generation heads"}),
    "jina_embeddings_v3": Family(
        attention=_BOTH_BIASES | {"kv_channels": head_dim}, mlp=PLAIN | {"bias": True}, mixers=both_ways, names=_NAMES, require=TIED,
        model=_MASKED_HEAD | AFTER | _DROPOUT | {"embedding_norm": True, "token_types": integer("type_vocab_size")}),
    "nomic_bert": Family(
        {"tie_word_embeddings": True},
        attention={"num_query_groups": None}, mlp=GATED, mixers=both_ways, names=_NAMES, require=TIED,
        model=_MASKED_HEAD | AFTER | _DROPOUT | {"embedding_norm": True, "token_types": integer("type_vocab_size")}),
    "big_bird": Family(
        _CAUSES, attention=_HEADS | {"qkv_bias": flag("use_bias"), "out_bias": True}, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES,
        model=_MASKED_HEAD | _TABLES | AFTER | _DROPOUT | {"embedding_scale": flag("rescale_embeddings")},
        require=TIED | {"attention_type": ("original_full", "attention to some blocks of keys, drawn at random, is not supported")},
        unread={key: "of attention to some blocks" for key in ("block_size", "num_random_blocks")}),
    "ibert": Family(
        attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True, "activation": exact_gelu}, mixers=both_ways, names=_NAMES,
        model=_BERT.model | {"head_transform": "gelu"},
        require=TIED | {"quant_mode": (False, "training in integers is not supported")}, unread={"force_dequant": "without quant_mode nothing is"}),
    "xlm": _XLM,
    "flaubert": Family(
        attention=_XLM.attention, mixers=_XLM.mixers, mlp=_XLM.mlp, unread=_XLM.unread,
        model=_XLM.model | {"norms_after_residual": choose("pre_norm", False, True),
                            "norms": choose("pre_norm", TWO_NORMS, ("post_attention", "post_mlp"))},
        require=dict(_XLM.require) | _FIXED),
    "esmc": Family(
        attention=BIASED | {"num_query_groups": _no_groups, "kv_channels": joined, "qk_norm": "full", "qk_norm_bias": False},
        mlp=GATED | {"bias": flag("mlp_bias")}, mixers=both_ways, heads_divide=True, model=_MASKED_HEAD | {
            "head_transform": "gelu", "final_norm_bias": False, "tie_word_embeddings": False},
        unread={"mask_token_id": "names a token", "tie_word_embeddings": "the head is never tied"}),
    "roformer": Family(
        _CAUSES | {"embedding_size": None}, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES,
        model=_MASKED_HEAD | AFTER | _DROPOUT | _FACTORED | {"embedding_norm": True, "token_types": integer("type_vocab_size")},
        require=TIED | {"rotary_value": (False, "values that are turned are not supported")}),
    "rembert": Family(
        _CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES,
        model=_MASKED_HEAD | _TABLES | AFTER | _DROPOUT | {
            "embedding_size": integer("input_embedding_size"), "factored_embedding": True, "head_size": integer("output_embedding_size")},
        require={"tie_word_embeddings": (False, "an output layer of another width than the words' table is its own")},
        unread={"classifier_dropout_prob": "classification and generation heads"}),
    "albert": Family(
        attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=albert_groups, ffns=albert_ffns, names=_NAMES,
        model=_MASKED_HEAD | _TABLES | AFTER | {"embedding_size": integer("embedding_size"), "factored_embedding": True},
        require=TIED | {"hidden_dropout_prob": (0.0, "dropout behind attention and none behind the network is not supported")},
        unread={"classifier_dropout_prob": "classification and generation heads"}),
    "esm": Family(
        _CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True, "activation": "gelu_python"}, mixers=unless_decoder, names=_NAMES,
        model=_MASKED_HEAD | _DROPOUT | {
            "head_transform": "gelu_python", "embedding_norm": flag("emb_layer_norm_before"), "position_embedding": esm_positions,
            "position_embedding_rows": integer("max_position_embeddings"), "embedding_dropout": 0.0},
        require={"is_folding_model": (False, "a model that folds proteins is not supported")},
        unread={"mask_token_id": "names a token", "vocab_list": "names tokens", "token_dropout": "scale, clamp or noise, elementwise",
                "esmfold_config": "of a model that folds proteins"}),
    "gte": Family(
        {"tie_word_embeddings": True}, attention=_BOTH_BIASES | {"kv_channels": head_dim}, mixers=both_ways, names=_NAMES,
        mlp=GATED | {"down_bias": True, "inner_dropout": number("hidden_dropout_prob")},
        model=_MASKED_HEAD | AFTER | _DROPOUT | {
            "head_transform": "gelu", "embedding_norm": True, "token_types": lambda c: c.integer("type_vocab_size", 0) or None}),
    "modernbert": replace(
        MODERN, attention=MODERN.attention | {"fused_qkv": True}, mixers=modern_both_ways, unread={
            "classifier_pooling": "classification and generation heads", "deterministic_flash_attn": "how transformers runs",
            "sparse_prediction": "the words that are not masked have no loss", "sparse_pred_ignore_index": "names a token"}),
    "eurobert": Family(attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}, mixers=both_ways, heads_divide=True,
                       model={"lm_head_bias": flag("mlp_bias")},
                       unread={"classifier_pooling": "classification and generation heads", "mask_token_id": "names a token"}),
}
