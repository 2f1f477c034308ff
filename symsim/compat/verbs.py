"""The verbs of --compat: the answer of another system, and both with what lies between them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from symsim.compat.compare import Comparison, evaluate
from symsim.compat.compare import compare as compared
from symsim.compat.difference import applied
from symsim.compat.job import question_of
from symsim.compat.registry import differences, measures
from symsim.evaluation.numbers import Evaluation


def evaluate_as(kind: str, model: str, strategy: str | None = None, system: str | None = None, settings: Sequence[str] = ()) -> Evaluation:
    """What another system computes for a job. InputError for a system that is not known, and for what it cannot say."""
    question = question_of(model, strategy, system, settings)
    return evaluate(applied(question, differences(kind, question)))


def compare_with(kind: str, model: str, strategy: str | None = None, system: str | None = None, settings: Sequence[str] = ()) -> Comparison:
    """Both answers, and what each difference alone moves. InputError as `evaluate_as`."""
    question = question_of(model, strategy, system, settings)
    return compared(kind, question, differences(kind, question), measures(kind))


def compare(
    model: str | os.PathLike[str],
    compat: str,
    strategy: str | None = None,
    system: str | os.PathLike[str] | None = None,
    settings: Sequence[str] = (),
) -> Comparison:
    """symsim's numbers of a job and another system's, with what each of its differences alone moves (`symsim compare`).

    >>> made = compare("llama3-8b", "simumax", "tp=2,sp=true")
    >>> [move.difference.name for move in made.moves][:1], max(made.here["weights"]) == max(made.there["weights"])
    (['rotary-tables'], True)
    """
    return compare_with(compat, os.fspath(model), strategy, os.fspath(system) if system is not None else None, settings)
