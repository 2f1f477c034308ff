"""Operations on arrays that NumPy lacks. A compiled module holds those that it needs as they stand here."""

import functools
from typing import Any

import numpy as np


def arrays(*values: Any) -> Any:
    """Floats, which do not wrap around as whole numbers of 64 bits do."""
    return [np.asarray(value, dtype=np.float64) for value in values]


def ceil(x: Any) -> Any:
    """x rounded up; up to 2^-49 of x, and never a quarter, above a whole number is rounding."""
    return np.ceil(x - np.minimum(2.0**-49 * np.abs(x), 0.25))


def ceil_beside(x: Any, whole: Any) -> Any:
    """x, what is left of a larger number, rounded up; less than 2^-49 of the larger one is taken for rounding."""
    return np.ceil(x - np.minimum(2.0**-49 * whole, 0.25))


def floor(x: Any) -> Any:
    """x rounded down; up to 2^-49 of x, and never a quarter, below a whole number is rounding."""
    return np.floor(x + np.minimum(2.0**-49 * np.abs(x), 0.25))


def tree_depth(x: Any) -> Any:
    """The depth of a binary tree over x leaves: log2 rounded up, 0 up to one leaf; of none there is no tree."""
    others = ceil(x) - 1
    depth = np.where(others > 0, np.where(others < np.inf, np.frexp(others)[1], others), 0.0)
    return np.where(np.greater(x, 0), depth, np.nan)


def largest(*values: Any) -> Any:
    """The largest of several, element by element."""
    return functools.reduce(np.maximum, values)


def least(*values: Any) -> Any:
    """The least of several, element by element."""
    return functools.reduce(np.minimum, values)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """One where the condition holds, the other where not; of single numbers a number."""
    return np.where(condition, yes, no)[()]
