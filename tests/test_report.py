"""Reports: nothing undefined, nothing too wide, nothing loaded from outside, and the kept examples current."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import symsim.report
from symsim.algebra.arranged import Sum
from symsim.algebra.expr import ZERO, Expr, ceil, floor, maximum, symbol
from symsim.algebra.plain import opened
from symsim.algebra.quantity import BYTE, FLOP
from symsim.algebra.typeset import _printer, definition_latex, lines, names_of, width
from symsim.algebra.typeset import latex as typeset
from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.report import SUFFIXES, html, latex, markdown, render_markdown, typst, write_report
from symsim.report.amounts import human
from symsim.report.content import report
from symsim.report.document import Equations, Math, Report, Table, as_spans
from symsim.report.ink import LINE
from symsim.report.text import eval_table
from symsim.report.totals import Totals, ranges

ROOT = Path(__file__).parents[1]
CASES = {
    "dense": ("llama3-70b", "tp=8,pp=4,sp=true"),
    "moe": ("qwen3-235b-a22b", "tp=4,pp=4,ep=8,etp=1,sp=true"),
    "mla": ("deepseek-v3", "tp=8,pp=16,ep=8,sp=true"),
    "recomputed": ("gemma-3-4b", "tp=2,pp=2,vpp=2,recompute=full"),
    "eager": ("gpt2", "fusion=eager,cp=2"),
    "fsdp": ("qwen3-next-80b-a3b", "zero=3,dp=8"),
    "packed": ("llama3-8b", "dp=2,packed_document_length=512"),
    "widths": ("llama4-maverick", "tp=4,ep=4,etp=1,sp=true,recompute=selective,recompute_modules=mlp+core_attn"),
}


def made(case: str) -> Result:
    if case not in _made:
        model, strategy = CASES[case]
        _made[case] = derive(load_model(model).architecture, load_strategy(strategy, {}))
    return _made[case]


_made: dict[str, Result] = {}


def formulas(document: Report) -> list[str]:
    """Every piece of mathematics in a report."""
    found: list[str] = []
    for section in document.sections:
        for part in section.parts:
            if isinstance(part, Equations):
                found += [text for e in part.equations for text in (e.left, *e.lines)]
            groups = (
                [part.caption, *(c.heading for c in part.columns), *(c for r in part.rows for c in r.cells)]
                if isinstance(part, Table)
                else [part.spans]
                if part.kind == "paragraph"
                else []
            )
            found += [s.latex for spans in groups for s in as_spans(spans) if isinstance(s, Math)]
    return found


_SCRIPTS = r"(?:_(?:\{(?:[^{}]|\{[^{}]*\})*\}|\w)|\^\{(?:[a-z](?=[,}]))?,?(?:\\mathrm\{[\w\\]+\})?,?(?:\([ij]\))?\})*"
_GREEK = "alpha|beta|gamma|delta|epsilon|zeta|eta|kappa|lambda|ell|mu|omega|tau|rho|sigma|psi|varphi|Phi"
_NAME = re.compile(
    rf"(?:\\Sigma )?(?:\\hat\{{(?:\w|\\epsilon)\}}|\\(?:{_GREEK})(?![A-Za-z])|\\mathrm\{{\w+\}}(?:/\\mathrm\{{\w+\}})?|[A-Za-z])" + _SCRIPTS
)


def atoms(text: str) -> set[str]:
    """The symbols in a formula, units and LaTeX's own words taken out first; nothing but numbers and signs is left then."""
    # sums and maxima over kinds of layers, and over layers
    text = re.sub(r"\\(?:sum|max)_\{k(?: \\in \\\{[^}]*(?:\}[^}]*)*?\\\})?\}", " k ", text)
    text = re.sub(r"\\sum_\{j = (.*?)\}\^\{(.*?)\} \[(\\kappa_j) = \\mathrm\{[\w\\]+\}\]", r" \1 \2 \3 ", text)
    text = re.sub(r"(?<=\d)\\,\\mathrm\{[A-Za-z/]+\}", " ", text)
    text = re.sub(r"\\big\|_\{i:\\,(.*?)=\\max\}", r" i \1 ", text)
    text = re.sub(r"\\(?:max|sum)_\{(?:k>)?i\}", " ", text).replace("(k)", "(i)")
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", text)
    words = r"frac|overline|textstyle|cdot|biggl|biggr|bigl|bigr|quad|to|min|max|log_2|lfloor|rfloor|lceil|rceil|ge"
    text = re.sub(rf"\\textstyle\\sum_n|\\(?:{words})(?![A-Za-z])|\\,", " ", text)
    assert not re.search(r"[^-+=/(){}^,.\d\s>\[\]]", _NAME.sub("", text)), text
    return set(_NAME.findall(text))


def undefined(document: Report) -> set[str]:
    """Symbols that no table says what they are, neither on the left of an equation (nor in a table's `name = formula`)."""
    tables = [p for s in document.sections for p in s.parts if isinstance(p, Table)]
    known = set()
    for table in tables:
        # a symbol, and beside it what it is
        places = [n for n, c in enumerate(table.columns[:-1]) if table.columns[n + 1].heading in ("meaning", "is") or c.heading == "symbol"]
        known |= {s.latex for r in table.rows if r.role == "plain" for n in places for s in as_spans(r.cells[n]) if isinstance(s, Math)}
        # two names of one number, which ends the cell
        cells = [c.latex.split(" = ") for r in table.rows for c in r.cells if isinstance(c, Math)]
        known |= {name for *names, value in cells for name in names if re.fullmatch(r"[\d.]+\\,\\mathrm\{\w+\}|0\\,\\mathrm\{s\}", value)}
    known |= {"X_n", "Q_n", "A_n", "t_n"} if "n" in known else set()
    known |= {s.latex for table in tables for c in table.columns for s in as_spans(c.heading) if isinstance(s, Math) and s.latex == "c_n"}
    for text in formulas(document):
        known |= {text.split(" = ")[0]} if " = " in text else set()
    for section in document.sections:
        for part in section.parts:
            if isinstance(part, Equations):
                known |= {e.left for e in part.equations}
                known |= {name for e in part.equations if e.lines[0].endswith("= 0") for name in e.lines[0].split(" = ")[:-1]}
    unknown = {a for text in formulas(document) for a in atoms(text)} - known
    return {a for a in unknown if "k" not in known or not any(re.fullmatch(_of_a_kind(a), _flat(b)) for b in known)}


def _flat(name: str) -> str:
    """A name with its words one by one."""
    return re.sub(r"\\mathrm\{([\w\\]+)\}", lambda found: found[1].replace("\\_", ","), name)


def _of_a_kind(name: str) -> str:
    """What a name with k for a kind of layers stands for; of another name, itself."""
    return re.sub(r"(?<![A-Za-z\\])k(?![A-Za-z])", "[a-z_,]+", re.escape(_flat(name)))


@pytest.mark.parametrize("case", CASES)
def test_every_symbol_is_defined(case: str) -> None:
    assert undefined(report(made(case))) == set()


def test_a_missing_definition_is_noticed() -> None:
    document = report(made("mla"))
    (notation,) = (s for s in document.sections if s.heading == "Notation")
    (table,) = (p for p in notation.parts if isinstance(p, Table))
    shorter = Table(table.caption, table.columns, tuple(r for r in table.rows if as_spans(r.cells[0]) != (Math("r_k"),)))
    sections = tuple(type(s)(s.heading, tuple(shorter if p is table else p for p in s.parts), s.level) for s in document.sections)
    assert undefined(Report(document.title, document.subtitle, sections)) == {"r_k"}


@pytest.mark.parametrize("case", CASES)
def test_displayed_formulas_fit_their_line(case: str) -> None:
    for section in report(made(case)).sections:
        for part in section.parts:
            for equation in part.equations if isinstance(part, Equations) else ():
                for line in equation.lines:
                    assert width(equation.left) + width("=") + width(line) <= LINE, line


@pytest.mark.parametrize("case", CASES)
def test_a_block_is_at_most_a_screen_of_formula(case: str) -> None:
    for section in report(made(case)).sections:
        shown = sum(len(e.lines) for p in section.parts if isinstance(p, Equations) for e in p.equations)
        assert shown <= 45, (section.heading, shown)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX engine on this machine")
def test_latex_finds_no_box_too_wide(tmp_path: Path) -> None:
    write_report(made("mla"), tmp_path / "report.tex")
    done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "report.tex"], cwd=tmp_path, capture_output=True, check=True)
    assert b"Overfull \\hbox" not in done.stdout


def expanded(terms: Sum) -> Expr:
    return sum(map(opened, terms), ZERO)


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_is_the_formula(case: str) -> None:
    """Factoring out and grouping, multiplied out again, is the definition."""
    book = made(case).derivation.definitions.values()
    printer = _printer(names_of(book), True)
    for definition in book:
        if definition.expr:
            assert expanded(printer.arranged(definition.expr)) == definition.expr, definition.symbol


@pytest.mark.parametrize(
    "expression, text",
    [
        (symbol("h") * symbol("s") * symbol("b") * 2 / symbol("tp"), r"\frac{2bsh}{t}"),
        (symbol("a") * symbol("d") + symbol("g") * symbol("d") * 2, "d(a + 2g)"),
        (symbol("b") * symbol("s") * symbol("h") - symbol("h") * symbol("V") / symbol("tp"), r"bsh - \frac{hV}{t}"),
        (ceil(symbol("s") * symbol("K") / symbol("E")), r"\left\lceil \frac{sK}{E} \right\rceil"),
        (maximum(floor(symbol("L") / symbol("pp")) - 3, 0) ** 2, r"\max\left(\left\lfloor \frac{L}{p} \right\rfloor - 3, 0\right)^{2}"),
        (symbol("h") / (symbol("a") + symbol("g")), r"\frac{h}{a + g}"),
        (-symbol("h") - 1, "-(h + 1)"),
        (symbol("L_moe_i") * symbol("h") / 2, r"\frac{L^{(i)}_{\mathrm{moe}}\,h}{2}"),
        (ZERO, "0"),
    ],
)
def test_typesetting(expression: Expr, text: str) -> None:
    assert typeset(expression) == text


def test_long_sums_are_broken_without_losing_a_term() -> None:
    book = made("mla").derivation.definitions
    names = names_of(book.values())
    broken = lines(book["A_moe"].expr, names, 30.0)
    assert len(broken) > 5 and all(width(line) <= 30 for line in broken)
    assert "".join(broken).replace(" ", "") == typeset(book["A_moe"].expr, names).replace(" ", "")
    assert definition_latex(book["N"], names).startswith(r"N = N_{\mathrm{embedding}} + ")


@pytest.mark.parametrize("suffix", [s for s in SUFFIXES if s != ".pdf"])
def test_every_kind_is_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"report{suffix}"
    assert write_report(made("mla"), path) == [f"wrote {path}"]
    text = path.read_text()
    if suffix == ".json":
        assert json.loads(text)["params"]["total"] == 671026404352
    else:
        assert re.sub(r"[\u2009\u202f ]|\\,", "", text).count("671026404352") >= 2
        assert "kv_a_proj_with_mqa" in re.sub(r"\\allowbreak\{\}|<wbr/>|\\u\{200b\}|\\(?=_)", "", text)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_suffix_has_the_renderer_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(symsim.report._RENDERERS, ".txt", "markdown")
    document = Report("A title", "")
    assert symsim.report.rendered(document, ".txt") == symsim.report.rendered(document, ".md")
    with pytest.raises(KeyError, match="adoc"):
        symsim.report.rendered(document, ".adoc")


@pytest.mark.parametrize(
    "name, said",
    [
        ("report.docx", ".md, .html, .pdf, .typ, .tex or .json"),
        ("report", ".md"),
        ("report.htm", ".tex or .json"),
        ("absent/report.md", "there is no directory"),
        ("folder.md", "is a directory"),
    ],
)
def test_what_cannot_be_written_is_said(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(InputError, match=re.escape(said)):
        write_report(made("dense"), tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.md"]


def engine(folder: Path, script: str) -> str:
    folder.mkdir()
    (folder / "pdflatex").write_text("#!/bin/sh\n" + script)
    (folder / "pdflatex").chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    "script, said",
    [
        (None, "apt install texlive-latex-recommended"),
        ("echo '! Undefined control sequence.'; exit 1", "Undefined control sequence"),
        ("exit 0", "made no PDF"),
    ],
)
def test_a_pdf_without_typst_says_what_is_missing(script: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symsim.report.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path) if script is None else engine(tmp_path / "bin", script))
    with pytest.raises(InputError, match=re.escape(said)):
        write_report(made("dense"), tmp_path / "report.pdf")
    assert not list(tmp_path.glob("*report*"))


def test_a_pdf_without_typst_is_what_the_engine_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symsim.report.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", engine(tmp_path / "bin", "echo made > report.pdf"))
    write_report(made("dense"), tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_text() == "made\n"


@pytest.mark.parametrize("case", ["mla", "recomputed"])
def test_html_is_one_well_formed_file_that_loads_nothing(case: str) -> None:
    text = html.render(report(made(case)))
    tree = ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))
    tags = {e.tag.rpartition("}")[2] for e in tree.iter()}
    assert {"math", "mfrac", "svg", "table"} <= tags
    assert not tags & {"link", "img", "iframe", "object", "use", "merror"}
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert name.rpartition("}")[2] not in ("src", "srcset", "data") and not (name.endswith("href") and not value.startswith("#"))
    assert "url(" not in text and "@import" not in text
    assert "\\" not in "".join(e.text or "" for e in tree.iter() if e.tag.startswith("{http://www.w3.org/1998/Math"))


def test_names_from_a_file_stay_text() -> None:
    result = made("dense")
    evil = derive(
        result.model.model_copy(update={"name": "<script>x</script> $\\input{a} `|` **b** \u4e2d\n# c", "source": "a|b_c & 5%"}), result.strategy
    )
    document = report(evil)
    page, source, plain = html.render(document), latex.render(document), markdown.render(document)
    assert "<script>x" not in page and "&lt;script&gt;" in page
    assert r"\input{" not in source and r"\textbackslash{}input\{" in source and "\u4e2d" not in source
    assert "<script" not in plain.replace(r"\<script", "") and "\n# c" not in plain
    assert all(len(line) <= 80 for line in eval_table(evil).splitlines())


@pytest.mark.parametrize("case", CASES)
def test_markdown_tables_are_whole(case: str) -> None:
    """Every row of a table has its header's number of cells; no bar inside a cell is taken for the next."""
    text = render_markdown(made(case))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(cells) == 1, table[:200]
    assert text.count("```") % 2 == 0 and "None" not in text


def test_markdown_code_has_its_bars() -> None:
    """A layout that is read from a report is the one that was given; in a table its bars are escaped, which GitHub takes away again."""
    text = render_markdown(derive(made("dense").model, load_strategy("pp=2,pipeline_model_parallel_layout=Et*40|t*40L,num_microbatches=2")))
    assert "Further options: `pipeline_model_parallel_layout=Et*40|t*40L`" in text
    assert r"| `pipeline_model_parallel_layout` | `Et*40\|t*40L` |" in text


@pytest.mark.parametrize("case", CASES)
def test_saved_bytes_by_module_add_up(case: str) -> None:
    totals = Totals(made(case))
    for stage in range(len(totals.result.stages)):
        assert sum(totals.saved(stage).values()) == totals.stage_numbers(stage)["A_stage"]
    for bar in totals.picture().bars:
        assert sum(share for _, share, _ in bar.parts) == pytest.approx(1)


@pytest.mark.parametrize("case", CASES)
def test_eval_is_80_columns(case: str) -> None:
    text = eval_table(made(case))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert f"{int(made(case).numbers['N']):,}" in text and "attention_kernel=flash" in text


def test_equal_stages_share_a_row() -> None:
    assert [members for members, _ in Totals(made("mla")).alike][1] == [1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14]
    assert ranges([0, 1, 2, 5, 7, 8]) == "0\u20132, 5, 7\u20138"
    assert human(1536, BYTE) == "1.5 KiB" and human(999, FLOP) == "999 FLOP" and human(1000, FLOP) == "1 kFLOP"


def test_a_report_takes_less_than_a_second() -> None:
    result = made("mla")
    render_markdown(result)
    start = time.process_time()
    render_markdown(result)
    latex.render(report(result))
    assert time.process_time() - start < 1.0


def test_kept_reports_are_current(tmp_path: Path) -> None:
    """Also that a stale or missing one is noticed; 'python reports/remake.py' makes them again."""
    spec = importlib.util.spec_from_file_location("remake_reports", ROOT / "reports" / "remake.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fresh, kept = tmp_path / "fresh", tmp_path / "kept"
    fresh.mkdir()
    module.remake(fresh)
    assert module.stale(fresh) == []
    shutil.copytree(fresh, kept)
    (kept / "deepseek-v3.md").unlink()
    (kept / "llama3-70b.html").write_text("old")
    assert module.stale(fresh, kept) == ["deepseek-v3.md", "llama3-70b.html"]


def test_dimensions_are_placed_by_the_symbols_of_their_operations() -> None:
    """Rows of experts are a rho in every table of a report, as R is what runs again; a terminal says what R is."""
    result = derive(load_model("mixtral-8x7b").architecture, load_strategy("tp=2,sp=true,ep=4,etp=2,dp=4"))
    report_of = render_markdown(result)
    assert "| $`\\rho`$ | `etp where it is left` |" in report_of and "| R |" not in report_of
    assert "rows an expert rank computes" in report_of
    assert "\n  R: rows an expert rank computes, before its width is split." in eval_table(result)


def test_words_below_the_line_of_a_last_row_stand_clear_of_the_rule() -> None:
    """N_{head, lm_head} is a last row; its rule is as much nearer to what follows, so that no page is longer."""
    made = typst.render(report(derive(load_model("llama3-8b").architecture, load_strategy("tp=2,sp=true"))))
    tables = re.findall(r"^#listed\(\n(.*?)^\)$", made, re.MULTILINE | re.DOTALL)
    last = [re.findall(r"^\[.*$", table, re.MULTILINE)[-1] for table in tables]
    deep = [bool(re.search(r'attach\([^()]*b: [^()]*"', row)) for row in last]
    assert 3 <= sum(deep) < len(tables)
    assert deep == ["inset: 0pt, v(sunk)),\n  table.hline(stroke: 0.8pt),\n" in table for table in tables]
    assert deep == [", sunk,\n" in table for table in tables]
