"""Mathematics of a page of the site: where it stands in a line (between $` and `$, not in code that ends in a dollar), and as MathML."""

from __future__ import annotations

import re
from collections.abc import Callable

from symsim.report.mathml import mathml

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


def _cell(latex: str, side: str) -> str:
    inside = re.sub(r"^<math[^>]*>|</math>$", "", mathml(latex.strip())) if latex.strip() else ""
    return f'<mtd style="text-align: {side}; padding: .2em 0">{inside}</mtd>'
