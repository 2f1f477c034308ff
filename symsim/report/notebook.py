"""What a notebook's cell shows of an answer: a heading, a few tables, a bar where a column is a share.

Nothing but tables and inline styles, in the cell's own colours: read in light and dark themes, and where a viewer takes style sheets away.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from symsim.report.amounts import THIN

_LEFT, _RIGHT = "text-align:left", "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
# mid tone: seen on white and on black
_BAR = "display:inline-block;height:.7em;background:#4a90d9"
_WIDEST = 10.0  # em of a bar


@dataclass(frozen=True)
class Grid:
    """Rows of texts under a caption. left: columns flush left, all others flush right. shares: of each row, drawn as a bar behind it."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[int, ...] = (0,)
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Shown:
    """What an answer is of, its tables, and what is said below them."""

    title: str
    said: tuple[str, ...]
    grids: tuple[Grid, ...]
    below: tuple[str, ...] = ()


def html(shown: Shown) -> str:
    """A fragment of HTML; a wide table scrolls in its own width."""
    made = [Markup("<p><strong>{}</strong><br/>{}</p>").format(shown.title, Markup("<br/>").join(shown.said))]
    made += map(_table, shown.grids)
    made += [Markup("<p>{}</p>").format(text) for text in shown.below]
    return '<div style="color:inherit;max-width:100%">' + "\n".join(made) + "</div>"


def _table(grid: Grid) -> Markup:
    head = _row("th", grid.header, grid.left) if any(grid.header) else Markup("")
    most = max(grid.shares, default=0.0)
    body = Markup("")
    for n, row in enumerate(grid.rows):
        body += _row("td", row, grid.left, _bar(grid.shares[n] / most) if most else Markup(""))
    caption = Markup('<caption style="caption-side:top;{};color:inherit">{}</caption>').format(_LEFT, grid.caption)
    inside = Markup('<table style="border-collapse:collapse;color:inherit">{}{}{}</table>').format(caption, head, body)
    return Markup('<div style="overflow-x:auto;max-width:100%;margin:.6em 0">{}</div>').format(inside)


def _row(tag: str, cells: Sequence[str], left: Sequence[int], bar: Markup = Markup("")) -> Markup:  # noqa: B008
    made = Markup("")
    for n, cell in enumerate(cells):
        made += Markup('<{} style="{};padding:.1em .7em .1em 0">{}</{}>').format(Markup(tag), _LEFT if n in left else _RIGHT, cell, Markup(tag))
    return Markup("<tr>{}{}</tr>").format(made, bar)


def _bar(share: float) -> Markup:
    return Markup('<td style="{}"><span style="{};width:{}em"></span></td>').format(_LEFT, _BAR, f"{max(0.1, share * _WIDEST):.1f}")


def latex(shown: Shown) -> str:
    r"""The same as displayed mathematics: an array for each table, its cells as \text."""
    made = [words(shown.title)]
    for grid in shown.grids:
        columns = "".join("l" if n in grid.left else "r" for n in range(len(grid.header)))
        rows = [*([grid.header] if any(grid.header) else []), *grid.rows]
        lines = " \\\\\n".join(" & ".join(map(words, row)) for row in rows)
        made += [words(grid.caption), f"\\begin{{array}}{{{columns}}}\n{lines}\n\\end{{array}}"]
    return "$$\n\\begin{array}{l}\n" + " \\\\\n".join(made) + "\n\\end{array}\n$$"


def words(text: str) -> str:
    r"""Text among mathematics: \text, and outside it the signs that MathJax and LaTeX read differently there."""
    plain = text.replace("\\", "/").replace("^", "").replace("~", " ").replace(THIN, " ")
    return r"\text{" + re.sub(r"([%&#_{}$])", r"}\\\1\\text{", plain) + "}"


def bundle(value: Any, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> dict[str, str]:
    """What a front end may choose from, by media type: the text of a terminal, and what the value's own `_repr_..._` give."""
    given = {"text/plain": "__repr__", "text/html": "_repr_html_", "text/latex": "_repr_latex_", "image/svg+xml": "_repr_svg_"}
    wanted = (kind for kind in given if (include is None or kind in include) and kind not in (exclude or ()))
    return {kind: getattr(value, given[kind])() for kind in wanted if hasattr(value, given[kind])}
