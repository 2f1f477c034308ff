"""Stacked bars: colours shared by all outputs, SVG for HTML, blocks of characters for text."""

from __future__ import annotations

from markupsafe import Markup, escape

from symsim.report.document import Bar, Picture

# Okabe and Ito's colours, which colour-blind readers can tell apart, then lighter ones
COLOURS = ("0072B2", "E69F00", "009E73", "D55E00", "56B4E9", "CC79A7", "8C8C8C", "B8A100", "5D3A9B", "A6D854", "444444", "F4A6A6")
_WIDTH, _LEFT, _HEIGHT, _GAP = 760, 0, 26, 30
_KEY = 24
_BLOCK = "\u2588"


def colour(module: str, modules: list[str]) -> str:
    return "#" + COLOURS[modules.index(module) % len(COLOURS)]


def svg(picture: Picture) -> Markup:
    """Bars of one width, a legend below; every part says its amount when pointed at."""
    modules = picture.modules
    made, y = [], 0
    for bar in picture.bars:
        made.append(f'<text x="0" y="{y + 14}">{escape(bar.label)}: {escape(bar.total)}</text>')
        y += 20
        x = 0.0
        for module, share, amount in bar.parts:
            wide = share * _WIDTH
            made.append(
                f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{_HEIGHT}" fill="{colour(module, modules)}">'
                f"<title>{escape(module)}: {escape(amount)} ({100 * share:.1f} %)</title></rect>"
            )
            if wide > 60:
                made.append(f'<text x="{x + 6:.2f}" y="{y + 17}" class="in">{100 * share:.0f} %</text>')
            x += wide
        y += _GAP + 8
    # five names a row, fewer where one is long
    across = max(1, min(5, int(_WIDTH / (34 + 6.6 * max(map(len, modules), default=0)))))
    for n, module in enumerate(modules):
        column, row = n % across, n // across
        at, top = column * (_WIDTH // across), y + row * _KEY
        made.append(
            f'<rect x="{at}" y="{top}" width="14" height="14" fill="{colour(module, modules)}"/>'
            f'<text x="{at + 20}" y="{top + 12}">{escape(module)}</text>'
        )
    height = y + -(-len(modules) // across) * _KEY
    return Markup(f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">' + "".join(made) + "</svg>")


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
