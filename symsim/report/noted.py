"""A result in a notebook's cell: the step, where its time goes, the memory of the fullest rank."""

from __future__ import annotations

from symsim.algebra.quantity import BYTE, ELEMENT, FLOP
from symsim.evaluation.numbers import Evaluation
from symsim.report.amounts import human, percent, seconds, whole
from symsim.report.notebook import Grid, Shown
from symsim.report.step import MEMORY_PARTS, Step, between
from symsim.report.text import headings
from symsim.report.text_time import answer_rows

_ASKED = "table() prints all; value(name), formula(name), plot(), ask(question) and to_pandas() answer further."


def result_shown(result: Evaluation) -> Shown:
    title, *said = headings(result)
    if result.system is None:
        return Shown(title, tuple(said), (_counts(result),), (_ASKED,))
    step = Step(result)
    below = [*([between(step.interval)] if step.interval is not None else []), *([step.above_peak] if step.above_peak else []), _ASKED]
    rows = tuple((name, amount, more) for name, amount, more in answer_rows(step))
    return Shown(title, tuple(said), (Grid("One step", ("", "", ""), rows, left=(0, 2)), time_grid(step), _memory(step)), tuple(below))


def time_grid(step: Step) -> Grid:
    parts = [p for p in step.parts if p.seconds]
    rows = tuple((p.name, seconds(p.seconds), percent(p.share)) for p in parts)
    return Grid("Where the time of a step goes", ("", "time", "share"), rows, shares=tuple(max(p.share, 0.0) for p in parts))


def _memory(step: Step) -> Grid:
    parts = {name: size for name, size in step.memory(step.fullest).items() if size}
    rows = tuple((MEMORY_PARTS[name], human(size, BYTE), percent(size / step.capacity)) for name, size in parts.items())
    where = f"stage {step.fullest}" if step.depth > 1 else "a rank"
    caption = f"Peak memory of {where}, of {human(step.capacity, BYTE)}"
    return Grid(caption, ("", "bytes", "share"), rows, shares=tuple(size / step.capacity for size in parts.values()))


def _counts(result: Evaluation) -> Grid:
    number = result.numbers
    rows = [("parameters", human(whole(number["N"]), ELEMENT))]
    rows += [("parameters a token uses", human(whole(number["N_active"]), ELEMENT))] if "N_active" in number else []
    rows += [("forward, one micro-batch", human(whole(number["F"]), FLOP)), ("backward", human(whole(number["G"]), FLOP))]
    rows += [("run again", human(whole(number["R"]), FLOP))] if number["R"] else []
    rows += [("peak memory of a rank", human(whole(result.value("memory.peak")), BYTE))]
    return Grid("Counts; a system (system=...) adds times", ("", ""), tuple(rows))
