"""The command ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symsim.api.arguments import Model, Settings, StrategyText, SystemName
from symsim.api.terminal import print_out, say
from symsim.errors import InputError

if TYPE_CHECKING:
    from symsim.api.result import Result

Questions = Annotated[
    list[str],
    typer.Argument(
        metavar="QUESTION...",
        help="elasticity QUANTITY [by SYMBOLS] | crossing QUANTITY = QUANTITY over SYMBOL | largest SYMBOL where CONDITION | smallest SYMBOL where "
        "CONDITION | needed SYMBOL for CONDITION | QUANTITIES over SYMBOL=START:END:STEP. Each in quotes; SYMBOL may have a range: B_2=25:400 GB/s.",
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write the tornado plot of the elasticities to FILE (.svg).")]


def command(result_of: "Callable[..., tuple[Result, list[str]]]") -> Callable[..., None]:
    """The command over what makes a result of the shared arguments."""

    def ask(
        model: Model,
        questions: Questions,
        strategy: StrategyText = None,
        system: SystemName = None,
        settings: Settings = None,
        plot: Plot = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array, an object a question.")] = False,
    ) -> None:
        """Ask what moves a number, where two are equal, how large or small one may be."""
        result, notes = result_of(model, strategy, system, settings)
        answers = _answers(result, questions, plot)
        if as_json:
            print_out(json.dumps([a.to_json() for a in answers], indent=2) + "\n")
        else:
            print_out("\n\n".join(map(repr, answers)) + "\n")
        for note in notes:
            say(note)
        if plot is not None:
            say(f"wrote {plot}")

    return ask


def _answers(result: "Result", texts: Sequence[str], plot: Path | None) -> list[Any]:
    from symsim.asking.answers import Elasticities
    from symsim.asking.questions import ask, questions
    from symsim.inputs.reading import write_text

    if plot is not None and plot.suffix != ".svg":
        raise InputError(f"{plot}: a tornado plot ends in .svg")
    answers = [ask(result, text) for text in questions(texts)]
    if plot is not None:
        drawn = next((a for a in answers if isinstance(a, Elasticities)), None)
        if drawn is None:
            raise InputError("--plot draws elasticities, and none is asked for: add 'elasticity t_step'")
        write_text(plot, drawn.svg())
    return answers
