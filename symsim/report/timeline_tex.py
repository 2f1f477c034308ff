r"""A pipeline schedule in LaTeX's own picture environment; `report.timeline` draws it as SVG and as text."""

from __future__ import annotations

from symsim.pipeline.orders import Timed
from symsim.report.amounts import THIN
from symsim.report.document import Timeline
from symsim.report.timeline import COLOURS, DARKER, MANY, MOST_RANKS, NAMES, is_second, notes_of, schedule_times

_WIDTH, _LEFT, _ROW, _NARROWEST, _GAP = 172.0, 14.0, 4.6, 2.1, 4.0  # millimetres
_LOWER = 2.5  # a row of many


def picture(part: Timeline) -> str:
    """Boxes with micro-batches; a step too long for the page shows its beginning and its end, many ranks the outer ones."""
    timed = schedule_times(part.schedule, part.stages, part.microbatches, part.chunks, part.durations, part.group)
    half = MOST_RANKS // 2
    ranks = list(range(part.stages)) if part.stages <= MOST_RANKS else [*range(half), *range(part.stages - half, part.stages)]
    windows = _windows(timed, _WIDTH - _LEFT)
    room = (_WIDTH - _LEFT - _GAP * (len(windows) - 1)) / len(windows)
    scale = room / (windows[0][1] - windows[0][0])
    tall = _ROW if len(ranks) <= MANY else _LOWER
    high = len(ranks) * tall
    made = [r"\setlength{\unitlength}{1mm}", rf"\begin{{picture}}({_WIDTH:.0f},{high + 6:.1f})(0,-6)"]
    made += [rf"\put(0,{high - row * tall - tall / 2:.2f}){{\makebox(0,0)[l]{{rank {rank}}}}}" for row, rank in enumerate(ranks)]
    for number, (low, end) in enumerate(windows):
        offset = _LEFT + number * (room + _GAP)
        for t in timed:
            if t.rank in ranks and t.end > low and t.start < end and t.end > t.start:
                made += _boxes(t, part, offset, low, end, scale, high - (ranks.index(t.rank) + 1) * tall, tall)
    at = _LEFT
    for kind in [k for k in "FBIWR" if any(o.kind == k for t in timed for o in t.slot)]:
        made.append(rf"\put({at:.1f},-5){{{_rule(COLOURS[kind], 2.4, 2.4)}}}\put({at + 3.2:.1f},-3.8){{\makebox(0,0)[l]{{{NAMES[kind]}}}}}")
        at += 8 + 1.6 * len(NAMES[kind])
    notes = [r"\end{picture}"]
    said = " ".join(notes_of(timed, windows, ranks, part.stages, part.unit)).replace(THIN, r"\,")
    notes += [rf"\par {said}"] if said else []
    return "\n".join([*made, *notes])


def _windows(timed: list[Timed], room: float) -> list[tuple[float, float]]:
    """The parts of the step that fit with the shortest operation still readable: all of it, or both ends."""
    end = max(t.end for t in timed)
    fits = room / _NARROWEST * min((t.end - t.start) / len(t.slot) for t in timed if t.end > t.start)
    return [(0.0, end)] if end <= fits else [(0.0, fits / 2), (end - fits / 2, end)]


def _boxes(t: Timed, part: Timeline, offset: float, low: float, end: float, scale: float, y: float, row: float) -> list[str]:
    """A slot as one box, or as two halves of one height where a forward and a backward overlap."""
    left, right = max(t.start, low), min(t.end, end)
    x, wide, tall = offset + (left - low) * scale, (right - left) * scale, (row - 0.6) / len(t.slot)
    made = []
    for place, o in enumerate(t.slot):
        second = is_second(o, part.schedule, part.stages, part.microbatches)
        at = y + 0.3 + (len(t.slot) - 1 - place) * tall
        # a hair of white between neighbours
        made.append(rf"\put({x:.2f},{at:.2f}){{{_rule((DARKER if second else COLOURS)[o.kind], max(wide - 0.15, 0.1), tall)}}}")
        if wide > 1.1 * len(str(o.microbatch)) and tall > 1.6:
            made.append(rf"\put({x + wide / 2:.2f},{at + tall / 2:.2f}){{\makebox(0,0)[c]{{\tiny {o.microbatch}}}}}")
    return made


def _rule(colour: str, wide: float, tall: float) -> str:
    return rf"\textcolor[HTML]{{{colour.removeprefix('#').upper()}}}{{\rule{{{wide:.2f}mm}}{{{tall:.2f}mm}}}}"
