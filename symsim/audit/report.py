"""The audit as a report: what was claimed, what is true, and why, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from symsim.algebra.grammar import parse
from symsim.audit.between import Comparison
from symsim.audit.mended import mended
from symsim.audit.printed import Recomputed
from symsim.audit.running import Audit
from symsim.audit.schema import VERDICTS
from symsim.audit.shown import derived, in_names, plain, published
from symsim.audit.table import counted, number
from symsim.audit.verdicts import Outcome
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.report.document import (
    Bar,
    Code,
    Column,
    Emphasis,
    Fold,
    Math,
    Paragraph,
    Part,
    Picture,
    Printed,
    Report,
    Row,
    Section,
    Span,
    Spans,
    Table,
    joined,
    spans,
)
from symsim.version import __version__

WORDS = {
    "equal": "equal",
    "equal_under": "equal under conditions",
    "tested": "equal where tested",
    "differs": "differs",
    "source_contradicts_itself": "source contradicts itself",
    "symsim_wrong": "symsim is wrong",
    "out_of_scope": "out of scope",
}
_MEANINGS = {
    "equal": "symsim derives the printed formula, for all values of its symbols",
    "equal_under": "the same under the facts that the source names or plainly uses, less the terms that it leaves out; each is needed",
    "tested": "a floor or a maximum stays: equal at random integer points, exactly; no proof",
    "differs": "another convention, or a term that the source does not count: the difference is exact and approved",
    "source_contradicts_itself": "its own premises, or another place of it, give another formula",
    "symsim_wrong": "found, and not yet mended",
    "out_of_scope": "inference, a schedule that symsim does not model, or arithmetic on printed numbers",
}
_WIDE = 46.0


def audit_report(found: Audit, tables: Sequence[Recomputed] = ()) -> Report:
    """A summary, what is wrong in print, then every claim by its source, printed numbers, and published formulas held against each other."""
    sources = [(file, list(group)) for file, group in groupby(found.outcomes, key=lambda o: o.claim.file)]
    sections = [_summary(found, [rows for _, rows in sources]), *_wrong(found.outcomes)]
    sections += _in_symsim(found.outcomes)
    if found.outcomes:
        sections.append(Section("Claims", (Paragraph(spans(*_legend())),)))
        sections += [_source(rows) for _, rows in sources]
    if tables:
        sections.append(_tables(tables))
    if found.comparisons:
        sections.append(_between(found.comparisons))
    named = sorted({a for o in found.outcomes for a in o.assumptions})
    if named:
        rows = tuple(Row((Code(n), ASSUMPTIONS[n].default, ASSUMPTIONS[n].meaning, ASSUMPTIONS[n].source)) for n in named)
        columns = (Column("assumption", 13), Column("default", 7.5), Column("meaning", 24), Column("source", 16))
        sections.append(Section("Assumptions", (Table(spans("Those that a derivation above rests on."), columns, rows),)))
    count = f"{counted(len(found.outcomes), 'claim')} of {counted(len(sources), 'source')}"
    return Report("Published formulas, audited", f"{count}; derived by symsim {__version__}", tuple(sections))


def _summary(found: Audit, sources: Sequence[Sequence[Outcome]]) -> Section:
    used = [v for v in VERDICTS if any(o.verdict == v for o in found.outcomes)]
    red = [o.claim.id for o in found.outcomes if not o.passes] + [c.entry.id for c in found.comparisons if not c.passes]
    said: list[Part] = [
        Paragraph(
            spans(
                "A claim is a published formula, the model, strategy and assumptions that it is of, and what it says in symsim's names. symsim's "
                "side is derived, never copied; both sides are brought to one normal form under the named facts, and what is left decides."
            )
        ),
        Paragraph(
            spans("All verdicts are those that were approved.") if not red else spans("Not as approved: ", *joined([(Code(r),) for r in red]), ".")
        ),
    ]
    total = len(found.outcomes) or 1
    parts = tuple((WORDS[v], n / total, counted(n, "claim")) for v in used for n in [sum(o.verdict == v for o in found.outcomes)])
    said.append(Picture(spans("Claims by verdict."), (Bar("All sources", counted(len(found.outcomes), "claim"), parts),)))
    meanings = tuple(Row((WORDS[v], str(sum(o.verdict == v for o in found.outcomes)), _MEANINGS[v])) for v in used)
    said.append(Table(spans("What the verdicts mean."), (Column("verdict", 12), Column("claims", 4, True), Column("meaning", 38)), meanings))
    columns = (Column("source", 26), *(Column(WORDS[v], 5, True) for v in used), Column("all", 4, True))
    rows = [Row((_title(rows), *(_count(rows, v) for v in used), str(len(rows)))) for rows in sources]
    rows.append(Row(("all", *(_count(found.outcomes, v) for v in used), str(len(found.outcomes))), "total"))
    said.append(Table(spans("Sources and verdicts."), columns, tuple(rows)))
    return Section("What was claimed, and what is true", tuple(said))


def _count(rows: Iterable[Outcome], verdict: str) -> str:
    return str(sum(o.verdict == verdict for o in rows) or "")


def _title(rows: Sequence[Outcome]) -> str:
    source = rows[0].claim.source
    return f"{source.title} ({source.authors}, {source.year})"


def _wrong(outcomes: Sequence[Outcome]) -> list[Section]:
    """What is wrong in print, on a page of its own."""
    wrong = [o for o in outcomes if o.verdict == "source_contradicts_itself"]
    if not wrong:
        return []
    rows = []
    for o in wrong:
        stored = o.claim.stored
        assert stored is not None
        right = _instead(o)
        rows.append(Row((spans(Code(o.claim.id), f", {o.claim.at}"), Printed(o.claim.latex), right, stored.why)))
    columns = (Column("where", 13), Column("printed", 15), Column("what its own premises give", 15), Column("why", 14))
    said = Paragraph(spans("Each is shown by the source itself: by the derivation from its premises, or by another place of it."))
    return [Section("Errors found in sources", (said, Table(spans("Printed formulas that their sources refute."), columns, tuple(rows))))]


def _instead(outcome: Outcome) -> Spans:
    stored = outcome.claim.stored
    assert stored is not None
    if outcome.claim.instead is not None:
        return spans(Math(in_names(outcome.claim, outcome.claim.instead)))
    assert stored.against is not None and outcome.claim.against is not None
    return spans(f"{stored.against.at}: ", Math(in_names(outcome.claim, outcome.claim.against)))


def _in_symsim(outcomes: Sequence[Outcome]) -> list[Section]:
    """What was wrong in symsim, each with the verdict, now, of a claim that rests on it."""
    verdicts = {o.claim.id: o.verdict for o in outcomes}
    rows = []
    for one in mended():
        if one.claim in verdicts:
            before = spans(Math(plain(parse(one.difference)))) if one.difference else spans("")
            rows.append(Row((Code(one.claim), one.what, before, Code(one.commit), WORDS[verdicts[one.claim]])))
    if not rows:
        return []
    columns = (Column("claim", 12), Column("what was wrong", 22), Column("symsim less published", 10), Column("mended by", 6), Column("now", 7))
    said = Paragraph(
        spans("A published formula was right, or differed by something else, and symsim was wrong. The last column is the verdict of the claim now.")
    )
    return [Section("Errors found in symsim", (said, Table(spans("What the audit found in symsim."), columns, tuple(rows))))]


def _legend() -> Spans:
    return spans(
        "Of each claim: the formula as printed; the same mapped to symsim's names, under the claim's facts; what symsim derives for it; then "
        "its conditions. In both normal forms terms that the other side has not are coloured: ",
        Math(r"\textcolor{blue}{\text{blue}}"),
        " where the claim names them as left out, ",
        Math(r"\textcolor{red}{\text{red}}"),
        " where the two differ.",
    )


def _source(rows: Sequence[Outcome]) -> Section:
    source = rows[0].claim.source
    made = [row for outcome in rows for row in _claim(outcome)]
    caption = f"{source.authors}, {source.year}. {source.where}."
    return Section(source.title, (Table(spans(caption), (Column("", 8.5), Column("", _WIDE)), tuple(made)),), 2)


def _claim(outcome: Outcome) -> list[Row]:
    """The rows of one claim under its heading."""
    claim = outcome.claim
    verdict = f"equal at {outcome.points} random points" if outcome.points else WORDS[outcome.verdict]
    name = f": {claim.title}" if claim.title else ""
    rows = [Row((spans(Code(claim.id), f"{name}, {claim.at}: ", Emphasis(verdict)),), "group")]
    status = {"seen": "", "recalled": " (recalled, not read again)", "inferred": " (inferred from printed numbers)"}[claim.status]
    if claim.latex:
        rows.append(Row((f"printed{status}", Printed(claim.latex))))
    if outcome.verdict != "out_of_scope":
        rows.append(Row(("mapped", Math(published(outcome)))))
        rows.append(Row(("derived", spans(Code(claim.says), " = ", Math(derived(outcome))))))
        rows.append(Row(("of", spans(Code(str(claim.subject))))))
    if claim.given:
        rows.append(Row(("given", joined([(Code(g),) for g in claim.given]))))
    rows += [Row(("left out", spans(Math(rf"\textcolor{{blue}}{{{plain(parse(n.term))}}}"), f": {n.why}"))) for n in claim.neglects]
    if outcome.difference:
        rows.append(Row(("derived less printed", spans(Math(rf"\textcolor{{red}}{{{plain(outcome.difference)}}}"), *_sizes(outcome)))))
    if claim.stored is not None and claim.stored.switch and not outcome.switched:
        rows.append(Row(("equal with", spans(Code(claim.stored.switch)))))
    if claim.stored is not None and claim.stored.why:
        rows.append(Row(("why", claim.stored.why)))
    if claim.note:
        rows.append(Row(("note", claim.note)))
    if outcome.red:
        rows.append(Row(("not as approved", outcome.red), "message"))
    if outcome.assumptions:
        rows.append(Row(("assumptions", _assumptions(outcome))))
    return rows


def _sizes(outcome: Outcome) -> list[Span]:
    """The smallest numbers at which the two differ, and how large the difference is at known models."""
    said = []
    if outcome.counter_model is not None:
        point, value = outcome.counter_model
        at = ", ".join(f"{n} = {v}" for n, v in point.items() if n in outcome.difference.symbols())
        said.append(f"{number(value)} at {at}" if at else number(value))
    if outcome.sizes:
        said.append(", ".join(f"{100 * share:+.2g} % of {model}" for model, share in outcome.sizes.items()))
    return [f" ({'; '.join(said)})"] if said else []


def _assumptions(outcome: Outcome) -> Spans:
    """Names, each with what it means and its source behind it."""
    chosen = dict(outcome.claim.subject.assumptions) if outcome.claim.subject else {}
    made: list[Spans] = []
    for name in outcome.assumptions:
        assumption = ASSUMPTIONS[name]
        value = chosen.get(name, assumption.default)
        made.append((Fold(f"{name}={value}", f"{assumption.meaning}. Source: {assumption.source}"),))
    return joined(made, " ")


def _tables(tables: Sequence[Recomputed]) -> Section:
    """Printed numbers and symsim's, a row a cell."""
    columns = (Column("of", 20), Column("printed", 8, True), Column("symsim", 8, True), Column("error", 6, True), Column("why it is missed", 14))
    rows = []
    for one in tables:
        said = f"{one.table.at}: {one.table.title}" if one.table.title else one.table.at
        errors = f" [{one.table.unit}], mean error {100 * one.mape:.2g} %, worst {100 * one.worst:+.2g} %"
        rows.append(Row((spans(Code(one.table.id), f", {one.table.source.authors} {one.table.source.year}, {said}{errors}"),), "group"))
        for cell, value, error in zip(one.table.cells, one.values, one.errors):
            of = cell.of or str(cell.subject)
            rows.append(Row((of, f"{float(cell.printed):.6g}", f"{float(value):.6g}", f"{100 * error:+.2g} %", cell.misses)))
    caption = spans("From what is derived, not from the formulas that a source prints beside them.")
    return Section("Printed numbers, recomputed", (Table(caption, columns, tuple(rows)),))


def _between(comparisons: Sequence[Comparison]) -> Section:
    """Published formulas against each other."""
    rows = []
    for kind, group in groupby(sorted(comparisons, key=lambda c: c.entry.kind != "identity"), key=lambda c: c.entry.kind == "identity"):
        rows.append(Row(("The same in other words" if kind else "Apart by exactly so much",), "group"))
        for c in group:
            sides = [spans(Code(s.claim)) if s.claim else spans(s.at) for s in (c.entry.a, c.entry.b)]
            apart = spans(Math(plain(c.difference))) if c.difference else spans("nothing")
            rows.append(Row((spans(Code(c.entry.id), f": {c.entry.title}"), sides[0], sides[1], apart, c.red or c.entry.why)))
    columns = (Column("comparison", 15), Column("one", 10), Column("the other", 10), Column("apart by", 13), Column("why", 10))
    return Section(
        "Sources against each other", (Table(spans("Nothing is derived here: printed formulas, in symsim's names."), columns, tuple(rows)),)
    )
