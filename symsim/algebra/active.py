"""An expression along the branch that is active at given values."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.expr import ZERO, Atom, Call, Expr, Number, expr
from symsim.algebra.operators import FUNCTIONS


def as_here(expression: Expr, values: Mapping[str, Number]) -> Expr:
    """In the place of each max, min and `at` the argument that counts at these values, of equal ones the first. KeyError names a missing symbol."""
    total = ZERO
    for monomial, coefficient in expression.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            term = term * _as_here(atom, values) ** power
        total = total + term
    return total


def _as_here(atom: Atom, values: Mapping[str, Number]) -> Expr:
    row = FUNCTIONS.get(atom.function) if isinstance(atom, Call) else None
    if row is None or row.chosen is None or not isinstance(atom, Call):
        return Expr({((atom, 1),): 1})
    branches, keys = atom.branches
    reached = [key.evaluate(values) for key in keys]
    return as_here(branches[reached.index(row.chosen(*reached))], values)
