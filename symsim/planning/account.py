"""What became of the configurations of a search, and what was found of each kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symsim.grid.family import Array


@dataclass(frozen=True)
class Found:
    """A configuration: the value of the objective, its point in the grid of sizes, and its options besides."""

    value: float
    point: int
    options: Mapping[str, Any]


@dataclass
class Account:
    """What became of the configurations: refused by a rule, ruled out by the bound of time or of memory, or evaluated. bound: the least that one of
    those ruled out by time could take."""

    refused: dict[str, int] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    slower: int = 0
    larger: int = 0
    evaluated: int = 0
    bound: float = math.inf
    cells: int = 0
    derivations: int = 0

    @property
    def settled(self) -> int:
        return sum(self.refused.values()) + self.slower + self.larger + self.evaluated

    def add(self, other: "Account") -> None:
        """What became of further configurations."""
        for name, number in other.refused.items():
            self.refused[name] = self.refused.get(name, 0) + number
        self.why = {**other.why, **self.why}
        self.slower, self.larger, self.evaluated = self.slower + other.slower, self.larger + other.larger, self.evaluated + other.evaluated
        self.derivations, self.cells = self.derivations + other.derivations, self.cells + other.cells
        self.bound = min(self.bound, other.bound)


@dataclass
class Known:
    """What was found so far: the best of every kind; of every kind of options, by the kind of a point, the least; and what is needed to be one of the
    best kinds."""

    best: dict[tuple[Any, ...], Found] = field(default_factory=dict)
    reached: dict[tuple[Any, ...], Array] = field(default_factory=dict)
    enough: float = math.inf

    def add(self, kind: tuple[Any, ...], code: int, found: Found, kinds: int, top: int) -> None:
        """A configuration; of equal ones the first stays. kinds: how many kinds of points there are; top: how many of all are wanted."""
        reached = self.reached.setdefault(kind, np.full(kinds, np.inf))
        if found.value < reached[code]:
            reached[code] = found.value
            self.best[(*kind, code)] = found
            if len(self.best) >= top:
                self.enough = sorted(f.value for f in self.best.values())[top - 1]
