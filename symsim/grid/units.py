"""Units of expressions: a sum, an extreme and a comparison are of one, a product is of several.

A unit is a text ('byte/s', 's^2', '1' for none), and empty where it is not known or any will do: a bare number is in the unit of what it is
compared with or added to. A product of counts ('count': 6 * N * s) counts FLOPs or bytes as well, whatever it is compared with or divided by:
2 * b * s * h * f / Phi_bf16 is in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from symsim.algebra.operators import OPERATORS
from symsim.errors import InputError, cut
from symsim.grid.conditions import Node, show
from symsim.inputs.known import BASE, UNITS

COUNT = "count"
_COUNTED = ("FLOP", "byte")
_SPELT = {"second": "s", "element": "", "1": "", COUNT: ""}
_WORDS = {"1": "no unit", COUNT: "no unit", "s": "seconds", "byte": "bytes", "byte/s": "bytes a second"}
_OF_ONE = frozenset("add sub max min mod".split())
_KEEP = frozenset("neg abs ceil floor".split())


def unit_of(node: Node, named: Callable[[str], str]) -> str:
    """The unit of an expression; named: of a name. InputError where parts of one sum, extreme or comparison have different ones."""
    if node.kind == "name":
        return named(str(node.value))
    return combined(node, [unit_of(part, named) for part in node.arguments])


def combined(node: Node, parts: Sequence[str]) -> str:
    """The unit of a step of an expression whose operands have these. InputError as `unit_of`."""
    if node.kind == "number":
        return BASE[UNITS[node.unit][0]] if node.unit else ""
    if node.kind in _OF_ONE or (node.kind in OPERATORS and OPERATORS[node.kind].gives_truth and not OPERATORS[node.kind].takes_truths):
        told = same([(show(a), unit) for a, unit in zip(node.arguments, parts)], show(node))
        return told if node.kind in _OF_ONE else ""
    if node.kind in _KEEP:
        return parts[0]
    if node.kind in ("mul", "div", "floordiv"):
        return _product(parts, (1, 1) if node.kind == "mul" else (1, -1))
    if node.kind == "pow" and isinstance(node.value, int):
        return _product(parts, (node.value,))
    return _product(parts, (Fraction(1, 2),)) if node.kind == "sqrt" else ""


def same(parts: Sequence[tuple[str, str]], text: str) -> str:
    """The unit that all of these (what, unit) have, as far as they have one. InputError, quoting the text, where two differ."""
    told = sorted(((what, unit) for what, unit in parts if unit), key=lambda part: part[1] == COUNT)
    other = next(((what, unit) for what, unit in told if not _alike(told[0][1], unit)), None)
    if other is not None:
        (one, unit), (last, of_last) = sorted((told[0], other), key=list(parts).index)
        raise InputError(f"'{cut(text)}': {cut(one)} is in {said(unit)}, and {cut(last)} in {said(of_last)}")
    return told[0][1] if told else ""


def _alike(unit: str, other: str) -> bool:
    return unit == other or other == COUNT and unit in ("1", *_COUNTED)


def spelt(unit: str) -> str:
    """A unit as it is written here: 'second/byte' and 's/byte' are one."""
    return _text(_powers(unit)) if unit else ""


def _product(units: Sequence[str], exponents: Sequence[int | Fraction]) -> str:
    powers: dict[str, Fraction] = {}
    for unit, exponent in zip(units, exponents):
        for base, power in _powers(unit).items():
            powers[base] = powers.get(base, Fraction(0)) + power * exponent
    counts = any(unit in ("1", COUNT) and exponent > 0 for unit, exponent in zip(units, exponents))
    left = {base: power for base, power in powers.items() if power and not (counts and base in _COUNTED and power < 0)}
    # what has cancelled is no count of anything
    return _text(left) if left else "1" if powers else COUNT if any(units) else ""


def _powers(unit: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for sign, side in zip((1, -1), unit.split("/")):
        for factor in side.split("\u00b7"):
            base, _, power = factor.partition("^")
            if base := _SPELT.get(base, base):
                found[base] = found.get(base, Fraction(0)) + sign * Fraction(power or 1)
    return found


def _text(powers: Mapping[str, Fraction]) -> str:
    above, below = (
        "\u00b7".join(b if sign * p == 1 else f"{b}^{float(sign * p):g}" for b, p in sorted(powers.items()) if sign * p > 0) for sign in (1, -1)
    )
    return f"{above or 1}/{below}" if below else above or "1"


def said(unit: str) -> str:
    """A unit in words."""
    return _WORDS.get(unit, unit)
