"""Rules of exchange: an order of operations with the blocking exchanges that carry its boundary tensors between ranks, to be replayed.

Sources: SimuMax perf_llm.py calculate_1f1b_bubble; transformer/pipeline_schedule.py PpSchedule._prefill_batch_interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from symsim.pipeline.orders import Batch, Entry, Exchange, Operation, Order, Slot


def one_by_one(order: Order) -> Order:
    """A rank receives what an operation needs just before it, and sends what it makes just after, one exchange a tensor. A model stage is
    a rank."""
    last = len(order) - 1

    def row(slots: tuple[Entry, ...]) -> Iterator[Entry]:
        for slot in _slots(slots):
            yield from (Exchange(o.stage - 1 if o.kind == "F" else o.stage + 1) for o in _needed(slot, last))
            yield slot
            yield from (Exchange(o.stage) for o in _made(slot, last))

    return tuple(tuple(row(slots)) for slots in order)


def in_batches(order: Order, ahead: Callable[[int], int]) -> Order:
    """A rank issues at once what its operation has made and what the next one needs; a forward and the backward that follows it by turns
    are one. ahead: forwards of a rank before it takes turns; where these are all, sends of the last and what the first backward needs are
    two batches."""
    last = max(operation.stage for row in order for slot in _slots(row) for operation in slot)

    def row(slots: tuple[Slot, ...], first: int) -> Iterator[Entry]:
        turns = slots[first : len(slots) - first]
        steps = [*((s,) for s in slots[:first]), *(zip(turns[::2], turns[1::2]) if turns else [()]), *((s,) for s in slots[len(slots) - first :])]
        sent: list[Operation] = []
        for step in steps:
            yield Batch(frozenset(sent + [o for slot in step for o in _needed(slot, last)]))
            yield from step
            sent = [o for slot in step for o in _made(slot, last)]
        yield Batch(frozenset(sent))

    return tuple(tuple(row(slots, min(ahead(rank), len(slots) // 2))) for rank, slots in enumerate(map(_slots, order)))


def _slots(row: tuple[Entry, ...]) -> tuple[Slot, ...]:
    return tuple(entry for entry in row if not isinstance(entry, (Exchange, Batch)))


def _needed(slot: Slot, last: int) -> list[Operation]:
    """Operations of a slot for which a boundary tensor comes from another rank."""
    return [o for o in slot if (o.stage > 0 if o.kind == "F" else o.stage < last)]


def _made(slot: Slot, last: int) -> list[Operation]:
    """Operations of other ranks for which a slot makes the boundary tensor."""
    after = (o._replace(stage=o.stage + (1 if o.kind == "F" else -1)) for o in slot)
    return [o for o in after if 0 <= o.stage <= last]
