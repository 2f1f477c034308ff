"""What kernels wait for the host's launches, of the seconds that the formulas of blocks have for kernels (symsim/cost/block_time.py).

A block's seconds are the larger of its kernels one after the other and of the host's launches; what they are more than the kernels is the wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symsim.algebra.expr import Call, Number, Symbol
from symsim.algebra.key import of_stage
from symsim.algebra.quantity import Definition
from symsim.cost.deferred import at_once
from symsim.cost.repeated import layers_again
from symsim.evaluation.numbers import Evaluation
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import runs

# of a block's seconds what sums that are taken in another order may leave
_ROUNDING = 1e-9


def launching(at: Evaluation, stage: int) -> float:
    """Seconds of one micro-batch of a stage in which its kernels wait to be launched by the host."""
    numbers = at.stage_numbers(at.stages[stage])
    found = sum(_often(at, d, numbers) * _wait(at, d, numbers) for d in _hosted(at))
    waits = "t_launch" in at.derivation[of_stage("t", phase="forward")].expr.symbols()
    return found + (float(at.values["t_launch"]) * at.strategy.host_waits if waits else 0.0)


def launching_of_step(at: Evaluation) -> float:
    """The same of a step: of all micro-batches of the slowest stage, or of it and its mirror image where a rank holds both."""
    stages = {at.slowest, len(at.stages) - 1 - at.slowest} if schedule_of(at.strategy).mirrored else {at.slowest}
    each = sum(launching(at, stage) for stage in stages) / len(stages)
    return min(at.strategy.microbatches * each, float(at.step_numbers["t_compute"]))


def _hosted(at: Evaluation) -> Iterator[Definition]:
    """Seconds of kernels of blocks in which the host may be the slower one."""
    return (d for d in at.derivation.definitions.values() if d.key.quantity == "t" and d.key.block and "host_launch" in d.assumptions)


def _often(at: Evaluation, definition: Definition, numbers: Mapping[str, Number]) -> float:
    """How often a stage runs it for one micro-batch (symsim/cost/step_time.py)."""
    name, phase = definition.key.block, definition.key.phase
    often = float(numbers[runs(name)])
    if phase == "weights":
        return often * float(at_once(at.strategy, name).evaluate(numbers))
    if phase != "again":
        return often
    whole = float(layers_again(at.strategy, at.lowered, name).evaluate(numbers))
    return whole if definition.key.again else often - whole


def _wait(at: Evaluation, definition: Definition, numbers: Mapping[str, Number]) -> float:
    """What a block's seconds are more than its kernels together, which stand in their formula one by one."""
    taken, kernels = float(numbers[definition.symbol]), definition.expr
    for monomial in kernels.terms if len(kernels.terms) == 1 else ():
        if isinstance(atom := monomial[0][0], Call):
            kernels = atom.arguments[0]
    for monomial, times in kernels.terms.items():
        if len(monomial) == 1 and isinstance(kernel := monomial[0][0], Symbol) and kernel.name in at.derivation.definitions:
            taken -= float(times) * float(numbers[kernel.name])
    return taken if taken > _ROUNDING * float(numbers[definition.symbol]) else 0.0
