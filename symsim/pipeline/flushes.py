"""A schedule that runs several times a step: the pipeline fills and empties for a part of the micro-batches at a time, and gradients add up.

PyTorch's schedules run whatever micro-batches one call has; a step that accumulates gradients over several calls empties the pipeline at
the end of each (torchtitan trainer.py train_step; torch distributed/pipelining/schedules.py step).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from symsim.algebra.expr import Expr, symbol
from symsim.pipeline.schedule import WORK, Schedule


def flushed(schedule: Schedule, times: int) -> Schedule:
    """The schedule run `times` a step, each time on as many of the micro-batches. Nothing but the ranks themselves stands between two runs, so
    that the next begins on a rank as soon as that is free; a barrier is at the end of the step alone."""
    if times == 1:
        return schedule
    part = {field.name: _of_part(getattr(schedule, field.name), times) for field in fields(Schedule)}
    apart, bubble = times * part["apart"], (times - 1) * part["apart"] + part["bubble"]
    return replace(schedule, **{**part, "makespan": WORK + bubble, "bubble": bubble, "apart": apart})


def _of_part(value: Any, times: int) -> Any:
    """A form, or conditions or forms by name, of as many of the micro-batches."""
    if isinstance(value, Expr):
        return value.substitute({"m": symbol("m") / times})
    if isinstance(value, dict):
        return {name: _of_part(one, times) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple((_of_part(condition, times), words) for condition, words in value)
    return value
