"""How many terms an expression comes to where definitions are put in, before it is multiplied out."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.expr import Expr, Symbol

# more than anyone reads: a step has up to tens of thousands, a run, which is products of them, billions
MOST_TERMS = 100_000


def most_terms(amount: Expr, terms: Mapping[str, int]) -> int:
    """The most terms that it may have, inside its calls too, where its symbols have so many."""
    found, inside = 0, 0
    for monomial in amount.terms:
        product = 1
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                product *= terms.get(atom.name, 1) ** max(power, 0)
            else:
                inside = max(inside, *(most_terms(a, terms) for a in atom.arguments))
        found += product
    return max(found, inside)
