"""From a claim to its verdict, and whether that is the one that was approved.

equal                       no fact and no neglected term was needed
equal_under                 the facts and neglected terms, each of them needed
tested                      floor, ceil, max or min stay: equal at so many random points, exactly; no proof
differs                     by `difference`, symsim less published
source_contradicts_itself   it differs, and `instead` is proven; or another place of the source says something else
symsim_wrong                an approved verdict that fails until symsim is mended
out_of_scope                nothing is derived: inference, a schedule that symsim does not model, arithmetic on printed numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from symsim.algebra.expr import Expr, Number, expr
from symsim.algebra.facts import Fact
from symsim.algebra.grammar import parse
from symsim.audit.claims import Claim, mapped
from symsim.audit.points import Point, counter_model, tested_points
from symsim.audit.proving import Proof, Sides, about, functions_in, is_zero, meanings, prove, sides_of, tidy
from symsim.audit.references import relative_sizes
from symsim.audit.subjects import Derivations, Derived
from symsim.errors import InputError, cut

MOST_NEGLECTED = 8


@dataclass(frozen=True)
class Outcome:
    """What became of a claim. difference: symsim less published under the facts; points: where it was tested."""

    claim: Claim
    verdict: str
    difference: Expr
    sides: Sides | None = None
    points: int = 0
    red: str = ""
    assumptions: tuple[str, ...] = ()

    @cached_property
    def counter_model(self) -> tuple[Point, Number] | None:
        """The smallest integers at which symsim's side and the published one differ, and by how much; None where they do not."""
        return counter_model(self.difference, self.sides.facts) if self.sides is not None and self.difference else None

    @cached_property
    def sizes(self) -> dict[str, float]:
        """The difference over symsim's side at the sizes of known models, by their names; of those that have all that is asked for."""
        return relative_sizes(self.sides, self.difference) if self.sides is not None and self.difference else {}

    @property
    def passes(self) -> bool:
        """Whether it is what was approved, or, where nothing was, equal."""
        return not self.red


def judge(claim: Claim, derivations: Derivations) -> Outcome:
    """The verdict of a claim. InputError names file and line of whatever is wrong with the claim itself."""
    if claim.subject is None:
        return Outcome(claim, "out_of_scope", expr(0))
    try:
        derived = derivations.of(claim.subject)
    except InputError as error:
        raise InputError(f"{claim.place('of')}: {error}") from None
    sides = sides_of(claim, derived)
    named = [f for f in sides.facts if f.relation != ":"]
    if named and prove(sides, (), sides.difference).holds:
        raise InputError(f"{claim.place('given')}: {claim.id} does not need the fact '{cut(str(named[0]))}'")
    proof = _under(claim, sides, sides.facts, sides.difference)
    if proof.holds:
        _refuse_unneeded(claim, sides, proof)
        verdict, points = ("equal_under" if sides.facts or sides.neglected else "equal"), 0
    else:
        verdict, points = "differs", tested_points(proof.left, sides.facts) if functions_in(proof.left) else 0
        verdict = "tested" if points else verdict
        _refuse_unneeded(claim, sides, proof)
    verdict = _on_the_source(claim, sides, verdict)
    found = Outcome(claim, verdict, expr(0) if proof.holds or points else tidy(proof.left), sides, points, "", sides.assumptions)
    return replace(found, red=_against_stored(found, derived))


def _under(claim: Claim, sides: Sides, facts: Sequence[Fact], amount: Expr) -> Proof:
    try:
        return prove(sides, facts, amount)
    except InputError as error:
        raise InputError(f"{claim.place('given')}: {error}") from None


def _refuse_unneeded(claim: Claim, sides: Sides, proof: Proof) -> None:
    """InputError for a fact or a neglected term without which the same comes out."""
    for number, fact in enumerate(sides.facts):
        if fact.relation == ":":
            continue
        try:
            same = is_zero(prove(sides, sides.facts[:number] + sides.facts[number + 1 :], sides.difference).left - proof.left)
        except InputError:
            continue
        if same:
            raise InputError(f"{claim.place('given')}: {claim.id} does not need the fact '{cut(str(fact))}'")
    terms = sides.neglected[:MOST_NEGLECTED]
    for size in range(1, len(terms) + 1):
        for numbers in combinations(range(len(terms)), size):
            try:
                nothing = prove(sides, sides.facts, sum((terms[k] for k in numbers), expr(0))).holds
            except InputError:
                nothing = is_zero(sum((terms[k] for k in numbers), expr(0)))
            if nothing:
                said = " + ".join(claim.neglects[k].term for k in numbers)
                raise InputError(f"{claim.place(f'neglects.{numbers[0]}')}: {claim.id} neglects {cut(said)}, which is 0 under the facts")


def _on_the_source(claim: Claim, sides: Sides, verdict: str) -> str:
    """Whether a source that differs is shown to contradict itself; symsim_wrong is said by people, and stays."""
    stored = claim.stored
    if stored is None or verdict != "differs":
        return verdict
    if stored.verdict == "symsim_wrong":
        return "symsim_wrong"
    if stored.verdict != "source_contradicts_itself":
        return verdict
    if claim.instead is not None:
        instead = _published(claim, claim.instead, sides)
        if not _under(claim, sides, about(sides, sides.says - instead), sides.says - instead - sum(sides.neglected, expr(0))).holds:
            return verdict
    if claim.against is not None:
        between = _published(claim, claim.against, sides) - sides.published
        if _under(claim, sides, about(sides, between), between).holds:
            return verdict
    return "source_contradicts_itself"


def _published(claim: Claim, formula: Expr, sides: Sides) -> Expr:
    return mapped(claim, formula, meanings(claim, formula.symbols(), sides.derived, set()))


def _against_stored(found: Outcome, derived: Derived) -> str:
    """What is wrong, old against new; empty where it is as approved."""
    stored = found.claim.stored
    if stored is None:
        return "" if found.verdict in ("equal", "equal_under", "tested") else f"{found.verdict}, and no verdict is stored"
    if stored.verdict != found.verdict:
        return f"stored {stored.verdict}, found {found.verdict}"
    if found.verdict == "symsim_wrong":
        return "symsim is wrong"
    if found.verdict in ("equal", "equal_under", "tested"):
        return ""
    if stored.difference is None:
        return "no difference is stored"
    fixed = {n: v for n, v in derived.fixed.items() if n not in found.claim.keep}
    was = parse(stored.difference, where=found.claim.place("verdict.difference")).substitute(fixed)
    return "" if is_zero(was - found.difference) else f"stored difference {cut(stored.difference)}, found {cut(str(found.difference), 200)}"
