"""Numbers for people: three to five digits and a unit, or every digit with thin spaces."""

from __future__ import annotations

from fractions import Fraction

from symsim.expr import Number
from symsim.formula import BYTE, ELEMENT, FLOP, Unit

THIN = "\u2009"
_SCALES = {
    FLOP: (1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP")),
    BYTE: (1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")),
    ELEMENT: (1000, ("", "k", "M", "B", "T")),
}


def whole(value: Number) -> int:
    """An integer; a fraction of a byte or parameter (an uneven share) counts as one that a rank must hold."""
    return -int(-value // 1)


def human(value: Number, unit: Unit) -> str:
    """'383.87 TFLOP', '1.75 GiB', '671.03 B'; exact below the first prefix."""
    base, prefixes = _SCALES.get(unit, (1000, ("",)))
    step = 0
    while step < len(prefixes) - 1 and abs(value) >= base ** (step + 1):
        step += 1
    if step == 0:
        return f"{exact(value)} {prefixes[0]}".strip()
    return f"{float(Fraction(value) / base**step):.4g} {prefixes[step]}".strip()


def exact(value: Number) -> str:
    """Every digit, thousands apart by thin spaces."""
    if isinstance(value, Fraction) and value.denominator != 1:
        return f"{float(value):.6g}"
    return f"{int(value):,}".replace(",", THIN)


def percent(share: float) -> str:
    return f"{100 * share:.1f}" + THIN + "%"
