"""Pictures of a pipeline schedule: every operation of every rank in time, as SVG or as text.

For pictures only: no result depends on this file. It replays the written-out order of operations
(`report.schedule_orders`), where the numbers of a report come from the closed forms of `symsim.pipeline.schedules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from textwrap import wrap

from symsim.pipeline.orders import Operation, Order, Slot, Timed, order, replay
from symsim.report.amounts import exact

DURATIONS: Mapping[str, float] = {"tf": 1.0, "ti": 1.0, "tw": 1.0, "tr": 0.0, "tc": 0.0}
"""A micro-batch on one rank, all its chunks, in any unit: forward, input gradients, weight gradients, recompute, message."""

MERAK = ("ds_default", "merak_1f1b", "pre_recompute_1f1b", "last_no_recompute_1f1b", "shifted_critical_path")
"""Schedules whose order writes recompute and blocking exchanges apart."""

COLOURS = {"F": "#a9c9ee", "B": "#a8d8b0", "I": "#a8d8b0", "W": "#f0cf8a", "R": "#d9c4e8"}
DARKER = {"F": "#6f9fd6", "B": "#6cb57a", "I": "#6cb57a", "W": "#d3a545", "R": "#b193cc"}
NAMES = {"F": "forward", "B": "backward", "I": "input gradients", "W": "weight gradients", "R": "recompute"}
_WIDE_LETTER = 0.65  # width of a bold letter, of its size
MOST_RANKS = 16
WIDTH, LEFT, NARROWEST = 800, 64, 11
ROW, MANY, LOWER = 26, 8, 18  # of many ranks the rows are lower


def schedule_times(schedule: str, p: int, m: int, v: int = 1, durations: Mapping[str, float] = DURATIONS, group: int | None = None) -> list[Timed]:
    """Every operation of `schedule` with its start and end, for equal stages.

    `durations` as DURATIONS, of a rank's v chunks together; tfb, where given, is that of an overlapped pair. The unit
    of the times is that of the durations. KeyError for a schedule that is none.
    """
    return list(_timed(schedule, p, m, v, tuple({**DURATIONS, **durations}.items()), group))


@lru_cache(maxsize=1)
def _timed(schedule: str, p: int, m: int, v: int, durations: tuple[tuple[str, float], ...], group: int | None) -> tuple[Timed, ...]:
    """A page draws one schedule twice: wide, and for phones."""
    d = dict(durations)
    apart = schedule in MERAK
    backward = d["ti"] + d["tw"]
    chunk = {
        "F": d["tf"] / v,
        "B": (backward if apart else backward + d["tr"]) / v,
        "I": (d["ti"] + d["tr"]) / v,
        "W": d["tw"] / v,
        "R": d["tr"] / v,
    }
    pair = d.get("tfb", d["tf"] + backward + d["tr"]) / v
    entries: Order = order(schedule, p, m, v, group)
    timed = replay(
        entries,
        lambda o: chunk[o.kind],
        0 if apart else d["tc"],
        d["tc"] if apart else 0,
        lambda slot: pair if len(slot) > 1 else chunk[slot[0].kind],
    )
    return tuple(timed)


def _shown_ranks(p: int) -> list[int]:
    half = MOST_RANKS // 2
    return list(range(p)) if p <= MOST_RANKS else [*range(half), *range(p - half, p)]


def _windows(timed: Sequence[Timed], room: float) -> list[tuple[float, float]]:
    """The parts of the step that fit `room` pixels with the shortest operation still readable: all of it, or both ends."""
    end = max(t.end for t in timed)
    shortest = min((t.end - t.start) / len(t.slot) for t in timed if t.end > t.start)
    fits = room / NARROWEST * shortest
    return [(0.0, end)] if end <= fits else [(0.0, fits / 2), (end - fits / 2, end)]


def timeline_svg(
    schedule: str,
    p: int,
    m: int,
    v: int = 1,
    durations: Mapping[str, float] = DURATIONS,
    group: int | None = None,
    unit: str = "time units",
    width: int = WIDTH,
) -> str:
    """A self-contained SVG, `width` px wide, of `schedule` on p ranks with m micro-batches and v chunks a rank.

    Numbers are micro-batches; the later chunks of a rank, and the micro-batches that enter at the last rank, are darker.
    Long steps show their beginning and their end, more than 16 ranks the first and the last eight, with a note. unit: of the durations.
    """
    timed = schedule_times(schedule, p, m, v, durations, group)
    ranks, gap = _shown_ranks(p), 16.0
    windows = _windows(timed, width - LEFT - 12)
    room = (width - LEFT - 12 - gap * (len(windows) - 1)) / len(windows)
    scale = room / (windows[0][1] - windows[0][0])
    top, row = 44, ROW if len(ranks) <= MANY else LOWER
    kinds = [k for k in "FBIWR" if any(o.kind == k for t in timed for o in t.slot)]
    parts = []
    for number, (low, high) in enumerate(windows):
        offset = LEFT + number * (room + gap)
        for t in timed:
            if t.rank not in ranks or t.end <= low or t.start >= high or t.end <= t.start:
                continue
            y = top + ranks.index(t.rank) * row
            parts += _boxes(t, [is_second(o, schedule, p, m) for o in t.slot], offset, low, high, scale, y, row - 4)
    labels = [
        f'<text x="{LEFT - 8}" y="{top + n * row + row // 2 + 3}" text-anchor="end" font-size="12">rank {rank}</text>' for n, rank in enumerate(ranks)
    ]
    bottom = top + len(ranks) * row
    legend, x = [], LEFT
    for kind in kinds:
        if x > LEFT and x + 34 + 7 * len(NAMES[kind]) > width:
            x, bottom = LEFT, bottom + 18
        legend.append(f'<rect x="{x}" y="{bottom + 12}" width="12" height="12" fill="{COLOURS[kind]}" stroke="#555" stroke-width="0.5"/>')
        legend.append(f'<text x="{x + 17}" y="{bottom + 22}" font-size="12">{NAMES[kind]}</text>')
        x += 34 + 7 * len(NAMES[kind])
    notes = [line for note in notes_of(timed, windows, ranks, p, unit) for line in wrap(note, (width - LEFT) // 7)]
    lines = [f'<text x="{LEFT}" y="{bottom + 44 + 17 * n}" font-size="13" fill="#444">{escape(note)}</text>' for n, note in enumerate(notes)]
    height = bottom + 36 + 17 * len(notes)
    title = f"{schedule}: {p} ranks, {m} micro-batches" + (f", {v} chunks a rank" if v > 1 else "")
    size = f"{min(15.0, (width - LEFT) / (_WIDE_LETTER * len(title))):.3g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'font-family="sans-serif" fill="#222"><title>{escape(title)}</title><rect width="{width}" height="{height}" fill="#fcfcfa"/>'
        f'<text x="{LEFT}" y="26" font-size="{size}" font-weight="bold">{escape(title)}</text>{"".join(labels + parts + legend + lines)}</svg>\n'
    )


def is_second(o: Operation, schedule: str, p: int, m: int) -> bool:
    """Of a rank's later chunks, or of the direction that enters at the last rank."""
    return o.stage >= p or (schedule == "dualpipe" and o.microbatch >= m // 2)


def _boxes(t: Timed, second: Sequence[bool], offset: float, low: float, high: float, scale: float, y: float, high_of_row: int) -> list[str]:
    """A slot as one box, or as two halves of one height where a forward and a backward overlap."""
    left, right = max(t.start, low), min(t.end, high)
    boxes = []
    tall = high_of_row / len(t.slot)
    for place, o in enumerate(t.slot):
        colour = (DARKER if second[place] else COLOURS)[o.kind]
        x, width, box_y = offset + (left - low) * scale, (right - left) * scale, y + place * tall
        size = min(11.0, tall - 1, width / (0.62 * len(str(o.microbatch))))
        boxes.append(f'<rect x="{x:.1f}" y="{box_y:.1f}" width="{width:.1f}" height="{tall:.1f}" fill="{colour}" stroke="#555" stroke-width="0.5"/>')
        if size >= 5:
            middle = f'x="{x + width / 2:.1f}" y="{box_y + tall / 2 + size * 0.36:.1f}"'
            boxes.append(f'<text {middle} font-size="{size:.1f}" text-anchor="middle">{o.microbatch}</text>')
    return boxes


def notes_of(timed: Sequence[Timed], windows: Sequence[tuple[float, float]], ranks: Sequence[int], p: int, unit: str) -> list[str]:
    """What a picture does not show, in sentences."""
    end = max(t.end for t in timed)
    notes = []
    if len(windows) > 1:
        notes.append(f"Shown are the first and the last {exact(round(windows[0][1]))} of {exact(round(end))} {unit}.")
    if len(ranks) < p:
        notes.append(f"Ranks {len(ranks) // 2} to {p - len(ranks) // 2 - 1} of {p} are left out.")
    return notes


def timeline_text(
    schedule: str, p: int, m: int, v: int = 1, durations: Mapping[str, float] = DURATIONS, group: int | None = None, unit: str = "time units"
) -> str:
    """The same for a terminal of 80 columns: one line a rank, letters F B I W R (small where timeline_svg is darker), dots idle.

    An operation is its letter, then the last digits of its micro-batch where they fit. Long steps are cut as in timeline_svg.
    """
    timed = schedule_times(schedule, p, m, v, durations, group)
    end = max(t.end for t in timed)
    shortest = min(t.end - t.start for t in timed if t.end > t.start)
    columns = 80 - 9
    # two columns, letter and digit, for the shortest operation
    cell = shortest / 2
    cut = end > columns * cell
    ranks = _shown_ranks(p)
    lines = [f"{schedule}: {p} ranks, {m} micro-batches" + (f", {v} chunks a rank" if v > 1 else "")]
    for rank in ranks:
        row = ["."] * (round(end / cell) + 1)
        for t in timed:
            if t.rank == rank and t.end > t.start:
                first, last = round(t.start / cell), max(round(t.start / cell) + 1, round(t.end / cell))
                row[first:last] = _cells(t.slot, [is_second(o, schedule, p, m) for o in t.slot], last - first)
        text = "".join(row[: round(end / cell)])
        half = (columns - 3) // 2
        lines.append(f"rank {rank:<3} " + (f"{text[:half]} ~ {text[-half:]}" if cut else text))
    middle = round(end - ((columns - 3) // 2) * 2 * cell)
    notes = [f"~ stands for the middle of the step, {exact(middle)} of {exact(round(end))} {unit}."] if cut else []
    notes += notes_of(timed, [(0.0, end)], ranks, p, unit)
    kinds = [k for k in "FBIWR" if any(o.kind == k for t in timed for o in t.slot)]
    return "\n".join([*lines, *notes, ", ".join(f"{k} {NAMES[k]}" for k in kinds) + ", . idle"]) + "\n"


def _cells(slot: Slot, second: Sequence[bool], width: int) -> list[str]:
    letters = "".join(o.kind.lower() if late else o.kind for o, late in zip(slot, second))
    digits = str(slot[0].microbatch)
    room = width - len(letters)
    shown = letters[:width] + (digits[-room:] if room > 0 else "")
    return list(shown.ljust(width, "-" if room > 0 else " "))
