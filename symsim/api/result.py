"""What `derive` returns: a derivation with its outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from symsim.algebra.expr import Number
from symsim.evaluation.above_peak import above_peak
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.interval import ENDS, Interval, interval
from symsim.evaluation.json_object import flops_by_module, json_object
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.traffic import stage_messages
from symsim.inputs.architecture import Architecture
from symsim.inputs.conventions import OWN, Conventions
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.ir.messages import Message
from symsim.pipeline.stages import Stage

if TYPE_CHECKING:
    from symsim.asking.answers import Along, Answer, Crossing, Elasticities, Extreme
    from symsim.report.figure import Figure


@dataclass(frozen=True)
class Result(Evaluation):
    """The derivation of one model under one strategy.

    `formula(name)` gives a named result as a `Formula`; `value(name)` its exact number at the given sizes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process derives it again: what it is of travels, and no formula."""
        of_it = self.architecture, self.strategy, dict(self.assumptions), dict(self.overrides), self.system, self.lowered.profile.conventions
        return derive, of_it

    @cached_property
    def interval(self) -> Interval | None:
        """Between which seconds a step lies, with which probability, and what makes it so wide; None without a system."""
        return interval(self)

    def value(self, name: str) -> Number:
        """The number of a quantity by its dotted name (`symsim list quantities`) or of a definition by its symbol; KeyError for another."""
        if name in ENDS and self.interval is not None:
            return getattr(self.interval, ENDS[name])
        return super().value(name)

    def stage_messages(self, stage: Stage) -> list[Message]:
        """What one rank of the stage sends and receives: a micro-batch's messages and the step's."""
        return stage_messages(self, stage)

    def flops_by_module(self) -> dict[str, dict[str, int]]:
        """Forward, backward and recomputed FLOPs of the model by module, one micro-batch."""
        return flops_by_module(self)

    def to_json(self) -> dict[str, Any]:
        """The object of `symsim eval --json` (docs/json.md): counts are integers, bytes are bytes."""
        return json_object(self)

    @cached_property
    def above_peak(self) -> str:
        """The convention that makes MFU or HFU exceed 100 %, in a sentence; empty where neither does."""
        return above_peak(self)

    def to_pandas(self) -> Any:
        """The definitions as a DataFrame, one a row: symbol, stage, value, unit, meaning, formula, assumptions, source. InputError without pandas."""
        from symsim.api.frames import definitions_frame

        return definitions_frame(self)

    def elasticity(self, name: str, by: str | Iterable[str] | None = None) -> "Elasticities":
        """Percent by which a quantity changes for a percent more of each symbol, largest first (docs/ask.md); `svg()` is its tornado plot.

        by: one name, several, or None for all real symbols and sizes. InputError for what there is not.
        """
        from symsim.asking.verbs import elasticity

        return elasticity(self, name, by)

    def crossing(self, left: str, right: str, over: str) -> "Crossing":
        """Where two quantities are equal as one symbol moves; over: its name, or a range ('B_1=200:900 GB/s')."""
        from symsim.asking.verbs import crossing

        return crossing(self, left, right, over)

    def largest(self, name: str, where: str) -> "Extreme":
        """The largest value of a symbol for which a condition holds: largest('s', where='M_peak <= 80 GiB')."""
        from symsim.asking.verbs import largest

        return largest(self, name, where)

    def smallest(self, name: str, where: str) -> "Extreme":
        """The smallest value of a symbol for which a condition holds."""
        from symsim.asking.verbs import smallest

        return smallest(self, name, where)

    def needed(self, name: str, for_: str) -> "Extreme":
        """The value of a symbol that a condition needs, the nearest to the present one: needed('B_2', for_='t_step <= 4 s')."""
        from symsim.asking.verbs import needed

        return needed(self, name, for_)

    def along(self, names: str | Iterable[str], over: str) -> "Along":
        """Quantities along a range of a symbol: along('t_step, M_peak', 'B_1=200:900:50 GB/s')."""
        from symsim.asking.verbs import along

        return along(self, names, over)

    def ask(self, question: str) -> "Answer":
        """The answer to a question as `symsim ask` takes it: ask('largest s where M_peak <= 80 GiB')."""
        from symsim.asking.questions import ask

        return ask(self, question)

    def table(self) -> str:
        """The result in 80 columns of text."""
        from symsim.report.text import eval_table

        return eval_table(self)

    def __repr__(self) -> str:
        """A few lines: what it is of, its main numbers, and what to ask it."""
        from symsim.report.text import brief

        return brief(self)

    def _repr_html_(self) -> str:
        from symsim.report.notebook import html
        from symsim.report.noted import result_shown

        return html(result_shown(self))

    def _repr_latex_(self) -> str:
        from symsim.report.notebook import latex
        from symsim.report.noted import result_shown

        return latex(result_shown(self))

    def _repr_mimebundle_(self, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> dict[str, str]:
        from symsim.report.notebook import bundle

        return bundle(self, include, exclude)

    def plot(self, what: str = "step") -> "Figure":
        """A picture that a notebook shows and `write` puts into a file: step, memory, roofline, schedule or counts.

        InputError for another, and where one needs a system and none is given.
        """
        from symsim.report.figure import result_figure

        return result_figure(self, what)


def derive(
    model: Architecture,
    strategy: Strategy,
    assumptions: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    system: System | None = None,
    conventions: Conventions = OWN,
) -> Result:
    """The definitions of `evaluated`, with their outputs."""
    return of(evaluated(model, strategy, assumptions, overrides, system, conventions))


def of(at: Evaluation) -> Result:
    """The outputs of an evaluation."""
    return Result(at.model, at.strategy, at.assumptions, at.lowered, at.counted, at.overrides, at.system)
