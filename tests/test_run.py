"""A run of many steps: closed forms against published intervals, against runs that are drawn and batches that grow, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from statistics import NormalDist

import in_process
import numpy as np
import pytest

from symsim.algebra.expr import expr
from symsim.api.python import derive
from symsim.api.run import printed, run
from symsim.cost.largest import LARGEST, expected_largest
from symsim.cost.run import PART
from symsim.errors import InputError
from symsim.evaluation.quantities import QUANTITIES
from symsim.evaluation.run import Run
from symsim.grid.api import sweep
from symsim.inputs.run import LENGTHS, RUN
from symsim.report import render_markdown
from symsim.report.text_run import duration

MODEL, STRATEGY, SYSTEM = "llama3.2-1b", "tp=2,pp=2,dp=2,num_microbatches=8", "h100-sxm"
ASKED = f"{MODEL} -s {STRATEGY} -y {SYSTEM}".split()


@cache
def made(strategy: str = STRATEGY, model: str = MODEL, **settings: str) -> Run:
    return run(model, strategy, SYSTEM, overrides=settings)


def test_a_run_that_does_not_fit_says_so() -> None:
    found = {}
    for tp in (1, 8):
        result = derive("llama3-8b", f"tp={tp},micro_batch_size=4", overrides={"tokens": "1T"}, system=SYSTEM)
        (found[tp],) = (line for line in printed(result, None, None, False)[0].splitlines() if line.startswith("  peak memory"))
    assert "does not fit" in found[1] and "fits" in found[8]


# steps --------------------------------------------------------------------------------------------------------------------


def test_largest_of_normal_numbers() -> None:
    """The tables, by quantiles and by integration; between their places the chords lie at most 1.8 % too low."""
    normal, x = NormalDist(), np.linspace(-8, 8, 8001)
    below = np.array([normal.cdf(float(v)) for v in x])
    for k in range(21):
        # the mean is what the distribution leaves out on the right of zero, less what it has on the left
        whole = below ** (2**k)
        assert LARGEST["mean"][k] == pytest.approx(float(((x > 0) - whole).sum() * (x[1] - x[0])), abs=1.1e-3)
    for what, values in LARGEST.items():
        if what != "mean":
            found = [-normal.inv_cdf(-math.expm1(math.log(int(what) / 100) / 2**k)) for k in range(21)]
            assert values == pytest.approx(found, abs=6e-5)
            for n in (3, 11, 100, 16384, 700_000):
                exact = -normal.inv_cdf(-math.expm1(math.log(int(what) / 100) / n))
                assert -1e-4 < 1 - float(expected_largest(expr(n), what).evaluate({})) / exact < 0.018


def test_jitter_against_ranks_that_are_drawn() -> None:
    known = made(tokens="1B", jitter="3%")
    draws = np.random.default_rng(1).normal(1, 0.03, (20_000, 8)).max(axis=1) * float(known.at.step_numbers["t_step"])
    assert known.numbers["step"] == pytest.approx(draws.mean(), rel=1e-3)
    for percent in (50, 90, 99):
        assert known.numbers[f"p{percent}"] == pytest.approx(np.quantile(draws, percent / 100), rel=2e-3)
    assert known.numbers["steps"] == made(tokens="1B").numbers["steps"]


def test_batch_that_grows_against_its_steps() -> None:
    """Step by step: samples until the increment is full, at the batch that Megatron's calculator gives, each step derived at its batch."""
    found = made(tokens="100M", rampup_batch_size="4 4 3600")
    at = {batch: derive(MODEL, f"tp=2,pp=2,dp=2,global_batch_size={batch}", system=SYSTEM) for batch in (4, 8, 12, 16)}
    sequences, seconds, steps = 0, 0.0, 0
    while sequences * 4096 < 100_000_000:
        batch = 16 if sequences > 3600 else 4 + 4 * min(2, int(sequences // 1200))
        seconds, steps, sequences = seconds + float(at[batch].value("time.step")), steps + 1, sequences + batch
    assert found.numbers["steps"] == pytest.approx(steps, abs=2)
    assert found.numbers["work"] == pytest.approx(seconds, rel=1e-3)
    assert found.numbers["steps"] > 1.05 * made(tokens="100M").numbers["steps"]


def test_evaluation_is_forward_through_the_pipeline() -> None:
    known = made(tokens="1B", eval_interval="50", eval_iters="10")
    stages = [known.at.stage_numbers(s) for s in known.at.stages]
    forward = [float(s["tf_stage"]) for s in stages]
    assert known.numbers["evaluation"] == pytest.approx(10 * (7 * forward[int(known.at.slowest)] + sum(forward)))
    assert known.parts["evaluation"] == pytest.approx(known.numbers["evaluation"] * known.numbers["steps"] / 50)


# checkpoints and failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_best_interval_is_that_of_the_paper(hours: float, minutes: float) -> None:
    """Daly 2006, figures 3 to 5: dumps of five minutes."""
    book = made(tokens="1B").at.derivation.definitions
    known = {"blocked_run": 300.0, "between_run": hours * 3600}
    known["young_run"] = float(book["young_run"].expr.evaluate(known))
    assert float(book["best_run"].expr.evaluate(known)) / 60 == pytest.approx(minutes, rel=6e-3)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("hours", [24, 6, 1])
def test_failures_against_runs_that_are_drawn(hours: int, beside: bool) -> None:
    """Between two failures a restart, then as many intervals as fit, of which those count whose checkpoint is whole."""
    store = f"{made(tokens='1B').numbers['checkpoint'] / 300:.3f}"
    known = made(tokens="2000T", mtbf=f"{8 * hours} h", B_store=store, async_save=str(int(beside))).numbers
    assert known["write"] == pytest.approx(300) and known["between"] == hours * 3600
    gaps = np.random.default_rng(7).exponential(known["between"], 1_000_000)
    working = gaps - 600 - known["load"] - beside * known["write"]
    whole = np.floor(np.maximum(working, 0) / (known["interval"] + known["blocked"]))
    assert known["working"] == pytest.approx(float(whole.sum()) * known["interval"] / float(gaps.sum()), rel=0.003)


@pytest.mark.parametrize("hours", [20, 90])
def test_a_run_shorter_than_its_interval_is_done_again_from_its_start(hours: int) -> None:
    """M (exp(T / M) - 1) exp(R / M) for T of training; was refused, as if a failure cost half of the interval. The same by its days."""
    steps = int(hours * 3600 / made(steps="1").numbers["step"])
    never = {"t_save": "100000 d", "mtbf": "800 h"}
    found = made(steps=str(steps), **never).numbers
    between, work = found["between"], found["work"]
    assert between == 100 * 3600 and work == pytest.approx(hours * 3600, rel=1e-3)
    undone = (work + found["blocked"]) / between
    assert found["wall"] == pytest.approx(work * math.expm1(undone) / undone * math.exp((600 + found["load"]) / between), rel=1e-3)
    by_days = made(days=f"{found['days']:.9f}", **never).numbers
    assert by_days["steps"] == pytest.approx(steps, rel=3e-3)


def test_a_run_that_failures_keep_from_its_end_is_refused() -> None:
    """Of 400 hours between failures every 100 nothing is done again, if a checkpoint is never reached: e^4, which the series does not say."""
    steps = int(400 * 3600 / made(steps="1").numbers["step"])
    with pytest.raises(InputError, match="failures in an interval and its checkpoint"):
        made(steps=str(steps), t_save="100000 d", mtbf="800 h")


def test_bytes_of_a_checkpoint() -> None:
    """Each parameter once, whatever the ranks hold of it: weights in bf16, a copy and two moments in fp32."""
    parameters = int(made(tokens="1B").at.numbers["N"])
    for strategy in (STRATEGY, "dp=8,zero=1", "dp=8,zero=3,fusion=eager"):
        main = derive(MODEL, strategy).assumptions["fsdp_parameters"] == "main" and "zero=3" in strategy
        assert made(strategy, tokens="1B").numbers["checkpoint"] == parameters * (12 if main else 14)
    adapters = made("dp=2,tuner_type=lora,lora_rank=8", tokens="1B")
    assert adapters.numbers["checkpoint"] == 14 * int(adapters.at.numbers["N_trained"])
    assert made("dp=2,optimizer=sgd", tokens="1B").numbers["checkpoint"] == 6 * parameters
    # one moment of matrices, two of all others; norms are whole on both ranks
    whole, half = (made(f"{degrees},optimizer=muon", tokens="1B").numbers["checkpoint"] for degrees in ("tp=1", "tp=2,sp=true,dp=2,zero=1"))
    assert 10 * parameters < whole < 14 * parameters and half == pytest.approx(whole, rel=1e-3)


def test_checkpoints_beside_training_wait_for_the_copy_alone() -> None:
    waits, beside = (made(tokens="1B", async_save=given).numbers for given in "01")
    assert waits["blocked"] == max(waits["write"], waits["copy"]) and beside["blocked"] == pytest.approx(beside["copy"])
    assert beside["interval"] >= beside["write"] and beside["goodput"] > waits["goodput"]
    assert made(tokens="1B", save_interval="500").numbers["interval"] == pytest.approx(500 * waits["step"])
    assert made(tokens="1B", t_save="2 h").numbers["interval"] == 7200


# what is asked ------------------------------------------------------------------------------------------------------------


def test_lengths_say_the_same() -> None:
    by_tokens = made(tokens="20B", eval_interval="100", rampup_batch_size="8 4 2000")
    settings = {"eval_interval": "100", "rampup_batch_size": "8 4 2000"}
    by_steps = made(steps=str(round(by_tokens.numbers["steps"])), **settings)
    by_days = made(days=f"{by_tokens.days + 1e-6:.9f}", **settings)
    for name in ("steps", "tokens", "wall"):
        assert by_steps.numbers[name] == pytest.approx(by_tokens.numbers[name], rel=1e-5)
        assert by_days.numbers[name] == pytest.approx(by_tokens.numbers[name], rel=1e-4)


def test_money_and_power() -> None:
    known, n = made(tokens="1B", c_chip="2 USD/h", k_node="1.5", pue="1.2", carbon="400 g/kWh"), made(tokens="1B").numbers
    watts = float(known.at.values["W_chip"])
    assert known.numbers["cost"] == pytest.approx(2 * n["hours"]) and n["hours"] == pytest.approx(8 * n["days"] * 24)
    assert known.numbers["energy"] == pytest.approx(watts * 1.5 * 1.2 * n["hours"] / 1e6)
    assert known.numbers["carbon"] == pytest.approx(0.4 * 1000 * known.numbers["energy"])


EVERY = {"jitter": "2%", "eval_interval": "100", "rampup_batch_size": "8 4 2000", "async_save": "1"}


def test_every_number_moves_the_run() -> None:
    """And stands in what is printed, of at most 80 columns, with its source; its definitions stand in the report."""
    base = made(tokens="20B", **EVERY)
    printed = in_process.run("run", *ASKED, "--tokens", "20B", "--start", "2026-12-01", *(w for n, v in EVERY.items() for w in ("--set", f"{n}={v}")))
    assert printed.returncode == 0 and max(map(len, printed.stdout.splitlines())) <= 80
    assert f" {Run(base.at, date(2026, 12, 1)).end}  begun on 2026-12-01" in printed.stdout
    for name in RUN:
        if name in (*LENGTHS, "B_store", "save_interval", "t_save"):
            continue
        assert f"  {name}=" in printed.stdout, name
        if not name.startswith("ramp"):
            changed = 0 if name == "async_save" else 2 * base.at.values[name]
            assert Run(replace(base.at, overrides={**base.at.overrides, name: changed})).numbers != base.numbers, name
    report = render_markdown(base.at)
    for definition in base.at.derivation.of(scope="step", part=PART):
        assert definition.meaning in report.split("## 2 The run")[1], definition.symbol


def test_json_adds_up() -> None:
    done = in_process.run("run", *ASKED, "--steps", "5000", "--json", "--set", "eval_interval=100", "--start", "2026-12-31")
    told = json.loads(done.stdout)["run"]
    seconds = told["seconds"]
    assert seconds.pop("run") == pytest.approx(sum(seconds.values()))
    assert told["steps"] == 5000 and told["tokens"] == 5000 * 16 * 4096 and told["start"] == "2026-12-31" <= told["end"]
    assert told["days_between"][0] < told["days"] < told["days_between"][1]
    assert json.loads(in_process.run("eval", *ASKED, "--set", "steps=5000", "--json").stdout)["run"]["steps"] == 5000
    assert "run" not in json.loads(in_process.run("eval", *ASKED, "--json").stdout)


def test_a_grid_refuses_what_a_run_refuses() -> None:
    several = {
        "tokens": ("dp=2,num_microbatches=4", {"mtbf": [30, 200, 2000, 20000, 200000], "t_save": [60, 3000, 50000], "jitter": [0, 5]}),
        "days": ("num_microbatches=400", {"days": [0.00001, 0.0002, 0.01, 1], "B_save": [10**6, 10**9], "dp": [1, 64]}),
    }
    for length, (fixed, axes) in several.items():
        given = {"tokens": "20B"} if length == "tokens" else {}
        found = sweep(MODEL, axes, fixed, SYSTEM, columns="run.days", overrides=given)
        rows = {tuple(point): days for *point, days in zip(*(found.rows[n].tolist() for n in (*axes, "run.days")))}
        for point in itertools.product(*axes.values()):
            own = dict(zip(axes, point))
            degrees = f"{fixed},dp={own.pop('dp')}" if "dp" in own else fixed
            try:
                days = run(MODEL, degrees, SYSTEM, overrides={**given, **own}).days
            except InputError:
                assert point not in rows, point
            else:
                assert rows.pop(point) == pytest.approx(days, rel=1e-12), point
        assert not rows
        assert found.refused["run"] == math.prod(map(len, axes.values())) - len(found) > 0
        best = sweep(MODEL, axes, fixed, SYSTEM, by="run.days", top=1000, overrides=given)
        assert (len(best), best.refused) == (len(found), found.refused)
    said = in_process.run("sweep", *ASKED, "--axis", "mtbf=10,20,1e5", "--set", "tokens=1T", "--columns", "run.days").stderr
    assert "3 configurations, 1 can run" in said and "2 refused by run, one of them: the ranks fail every" in said
    none = in_process.run("sweep", *ASKED, "--axis", "mtbf=10,20", "--set", "tokens=1T", "--columns", "run.days")
    assert none.returncode == 2 and "none of the 2 configurations can run; of one of them: the ranks fail every" in none.stderr


def test_a_number_of_a_run_is_asked_in_its_units_and_no_further_than_a_run_goes() -> None:
    asked = [*ASKED, "--set", "tokens=1T", "--set", "t_save=1 h"]
    along = in_process.run("ask", *asked, "run.days over mtbf=1:1000:*10 h", "run.carbon over carbon=0.1,0.2 kg/kWh").stdout
    assert "3600 s            -" in along and "0.1 kg/kWh" in along
    assert "3600 s: there are" in along
    days = made(tokens="1T", t_save="1 h", mtbf="1000 h").days
    assert f"{days:.4g} d" in along
    said = in_process.run("ask", *asked, "smallest mtbf=1:1000 h where run.days <= 1e9").stderr
    assert "mtbf=1:1000 h': there are" in said and "more than the formulas of a run are good for" in said
    assert "valid names: d, days, h, min" in in_process.run("ask", *asked, "run.days over mtbf=1,2 parsec").stderr


def test_sweep_has_the_run() -> None:
    names = [name for name, entry in QUANTITIES.items() if entry.of_run]
    axes, fixed = {"mtbf": [3600 * 10**4, 3600 * 10**5], "tp": [1, 2]}, "pp=2,dp=2,num_microbatches=8"
    found = sweep(MODEL, axes, fixed, SYSTEM, columns=",".join(names), overrides={"tokens": "20B"})
    for row in range(4):
        mtbf, tp = float(found.rows["mtbf"][row]), int(found.rows["tp"][row])
        known = made(f"tp={tp},pp=2,dp=2,num_microbatches=8", tokens="20B", mtbf=f"{mtbf} s").at
        for name in names:
            assert float(found.rows[name][row]) == pytest.approx(float(known.value(name)), rel=1e-9), name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "a run needs a length: give tokens, steps or days"),
        ("--tokens 1T --days 3", "--tokens and --days say the same of a run"),
        ("--tokens 0", "it lies between 1 and 1e+18, such as 15T"),
        ("--tokens 15X", "--tokens=15X is not read; it is given as 15T"),
        ("--tokens 1.5", "a whole number is needed"),
        ("--tokens nan", "--tokens=nan is not read"),
        ("--tokens 1T --start tomorrow", "--start tomorrow is no day; it is given as 2026-12-01"),
        ("--tokens 1P --start 9999-12-01", "beyond the calendar"),
        ("--days 0.000001", "is less than a step of the run"),
        ("--tokens 1T --set mtbf=1s", "so that the run never ends"),
        ("--tokens 100T --set t_save=4000d --set mtbf=8000d", "failures in an interval and its checkpoint"),
        ("--tokens 1T --set mtbf=1h --set t_restart=10min", "in a restart, more than the formulas of a run are good for (to 1 %)"),
        ("--tokens 1T --set eval_iters=1000", "nothing says when there is one: give eval_interval"),
        ("--tokens 1T --set mtbf=5kg", "is not read; it is given as 50000 h"),
        ("--tokens 1T --set save_interval=5 --set t_save=1h", "--set save_interval and --set t_save say the same of a run"),
        ("--tokens 1T --set rampup_batch_size=32", "three numbers are needed"),
        ("--tokens 1T --set rampup_batch_size=3,4,5", "the batch does not reach global_batch_size=16"),
        ("--tokens 1T --set rampup_batch_size=1,1,5", "the first batch 1 is no multiple of micro_batch_size*dp=2"),
        ("--tokens 1M --set rampup_batch_size=4,4,5000", "the batch grows over 20480000 tokens, and the run has 1000000"),
        ("--steps 100 --set rampup_batch_size=4,4,5000", "the batch grows over 764 steps, and the run has 100"),
        ("--days 0.001 --set rampup_batch_size=4,4,5000", "rampup_batch_size: the batch grows over 764 steps, and the run has "),
        ("--set mtbf=1h", "--set mtbf is of a run, and nothing says how long it is"),
        ("--tokens 1T --set mtbff=1h", "did you mean 'mtbf'"),
    ],
)
def test_what_cannot_be_is_one_sentence(given: str, said: str) -> None:
    done = in_process.run("run", *ASKED, *given.split())
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr and done.stderr.count("\n") == 1


def test_a_run_needs_a_system_and_a_quantity_of_it_a_run(tmp_path: Path) -> None:
    assert "give one with -y" in in_process.run("run", MODEL, "--tokens", "1T").stderr
    with pytest.raises(InputError, match="run.days needs a run: "):
        derive(MODEL, STRATEGY, system=SYSTEM).value("run.days")
    swept = in_process.run("sweep", *ASKED, "--axis", "micro_batch_size=1,2", "--columns", "run.days", "-o", str(tmp_path / "a.csv"))
    assert swept.returncode == 2 and "run.days needs a run: --set tokens=15T" in swept.stderr
    grown = in_process.run("sweep", *ASKED, "--axis", "dp=1,2", "--set", "tokens=1T", "--set", "rampup_batch_size=4,4,16")
    assert grown.returncode == 2 and "a grid has no batch that grows" in grown.stderr


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.25, "250 ms"), (59, "59 s"), (60, "1 min"), (3599.9, "1 h"), (7322, "2 h 2 min"), (84700, "23 h 32 min")),
        *((86399, "1 d"), (10216800, "118 d 6 h")),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_small_run_is_in_smaller_units_and_errors_name_what_was_given() -> None:
    told = in_process.run("run", "smollm2-135m", "-y", "h100-sxm", "--tokens", "10M", "--json")
    numbers = json.loads(told.stdout)["run"]
    text = in_process.run("run", "smollm2-135m", "-y", "h100-sxm", "--tokens", "10M").stdout
    for name, unit, value in (("energy", "kWh", numbers["energy_mwh"] * 1000), ("CO2", "kg", numbers["co2_kg"])):
        (row,) = (line.split() for line in text.splitlines() if line.startswith(f"  {name} "))
        assert row[2] == unit and float(row[1]) == pytest.approx(value, rel=1e-3)
    for given, said in (
        (["--tokens", "-5"], "--tokens=-5 is not read"),
        (["--days", "0"], "--days=0: it lies"),
        (["--set", "tokens=x"], "--set tokens=x"),
    ):
        assert in_process.run("run", "smollm2-135m", "-y", "h100-sxm", *given).stderr.startswith(f"symsim: {said}")


@pytest.mark.long
def test_a_run_is_read_by_names_and_asked_though_it_has_billions_of_terms() -> None:
    """Its cost is a product of sums, which nobody multiplies out."""
    asked = "llama3-70b -s tp=8,pp=4,dp=4,sp=true,global_batch_size=128 -y h100-sxm --set tokens=1T".split()
    found = derive("llama3-70b", "tp=8,pp=4,dp=4,sp=true,global_batch_size=128", overrides={"tokens": "1T"}, system=SYSTEM)
    assert not found.formula("run.cost").can_inline() and found.formula("time.step").can_inline()
    # a step of many messages has as many terms as any that is read
    step = derive("llama3-70b", "tp=8,pp=4,num_microbatches=8,zero=3,dp=4,tuner_type=lora,fusion=eager", system=SYSTEM).formula("time.step")
    assert step.can_inline() and step.expand().evaluate({**step.sizes()}) == pytest.approx(step.value(step.sizes()))
    for facts in ([], ["--given", "m >= pp"]):
        assert "cost_run = world*c_chip*wall_run" in in_process.run("formula", *asked, "run.cost", *facts).stdout
    for refused in (["--inline", "all"], ["--per", "s"], ["--given", "dp -> oo"]):
        said = in_process.run("formula", *asked, "run.cost", *refused)
        assert (said.returncode, said.stdout) == (2, "") and "more than 100,000 terms" in said.stderr
    with pytest.raises(InputError, match="cost_run has more than 100,000 terms"):
        found.formula("run.cost").expand()
    (price, now) = (found.ask("needed c_chip for run.cost <= 1e6").value, found.values["c_chip"])
    assert price / now == pytest.approx(1e6 / found.value("run.cost"))


@pytest.mark.parametrize(
    ("name", "system", "settings", "said"),
    [
        ("run.cost", "h800-sxm", {}, "run.cost needs a run: --set tokens=15T"),
        ("cost_run", "h800-sxm", {}, "cost_run needs a run: --set tokens=15T"),
        ("cost_run", "h800-sxm", {"tokens": "1T"}, "cost_run needs a system with a price: --set accelerator.price="),
        ("cost_per_trillion_tokens", "h800-sxm", {}, "cost_per_trillion_tokens needs a system with a price"),
    ],
)
def test_a_name_that_is_not_there_says_what_it_needs(name: str, system: str, settings: dict[str, str], said: str) -> None:
    found = derive(MODEL, STRATEGY, overrides=settings, system=system)
    for ask in (found.value, found.formula):
        with pytest.raises(InputError, match=f"^(overrides: )?{said}|{name} needs a run: overrides"):
            ask(name)
    given = [f"--set={n}={v}" for n, v in settings.items()]
    for command in (["formula", MODEL, name], ["sweep", MODEL, "--axis", "dp=2,4", "--columns", name]):
        done = in_process.run(*command, "-s", "tp=2", "-y", system, *given)
        assert done.returncode == 2 and said in done.stderr, command
