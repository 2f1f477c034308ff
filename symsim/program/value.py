"""A value of a program, and what its operations do: exactly to numbers, in floating point to arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from symsim.algebra.expr import extreme
from symsim.algebra.expr import tree_depth as tree_depth_of

GUARD = 2.0**-49

Number = int | Fraction | float


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


def guarded_ceil(x: Any) -> Any:
    return np.ceil(x * (1 - np.copysign(GUARD, x)))


def guarded_floor(x: Any) -> Any:
    return np.floor(x * (1 + np.copysign(GUARD, x)))


def tree_depth(x: Any) -> Any:
    """log2 rounded up, of what is rounded up itself (symsim.algebra.expr.tree_depth)."""
    n = guarded_ceil(x) - 1
    depth = np.where(n > 0, np.where(n < np.inf, np.frexp(n)[1], n), 0.0)
    return np.where(np.greater(x, 0), depth, np.nan)


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "mod": np.mod,
    "ceil": guarded_ceil,
    "floor": guarded_floor,
    "log2": tree_depth,
    "abs": np.abs,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
}


def _by_zero(x: Any) -> float:
    return math.nan if not x or x != x else math.copysign(math.inf, x)


EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: _by_zero(a) if not b else a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / b,
    "max": extreme(max),
    "min": extreme(min),
    "mod": lambda a, b: a % b if b else math.nan,
    "ceil": lambda x: math.ceil(x) if math.isfinite(x) else x,
    "floor": lambda x: math.floor(x) if math.isfinite(x) else x,
    "log2": tree_depth_of,
    "abs": abs,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
    "where": lambda c, a, b: a if c else b,
}
COMMUTES = frozenset({"add", "mul", "max", "min", "and", "or", "eq", "ne"})


def numpy_operation(op: str, *args: Any) -> Any:
    """One operation on numbers and arrays, in floating point."""
    return _NUMPY[op](*(_as_array(a) for a in args))


def _as_array(x: Any) -> Any:
    return float(x) if isinstance(x, (int, Fraction)) and not isinstance(x, bool) else x
