"""The part of docs/accuracy.md on kernels: every published time of models/kernels against the system that it is of."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from test_kernel_tables import SINGLE, TABLES, errors

WITHIN = 0.15
# how many rows were further off before tiles were cut, had a start, and came in 64 rows; before softmax was counted in FP8 up to heads of 256, and
# the passes beside attention's backward on Hopper
BEFORE = {
    "attention-hopper": 5,
    "attention-gb200": 1,
    "attention-gb300": 1,
    "attention-mxfp8-gb200": 13,
    "attention-mxfp8-gb300": 13,
    "gemm-h800": 13,
}


def section() -> list[str]:
    """A table by file, operation and direction, and every row that is further off."""
    lines = [
        "## Kernels against published tables",
        "",
        f"Single calls, rows of [models/kernels](../models/kernels/README.md): how many are more than {WITHIN:.0%} off now, and how many of a file "
        "were before.",
        "Tables of SimuMax are not among them: its B200 ran the same products at 860 and at 1430 TFLOP/s (4096 x 4096 x"
        " 7168 and 7168 x 4096), by the",
        "session that a shape was measured in, which no rule of shapes explains (`tests/test_calibrate.py` has what remains of them).",
        "",
        "| rows | of | calls | mean absolute error | mean error | beyond | before |",
        "|---|---|---|---|---|---|---|",
    ]
    beyond = []
    for name, (system, *_) in TABLES.items():
        kinds: dict[str, list[float]] = {}
        for _, point, error in errors(system, name):
            for kind in (name, f"{name}: {point.op} {point.kind}"):
                kinds.setdefault(kind, []).append(error)
            if abs(error) > WITHIN:
                beyond.append(f"- {name}: {point.op} {point.kind}, {_sizes(point.sizes)}: {error:+.0%}.")
        for kind, found in kinds.items():
            off = sum(abs(error) > WITHIN for error in found)
            said = f" at `{SINGLE[name][0]}`" if name in SINGLE else ""
            means = f"{mean(map(abs, found)):.1%} | {mean(found):+.1%}"
            lines.append(f"| {kind} | {system}{said} | {len(found)} | {means} | {off} | {BEFORE.get(kind, '')} |")
    return [*lines, "", *beyond, ""]


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(_size(sizes))


def _size(sizes: dict[str, int]) -> Iterator[str]:
    for name, value in sizes.items():
        if not name.startswith("width"):
            yield f"{name}={value}"
