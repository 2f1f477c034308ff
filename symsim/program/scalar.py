"""A program printed as plain Python over numbers: one configuration in microseconds.

The steps of an unrolled derivation are lowered into a `Program` whose inputs stand for unknown numbers, so that constants fold, shared terms and
factors are computed once, and only what is asked for is left. What is left is printed as one function and compiled. All numbers
are floats, which are faster than ints and hold whole numbers below 2^53 exactly.

What is used once stands inside the expression that uses it; a maximum of names is a conditional, which is a call less; a max of
values that stand nowhere else is bound where it is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symsim.algebra.operators import GUARD, PRODUCT
from symsim.program.base import Base
from symsim.program.plain_python import HEAD as HEAD
from symsim.program.plain_python import literal, plain_python
from symsim.program.python_text import PythonText
from symsim.program.steps import lowered
from symsim.program.unrolled import Unrolled, at_base, unroll
from symsim.program.value import Value


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
    defaults = ", ".join(f"{a.name}={literal(a.default)}" for a in unrolled.arguments)
    text, body = plain_python(made.inputs, made.results)
    results = [f"        {o.name!r}: {_rounded(text, o.rounded, *made.outputs[o.name])}," for o in unrolled.outputs]
    used = [f"    {n} = float({n})" for n, v in made.inputs.items() if v.id in text.uses]
    head = [*HEAD, "", "", f"def kernel({'*, ' if defaults else ''}{defaults}):"]
    return "\n".join([*head, *used, *(f"    {line}" for line in body), "    return {", *results, "    }", ""])


def _rounded(made: PythonText, rounded: str, value: Value, left_of: Value | None = None) -> str:
    text = made.text(value)
    if not rounded or value.known:
        return text
    if left_of is not None:
        return f"ceil(({text}) - {made.text(left_of, PRODUCT)} * {GUARD!r})"
    return f"ceil(({text}) * {1 - GUARD!r})" if rounded == "up" else f"floor(({text}) * {1 + GUARD!r})"
