"""Heat maps: a number over two axes as colours, what cannot run grey, what does not meet the conditions hatched, the best outlined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from symsim.report.shapes import FAINT, INK, LINE, PAPER, box, rect, text

# YlGnBu of ColorBrewer (Brewer and Harrower 2003), safe for colour-blind readers, light to dark
SCALE = ("#ffffd9", "#edf8b1", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58")
ABSENT = "#e6e6e2"
CELL_WIDTH, CELL_HEIGHT = 58, 36
HATCH = (
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="7" height="7" fill="{PAPER}" fill-opacity="0.3"/>'
    f'<line x1="0" y1="0" x2="0" y2="7" stroke="{INK}" stroke-width="2" stroke-opacity="0.4"/></pattern>'
)
_STEPS = 48
_KEY, _LETTER = (26, 16), 6.6  # of a legend
Cell = tuple[str, str]


@dataclass(frozen=True)
class Heat:
    """values: by the labels of row and column; a cell that is not there cannot run. meets: the cells that are not hatched. The scale is
    logarithmic where all values are above zero."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    rows_title: str
    columns_title: str
    values: Mapping[Cell, float]
    shown: Callable[[float], str]
    meets: AbstractSet[Cell]
    best: Cell | None

    @property
    def log(self) -> bool:
        return min(self.values.values()) > 0

    def along(self, value: float) -> float:
        """A value as the scale has it."""
        return math.log(value) if self.log else value

    @property
    def cell(self) -> float:
        """The width of a column, which its label may need more of than its numbers."""
        return max(CELL_WIDTH, max(map(len, self.columns)) * _LETTER + 8)

    @property
    def margin(self) -> float:
        """What labels of rows and what they are of take."""
        return max(38.0, 24 + max(map(len, self.rows)) * _LETTER)

    @property
    def width(self) -> float:
        return self.margin + len(self.columns) * self.cell

    @property
    def height(self) -> float:
        """Down to the end of the scale."""
        return 68 + len(self.rows) * CELL_HEIGHT + 36


def panel(left: float, heat: Heat) -> list[str]:
    """The parts of a picture that show it; `left` is where its labels begin."""
    low, high = (heat.along(v) for v in (min(heat.values.values()), max(heat.values.values())))
    wide = heat.cell
    x0, y0 = left + heat.margin, 68
    parts = [
        text(x0, 24, heat.title, 15, bold=True),
        text(x0 + len(heat.columns) * wide / 2, 46, heat.columns_title, 12, anchor="middle", fill=FAINT),
    ]
    parts += [text(x0 + (k + 0.5) * wide, 62, p, 12, anchor="middle") for k, p in enumerate(heat.columns)]
    middle = y0 + len(heat.rows) * CELL_HEIGHT / 2
    turned = f'transform="rotate(-90 {left + 3:g} {middle:g})"'
    parts.append(f"<g {turned}>{text(left, middle, heat.rows_title, 12, anchor='middle', fill=FAINT)}</g>")
    for row, name in enumerate(heat.rows):
        y = y0 + row * CELL_HEIGHT
        parts.append(text(x0 - 8, y + CELL_HEIGHT / 2 + 4, name, 12, anchor="end"))
        for column, other in enumerate(heat.columns):
            value = heat.values.get((name, other))
            share = (heat.along(value) - low) / (high - low) if value is not None and high > low else 0.0
            parts += _cell(x0 + column * wide, y, heat, (name, other), share)
    parts.append(_outline(heat, x0, y0))
    return parts + _scale(heat, x0, y0 + len(heat.rows) * CELL_HEIGHT + 12, low, high)


def _cell(x: float, y: float, heat: Heat, at: Cell, share: float) -> list[str]:
    across = heat.cell
    if at not in heat.values:
        return [box(x, y, across, CELL_HEIGHT, ABSENT, PAPER, 0, 2)]
    parts = [box(x, y, across, CELL_HEIGHT, colour(share), PAPER, 0, 2)]
    words = heat.shown(heat.values[at])
    if at not in heat.meets:
        wide = len(words) * 7.2 + 6
        parts.append(rect(x + 1, y + 1, across - 2, CELL_HEIGHT - 2, "url(#hatch)"))
        parts.append(rect(x + (across - wide) / 2, y + 10, wide, 16, PAPER, ' rx="2" fill-opacity="0.85"'))
    ink = INK if at not in heat.meets or share < 0.6 else "#fff"
    parts.append(text(x + across / 2, y + CELL_HEIGHT / 2 + 4, words, 12, anchor="middle", fill=ink, bold=at == heat.best))
    return parts


def _outline(heat: Heat, x0: float, y0: float) -> str:
    if heat.best is None:
        return ""
    x, y = x0 + heat.columns.index(heat.best[1]) * heat.cell, y0 + heat.rows.index(heat.best[0]) * CELL_HEIGHT
    return box(x + 1, y + 1, heat.cell - 2, CELL_HEIGHT - 2, "none", INK, 0, 2.6)


def _scale(heat: Heat, x0: float, y: float, low: float, high: float) -> list[str]:
    """The scale, with its ends."""
    wide = len(heat.columns) * heat.cell
    parts = [rect(round(x0 + wide * k / _STEPS, 2), y, round(wide / _STEPS + 0.4, 2), 10, colour((k + 0.5) / _STEPS)) for k in range(_STEPS)]
    parts.append(text(x0, y + 24, heat.shown(math.exp(low) if heat.log else low), 11, fill=FAINT))
    parts.append(text(x0 + wide / 2, y + 24, "logarithmic" if heat.log else "linear", 11, fill=FAINT, anchor="middle"))
    parts.append(text(x0 + wide, y + 24, heat.shown(math.exp(high) if heat.log else high), 11, fill=FAINT, anchor="end"))
    return parts


def legend(x: float, y: float, words: Sequence[str]) -> list[str]:
    """What grey, hatched and outlined cells are; what has no words is left out."""
    parts = []
    for said, shape in zip(words, (_grey, _hatched, _outlined)):
        if said:
            parts += [shape(x, y), text(x + 34, y + 13, said, 12)]
            x += 56 + _LETTER * len(said)
    return parts


def _grey(x: float, y: float) -> str:
    return box(x, y, *_KEY, ABSENT, LINE, 0)


def _hatched(x: float, y: float) -> str:
    return box(x, y, *_KEY, SCALE[3], PAPER, 0) + rect(x, y, *_KEY, "url(#hatch)")


def _outlined(x: float, y: float) -> str:
    return box(x, y, *_KEY, SCALE[0], INK, 0, 2.6)


def colour(share: float) -> str:
    """The colour map at a share of its length."""
    at = min(max(share, 0.0), 1.0) * (len(SCALE) - 1)
    k = min(int(at), len(SCALE) - 2)
    one, two = ([int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SCALE[k : k + 2])
    return "#" + "".join(f"{round(a + (b - a) * (at - k)):02x}" for a, b in zip(one, two))


def three(x: float) -> str:
    """Three digits."""
    return f"{x:.{2 if x < 9.995 else 1 if x < 99.95 else 0}f}"
