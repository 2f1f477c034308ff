"""Reductions over pipeline stages: nodes of a formula, evaluated, expanded and lowered by one rule."""

from __future__ import annotations

import sys
from pathlib import Path

import sympy

import symsim
from symsim.algebra.expr import expr, maximum, of_largest, symbol
from symsim.algebra.view import view

sys.path.insert(0, str(Path(__file__).parent / "draws"))
import closed  # noqa: E402

x, y, k, n = (symbol(name) for name in ("tf", "ti", "B_1", "B_2"))


def test_the_value_of_the_largest_key_is_the_first_of_equal_ones() -> None:
    chosen = of_largest([(x, k), (y, n)])
    at = {"tf": 1, "ti": 2}
    assert [chosen.evaluate({**at, "B_1": a, "B_2": b}) for a, b in ((3, 4), (4, 3), (3, 3))] == [2, 1, 1]
    assert chosen.substitute({"B_1": expr(1), "B_2": expr(2)}) == y
    assert of_largest([(x, k), (x, n)]) == x and of_largest([(x, x), (y, y)]) == maximum(x, y)
    seen = view(chosen)
    symbols = {s.name: s for s in seen.free_symbols}
    for a, b, wanted in ((3, 4, "ti"), (4, 3, "tf"), (3, 3, "tf")):
        assert seen.subs({symbols["B_1"]: a, symbols["B_2"]: b}) == symbols[wanted]
    assert isinstance(seen, sympy.Piecewise)


def test_drawn_steps_and_peaks_are_closed() -> None:
    tally = closed.run(3, seed=7)
    assert not tally.wrong, tally.wrong
    assert tally.compared["t_step: no symbol open"] and tally.compared["elasticities equal differences"] > 40


def test_steps_are_closed_whatever_a_kind_of_layer_is_called() -> None:
    tally = closed.run(2, seed=6, kinds=True)
    assert not tally.wrong, tally.wrong
    assert tally.compared["M_peak: as under the kind's own name"] == 2
    for word in ("head", "embedding", "e", "stage", "x_ckpt", "L_dense_i"):
        result = closed.derived(["eval", "llama3-8b", "-s", "pp=4,num_microbatches=8", "-y", "h100-sxm"], word)
        own = closed.derived(["eval", "llama3-8b", "-s", "pp=4,num_microbatches=8", "-y", "h100-sxm"])
        assert result is not None and own is not None and result.model.kind_names() != own.model.kind_names()
        formula = result.formula("t_step")
        assert float(formula.value({n: result.values[n] for n in formula.symbols})) == float(own.value("time.step")), word


def test_a_wrong_number_and_an_open_symbol_are_seen() -> None:
    result = symsim.derive("llama3-8b", "tp=2,pp=2")
    result.step_numbers["M_peak"] += 1
    tally = closed.Tally()
    closed.check(result, tally, "")
    assert [w.partition(" (")[0].split(":")[0] for w in tally.wrong] == ["M_peak"] * 3
    assert {"L_dense_i", "i"} <= result.derivation.formula("M_peak").symbols


def test_a_step_costs_its_classes_of_stages_and_not_its_depth() -> None:
    few, many = (symsim.derive("llama3.1-405b", f"pp={p},num_microbatches=256", system="h100-sxm").formula("t_step").written_out() for p in (9, 126))
    assert len(many.definitions) == len(few.definitions)


def test_a_rank_of_two_mirrored_stages_takes_their_mean_time_and_needs_the_larger_memory() -> None:
    result = symsim.derive("deepseek-v3", "ep=8,pp=8,schedule=dualpipe,num_microbatches=32", system="h100-sxm")
    numbers = [result.stage_numbers(stage) for stage in result.stages]
    times, peaks = [n["t_stage"] for n in numbers], [n["M_stage_peak"] for n in numbers]
    assert peaks[0] != peaks[-1] and times[0] != times[-1]
    assert result.step_numbers["M_peak"] == max(peaks) == result.value("memory.peak")
    assert result.step_numbers["t_slow"] == max((a + b) / 2 for a, b in zip(times, reversed(times)))


def test_a_formula_is_told_in_a_line() -> None:
    step = symsim.derive("llama3-8b", "tp=2,pp=2", system="h100-sxm").formula("t_step")
    assert repr(step).startswith("Formula(t_step = t_pipeline + t_tail [second], one step; ") and repr(step).count("\n") == 0
