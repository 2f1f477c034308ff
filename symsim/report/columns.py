"""Plain text in 80 columns: tables, wrapped lines, bars."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from symsim.report.amounts import THIN, exact

WIDTH = 80


def digits(value: int) -> str:
    return exact(value).replace(THIN, ",")


def wrapped(text: str, indent: str = "", hanging: int | None = None) -> str:
    """Lines of at most 80 characters; those after the first are indented by `hanging`, by default two more than the first."""
    after = indent + "  " if hanging is None else " " * hanging
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False, drop_whitespace=True)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, width: int = WIDTH) -> str:
    """Columns two blanks apart, or one where that is too wide, the first `left` of them flush left; of one still too wide the first column is cut."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(r[c]) for r in cells) for c in range(len(header))]
    apart = 2 if sum(widths) + 2 * len(widths) <= width else 1
    excess = sum(widths) + apart * len(widths) - width
    if excess > 0:
        widths[0] = max(min(4, widths[0]), widths[0] - excess)
        for r in cells:
            r[0] = r[0] if len(r[0]) <= widths[0] else r[0][: widths[0] - 1] + "~"
    blanks = " " * apart
    lines = [blanks + blanks.join(c.ljust(w) if n < left else c.rjust(w) for n, (c, w) in enumerate(zip(r, widths))).rstrip() for r in cells]
    return "\n".join([title, *lines])


def stroke(share: float, longest: int) -> str:
    """A bar as long as a share of `longest` characters; something is seen of everything that is there."""
    return "#" * max(int(share > 0), round(share * longest))
