"""Reductions over pipeline stages: nodes of a formula, evaluated, expanded and lowered by one rule."""

from __future__ import annotations

import sympy

from symsim.expr import expr, maximum, of_largest, symbol

x, y, k, n = (symbol(name) for name in ("tf", "ti", "B_1", "B_2"))


def test_the_value_of_the_largest_key_is_the_first_of_equal_ones() -> None:
    chosen = of_largest([(x, k), (y, n)])
    at = {"tf": 1, "ti": 2}
    assert [chosen.evaluate({**at, "B_1": a, "B_2": b}) for a, b in ((3, 4), (4, 3), (3, 3))] == [2, 1, 1]
    assert chosen.substitute({"B_1": expr(1), "B_2": expr(2)}) == y
    assert of_largest([(x, k), (x, n)]) == x and of_largest([(x, x), (y, y)]) == maximum(x, y)
    view = chosen.to_sympy()
    symbols = {s.name: s for s in view.free_symbols}
    for a, b, wanted in ((3, 4, "ti"), (4, 3, "tf"), (3, 3, "tf")):
        assert view.subs({symbols["B_1"]: a, symbols["B_2"]: b}) == symbols[wanted]
    assert isinstance(view, sympy.Piecewise)
