"""Short equations that follow one another, two on a line of a page."""

from __future__ import annotations

from collections.abc import Sequence

from symsim.algebra.typeset import width
from symsim.report.document import Equation
from symsim.report.ink import LINE

HALF = LINE / 2 - 0.5  # em that an equation may take where another stands beside it


def pairs(equations: Sequence[Equation]) -> list[tuple[Equation, ...]]:
    """All of them in their order, one or two a line. Two are short, left sides set to the longest of all."""
    edge = max((width(e.left) for e in equations), default=0.0)
    made: list[tuple[Equation, ...]] = []
    for equation in equations:
        if made and len(made[-1]) == 1 and _short(made[-1][0], edge) and _short(equation, edge):
            made[-1] = (*made[-1], equation)
        else:
            made.append((equation,))
    return made


def _short(equation: Equation, edge: float) -> bool:
    return len(equation.lines) == 1 and edge + width(f"= {equation.lines[0]}") <= HALF
