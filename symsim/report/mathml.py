"""Mathematics in LaTeX as MathML, which a browser draws and other writers walk."""

from __future__ import annotations

import re
from functools import lru_cache

_TEXT = re.compile(r"(\\text\{[^{}]*\})|([0-9])([A-Za-z])")

# what a browser draws otherwise than LaTeX: a bar that does not stretch (which a style draws), slanted capitals of the Greek alphabet, a gap
# between max and its bracket
_AS_LATEX = (
    (re.compile(r"<mo[^>]*>&#x02015;</mo>"), '<mo accent="true" class="bar">&#x02015;</mo>'),
    (re.compile(r"<mi>(&#x003(?:9[1-9A-F]|A[0-9]);)</mi>"), r'<mi mathvariant="normal">\1</mi>'),
    (re.compile(r"<mo>(m(?:ax|in))</mo>(?=(?:<mrow>)?<mo[^>]*>&#x00028;)"), r'<mo lspace="0.167em" rspace="0em">\1</mo>'),
)


@lru_cache(maxsize=4096)
def mathml(latex: str) -> str:
    """A `math` element. Upright names become text, which is set as one word."""
    from latex2mathml.converter import convert

    # a sign that opens a line still stands between two terms
    latex = re.sub(r"^((?:\\displaystyle |\\quad )*)(?=[+-] |\\to )", r"\1{} ", latex)
    upright = re.sub(r"\\mathrm\{([^{}]*)\}", lambda m: rf"\text{{{m[1].replace(chr(92) + '_', '_')}}}", latex)
    # the converter takes a number with letters behind it for a length: 2pt
    upright = _TEXT.sub(lambda m: m[1] or f"{m[2]}{{{m[3]}}}", upright)
    made: str = convert(upright.replace(r"\bigl(", "(").replace(r"\bigr)", ")"))
    for found, written in _AS_LATEX:
        made = found.sub(written, made)
    return made
