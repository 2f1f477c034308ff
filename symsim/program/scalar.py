"""A program printed as plain Python over numbers: one configuration in microseconds.

The steps of an unrolled derivation are lowered into a `Program` whose inputs stand for unknown numbers, so that constants fold, shared terms and
factors are computed once, and only what is asked for is left. What is left is printed as one function and compiled. All numbers
are floats, which are faster than ints and hold whole numbers below 2^53 exactly.

What is used once stands inside the expression that uses it; a maximum of names is a conditional, which is a call less; a max of
values that stand nowhere else is bound where it is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from symsim.algebra.operators import GUARD, OPERATORS, PRODUCT
from symsim.program.base import Base
from symsim.program.python_text import PythonText
from symsim.program.steps import lowered
from symsim.program.unrolled import Unrolled, at_base, unroll
from symsim.program.value import Value

HEAD = ["from math import ceil, floor, nan, sqrt"]


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
    made = lowered(unrolled)
    defaults = ", ".join(f"{a.name}={_literal(a.default)}" for a in unrolled.arguments)
    text, body = plain_python(made.inputs, made.results)
    results = [f"        {o.name!r}: {_rounded(text, o.rounded, *made.outputs[o.name])}," for o in unrolled.outputs]
    used = [f"    {n} = float({n})" for n, v in made.inputs.items() if v.id in text.uses]
    head = [*HEAD, "", "", f"def kernel({'*, ' if defaults else ''}{defaults}):"]
    return "\n".join([*head, *used, *(f"    {line}" for line in body), "    return {", *results, "    }", ""])


def plain_python(inputs: Mapping[str, Value], outputs: Sequence[Value]) -> tuple[PythonText, list[str]]:
    """The text of values over inputs of these names, and the statements that it stands on."""
    lines: list[str] = []

    def assign(value: Value, text: str) -> str:
        lines.append(f"x{value.id} = {text}")
        return f"x{value.id}"

    made = PythonText(outputs, {v.id: n for n, v in inputs.items()}, function=_function, number=_literal, assign=assign)
    made.print()
    return made, lines


def _function(text: PythonText, value: Value) -> str:
    row, args = OPERATORS[value.op], value.args
    if row.python_positive and all(map(_never_negative, args)):
        return row.python_positive.format(*map(text.text, args))
    return row.python.format(*map(text.named if row.twice else text.text, args))


def _never_negative(value: Value) -> bool:
    """Of sizes, degrees and rates, which inputs are."""
    if value.known:
        return bool(np.all(value.data >= 0))
    return value.op == "input" or (OPERATORS[value.op].keeps_sign and all(map(_never_negative, value.args)))


def _literal(x: Any) -> str:
    return repr(x) if isinstance(x, bool) else repr(float(x)) if not isinstance(x, Fraction) else repr(x.numerator / x.denominator)


def _rounded(made: PythonText, rounded: str, value: Value, left_of: Value | None = None) -> str:
    text = made.text(value)
    if not rounded or value.known:
        return text
    if left_of is not None:
        return f"ceil(({text}) - {made.text(left_of, PRODUCT)} * {GUARD!r})"
    return f"ceil(({text}) * {1 - GUARD!r})" if rounded == "up" else f"floor(({text}) * {1 + GUARD!r})"
