"""Mathematics in LaTeX as Typst's: the tree of its MathML, written as calls, in which every character stands for itself."""

from __future__ import annotations

from functools import lru_cache
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from symsim.errors import printable
from symsim.report.amounts import lettered_math
from symsim.report.mathml import mathml

_MATHML = "{http://www.w3.org/1998/Math/MathML}"
_MARKS = {"^": "hat", "~": "tilde", "\u02dc": "tilde", "\u02d9": "dot", "\u20d7": "arrow", "\u2192": "arrow"}
_LINES = {"\u2015": "overline", "\u00af": "overline", "\u203e": "overline", "_": "underline"}
_BRACES = {"\u23de": "overbrace", "\u23df": "underbrace"}
_UNDER = ("max", "min", "lim", "argmax", "argmin")  # sums and products have theirs below where they are displayed
_NAMED = {"script": "cal", "double-struck": "bb", "bold": "bold", "fraktur": "frak"}
_TABLE_GAP = "0.8em"


@lru_cache(maxsize=4096)
def typst_math(latex: str) -> str:
    """What stands between the dollars of Typst's mathematics. KeyError for an element of MathML that has no counterpart here."""
    return _row(ElementTree.fromstring(mathml(lettered_math(latex)))).strip()


def quoted(text: str) -> str:
    """A string of Typst's."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _row(element: Element) -> str:
    """The children side by side; what stands between stretched brackets grows with them."""
    made: list[str] = []
    open_at: list[int] = []
    for child in element:
        if child.tag == f"{_MATHML}mo" and child.get("stretchy") == "true":
            if child.get("form") == "prefix":
                open_at.append(len(made))
            elif open_at and child.get("form") == "postfix":
                start = open_at.pop()
                made[start:] = ["lr(" + " ".join([*made[start:], _sign(child)]) + ")"]
                continue
        made.append(_element(child))
    for start in reversed(open_at):  # a brace that nothing closes: cases
        made[start:] = ["lr(" + " ".join(made[start:]) + ")"]
    return " ".join(made)


def _element(element: Element) -> str:
    return _WRITTEN[element.tag.removeprefix(_MATHML)](element)


def _letters(element: Element) -> str:
    text = (element.text or "").strip()
    if len(text) != 1:
        return f"op({quoted(text)})" if text else ""
    letter = text if text.isalnum() else "\\" + text
    kind = element.get("mathvariant", "")
    return f"upright({letter})" if kind == "normal" else f"{_NAMED[kind]}({letter})" if kind in _NAMED else letter


def _sign(element: Element) -> str:
    text = (element.text or "").strip()
    if not text or text == "\u2061":
        return ""
    if len(text) > 1:
        return f"op({quoted(text)})"
    if text == "\u00b7":
        return "dot.op"
    if text == "/":
        return 'class("normal", "/")'
    sign = text if text.isalnum() or not text.isascii() or text in "+-=<>" else "\\" + text
    return f"lr({sign}, size: #{size})" if (size := element.get("minsize")) else sign


def _scripts(element: Element, *places: str) -> str:
    base, *scripts = element
    said = ", ".join(f"{place}: {_group(script)}" for place, script in zip(places, scripts))
    return f"attach({_base(base, places)}, {said})"


def _base(base: Element, places: tuple[str, ...]) -> str:
    text = (base.text or "").strip()
    return f"limits({_group(base)})" if text in _UNDER and "b" in places else _group(base)


def _over(element: Element) -> str:
    base, mark = element
    sign = (mark.text or "").strip()
    for names in (_LINES, _BRACES):
        if sign in names:
            return f"{names[sign]}({_group(base)})"
    if sign in _MARKS:
        return f"accent({_group(base)}, {_MARKS[sign]})"
    return f"attach(limits({_group(base)}), t: {_group(mark)})"


def _below(element: Element) -> str:
    base, mark = element
    sign = (mark.text or "").strip()
    for names in (_LINES, _BRACES):
        if sign in names:
            return f"{names[sign]}({_group(base)})"
    return f"attach(limits({_group(base)}), b: {_group(mark)})"


def _both(element: Element) -> str:
    base, under, over = element
    return f"attach(limits({_group(base)}), b: {_group(under)}, t: {_group(over)})"


def _group(element: Element) -> str:
    """An argument: never empty, and never read as a name that is passed."""
    return _element(element) or '""'


def _style(element: Element) -> str:
    colour = element.get("mathcolor")
    inner = f"inline({_row(element)})" if element.get("displaystyle") == "false" else _row(element)
    return f"#text(fill: {colour})[${inner}$]" if colour in ("blue", "red") else inner


def _space(element: Element) -> str:
    width = element.get("width", "")
    return f"#h({width})" if width.endswith("em") and width[:-2].replace(".", "", 1).isdigit() else "thin"


def _table(element: Element) -> str:
    rows = ("; ".join(", ".join(_row(cell) or '""' for cell in row) for row in element),)
    left = any(cell.get("columnalign") == "left" for row in element for cell in row)
    return f"mat(delim: #none, column-gap: #{_TABLE_GAP}{', align: #left' if left else ''}, {rows[0]})"


_WRITTEN = {
    "mrow": _row,
    "math": _row,
    "mpadded": _row,
    "mphantom": lambda _: "",
    "mi": _letters,
    "mn": lambda e: _number(e),
    "mo": _sign,
    "mtext": lambda e: quoted(e.text or ""),
    "mfrac": lambda e: f"frac({_group(e[0])}, {_group(e[1])})",
    "msqrt": lambda e: f"sqrt({_row(e)})",
    "mroot": lambda e: f"root({_group(e[1])}, {_group(e[0])})",
    "msub": lambda e: _scripts(e, "b"),
    "msup": lambda e: _scripts(e, "t"),
    "msubsup": lambda e: _scripts(e, "b", "t"),
    "mover": _over,
    "munder": _below,
    "munderover": _both,
    "mstyle": _style,
    "mspace": _space,
    "mtable": _table,
}


def _number(element: Element) -> str:
    text = element.text or ""
    return text if text.isdigit() else quoted(text)
