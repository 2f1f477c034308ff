"""`symsim anchor`: what was measured moves a system's numbers, and no more than it has to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from in_process import run

import symsim
from symsim.calibration.anchor import Anchor
from symsim.calibration.steps import KERNELS
from symsim.evaluation.interval import moves
from symsim.inputs.spreads import stored

MODEL, PLAN, SYSTEM = "llama3-8b", "tp=2,pp=2,num_microbatches=4", "h100-sxm"
STEP = 1.06  # times what is predicted


@pytest.fixture(scope="module")
def before() -> Any:
    return symsim.derive(MODEL, PLAN, system=SYSTEM)


@pytest.fixture(scope="module")
def found(before: Any) -> Anchor:
    return symsim.anchor(MODEL, PLAN, SYSTEM, step=STEP * before.value("time.step"))


def test_the_step_is_met_and_carried_on(before: Any, found: Anchor, tmp_path: Path) -> None:
    found.write(tmp_path / "mine.yaml")
    after = symsim.derive(MODEL, PLAN, system=tmp_path / "mine.yaml")
    assert after.value("time.step") == pytest.approx(STEP * before.value("time.step"), rel=1e-4)
    # of another plan on the same machine the most part follows
    plans = [symsim.derive(MODEL, "tp=4,num_microbatches=4", system=system).value("time.step") for system in (SYSTEM, found.system)]
    assert 1.03 < plans[1] / plans[0] < 1.09
    assert after.system.name == "mine" and f"{MODEL} {PLAN}" in after.system.sources["anchored"]


def test_it_is_the_least_change_that_explains_the_step(before: Any, found: Anchor) -> None:
    # at the least |z| that gives a change of the step's logarithm z is along what moves it, to first order
    small = symsim.anchor(MODEL, PLAN, SYSTEM, step=1.0005 * before.value("time.step"))
    moved: dict[str, float] = {"machine": stored().of("machine", "")}
    for (kind, tag), move in moves(before).items():
        if kind != "bubble":
            moved[kind] = moved.get(kind, 0.0) + move * stored().of(kind, tag)
    square = sum(x * x for x in moved.values())
    for kind, by in small.off.items():
        assert by == pytest.approx(math.log(1.0005) * moved[kind] / square, rel=0.02), kind
    assert found.off["memory"] > small.off["memory"] > 0


def test_the_interval_narrows(before: Any, found: Anchor) -> None:
    """Beside that of the same numbers not measured; a longer step, of which more is memory's, may be less sure than it was before."""
    (entry,) = found.system.anchored
    systems = found.system, found.system.model_copy(update={"anchored": ()})
    after, unmeasured = (symsim.derive(MODEL, PLAN, system=one).interval for one in systems)
    assert after is not None and unmeasured is not None and 1 < after.high / after.low < 0.995 * unmeasured.high / unmeasured.low
    as_predicted = symsim.anchor(MODEL, PLAN, SYSTEM, step=1.0005 * before.value("time.step")).system
    same = symsim.derive(MODEL, PLAN, system=as_predicted).interval
    assert same is not None and same.high / same.low < before.interval.high / before.interval.low
    assert float(entry.step.value) == pytest.approx(STEP * before.value("time.step"), rel=1e-5) and entry.step.source == "anchored"


def test_numbers_keep_how_they_are_known_and_say_what_moved_them(found: Anchor) -> None:
    gemm = found.system.kernels.gemm.efficiency
    assert (gemm.tag, gemm.source) == ("estimated", "anchored") and gemm.value < symsim.load_system(SYSTEM).kernels.gemm.efficiency.value
    assert found.changed["kernels.gemm.efficiency"][1] == gemm.text
    # what no data sheet leaves open has not moved
    assert found.system.accelerator == symsim.load_system(SYSTEM).accelerator.model_copy(update={"fp8_share": found.system.accelerator.fp8_share})


def test_of_several_steps_each_keeps_its_own(before: Any, tmp_path: Path) -> None:
    plans = {"tp=2,pp=2,num_microbatches=4": 1.1, "tp=4,pp=1,num_microbatches=4": 1.0}
    lines = [f'"{plan}",{by * symsim.derive(MODEL, plan, system=SYSTEM).value("time.step")} s' for plan, by in plans.items()]
    (tmp_path / "runs.csv").write_text("\n".join(["strategy,step", *lines]) + "\n")
    found = symsim.anchor(MODEL, None, SYSTEM, rows=tmp_path / "runs.csv")
    errors = [one.predicted / one.seconds - 1 for one in found.after]
    assert errors[0] < -0.01 < 0.01 < errors[1] and len(found.system.anchored) == 2
    (tmp_path / "runs.yaml").write_text(
        "runs:\n" + "".join(f"  - {{strategy: '{p}', step: {line.split(',')[-1]}}}\n" for p, line in zip(plans, lines))
    )
    assert symsim.anchor(MODEL, None, SYSTEM, rows=tmp_path / "runs.yaml").off == found.off


def test_kernels_move_their_own_kind(before: Any, tmp_path: Path) -> None:
    step, made = before.step_numbers, moves(before, "t_compute")
    predicted = {k: float(step["t_compute"]) * sum(m for (kind, _), m in made.items() if kind == k) for k in KERNELS}
    (tmp_path / "kernels.csv").write_text(
        f"kind,seconds\ngemm,{predicted['gemm'] * 0.55}\ngemm,{predicted['gemm'] * 0.55}\nattention,{predicted['attention']}\n"
    )
    found = symsim.anchor(MODEL, PLAN, SYSTEM, trace=tmp_path / "kernels.csv")
    spread = stored().of("gemm", "estimated")
    assert spread * found.off["gemm"] + stored().of("machine", "") * found.off["machine"] == pytest.approx(math.log(1.1), rel=0.05)
    assert [one.predicted for one in found.after] == pytest.approx([one.seconds for one in found.after], rel=0.01)
    assert not found.system.anchored


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--step", "0s"], "above zero"),
        (["--step", "12.9"], "needs a unit"),
        (["--step", "12.9 mins"], "valid names: ms, ns, s, us"),
        (["--step", "nan s"], "above zero"),
        (["--step", "1 us"], "with every share at 1"),
        ([], "nothing is measured"),
        (["--trace", "kernels.csv"], "did you mean 'attention'"),
        (["--trace", "messages.csv"], "is a message"),
        (["--rows", "runs.csv"], "runs.csv:2: tp=3 does not divide"),
        (["--rows", "system.csv"], "numbers of the system are the same for all"),
        (["--rows", "short.csv"], "short.csv:2: 1 cells"),
        (["--rows", "steps.csv"], "no column 'step'"),
        (["--rows", "runs.txt"], ".csv or .yaml"),
        (["--rows", "list.yaml"], "should be a list of runs"),
        (["--step", "1s", "-o", "mine.txt"], "ends in .yaml"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options: list[str], said: str, tmp_path: Path) -> None:
    for name, text in {
        "kernels.csv": "kind,seconds\natention,1\n",
        "messages.csv": "kind,seconds\nall_reduce,1\n",
        "runs.csv": "tp,step\n3,1 s\n",
        "system.csv": "B_hbm,step\n3 TB/s,1 s\n",
        "short.csv": "tp,step\n3\n",
        "steps.csv": "tp,seconds\n3,1\n",
        "list.yaml": "runs: 3\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = run("anchor", MODEL, "-s", PLAN, "-y", SYSTEM, *options, cwd=tmp_path)
    assert found.returncode == 2 and said in found.stderr and found.stderr.count("\n") == 1, found.stderr


def test_no_system_and_one_at_its_best(before: Any, tmp_path: Path) -> None:
    assert "none is named" in run("anchor", MODEL, "-s", PLAN, "--step", "1s").stderr
    # a step nearly as fast as its peaks allow: shares stop at the whole, others go on
    least = symsim.anchor(MODEL, PLAN, SYSTEM, step=0.8 * before.value("time.step"))
    assert least.after[0].predicted == pytest.approx(0.8 * before.value("time.step"), rel=1e-4)
    assert max(float(k.value) for k in (least.system.kernels.gemm.efficiency, least.system.kernels.memory.elementwise)) <= 1
    said = run("anchor", MODEL, "-s", PLAN, "-y", SYSTEM, "--step", "60s").stdout
    assert "spreads off, which is rare" in said


def test_a_file_that_says_all_moves_a_system(before: Any, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(f'model,strategy,step\n{MODEL},"{PLAN}",{STEP * before.value("time.step")}s\n')
    alone = run("anchor", SYSTEM, "--measured", "runs.csv", "-o", "alone.yaml", cwd=tmp_path)
    named = run("anchor", MODEL, "-s", PLAN, "-y", SYSTEM, "--rows", "runs.csv", "-o", "named.yaml", cwd=tmp_path)
    assert alone.returncode == named.returncode == 0, alone.stderr + named.stderr
    assert alone.stdout == named.stdout and (tmp_path / "alone.yaml").read_text() == (tmp_path / "named.yaml").read_text().replace("named", "alone")
    (tmp_path / "bare.csv").write_text(f'strategy,step\n"{PLAN}",1s\n')
    for arguments, said in (
        ([SYSTEM, "--measured", "bare.csv"], "bare.csv:2: the run has no 'model'"),
        ([SYSTEM, "--measured", "runs.csv", "-s", PLAN], "each row of FILE says what ran"),
        (["h10-sxm", "--measured", "runs.csv"], "h100-sxm"),
    ):
        wrong = run("anchor", *arguments, cwd=tmp_path)
        assert wrong.returncode == 2 and said in wrong.stderr and not wrong.stdout, wrong.stderr
