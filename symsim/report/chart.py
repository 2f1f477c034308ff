"""Line charts and fronts of points: one number against another, a line a series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symsim.report.amounts import THIN, plain
from symsim.report.picture import COLOURS
from symsim.report.plot import ticks
from symsim.report.shapes import FAINT, LINE, text

_LEFT, _TOP, WIDE, HIGH = 84.0, 50.0, 560.0, 320.0
WIDTH, HEIGHT = 820.0, 440.0
_MOST_LABELS = 12
Point = tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """series: points by name, in rising order of the first number. log: of which of the two. steps: drawn as the edge of a front. marks: numbers
    across that are written; of none, round ones. labels: what a point says besides its numbers when it is pointed at."""

    title: str
    across: str
    up: str
    series: Mapping[str, Sequence[Point]]
    log: tuple[bool, bool] = (False, False)
    steps: bool = False
    marks: Sequence[float] = ()
    labels: Mapping[Point, str] | None = None


@dataclass(frozen=True)
class _Scale:
    """Of one axis: its ends and its ticks, in numbers; where a number lies, as a share of its length."""

    low: float
    high: float
    log: bool
    marks: Sequence[float]

    def at(self, value: float) -> float:
        low, high, x = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return (x - low) / (high - low)


def chart(made: Chart) -> list[str]:
    """The parts of a picture of WIDTH by HEIGHT. ValueError without a point."""
    points = [p for of in made.series.values() for p in of]
    if not points:
        raise ValueError("a chart needs a point")
    x, y = (_scale([p[k] for p in points], made.log[k], zero=k == 1) for k in range(2))
    parts = [text(_LEFT, 24, made.title, 15, bold=True), text(_LEFT + WIDE / 2, _TOP + HIGH + 42, made.across, 12, anchor="middle", fill=FAINT)]
    middle = _TOP + HIGH / 2
    parts.append(f'<g transform="rotate(-90 16 {middle:g})">{text(16, middle, made.up, 12, anchor="middle", fill=FAINT)}</g>')
    for mark in made.marks or x.marks:
        at = _LEFT + WIDE * x.at(mark)
        parts += [_line([(at, _TOP), (at, _TOP + HIGH)], LINE, 0.5), text(round(at, 2), _TOP + HIGH + 18, amount(mark), 11, anchor="middle")]
    for mark in y.marks:
        at = _TOP + HIGH * (1 - y.at(mark))
        parts += [_line([(_LEFT, at), (_LEFT + WIDE, at)], LINE, 0.5), text(_LEFT - 8, round(at + 4, 2), amount(mark), 11, anchor="end")]
    for k, (name, of) in enumerate(made.series.items()):
        parts += _series(made, name, [(_LEFT + WIDE * x.at(a), _TOP + HIGH * (1 - y.at(b))) for a, b in of], f"#{COLOURS[k % len(COLOURS)]}", k)
    return parts


def _series(made: Chart, name: str, places: Sequence[Point], colour: str, which: int) -> list[str]:
    way = list(places)
    if made.steps:
        way = [places[0]]
        for (_, y), (x, other) in zip(places, places[1:]):
            way += [(x, y), (x, other)]
    parts = [_line(way, colour, 1.6)] if len(way) > 1 else []
    labelled = len(places) <= _MOST_LABELS
    for place, point in zip(places, made.series[name]):
        said = (made.labels or {}).get(point, "")
        title = f"{name + ': ' if name else ''}{amount(point[0])}, {amount(point[1])}{'; ' + said if said else ''}"
        escaped = title.replace("&", "&amp;").replace("<", "&lt;")
        parts.append(
            f'<circle cx="{place[0]:.2f}" cy="{place[1]:.2f}" r="{4 if labelled else 2.5:g}" fill="{colour}"><title>{escaped}</title></circle>'
        )
    if name:
        parts += [
            f'<rect x="{_LEFT + WIDE + 18:g}" y="{_TOP + 20 * which:g}" width="12" height="12" fill="{colour}"/>',
            text(_LEFT + WIDE + 36, _TOP + 11 + 20 * which, name, 12),
        ]
    return parts


def _scale(values: Sequence[float], log: bool, *, zero: bool) -> _Scale:
    """Ends around the values, the lower one zero where that is near and the scale is not logarithmic."""
    low, high = min(values), max(values)
    if log and low > 0:
        low, high = (low / 1.1, high * 1.1) if high > low else (low / 2, high * 2)
        return _Scale(low, high, True, ticks(math.log10(low), math.log10(high)))
    if zero and low > 0 and low < high * 0.6:
        low = 0.0
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    low, high = (low if low == 0.0 and zero else low - room), high + room
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(n for n in (1, 2, 5, 10) if (high - low) / (n * step) <= 6)
    first = math.ceil(low / step - 1e-9)
    return _Scale(low, high, False, [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)])


def _line(way: Sequence[Point], colour: str, wide: float) -> str:
    path = " L".join(f"{x:.2f} {y:.2f}" for x, y in way)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{wide:g}"/>'


def amount(value: float) -> str:
    """A number on an axis: three digits and the letter of a large number."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:g}" if value == round(value, 6) and abs(value) < 1e4 else plain(value).replace(THIN, ",")
