"""Which parameters are trained: by names of modules, in all layers or in some.

attention                all of that scope, in every layer          layers.0-15            all of these layers
q_proj, mlp.down_proj    one linear map                             layers.0-15.attention  a scope of these layers
embedding, lm_head, norm a module; bias: every bias                 layers.31.mlp          a scope of one layer
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from symsim.errors import InputError, cut
from symsim.inputs.architecture import LayerKind
from symsim.inputs.limits import LARGEST_SIZE
from symsim.inputs.strategy import Strategy

# options of a strategy that say which parameters are trained, and in what; how that runs is no part of it
TRAINED = (
    *("task_type", "num_labels", "tuner_type", "lora_rank", "lora_expert_rank", "rank_pattern", "oft_block_size", "lora_dropout"),
    *("lora_dropout_position", "target_modules", "use_dora", "quantize_base", "quantize_experts", "modules_to_save", "freeze_parameters"),
    *("trainable_parameters", "trained_before", "reference_models", "further_forwards"),
)
# what transformers' heads of classes have before their scores in these types of models (modeling_<type>.py ...ForSequenceClassification, and
# ...ForTokenClassification), where all others have scores alone
_PROJECTED = (
    "bert roberta xlm-roberta camembert data2vec-text ernie electra roberta-prelayernorm megatron-bert xlm-roberta-xl distilbert "
    "jina_embeddings_v3 nomic_bert big_bird ibert esmc roformer rembert albert esm gte modernbert modernbert-decoder eurobert xlm flaubert"
).split()
_PROJECTED_TOKENS = ("modernbert",)
PROJECTED = {"seq_cls": frozenset(_PROJECTED), "token_cls": frozenset(_PROJECTED_TOKENS)}
# entries that mean the table of words, or the output layer's weight, which are one in models that tie them
OF_TABLES = frozenset(
    "embedding embedding.word_embeddings embedding.word_embeddings.weight word_embeddings lm_head lm_head.lm_head lm_head.lm_head.weight".split()
)
_LAYERS = re.compile(r"layers\.(\d{1,6})(?:-(\d{1,6}))?(?:\.(.+))?")


class TunedKind(LayerKind):
    """A kind of layer that a strategy tells apart: some parameters of it are not trained, no gradient has to flow into it, or its products
    are not those of the recipe.

    base: the model's own name of the kind. at: the index of a layer of it, which says which names are meant. trains: whether any
    parameter of it is trained. enters: whether the stream that comes in needs a gradient, since something before is trained. wide:
    whether its products are of the type of the computation under any recipe. aside: whether all that is trained in it reads detached inputs.
    """

    base: str
    at: int
    trains: bool
    enters: bool
    wide: bool = False
    aside: bool = False


class Named(NamedTuple):
    """What an entry of `freeze_parameters` or `trainable_parameters` names, in the layers first to last (all where there is none)."""

    name: str
    first: int | None = None
    last: int | None = None

    def holds(self, names: Collection[str], at: int | None) -> bool:
        """Whether a parameter of these names is meant, in layer `at` (None: of no layer)."""
        inside = self.first is None or (at is not None and self.first <= at <= (self.last or 0))
        return inside and self.name in names


def named(text: str) -> Named:
    """An entry as it is read: `layers.0-15.attention` is attention in layers 0 to 15."""
    found = _LAYERS.fullmatch(text)
    if found is None:
        return Named(text)
    first = int(found[1])
    return Named(found[3] or "layers", first, first if found[2] is None else int(found[2]))


class Ranked(NamedTuple):
    """What an entry of `rank_pattern` names, and the rank of the adapters there."""

    entry: Named
    rank: int


@lru_cache(maxsize=1024)
def ranked(text: str) -> Ranked:
    """An entry of `rank_pattern`, NAME=RANK. InputError where it is none."""
    name, _, rank = text.rpartition("=")
    if not name.strip() or not rank.strip().isdecimal() or not 0 < int(rank) <= LARGEST_SIZE:
        raise InputError(f"rank_pattern={cut(text)} is not NAME=RANK, such as q_proj=16 or layers.0-3.down_proj=4")
    return Ranked(named(name.strip()), int(rank))


def tunes(strategy: Strategy) -> bool:
    """Whether any parameter may be left untrained."""
    return strategy.tuner_type != "full" or bool(strategy.freeze_parameters)


def is_trained(strategy: Strategy, names: Collection[str], at: int | None) -> bool:
    """Whether a parameter of the model that has these names is trained: under adapters none is, unless it is named."""
    trained = strategy.tuner_type == "full" and not _any_holds(strategy.freeze_parameters, names, at)
    if strategy.tuner_type != "full" and strategy.task_type != "causal_lm" and "lm_head" in names:
        return True  # a new head is trained whole (peft peft_model.py PeftModelForSequenceClassification)
    return trained or _any_holds((*(strategy.trainable_parameters or ()), *(strategy.modules_to_save or ())), names, at)


def _any_holds(entries: Iterable[str] | None, names: Collection[str], at: int | None) -> bool:
    return any(named(text).holds(names, at) for text in entries or ())
