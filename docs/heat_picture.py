"""The picture of a sweep as two heat maps: step time and peak memory by tensor and pipeline ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from drawing import FAINT, INK, LINE, PAPER, WIDTH, box, rect, svg, text

import symsim

MODEL, SYSTEM = "llama3-70b", "h100-sxm"
HEAT_AXES: Mapping[str, Any] = {"world": [128], "tp": [1, 2, 4, 8, 16], "pp": [1, 2, 4, 8, 16, 32], "sp": "tp>1"}
HEAT_STRATEGY = "global_batch_size=256"
# YlGnBu of ColorBrewer (Brewer and Harrower 2003), safe for colour-blind readers, light to dark
SCALE = ("#ffffd9", "#edf8b1", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58")
ABSENT = "#e6e6e2"
CELL_WIDTH, CELL_HEIGHT = 58, 36


def heat_picture() -> str:
    found = symsim.sweep(MODEL, HEAT_AXES, strategy=HEAT_STRATEGY, system=SYSTEM, columns="time.step,memory.peak,memory.capacity")
    tps, pps = HEAT_AXES["tp"], HEAT_AXES["pp"]
    rows = {(int(t), int(p)): k for k, (t, p) in enumerate(zip(found.rows["tp"], found.rows["pp"]))}
    steps = {at: float(found.rows["time.step"][k]) for at, k in rows.items()}
    bytes_ = {at: int(found.rows["memory.peak"][k]) for at, k in rows.items()}
    capacity = int(found.rows["memory.capacity"][0])
    fits = {at for at, n in bytes_.items() if n <= capacity}
    best = min(fits, key=lambda at: (steps[at], at))
    panels = (
        ("Step time, seconds", steps, _three),
        ("Peak memory of the fullest rank, GiB", {at: n / 2**30 for at, n in bytes_.items()}, _three),
    )
    parts = []
    for k, (title, values, shown) in enumerate(panels):
        parts += _panel(16 + k * 424, title, values, shown, tps, pps, fits, best)
    y = 44 + 24 + len(tps) * CELL_HEIGHT + 62
    x = 54.0
    legend = (
        (box(x, y, 26, 16, ABSENT, LINE, 0), "cannot run", 13),
        (_hatched(x + 170, y, 26, 16, SCALE[3]), f"does not fit in {capacity / 2**30:g} GiB", 13),
        (box(x + 420, y, 26, 16, SCALE[0], INK, 0, 2.6), "the shortest step that fits", 13),
    )
    for (shape, words, _), at in zip(legend, (x, x + 170, x + 420)):
        parts += [shape, text(at + 34, y + 13, words, 12)]
    title = "llama3-70b on 128 H100, global batch 256, micro-batches of one sequence, by tp and pp"
    hatch = (
        '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="7" height="7" fill="{PAPER}" fill-opacity="0.3"/>'
        f'<line x1="0" y1="0" x2="0" y2="7" stroke="{INK}" stroke-width="2" stroke-opacity="0.4"/></pattern>'
    )
    return svg(WIDTH, y + 30, title, parts, hatch)


def _three(x: float) -> str:
    """Three digits."""
    return f"{x:.{2 if x < 9.995 else 1 if x < 99.95 else 0}f}"


def _hatched(x: float, y: float, width: float, height: float, fill: str) -> str:
    return box(x, y, width, height, fill, PAPER, 0) + rect(x, y, width, height, "url(#hatch)")


def _panel(
    left: float, title: str, values: Mapping[tuple[int, int], float], shown: Any, tps: Sequence[int], pps: Sequence[int], fits: set[Any], best: Any
) -> list[str]:
    low, high = math.log(min(values.values())), math.log(max(values.values()))
    x0, y0 = left + 38, 68
    parts = [text(x0, 24, title, 15, bold=True), text(x0 + len(pps) * CELL_WIDTH / 2, 46, "pp, pipeline stages", 12, anchor="middle", fill=FAINT)]
    parts += [text(x0 + (k + 0.5) * CELL_WIDTH, 62, str(p), 12, anchor="middle") for k, p in enumerate(pps)]
    middle = y0 + len(tps) * CELL_HEIGHT / 2
    turned = f'transform="rotate(-90 {left + 3:g} {middle:g})"'
    parts.append(f"<g {turned}>{text(left, middle, 'tp, tensor ranks', 12, anchor='middle', fill=FAINT)}</g>")
    outline = ""
    for row, t in enumerate(tps):
        y = y0 + row * CELL_HEIGHT
        parts.append(text(x0 - 8, y + CELL_HEIGHT / 2 + 4, str(t), 12, anchor="end"))
        for column, p in enumerate(pps):
            x = x0 + column * CELL_WIDTH
            at = (t, p)
            if at not in values:
                parts.append(box(x, y, CELL_WIDTH, CELL_HEIGHT, ABSENT, PAPER, 0, 2))
                continue
            share = (math.log(values[at]) - low) / (high - low)
            fill = _colour(share)
            ink = INK if at not in fits or share < 0.6 else "#fff"
            parts.append(box(x, y, CELL_WIDTH, CELL_HEIGHT, fill, PAPER, 0, 2))
            if at not in fits:
                parts.append(rect(x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, "url(#hatch)"))
                words = shown(values[at])
                wide = len(words) * 7.2 + 6
                parts.append(rect(x + (CELL_WIDTH - wide) / 2, y + 10, wide, 16, PAPER, ' rx="2" fill-opacity="0.85"'))
            parts.append(text(x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 4, shown(values[at]), 12, anchor="middle", fill=ink, bold=at == best))
            if at == best:
                outline = box(x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, "none", INK, 0, 2.6)
    parts.append(outline)
    # the scale, logarithmic
    y = y0 + len(tps) * CELL_HEIGHT + 12
    wide = len(pps) * CELL_WIDTH
    steps = 48
    for k in range(steps):
        parts.append(rect(round(x0 + wide * k / steps, 2), y, round(wide / steps + 0.4, 2), 10, _colour((k + 0.5) / steps)))
    parts.append(text(x0, y + 24, shown(math.exp(low)), 11, fill=FAINT))
    parts.append(text(x0 + wide / 2, y + 24, "logarithmic", 11, fill=FAINT, anchor="middle"))
    parts.append(text(x0 + wide, y + 24, shown(math.exp(high)), 11, fill=FAINT, anchor="end"))
    return parts


def _colour(share: float) -> str:
    """The colour map at a share of its length."""
    at = min(max(share, 0.0), 1.0) * (len(SCALE) - 1)
    k = min(int(at), len(SCALE) - 2)
    one, two = ([int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SCALE[k : k + 2])
    return "#" + "".join(f"{round(a + (b - a) * (at - k)):02x}" for a, b in zip(one, two))
