"""A plan printed as one C function.

The last axes of the vector are a row, along which the compiler vectorises; the others are loops. An operation runs over its
own loops alone, and all those over the same loops at one depth run in one pass: what only that pass uses never leaves the
registers, and what does not vary along a row is one number there. The operations, their order and their rounding are those of
`numpy_kernel`, so that finite results are the same bits.

Two functions can be printed of a plan, each when it is first wanted:

    best    the least of the first output where the second holds, ties by the number of the point
    fill    all outputs, for sinks

The source holds sizes but no numbers: kernels that differ in numbers alone, such as those of two systems, are one object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from symsim.algebra.operators import OPERATORS
from symsim.program.c_build import CompilerError
from symsim.program.c_memory import Memory, whole
from symsim.program.c_text import KEEPING, PRELUDE
from symsim.program.plan import Plan, operations
from symsim.program.value import Value, is_boolean

Array = np.ndarray

# a row is at least so long, where the vector is
_LEAST_ROW = 32
# arrays that repeat along a row are kept as they are beyond this many elements, and spread where the loops reach them
_MOST_SPREAD = 1 << 21


class Numbering(Protocol):
    """What is needed of `work.Numbering`: the number of a point is `first` plus chosen[axis][position] * strides[axis] of every axis."""

    first: int
    strides: list[int]

    @property
    def chosen(self) -> Sequence[Array]: ...


@dataclass(frozen=True)
class Printed:
    """tables, maps: what the function reads. scratch: doubles that a call needs. visits: vectors of a block."""

    source: str
    tables: Array
    maps: Array
    scratch: int
    visits: int
    plan: Plan
    row: tuple[int, ...]

    def places(self, numbering: Numbering) -> Array:
        """What every position adds to the number of a point: the first point, then positions by axis outside the row, then along the row."""
        given = {a: np.asarray(numbering.chosen[a], dtype=np.int64) * numbering.strides[a] for a in self.plan.order}
        along = np.zeros(1, dtype=np.int64)
        for axis in self.row:
            along = (along[:, None] + given[axis]).reshape(-1)
        return np.concatenate([np.array([numbering.first], dtype=np.int64), *(given[a] for a in self.plan.order if a not in self.row), along])


@dataclass(frozen=True)
class _Home:
    """Where an operation runs: at which depth, before or after it is known whether the rest is wanted, over which loops of the vector."""

    depth: int
    late: bool
    loops: tuple[int, ...]


_ANY = " reduction(|:any)"
_GIVEN = {
    "best": "const int64_t *restrict P, double *values, int64_t *numbers, int64_t count, int64_t room, double limit",
    "fill": "int64_t again, int64_t capacity, int64_t *vectors, void *const *out, int64_t *filled",
}


class Printer:
    """Prints one of the functions of a plan. D, M, W: `Memory`. P: what positions add to numbers.

    A loop's variable is named after its axis, r counts along a row.
    """

    def __init__(self, plan: Plan, mode: str, guard: int | None, wanted: int | None):
        """early: index of the output that is computed first and decides whether the others are. wanted: index of the output that holds
        where points matter, so that the rest can be skipped."""
        self.plan, self.mode, self.sizes = plan, mode, plan.program.sizes
        self.early, self.wanted = wanted, wanted
        if mode == "best":
            if len(plan.outputs) != 2 or is_boolean(plan.outputs[0]) or not is_boolean(plan.outputs[1]):
                raise CompilerError("the best points need an objective and whether a point is wanted")
            self.early, self.wanted = (None, None) if guard is None else (0, 1)
        at = len(plan.vector)
        while at and plan.product(plan.vector[at:]) < _LEAST_ROW:
            at -= 1
        self.inner, self.row = plan.vector[:at], plan.vector[at:]
        self.length = plan.product(self.row)
        self.width = whole(self.length)
        self.rows = plan.product(self.inner)
        self.deepest = len(plan.levels) - 1
        self.memory = Memory(plan, self.inner)
        self.names: dict[int, str] = {}
        self.numbers: dict[tuple[float, float], str] = {}
        self.lines: list[str] = []
        self.indent = 0
        self._arrange()

    # arranging ---------------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Decide where every operation runs, and which results outlive the pass that makes them."""
        plan = self.plan
        first = None if self.early is None else {v.id for v in operations([plan.outputs[self.early]])}
        self.homes: dict[int, _Home] = {}
        self.passes: dict[_Home, list[Value]] = {}
        self.spread: dict[int, str] = {}
        self.scalars: list[list[Value]] = [[] for _ in plan.levels]
        for value in plan.outer:
            if not value.known:
                self.scalars[plan.level(value)].append(value)
        for value in self._arrays():
            self._tabulate(value)
        for depth, values in enumerate(plan.levels):
            for value in values:
                self._settle(value, depth == self.deepest and first is not None and value.id not in first)
        self.kept: set[int] = set()
        for value in (v for values in plan.levels for v in values):
            self.kept |= {a.id for a in value.args if self.homes.get(a.id, self.homes[value.id]) != self.homes[value.id]}
        for k, output in enumerate(plan.outputs):
            if self.homes.get(output.id) not in (None, self._final(k)):
                self.kept.add(output.id)

    def _settle(self, value: Value, late: bool) -> None:
        home = _Home(self.plan.level(value), late, tuple(a for a in self.inner if value.mask >> a & 1))
        self.homes[value.id] = home
        self.passes.setdefault(home, []).append(value)

    def _final(self, output: int) -> _Home:
        """The pass that reads an output."""
        return _Home(self.deepest, self.early is not None and output != self.early, self.inner)

    def _along_row(self, mask: int) -> bool:
        return any(mask >> a & 1 for a in self.row)

    def _arrays(self) -> list[Value]:
        """Arrays that operations and outputs read, in the order of use."""
        plan = self.plan
        made = [v for v in (*plan.outer, *(v for level in plan.levels for v in level)) if not v.known]
        read = [*(a for v in made for a in v.args), *plan.outputs]
        return list({v.id: v for v in read if isinstance(v.data, np.ndarray)}.values())

    # tables ------------------------------------------------------------------------------------------------------------

    def _tabulate(self, value: Value) -> None:
        """Lay an array out by loops and row; one that would grow much by that is spread where the loops reach it."""
        data = self.memory.in_order(value.data)
        if not self._along_row(value.mask):
            self.names[value.id] = f"D[{self.memory.index(self.memory.table(data), value.mask)}]"
            return
        across = data.shape[: data.ndim - len(self.row)]
        own, full = data.shape[len(across) :], tuple(self.sizes[a] for a in self.row)
        along = np.minimum(np.arange(self.width), self.length - 1)
        if own == full or math.prod(across) * self.width <= _MOST_SPREAD:
            rows = np.broadcast_to(data, (*across, *full)).reshape(-1, self.length)
            padded = rows if self.width == self.length else rows[:, along]
            self.names[value.id] = f"D[{self.memory.index(self.memory.table(padded), value.mask, self.width)} + r]"
            return
        each = math.prod(own)
        positions = np.broadcast_to(np.arange(each).reshape(own), full).reshape(-1)[along]
        self.spread[value.id] = f"D[{self.memory.index(self.memory.table(data), value.mask, each)} + M[{self.memory.map(positions)} + r]]"
        self._settle(value, False)

    # expressions -------------------------------------------------------------------------------------------------------

    def _read(self, value: Value) -> str:
        """A value as an operand. Numbers lie in a table, so that the source does not depend on them."""
        if value.id in self.names:
            return self.names[value.id]
        if isinstance(value.data, bool):
            return "1" if value.data else "0"
        x = float(value.data)
        key = (x, math.copysign(1.0, x))
        if key not in self.numbers:
            self.numbers[key] = f"D[{self.memory.table(np.array([x]))}]"
        return self.numbers[key]

    def _as_number(self, value: Value) -> str:
        """What lies in memory is a double; a truth that does not is a C truth."""
        text = self._read(value)
        return f"({text} ? 1.0 : 0.0)" if is_boolean(value) and not _in_memory(text) else text

    def _as_truth(self, value: Value) -> str:
        text = self._read(value)
        return text if is_boolean(value) and not _in_memory(text) else f"({text} != 0)"

    def _as_itself(self, value: Value) -> str:
        return self._as_truth(value) if is_boolean(value) else self._as_number(value)

    def _expression(self, value: Value) -> str:
        if value.id in self.spread:
            return f"({self.spread[value.id]} != 0)" if is_boolean(value) else self.spread[value.id]
        row, args = OPERATORS[value.op], value.args
        if row.name == "where":
            yes, no = (self._as_truth(a) if is_boolean(value) else self._as_number(a) for a in args[1:])
            return row.c.format(self._as_truth(args[0]), yes, no)
        if row.c_of_number:
            # of operands that commute a number goes first
            first, second = sorted(args, key=_is_number, reverse=True)
            return (row.c_of_number if _is_number(first) else row.c).format(self._as_number(first), self._as_number(second))
        return row.c.format(*map(self._as_truth if row.takes_truths else self._as_number, args))

    # statements --------------------------------------------------------------------------------------------------------

    def _put(self, *lines: str) -> None:
        self.lines += ["    " * self.indent + line for line in lines]

    @contextmanager
    def _inside(self, head: str) -> Iterator[None]:
        self._put(f"{head} {{".lstrip())
        self.indent += 1
        yield
        self.indent -= 1
        self._put("}")

    def _compute(self, value: Value) -> None:
        """One operation: into a local, and into scratch memory too where another pass reads it."""
        truth = is_boolean(value)
        expression = self._expression(value)
        self.names[value.id] = name = f"t{len(self.names)}"
        self._put(f"const {'_Bool' if truth else 'double'} {name} = {expression};")
        if value.id in self.kept:
            along = self._along_row(value.mask)
            stride = self.width if along else 1
            at = self.memory.reserved(self.plan.product(self.homes[value.id].loops) * stride)
            self.stored[value.id] = f"W[{self.memory.place(at, value.mask, stride)}{' + r' if along else ''}]"
            self._put(f"{self.stored[value.id]} = {self._as_number(value)};")

    def _pass(self, home: _Home, row: "_Row | None" = None) -> None:
        """All operations of a home in one nest of loops, and what else is done with a row."""
        values = self.passes.get(home, [])
        self.stored: dict[int, str] = {}
        with ExitStack() as nest:
            for axis in home.loops:
                nest.enter_context(self._inside(f"for (int64_t i{axis} = 0; i{axis} < {self.sizes[axis]}; i{axis}++)"))
            if not home.loops:
                nest.enter_context(self._inside("for (int once = 1; once; once = 0)"))
            self._put(*(row.begin if row else ()))
            along = [v for v in values if self._along_row(v.mask)]
            for value in values:
                if value not in along:
                    self._compute(value)
            if along or row:
                self._put("#pragma omp simd" + (row.reduction if row else ""))
                with self._inside(f"for (int64_t r = 0; r < {row.length if row else self.width}; r++)"):
                    for value in along:
                        self._compute(value)
                    self._put(*(row.each() if row else ()))
            self._put(*(row.end if row else ()))
        # other passes find it in memory
        self.names.update(self.stored)

    def _passes(self, depth: int, late: bool = False) -> None:
        """Passes of one depth but the final one, so that operands are there first: those over fewer loops."""
        found = (h for h in self.passes if h.depth == depth and h.late == late)
        for home in sorted(found, key=lambda h: len(h.loops)):
            if depth < self.deepest or home.loops != self.inner:
                self._pass(home)

    def _level(self, depth: int) -> None:
        """What runs where the loops reach a depth: numbers, whether anything deeper can be wanted, then vectors."""
        for value in self.scalars[depth]:
            self._compute(value)
        for test in self._tests(depth):
            self._put(f"if (!{test}) " + ("return nothing;" if depth == 0 else "continue;"))
        if depth < self.deepest and any(h.depth == depth for h in self.passes):
            # where a call goes on after another, scratch memory still holds what that one computed on the way there
            with self._inside("" if self.mode == "best" else "if (!(again & resumed))"):
                self._passes(depth)

    # skipping ----------------------------------------------------------------------------------------------------------

    def _conditions(self) -> list[Value]:
        """What must all hold for a point to be wanted."""
        found: list[Value] = []
        stack = [] if self.wanted is None else [self.plan.outputs[self.wanted]]
        while stack:
            value = stack.pop()
            if value.op == "and" and not value.known:
                stack.extend(value.args)
            else:
                found.append(value)
        return found

    def _tests(self, depth: int) -> list[str]:
        """Conditions that do not vary deeper, and for arrays that do whether they hold anywhere deeper."""
        reached = [(), *((*self.plan.lead, *self.plan.loops[:k]) for k in range(self.deepest))]
        here = self.plan.mask(reached[depth])
        new = here & ~self.plan.mask(reached[depth - 1]) if depth else 0
        tests = []
        for value in self._conditions():
            if isinstance(value.data, np.ndarray):
                if not depth or value.mask & new:
                    tests += self._anywhere(value, here)
            elif value.known:
                tests += [] if value.data or depth else ["0"]
            elif value in self.scalars[depth]:
                tests.append(self._as_truth(value))
        return tests

    def _row_tests(self) -> list[str]:
        """Whether arrays among the conditions hold anywhere along a row."""
        inner, row = self.plan.mask(self.inner), self.plan.mask(self.row)
        arrays = [v for v in self._conditions() if isinstance(v.data, np.ndarray) and v.mask & inner]
        return [test for v in arrays for test in self._anywhere(v, ~row)]

    def _anywhere(self, value: Value, mask: int) -> list[str]:
        """A test whether an array holds anywhere along the axes that are not in the mask; none where it always does."""
        beyond = tuple(k for k, a in enumerate(self.plan.order) if not mask >> a & 1)
        held = np.asarray(np.any(self.memory.in_order(value.data), axis=beyond))
        return [] if held.all() else [f"(D[{self.memory.index(self.memory.table(held), value.mask & mask)}] != 0)"]

    # functions ---------------------------------------------------------------------------------------------------------

    def printed(self) -> Printed:
        """from, to: numbers of vectors; `fill` can begin anywhere and says where it stopped."""
        plan, best = self.plan, self.mode == "best"
        visits = plan.product(plan.loops)
        common = "int64_t from, int64_t to, const double *restrict D, const int64_t *restrict M, double *restrict W"
        with self._inside(f"int64_t {self.mode}({common}, {_GIVEN[self.mode]})"):
            self._put("int64_t resumed = 1;", f"const int64_t nothing = {'0' if best else 'to'};")
            if best:
                self._put("Kept best = {values, numbers, count, room, 0, limit, INT64_MAX};")
            else:
                self._put("int64_t slot = 0;", "*filled = 0;")
                for k, value in enumerate(plan.outputs):
                    self._put(f"{'unsigned char' if is_boolean(value) else 'double'} *restrict o{k} = out[{k}];")
            self._level(0)
            with ExitStack() as nest:
                nest.enter_context(self._inside(f"for (int64_t block = from / {visits}; block * {visits} < to; block++)"))
                stride = plan.blocks
                for axis in plan.lead:
                    stride //= self.sizes[axis]
                    self._put(f"const int64_t i{axis} = block / {stride} % {self.sizes[axis]};")
                self._level(1)
                stride = visits
                for k, axis in enumerate(plan.loops):
                    stride //= self.sizes[axis]
                    start = f"resumed ? from / {stride} % {self.sizes[axis]} : 0"
                    nest.enter_context(self._inside(f"for (int64_t i{axis} = {start}; i{axis} < {self.sizes[axis]}; i{axis}++)"))
                    self._level(k + 2)
                self._put("resumed = 0;")
                if best:
                    self._best()
                else:
                    self._fill(f"{self.memory.index(0, plan.mask(plan.loops))} + block * {visits}")
            self._put(*(("settle(&best);", "return best.kept;") if best else ("*filled = slot;", "return to;")))
        source = "\n".join([PRELUDE + (KEEPING if best else ""), *self.lines]) + "\n"
        return Printed(source, *self.memory.read(), self.memory.scratch, visits, plan, self.row)

    def _best(self) -> None:
        """The deepest passes: rows of values, not a number where a point is not wanted; rows with a value that may be kept are looked at."""
        mask = self.plan.mask(self.inner)
        number, at = ["P[0]"], 1
        for axis in self.plan.order:
            if axis not in self.row:
                number.append(f"P[{at} + i{axis}]")
                at += self.sizes[axis]
        kept = 0 if self.early is None else mask
        row = self.memory.index(self.memory.reserved(self.width * (self.rows if kept else 1)), kept, self.width)
        begin = ("const double worst = best.worst;", "int64_t any = 0;")
        take = f"if (any) take(&best, W + {row}, {self.length}, {' + '.join(number)}, P + {at});"

        def each(*parts: int | str) -> Callable[[], list[str]]:
            """What is compared: a text with outputs, by their index, read where it is printed."""
            return lambda: [
                f"const double y = {''.join(p if isinstance(p, str) else self._as_itself(self.plan.outputs[p]) for p in parts)};",
                f"W[{row} + r] = y;",
                "any |= y <= worst;",
            ]

        if self.early is None:
            self._passes(self.deepest)
            self._pass(self._final(0), _Row(self.width, each(1, " ? ", 0, " : NAN"), begin, (take,), _ANY))
            return
        flag = f"W[{self.memory.index(self.memory.reserved(self.rows), mask)}]"
        self._put("int64_t live = 0;")
        self._passes(self.deepest)
        skip = [f"if (!{test}) {{ {flag} = 0; continue; }}" for test in self._row_tests()]
        self._pass(self._final(0), _Row(self.width, each(0), (*skip, *begin), (f"{flag} = any;", "live |= any;"), _ANY))
        self._put("if (!live) continue;")
        self._passes(self.deepest, late=True)
        self._pass(self._final(1), _Row(self.width, each(1, f" ? W[{row} + r] : NAN"), (f"if ({flag} == 0) continue;", *begin), (take,), _ANY))

    def _fill(self, number: str) -> None:
        """The deepest passes: outputs by slot and place in the vector. A slot in which nothing is wanted is used again."""
        place = f"slot * {self.plan.length} + {self.memory.index(0, self.plan.mask(self.inner), self.length)} + r"

        def each(outputs: Sequence[int], also: Sequence[str] = ()) -> Callable[[], list[str]]:
            return lambda: [*(f"o{k}[{place}] = {self._as_itself(self.plan.outputs[k])};" for k in outputs), *also]

        everything = range(len(self.plan.outputs))
        self._put(f"if (slot == capacity) {{ *filled = slot; return {number}; }}")
        self._passes(self.deepest)
        if self.early is None:
            self._pass(self._final(0), _Row(self.length, each(everything)))
        else:
            self._put("int64_t any = 0;")
            self._pass(self._final(self.early), _Row(self.length, each([self.early], [f"any |= o{self.early}[{place}] != 0;"]), reduction=_ANY))
            self._put("if (!any) continue;")
            self._passes(self.deepest, late=True)
            rest = [k for k in everything if k != self.early]
            self._pass(_Home(self.deepest, True, self.inner), _Row(self.length, each(rest)))
        self._put(f"vectors[slot++] = {number};")


@dataclass(frozen=True)
class _Row:
    """What the final pass does with a row. each: statements for an element, once the operations have their names. begin, end: before
    and after the row."""

    length: int
    each: Callable[[], Sequence[str]]
    begin: Sequence[str] = ()
    end: Sequence[str] = ()
    reduction: str = ""


def _in_memory(text: str) -> bool:
    return text.startswith(("D[", "W["))


def _is_number(value: Value) -> bool:
    """Whether it is known already, and no nan among it."""
    return value.known and not np.isnan(np.asarray(value.data, dtype=float)).any()
