"""What became of the configurations of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


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
