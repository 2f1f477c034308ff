"""Which messages of a step show most, and why: what of them nothing hides, and whether anything runs beside them."""

from __future__ import annotations

from functools import partial

from symsim.algebra.key import of_block, of_stage
from symsim.cost.repeated import layers_again
from symsim.cost.step_time import exposed_axes, exposed_of_stage
from symsim.pipeline.stages import runs
from symsim.report.amounts import percent, seconds
from symsim.report.document import Ref, Spans, spans
from symsim.report.step import WAITING, Part, Step

_LEAST = 0.01  # of a step
_ALL = 0.995


def most_shown(step: Step) -> Spans:
    """A sentence on the longest of the messages that show; nothing where they are a hundredth of the step or less."""
    axes = {symbol: axis for axis, symbol in exposed_axes(step.result.derivation).items() if axis not in WAITING}
    found = [part for part in step.parts if part.definition in axes]
    most = max(found, key=lambda part: part.seconds, default=None)
    if most is None or most.share <= _LEAST:
        return ()
    said = f"most of what shows: {most.of}, {seconds(most.seconds)} of the step{_why(step, most, axes[most.definition])}"
    return spans(said, Ref("Messages between ranks", " (section {})"), ".")


def _why(step: Step, part: Part, axis: str) -> str:
    share = _share(step, axis)
    if share is None:
        return ""
    return ": nothing runs beside them" if share >= _ALL else f", {percent(share)} of what they take: kernels beside them hide the rest"


def _share(step: Step, axis: str) -> float | None:
    """What shows of the messages over an axis, of all that they take on the rank that decides; None where that is not known."""
    book = step.result.derivation
    if axis == "dp":
        last = max(step.result.line.first.values(), key=lambda n: step.stage(n)["t_tail_stage"])
        once = step.stage(last)
        taken = [once[key.text] for key in (of_stage("c", "grad"), of_stage("c", "param")) if key in book]
        return _of(float(once["e_dp_stage"]), float(sum(taken)))
    numbers = step.stage(step.slowest)
    shown = float(sum(numbers[key.text] for key in exposed_of_stage(book) if key.axis == axis))
    phases = ("forward", "backward")
    of_a_stage = [numbers[key.text] for phase in phases if (key := of_stage("c", phase=phase, axis=axis)) in book]
    if of_a_stage:
        return _of(shown, float(sum(of_a_stage)))
    taken = []
    for name in step.result.lowered.blocks:
        again = layers_again(step.result.strategy, step.result.lowered, name).evaluate(numbers)
        for whole_again, times in ((False, numbers[runs(name)] - again), (True, again)):
            own = partial(of_block, "c", name, whole_again, axis=axis)
            taken += [times * numbers[key.text] for phase in phases if (key := own(phase=phase)) in book]
    return _of(shown, float(sum(taken)))


def _of(shown: float, taken: float) -> float | None:
    return min(1.0, shown / taken) if taken else None
