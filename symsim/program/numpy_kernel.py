"""A plan printed as NumPy source: nested loops whose bodies are calls on vectors with preallocated results.

    scan(first, last, sink)     walks blocks first .. last-1 and hands every vector of outputs to the sink:
                                sink(number of the vector, in the plan's order, and the outputs)

The source is made of the plan's own numbers and names alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symsim.algebra.operators import GUARD, OPERATORS
from symsim.program.arrays import tree_depth
from symsim.program.plan import Plan, operations
from symsim.program.value import Value, is_boolean, numpy_operation

LONGEST = 8192


class NumpyKernel:
    """A plan ready to run."""

    def __init__(self, plan: Plan, guard: int | None = None):
        """guard: index of the output that is computed first and handed to `sink.wanted`; the rest follow only if that says so."""
        self.plan, self.guard = plan, guard
        self.source, constants = _print(plan, guard)
        space: dict[str, Any] = {"np": np, "inf": np.inf, "nan": np.nan, "tree_depth": tree_depth, "GUARD": GUARD, **constants}
        exec(compile(self.source, "<kernel>", "exec"), space)  # the source is printed above, from operations alone
        self._scan = space["scan"]

    def scan(self, first: int, last: int, sink: Any) -> None:
        with np.errstate(all="ignore"):
            self._scan(first, last, sink)


class _Printer:
    """Names of operands, the arrays behind them, and the rows of every level that fetch them."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.inside = plan.mask(plan.vector)
        self.constants: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.rows: list[list[str]] = [[] for _ in range(len(plan.loops) + 2)]

    def outer_index(self, mask: int) -> str:
        """The position in an array over some of the loops' axes, flattened in the plan's order."""
        parts = []
        stride = 1
        for axis in reversed((*self.plan.lead, *self.plan.loops)):
            if mask >> axis & 1:
                parts.append(f"i{axis}" if stride == 1 else f"i{axis} * {stride}")
                stride *= self.plan.program.sizes[axis]
        return " + ".join(reversed(parts)) or "0"

    def level(self, mask: int) -> int:
        return self.plan.level(Value(-1, "", (), mask))

    def array(self, value: Value, data: np.ndarray) -> str:
        """An array as an operand: a number of the loops, a row of vectors, or one vector."""
        plan = self.plan
        order = plan.order
        sizes = plan.program.sizes
        outside = value.mask & ~self.inside
        moved = np.transpose(data, [*order, *(a for a in range(data.ndim) if a not in order)]).reshape([data.shape[a] for a in order])
        count = len(order) - len(plan.vector)
        name = f"a{value.id}"
        if not value.mask & self.inside:
            self.constants[f"A{value.id}"] = np.ascontiguousarray(moved).reshape(-1)
            level = self.level(value.mask)
            self.rows[level].append(f"{name} = A{value.id}[{self.outer_index(value.mask)}]")
            return name
        full = [sizes[a] if value.mask >> a & 1 else 1 for a in order[:count]] + [sizes[a] for a in plan.vector]
        kept = int(np.prod(full[:count], dtype=np.int64))
        if kept * plan.length <= 1 << 17 or data.size == kept * plan.length:
            rows = np.ascontiguousarray(np.broadcast_to(moved, full)).reshape(kept, plan.length)
            self.constants[f"A{value.id}"] = rows if outside else rows[0]
            if not outside:
                return f"A{value.id}"
            self.rows[self.level(value.mask)].append(f"{name} = A{value.id}[{self.outer_index(value.mask)}]")
            return name
        # too many rows to keep: spread over the vector where the loops reach them
        shape = [sizes[a] for a in plan.vector]
        parts = [s if value.mask >> a & 1 else 1 for a, s in zip(plan.vector, shape)]
        self.constants[f"A{value.id}"] = np.ascontiguousarray(moved).reshape(kept, *parts)
        self.constants[name] = np.empty(plan.length, dtype=data.dtype)
        self.constants[f"{name}_nd"] = self.constants[name].reshape(shape)
        self.rows[self.level(value.mask)].append(f"np.copyto({name}_nd, A{value.id}[{self.outer_index(value.mask)}])")
        return name

    def operand(self, value: Value) -> str:
        if value.id in self.names:
            return self.names[value.id]
        if isinstance(value.data, np.ndarray):
            made = self.array(value, value.data)
        elif value.known:
            made = repr(value.data) if isinstance(value.data, bool) else repr(float(value.data))
        else:
            raise AssertionError(value)
        self.names[value.id] = made
        return made

    def statement(self, value: Value, out: str) -> list[str]:
        args = [self.operand(a) for a in value.args]
        row = OPERATORS[value.op]
        return [part.format(*args, out=out) for part in row.vector] or [f"np.{row.numpy}({', '.join(args)}, out={out})"]


def _print(plan: Plan, guard: int | None) -> tuple[str, dict[str, Any]]:
    printer = _Printer(plan)
    for value in plan.outer:
        _compute_outside(value)
    for depth, values in enumerate(plan.levels[:-1]):
        for value in values:
            printer.rows[depth] += _computed(printer, value, f"b{value.id}")
    late: list[str] = []
    first = {v.id for v in operations([plan.outputs[guard]])} if guard is not None else None
    deepest = sorted(plan.levels[-1], key=lambda v: first is not None and v.id not in first)
    places = _Places(deepest, plan.outputs)
    for step, value in enumerate(deepest):
        rows = printer.rows[-1] if first is None or value.id in first else late
        # operands first, since a place may be lent from one of them
        for arg in value.args:
            printer.operand(arg)
        rows += _computed(printer, value, places.take(step, value))
    return _assemble(printer, guard, late), printer.constants


def _computed(printer: _Printer, value: Value, out: str) -> list[str]:
    if out not in printer.constants:
        printer.constants[out] = np.empty(printer.plan.length, dtype=bool if is_boolean(value) else np.float64)
    rows = printer.statement(value, out)
    printer.names[value.id] = out
    return rows


class _Places:
    """Vectors for the results of the deepest level: one that is read for the last time is written over."""

    def __init__(self, steps: Sequence[Value], outputs: Sequence[Value]):
        here = {v.id for v in steps}
        kept = {v.id for v in outputs}
        self.last: dict[int, int] = {}
        for step, value in enumerate(steps):
            for arg in value.args:
                if arg.id in here and arg.id not in kept:
                    self.last[arg.id] = step
        self.names: dict[int, str] = {}
        self.free: dict[bool, list[str]] = {False: [], True: []}

    def take(self, step: int, value: Value) -> str:
        kind = is_boolean(value)
        ended = [a for a in dict.fromkeys(value.args) if self.last.get(a.id) == step]
        # these write their result before they have read all operands
        at_once = not OPERATORS[value.op].vector
        lent = [a for a in ended if at_once and is_boolean(a) == kind]
        if lent:
            name = self.names[lent[0].id]
        elif self.free[kind]:
            name = self.free[kind].pop()
        else:
            name = f"b{value.id}"
        for arg in ended:
            if not lent or arg is not lent[0]:
                self.free[is_boolean(arg)].append(self.names[arg.id])
        self.names[value.id] = name
        return name


def _compute_outside(value: Value) -> None:
    """An operation without the vector: computed over all loops at once."""
    with np.errstate(all="ignore"):
        value.data = numpy_operation(value.op, *(a.data for a in value.args))


def _assemble(printer: _Printer, guard: int | None, late: list[str]) -> str:
    plan = printer.plan
    outputs = [printer.operand(v) for v in plan.outputs]
    lines = ["def scan(first, last, sink):"]
    lines += [f"    {row}" for row in printer.rows[0]]
    lines.append("    for block in range(first, last):")
    indent = "        "
    rest = "block"
    for axis in reversed(plan.lead[1:]):
        lines.append(f"{indent}rest, i{axis} = divmod({rest}, {plan.program.sizes[axis]})")
        rest = "rest"
    if plan.lead:
        lines.append(f"{indent}i{plan.lead[0]} = {rest}")
    lines += [f"{indent}{row}" for row in printer.rows[1]]
    number = "block"
    for depth, axis in enumerate(plan.loops):
        lines.append(f"{indent}for i{axis} in range({plan.program.sizes[axis]}):")
        indent += "    "
        number = f"({number}) * {plan.program.sizes[axis]} + i{axis}"
        lines += [f"{indent}{row}" for row in printer.rows[depth + 2]]
    if guard is not None:
        lines.append(f"{indent}if not sink.wanted({outputs[guard]}):")
        lines.append(f"{indent}    continue")
    lines += [f"{indent}{row}" for row in late]
    lines.append(f"{indent}sink({number}, {', '.join(outputs)})")
    return "\n".join(lines) + "\n"
