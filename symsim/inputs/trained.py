"""The architecture that a strategy trains: the model's, with what options of the strategy change of it, and its kinds as names spell them."""

from __future__ import annotations

from collections.abc import Callable

from symsim.algebra.kinds import kind_of, spelt
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import OF_TABLES


def depths(model: Architecture, mtp_num_layers: int | None) -> int:
    """Multi-token prediction depths that are trained: the option's number, the model's own where it is not given."""
    return model.mtp_num_layers if mtp_num_layers is None else mtp_num_layers


def trained(model: Architecture, strategy: Strategy) -> Architecture:
    """The model with the depths that are trained, or, for another task than the next token, without any, and with a head of its own. Where peft
    trains a copy of a table that is embedding and output layer in one, beside adapters, the two are apart (utils/other.py ModulesToSaveWrapper)."""
    if strategy.task_type != "causal_lm":
        own = {"mtp_num_layers": 0, "tie_word_embeddings": False, "lm_head_bias": strategy.task_type == "token_cls", "logit_softcap": False}
        return model.model_copy(update=own)
    model = with_depths(model, strategy.mtp_num_layers)
    copied = strategy.tuner_type != "full" and strategy.fusion != "te" and not OF_TABLES.isdisjoint(strategy.modules_to_save or ())
    return model.model_copy(update={"tie_word_embeddings": False}) if copied and model.tie_word_embeddings else model


def with_depths(model: Architecture, mtp_num_layers: int | None) -> Architecture:
    """The model with so many depths of multi-token prediction, or its own."""
    made = depths(model, mtp_num_layers)
    return model if made == model.mtp_num_layers else model.model_copy(update={"mtp_num_layers": made})


def respelt(model: Architecture) -> Architecture:
    """The architecture with its layer kinds as they are spelt in names."""
    return model if model._spelt else _renamed(model, spelt, True)


def as_named(model: Architecture) -> Architecture:
    """The same with the names that the user gave them: a derivation starts from these."""
    return _renamed(model, kind_of, False) if model._spelt else model


def _renamed(model: Architecture, name: Callable[[str], str], spelling: bool) -> Architecture:
    if all(name(k) == k for k in model.layer_kinds):
        return model
    layers = tuple(s.model_copy(update={"kinds": tuple(map(name, s.kinds))}) for s in model.layers)
    kinds = {name(k): v for k, v in model.layer_kinds.items()}
    found = model.model_copy(update={"layers": layers, "layer_kinds": kinds})
    found._spelt = spelling
    return found
