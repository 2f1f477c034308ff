"""Values of a program as plain Python over floats: the text of each, and the statements that it stands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from symsim.algebra.operators import OPERATORS
from symsim.program.python_text import PythonText
from symsim.program.value import Value

HEAD = ["from math import ceil, floor, nan, sqrt"]


def plain_python(
    inputs: Mapping[str, Value], outputs: Sequence[Value], named: Callable[[Value], str] = lambda value: f"x{value.id}"
) -> tuple[PythonText, list[str]]:
    """The text of values over inputs of these names, and the statements that it stands on. named: the name under which a value is put down."""
    lines: list[str] = []

    def assign(value: Value, text: str) -> str:
        lines.append(f"{named(value)} = {text}")
        return named(value)

    made = PythonText(outputs, {v.id: n for n, v in inputs.items()}, function=_function, number=literal, assign=assign)
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
    if value.op == "kept":
        return _never_negative(value.args[0])
    return value.op == "input" or (OPERATORS[value.op].keeps_sign and all(map(_never_negative, value.args)))


def literal(x: Any) -> str:
    return repr(x) if isinstance(x, bool) else repr(float(x)) if not isinstance(x, Fraction) else repr(x.numerator / x.denominator)
