"""A value of a program, and what its operations do: exactly to numbers, in floating point to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np

from symsim.algebra.operators import OPERATORS, Number
from symsim.program import arrays


@dataclass(eq=False)
class Value:
    """A number (`data` a Python number), an array over its own axes (length 1 along others), or an operation on others.

    terms: of a sum, its addends and their coefficients. factors: of a product, (factor, 1 or -1).
    """

    id: int
    op: str
    args: tuple["Value", ...]
    mask: int
    data: Any = None
    terms: tuple[tuple["Value", Number], ...] | None = None
    factors: tuple[tuple["Value", int], ...] | None = None
    name: str = ""

    @property
    def known(self) -> bool:
        return self.data is not None

    def __repr__(self) -> str:
        return f"{self.op}#{self.id}" if self.data is None else f"{self.op}#{self.id}={self.data}"


_NUMPY: dict[str, Callable[..., Any]] = {
    name: getattr(arrays, row.arrays) if row.arrays else getattr(np, row.numpy) for name, row in OPERATORS.items() if row.primitive
}


def numpy_operation(op: str, *args: Any) -> Any:
    """One operation on numbers and arrays, in floating point."""
    return _NUMPY[op](*(_as_array(a) for a in args))


def added(group: Sequence[tuple[np.ndarray, Number]]) -> np.ndarray:
    """The sum of arrays times numbers, in their order, as operations one by one add them."""
    (first, times), *rest = group
    with np.errstate(all="ignore"):
        made = numpy_operation("mul", times, first) if times != 1 else np.array(first, dtype=float)
        for data, by in rest:
            scaled = data if abs(by) == 1 else numpy_operation("mul", abs(by), data)
            (np.subtract if by < 0 else np.add)(made, scaled, out=made)
    return made


def of_largest(pairs: Sequence[tuple[Any, Any]]) -> np.ndarray:
    """Of (value, key) pairs the values of the largest keys, the first of equal ones."""
    found, most = pairs[0]
    with np.errstate(all="ignore"):
        for value, key in pairs[1:]:
            found = numpy_operation("where", numpy_operation("lt", most, key), value, found)
            most = numpy_operation("max", most, key)
    return cast(np.ndarray, found)


def is_boolean(value: Value) -> bool:
    """Whether a value is true or false rather than a number."""
    if value.op == "where":
        return is_boolean(value.args[1])
    row = OPERATORS.get(value.op)
    return isinstance(value.data, bool) or (isinstance(value.data, np.ndarray) and value.data.dtype == bool) or (row is not None and row.gives_truth)


def _as_array(x: Any) -> Any:
    # Fraction's class is an abstract one, of which isinstance asks slowly
    return float(x) if type(x) is int or type(x) is Fraction else x
