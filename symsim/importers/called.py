"""What modelling code calls the parameters of a model: transformers, whose families differ, and Megatron-Core.

Sources: transformers 5.24 models/*/modeling_*.py (`tests/draws/names.py` holds these names against its own), Megatron-Core d98e8a64
core/transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from symsim.inputs.architecture import Architecture
from symsim.inputs.trained import respelt

if TYPE_CHECKING:
    from symsim.ir.block import Block

# what of a layer's parameters is called otherwise than here, by most families
_OF_TRANSFORMERS = {
    "pre_attention_norm": ("input_layernorm",),
    "pre_mlp_norm": ("post_attention_layernorm",),
    "attention": ("self_attn",),
    "moe.gate.router": ("mlp.gate", "block_sparse_moe.gate"),
    "moe.experts": ("mlp.experts", "block_sparse_moe.experts"),
    "moe.shared_experts": ("mlp.shared_experts", "mlp.shared_expert"),
    "moe.shared_expert_gate.shared_expert_gate": ("mlp.shared_expert_gate",),
    "moe": ("mlp",),
}
_FEED_FORWARD = {
    **{"mlp": ("feed_forward",), "moe.gate.router": ("feed_forward.router",), "moe.experts": ("feed_forward.experts",)},
    "moe.shared_experts": ("feed_forward.shared_expert",),
}
_BY_NUMBERS = {
    **{"mlp.gate_proj": ("feed_forward.w1",), "mlp.up_proj": ("feed_forward.w3",), "mlp.down_proj": ("feed_forward.w2",)},
    **{"moe.gate.router": ("feed_forward.gate",), "moe.experts": ("feed_forward.experts",), "attention.o_proj": ("self_attn.out_proj",)},
    "attention.conv1d": ("conv.conv",),
    **{"pre_attention_norm": ("operator_norm",), "pre_mlp_norm": ("ffn_norm",)},
}
_QUERY_KEY_VALUE = {"attention.qkv_proj": ("attention.query_key_value",), "attention.o_proj": ("attention.dense",)}
_INPUTS, _OUTPUTS = ("gate_proj", "up_proj", "gate_up_proj"), ("down_proj",)
_BLOCK_SPARSE = {
    **{"moe.gate.router": ("block_sparse_moe.router",), "moe.experts": ("block_sparse_moe.experts",)},
    **{f"{network}.{name}": ("shared_mlp.input_linear",) for network in ("mlp", "moe.shared_experts") for name in _INPUTS},
    **{f"{network}.{name}": ("shared_mlp.output_linear",) for network in ("mlp", "moe.shared_experts") for name in _OUTPUTS},
}
# by the type of a config.json
_OF_FAMILIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("jamba", "bamba", "falcon_h1", "llama4_text"), _FEED_FORWARD),
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), _BY_NUMBERS),
    **dict.fromkeys(("granitemoe", "granitemoeshared", "granitemoehybrid", "granitemoe_swa"), _BLOCK_SPARSE),
    **dict.fromkeys(("gpt_oss", "phimoe"), {"moe.gate.router": ("mlp.router",)}),
    "internlm2": {
        **{"attention.qkv_proj": ("attention.wqkv",), "attention.o_proj": ("attention.wo",), "pre_attention_norm": ("attention_norm",)},
        **{name: _BY_NUMBERS[name] for name in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "pre_mlp_norm")},
    },
    "baichuan": {"attention.qkv_proj": ("self_attn.W_pack",)},
    **dict.fromkeys(("bailing_moe", "bailing_moe_v2"), _QUERY_KEY_VALUE),
    "starcoder2": {"mlp.up_proj": ("mlp.c_fc",), "mlp.down_proj": ("mlp.c_proj",)},
    "qwen2_moe": {"moe.shared_experts": ("mlp.shared_expert",)},
    # queries and the gate of their output in one
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
        {"attention.gate_proj": ("self_attn.q_proj",), "moe.shared_experts": ("mlp.shared_expert",)},
    ),
}
# mixers that are no attention, and weights that a family has as one (Phi-3, GLM-4)
_MIXERS = {"linear_attention": ("linear_attn",), "short_convolution": ("conv",), **dict.fromkeys(("mamba", "selective_scan"), ("mamba", "mixer"))}
_JOINT = {"qkv": "qkv_proj", "gate_up": "gate_up_proj"}
_OF_MEGATRON = {
    "pre_attention_norm.weight": ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
    "pre_mlp_norm.weight": ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
    **dict.fromkeys(("attention.q_proj", "attention.k_proj", "attention.v_proj"), ("self_attention.linear_qkv",)),
    "attention.o_proj": ("self_attention.linear_proj",),
    "attention.q_norm": ("self_attention.q_layernorm",),
    "attention.k_norm": ("self_attention.k_layernorm",),
    "attention": ("self_attention",),
    **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), ("mlp.linear_fc1",)),
    "mlp.down_proj": ("mlp.linear_fc2",),
    "moe.gate.router": ("mlp.router",),
    **dict.fromkeys(("moe.experts.gate_proj", "moe.experts.up_proj"), ("mlp.experts.linear_fc1",)),
    "moe.experts.down_proj": ("mlp.experts.linear_fc2",),
    **dict.fromkeys(("moe.shared_experts.gate_proj", "moe.shared_experts.up_proj"), ("mlp.shared_experts.linear_fc1",)),
    "moe.shared_experts.down_proj": ("mlp.shared_experts.linear_fc2",),
    "moe": ("mlp",),
}
_ENDS = {
    "embedding.word_embeddings": ("model.embed_tokens", "embedding.word_embeddings"),
    "final_norm": ("model.norm", "decoder.final_layernorm"),
    "lm_head.lm_head": ("lm_head", "output_layer"),
}
_LAYERS = ("model.layers", "decoder.layers")
# beside towers the decoder is called so: by Megatron-Core and transformers 4, and by transformers 5
_BESIDE_TOWERS = (("", ""), ("", "language_model."), ("model.", "model.language_model."))
WAYS = len(_BESIDE_TOWERS)
"""How often `parameters` has the names of transformers, before it has those of Megatron-Core."""


@dataclass(frozen=True)
class Parameter:
    """at: its layer, None at the ends. own: its name here. means: names of entries that mean it. called: as modelling code may."""

    at: int | None
    own: str
    means: frozenset[str]
    called: tuple[str, ...] = field(compare=False)

    def meant(self, holds: Callable[[str], bool], by_all: bool) -> bool:
        """by_all: of a pattern that says what is not meant, which each of its names has to pass."""
        return (all if by_all else any)(map(holds, self.called))


def parameters(architecture: Architecture) -> list[list[Parameter]]:
    """All parameters as transformers calls them, as Megatron-Core does, and both as parts of models with towers."""
    # most jobs name none
    from symsim.lowering.lower import declared_alone
    from symsim.lowering.marked import names_of

    model = respelt(architecture)
    kinds = [kind for segment in model.layers for _ in range(segment.repeat) for kind in segment.kinds]
    made: list[list[Parameter]] = [[], []]
    for name, block in declared_alone(model).items():
        layers = [at for at, kind in enumerate(kinds) if kind == name] if name in model.layer_kinds else [None]
        for tensor in block.parameters():
            means = names_of(block, tensor, model)
            inside = (_of_transformers(tensor.name, block, model), _spellings(tensor.name, _OF_MEGATRON))
            for language, spellings in enumerate(inside):
                for at in layers:
                    called = (_end(tensor.name, language),) if at is None else tuple(f"{_LAYERS[language]}.{at}.{rest}" for rest in spellings)
                    made[language].append(Parameter(at, tensor.name, means, called))
    return [[_beside(p, own, other) for p in language] for language in made for own, other in _BESIDE_TOWERS]


def _beside(parameter: Parameter, own: str, other: str) -> Parameter:
    return replace(parameter, called=tuple(other + name.removeprefix(own) if name.startswith(own) else name for name in parameter.called))


def _of_transformers(name: str, block: Block, model: Architecture) -> list[str]:
    """A parameter of a layer by the names of families of transformers."""
    from symsim.ir.operations import LINEAR, Projection

    inside = _inside(block, model)
    op = next((op for op in block.ops if name in op.inputs and op.kind in LINEAR), None)
    if op is not None and op.of(Projection).fused:
        joint = op.name.rsplit(".", 1)[-1]
        name = f"{op.name.removesuffix(joint)}{_JOINT.get(joint, joint)}.{name.rsplit('.', 1)[-1]}"
    elif op is not None and op.einsums[0].chosen:
        # experts' weights are parameters since transformers 5, gates and inputs one
        module, _, role = name.rpartition(".")
        alone = module if len(op.of(Projection).labels) == 1 else f"{module.rpartition('.')[0]}.gate_up_proj"
        return [*_spellings(alone if role == "weight" else f"{alone}_{role}", inside), *_spellings(name, inside)]
    return _spellings(name, inside)


def _inside(block: Block, model: Architecture) -> dict[str, tuple[str, ...]]:
    """Names of a family, those of a mixer that is no attention, and those of most, in this order."""
    found = dict(_OF_FAMILIES.get(model.modelling or "", {}))
    kind = model.layer_kinds.get(block.name)
    mixer = kind.mixer if kind is not None else ""
    # modeling_kimi_linear.py: self_attn
    plain = mixer == "linear_attention" and model.linear_attention is not None and model.linear_attention.kind == "kda"
    if mixer in _MIXERS and not plain:
        found["attention"] = _MIXERS[mixer]
    return found | {name: others for name, others in _OF_TRANSFORMERS.items() if name not in found}


def _end(name: str, language: int) -> str:
    own = next((n for n in _ENDS if name.startswith(f"{n}.")), None)
    return name if own is None else _ENDS[own][language] + name.removeprefix(own)


def _spellings(name: str, inside: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A parameter of a layer by its other names, or its own."""
    own = next((n for n in inside if name == n or name.startswith(f"{n}.")), None)
    return [name] if own is None else [other + name.removeprefix(own) for other in inside[own]]
