"""The audit: claims of sources, their verdicts, and the object of `symsim audit --json`."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from symsim.audit.between import Comparison, chosen_comparisons
from symsim.audit.claims import Claim, read_claims, shipped_sources
from symsim.audit.subjects import Derivations
from symsim.audit.verdicts import Outcome, judge
from symsim.errors import InputError, cut, nearest
from symsim.grid.processes import cores, forked, shared
from symsim.inputs.reading import read_text

_WORKERS = 2
_FEW = 60  # claims that are not worth another process


@dataclass(frozen=True)
class Audit:
    """Outcomes of claims in order, and sentences for those that are no claims as they stand."""

    outcomes: tuple[Outcome, ...]
    errors: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    @property
    def passes(self) -> bool:
        return not self.errors and all(o.passes for o in self.outcomes) and all(c.passes for c in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        """The object of `symsim audit --json`."""
        return {"results": [_row(o) for o in self.outcomes], "comparisons": [c.to_json() for c in self.comparisons], "tables": []}


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
    if claim.stored is not None and claim.stored.switch:
        row["equal_with"] = claim.stored.switch
    if outcome.points:
        row["points"] = outcome.points
    if outcome.red:
        row["red"] = outcome.red
    return row


def audit(claims: Sequence[Claim], comparisons: Sequence[Comparison] = (), workers: int | None = None) -> Audit:
    """The verdicts of claims; what is wrong with a claim itself is a sentence, and the others go on. workers: processes that share many."""
    workers = min(_WORKERS, cores()) if workers is None else workers
    files: dict[str, list[Claim]] = {}
    for claim in claims:
        files.setdefault(claim.file, []).append(claim)
    if len(claims) < _FEW or workers < 2:
        derivations = Derivations()
        parts = {file: _judged(own, derivations) for file, own in files.items()}
    else:
        # a file's claims are mostly of the same subjects; the longest first, so that no process is left with one at the end
        order = sorted(files, key=lambda file: -len(files[file]))
        with forked(files, workers) as pool:
            parts = dict(zip(order, pool.map(_judged_there, order)))
    ordered = [part for file in files for part in parts[file]]
    outcomes = tuple(o for o in ordered if isinstance(o, Outcome))
    return Audit(outcomes, tuple(o for o in ordered if isinstance(o, str)), tuple(comparisons))


def _judged(claims: Sequence[Claim], derivations: Derivations) -> list[Outcome | str]:
    """The outcome of each, or what is wrong with it."""
    found: list[Outcome | str] = []
    for claim in claims:
        try:
            found.append(judge(claim, derivations))
        except InputError as error:
            found.append(str(error))
    return found


def _judged_there(file: str) -> list[Outcome | str]:
    return _judged(shared()[file], _own_derivations())


@cache
def _own_derivations() -> Derivations:
    """Those of a process, which ends with the audit: all that is made is kept till then, and nothing is gained by looking for circles."""
    gc.disable()
    return Derivations()


def asked(names: Sequence[str]) -> tuple[list[Claim], list[Comparison]]:
    """The claims and the comparisons of sources by name, of files, or by id; all of both where none is named."""
    known: dict[str, Claim] = {}
    if not names:
        claims = chosen(names)
        known = {c.id: c for c in claims}
        return claims, chosen_comparisons(names, known.get)[0]

    def by_id(name: str) -> Claim | None:
        if name not in known:
            known.update((c.id, c) for path in shipped_sources().values() if f"- id: {name}\n" in read_text(path) for c in read_claims(path))
        return known.get(name)

    comparisons, others = chosen_comparisons(names, by_id)
    return chosen(others) if others else [], comparisons


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
            claims, number = file_of(name)
            found.append(claims[number])
    return found


def file_of(name: str, files: Sequence[str] = ()) -> tuple[list[Claim], int]:
    """The claims of the file that has a claim of this id, and which of them it is."""
    shipped = shipped_sources()
    # an id mostly begins with its file's name
    paths = [*files, *sorted(map(str, shipped.values()), key=lambda p: p != str(shipped.get(name.split(".")[0])))]
    ids: list[str] = []
    for path in paths:
        claims = read_claims(path)
        ids += [c.id for c in claims]
        if name in ids:
            return claims, next(k for k, c in enumerate(claims) if c.id == name)
    if os.path.isfile(name):
        raise InputError(f"{cut(name)}: claims are read from a .yaml file")
    raise InputError(f"no source, file or claim is named '{cut(name)}': {nearest(name, [*shipped, *ids])}")
