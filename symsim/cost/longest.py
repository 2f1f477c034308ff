"""Rows of their documents' own lengths: a step works on rows of the mean length, and its memory is that of the longest there may be."""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.expr import symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import BYTE


def at_longest(book: Derivation) -> None:
    """Puts s_max in the place of s in all that memory holds: bytes that are kept, and those of the moments of a step."""
    held = book.formula("M_peak").definitions
    for definition in held:
        if definition.unit == BYTE and "s" in definition.expr.symbols():
            book.definitions[definition.symbol] = replace(definition, expr=definition.expr.substitute({"s": symbol("s_max")}))
