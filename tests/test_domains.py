"""Symbols carry their domain into SymPy: what `.sympy()` gives evaluates, simplifies and solves to what symsim says itself."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import pytest
import sympy

from symsim.algebra.expr import Number, log2, symbol
from symsim.algebra.view import sympy_symbol, view
from symsim.algebra.vocabulary import domain
from symsim.api.result import Result, derive
from symsim.inputs.models import load_model
from symsim.inputs.shipped import list_systems
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import symbol_values
from symsim.inputs.systems import load_system

CASES = {
    "dense": ("llama3-70b", "tp=8,sp=true,pp=4,dp=4,num_microbatches=8,recompute=full,recompute_method=block,recompute_num_layers=3", "h100-sxm"),
    "experts": ("deepseek-v3", "tp=2,sp=true,pp=16,ep=8,dp=8,num_microbatches=16,mtp_num_layers=1", "gb200-nvl72"),
    "capacity": ("mixtral-8x7b", "ep=4,dp=4,etp=1,moe_pad_expert_input_to_capacity=true,moe_expert_capacity_factor=1.5,cp=2", "h800-sxm"),
    "op by op": ("gemma-2-9b", "fusion=eager,zero=3,dp=8,packed_document_length=512", "mi300x"),
}


@cache
def made(name: str) -> Result:
    model, strategy, system = CASES[name]
    return derive(load_model(model).architecture, load_strategy(strategy), system=load_system(system))


def exact(values: dict[str, Number]) -> dict[str, Fraction]:
    return {n: Fraction(v) for n, v in values.items()}


def points(result: Result) -> Iterator[dict[str, Fraction]]:
    """Exact values of every symbol at the first stage, one in the middle and the last; what the step reduces, of the step."""
    stages = result.stages
    for index in sorted({0, len(stages) // 2, len(stages) - 1}):
        stage = stages[index]
        yield exact({**result.step_numbers, **result.values, **result.stage_values(stage)})


def closed(result: Result, name: str) -> sympy.Expr:
    return result.formula(name).sympy()


def at(expression: sympy.Expr, values: dict[str, Fraction]) -> sympy.Expr:
    """As `xreplace` does, but of parts that stand in many places each once."""
    known: dict[sympy.Basic, sympy.Basic] = {s: sympy.Rational(values[s.name]) for s in expression.free_symbols}

    def put(part: sympy.Basic) -> sympy.Basic:
        if part not in known:
            known[part] = part.func(*map(put, part.args)) if part.args else part
        return known[part]

    return put(expression)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("name", CASES)
def test_every_formula_has_the_value_that_symsim_gives(name: str) -> None:
    result = made(name)
    at_stages = list(points(result))
    for number, definition in enumerate(result.derivation.definitions.values()):
        found = definition.symbol
        if name == "experts" and definition.key.section in result.lowered.blocks and found.startswith(("t_f_", "t_b_", "Q_", "U_", "F_", "X_", "W_")):
            continue  # a thousand kernels are of the same few forms as those of the other cases
        if definition.key.scope == "step" and found not in ("t_slow", "M_peak", *(("t_step",) if name == "dense" else ())):
            continue  # the rest of the step is these and products of them
        formula = result.formula(found)
        view = formula.sympy()
        # one stage each, in turn: a third of the time of all stages for all
        values = at_stages[number % len(at_stages) if definition.key.scope == "stage" else 0]
        expected = Fraction(formula.value({n: values[n] for n in formula.symbols}))
        assert at(view, values) == sympy.Rational(expected), found


@pytest.mark.long_after(1)
@pytest.mark.parametrize("name", CASES)
def test_doit_changes_no_value(name: str) -> None:
    """Evaluating minima and maxima before values are put in decides nothing that a value could decide otherwise."""
    result = made(name)
    for found in (n for n in result.derivation.definitions if n.startswith(("M_at_forward_", "A_stage", "X_stage", "t_f_stage"))):
        formula = result.formula(found)
        view = formula.sympy().doit()
        for values in points(result):
            expected = Fraction(formula.value({n: values[n] for n in formula.symbols}))
            assert at(view, values) == sympy.Rational(expected), found


def test_a_stage_without_dense_layers() -> None:
    result = derive(load_model("deepseek-v3").architecture, load_strategy("tp=8,sp=true,ep=8,pp=16"))
    view = result.formula("M_at_forward_dense").sympy().doit()
    values = exact({**result.values, **result.stage_values(result.stages[5])})
    assert values["L_dense_i"] == 0
    assert at(view, values) == 0


@pytest.mark.parametrize("name", CASES)
def test_every_value_lies_in_its_domain(name: str) -> None:
    result = made(name)
    for values in points(result):
        for symbol_name in {n for d in result.derivation.definitions.values() for n in d.expr.symbols()} - result.derivation.definitions.keys():
            value, kind = values[symbol_name], domain(symbol_name)
            assert kind != "real", symbol_name
            assert value > 0 or (value == 0 and kind.startswith("non-negative")), (symbol_name, value)
            assert value.denominator == 1 or not kind.endswith("integer"), (symbol_name, value)
            assert value <= 1 or kind != "share", (symbol_name, value)


@pytest.mark.parametrize("system", list_systems())
def test_numbers_of_every_system_lie_in_their_domains(system: str) -> None:
    for name, value in symbol_values(load_system(system), Strategy()).items():
        kind = domain(name)
        assert kind != "real" and (value > 0 or kind.startswith("non-negative")) and (value <= 1 or kind != "share"), (name, value)


def test_a_share_is_not_one() -> None:
    for name in ("eta_gemm", "eta_mem"):
        eta = next(v for v in closed(made("dense"), "t_f_dense_attention_qkv").free_symbols if v.name == name)
        assert sympy.Min(1, eta) == eta and sympy.Max(1, eta) == 1
        assert not eta.is_integer and eta.is_positive
        assert sympy.Min(sympy.Rational(1, 2), eta).has(sympy.Min)
    link = sympy_symbol("eta_1_all_reduce")
    assert sympy.Min(1, link) != 1


def test_the_bandwidth_at_which_messages_take_as_long_as_kernels() -> None:
    result = derive(load_model("llama3-70b").architecture, load_strategy("tp=8,sp=true,pp=4,dp=4"), system=load_system("h100-sxm"))
    message, kernels = closed(result, "c_f_dense_tp"), result.step_numbers["t_f_dense"]
    bandwidth = next(v for v in message.free_symbols if v.name == "B_1")
    numbers = exact(dict(result.values))
    held = message.xreplace({v: sympy.Rational(numbers[v.name]) for v in message.free_symbols if v != bandwidth})
    (found,) = sympy.solve(held.doit() - sympy.Rational(Fraction(kernels)), bandwidth)
    assert found > 0
    again = {**numbers, "B_1": Fraction(int(found.p), int(found.q))}
    assert result.formula("c_f_dense_tp").value(again) == Fraction(kernels)


def test_domains() -> None:
    names = "b tp L_dense L_dense_i L_moe_ckpt first_i i B_2 alpha_1 eta_fa lam M_stage_peak".split()
    assert {n: domain(n) for n in names} == {
        "b": "positive integer",
        "tp": "positive integer",
        "L_dense": "positive integer",
        "L_dense_i": "non-negative integer",
        "L_moe_ckpt": "non-negative integer",
        "first_i": "non-negative integer",
        "i": "non-negative integer",
        "B_2": "positive",
        "alpha_1": "non-negative",
        "eta_fa": "share",
        "lam": "positive",
        "M_stage_peak": "real",
    }


@pytest.mark.parametrize("leaves", [Fraction(1, 3), 1, Fraction(3, 2), 2, 5, 8, 9])
def test_depth_of_a_tree(leaves: Number) -> None:
    depth = log2(symbol("tp"))
    assert at(view(depth, {"tp": sympy.Symbol("tp")}), {"tp": Fraction(leaves)}) == depth.evaluate({"tp": leaves})
