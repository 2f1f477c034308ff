"""What another choice of an assumption moves of a step that is already derived."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.effects import Effect

_LEAST = 5e-5


def alternative(result: Evaluation, assumption: str, choice: str) -> Effect:
    """The changes of the step's seconds and of the peak, as shares of those with the choice in force. The result is on a system."""
    try:
        other = evaluated(result.architecture, result.strategy, {**result.assumptions, assumption: choice}, result.overrides, result.system)
    except InputError as error:
        return Effect(assumption=assumption, choice=choice, moves={}, refused=str(error))
    changes = {said: float(other.step_numbers[name] / result.step_numbers[name]) - 1 for said, name in (("peak", "M_peak"), ("step", "t_step"))}
    moved = {said: change for said, change in changes.items() if abs(change) >= _LEAST}
    return Effect(assumption=assumption, choice=choice, moves={result.model.name: moved} if moved else {})
