"""What `derive` returns: a derivation with its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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


@dataclass(frozen=True)
class Result(Evaluation):
    """The derivation of one model under one strategy.

    `formula(name)` gives a named result as a `Formula`; `value(name)` its exact number at the given sizes.
    """

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

    def table(self) -> str:
        """The result in 80 columns of text."""
        from symsim.report.text import eval_table

        return eval_table(self)

    def __repr__(self) -> str:
        """A few lines: what it is of, its main numbers, and what to ask it."""
        from symsim.report.text import brief

        return brief(self)

    def _repr_html_(self) -> str:
        from symsim.report.html import fragment

        return fragment(self)

    def _repr_latex_(self) -> str:
        return self.formula("N")._repr_latex_()


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
