"""Numbers for people: three to five digits and a unit, or every digit with thin spaces."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from symsim.algebra.expr import Number
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, NONE, SECOND, Unit

THIN = "\u2009"
_NOTHING = 1e-15  # seconds
_UNIT = re.compile(r"(?<=\d) (?=(?:[kMGTPEZ]?i?B|byte|[kMGTPEZ]?FLOP|[kMT]|[mu\u00b5p]?s|%)(?:/s)?(?![\w%]))")
_MICRO = re.compile(rf"(?<=\d[ {THIN}])us\b")
_SCALES = {
    FLOP: (1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP")),
    # without a prefix B is 10^9 of parameters
    BYTE: (1024, ("byte", "KiB", "MiB", "GiB", "TiB", "PiB")),
    ELEMENT: (1000, ("", "k", "M", "B", "T")),
}


def whole(value: Number) -> int:
    """An integer; a fraction of a byte or parameter (an uneven share) counts as one that a rank must hold."""
    return -int(-value // 1)


def human(value: Number, unit: Unit) -> str:
    """'383.87 TFLOP', '1.75 GiB', '671.03 B', '1.749 s', '2.315 ps/byte'; counts are exact below the first prefix."""
    if unit == SECOND:
        return seconds(value)
    if unit == SECOND / BYTE:
        return f"{float(value) * 1e12:.4g} ps/byte"
    if unit == NONE and isinstance(value, float):
        return plain(value)
    base, prefixes = _SCALES.get(unit, (1000, ("",)))
    step = 0
    while step < len(prefixes) - 1 and abs(value) >= base ** (step + 1):
        step += 1
    if step == 0:
        return f"{exact(value)} {prefixes[0]}".strip()
    return f"{float(Fraction(value) / base**step):.4g} {prefixes[step]}".strip()


def seconds(value: Number) -> str:
    """'1.749 s', '144.5 ms', '37.54 us': four digits. Below a femtosecond is what rounding leaves of nothing."""
    units: tuple[tuple[float, str], ...] = ((1.0, "s"), (1e-3, "ms"))
    size, name = next(((n, u) for n, u in units if abs(float(value)) >= n), (1e-6, "us"))
    return f"{four(float(value) / size)} {name}" if abs(float(value)) >= _NOTHING else "0 s"


def rate(value: float, unit: str) -> str:
    """'712.4 TFLOP/s', '2.11 TB/s' from a rate in FLOP/s or B/s."""
    step = 0
    while step < 5 and abs(value) >= 1000 ** (step + 1):
        step += 1
    return f"{four(value / 1000**step)} {('', 'k', 'M', 'G', 'T', 'P')[step]}{unit}"


def plain(value: Number) -> str:
    """Four digits of a number without unit, thousands apart by thin spaces."""
    return exact(round(value)) if 1000 <= abs(float(value)) < math.inf else four(float(value))


def four(value: float) -> str:
    """Four digits, without an exponent between a thousandth and ten thousand."""
    return f"{value:.4g}" if not 1000 <= abs(value) < 10000 else f"{value:.0f}"


def exact(value: Number) -> str:
    """Every digit, thousands apart by thin spaces."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (Fraction, float)) and value != int(value):
        return f"{float(value):.6g}"
    return f"{int(value):,}".replace(",", THIN)


def unbroken(text: str) -> str:
    """Text as it is set: no line ends between a number and its unit, or inside a number."""
    return _UNIT.sub(THIN, lettered(text)).replace(THIN, "\u202f")


def lettered(text: str) -> str:
    """Text with the letter of microseconds, which formulas have as their letters allow."""
    return _MICRO.sub("\u00b5s", text)


def lettered_math(latex: str) -> str:
    return latex.replace(r"\mathrm{us}", "\\text{\u00b5s}")


def percent(share: float) -> str:
    return f"{100 * share:.1f}" + THIN + "%"


def signed_percent(share: float, digits: int = 1) -> str:
    """'+6.2 %', with the sign of mathematics; what rounds to nothing has none."""
    said = f"{100 * share:+.{digits}f}"
    return (said if float(said) else said[1:]).replace("-", "\u2212") + THIN + "%"
