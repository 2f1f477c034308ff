"""Sizes that ranks share out whole: what divides them, in the words of a refusal."""

from __future__ import annotations

from collections.abc import Callable

from symsim.errors import InputError


def divisors(value: int, fits: Callable[[int], bool] = lambda n: True) -> str:
    # trial division only as far as anyone would set a degree
    found = [n for n in range(1, min(value, 4096) + 1) if value % n == 0 and fits(n)]
    return ", ".join(map(str, found[:8])) + (", ..." if len(found) > 8 else "")


def divides(degree_name: str, degree: int, size_name: str, size: int) -> None:
    """InputError with the degrees that do, where one does not."""
    if size % degree:
        raise InputError(f"{degree_name}={degree} does not divide {size_name}={size}; valid: {divisors(size)}")
