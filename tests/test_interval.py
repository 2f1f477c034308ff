"""The interval of a step: elasticities in one pass, spreads by kind, and the same numbers wherever they are shown."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from in_process import run

import symsim
from symsim.api.result import derive
from symsim.evaluation.elasticity import elasticities
from symsim.evaluation.interval import interval, interval_of, moves
from symsim.inputs.conventions import OWN
from symsim.inputs.shipped import list_systems
from symsim.inputs.spreads import Standing, kind_of, stored, uncertain
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import symbol_values

ROOT = Path(__file__).parents[1]
CASES = {
    "one stage": ("llama3-8b", "tp=2", "h100-sxm"),
    "stages": ("llama3-70b", "tp=8,sp=true,pp=4,dp=4,global_batch_size=128,overlap_grad_reduce=true", "h100-sxm"),
    "mirrored": ("mixtral-8x7b", "pp=4,ep=8,dp=8,schedule=dualpipe,num_microbatches=16", "h800-sxm"),
    "waits": ("llama3-8b", "pp=4,schedule=zb_h1,num_microbatches=6", "b200-sxm"),
    "sharded": ("llama3-8b", "dp=16,zero=3", "a800-sxm"),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def result(request: pytest.FixtureRequest) -> Any:
    model, strategy, system = request.param
    return symsim.derive(model, strategy, system=system)


def test_elasticities_are_those_of_the_closed_formula(result: Any) -> None:
    found, formula = elasticities(result), result.formula("t_step")
    rates = [n for n in found if isinstance(result.values[n], float) and n in formula.symbols]
    assert len(rates) > 10
    for name in rates:
        assert found[name] == pytest.approx(float(formula.elasticity(name, result.values)), abs=1e-9), name


def test_all_that_may_be_off_together_is_the_whole_step(result: Any) -> None:
    # seconds are of the first degree: with every share lower and every latency longer by a percent a step is longer by a percent
    found = elasticities(result)
    assert sum(n.way * found[n.symbol] for n in uncertain(result.system, found)) == pytest.approx(1, abs=1e-9)


def test_every_share_and_latency_of_the_shipped_systems_has_a_kind() -> None:
    for name in list_systems():
        system = symsim.load_system(name)
        for symbol in symbol_values(system, Strategy()):
            off = symbol.startswith(("eta_", "alpha_", "lambda_", "t_", "tau_", "B_host", "B_sm"))
            assert (kind_of(symbol, len(system.network)) is not None) == (off or symbol in ("Phi_fp8", "Phi_fp4", "B_dram") or symbol[:2] == "C_"), (
                symbol
            )
        assert {n.tag for n in uncertain(system, dict.fromkeys(symbol_values(system, Strategy()), 0.0))} <= {"measured", "datasheet", "estimated"}


def test_a_measured_share_narrows_the_interval() -> None:
    made = {("gemm", "measured"): 0.5, ("memory", "estimated"): 0.5}
    wide = interval_of(10.0, {("gemm", "estimated"): 0.5, ("memory", "estimated"): 0.5})
    narrow = interval_of(10.0, made)
    assert wide.low < narrow.low < 10 < narrow.high < wide.high
    assert math.log(narrow.high / 10) == pytest.approx(math.log(10 / narrow.low))
    assert sum(narrow.shares.values()) == pytest.approx(1) and narrow.most == "memory"


def test_the_variance_is_that_of_kinds_apart_and_numbers_of_a_kind_together() -> None:
    spreads = stored()
    made = {("gemm", "measured"): 0.3, ("gemm", "estimated"): 0.2, ("node", "measured"): 0.1}
    gemm = 0.3 * spreads.of("gemm", "measured") + 0.2 * spreads.of("gemm", "estimated")
    parts = (gemm, 0.1 * spreads.of("node", "measured"), spreads.of("machine", ""), spreads.of("run", ""))
    assert math.log(interval_of(1.0, made).high) == pytest.approx(spreads.factor * math.hypot(*parts))


def test_shown_alike_everywhere(tmp_path: Any) -> None:
    result = symsim.derive("llama3-8b", "tp=2", system="h100-sxm")
    found = interval(result)
    assert found is not None and result.interval == found
    assert sum(moves(result).values()) - moves(result)["bubble", "estimated"] == pytest.approx(1)
    said = result.to_json()["time"]["interval"]
    assert (said["low"], said["high"], said["level"]) == (found.low, found.high, 0.8)
    assert "\n  80 %: " in result.table() and "most of it from " in result.table()
    assert "How far it may be off" in run("derive", "llama3-8b", "-s", "tp=2", "-y", "h100-sxm").stdout
    assert result.value("time.step_low") == found.low < result.value("time.step") < found.high == result.value("time.step_high")
    assert symsim.derive("llama3-8b", "tp=2").interval is None


@pytest.mark.parametrize(
    ("plan", "system", "kind"),
    [("tp=2", "h100-sxm", None), ("tp=2,fp8=delayed", "h100-sxm", "source"), ("tp=2,fusion=eager", "h100-sxm", "source"), ("tp=2", "h20", "system")],
)
def test_what_was_never_measured_is_off_besides(plan: str, system: str, kind: str | None) -> None:
    spreads, result = stored(), symsim.derive("llama3-8b", plan, system=system)
    found = result.interval
    assert found is not None and found.unmeasured == kind and set(found.shares) & {"source", "system"} == ({kind} if kind else set())
    alone = interval_of(1.0, {key: move for key, move in moves(result).items() if key[0] != kind})
    beside = spreads.factor * (spreads.of(kind, "") if kind else 0.0)
    assert math.log(found.high / result.value("time.step")) == pytest.approx(math.hypot(math.log(alone.high), beside))
    said = "a system never measured" if kind == "system" else "never measured on this system"
    assert (said in " ".join(result.table().split())) == bool(kind)


def test_a_system_that_was_anchored_was_measured() -> None:
    plan = "tp=2,fp8=delayed"
    anchored = symsim.anchor("llama3-8b", plan, "h20", step=symsim.derive("llama3-8b", plan, system="h20").value("time.step")).system
    found = symsim.derive("llama3-8b", "tp=4", system=anchored).interval
    assert found is not None and found.unmeasured is None


def test_what_was_measured_is_on_systems_that_ship() -> None:
    measured = stored().measured
    assert {one[0] for one in measured} < set(list_systems()) and {one[2] for one in measured} == {"dense", "experts"}
    assert "b300-sxm" not in {one[0] for one in measured}  # a case is apart from those that spreads are estimated from
    assert 0 < stored().of("source", "") < stored().of("system", "")


def test_a_sweep_has_the_ends_as_columns() -> None:
    columns = ["time.step", "time.step_low", "time.step_high"]
    found = symsim.sweep("mixtral-8x7b", {"ep": [2, 8], "pp": [1, 4], "dp": [8], "num_microbatches": [8]}, system="b200-sxm", columns=columns)
    for k in range(len(found)):
        plan = ",".join(f"{name}={found.rows[name][k]}" for name in ("ep", "pp", "dp", "num_microbatches"))
        result = symsim.derive("mixtral-8x7b", plan, system="b200-sxm")
        for name in columns:
            assert found.rows[name][k] == pytest.approx(float(result.value(name)), rel=1e-6)


def test_a_sweep_knows_which_of_its_variants_were_measured() -> None:
    columns = ["time.step_low", "time.step_high"]
    found = symsim.sweep("llama3-8b", {"fp8": ["none", "delayed"], "tp": [1, 2]}, system="h100-sxm", columns=columns)
    wide = set()
    for k in range(len(found)):
        result = symsim.derive("llama3-8b", f"fp8={found.rows['fp8'][k]},tp={found.rows['tp'][k]}", system="h100-sxm")
        wide.add(result.interval.unmeasured)
        for name in columns:
            assert found.rows[name][k] == pytest.approx(float(result.value(name)), rel=1e-6)
    assert wide == {None, "source"}


def test_no_interval_where_another_systems_rules_are_followed() -> None:
    # its shares are not those of a system file, and its residuals were not measured
    model, plan, system = symsim.load_model("llama3-8b"), symsim.load_strategy("tp=2"), symsim.load_system("h100-sxm")
    assert derive(model, plan, system=system).interval is not None
    result = derive(model, plan, system=system, conventions=replace(OWN, slower=Fraction(11, 10)))
    assert result.interval is None and "interval" not in result.to_json()["time"] and "80 %" not in result.table()


def _copied(tmp_path: Path, name: str, changes: dict[str, str]) -> str:
    """A system's file under another name, with other texts in it."""
    text = (ROOT / "models/systems/h100-sxm.yaml").read_text().replace("name: h100-sxm", f"name: {name}")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / f"{name}.yaml").write_text(text)
    return str(tmp_path / f"{name}.yaml")


def test_a_measured_system_is_known_by_its_numbers_and_not_by_its_name(tmp_path: Path) -> None:
    plan, measured = "tp=4,pp=2,dp=2,num_microbatches=8", "h100-sxm"
    there = symsim.derive("llama3-8b", plan, system=measured).interval
    same = {"[80 GiB, datasheet, nvidia]": "[94 GiB, datasheet, nvidia]", "[2.95 USD/h, estimated, cloud]": "[9 USD/h, estimated, cloud]"}
    same["[3.35 TB/s,"] = "[3350 GB/s,"
    copy = symsim.derive("llama3-8b", plan, system=_copied(tmp_path, "ours", same)).interval
    assert there is not None and copy == there and there.unmeasured is None
    other = symsim.derive("llama3-8b", plan, system=_copied(tmp_path, "theirs", {"[3.35 TB/s,": "[3.4 TB/s,"})).interval
    assert other is not None and other.unmeasured == "system" and other.standing == Standing()
    named = symsim.derive("llama3-8b", plan, system=_copied(tmp_path, "h100-sxm", {"[3.35 TB/s,": "[3.4 TB/s,"})).interval
    assert named is not None and named.unmeasured == "system" and named.standing == Standing(measured, ("B_hbm",))


@pytest.mark.parametrize(
    ("setting", "plan", "changed"),
    [
        ("B_1=900 GB/s", "tp=4,pp=2,dp=2,num_microbatches=8", ("B_1",)),
        ("B_1=900 GB/s", "tp=1", ()),
        ("B_2=100 GB/s", "tp=8", ()),
        ("B_2=100 GB/s", "tp=8,dp=2", ("B_2",)),
        ("R_1=4", "tp=8", ("R_1",)),
        ("R_1=4", "micro_batch_size=1", ()),
        ("accelerator.multiprocessors=100", "tp=8", ("n_sm",)),
        ("accelerator.price=1 USD/h", "tp=8", ()),
        ("accelerator.memory=200 GiB", "tp=8", ()),
    ],
)
def test_numbers_that_are_set_are_none_that_were_measured(setting: str, plan: str, changed: tuple[str, ...]) -> None:
    """Where the step moves with them."""
    name, value = setting.split("=")
    result = symsim.derive("llama3-8b", plan, system="h100-sxm", overrides={name: value})
    found = result.interval
    assert found is not None and found.standing == (Standing("h100-sxm", changed) if changed else Standing())
    assert found.unmeasured == ("system" if changed else None)
    said, told = f"({', '.join(changed)} differs from h100-sxm, which was measured)", result.to_json()["time"]["interval"]
    assert (said in " ".join(result.table().split())) == bool(changed) == ("changed" in told)
    assert not changed or (told["other_than"], told["changed"]) == ("h100-sxm", list(changed))


def test_numbers_of_an_anchored_system_that_are_set_were_not_measured(tmp_path: Path) -> None:
    step = symsim.derive("llama3-8b", "tp=2", system="h20").value("time.step")
    symsim.anchor("llama3-8b", "tp=2", "h20", step=step).write(tmp_path / "own.yaml")
    of = partial(symsim.derive, "llama3-8b", "tp=2", system=str(tmp_path / "own.yaml"))
    kept, price, other = (of(overrides=given).interval for given in ({}, {"accelerator.price": "1 USD/h"}, {"B_hbm": "3 TB/s"}))
    assert kept is not None and price == kept and other is not None and (kept.unmeasured, other.unmeasured) == (None, "system")


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_sweep_over_numbers_of_a_system_widens_those_that_were_not_measured(backend: str, tmp_path: Path) -> None:
    """At each point as `symsim eval --set` has it: bandwidth inside a node as measured and not, where messages go over it and not."""
    axes = ["tp=1,2", "fp8=none,delayed", "B_1=450 GB/s,900 GB/s", "R_1=4,8"]
    words = [part for axis in axes for part in ("--axis", axis)]
    columns = "time.step_low,time.step_high,time.step"
    asked = ["sweep", "llama3-8b", "-y", "h100-sxm", *words, "--columns", columns, "--backend", backend, "-o", str(tmp_path / "rows.csv")]
    assert run(*asked).returncode == 0
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    kinds = set()
    for row in rows:
        given = {"B_1": row["B_1"], "R_1": row["R_1"]}
        result = symsim.derive("llama3-8b", f"tp={row['tp']},fp8={row['fp8']}", system="h100-sxm", overrides=given)
        assert result.interval is not None
        kinds.add((row["tp"], row["fp8"], result.interval.unmeasured))
        for name in ("time.step_low", "time.step_high"):
            assert float(row[name]) == pytest.approx(float(result.value(name)), rel=1e-6)
    assert len(rows) == 16 and {kind for _, _, kind in kinds} == {None, "source", "system"} and ("1", "none", None) in kinds
