"""Seconds of messages: what one is made of, and every block's messages by axis with what of them stays exposed."""

from __future__ import annotations

from symsim.algebra.key import of_block
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import SECOND, Definition
from symsim.ir.collectives import carried_by
from symsim.report.amounts import human, rate, seconds
from symsim.report.document import Code, Column, Equations, Math, Paragraph, Row, Section, Spans, Table, joined, spans
from symsim.report.ink import Ink, in_units
from symsim.report.step import Step

_NAMED = 4  # kernels beside a message that are named one by one


def section(step: Step, ink: Ink) -> Section:
    """What a second of a message is made of, then every block's messages by axis: their seconds and what stays exposed."""
    book, numbers = step.result.derivation, step.result.numbers
    network = book.of(scope="network")
    rows = []
    for name in step.result.lowered.blocks:
        for again, words in ((False, in_words(name)), (True, f"{in_words(name)}, run again")):
            for phase in ("forward", "backward"):
                keys = [of_block("c", name, again, phase=phase, axis=axis) for axis in step.axes]
                rows += [_message_row(step, ink, words, book[key]) for key in keys if key in book]
        own = [of_block("c", name, phase="backward", axis=axis, part="own") for axis in step.axes]
        rows += [_own_row(step, ink, in_words(name), book[key]) for key in own if key in book]
    columns = (Column("block", 7.2), Column("over", 3.6), Column("in", 7.2), Column("seconds", 12.2), Column("beside", 15.6), Column("exposed", 12.2))
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
    table = Table(
        spans("Messages of each block, one micro-batch, one rank: what they take, what runs beside them, and what of them that does not hide."),
        columns,
        tuple(rows),
    )
    return Section("Messages between ranks", (about, Equations(tuple(equations)), _network(step, ink, network), *([table] if rows else [])), 2)


def _first_of_each(network: list[Definition]) -> list[Definition]:
    """Definitions to spell out: every group's members, and one of each other form (the rest differ in the group alone)."""
    seen: dict[tuple[str, bool, str], Definition] = {}
    exchanges = carried_by("exchange")
    for d in network:
        alone = d.symbol if d.key.quantity == "mu" else ""
        seen.setdefault((d.key.quantity, d.key.operation in exchanges, alone), d)
    return list(seen.values())


def _network(step: Step, ink: Ink, network: list[Definition]) -> Table:
    """Values of all of them: seconds a byte (and the bandwidth that is), and latencies."""
    rows = []
    for d in network:
        if d.key.quantity == "mu":
            continue
        value = float(step.result.numbers[d.symbol])
        ink.defined[d.symbol] = None
        rows.append(
            Row(
                (
                    Math(f"{ink.names[d.symbol]} = {in_units(human(value, d.unit))}"),
                    d.meaning,
                    rate(1 / value, "B/s") if d.unit != SECOND and value else "",
                )
            )
        )
    columns = (Column("value", 18), Column("meaning", 26), Column("bandwidth", 9, True))
    return Table(spans("Seconds a byte, and latencies, of every group and collective."), columns, tuple(rows))


def _message_row(step: Step, ink: Ink, block: str, definition: Definition) -> Row:
    book, numbers = step.result.derivation, step.result.numbers
    exposed = book[definition.key._replace(quantity="e")]
    beside = [d.meaning for d in sorted(book.of("t"), key=lambda d: d.symbol) if d.symbol in exposed.expr.symbols()]
    cells = []
    for d in (definition, exposed):
        ink.defined[d.symbol] = None
        cells.append(Math(f"{ink.names[d.symbol]} = {in_units(seconds(numbers[d.symbol]))}"))
    few: Spans = joined([spans(text) for text in beside], "; ") if beside else spans("nothing")
    hidden = few if len(beside) <= _NAMED else spans(f"{len(beside)} kernels")
    return Row((Code(block), Code(definition.key.axis), definition.key.phase, cells[0], hidden, cells[1]))


def _own_row(step: Step, ink: Ink, block: str, definition: Definition) -> Row:
    """What of a backward's messages is not for bringing back what forward had; its share of what shows is the same."""
    ink.defined[definition.symbol] = None
    words = in_units(seconds(step.result.numbers[definition.symbol]))
    return Row((Code(block), Code(definition.key.axis), "backward alone", Math(f"{ink.names[definition.symbol]} = {words}"), "", ""))
