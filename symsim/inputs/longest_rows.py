"""By how many deviations the longest of n rows, or sums of j rows, lies above the mean: coefficients of a closed form in n and j.

A row's work is a distribution on a grid: of one document's length or its square, or of the squared pieces of all that a row holds, a document after
the other. That n independent ones all stay below x has the probability F(x)^n, from which the mean of the largest follows (David and Nagaraja,
Order Statistics, 2003, sec. 3.1); sums of j rows are its convolutions. In the mean xi of the largest of n normal numbers (Tippett) they are close to

    xi + (a_1 xi + a_2 xi^2) / j^(1/2) + (b_1 xi + .. + b_5 xi^5) / j + (c_1 xi + .. + c_5 xi^5) / j^(3/2) + (d_1 xi + .. + d_5 xi^5) / j^2

in the powers of Cornish and Fisher's expansion (Rev. Inst. Int. Stat. 5, 1938), whose coefficients are least squares of the relative error over 2 to
4,096 sums of 1 to 64 rows. Moments alone do not do: rows that hold no more of a document than fits have a heavy tail that ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from symsim.algebra.vocabulary import LONGEST_TERMS as TERMS
from symsim.inputs.cut_rows import of_row

_RANKS = tuple(2**k for k in range(1, 13))
_SUMS = (1, 2, 4, 8, 16, 64)
# cells of the grid of one row's work; parts of a row that documents are counted in; so many pieces a row at most, of longer ones a share of the row
_CELLS, _PARTS, _PIECES = 2048, 128, 20
Counted = Iterable[tuple[float, float]]


def of_documents(counted: Counted, power: int) -> tuple[float, ...]:
    """Coefficients of rows of one document each, whose work is this power of its length. counted: (length, share)."""
    lengths, shares = (np.array(x, dtype=float) for x in zip(*counted))
    work = lengths**power
    return _fitted(_on_grid(work / work.max() * _CELLS, shares, _CELLS))


def of_packed(counted: Counted, row: float, cut: bool) -> tuple[float, ...]:
    """The same of rows that are filled, by their squared pieces; cut: a row begins anywhere in a document, else with one."""
    lengths, shares = (np.array(x, dtype=float) for x in zip(*counted))
    alike = max(1, int(row / max(_PIECES * (lengths @ shares) / shares.sum(), 2 * _longest(lengths, shares))))
    parts = lengths * (_PARTS * alike / row)
    often = _on_grid(np.minimum(parts, _PARTS), shares, _PARTS)
    # what has no length is no document
    long = 1 - often[0]
    often[0] = 0
    mean = (parts @ shares) / shares.sum() / long if cut else 0
    found = _fitted(of_row([float(n) for n in often / long], mean, _beginning, np.ones(1)))
    return tuple(c / alike ** (i / 2) for c, (_, i) in zip(found, TERMS))


def _longest(lengths: Any, shares: Any) -> float:
    """Behind which there is hardly any attention."""
    work = np.cumsum((lengths**2 * shares)[::-1])
    return float(lengths[::-1][np.searchsorted(work, 1e-6 * work[-1])])


def _beginning(t: int, often: Sequence[float], whole: float, begun: list[Any]) -> Any:
    """How often they have so much work, in squared parts."""
    found = np.zeros(t * t + 1)
    found[-1] = whole
    for k, share in enumerate(often):
        if share:
            rest = begun[t - k]
            found[k * k : k * k + len(rest)] += share * rest
    return found


def _on_grid(at: Any, shares: Any, cells: int) -> Any:
    """Shares of whole numbers, with the same mean."""
    low = np.minimum(at.astype(int), cells - 1)
    found = np.zeros(cells + 1)
    np.add.at(found, low, shares * (low + 1 - at))
    np.add.at(found, low + 1, shares * (at - low))
    return found / found.sum()


def _fitted(row: Any) -> tuple[float, ...]:
    """row: how often a row's work is 0, 1, 2, .. of whatever unit."""
    there = np.flatnonzero(row > 1e-12)
    first, last = int(there[0]), max(int(there[-1]), int(there[0]) + 1)
    row = _on_grid((np.arange(first, last + 1) - first) * min(1, _CELLS / (last - first)), row[first : last + 1], min(_CELLS, last - first))
    steps = np.arange(len(row))
    mean = row @ steps
    deviation = math.sqrt(max(0.0, row @ steps**2 - mean**2))
    if deviation < 1e-6 * mean:
        return (0.0,) * len(TERMS)
    xi = _normal()
    terms, rest = [], []
    for j in _SUMS:
        length = j * (len(row) - 1) + 1
        size = 1 << (length - 1).bit_length()
        added = np.fft.irfft(np.fft.rfft(row, size) ** j, size)[:length] if j > 1 else row
        below = np.clip(added.cumsum(), 0, 1)
        for n, z in zip(_RANKS, xi):
            largest = (length - 1 - (below[:-1] ** n).sum() - j * mean) / (deviation * math.sqrt(j))
            terms.append([z**k * j ** (-i / 2) / largest for k, i in TERMS])
            rest.append(1 - z / largest)
    return tuple(float(x) for x in np.linalg.lstsq(np.array(terms), np.array(rest), rcond=None)[0])


@cache
def _normal() -> list[float]:
    """The means of the largest of _RANKS normal numbers."""
    z = np.linspace(-8, 8, 3201)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    return [float(8 - np.trapezoid(below**n, z)) for n in _RANKS]
