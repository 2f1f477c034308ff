"""Quotients of sums without what is above and below: ((p - 1) t)/((m + p - 1) t) is (p - 1)/(m + p - 1)."""

from __future__ import annotations

from symsim.algebra.arranged import Terms, split
from symsim.algebra.expr import ONE, Call, Expr, Monomial, Number, product


def cancelled(amount: Expr) -> Expr:
    """The expression, equal to it wherever it has a value, with factors taken out that a sum and the sum that divides it share."""
    whole = Expr({})
    for divisor, terms in _by_divisor(amount).items():
        whole = whole + (Expr(terms) if divisor is None else _quotient(Expr(terms), divisor.arguments[0]))
    return whole


def _by_divisor(amount: Expr) -> dict[Call | None, dict[Monomial, Number]]:
    """Terms by the sum that divides them once, without it; the others under None."""
    found: dict[Call | None, dict[Monomial, Number]] = {}
    for monomial, coefficient in amount.terms.items():
        sums = [a for a, p in monomial if isinstance(a, Call) and a.function == "sum" and p == -1]
        own = sums[0] if len(sums) == 1 else None
        rest = monomial if own is None else tuple(f for f in monomial if f[0] != own)
        found.setdefault(own, {})[rest] = coefficient
    return found


def _quotient(above: Expr, below: Expr) -> Expr:
    number, powers, sums = split(above.terms)
    by, under, divisors = split(below.terms)
    kept = [Expr(s) for s in sums]
    left: list[Terms] = []
    for divisor in divisors:
        same = next((k for k in kept if k == Expr(divisor)), None)
        if same is None:
            left.append(divisor)
        else:
            kept.remove(same)
    atoms = product(Expr({((a, 1),): 1}) ** p for own, way in ((powers, 1), (under, -1)) for a, p in ((a, p * way) for a, p in own.items()))
    return atoms * (number / by) * product(kept) / product([ONE, *(Expr(d) for d in left)])
