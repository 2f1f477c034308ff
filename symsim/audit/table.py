"""The audit in 80 columns of text: a summary, then a row a claim."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from symsim.algebra.expr import Number
from symsim.audit.schema import VERDICTS
from symsim.audit.verdicts import Outcome

if TYPE_CHECKING:
    from symsim.audit.between import Comparison
    from symsim.audit.running import Audit

_WIDTH = 80


def audit_table(found: Audit) -> str:
    """The audit as text: of each claim its id, place and verdict, conditions and differences below it; the counts last."""
    lines: list[str] = []
    file = None
    for outcome in found.outcomes:
        if outcome.claim.file != file:
            file = outcome.claim.file
            lines += [*([""] if lines else []), *textwrap.wrap(f"{outcome.claim.source.title} ({outcome.claim.source})", _WIDTH)]
        lines += _claim(outcome)
    if found.comparisons:
        lines += [*([""] if lines else []), "Published formulas against each other", *(t for c in found.comparisons for t in _comparison(c))]
    return "\n".join([*lines, "", *_summary(found)]) + "\n"


def _claim(outcome: Outcome) -> list[str]:
    claim = outcome.claim
    mark = " " if outcome.passes else "!"
    name = f"{claim.id}, {claim.at}"
    verdict = f"tested at {outcome.points} points" if outcome.points else outcome.verdict
    room = _WIDTH - len(verdict) - 4
    lines = [f"{mark} {name if len(name) <= room else name[: room - 3] + '...':{room}}  {verdict}"]
    if outcome.verdict != "out_of_scope":
        if claim.given:
            lines += _wrapped("given ", ", ".join(claim.given))
        if claim.neglects:
            lines += _wrapped("neglects ", ", ".join(n.term for n in claim.neglects))
    if outcome.difference:
        lines += _wrapped("symsim less published: ", str(outcome.difference))
        lines += [line for said in sized(outcome) for line in _wrapped("", said)]
    if claim.stored is not None and claim.stored.switch and not outcome.switched:
        lines += _wrapped("equal with ", claim.stored.switch)
    if claim.stored is not None and claim.stored.why:
        lines += _wrapped("", claim.stored.why)
    if outcome.red:
        lines += _wrapped("NOT AS APPROVED: ", outcome.red)
    return lines


def _comparison(comparison: Comparison) -> list[str]:
    entry = comparison.entry
    room = _WIDTH - len(entry.kind) - 4
    lines = [f"{' ' if comparison.passes else '!'} {entry.id:{room}}  {entry.kind}", *_wrapped("", entry.title)]
    if comparison.difference:
        lines += _wrapped("the first less the second: ", str(comparison.difference))
    if entry.given:
        lines += _wrapped("given ", ", ".join(entry.given))
    if entry.why:
        lines += _wrapped("", entry.why)
    if comparison.red:
        lines += _wrapped("NOT AS WRITTEN: ", comparison.red)
    return lines


def sized(outcome: Outcome) -> list[str]:
    """The smallest numbers at which a claim fails, and how large the difference is at known models."""
    lines = []
    if outcome.counter_model is not None:
        point, value = outcome.counter_model
        at = ", ".join(f"{n}={v}" for n, v in point.items() if n in outcome.difference.symbols())
        lines.append(f"{number(value)}{f' at {at}' if at else ''}")
    if outcome.sizes:
        lines.append("of symsim's: " + ", ".join(f"{_percent(share)} {model}" for model, share in outcome.sizes.items()))
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:+.0f} %" if 1 <= abs(share) < 1000 else f"{100 * share:+.3g} %"


def counted(count: int, one: str, more: str = "") -> str:
    """1 claim, 2 claims."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def number(value: Number) -> str:
    """An integer, a quotient, or a float of few digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(head + text, _WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)


def _summary(found: Audit) -> list[str]:
    outcomes, comparisons = found.outcomes, found.comparisons
    counts = {v: sum(o.verdict == v for o in outcomes) for v in VERDICTS}
    said = ", ".join(f"{n} {v}" for v, n in counts.items() if n)
    lines = textwrap.wrap(f"{counted(len(outcomes), 'claim')}: {said}", _WIDTH) if outcomes else []
    if comparisons:
        same = sum(c.entry.kind == "identity" for c in comparisons)
        apart = counted(len(comparisons) - same, "exact difference")
        lines.append(f"{counted(len(comparisons), 'comparison')}: {counted(same, 'identity', 'identities')}, {apart}")
    red = [*(o.claim.id for o in outcomes if not o.passes), *(c.entry.id for c in comparisons if not c.passes)]
    lines = lines or ["no claims"]
    return [*lines, *textwrap.wrap(f"{len(red)} not as approved: {', '.join(red)}" if red else "all as approved", _WIDTH, subsequent_indent="  ")]
