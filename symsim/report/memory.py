"""The chapter on memory: definitions with the fullest stage's values, a bar for every stage, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from symsim.algebra.expr import Call, Expr, Number
from symsim.algebra.key import layers, of_stage
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import BYTE, NONE, Definition, Unit
from symsim.algebra.typeset import width
from symsim.cost.memory import binding_moment, moments
from symsim.report.amounts import exact, human
from symsim.report.document import Code, Column, Equations, Gauge, Gauges, Math, Paragraph, Row, Section, Spans, Table, joined, spans
from symsim.report.ink import Ink
from symsim.report.step import MEMORY_PARTS, Step
from symsim.report.totals import ranges

_MOST = 24  # bars of a picture
_ROWS = 8  # stages of a table, before it has the ends of what the picture above it shows
_FULLEST = 4  # moments of a short report
_LESS = ("constant", "transient", "peak")  # parts whose formulas a short report leaves out
_DETAILS = ("M_at", "M_fp8", "M_reserve")  # quantities of which it leaves out all but the moment of the peak


def sections(step: Step, ink: Ink) -> list[Section]:
    return [section(step, ink), _working(step, ink)]


def section(step: Step, ink: Ink, short: bool = False) -> Section:
    """short: without the bytes of every stage in digits, and of a part's formulas those alone that are a line."""
    which = f" of stage {step.fullest}" if step.depth > 1 else ""
    said = (
        "The peak is that of the rank that holds most, at the moment of a step at which it does. "
        f"{step.verdict[:1].upper()}{step.verdict[1:]}{_stays_free(step)}. The peak{which} is reached in: {step.moment(step.fullest)}."
    )
    book, peak = step.result.derivation.definitions["M_peak"], step.peak(step.fullest)
    opening = Equations(tuple(ink.spelled("M_peak", book.expr, peak, BYTE)))
    every = step.result.derivation.of("M", "M_at", "M_fp8", "M_reserve", "H", "H_stage_link", "alive_i")
    # a short report has the moments in its table, the fullest first, and says how that one comes about
    fullest = binding_moment(step.result.derivation, step.stage(step.fullest)) if short else None
    left = {d.symbol for d in every if d.key.quantity in _DETAILS and d is not fullest or d.key.part in _LESS} if short else set()
    names = [d.symbol for d in every if d.symbol != "M_peak" and d.symbol not in left]
    absent = [d for d in moments(step.result.derivation) if not step.stage(step.fullest)[d.symbol]] if not short else []
    none = "; a moment that it does not have has none" if any(d.symbol not in step.nothing for d in absent) else ""
    none += "; one that no stage has is nothing here" if any(d.symbol in step.nothing for d in absent) else ""
    as_of = _as_of(step)
    names = [name for name in names if name not in as_of]
    once = () if short else _written_once(step, as_of)
    values = Paragraph(spans(f"Values are those{which or ' of the only stage'}{none}.", *once, *_on_the_host(step)))
    moment, digits = _tables(step, ink, as_of)
    tables = [_fullest(moment)] if short else [moment, digits]
    return Section("Memory", (Paragraph(spans(said)), opening, bars(step), *tables, values, _equations(step, ink, names, short)))


def _as_of(step: Step) -> dict[str, str]:
    """Of moments whose formula is that of a fuller one with the letters of two kinds of layers exchanged, that one."""
    values, found = step.stage(step.fullest), dict[str, str]()
    every = sorted((d for d in moments(step.result.derivation) if d.symbol not in step.nothing), key=lambda d: -values[d.symbol])
    for n, d in enumerate(every):
        of_others = (e for e in every[:n] if e.symbol not in found and e.key._replace(block=d.key.block) == d.key)
        alike = next((e for e in of_others if e.expr.substitute(_exchanged(step, e.key.block, d.key.block)) == d.expr), None)
        if alike is not None:
            found[d.symbol] = alike.symbol
    return found


def _exchanged(step: Step, one: str, other: str) -> dict[str, Expr]:
    """Of two kinds of layers each one's symbols for the other's."""
    keys = [d.key for d in step.result.derivation.definitions.values() if d.key.block in (one, other)]
    keys += [layers(kind, again=again) for kind in (one, other) for again in (False, True)]
    return {key.text: key._replace(block=other if key.block == one else one).expr for key in keys}


def _written_once(step: Step, as_of: Mapping[str, str]) -> Spans:
    """Which kinds of layers the formulas of others stand for."""
    book = step.result.derivation.definitions
    pairs = dict.fromkeys((book[name].key.block, book[other].key.block) for name, other in as_of.items())
    said = joined([spans("for ", Code(in_words(name)), " read that of ", Code(in_words(other))) for name, other in pairs], ", ")
    return spans(" Of moments whose formulas differ in the kind of layers alone one is written: ", *said, ".") if pairs else ()


def _fullest(moments_of: Table) -> Table:
    """Of the table of moments the first rows."""
    left = len(moments_of.rows) - _FULLEST
    said = f" The {_FULLEST} fullest of {len(moments_of.rows)}." if left > 0 else ""
    return replace(moments_of, caption=spans(*moments_of.caption, said), rows=moments_of.rows[:_FULLEST])


def _stays_free(step: Step) -> str:
    """What of the memory to spare a run leaves free all the same; a tight verdict has said it."""
    left, kept = step.capacity - step.peak(step.fullest), step.reserve["all"]
    return f", of which {human(kept, BYTE)} stays free: the driver's, buffers of NCCL and fragments" if kept and left >= kept else ""


def _on_the_host(step: Step) -> Spans:
    if not step.result.derivation.of("H"):
        return ()
    return spans(" ", Math("H^{(i)}"), " is what a rank keeps in its host's memory; with a subscript, what it moves there and back in a step.")


def _working(step: Step, ink: Ink) -> Section:
    """Of what each block holds at its kernels, the candidate that is the largest at the given sizes."""
    numbers, equations, candidates = {**step.result.numbers, **step.stage(step.fullest)}, [], 0
    happen = set[str]().union(*(d.expr.symbols() for d in moments(step.result.derivation) if d.symbol not in step.nothing))
    for d in (d for d in step.result.derivation.of("W") if d.expr and d.symbol in happen):
        found = _candidates(d.expr)
        candidates += len(found)
        largest = max(found, key=lambda e: e.evaluate(numbers))
        equations += ink.spelled(d.symbol, largest, numbers[d.symbol], BYTE)
    of_update = " (that of the update, over its matrices)" if of_stage("W", "update") in step.result.derivation else ""
    said = (
        "What a rank holds at the worst kernel of a block, what the block has saved by then included. Each is a maximum over the block's kernels"
        f"{of_update}, {candidates} candidates together; shown is the one that is the largest at the given sizes."
    )
    return Section("Working memory of blocks", (Paragraph(spans(said)), Equations(tuple(equations))), 2)


def _candidates(formula: Expr) -> tuple[Expr, ...]:
    """Arguments of a lone maximum, or the formula itself."""
    if len(formula.terms) == 1:
        ((monomial, coefficient),) = formula.terms.items()
        if len(monomial) == 1 and coefficient == 1 and isinstance(monomial[0][0], Call) and monomial[0][0].function == "max":
            return monomial[0][0].arguments
    return (formula,)


def bars(step: Step) -> Gauges:
    """A bar for every stage (equal ones together), its parts, and the accelerator's memory as a line."""
    scale = max(step.capacity, step.peak(step.fullest)) * 1.02
    every = step.alike_in_memory
    shown = every if len(every) <= _MOST else [*every[: _MOST // 2], *every[-_MOST // 2 :]]
    gauges = []
    for members, first in _alike(step, shown):
        parts = tuple((MEMORY_PARTS[p], n / scale, human(n, BYTE)) for p, n in step.memory(first).items() if n)
        label = f"stage {ranges(members)}" if step.depth > 1 else "one rank"
        gauges.append(Gauge(label, human(step.peak(first), BYTE), parts))
    left = f" {len(every) - len(shown):,} rows between the first and the last are left out." if len(shown) < len(every) else ""
    words = f"{human(step.capacity, BYTE)} of {step.system.name}"
    return Gauges(spans(f"Peak memory of one rank of every stage against the accelerator's.{left}"), tuple(gauges), step.capacity / scale, words)


def _alike(step: Step, stages: Sequence[tuple[int, ...]]) -> list[tuple[list[int], int]]:
    """Of these, stages with equal parts together: (their indices, the one that speaks for them)."""
    classes: dict[tuple[int, ...], list[int]] = {}
    for members in stages:
        classes.setdefault((*step.memory(members[0]).values(), step.peak(members[0])), []).extend(members)
    return [(sorted(members), members[0]) for members in classes.values()]


def _equations(step: Step, ink: Ink, names: Sequence[str], short: bool) -> Equations:
    """The definitions in order, with the fullest stage's values; what is nothing comes last."""
    book, values = step.result.derivation.definitions, {**step.result.step_numbers, **step.stage(step.fullest)}
    widest = max(width(ink.names[n]) for n in names)
    formula = {n: step.decided(book[n].expr.substitute(step.nothing) if short else book[n].expr)[0] for n in names}
    told: dict[str, tuple[Expr, Number | None, Unit | None]]
    told = {n: (formula[n], values[n], book[n].unit if book[n].unit != NONE else None) for n in names if formula[n]}
    told = {n: own if own[1] or book[n].key.quantity != "M_at" else (own[0], None, None) for n, own in told.items()}
    if short:
        told = {n: own for n, own in told.items() if book[n].key.quantity == "M_at" or not book[n].key.part or ink.fits(n, *own, beside=widest)}
    never = [n for n in told if book[n].key.quantity == "M_at" and n in step.nothing]
    made = [e for n, own in told.items() if n not in never for e in ink.spelled(n, *own, widest, values)]
    nothing = [*never, *(n for n in names if not book[n].expr)]
    return Equations((*made, *ink.zeros(nothing)))


def _moments(step: Step, ink: Ink, as_of: Mapping[str, str]) -> tuple[Row, ...]:
    """The moments of the fullest stage, the fullest first; kinds of layers that hold as much by the same formula have a row together."""
    values = step.stage(step.fullest)
    held = sorted((d for d in moments(step.result.derivation) if values[d.symbol]), key=lambda d: -values[d.symbol])
    ink.defined.update(dict.fromkeys(d.symbol for d in held))
    together: dict[str, list[Definition]] = {}
    for d in held:
        first = as_of.get(d.symbol, d.symbol)
        together.setdefault(first if values[first] == values[d.symbol] else d.symbol, []).append(d)
    return tuple(
        Row(
            (
                f"{d.meaning}{_others([in_words(other.key.block) for other in alike if other is not d])}",
                joined([(ink.symbol(one.symbol),) for one in (d, *(other for other in alike if other is not d))], ", "),
                human(-int(-values[d.symbol] // 1), BYTE),
            )
        )
        for d in held
        if (alike := together.get(d.symbol))
    )


def _others(kinds: Sequence[str]) -> str:
    return f"; of {' and '.join(kinds)} as much" if kinds else ""


def _tables(step: Step, ink: Ink, as_of: Mapping[str, str]) -> list[Table]:
    when = _moments(step, ink, as_of)
    every = _alike(step, step.alike_in_memory)
    shown = every if len(every) <= _ROWS else _ends(step, every)
    parts = [p for p in MEMORY_PARTS if any(step.memory(first)[p] for _, first in shown)]
    rows = []
    for members, first in shown:
        cells = [exact(step.memory(first)[p]) for p in parts]
        rows.append(Row((ranges(members), *cells, exact(step.peak(first)), human(step.peak(first), BYTE))))
    columns = (Column(ink.symbol("i"), 7), *(Column(MEMORY_PARTS[p], 11, True) for p in parts), Column("peak", 11, True), Column("about", 7, True))
    which = f" of stage {step.fullest}" if step.depth > 1 else ""
    whose = "every stage" if shown is every else "the first stage, the last, the emptiest and the fullest"
    return [
        Table(
            spans(f"Moments of a step, the fullest first: bytes of one rank{which}."),
            (Column("moment", 30), Column("symbol", 10), Column("held", 9, True)),
            when,
        ),
        Table(spans(f"Bytes of one rank of {whose} at its peak."), columns, tuple(rows)),
    ]


def _ends(step: Step, stages: Sequence[tuple[list[int], int]]) -> list[tuple[list[int], int]]:
    """Of many the first, the last, that with the least and that with the most, in the order of stages."""
    by_peak = sorted(stages, key=lambda one: step.peak(one[1]))
    chosen = (stages[0], stages[-1], by_peak[0], by_peak[-1])
    return [one for one in stages if one in chosen]
