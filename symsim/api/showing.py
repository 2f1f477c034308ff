"""The command show, of one thing: the file of a model, a system or a strategy, to read or to copy, or what an option, an assumption, a
symbol or a quantity means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from symsim.api.completing import kinds, models, systems
from symsim.api.listing import LISTS, assumption_text, option_text
from symsim.api.terminal import print_out
from symsim.errors import InputError, nearest


def shown(kind: str, name: str) -> str:
    """The text. InputError for another kind, and for a name that there is not, with the nearest."""
    if kind not in SHOWN:
        raise InputError(f"there is no '{kind}' to show: {nearest(kind, list(SHOWN))}")
    return SHOWN[kind](name)


def _model(name: str) -> str:
    from symsim.inputs.models import format_model, load_model
    from symsim.inputs.shipped import list_models, models_directory

    if name in list_models():
        return _text(models_directory() / f"{name}.yaml")
    # a config.json, a hub id or a directory, as a file of models/
    return format_model(load_model(name).architecture)


def _system(name: str) -> str:
    from symsim.inputs.shipped import list_systems, models_directory

    return _text(models_directory() / "systems" / f"{_known(name, 'system', list_systems())}.yaml")


def _strategy(name: str) -> str:
    from symsim.inputs.shipped import list_strategies, models_directory

    return _text(models_directory() / "strategies" / f"{_known(name, 'strategy', list_strategies())}.yaml")


def _option(name: str) -> str:
    from symsim.inputs.strategy import Strategy

    return option_text(_known(name, "option", list(Strategy.model_fields)))


def _assumption(name: str) -> str:
    from symsim.inputs.assumptions import ASSUMPTIONS

    return assumption_text(_known(name.removeprefix("assume."), "assumption", list(ASSUMPTIONS)))


def _symbol(name: str) -> str:
    from symsim.algebra.vocabulary import SYMBOLS

    entry = SYMBOLS[_known(name, "symbol", list(SYMBOLS))]
    return f"{name}  [{entry.unit}]  {entry.latex}\n    {entry.meaning}\n"


def _quantity(name: str) -> str:
    from symsim.evaluation.quantities import QUANTITIES

    entry = QUANTITIES[_known(name, "quantity", list(QUANTITIES))]
    return f"{name}  [{entry.unit}]\n    {entry.meaning}; the definition {entry.symbol}\n"


def _known(name: str, what: str, names: list[str]) -> str:
    if name not in names:
        raise InputError(f"there is no {what} '{name}': {nearest(name, names)}")
    return name


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


def names_shown(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the kind in front, for completion."""
    kind = str(ctx.params.get("kind"))
    if kind in ("model", "system"):
        return (models if kind == "model" else systems)(incomplete)
    plural = {"strategy": "strategies", "quantity": "quantities"}.get(kind, f"{kind}s")
    return [row["name"] for row in LISTS[plural].rows()] if plural in LISTS else []


def show(
    kind: Annotated[str, typer.Argument(metavar="{" + ",".join(SHOWN) + "}", help="What it is.", autocompletion=kinds(SHOWN))],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, as 'symsim list' has it.", autocompletion=names_shown)],
) -> None:
    """Show one model, system, strategy, option, assumption or symbol."""
    print_out(shown(kind, name))
