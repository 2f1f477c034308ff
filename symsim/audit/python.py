"""`symsim.audit`: the audit, or a formula of one's own, in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symsim.audit.explaining import Nearest
from symsim.audit.own import own_claim, own_outcome, own_subject
from symsim.audit.running import Audit, asked
from symsim.audit.running import audit as run
from symsim.audit.subjects import Derivations
from symsim.audit.verdicts import Outcome


def audit(*sources: str) -> Audit:
    """The verdicts of the claims of sources by name, of files, or of claims by id; of all sources where none is named.

    `outcomes` has an `Outcome` of each; `errors` a sentence for each that does not read; `passes` whether all is as approved. InputError
    for a name that is none of these.

    >>> found = audit("korthikanti.eq8").outcomes[0]
    >>> found.verdict, str(found.difference)
    ('source_contradicts_itself', '-8*L*b*dp*h*m*s**2')
    """
    return run(*asked(sources))


def audit_formula(
    formula: str,
    says: str,
    model: str,
    strategy: str = "",
    system: str = "",
    *,
    given: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    explain: bool = False,
) -> tuple[Outcome, Nearest | None]:
    """A formula of one's own, in symsim's symbols, against a definition or an expression over some; keep: definitions that stay
    symbols ("t_slow, sum_t"); explain: also the switches of assumptions under which symsim comes nearest. InputError as
    `symsim audit --formula`.

    >>> found, _ = audit_formula("24*b*s*h**2 + 4*b*s**2*h", "F_dense", "bare-gpt", given="g = a, a*d = h, f = 4*h")
    >>> found.verdict
    'equal_under'
    """
    facts, kept = ([said] if isinstance(said, str) else list(said) for said in (given, keep))
    return own_outcome(own_claim(formula, says, own_subject(model, strategy, system, overrides or {}), facts, kept), Derivations(), explain)
