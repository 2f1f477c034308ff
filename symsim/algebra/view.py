"""The SymPy view of an expression: symbols in their domains (`vocabulary.domain`), in which people solve and prove.

A share in (0, 1] is a symbol of its own kind, since SymPy's assumptions know of no upper bound: min(1, share) is the
share. Functions stand unevaluated until values are put in. This is the only file that imports SymPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
from sympy.multipledispatch import dispatch

from symsim.algebra.expr import Atom, Expr, Symbol
from symsim.algebra.operators import FUNCTIONS
from symsim.algebra.vocabulary import domain


class Share(sympy.Symbol):
    """A symbol in (0, 1]."""


# SymPy's is_ge asks these
@dispatch(sympy.Number, Share)
def _eval_is_ge(left: Any, right: Any) -> bool | None:
    return True if left >= 1 else None


@dispatch(Share, sympy.Number)  # type: ignore[no-redef]
def _eval_is_ge(left: Any, right: Any) -> bool | None:
    return False if right > 1 else None


_ASSUMPTIONS: dict[str, dict[str, bool]] = {
    "positive integer": {"positive": True, "integer": True},
    "non-negative integer": {"nonnegative": True, "integer": True},
    "positive": {"positive": True},
    "non-negative": {"nonnegative": True},
    "real": {"real": True},
}


def sympy_symbol(name: str, kind: str | None = None) -> Any:
    """The symbol of this name in its domain, the vocabulary's unless another is given."""
    kind = kind or domain(name)
    return Share(name, positive=True) if kind == "share" else sympy.Symbol(name, **_ASSUMPTIONS[kind])


def view(expression: Expr, symbols: Mapping[str, Any] | None = None) -> Any:
    """The expression in SymPy; symbols are those of `sympy_symbol` unless given."""
    names = symbols if symbols is not None else {n: sympy_symbol(n) for n in expression.symbols()}
    # an expression written out holds the same parts many times
    seen: dict[Atom, Any] = {}

    def atom_view(atom: Atom) -> Any:
        found = seen.get(atom)
        if found is None:
            if isinstance(atom, Symbol):
                found = names[atom.name]
            else:
                make = FUNCTIONS[atom.function].sympy
                assert make is not None
                found = make(sympy, *map(sum_view, atom.arguments))
            seen[atom] = found
        return found

    def sum_view(part: Expr) -> Any:
        return sympy.Add(*(sympy.Mul(sympy.Rational(c), *(atom_view(a) ** p for a, p in m)) for m, c in part.terms.items()))

    return sum_view(expression)
