"""A picture as a value: a notebook shows it, `write` puts it into a file. Made of what reports draw; no plotting library."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from symsim.algebra.quantity import SECOND
from symsim.errors import InputError, cut, nearest
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.reading import write_text
from symsim.report import gauges, memory, picture, pipeline, plot, roofline
from symsim.report.amounts import human
from symsim.report.document import Bar, Picture
from symsim.report.shapes import INK, PAPER, SANS
from symsim.report.step import Step
from symsim.report.timeline import timeline_svg
from symsim.report.totals import Totals

_MARGIN = 12
_INSIDE = "<style>.in { fill: #fff; font-size: 12px; }</style>"
_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


@dataclass(frozen=True, repr=False)
class Figure:
    """svg: a whole picture on its own paper, which needs no style from outside."""

    title: str
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: str | os.PathLike[str]) -> None:
        """Into a file that ends in .svg. InputError for another."""
        if Path(path).suffix.lower() != ".svg":
            raise InputError(f"{os.fspath(path)}: a figure ends in .svg")
        write_text(Path(path), self.svg)

    def __repr__(self) -> str:
        return f"Figure({self.title}); write('FILE.svg') keeps it"


def result_figure(result: Evaluation, what: str) -> Figure:
    """InputError for what is not drawn, and where it needs a system that is not given."""
    if what == "counts":
        return _figure(result, what, picture.svg(Totals(result).picture()))
    if what not in _OF_A_STEP:
        raise InputError(f"plot('{cut(str(what))}'): {nearest(str(what), [*_OF_A_STEP, 'counts'])}")
    if result.system is None:
        raise InputError(f"plot('{what}') draws times on a system: give derive one, or ask for plot('counts')")
    return _figure(result, what, _OF_A_STEP[what](Step(result)))


def steps_figure(title: str, results: Mapping[str, Evaluation]) -> Figure:
    """The steps of several results, by what they are called: of each what shares of it go where, and its seconds."""
    bars = tuple(_bar(name, Step(result)) for name, result in results.items())
    return Figure(title, _alone(picture.svg(Picture(("",), bars))))


def _bar(name: str, step: Step) -> Bar:
    parts = tuple((p.name, p.share, human(p.seconds, SECOND)) for p in step.parts if p.seconds > 0)
    return Bar(name, human(step.number("t_step"), SECOND), parts)


def _step(step: Step) -> str:
    return picture.svg(Picture(("",), (_bar("one step", step),)))


def _schedule(step: Step) -> str:
    part = pipeline.picture(step)
    return timeline_svg(part.schedule, part.stages, part.microbatches, part.chunks, part.durations, part.group, part.unit)


def _roofline(step: Step) -> str:
    return plot.svg(roofline.picture(step))


_OF_A_STEP: dict[str, Callable[[Step], str]] = {
    "step": _step,
    "memory": lambda step: gauges.svg(memory.bars(step)),
    "roofline": _roofline,
    "schedule": _schedule,
}


def _figure(result: Evaluation, what: str, svg: str) -> Figure:
    on = f" on {result.system.name}" if result.system is not None else ""
    return Figure(f"{what} of {result.model.name}{on}", _alone(svg))


def _alone(svg: str) -> str:
    """A report's picture with the paper, the type and the size that a page gives it there."""
    if 'width="' in svg.partition(">")[0]:
        return svg
    found = _BOX.search(svg)
    assert found is not None
    wide, high = float(found[1]) + 2 * _MARGIN, float(found[2]) + 2 * _MARGIN
    box = f'viewBox="{-_MARGIN} {-_MARGIN} {wide:g} {high:g}" width="{wide:g}" height="{high:g}" font-family="{SANS}" font-size="13" fill="{INK}"'
    paper = f'<rect x="{-_MARGIN}" y="{-_MARGIN}" width="{wide:g}" height="{high:g}" fill="{PAPER}"/>'
    return _BOX.sub(box, svg, count=1).replace(">", f">{_INSIDE}{paper}", 1)
