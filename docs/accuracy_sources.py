"""What a step is off by of which there is no measurement: derivations/spreads.json's spreads `source` and `system`, and docs/accuracy.md on them.

Every publisher is left out in turn. What is fitted to steps is fitted to all steps of the others (in first order of the exact elasticities), from
where it would be without any (`WITHOUT`), and the steps of the one left out are predicted so. Where others measured its system, but not its
framework and kind there, they are off by `source` besides what kinds of numbers say; where no other measured the system, by `system`. Each of the
two is the least with which intervals hold `spreads.LEVEL` of the steps, of all publishers or of all but one, whichever that is; every group of one
publisher, framework, kind and system counted alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from accuracy_fitted import COEFFICIENTS, refitted

if TYPE_CHECKING:
    from spreads import Fit, Measured

# Of each coefficient fitted to steps, over what it was fitted to: the value that it would have without any step. Of b200-sxm, a100-pcie-80 and
# h100-sxm what single kernels and calls say (sources `steps`, `sustained`, `h100_steps` of their files; exchanges between nodes as measured on
# h800-sxm, starts of kernels on a100-pcie-80); of the others what the machine before it has
WITHOUT = {
    ("GEMM efficiency, which attention's follows", "b200-sxm"): 1 / 0.921,
    ("all-to-all share", "b200-sxm"): 0.644 / 0.213,
    ("node bandwidth", "a100-pcie-80"): 4.03 / 4.1,
    ("what one ring moves", "a100-pcie-80"): 13.2 / 13.5,
    ("host launch", "a800-sxm"): 65 / 40,
    ("host gather", "a800-sxm"): 300 / 630,
    ("FP8 share", "h100-sxm"): 0.947 / 0.828,
    ("start of a kernel", "h100-sxm"): 5 / 7.1,
    ("all-to-all share between nodes", "h100-sxm"): 0.885 / 0.627,
    ("GEMM efficiency, grouped too", "gb200-nvl72"): 0.4625 / 0.5435,
    ("FP8 share", "gb200-nvl72"): 0.828 / 0.882,
    ("GEMM efficiency, grouped too", "gb300-nvl72"): 0.4625 / 0.712,
    ("host launch", "gb200-nvl72"): 40 / 65,
}
TIERS = {
    "source": "other sources measured the system, but neither this framework nor this kind of model on it",
    "system": "no other source measured the system",
    "": "other sources measured the framework and the kind on the system",
}


@dataclass(frozen=True)
class Left:
    """A step whose publisher was left out: its residual then, what it is (of TIERS), and what kinds of numbers say it is off by."""

    row: Measured
    residual: float
    tier: str
    deviation: float

    @property
    def group(self) -> tuple[str, ...]:
        return self.row.publisher, *self.row.of

    def holds(self, spread: float, factor: float) -> bool:
        return abs(self.residual) <= factor * math.hypot(self.deviation, spread)


@dataclass(frozen=True)
class Between:
    """A spread between sources, and what it was estimated from."""

    spread: float
    said: str


def left_out(rows: Sequence[Measured], apart: Sequence[Measured], fit: Fit) -> list[Left]:
    """Every step with its publisher left out; those apart as they are, for nothing was fitted to them."""
    start = np.array([math.log(WITHOUT[name, systems[0]]) for name, systems, _ in COEFFICIENTS])
    found = []
    for publisher in dict.fromkeys(row.publisher for row in rows):
        others = [row for row in rows if row.publisher != publisher]
        moves = np.array([row.fitted for row in others]).reshape(-1, len(start))
        moved = refitted(np.array([-row.error for row in others]), moves, start)
        known, systems = {row.of for row in others}, {row.system for row in others}
        for row in rows:
            if row.publisher == publisher:
                tier = "" if row.of in known else "source" if row.system in systems else "system"
                found.append(Left(row, row.error - float(np.dot(row.fitted, moved)), tier, fit.deviation(row)))
    return [*found, *(Left(row, row.error, "system", fit.deviation(row)) for row in apart)]


def spread_of(found: Sequence[Left], level: float, factor: float) -> float:
    """The least spread with which intervals hold this share of the steps, every group counted alike."""
    needed = (math.sqrt(max(0.0, (one.residual / factor) ** 2 - one.deviation**2)) for one in found)
    # a hair more: the step that decides is to be held
    return next(s for s in sorted({0.0, *(1.000001 * n for n in needed)}) if held(found, s, factor) >= level)


def held(found: Sequence[Left], spread: float, factor: float) -> float:
    """The share of steps that intervals hold, every group counted alike."""
    groups: dict[tuple[str, ...], list[bool]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(one.holds(spread, factor))
    return mean(mean(own) for own in groups.values())


def section(rows: Sequence[Measured], apart: Sequence[Measured], fit: Fit) -> tuple[list[str], dict[str, Between], dict[str, bool]]:
    """The part of docs/accuracy.md; the spreads by tier; and by id whether an interval holds a step of a source that was never seen."""
    from spreads import FACTOR, LEVEL

    found = left_out(rows, apart, fit)
    between, out, lines = {}, dict[str, bool](), []
    for tier, said in TIERS.items():
        own = [one for one in found if one.tier == tier]
        groups, publishers = len({one.group for one in own}), dict.fromkeys(one.row.publisher for one in own)
        spread = spread_of(own, LEVEL, FACTOR) if tier else 0.0
        for publisher in publishers:
            # the spread is estimated without the source too, and none hangs on one source alone
            others = [one for one in own if one.row.publisher != publisher]
            without = spread_of(others, LEVEL, FACTOR) if tier else 0.0
            spread = max(spread, without)
            out |= {one.row.id: one.holds(without, FACTOR) for one in own if one.row.publisher == publisher}
        if tier:
            between[tier] = Between(
                spread, f"{len(own)} steps of {groups} groups, each predicted with its source left out ({said}), by `python docs/spreads.py`"
            )
        error = mean(abs(math.expm1(-one.residual)) for one in own)
        cells = [said, f"{len(own)}", f"{groups}", f"{error:.1%}", f"{held(own, 0.0, FACTOR):.0%}", f"{spread:.3f}" if tier else ""]
        each = mean(out[one.row.id] for one in own)
        lines.append(f"| {' | '.join(cells)} | {held(own, spread, FACTOR):.0%} | {each:.0%} |")
    return [*_text(lines, found, out), *_apart(apart, between, fit)], between, out


def _text(lines: Sequence[str], found: Sequence[Left], out: Mapping[str, bool]) -> list[str]:
    return [
        "### A source never fitted",
        "",
        "Each source is left out in turn: what is fitted to steps is fitted to those of the others, from where it would be without any, and its",
        "steps are predicted so. Kinds of numbers alone say too little of them: an interval takes a spread more where the system was measured, but",
        "not with this framework and kind of model (dense or experts, the type of products, all parameters or adapters), and a larger one where",
        "the system was not. Both are the least with which intervals hold 80% of these steps, all or those of all sources but one, whichever it is,",
        "every group of one source, framework, kind and system counted alike; `symsim eval` names them where they hold. The last column is by step,",
        "the spread estimated without the source as well.",
        "",
        "| steps of | steps | groups | error | held by kinds alone, of groups | spread | held with it, of groups | of steps, by others' spread |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        f"In all {mean(out[one.row.id] for one in found):.0%} of the {len(found)} steps are held.",
        "",
    ]


def _apart(apart: Sequence[Measured], between: Mapping[str, Between], fit: Fit) -> list[str]:
    if not apart:
        return []
    from spreads import FACTOR

    lines = [
        "### A machine that nothing is fitted to",
        "",
        "Every coefficient of `b300-sxm` is that of its twins (the chip of `gb300-nvl72`, the board and hosts of `b200-sxm`), and no row here is",
        "among those above.",
        "",
        "| row | error | interval | held |",
        "|---|---|---|---|",
    ]
    for row in apart:
        width = FACTOR * math.hypot(fit.deviation(row), between["system"].spread)
        inside = "yes" if abs(row.error) <= width else "no"
        lines.append(f"| `{row.id}` | {math.expm1(-row.error):+.1%} | {math.expm1(-width):+.0%} to {math.expm1(width):+.0%} | {inside} |")
    error = mean(abs(math.expm1(-row.error)) for row in apart)
    return [*lines, "", f"Mean absolute error {error:.1%}.", ""]
