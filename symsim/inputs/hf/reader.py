"""Hugging Face config.json -> Architecture, as transformers 5.23 builds AutoModelForCausalLM from it.

A family says in tables what its module code fixes, what it reads from the config and transformers' own default of each
key (src/transformers/models/<type>/configuration_<type>.py and modeling_<type>.py). The values of the tables are
constants, or functions of the config being read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from pydantic import ValidationError

from symsim.errors import InputError, cut, nearest
from symsim.inputs.architecture import Architecture, Attention, LayerKind, Mlp, Moe
from symsim.inputs.hf.arithmetic import arithmetic
from symsim.inputs.hf.config import FORBIDDEN, MTP_COUNTS, MTP_DETAILS, NO_EFFECT, Config, Row
from symsim.inputs.hf.families import FAMILIES
from symsim.inputs.hf.family import Family, sizes_of
from symsim.inputs.hf.fields import BASE, HEADS
from symsim.inputs.hf.refused import REFUSED
from symsim.inputs.hf.rotary import turned_in_pairs
from symsim.inputs.hf.wrappers import WRAPPERS, Wrapper, tied
from symsim.inputs.layer_pattern import compress
from symsim.inputs.mixers import CompressedAttention, LightningAttention, LinearAttention, Mamba, SelectiveScan, ShortConvolution


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of attn_config, ffn_config (DBRX, MPT) and their like with dotted names, other dictionaries as they are."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("attn_config", "ffn_config", "ffn_config.ffn_act_fn", "linear_attn_config", "sparse_attention_config") and isinstance(
            value, Mapping
        ):
            flat |= _flat({f"{key}.{inner}": v for inner, v in value.items()})
        else:
            flat[key] = value
    return flat


_MIXER_TAGS = {
    "linear_attention": "linear",
    "short_convolution": "conv",
    "lightning_attention": "linear",
    "mamba": "mamba",
    "selective_scan": "mamba",
    "none": "none",
}


def _tag(kind: LayerKind) -> str:
    if kind.shared_block != "none":
        return "hybrid" if kind.shared_block == "held" else "hybrid_again"
    if kind.weights == "borrowed":
        return _tag(kind.model_copy(update={"weights": "held"})) + "_again"
    if kind.activation_sparsity:
        return "sparse_" + _tag(kind.model_copy(update={"activation_sparsity": False}))
    if kind.compression:
        return "picked" if kind.chosen_entries else "compressed"
    if kind.mixer in _MIXER_TAGS:
        return _MIXER_TAGS[kind.mixer]
    if kind.shared_keys:
        return _tag(kind.model_copy(update={"shared_keys": False})) + "_again"
    if kind.shared_index:
        return "following"
    if kind.window:
        return "chunked" if kind.chunked else "local"
    return "full" if kind.rope else "nope"


def _layers(c: Config, family: Family) -> dict[str, Any]:
    """Layer kinds named by what tells them apart, and their run-length pattern."""
    c.target = "layers"
    c.integer("hidden_size")
    pairs = list(zip(family.mixers(c), family.ffns(c), strict=True))
    c.target = ""
    tags = {_tag(mixer) for mixer, _ in pairs}
    ffns = {ffn for _, ffn in pairs}
    kinds: dict[str, LayerKind] = {}
    names = []
    for mixer, ffn in pairs:
        short = "moe" if ffn == "moe" else "dense"
        parts = [_tag(mixer)] if len(tags) > 1 and mixer.mixer != "none" else []
        parts += [short] if ffn != "none" and (len(ffns) > 1 or len(tags) == 1) else []
        kind, name = mixer.model_copy(update={"ffn": ffn}), "_".join(parts or [_tag(mixer)])
        names.append(next(own for i in count(1) if kinds.get(own := name if i == 1 else f"{name}_{i}", kind) == kind))
        kinds[names[-1]] = kind
    return {"layers": compress(names), "layer_kinds": kinds}


def _build(c: Config, family: Family, name: str, model_type: str) -> Architecture:
    for key, reason in FORBIDDEN.items():
        said = c.look(key)[1] if c.has(key) else None
        # Gemma 4: images alone, of which text has none, or all
        if key in family.permits:
            continue
        if said == "all" or (said not in (None, "vision") and c.flag(key)):
            raise InputError(f"{c.where}: key '{key}' is {str(said).lower()}, but {reason}.")
    # configuration_utils.py of transformers 5.24 takes it of any model_type
    if "per_layer_config" not in family.defaults and c.values.get("per_layer_config"):
        raise InputError(f"{c.where}: key 'per_layer_config' gives layers keys of their own, which is not supported for this model_type.")
    for key, (value, reason) in family.require.items():
        spelled, actual = c.look(key)
        if actual is not None and actual != value:
            raise InputError(f"{c.where}: key '{spelled}' is {actual!r:.40}, but {reason}.")
    model = c.resolve("", BASE | family.model)
    if model.get("embedding_dropout") == model.get("hidden_dropout"):
        model.pop("embedding_dropout", None)
    layers = _layers(c, family)
    used = {kind.ffn for kind in layers["layer_kinds"].values()} | {"mlp" for kind in layers["layer_kinds"].values() if kind.has_mlp}
    parts: dict[str, Any] = {"attention": Attention(**c.resolve("attention", HEADS | family.attention))}
    if "mlp" in used or model.get("shared_block"):
        parts["mlp"] = Mlp(**c.resolve("mlp", family.mlp))
    if "moe" in used and family.moe:
        parts["moe"] = Moe(**c.resolve("moe", family.moe))
    if family.linear:
        linear = LinearAttention(**c.resolve("linear_attention", family.linear))
        if linear.linear_num_value_heads % linear.linear_num_key_heads:
            raise InputError(
                f"{c.where}: key 'linear_num_key_heads' is {linear.linear_num_key_heads}, which does not divide the "
                f"{linear.linear_num_value_heads} value heads."
            )
        if any(kind.mixer == "linear_attention" for kind in layers["layer_kinds"].values()):
            parts["linear_attention"] = linear
    if family.lightning and any(kind.mixer == "lightning_attention" for kind in layers["layer_kinds"].values()):
        parts["lightning_attention"] = LightningAttention(**c.resolve("lightning_attention", family.lightning))
    if family.compressed:
        parts["compressed_attention"] = CompressedAttention(**c.resolve("compressed_attention", family.compressed))
    if family.short_convolution and any(kind.mixer == "short_convolution" for kind in layers["layer_kinds"].values()):
        parts["short_convolution"] = ShortConvolution(**c.resolve("short_convolution", family.short_convolution))
    if family.mamba and any("mamba" in kind.mixers for kind in layers["layer_kinds"].values()):
        parts["mamba"] = Mamba(**c.resolve("mamba", family.mamba))
    if family.selective_scan and any("selective_scan" in kind.mixers for kind in layers["layer_kinds"].values()):
        parts["selective_scan"] = SelectiveScan(**c.resolve("selective_scan", family.selective_scan))
    attention = parts["attention"]
    needs_dim = attention.kv_channels is None and attention.kind == "gqa"
    if (needs_dim or family.heads_divide) and model["hidden_size"] % attention.num_attention_heads:
        spelled, _ = c.look("num_attention_heads")
        raise InputError(f"{c.where}: key '{spelled}' is {attention.num_attention_heads}, which does not divide hidden_size {model['hidden_size']}.")
    networks = [parts[part] for part in ("mlp", "moe") if part in parts]
    clamped = any(network.activation == "swiglu_clamped" for network in networks)
    numbers = arithmetic(c.values, model.get("position_embedding", "rope") == "rope", clamped, "moe" in parts)
    made = Architecture(name=name, modelling=family.modelling or model_type, arithmetic=numbers, **layers, **model, **parts)
    turned_in_pairs(c, family, made)
    return made


# how classes of transformers are called that have a loss over the vocabulary, and those of another task that a strategy has
_OF_WORDS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration", "ChatGLMModel")
_OF_TASKS = {"ForSequenceClassification": "seq_cls", "ForTokenClassification": "token_cls"}
_HEADS = {"seq_cls": "of classes", "token_cls": "of classes", "embedding": "without"}


def _of_class(classes: Any) -> tuple[str, str]:
    """What becomes of `architectures`: a class with another head than the vocabulary's is another model."""
    called = [str(name) for name in classes] if isinstance(classes, list) else []
    if not called or any(name.endswith(_OF_WORDS) for name in called):
        return "no cost effect", NO_EFFECT["architectures"]
    task = next((task for ending, task in _OF_TASKS.items() if called[0].endswith(ending)), "embedding")
    return "refused", f"{cut(called[0], 40)} is read as its model_type with a head of words (task_type={task}: {_HEADS[task]})"


_TOWERS = ("vision", "audio", "mm_", "image", "projector", "multimodal", "spatial", "video", "downsample", "encoder_config", "projection", "adaptor")


def _readable(c: Config, family: Family) -> set[str]:
    """Every key that this family's tables read in some config, whether this one has such layers or not."""
    probe = Config(c.values, family, c.where)
    mixers = (family.linear, family.short_convolution, family.lightning, family.compressed, family.mamba, family.selective_scan)
    for part in (BASE | family.model, HEADS | family.attention, family.mlp, family.moe, *mixers):
        for value in (part or {}).values():
            if callable(value):
                with suppress(InputError):
                    value(probe)
    return set(probe.used)


def _rows(c: Config, family: Family, keys: Mapping[str, Any], prefix: str) -> list[Row]:
    """What became of every key of the config, then the defaults taken for keys it omits."""
    rows: list[Row] = []
    idle = _readable(c, family)
    for key, value in keys.items():
        if key in c.used:
            row = ("mapped", ", ".join(c.used[key]) or "checked")
        elif key in c.notes:
            row = ("mapped", c.notes[key])
        elif key.rpartition(".")[2] == "model_type":
            row = ("mapped", "modelling")
        elif key in ("is_encoder_decoder", "per_layer_config", *FORBIDDEN) or key.endswith(".is_encoder_decoder"):
            row = ("mapped", "checked")
        elif key in MTP_COUNTS:
            row = ("refused", f"not built by transformers; train with mtp_num_layers={value}") if value else ("no cost effect", "none")
        elif key in MTP_DETAILS:
            row = ("no cost effect", "transformers builds no multi-token prediction")
        elif key == "architectures" and not prefix:
            row = _of_class(value)
        elif key == "quantization_config":
            row = ("refused", "the weights are taken as trained; a strategy sets their precision")
        elif key in family.unread:
            row = ("no cost effect", family.unread[key])
        elif key == "intermediate_size":
            row = ("no cost effect", "no layer is dense")
        elif key in NO_EFFECT or key.rpartition(".")[2] in NO_EFFECT:
            row = ("no cost effect", NO_EFFECT.get(key) or NO_EFFECT[key.rpartition(".")[2]])
        elif key.endswith(("dropout", "pdrop")) and not value:
            row = ("no cost effect", "zero")
        elif key.startswith(_TOWERS) and isinstance(value, Mapping | None):
            row = ("refused", "not imported: only the text tower is") if value else ("no cost effect", "none")
        elif key in idle:
            row = ("no cost effect", "no layer uses it")
        else:
            row = ("unknown", "not a key that this model_type is known to read")
        rows.append((prefix + key, *row))
    rows += [(prefix + key, "default", f"omitted; transformers takes {value}") for key, value in c.defaulted.items() if key not in keys]
    return rows


_DECIDES = {
    "wrapper": "tie_word_embeddings; text_config's is not read",
    "text": "not read by transformers: text_config's decides",
    "either": "tie_word_embeddings, with text_config's: tied where one is true",
    "never": "not read by transformers: the head is never tied",
}


def _of_wrapper(key: str) -> bool:
    return key in ("model_type", "tie_word_embeddings") or (key.startswith(_TOWERS) and key not in NO_EFFECT)


def _tower(config: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[Row]] | None:
    """The text tower of a multimodal config with its rows, or None when the config is a text model."""
    wrapper = config.get("model_type")
    text = config.get("text_config")
    if not isinstance(wrapper, str | None):
        return None
    if wrapper in FAMILIES or (wrapper not in WRAPPERS and not isinstance(text, Mapping)):
        return None
    if wrapper in REFUSED:
        raise InputError(f"{where}: model_type '{wrapper}' is not supported: {REFUSED[wrapper]}.")
    known = WRAPPERS.get(str(wrapper))
    if known and known.flat and text is None:
        text = {key: value for key, value in config.items() if not _of_wrapper(key)}
    if not isinstance(text, Mapping):
        raise InputError(f"{where}: key 'text_config' of the multimodal model_type '{wrapper}' is missing or not an object.")
    inner = {key: value for key, value in text.items() if known is None or key not in known.of_prompts}
    if known:
        inner["model_type"] = known.tower if known.fixed else text.get("model_type", known.tower)
    decided = tied(wrapper, config, text)
    if decided is not None:
        inner["tie_word_embeddings"] = decided
    rows: list[Row] = []
    for key in (key for key in config if "text_config" in config or _of_wrapper(key)):
        if key == "text_config":
            rows.append((key, "mapped", f"only the text tower ({inner.get('model_type')}) of {wrapper} is imported"))
        elif key == "model_type":
            rows.append((key, "mapped", "says what the text tower is"))
        elif key == "tie_word_embeddings":
            rows.append((key, "mapped", _DECIDES[known.tied if known else "wrapper"]))
        elif key.startswith(_TOWERS) and key not in NO_EFFECT:
            rows.append((key, "refused", "not imported: only the text tower is"))
        elif key in NO_EFFECT:
            rows.append((key, "no cost effect", NO_EFFECT[key]))
        else:
            rows.append((key, "unknown", "not a key of a text tower"))
    if known and known.tied == "wrapper" and "tie_word_embeddings" not in config:
        note = " (a checkpoint with a head of its own stays untied: then write it)" if known.default else ""
        rows.append(("tie_word_embeddings", "default", f"omitted; transformers takes {known.default}{note}"))
    return inner, rows


def _inside(config: Mapping[str, Any], held: str, name: str, where: str) -> tuple[Architecture, list[Row]]:
    """Of a model of several models, that one whose config stands under the key `held`."""
    inner, known = config.get(held), WRAPPERS[str(config["model_type"])]
    if not isinstance(inner, Mapping):
        raise InputError(f"{where}: key '{held}' of the multimodal model_type '{config['model_type']}' is missing or not an object.")
    architecture, rows = read_config(dict(inner) | {"model_type": known.tower}, name, where)
    outer: list[Row] = []
    for key, value in config.items():
        if key == held:
            outer.append((key, "mapped", f"only the text tower of {known.tower} is imported"))
        elif key == "model_type":
            outer.append((key, "mapped", "says where the text tower is"))
        elif isinstance(value, Mapping):
            outer.append((key, "refused", "not imported: only the text tower is"))
        else:
            outer.append((key, *(("no cost effect", NO_EFFECT[key]) if key in NO_EFFECT else ("unknown", "not a key of a text tower"))))
    return architecture, outer + [(f"{held}.{key}", fate, note) for key, fate, note in rows if key in inner or "." in key]


def supported() -> list[str]:
    """Every model_type that is read."""
    return sorted({*FAMILIES, *WRAPPERS})


# what code beside the weights calls a text_config: InternVL and Ovis, DeepSeek-VL2 and Janus
_HELD = ("llm_config", "language_config")
_KNOWN = "bloom, deepseek, falcon, gemma, glm, gpt, granite, llama, mistral, mixtral, olmo, phi, qwen, starcoder"


def _others(model_type: str) -> str:
    """The model_type that is meant; else families by name, since a sentence does not hold all types."""
    return nearest(model_type, supported(), f"supported: {_KNOWN} and others; 'symsim list model_types' names all {len(supported())}")


def _projects(c: Config, onto: tuple[str, str, int], whole: Mapping[str, Any]) -> None:
    """Refuse another tower that is projected to another size than the text's, as transformers does."""
    place, key, default = onto
    other, hidden = whole.get(place), c.integer("hidden_size")
    given = other.get(key, default) if isinstance(other, Mapping) else default
    if given != hidden:
        raise InputError(f"{c.where}: key '{place}.{key}' must be text_config's hidden_size {hidden}, not {cut(repr(given), 60)}.")


def read_config(config: Mapping[str, Any], name: str, where: str) -> tuple[Architecture, list[Row]]:
    """The architecture of a parsed config.json, and (key, fate, note) of every key in it.

    Fates: mapped, no cost effect, refused, unknown; default, for keys that the config omits. InputError names the file
    `where` and the key that cannot be read.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"{where}: a Hugging Face config is a JSON object, not a {type(config).__name__}.")
    other = next((key for key in _HELD if "text_config" not in config and isinstance(config.get(key), Mapping)), "")
    if other:
        architecture, told = read_config({"text_config" if key == other else key: value for key, value in config.items()}, name, where)
        return architecture, [(key.replace("text_config", other, 1), fate, note) for key, fate, note in told]
    rows: list[Row] = []
    prefix = ""
    held = WRAPPERS.get(str(config.get("model_type")), Wrapper("")).inside
    if held:
        return _inside(config, held, name, where)
    tower = _tower(config, where)
    keys, whole = config, config
    if tower:
        config, rows = tower
        keys, prefix = (keys["text_config"], "text_config.") if "text_config" in keys else (dict(config), "")
        keys.pop("model_type", None) if not prefix else None
    model_type = config.get("model_type")
    if model_type is None:
        raise InputError(f"{where}: key '{prefix}model_type' is missing; it says which of transformers' models this is.")
    if str(model_type) in REFUSED:
        raise InputError(f"{where}: model_type '{model_type}' is not supported: {REFUSED[str(model_type)]}.")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InputError(f"{where}: model_type {model_type!r:.60} is not supported; {_others(str(model_type))}")
    family = FAMILIES[model_type]
    if tower:
        wrapper = WRAPPERS.get(str(whole.get("model_type")), Wrapper(model_type))
        family = replace(family, defaults=family.defaults | sizes_of(model_type, family) | dict(wrapper.defaults))
    c = Config(_flat(config), family, where)
    try:
        architecture = _build(c, family, name, model_type)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        raise InputError(f"{where}: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}.") from None
    if tower and wrapper.projects:
        _projects(c, wrapper.projects, whole)
    for key, value in config.items():
        if value is None and key in family.never_null:
            raise InputError(f"{where}: key '{prefix}{key}' is null, which transformers refuses; give a value, or leave it out.")
    told = _rows(c, family, _flat(keys), prefix)
    if tower and keys.get("tie_word_embeddings") != config.get("tie_word_embeddings"):
        overruled = f"{prefix}tie_word_embeddings"
        told = [(overruled, "no cost effect", "overruled by the wrapper's") if row[0] == overruled else row for row in told]
    return architecture, rows + told
