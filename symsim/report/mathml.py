"""Mathematics in LaTeX as MathML, which a browser draws and other writers walk."""

from __future__ import annotations

import re
from functools import lru_cache

_TEXT = re.compile(r"(\\text\{[^{}]*\})|([0-9])([A-Za-z])")


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
    return made
