r"""A roofline drawn: SVG for HTML, LaTeX's own picture environment, characters for text.

Decades are as long across as up, so the bandwidth's roof rises at 45 degrees; `Frame` says how many decades a value
stands from the lower left corner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup, escape

from symsim.report.amounts import rate
from symsim.report.document import Point, Roofline

_INK, _DOT, _NAMED = "#16181d", "#56B4E9", "#0072B2"
_HALO = 'paint-order="stroke" stroke="#fff" stroke-width="4" stroke-opacity="0.8"'
_ROOM = 140.0  # in SVG's units, that the label of a roof takes
# of a roof below another, by so much behind its bend: the slope to the higher one goes on beside the bend
_BESIDE, _BESIDE_TEX = 22.0, 5.0
_LABEL = 24.0  # millimetres that the bandwidth's label takes left of its roof
_LARGEST, _SMALLEST = 9.0, 2.5  # radius of a point with all and with none of the time, in SVG's units


@dataclass(frozen=True)
class Frame:
    """Logarithms to ten of the edges, each a tick."""

    left: float
    right: float
    bottom: float
    top: float

    @property
    def across(self) -> float:
        return self.right - self.left

    @property
    def up(self) -> float:
        return self.top - self.bottom

    def x(self, intensity: float) -> float:
        return min(max(math.log10(intensity) - self.left, 0.0), self.across)

    def y(self, reached: float) -> float:
        return min(max(math.log10(reached) - self.bottom, 0.0), self.up)


def ticks(low: float, high: float) -> list[float]:
    """Values 1, 2 and 5 times a power of ten between two logarithms; powers alone where there would be many."""
    steps = (1, 2, 5) if high - low < 3.5 else (1,)
    found = [n * 10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 1) for n in steps]
    return [v for v in found if low - 1e-9 <= math.log10(v) <= high + 1e-9]


def _edge(value: float, *, above: bool) -> float:
    """The logarithm of the next value that may be a tick."""
    power = math.floor(math.log10(value))
    found = [n * 10.0**p for p in (power, power + 1) for n in (1, 2, 5)]
    return math.log10(min(v for v in found if v >= value) if above else max(v for v in found if v <= value * (1 + 1e-9)))


def frame(plot: Roofline) -> Frame:
    """Edges around every point and the bend of every roof, with some room."""
    across = [p.intensity for p in plot.points] + [peak / plot.bandwidth for _, peak in plot.peaks]
    up = [p.reached for p in plot.points] + [peak for _, peak in plot.peaks]
    left, right = _edge(min(across) / 2, above=False), _edge(max(across) * 1.3, above=True)
    return Frame(left, right, _edge(min(up) / 1.3, above=False), _edge(max(up) * 1.3, above=True))


def roof(plot: Roofline, edges: Frame, peak: float) -> list[tuple[float, float]]:
    """Corners of one roof in decades: where it enters, where it bends, where it leaves."""
    ridge = peak / plot.bandwidth
    enters = max(10.0**edges.left, 10.0**edges.bottom / plot.bandwidth)
    return [
        (edges.x(enters), edges.y(enters * plot.bandwidth)),
        (edges.x(ridge), edges.y(peak)),
        (edges.across, edges.y(peak)),
    ]


def named(plot: Roofline) -> list[Point]:
    return [p for p in plot.points if p.label]


def _spread(points: list[Point], edges: Frame, height: float, unit: float, line: float) -> list[tuple[Point, float]]:
    """Labels at their points' heights, moved apart to a line's distance and kept inside; heights from below."""
    order = sorted(points, key=lambda p: p.reached, reverse=True)
    places: list[float] = []
    for point in order:
        wanted = edges.y(point.reached) * unit
        places.append(min(wanted, places[-1] - line) if places else min(wanted, height - line / 2))
    lift = max(0.0, line / 2 - places[-1]) if places else 0.0
    for n in range(len(places) - 1, -1, -1):
        below = places[n + 1] + line if n + 1 < len(places) else line / 2
        places[n] = max(places[n], below) if lift else places[n]
    return list(zip(order, places))


def svg(plot: Roofline) -> Markup:
    """Points sized by their share of the time; the labels of the largest stand at the right, joined to their points."""
    edges = frame(plot)
    across, up = edges.across, edges.up
    unit = min(440 / across, 340 / up)
    left, top, wide, high = 96, 14, unit * across, unit * up
    made: list[str] = []
    last: list[str] = []  # over points and lines

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x * unit, top + high - y * unit

    for value in ticks(edges.left, edges.right):
        x, y = at(edges.x(value), 0)
        made.append(f'<path d="M{x:.1f} {top}V{top + high:.1f}" stroke="#dfe1e6"/>')
        made.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{value:g}</text>')
    for value in ticks(edges.bottom, edges.top):
        x, y = at(0, edges.y(value))
        made.append(f'<path d="M{left} {y:.1f}H{left + wide:.1f}" stroke="#dfe1e6"/>')
        made.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{rate(value, "FLOP/s")}</text>')
    made.append(f'<text x="{left + wide / 2:.1f}" y="{top + high + 38:.1f}" text-anchor="middle">FLOP a byte of HBM traffic</text>')
    highest = max(peak for _, peak in plot.peaks)
    for name, peak in plot.peaks:
        corners = [at(*c) for c in roof(plot, edges, peak)]
        made.append(f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in corners)}" stroke="{_INK}" stroke-width="1.6" fill="none"/>')
        # beside the ridge, where few kernels are
        (ridge, y), (x, _) = corners[-2:]
        start = ridge + (6 if peak == highest else _BESIDE)
        where = f'x="{start:.1f}"' if x - start > _ROOM else f'x="{x - 4:.1f}" text-anchor="end"'
        last.append(f'<text {where} y="{y - 5:.1f}" {_HALO}>{escape(name)} {rate(peak, "FLOP/s")}</text>')
    (x0, y0), (x1, y1), _ = (at(*c) for c in roof(plot, edges, plot.peaks[0][1]))
    if x1 - x0 > 60:
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        turned = f"translate({x - 6:.1f} {y - 6:.1f}) rotate(-45)"
        last.append(f'<text transform="{turned}" text-anchor="middle" {_HALO}>HBM {rate(plot.bandwidth, "B/s")}</text>')
    for point in reversed(plot.points):
        x, y = at(edges.x(point.intensity), edges.y(point.reached))
        radius = _SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(point.share)
        said = f"{point.label or 'kernel'}: {point.intensity:.4g} FLOP/byte, {rate(point.reached, 'FLOP/s')}"
        made.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{_NAMED if point.label else _DOT}" fill-opacity="0.8">'
            f"<title>{escape(said)}</title></circle>"
        )
    beside = left + wide + 16
    for point, place in _spread(named(plot), edges, high, unit, 17):
        x, y = at(edges.x(point.intensity), edges.y(point.reached))
        y2 = top + high - place
        made.append(f'<path d="M{x:.1f} {y:.1f}L{beside - 4:.1f} {y2:.1f}" stroke="{_NAMED}" stroke-width="0.7"/>')
        made.append(f'<text x="{beside:.1f}" y="{y2 + 4:.1f}">{escape(point.label)}</text>')
    return Markup(f'<svg viewBox="0 0 760 {top + high + 46:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">' + "".join([*made, *last]) + "</svg>")


def picture(plot: Roofline, escaped: Callable[[str], str]) -> str:
    r"""LaTeX's picture environment, in millimetres; lines at any angle are \qbezier curves with the middle as control."""
    edges = frame(plot)
    unit = min(92 / edges.across, 75 / edges.up)
    wide, high = unit * edges.across, unit * edges.up
    last: list[str] = []  # over points and lines
    made = [r"\setlength{\unitlength}{1mm}", rf"\begin{{picture}}(172,{high + 16:.1f})(-20,-11)", r"\linethickness{0.15pt}"]

    def line(a: tuple[float, float], b: tuple[float, float]) -> str:
        (x0, y0), (x1, y1) = a, b
        return rf"\qbezier({x0:.2f},{y0:.2f})({(x0 + x1) / 2:.2f},{(y0 + y1) / 2:.2f})({x1:.2f},{y1:.2f})"

    for value in ticks(edges.left, edges.right):
        at = edges.x(value) * unit
        made.append(rf"\put({at:.2f},0){{\textcolor[gray]{{0.8}}{{\line(0,1){{{high:.2f}}}}}}}\put({at:.2f},-4){{\makebox(0,0)[c]{{{value:g}}}}}")
    for value in ticks(edges.bottom, edges.top):
        at, said = edges.y(value) * unit, rate(value, "FLOP/s")
        made.append(rf"\put(0,{at:.2f}){{\textcolor[gray]{{0.8}}{{\line(1,0){{{wide:.2f}}}}}}}\put(-1.5,{at:.2f}){{\makebox(0,0)[r]{{{said}}}}}")
    made.append(rf"\put({wide / 2:.2f},-9){{\makebox(0,0)[c]{{FLOP a byte of HBM traffic}}}}")
    made.append(r"\linethickness{0.8pt}")
    highest = max(peak for _, peak in plot.peaks)
    for name, peak in plot.peaks:
        corners = [(x * unit, y * unit) for x, y in roof(plot, edges, peak)]
        made += [line(a, b) for a, b in zip(corners, corners[1:]) if a != b]
        (ridge, y), (x, _) = corners[-2:]
        title = escaped(f"{name} {rate(peak, 'FLOP/s')}")
        start = ridge + (1 if peak == highest else _BESIDE_TEX)
        left, corner = (start, "bl") if (x - start) / wide > _ROOM / 440 else (x - 1, "br")
        last.append(rf"\put({left:.2f},{y + 1.2:.2f}){{\makebox(0,0)[{corner}]{{\fboxsep0.5pt\colorbox{{white}}{{{title}}}}}}}")
    (x0, y0), (x1, y1), _ = roof(plot, edges, plot.peaks[0][1])
    along = min(max((x1 - x0) / 2 * unit, _LABEL), (x1 - x0) * unit - 2)
    if along > 12:
        # right of a roof that is too near to the edge
        right = x0 * unit + along - 1.5 < _LABEL
        along = (x1 - x0) / 3 * unit if right else along
        x, y, corner = (along + 2, along - 1, "tl") if right else (along - 1.5, along + 0.5, "br")
        made.append(rf"\put({x0 * unit + x:.2f},{y0 * unit + y:.2f}){{\makebox(0,0)[{corner}]{{HBM {rate(plot.bandwidth, 'B/s')}}}}}")
    for point in reversed(plot.points):
        x, y = edges.x(point.intensity) * unit, edges.y(point.reached) * unit
        size = 0.9 + 2.6 * math.sqrt(point.share)
        made.append(rf"\put({x:.2f},{y:.2f}){{\textcolor{{part{0 if point.label else 4}}}{{\circle*{{{size:.2f}}}}}}}")
    made.append(r"\linethickness{0.2pt}")
    for point, place in _spread(named(plot), edges, high, unit, 4.2):
        x, y = edges.x(point.intensity) * unit, edges.y(point.reached) * unit
        made.append(rf"\put(0,0){{\textcolor{{part0}}{{{line((x, y), (wide + 3, place))}}}}}")
        made.append(rf"\put({wide + 4:.2f},{place:.2f}){{\makebox(0,0)[l]{{{escaped(point.label)}}}}}")
    made += [*last, r"\end{picture}"]
    return "\n".join(made)


def lines(plot: Roofline, wide: int = 60, high: int = 18) -> list[str]:
    """Characters: roofs of / and -, the largest kernels by number, the others as o; what the numbers are stands below."""
    edges = frame(plot)
    across, up = edges.across, edges.up
    grid = [[" "] * (wide + 1) for _ in range(high + 1)]

    def place(x: float, y: float) -> tuple[int, int]:
        return round(x / across * wide), high - round(y / up * high)

    for _, peak in plot.peaks:
        (x0, y0), (x1, y1), (x2, _) = roof(plot, edges, peak)
        for step in range(wide + 1):
            x = x0 + (x2 - x0) * step / wide
            column, row = place(x, y1 if x >= x1 else y0 + x - x0)
            grid[row][column] = "-" if x >= x1 else "/"
    for point in reversed([p for p in plot.points if not p.label]):
        column, row = place(edges.x(point.intensity), edges.y(point.reached))
        grid[row][column] = "o"
    for n, point in reversed(list(enumerate(named(plot), 1))):
        column, row = place(edges.x(point.intensity), edges.y(point.reached))
        grid[row][column] = str(n)
    rows = {place(0, edges.y(value))[1]: rate(value, "FLOP/s") for value in ticks(edges.bottom, edges.top)}
    made = [f"{rows.get(n, ''):>12} |{''.join(cells).rstrip()}" for n, cells in enumerate(grid)]
    scale = [" "] * (wide + 8)
    for value in ticks(edges.left, edges.right):
        column, text = place(edges.x(value), 0)[0], f"{value:g}"
        if not "".join(scale[max(0, column - 1) : column + len(text)]).strip():
            scale[column : column + len(text)] = list(text)
    made += [" " * 13 + "+" + "-" * wide, " " * 14 + "".join(scale).rstrip(), " " * 14 + "FLOP a byte of HBM traffic", ""]
    made += [f"roof: HBM {rate(plot.bandwidth, 'B/s')}; " + ", ".join(f"{name} {rate(peak, 'FLOP/s')}" for name, peak in plot.peaks)]
    return made + [f"{n}: {p.label} ({rate(p.reached, 'FLOP/s')} at {p.intensity:.4g} FLOP/byte)" for n, p in enumerate(named(plot), 1)]
