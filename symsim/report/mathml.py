"""Mathematics in LaTeX as MathML, which a browser draws and other writers walk.

What symsim itself writes (`symsim/algebra/typeset.py`) is a small part of LaTeX, and is written here; of a stranger's, latex2mathml writes what is
more than that, in the same form. The 724 formulas of DeepSeek-V3's report take 0.02 s of a processor here, and 0.30 s by latex2mathml alone, of
1.8 s for the whole page.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape

_OPENING = '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow>'
_CLOSING = "</mrow></math>"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_TOKEN = re.compile(rf"\\(?:mathrm|text)\{{[^{{}}]*\}}|\\[A-Za-z]+|\\.|{_NUMBER}|\S", re.DOTALL)

_LETTERS = {
    **dict(zip("alpha beta gamma delta zeta eta theta kappa lambda mu nu xi pi rho sigma tau chi psi omega".split(), "αβγδζηθκλμνξπρστχψω")),
    **{"epsilon": "ϵ", "varepsilon": "ε", "phi": "ϕ", "varphi": "φ", "imath": "ı", "ell": "ℓ"},
}
_CAPITALS = dict(zip("Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(), "ΓΔΘΛΞΠΣΦΨΩ"))
_SIGNS = {"to": "→", "ge": "≥", "le": "≤", "approx": "≈", "cdot": "·", "times": "×", "sum": "∑", "prod": "∏"}
_BRACKETS = {"(": "(", ")": ")", "[": "[", "]": "]", r"\lceil": "⌈", r"\rceil": "⌉", r"\lfloor": "⌊", r"\rfloor": "⌋"}
_SPACES = {r"\,": "0.167em", r"\quad": "1em", r"\qquad": "2em"}
_STYLES = {r"\displaystyle": "true", r"\textstyle": "false"}
_MARKS = {
    r"\hat": '<mover accent="true">{}<mo>^</mo></mover>',
    r"\bar": '<mover>{}<mo stretchy="true">¯</mo></mover>',
    r"\tilde": '<mover>{}<mo stretchy="false">~</mo></mover>',
    # a bar that does not stretch, which a style draws
    r"\overline": '<mover>{}<mo accent="true" class="bar">―</mo></mover>',
}
_FUNCTIONS = {r"\max": "max", r"\min": "min"}

# what a browser draws otherwise than LaTeX: that bar, slanted capitals of the Greek alphabet, a gap between max and its bracket
_AS_LATEX = (
    (re.compile(r"<mo[^>]*>&#x02015;</mo>"), '<mo accent="true" class="bar">&#x02015;</mo>'),
    (re.compile(r"<mi>(&#x003(?:9[1-9A-F]|A[0-9]);)</mi>"), r'<mi mathvariant="normal">\1</mi>'),
    (re.compile(r"<mo>(m(?:ax|in))</mo>(?=(?:<mrow>)?<mo[^>]*>&#x00028;)"), r'<mo lspace="0.167em" rspace="0em">\1</mo>'),
)
_TEXT = re.compile(r"(\\text\{[^{}]*\})|([0-9])([A-Za-z])")


@lru_cache(maxsize=4096)
def mathml(latex: str) -> str:
    """A `math` element. Upright names become text, which is set as one word."""
    try:
        return _OPENING + _Reader(_TOKEN.findall(latex)).whole() + _CLOSING
    except _Another:
        return _of_a_stranger(latex)


class _Another(Exception):
    """LaTeX that is not written here."""


class _Reader:
    """Reads tokens from the first to the last, once."""

    def __init__(self, tokens: list[str]):
        self.tokens, self.at = tokens, 0

    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next()
        self.at += 1
        return token

    def whole(self) -> str:
        made = self.row("", opens=True)
        if self.at <= len(self.tokens):
            raise _Another
        return made

    def row(self, until: str, opens: bool = False) -> str:
        """All up to a token, and past it. opens: it stands at the start of a line."""
        made: list[str] = []
        while (token := self.take()) != until:
            if not token:
                raise _Another
            if token in _STYLES:
                return "".join(made) + f'<mstyle displaystyle="{_STYLES[token]}" scriptlevel="0">{self.row(until, opens)}</mstyle>'
            # a sign that opens a line still stands between two terms
            made += ["<mrow />"] if opens and token in ("+", "-", r"\to") else []
            opens = opens and token == r"\quad"
            made.append(self.scripted(token))
        return "".join(made)

    def scripted(self, token: str) -> str:
        """One thing, and what stands at its foot and head."""
        base = self.one(token)
        below = above = ""
        while self.next() in ("_", "^"):
            if self.take() == "_":
                if below:
                    raise _Another
                below = self.argument()
            else:
                if above:
                    raise _Another
                above = self.argument()
        if token in _FUNCTIONS and not (below or above) and self.next() in (r"\left", r"\bigl", r"\biggl", "("):
            return base.replace("<mo>", '<mo lspace="0.167em" rspace="0em">')
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        return f"<msub>{base}{below}</msub>" if below else f"<msup>{base}{above}</msup>" if above else base

    def argument(self) -> str:
        token = self.take()
        if not token or token in "_^}" or len(token) > 1 and token[0] != "\\":
            raise _Another
        return self.one(token)

    def one(self, token: str) -> str:
        if token == "{":
            return f"<mrow>{self.row('}')}</mrow>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token == ":" or token.isalpha() and token.isascii():
            return f"<mi>{token}</mi>"
        if token in _BRACKETS:
            return f'<mo stretchy="false">{_BRACKETS[token]}</mo>'
        if token in "+-=/,<>|":
            return f"<mo>{escape(token).replace('-', '−')}</mo>"
        if token[0] != "\\":
            raise _Another
        return self.command(token)

    def command(self, token: str) -> str:
        name = token[1:]
        if name.startswith(("mathrm{", "text{")):
            text = name[name.index("{") + 1 : -1].replace(r"\_", "_").replace(" ", "\u00a0")
            if "\\" in text or "$" in text:
                raise _Another
            return f"<mtext>{escape(text, quote=False)}</mtext>"
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _CAPITALS:
            return f'<mi mathvariant="normal">{_CAPITALS[name]}</mi>'
        if name in _SIGNS:
            return f"<mo>{_SIGNS[name]}</mo>"
        if token in _FUNCTIONS:
            return f"<mo>{name}</mo>"
        if token == r"\log":
            return "<mi>log</mi>"
        if token in _SPACES:
            return f'<mspace width="{_SPACES[token]}" />'
        if token in _MARKS and self.next() == "{":
            return _MARKS[token].format(self.argument())
        if token == r"\frac" and self.next() == "{":
            above = self.argument()
            if self.next() != "{":
                raise _Another
            return f"<mfrac>{above}{self.argument()}</mfrac>"
        if token in (r"\bigl", r"\bigr") and self.next() in ("(", ")"):
            return self.one(self.take())
        if token in (r"\biggl", r"\biggr") and self.next() in ("(", ")"):
            return f'<mo stretchy="true" fence="true" minsize="2.047em" maxsize="2.047em">{self.take()}</mo>'
        if token == r"\big" and self.next() == "|":
            return f'<mo minsize="1.2em" maxsize="1.2em">{self.take()}</mo>'
        if token == r"\left":
            opening, inside = self.stretched("prefix"), self.row(r"\right")
            return f"<mrow>{opening}{inside}{self.stretched('postfix')}</mrow>"
        raise _Another

    def stretched(self, form: str) -> str:
        bracket = _BRACKETS.get(self.take())
        if bracket is None:
            raise _Another
        return f'<mo stretchy="true" fence="true" form="{form}">{bracket}</mo>'


def _of_a_stranger(latex: str) -> str:
    from latex2mathml.converter import convert

    latex = re.sub(r"^((?:\\displaystyle |\\quad )*)(?=[+-] |\\to )", r"\1{} ", latex)
    upright = re.sub(r"\\mathrm\{([^{}]*)\}", lambda m: rf"\text{{{m[1].replace(chr(92) + '_', '_')}}}", latex)
    # the converter takes a number with letters behind it for a length: 2pt
    upright = _TEXT.sub(lambda m: m[1] or f"{m[2]}{{{m[3]}}}", upright)
    made: str = convert(upright.replace(r"\bigl(", "(").replace(r"\bigr)", ")"))
    for found, written in _AS_LATEX:
        made = found.sub(written, made)
    return made
