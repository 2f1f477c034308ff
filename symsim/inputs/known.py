"""Quantities of a system file: a number with its unit, how it is known, and which of the file's sources says so.

`[2250 TFLOP/s, datasheet, nvidia]` in the file; base units (FLOP, byte, second, watt, US dollar) here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator

from symsim.errors import nearest
from symsim.inputs.limits import LARGEST_QUANTITY

TAGS = ("measured", "datasheet", "estimated")

# unit -> (what it measures, its size in base units)
UNITS: dict[str, tuple[str, Fraction]] = {
    **{f"{prefix}FLOP/s": ("compute rate", Fraction(10) ** power) for prefix, power in (("G", 9), ("T", 12), ("P", 15))},
    **{f"{prefix}B/s": ("bandwidth", Fraction(10) ** power) for prefix, power in (("M", 6), ("G", 9), ("T", 12))},
    **{f"{prefix}B/s": ("bandwidth", Fraction(2) ** power) for prefix, power in (("Mi", 20), ("Gi", 30), ("Ti", 40))},
    **{f"{prefix}b/s": ("bandwidth", Fraction(10) ** power / 8) for prefix, power in (("G", 9), ("T", 12))},
    **{f"{prefix}B": ("number of bytes", Fraction(10) ** power) for prefix, power in (("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12))},
    **{f"{prefix}B": ("number of bytes", Fraction(2) ** power) for prefix, power in (("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40))},
    **{f"{prefix}s": ("time", Fraction(1, 10**power)) for prefix, power in (("", 0), ("m", 3), ("u", 6), ("n", 9))},
    "W": ("power", Fraction(1)),
    "kW": ("power", Fraction(1000)),
    "USD/h": ("price", Fraction(1, 3600)),
    "": ("plain number", Fraction(1)),
}
# what a unit of a system's file measures -> base unit
BASE = {
    "compute rate": "FLOP/s",
    "bandwidth": "byte/s",
    "number of bytes": "byte",
    "time": "s",
    "power": "W",
    "price": "USD/s",
    "plain number": "1",
}
EXAMPLES = {
    "compute rate": "989 TFLOP/s",
    "bandwidth": "900 GB/s",
    "number of bytes": "80 GiB",
    "time": "5 us",
    "power": "700 W",
    "price": "2.5 USD/h",
    "plain number": "0.85",
}
# digits are bounded, so that no number takes long to read or leaves a float's range
_NUMBER = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,2})?)\s*(\S*)")


@dataclass(frozen=True)
class Known:
    """A value in base units, the text that gave it, how it is known (TAGS), and the name of its source in the file."""

    value: Fraction
    text: str
    tag: str
    source: str


def _reader(kind: str, *, zero: bool = False) -> BeforeValidator:
    def read(given: Any) -> Known:
        if isinstance(given, Known):
            return given
        if not isinstance(given, (list, tuple)) or len(given) != 3 or isinstance(given[0], bool):
            raise ValueError(f"should be a list of number with unit, {' | '.join(TAGS)}, and source, such as [{EXAMPLES[kind]}, datasheet, vendor]")
        text, tag, source = (str(part) for part in given)
        found = _NUMBER.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"'{text}' is not a number with its unit, such as {EXAMPLES[kind]}")
        number, unit = found.groups()
        if unit not in UNITS:
            raise ValueError(f"'{text}' has an unknown unit: {nearest(unit, [u for u, (k, _) in UNITS.items() if k == kind and u])}")
        if UNITS[unit][0] != kind:
            raise ValueError(f"'{text}' is a {UNITS[unit][0]}; a {kind} is needed, such as {EXAMPLES[kind]}")
        if tag not in TAGS:
            raise ValueError(f"'{tag}' is not how a number is known: {nearest(tag, TAGS)}")
        value = Fraction(number) * UNITS[unit][1]
        if not value and not zero:
            raise ValueError(f"'{text}' is zero; a {kind} above zero is needed, such as {EXAMPLES[kind]}")
        if value and not 1 / LARGEST_QUANTITY <= value <= LARGEST_QUANTITY:
            raise ValueError(
                f"'{text}' is out of range: in base units, numbers lie between {float(1 / LARGEST_QUANTITY):g} and {float(LARGEST_QUANTITY):g}"
            )
        return Known(value, text.strip(), tag, source)

    return BeforeValidator(read)


ComputeRate = Annotated[Known, _reader("compute rate")]
Bandwidth = Annotated[Known, _reader("bandwidth")]
Bytes = Annotated[Known, _reader("number of bytes")]
Latency = Annotated[Known, _reader("time", zero=True)]
Power = Annotated[Known, _reader("power")]
Price = Annotated[Known, _reader("price")]
Positive = Annotated[Known, _reader("plain number")]
Plain = Annotated[Known, _reader("plain number", zero=True)]
