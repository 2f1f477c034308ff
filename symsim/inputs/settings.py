"""Settings of --set, or of a mapping of overrides, sorted by what they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from symsim.algebra.grammar import parse_value
from symsim.errors import InputError, cut
from symsim.inputs.architecture import Architecture
from symsim.inputs.limits import MOST_RANKS
from symsim.inputs.run import RAMP, RUN, read_ramp, read_run_number
from symsim.inputs.settable import SYSTEM_SYMBOLS, architecture_keys, other_settings, system_path
from symsim.inputs.spellings import ALIASES, of_setting
from symsim.inputs.strategies import RANKS, takes_text
from symsim.inputs.strategy import Strategy
from symsim.inputs.symbols_set import FREE_SYMBOLS, STRATEGY_SYMBOLS


class Settings(NamedTuple):
    """What --set asked for; a key of the architecture or of the system is the path to it."""

    strategy: dict[str, Any]
    architecture: dict[tuple[str, ...], Any]
    assumptions: dict[str, str]
    symbols: dict[str, Fraction]
    system: dict[tuple[str, ...], str]


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


def text_of(value: Any) -> str:
    """A value as `-s` and `--axis` take it."""
    if isinstance(value, (tuple, list)):
        return "+".join(map(str, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        # null is a strategy's, of what is the model's by default
        elif field == RANKS or field in Strategy.model_fields and (field not in Architecture.model_fields or text == "null"):
            target = (field,)
            settings.strategy[field] = text if takes_text(field) else parse_value(text)
        elif name in architecture_keys() or (name.startswith("layer_kinds.") and name.count(".") == 2):
            path = architecture_keys().get(name) or tuple(name.split("."))
            target = ("architecture", *path)
            settings.architecture[path] = parse_value(text)
        elif (place := system_path(name)) is not None:
            target = ("system", *place)
            settings.system[place] = text
        elif name in FREE_SYMBOLS:
            target = ("symbol", name)
            value = given if isinstance(given, Fraction) else parse_value(text)
            if isinstance(value, (bool, str)) or not 1 <= value <= MOST_RANKS:
                raise InputError(f"--set {name}={cut(text)}: {SYMBOLS[name].meaning}; it is a number from 1 up, and at most {MOST_RANKS}")
            settings.symbols[name] = Fraction(str(value))
        elif name in RUN:
            target = ("symbol", name)
            settings.symbols[name] = read_run_number(name, given if isinstance(given, Fraction) else text)
        elif name == RAMP:
            target = ("symbol", name)
            settings.symbols.update(read_ramp(text))
        elif name in SYMBOLS:
            raise InputError(f"--set {name}: {name} ({SYMBOLS[name].meaning}) cannot be set")
        else:
            known = [*Strategy.model_fields, *ALIASES, *architecture_keys(), *SYSTEM_SYMBOLS, *STRATEGY_SYMBOLS, *FREE_SYMBOLS, *RUN, RAMP]
            raise InputError(f"--set {cut(name, 40)}: no such setting; {of_setting(name, known, other_settings())}")
        if target in spelt:
            other = spelt[target]
            raise InputError(
                f"--set gives {name} twice" if other == name else f"--set {name} and --set {other} are the same setting; give one of them"
            )
        spelt[target] = name
    resolve(settings.assumptions)
    return settings
