"""SimuMax's interleaved schedule with blocking exchanges: a rank issues all of a batch at once, and waits until each has met its partner.

Source: transformer/pipeline_schedule.py PpSchedule._prefill_batch_interleaved; perf_llm.py _compute_interleaved_sync_schedule_from_ppschedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from symsim.pipeline.orders import Batch, Entry, Operation, Slot, replay

Parcel = tuple[str, int, int]
"""A boundary tensor: forward or backward, the model stage that it goes to, the micro-batch."""


@dataclass(frozen=True)
class Shape:
    """ranks, chunks a rank, micro-batches, and those that run through one chunk in a row."""

    ranks: int
    chunks: int
    microbatches: int
    group: int

    @property
    def table(self) -> list[tuple[int, int]]:
        """Micro-batch and chunk of every forward, in order."""
        starts = range(0, self.microbatches, self.group)
        return [(k, c) for s in starts for c in range(self.chunks) for k in range(s, min(self.microbatches, s + self.group))]


def makespan(shape: Shape, seconds: Mapping[tuple[int, str, int], float], exchange: float) -> float:
    """Seconds until the last rank is done. seconds: of a rank's F or B of a chunk."""

    def duration(operation: Operation) -> float:
        chunk, rank = divmod(operation.stage, shape.ranks)
        return seconds[rank, operation.kind, chunk]

    rows = tuple(tuple(_row(shape, rank)) for rank in range(shape.ranks))
    return max(slot.end for slot in replay(rows, duration, exchange=exchange))


def _run(kind: Literal["F", "B"], work: tuple[int, int]) -> Slot:
    return (Operation(kind, work[1], work[0]),)


def _row(shape: Shape, rank: int) -> Iterator[Entry]:
    """A rank's work and exchanges: forwards ahead, one forward and one backward by turns, the backwards that are left."""
    p, v, table = shape.ranks, shape.chunks, shape.table
    total, last = len(table), p * v - 1
    ahead = min((p - rank - 1) * 2 + (v - 1) * shape.group, total)

    def forward(k: int) -> tuple[int, int]:
        return table[k][0], table[k][1] * p + rank

    def backward(k: int) -> tuple[int, int]:
        return table[k][0], (v - 1 - table[k][1]) * p + rank

    def comes(k: int, ahead_of: bool) -> bool:
        return k + 1 < total and _received(shape, rank, k, forward=ahead_of)

    def into(k: int) -> list[Parcel]:
        mb, stage = forward(k)
        return [("F", stage, mb)] if 0 <= k < total and stage > 0 else []

    def back(k: int) -> list[Parcel]:
        mb, stage = backward(k)
        return [("B", stage, mb)] if stage < last else []

    def sent(k: int) -> list[Parcel]:
        mb, stage = forward(k)
        return [("F", stage + 1, mb)] * (stage < last)

    def returned(k: int) -> list[Parcel]:
        mb, stage = backward(k)
        return [("B", stage - 1, mb)] * (stage > 0)

    if rank:
        yield Batch(frozenset(into(0)))
    for k in range(ahead):
        yield _run("F", forward(k))
        batch = sent(k)
        if comes(k, True) or (ahead == total and rank == 0 and k + 1 < total):
            batch += into(k + 1)
        if k == ahead - 1 and ahead < total and rank != p - 1:
            batch += back(0)
        yield Batch(frozenset(batch))
    if ahead == total and rank != p - 1:
        yield Batch(frozenset(back(0)))
    for k in range(total - ahead):
        yield _run("F", forward(k + ahead))
        yield _run("B", backward(k))
        batch = sent(k + ahead) + returned(k)
        if k < total - ahead - 1 and comes(k + ahead, True):
            batch += into(k + ahead + 1)
        if comes(k, False):
            batch += back(k + 1)
        yield Batch(frozenset(batch))
    for k in range(total - ahead, total):
        yield _run("B", backward(k))
        batch = returned(k)
        if comes(k, False) or (ahead == total and rank == p - 1 and k + 1 < total):
            batch += back(k + 1)
        yield Batch(frozenset(batch))


def _received(shape: Shape, rank: int, k: int, *, forward: bool) -> bool:
    """Whether a tensor for the work after k is asked for beside what k sends: the leading rank of a direction gets what the trailing one
    has sent, as many steps later as there are ranks between them."""
    table, p, v = shape.table, shape.ranks, shape.chunks

    def chunk(at: int) -> int:
        own = table[at % len(table)][1]
        return own if forward else v - own - 1

    if rank != (0 if forward else p - 1):
        return True
    return k >= p - 1 and chunk(k - (p - 1)) != (v - 1 if forward else 0)
