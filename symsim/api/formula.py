"""The command formula: one quantity's formula, in the form that a terminal, a paper, a page or a program takes."""

from __future__ import annotations

from typing import Annotated

import typer

from symsim.api.arguments import Model, Settings, StrategyText, SystemName, pair
from symsim.api.terminal import print_out, say_replaced
from symsim.errors import InputError, cut


def formula(
    model: Model,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A quantity or a definition; without it, a list of all.")] = None,
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    per: Annotated[str | None, typer.Option("--per", metavar="UNIT", help="Divide by a product of symbols, such as 's*b*h/t'.")] = None,
    given: Annotated[list[str] | None, typer.Option("--given", metavar="FACTS", help="Facts, as g=a or m>=pp; repeatable.")] = None,
    inline: Annotated[str | None, typer.Option("--inline", metavar="NAMES", help="Definitions to put in, by commas; or all.")] = None,
    symbols: Annotated[str, typer.Option("--symbols", metavar="STYLE", help="symsim, megatron, korthikanti, or a file of letters.")] = "symsim",
    small: Annotated[str | None, typer.Option("--drop-below", metavar="SHARE", help="Smaller terms go under one name, such as 1%.")] = None,
    target: Annotated[str, typer.Option("--to", metavar="TARGET", help="text tex md html typst sympy python c js.")] = "text",
) -> None:
    """Print one formula as it is read, or as code."""
    from symsim.algebra.grammar import parse
    from symsim.algebra.vocabulary import SYMBOLS
    from symsim.api.order import model_first
    from symsim.api.python import derive
    from symsim.evaluation.quantities import QUANTITIES, refuse_unknown
    from symsim.inputs.run import asks_run
    from symsim.report.formula_list import chapters

    model_first("formula", model, [name] if name is not None else [])
    result = derive(model, strategy, overrides=dict(pair("--set", text) for text in settings or ()), system=system)
    say_replaced(model, strategy)
    if name is None:
        print_out(chapters(result))
        return
    quantity = QUANTITIES.get(name)
    if quantity is not None and quantity.symbol not in result.derivation.definitions:
        if quantity.timed:
            raise refuse_unknown(name, (), "symsim formula", timed=result.system is not None, run=asks_run(result.overrides))
        raise InputError(f"{name} is one number for {result.model.name}, which 'symsim eval' gives: no formula stands behind it")
    found = result.formula(name)
    defined = sorted(n for n in parse(per, where="--per").symbols() if n in result.derivation.definitions and n not in SYMBOLS) if per else []
    if defined:
        free = ", ".join(sorted(found.symbols))
        raise InputError(
            f"--per '{cut(per or '')}': {defined[0]} is a definition, and a unit is of symbols, of which {found.result.symbol} has {free}"
        )
    facts, inside = ", ".join(given or ()), inline if inline is not None else ()
    print_out(found.to(target, per=per, given=facts, inline=inside, symbols=symbols, drop_below=small if small is not None else 0))
