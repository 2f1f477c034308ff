"""What benchmarks find: figures with their unit, and blocks of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

# units of figures: how much one is of a second, a byte, or one of them a second
_RATES = {"GB/s": 1e9, "Gop/s": 1e9, "M/s": 1e6, "k/s": 1e3, "1/s": 1.0}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_OTHERS = {"MiB": 2.0**20, "%": 0.01, "x": 1.0}


@dataclass(frozen=True)
class Figure:
    """amount: seconds, bytes, a number, or any of these a second, shown in `unit`. limit: the most that the machine allows, likewise.
    busy: share of the time for which the cores that were used worked on it, where that was looked at."""

    what: str
    amount: float
    unit: str
    limit: float | None = None
    busy: float | None = None

    @property
    def value(self) -> float:
        """The amount in its unit."""
        return self.amount / {**_RATES, **_TIMES, **_OTHERS}[self.unit]

    @property
    def share(self) -> float | None:
        return None if self.limit is None else self.amount / self.limit

    def ratio(self, workload: float) -> float | None:
        """To the workload's points a second: of a rate how many there are in the time of a point, of a time how many points pass."""
        if self.unit in _RATES:
            return self.amount / workload
        return self.amount * workload if self.unit in _TIMES else None


@dataclass(frozen=True)
class Block:
    """What a benchmark found. held: whether the memory that its processes held is a figure of its own. workload: points of it a second
    just before."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    held: bool = False
    workload: float = math.nan


def three_digits(x: float) -> str:
    """A number as a text of three digits."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    digits = 2 - math.floor(math.log10(abs(x)))
    return f"{round(x, digits):,.{max(0, digits)}f}" if -4 < digits < 5 else f"{x:.2e}"
