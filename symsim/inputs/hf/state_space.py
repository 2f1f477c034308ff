"""How the fields of state-space mixers and the layers of hybrid stacks are read from config keys.

Source: transformers 5.23, configuration_utils.py (names of layer types that older files have), models/bamba, granitemoehybrid, nemotron_h.
"""

from __future__ import annotations

from typing import Literal

from symsim.errors import InputError
from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, Fields, Value, flag, integer
from symsim.inputs.hf.fields import head_dim
from symsim.inputs.mixers import SharedBlock

# what files of before transformers 5.20 call the types
_TYPES = {"linear_attention": "mamba", "mamba": "mamba", "full_attention": "attention", "attention": "attention"}
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _head_dim(c: Config) -> int:
    """mamba_d_head: "auto" is what mamba_expand leaves for a head."""
    inner, heads = c.integer("mamba_expand") * c.integer("hidden_size"), c.integer("mamba_n_heads")
    name, said = c.look("mamba_d_head")
    dim = inner // heads if said == "auto" else c.integer("mamba_d_head")
    if dim * heads != inner:
        raise c.refuse(name, f"mamba_expand * hidden_size, which is {inner}, over mamba_n_heads {heads}, without rest", said)
    return dim


MAMBA: Fields = {
    "mamba_num_heads": integer("mamba_n_heads"),
    "mamba_head_dim": _head_dim,
    "mamba_num_groups": integer("mamba_n_groups"),
    "mamba_state_dim": integer("mamba_d_state"),
    "mamba_conv_kernel_dim": integer("mamba_d_conv"),
    "mamba_chunk_size": integer("mamba_chunk_size"),
    "conv_bias": flag("mamba_conv_bias"),
    "in_bias": flag("mamba_proj_bias"),
    "out_bias": flag("mamba_proj_bias"),
}
"""Bamba's names, which most hybrids have."""

MAMBA_DEFAULTS: Fields = {
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 256,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
}


def _inner_head_dim(c: Config) -> int:
    """modeling_falcon_h1.py: mamba_d_ssm channels, or mamba_expand * hidden_size where it is null."""
    inner = c.optional("mamba_d_ssm") or c.integer("mamba_expand") * c.integer("hidden_size")
    heads, (name, said) = c.integer("mamba_n_heads"), c.look("mamba_d_head")
    dim = inner // heads if said == "auto" else c.integer("mamba_d_head")
    if dim * heads != inner:
        raise c.refuse(name, f"the {inner} channels (mamba_d_ssm) over mamba_n_heads {heads}, without rest", said)
    return dim


def _gated_norm(c: Config) -> bool:
    if c.flag("mamba_rms_norm") and c.flag("mamba_norm_before_gate"):
        raise c.refuse("mamba_norm_before_gate", "false where mamba_rms_norm is true: a norm in front of the gate is not read", True)
    return c.flag("mamba_rms_norm")


FALCON_MAMBA2: Fields = MAMBA | {"mamba_head_dim": _inner_head_dim, "out_bias": flag("projectors_bias"), "gated_norm": _gated_norm}


def _plain_head_dim(c: Config) -> int:
    """configuration_mamba2.py validate_architecture."""
    inner, heads, dim = c.integer("expand") * c.integer("hidden_size"), c.integer("num_heads"), c.integer("head_dim")
    if dim * heads != inner:
        raise c.refuse("head_dim", f"expand * hidden_size, which is {inner}, over num_heads {heads}, without rest", dim)
    return dim


PLAIN_MAMBA2: Fields = {
    "mamba_num_heads": integer("num_heads"),
    "mamba_head_dim": _plain_head_dim,
    "mamba_num_groups": integer("n_groups"),
    "mamba_state_dim": integer("state_size"),
    "mamba_conv_kernel_dim": integer("conv_kernel"),
    "mamba_chunk_size": integer("chunk_size"),
    "conv_bias": flag("use_conv_bias"),
    "in_bias": flag("use_bias"),
    "out_bias": flag("use_bias"),
}
"""Names of state-spaces' own models."""

NEMOTRON_MAMBA: Fields = {
    "mamba_num_heads": integer("mamba_num_heads"),
    "mamba_head_dim": integer("mamba_head_dim"),
    "mamba_num_groups": integer("n_groups"),
    "mamba_state_dim": integer("ssm_state_size"),
    "mamba_conv_kernel_dim": integer("conv_kernel"),
    "mamba_chunk_size": integer("chunk_size"),
    "conv_bias": flag("use_conv_bias"),
    "in_bias": flag("use_bias"),
    "out_bias": flag("use_bias"),
}


def _kind(mixer: str) -> LayerKind:
    return LayerKind(mixer="mamba") if mixer == "mamba" else LayerKind(mixer="none" if mixer in ("mlp", "moe") else "attention")


def _typed(c: Config, types: list[str], known: dict[str, str]) -> list[str]:
    wrong = [t for t in types if t not in known]
    if wrong:
        raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]}', which this model_type does not have.")
    return [known[t] for t in types]


ZAMBA2_MAMBA: Fields = {
    "mamba_num_heads": integer("n_mamba_heads"),
    "mamba_head_dim": lambda c: _whole_head_dim(c),
    "mamba_num_groups": integer("mamba_ngroups"),
    "mamba_state_dim": integer("mamba_d_state"),
    "mamba_conv_kernel_dim": integer("mamba_d_conv"),
    "mamba_chunk_size": integer("chunk_size"),
    "in_bias": flag("add_bias_linear"),
    "out_bias": flag("add_bias_linear"),
}


def _whole_head_dim(c: Config) -> int:
    """configuration_zamba2.py: what is left over of channels that heads do not divide ends in an error of the module code."""
    inner, heads = c.integer("mamba_expand") * c.integer("hidden_size"), c.integer("n_mamba_heads")
    if inner % heads:
        raise c.refuse("n_mamba_heads", f"a divisor of mamba_expand * hidden_size, which is {inner}", heads)
    c.follows("mamba_headdim", inner // heads, "mamba_expand * hidden_size over n_mamba_heads")
    return inner // heads


def zamba2_head_dim(c: Config) -> int:
    """configuration_zamba2.py: heads of twice the model's width together, where no head_dim is said."""
    both, heads, said = 2 * c.integer("hidden_size"), c.integer("num_attention_heads"), c.optional("head_dim")
    if said and said * heads != both and c.flag("use_shared_attention_adapter"):
        raise c.refuse(c.look("head_dim")[0], f"{both // heads} with use_shared_attention_adapter, whose queries are twice hidden_size wide", said)
    c.follows("attention_hidden_size", both, "twice hidden_size")
    return said or both // heads


def _zamba2(c: Config) -> list[bool]:
    """configuration_zamba2.py: which layers have the shared block."""
    types = c.items("layer_types", str, c.depth)
    if "layers_block_type" not in c.values and c.values.get("layer_types") is not None:
        raise InputError(f"{c.where}: key 'layer_types' must be called layers_block_type, by which transformers gives hybrid layers their adapters.")
    if types is None:
        if c.depth != 54:
            raise c.refuse(c.look("layer_types")[0], "given where there are not 54 layers", None)
        types = ["mamba", *(["mamba"] * 5 + ["hybrid"]) * 7, *["mamba"] * 4, "hybrid", *["mamba"] * 3, "hybrid", *["mamba"] * 2]
    shared = [one == "hybrid" for one in _typed(c, types, {"linear_attention": "mamba", "mamba": "mamba", "hybrid": "hybrid"})]
    c.follows("hybrid_layer_ids", [i for i, one in enumerate(shared) if one], "the hybrid layers of layers_block_type")
    return shared


def zamba2_mixers(c: Config) -> list[LayerKind]:
    """modeling_zamba2.py, get_layers: the first num_mem_blocks hybrid layers hold a block each, the others take these in turn."""
    made, hybrid, blocks = [], 0, c.integer("num_mem_blocks")
    for shares in _zamba2(c):
        hybrid += shares
        block: Literal["none", "held", "borrowed"] = "none" if not shares else "held" if hybrid <= blocks else "borrowed"
        made.append(LayerKind(mixer="mamba", shared_block=block, in_turn=blocks if block == "borrowed" else 1))
    return made


def zamba2_block(c: Config) -> SharedBlock | None:
    if not any(_zamba2(c)):
        return None
    adapters = c.flag("use_shared_attention_adapter")
    groups = c.optional("num_key_value_heads")
    if adapters and groups not in (None, c.integer("num_attention_heads")):
        raise c.refuse("num_key_value_heads", "num_attention_heads with use_shared_attention_adapter, whose keys are as wide as queries", groups)
    return SharedBlock(adapter_rank=c.integer("adapter_rank"), attention_adapters=adapters)


def indexed_mixers(c: Config) -> list[LayerKind]:
    """configuration_bamba.py: attention in the layers of attn_layer_indices, state spaces in all others."""
    chosen = c.items("attn_layer_indices", int) or []
    return [_kind("attention" if i in chosen else "mamba") for i in range(c.depth)]


def typed_mixers(c: Config) -> list[LayerKind]:
    """configuration_granitemoehybrid.py: layer_types, or state spaces alone."""
    types = c.items("layer_types", str, c.depth) or ["mamba"] * c.depth
    return [_kind(mixer) for mixer in _typed(c, types, _TYPES)]


def granite_ffns(c: Config) -> list[str]:
    return ["moe" if c.integer("num_local_experts", 0) else "mlp"] * c.depth


def _nemotron(c: Config) -> list[str]:
    """configuration_nemotron_h.py: a mixer or a feed-forward network a layer, as layers_block_type has them, or the letters of
    hybrid_override_pattern; num_hidden_layers does not count."""
    types = c.items("layer_types", str)
    if types is None:
        name, pattern = c.look("hybrid_override_pattern")
        if pattern is None:
            return ["mamba", "moe", "attention", "mlp"]
        if not isinstance(pattern, str) or not pattern or set(pattern) - set(_LETTERS):
            raise c.refuse(name, f"a text of the letters {' '.join(_LETTERS)}", pattern)
        types = list(pattern)
    return _typed(c, types, _TYPES | _LETTERS | {"mlp": "mlp", "moe": "moe"})


def nemotron_head_dim(c: Config) -> int | None:
    """configuration_nemotron_h.py: head_dim; attention_head_dim is the name that the files of other code have."""
    name, size = c.look("head_dim")
    default = c.spelling.defaults["head_dim"]
    if name == "attention_head_dim" and name in c.values and size != default:
        raise c.refuse(name, f"given as head_dim, which transformers reads ({default} without it)", size)
    return head_dim(c)


def nemotron_mixers(c: Config) -> list[LayerKind]:
    return [_kind(what) for what in _nemotron(c)]


def nemotron_ffns(c: Config) -> list[str]:
    return [what if what in ("mlp", "moe") else "none" for what in _nemotron(c)]


def beside_attention(c: Config) -> list[LayerKind]:
    """modeling_falcon_h1.py: attention and a state space in every layer."""
    return [LayerKind(beside="mamba")] * c.depth


def states_alone(c: Config) -> list[LayerKind]:
    return [_kind("mamba")] * c.depth


def without_ffn(c: Config) -> list[str]:
    return ["none"] * c.depth


def _rank(key: str) -> Value:
    """ "auto": a sixteenth of hidden_size, rounded up."""
    return lambda c: -(-c.integer("hidden_size") // 16) if c.look(key)[1] == "auto" else c.integer(key)


def _expanded(key: str) -> Value:
    return lambda c: c.integer(key) * c.integer("hidden_size")


SELECTIVE: Fields = {
    "channels": lambda c: c.optional("intermediate_size") or _expanded("expand")(c),
    "state_dim": integer("state_size"),
    "step_rank": _rank("time_step_rank"),
    "conv_kernel_dim": integer("conv_kernel"),
    "conv_bias": flag("use_conv_bias"),
    "proj_bias": flag("use_bias"),
}
"""Names of state-spaces' own models."""

JAMBA: Fields = {
    "channels": _expanded("mamba_expand"),
    "state_dim": integer("mamba_d_state"),
    "step_rank": _rank("mamba_dt_rank"),
    "conv_kernel_dim": integer("mamba_d_conv"),
    "conv_bias": flag("mamba_conv_bias"),
    "proj_bias": flag("mamba_proj_bias"),
    "inner_norm": "weight",
}


def channels_alone(c: Config) -> list[LayerKind]:
    return [LayerKind(mixer="selective_scan")] * c.depth


def _turn(c: Config, period: str, offset: str) -> list[bool]:
    """The layers whose number leaves a rest of `offset` over `period`."""
    every, first = c.integer(period), c.integer(offset, 0)
    if first >= every:
        raise c.refuse(c.look(offset)[0], f"below {period} {every}", first)
    return [i % every == first for i in range(c.depth)]


def jamba_mixers(c: Config) -> list[LayerKind]:
    """configuration_jamba.py: attention without positions once in a period, Mamba-1 in the other layers."""
    return [LayerKind(rope=False) if attends else LayerKind(mixer="selective_scan") for attends in _turn(c, "attn_layer_period", "attn_layer_offset")]


def jamba_ffns(c: Config) -> list[str]:
    """configuration_jamba.py: experts once in a period, where there are more than one."""
    several = c.integer("num_local_experts") > 1
    return ["moe" if chosen and several else "mlp" for chosen in _turn(c, "expert_layer_period", "expert_layer_offset")]
