"""The command show, of one thing: the file of a model, a system or a strategy, to read or to copy, or what an option, an assumption, a
symbol or a quantity means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from symsim.api.completing import kinds, models
from symsim.api.listing import assumption_text, option_text
from symsim.api.terminal import print_out
from symsim.errors import InputError, nearest


def shown(kind: str, name: str | None) -> str:
    """The text. InputError for another kind, and for a name that there is not, with the nearest, or with the kind that it is of."""
    if kind not in SHOWN:
        raise InputError(f"there is no '{kind}' to show: {_of_its_kind(kind) or nearest(kind, list(SHOWN))}")
    if name is None:
        several = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
        raise InputError(f"symsim show {kind} needs a name: 'symsim list {several}' has them")
    return SHOWN[kind](name)


def _of_its_kind(name: str) -> str:
    """A clause that shows a name of any kind; "" where there is no such name."""
    bare = name.removeprefix("assume.")
    found = [f"'symsim show {kind} {bare}'" for kind, names in NAMES.items() if bare in names()]
    if not found and _is_of_a_system(name):
        found = [f"'symsim show symbol {name}'"]
    return f"{' or '.join(found)} would be right" if found else ""


def _model(name: str) -> str:
    from symsim.inputs.models import format_model, load_model
    from symsim.inputs.shipped import list_models, models_directory

    if name in list_models():
        return _text(models_directory() / f"{name}.yaml")
    # a config.json, a hub id or a directory, as a file of models/
    return format_model(load_model(name).architecture)


def _system(name: str) -> str:
    from symsim.inputs.shipped import models_directory

    return _text(models_directory() / "systems" / f"{_known(name, 'system')}.yaml")


def _strategy(name: str) -> str:
    from symsim.inputs.shipped import models_directory

    return _text(models_directory() / "strategies" / f"{_known(name, 'strategy')}.yaml")


def _option(name: str) -> str:
    return option_text(_known(name, "option"))


def _assumption(name: str) -> str:
    return assumption_text(_known(name.removeprefix("assume."), "assumption"))


def _symbol(name: str) -> str:
    from symsim.algebra.typeset import entry

    found = entry(name if _is_of_a_system(name) else _known(name, "symbol"))
    return f"{name}  [{found.unit}]  {found.latex}\n    {found.meaning}\n"


def _is_of_a_system(name: str) -> bool:
    """Whether it is a symbol of one number of a system, those of its tiers included (B_2)."""
    from symsim.inputs.settable import system_path

    return "." not in name and system_path(name) is not None


def _quantity(name: str) -> str:
    from symsim.evaluation.quantities import QUANTITIES

    entry = QUANTITIES[_known(name, "quantity")]
    return f"{name}  [{entry.unit}]\n    {entry.meaning}; the definition {entry.symbol}\n"


def _known(name: str, kind: str) -> str:
    if name not in (names := NAMES[kind]()):
        raise InputError(f"there is no {kind} '{name}': {_of_its_kind(name) or nearest(name, names)}")
    return name


def _models() -> list[str]:
    from symsim.inputs.shipped import list_models

    return list_models()


def _systems() -> list[str]:
    from symsim.inputs.shipped import list_systems

    return list_systems()


def _strategies() -> list[str]:
    from symsim.inputs.shipped import list_strategies

    return list_strategies()


def _options() -> list[str]:
    from symsim.inputs.strategy import Strategy

    return list(Strategy.model_fields)


def _assumptions() -> list[str]:
    from symsim.inputs.assumptions import ASSUMPTIONS

    return list(ASSUMPTIONS)


def _symbols() -> list[str]:
    from symsim.algebra.vocabulary import SYMBOLS

    return list(SYMBOLS)


def _quantities() -> list[str]:
    from symsim.evaluation.quantities import QUANTITIES

    return list(QUANTITIES)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


SHOWN: dict[str, Callable[[str], str]] = {
    "model": _model,
    "system": _system,
    "strategy": _strategy,
    "option": _option,
    "assumption": _assumption,
    "symbol": _symbol,
    "quantity": _quantity,
}


NAMES: dict[str, Callable[[], list[str]]] = {
    "model": _models,
    "system": _systems,
    "strategy": _strategies,
    "option": _options,
    "assumption": _assumptions,
    "symbol": _symbols,
    "quantity": _quantities,
}


def names_shown(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the kind in front, for completion."""
    kind = str(ctx.params.get("kind"))
    return models(incomplete) if kind == "model" else NAMES[kind]() if kind in NAMES else []


def show(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"What it is: {', '.join(SHOWN)}.", autocompletion=kinds(SHOWN))],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its name, as 'symsim list' has it.", autocompletion=names_shown)] = None,
) -> None:
    """Show one model, system, strategy, option, assumption, symbol or quantity."""
    print_out(shown(kind, name))
