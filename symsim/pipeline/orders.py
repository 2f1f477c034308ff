"""The order in which each pipeline rank runs its operations, written out, and a replay of it in time.

For pictures, for tests, and for another system that replays its own (`symsim/compat`). No result of symsim's depends on this file: the
numbers come from the closed forms of `symsim.pipeline.schedules`, and the tests hold the two against each other.

An operation is F (forward), B (whole backward), I (its input-gradient part), W (its weight-gradient part) or
R (recompute, where a schedule runs it apart from the backward), of one model stage (chunk) and one micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Literal, NamedTuple

from symsim.pipeline.orders_v import Pass, from_pattern, half_places, least_places, whole_backwards

Kind = Literal["F", "B", "I", "W", "R"]


class Operation(NamedTuple):
    """One piece of work: `kind` of micro-batch `microbatch` in model stage `stage`, both from zero."""

    kind: Kind
    stage: int
    microbatch: int


class Exchange(NamedTuple):
    """A blocking send and receive with the rank `peer`: both ranks stand still until both have come and it is over."""

    peer: int


class Batch(NamedTuple):
    """Parcels that a rank issues at once, to send or to receive: it stands still until each has met its other end and is over."""

    parcels: frozenset[Hashable]


# as plain as it can be: a replay makes millions, each equal to an Operation
_Work = tuple[str, int, int]
Slot = tuple[Operation, ...]
"""What a rank runs at one time: one operation, or a forward and a backward overlapped."""
Entry = Slot | Exchange | Batch
Order = tuple[tuple[Entry, ...], ...]


class Timed(NamedTuple):
    """A slot with the seconds at which it starts and ends on rank `rank`."""

    rank: int
    slot: Slot
    start: float
    end: float


def order(name: str, p: int, m: int, v: int = 1, group: int | None = None) -> Order:
    """The operations of every rank of schedule `name`, in order.

    p ranks, m micro-batches, v chunks a rank, `group` micro-batches that run through one chunk in a row
    (interleaved schedules; default p, at most m). KeyError for a name that is no schedule.
    """
    return _ORDERS[name](p, m, v, min(group or p, m))


def replay(
    entries: Order, duration: Callable[[Operation], float], latency: float = 0, exchange: float = 0, pair: Callable[[Slot], float] | None = None
) -> list[Timed]:
    """Start and end of every slot when each rank runs its entries in order, as soon as what they need is there.

    `duration` gives the seconds of an operation, `latency` those of a message between two ranks (the sender goes on),
    `exchange` those of one blocking exchange, or of a parcel from when both its ends have issued it, `pair` those of an overlapped slot
    (default: the sum of its operations). The end of a batch is that of an empty slot.
    ValueError when the ranks wait for each other for ever.
    """
    home = {o[1:]: rank for rank, row in enumerate(entries) for e in row if not isinstance(e, (Exchange, Batch)) for o in e}
    last = max(stage for stage, _ in home)
    blocking = any(isinstance(e, (Exchange, Batch)) for row in entries for e in row)
    post = _Post(exchange)
    ends: dict[_Work, float] = {}
    clock: list[float] = [0] * len(entries)
    position = [0] * len(entries)
    timed: list[Timed] = []

    def ready(operation: Operation, rank: int) -> float:
        at = clock[rank]
        # where exchanges block, they carry the order between ranks
        for other in () if blocking else _needed(operation, last, ends):
            at = max(at, ends.get(other, inf) + (0 if home[other[1:]] == rank else latency))
        return at

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(entries):
            while position[rank] < len(row):
                entry = row[position[rank]]
                if isinstance(entry, Exchange):
                    there = entries[entry.peer]
                    if position[entry.peer] >= len(there) or there[position[entry.peer]] != Exchange(rank):
                        break
                    clock[rank] = clock[entry.peer] = max(clock[rank], clock[entry.peer]) + exchange
                    position[rank] += 1
                    position[entry.peer] += 1
                elif isinstance(entry, Batch):
                    moved = post.issue((rank, position[rank]), entry, clock[rank]) or moved
                    if not all(parcel in post.ended for parcel in entry.parcels):
                        break
                    before, clock[rank] = clock[rank], max([clock[rank], *(post.ended[parcel] for parcel in entry.parcels)])
                    timed.append(Timed(rank, (), before, clock[rank]))
                    position[rank] += 1
                else:
                    start = max([ready(o, rank) for o in entry])
                    if start == inf:
                        break
                    length = pair(entry) if pair is not None and len(entry) > 1 else sum(map(duration, entry))
                    clock[rank] = start + length
                    ends.update((o, clock[rank]) for o in entry)
                    timed.append(Timed(rank, entry, start, clock[rank]))
                    position[rank] += 1
                moved = True
    if any(position[rank] < len(row) for rank, row in enumerate(entries)):
        raise ValueError("the ranks wait for each other for ever")
    return timed


class _Post:
    """When parcels were first issued, and when those are over that both ends have issued."""

    def __init__(self, exchange: float):
        self.exchange = exchange
        self.posted: dict[Hashable, float] = {}
        self.ended: dict[Hashable, float] = {}
        self.batches: set[tuple[int, int]] = set()

    def issue(self, place: tuple[int, int], batch: Batch, now: float) -> bool:
        """Issue a batch at a rank's place, once; whether it was not yet."""
        if place in self.batches:
            return False
        self.batches.add(place)
        for parcel in batch.parcels:
            if parcel in self.posted:
                self.ended[parcel] = max(self.posted[parcel], now) + self.exchange
            else:
                self.posted[parcel] = now
        return True


def _needed(operation: Operation, last: int, ends: Mapping[_Work, float]) -> tuple[_Work, ...]:
    """What must have ended before an operation starts, where the model's last stage is `last`."""
    kind, stage, k = operation
    if kind == "F":
        return (("F", stage - 1, k),) if stage else ()
    if kind == "W":
        return (("I", stage, k),)
    if stage == last:
        return (("F", stage, k),)
    whole = ("B", stage + 1, k)
    return ("F", stage, k), whole if whole in ends else ("I", stage + 1, k)


def _one(kind: Kind, stage: int, microbatch: int) -> Slot:
    return (Operation(kind, stage, microbatch),)


def _gpipe(p: int, m: int, v: int, group: int) -> Order:
    return tuple(tuple(_one(kind, rank, k) for kind in ("F", "B") for k in range(m)) for rank in range(p))


def _looped_bfs(p: int, m: int, v: int, group: int) -> Order:
    def row(rank: int) -> Iterable[Slot]:
        for chunk in range(v):
            yield from (_one("F", chunk * p + rank, k) for k in range(m))
        for chunk in reversed(range(v)):
            yield from (_one("B", chunk * p + rank, k) for k in reversed(range(m)))

    return tuple(tuple(row(rank)) for rank in range(p))


def _grouped(m: int, v: int, group: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) in the order of the interleaved schedules: a group of micro-batches through every chunk."""
    return [(chunk, k) for first in range(0, m, group) for chunk in range(v) for k in range(first, min(first + group, m))]


def _alternating(p: int, m: int, v: int, group: int, warm_up: Callable[[int], int]) -> Order:
    table = _grouped(m, v, group)

    def row(rank: int) -> Iterable[Slot]:
        forward = [_one("F", chunk * p + rank, k) for chunk, k in table]
        backward = [_one("B", (v - 1 - chunk) * p + rank, k) for chunk, k in table]
        ahead = min(m * v, warm_up(rank))
        yield from forward[:ahead]
        for f, b in zip(forward[ahead:], backward):
            yield f
            yield b
        yield from backward[m * v - ahead :]

    return tuple(tuple(row(rank)) for rank in range(p))


def _1f1b(p: int, m: int, v: int, group: int) -> Order:
    return _alternating(p, m, 1, m, lambda rank: p - 1 - rank)


def interleaved_ahead(p: int, v: int, group: int, rank: int) -> int:
    """Forwards that a rank of the interleaved schedule runs before it takes turns, where there are as many."""
    return (v - 1) * group + 2 * (p - 1 - rank)


def _interleaved(p: int, m: int, v: int, group: int) -> Order:
    return _alternating(p, m, v, group, lambda rank: interleaved_ahead(p, v, group, rank))


def _split(p: int, m: int, v: int, group: int, ahead: Callable[[int], int], behind: Callable[[int], int]) -> tuple[tuple[Slot, ...], ...]:
    """Forward and input gradient in turn, weight gradients `behind` input gradients later (at the end, all that are left)."""
    table = _grouped(m, v, group)

    def row(rank: int) -> Iterable[Slot]:
        forward = [_one("F", chunk * p + rank, k) for chunk, k in table]
        back = [((v - 1 - chunk) * p + rank, k) for chunk, k in table]
        warm, late = min(m * v, ahead(rank)), behind(rank)
        yield from forward[:warm]
        for step in range(m * v):
            if warm + step < m * v:
                yield forward[warm + step]
            yield _one("I", *back[step])
            if step >= late:
                yield _one("W", *back[step - late])
        yield from (_one("W", *b) for b in back[max(0, m * v - late) :])

    return tuple(tuple(row(rank)) for rank in range(p))


def _interleaved_zb(p: int, m: int, v: int, group: int) -> Order:
    return _split(p, m, v, group, lambda rank: (v - 1) * group + p - 1 - rank, lambda rank: rank)


def _grouped_interleaved(p: int, m: int, v: int, group: int) -> Order:
    # the last group has the places of a whole one
    whole = _split(p, -(-m // group) * group, v, group, lambda rank: (v - 1) * group + p - 1 - rank, lambda rank: 0)
    return tuple(tuple(slot for slot in row if slot[0].microbatch < m) for row in whole)


def _zb_h1(p: int, m: int, v: int, group: int) -> Order:
    return _split(p, m, 1, m, lambda rank: p - 1 - rank, lambda rank: rank)


def _zb_h2(p: int, m: int, v: int, group: int) -> Order:
    return _split(p, m, 1, m, lambda rank: 2 * (p - 1 - rank), lambda rank: 2 * rank)


class _Counted:
    """Writes the operations of a rank with two chunks, numbering each kind's micro-batches as they come."""

    def __init__(self, stages: tuple[int, int], m: int):
        self.stages, self.m = stages, m
        self.next: dict[tuple[Kind, int], int] = {}
        self.slots: list[Slot] = []

    def number(self, kind: Kind, chunk: int) -> int:
        # a whole backward advances both of its parts
        parts: tuple[Kind, ...] = ("I", "W") if kind == "B" else (kind,)
        k = self.next.get((parts[0], chunk), 0)
        for part in parts:
            self.next[part, chunk] = self.next.get((part, chunk), 0) + 1
        return k

    def run(self, *work: tuple[Kind, int]) -> None:
        slot = tuple(Operation(kind, self.stages[chunk], self.number(kind, chunk)) for kind, chunk in work)
        slot = tuple(o for o in slot if o.microbatch < self.m)
        if slot:
            self.slots.append(slot)


def _zbv(p: int, m: int, v: int, group: int) -> Order:
    steps = max(m, 2 * p - 1)

    def row(rank: int) -> tuple[Slot, ...]:
        write = _Counted((rank, 2 * p - 1 - rank), m)
        started = [0, 0]

        def forward(chunk: int) -> None:
            started[chunk] += 1
            write.run(("F", chunk))

        def backward(chunk: int) -> None:
            write.run(("I", chunk))
            write.run(("W", chunk))

        for _ in range(2 * (p - rank) - 1):
            forward(0)
        for _ in range(rank):
            forward(1)
            forward(0)
        for _ in range(p - rank):
            forward(1)
            backward(1)
        while started[1] < started[0] or started[0] < steps:
            if started[0] < steps:
                forward(0)
            backward(0)
            forward(1)
            backward(1)
        for _ in range(rank):
            write.run(("I", 0))
            write.run(("I", 1))
        for _ in range(p - rank):
            backward(0)
        for chunk in (1, 0):
            while write.next.get(("W", chunk), 0) < steps:
                write.run(("W", chunk))
        return tuple(write.slots)

    return tuple(row(rank) for rank in range(p))


def _patterned(rows_of: Callable[[int, int], list[list[Pass]]]) -> Callable[[int, int, int, int], Order]:
    def order_of(p: int, m: int, v: int, group: int) -> Order:
        rows = enumerate(rows_of(p, m))
        return tuple(tuple(_one(kind, (rank, 2 * p - 1 - rank)[chunk], k) for kind, chunk, k in row) for rank, row in rows)

    return order_of


def _dualpipe_row(write: _Counted, half: int, depth: int, m: int) -> tuple[Slot, ...]:
    """The eight phases of DualPipe for the rank at distance `half` from its end of a pipe of `depth` pairs."""
    outside = depth - 1 - half
    for _ in range(2 * outside):
        write.run(("F", 0))
    for _ in range(half + 1):
        write.run(("F", 0))
        write.run(("F", 1))
    for _ in range(outside):
        write.run(("I", 1))
        write.run(("W", 1))
        write.run(("F", 1))
    for step in range(m - 2 * depth + half + 1):
        if step == 0 and outside == 0:
            write.run(("F", 0))
            write.run(("B", 1))
        else:
            write.run(("F", 0), ("B", 1))
        write.run(("F", 1), ("B", 0))
    for _ in range(outside):
        write.run(("B", 1))
        write.run(("F", 1), ("B", 0))
    # the second half of the last backwards leaves its weight gradients for the end
    for place in range(2 * (half + 1)):
        write.run(("B" if place <= half else "I", 1 - place % 2))
    pending = [o for slot in write.slots for o in slot if o.kind == "I"]
    done = {(o.stage, o.microbatch) for slot in write.slots for o in slot if o.kind == "W"}
    queue = [o for o in pending if (o.stage, o.microbatch) not in done]
    for _ in range(outside):
        late = queue.pop(0)
        write.slots.append(_one("W", late.stage, late.microbatch))
        write.run(("I", 0))
        queue.append(write.slots[-1][0])
    write.slots.extend(_one("W", late.stage, late.microbatch) for late in queue)
    return tuple(write.slots)


def _dualpipev(p: int, m: int, v: int, group: int) -> Order:
    return tuple(_dualpipe_row(_Counted((rank, 2 * p - 1 - rank), m), rank, p, m) for rank in range(p))


def _dualpipe(p: int, m: int, v: int, group: int) -> Order:
    """Micro-batches 0 .. m/2 - 1 enter at rank 0, the rest at rank p - 1, where stage k of theirs is on rank p - 1 - k."""

    def row(rank: int) -> tuple[Slot, ...]:
        half = min(rank, p - 1 - rank)
        mirrored = rank != half
        slots = _dualpipe_row(_Counted((half, p - 1 - half), m // 2), half, p // 2, m // 2)
        other = {half: mirrored, p - 1 - half: not mirrored}
        return tuple(tuple(o._replace(microbatch=o.microbatch + (m // 2 if other[o.stage] else 0)) for o in slot) for slot in slots)

    return tuple(row(rank) for rank in range(p))


def _merak(
    hoisted: Callable[[int, int, int], set[int]], merged: bool = True, last_recomputes: bool = True, swapped: bool = False
) -> Callable[[int, int, int, int], Order]:
    """The schedules of Merak: DeepSpeed's clock of 2(m + p - 1) steps, in which neighbours exchange, then compute.

    hoisted(p, m, rank): micro-batches whose recompute runs before their gradient is received, rather than after.
    """

    def order_of(p: int, m: int, v: int, group: int) -> Order:
        apart = [{k for k in hoisted(p, m, rank) if m - k + rank >= p} for rank in range(p)]

        def exchanges(rank: int, forward: bool, before: int, now: int) -> list[Entry]:
            peer = rank - 1 if forward else rank + 1
            count = sum(0 <= k < m for k in (before, now)) if 0 <= peer < p else 0
            # a gradient that its rank awaits with a hoisted recompute travels on its own
            gradient = before if forward else now
            single = not merged or gradient in apart[min(rank, peer)]
            return [Exchange(peer)] * (count if single else min(count, 1))

        def row(rank: int) -> Iterable[Entry]:
            before = -1
            ahead = hoisted(p, m, rank)
            recomputes = last_recomputes or rank < p - 1
            steps: list[list[Entry]] = []
            for step in range(2 * (m + p - 1)):
                forward = (step - rank) % 2 == 0
                now = (step - rank) // 2 if forward else (step + rank + 1) // 2 - p
                entries = exchanges(rank, forward, before, now)
                if 0 <= now < m and forward:
                    entries.append(_one("F", rank, now))
                elif 0 <= now < m:
                    if recomputes:
                        entries.insert(0 if now in ahead else len(entries), _one("R", rank, now))
                    entries.append(_one("B", rank, now))
                steps.append(entries)
                before = now
            if swapped and rank == p - 2:
                _third_forward_first(steps, rank)
            if swapped and rank == p - 3:
                _send_before_recompute(steps, rank)
            return (entry for entries in steps for entry in entries)

        return tuple(tuple(row(rank)) for rank in range(p))

    return order_of


def _step_of(steps: list[list[Entry]], slot: Slot) -> int:
    return next(n for n, entries in enumerate(steps) if slot in entries)


def _third_forward_first(steps: list[list[Entry]], rank: int) -> None:
    """Forward 2 with its receive before backward 0; the gradient of 0 is sent once backward 0 has run."""
    backward, forward = _step_of(steps, _one("B", rank, 0)), _step_of(steps, _one("F", rank, 2))
    received = [e for e in steps[forward] if isinstance(e, Exchange)][:1]
    steps[forward], steps[backward] = [*steps[backward], *received], [*received, _one("F", rank, 2)]


def _send_before_recompute(steps: list[list[Entry]], rank: int) -> None:
    """The rank that follows takes its third forward early: it is sent before the hoisted recompute of micro-batch 0."""
    entries = steps[_step_of(steps, _one("B", rank, 0))]
    entries[:] = [Exchange(rank + 1), _one("R", rank, 0), Exchange(rank + 1), _one("B", rank, 0)]


def _last_ones(p: int, m: int, rank: int) -> set[int]:
    return set(range(max(0, m - p + rank + 1), m))


def _not_on_last(p: int, m: int, rank: int) -> set[int]:
    return _last_ones(p, m, rank) if rank < p - 2 else {0} if rank == p - 2 else set()


def _shifted(p: int, m: int, rank: int) -> set[int]:
    return {0, 1} if rank == p - 2 else _not_on_last(p, m, rank) | ({0} if rank == p - 3 else set())


_ORDERS: Mapping[str, Callable[[int, int, int, int], Order]] = {
    "gpipe": _gpipe,
    "1f1b": _1f1b,
    "interleaved": _interleaved,
    "looped_bfs": _looped_bfs,
    "zb_h1": _zb_h1,
    "zb_h2": _zb_h2,
    "interleaved_zb": _interleaved_zb,
    "grouped_interleaved": _grouped_interleaved,
    "zbv": _zbv,
    "v_half": _patterned(partial(from_pattern, half_places)),
    "v_min": _patterned(partial(from_pattern, least_places)),
    "1f1b_v": _patterned(whole_backwards),
    "dualpipe": _dualpipe,
    "dualpipev": _dualpipev,
    "ds_default": _merak(lambda p, m, rank: set(), merged=False),
    "merak_1f1b": _merak(lambda p, m, rank: set()),
    "pre_recompute_1f1b": _merak(_last_ones),
    "last_no_recompute_1f1b": _merak(_not_on_last, last_recomputes=False),
    "shifted_critical_path": _merak(_shifted, last_recomputes=False, swapped=True),
}
