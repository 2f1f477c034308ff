"""The model of an ms-swift command: by its id on a hub, a directory with a config.json, or `--of`; arguments of its shape go over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.importers.keys import Keys
from symsim.importers.weights import model_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.layer_pattern import format_layers
from symsim.inputs.models import load_model
from symsim.inputs.validation import validate

if TYPE_CHECKING:
    from symsim.importers.reading import Options

# where the weights come from, the newest name first; --model stands before the others, as it has the config.json
_WEIGHTS = ("model", "mcore_model", "load", "resume_from_checkpoint", "adapters")


def find_model(keys: Keys, options: "Options") -> Architecture | None:
    """The architecture that the arguments name; None where they name none. InputError for a model that is not known here."""
    told = next((key for key in _WEIGHTS[:3] if keys.has(key)), None)
    for key in _WEIGHTS:
        if keys.has(key) and key != told:
            keys.note(key, "no_cost_effect", why="where weights are read from")
    if told is None:
        return load_model(options.model).architecture if options.model is not None else None
    return model_of(keys, told, options)


# arguments of the model's shape, where they lie in a model file, and how they are read
_SHAPE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("hidden_size", ("hidden_size",), "integer"),
    ("padded_vocab_size", ("vocab_size",), "integer"),
    ("ffn_hidden_size", ("mlp", "ffn_hidden_size"), "integer"),
    ("num_attention_heads", ("attention", "num_attention_heads"), "integer"),
    ("num_query_groups", ("attention", "num_query_groups"), "integer"),
    ("kv_channels", ("attention", "kv_channels"), "integer"),
    ("rotary_percent", ("attention", "rotary_fraction"), "number"),
    ("add_qkv_bias", ("attention", "qkv_bias"), "flag"),
    ("swiglu", ("mlp", "gated"), "flag"),
    ("attention_dropout", ("attention_dropout",), "number"),
    ("hidden_dropout", ("hidden_dropout",), "number"),
    ("num_experts", ("moe", "num_moe_experts"), "integer"),
    ("moe_ffn_hidden_size", ("moe", "moe_ffn_hidden_size"), "integer"),
    ("moe_ffn_hidden_siz", ("moe", "moe_ffn_hidden_size"), "integer"),
    ("moe_shared_expert_intermediate_size", ("moe", "moe_shared_expert_intermediate_size"), "integer"),
    ("moe_router_topk", ("moe", "moe_router_topk"), "integer"),
    ("moe_router_pre_softmax", ("moe", "moe_router_pre_softmax"), "flag"),
)
_NEEDED = ("num_layers", "hidden_size", "num_attention_heads", "padded_vocab_size")


def shaped(keys: Keys, found: Architecture | None) -> Architecture | None:
    """The model with the arguments of its shape in place of config.json's; from them alone where no model is named. None where they are too few.
    InputError where they make no model."""
    changes = {path: (key, getattr(keys, read)(key, to="the model's " + ".".join(path))) for key, path, read in _SHAPE}
    changes = {path: (key, value) for path, (key, value) in changes.items() if value is not None}
    layers = keys.integer("num_layers", to="the model's layers", least=1)
    _words(keys, changes)
    if found is None and not all(keys.has(key) for key in _NEEDED):
        return None
    data = found.model_dump() if found is not None else _fresh(changes)
    for path, (key, value) in changes.items():
        place = data
        for part in path[:-1]:
            if not isinstance(place.get(part), dict):
                if key in ("ffn_hidden_size", "swiglu"):
                    keys.note(key, "no_cost_effect", why="every feed-forward network of the model is a mixture of experts")
                    break
                raise keys.wrong(key, f"left out: {data['name']} has no {part}")
            place = place[part]
        else:
            place[path[-1]] = value
    if layers is not None:
        data["layers"] = _layers(keys, found, layers, data)
    return validate(Architecture, data, keys.given["hidden_size"].where if found is None else keys.what) if changes or layers else found


def _words(keys: Keys, changes: dict[tuple[str, ...], tuple[str, Any]]) -> None:
    """Arguments of the shape that are words, or the opposite of a field."""
    for key, field, opposite in (
        ("untie_embeddings_and_output_weights", ("tie_word_embeddings",), True),
        ("qk_layernorm", ("attention", "qk_norm"), False),
    ):
        value = keys.flag(key, to="the model's " + ".".join(field))
        if value is not None:
            changes[field] = (key, not value if opposite else "head" if value else "none")
    plain = keys.flag("disable_bias_linear", to="the model's biases")
    if plain is not None:
        changes[("attention", "out_bias")] = ("disable_bias_linear", not plain)
        if not keys.has("num_experts"):
            changes[("mlp", "bias")] = ("disable_bias_linear", not plain)
    norm = keys.choice("normalization", {"RMSNorm": "RMSNorm", "LayerNorm": "LayerNorm"}, to="the model's normalization")
    if norm is not None:
        changes[("normalization",)] = ("normalization", norm)
    places = keys.choice(
        "position_embedding_type",
        {"rope": "rope", "learned_absolute": "learned", "none": "none"},
        to="the model's position_embedding",
    )
    longest = keys.integer("max_position_embeddings", least=1)
    if places is not None:
        changes[("position_embedding",)] = ("position_embedding_type", places)
    if places == "learned" and longest is not None:
        changes[("position_embedding_rows",)] = ("max_position_embeddings", longest)
        keys.note("max_position_embeddings", to="the model's position_embedding_rows")
    elif longest is not None:
        keys.note("max_position_embeddings", "no_cost_effect", why="rows of learned positions, which the model has none of")
    if keys.flag("group_query_attention") is not None:
        keys.note("group_query_attention", "no_cost_effect", why="num_query_groups says it")


def _fresh(changes: dict[tuple[str, ...], tuple[str, Any]]) -> dict[str, Any]:
    """What Megatron-SWIFT takes for a model of which only the sizes are given."""
    hidden = changes[("hidden_size",)][1]
    data: dict[str, Any] = {"name": "model", "hidden_size": hidden, "vocab_size": 1, "layers": 1}
    data["attention"] = {"num_attention_heads": 1, "num_query_groups": 1, "qkv_bias": True}
    if ("moe", "num_moe_experts") in changes:
        data["moe"] = {
            "num_moe_experts": 1,
            "moe_router_topk": 2,
            "moe_ffn_hidden_size": changes.get(("mlp", "ffn_hidden_size"), ("", 4 * hidden))[1],
        }
        data["layer_kinds"] = {"moe": {"ffn": "moe"}}
        data["layers"] = "1 * moe"
    else:
        data["mlp"] = {"ffn_hidden_size": 4 * hidden}
    return data


def _layers(keys: Keys, found: Architecture | None, layers: int, data: dict[str, Any]) -> Any:
    kinds = ("moe" if "moe" in data else "dense",) if found is None else found.layers[0].kinds
    if found is not None and (len(found.layers) != 1 or layers % len(kinds)):
        raise keys.wrong("num_layers", f"left out, since {found.name} has layers of several kinds ({format_layers(found.layers)})")
    return [{"repeat": layers // len(kinds), "kinds": list(kinds)}]
