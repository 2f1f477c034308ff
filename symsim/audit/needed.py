"""Whether every fact and every neglected term of a claim is needed: without one, something else must come out.

Mostly one point shows it, where the other facts hold and this one does not: symsim less published has another value there. Limits, and
facts about definitions, are dropped and the proof is made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from symsim.algebra.expr import Expr, expr
from symsim.algebra.facts import Fact
from symsim.algebra.formula import Formula
from symsim.audit.claims import Claim
from symsim.audit.points import Points
from symsim.audit.proving import Proof, Sides, about, is_zero, prove
from symsim.errors import InputError, cut

_MOST_NEGLECTED = 8
_POINTS = 12


def refuse_unneeded(claim: Claim, sides: Sides, proof: Proof) -> None:
    """InputError for a fact or a neglected term without which the same comes out."""
    formula = sides.formula(sides.difference)
    for fact in unneeded(sides, proof, formula):
        raise InputError(f"{claim.place('given')}: {claim.id} does not need the fact '{cut(str(fact))}'")
    terms = sides.neglected[:_MOST_NEGLECTED]
    for size in range(1, len(terms) + 1):
        for numbers in combinations(range(len(terms)), size):
            if _nothing(sides, sum((terms[k] for k in numbers), expr(0))):
                said = " + ".join(claim.neglects[k].term for k in numbers)
                raise InputError(f"{claim.place(f'neglects.{numbers[0]}')}: {claim.id} neglects {cut(said)}, which is 0 under the facts")


def refuse_vacuous(claim: Claim, sides: Sides) -> None:
    """InputError where a limit leaves nothing of what is published: anything would be equal."""
    limits = [f for f in sides.facts if f.relation == "->"]
    if not limits or not sides.published:
        return
    try:
        nothing = prove(sides, about(sides, sides.published), sides.published).holds
    except InputError:
        return
    if nothing:
        raise InputError(f"{claim.place('given')}: under {', '.join(map(str, limits))} nothing is left of what {claim.id} publishes")


def unneeded(sides: Sides, proof: Proof, formula: Formula) -> Iterable[Fact]:
    """The facts without each of which the proof leaves the same. formula: symsim less published."""
    exact = _only_exact(sides.facts, formula)
    for number, fact in enumerate(sides.facts):
        if fact.relation == ":":
            continue
        others = sides.facts[:number] + sides.facts[number + 1 :]
        if not (exact or _shown(formula, others, proof.left)) and _same_without(sides, others, proof):
            yield fact


def _only_exact(facts: Iterable[Fact], formula: Formula) -> bool:
    defined = {d.symbol for d in formula.definitions}
    return any(f.relation == "->" or f.symbols & defined for f in facts)


def _same_without(sides: Sides, others: tuple[Fact, ...], proof: Proof) -> bool:
    try:
        return is_zero(prove(sides, about(sides, sides.difference, others), sides.difference).left - proof.left)
    except InputError:
        return False


def _shown(formula: Formula, facts: tuple[Fact, ...], left: Expr) -> bool:
    """Whether a formula has another value than `left` at a point where these facts hold."""
    try:
        points = Points(formula.symbols | left.symbols(), facts)
    except InputError:
        return False
    for point, _ in zip(points.drawn(), range(_POINTS)):
        try:
            if formula.value(point) != left.evaluate(point):
                return True
        except ZeroDivisionError:
            continue
    return False


def _nothing(sides: Sides, amount: Expr) -> bool:
    formula = sides.formula(amount)
    if not _only_exact(sides.facts, formula) and _shown(formula, sides.facts, expr(0)):
        return False
    try:
        return prove(sides, sides.facts, amount).holds
    except InputError:
        return is_zero(amount)
