"""The notation of a report: every symbol it uses, with its meaning and its value."""

from __future__ import annotations

from symsim.evaluation import Evaluation
from symsim.report.amounts import exact
from symsim.report.document import Column, Math, Paragraph, Row, Section, Table, spans
from symsim.report.ink import Ink, dimension_latex
from symsim.typeset import entry
from symsim.vocabulary import SYMBOLS

_DIMENSIONS = {"R": "rows an expert rank computes, before its width is split", "d_qk": "query and key head dimension", "d_kv": "key (without position) and value head dimension",
               "r_kd": "joint key/value latent and rotary key"}
_DEGREES = frozenset("tp cp cp_a2a cp_p2p pp vpp ep etp dp edp inst m i".split())
_FAMILIES = (
    ("N", "parameters of the model"), ("P", "parameters one rank holds"), ("F", "forward FLOPs of the whole model, one micro-batch"),
    ("G", "backward FLOPs of the whole model"), ("R", "FLOPs of the whole model that run again in backward"), ("X", "forward FLOPs that one rank executes"),
    ("Y", "backward FLOPs that one rank executes"), ("Z", "FLOPs that one rank runs again in backward"), ("Q", "HBM bytes that forward's kernels read and write on one rank"),
    ("U", "HBM bytes of backward's kernels on one rank"), ("A", "bytes that one rank keeps for backward, one micro-batch"),
)


def section(result: Evaluation, ink: Ink) -> Section:
    """Written last (it needs to know what was used), read second."""
    book = result.derivation.definitions
    dims = [Row((spans(Math(dimension_latex(name))), spans(_DIMENSIONS.get(name, "dimension of a tensor"), ", ", ink.math(size)), spans(exact(size.evaluate(result.numbers)))))
            for name, size in sorted(ink.dims.items())]
    plain = sorted((s for s in ink.used if s not in book), key=lambda s: (list(SYMBOLS).index(s) if s in SYMBOLS else len(SYMBOLS), s))
    derived = [Row((ink_cell(ink, s), spans(book[s].meaning, ", ", ink.math(book[s].expr)), spans(exact(result.numbers[s])))) for s in ink.used
               if s in book and book[s].group == "sizes"]
    stage = [s for s in plain if s.endswith("_i") and s not in SYMBOLS]
    groups = (("Sizes", [s for s in plain if s not in _DEGREES and s not in stage]), ("Degrees and counts of the strategy", [s for s in plain if s in _DEGREES]))
    rows: list[Row] = []
    for heading, names in groups:
        rows.append(Row((spans(heading),), "group"))
        rows += [Row((ink_cell(ink, s), spans(entry(s).meaning), spans(exact(result.values[s]) if s in result.values else ""))) for s in names]
        if heading == "Sizes":
            rows += derived + dims
    if stage:
        rows.append(Row((spans("Of pipeline stage ", Math("i")),), "group"))
        rows += [Row((ink_cell(ink, s), spans(entry(s).meaning), ())) for s in stage]
    rows.append(Row((spans("Quantities"),), "group"))
    rows += [Row((spans(Math(letter)), spans(meaning), ())) for letter, meaning in _FAMILIES]
    rows.append(Row((spans(Math("n")), spans("row of a block's table; ", Math("X_n"), ", ", Math("Q_n"), ", ", Math("A_n"), " are the entries of that row"), ()))) 
    columns = (Column(spans("symbol"), 7), Column(spans("meaning"), 38), Column(spans("value"), 10, True))
    example = next(s for s in book if s.startswith("N_embedding_"))
    said = Paragraph(spans("A quantity's subscript names the block it belongs to (", ink.symbol("F_head"), "), or the block and the module (",
                           ink.symbol(example), "); without one it is the model's, and with ", Math("(i)"), " that of one rank of stage ", Math("i"), "."))
    return Section("Notation", (said, Table(spans("Symbols, and their values in this report."), columns, tuple(rows))))


def ink_cell(ink: Ink, name: str) -> tuple[Math, ...]:
    return (ink.symbol(name),)


