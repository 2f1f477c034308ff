"""What a plan is asked, as the command line and programs give it. InputError, in one sentence, for what is none of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from numbers import Integral, Real
from typing import Any

from symsim.errors import InputError, cut, nearest

MOST_RANKS = 1 << 20


def whole(option: str, given: Any, of: str, most: int | None = None) -> int:
    """A number of something from 1 up."""
    found = int(given) if isinstance(given, Integral) and not isinstance(given, bool) else 0
    if found < 1 or (most is not None and found > most):
        within = f"from 1 to {most:,}" if most is not None else "from 1 up"
        raise InputError(f"{option} {cut(str(given))}: a number of {of} {within} is needed")
    return found


def tokens(given: Any) -> int:
    """4194304, or '4M': batches are written in powers of two, so K and M are 2^10 and 2^20."""
    found = re.fullmatch(r"([1-9][0-9]{0,15})([KkM]?)", str(given).strip())
    if found is None or isinstance(given, bool):
        raise InputError(f"--tokens-per-step '{cut(str(given))}': a whole number of tokens is needed, such as 4194304, or 4M for 4*2^20")
    return int(found[1]) << {"": 0, "k": 10, "m": 20}[found[2].lower()]


def one_of(option: str, given: Any, names: Collection[str]) -> str:
    if not isinstance(given, str) or given not in names:
        raise InputError(f"{option} {cut(str(given))}: {nearest(str(given), list(names))}")
    return given


def share(given: Any) -> float:
    """Of the memory, that may be filled."""
    found = float(given) if isinstance(given, Real) and not isinstance(given, bool) else 0.0
    if not 0 < found <= 1:
        shown = f"{given:g}" if isinstance(given, float) else cut(str(given))
        raise InputError(f"--fits-with {shown}: a share of the memory above 0 and up to 1 is needed")
    return found


def axes(given: Any) -> tuple[str, ...]:
    """One axis, or several."""
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (given,)
    for text in found:
        if not isinstance(text, str):
            raise InputError(f"--allow {cut(str(text))}: axes are texts such as 'cross_entropy_fusion=unfused,te', one or several")
    return found
