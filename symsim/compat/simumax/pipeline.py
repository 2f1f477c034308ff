"""SimuMax's pipelines: their orders replayed with blocking exchanges, at which ranks stand still.

Source: perf_llm.py calculate_1f1b_bubble; for virtual stages `interleaved.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from symsim.compat.difference import Question
from symsim.compat.simumax.interleaved import Shape, makespan
from symsim.compat.simumax.machine import Machine
from symsim.evaluation.numbers import Evaluation
from symsim.pipeline.orders import Entry, Exchange, Operation, replay
from symsim.pipeline.stages import kinds_between

_PHASES = {"F": ("forward",), "B": ("inputs", "weights", "backward")}


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
        if at.strategy.vpp > 1:
            return self._of_chunks(at, waited)
        rows = tuple(tuple(_row(rank, len(stages), at.strategy.microbatches)) for rank in range(len(stages)))

        def duration(operation: Operation) -> float:
            whole, ahead = backward[operation.stage], forward[operation.stage]
            return ahead if operation.kind == "F" else whole - ahead

        return max(slot.end for slot in replay(rows, duration, exchange=waited))

    def _of_chunks(self, at: Evaluation, waited: float) -> float:
        strategy = at.strategy
        group = min(strategy.microbatch_group_size_per_vp_stage or strategy.pp, strategy.microbatches)
        own = {(rank, *what): seconds for rank in range(strategy.pp) for what, seconds in _chunks(at, rank).items()}
        return makespan(Shape(strategy.pp, strategy.vpp, strategy.microbatches, group), own, waited)


def _chunks(at: Evaluation, rank: int) -> dict[tuple[str, int], float]:
    """Seconds of every chunk of a rank, forward and backward: those of its blocks, and what is left of the stage in even shares."""
    stage, v = at.stages[rank], at.strategy.vpp
    left = {"F": float(at.stage_numbers(stage)["tf_stage"]), "B": float(at.stage_numbers(stage)["t_stage"] - at.stage_numbers(stage)["tf_stage"])}
    made = {}
    for c, chunk in enumerate(stage.chunks):
        held: dict[str, int] = dict(kinds_between(at.model, chunk.first, chunk.last))
        held |= {"embedding": 1} if stage.embedding and c == 0 else {}
        held |= {"head": 1} if stage.loss and c == v - 1 else {}
        for way, phases in _PHASES.items():
            made[way, c] = sum(n * _block(at, name, phases) for name, n in held.items())
            left[way] -= made[way, c]
    return {(way, c): seconds + left[way] / v for (way, c), seconds in made.items()}


def _block(at: Evaluation, name: str, phases: tuple[str, ...]) -> float:
    own = (d for d in at.derivation.of("t", "e", scope="block", block=name, again=False, operation="") if d.key.phase in phases)
    return sum(float(at.numbers[d.symbol]) for d in own)


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
