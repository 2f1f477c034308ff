"""The arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symsim.api import completing
from symsim.errors import InputError, cut
from symsim.report import SUFFIXES

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A name from 'symsim list models', a model file, a Hugging Face config.json, or a directory that 'symsim import' wrote.",
        autocompletion=completing.models,
    ),
]
StrategyText = Annotated[
    str | None,
    typer.Option("-s", "--strategy", metavar="STRATEGY", help="A file, or inline: tp=8,pp=4,sp=true,...", autocompletion=completing.strategies),
]
SystemName = Annotated[
    str | None,
    typer.Option("-y", "--system", metavar="SYSTEM", help="A name from 'symsim list systems', or a system file.", autocompletion=completing.systems),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help=f"Write to FILE ({' '.join(SUFFIXES)}) instead of Markdown on standard output."),
]
Short = Annotated[bool, typer.Option("--short", help="Four pages: the answer, step and pipeline, memory, notation.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Override a symbol, a setting or an assumption; repeatable.", autocompletion=completing.settings
    ),
]


def pair(option: str, text: str) -> tuple[str, str]:
    """NAME=VALUE as its two parts; InputError for what is neither."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"{option} '{cut(text)}' is not NAME=VALUE")
    return name.strip(), value.strip()


def share(option: str, text: str) -> float:
    """'90%' or 0.9 as a number. InputError for what is none."""
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise InputError(f"{option} {cut(text)}: a share is needed, such as 90% or 0.9") from None


Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--axis",
        metavar="NAME=VALUES",
        help="1,2,4 | 1:8 | 8:64:8 | 1:64:*2 | @FILE#COLUMN, or an expression: dp=world/(tp*pp).",
        autocompletion=completing.axes,
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="QUANTITY", help="What is best: a quantity or an expression; which end is said.", autocompletion=completing.quantities
    ),
]
Pareto = Annotated[
    str | None, typer.Option("--pareto", metavar="A,B", help="The points that no other beats in both.", autocompletion=completing.quantities)
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="NAMES", help="What is reported of every point ('symsim list quantities').", autocompletion=completing.quantities
    ),
]
