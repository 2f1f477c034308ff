"""Schedules written out elsewhere, in the names of symsim, and what of them the closed forms do not reach.

The oracles are orders of torch.distributed.pipelining and Megatron-Core, and makespans of Merak, all replayed by
programs that are not part of symsim. `schedule_exceptions` lists, for the docs, every case whose closed form is
refused or is not exact, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from shared import SHARED, oracle

from symsim.algebra.expr import Number
from symsim.pipeline.orders import Exchange, Order
from symsim.pipeline.schedules import SCHEDULES, Schedule

TORCH = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "LoopedBFS": "looped_bfs",
    "InterleavedZeroBubble": "interleaved_zb",
    "ZBVZeroBubble": "zbv",
    "DualPipeV": "dualpipev",
}
MERAK = {"1f1b": "merak_1f1b"}

# forward, input gradients, weight gradients, message and overlapped pair of one chunk, for each simulation of the oracle
SIMULATIONS: dict[str, tuple[float, float, float, float, float]] = {
    "sim_f1_b2": (1, 1, 1, 0, 3),
    "sim_f1_b2_lat0.5": (1, 1, 1, 0.5, 3),
    "sim_f1_b1": (1, 0.5, 0.5, 0, 2),
    "sim_f1_i1.25_w0.75": (1, 1.25, 0.75, 0, 3),
    "sim_f1_b2_overlap_max": (1, 1, 1, 0, 2),
}


@dataclass(frozen=True)
class Held:
    """What a rank holds at its peak: chunks to the end of the backward, to the input gradients, and of each chunk."""

    whole: int
    to_input_gradients: int
    chunks: dict[int, int]


def held(entries: Order) -> list[Held]:
    """The peaks of every rank, which depend on the order of its operations alone."""
    found = []
    for row in entries:
        alive: dict[int, int] = {}
        peak = Held(0, 0, {})
        before_input = most_before_input = 0
        for slot in row:
            if isinstance(slot, Exchange):
                continue
            for kind, stage, _ in slot:
                if kind == "F":
                    alive[stage] = alive.get(stage, 0) + 1
                    before_input += 1
            if sum(alive.values()) > peak.whole:
                peak = Held(sum(alive.values()), 0, dict(alive))
            most_before_input = max(most_before_input, before_input)
            for kind, stage, _ in slot:
                alive[stage] = alive.get(stage, 0) - (kind in "BW")
                before_input -= kind in "BI"
        found.append(Held(peak.whole, most_before_input, peak.chunks))
    return found


def sizes(p: int, m: int, v: int = 1, group: int | None = None) -> dict[str, Number]:
    return {"pp": p, "m": m, "vpp": v, "group": group or p}


def equal_stages(p: int, v: int, f: Number, x: Number, w: Number, r: Number = 0, c: Number = 0, pair: Number | None = None) -> dict[str, Number]:
    """Durations of a rank and sums over p equal ranks, from those of one chunk."""
    parts = {"tf": f * v, "ti": x * v, "tw": w * v, "tr": r * v}
    return (
        parts
        | {f"sum_{name}": p * value for name, value in parts.items()}
        | {"t_place": 0, "t_uneven": 0, "t_late": 0, "tc": c, "tfb": (f + x + w + r if pair is None else pair) * v}
    )


def refused(schedule: Schedule, given: Mapping[str, Number]) -> str | None:
    """The words of the first condition that does not hold."""
    return next((words for condition, words in schedule.requires if condition.evaluate(given) < 0), None)


def inexact(schedule: Schedule, given: Mapping[str, Number]) -> str | None:
    return next((words for condition, words in schedule.exact_while if condition.evaluate(given) < 0), None)


def torch_cases() -> list[Any]:
    data = oracle("schedules.json")
    return [None] if data is None else data["cases"]


def torch_sizes(case: Mapping[str, Any]) -> dict[str, Number]:
    """PyTorch cuts the micro-batches into m // p rounds of equal size."""
    p, m = case["p"], case["m"]
    return sizes(p, m, case["v"], m // max(1, m // p))


def merak_cases(section: str) -> list[Any]:
    path = SHARED / "measured" / "merak.yaml"
    return list(YAML(typ="safe").load(path.read_text())[section]) if path.exists() else [None]


def merak_durations(case: Mapping[str, Any]) -> list[dict[str, float]]:
    """Forward, backward and recompute of every stage."""
    stages = range(case["p"])
    return [{k: case[k][s] if isinstance(case[k], list) else case[k] for k in "fbr"} for s in stages]


def schedule_exceptions() -> Iterator[tuple[str, str]]:
    """(case, reason) of every oracle case that a closed form refuses or does not reproduce exactly."""
    for case in torch_cases():
        if case is None:
            return
        schedule, given = SCHEDULES[TORCH[case["schedule"]]], torch_sizes(case)
        name = f"{schedule.name} p={case['p']} m={case['m']} v={case['v']}"
        reason = refused(schedule, given)
        if reason:
            yield name, f"refused: needs {reason}"
            continue
        for simulation, (f, x, w, c, pair) in SIMULATIONS.items():
            durations = equal_stages(case["p"], case["v"], f, x, w, c=c, pair=pair)
            if simulation in case and schedule.makespan.evaluate(given | durations) != case[simulation]["makespan"]:
                yield f"{name} {simulation}", f"not exact: needs that {inexact(schedule, given | durations)}"
    for case in merak_cases("schedule_golden_uneven"):
        if case is not None:
            yield (
                f"{case['schedule']} p={case['p']} m={case['m']} f={case['f']}",
                "unequal stages: the closed form is an estimate (the replay is exact)",
            )
