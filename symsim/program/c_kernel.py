"""A plan as a C function, built by the system's compiler and called through ctypes, which lets go of Python's lock."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from symsim.program.c_build import CompilerError, compiler, library
from symsim.program.c_memory import aligned
from symsim.program.c_source import Numbering, Printed, Printer
from symsim.program.plan import Plan
from symsim.program.value import is_boolean

__all__ = ["LONGEST", "CKernel", "CompilerError", "compiler"]

Array = np.ndarray

# elements of a plan's vector: what a visit keeps then stays in the first two caches
LONGEST = 2048
# points of the outputs that are handed to a sink together
_FILLED_POINTS = 1 << 16


class CKernel:
    """A plan ready to run; calls from several threads run at the same time. CompilerError where it cannot be built."""

    def __init__(self, plan: Plan, guard: int | None = None, wanted: int | None = None):
        """guard: as in NumpyKernel; without one `scan_best` skips nothing. wanted: index of an output that holds where points matter
        at all; `scan` then leaves out vectors in which it holds nowhere."""
        self.plan, self.guard, self.wanted = plan, guard, wanted
        self._made: dict[str, tuple[Printed, Any]] = {}
        self._function("best" if guard is not None else "fill")

    @property
    def source(self) -> str:
        return next(iter(self._made.values()))[0].source

    def scan_best(self, first: int, last: int, count: int, worst: float, numbering: Numbering) -> tuple[Array, Array]:
        """Of blocks first .. last - 1: the `count` least values, rising, none above `worst`, where the second output holds; and the numbers
        of their points. Of points that tie those with the least numbers."""
        printed, function = self._function("best")
        count = min(count, (last - first) * self.plan.block_points)
        if count <= 0:
            return np.empty(0), np.empty(0, dtype=np.int64)
        room = count + min(max(count, 32), 1 << 20)
        values, numbers = np.empty(room), np.empty(room, dtype=np.int64)
        scratch, places = aligned(printed.scratch), printed.places(numbering)
        kept = function(
            first * printed.visits,
            last * printed.visits,
            *map(_pointer, (printed.tables, printed.maps, scratch, places, values, numbers)),
            count,
            room,
            worst,
        )
        values, numbers = values[:kept], numbers[:kept]
        order = np.lexsort((numbers, values))
        return values[order], numbers[order]

    def scan(self, first: int, last: int, sink: Any) -> None:
        """Hand every vector of blocks first .. last - 1 to the sink, as NumpyKernel.scan does."""
        printed, function = self._function("fill")
        length, guard = self.plan.length, self.guard
        capacity = max(1, min(_FILLED_POINTS // length, (last - first) * printed.visits))
        outputs = [np.empty((capacity, length), dtype=bool if is_boolean(v) else np.float64) for v in self.plan.outputs]
        pointers = (ctypes.c_void_p * len(outputs))(*map(_pointer, outputs))
        vectors = np.empty(capacity, dtype=np.int64)
        filled = ctypes.c_int64(0)
        scratch = aligned(printed.scratch)
        start, end = first * printed.visits, last * printed.visits
        at = start
        while at < end:
            arrays = map(_pointer, (printed.tables, printed.maps, scratch))
            at = function(at, end, *arrays, at > start, capacity, _pointer(vectors), pointers, ctypes.byref(filled))
            for k in range(filled.value):
                if guard is None or sink.wanted(outputs[guard][k]):
                    sink(int(vectors[k]), *(o[k] for o in outputs))

    def _function(self, mode: str) -> tuple["Printed", Any]:
        if mode not in self._made:
            printed = Printer(self.plan, mode, self.guard, self.wanted).printed()
            function = getattr(library(printed.source), mode)
            function.restype = ctypes.c_int64
            function.argtypes = _ARGUMENTS[mode]
            self._made[mode] = (printed, function)
        return self._made[mode]


_I, _P = ctypes.c_int64, ctypes.c_void_p
_ARGUMENTS = {"best": [_I, _I, *[_P] * 6, _I, _I, ctypes.c_double], "fill": [_I, _I, *[_P] * 3, _I, _I, _P, _P, _P]}


def _pointer(array: Array) -> int:
    return int(array.ctypes.data)
