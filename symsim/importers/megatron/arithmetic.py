"""Numbers of Megatron-LM's arguments from which no cost follows, as far as they are given, and what its code does where it takes none.

Source: Megatron-LM d98e8a64 (2026-08-22) training/arguments.py, training/argument_utils.py, core/transformer/transformer_config.py
(MLATransformerConfig), core/models/common/embeddings/rotary_pos_embedding.py (_apply_scaling).
"""

from __future__ import annotations

import math
from typing import Any

from symsim.importers.keys import Keys
from symsim.inputs.arithmetic import tokens_of

_PLAIN = {
    "norm_epsilon": ("norm_epsilon", "layernorm_epsilon"),
    "init_method_std": ("init_method_std",),
    "moe_router_topk_scaling_factor": ("moe_router_topk_scaling_factor",),
    "activation_func_clamp_value": ("activation_func_clamp_value",),
    "glu_linear_offset": ("glu_linear_offset",),
}
_SIGNED = ("glu_linear_offset",)
# what no argument changes: frequencies of Llama 3's scaling, and YaRN's of latent attention
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LATENT = {"beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096, "truncate": True}
# of YaRN elsewhere, by the arguments
YARN = {name: f"yarn_{name}" for name in ("beta_fast", "beta_slow", "original_max_position_embeddings")}
# arguments of both
SCALES = {"rope_scaling_factor": "rotary_scaling_factor", "mscale": "mscale", "mscale_all_dim": "mscale_all_dim"}


def arithmetic(keys: Keys, latent: bool) -> dict[str, Any] | None:
    """The section of that name; None where nothing of it is given. latent: whether attention is."""
    found = {field: _first(keys, names, field in _SIGNED) for field, names in _PLAIN.items()} | _angles(keys, latent)
    found = {field: value for field, value in found.items() if value is not None}
    return found or None


def _angles(keys: Keys, latent: bool) -> dict[str, Any]:
    base = _number(keys, "rotary_base")
    if base is None:
        return {}
    kind = _text(keys, "rope_type") or ("yarn" if latent else "rope")
    if not latent:
        kind = "yarn" if _text(keys, "position_embedding_type") == "yarn" else "rope"
    made: dict[str, Any] = {"rotary_base": base}
    # YaRN by a factor of 1, the argument's default, stretches nothing
    if kind == "yarn" and (_number(keys, "rotary_scaling_factor") or 1.0) == 1:
        return made | {"rope_type": "default"}
    if kind == "yarn":
        made |= {field: _number(keys, name, zero=field.startswith("mscale")) for field, name in SCALES.items()}
        return made | {"rope_type": "yarn"} | (LATENT if latent else _yarn(keys))
    if not latent and _text(keys, "use_rope_scaling") == "true":
        return made | {"rope_type": "llama3", "rope_scaling_factor": _number(keys, "rope_scaling_factor") or 8.0, **LLAMA3}
    stretched = None if latent else _number(keys, "rotary_seq_len_interpolation_factor")
    return made | ({"rope_type": "default"} if stretched is None else {"rope_type": "linear", "rope_scaling_factor": stretched})


def _yarn(keys: Keys) -> dict[str, Any]:
    found: dict[str, Any] = {field: _number(keys, name) for field, name in YARN.items()}
    found["original_max_position_embeddings"] = tokens_of(found["original_max_position_embeddings"])
    return {**found, "truncate": _whole(keys)}


def _whole(keys: Keys) -> bool | None:
    told = _text(keys, "yarn_correction_range_round_to_int"), _text(keys, "no_yarn_correction_range_round_to_int")
    return False if "true" in told[1:] or told[0] == "false" else True if told[0] == "true" else None


def _first(keys: Keys, names: tuple[str, ...], zero: bool) -> float | None:
    return next((_number(keys, name, zero) for name in names if name in keys.given), None)


def _text(keys: Keys, name: str) -> str:
    return str(keys.given[name].value).casefold() if name in keys.given else ""


def _number(keys: Keys, name: str, zero: bool = False) -> float | None:
    """A number that such a constant may be; what else is written is said by the ledger to have no effect."""
    try:
        value = float(_text(keys, name))
    except ValueError:
        return None
    return value if math.isfinite(value) and (value > 0 or zero) else None
