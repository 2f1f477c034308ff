"""Derivatives of one expression by all of its symbols in one pass, as numbers: backwards from the value to what it is made of."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.active import counting
from symsim.algebra.expr import Call, Expr, Number, Symbol
from symsim.algebra.operators import EXACT, FUNCTIONS


def partials(expression: Expr, values: Mapping[str, Number]) -> dict[str, float]:
    """d expression / d symbol at the values, by symbol; of max, min and `at` along the branch that is active, of ties the first.

    The expression holds no reduction over stages; a symbol on which it does not depend there is left out. KeyError names a missing value.
    """
    found: dict[str, float] = {}
    _add(expression, values, 1.0, found)
    return found


def _add(expression: Expr, values: Mapping[str, Number], weight: float, found: dict[str, float]) -> None:
    for monomial, coefficient in expression.terms.items():
        atoms = [(atom, power, float(values[atom.name] if isinstance(atom, Symbol) else _value(atom, values))) for atom, power in monomial]
        for place, (atom, power, value) in enumerate(atoms):
            slope = weight * float(coefficient) * power * value ** (power - 1)
            for other, (_, own, factor) in enumerate(atoms):
                if other != place:
                    slope *= factor**own
            if not slope:
                continue
            if isinstance(atom, Symbol):
                found[atom.name] = found.get(atom.name, 0.0) + slope
            else:
                _through(atom, value, values, slope, found)


def _through(call: Call, value: float, values: Mapping[str, Number], weight: float, found: dict[str, float]) -> None:
    row = FUNCTIONS[call.function]
    if callable(row.slope):
        _add(call.arguments[0], values, weight * float(row.slope(value)), found)
    elif row.slope is not None:
        if row.slope:
            _add(call.arguments[0], values, weight * row.slope, found)
    else:
        at = counting(call, values)
        assert at is not None
        _add(call.branches[0][at], values, weight, found)


def _value(call: Call, values: Mapping[str, Number]) -> Number:
    value: Number = EXACT[call.function](*(a.evaluate(values) for a in call.arguments))
    return value
