"""What a report says, once, as a story: the answer; the step, the pipeline, a stage, the blocks, their kernels; then what all of it rests on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.report import assumed, choices, closed_forms, front, machine, memory, network, notation, pipeline, roofline, stage, timing, totals
from symsim.report import run as of_run
from symsim.report.apart import apart
from symsim.report.blocks import Blocks
from symsim.report.document import Report, Section
from symsim.report.ink import Ink
from symsim.report.numbering import numbered
from symsim.report.step import Step
from symsim.report.totals import Totals
from symsim.version import __version__


def report(result: Evaluation, short: bool = False) -> Report:
    """The report as data. short: the first page, the step and its pipeline, memory, and what these stand on: four pages of A4."""
    step, ink, counts = Step(result) if result.system is not None else None, Ink(result), Totals(result)
    with apart(partial(choices.tables, step)) as tried:
        opening = front.section(result, step, ink, counts)
        chapters = (_short if short else _chapters)(result, step, ink, counts)
        symbols = notation.section(result, ink, short)
        opening = replace(opening, parts=(*opening.parts, *tried()))
    title = f"The cost of training {result.model.name}"
    return numbered(Report(title, subtitle(result), (opening, *chapters, symbols, *ink.sources.section()), short))


def _chapters(result: Evaluation, step: Step | None, ink: Ink, counts: Totals) -> list[Section]:
    """From the step down to kernels, then what they stand on."""
    made: list[Section] = []
    run = run_of(result) if step is not None else None
    if run is not None:
        made.append(of_run.section(run, ink))
    if step is not None:
        made += [*timing.sections(step, ink), pipeline.section(step, ink), stage.section(step, ink)]
    made += totals.of_stage(result, ink, counts, 2 if step is not None else 1)
    if step is not None:
        made += memory.sections(step, ink)
    made += totals.of_model(result, ink, counts)
    blocks = Blocks(result, ink, step)
    made += [blocks.opening(), *map(blocks.section, result.lowered.blocks)]
    if step is not None:
        made += [closed_forms.section(step, ink), network.section(step, ink), roofline.section(step, ink), machine.section(step, ink)]
    return [*made, assumed.section(result, ink)]


def _short(result: Evaluation, step: Step | None, ink: Ink, counts: Totals) -> list[Section]:
    if step is None:
        chapters = totals.in_short(result, ink, counts)
    else:
        chapters = [timing.section(step, ink, short=True), pipeline.section(step, ink, short=True), memory.section(step, ink, short=True)]
    return [*chapters, assumed.section(result, ink, short=True)]


def subtitle(result: Evaluation) -> str:
    s = result.strategy
    degrees = ", ".join(f"{n}={v}" for n, v in (("tp", s.tp), ("cp", s.cp), ("dp", s.dp), ("pp", s.pp), ("vpp", s.vpp), ("ep", s.ep)) if v > 1)
    flags = ", sp=true" if s.sp else ""
    on = f" on {result.system.name}" if result.system is not None else ""
    return f"{degrees or 'one rank'}{flags}{on}; derived by symsim {__version__}"
