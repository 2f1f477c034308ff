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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from symsim.algebra.expr import ZERO, Expr, Number, expr
from symsim.algebra.facts import Fact, solved
from symsim.algebra.grammar import parse
from symsim.audit.claims import Claim, mapped
from symsim.audit.needed import refuse_unneeded, refuse_vacuous
from symsim.audit.points import Point, counter_model, tested_points
from symsim.audit.proving import Proof, Sides, about, functions_in, is_zero, meanings, prove, tidy
from symsim.audit.references import relative_sizes
from symsim.audit.subjects import Derivations
from symsim.audit.switching import left_under, read_switches, sides_under
from symsim.errors import InputError, cut


@dataclass(frozen=True)
class Outcome:
    """What became of a claim.

    difference: symsim less published under the facts; derived and published: the two sides under them, in symsim's names, expanded;
    points: where it was tested; switched: symsim less published with the stored switch; red: how it is not what was approved, empty where
    it is; counter_model: the smallest numbers at which the sides differ, and by how much; sizes: the difference over symsim's side at known
    models.
    """

    claim: Claim
    verdict: str
    difference: Expr
    derived: Expr = ZERO
    published: Expr = ZERO
    points: int = 0
    switched: Expr = ZERO
    red: str = ""
    assumptions: tuple[str, ...] = ()
    counter_model: tuple[Point, Number] | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        """Whether it is what was approved, or, where nothing was, equal."""
        return not self.red


def judge(claim: Claim, derivations: Derivations, lenient: bool = False) -> Outcome:
    """The verdict of a claim; lenient: facts may be there that are not needed. InputError names file and line of whatever is wrong
    with the claim itself."""
    if claim.subject is None:
        return Outcome(claim, "out_of_scope", expr(0))
    sides = sides_under(claim, derivations)
    if lenient:
        sides = replace(sides, facts=about(sides, sides.difference))
    elif sides.named and prove(sides, (), sides.difference).holds:
        raise InputError(f"{claim.place('given')}: {claim.id} does not need the fact '{cut(str(sides.named[0]))}'")
    proof = _under(claim, sides, sides.facts, sides.difference)
    if not proof.holds:
        # what holds of every stage is proven of every stage; what does not may still hold of the one there is
        sides = sides.alone
        proof = _under(claim, sides, sides.facts, sides.difference)
    points = tested_points(proof.left, sides.facts) if not proof.holds and functions_in(proof.left) else 0
    verdict = "tested" if points else "differs" if not proof.holds else "equal_under" if sides.facts or sides.neglected else "equal"
    verdict = _on_the_source(claim, sides, verdict)
    difference = expr(0) if proof.holds or points else tidy(proof.left)
    found = Outcome(claim, verdict, difference, *_in_one_form(sides, difference), points, assumptions=sides.assumptions)
    if difference:
        found = replace(found, counter_model=counter_model(difference, sides.facts, sides.derived.possible), sizes=relative_sizes(sides, difference))
        found = replace(found, switched=_with_the_switch(claim, derivations))
    red = _against_stored(found, sides)
    if not lenient and (not red or claim.stored is None):
        refuse_vacuous(claim, sides)
        refuse_unneeded(claim, sides, proof)
    return replace(found, red=red)


def _in_one_form(sides: Sides, difference: Expr) -> tuple[Expr, Expr]:
    """symsim's side and the published one under the facts that are equalities; in a limit symsim's side is what the limit leaves."""
    facts = solved(sides.facts)
    published, neglected = (sides.formula(a).expand().substitute(facts) for a in (sides.published, sum(sides.neglected, expr(0))))
    return published + neglected + difference, published


def _under(claim: Claim, sides: Sides, facts: Sequence[Fact], amount: Expr) -> Proof:
    try:
        return prove(sides, facts, amount)
    except InputError as error:
        raise InputError(f"{claim.place('given')}: {error}") from None


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
    return mapped(formula, meanings(claim, formula.symbols(), sides.derived, set()))


def _with_the_switch(claim: Claim, derivations: Derivations) -> Expr:
    """symsim less published with the choice of assumptions under which it is said to be equal."""
    if claim.stored is None or not claim.stored.switch:
        return ZERO
    place = claim.place("verdict.switch")
    switches = read_switches(claim.stored.switch, place)
    try:
        return left_under(claim, switches, derivations)
    except InputError as error:
        raise InputError(f"{place}: with {cut(claim.stored.switch)}: {error}") from None


def _against_stored(found: Outcome, sides: Sides) -> str:
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
    if found.switched:
        return f"with {cut(stored.switch)} it is not equal, symsim less published is {cut(str(found.switched), 200)}"
    if stored.difference is None:
        return "no difference is stored"
    was = parse(stored.difference, where=found.claim.place("verdict.difference")).substitute(sides.fixed)
    return "" if is_zero(was - found.difference) else f"stored difference {cut(stored.difference)}, found {cut(str(found.difference), 200)}"
