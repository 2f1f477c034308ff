"""Numbers of a config.json from which no cost follows: the constant of norms, angles of rotary positions, scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from symsim.inputs.arithmetic import OF_STRETCHED, Arithmetic, tokens_of

_NAMES = {
    "norm_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "init_method_std": ("initializer_range", "init_std"),
    "moe_router_topk_scaling_factor": ("routed_scaling_factor", "moe_routed_scaling_factor"),
    "activation_func_clamp_value": ("swiglu_limit",),
}
_TABLES = ("rope_parameters", "rope_scaling")
_BASES = ("rope_theta", "rotary_emb_base")
# of models whose layers turn by several tables
_SEVERAL = ("rope_local_base_freq", "layer_rope_theta", "compress_rope_theta")
_SPELT = {"su": "longrope", "mrope": "default"}
_TYPES = get_args(get_args(Arithmetic.model_fields["rope_type"].annotation)[0])


def arithmetic(values: Mapping[str, Any], turned: bool, clamped: bool, routed: bool) -> Arithmetic | None:
    """What a config says of them; None where it says nothing. turned: whether positions are angles; clamped, routed: whether there is a network of
    clamped activations, and a router."""
    read = {"activation_func_clamp_value": clamped, "moe_router_topk_scaling_factor": routed}
    found: dict[str, Any] = {field: _first(values, names) for field, names in _NAMES.items() if read.get(field, True)}
    if turned:
        found |= _angles(values)
    # modeling_gpt_oss.py, modeling_minimax_m3_vl.py: (up + 1) * glu
    found["glu_linear_offset"] = 1.0 if clamped else None
    found = {field: value for field, value in found.items() if value is not None}
    return Arithmetic(**found) if found else None


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    return next((_number(values[name]) for name in names if name in values), None)


def _number(value: Any, least: float = 5e-324) -> float | None:
    """A number that such a constant may be."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) <= 1e300 and math.isfinite(value) and value >= least else None


def _angles(values: Mapping[str, Any]) -> dict[str, Any]:
    table = next((table for name in _TABLES if isinstance(table := values.get(name), Mapping)), {})
    base = _first({**table, **{name: value for name, value in values.items() if value is not None}}, _BASES)
    several = any(isinstance(value, Mapping) for value in table.values()) or any(values.get(name) is not None for name in _SEVERAL)
    kind = table.get("rope_type", table.get("type", "default"))
    kind = _SPELT.get(kind, kind) if isinstance(kind, str) else None
    if base is None or several or kind not in _TYPES:
        return {}
    made = {"rotary_base": base, "rope_type": kind}
    if kind == "default":
        return made
    stretched: dict[str, Any] = {name: _number(table.get(name), 0 if name.startswith("mscale") else 5e-324) for name in OF_STRETCHED}
    if stretched["original_max_position_embeddings"] is None and kind in ("yarn", "longrope", "llama3"):
        stretched["original_max_position_embeddings"] = _number(values.get("original_max_position_embeddings"))
    stretched["original_max_position_embeddings"] = tokens_of(stretched["original_max_position_embeddings"])
    whole = table.get("truncate")
    return {**made, **stretched, "rope_scaling_factor": _number(table.get("factor")), "truncate": whole if isinstance(whole, bool) else None}
