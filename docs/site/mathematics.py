"""Mathematics of a page of the site: where it stands in a line (between $` and `$, not in code that ends in a dollar), and as MathML."""

from __future__ import annotations

import re
from collections.abc import Callable

from symsim.algebra.typeset import width
from symsim.report.html import pieces
from symsim.report.mathml import mathml

_LONG = 24.0  # em of a term that is cut inside
_ALIGNED = re.compile(r"\s*\\begin\{aligned\}(.*)\\end\{aligned\}\s*", re.DOTALL)
# as Markdown reads a line: what opens first is closed first, and neither goes on behind an empty line
_SPAN = re.compile(r"\$`(?P<math>(?:(?!\n\n)[^`])*)`\$|(?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?<!`)(?P=ticks)(?!`)", re.DOTALL)


def replaced(text: str, made: Callable[[str], str]) -> str:
    """The text with what `made` gives of each formula's LaTeX in its place; code stays as it is."""
    return _SPAN.sub(lambda found: found[0] if found["math"] is None else made(found["math"]), text)


def drawn(latex: str) -> str:
    """A `math` element; lines of `aligned` are rows of a table, which the converter does not know."""
    aligned = _ALIGNED.fullmatch(latex)
    if aligned is None:
        return mathml(latex)
    rows = "".join(f"<mtr>{''.join(map(_cell, line.split('&'), ('right', 'left')))}</mtr>" for line in aligned[1].split(r"\\"))
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML"><mtable displaystyle="true">{rows}</mtable></math>'


def parts(latex: str) -> list[str]:
    """A formula in a line of text, cut where the line may end: between its terms, and where these are long within their outermost brackets."""
    if r"\begin" in latex:
        return [latex]
    return [part for whole in pieces(latex) for part in pieces(_loosened(whole), _LONG, inside=1)]


def _loosened(latex: str) -> str:
    """A long formula with brackets of one height in place of the outermost that stretch, between which no line could end."""
    start, depth = latex.find(r"\left("), 0
    if start < 0 or width(latex) <= _LONG:
        return latex
    for found in re.finditer(r"\\(left|right)(?![a-z])", latex):
        depth += 1 if found[1] == "left" else -1
        if found.start() > start and not depth and latex[found.end()] == ")":
            return latex[:start] + r"\biggl(" + latex[start + len(r"\left(") : found.start()] + r"\biggr)" + latex[found.end() + 1 :]
    return latex


def _cell(latex: str, side: str) -> str:
    inside = re.sub(r"^<math[^>]*>|</math>$", "", mathml(latex.strip())) if latex.strip() else ""
    return f'<mtd style="text-align: {side}; padding: .2em 0">{inside}</mtd>'
