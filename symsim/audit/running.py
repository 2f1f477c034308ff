"""The audit: claims of sources, their verdicts, and the object of `symsim audit --json`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symsim.audit.claims import Claim, read_claims, shipped_sources
from symsim.audit.subjects import Derivations
from symsim.audit.verdicts import Outcome, judge
from symsim.errors import InputError, cut, nearest


@dataclass(frozen=True)
class Audit:
    """Outcomes of claims in order, and sentences for those that are no claims as they stand."""

    outcomes: tuple[Outcome, ...]
    errors: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        return not self.errors and all(o.passes for o in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The object of `symsim audit --json`."""
        return {"results": [_row(o) for o in self.outcomes], "tables": []}


def _row(outcome: Outcome) -> dict[str, Any]:
    claim = outcome.claim
    row = {
        "id": claim.id,
        "claim": claim.status,
        "verdict": outcome.verdict,
        "given": list(claim.given),
        "difference": "" if not outcome.difference else str(outcome.difference),
        "assumptions": list(outcome.assumptions),
        "source": str(claim.source),
        "locator": claim.at,
        "stored": claim.stored.verdict if claim.stored is not None else "",
        "passes": outcome.passes,
    }
    if outcome.points:
        row["points"] = outcome.points
    if outcome.red:
        row["red"] = outcome.red
    return row


def audit(claims: Sequence[Claim]) -> Audit:
    """The verdicts of claims; what is wrong with a claim itself is a sentence, and the others go on."""
    derivations = Derivations()
    outcomes, errors = [], []
    for claim in claims:
        try:
            outcomes.append(judge(claim, derivations))
        except InputError as error:
            errors.append(str(error))
    return Audit(tuple(outcomes), tuple(errors))


def chosen(names: Sequence[str]) -> list[Claim]:
    """The claims of sources by name, of files, or by id; of all sources where none is named. InputError for what is none of these."""
    shipped = shipped_sources()
    found: list[Claim] = []
    for name in names or shipped:
        if name in shipped:
            found += read_claims(shipped[name])
        elif name.endswith((".yaml", ".yml")) or os.path.sep in name:
            found += read_claims(name)
        else:
            found += _by_id(name, shipped)
    return found


def _by_id(name: str, shipped: "dict[str, Any]") -> list[Claim]:
    # an id mostly begins with its file's name
    first = [s for s in shipped if name.split(".")[0] == s]
    for source in (*first, *(s for s in shipped if s not in first)):
        for claim in read_claims(shipped[source]):
            if claim.id == name:
                return [claim]
    ids = [c.id for s in first for c in read_claims(shipped[s])]
    raise InputError(f"no source, file or claim is named '{cut(name)}': {nearest(name, [*shipped, *ids])}")
