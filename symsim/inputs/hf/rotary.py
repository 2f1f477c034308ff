"""How much of a head RoPE turns, which it does in pairs of elements.

Source: transformers 5.23 and 5.24, modeling_rope_utils.py and *RotaryEmbedding of modeling_*.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.hf.config import Config
from symsim.inputs.hf.family import Family

_ROPE = ("rope_parameters", "rope_scaling")


def rotary_fraction(c: Config, outside: str = "partial_rotary_factor") -> float:
    return in_pairs(_head(c), _part(c, outside))


def _part(c: Config, outside: str) -> float:
    """partial_rotary_factor stands at the top level (under the name `outside`), or inside the rope dictionary since transformers 5."""
    for place in _ROPE:
        inner = c.values.get(place)
        if isinstance(inner, Mapping) and "partial_rotary_factor" in inner:
            value = inner["partial_rotary_factor"]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise c.refuse(f"{place}.partial_rotary_factor", "a number from 0 to 1", value)
            c.notes[place] = "only its partial_rotary_factor counts: attention.rotary_fraction"
            return float(value)
    return c.number(outside)


def cut_fraction(c: Config, outside: str = "partial_rotary_factor") -> float:
    """modeling_phi.py and its like: a head is cut at int(head_dim * part), and what comes before turns by tables of pairs."""
    head, part = _head(c), _part(c, outside)
    turned = int(head * part)
    if turned % 2:
        said = next((f"{place}.partial_rotary_factor" for place in _ROPE if place in c.notes), outside)
        raise c.refuse(said, f"such that RoPE turns an even number of a head's {head} elements", part)
    return turned / head if head else part


def in_pairs(head: int, part: float) -> float:
    """The part of a head that turns: whole elements (int(head * part) in every *RotaryEmbedding), and tables are of pairs of them, so that an odd
    number turns one more."""
    width = int(head * part)
    return part if width == head * part and width % 2 == 0 else min(1.0, (width + width % 2) / head)


def _head(c: Config) -> int:
    return c.optional("head_dim") or c.integer("hidden_size") // c.integer("num_attention_heads")


def in_three(c: Config) -> float:
    """configuration_cosmos3_edge.py: a head turns by time, height and width, whose sections are half of it together."""
    given = next((inner for place in _ROPE if isinstance(inner := c.values.get(place), Mapping)), {"mrope_section": [24, 20, 20]})
    sections: Any = given.get("mrope_section")
    parts = [x for x in sections if type(x) is int] if isinstance(sections, list) else []
    if len(parts) != 3 or len(parts) != len(sections) or sum(parts) != _head(c) // 2:
        raise c.refuse("rope_parameters.mrope_section", f"three sections of half of a head's {_head(c)} elements together", sections)
    return rotary_fraction(c)


def rotary_pct(c: Config) -> float:
    """Of GPT-NeoX, outside the rope dictionary by that name alone."""
    return rotary_fraction(c, "rotary_pct")


def cut_pct(c: Config) -> float:
    """Of GPT-NeoX Japanese, whose heads are cut."""
    return cut_fraction(c, "rotary_pct")


def rotary_scaled(c: Config) -> bool:
    """configuration_gpt_oss.py: YaRN unless the config says otherwise; its factor scales cosines and sines where it is not 1."""
    for place in _ROPE:
        inner = c.values.get(place)
        if isinstance(inner, Mapping):
            return inner.get("rope_type", inner.get("type")) == "yarn" and inner.get("factor") != 1
    return True


def rotary_dim(c: Config) -> float:
    """configuration_minimax_m2.py: rotary_dim / head_dim, where no partial_rotary_factor is said."""
    dim, head = c.optional("rotary_dim"), _head(c)
    if dim is not None and dim > head:
        raise c.refuse("rotary_dim", f"at most the head dimension {head}", dim)
    said = any(isinstance(one, Mapping) and "partial_rotary_factor" in one for one in (c.values, *map(c.values.get, _ROPE)))
    return rotary_fraction(c) if dim is None or said else in_pairs(head, dim / head)


def gpt_rotary(c: Config) -> float:
    """modeling_gptj.py: the first rotary_dim of a head turn, all of them where it is null."""
    dim, head = c.optional("rotary_dim"), c.integer("hidden_size") // c.integer("num_attention_heads")
    if dim is not None and dim > head:
        raise c.refuse("rotary_dim", f"at most the head dimension {head}", dim)
    if dim is not None and dim % 2:
        raise c.refuse("rotary_dim", "even: RoPE turns pairs of elements", dim)
    return 1.0 if dim is None else dim / head


def turned_in_pairs(c: Config, family: Family, model: Architecture) -> None:
    """Refuse heads of which RoPE turns an odd number of elements. Tables are of pairs: where they do not fit, transformers ends in an error, and of a
    head of one element it makes two."""
    for kind in model.layer_kinds.values():
        attends = "attention" in kind.mixers or kind.mixer == "compressed_attention" or kind.shared_block != "none"
        if attends and model.position_embedding == "rope" and kind.rope:
            _even(c, model, kind)
    # validate_rope of transformers 5.24, whether a layer of this config turns or not
    (name, given), positions = c.look("head_dim"), family.model.get("position_embedding", "rope")
    own = any(kind.rotary_fraction is not None or kind.kv_channels for kind in model.layer_kinds.values())
    reads = "attention.kv_channels" in c.used.get(name, ()) and (callable(positions) or positions == "rope")
    if reads and not own and given is not None and given > 4 and given % 2 and model.attention.rotary_fraction == 1:
        raise c.refuse(name, "even: transformers refuses others where RoPE would turn all of a head", given)


def _even(c: Config, model: Architecture, kind: LayerKind) -> None:
    attention = model.attention
    if attention.kind == "mla":
        if (turned := attention.qk_pos_emb_head_dim or 0) % 2:
            raise c.refuse("qk_rope_head_dim", "even: RoPE turns pairs of elements", turned)
        return
    head = kind.kv_channels or attention.kv_channels or model.hidden_size // attention.num_attention_heads
    part = attention.rotary_fraction if kind.rotary_fraction is None else kind.rotary_fraction
    if part < 1 or head % 2 == 0:  # a part of a head is of whole pairs (in_pairs)
        return
    name = next((name for name in ("global_head_dim", c.look("head_dim")[0]) if c.values.get(name) == head), None)
    if name:
        raise c.refuse(name, "even: RoPE turns pairs of elements", head)
    hidden, heads = c.look("hidden_size")[0], c.look("num_attention_heads")[0]
    sizes = f"'{hidden}' {c.integer('hidden_size')} and '{heads}' {c.integer('num_attention_heads')}"
    raise InputError(f"{c.where}: keys {sizes} give heads of {head} elements, which must be even: RoPE turns pairs of them.")
