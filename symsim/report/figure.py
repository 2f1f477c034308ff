"""A picture as a value: a notebook shows it, `write` puts it into a file, and plotting libraries get what it draws. Made of what reports draw."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symsim.algebra.quantity import SECOND
from symsim.errors import InputError, cut, nearest
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.reading import write_text
from symsim.report import gauges, memory, picture, pipeline, plot, roofline
from symsim.report.amounts import human
from symsim.report.charted import Charted, altair_chart, matplotlib_figure, of_bars, of_roofline
from symsim.report.document import Bar, Gauges, Picture, Roofline, Timeline
from symsim.report.shapes import INK, PAPER, SANS
from symsim.report.step import Step
from symsim.report.timeline import timeline_svg
from symsim.report.totals import Totals

_MARGIN = 12
_INSIDE = "<style>.in { fill: #fff; font-size: 12px; }</style>"
_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


@dataclass(frozen=True, repr=False)
class Figure:
    """svg: a whole picture on its own paper, which needs no style from outside. charted: what it draws, for plotting libraries."""

    title: str
    svg: str
    charted: Charted | None = None

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: str | os.PathLike[str]) -> None:
        """Into a file that ends in .svg. InputError for another."""
        if Path(path).suffix.lower() != ".svg":
            raise InputError(f"{os.fspath(path)}: a figure ends in .svg")
        write_text(Path(path), self.svg)

    def to_altair(self) -> Any:
        """An altair.Chart of what is drawn, to change and to put beside others. InputError without altair, and of a schedule."""
        return altair_chart(self.title, self._charted())

    def to_matplotlib(self) -> Any:
        """A matplotlib.figure.Figure of what is drawn. InputError without matplotlib, and of a schedule."""
        return matplotlib_figure(self.title, self._charted())

    def _charted(self) -> Charted:
        if self.charted is None:
            raise InputError(f"{self.title}: it is drawn as SVG alone, which write('FILE.svg') keeps")
        return self.charted

    def __repr__(self) -> str:
        return f"Figure({self.title}); write('FILE.svg') keeps it, to_altair() and to_matplotlib() make it theirs"


def result_figure(result: Evaluation, what: str) -> Figure:
    """InputError for what is not drawn, and where it needs a system that is not given."""
    if what == "counts":
        return _figure(result, what, Totals(result).picture())
    if what not in _OF_A_STEP:
        raise InputError(f"plot('{cut(str(what))}'): {nearest(str(what), [*_OF_A_STEP, 'counts'])}")
    if result.system is None:
        raise InputError(f"plot('{what}') draws times on a system: give derive one, or ask for plot('counts')")
    return _figure(result, what, _OF_A_STEP[what](Step(result)))


def steps_figure(title: str, results: Mapping[str, Evaluation]) -> Figure:
    """The steps of several results, by what they are called: of each what shares of it go where, and its seconds."""
    bars = Picture(("",), tuple(_bar(name, Step(result)) for name, result in results.items()))
    return Figure(title, _alone(picture.svg(bars)), of_bars(bars))


def _bar(name: str, step: Step) -> Bar:
    parts = tuple((p.name, p.share, human(p.seconds, SECOND)) for p in step.parts if p.seconds > 0)
    return Bar(name, human(step.number("t_step"), SECOND), parts)


_OF_A_STEP: dict[str, Callable[[Step], Picture | Gauges | Roofline | Timeline]] = {
    "step": lambda step: Picture(("",), (_bar("one step", step),)),
    "memory": memory.bars,
    "roofline": roofline.picture,
    "schedule": pipeline.picture,
}


def _figure(result: Evaluation, what: str, part: Picture | Gauges | Roofline | Timeline) -> Figure:
    title = f"{what} of {result.model.name}" + (f" on {result.system.name}" if result.system is not None else "")
    if isinstance(part, Timeline):
        drawn = timeline_svg(part.schedule, part.stages, part.microbatches, part.chunks, part.durations, part.group, part.unit)
        return Figure(title, _alone(drawn))
    if isinstance(part, Roofline):
        return Figure(title, _alone(plot.svg(part)), of_roofline(part))
    return Figure(title, _alone(picture.svg(part) if isinstance(part, Picture) else gauges.svg(part)), of_bars(part))


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
