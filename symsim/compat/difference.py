"""A difference between another system and symsim: where it stands in theirs, what each does, and the options that make symsim do theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symsim.inputs.architecture import Architecture
from symsim.inputs.conventions import OWN, Conventions, changed
from symsim.inputs.models import override_architecture
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System


@dataclass(frozen=True)
class Question:
    """What is evaluated: a model under a strategy with assumptions, perhaps on a system, under conventions. given: the contents of the files
    that it was imported from, by what they describe; empty where it was not."""

    model: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str] = field(default_factory=dict)
    system: System | None = None
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    conventions: Conventions = OWN


@dataclass(frozen=True)
class Difference:
    """One row. here, there: what symsim and the other system do; source: where in theirs; moves: quantities it can move.

    options: of the conventions; assumptions, strategy and fields of the model: as `--set` takes them, None for an option that goes. They are
    all that it consists of.
    """

    name: str
    here: str
    there: str
    source: str
    moves: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    assumptions: Mapping[str, str] = field(default_factory=dict)
    strategy: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[tuple[str, ...], Any] = field(default_factory=dict)


def applied(question: Question, differences: Iterable[Difference]) -> Question:
    """The question as another system answers it, in these respects."""
    for d in differences:
        strategy = question.strategy
        if d.strategy:
            asked = {**strategy.model_dump(exclude_unset=True), **d.strategy}
            strategy = load_strategy({name: value for name, value in asked.items() if value is not None})
        question = replace(
            question,
            model=override_architecture(question.model, d.model),
            strategy=strategy,
            assumptions={**question.assumptions, **d.assumptions},
            conventions=changed(question.conventions, d.options),
        )
    return question
