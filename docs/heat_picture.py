"""The picture of a sweep as two heat maps: step time and peak memory by tensor and pipeline ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import symsim
from symsim.report.heat import CELL_HEIGHT, HATCH, Heat, legend, panel, three
from symsim.report.shapes import WIDTH, svg

MODEL, SYSTEM = "llama3-70b", "h100-sxm"
HEAT_AXES: Mapping[str, Any] = {"world": [128], "tp": [1, 2, 4, 8, 16], "pp": [1, 2, 4, 8, 16, 32], "sp": "tp>1"}
HEAT_STRATEGY = "global_batch_size=256"


def heat_picture() -> str:
    found = symsim.sweep(MODEL, HEAT_AXES, strategy=HEAT_STRATEGY, system=SYSTEM, columns="time.step,memory.peak,memory.capacity")
    tps, pps = ([str(n) for n in HEAT_AXES[name]] for name in ("tp", "pp"))
    rows = {(str(t), str(p)): k for k, (t, p) in enumerate(zip(found.rows["tp"], found.rows["pp"]))}
    steps = {at: float(found.rows["time.step"][k]) for at, k in rows.items()}
    bytes_ = {at: int(found.rows["memory.peak"][k]) for at, k in rows.items()}
    capacity = int(found.rows["memory.capacity"][0])
    fits = {at for at, n in bytes_.items() if n <= capacity}
    best = min(fits, key=lambda at: (steps[at], tps.index(at[0]), pps.index(at[1])))
    parts = []
    for k, (title, values) in enumerate(
        (("Step time, seconds", steps), ("Peak memory of the fullest rank, GiB", {at: n / 2**30 for at, n in bytes_.items()}))
    ):
        parts += panel(16 + k * 424, Heat(title, tps, pps, "tp, tensor ranks", "pp, pipeline stages", values, three, fits, best))
    y = 44 + 24 + len(tps) * CELL_HEIGHT + 62
    parts += legend(54.0, y, ("cannot run", f"does not fit in {capacity / 2**30:g} GiB", "the shortest step that fits"))
    title = "llama3-70b on 128 H100, global batch 256, micro-batches of one sequence, by tp and pp"
    return svg(WIDTH, y + 30, title, parts, HATCH)
