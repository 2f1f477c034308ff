"""Shapes and words of SVG pictures, and their colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

PAPER, INK, FAINT, LINE, CARD = "#fcfcfa", "#222", "#5a5a5a", "#b9b9b4", "#ffffff"
SANS = "sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# an upper bound of a letter's width, in ems, in the fonts that readers have
MONO_EM, SANS_EM, BOLD_EM = 0.605, 0.58, 0.66
# of a picture as wide as a page
WIDTH = 880


def text(x: float, y: float, words: str, size: float = 12, *, font: str = SANS, fill: str = INK, anchor: str = "start", bold: bool = False) -> str:
    more = f' font-family="{MONO}"' if font == MONO else ""
    more += f' fill="{fill}"' if fill != INK else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{more} xml:space="preserve">{escape(words, quote=False)}</text>'


def rect(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{more}/>'


def box(x: float, y: float, width: float, height: float, fill: str = CARD, stroke: str = LINE, radius: float = 4, line: float = 1) -> str:
    return rect(x, y, width, height, fill, f' rx="{radius:g}" stroke="{stroke}" stroke-width="{line:g}"')


def arrow(points: Sequence[tuple[float, float]]) -> str:
    way = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{way}" fill="none" stroke="{FAINT}" stroke-width="1.1" marker-end="url(#head)"/>'


def svg(width: float, height: float, title: str, parts: Iterable[str], defs: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'font-family="{SANS}" fill="{INK}"><title>{escape(title)}</title><defs>{defs}</defs>'
        f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0 L8 4 L0 8 z" fill="{FAINT}"/></marker>'
)
