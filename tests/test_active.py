"""Expressions along the branch that is active at given values."""

from __future__ import annotations

import pytest

from symsim.algebra.active import as_here
from symsim.algebra.expr import function, maximum, minimum, of_largest, symbol

A, B, C = symbol("a"), symbol("b"), symbol("c")


def test_what_counts_stands_alone() -> None:
    inside = 3 * maximum(A, B + minimum(C, 2)) ** 2 + A / maximum(B, 1)
    assert as_here(inside, {"a": 1, "b": 4, "c": 5}) == 3 * (B + 2) ** 2 + A / B
    assert as_here(inside, {"a": 9, "b": 4, "c": 5}) == 3 * A**2 + A / B
    chosen = of_largest([(A, B), (C, 2)])
    assert (as_here(chosen, {"a": 1, "b": 3, "c": 7}), as_here(chosen, {"a": 1, "b": 1, "c": 7})) == (A, C)


def test_of_equal_ones_the_first_and_roundings_stay() -> None:
    assert as_here(maximum(A, B), {"a": 2, "b": 2}) == A
    rounded = function("ceil", maximum(A, B) / 3)
    assert as_here(rounded + maximum(A, B), {"a": 1, "b": 2}) == rounded + B
    with pytest.raises(KeyError, match="b"):
        as_here(maximum(A, B), {"a": 1})
