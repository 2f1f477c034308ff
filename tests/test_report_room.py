"""What a report says once: parts of formulas, the products of an update, the candidates of its working memory; and what stands two on a line."""

from __future__ import annotations

import re
from functools import cache

import pytest
import typst as compiler
from test_report import undefined
from test_report_length import LONGEST, formulas

import symsim
from symsim.api.result import Result
from symsim.cost.orthogonal import round_seconds, update_rounds
from symsim.cost.step_time import UPDATE
from symsim.report import typst
from symsim.report.amounts import seconds
from symsim.report.beside import two_on_a_line
from symsim.report.content import report
from symsim.report.document import Column, Equation, Equations, Report, Row, Section, Table, spans
from symsim.report.ink import Ink
from symsim.report.widths import breadth

_MUON = ("deepseek-v3", "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,num_microbatches=32,mtp_num_layers=1,optimizer=muon", "h100-sxm")
_SHARDED = ("deepseek-v3", "tp=4,sp=true,ep=32,etp=1,dp=64,cp=2,zero=3,mtp_num_layers=1,recompute=full", "h200-sxm")
_KINDS = ("kimi-linear-48b-a3b", "tp=2,sp=true,ep=8,etp=1,dp=8,num_microbatches=4,zero=3,recompute=full", "mi300x")
_GALORE = ("llama3-8b", "tp=2,sp=true,pp=2,num_microbatches=8,optimizer=galore", "h100-sxm")


@cache
def made(case: tuple[str, str, str]) -> tuple[Result, Report]:
    result = symsim.derive(case[0], case[1], system=case[2])
    return result, report(result)


def equations(document: Report, heading: str) -> list[Equation]:
    return [e for s in document.sections if s.heading == heading for p in s.parts if isinstance(p, Equations) for e in p.equations]


@pytest.mark.long_after(1)
@pytest.mark.parametrize("case", [_MUON, _SHARDED, _GALORE, _KINDS], ids=["muon", "sharded", "galore", "kinds"])
def test_every_symbol_is_defined_once_and_no_formula_is_long(case: tuple[str, str, str]) -> None:
    _, document = made(case)
    assert undefined(document) == set()
    assert max(map(len, formulas(document.sections))) <= LONGEST
    for section in document.sections:
        lines = [" ".join(e.lines) for p in section.parts if isinstance(p, Equations) for e in p.equations]
        ours = [line for line in lines if "rest" in line or "working" in line]
        assert len(ours) == len(set(ours)), section.heading


def test_a_rest_that_two_sums_share_is_named_once() -> None:
    from symsim.algebra.expr import symbol

    parts = Ink(made(_GALORE)[0]).parts
    terms = [symbol("t_launch") * symbol(name) ** 2 for name in ("L", "h", "s")]
    name, behind, new = parts.rest("t_opt", sum(terms, symbol("b")))
    again = parts.rest("t_stage", 3 * symbol("V") + behind + symbol("f") * 2)
    assert new and len(behind.terms) == 2 and again == (name, behind, False)
    other, _, _ = parts.rest("t_opt", sum((one * symbol("V") for one in terms), symbol("b")))
    assert other != name and len(set(parts.names) & {name, other}) == 2


def test_equations_of_zeros_are_short() -> None:
    """Names of many letters that take little room, too."""
    result, _ = made(_SHARDED)
    names = list(result.derivation.definitions)
    lines = [f"{e.left} = {line}" for e in Ink(result).zeros(names) for line in e.lines]
    assert len(lines) > 20 and max(map(len, lines)) <= LONGEST and sum(line.count("=") for line in lines) == len(names)
    assert Ink(result).zeros([]) == []


def test_a_part_of_bytes_has_the_letter_of_bytes() -> None:
    """Of a part of a part, too: t is of seconds."""
    lefts = [e.left for e in equations(made(_SHARDED)[1], "Memory")]
    assert any("working" in x for x in lefts) and not [x for x in lefts if x.startswith("t")]


@pytest.mark.parametrize("case", [_MUON, _GALORE], ids=["muon", "galore"])
def test_products_of_an_update_are_rows_that_add_up(case: tuple[str, str, str]) -> None:
    result, document = made(case)
    (chapter,) = (s for s in document.sections if s.heading == "A stage")
    (table,) = (p for p in chapter.parts if isinstance(p, Table) and p.key == "update")
    numbers = {**result.numbers, **result.stage_numbers(result.stages[result.slowest])}
    each = [(one.times.evaluate(numbers), round_seconds(result.lowered, one).evaluate(numbers)) for one in update_rounds(result.lowered)]
    assert sum(often * time for often, time in each) == pytest.approx(float(numbers[UPDATE.text]), rel=1e-12)
    assert len(table.rows) == sum(often != 0 for often, _ in each) > 3
    longest = sorted((often * time for often, time in each if often), reverse=True)
    assert [row.cells[-1] for row in table.rows] == [seconds(one) for one in longest]
    (total,) = (e for e in equations(document, "A stage") if e.key == UPDATE.text)
    assert total.lines[0].startswith(r"{\textstyle\sum_n} c_n t_n = ") and total.value


def test_a_count_inside_of_seconds_is_not_said_in_seconds() -> None:
    """Tiles of a product are a number, also where they are a part of its time."""
    from symsim.algebra.expr import ceil, maximum, symbol
    from symsim.algebra.quantity import SECOND

    result, _ = made(_GALORE)
    ink, n, h = Ink(result), symbol("n_sm"), symbol("h")
    tiles = [maximum(ceil(h / (128 + k)) * ceil(h / 64) * (h + k), n / (4 + k), ceil(h / 3) + k * n) for k in range(9)]
    time = sum((t / (symbol("Phi_bf16") * symbol("eta_gemm")) for t in tiles), symbol("t_launch"))
    made_of = ink.spelled("t_stage", time, 1.0, SECOND, known={**result.numbers, **result.values})
    parts = [e for e in made_of[1:] if "Phi" not in " ".join(e.lines)]
    assert len(parts) > 4 and not [e for e in parts if re.search(r"\\mathrm\{(s|ms|us)\}$", e.lines[-1])]


def test_what_no_stage_has_is_nothing_and_its_working_memory_is_not_shown() -> None:
    result, document = made(_SHARDED)
    nothing = [e for e in equations(document, "Memory") if e.lines[-1].endswith("= 0")]
    assert any(r"\mathrm{forward\_dense}" in f"{e.left} {' '.join(e.lines)}" for e in nothing)
    shown = {e.key for e in equations(document, "Working memory of blocks")}
    assert "W_fwd_dense_ckpt" in shown and "W_fwd_dense" not in shown and "W_fwd_dense" in result.derivation.definitions


def test_of_an_update_the_worst_matrix_is_shown() -> None:
    result, document = made(_MUON)
    (worst,) = (e for e in equations(document, "Working memory of blocks") if e.key == "W_stage_update")
    assert r"\max" not in " ".join(worst.lines) and worst.value
    (moment,) = (e for e in equations(document, "Memory") if e.key == "M_at_optimizer")
    assert r"W^{(i)}_{\mathrm{update}}" in " ".join(moment.lines)


def test_symbols_stand_two_on_a_line_where_they_have_room() -> None:
    short, long = Row(("a", "of few letters", "1")), Row(("b", "of so many letters that half of a line has no room for all of them", "2"))
    table = Table(
        spans("t"), (Column("symbol", 5), Column("meaning", 30), Column("value", 8, True)), (Row(("g",), "group"), short, short, short, long, short)
    )
    laid = two_on_a_line(table, 57.6)
    assert [(r.role, len(r.cells)) for r in laid.rows] == [("group", 1), ("plain", 4), ("wide", 2), ("wide", 2), ("wide", 2)]
    assert laid.rows[1].cells == ("a", ("of few letters", ": ", "1")) * 2
    page = typst.render(Report("t", "s", (Section("h", (Table(table.caption, table.columns, table.rows, beside=True),)),)))
    assert typst.compile_pdf(page)


def test_a_hyphen_has_room() -> None:
    """A word that is broken at it is as wide as Typst sets it."""
    import json
    import tempfile
    from pathlib import Path

    words = ["reduce-scatter", "all-to-all", "all-gather"]
    lines = "".join(f"#context [#metadata(measure([{w}]).width / 10pt)<w>]\n" for w in words)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "w.typ"
        file.write_text(f'#set text(font: "New Computer Modern", size: 10pt)\n{lines}')
        found = json.loads(compiler.query(str(file), "<w>", field="value", ignore_system_fonts=True))
    assert [breadth(w) for w in words] == pytest.approx(found, abs=0.05)


def test_an_assumption_says_what_of_the_step_its_alternatives_move() -> None:
    _, document = made(_SHARDED)
    (table,) = (p for s in document.sections if s.heading == "Assumptions" for p in s.parts if isinstance(p, Table))
    moved = {row.cells[0].text: row.cells[2][-1] for row in table.rows}
    assert "step" in moved["attention_kernel"] and "peak" in moved["attention_kernel"] and "saved" not in moved["attention_kernel"]
    assert "mfu" in moved["causal"] and "forward" not in moved["causal"]
