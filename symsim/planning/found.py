"""What a search found so far: the best of every kind, or the best of all configurations one by one; and what is needed to be among them.

Bounds and values are sums of the same terms in other orders: closer than a billionth they count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from symsim.grid.family import Array

ROUNDING = 1e-9
Rows = tuple[int | None, ...]
Kind = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A configuration: the value of the objective, its point in the grid of sizes, and of every choice the row taken (None where all have this
    value)."""

    value: float
    point: int
    rows: Rows


# what one search tells another: of kinds of options, and of points, what was found
Told = tuple[Kind, int, Found]


@dataclass
class OfKinds:
    """The best of each of the best kinds. codes: of every point of the grid the number of its kind; top: of so many kinds the best is wanted. Of
    equal ones the first that was found stays."""

    codes: Array
    top: int
    _best: dict[tuple[Kind, int], Found] = field(default_factory=dict)
    # of every kind of options, by the kind of a point, the least
    _reached: dict[Kind, Array] = field(default_factory=dict)
    _enough: float = math.inf

    def worse(self, kind: Kind | None, points: Array, low: Array) -> Array:
        """Which points of a cell, below whose bounds nothing is, are not wanted any more. kind: of its options, None while some that tell kinds apart
        are free."""
        reached = self._reached.get(kind) if kind is not None else None
        most = self._enough if reached is None else np.minimum(self._enough, reached[self.codes[points]])
        found: Array = low >= most * (1 - ROUNDING)
        return found

    def take(self, kind: Kind, points: Array, values: Array, rows: Rows, members: int) -> list[Told]:
        """Take up configurations that were evaluated, so many members at every point; what is to be told of them."""
        codes = self.codes[points]
        order = np.lexsort((points, values, codes))
        _, first = np.unique(codes[order], return_index=True)
        told = [(kind, int(codes[k]), Found(float(values[k]), int(points[k]), rows)) for k in order[first]]
        self.hear(told)
        return told

    def hear(self, told: Iterable[Told]) -> None:
        for kind, code, found in told:
            reached = self._reached.setdefault(kind, np.full(int(self.codes.max()) + 1, np.inf))
            if found.value < reached[code]:
                reached[code] = found.value
                self._best[kind, code] = found
                if len(self._best) >= self.top:
                    self._enough = sorted(f.value for f in self._best.values())[self.top - 1]

    @property
    def best(self) -> list[Found]:
        return sorted(self._best.values(), key=lambda f: (f.value, f.point))[: self.top]


@dataclass
class OfPoints:
    """As `OfKinds`, of the best configurations one by one, with all that equal the last of them. counted: how many configurations are of some
    rows."""

    top: int
    counted: dict[Rows, int] = field(default_factory=dict)
    _found: list[Found] = field(default_factory=list)
    _enough: float = math.inf

    def worse(self, kind: Kind | None, points: Array, low: Array) -> Array:
        found: Array = low > self._enough * (1 + ROUNDING)
        return found

    def take(self, kind: Kind, points: Array, values: Array, rows: Rows, members: int) -> list[Told]:
        self.counted[rows] = members
        most = self._enough
        if len(values) * members > self.top:
            most = min(most, float(np.sort(values)[-(-self.top // members) - 1]))
        told = [(kind, members, Found(float(values[k]), int(points[k]), rows)) for k in np.flatnonzero(values <= most * (1 + ROUNDING))]
        self.hear(told)
        return told

    def hear(self, told: Iterable[Told]) -> None:
        for _, members, found in told:
            self.counted[found.rows] = members
            self._found.append(found)
        self._found.sort(key=lambda f: (f.value, f.point))
        several = np.cumsum([self.counted[f.rows] for f in self._found])
        if len(several) and several[-1] >= self.top:
            self._enough = self._found[int(np.searchsorted(several, self.top))].value
            most = self._enough * (1 + ROUNDING)
            self._found = [f for f in self._found if f.value <= most]

    @property
    def best(self) -> Sequence[Found]:
        return self._found
