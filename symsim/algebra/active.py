"""An expression along the branch that is active at given values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symsim.algebra.expr import ZERO, Atom, Call, Expr, Number, expr
from symsim.algebra.operators import FUNCTIONS


def as_here(expression: Expr, values: Mapping[str, Number]) -> Expr:
    """In the place of each max, min and `at` the argument that counts at these values, of equal ones the first. KeyError names a missing symbol."""

    def of(atom: Atom) -> Expr:
        at = counting(atom, values) if isinstance(atom, Call) else None
        return Expr({((atom, 1),): 1}) if at is None or not isinstance(atom, Call) else as_here(atom.branches[0][at], values)

    return remade(expression, of)


def counting(call: Call, values: Mapping[str, Number]) -> int | None:
    """Which argument of a max, min or `at` counts at these values, of equal ones the first; None of a function that does not choose."""
    row = FUNCTIONS.get(call.function)
    if row is None or row.chosen is None:
        return None
    reached = [key.evaluate(values) for key in call.branches[1]]
    return reached.index(row.chosen(*reached))


def remade(expression: Expr, of: Callable[[Atom], Expr]) -> Expr:
    """With an expression in the place of each symbol and call."""
    total = ZERO
    for monomial, coefficient in expression.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            term = term * of(atom) ** power
        total = total + term
    return total
