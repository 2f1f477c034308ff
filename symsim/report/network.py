"""Seconds of messages: what one is made of, and every block's messages by axis with what of them stays exposed."""

from __future__ import annotations

from symsim.algebra.key import of_block
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import SECOND, Definition
from symsim.ir.collectives import COLLECTIVES, carried_by
from symsim.report.amounts import human, rate, seconds
from symsim.report.document import Code, Column, Equations, Math, Paragraph, Row, Section, Spans, Table, joined, spans
from symsim.report.ink import Ink, in_units
from symsim.report.step import Step

_NAMED = 4  # kernels beside a message that are named one by one


def section(step: Step, ink: Ink) -> Section:
    """What a second of a message is made of, then every block's messages by axis: their seconds and what stays exposed."""
    book, numbers = step.result.derivation, step.result.numbers
    network = book.of(scope="network")
    about = Paragraph(
        spans(
            "A collective of buffer S over n ranks takes S (n \u2013 1)/n times the seconds a byte of its ring, and its latency; an all-reduce the "
            "shorter of twice that and a tree; an all-to-all sends each part directly. The equations of one group stand for those of all.",
        )
    )
    if not network:
        return Section("Messages between ranks", (Paragraph(spans("Nothing is sent.")),), 2)
    spelled = _first_of_each(network)
    equations = [e for d in spelled for e in ink.spelled(d.symbol, d.expr, numbers[d.symbol], d.unit)]
    return Section("Messages between ranks", (about, Equations(tuple(equations)), _network(step, ink, network), *_of_blocks(step, ink)), 2)


def _of_blocks(step: Step, ink: Ink) -> list[Table]:
    """Every block's messages over each axis: those beside which nothing runs, which all show, a row for forward and backward; then the others."""
    alone, beside = [], []
    for name in step.result.lowered.blocks:
        for again, words in ((False, in_words(name)), (True, f"{in_words(name)}, run again")):
            for axis in step.axes:
                if rows := _beside_rows(step, ink, name, words, axis, again):
                    beside += rows
                elif row := _alone_row(step, ink, name, words, axis, again):
                    alone.append(row)
    first = (Column("block", 7.2), Column("over", 3.6), Column("forward", 16), Column("backward", 16), Column("backward alone", 12))
    then = (Column("block", 7.2), Column("over", 3.6), Column("in", 7.2), Column("seconds", 12.2), Column("beside", 15.6), Column("exposed", 12.2))
    said = ", one micro-batch, one rank: what they take, "
    shows = "all of which shows, and of backward alone what is not for bringing back again"
    tables = (
        (f"Messages of each block beside which nothing runs{said}{shows}.", first, alone),
        (f"Messages of each block beside which kernels run{said}what runs beside them, and what of them that does not hide.", then, beside),
    )
    return [Table(spans(caption), columns, tuple(rows)) for caption, columns, rows in tables if rows]


def _first_of_each(network: list[Definition]) -> list[Definition]:
    """Definitions to spell out: one of each form (the rest differ in the group alone), and the members of the groups that these are of."""
    seen: dict[tuple[str, bool], Definition] = {}
    exchanges = carried_by("exchange")
    for d in network:
        if d.key.quantity != "mu":
            seen.setdefault((d.key.quantity, d.key.operation in exchanges), d)
    used = {name for d in seen.values() for name in d.expr.symbols()}
    return [d for d in network if d.symbol in used or d in seen.values()]


def _network(step: Step, ink: Ink, network: list[Definition]) -> Table:
    """A row for every collective of a group, with its seconds a byte and the bandwidth that is; on the first of them the latencies of the group."""
    rows = []
    for axis in dict.fromkeys(d.key.axis for d in network):
        valued = {d: _number(step, ink, d) for d in network if d.key.axis == axis and d.key.quantity != "mu"}
        late = {d.key.quantity: cell for d, cell in valued.items() if d.unit == SECOND}
        ways: list[Definition | None] = [d for d in valued if d.unit != SECOND]
        for n, d in enumerate(ways or [None]):
            value = float(step.result.numbers[d.symbol]) if d is not None else 0.0
            said = (_said(d), valued[d], rate(1 / value, "B/s") if value else "") if d is not None else ("", "", "")
            first = (Code(axis), late.get("alpha", late.get("hop", "")), late.get("delta", "")) if n == 0 else ("", "", "")
            rows.append(Row((first[0], *said, *first[1:])))
    columns = (
        Column("over", 6),
        Column("collective", 9),
        Column("seconds a byte", 15),
        Column("bandwidth", 8, True),
        Column("latency of a ring", 9.6),
        Column("of a tree", 9.6),
    )
    caption = (
        "Seconds a byte of every group and collective, and latencies of the group: of a ring hop by hop (of one message to the next rank, where no "
        "ring runs), of a tree level by level."
    )
    return Table(spans(caption), columns, tuple(rows))


def _said(definition: Definition) -> str:
    op = definition.key.operation
    return COLLECTIVES[op].said if op in COLLECTIVES else op


def _number(step: Step, ink: Ink, definition: Definition) -> Math:
    ink.defined[definition.symbol] = None
    return Math(f"{ink.names[definition.symbol]} = {in_units(human(float(step.result.numbers[definition.symbol]), definition.unit))}")


def _phases(step: Step, name: str, axis: str, again: bool) -> list[Definition]:
    """The seconds of a block's messages over an axis, forward and backward, of those that there are."""
    book = step.result.derivation
    return [book[key] for phase in ("forward", "backward") if (key := of_block("c", name, again, phase=phase, axis=axis)) in book]


def _own(step: Step, name: str, axis: str, again: bool) -> Definition | None:
    """What of a backward's messages is not for bringing back what forward had; its share of what shows is the same."""
    key = of_block("c", name, phase="backward", axis=axis, part="own")
    return None if again or key not in step.result.derivation else step.result.derivation[key]


def _alone_row(step: Step, ink: Ink, name: str, words: str, axis: str, again: bool) -> Row | None:
    book, cells = step.result.derivation, dict[str, Math]()
    for d in _phases(step, name, axis, again):
        shows = book[d.key._replace(quantity="e")]
        ink.defined[shows.symbol] = None
        cells[d.key.phase] = Math(f"{ink.names[shows.symbol]} = {_valued(step, ink, d).latex}")
    own = _own(step, name, axis, again)
    last = _valued(step, ink, own) if own is not None else ""
    return Row((Code(words), Code(axis), cells.get("forward", ""), cells.get("backward", ""), last)) if cells else None


def _beside_rows(step: Step, ink: Ink, name: str, words: str, axis: str, again: bool) -> list[Row]:
    """A row for each phase; none where nothing runs beside any."""
    of = {d: _beside(step, d) for d in _phases(step, name, axis, again)}
    if not any(of.values()):
        return []
    rows = []
    for d, kernels in of.items():
        few: Spans = joined([spans(text) for text in kernels], "; ") if kernels else spans("nothing")
        hidden = few if len(kernels) <= _NAMED else spans(f"{len(kernels)} kernels")
        shows = step.result.derivation[d.key._replace(quantity="e")]
        rows.append(Row((Code(words), Code(axis), d.key.phase, _valued(step, ink, d), hidden, _valued(step, ink, shows))))
    own = _own(step, name, axis, again)
    return [*rows, *([Row((Code(words), Code(axis), "backward alone", _valued(step, ink, own), "", ""))] if own is not None else [])]


def _beside(step: Step, definition: Definition) -> list[str]:
    """The kernels beside which messages run, in words."""
    book = step.result.derivation
    exposed = book[definition.key._replace(quantity="e")]
    return [d.meaning for d in sorted(book.of("t"), key=lambda d: d.symbol) if d.symbol in exposed.expr.symbols()]


def _valued(step: Step, ink: Ink, definition: Definition) -> Math:
    ink.defined[definition.symbol] = None
    return Math(f"{ink.names[definition.symbol]} = {in_units(seconds(step.result.numbers[definition.symbol]))}")
