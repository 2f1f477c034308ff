"""Pipelines of any depth: stages that hold the same are evaluated once, and are said in rows that are read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import symsim
from symsim.algebra.expr import Expr
from symsim.api.result import Result
from symsim.evaluation.evaluated import evaluated
from symsim.inputs.limits import MOST_STAGES
from symsim.pipeline.fullest import falls, fullest
from symsim.pipeline.schedules import SCHEDULES, schedule_of
from symsim.program.fullest import line_at_any
from symsim.report.content import report
from symsim.report.document import Section, Table, Timeline
from symsim.report.step import Step
from symsim.report.totals import Totals

DEEP = {"num_layers": 4000}
_LEVELS = "recompute=full,recompute_method=uniform,recompute_num_layers=1"
CASES = (
    ("llama3-8b", "pp=7,num_microbatches=16"),
    ("deepseek-v3", "ep=8,pp=16,num_microbatches=32"),
    ("llama3-8b", "pp=8,vpp=2,num_microbatches=16"),
    ("llama3-8b", "pp=8,vpp=2,schedule=zbv,num_microbatches=6"),
    ("llama3-8b", "pp=8,vpp=2,schedule=zbv,num_microbatches=32"),
    ("deepseek-v3", "ep=8,pp=8,schedule=dualpipe,num_microbatches=32"),
    ("llama3-8b", f"pp=8,schedule=pre_recompute_1f1b,num_microbatches=16,{_LEVELS}"),
    ("llama3-8b", f"pp=8,schedule=shifted_critical_path,num_microbatches=16,{_LEVELS}"),
    ("llama3-8b", "pp=8,schedule=zb_h2,num_microbatches=32"),
)


def one_by_one(result: Result) -> Iterator[dict]:
    """Numbers of every stage, nothing shared between stages."""
    for stage in result.stages:
        known = {**result.numbers, **result.stage_values(stage)}
        for definition in result.derivation.definitions.values():
            if definition.key.scope == "stage":
                known[definition.symbol] = definition.expr.evaluate(known)
        yield known


@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_numbers_by_class_are_those_of_every_stage(model: str, strategy: str) -> None:
    result = symsim.derive(model, strategy, system="h100-sxm")
    every = list(one_by_one(result))
    assert [dict(result.stage_numbers(stage)) for stage in result.stages] == every
    peaks, times = ([n[name] for n in every] for name in ("M_stage_peak", "t_stage"))
    assert result.fullest == peaks.index(max(peaks)) and result.slowest == times.index(max(times))
    assert result.value("memory.peak") == max(peaks)
    assert result.value("memory.activations") == every[result.fullest]["M_stage_activations"]
    for names in (("t_stage",), ("M_stage_peak", "M_stage_activations")):
        groups = result.alike_in(names)
        assert sorted(n for group in groups for n in group) == list(range(len(every)))
        assert all(every[n][name] == every[group[0]][name] for group in groups for n in group for name in names)
    assert len(result.alike_in(("t_stage",))) == len(result.line.classes)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_fullest_of_equal_stages_is_known_by_the_schedule(name: str) -> None:
    schedule = SCHEDULES[name]
    for pp in (4, 8):
        for m in (1, 3, pp, 2 * pp, 5 * pp):
            sizes = {"pp": pp, "vpp": 2, "m": m, "group": pp}
            held = [tuple(e.evaluate({**sizes, "i": i}) for e in (schedule.in_flight, schedule.whole)) for i in range(pp)]
            found = fullest(schedule, range(pp), sizes)
            assert max(held) in [held[i] for i in found] and found[0] == held.index(max(held))
            if falls(schedule):
                assert found == (0,) and all(after <= before for a, b in zip(held, held[1:]) for before, after in zip(a, b))
    assert falls(schedule) == (name not in ("zbv", "v_min", "shifted_critical_path"))


def test_a_line_at_any_number_of_micro_batches_has_the_places_of_each() -> None:
    result = symsim.derive("llama3-8b", "pp=8,vpp=2,schedule=zbv,num_microbatches=32")
    at_any = line_at_any(result.strategy, map(result.stage_values, result.stages), 8)
    held = [result.stage_numbers(stage)["alive_i"] for stage in result.stages]
    assert at_any.places == (0, 7) and result.line.places == (0, 1) and held[1] == held[7]


def _evaluations(strategy: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Expressions evaluated for a step, a peak and their 80 columns, one inside another counted once."""
    result = symsim.derive("llama3-8b", strategy, overrides=DEEP, system="h100-sxm")
    count, inside, evaluate = 0, False, Expr.evaluate

    def counted(self: Expr, *given: object) -> object:
        nonlocal count, inside
        outermost = not inside
        count, inside = count + outermost, True
        try:
            return evaluate(self, *given)  # type: ignore[arg-type]
        finally:
            inside = inside and not outermost

    with monkeypatch.context() as patched:
        patched.setattr(Expr, "evaluate", counted)
        assert result.value("time.step") > 0 and result.value("memory.peak") > 0
        text = result.table()
    return count, text


def test_a_step_of_4000_stages_is_evaluated_as_one_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = _evaluations("pp=8,tp=8,num_microbatches=8000", monkeypatch)
    many, text = _evaluations("pp=4000,tp=8,num_microbatches=8000", monkeypatch)
    # what is in flight is asked of every stage, nothing else is
    assert few < many < few + 4000 + 800
    table = text.split("Memory of one rank of each stage\n")[1].split("\n\n")[0].splitlines()
    assert len(table) == 34 and table[-1].strip() == "3,968 rows between these are left out: numbers change from stage to stage."
    assert [line.split()[0] for line in table[1:33:8]] == ["0", "132", "2124", "3992"] and table[-2].split()[0] == "3999"
    assert max(map(len, text.splitlines())) <= 80


def test_few_in_flight_are_evaluated_once_for_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    result = symsim.derive("llama3-8b", "pp=4000,tp=8,num_microbatches=6", overrides=DEEP, system="h100-sxm")
    groups = result.alike_in(("M_stage_peak",))
    assert [(g[0], g[-1]) for g in groups[:3]] == [(0, 0), (1, 3994), (3995, 3995)] and len(groups) == 7
    rows = result.to_json()["memory"]["stages"]
    assert len(rows) == 4000 and rows[1] == {**rows[3994], "stage": 1} != {**rows[3995], "stage": 1}
    assert len(result._placed_known) == 7


def test_messages_of_equal_stages_are_listed_for_each() -> None:
    found = symsim.derive("llama3-8b", "pp=8,tp=2,num_microbatches=8").to_json()["messages"]
    by_stage = {n: [{**m, "stage": 0} for m in found if m["stage"] == n] for n in range(8)}
    assert by_stage[1] == by_stage[6] != by_stage[0] and [m["stage"] for m in found] == sorted(m["stage"] for m in found)
    assert Totals(symsim.derive("llama3-8b", "pp=8,tp=2,num_microbatches=8")).busiest == 7


@pytest.mark.parametrize("schedule", ["1f1b", "shifted_critical_path"])
def test_stages_that_do_not_fit_are_found_without_evaluating_all(schedule: str) -> None:
    result = symsim.derive("llama3-70b", f"pp=40,tp=1,schedule={schedule},num_microbatches=64", system="h100-sxm")
    step = Step(result)
    over = [n for n in range(40) if step.peak(n) > step.capacity]
    assert 0 < len(over) < 40 and step._over() == over
    assert falls(schedule_of(result.strategy)) == (schedule == "1f1b")


def test_a_report_of_a_deep_pipeline_is_short_and_says_what_is_not_drawn() -> None:
    result = symsim.derive("llama3-8b", "pp=2000,tp=8,num_microbatches=2000", overrides=DEEP, system="h100-sxm")

    def parts(sections: tuple[Section, ...]) -> Iterator[object]:
        for section in sections:
            yield from section.parts

    found = list(parts(report(result).sections))
    assert not [p for p in found if isinstance(p, Timeline)] and "A pipeline of 2,000 stages is not drawn: at most 256 are." in str(found)
    short = parts(report(symsim.derive("llama3-8b", "pp=8,tp=8,num_microbatches=8", overrides=DEEP, system="h100-sxm")).sections)
    rows = [sum(len(p.rows) for p in own if isinstance(p, Table)) for own in (short, found)]
    assert rows[1] < rows[0] + 2 * 32
    assert "Bytes of one rank of the first stage, the last, the emptiest and the fullest at its peak." in str(found)
    assert "1 fewer on each rank behind it, and rank 1999" in str(found)


def test_the_deepest_pipeline_is_derived_and_a_deeper_one_refused() -> None:
    model, strategy = symsim.load_model("llama3-8b"), f"pp={MOST_STAGES},num_microbatches=1"
    assert evaluated(model, symsim.load_strategy(strategy), overrides={"num_layers": MOST_STAGES}).value("memory.peak") > 0
    with pytest.raises(symsim.InputError, match=f"pp is {MOST_STAGES + 1}; it should be less than or equal to {MOST_STAGES}"):
        symsim.load_strategy(f"pp={MOST_STAGES + 1}")
