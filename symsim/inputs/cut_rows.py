"""How much rows differ that are cut from a stream of documents: variance of a row's sum of squared pieces.

A row begins anywhere in the stream, and its first and its last piece go together: of documents of one length they add up to the same wherever a row
is cut. What t tokens hold that begin with a document follows from what fewer hold, a document at a time: its moments here, its distribution in
`longest_rows.py`. What is left of one in which a row begins is the residual life of a renewal process (Ross, Stochastic Processes, sec. 3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

# lengths are counted in so many parts of a row
PARTS = 400
_Moments = tuple[float, float]
T = TypeVar("T")
Begins = Callable[[int, Sequence[float], float, list[T]], T]
"""What so many parts hold whose first piece is of 0, 1, .. parts so often, and of all of them in the share that is next; the list: what fewer parts
hold that begin with a document."""


def work_of_rows(counted: Sequence[tuple[float, float]], row: int, anywhere: bool) -> float:
    """The variance of a row's work over its mean squared. counted: (length, how many) before documents are cut; anywhere: a row begins in any of a
    document's tokens, else with a document."""
    often = [0.0] * (PARTS + 1)
    for u, n in counted:
        parts = min(u * PARTS / row, PARTS)
        k = min(int(parts), PARTS - 1)
        often[k] += n * (k + 1 - parts)
        often[k + 1] += n * (parts - k)
    # what has no length is no document
    number = sum(often[1:])
    often = [0.0, *(n / number for n in often[1:])]
    mean = sum(u * n for u, n in counted) * PARTS / row / number
    one, two = of_row(often, mean if anywhere else 0, _moments, (0.0, 0.0))
    return two / one**2 - 1


def of_row(often: Sequence[float], mean: float, begins: Begins[T], nothing: T) -> T:
    """What a row holds. often: the share of documents of 0, 1, .. parts, the last of a whole row; mean: parts of a document as long as it is, where
    rows begin anywhere in one, 0 where they begin with one; nothing: what no part holds."""
    parts, longer, begun = len(often) - 1, [1.0], [nothing]
    for share in often:
        longer.append(longer[-1] - share)
    for t in range(1, parts + 1):
        begun.append(begins(t, often[:t], longer[t], begun))
    if not mean:
        return begun[-1]
    left = [longer[1] / (2 * mean), *((longer[k] + longer[k + 1]) / (2 * mean) for k in range(1, parts))]
    return begins(parts, left, 1 - sum(left), begun)


def _moments(t: int, often: Sequence[float], whole: float, begun: list[_Moments]) -> _Moments:
    """The first two of the work."""
    one, two = whole * t**2, whole * t**4
    for k, share in enumerate(often):
        if share:
            work, (a, b) = k * k, begun[t - k]
            one += share * (work + a)
            two += share * (work * (work + 2 * a) + b)
    return one, two
