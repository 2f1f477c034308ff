"""A family: what the module code of one model_type makes of a config, with transformers' own default of every key.

The defaults are facts of `defaults.json`, which `tests/draws/hf_defaults.py` makes of transformers' config classes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from symsim.inputs.hf.config import Fields
from symsim.inputs.hf.fields import GATED, Ffns, Mixers, dense, full

# what a config of its own must say, whatever transformers would take; a text_config may leave them out
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


@dataclass(frozen=True)
class Family:
    """What the module code of one model_type makes of a config."""

    defaults: Fields = field(default_factory=dict)  # a key's default where neither the facts nor COMMON have it; a key with none is required
    attention: Fields = field(default_factory=dict)
    mlp: Fields = field(default_factory=lambda: GATED)
    moe: Fields | None = None
    linear: Fields | None = None
    lightning: Fields | None = None
    compressed: Fields | None = None
    short_convolution: Fields | None = None
    mamba: Fields | None = None
    selective_scan: Fields | None = None
    mixers: Mixers = full
    ffns: Ffns = dense
    model: Fields = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # our key -> this family's spellings
    require: Mapping[str, tuple[Any, str]] = field(default_factory=dict)  # the only supported value of a key, and why
    unread: Mapping[str, str] = field(default_factory=dict)  # keys that the module code does not read
    foreign: Collection[str] = ()  # our keys that are none of this family's
    permits: tuple[str, ...] = ()  # keys that are refused elsewhere (FORBIDDEN), which this family's tables read
    never_null: Collection[str] = ()  # keys of which transformers takes no null
    heads_divide: bool = False  # transformers checks hidden_size % num_attention_heads even when head_dim is given
    modelling: str = ""


# of a type that has null, on which the model itself fails (transformers 5.24, each model_type built with each key null that is not by default)
_FAILS_ON_NULL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("qwen2_moe", "ernie4_5_moe", "emu3_text_model"), ("num_key_value_heads",)),
    "afmoe": ("head_dim",),
    "glm": ("num_key_value_heads", "head_dim"),
    "falcon": ("attention_dropout",),
    "diffllama": ("attention_dropout", "lambda_std_dev"),
    "esm": ("hidden_dropout_prob",),
}


@cache
def _facts() -> Mapping[str, Mapping[str, Any]]:
    """model_type -> {"defaults": key -> transformers' default, "names": common key -> the config class's own, "nullable": keys with a default that
    may be null, too}."""
    facts: Mapping[str, Mapping[str, Any]] = json.loads((Path(__file__).parent / "defaults.json").read_text(encoding="utf-8"))
    return facts


def with_facts(model_type: str, family: Family) -> Family:
    """The family with the names and defaults of transformers' config class; what the family says itself stands first."""
    known = _facts().get(family.modelling or model_type, {})
    names = dict(family.names)
    for common, own in known.get("names", {}).items():
        names[common] = tuple(dict.fromkeys((*names.get(common, ()), own)))
        names[own] = tuple(dict.fromkeys((*names.get(own, ()), own, common)))
    defaults = {ours: value for ours, value in sized(known, names).items() if ours not in SIZES or value is None}
    foreign = _foreign(known, names)
    never = {name for name, value in known.get("defaults", {}).items() if value is not None} - {*known.get("nullable", ())}
    never |= {*_FAILS_ON_NULL.get(model_type, ())}
    never |= {common for common, own in known.get("names", {}).items() if own in never}
    made = replace(family, names=names, defaults=defaults | family.defaults, never_null=never)
    return replace(made, unread=foreign | dict(family.unread), foreign=tuple(foreign))


def _foreign(known: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Our names of keys that the config class calls otherwise, and has no map for: transformers reads its own alone."""
    theirs = {*known.get("defaults", {}), *known.get("names", {}), *known.get("names", {}).values()}
    return {
        key: f"not read by transformers: {own[0]} is"
        for key, spellings in names.items()
        if key not in theirs and (own := [name for name in spellings if name != key and (name in theirs or "." in name)])
    }


def sized(known: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Defaults by their own names and by ours."""
    own = known.get("defaults", {})
    return dict(own) | {ours: own[name] for ours, theirs in names.items() for name in reversed(theirs) if name in own}


def sizes_of(model_type: str, family: Family) -> dict[str, Any]:
    """transformers' sizes of a model_type, which a text_config may leave out."""
    every = sized(_facts().get(family.modelling or model_type, {}), family.names)
    return {key: every[key] for key in SIZES if key in every}
