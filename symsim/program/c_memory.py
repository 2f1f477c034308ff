"""What a C kernel reads and what it keeps, and where in it an element lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symsim.program.c_build import CompilerError
from symsim.program.plan import Plan

Array = np.ndarray

# rows are padded to whole registers, with copies of their last element
_LANES = 8
# beyond this many elements of arrays a copy as doubles is too much memory
_MOST_TABLES = 1 << 26


class Memory:
    """D: tables of doubles. M: maps, of places in them. W: scratch, doubles that a call needs. inner: loops inside a vector."""

    def __init__(self, plan: Plan, inner: Sequence[int]):
        self.plan, self.inner = plan, inner
        self.scratch = 0
        self._tables: list[Array] = []
        self._maps: list[Array] = []
        self._tabled = self._mapped = 0

    def table(self, data: Array) -> int:
        """Add numbers to D; where they begin. CompilerError where they are too many."""
        at = self._tabled
        self._tabled += whole(data.size)
        if self._tabled > _MOST_TABLES:
            raise CompilerError("arrays too large to be copied")
        padded = np.zeros(whole(data.size))
        padded[: data.size] = data.reshape(-1)
        self._tables.append(padded)
        return at

    def map(self, positions: Array) -> int:
        """Add positions to M; where they begin."""
        at = self._mapped
        self._maps.append(positions.astype(np.int64))
        self._mapped += positions.size
        return at

    def reserved(self, elements: int) -> int:
        """Where so many doubles of W begin."""
        at = self.scratch
        self.scratch += whole(elements)
        return at

    def read(self) -> tuple[Array, Array]:
        """D and M."""
        tables = aligned(self._tabled)
        tables[:] = np.concatenate([np.empty(0), *self._tables])
        return tables, np.concatenate([np.empty(0, dtype=np.int64), *self._maps])

    def in_order(self, data: Array) -> Array:
        """An array with its axes in the order of the plan."""
        order = self.plan.order
        return np.transpose(data, [*order, *(a for a in range(data.ndim) if a not in order)]).reshape([data.shape[a] for a in order])

    def index(self, at: int, mask: int, stride: int = 1) -> str:
        """Where an element lies of an array that begins at `at`: by the loops that it depends on, `stride` elements an iteration."""
        parts = []
        for axis in reversed((*self.plan.lead, *self.plan.loops, *self.inner)):
            if mask >> axis & 1:
                parts.append(f"i{axis} * {stride}" if stride != 1 else f"i{axis}")
                stride *= self.plan.program.sizes[axis]
        return " + ".join([str(at), *reversed(parts)])

    def place(self, at: int, mask: int, stride: int = 1) -> str:
        """Where an element lies in what is kept of one vector."""
        return self.index(at, mask & self.plan.mask(self.inner), stride)


def whole(elements: int) -> int:
    """Rounded up to whole registers."""
    return -(-elements // _LANES) * _LANES


def aligned(elements: int) -> Array:
    """Uninitialised doubles that begin where a cache line does."""
    raw = np.empty(elements + 8)
    start = -raw.ctypes.data % 64 // 8
    return raw[start : start + elements]
