"""Stacked bars: colours shared by all outputs, SVG for HTML, blocks of characters for text."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from symsim.report.document import Bar, Picture

# Okabe and Ito's colours, which colour-blind readers can tell apart, then lighter ones
COLOURS = ("0072B2", "E69F00", "009E73", "D55E00", "56B4E9", "CC79A7", "8C8C8C", "B8A100", "5D3A9B", "A6D854", "444444", "F4A6A6")
WIDTH, NARROW = 760, 350  # of a page, and of a phone
_HEIGHT, _GAP, KEY = 20, 24, 20
_BLOCK = "\u2588"


def colour(module: str, modules: list[str]) -> str:
    return "#" + COLOURS[modules.index(module) % len(COLOURS)]


def svg(picture: Picture, width: int = WIDTH) -> Markup:
    """Bars of one width, a legend below; every part says its amount when pointed at, that of a lone bar in the legend too."""
    modules = picture.modules
    made, y = [], 0
    for bar in picture.bars:
        made.append(f'<text x="0" y="{y + 14}">{escape(bar.label)}: {escape(bar.total)}</text>')
        y += 20
        x = 0.0
        for module, share, amount in bar.parts:
            wide = share * width
            made.append(
                f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{_HEIGHT}" fill="{colour(module, modules)}">'
                f"<title>{escape(module)}: {escape(amount)} ({100 * share:.1f} %)</title></rect>"
            )
            if wide > 60:
                made.append(f'<text x="{x + 6:.2f}" y="{y + 14}" class="in">{100 * share:.0f} %</text>')
            x += wide
        y += _GAP + 8
    drawn, height = legend([(colour(m, modules), words) for m, words in said(picture).items()], y, width)
    return framed(width, height, "; ".join(f"{b.label}: {b.total}" for b in picture.bars), "".join(made) + drawn)


def framed(width: int, height: int, label: str, parts: str) -> Markup:
    """A picture without paper of its own, with what it is for those who do not see it."""
    return Markup(f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">{parts}</svg>')


def said(picture: Picture) -> dict[str, str]:
    """What a legend says of every part."""
    shares = {m: f" {amount}, {100 * share:.1f} %" for m, share, amount in picture.bars[0].parts} if len(picture.bars) == 1 else {}
    return {m: m + shares.get(m, "") for m in picture.modules}


def legend(names: Sequence[tuple[str, str]], top: int, width: int) -> tuple[str, int]:
    """Colours and what they stand for from a height down, side by side as far as there is room; and the height at which it ends."""
    made, x, y = [], 0, top
    for fill, words in names:
        room = 32 + round(7.0 * len(words))
        if x and x + room > width:
            x, y = 0, y + KEY
        made.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{fill}"/><text x="{x + 20}" y="{y + 12}">{escape(words)}</text>')
        x += room
    return "".join(made), y + KEY if names else top


def text_bar(bar: Bar, width: int = 40) -> list[str]:
    """One line a part: name, a bar, its share and amount."""
    longest = max((len(m) for m, _, _ in bar.parts), default=0)
    most = max((share for _, share, _ in bar.parts), default=1.0) or 1.0
    return [
        f"{bar.label}: {bar.total}",
        *(
            f"  {m:<{longest}} {_BLOCK * max(1, round(share / most * width)):<{width}} {100 * share:5.1f} %  {amount}"
            for m, share, amount in bar.parts
        ),
    ]
