"""The report as GitHub Markdown: math in $`...`$ and math blocks, which no escape rule touches."""

from __future__ import annotations

import re

from symsim.report import gauges, plot
from symsim.report.amounts import lettered, lettered_math
from symsim.report.document import Cell, Code, Emphasis, Equations, Fold, Gauges, Math, Printed, Ref, Report, Roofline, Row, Timeline, as_spans
from symsim.report.picture import text_bar
from symsim.report.templating import template


def render(report: Report) -> str:
    text = template("report.md.j2", escape=escape, inline=inline, row=row, aligned=aligned, bar=text_bar, drawn=drawn).render(report=report)
    return re.sub(r"\n{3,}", "\n\n", lettered_math(text)).strip() + "\n"


def escape(text: str) -> str:
    """Plain text that stays plain; a line of it cannot start or leave a table."""
    return re.sub(r"([\\`*_\[\]<>|#$~])", r"\\\1", " ".join(text.split(" "))).replace("\n", " ")


def inline(cell: Cell, bar: str = "|") -> str:
    """bar: how code has one."""
    made = []
    for span in as_spans(cell):
        if isinstance(span, (Math, Printed)):
            made.append(f"$`{span.latex}`$" if span.latex else "")
        elif isinstance(span, Code):
            made.append(f"`{span.text.replace('`', chr(39)).replace('|', bar)}`" if span.text else "")
        elif isinstance(span, Emphasis):
            made.append(f"*{escape(span.text.strip())}*" + " " * span.text.endswith(" "))
        elif isinstance(span, Fold):
            made.append(f"`{span.name}`")
        elif isinstance(span, Ref):
            made.append(escape(span.text))
        else:
            made.append(escape(lettered(span)))
    return "".join(made)


def row(row: Row, columns: int) -> str:
    """Cells between bars, which a table takes out of code too unless they are escaped; a heading over rows goes into its first cell."""
    cells = [inline(c, r"\|") for c in row.cells] + [""] * (columns - len(row.cells))
    if row.role in ("group", "total"):
        cells = [f"**{c}**" if c and not c.startswith("$") else c for c in cells]
    return "| " + " | ".join(cells) + " |"


def aligned(equations: Equations) -> str:
    made = []
    for e in equations.equations:
        first, *rest = e.lines
        number = rf" && ({e.number})" if e.number else ""
        made += [f"{e.left} &= {first}{number}", *(rf"&\quad {line}" for line in rest)]
    return " \\\\\n".join(made)


def drawn(part: Gauges | Roofline | Timeline) -> list[str]:
    """A picture in characters."""
    if isinstance(part, Gauges):
        return gauges.lines(part)
    if isinstance(part, Roofline):
        return plot.lines(part)
    from symsim.report.timeline import timeline_text

    text = timeline_text(part.schedule, part.stages, part.microbatches, part.chunks, part.durations, part.group, part.unit)
    return text.rstrip("\n").split("\n")
