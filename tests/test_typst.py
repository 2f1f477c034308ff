"""Reports as Typst: mathematics by rule, every character as itself, and lines that fit the page."""

from __future__ import annotations

import json
import re
import string
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from test_report_step import document, made

from symsim import derive
from symsim.algebra.typeset import pieces, width
from symsim.errors import InputError
from symsim.report import latex, typst, write_report
from symsim.report.content import report
from symsim.report.document import Code, Column, Emphasis, Equation, Equations, Fold, Math, Paragraph, Printed, Report, Row, Section, Table
from symsim.report.ink import LINE
from symsim.report.paired import pairs
from symsim.report.typst_math import quoted, typst_math
from symsim.report.widths import widths


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (r"\frac{2bsh}{t}", "frac(2 b s h, t)"),
        (r"\left\lceil \frac{sK}{E} \right\rceil", "lr(\u2308 frac(s K, E) \u2309)"),
        (r"L^{(i)}_{\mathrm{moe}}\,h", r'attach(L, b: "moe", t: \( i \)) #h(0.167em) h'),
        (r"\max(a, b)", r'op("max") \( a \, b \)'),
        (r"\sum_{i} x", "attach(\u2211, b: i) x"),
        (r"{\textstyle\sum_n} x", "inline(attach(\u2211, b: n)) x"),
        (r"\biggl(\max_i x \bigr)", r'lr(\(, size: #2.047em) attach(limits(op("max")), b: i) x \)'),
        (r"x\big|_i", r"x attach(lr(\|, size: #1.2em), b: i)"),
        (r"\hat{t}_{\mathrm{opt}} + \bar{c}", 'attach(accent(t, hat), b: "opt") + overline(c)'),
        (r"\begin{cases} a & b > 0 \\ c & d \end{cases}", r"lr(\{ mat(delim: #none, column-gap: #0.8em, align: #left, a, b > 0; c, d))"),
        (r"\textcolor{red}{2h}", "#text(fill: red)[$2 h$]"),
        (r"0.5\,s / 2; x", r'"0.5" #h(0.167em) s class("normal", "/") 2 \; x'),
    ],
)
def test_mathematics(written: str, wanted: str) -> None:
    assert typst_math(written) == wanted


def test_what_a_source_wrote_and_nothing_draws_stands_as_it_is_written() -> None:
    assert typst.inline(Printed(r"\begin{nowhere} a")) == r'#code("\\begin{nowhere} a")'


def test_long_words_may_be_broken() -> None:
    broken = r'"theoretical_\u{200b}memory_\u{200b}usage.\u{200b}py"'
    assert typst.inline("in theoretical_memory_usage.py") == f'#"in {broken[1:]}'
    assert typst.inline(Code("theoretical_memory_usage.py")) == f"#code({broken})"
    assert typst.inline("a plain word") == '#"a plain word"'


def assert_lines_fit(document: Report) -> None:
    """By the compiler: no displayed equation is wider than the room it has."""
    too_wide = "#show math.equation.where(block: true): it => layout(room => { assert(measure(it).width <= room.width, message: repr(it)); it })\n"
    typst.compile_pdf(too_wide + typst.render(document))


def test_every_character_stands_for_itself(tmp_path: Path) -> None:
    """Nothing that a name or a text holds is read as markup."""
    marks = string.punctuation + "\u00b7\u2013\u00d7\u20ac\x1b\n#let x = 1 $a$ *b* _c_ @d <e> //f /* g"
    spans = (marks, Code(marks), Emphasis(marks), Fold(marks, marks), Math(r"\mathrm{a\_b}"), Printed(r"\frac{a}{b}"))
    table = Table((marks,), (Column(marks, 10), Column("", 5, True)), (Row((marks,), "group"), Row((marks, Code(marks)), "total")))
    text = typst.render(Report(marks, marks, (Section(marks, (Paragraph(spans), table, Equations((Equation("a", ("b", "+ c")),)))),)))
    assert quoted('a"\\') == '"a\\"\\\\"'
    assert typst.compile_pdf(text)
    import typst as compiler

    source = tmp_path / "said.typ"
    source.write_text(f"#metadata({quoted(marks)}) <said>")
    said = compiler.query(source, "<said>", field="value", one=True)
    assert json.loads(said) == marks.replace("\x1b", r"\x1b")


# symbols of capitals and ceilings of quotients, which are wide
WIDE = [("kimi-linear-48b-a3b", "tp=2,sp=true,pp=2,dp=8,num_microbatches=8,ep=8,etp=1"), ("zamba2-7b", "tp=2,sp=true,pp=2,dp=8,num_microbatches=8")]


@cache
def wide_report(model: str, strategy: str) -> Report:
    return report(derive(model, strategy, system="h100-sxm"))


def measured(formulas: list[str], style: str = "display") -> list[float]:
    """The width of each in em of its type, by the compiler."""
    import typst as compiler

    space = " " if style == "display" else ""
    asked = ", ".join(f"measure(${space}{typst_math(f)}{space}$).width.pt() / 10" for f in formulas)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "widths.typ"
        said = f"#context [#metadata(({asked},)) <widths>]"
        source.write_text(f'#set page(width: 100cm)\n#set text(font: "New Computer Modern", size: 10pt)\n{said}')
        return json.loads(compiler.query(source, "<widths>", field="value", one=True))


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("model", "strategy"), WIDE)
def test_wide_formulas_fit_the_page(model: str, strategy: str) -> None:
    """Lines are broken by an estimate of their width, which was a sixth too short."""
    document = wide_report(model, strategy)
    assert_lines_fit(document)
    equations = [e for s in document.sections for p in s.parts if isinstance(p, Equations) for e in p.equations if len(e.lines) == 1]
    lines = [rf"\displaystyle {e.left} = {e.lines[0]}" for e in equations]
    shares = [real / width(line) for real, line in zip(measured(lines), lines)]
    assert len(shares) > 100 and 0.75 < min(shares) and max(shares) < 1.07


@pytest.mark.parametrize(("model", "strategy"), WIDE)
def test_lines_leave_room_for_the_longest_left_side(model: str, strategy: str) -> None:
    """Of all equations of a block, which stand under one another at their equals signs."""
    document = wide_report(model, strategy)
    for equations in [p for s in document.sections if s.level == 2 and s.number.startswith("7.") for p in s.parts if isinstance(p, Equations)]:
        edge = max(width(e.left) for e in equations.equations)
        for equation in equations.equations:
            assert edge + max(map(width, equation.lines)) <= LINE + 1, equation.left


@pytest.mark.parametrize(("model", "strategy"), WIDE)
def test_what_no_line_is_broken_in_fits_its_column(model: str, strategy: str) -> None:
    document = wide_report(model, strategy)
    cells = []
    for table in [p for s in document.sections for p in s.parts if isinstance(p, Table)]:
        found = widths(table, 57.6)
        assert sum(found) + 0.6 * len(found) <= 57.61
        for row in [r for r in table.rows if r.role not in ("group", "message")]:
            cells += [(c.latex, wide) for c, wide in zip(row.cells, found) if isinstance(c, Math) and c.latex and len(pieces(c.latex)) == 1]
    assert len(cells) > 250
    for (latex_, wide), real in zip(cells, measured([one for one, _ in cells], "inline")):
        assert real <= wide, latex_


def numbers_at(equations: list[Equation], folder: Path) -> dict[str, tuple[float, float]]:
    """Where the number of each equation stands: cm from the left edge of its page, and from the top."""
    import typst as compiler

    where = [f"{axis}: query(<eq{e.number}>).first().location().position().{axis} / 1cm" for e in equations for axis in "xy"]
    asked = "".join(f"({x}, {y})," for x, y in zip(where[::2], where[1::2]))
    text = typst.render(Report("Lines", "", (Section("Lines", (Equations(tuple(equations)),)),)))
    (folder / "lines.typ").write_text(f"{text}#context [#metadata(({asked})) <places>]")
    places = json.loads(compiler.query(folder / "lines.typ", "<places>", field="value", one=True))
    return {str(e.number): (p["x"], p["y"]) for e, p in zip(equations, places)}


def test_short_equations_stand_two_on_a_line(tmp_path: Path) -> None:
    """Each with its number behind it; a long one, and one of several lines, has its own."""
    short, long = ("= 1",), (" + ".join(["b"] * 16),)
    kinds = [short, short, short, long, short, ("a", "+ b"), short, short]
    equations = [Equation("a", lines, number=n) for n, lines in enumerate(kinds, start=1)]
    assert [[e.number for e in line] for line in pairs(equations)] == [[1, 2], [3], [4], [5], [6], [7, 8]]
    assert [len(line) for line in pairs([*equations, replace(equations[0], left=" + ".join(["a"] * 14))])] == [1] * 9
    found = numbers_at(equations, tmp_path)
    assert found["1"][1] == pytest.approx(found["2"][1]) and found["7"][1] == pytest.approx(found["8"][1])
    assert found["1"][1] < found["3"][1] < found["4"][1] < found["5"][1] < found["6"][1] < found["7"][1]
    assert found["1"][0] == pytest.approx(found["7"][0], abs=0.2) and found["1"][0] < 11 < 19 < min(found[n][0] for n in "234568")


@pytest.mark.parametrize("case", ["moe", "dense"])
def test_lines_fit_the_page(case: str) -> None:
    assert_lines_fit(document(case))


def test_a_line_that_is_too_long_would_be_seen() -> None:
    long = Equations((Equation("a", (" + ".join(["b"] * 120),)),))
    with pytest.raises(InputError, match="assertion failed"):
        assert_lines_fit(Report("t", "", (Section("s", (long,)),)))


def test_pdf(tmp_path: Path) -> None:
    write_report(made("dense"), tmp_path / "report.pdf")
    written = (tmp_path / "report.pdf").read_bytes()
    assert written.startswith(b"%PDF-") and len(re.findall(rb"/Type */Page\b", written)) > 10
    write_report(made("dense"), tmp_path / "again.pdf")
    assert (tmp_path / "again.pdf").read_bytes() == written


def pages_of(before: int, folder: Path) -> list[int]:
    """The pages of a heading behind so many rows of a table, and of the row that follows it."""
    import typst as compiler

    rows = [*[Row(("row", "", ""))] * before, Row(("heading",), "group"), *[Row((Math("x"), "", ""))] * 20]
    table = Table(("Rows.",), (Column("row", 8), Column("", 8), Column("", 8)), tuple(rows))
    where = "query({}).first().location().page()"
    asked = f"#context [#metadata(({where.format('emph')}, {where.format('math.equation')})) <pages>]"
    (folder / "rows.typ").write_text(typst.render(Report("Rows", "", (Section("Rows", (table,)),))) + asked)
    return json.loads(compiler.query(folder / "rows.typ", "<pages>", field="value", one=True))


def test_a_heading_stands_on_the_page_of_its_first_row(tmp_path: Path) -> None:
    found = [pages_of(before, tmp_path) for before in range(60, 75)]
    assert [here == there for here, there in found] == [True] * 15
    assert {here for here, _ in found} == {1, 2}


@pytest.mark.parametrize("short", [True, False])
def test_pages_are_numbered_where_the_answer_ends_on_the_first(short: bool, tmp_path: Path) -> None:
    """A break that depends on its own page never settles: every page was the first, and equations had no numbers."""
    import typst as compiler

    result = derive("gpt2", "dp=4")
    source = tmp_path / "report.typ"
    write_report(result, source, short)
    _, warnings = compiler.compile_with_warnings(source, ignore_system_fonts=True)
    assert [str(warning) for warning in warnings] == []


def test_an_equation_stands_on_one_page(tmp_path: Path) -> None:
    import typst as compiler

    seen, place = set(), "query({}).first().location().page()"
    asked = f"#context [#metadata(({place.format('<eq1>')}, {place.format('<last>')})) <pages>]"
    for before in range(38, 54):
        equation = Equation("a", ("b", *["+ c"] * 8, "+ z"), number=1)
        text = typst.render(Report("Lines", "", (Section("Lines", (*[Paragraph(("line",))] * before, Equations((equation,)))),)))
        (tmp_path / "lines.typ").write_text(text.replace("+ z", "+ z #[#metadata(none)<last>]") + asked)
        first, last = json.loads(compiler.query(tmp_path / "lines.typ", "<pages>", field="value", one=True))
        assert first == last, before
        seen.add(first)
    assert seen == {1, 2}


def test_what_does_not_compile_is_said() -> None:
    with pytest.raises(InputError, match="typst made no PDF: "):
        typst.compile_pdf("#nothing-of-this-name")


def test_pictures_stand_in_the_text() -> None:
    text = typst.render(report(made("moe")))
    assert text.count("pictured([") == text.count("<svg ".replace('"', '\\"')) == 6


def test_nothing_of_it_is_loaded_before_it_is_asked_for() -> None:
    asked = "import sys, symsim.report, symsim.report.latex; print('typst' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.strip() == "False"
    assert latex.ENGINES


def test_a_column_gives_another_what_saves_lines() -> None:
    """A long text beside short words has their room, and a narrow table grows where the line has more."""
    long = " ".join(["word"] * 60)
    table = Table((), (Column("a", 30), Column("b", 20)), tuple(Row(("short", long)) for _ in range(3)))
    first, second = widths(table, 57.6)
    assert first < 20 and second > 35
    narrow = Table((), (Column("a", 6), Column("b", 12)), (Row(("short", long)), Row(("short", "few words"))))
    assert sum(widths(narrow, 57.6)) > 30
    even = Table((), (Column("a", 6), Column("b", 12)), (Row(("short", "few words")),))
    assert widths(even, 57.6) == (6, 12)
