"""SimuMax's pipelines: the orders of 1F1B and of interleaved stages, replayed with blocking exchanges, at which ranks stand still.

Source: perf_llm.py calculate_1f1b_bubble, _compute_interleaved_sync_schedule_from_ppschedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from symsim.compat.difference import Question
from symsim.compat.simumax.machine import Machine
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.pipeline.exchanges import in_batches, one_by_one
from symsim.pipeline.orders import Operation, Order, interleaved_ahead, order, replay
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

        def duration(operation: Operation) -> float:
            whole, ahead = backward[operation.stage], forward[operation.stage]
            return ahead if operation.kind == "F" else whole - ahead

        return _makespan(one_by_one(order("1f1b", len(stages), at.strategy.microbatches)), duration, waited)

    def _of_chunks(self, at: Evaluation, waited: float) -> float:
        strategy = at.strategy
        p, v, m = strategy.pp, strategy.vpp, strategy.microbatches
        group = min(strategy.microbatch_group_size_per_vp_stage or p, m)
        if group != p or m % p:
            met = f"microbatch_group_size_per_vp_stage={group} and {m} micro-batches, of pp={p} ranks"
            raise InputError(f"SimuMax's blocking exchanges wait for each other for ever with {met}; groups of pp meet, and whole ones")
        own = {(rank, *what): seconds for rank in range(p) for what, seconds in _chunks(at, rank).items()}

        def duration(operation: Operation) -> float:
            chunk, rank = divmod(operation.stage, p)
            return own[rank, operation.kind, chunk]

        rows = in_batches(order("interleaved", p, m, v, group), lambda rank: interleaved_ahead(p, v, group, rank))
        return _makespan(rows, duration, waited)


def _makespan(rows: Order, duration: Callable[[Operation], float], exchange: float) -> float:
    """Seconds until the last rank is done."""
    return max(slot.end for slot in replay(rows, duration, exchange=exchange))


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
