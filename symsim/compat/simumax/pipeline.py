"""SimuMax's 1F1B: its order replayed with blocking exchanges, at which both ranks stand still.

Source: perf_llm.py calculate_1f1b_bubble.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from symsim.compat.difference import Question
from symsim.compat.simumax.machine import Machine
from symsim.evaluation.numbers import Evaluation
from symsim.pipeline.orders import Entry, Exchange, Operation, replay


@dataclass(frozen=True)
class Pipeline:
    """The rule on one machine for one job."""

    machine: Machine
    question: Question

    def seconds(self, at: Evaluation) -> float:
        """All micro-batches through the stages, from the seconds of each stage's passes."""
        stages = [at.stage_numbers(stage) for stage in at.stages]
        forward = [float(s["tf_stage"]) for s in stages]
        backward = [float(s["t_stage"]) for s in stages]
        waited = float(at.numbers["tc"])
        if len(stages) == 1:
            return at.strategy.microbatches * backward[0]
        rows = tuple(tuple(_row(rank, len(stages), at.strategy.microbatches)) for rank in range(len(stages)))

        def duration(operation: Operation) -> float:
            whole, ahead = backward[operation.stage], forward[operation.stage]
            return ahead if operation.kind == "F" else whole - ahead

        return max(slot.end for slot in replay(rows, duration, exchange=waited))


def _row(rank: int, ranks: int, microbatches: int) -> Iterator[Entry]:
    """What a rank does: forwards ahead, then one forward and one backward by turns, then the backwards that are left. Of two
    exchanges with one neighbour, even ranks receive first and odd ones send."""
    ahead = min(ranks - rank - 1, microbatches)
    before, after = rank > 0, rank < ranks - 1
    for k in range(ahead):
        yield from [Exchange(rank - 1)] if before else []
        yield (Operation("F", rank, k),)
        yield from [Exchange(rank + 1)] if after else []
    for k in range(microbatches - ahead):
        yield from [Exchange(rank - 1)] if before and k == 0 else []
        yield (Operation("F", rank, k + ahead),)
        yield from [Exchange(rank + 1)] * 2 if after else []
        yield (Operation("B", rank, k),)
        yield from [Exchange(rank - 1)] * (1 if k == microbatches - ahead - 1 else 2) if before else []
    for k in range(microbatches - ahead, microbatches):
        yield from [Exchange(rank + 1)] if after else []
        yield (Operation("B", rank, k),)
        yield from [Exchange(rank - 1)] if before else []
