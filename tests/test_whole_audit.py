"""The whole audit, run once: every claim is as approved, turns red with an error planted, and stands in the report that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from symsim.algebra.expr import Expr
from symsim.audit.claims import Claim
from symsim.audit.printed import audit_tables
from symsim.audit.report import audit_report
from symsim.audit.running import Audit, asked, audit
from symsim.audit.subjects import Derivations
from symsim.report import rendered

KEPT = Path(__file__).parents[1] / "reports" / "audit.md"
PLANTED = " with a planted error"


@pytest.mark.long
def test_the_whole_audit() -> None:
    claims, comparisons = asked(())
    wrong = [planted(c, k) for k, c in enumerate(claims) if c.subject is not None]
    both = audit([*claims, *wrong], comparisons)
    found = Audit(tuple(o for o in both.outcomes if PLANTED not in o.claim.id), tuple(e for e in both.errors if PLANTED not in e), both.comparisons)
    every_claim_is_as_approved(found)
    every_planted_error_is_red(both, wrong)
    the_kept_report_is_current(found)


def every_claim_is_as_approved(found: Audit) -> None:
    assert not found.errors
    assert not [f"{o.claim.id}: {o.red}" for o in found.outcomes if o.red]
    assert not [o.claim.id for o in found.outcomes if o.claim.stored is None]
    assert not [c.entry.id for c in found.comparisons if not c.passes]
    assert len(found.outcomes) >= 500


def every_planted_error_is_red(both: Audit, wrong: Sequence[Claim]) -> None:
    passed = {o.claim.id for o in both.outcomes if o.passes}
    assert len(wrong) >= 500
    assert not [c.id for c in wrong if c.id in passed]


def the_kept_report_is_current(found: Audit) -> None:
    text = rendered(audit_report(found, audit_tables((), Derivations()).found), ".md").decode()
    assert KEPT.read_text() == text, "python reports/remake.py makes it again"


def planted(claim: Claim, number: int) -> Claim:
    """The claim with one term of its formula twice as large; all of it where a limit may drop the term."""
    assert claim.formula is not None
    terms = sorted(claim.formula.terms.items(), key=str)
    if not terms:
        wrong = claim.formula + 1
    elif any("->" in fact for fact in claim.given):
        wrong = 2 * claim.formula
    else:
        wrong = claim.formula + Expr(dict([terms[number % len(terms)]]))
    return replace(claim, id=claim.id + PLANTED, formula=wrong)
