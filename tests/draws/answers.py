"""Sweeps with conditions, of which the best or those that nothing beats are asked, beside single evaluations of every point.

    python tests/draws/answers.py --count 200 --seed 1

Axes of numbers, words, true and false, null, systems, assumptions and rates, some of them derived of others (`sp==tp>1`, `dp=16/(tp*pp)`), over
a strategy that is drawn of any model (`knobs.py`). Every point is derived alone, conditions are read by Python, and what is left is sorted here. Ends
with 1 where a row is lost, is not asked for, or has another number, or where what is best is another.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from knobs import Grid, surroundings

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.quantities import QUANTITIES

Values = Mapping[str, Any]
AXES: Mapping[str, tuple[str, ...]] = {
    "tp": ("1", "2", "4"),
    "pp": ("1", "2"),
    "dp": ("1", "2", "8"),
    "micro_batch_size": ("1", "2", "3"),
    "num_microbatches": ("2", "4", "16"),
    "seq_length": ("1024", "4096"),
    "zero": ("0", "1", "3"),
    "recompute": ("none", "selective", "full"),
    "num_layers_in_first_pipeline_stage": ("null", "3"),
    "moe_expert_capacity_factor": ("null", "1.25"),
    "schedule": ("1f1b", "gpipe", "zb_h1"),
    "fusion": ("te", "eager"),
    "precision": ("bf16", "fp16"),
    "fp8": ("none", "blockwise", "tensorwise"),
    "overlap_grad_reduce": ("true", "false"),
    "cp": ("1", "2"),
    "ep": ("1", "2"),
    "vpp": ("1", "2"),
    "etp": ("null", "1"),
    "system": ("h100-sxm", "mi300x"),
    "assume.causal": ("half", "full"),
    "B_2": ("10 GB/s", "50 GB/s"),
    "num_layers": ("8", "16"),
    "reshard_after_forward": ("true", "false"),
}
DERIVED: Mapping[str, tuple[str, Callable[[Values], str]]] = {
    "sp": ("sp==tp>1", lambda at: "true" if int(at["tp"]) > 1 else "false"),
    "dp": ("dp=16/(tp*pp)", lambda at: str(16 // (int(at["tp"]) * int(at["pp"])))),
    "num_microbatches": ("num_microbatches=2*pp", lambda at: str(2 * int(at["pp"]))),
}
WHERE: Mapping[str, Callable[[Values, Callable[[str], float]], bool]] = {
    "memory.peak <= 60e9": lambda at, of: of("memory.peak") <= 60e9,
    "tp*pp <= 4": lambda at, of: of("tp") * of("pp") <= 4,
    "mfu > 0.2": lambda at, of: of("mfu") > 0.2,
    "world == 16 or world == 8": lambda at, of: of("world") in (8, 16),
    "params.per_rank < 2e9 and zero != 2": lambda at, of: of("params.per_rank") < 2e9 and of("zero") != 2,
    "not (recompute == 'full')": lambda at, of: at("recompute") != "full",
    "schedule == '1f1b' or pp > 1": lambda at, of: at("schedule") == "1f1b" or of("pp") > 1,
    "time.step < 2 or memory.transient > 1e9": lambda at, of: of("time.step") < 2 or of("memory.transient") > 1e9,
}
BY = ("time.step", "mfu", "memory.peak", "tokens_per_second", "params.per_rank")
FRONTS = ("time.step", "memory.peak", "world", "mfu")


def drawn(draw: random.Random) -> tuple[Grid, dict[str, str]]:
    """A grid, and of each derived axis how it is said."""
    one = surroundings(draw)
    axes = {name: list(AXES[name]) for name in draw.sample(sorted(AXES), draw.randint(2, 4))}
    derived: dict[str, str] = {}
    for name in draw.sample(sorted(DERIVED), draw.randint(0, 2)):
        text, _ = DERIVED[name]
        if name in axes:
            continue
        derived[name] = text
        for needed in ("tp", "pp"):
            if needed in text and needed not in axes:
                axes[needed] = list(AXES[needed])
    settings = {n: v for n, v in one.settings.items() if n not in axes and not ("system" in axes and not n.startswith("assume."))}
    return replace(one, axes=axes, settings=settings, base={n: v for n, v in one.base.items() if n not in derived and n not in axes}), derived


def alone(grid: Grid, derived: Mapping[str, str]) -> list[tuple[dict[str, str], Result | None]]:
    """Of every point what runs there."""
    found: list[tuple[dict[str, str], Result | None]] = []
    for values in itertools.product(*grid.axes.values()):
        point = dict(zip(grid.axes, values))
        point |= {name: DERIVED[name][1](point) for name in derived}
        if point.get("dp") == "0":
            found.append((point, None))
            continue
        try:
            found.append((point, grid.alone(point)))
        except InputError:
            found.append((point, None))
    return found


def number(result: Result, name: str) -> float:
    value = (
        result.values[name] if name in result.values else getattr(result.strategy, name) if name in ("tp", "pp", "zero", "dp") else result.value(name)
    )
    return float(-(-value // 1) if name in QUANTITIES and QUANTITIES[name].kind == "integer" else value)


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def better(name: str) -> int:
    return -1 if QUANTITIES[name].largest_first else 1


def wrong(draw: random.Random, grid: Grid, derived: Mapping[str, str]) -> Iterator[str]:
    """What is not as single evaluations have it. InputError where nothing runs."""
    every = [(point, r) for point, r in alone(grid, derived) if r is not None]
    if not every:
        raise InputError("nothing runs")
    conditions = draw.sample(sorted(WHERE), draw.choice((0, 1, 1, 2)))
    kept = [
        (point, r)
        for point, r in every
        if all(WHERE[c](lambda n, r=r: getattr(r.strategy, n), lambda n, r=r: number(r, n)) for c in conditions)  # type: ignore[arg-type]
    ]
    axes = [*(f"{n}={','.join(v)}" for n, v in grid.axes.items()), *derived.values()]
    asked: dict[str, Any] = {"where": conditions}
    kind, by = draw.choice(("all", "top", "pareto")), draw.choice(BY)
    front, several = draw.sample(FRONTS, 2), draw.choice((1, 3, 100))
    asked |= {"top": {"top": several, "by": by}, "pareto": {"pareto": ",".join(front)}, "all": {}}[kind]
    columns = list(dict.fromkeys([*BY, *FRONTS]))
    said = f"{axes} {asked}"
    try:
        found = symsim.sweep(grid.model, axes, grid.strategy, grid.system, overrides=grid.settings, columns=columns, **asked)
    except InputError as error:
        if kept:
            yield f"{said}: {len(kept)} points meet it, refused: {error}"
        return
    rows = [{n: float(found.rows[n][k]) for n in columns} for k in range(len(found))]
    wanted = [{n: number(r, n) for n in columns} for _, r in kept]
    if kind == "top":
        order = sorted(wanted, key=lambda row: better(by) * row[by])[:several]
        if len(order) != len(rows) or not all(close(a[by], b[by]) for a, b in zip(order, rows)):
            yield f"{said}: best are {[row[by] for row in rows][:5]}, {[row[by] for row in order][:5]} alone"
    elif kind == "pareto":
        points = {tuple(better(n) * row[n] for n in front) for row in wanted}
        own = {p for p in points if not any(q != p and _beats(q, p) for q in points)}
        there = {tuple(better(n) * row[n] for n in front) for row in rows}
        if not (_covered(own, there) and _covered(there, own)):
            yield f"{said}: a front of {sorted(there)[:4]}, {sorted(own)[:4]} alone"
    elif len(rows) != len(wanted):
        yield f"{said}: {len(rows)} rows, {len(wanted)} points run alone"
    for row in rows:
        if not any(all(close(row[n], one[n]) for n in columns) for one in wanted):
            yield f"{said}: no point has {row}"
            break


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether it is as good in everything, and better in something by more than rounding."""
    return all(a <= b or close(a, b) for a, b in zip(one, other)) and any(a < b and not close(a, b) for a, b in zip(one, other))


def _covered(some: set[tuple[float, ...]], others: set[tuple[float, ...]]) -> bool:
    return all(any(all(close(a, b) for a, b in zip(one, other)) for other in others) for one in some)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, began = random.Random(given.seed), time.perf_counter()
    count = refused = several = 0
    while count < given.count:
        grid, derived = drawn(draw)
        try:
            found = list(wrong(draw, grid, derived))
        except InputError:
            refused += 1
            continue
        except Exception:
            found = [traceback.format_exc()]
        count += 1
        several += bool(found)
        if found:
            print("\n    ".join([f"WRONG {grid.said()}", *found[:4]]), flush=True)
        if count % 20 == 0:
            print(f"{count} sweeps, {several} wrong, {refused} of which nothing runs, {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{count} sweeps, {several} wrong, {refused} of which nothing runs, seed {given.seed}")
    return 1 if several else 0


if __name__ == "__main__":
    sys.exit(main())
