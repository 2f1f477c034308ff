"""Gemma 3n and Gemma 4: layers of two head dimensions, of which the last may take keys and values from earlier ones, and embeddings for every layer.

Source: transformers 5.23, src/transformers/models, configuration_gemma3n.py and modeling_gemma3n.py of gemma3n, those of gemma4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symsim.errors import InputError
from symsim.inputs.architecture import AltUp, LayerKind, PerLayerInput
from symsim.inputs.hf.config import Config, act, given, integer
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import BIASED, FOUR_NORMS, experts
from symsim.inputs.hf.patterns_heads import tabled
from symsim.inputs.limits import LARGEST_SIZE

# fmt: off


def _types(c: Config, every: int) -> list[str]:
    """One layer of so many attends to everything, unless the config says which do."""
    types = c.items("layer_types", str, c.depth) or ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(c.depth)]
    wrong = [t for t in types if t not in ("sliding_attention", "full_attention")]
    if wrong:
        raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]:.40}', which this model_type does not have.")
    return types


def _window(c: Config, types: list[str]) -> int | None:
    """Layers that attend to a window need one."""
    return c.integer("sliding_window") if "sliding_attention" in types else c.optional("sliding_window")


def taking_over(c: Config, types: list[str]) -> list[bool]:
    """Which layers have keys and values of the last layer of their type before them that has its own."""
    many = c.integer("num_kv_shared_layers", 0)
    if many and set(types[: max(c.depth - many, 0)]) != set(types):
        raise c.refuse(c.look("num_kv_shared_layers")[0], "so few that a layer of every type has keys and values of its own", many)
    return [i >= c.depth - many for i in range(c.depth)]


def _groups(c: Config, key: str) -> int:
    heads, groups = c.integer("num_attention_heads"), c.integer(key)
    if heads % groups:
        raise c.refuse(c.look(key)[0], f"a divisor of num_attention_heads {heads}", groups)
    return groups


def _experts(c: Config) -> bool:
    """Whether every layer has experts beside its dense network."""
    return "enable_moe_block" in c.spelling.defaults and c.flag("enable_moe_block")


def gemma4_mixers(c: Config) -> list[LayerKind]:
    types = [*_types(c, 6)[:-1], "full_attention"]  # the last too, whatever the config says of it
    window, wide, equal = _window(c, types), c.integer("global_head_dim"), c.flag("attention_k_eq_v")
    own_groups = _groups(c, "num_global_key_value_heads") if equal and c.look("num_global_key_value_heads")[1] is not None else None
    doubled = 2 * c.integer("intermediate_size") if c.flag("use_double_wide_mlp") else None
    saved = _saved_heads(c)
    made = []
    for i, (kind, shares) in enumerate(zip(types, taking_over(c, types), strict=True)):
        own: dict[str, object] = {"shared_keys": shares, "ffn_hidden_size": doubled if shares else None, "beside_experts": _experts(c)}
        if kind == "full_attention":
            own |= {"kv_channels": wide, "num_query_groups": own_groups, "keys_as_values": equal and not shares}
        else:
            own |= {"window": window}
        if saved is not None:
            own |= {"kv_channels": None, "num_query_groups": None, **saved.get(i, {})}
        made.append(LayerKind(**own))
    return made


def _saved_heads(c: Config) -> dict[int, dict[str, int]] | None:
    """per_layer_config: what transformers saves in place of global_head_dim and num_global_key_value_heads, by layer; None where nothing is."""
    name, said = c.look("per_layer_config")
    if said is None:
        return None
    ours, heads = {"head_dim": "kv_channels", "num_key_value_heads": "num_query_groups"}, c.integer("num_attention_heads")
    found: dict[int, dict[str, int]] = {}
    for layer, sizes in said.items() if isinstance(said, Mapping) else [("", said)]:
        known = str(layer).isdigit() and int(layer) < c.depth and isinstance(sizes, Mapping) and sizes.keys() <= ours.keys()
        if not known or not all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= LARGEST_SIZE for size in sizes.values()):
            raise c.refuse(name, "of layers, counted from 0, their head_dim and num_key_value_heads", said)
        if heads % sizes.get("num_key_value_heads", 1):
            raise c.refuse(f"{name}.{layer}.num_key_value_heads", f"a divisor of num_attention_heads {heads}", sizes["num_key_value_heads"])
        found[int(layer)] = {ours[key]: size for key, size in sizes.items()}
    return found


def embeddings_of_layers(c: Config) -> PerLayerInput | None:
    width = c.integer("hidden_size_per_layer_input", 0)
    return PerLayerInput(hidden_size=width, vocab_size=c.integer("vocab_size_per_layer_input")) if width else None


def _widths(c: Config) -> list[int]:
    """Of the network of every layer."""
    name, value = c.look("intermediate_size")
    widths = c.items("intermediate_size", int, c.depth) if isinstance(value, list | tuple) else [c.integer("intermediate_size")] * c.depth
    assert widths is not None
    wrong = [width for width in widths if isinstance(width, bool) or not 1 <= width <= LARGEST_SIZE]
    if wrong:
        raise c.refuse(name, f"positive integers of at most {LARGEST_SIZE}", wrong[0])
    return widths


def _cut(c: Config) -> list[bool]:
    """Whether gate values of each layer are cut off: of the first ten, where the config says nothing and there are more."""
    name, pattern = c.look("activation_sparsity_pattern")
    if pattern is None:
        return [i < 10 < c.depth for i in range(c.depth)]
    if not isinstance(pattern, list | tuple) or not all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1 for v in pattern):
        raise c.refuse(name, "a list of numbers from 0 to below 1", pattern)
    if len(pattern) != c.depth:
        raise InputError(f"{c.where}: key '{name}' has {len(pattern)} entries, but there are {c.depth} layers.")
    return [value > 0 for value in pattern]


def gemma3n_mixers(c: Config) -> list[LayerKind]:
    types, widths = _types(c, 5), _widths(c)
    window = _window(c, types)
    return [
        LayerKind(window=window if kind == "sliding_attention" else None, shared_keys=shares, activation_sparsity=cut,
                  ffn_hidden_size=width if width != widths[0] else None)
        for kind, shares, cut, width in zip(types, taking_over(c, types), _cut(c), widths, strict=True)
    ]


def _altup(c: Config) -> AltUp:
    name, at = c.look("altup_active_idx")
    if at != 0:
        raise c.refuse(name, "0: the stream that layers compute on is the first", at)
    if c.look("altup_coef_clip")[1] is None:
        raise c.refuse("altup_coef_clip", "a number: weights are clamped in training", None)
    return AltUp(num_inputs=c.integer("altup_num_inputs", 2), correct_scale=c.flag("altup_correct_scale"))


_UNIFIED = Family(
    {"global_head_dim": 512, "num_global_key_value_heads": None, "per_layer_config": None},
    attention=BIASED | {"qk_norm": "head", "v_norm": True, "num_query_groups": lambda c: _groups(c, "num_key_value_heads"),
                        "kv_channels": lambda c: c.integer("head_dim")},
    mixers=tabled(gemma4_mixers), names={"hidden_act": ("hidden_activation",)},
    model={"embedding_scale": True, "norms": FOUR_NORMS, "layer_scale": True, "logit_softcap": given("final_logit_softcapping")},
    unread={"is_causal": "set by use_bidirectional_attention"})


GEMMAS: dict[str, Family] = {
    "gemma3n_text": Family(
        attention=BIASED | {"qk_norm": "head", "v_norm": True, "num_query_groups": lambda c: _groups(c, "num_key_value_heads"),
                            "kv_channels": integer("head_dim")},
        mlp={"ffn_hidden_size": lambda c: _widths(c)[0], "activation": act()},
        mixers=gemma3n_mixers, names={"hidden_act": ("hidden_activation",)}, heads_divide=True,
        model={"embedding_scale": True, "norms": FOUR_NORMS, "logit_softcap": given("final_logit_softcapping"), "altup": _altup,
               "laurel_rank": integer("laurel_rank"), "per_layer_input": lambda c: PerLayerInput(
                   hidden_size=c.integer("hidden_size_per_layer_input"), vocab_size=c.integer("vocab_size_per_layer_input"))}),
    "gemma4_unified_text": _UNIFIED,
    "gemma4_text": replace(
        _UNIFIED, model=_UNIFIED.model | {"per_layer_input": embeddings_of_layers}, ffns=lambda c: ["moe" if _experts(c) else "mlp"] * c.depth,
        moe=experts("num_experts", "moe_intermediate_size", router_norm=True, per_expert_scale=True),
        names={**_UNIFIED.names, "num_experts_per_tok": ("top_k_experts",)}),
}
