"""The model of nanotron's model.model_config: LlamaConfig, Qwen2Config, Starcoder2Config, and the mixture and Mamba of its examples.

Names and defaults: nanotron 2411b022 (2026-04-07), src/nanotron/config/models_config.py; models/llama.py, qwen.py, starcoder2.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.keys import Keys, natural
from symsim.importers.nanotron.mamba import AT, mamba_of
from symsim.importers.nanotron.mamba import KEYS as MAMBA
from symsim.importers.rules import padded_vocabulary
from symsim.inputs.architecture import Architecture
from symsim.inputs.layer_pattern import compress
from symsim.inputs.limits import MOST_LAYERS
from symsim.inputs.models import load_model
from symsim.inputs.validation import validate

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_KINDS = ("is_llama_config", "is_qwen2_config", "is_starcoder2_config", "is_llamoe_config")
# width, inner width, heads, layers, vocabulary
_DEFAULTS = {"is_starcoder2_config": (2048, None, 16, 24, 49280)}
_LLAMA = (4096, 11008, 32, 32, 32000)
_ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish"), "silu"),
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_new",
    "relu": "relu",
}
_KEYS = """hidden_size intermediate_size num_attention_heads num_key_value_heads num_kv_heads num_hidden_layers vocab_size hidden_act
    activation_function attention_bias tie_word_embeddings sliding_window_size no_rope_layer grouped_query multi_query use_position_embeddings
    use_rotary_embeddings resid_pdrop embd_pdrop attn_pdrop global_attn_layers moe_num_experts num_experts_per_tok moe_config
    moe_config.num_experts moe_config.top_k moe_config.moe_intermediate_size moe_config.shared_expert_intermediate_size moe_config.layers
    moe_config.enable_shared_expert max_position_embeddings""".split()


def model_of(keys: Keys, options: "Options", tp: int, strategy: dict[str, Any]) -> Architecture | None:
    """The architecture, and in what type its stream is. InputError for a model that nanotron's three families do not have."""
    keys.known |= {f"{AT}.{key}" for key in (*_KEYS, *_KINDS, *MAMBA)}
    multiple = keys.integer("model.make_vocab_size_divisible_by", 1, to="vocab_size", why="times the tensor-parallel ranks", least=1) * tp
    if options.model is not None:
        architecture = load_model(options.model).architecture
        for key in (*_KEYS, *_KINDS):
            if f"{AT}.{key}" in keys.given:
                keys.note(f"{AT}.{key}", "no_cost_effect", why=f"the model is {architecture.name}")
        return architecture
    if not any(key.startswith(f"{AT}.") for key in keys.given):
        return None
    if keys.flag(f"{AT}.is_mamba_config", False):
        return mamba_of(keys, multiple, strategy)
    kind = next((name for name in _KINDS if keys.flag(f"{AT}.{name}", False)), None)
    other = next((key for key in keys.given if key.startswith(f"{AT}.is_") and key.removeprefix(f"{AT}.") not in _KINDS), None)
    if kind is None and other is not None:
        raise InputError(f"{keys.place(other)}: {other.removeprefix(AT + '.')} is a model of another kind than a transformer; --of MODEL names one")
    kind = kind or "is_llama_config"
    width, inner, heads, layers, vocabulary = _DEFAULTS.get(kind, _LLAMA)
    width = _integer(keys, "hidden_size", width)
    inner = _integer(keys, "intermediate_size", inner) or 4 * width
    heads = _integer(keys, "num_attention_heads", heads)
    layers = _integer(keys, "num_hidden_layers", layers, to="layers")
    if layers > MOST_LAYERS:
        raise keys.wrong(f"{AT}.num_hidden_layers", f"at most {MOST_LAYERS}")
    star = kind == "is_starcoder2_config"
    activation = keys.choice(f"{AT}.{'activation_function' if star else 'hidden_act'}", _ACTIVATIONS, "gelu_tanh" if star else "silu")
    kinds = _kinds(keys, layers)
    learned = keys.flag(f"{AT}.use_position_embeddings", False, to="position_embedding")
    data: dict[str, Any] = dict(
        name="nanotron",
        source="model_config of nanotron",
        hidden_size=width,
        vocab_size=padded_vocabulary(_integer(keys, "vocab_size", vocabulary), multiple),
        layers=compress([name for name, _ in kinds]),
        layer_kinds=dict(kinds),
        attention=_attention(keys, heads, width, star),
        mlp=dict(ffn_hidden_size=inner, gated=not star, activation=activation, bias=star, fused_gate_up=not star),
        moe=_experts(keys, inner, activation),
        normalization="LayerNorm" if star else "RMSNorm",
        norm_bias=star,
        tie_word_embeddings=keys.flag(f"{AT}.tie_word_embeddings", False, to="tie_word_embeddings"),
        position_embedding="learned" if learned else "rope",
        position_embedding_rows=_integer(keys, "max_position_embeddings", 4096) if learned else None,
        hidden_dropout=_share(keys, "resid_pdrop", 0.1 if star else 0.0),
        embedding_dropout=_share(keys, "embd_pdrop", 0.1 if star else 0.0),
        attention_dropout=_share(keys, "attn_pdrop", 0.1 if star else 0.0),
    )
    return validate(Architecture, {name: value for name, value in data.items() if value is not None}, keys.place(f"{AT}.hidden_size"))


def _integer(keys: Keys, key: str, default: int | None, to: str = "") -> Any:
    found = keys.integer(f"{AT}.{key}", None, to=to or key, least=1)
    if found is None and default is not None:
        keys.note(f"{AT}.{key}", "derived", to or key, f"{default} by default")
    return default if found is None else found


def _share(keys: Keys, key: str, default: float) -> float:
    value = keys.number(f"{AT}.{key}", default, to="dropout")
    if not 0 <= value < 1:
        raise keys.wrong(f"{AT}.{key}", "a share from 0 to below 1")
    return float(value)


def _attention(keys: Keys, heads: int, width: int, star: bool) -> dict[str, Any]:
    groups = keys.integer(f"{AT}.{'num_kv_heads' if star else 'num_key_value_heads'}", None, to="attention.num_query_groups", least=1)
    if keys.flag(f"{AT}.multi_query", False, to="attention.num_query_groups"):
        groups = 1
    keys.flag(f"{AT}.grouped_query", False, to="attention.num_query_groups")
    bias = star or keys.flag(f"{AT}.attention_bias", False, to="attention.qkv_bias")
    if width % heads:
        raise keys.wrong(f"{AT}.num_attention_heads", f"a divisor of hidden_size={width}")
    if heads % (groups or heads):
        raise keys.wrong(f"{AT}.num_key_value_heads", f"a divisor of num_attention_heads={heads}")
    return dict(num_attention_heads=heads, num_query_groups=groups, qkv_bias=bias, out_bias=star, fused_qkv=True)


def _kinds(keys: Keys, layers: int) -> list[tuple[str, dict[str, Any]]]:
    """The kind of every layer: its window, whether it turns its queries, whether it is a mixture."""
    window = keys.integer(f"{AT}.sliding_window_size", None, to="layer_kinds.window", least=1)
    everywhere = [natural(place) for place in keys.texts(f"{AT}.global_attn_layers", [])]
    plain = keys.integer(f"{AT}.no_rope_layer", None, to="layer_kinds.rope", least=1)
    chosen = keys.texts(f"{AT}.moe_config.layers", ["-1"], to="layers")
    experts = keys.has(f"{AT}.moe_config.num_experts") or keys.has(f"{AT}.moe_num_experts")
    found = []
    for place in range(layers):
        kind: dict[str, Any] = {"ffn": "moe" if experts and ("-1" in chosen or str(place) in chosen) else "mlp"}
        name = "mixture" if kind["ffn"] == "moe" else "dense"
        if window is not None and place not in everywhere:
            kind["window"] = window
            name += "_window"
        if plain is not None and (place + 1) % plain == 0:
            kind["rope"] = False
            name += "_plain"
        found.append((name, kind))
    return found


def _experts(keys: Keys, inner: int, activation: str) -> dict[str, Any] | None:
    older = keys.integer(f"{AT}.moe_num_experts", None, to="moe.num_moe_experts", least=1)
    if older is not None:
        chosen = keys.integer(f"{AT}.num_experts_per_tok", 1, to="moe.moe_router_topk", least=1)
        return dict(num_moe_experts=older, moe_router_topk=chosen, moe_ffn_hidden_size=inner, activation=activation)
    experts = keys.integer(f"{AT}.moe_config.num_experts", None, to="moe.num_moe_experts", least=1)
    width = keys.integer(f"{AT}.moe_config.moe_intermediate_size", 1408, to="moe.moe_ffn_hidden_size", least=1)
    shared = keys.integer(f"{AT}.moe_config.shared_expert_intermediate_size", 5632, to="moe.moe_shared_expert_intermediate_size", least=1)
    has = keys.flag(f"{AT}.moe_config.enable_shared_expert", False, to="moe.moe_shared_expert_intermediate_size")
    top = keys.integer(f"{AT}.moe_config.top_k", 2, to="moe.moe_router_topk", least=1)
    if experts is None:
        return None
    made = dict(num_moe_experts=experts, moe_router_topk=top, moe_ffn_hidden_size=width, activation=activation)
    return made | (dict(moe_shared_expert_intermediate_size=shared, moe_shared_expert_gate=True) if has else {})
