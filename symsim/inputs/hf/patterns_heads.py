"""Layers whose attention differs by their type in more than a window: in heads, in softmax offsets, in how much of a head RoPE turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config
from symsim.inputs.hf.fields import Ffns, Mixers, typed
from symsim.inputs.hf.patterns import Rule
from symsim.inputs.hf.rotary import in_pairs


def _types(c: Config, whole: Rule) -> list[str]:
    """`layer_types`, or full attention where the rule says so and a window elsewhere."""
    given = c.items("layer_types", str, c.depth)
    is_whole = whole(c)
    return given or ["full_attention" if is_whole(i) else "sliding_attention" for i in range(c.depth)]


def tabled(mixers: Mixers) -> Mixers:
    """Refuse rope_parameters without a table for a type of layer that there is, even where only angles stand in it: module code looks one up."""

    def kinds(c: Config) -> list[LayerKind]:
        made = mixers(c)
        for layer_type in sorted({"sliding_attention" if kind.window else "full_attention" for kind in made}):
            _table(c, layer_type)
        return made

    return kinds


def _table(c: Config, layer_type: str) -> Mapping[str, Any] | None:
    """All that rope_parameters says; None where it is left out."""
    every = c.values.get("rope_parameters")
    if every is not None and (not isinstance(every, Mapping) or layer_type not in every):
        raise c.refuse("rope_parameters", f"a table for each type of layer, of which it lacks {layer_type}", every)
    return every


def rotary_of(c: Config, layer_type: str) -> Mapping[str, Any] | None:
    """What rope_parameters says of a type of layer; None where it is left out."""
    every = _table(c, layer_type)
    if every is None:
        return None
    c.notes["rope_parameters"] = "only which layers it turns, and how much of a head, counts: rope and rotary_fraction"
    said = every[layer_type]
    if said is not None and not isinstance(said, Mapping):
        raise c.refuse(f"rope_parameters.{layer_type}", "a table", said)
    return said if said is not None else {"rope_type": "none"}


def _turned(c: Config, layer_type: str, omitted: float) -> float:
    """The part of a head that turns. omitted: of a config without rope_parameters; what a table leaves out is the default of
    `partial_rotary_factor`."""
    said = rotary_of(c, layer_type)
    part = omitted if said is None else said.get("partial_rotary_factor", c.spelling.defaults["partial_rotary_factor"])
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part <= 1:
        raise c.refuse(f"rope_parameters.{layer_type}.partial_rotary_factor", "a number from 0 to 1", part)
    return in_pairs(c.integer("head_dim"), part)


def _heads(c: Config, name: str, heads: int, groups: int) -> None:
    if heads % groups:
        raise c.refuse(name, f"a multiple of the {groups} key/value heads of the layer", heads)


def mimo_mixers(c: Config) -> list[LayerKind]:
    """configuration_mimo_v2_flash.py: the first layer and every sixth attend to everything; those with a window have twice as many key/value heads,
    and softmax offsets."""
    types = _types(c, lambda c: lambda i: i == 0 or (i + 1) % 6 == 0)
    groups, heads = c.integer("num_key_value_heads"), c.integer("num_attention_heads")
    before = c.optional("sliding_window_size")
    made = []
    attending = ["full_attention" if before and name == "sliding_attention" else name for name in types]
    for kind, name in zip(typed(c, attending), types, strict=True):
        local = name == "sliding_attention"
        if before and local:  # tokens in front of the one that attends
            kind = kind.model_copy(update={"window": before + 1})
        _heads(c, "num_attention_heads", heads, groups * (1 + local))
        own = {"rotary_fraction": _turned(c, name, 0.334)} | ({"num_query_groups": 2 * groups, "sinks": True} if local else {})
        made.append(kind.model_copy(update=own))
    return made


def laguna_mixers(c: Config) -> list[LayerKind]:
    """configuration_laguna.py: query heads layer by layer; RoPE turns half of a head where attention is to everything."""
    types = _types(c, lambda c: lambda i: True)
    usual, groups = c.integer("num_attention_heads"), c.integer("num_key_value_heads")
    name, many = c.look("num_attention_heads_per_layer")
    heads = [usual] * c.depth if many is None else c.items("num_attention_heads_per_layer", int, c.depth) or []
    made = []
    for kind, layer_type, own in zip(typed(c, types), types, heads, strict=True):
        if own < 1:
            raise c.refuse(name, "positive integers", many)
        _heads(c, name, own, groups)
        part = _turned(c, layer_type, 0.5 if layer_type == "full_attention" else 1.0)
        made.append(kind.model_copy(update={"num_attention_heads": own if own != usual else None, "rotary_fraction": part}))
    return made


def step_mixers(c: Config) -> list[LayerKind]:
    """configuration_step3p7.py: layers with a window may have another number of query heads."""
    types = c.items("layer_types", str) or ["full_attention"] * c.depth
    if len(types) == c.depth + c.integer("num_nextn_predict_layers", 0):  # what comes after the layers is of multi-token prediction
        types = types[: c.depth]
    if len(types) != c.depth:
        raise c.refuse(c.look("layer_types")[0], f"a list of {c.depth} types", types)
    usual, groups, own = c.integer("num_attention_heads"), c.integer("num_key_value_heads"), c.optional("num_sliding_attention_heads")
    other = c.values.get("attention_other_setting")
    if own is None and isinstance(other, Mapping):
        c.notes["attention_other_setting"] = "only its num_attention_heads counts"
        own = other.get("num_attention_heads", usual)
    made = []
    for kind, name in zip(typed(c, types), types, strict=True):
        heads = (own or usual) if name == "sliding_attention" else usual
        _heads(c, "num_sliding_attention_heads", heads, groups)
        made.append(kind.model_copy(update={"num_attention_heads": heads if heads != usual else None}))
    return made


def beam_mixers(c: Config) -> list[LayerKind]:
    """configuration_beam.py: every sixth layer and the last attend to everything, without RoPE unless rope_parameters says otherwise."""
    types = _types(c, lambda c: lambda i: (i + 1) % 6 == 0 or i == c.depth - 1)
    turned = {}
    for name in set(types):
        said = rotary_of(c, name)
        turned[name] = name == "sliding_attention" if said is None else said.get("rope_type") != "none"
    return [kind.model_copy(update={"rope": turned[name]}) for kind, name in zip(typed(c, types), types, strict=True)]


def lfm3_mixers(c: Config) -> list[LayerKind]:
    """configuration_lfm3.py: of four layers two are short convolutions, one has a window and one attends to everything; proportional RoPE has angles
    for all of a head, of which some are zero."""
    types = c.items("layer_types", str, c.depth)
    if types is None:
        types = ["full_attention" if i % 4 == 2 else "sliding_attention" if i % 4 == 0 and i else "conv" for i in range(c.depth)]
    for name in sorted({*types} - {"conv"}):
        _table(c, name)
    attending = typed(c, ["full_attention" if name == "conv" else name for name in types])
    return [LayerKind(mixer="short_convolution") if name == "conv" else kind for kind, name in zip(attending, types, strict=True)]


def step_ffns(c: Config) -> list[str]:
    """configuration_step3p7.py: `mlp_layer_types`, or the layers that `moe_layers_enum` names, or all but the first three."""
    given = c.items("mlp_layer_types", str)
    if given is not None:
        return ["moe" if kind == "sparse" else "mlp" for kind in given[: c.depth]]
    chosen = c.values.get("moe_layers_enum")
    if chosen is None:
        return ["moe" if i >= 3 else "mlp" for i in range(c.depth)]
    c.notes["moe_layers_enum"] = "which layers have experts"
    items = chosen.split(",") if isinstance(chosen, str) else chosen
    if not isinstance(items, list | tuple) or not all(str(item).strip().isdigit() for item in items):
        raise c.refuse("moe_layers_enum", "layers, counted from 0", chosen)
    return ["moe" if i in {int(item) for item in items} else "mlp" for i in range(c.depth)]


def flint_windows(c: Config) -> list[LayerKind]:
    """configuration_flint.py: the first two layers, every fourth and the last attend to everything, without RoPE."""
    kinds = typed(c, _types(c, lambda c: lambda i: i < 2 or i % 4 == 1 or i == c.depth - 1))
    return [kind.model_copy(update={"rope": kind.window is not None}) for kind in kinds]


def modern_mixers(c: Config) -> list[LayerKind]:
    """configuration_modernbert_decoder.py: every third layer attends to everything, the others to half of local_attention behind; the first reads
    the embedding's norm."""
    every, width = c.integer("global_attn_every_n_layers"), c.optional("local_attention")
    types = _types(c, lambda c: lambda i: i % every == 0)
    # names that there are not are refused; the width of a window has another key
    typed(c, ["full_attention" if name == "sliding_attention" else name for name in types])
    kinds = [LayerKind(window=width // 2 if width and name == "sliding_attention" else None) for name in types]
    return [kinds[0].model_copy(update={"norms": ("pre_mlp",)}), *kinds[1:]]


def modern_both_ways(c: Config) -> list[LayerKind]:
    """configuration_modernbert.py: the same of an encoder, with half of local_attention on either side, and the token itself."""
    both = [kind.model_copy(update={"bidirectional": True}) for kind in modern_mixers(c)]
    return [kind.model_copy(update={"window": kind.window + 1 if kind.window else None}) for kind in both]


def flint_ffns(c: Config) -> list[str]:
    """configuration_flint.py: mlp_only_layers, or the first two layers; of the others every decoder_sparse_step-th has experts."""
    step, said = c.integer("decoder_sparse_step"), c.items("mlp_only_layers", int)
    plain = (0, 1) if said is None else said
    return ["moe" if i not in plain and (i + 1) % step == 0 else "mlp" for i in range(c.depth)]


def normed_experts(mixers: Mixers, ffns: Ffns) -> Mixers:
    """modeling_axk1.py: what experts make is normed once more."""

    def kinds(c: Config) -> list[LayerKind]:
        more = {"norms": ("pre_attention", "pre_mlp", "post_mlp")}
        pairs = zip(mixers(c), ffns(c), strict=True)
        return [kind.model_copy(update=more) if ffn == "moe" else kind for kind, ffn in pairs]

    return kinds
