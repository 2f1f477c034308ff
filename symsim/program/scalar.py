"""A program printed as plain Python over numbers: one configuration in microseconds.

The steps of an unrolled derivation are lowered into a `Program` whose inputs stand for unknown numbers, so that constants fold, shared terms and
factors are computed once, and only what is asked for is left. What is left is printed as one function and compiled. All numbers
are floats, which are faster than ints and hold whole numbers below 2^53 exactly.

What is used once stands inside the expression that uses it; a maximum of names is a conditional, which is a call less; a max of
values that stand nowhere else is bound where it is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from symsim.algebra.operators import GUARD, LOOSEST, OPERATORS, PRODUCT
from symsim.program.base import Base
from symsim.program.plan import operations
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.unrolled import Unrolled, at_base, unroll
from symsim.program.value import Value

# an input stands for as many points as this, so that what depends on fewer inputs is computed first
_POINTS = 1 << 20
# operands that Python's parser and a reader take in one line
_LONGEST = 400
_HEAD = ["from math import ceil, floor, nan"]


def scalar_kernel(base: Base, free: Sequence[str], quantities: Sequence[str]) -> Callable[..., dict[str, float]]:
    """A function of numbers, by keyword, for the free symbols (the base's number by default) that returns the quantities, by name.

    Degrees must stay above 1 and edp on its side of 1, as the derivation of the base has them; nothing is checked when it is called.
    InputError for a name that is no argument here, or no quantity.
    """
    unrolled = unroll(at_base(base), free, quantities, shortest=True)
    source = kernel_source(unrolled)
    space: dict[str, Any] = {}
    exec(compile(source, "<scalar kernel>", "exec"), space)  # printed below from operations, numbers and names of symbols alone
    kernel: Callable[..., dict[str, float]] = space["kernel"]
    return kernel


def kernel_source(unrolled: Unrolled) -> str:
    """The function `kernel` as Python."""
    _, inputs, outputs = lowered(unrolled)
    defaults = ", ".join(f"{a.name}={_number(a.default)}" for a in unrolled.arguments)
    printer = _Printer(inputs, [v for found in outputs.values() for v in found])
    body = printer.statements()
    results = [f"        {o.name!r}: {_rounded(printer, o.rounded, *outputs[o.name])}," for o in unrolled.outputs]
    used = [f"    {n} = float({n})" for n, v in inputs.items() if v.id in printer.seen]
    head = [*_HEAD, "", "", f"def kernel({'*, ' if defaults else ''}{defaults}):"]
    return "\n".join([*head, *used, *(f"    {line}" for line in body), "    return {", *results, "    }", ""])


def lowered(unrolled: Unrolled) -> tuple[Program, dict[str, Value], dict[str, tuple[Value, ...]]]:
    """The steps as a program over inputs: the program, its inputs by name, and by name its outputs (with what one is left of, if any)."""
    program = Program([_POINTS] * max(1, len(unrolled.arguments)), small=0)
    inputs = {a.name: program.input(a.name, axis) for axis, a in enumerate(unrolled.arguments)}
    known: dict[str, Value] = dict(inputs)
    for step in unrolled.steps:
        scope = Scope(program, known, {})
        known[step.name] = scope.lower(step.body, step.counts)
    scope = Scope(program, known, {})
    parts = {o.name: (o.body, *(() if o.left_of is None else (o.left_of,))) for o in unrolled.outputs}
    return program, inputs, {name: tuple(scope.lower(p, exact=True) for p in found) for name, found in parts.items()}


# printing --------------------------------------------------------------------------------------------------------------


class _Printer:
    """Values as Python: those used more than once by a name of their own, in order; the rest inside what uses them."""

    def __init__(self, inputs: Mapping[str, Value], outputs: Iterable[Value]):
        self.outputs = list(outputs)
        self.order = operations(self.outputs)
        self.names = {v.id: n for n, v in inputs.items()}
        self.seen = {a.id for v in self.order for a in v.args} | {v.id for v in self.outputs}
        self.uses: dict[int, int] = {}
        for value in self.order:
            for arg in value.args:
                # the arguments of a comparison are read twice
                self.uses[arg.id] = self.uses.get(arg.id, 0) + 1
        for value in self.outputs:
            self.uses[value.id] = self.uses.get(value.id, 0) + 1
        self.texts: dict[int, str] = {}
        self.lines: list[str] = []

    def statements(self) -> list[str]:
        for value in self.order:
            if value.op == "input":
                continue
            text = self._expression(value)
            if self.uses[value.id] > 1 or len(text) > _LONGEST:
                self._assign(value, text)
            else:
                self.texts[value.id] = text
        return self.lines

    def _assign(self, value: Value, text: str) -> None:
        self.lines.append(f"x{value.id} = {text}")
        self.names[value.id] = f"x{value.id}"

    def text(self, value: Value, binding: int = LOOSEST) -> str:
        """A value where nothing that binds less than `binding` may stand bare."""
        if value.known:
            return _number(value.data)
        if value.id in self.names:
            return self.names[value.id]
        row, found = OPERATORS[value.op], self.texts[value.id]
        return f"({found})" if row.sign and row.binds < binding else found

    def _named(self, value: Value) -> str:
        """A name or a number, made if need be: what is read twice."""
        if not value.known and value.id not in self.names:
            self._assign(value, self.texts[value.id])
        return self.text(value)

    def _expression(self, value: Value) -> str:
        row, args = OPERATORS[value.op], value.args
        if row.sign:
            return row.text(*(self.text(a, row.inside(k)) for k, a in enumerate(args)))
        if row.python_positive and all(map(_never_negative, args)):
            return row.python_positive.format(*map(self.text, args))
        return row.python.format(*map(self._named if row.twice else self.text, args))


def _never_negative(value: Value) -> bool:
    """Of sizes, degrees and rates, which inputs are."""
    if value.known:
        return bool(np.all(value.data >= 0))
    return value.op == "input" or (OPERATORS[value.op].keeps_sign and all(map(_never_negative, value.args)))


def _number(x: Any) -> str:
    return repr(x) if isinstance(x, bool) else repr(float(x)) if not isinstance(x, Fraction) else repr(x.numerator / x.denominator)


def _rounded(printer: _Printer, rounded: str, value: Value, left_of: Value | None = None) -> str:
    text = printer.text(value)
    if not rounded or value.known:
        return text
    if left_of is not None:
        return f"ceil(({text}) - {printer.text(left_of, PRODUCT)} * {GUARD!r})"
    return f"ceil(({text}) * {1 - GUARD!r})" if rounded == "up" else f"floor(({text}) * {1 + GUARD!r})"
