"""The report as a Typst document, and as PDF by the compiler that comes with symsim."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from symsim.algebra.typeset import width
from symsim.errors import InputError
from symsim.report import gauges, picture, plot
from symsim.report.amounts import unbroken
from symsim.report.beside import two_on_a_line
from symsim.report.document import (
    Cell,
    Code,
    Emphasis,
    Equation,
    Equations,
    Fold,
    Gauges,
    Math,
    Picture,
    Printed,
    Ref,
    Report,
    Roofline,
    Table,
    Timeline,
    as_spans,
)
from symsim.report.paired import pairs
from symsim.report.shapes import PAPER
from symsim.report.templating import template
from symsim.report.typst_math import quoted, typst_math
from symsim.report.widths import BETWEEN, widths

_LINE = 57.6  # em of the tables' type (8.5 pt) on a line of A4
_LONG_WORD, _SHORT = 16, 8.0  # letters, em
_FONT = 'font-family="New Computer Modern" font-size="13" fill="#16181d"'
_STACKED = re.compile(r"\^\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}_")  # scripts above each other touch those of the next row
_STRUT = "#strut"
_BOX = re.compile(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"')
_INSIDE = "<style>.in { fill: #fff; font-size: 12px; }</style>"


def render(report: Report) -> str:
    """A whole document: fonts are the compiler's own, pictures stand in the text."""
    tools = {"quoted": quoted, "inline": inline, "aligned": aligned, "columns": columns, "drawing": drawing, "wide": wide, "sunk": sunk, "laid": laid}
    return template("report.typ.j2", **tools).render(report=report) + "\n"


def inline(cell: Cell) -> str:
    made = []
    for span in as_spans(cell):
        if isinstance(span, Math):
            made.append(_formula(span.latex) if span.latex else "")
        elif isinstance(span, Printed):
            made.append(_printed(span.latex))
        elif isinstance(span, (Code, Fold)):
            made.append(f"#code({_breakable(span.text if isinstance(span, Code) else span.name)})")
        elif isinstance(span, Emphasis):
            made.append(f"#emph({quoted(span.text)})")
        elif isinstance(span, Ref):
            made.append(f"#link(label({quoted(span.anchor)}), {quoted(span.text)})")
        else:
            made.append(f"#{_prose(span)}" if span else "")
    return "".join(made)


def _formula(latex: str) -> str:
    """Mathematics in a line; what is short is not broken at its equals sign."""
    made = f"${typst_math(latex)}$"
    return f"{f'#box({made})' if '=' in latex and width(latex) < _SHORT else made}{_STRUT if _STACKED.search(latex) else ''}"


def _printed(latex: str) -> str:
    """Mathematics, or the source's LaTeX as it is."""
    try:
        return f"${typst_math(latex)}$"
    except Exception:  # whatever the converter makes of a stranger's text
        return f"#code({quoted(latex)})"


def _breakable(name: str) -> str:
    """An identifier that may be broken behind its dots and underscores and between its humps, as a string of Typst's."""
    parts = (quoted(part)[1:-1] for part in re.split(r"(?<=[._/=,+*])|(?<=[a-z])(?=[A-Z])", name) if part)
    return '"' + "\\u{200b}".join(parts) + '"'


def _prose(text: str) -> str:
    """A text whose long words, as names of files are, may be broken."""
    words = (_breakable(w)[1:-1] if len(w) > _LONG_WORD else quoted(w)[1:-1] for w in re.split(r"(?<= )", unbroken(text)))
    return '"' + "".join(words) + '"'


def aligned(equations: Equations) -> str:
    """What `equations` of the template takes: the left sides of each column, and the lines, an equation behind its own left side."""
    lines = pairs(equations.equations)
    lefts = ("".join(f"${typst_math(line[column].left)}$, " for line in lines if column < len(line)) for column in (0, 1))
    seen, made = [0, 0], []
    for line in lines:
        made.append(f"  ({''.join(_placed(equation, column, seen[column], len(line)) for column, equation in enumerate(line))}),\n")
        seen[0] += 1
        seen[1] += len(line) - 1
    return f"({'), ('.join(lefts)}), (first, second) => (\n{''.join(made)})"


def _placed(equation: Equation, column: int, place: int, beside: int) -> str:
    first, *rest = (typst_math(r"\displaystyle " + line) for line in equation.lines)
    edge = ", edge: middle" if column < beside - 1 else ""
    number = f' & #numbered("{equation.number}"{edge})' if equation.number else ""
    side = ("first", "second")[column]
    return "$ " + " \\\n    ".join([f"#{side}({place}) &= {first}{number}", *(f"& quad {line}" for line in rest)]) + " $, "


def sunk(table: Table) -> bool:
    """Whether words stand below the line in a table's last row, where the rule is."""
    return bool(table.rows) and any(isinstance(s, Math) and r"_{\mathrm" in s.latex for cell in table.rows[-1].cells for s in as_spans(cell))


def laid(table: Table) -> Table:
    return two_on_a_line(table, _LINE) if table.beside else table


def columns(table: Table) -> str:
    """Widths, with the space around what stands in them."""
    return ", ".join(f"{wide + BETWEEN:.2f}em" for wide in widths(table, _LINE))


def wide(part: Picture | Gauges | Roofline | Timeline, short: bool) -> str:
    """Of the line; less where the picture would be higher than a share of that, which is smaller in a short report."""
    if isinstance(part, Picture) or isinstance(part, Gauges) and len(part.gauges) == 1:
        return "86%"
    found = _BOX.search(_svg(part))
    most = (27 if short else 45) if isinstance(part, Timeline) else 50
    return f"{min(100.0, most * float(found[1]) / float(found[2])):.0f}%" if found is not None else "100%"


def drawing(part: Picture | Gauges | Roofline | Timeline) -> str:
    """The picture's SVG as a string of Typst's."""
    return quoted(re.sub(r"<svg ", f"<svg {_FONT} ", _svg(part), count=1).replace(">", f">{_INSIDE}", 1))


def _svg(part: Picture | Gauges | Roofline | Timeline) -> str:
    if isinstance(part, Picture):
        return picture.svg(part)
    if isinstance(part, Gauges):
        return gauges.svg(part)
    if isinstance(part, Roofline):
        return plot.svg(part)
    from symsim.report.timeline import timeline_svg

    drawn = timeline_svg(part.schedule, part.stages, part.microbatches, part.chunks, part.durations, part.group, part.unit)
    return drawn.replace('font-family="sans-serif" fill="#222"', "", 1).replace(f'fill="{PAPER}"', 'fill="none"', 1)


def compile_pdf(text: str) -> bytes:
    """InputError with the compiler's first complaint."""
    import typst

    with tempfile.TemporaryDirectory(prefix="symsim-") as directory:
        source = Path(directory) / "report.typ"
        source.write_text(text, encoding="utf-8")
        try:
            return typst.compile(source, format="pdf", ignore_system_fonts=True)
        except typst.TypstError as error:
            raise InputError(f"typst made no PDF: {str(error).splitlines()[0]}") from None
