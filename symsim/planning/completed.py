"""A strategy of which some options are said, completed: the best of a plan's space that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symsim.errors import InputError
from symsim.grid.axes import Axis, parse_axis
from symsim.grid.names import field_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.settings import text_of
from symsim.inputs.strategies import Ranks, on_ranks, read_strategy
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import Rule
from symsim.planning.plan import Choice, NothingRuns, Plan, best_of
from symsim.planning.space import GIVEN, options_beside

# what follows from other sizes: of all strategies those stay of which it is what was said
_FOLLOW = {"dp": "dp", "num_microbatches": "microbatches"}
_LEAVE = {"dp": "tp, cp and pp leave of the accelerators", "num_microbatches": "micro_batch_size and dp leave of the batch"}


@dataclass(frozen=True)
class Completed:
    """choice: the best. said: the options that it was to have. configurations: of the space, with these. fits: whether any of them does; where none
    does, it is the one that needs the least memory."""

    choice: Choice
    said: Mapping[str, Any]
    configurations: int
    fits: bool

    @property
    def filled(self) -> list[str]:
        """The options that were not said, where they are not the defaults and move something, as -s has them."""
        passed = {*self.said, *GIVEN}
        return [f"{name}={text_of(value)}" for name, value in self.choice.acting.items() if name not in passed]


def completed(plan: Plan, strategy: str | Mapping[str, Any]) -> Completed:
    """The best strategy of a plan's space, and for its goal, that has these options; those that the plan fixes otherwise, and values that its space
    has not, are as said. InputError for what does not read, for other ranks or another batch, and where no such strategy can run."""
    options_beside(plan.asked, strategy)
    said = read_strategy(strategy)[0].model_dump(exclude_unset=True)
    own = {name: value for name, value in said.items() if name not in GIVEN and name not in _FOLLOW}
    on_ranks(Strategy(**own), Ranks(plan.asked.world, "--world"))
    axes = tuple(text for text in plan.asked.allowed if own.keys().isdisjoint(map(field_of, _names(text))))
    held = tuple(_held(name, said[name]) for name in _FOLLOW if name in said)
    asked = replace(plan.asked, fixed={**plan.asked.fixed, **own}, allowed=axes, held=held)
    try:
        best, certificate, fits = best_of(asked, plan.share, plan.goal)
    except NothingRuns as error:
        raise InputError(error.reason) from None
    return Completed(best[0], said, certificate.configurations, fits)


def _names(axis: str) -> Sequence[str]:
    made = parse_axis(axis)
    return made.names if isinstance(made, Axis) else (made.name,)


def _held(name: str, value: Any) -> Rule:
    """A rule by which a number that follows from others is what was said."""
    of, leave = _FOLLOW[name], _LEAVE[name]

    def held(model: Architecture, strategy: Strategy) -> None:
        here = getattr(strategy, of)
        if here != value:
            raise InputError(f"{name}={value} is not what {leave} ({name}={here} where all else fits)")

    held.__name__ = f"said_{name}"
    return held
