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
        metavar="QUESTION",
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
        over: Annotated[str | None, typer.Option("--over", metavar="SYMBOL", help="Of 'crossing A B': the symbol that moves.")] = None,
        where: Annotated[str | None, typer.Option("--where", metavar="CONDITION", help="Of 'largest X' and 'smallest X'.")] = None,
        needed_for: Annotated[str | None, typer.Option("--for", metavar="CONDITION", help="Of 'needed X'.")] = None,
        plot: Plot = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array, an object a question.")] = False,
    ) -> None:
        """Ask what moves a number, where two are equal, how large or small one may be."""
        from symsim.api.order import model_first

        model_first("ask", model, questions)
        result, notes = result_of(model, strategy, system, settings)
        answers = _answers(result, _joined(questions, over, where, needed_for), plot)
        if as_json:
            print_out(json.dumps([a.to_json() for a in answers], indent=2) + "\n")
        else:
            print_out("\n\n".join(map(repr, answers)) + "\n")
        for note in notes:
            say(note)
        if plot is not None:
            say(f"wrote {plot}")

    return ask


def _joined(words: Sequence[str], over: str | None, where: str | None, needed_for: str | None) -> list[str]:
    """Questions as they are written in quotes; one whose words and options stand apart becomes such. InputError where they are of no question."""
    given = {name: text for name, text in (("--over", over), ("--where", where), ("--for", needed_for)) if text is not None}
    if not given:
        return ["elasticity t_step" if word == "elasticities" else word for word in words]
    verb, *names = [part for word in words for part in word.split()]
    forms = {
        "crossing": ("--over", 2, "crossing {0} = {1} over {text}"),
        "largest": ("--where", 1, "largest {0} where {text}"),
        "smallest": ("--where", 1, "smallest {0} where {text}"),
        "needed": ("--for", 1, "needed {0} for {text}"),
    }
    for one, (option, many, form) in forms.items():
        if verb == one and list(given) == [option] and len(names) == many:
            return [form.format(*names, text=given[option])]
    said = "crossing A B --over X, largest X --where CONDITION, smallest X --where CONDITION or needed X --for CONDITION"
    raise InputError(f"{' '.join(words)} {' '.join(given)}: a question in words and options is one of: {said}")


def _answers(result: "Result", texts: Sequence[str], plot: Path | None) -> list[Any]:
    from symsim.asking.answers import Elasticities
    from symsim.asking.questions import answers as answers_of
    from symsim.asking.questions import questions
    from symsim.inputs.reading import write_text

    if plot is not None and plot.suffix != ".svg":
        raise InputError(f"{plot}: a tornado plot ends in .svg")
    answers = answers_of(result, questions(texts))
    if plot is not None:
        drawn = next((a for a in answers if isinstance(a, Elasticities)), None)
        if drawn is None:
            raise InputError("--plot draws elasticities, and none is asked for: add 'elasticity t_step'")
        write_text(plot, drawn.svg())
    return answers
