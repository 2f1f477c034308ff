"""From what a user names to a strategy: by name, from a file, inline text or a mapping, and with some options changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_origin

from symsim.algebra.grammar import parse_value
from symsim.errors import InputError, cut
from symsim.inputs.reading import Document, KeyPath, read_json, read_yaml
from symsim.inputs.settable import other_settings
from symsim.inputs.shipped import list_strategies, models_directory
from symsim.inputs.spellings import ALIASES, of_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.validation import validate

# Not a field: the number of ranks, from which dp follows
RANKS = "world"
LARGEST_WORLD = 2**40


class Ranks(NamedTuple):
    """How many ranks a strategy is to use, and where that is said."""

    world: int
    where: str


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
    elif is_file(text_or_path):
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


def is_file(text: str) -> bool:
    """Whether a strategy is given by a path, and not option by option or by name."""
    return (text.lower().endswith((".yaml", ".yml", ".json")) and "=@" not in text) or os.path.exists(text)


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


def _inline(text: str) -> dict[str, Any]:
    pairs: list[list[str]] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            pairs.append([name.strip(), value.strip()])
        elif pairs and pairs[-1][0] in ("pipeline_model_parallel_layout", "document_lengths"):
            # a layout's own commas are cosmetic, but they are its own; a distribution has one too
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
        data[name] = value if takes_text(ALIASES.get(name, name)) else parse_value(value)
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
        data[name] = _read(name, value)
        lines |= {(name, *path[1:]): line for path, line in document.lines.items() if path[0] == given}
    unknown = next((name for name in data if name not in Strategy.model_fields and name != RANKS), None)
    if unknown is not None:
        # names are matched here, since pydantic does not know the aliases
        raise InputError(f"{document.place((spelt[unknown],))}: unknown key '{cut(unknown, 40)}': {of_strategy(unknown, other_settings())}")
    return Document(data, document.where, lines)


def _read(name: str, value: Any) -> Any:
    """A value as its option has it; the text `null`, of one that may be left out, for none."""
    if value == "null" and type(None) in _annotations(name):
        return None
    if _takes_list(name):
        return _list(value)
    return str(value) if name == "document_lengths" and type(value) is int else value


def _list(value: Any) -> Any:
    if isinstance(value, str):
        return [parse_value(part) for part in value.split("+")]
    return [value] if isinstance(value, int) else value


def _annotations(name: str) -> list[Any]:
    annotation = Strategy.model_fields[name].annotation if name in Strategy.model_fields else None
    return [annotation, *get_args(annotation)]


def _takes_list(name: str) -> bool:
    return any(get_origin(part) is tuple for part in _annotations(name))


def takes_text(name: str) -> bool:
    return str in _annotations(name)
