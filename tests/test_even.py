"""Pipelines cut evenly: one formula for all depths, over the first stage, those between and the last."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest

import symsim
from symsim.algebra.even import EvenLine
from symsim.algebra.expr import symbol
from symsim.algebra.formula import Formula
from symsim.algebra.written import cases
from symsim.api.result import Result
from symsim.inputs.layer_pattern import parse_layers

SYSTEM = "h100-sxm"
FULL = "recompute=full,recompute_num_layers=2,recompute_method="
CASES = (
    ("llama3-70b", "tp=8,sp=true,pp={},num_microbatches=32", (4, 5, 8, 10, 16, 20, 40, 80)),
    ("llama3-70b", "tp=8,pp={},num_microbatches=32,schedule=gpipe", (4, 5, 8, 10, 16, 20, 40, 80)),
    ("llama3-8b", "pp={},num_microbatches=64,schedule=zb_h1", (4, 8, 16, 32)),
    ("llama3-8b", "pp={},num_microbatches=64,schedule=zb_h2", (4, 8, 16, 32)),
    ("llama3-8b", "pp={},vpp=2,num_microbatches=64,schedule=zbv", (4, 8, 16)),
    ("llama3-8b", "pp={},vpp=2,num_microbatches=64", (4, 8, 16)),
    ("llama3-8b", "pp={},num_microbatches=64,schedule=dualpipe", (4, 8, 16, 32)),
    ("mixtral-8x7b", "ep=8,dp=8,pp={},num_microbatches=32", (4, 8, 16, 32)),
    ("dense then experts", "ep=8,dp=8,pp={},num_microbatches=32", (3, 4, 5, 6, 10, 12, 15, 20)),
    ("smollm2-360m", "pp={},dp=4,overlap_grad_reduce=true,num_microbatches=16", (4, 8, 16, 32)),
    ("llama3-70b", f"tp=8,pp={{}},num_microbatches=32,{FULL}block", (4, 5, 8, 10, 16, 20, 40)),
    ("llama3-70b", f"tp=8,pp={{}},num_microbatches=32,{FULL}uniform", (4, 5, 8, 10, 20, 40)),
)


def derived(model: str, strategy: str, pp: int) -> Result:
    if model != "dense then experts":
        return symsim.derive(model, strategy.format(pp), system=SYSTEM)
    experts = symsim.load_model("deepseek-v3")
    layers = parse_layers("3 * dense + 57 * moe")
    return symsim.derive(experts.model_copy(update={"layers": layers}), strategy.format(pp), system=SYSTEM)


@pytest.mark.long_after(4)
@pytest.mark.parametrize(("model", "strategy", "depths"), CASES)
def test_one_formula_gives_the_step_and_the_peak_at_every_even_depth(model: str, strategy: str, depths: tuple[int, ...]) -> None:
    results = {pp: derived(model, strategy, pp) for pp in depths}
    here = results[depths[1]]
    for name in ("t_step", "M_peak"):
        formula = here.formula(name)
        if name == "M_peak" and "zbv" in strategy:
            # which stage is the fullest depends on the number of micro-batches
            assert not isinstance(formula.line, EvenLine)
            continue
        assert isinstance(formula.line, EvenLine) and formula.line.depths == set(depths) and {"pp", "L"} <= formula.symbols
        for pp, result in results.items():
            found = formula.at({s: result.values[s] for s in formula.symbols})
            assert abs(float(found) / float(result.step_numbers[name]) - 1) <= 1e-12, (name, pp)


@pytest.mark.parametrize(
    ("strategy", "depth"),
    [
        ("pp=2", 2),  # nothing is between
        ("pp=5", 5),
        ("pp=4,num_layers_in_first_pipeline_stage=5", 4),
        ("pp=4,pipeline_model_parallel_layout=Et*8|t*8|t*8|t*8L", 4),
        ("pp=4,vpp=2,schedule=interleaved_zb,num_microbatches=8", 4),
    ],
)
def test_an_uneven_pipeline_is_written_over_its_numbers(strategy: str, depth: int) -> None:
    formula = symsim.derive("llama3-8b", strategy, system=SYSTEM).formula("t_step")
    assert not isinstance(formula.line, EvenLine)
    stages = {d.symbol.rpartition("_at_")[2] for d in formula.written_out().definitions if d.symbol.startswith("t_stage_at")}
    assert stages and stages <= set(map(str, range(depth)))


@pytest.fixture(scope="module")
def step() -> tuple[Result, Formula]:
    result = symsim.derive("llama3-70b", "tp=8,sp=true,pp=4,num_microbatches=32", system=SYSTEM)
    return result, result.formula("t_step")


def test_a_depth_that_cuts_the_layers_otherwise_is_refused(step: tuple[Result, Formula]) -> None:
    result, formula = step
    values = {name: result.values[name] for name in formula.symbols}
    narrowed = result.formula("M_peak").given("m >= pp").inline()
    assert narrowed.facts and narrowed.unused == ()
    for changed in ({"pp": 3}, {"pp": 2}, {"pp": Fraction(9, 2)}, {"L": 40}):
        asked = {**values, **changed}
        said = f"L={asked['L']} layers on pp={asked['pp']} stages are cut in another way: the formula is of L=80 and pp=4, 5, 8, 10, 16, 20, 40, 80"
        with pytest.raises(symsim.InputError, match=re.escape(said)):
            formula.at(asked)
        with pytest.raises(symsim.InputError, match="are cut in another way"):
            narrowed.at({n: asked[n] for n in narrowed.symbols})


def test_the_slope_by_pp_is_that_of_all_stages_together(step: tuple[Result, Formula]) -> None:
    result, formula = step
    values = {name: result.values[name] for name in formula.symbols}
    sums = result.formula("sum_t")
    # layers are 80 in all: of one more stage there is one more sum of what every stage has, here nothing
    assert abs(float(sums.diff("pp").evaluate(values))) < 1e-12 * float(sums.value(values))
    pace = result.formula("t_slow")
    slope = float(pace.diff("pp", values).evaluate(values))
    layer = float(result.value("t_slow") - result.stage_numbers(result.stages[0])["t_stage"])
    assert slope < 0 and layer > 0
    below, above = (float(pace.value({**values, "pp": 4 + d})) for d in (-1e-4, 1e-4))
    assert slope == pytest.approx((above - below) / 2e-4, rel=1e-6)
    here, deeper = (float(formula.value({**values, "pp": pp})) for pp in (4, 8))
    assert formula.elasticity("pp", values, to=8) == pytest.approx(deeper / here - 1)


@pytest.mark.long
def test_limits_and_facts_on_pp(step: tuple[Result, Formula]) -> None:
    result, _ = step
    pace = result.formula("t_slow")
    deepest = pace.given("pp -> oo")
    assert "pp" not in deepest.symbols
    values = {**result.values}
    # only the embedding or the head is left
    alone = max(float(result.numbers[f"t_f_{b}"] + result.numbers[f"t_i_{b}"] + result.numbers[f"t_w_{b}"]) for b in ("embedding", "head"))
    assert alone <= float(deepest.value(values)) < float(pace.value(values)) / 4
    wait = result.formula("t_place").given("m >= pp, pp >= 3")
    assert float(wait.value(values)) == pytest.approx(float(result.value("t_place")))


def test_stages_are_printed_as_cases(step: tuple[Result, Formula]) -> None:
    _, formula = step
    flags = "loss_i = 1, last_layer_i = 1, output_i = 1"
    printed = [
        "first, i = 0: L_dense_i = L/pp, first_i = 1, embedding_i = 1",
        "middle, 1 <= i <= pp - 2 (pp - 2 stages): L_dense_i = L/pp",
        f"last, i = pp - 1: L_dense_i = L/pp, {flags}",
    ]
    assert formula.cases == formula.written_out().cases == printed
    for one in (formula, formula.written_out()):
        assert str(one).splitlines()[-3:] == printed
    uneven = symsim.derive("llama3-8b", "pp=6", system=SYSTEM).formula("t_step")
    assert uneven.cases == [
        "i = 0: L_dense_i = 5, first_i = 1, embedding_i = 1",
        "i = 1, 3 <= i <= 4 (3 stages): L_dense_i = 5",
        "i = 2: L_dense_i = 6",
        f"i = 5: L_dense_i = 6, {flags}",
    ]
    names = {d.symbol: d for d in formula.written_out().definitions}
    assert str(names["L_dense_i_at_middle"].expr) == "L/pp" and names["L_dense_i_at_middle"].meaning == "layers of kind dense on a stage between"
    assert names["t_stage_at_first"].meaning.startswith("the first stage: ") and "t_stage_at_0" not in names
    first, middle, last = (symbol(f"t_stage_at_{part}") for part in ("first", "middle", "last"))
    assert names["sum_t"].expr == first + (symbol("pp") - 2) * middle + last
    assert symsim.derive("llama3-8b").formula("F_dense").cases == []


def test_stages_in_latex(step: tuple[Result, Formula]) -> None:
    _, formula = step
    text = formula.written_out().latex()
    assert text.startswith(r"\begin{aligned}") and text.endswith(r"\end{aligned}")
    rows = text.splitlines()[1:-1]
    assert all(row.count(" &= ") == 1 and row.endswith(r" \\") for row in rows)
    assert r"t^{(\mathrm{first})}_{\mathrm{stage}} &= " in text and r"\Sigma t_{\mathrm{stage}} &= " in text
    assert "_at_" not in text and r"at\_" not in text
    assert r"L^{(i)}_{\mathrm{dense}} &= \frac{L}{p} \\" in rows
    first = r"\delta^{(i)}_{\mathrm{first}} &= \begin{cases} 1 & i = 0 \\ 0 & \text{otherwise} \end{cases} \\"
    assert first in rows
    kept = formula.inline(keep={"t_stage"}).latex()
    assert kept.count(r"t^{(\mathrm{middle})}_{\mathrm{stage}}") >= 2 and len(kept.splitlines()) < len(rows)
    uneven = symsim.derive("llama3-8b", "pp=6", system=SYSTEM).formula("t_slow").written_out().latex()
    assert r"L^{(i)}_{\mathrm{dense}} &= \begin{cases} 5 & i = 0, i = 1, 3 \le i \le 4 \\ 6 & i = 2, i = 5 \end{cases} \\" in uneven
    assert r"t^{(0)}_{\mathrm{stage}}" in uneven and r"_{\mathrm{stage\_at" not in uneven


def test_the_cases_are_what_stages_hold() -> None:
    result = symsim.derive("deepseek-v3", "ep=8,pp=8,dp=8,num_microbatches=32", system=SYSTEM)
    line = result.formula("t_step").line
    assert line is not None and len(cases(line)) == len(result.line.classes)
    for _, runs, holds in line.spread:
        for first, last in runs:
            for n in range(int(first.constant()), int(last.constant()) + 1):
                own = result.stage_values(result.stages[n])
                assert {name: amount.constant() for name, amount in holds.items()} == {name: own[name] for name in holds}


def test_a_formula_of_other_cases_is_seen() -> None:
    """The test of depths above fails where a part holds another number of layers."""
    result = derived(*CASES[0][:2], 8)
    formula = result.formula("t_step")
    line = formula.line
    assert isinstance(line, EvenLine)
    first = replace(line.parts[0], holds={**line.parts[0].holds, "L_dense_i": line.parts[0].holds["L_dense_i"] + 1})
    wrong = replace(formula, line=replace(line, parts=(first, *line.parts[1:])))
    values = {name: result.values[name] for name in formula.symbols}
    assert abs(float(wrong.at(values)) / float(result.step_numbers["t_step"]) - 1) > 1e-4
