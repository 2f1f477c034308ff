"""Steps of a pipeline whose micro-batches differ: orders replayed with micro-batches that are drawn, beside the paces that symsim takes.

    python tests/draws/pipelines.py [STEPS [DIFFER]]

Prints a line for each schedule, depth and number of micro-batches: how many deviations of a micro-batch a step is longer than with equal ones,
replayed and by `symsim/pipeline/paces.py`, of normal and of exponential deviations of that share of their mean (a twentieth).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from symsim.pipeline.orders import Batch, Exchange, Operation, Slot, order
from symsim.pipeline.paces import PACES

# a forward and each of the two gradients take a third
_SHARES = {"F": 1 / 3, "B": 2 / 3, "I": 1 / 3, "W": 1 / 3, "R": 0}
CHUNKS = {"interleaved": (2, 4), "interleaved_zb": (2, 4), "grouped_interleaved": (2,), "looped_bfs": (2,)} | dict.fromkeys(
    ("zbv", "v_half", "v_min", "1f1b_v", "dualpipev"), (2,)
)


def steps_of(name: str, took: Any, ranks: int, chunks: int = 1) -> Any:
    """Seconds of every step of a pipeline of equal stages. took: [steps micro-batches], of a micro-batch on a rank."""
    if ranks == 1:
        return took.sum(1)
    each = took.T / chunks
    clock, ends = [np.zeros(len(took)) for _ in range(ranks)], {}
    for rank, slot, needed in _in_order(name, ranks, took.shape[1], chunks):
        start = np.maximum.reduce([clock[rank], *(ends[n] for n in needed)])
        clock[rank] = start + sum(_SHARES[o.kind] * each[o.microbatch] for o in slot)
        ends.update(dict.fromkeys(slot, clock[rank]))
    return np.max(clock, axis=0)


@cache
def _in_order(name: str, ranks: int, microbatches: int, chunks: int) -> list[tuple[int, Slot, list[Operation]]]:
    """Slots, none before what it needs, which is of other ranks."""
    rows = [[e for e in row if not isinstance(e, (Exchange, Batch))] for row in order(name, ranks, microbatches, chunks)]
    operations = {o for row in rows for slot in row for o in slot}
    last, place, done, found = max(o.stage for o in operations), [0] * ranks, set(), []

    def needs(slot: Slot) -> list[Operation]:
        before = [Operation("F", stage - 1, k) for kind, stage, k in slot if kind == "F" and stage]
        after = [Operation(part, stage + 1, k) for kind, stage, k in slot if kind in "BI" and stage < last for part in "BI"]
        return [*before, *operations.intersection(after)]

    while len(found) < sum(map(len, rows)):
        for rank, row in enumerate(rows):
            while place[rank] < len(row) and done.issuperset(needs(row[place[rank]])):
                slot = row[place[rank]]
                done.update(slot)
                found.append((rank, slot, needs(slot)))
                place[rank] += 1
    return found


def _largest(quantile: Any, n: float) -> float:
    """The mean of the largest of n."""
    return float(np.mean(quantile(((np.arange(20_000) + 0.5) / 20_000) ** (1 / n))))


def lines(steps: int, differ: float) -> Iterator[str]:
    """Of each case."""
    normal = np.vectorize(NormalDist().inv_cdf)
    kinds = {"normal": (normal, "standard_normal"), "exponential": (lambda q: -np.log1p(-q) - 1, "standard_exponential")}
    for (name, pace), (kind, (quantile, drawn)) in product(PACES.items(), kinds.items()):
        for chunks, ranks, often in product(CHUNKS.get(name, (1,)), (4, 8, 16), (2, 4, 8)):
            m = ranks * often
            sizes = {"pp": ranks, "vpp": chunks, "m": m, "group": ranks, "differ": differ}
            rng = np.random.default_rng(1)
            deviations = getattr(rng, drawn)((steps, m)) - (kind == "exponential")
            even = float(steps_of(name, np.ones((1, m)), ranks, chunks)[0])
            replayed = (float(steps_of(name, 1 + differ * deviations, ranks, chunks).mean()) - even) / differ
            paced, of = (float(e.evaluate(sizes)) for e in pace)
            filling = min(m, 1 + (ranks - 1) * differ / 2)
            taken = paced * _largest(quantile, of) + 2 / 3 * (even - m) * _largest(quantile, filling)
            yield f"{name:24}{kind:12} pp={ranks:<3}vpp={chunks:<2}m={m:<4} replayed {replayed:6.2f}  taken {taken:6.2f}"


if __name__ == "__main__":
    given = sys.argv[1:]
    for line in lines(int(given[0]) if given else 1000, float(given[1]) if given[1:] else 0.05):
        print(line, flush=True)
