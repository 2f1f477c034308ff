"""How much rows differ that are cut from a stream of documents: variance of a row's sum of squared pieces.

A row begins anywhere in the stream, and its first and its last piece go together: of documents of one length they add up to the same wherever a row
is cut. Moments of what t tokens hold that begin with a document follow from those of fewer tokens, a document at a time; what is left of one in
which a row begins is the residual life of a renewal process (Ross, Stochastic Processes, sec. 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence

# lengths are counted in so many parts of a row
PARTS = 400
_Moments = tuple[float, float]


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
    longer = [1.0]
    for share in often:
        longer.append(longer[-1] - share)
    begun: list[_Moments] = [(0.0, 0.0)]
    for t in range(1, PARTS + 1):
        begun.append(_moments(t, often, longer[t], begun))
    if not anywhere:
        one, two = begun[PARTS]
        return two / one**2 - 1
    left = [longer[1] / (2 * mean), *((longer[k] + longer[k + 1]) / (2 * mean) for k in range(1, PARTS))]
    one, two = _moments(PARTS, left, 1 - sum(left), begun)
    return two / one**2 - 1


def _moments(t: int, often: Sequence[float], whole: float, begun: Sequence[_Moments]) -> _Moments:
    """The first two of the work in t parts whose first piece is of so many parts so often, and of all t in the share `whole`; begun: of those that
    begin with a document."""
    one, two = whole * t**2, whole * t**4
    for k, share in enumerate(often[:t]):
        if share:
            work, (a, b) = k * k, begun[t - k]
            one += share * (work + a)
            two += share * (work * (work + 2 * a) + b)
    return one, two
