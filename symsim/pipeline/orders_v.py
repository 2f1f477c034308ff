"""Orders of two chunks a rank in the shape of a V that follow from a pattern: V-Half, V-Min and 1F1B-V of the zero-bubble fork of Megatron-LM.

A pattern says in which place of a clock of ranks each micro-batch's four passes are, six places a micro-batch; weight gradients take what is left
free, or stand behind input gradients. Passes are then moved forward as far as messages, and what a rank holds at most, allow: in V-Half and V-Min
those before and after the steady state (scheduler/zbv_greedy.py, v1f1b.py; arXiv 2405.15362 section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Literal

Pass = tuple[Literal["F", "B", "I", "W"], int, int]
"""Of what kind, of which chunk and of which micro-batch."""
_PERIOD = 6
# the passes of a micro-batch on a rank one after the other, and whether each comes from the rank before it
_PASSES: tuple[tuple[Literal["F", "I"], int, bool], ...] = (("F", 0, True), ("F", 1, False), ("I", 1, True), ("I", 0, False))


def half_places(rank: int, p: int) -> tuple[int, int, int, int]:
    """V-Half: places of a rank's forwards of chunks 0 and 1, and of its input gradients of chunks 1 and 0."""
    gap = 3 * (p % 2 == 0)
    return 2 * rank, 3 * p - 2 - rank, 3 * p - 1 + gap + 2 * rank, 6 * p - 2 + gap - rank


def least_places(rank: int, p: int) -> tuple[int, int, int, int]:
    """V-Min: the same."""
    gap = 2 * (p % 3 == 0)
    return rank, 2 * p - 1 - rank, 2 * p + gap + rank, 4 * p + gap - 1 - rank


@dataclass
class _Rank:
    """Places of a rank's four passes of each micro-batch, and of its weight gradients in turn."""

    passes: list[list[int]]
    weights: list[int] = field(default_factory=list)

    def waiting(self) -> list[tuple[int, int]]:
        """(place, chunk) of every weight gradient: in the first free places after input gradients, those of chunk 1 first."""
        taken = {place: which for which, row in enumerate(self.passes) for place in row}
        counts, found = [0, 0], []
        for place in range(max(taken) + 1):
            if place in taken:
                if taken[place] >= 2:
                    counts[taken[place] - 2] += 1
            elif any(counts):
                chunk = 0 if counts[0] else 1
                counts[chunk] -= 1
                found.append((place, 1 - chunk))
        left = [1] * counts[0] + [0] * counts[1]
        return found + [(max(taken) + 1 + n, chunk) for n, chunk in enumerate(left)]

    def most_held(self) -> int:
        """Forwards whose weight gradient is still to come, at most; without weight gradients those that free places would run."""
        weights = self.weights or [place for place, _ in self.waiting()]
        changes = sorted([(place, 1) for row in self.passes[:2] for place in row] + [(place, -1) for place in weights])
        held = most = 0
        for _, change in changes:
            held += change
            most = max(most, held)
        return most

    def row(self, which: int) -> list[int]:
        return self.weights if which == len(_PASSES) else self.passes[which]


def _needed(ranks: Sequence[_Rank], rank: int, which: int, k: int) -> int:
    """The last place that a pass waits for, -1 where it waits for none."""
    before = [ranks[rank].row(which)[k - 1]] if k else []
    if which == len(_PASSES):
        return max([*before, sorted(chain(*ranks[rank].passes[2:]))[k]])
    if which:
        before.append(ranks[rank].passes[which - 1][k])
    other = rank - 1 if _PASSES[which][2] else rank + 1
    if 0 <= other < len(ranks):
        before.append(ranks[other].passes[which][k])
    return max(before, default=-1)


def _every(ranks: Sequence[_Rank]) -> list[tuple[int, int, int, int]]:
    """(place, rank, which, micro-batch) of every pass, in turn."""
    return sorted(
        (place, n, which, k) for n, rank in enumerate(ranks) for which in range(len(_PASSES) + 1) for k, place in enumerate(rank.row(which))
    )


def _moved_forward(ranks: list[_Rank], weights: bool) -> list[_Rank]:
    """Passes outside the steady state moved forward: both before and after it where weight gradients have places, else after it alone."""
    for rank in ranks:
        rank.weights = [place for place, _ in rank.waiting()] if weights else []
    limit, last = max(rank.most_held() for rank in ranks), len(ranks[0].passes[0]) - 1
    taken: list[set[int]] = [set() for _ in ranks]
    started = ended = False
    for place, n, which, k in _every(ranks):
        rank, row = ranks[n], ranks[n].row(which)
        started = started or (which == 3 and n == 0)
        steady = started and not ended
        ended = ended or (steady and which == 0 and k == last)
        if not steady and (weights or started):
            for earlier in range(_needed(ranks, n, which, k) + 1, place):
                row[k] = earlier
                if earlier not in taken[n] and rank.most_held() <= limit:
                    break
            else:
                row[k] = place
        taken[n].add(row[k])
    for rank in ranks:
        rank.weights = rank.weights or [place for place, _ in rank.waiting()]
    return _as_early_as_can_be(ranks)


def _as_early_as_can_be(ranks: Sequence[_Rank]) -> list[_Rank]:
    """The same passes in the same turn on each rank, each in the first place that it can have; weight gradients are left out."""
    made = [_Rank([[] for _ in _PASSES]) for _ in ranks]
    free = [0] * len(ranks)
    for _, n, which, k in _every(ranks):
        if which == len(_PASSES):
            free[n] += 1
            continue
        rows = made[n].passes
        rows[which].append(free[n])
        rows[which][k] = max(free[n], _needed(made, n, which, k) + 1)
        free[n] = rows[which][k] + 1
    return made


def from_pattern(places: Callable[[int, int], tuple[int, int, int, int]], p: int, m: int) -> list[list[Pass]]:
    """What each of p ranks runs in turn for m micro-batches."""
    ranks = [_Rank([[first + _PERIOD * k for k in range(m)] for first in places(n, p)]) for n in range(p)]
    for weights in (True, False):
        ranks = _moved_forward(ranks, weights)
    found: list[list[Pass]] = []
    for rank in ranks:
        row = [(place, kind, chunk, k) for (kind, chunk, _), own in zip(_PASSES, rank.passes) for k, place in enumerate(own)]
        done = [0, 0]
        waiting: list[tuple[int, Literal["F", "I", "W"], int, int]] = list(row)
        for place, chunk in rank.waiting():
            waiting.append((place, "W", chunk, done[chunk]))
            done[chunk] += 1
        found.append([(kind, chunk, k) for _, kind, chunk, k in sorted(waiting)])
    return found


def _first_places(p: int) -> list[list[int]]:
    """1F1B-V: places of each rank's passes of the first micro-batch; a backward takes the one behind it too."""
    rows = [[rank, 2 * p - 1 - rank, 0, 0] for rank in range(p)]
    place, left = 2 * p + 3 * (p % 3 == 0), (p + 2) % 3 or 3
    for which, ranks in ((2, range(p)), (3, range(p - 1, -1, -1))):
        for rank in ranks:
            rows[rank][which] = place
            left -= 1
            # behind every third are places for what other ranks run
            place, left = place + 2 + 3 * (not left), left or 3
    return rows


def _ahead(rank: int, which: int, k: int, p: int) -> list[tuple[int, int, int]]:
    """What a pass waits for; 4 and 5 are the second halves of the backwards 2 and 3."""
    own = [(rank, which, k - 1)]
    if which > 3:
        return [*own, (rank, which - 2, k)]
    other = rank - 1 if which % 2 == 0 else rank + 1
    if 0 <= other < p:
        return [*own, (other, which + 2 * (which > 1), k)]
    return [*own, (rank, (-1, 0, 1, 4)[which], k)]


def whole_backwards(p: int, m: int) -> list[list[Pass]]:
    """1F1B-V: what each of p ranks runs in turn for m micro-batches."""
    ranks = [
        {first + _PERIOD * k: (which, k) for which, first in enumerate([*row, row[2] + 1, row[3] + 1]) for k in range(m)} for row in _first_places(p)
    ]
    end = max(map(max, ranks)) + 1
    held = [list(accumulate((rank[n][0] < 2) - (rank[n][0] > 3) if n in rank else 0 for n in range(end))) for rank in ranks]
    limit = max(map(max, held))
    done: dict[tuple[int, int, int], int] = {}
    for place in range(end):
        for n, rank in enumerate(ranks):
            if place not in rank:
                continue
            which, k = rank[place]
            now = max((done[one] for one in _ahead(n, which, k, p) if one in done), default=-1) + 1
            if which < 2:
                now = max([now, *(t + 1 for t in range(now, place) if held[n][t] >= limit)])
            while now < place and (now in rank or (which in (2, 3) and now + 1 in rank)):
                now += 1
            done[n, which, k] = now
            if now < place:
                rank[now] = rank.pop(place)
                for t in range(now, place):
                    held[n][t] += (which < 2) - (which > 3)
    return [[("F" if which < 2 else "B", int(which in (1, 2)), k) for _, (which, k) in sorted(rank.items()) if which < 4] for rank in ranks]
