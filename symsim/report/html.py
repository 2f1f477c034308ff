"""The report as one HTML file: MathML for formulas, SVG for the picture, nothing to load; only what a page answers itself is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from markupsafe import Markup, escape

from symsim.algebra.typeset import width
from symsim.report import gauges, picture, plot
from symsim.report.amounts import lettered_math, unbroken
from symsim.report.document import Cell, Code, Emphasis, Fold, Gauges, Math, Picture, Printed, Ref, Report, Timeline, as_spans
from symsim.report.mathml import mathml
from symsim.report.picture import NARROW
from symsim.report.templating import template

# where the section that answers goes; text of a report is escaped, and cannot hold it
_LIVE = Markup("<!-- what answers -->")
_UNBROKEN = 12.0  # em of a formula in a cell that stays in one piece
_OPENING, _CLOSING = ("{", r"\lceil", r"\lfloor", r"\left"), ("}", r"\rceil", r"\rfloor", r"\right")
_AROUND = re.compile(r"([ ,.]*)(.*?)([ ,.]*)")  # what of a reference leads nowhere
_BREAKS = re.compile(r"\\(?:left|right)(?![a-z])| = | \+ | - | \\to |, |\\[lr](?:ceil|floor)|[{}()]")


def render(report: Report, live: Callable[[], str] | None = None) -> str:
    """live: makes a section that answers (symsim/page), behind the first one; it is asked for last."""
    known = Markup(_script()) if any(s.number for s in report.sections) else ""
    page = template("report.html.j2", **_TOOLS).render(report=report, live=_LIVE if live is not None else "", known=known) + "\n"
    before, place, behind = page.partition(_LIVE)
    return "".join((before, live(), behind)) if live is not None and place else page


@cache
def _script() -> str:
    """What opens the meaning of a symbol in place; it knows no text but the page's own."""
    return (files("symsim.page") / "known.js").read_text(encoding="utf-8")


def timeline(part: Timeline) -> Markup:
    """The schedule's picture, as wide as the page."""
    from symsim.report.timeline import WIDTH, timeline_svg

    drawn = {
        width: timeline_svg(part.schedule, part.stages, part.microbatches, part.chunks, part.durations, part.group, part.unit, width)
        for width in (WIDTH, NARROW)
    }
    return _both(*(Markup(re.sub(r' width="\d+" height="[0-9.]+"', "", svg, count=1)) for svg in drawn.values()))


def _both(wide: Markup, narrow: Markup) -> Markup:
    """A picture for pages, and the same for phones, of which a page shows one."""
    return Markup('<div class="wide">') + wide + Markup('</div><div class="narrow">') + narrow + Markup("</div>")


def bars(part: Picture) -> Markup:
    return _both(picture.svg(part), picture.svg(part, NARROW))


def gauged(part: Gauges) -> Markup:
    return _both(gauges.svg(part), gauges.svg(part, NARROW))


def math(latex: str) -> Markup:
    return Markup(mathml(lettered_math(latex)))


def pieces(latex: str, longest: float = _UNBROKEN, inside: int = 0) -> list[str]:
    """A formula too long for a table's cell, cut where a line of text may break: behind = and before + - and an arrow, outside brackets, or
    within so many round ones, there behind commas too."""
    if width(latex) <= longest:
        return [latex]
    made, round_, others, start = [], 0, 0, 0
    for found in _BREAKS.finditer(latex):
        token, at = found[0], found.start()
        if token in "()":
            round_ += 1 if token == "(" else -1
        else:
            others += (token in _OPENING) - (token in _CLOSING)
        if others or round_ > inside:
            continue
        if token == " = " or (token == ", " and round_):
            made.append(latex[start : at + len(token) - 1])
            start = at + len(token)
        elif token in (" + ", " - ", r" \to "):
            made.append(latex[start:at])
            start = at + 1
    return [*made, latex[start:]]


def _printed(latex: str) -> Markup:
    """MathML, or the source's LaTeX as it is."""
    try:
        return Markup(" ").join(math(piece) for piece in pieces(latex))
    except Exception:  # whatever the converter makes of a stranger's text
        return Markup("<code>{}</code>").format(latex)


def inline(cell: Cell) -> Markup:
    made = Markup("")
    for span in as_spans(cell):
        if isinstance(span, Math):
            made += Markup(" ").join(math(piece) for piece in pieces(span.latex)) if span.latex else ""
        elif isinstance(span, Printed):
            made += _printed(span.latex)
        elif isinstance(span, Code):
            broken = Markup(re.sub(r"([._/=])", r"\1<wbr/>", str(escape(span.text))))
            made += Markup("<code>") + broken + Markup("</code>")
        elif isinstance(span, Emphasis):
            made += Markup("<em>{}</em>").format(span.text)
        elif isinstance(span, Fold):
            made += Markup("<details><summary>{}</summary>{}</details>").format(span.name, span.meaning)
        elif isinstance(span, Ref):
            before, said, after = _AROUND.fullmatch(span.text).groups()  # type: ignore[union-attr]
            made += Markup('{}<a href="#{}">{}</a>{}').format(before, span.anchor, said, after)
        else:
            made += escape(unbroken(span))
    return made


_TOOLS = {"inline": inline, "math": math, "svg": bars, "gauges": gauged, "roofline": plot.svg, "timeline": timeline}
