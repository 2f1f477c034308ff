"""The work of a sweep on a group of variants: its kernel, the numbers of its points, and what a walk over a block leaves behind.

A point's number is its place in the whole grid, axes in the order given, the last fastest; results that tie are told apart by
it, so that they do not depend on how the grid is walked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from symsim.errors import InputError
from symsim.grid.family import Array
from symsim.grid.group import Group
from symsim.grid.processes import Receive, Send, beside
from symsim.grid.question import Question, objective, shown, values_of, wanted
from symsim.grid.reported import Reported
from symsim.program import c_kernel
from symsim.program.numpy_kernel import LONGEST, NumpyKernel
from symsim.program.plan import C_LOOP, NUMPY_CALL, Plan, make_plan
from symsim.program.program import SMALL, Program, restricted
from symsim.program.value import Value

_ROOM = 1 << 14
# fewer points are walked by NumPy before a kernel is compiled
COMPILED_FROM = 60_000_000
# pieces of a walk for each thread, so that all end at about the same time
_PIECES = 8


class Numbering:
    """From places in a plan's own order to numbers of the whole grid."""

    def __init__(self, plan: Plan, chosen: Sequence[Array], sizes: Sequence[int]):
        self.order = plan.order
        self.shape = tuple(plan.program.sizes[a] for a in plan.order) or (1,)
        self.strides = [int(np.prod(sizes[a + 1 :], dtype=np.int64)) for a in range(len(sizes))]
        self.chosen = chosen
        self.first = sum(int(c[0]) * s for a, (c, s) in enumerate(zip(chosen, self.strides)) if a not in plan.order)

    def numbers(self, places: Array) -> Array:
        positions = np.unravel_index(places, self.shape)
        found = np.full(len(places), self.first, dtype=np.int64)
        for axis, own in zip(self.order, positions):
            found += self.chosen[axis][own] * self.strides[axis]
        return found


class Best:
    """The least of what is wanted, up to a count, ties by number."""

    def __init__(self, count: int, worst: float = np.inf):
        self.count, self.worst = count, worst
        self.values, self.places = np.empty(0), np.empty(0, dtype=np.int64)

    def begin(self, numbering: Numbering, length: int) -> None:
        self.numbering, self.length = numbering, length
        self._new: list[tuple[Array, Array]] = []
        self._waiting = 0

    def wanted(self, value: Any) -> bool:
        return bool(np.less_equal(value, self.worst).any())

    def __call__(self, vector: int, value: Any, wanted: Any) -> None:
        hits = np.flatnonzero(np.broadcast_to(np.less_equal(value, self.worst) & wanted, (self.length,)))
        if len(hits):
            self._new.append((np.broadcast_to(value, (self.length,))[hits], hits + vector * self.length))
            self._waiting += len(hits)
            if self._waiting >= max(2 * self.count, 256):
                self.settle()

    def settle(self) -> None:
        if self._new:
            values = np.concatenate([v for v, _ in self._new])
            places = np.concatenate([p for _, p in self._new])
            self._new, self._waiting = [], 0
            if len(values) > self.count:
                near = values <= np.partition(values, self.count - 1)[self.count - 1]
                values, places = values[near], places[near]
            self.add(values, self.numbering.numbers(places))

    def add(self, values: Array, numbers: Array) -> None:
        values, numbers = np.concatenate([self.values, values]), np.concatenate([self.places, numbers])
        order = np.lexsort((numbers, values))[: self.count]
        self.values, self.places = values[order], numbers[order]
        if len(self.values) == self.count:
            self.worst = min(self.worst, float(self.values[-1]))

    def rows(self) -> dict[str, Array]:
        self.settle()
        return {"value": self.values, "number": self.places}


class Front:
    """Points that no other beats in both of two objectives; of equal ones the first by number."""

    def __init__(self) -> None:
        self.one, self.two, self.places = np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)

    def begin(self, numbering: Numbering, length: int) -> None:
        self.numbering, self.length = numbering, length
        self._new: list[tuple[Array, Array, Array]] = []
        self._waiting = 0

    def wanted(self, value: Any) -> bool:
        return True

    def __call__(self, vector: int, one: Any, two: Any, wanted: Any) -> None:
        one, two = np.broadcast_to(one, (self.length,)), np.broadcast_to(two, (self.length,))
        # what is no number is not better than anything
        wanted = wanted & (one == one) & (two == two)
        if len(self.one):
            # the least of the second objective among front points no worse in the first
            low = one.min()
            at = int(np.searchsorted(self.one, low, side="right"))
            if at and self.two[at - 1] < two.min():
                return
            below = np.searchsorted(self.one, one, side="right")
            beaten = np.where(below > 0, self.two[np.maximum(below, 1) - 1], np.inf) < two
            wanted = wanted & ~beaten
        hits = np.flatnonzero(np.broadcast_to(wanted, (self.length,)))
        if len(hits):
            self._new.append((one[hits], two[hits], hits + vector * self.length))
            self._waiting += len(hits)
            if self._waiting >= _ROOM:
                self.settle()

    def settle(self) -> None:
        if self._new:
            one, two, places = (np.concatenate([n[k] for n in self._new]) for k in range(3))
            self._new, self._waiting = [], 0
            keep = _unbeaten(one, two, places)
            self.add(one[keep], two[keep], self.numbering.numbers(places[keep]))

    def add(self, one: Array, two: Array, numbers: Array) -> None:
        one, two = np.concatenate([self.one, one]), np.concatenate([self.two, two])
        numbers = np.concatenate([self.places, numbers])
        keep = _unbeaten(one, two, numbers)
        self.one, self.two, self.places = one[keep], two[keep], numbers[keep]

    def rows(self) -> dict[str, Array]:
        self.settle()
        return {"one": self.one, "two": self.two, "number": self.places}


def _unbeaten(one: Array, two: Array, numbers: Array) -> Array:
    """Indices, in rising order, of points that no other is at least as good as in both; of equal ones the first by number."""
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    order = np.lexsort((numbers, two, one))
    one, two = one[order], two[order]
    starts = np.concatenate([[True], one[1:] != one[:-1]])
    # where the points begin that are equal in the first objective, of which only the least in the second stays
    start = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    before = np.concatenate([[np.inf], np.minimum.accumulate(two)[:-1]])[start]
    first = np.concatenate([[True], (one[1:] != one[:-1]) | (two[1:] != two[:-1])])
    return order[(two == two[start]) & ((two < before) | (start == 0)) & first]


class Rows:
    """All wanted points: numbers, and so many columns of values."""

    def __init__(self, columns: int):
        self.columns = columns

    def begin(self, numbering: Numbering, length: int) -> None:
        self.numbering, self.length = numbering, length
        self._found: list[tuple[Array, ...]] = []

    def wanted(self, value: Any) -> bool:
        return True

    def __call__(self, vector: int, wanted: Any, *columns: Any) -> None:
        hits = np.flatnonzero(np.broadcast_to(wanted, (self.length,)))
        if len(hits):
            own = tuple(np.broadcast_to(c, (self.length,))[hits] for c in columns)
            self._found.append((hits + vector * self.length, *own))

    def rows(self) -> tuple[Array, list[Array]]:
        """Numbers, rising, and the columns in that order."""
        if not self._found:
            return np.empty(0, dtype=np.int64), [np.empty(0) for _ in range(self.columns)]
        places, *columns = (np.concatenate([f[k] for f in self._found]) for k in range(self.columns + 1))
        numbers = self.numbering.numbers(places)
        order = np.argsort(numbers, kind="stable")
        return numbers[order], [c[order] for c in columns]


def _values_apart(question: Question, reported: Reported) -> list[Value]:
    """As `values_of`; which points are wanted is found by a process beside this one, point by point."""
    group, program = reported.group, reported.program
    # both need the stages
    assert reported.slots.slots

    def find(send: Send, _: Receive) -> None:
        own, values = restricted([wanted(question, reported)], group.chosen, program.small)
        plan, found = make_plan(own, values, longest=LONGEST, call=NUMPY_CALL), Rows(0)
        found.begin(Numbering(plan, group.chosen, program.sizes), plan.length)
        NumpyKernel(plan, None).scan(0, plan.blocks, found)
        send(found.rows()[0].tobytes())

    _, receive, end = beside(find)
    try:
        objectives = [objective(question, reported, k) for k in range(len(question.objectives))]
        numbers = np.frombuffer(receive(), dtype=np.int64)
    finally:
        end()
    there = np.zeros(math.prod(program.sizes), dtype=bool)
    there[numbers] = True
    return [*objectives, program.array(there.reshape(program.sizes))]


class Work:
    """A group of variants made ready to be walked for a question. texts: of columns that are options, what each variant has."""

    def __init__(
        self, group: Group, question: Question, program: Program, *, most_points: int | None = None, backend: str = "auto", apart: bool = False
    ):
        """apart: whether a process beside this one may find the points that are wanted."""
        self.group, self.question = group, question
        reported = Reported(group, program)
        values = _values_apart(question, reported) if apart else values_of(question, reported)
        self.texts: dict[str, list[str]] = {}
        if not question.objectives:
            for name in question.columns:
                made = shown(reported, name)
                if isinstance(made, list):
                    self.texts[name] = made
                else:
                    values.append(made)
        self.program, self.values = restricted(values, group.chosen, SMALL if len(group.variants) == 1 else program.small)
        self._plan: Plan | None = None
        self._kernel: Any = None
        self.most_points = most_points
        # compiling takes a second or two, which only a large grid gives back
        self.compiled = backend == "c" or (backend == "auto" and group.points >= COMPILED_FROM and c_kernel.compiler() is not None)
        self._needed = backend == "c"

    @property
    def empty(self) -> bool:
        """Whether no point is wanted, whatever the rest."""
        wanted = self.values[len(self.question.objectives)]
        return wanted.known and not np.any(wanted.data)

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            self._plan = self.planned(compiled=self.compiled)
        return self._plan

    def planned(self, *, compiled: bool) -> Plan:
        """The plan for a compiled kernel, or for NumPy's."""
        # sinks in Python are called once a vector, which a compiled kernel for the best is not
        short = compiled and self.question.top is not None
        longest, call = (c_kernel.LONGEST, C_LOOP) if short else (LONGEST, NUMPY_CALL)
        return make_plan(self.program, self.values, longest=longest, call=call, most_points=self.most_points)

    @property
    def kernel(self) -> Any:
        if self._kernel is None:
            guard = 0 if self.question.top is not None else None
            if self.compiled:
                try:
                    self._kernel = c_kernel.CKernel(self.plan, guard, wanted=len(self.question.objectives))
                except c_kernel.CompilerError as error:
                    if self._needed:
                        raise InputError(f"--backend c: {error}; --backend numpy needs no compiler") from None
            self._kernel = self._kernel or NumpyKernel(self.plan, guard)
        return self._kernel

    def numbering(self) -> Numbering:
        return Numbering(self.plan, self.group.chosen, self.group.variants[0].family.space.sizes)

    def walk(self, first: int, last: int, sink: Any, threads: int = 1) -> None:
        """Walk blocks first .. last - 1 of the plan; a compiled kernel with so many threads."""
        if isinstance(sink, Best) and isinstance(self.kernel, c_kernel.CKernel):
            self._walk_compiled(first, last, sink, threads)
            return
        sink.begin(self.numbering(), self.plan.length)
        self.kernel.scan(first, last, sink)

    def _walk_compiled(self, first: int, last: int, sink: Best, threads: int) -> None:
        """Pieces of the blocks, each with the bound that stands when it begins."""
        numbering = self.numbering()
        cuts = [first + (last - first) * k // (threads * _PIECES) for k in range(threads * _PIECES + 1)]
        pieces = [(a, b) for a, b in zip(cuts, cuts[1:]) if a < b]

        def run(piece: tuple[int, int]) -> tuple[Array, Array]:
            found: tuple[Array, Array] = self.kernel.scan_best(*piece, sink.count, sink.worst, numbering)
            return found

        sink.begin(numbering, self.plan.length)
        with ThreadPoolExecutor(threads) as pool:
            for future in as_completed([pool.submit(run, piece) for piece in pieces]):
                sink.add(*future.result())
