"""A tornado plot: what moves a number most, as bars to either side of zero, the longest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from symsim.report.picture import COLOURS

_WIDTH, _LEFT, _RIGHT, _STEP, _HEIGHT, _TOP, _EDGE = 760, 250, 70, 22, 16, 46, 12
_MOST = 24


@dataclass(frozen=True)
class Arm:
    """name, with its value, moves the number by so many percent for one of its own; meaning is said when it is pointed at."""

    name: str
    percent: float
    value: str
    meaning: str


def tornado_svg(title: str, arms: Sequence[Arm]) -> Markup:
    """The longest arms as SVG that stands alone: what raises the number to the right, what lowers it to the left."""
    shown = sorted(arms, key=lambda a: -abs(a.percent))[:_MOST]
    most = max((abs(a.percent) for a in shown), default=1.0) or 1.0
    lowest, highest = min([0.0, *(a.percent for a in shown)]), max([0.0, *(a.percent for a in shown)])
    room = _WIDTH - _LEFT - 2 * _RIGHT
    unit = room / ((highest - lowest) or most)
    zero = _LEFT + _RIGHT - lowest * unit
    bottom = _TOP + _STEP * len(shown)
    made = [f'<text x="0" y="14" font-weight="600">{escape(title)}</text>', f'<text x="{zero:.1f}" y="36" text-anchor="middle">0</text>']
    for n, arm in enumerate(shown):
        y, x = _TOP + n * _STEP, zero + min(arm.percent, 0.0) * unit
        raises = arm.percent > 0
        made.append(f'<text x="0" y="{y + 13}">{escape(arm.name)}</text>')
        made.append(f'<text x="{_LEFT - 10}" y="{y + 13}" text-anchor="end" fill="#5b616e">{escape(arm.value)}</text>')
        made.append(
            f'<rect x="{x:.2f}" y="{y}" width="{max(abs(arm.percent) * unit, 0.5):.2f}" height="{_HEIGHT}" fill="#{COLOURS[1 if raises else 0]}">'
            f"<title>{escape(arm.name)}, {escape(arm.meaning)}: {arm.percent:+.6f}</title></rect>"
        )
        at, anchor = (x + arm.percent * unit + 5, "start") if raises else (x - 5, "end")
        made.append(f'<text x="{at:.2f}" y="{y + 13}" text-anchor="{anchor}">{arm.percent:+.3f}</text>')
    made.append(f'<path d="M{zero:.1f} {_TOP - 6}V{bottom}" stroke="#16181d" stroke-width="1" fill="none"/>')
    style = 'font-family="system-ui, sans-serif" font-size="13" fill="#16181d"'
    # paper reaches beyond what is drawn, or letters touch its edge where that is dark
    wide, high = _WIDTH + 2 * _EDGE, bottom + 8 + 2 * _EDGE
    paper = f'<rect x="{-_EDGE}" y="{-_EDGE}" width="{wide}" height="{high}" fill="#ffffff"/>'
    box = f'viewBox="{-_EDGE} {-_EDGE} {wide} {high}" width="{wide}"'
    return Markup(f'<svg {box} role="img" aria-label="{escape(title)}" {style} xmlns="http://www.w3.org/2000/svg">{paper}{"".join(made)}</svg>\n')
