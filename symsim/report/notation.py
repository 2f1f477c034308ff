"""The notation of a report: every symbol it uses, with its meaning and its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symsim.algebra.expr import Number
from symsim.algebra.key import of_block
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import SECOND, Definition
from symsim.algebra.typeset import entry, width
from symsim.algebra.vocabulary import SYMBOLS
from symsim.cost.step_time import UPDATE
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.system import symbol_values
from symsim.ir.block import MODULES
from symsim.report import machine
from symsim.report.amounts import exact, human, plain, rate, seconds
from symsim.report.document import Code, Column, Math, Paragraph, Ref, Row, Section, Spans, Table, as_spans, spans
from symsim.report.ink import DIMENSIONS, Ink, dimension_latex, worded

_SYMBOL, _MEANING, _VALUE = 7.6, 37.4, 10
_WIDEST = 14  # em of the symbols, at most
_DEGREES = frozenset("tp cp cp_a2a cp_p2p pp vpp ep etp dp edp inst m i".split())
_FAMILIES = (
    ("N", "parameters of the model"),
    ("P", "parameters one rank holds"),
    ("F", "forward FLOPs of the whole model, one micro-batch"),
    ("G", "backward FLOPs of the whole model"),
    ("R", "FLOPs of the whole model that run again in backward"),
    ("X", "forward FLOPs that one rank executes"),
    ("Y", "backward FLOPs that one rank executes"),
    ("Z", "FLOPs that one rank runs again in backward"),
    ("Q", "HBM bytes that forward's kernels read and write on one rank"),
    ("U", "HBM bytes of backward's kernels on one rank"),
    ("A", "bytes that one rank keeps for backward, one micro-batch"),
)
# of these by the quantity of a definition, LaTeX and meaning
_TIMED_FAMILIES = (
    ("M", "M", "bytes of memory that one rank holds"),
    ("M_at", r"\hat{M}", "the same at a moment of a step"),
    ("W", "W", "bytes that one rank holds at the worst kernel of a block, forward (fwd) or backward (bwd)"),
    ("t", "t", "seconds; of one micro-batch f forward, i the gradients of inputs, w those of weights, r what runs again"),
    ("sum_t", r"\Sigma t", "the same, added up over all stages"),
    ("c", "c", "seconds of messages, by direction (f forward, b backward) and group"),
    ("e", r"\epsilon", "of these those that nothing hides"),
    ("beta", r"\beta", "seconds a byte of a collective over a group"),
    ("alpha", r"\alpha", "seconds of latency of a ring over a group; with a number, of a hop of that tier"),
    ("delta", r"\delta", "seconds of latency of a tree over a group; with a stage's index, 1 or 0 as said above"),
    ("mu", r"\mu_1", "ranks of a group inside a unit of tier 1"),
)


def section(result: Evaluation, ink: Ink, short: bool = False) -> Section:
    """Written last: it needs to know what was used. short: no table of the machine is there to say what its symbols are."""
    book = result.derivation.definitions
    # what a size is defined by is a symbol too, and may be used nowhere else
    derived: dict[str, Row] = {}
    while more := [s for s in ink.used if s in book and book[s].key.scope == "sizes" and s not in derived]:
        derived |= {s: _derived(result, ink, s) for s in more}
    places = {name: n for n, name in enumerate(SYMBOLS)}
    elsewhere = machine.symbols(result) if result.system is not None and not short else set()
    plain = sorted((s for s in ink.used if s not in book and s not in elsewhere), key=lambda s: (places.get(s, len(places)), s))
    of_stage = result.stage_values(result.stages[0])
    stage = [s for s in plain if s in of_stage and s not in SYMBOLS]
    rates = [s for s in plain if s in _of_system(result)]
    slowest = [s for s in plain if s in result.step_numbers and s not in result.values]
    words = [s for s in plain if s in ink.own]
    apart = {*words, *_DEGREES, *stage, *rates, *slowest}
    rows = [Row(("Sizes",), "group")]
    rows += [_row(result, ink, s) for s in plain if s not in apart]
    rows += derived.values()
    rows += [_dimension(result, ink, name) for name in sorted(ink.dims)]
    rows.append(Row(("Degrees and counts of the strategy",), "group"))
    rows += [_row(result, ink, s) for s in plain if s in _DEGREES]
    rows.append(Row((("Of pipeline stage ", Math("i")),), "group"))
    rows += [_row(result, ink, s) for s in stage]
    rows += [Row((Math(index), meaning, ())) for index, meaning in ink.indices.items()]
    for title, names in (("Of the system", rates), ("Seconds of the slowest stage, and sums over stages", slowest)):
        rows += [Row((title,), "group"), *(_row(result, ink, s) for s in names)] if names else []
    if further := [s for s in ink.used if s in book and s not in ink.defined and s not in derived]:
        rows += [Row(("Defined in the whole report",), "group"), *(_defined(result, ink, s) for s in further)]
    if words:
        rows += [Row(("Of one kernel, in words",), "group"), *(Row((ink.symbol(s), ink.own[s], ())) for s in words)]
    said = spans("Symbols, and their values in this report.")
    if short:
        return Section("Notation", (Table(said, _columns(rows), tuple(rows), beside=True),))
    rows.append(Row(("Quantities",), "group"))
    rows += [Row((Math(letter), meaning, ())) for letter, meaning in _FAMILIES]
    quantities = {d.key.quantity for d in book.values()} if result.system is not None else set()
    rows += [Row((Math(letter), meaning, ())) for quantity, letter, meaning in _TIMED_FAMILIES if quantity in quantities]
    timed: Spans = (", ", Math("t_n")) if result.system is not None else ()
    timed += (", ", Math("c_n")) if UPDATE in result.derivation else ()
    entries = ("row of a block's table; ", Math("X_n"), ", ", Math("Q_n"), ", ", Math("A_n"), *timed, " are the entries of that row")
    rows.append(Row((Math("n"), entries, ())))
    where: Spans = ("Those of the machine are in section ", Ref("The machine"), ".") if elsewhere else ()
    return Section("Notation", (_subscripts(ink, book, where), Table(said, _columns(rows), tuple(rows), beside=True)))


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """Symbols have the room that the longest of them takes."""
    longest = room_for([row for row in rows if not row.role], _SYMBOL)
    return Column("symbol", longest, names=True), Column("meaning", _SYMBOL + _MEANING - longest), Column("value", _VALUE, True)


def room_for(rows: Sequence[Row], least: float) -> float:
    """The width in em of a first column of symbols."""
    symbols = [span.latex for row in rows for span in as_spans(row.cells[0]) if isinstance(span, Math)]
    return min(max([least, *(width(s) + 1 for s in symbols)]), _WIDEST)


def _subscripts(ink: Ink, book: Mapping[str, Definition], where: Spans) -> Paragraph:
    example = next(s for s in (of_block("N", "embedding", module=m).text for m in MODULES) if s in book)
    return Paragraph(
        spans(
            "A quantity's subscript names the block it belongs to (",
            ink.symbol("F_head"),
            "), or the block and the module (",
            ink.symbol(example),
            "); without one it is the model's, and with ",
            Math("(i)"),
            " that of one rank of stage ",
            Math("i"),
            ". ",
            *where,
        )
    )


def _of_system(result: Evaluation) -> dict[str, Number]:
    return symbol_values(result.system, result.strategy) if result.system is not None else {}


def _row(result: Evaluation, ink: Ink, name: str) -> Row:
    known = result.values if name in result.values else result.step_numbers
    return Row((ink.symbol(name), worded(machine.meaning(result.system, name)), _value(known[name], entry(name).unit) if name in known else ""))


def _value(value: Number, unit: str) -> str:
    if unit == "s":
        return seconds(value)
    if unit == "USD/s":
        return f"{plain(float(value) * 3600)} USD/h"
    if unit in ("W", "kg/kWh"):
        return f"{plain(value)} {unit}"
    if unit in ("FLOP/s", "byte/s"):
        return rate(float(value), unit.replace("byte", "B"))
    return exact(value)


def _derived(result: Evaluation, ink: Ink, name: str) -> Row:
    definition = result.derivation.definitions[name]
    why: Spans = spans(*(f" ({definition.source})" if definition.source else "",))
    why += tuple(s for a in definition.assumptions for s in (" (assumption ", Code(a), ")"))
    return Row((ink.symbol(name), (f"{definition.meaning}, ", ink.math(definition.expr), *why), exact(result.numbers[name])))


def _defined(result: Evaluation, ink: Ink, name: str) -> Row:
    """A definition that stands in a formula of a report that does not show it; of a stage, at the slowest or the fullest."""
    definition = result.derivation.definitions[name]
    place = result.slowest if definition.unit == SECOND else result.fullest
    known = {**result.step_numbers, **result.stage_numbers(result.stages[place])}
    key, meaning = definition.key, definition.meaning
    if key.quantity == "W" and key.block:
        # not the list of kernels that the maximum goes over
        meaning = f"{in_words(key.block)}: bytes at the worst kernel of {key.phase}"
    where = f" on stage {place}" if key.scope == "stage" and len(result.stages) > 1 else ""
    return Row((ink.symbol(name), worded(meaning), f"{human(known[name], definition.unit)}{where}" if name in known else ""))


def _dimension(result: Evaluation, ink: Ink, name: str) -> Row:
    size = ink.dims[name]
    meaning = DIMENSIONS.get(name, "dimension of a tensor")
    return Row((Math(dimension_latex(name)), (f"{meaning}, ", ink.math(size)), exact(size.evaluate(result.numbers))))
