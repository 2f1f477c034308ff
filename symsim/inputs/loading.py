"""From what a user names to frozen data: models, strategies, and --set."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from symsim.algebra.grammar import parse_value
from symsim.errors import InputError, cut, nearest, printable
from symsim.inputs.architecture import Architecture, format_layers
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.curves import SYMBOLS as KERNEL_SYMBOLS
from symsim.inputs.known import Known
from symsim.inputs.limits import MOST_RANKS
from symsim.inputs.reading import Document, KeyPath, dotted, format_yaml, from_validation_error, read_json, read_yaml
from symsim.inputs.spellings import ALIASES, of_setting, of_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import COLLECTIVES, Accelerator, Host, Peak, System

Model = TypeVar("Model", bound=BaseModel)

# Not a field: the number of ranks, from which dp follows
RANKS = "world"
LARGEST_WORLD = 2**40

# Symbols of the vocabulary that stand for one field of the strategy or of the architecture
STRATEGY_SYMBOLS = {
    "s": "seq_length",
    "u": "packed_document_length",
    "b": "micro_batch_size",
    "m": "num_microbatches",
    "inst": "num_distributed_optimizer_instances",
    "group": "microbatch_group_size_per_vp_stage",
}
# Symbols that neither determines: a measurement of the user's
FREE_SYMBOLS = ("lam",)
ARCHITECTURE_SYMBOLS: dict[str, tuple[str, ...]] = {
    "h": ("hidden_size",),
    "V": ("vocab_size",),
    "L": ("num_layers",),
    "P": ("position_embedding_rows",),
    "a": ("attention", "num_attention_heads"),
    "g": ("attention", "num_query_groups"),
    "d": ("attention", "kv_channels"),
    "r_q": ("attention", "q_lora_rank"),
    "r_k": ("attention", "kv_lora_rank"),
    "d_k": ("attention", "qk_head_dim"),
    "d_r": ("attention", "qk_pos_emb_head_dim"),
    "d_v": ("attention", "v_head_dim"),
    "H_k": ("linear_attention", "linear_num_key_heads"),
    "H_v": ("linear_attention", "linear_num_value_heads"),
    "D_k": ("linear_attention", "linear_key_head_dim"),
    "D_v": ("linear_attention", "linear_value_head_dim"),
    "W_c": ("linear_attention", "linear_conv_kernel_dim"),
    "f": ("mlp", "ffn_hidden_size"),
    "D": ("mtp_num_layers",),
    "E": ("moe", "num_moe_experts"),
    "K": ("moe", "moe_router_topk"),
    "f_e": ("moe", "moe_ffn_hidden_size"),
    "f_s": ("moe", "moe_shared_expert_intermediate_size"),
    "ell": ("moe", "moe_latent_size"),
}

# Symbols of the time formulas that stand for one number of the system; those of its tiers carry the tier's place
SYSTEM_SYMBOLS: dict[str, tuple[str, ...]] = {
    **{f"Phi_{kind}": ("accelerator", "peak", kind) for kind in ("bf16", "fp16", "fp8", "fp32")},
    "n_sm": ("accelerator", "multiprocessors"),
    "B_hbm": ("accelerator", "memory_bandwidth"),
    "W_chip": ("accelerator", "power"),
    "c_chip": ("accelerator", "price"),
    "B_host": ("host", "bandwidth"),
    "t_launch": ("host", "launch"),
    "t_gather": ("host", "gather"),
    **{name: ("kernels", *path) for name, path in KERNEL_SYMBOLS.items()},
}
_TIER_SYMBOL = re.compile(rf"(R|B|C|alpha|lambda|eta)_([1-9][0-9]{{0,2}})(?:_({'|'.join(COLLECTIVES)}))?")
_TIER_FIELDS = {"R": "ranks", "B": "bandwidth", "C": "ring", "alpha": "latency", "lambda": "launch", "eta": "efficiency"}
_SYSTEM_PARTS = ("accelerator", "kernels", "network", "host")

_SECTIONS = ("attention", "linear_attention", "mlp", "moe")


@dataclass(frozen=True)
class LoadedModel:
    """An architecture, where it came from, what became of every key of an import, and its default strategy file."""

    architecture: Architecture
    where: str
    rows: tuple[Any, ...] = ()
    strategy: str | None = None


class Ranks(NamedTuple):
    """How many ranks a strategy is to use, and where that is said."""

    world: int
    where: str


class Settings(NamedTuple):
    """What --set asked for; a key of the architecture or of the system is the path to it."""

    strategy: dict[str, Any]
    architecture: dict[tuple[str, ...], Any]
    assumptions: dict[str, str]
    symbols: dict[str, Fraction]
    system: dict[tuple[str, ...], str]


def models_directory() -> Path:
    """The models that come with symsim: inside an installed package, or beside it in a checkout."""
    return _shipped("models")


def derivations_directory() -> Path:
    """The published totals that come with symsim."""
    return _shipped("derivations")


def _shipped(name: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    packaged = package / f"_{name}"
    return packaged if packaged.is_dir() else package.parent / name


def list_models() -> list[str]:
    return _names(models_directory())


def list_strategies() -> list[str]:
    return _names(models_directory() / "strategies")


def list_systems() -> list[str]:
    return _names(models_directory() / "systems")


def _names(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.yaml"))


def load_model(reference: str) -> LoadedModel:
    """A model by name, or from a YAML file, a Hugging Face config.json, or a directory that `symsim import` wrote."""
    names = list_models()
    if reference in names:
        return _from_yaml(str(models_directory() / f"{reference}.yaml"))
    if os.path.isdir(reference):
        return _from_directory(reference)
    suffix = os.path.splitext(reference)[1].lower()
    if suffix == ".json":
        return import_hf(reference)
    if suffix in (".yaml", ".yml"):
        return _from_yaml(reference)
    if os.path.exists(reference):
        raise InputError(f"{reference}: a model file ends in .yaml, .yml or .json")
    if not reference.strip():
        raise InputError("MODEL is empty; name a model ('symsim list models'), a YAML file or a config.json")
    hint = nearest(reference, names, "'symsim list models' has them")
    raise InputError(f"no model or file is named '{reference}': {hint}")


def model_of_mapping(data: Mapping[str, Any]) -> LoadedModel:
    """A model from the contents of a model file, or of a Hugging Face config.json (which has a model_type)."""
    if "model_type" not in data:
        return LoadedModel(validate(Architecture, data, "the model"), "the model")
    from symsim.inputs.hf import read_config

    architecture, rows = read_config(data, str(data["model_type"]), "the config")
    return LoadedModel(architecture, "the config", tuple(rows))


def _from_yaml(path: str) -> LoadedModel:
    document = read_yaml(path)
    return LoadedModel(validate(Architecture, document.data, path, document), path)


def _from_directory(path: str) -> LoadedModel:
    model, config, strategy = (os.path.join(path, name) for name in ("model.yaml", "config.json", "strategy.yaml"))
    if not os.path.exists(model):
        if os.path.exists(config):
            return import_hf(config)
        raise InputError(f"{path}: the directory holds no model.yaml and no config.json")
    loaded = _from_yaml(model)
    return LoadedModel(loaded.architecture, model, (), strategy if os.path.exists(strategy) else None)


def import_hf(path: str) -> LoadedModel:
    """A Hugging Face config.json, with what became of each of its keys."""
    document = read_json(path)
    from symsim.inputs.hf import read_config

    stem = Path(path).stem
    name = Path(path).resolve().parent.name if stem == "config" else stem
    try:
        architecture, rows = read_config(document.data, name or stem, path)
    except ValidationError as error:
        raise from_validation_error(error, None, path, Architecture) from None
    return LoadedModel(architecture, path, tuple(rows))


def format_model(architecture: Architecture) -> str:
    """The architecture as a file of models/: what differs from the defaults, in the schema's order."""
    data = architecture.model_dump(exclude_defaults=True)
    data["layers"] = format_layers(architecture.layers)
    if "layer_kinds" in data:
        data["layer_kinds"] = {kind: dict(fields) for kind, fields in data["layer_kinds"].items()}
    return format_yaml(data)


def load_strategy(text_or_path: str | Mapping[str, Any] | None, overrides: Mapping[str, Any] | None = None) -> Strategy:
    """A strategy from a YAML file, inline text (`tp=8,recompute_modules=core_attn+mlp`) or a mapping, then the overrides.

    `world`, the number of ranks, may stand for dp or beside it.
    """
    return on_ranks(*read_strategy(text_or_path, overrides))


def on_ranks(strategy: Strategy, ranks: "Ranks | None") -> Strategy:
    """The strategy with the dp that makes so many ranks; InputError where none does, or another is given."""
    if ranks is None:
        return strategy
    each = strategy.tp * strategy.cp * strategy.pp
    if "dp" in strategy.model_fields_set and each * strategy.dp != ranks.world:
        product = f"{strategy.tp}*{strategy.cp}*{strategy.dp}*{strategy.pp} = {each * strategy.dp}"
        raise InputError(f"{ranks.where}: world={ranks.world} and dp={strategy.dp} disagree: tp*cp*dp*pp = {product} ranks")
    if ranks.world % each:
        product = f"{strategy.tp}*{strategy.cp}*{strategy.pp} = {each}"
        raise InputError(f"{ranks.where}: world={ranks.world} is no multiple of tp*cp*pp = {product}, so no dp gives it")
    return strategy.model_copy(update={"dp": ranks.world // each})


def read_strategy(text_or_path: str | Mapping[str, Any] | None, overrides: Mapping[str, Any] | None = None) -> "tuple[Strategy, Ranks | None]":
    """As `load_strategy`, with the number of ranks apart, before dp follows from it."""
    if isinstance(text_or_path, Mapping):
        document = _canonical(Document(dict(text_or_path), "the strategy"))
    elif text_or_path is None or not text_or_path.strip():
        document = Document({}, "the strategy")
    elif text_or_path.lower().endswith((".yaml", ".yml", ".json")) or os.path.exists(text_or_path):
        document = _canonical(read_json(text_or_path) if text_or_path.lower().endswith(".json") else read_yaml(text_or_path))
    elif "=" in text_or_path:
        document = _canonical(Document(_inline(text_or_path), f"strategy '{cut(text_or_path)}'"))
    elif text_or_path in list_strategies():
        document = _canonical(read_yaml(models_directory() / "strategies" / f"{text_or_path}.yaml"))
    else:
        raise InputError(f"strategy '{cut(text_or_path)}' is neither a file nor a list such as tp=8,pp=4")
    document, ranks = _without_ranks(document)
    # the base stands alone first, so that a fault in it is reported where it is
    base = validate(Strategy, document.data, document.where, document)
    if not overrides:
        return base, ranks
    return _changed(document.data, overrides, ranks)


def override_strategy(strategy: Strategy, changes: Mapping[str, Any]) -> Strategy:
    """The strategy with these options changed, checked again as a whole; `world` as in `load_strategy`."""
    return on_ranks(*_changed(strategy.model_dump(exclude_unset=True), changes, None)) if changes else strategy


def _changed(data: Mapping[str, Any], changes: Mapping[str, Any], ranks: "Ranks | None") -> "tuple[Strategy, Ranks | None]":
    changed, more = _without_ranks(_canonical(Document(dict(changes), "--set")))
    return validate(Strategy, {**data, **changed.data}, changed.where, changed), more or ranks


def _without_ranks(document: Document) -> "tuple[Document, Ranks | None]":
    if RANKS not in document.data:
        return document, None
    world, place = document.data[RANKS], document.place((RANKS,))
    if not isinstance(world, int) or isinstance(world, bool) or not 0 < world <= LARGEST_WORLD:
        shown = cut(json.dumps(world, default=lambda value: type(value).__name__))
        raise InputError(f"{place}: world is {shown}; it should be a whole number above 0")
    return Document({k: v for k, v in document.data.items() if k != RANKS}, document.where, document.lines), Ranks(world, place)


def load_system(reference: str, changes: Mapping[tuple[str, ...], str] | None = None) -> System:
    """A system by name or from a YAML file, with the numbers that `changes` gives at the path to each.

    InputError names file, line and key of whatever does not fit (symsim/inputs/system.py has the schema).
    """
    return changed_system(system_document(reference), changes or {})


def system_document(reference: str) -> Document:
    """The file of a system, by name or path; InputError for a name that there is not, and for what does not fit."""
    names = list_systems()
    if reference in names:
        path = str(models_directory() / "systems" / f"{reference}.yaml")
    elif reference.lower().endswith((".yaml", ".yml")):
        path = reference
    elif os.path.exists(reference):
        raise InputError(f"{reference}: a system file ends in .yaml or .yml")
    elif not reference.strip():
        raise InputError("SYSTEM is empty; name a system ('symsim list systems') or a YAML file")
    else:
        hint = nearest(reference, names, "'symsim list systems' has them")
        raise InputError(f"no system or file is named '{cut(reference)}': {hint}")
    document = read_yaml(path)
    validate(System, document.data, path, document)
    return document


def changed_system(document: Document, changes: Mapping[tuple[str, ...], str]) -> System:
    """A system with other numbers at some places; InputError names the place."""
    if not changes:
        return validate(System, document.data, document.where, document)
    data = deepcopy(dict(document.data))
    data["sources"]["--set"] = "the command line"
    for where, text in changes.items():
        _change(data, where, text)
    return validate(System, data, "--set", Document(data, "--set"))


def no_system(changes: Mapping[tuple[str, ...], str]) -> InputError:
    return InputError(f"--set {'.'.join(next(iter(changes)))} changes a system's number, and none is named: give one with -y")


def override_system(system: System | None, changes: Mapping[tuple[str, ...], str]) -> System | None:
    """The system with other numbers at some places; InputError names the place, or that there is no system."""
    if not changes:
        return system
    if system is None:
        raise no_system(changes)
    return changed_system(Document(_plain(system), "--set"), changes)


def _plain(part: Any) -> Any:
    """A part of a system as its file has it."""
    if isinstance(part, Known):
        return [part.text, part.tag, part.source]
    if isinstance(part, BaseModel):
        return {name: _plain(value) for name in type(part).model_fields if (value := getattr(part, name)) is not None}
    if isinstance(part, Mapping):
        return {key: _plain(value) for key, value in part.items()}
    return [_plain(member) for member in part] if isinstance(part, tuple) else part


def _change(data: dict[str, Any], where: tuple[str, ...], text: str) -> None:
    """Put a number at its place in a system's plain data; a tier is found by its name, or by its place from 1."""
    *above, last = where
    place: Any = data
    for position, part in enumerate(above):
        if where[:position] == ("network",):
            found = next((tier for i, tier in enumerate(place, 1) if part in (str(i), tier["name"])), None)
            if found is None:
                hint = nearest(part, [tier["name"] for tier in place])
                raise InputError(f"--set {'.'.join(where)}: {data['name']} has no tier '{cut(part)}': {hint}")
            place = found
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            break
    if not isinstance(place, dict):
        raise InputError(f"--set {'.'.join(where)}: {'.'.join(above)} is not a group of numbers")
    place[last] = parse_value(text) if last == "ranks" else [printable(text), "estimated", "--set"]


def _system_path(name: str) -> tuple[str, ...] | None:
    """Where a system keeps the number that --set calls `name`: a symbol, or a dotted path."""
    if name in SYSTEM_SYMBOLS:
        return SYSTEM_SYMBOLS[name]
    tier = _TIER_SYMBOL.fullmatch(name)
    if tier is not None and (tier[1] == "eta") == (tier[3] is not None):
        return ("network", tier[2], _TIER_FIELDS[tier[1]], *([tier[3]] if tier[3] else []))
    path = tuple(name.split("."))
    return path if path[0] in _SYSTEM_PARTS and len(path) > 1 and all(path) else None


def _inline(text: str) -> dict[str, Any]:
    pairs: list[list[str]] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            pairs.append([name.strip(), value.strip()])
        elif pairs and pairs[-1][0] == "pipeline_model_parallel_layout":
            # a layout's own commas are cosmetic, but they are its own
            pairs[-1][1] += f",{part.strip()}"
        elif part.strip():
            raise InputError(f"strategy '{cut(text)}': '{cut(part.strip())}' is not NAME=VALUE")
        else:
            raise InputError(f"strategy '{cut(text)}' has an empty entry between commas")
    data: dict[str, Any] = {}
    for name, value in pairs:
        if name in data:
            raise InputError(f"strategy '{cut(text)}' gives {name} twice")
        if not value:
            raise InputError(f"strategy '{cut(text)}' gives {name or 'a name'} no value")
        data[name] = value if _takes_text(ALIASES.get(name, name)) else parse_value(value)
    return data


def _canonical(document: Document) -> Document:
    """The same document under the strategy's own names, with `a+b` made a list where a list is meant."""
    data: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    lines: dict[KeyPath, int] = {}
    for given, value in document.data.items():
        name = ALIASES.get(given, given)
        if name in data:
            raise InputError(f"{document.place((given,))}: {given} and {spelt[name]} are the same setting; give one of them")
        spelt[name] = given
        data[name] = _list(value) if _takes_list(name) else value
        lines |= {(name, *path[1:]): line for path, line in document.lines.items() if path[0] == given}
    unknown = next((name for name in data if name not in Strategy.model_fields and name != RANKS), None)
    if unknown is not None:
        # names are matched here, since pydantic does not know the aliases
        raise InputError(f"{document.place((spelt[unknown],))}: unknown key '{cut(unknown, 40)}': {of_strategy(unknown, _other_settings())}")
    return Document(data, document.where, lines)


def _list(value: Any) -> Any:
    if isinstance(value, str):
        return [parse_value(part) for part in value.split("+")]
    return [value] if isinstance(value, int) else value


def _annotations(name: str) -> list[Any]:
    annotation = Strategy.model_fields[name].annotation if name in Strategy.model_fields else None
    return [annotation, *get_args(annotation)]


def _takes_list(name: str) -> bool:
    return any(get_origin(part) is tuple for part in _annotations(name))


def _takes_text(name: str) -> bool:
    return str in _annotations(name)


def validate(model: type[Model], data: Mapping[str, Any], where: str, document: Document | None = None) -> Model:
    """`data` as `model`; InputError for the first thing that does not fit, with file, line and key."""
    try:
        made = model.model_validate(dict(data))
    except ValidationError as error:
        raise from_validation_error(error, document, where, model) from None
    _refuse_coercion(data, made, (), where, document)
    return made


def _refuse_coercion(given: Any, made: Any, path: KeyPath, where: str, document: Document | None) -> None:
    """pydantic reads `true` as 1 and "8" as 8; in a configuration either is a mistake."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            child = made.get(key) if isinstance(made, Mapping) else getattr(made, key, None)
            _refuse_coercion(value, child, (*path, key), where, document)
    elif isinstance(given, (list, tuple)) and isinstance(made, tuple) and len(given) == len(made):
        for index, (value, child) in enumerate(zip(given, made)):
            _refuse_coercion(value, child, (*path, index), where, document)
    elif isinstance(made, (bool, int, float, str)) and not isinstance(given, BaseModel):
        for kind, wanted in ((bool, "true or false"), (str, "text")):
            if isinstance(given, kind) != isinstance(made, kind):
                place = document.place(path) if document is not None else where
                needed = wanted if isinstance(made, kind) else "a number"
                shown = f'"{cut(given)}"' if isinstance(given, str) else str(given).lower()
                raise InputError(f"{place}: {dotted(path)} is {shown}; it should be {needed}")


@cache
def _architecture_keys() -> dict[str, tuple[str, ...]]:
    """Every name under which --set finds a field of the architecture: symbols, dotted paths, and bare names that are unique."""
    paths: list[tuple[str, ...]] = [("num_layers",)]
    for name, field in Architecture.model_fields.items():
        if name in _SECTIONS:
            section = next(t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type) and issubclass(t, BaseModel))
            paths += [(name, inner) for inner in section.model_fields]
        elif name not in ("layers", "layer_kinds", "norms"):
            paths.append((name,))
    bare = [path[-1] for path in paths]
    keys = {".".join(path): path for path in paths}
    keys |= {path[-1]: path for path in paths if bare.count(path[-1]) == 1}
    return keys | ARCHITECTURE_SYMBOLS


def architecture_fields() -> list[str]:
    """Names under which --set finds a field of the architecture, without symbols: bare where that is unique, else dotted."""
    return [name for name in _architecture_keys() if name not in ARCHITECTURE_SYMBOLS]


def split_settings(items: Iterable[str]) -> Settings:
    """Sort NAME=VALUE settings by what they change; InputError for an unknown name, a name given twice or no value."""
    pairs = []
    for item in items:
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not name or not text:
            raise InputError(f"--set '{cut(item)}' is not NAME=VALUE")
        pairs.append((name, text))
    return _sorted(pairs)


def settings_of(overrides: Mapping[str, Any]) -> Settings:
    """The same of a mapping, whose values may be text as after `--set NAME=`, numbers, true or false, and lists of names."""
    if not isinstance(overrides, Mapping):
        raise InputError(f"overrides is a {type(overrides).__name__}; a mapping of names to values is needed, such as {{'tp': 4}}")
    pairs = []
    for name, value in overrides.items():
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"overrides: {cut(repr(name))} is no name of a setting, which is text such as 'tp'")
        pairs.append((name.strip(), _given(name, value)))
    return _sorted(pairs)


def _given(name: str, value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a number of NumPy
    if isinstance(value, Fraction) and value.denominator == 1:
        return int(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(member, str) for member in value):
        return "+".join(value)
    if isinstance(value, str):
        value = value.strip()
    if value == "" or not isinstance(value, (bool, int, float, Fraction, str)):
        raise InputError(f"overrides: {cut(name)} is {cut(repr(value))}; text, a number, true or false, or a list of names is needed")
    return value


def _text(value: Any) -> str:
    """A value as it would be written after `--set NAME=`."""
    return str(value).lower() if isinstance(value, bool) else str(float(value)) if isinstance(value, Fraction) else str(value)


def _sorted(pairs: Iterable[tuple[str, Any]]) -> Settings:
    """Settings by what they change; a value that is text is read as after `--set NAME=`."""
    from symsim.algebra.vocabulary import SYMBOLS
    from symsim.inputs.assumptions import resolve

    settings = Settings({}, {}, {}, {}, {})
    spelt: dict[tuple[str, ...], str] = {}
    for name, given in pairs:
        text = _text(given)
        field = STRATEGY_SYMBOLS.get(name, ALIASES.get(name, name))
        if name.startswith("assume."):
            target: tuple[str, ...] = ("assume", name.removeprefix("assume."))
            settings.assumptions[target[1]] = text
        elif field == RANKS or field in Strategy.model_fields and field not in Architecture.model_fields:
            target = (field,)
            settings.strategy[field] = text if _takes_text(field) else parse_value(text)
        elif name in _architecture_keys() or (name.startswith("layer_kinds.") and name.count(".") == 2):
            path = _architecture_keys().get(name) or tuple(name.split("."))
            target = ("architecture", *path)
            settings.architecture[path] = parse_value(text)
        elif (place := _system_path(name)) is not None:
            target = ("system", *place)
            settings.system[place] = text
        elif name in FREE_SYMBOLS:
            target = ("symbol", name)
            value = given if isinstance(given, Fraction) else parse_value(text)
            if isinstance(value, (bool, str)) or not 1 <= value <= MOST_RANKS:
                raise InputError(f"--set {name}={cut(text)}: {SYMBOLS[name].meaning}; it is a number from 1 up, and at most {MOST_RANKS}")
            settings.symbols[name] = Fraction(str(value))
        elif name in SYMBOLS:
            raise InputError(f"--set {name}: {name} ({SYMBOLS[name].meaning}) cannot be set")
        else:
            known = [*Strategy.model_fields, *ALIASES, *_architecture_keys(), *SYSTEM_SYMBOLS, *STRATEGY_SYMBOLS, *FREE_SYMBOLS]
            raise InputError(f"--set {cut(name, 40)}: no such setting; {of_setting(name, known, _other_settings())}")
        if target in spelt:
            other = spelt[target]
            raise InputError(
                f"--set gives {name} twice" if other == name else f"--set {name} and --set {other} are the same setting; give one of them"
            )
        spelt[target] = name
    resolve(settings.assumptions)
    return settings


def override_architecture(architecture: Architecture, changes: Mapping[tuple[str, ...], Any]) -> Architecture:
    """The architecture with these fields changed, checked again as a whole."""
    if not changes:
        return architecture
    data = architecture.model_dump()
    for path, value in changes.items():
        if path == ("num_layers",):
            data["layers"] = _resized(architecture, value)
            continue
        place = data
        for position, part in enumerate(path[:-1]):
            if not isinstance(place.get(part), dict):
                hint = f": {nearest(part, list(place))}" if position else ""
                raise InputError(f"--set {'.'.join(path)}: {architecture.name} has no {'.'.join(path[: position + 1])}{hint}")
            place = place[part]
        place[path[-1]] = value
    return validate(Architecture, data, "--set")


def _resized(architecture: Architecture, layers: Any) -> Any:
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise InputError(f"--set num_layers={layers}: it should be a whole number above 0")
    if len(architecture.layers) != 1:
        raise InputError(
            f"--set num_layers: {architecture.name} has several runs of layers ({format_layers(architecture.layers)}); "
            "edit the model file's layers instead"
        )
    unit = len(architecture.layers[0].kinds)
    if layers % unit:
        raise InputError(f"--set num_layers={layers}: {architecture.name} repeats {unit} layers, so a multiple of {unit} is needed")
    return [{"repeat": layers // unit, "kinds": architecture.layers[0].kinds}]


@cache
def _other_settings() -> dict[str, str]:
    """Every other setting by its full name, and what kind of thing it is."""
    tiers = dict.fromkeys(tier.name for system in list_systems() for tier in load_system(system).network)
    numbers = [f"network.{tier}.bandwidth" for tier in tiers]
    numbers += [f"accelerator.{n}" for n in Accelerator.model_fields if n != "peak"] + [f"accelerator.peak.{n}" for n in Peak.model_fields]
    numbers += [f"host.{n}" for n in Host.model_fields]
    return {
        **dict.fromkeys(numbers, "a number of the system"),
        **dict.fromkeys(architecture_fields(), "a field of the model"),
        **dict.fromkeys((f"assume.{a}" for a in ASSUMPTIONS), "an assumption"),
    }
