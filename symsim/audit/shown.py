"""Both sides of a claim in one normal form, the terms that only one of them has in colour."""

from __future__ import annotations

from symsim.algebra.expr import Expr
from symsim.algebra.grammar import parse
from symsim.algebra.typeset import latex
from symsim.audit.claims import Claim, mapped
from symsim.audit.proving import is_zero
from symsim.audit.verdicts import Outcome

_MOST_TERMS = 60


def published(outcome: Outcome) -> str:
    """The printed formula as LaTeX in symsim's names; what symsim does not derive is red."""
    return _coloured(outcome.published, outcome.derived, outcome)


def derived(outcome: Outcome) -> str:
    """What symsim derives, under the claim's facts; what it has beyond the printed formula is blue where the claim leaves it out, else red."""
    return _coloured(outcome.derived, outcome.published, outcome)


def in_names(claim: Claim, formula: Expr) -> str:
    """A formula in the source's letters as LaTeX in symsim's names."""
    return plain(mapped(formula, {n: parse(claim.letters[n]) for n in formula.symbols()}))


def plain(amount: Expr) -> str:
    """LaTeX for a table's cell."""
    return latex(amount, fractions=False) if len(amount.terms) <= _MOST_TERMS else rf"\text{{{len(amount.terms)} terms}}"


def _coloured(own: Expr, other: Expr, outcome: Outcome) -> str:
    """One side: first what both have, then each term that the other has not. All of it plain where the two are equal."""
    if is_zero(own - other):
        return plain(own)
    left_out = outcome.derived - outcome.published - outcome.difference
    both = {m: c for m, c in own.terms.items() if other.terms.get(m) == c}
    rest = [(m, c) for m, c in own.terms.items() if m not in both]
    if len(rest) > _MOST_TERMS:
        return plain(own)
    text = plain(Expr(both)) if both else ""
    for monomial, amount in rest:
        colour = "blue" if abs(amount - other.terms.get(monomial, 0)) == abs(left_out.terms.get(monomial, 0)) else "red"
        sign = (" - " if amount < 0 else " + ") if text else ("-" if amount < 0 else "")
        text += rf"{sign}\textcolor{{{colour}}}{{{plain(Expr({monomial: amount if amount > 0 else -amount}))}}}"
    return text
