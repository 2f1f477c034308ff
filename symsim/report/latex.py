"""The report as a LaTeX article, and as PDF where an engine is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from symsim.algebra.typeset import width
from symsim.errors import InputError
from symsim.report import gauges, picture, plot, timeline_tex
from symsim.report.amounts import lettered_math, unbroken
from symsim.report.document import (
    Bar,
    Cell,
    Code,
    Emphasis,
    Equation,
    Equations,
    Figure,
    Fold,
    Gauge,
    Gauges,
    Math,
    Picture,
    Printed,
    Ref,
    Report,
    Roofline,
    Row,
    Section,
    Table,
    Timeline,
    as_spans,
)
from symsim.report.paired import pairs
from symsim.report.picture import COLOURS
from symsim.report.templating import template
from symsim.report.widths import BETWEEN, widths

_LINE = 57.6  # 17.4 cm of A4 in em (8.5 pt) of the tables' type
_BAR = 0.66  # of the text's width
_GAUGE = 0.69
_SECONDS = 180
_RUNS = 4
_LONG_WORD = 16
_TALL, _TALLER = r"\rule[-1ex]{0pt}{3.2ex}", r"\rule[-1.6ex]{0pt}{4.4ex}"
_STACKED = re.compile(r"\^\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}_")  # a subscript below a superscript
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "\u00b5": r"\textmu{}",
    "\u2009": r"\,",
    "\u202f": r"\,",
    "\u2212": "$-$",
    "\u2013": r"\textendash{}",
    "\u00d7": r"$\times$",
    "\u00b7": r"$\cdot$",
    '"': "''",
}
ENGINES = ("tectonic", "pdflatex", "lualatex", "xelatex")


def render(report: Report) -> str:
    """A whole document that needs no more than texlive-latex-recommended."""
    return lettered_math(
        template(
            "report.tex.j2",
            escape=escape,
            inline=inline,
            table_columns=table_columns,
            table_width=table_width,
            aligned=aligned,
            label=label,
            anchored=anchored,
            rules=rules,
            gauge_rules=gauge_rules,
            drawn=drawn,
            picture_said=picture.said,
            gauges_said=gauges.said,
            colours=COLOURS,
        ).render(report=report)
        + "\n"
    )


def escape(text: str) -> str:
    """Text as LaTeX prints it; a character no base font has becomes a question mark."""
    mapped = "".join(_SPECIAL.get(c, c if c.isascii() and c.isprintable() else "?") for c in text)
    return re.sub("-(?=-)", "-{}", mapped)  # two hyphens would print as a dash


def inline(cell: Cell) -> str:
    made = []
    for span in as_spans(cell):
        if isinstance(span, (Math, Printed)):
            # scripts above each other touch those of the next row
            made.append(f"${span.latex}${_strut(span.latex)}" if span.latex else "")
        elif isinstance(span, Code):
            made.append(rf"\code{{{_breakable(span.text)}}}")
        elif isinstance(span, Emphasis):
            made.append(rf"\emph{{{escape(span.text)}}}")
        elif isinstance(span, Fold):
            made.append(rf"\code{{{_breakable(span.name)}}}")
        elif isinstance(span, Ref):
            made.append(_reference(span))
        else:
            made.append("".join(_breakable(w) if len(w) > _LONG_WORD else escape(w) for w in re.split(r"(?<= )", unbroken(span))))
    return "".join(made)


def label(kind: str, part: Section | Table | Figure) -> str:
    return rf"\label{{{kind}{part.number}}}" if part.number else ""


def anchored(row: Row, cell: Cell) -> str:
    """The first cell of a row that is referred to by its number."""
    return rf"\refstepcounter{{source}}\label{{{row.anchor}}}{inline(cell)}"


def _reference(ref: Ref) -> str:
    """The number by LaTeX's own counter."""
    before, digits, after = ref.text.partition(ref.number.strip("()"))
    return rf"{escape(before)}\ref{{{ref.anchor}}}{escape(after)}" if digits else escape(ref.text)


def _strut(latex: str) -> str:
    """Room for a subscript below a superscript; more where the superscript is of several letters."""
    return _TALL if "^{(i)}_" in latex else _TALLER if _STACKED.search(latex) else ""


def _breakable(name: str) -> str:
    """An identifier that may be broken where a reader would: after its dots and underscores, between its humps."""
    return r"\allowbreak{}".join(escape(part) for part in re.split(r"(?<=[._/=])|(?<=[a-z])(?=[A-Z])", name) if part)


def table_columns(table: Table) -> str:
    made = ""
    for n, (column, wide) in enumerate(zip(table.columns, widths(table, _LINE))):
        # numbers that end where words begin read as one
        made += r"@{\hskip 9pt}" * (n > 0 and table.columns[n - 1].right and not column.right) + f"{'R' if column.right else 'P'}{{{wide:.2f}em}}"
    return made


def table_width(table: Table, since: int = 0) -> str:
    """Of the columns since one: of a caption, which must not widen the table below it, or of what a message's row says last."""
    return f"{sum(widths(table, _LINE)[since:]) + BETWEEN * (len(table.columns) - since - 1):.2f}em"


def aligned(equations: Equations) -> str:
    edge = max(width(e.left) for e in equations.equations)
    return " \\\\\n".join(_beside(*line, edge) if len(line) == 2 else _aligned(line[0]) for line in pairs(equations.equations))


def _beside(one: Equation, other: Equation, edge: float) -> str:
    """Two equations on a line, of which the second has the line's own number. edge: em of the longest left side."""
    first = rf"{one.left} & \ahead{{\dimexpr9.2cm-{edge:.2f}em\relax}}{{{{}}= {one.lines[0]}}}{{\label{{eq{one.number}}}}}"
    return rf"{first}\makebox[{edge:.2f}em][r]{{${other.left}$}} = {other.lines[0]} \label{{eq{other.number}}}"


def _aligned(equation: Equation) -> str:
    first, *rest = equation.lines
    name = rf" \label{{eq{equation.number}}}" if equation.number else r" \notag"
    # no page breaks between its lines
    return " \\\\*\n".join([f"{equation.left} &= {first}{name}", *(rf"&\quad {line} \notag" for line in rest)])


def rules(bar: Bar, part: Picture) -> str:
    """A bar of coloured rules."""
    return "".join(rf"\textcolor{{part{part.modules.index(m)}}}{{\rule{{{share * _BAR:.5f}\linewidth}}{{1.6ex}}}}" for m, share, _ in bar.parts)


def gauge_rules(gauge: Gauge, part: Gauges) -> str:
    """A bar of coloured rules with a thin one at the limit."""
    return gauges.rules(gauge, part, _GAUGE)


def drawn(part: Roofline | Timeline) -> str:
    """LaTeX's picture environment."""
    return plot.picture(part, escape) if isinstance(part, Roofline) else timeline_tex.picture(part)


def compile_pdf(text: str) -> bytes:
    """InputError when no engine is installed, or with LaTeX's first complaint."""
    engine = next((e for e in ENGINES if shutil.which(e)), None)
    if engine is None:
        raise InputError(
            "neither typst ('pip install typst') nor a LaTeX engine ('apt install texlive-latex-recommended lmodern', or tectonic) is installed "
            "for a .pdf; .typ and .tex need none"
        )
    with tempfile.TemporaryDirectory(prefix="symsim-") as directory:
        source = Path(directory) / "report.tex"
        source.write_text(text, encoding="utf-8")
        for _ in range(_RUNS if engine != "tectonic" else 1):
            output = _run(_command(engine), directory)
            # longtable and hyperref-like labels settle after a few runs
            if not re.search(r"Rerun|have changed", output):
                break
        made = Path(directory) / "report.pdf"
        if not made.is_file():
            raise InputError(f"{engine} made no PDF: {_complaint(output)}")
        return made.read_bytes()


def _command(engine: str) -> list[str]:
    if engine == "tectonic":
        return ["tectonic", "report.tex"]
    quiet = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    return [engine, *quiet, "report.tex"]


def _run(command: list[str], directory: str) -> str:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]} did not finish in {_SECONDS} s") from None
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run: {error.strerror}") from None
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode:
        raise InputError(f"{command[0]} stopped: {_complaint(output)}")
    return output


def _complaint(output: str) -> str:
    found = re.search(r"^(?:! ?|error: )(.+)$", output, re.MULTILINE)
    return found[1].strip() if found else "it gave no reason"
