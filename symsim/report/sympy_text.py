"""Definitions as statements of Python that make SymPy's expressions: every symbol in its domain, then one assignment a definition."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from symsim.algebra.quantity import Definition

_KINDS = {
    "positive integer": "positive=True, integer=True",
    "non-negative integer": "nonnegative=True, integer=True",
    "positive": "positive=True",
    "share": "positive=True",
    "non-negative": "nonnegative=True",
    "real": "real=True",
}


def sympy_source(definitions: Sequence[Definition], names: Mapping[str, str], free: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """free: what each free symbol is. kinds: domains that facts give to symbols, where the vocabulary's are not meant."""
    import sympy

    from symsim.algebra.view import view
    from symsim.algebra.vocabulary import domain

    made = ["from sympy import *  # noqa", ""]
    for name, said in free.items():
        called = names.get(name, name)
        made += [*_comment(f"{called}: {said}"), f'{called} = Symbol("{called}", {_KINDS[kinds.get(name) or domain(name)]})']
    for d in definitions:
        # functions keep their arguments until values are put in
        symbols = {n: sympy.Symbol(names.get(n, n), real=True) for n in d.expr.symbols()}
        called = names.get(d.symbol, d.symbol)
        made += ["", *_comment(f"{d.meaning} [{d.unit}]"), f"{called} = {sympy.sstr(view(d.expr, symbols))}"]
    return "\n".join(made) + "\n"


def _comment(text: str) -> list[str]:
    said = "".join(c if c.isprintable() else "?" for c in text)
    return textwrap.wrap(said, 100, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
