"""Expressions and formulas: exactness, units, and what a user does with them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symsim.algebra.expr import Expr, ceil, expr, floor, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, Quantity, UnitError, total
from symsim.algebra.view import view
from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy

x, y, z = symbol("x"), symbol("y"), symbol("z")
leaves = st.one_of(st.sampled_from([x, y, z]), st.integers(-5, 5).map(expr))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
        inner.map(lambda e: ceil(e / 3)),
        inner.map(lambda e: floor(e / y)),
    ),
    max_leaves=8,
)
points = st.fixed_dictionaries({n: st.integers(1, 9) for n in "xyz"})


@given(trees, trees, points)
def test_arithmetic_is_evaluation(left: Expr, right: Expr, at: dict[str, int]) -> None:
    a, b = left.evaluate(at), right.evaluate(at)
    assert (left + right).evaluate(at) == a + b
    assert (left * right).evaluate(at) == a * b
    assert (left - right).evaluate(at) == a - b
    assert minimum(left, right).evaluate(at) == min(a, b)


@given(trees, points)
def test_sympy_view_has_the_same_value(tree: Expr, at: dict[str, int]) -> None:
    seen = view(tree)
    value = seen.subs({s: at[s.name] for s in seen.free_symbols})
    assert value.is_Rational and Fraction(int(value.p), int(value.q)) == tree.evaluate(at)


@given(trees, trees, points)
def test_substitution_is_evaluation(tree: Expr, inner: Expr, at: dict[str, int]) -> None:
    if "y" in tree.symbols() and inner.evaluate(at) == 0:
        return  # y divides in some trees
    assert tree.substitute({"y": inner}).evaluate(at) == tree.evaluate({**at, "y": inner.evaluate(at)})


class Looked(dict[str, int]):
    """Values that count how often one is asked for."""

    times = 0

    def __getitem__(self, name: str) -> int:
        self.times += 1
        return super().__getitem__(name)


def test_a_call_is_evaluated_once_wherever_it_stands() -> None:
    a, b, at = symbol("a"), symbol("b"), Looked(a=2, b=3)
    tree = a
    for _ in range(12):
        tree = maximum(tree + a, tree + b)
    assert tree.evaluate(at) == 2 + 12 * 3
    assert at.times == 3 + 11 * 2, "three in the innermost maximum, two in each around it"


def test_ceiling_keeps_its_division_exact() -> None:
    assert ceil(x / y).evaluate({"x": 525, "y": 75}) == 7


def test_inverse_of_a_sum_is_undone() -> None:
    assert 1 / (1 / (x + y)) == x + y


def test_units() -> None:
    size = Quantity(x * y, ELEMENT)
    assert (size * Quantity(expr(2), BYTE / ELEMENT)).unit == BYTE
    with pytest.raises(UnitError, match="cannot add byte to FLOP"):
        Quantity(x, FLOP) + Quantity(y, BYTE)
    with pytest.raises(UnitError, match="cannot add byte to FLOP"):
        total([Quantity(x, FLOP), Quantity(y, BYTE)], FLOP)
    with pytest.raises(UnitError, match="is element, declared byte"):
        Derivation().define(Key("A"), size, "bytes", unit=BYTE)
    assert size.unit == ELEMENT


def test_a_name_is_defined_once() -> None:
    book = Derivation()
    book.define(Key("A"), Quantity(x, FLOP), "a")
    with pytest.raises(ValueError, match="defined twice"):
        book.define(Key("A"), Quantity(y, FLOP), "a")


def test_formula_expands_to_its_value() -> None:
    result = derive(load_model("deepseek-v3").architecture, Strategy(tp=8, sp=True, ep=8, pp=16))
    for name in ("N", "F", "G", "A_moe", "X_moe"):
        formula = result.formula(name)
        closed = formula.expand()
        assert closed.evaluate(result.values) == formula.value(result.values) == result.value(name)
        assert closed.symbols() == formula.symbols
        assert closed.symbols() <= result.values.keys()


def test_what_is_put_in_keeps_its_assumptions() -> None:
    """F_dense stands on n_z, s under causal=full: with s in its place it rests on that still."""
    result = derive(load_model("deepseek-v3").architecture, Strategy(tp=8, sp=True, ep=8, pp=16))
    for name in ("F_dense", "F", "A_moe", "M_peak"):
        formula = result.formula(name)
        assert set(formula.inline().assumptions) == set(formula.assumptions) != set()
    assert "assumptions: causal\n" in result.formula("F_dense").to()


def test_formula_can_be_differentiated() -> None:
    import sympy

    formula = derive(load_model("llama3-8b").architecture, Strategy()).formula("A_dense").sympy()
    f, b, s = (next(v for v in formula.free_symbols if v.name == n) for n in "fbs")
    assert sympy.diff(formula, f) == 6 * b * s  # gate and up output, and their product, in bf16
