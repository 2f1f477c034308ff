"""Encoders that are stacks of the same blocks, with the head of a masked language model (source: transformers 5.23, as in families.py)."""

from __future__ import annotations

from typing import Any

from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, Fields, act, flag, integer, number
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import BIASED, GATED, LAYERNORM, PLAIN, SQUARE

# fmt: off


def both_ways(c: Config) -> list[LayerKind]:
    return [LayerKind(bidirectional=True)] * c.depth


def unless_decoder(c: Config) -> list[LayerKind]:
    """modeling_bert.py: is_decoder makes attention causal."""
    return [LayerKind(bidirectional=not c.flag("is_decoder"))] * c.depth


def same_width(c: Config) -> int:
    """modeling_electra.py projects the words after its norm where they are narrower than the model (the generators and ELECTRA-small)."""
    hidden, embedding = c.integer("hidden_size"), c.integer("embedding_size")
    if embedding != hidden:
        raise c.refuse("embedding_size", f"hidden_size {hidden}: a projection behind the embedding's norm is not supported", embedding)
    return hidden


_HEADS: Fields = SQUARE | {"num_query_groups": None}


_BOTH_BIASES: Fields = _HEADS | {"qkv_bias": True, "out_bias": True}


# a projection, the activation and a norm, then the words' own table with a bias
_MASKED_HEAD: Fields = LAYERNORM | {"head_transform": act(), "lm_head_bias": True}


_TABLES: Fields = {"position_embedding": "learned", "position_embedding_rows": integer("max_position_embeddings"), "embedding_norm": True,
                   "token_types": integer("type_vocab_size")}


_AFTER: Fields = {"norms_after_residual": True, "norms": ("post_attention", "post_mlp"), "final_norm": False}


_DROPOUT: Fields = {"hidden_dropout": number("hidden_dropout_prob")}


_NAMES: dict[str, tuple[str, ...]] = {"attention_dropout": ("attention_probs_dropout_prob",)}


_TIED: dict[str, tuple[Any, str]] = {"tie_word_embeddings": (True, "a masked head of its own, with two biases, is not supported")}


_CAUSES: dict[str, Any] = {"is_decoder": False}


_BERT = Family(_CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES, require=_TIED,
               model=_MASKED_HEAD | _TABLES | _AFTER | _DROPOUT)


_BEFORE = Family(_CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES, require=_TIED,
                 model=_MASKED_HEAD | _TABLES | _DROPOUT | {"embedding_norm": False})


ENCODERS: dict[str, Family] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "data2vec-text": _BERT,
    "ernie": Family(_BERT.defaults, attention=_BERT.attention, mlp=_BERT.mlp, mixers=_BERT.mixers, names=_NAMES, model=_BERT.model,
                    require=_TIED | {"use_task_id": (False, "a table of task types is not supported")},
                    unread={"task_type_vocab_size": "without use_task_id there is no such table"}),
    "electra": Family(_BERT.defaults, attention=_BERT.attention, mlp=_BERT.mlp, mixers=_BERT.mixers, names=_NAMES, require=_TIED,
                      model=_BERT.model | {"hidden_size": same_width},
                      unread={"summary_last_dropout": "classification and generation heads"}),
    "roberta-prelayernorm": Family(_CAUSES, attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=unless_decoder, names=_NAMES, require=_TIED,
                                   model=_BEFORE.model | {"embedding_norm": True}),
    "megatron-bert": _BEFORE,
    "xlm-roberta-xl": _BEFORE,
    "distilbert": Family(
        attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=both_ways, require=_TIED | {
            "sinusoidal_pos_embds": (False, "fixed positions in a table of their own are not supported")},
        model=_MASKED_HEAD | _TABLES | _AFTER | {"token_types": None, "hidden_dropout": number("dropout")},
        names={"intermediate_size": ("hidden_dim",), "hidden_act": ("activation",)},
        unread={"qa_dropout": "classification and generation heads", "seq_classif_dropout": "classification and generation heads"}),
    "jina_embeddings_v3": Family(
        attention=_BOTH_BIASES, mlp=PLAIN | {"bias": True}, mixers=both_ways, names=_NAMES, require=_TIED,
        model=_MASKED_HEAD | _AFTER | _DROPOUT | {"embedding_norm": True, "token_types": integer("type_vocab_size")}),
    "nomic_bert": Family(
        {"tie_word_embeddings": True},
        attention={"num_query_groups": None}, mlp=GATED, mixers=both_ways, names=_NAMES, require=_TIED,
        model=_MASKED_HEAD | _AFTER | _DROPOUT | {"embedding_norm": True, "token_types": integer("type_vocab_size")}),
    "eurobert": Family(attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}, mixers=both_ways, heads_divide=True,
                       model={"lm_head_bias": flag("mlp_bias")},
                       unread={"classifier_pooling": "classification and generation heads", "mask_token_id": "names a token"}),
}
