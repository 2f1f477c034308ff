"""`symsim sweep` as its users run it: the best and the front are those of all rows, stops lose nothing, bad input is one sentence."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import in_process
import numpy as np
import pytest

import symsim
from symsim.errors import InputError
from symsim.grid.answer import Engine, answer
from symsim.grid.axes import parse_axes
from symsim.grid.conditions import evaluate, parse_any
from symsim.grid.family import families
from symsim.grid.question import ask
from symsim.grid.space import Space
from symsim.grid.sweep import Sweep, whole
from symsim.grid.variant import variants
from symsim.inputs.models import override_architecture
from symsim.program.base import read_base
from symsim.program.bounds import best_points
from symsim.program.c_kernel import compiler
from symsim.program.program import Program

ROOT = Path(__file__).resolve().parent.parent
AXES = ["tp=1,2,4,8", "sp==tp>1", "pp=1,2,4", "dp=1,2,4,8", "micro_batch_size=1:4", "num_microbatches=4:64:4"]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return in_process.run("sweep", *arguments, cwd=cwd)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "symsim", "sweep", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def made(axes: list[str] = AXES, model: str = "llama3-8b", search: str = "auto", backend: str = "numpy", **question: Any) -> Sweep:
    free, derived = parse_axes(axes)
    sweep = Sweep(Space(read_base(model, None, "h100-sxm", []), free, derived), ask(timed=True, **question), search, backend)
    sweep.prepare()
    return sweep


def largest_kept(axes: list[str]) -> int:
    """Of the arrays that a sweep's one kernel stands on, the points of the largest."""
    sweep = made(axes, by="time.step", top=1)
    assert len(sweep.groups) == 1
    return max(v.data.size for v in sweep.work(0).program.values if isinstance(v.data, np.ndarray))


def test_only_variants_with_a_program_of_their_own_keep_arrays_over_many_points() -> None:
    """What a variant has is an array over all points: of many variants they are many, of one they save the kernel its work."""
    sizes = ["micro_batch_size=1:32", "num_microbatches=32:10240:32"]
    assert largest_kept(["dp=8", *sizes]) == 32 * 320
    assert 1 < largest_kept(["dp=8", "recompute=none,selective,full", *sizes]) <= 8192


@pytest.fixture(scope="module")
def everything() -> symsim.grid.api.SweepRows:  # type: ignore[name-defined]
    shown = "time.step,memory.peak,tokens_per_second,mfu,world,time.exposed.tp,params.per_rank"
    return symsim.sweep("llama3-8b", AXES, system="h100-sxm", columns=shown)


CONDITIONS = [
    "memory.peak <= 80e9",
    "tp*pp <= 8 and dp % 2 == 0",
    "not (time.step > 10 or mfu < 0.3)",
    "time.exposed.tp == 0",
    "1 < micro_batch_size*num_microbatches <= 64",
    "memory.peak // 2**30 < 40 and ceil(world/8) != 2",
]
OBJECTIVES = ["time.step", "tokens_per_second", "-mfu", "memory.peak/80e9 + time.step", "params.per_rank", "max(time.step, 20)"]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("search", ["scan", "bounds"])
def test_the_best_are_those_of_all_rows(everything, condition, search):
    """Three objectives under each condition, every one under some, ties by place in the grid, by a scan and by bounds."""
    rows = everything.rows
    keep = np.asarray(evaluate(parse_any(condition), rows), dtype=bool)
    first = CONDITIONS.index(condition)
    for by in (OBJECTIVES + OBJECTIVES)[first : first + 3]:
        sign = -1 if by == "tokens_per_second" else 1
        value = sign * np.asarray(evaluate(parse_any(by), rows), dtype=float)
        expected = np.sort(value[keep])[:7]
        sweep = made(search=search, where=[condition], top=7, by=by)
        found = answer(sweep, Engine())
        assert found.rows is not None
        best = sign * np.asarray(evaluate(parse_any(by), {**found.rows}), dtype=float)
        np.testing.assert_allclose(best, expected, rtol=1e-12, err_msg=by)
        assert found.count == len(expected)


def test_ties_are_told_apart_by_their_place():
    """An objective that does not depend on an axis: the first positions win, whichever way the grid is walked."""
    found = [answer(made(search=s, top=11, by="params.per_rank"), Engine()).rows for s in ("scan", "bounds")]
    assert found[0] is not None and found[1] is not None
    names = ["tp", "pp", "dp", "micro_batch_size", "num_microbatches"]
    places = [list(zip(*(rows[n].tolist() for n in names))) for rows in found]
    assert places[0] == places[1] == sorted(places[0])
    assert len(set(found[0]["params.per_rank"].tolist())) == 1


@pytest.mark.parametrize("pair", [("time.step", "memory.peak"), ("tokens_per_second", "memory.peak"), ("mfu", "world"), ("params.per_rank", "world")])
def test_the_front_is_that_of_all_rows(everything, pair):
    signs = [-1 if name in ("tokens_per_second", "mfu") else 1 for name in pair]
    values = [s * everything.rows[n].astype(float) for s, n in zip(signs, pair)]
    points = sorted(set(zip(*(v.tolist() for v in values))))
    front, best = [], float("inf")
    for one, two in points:
        if two < best:
            front.append((one, two))
            best = two
    found = answer(made(pareto=",".join(pair)), Engine())
    assert found.rows is not None
    points = np.array([s * found.rows[n].astype(float) for s, n in zip(signs, pair)]).T
    np.testing.assert_allclose(points, np.array(front), rtol=1e-12)


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler on this machine")
@pytest.mark.parametrize("question", [{"top": 9, "by": "time.step"}, {"pareto": "mfu,memory.peak"}])
def test_a_compiled_kernel_gives_the_same(question):
    axes = ["tp=2,4,8", "sp=true", "pp=2,4", "dp=2,4,8", "micro_batch_size=1:4", "num_microbatches=4:64:4"]
    where = ["memory.peak <= 60e9 and world % 8 == 0"]
    one, two = (answer(made(axes, backend=b, search="scan", where=where, **question), Engine(workers=2)) for b in ("numpy", "c"))
    assert one.rows is not None and two.rows is not None and one.count == two.count > 1
    for name, values in one.rows.items():
        np.testing.assert_array_equal(values, two.rows[name], err_msg=name)


def test_no_compiler_is_a_sentence_or_no_matter(tmp_path):
    axes = ["--axis=tp=2,4", "--axis=sp=true", "--axis=num_microbatches=1:20000"]
    env = {**environment(), "CC": "false", "SYMSIM_CACHE": "off"}
    done = subprocess.run(command("llama3-8b", "-y", "h100-sxm", *axes, "--backend", "c"), capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--backend numpy needs no compiler" in done.stderr
    done = subprocess.run(command("llama3-8b", "-y", "h100-sxm", *axes), capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0 and "tokens/s" in done.stdout


def test_bounds_on_a_function_that_is_none_of_ours():
    """Intervals of every operation: best-first search on random programs gives what looking at every point gives."""
    rng = np.random.default_rng(5)
    for trial in range(40):
        program = Program((5, 6, 7, 8), small=1)
        leaves = [program.array(rng.uniform(-2, 3, [n if k == a else 1 for k in range(4)])) for a, n in enumerate(program.sizes)]
        values = list(leaves)
        for _ in range(12):
            a, b = (values[k] for k in rng.integers(0, len(values), 2))
            op = str(rng.choice(["add", "sub", "mul", "max", "min", "abs", "ceil", "floor", "where", "mod"]))
            if op in ("abs", "ceil", "floor"):
                values.append(program.apply(op, a))
            elif op == "where":
                values.append(program.where(program.apply("lt", a, b), a, leaves[trial % 4]))
            elif op == "mod":
                values.append(program.apply("mod", a, program.number(float(rng.choice([1.5, -1.5])))) if trial % 2 else program.apply("mod", a, b))
            else:
                values.append(program.apply(op, a, b))
        wanted = program.apply("or", program.apply("le", values[-2], values[-3]), program.apply("not", program.apply("eq", values[-1], values[-4])))
        objective = program.total([(values[-1], 1), (values[-5], 1)])
        found = best_points(program, objective, wanted, 9, patient=True)
        assert found is not None
        whole = Program(program.sizes, small=1 << 20)
        exact, keep = (replayed(whole, v) for v in (objective, wanted))
        data = np.broadcast_to(np.asarray(exact.data, dtype=float), program.sizes).reshape(-1)
        # what is no number is never among the best
        numbers = np.flatnonzero(np.broadcast_to(np.asarray(keep.data, dtype=bool), program.sizes).reshape(-1) & ~np.isnan(data))
        data = data[numbers]
        order = np.argsort(data, kind="stable")[:9]
        np.testing.assert_array_equal(found.values, data[order], err_msg=str(trial))
        assert np.ravel_multi_index(tuple(found.positions.T), program.sizes).tolist() == numbers[order].tolist(), trial


def replayed(program: Program, value: Any) -> Any:
    if isinstance(value.data, np.ndarray):
        return program.array(value.data)
    if value.known:
        return program.number(value.data)
    return program.apply(value.op, *(replayed(program, a) for a in value.args))


def test_rows_of_a_file_are_those_of_python(tmp_path, everything):
    done = run("llama3-8b", "-y", "h100-sxm", *(f"--axis={a}" for a in AXES), "-o", "all.csv", "--columns", "time.step,memory.peak", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(everything)
    assert [float(r["time.step"]) for r in rows] == everything.rows["time.step"].tolist()
    assert [int(r["memory.peak"]) for r in rows] == everything.rows["memory.peak"].tolist()
    assert {r["sp"] for r in rows} == {"true", "false"}


def test_a_parquet_file_says_what_it_holds(tmp_path):
    import pyarrow.parquet as parquet

    done = run("llama3-8b", "-y", "h100-sxm", "--axis=tp=1,2", "--axis=dp=1,2", "--fits", "-o", "x.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    schema = parquet.read_schema(tmp_path / "x.parquet")
    assert schema.field("memory.peak").metadata == {b"unit": b"byte", b"meaning": b"peak memory of the fullest rank"}
    assert schema.metadata[b"symsim.model"] == b"llama3-8b"
    assert json.loads(schema.metadata[b"symsim.axes"]) == ["tp=1,2", "dp=1,2"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_options_are_columns_of_a_file_beside_what_varies(tmp_path, suffix):
    import pyarrow.csv
    import pyarrow.parquet

    asked = ["llama3-8b", "-s", "dp=2,zero=0", "--axis=micro_batch_size=1,2", "--axis=recompute=none,full"]
    shown = "recompute,memory.peak,schedule,dp,zero,assume.causal,N"
    done = run(*asked, "--columns", shown, "-o", f"x.{suffix}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = (pyarrow.csv.read_csv if suffix == "csv" else pyarrow.parquet.read_table)(tmp_path / f"x.{suffix}").to_pylist()
    assert [(str(r["zero"]), r["schedule"], r["dp"], r["recompute"]) for r in table] == [
        ("0", "1f1b", 2, r) for r in ("none", "full", "none", "full")
    ]
    assert len({r["memory.peak"] for r in table}) == 4 and {r["N"] for r in table} == {8030261248}
    printed = run(*asked, "--columns", shown, "--json", cwd=tmp_path)
    assert {(r["memory.peak"], r["recompute"]) for r in json.loads(printed.stdout)} == {(r["memory.peak"], r["recompute"]) for r in table}


LONG = [*AXES[:-1], "num_microbatches=1:200", "seq_length=1024:16384:1024"]


@pytest.mark.long
@pytest.mark.parametrize(("suffix", "asked"), [("csv", ["--columns", "time.step"]), ("parquet", ["--top", "50", "--by", "mfu", "--search", "scan"])])
def test_ten_kills_and_resumes_give_the_same_file(tmp_path, suffix, asked):
    axes = [f"--axis={a}" for a in (LONG if suffix == "parquet" else [*AXES[:-1], "num_microbatches=1:400"])]
    arguments = ["llama3-8b", "-y", "h100-sxm", *axes, *asked]
    began = time.perf_counter()
    subprocess.run(command(*arguments, "-o", f"whole.{suffix}"), cwd=tmp_path, env=environment(), check=True, capture_output=True)
    lasts = time.perf_counter() - began
    output, rng = tmp_path / f"cut.{suffix}", random.Random(suffix)
    parts = tmp_path / f"cut.{suffix}.parts"
    for _ in range(10):
        process = subprocess.Popen(command(*arguments, "-o", output.name, "--resume"), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0.2, 1.0) * lasts)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if output.exists():
            break
    # a kill may also fall between the file's appearing and the parts' going
    if not output.exists() or parts.exists():
        done = run(*arguments, "-o", output.name, "--resume", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert output.read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [output.name, f"whole.{suffix}"]


def test_a_kill_after_the_file_is_there_and_before_its_parts_are_gone(tmp_path, monkeypatch):
    from symsim.grid.store import BlockStore

    class Killed(BaseException):
        pass

    def killed(store: BlockStore) -> None:
        raise Killed

    sweep, output = made(columns="time.step", everything=True), tmp_path / "x.csv"
    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(BlockStore, "discard", killed)
        answer(sweep, Engine(), output=output)
    whole_file = output.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.csv", "x.csv.parts"]
    answer(sweep, Engine(), output=output, resume=True)
    assert output.read_bytes() == whole_file and [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_a_stop_by_the_keyboard_keeps_what_is_done(tmp_path):
    axes = [f"--axis={a}" for a in [*AXES[:-1], "num_microbatches=1:8000"]]
    arguments = ["llama3-8b", "-y", "h100-sxm", *axes, "-o", "x.csv"]
    process = subprocess.Popen(command(*arguments), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True)
    parts = tmp_path / "x.csv.parts"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(parts.glob("*.part")) if parts.exists() else []) < 2:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said, said
    assert list(parts.glob("*.part")) and not (tmp_path / "x.csv").exists()


def test_dask_gives_the_same_though_a_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the dask engine needs the package distributed")
    axes = [*AXES[:-1], "num_microbatches=1:300", "seq_length=128:4096:128"]
    alone = answer(made(axes, top=20, by="time.step/(num_microbatches*micro_batch_size*dp)"), Engine())
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        sweep = made(axes, top=20, by="time.step/(num_microbatches*micro_batch_size*dp)")
        killed: list[int] = []

        def progress(what: str, done: float, total: float) -> None:
            if done and not killed:
                worker = next(iter(cluster.workers.values()))
                killed.append(worker.pid)
                os.kill(worker.pid, signal.SIGKILL)

        found = answer(sweep, Engine("dask", cluster.scheduler_address), progress=progress)
    assert killed and len(sweep.parts) > 4
    assert alone.rows is not None and found.rows is not None
    for name, values in alone.rows.items():
        np.testing.assert_array_equal(values, found.rows[name], err_msg=name)


def test_dask_runs_every_part_where_there_are_more_than_are_sent_at_once(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the dask engine needs the package distributed")
    axes = ["schedule=1f1b,gpipe,zb_h1,zb_h2", "tp=1,2,4,8", "dp=1,2,4,8", "pp=2,4", "num_microbatches=12:1200:12"]
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=50) as cluster:
        sweep = made(axes, columns="time.step", everything=True)
        answer(sweep, Engine("dask", cluster.scheduler_address), output=tmp_path / "far.csv")
    assert len(sweep.parts) > 3
    answer(made(axes, columns="time.step", everything=True), Engine(), output=tmp_path / "near.csv")
    assert (tmp_path / "far.csv").read_bytes() == (tmp_path / "near.csv").read_bytes()


ON_H100 = ["llama3-8b", "-y", "h100-sxm"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (ON_H100, "needs an axis"),
        ([*ON_H100, "--axis", "tpp=1,2"], "did you mean 'tp'?"),
        ([*ON_H100, "--axis", "tp="], "tp"),
        ([*ON_H100, "--axis", "tp=8:1"], "8:1"),
        ([*ON_H100, "--axis", "tp=a,b"], "tp"),
        ([*ON_H100, "--axis", "tp=1,-2"], "tp"),
        ([*ON_H100, "--axis", "tp=1,2", "--axis", "tensor_model_parallel_size=4"], "vary the same setting"),
        ([*ON_H100, "--axis", "tp=3,5"], "none of the 2 configurations can run; of the first: tp=3 does not divide"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "__import__('os').system('touch x')"], "--where"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "memory.peek < 5"], "did you mean 'memory.peak'?"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "tp + 1"], "--where"),
        ([*ON_H100, "--axis", "tp=1,2", "--by", "mfu2"], "did you mean 'mfu'?"),
        ([*ON_H100, "--axis", "tp=1,2", "--columns", "mfu,speed"], "there is no quantity 'speed'"),
        ([*ON_H100, "--axis", "tp=1,2", "--pareto", "mfu"], "two quantities"),
        ([*ON_H100, "--axis", "tp=1,2", "--top", "0"], "--top 0"),
        ([*ON_H100, "--axis", "tp=1,2", "--top", "3", "--pareto", "mfu,world"], "does not go together"),
        ([*ON_H100, "--axis", "tp=1,2", "--resume"], "name it with -o"),
        ([*ON_H100, "--axis", "tp=1,2", "-o", "x.txt"], ".parquet or .csv"),
        ([*ON_H100, "--axis", "tp=1,2", "-o", "no/such/x.csv"], "there is no directory"),
        ([*ON_H100, "--axis", "tp=1,2", "--search", "guess"], "--search guess"),
        ([*ON_H100, "--axis", "tp=1,2", "--engine", "spark"], "--engine spark"),
        ([*ON_H100, "--axis", "tp=1,2", "--scheduler", "tcp://x:1"], "belongs to --engine dask"),
        ([*ON_H100, "--axis", "tp=1,2", "--workers", "0"], "--workers 0"),
        ([*ON_H100, "--axis", "system=h100-sxm,h1000"], "no system or file is named 'h1000'"),
        ([*ON_H100, "--axis", "tp=1,2", "--axis", "dp=world/(tp*qq)"], "there is no axis or setting 'world': --axis world=128 gives it"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "time.step < 1 GB"], "--where: 'time.step < 1 GB': time.step is in seconds, and 1 GB in bytes"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "tp > 1 or 5 s < memory.peak"], "5 s is in seconds, and memory.peak in bytes"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "time.step/2 + 3 GiB > 2 s and tp > 1"], "time.step/2 is in seconds, and 3 GiB in bytes"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "not max(t_step, memory.peak) < 2 s"], "t_step is in seconds, and memory.peak in bytes"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "world*seq_length > 3 or tp > 2 s"], "tp is in no unit, and 2 s in seconds"),
        ([*ON_H100, "--axis", "tp=1,2", "--where", "world*seq_length > 3 ms or tp > 2"], "world*seq_length is in no unit, and 3 ms in seconds"),
        ([*ON_H100, "--axis", "tp=1,2", "--axis", "dp==dp*2"], "it stands on itself"),
        (["llama3-8b", "--axis", "tp=1,2", "--by", "mfu"], "mfu needs a system: give one with -y"),
        (["llama3-8b", "--axis", "tp=1,2", "--fits"], "name its system with -y"),
        (["llama3-8b", "--axis", "B_2=1e9,2e9"], "none is named: give one with -y"),
        ([*ON_H100, *(f"--axis={n}=1:100000" for n in ("b", "m", "s")), "-o", "x.parquet"], "too many rows for a file"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, arguments, expected):
    done = run(*arguments, cwd=tmp_path)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and lines[0].startswith("symsim: "), done.stderr
    assert expected in lines[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--where", "tp"], "compares a number with true or false"),
        (["--where", "schedule > 1"], "uses text where a number is needed"),
        (["--where", "sp == 1"], "compares true or false with a number"),
        (["--where", "schedule == 'foo'"], "schedule is never 'foo'"),
        (["--where", "assume.causal == 'ful'"], "did you mean 'full'?"),
        (["--where", "global_batch_size > 1"], "global_batch_size is not given"),
        (["--where", "time.exposed.ddp < 1"], "did you mean 'time.exposed'?"),
        (["--by", "schedule"], "a number is needed, and this is text"),
        (["--by", "sp"], "a number is needed, and this is true or false"),
        (["--columns", "mfu,,world"], "a name is missing"),
        (["--set", "tp=8"], "--set tp and --axis tp give the same setting"),
        (["--axis", "schedule==tp"], "schedule cannot be 1"),
        (["--axis", "sp==tp"], "sp cannot be 1"),
        (["--axis", "dp==schedule"], "dp would be text"),
        (["--axis", "m=gbs/dp"], "gbs is not given"),
        (["--axis", "accelerator.memory=10e9"], "--axis accelerator.memory"),
        (["--axis", "s=1,10000000000000"], "more than the largest value that a grid takes"),
        (["-s", "dp=4", "--axis", "world=8,16"], "dp=4 is given too"),
        (["-o", "x.csv", "--json"], "give one of the two"),
    ],
)
def test_what_a_name_holds_is_checked(tmp_path, arguments, expected):
    done = run(*ON_H100, "--axis", "tp=1,2", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert expected in done.stderr and list(tmp_path.iterdir()) == []


def rows_of(model: str, axes: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    found = symsim.sweep(model, axes, system="h100-sxm", **more)
    return [{n: v[k] for n, v in found.rows.items()} for k in range(len(found))]


def test_derived_options_are_derivations_of_their_own():
    """An option that follows from another axis: the numbers are those of the option given outright."""
    for row in rows_of("llama3-8b", {"dp": [2, 4], "zero": "dp-1"}, columns="memory.peak"):
        fixed = rows_of("llama3-8b", {"dp": [int(row["dp"])]}, overrides={"zero": int(row["dp"]) - 1}, columns="memory.peak")
        assert fixed[0]["memory.peak"] == row["memory.peak"]
    halves = rows_of(
        "llama3-8b", {"dp": [2, 4], "optimizer_offload_fraction": "1/dp"}, strategy="use_precision_aware_optimizer=true,optimizer_cpu_offload=true"
    )
    assert len(halves) == 2


def test_layers_are_cut_in_several_ways_by_one_derivation():
    """Which layers a stage has is in its numbers alone; a column says which way it is."""
    ends = {f"account_for_{end}_in_pipeline_split": [False, True] for end in ("embedding", "loss")}
    axes, _ = parse_axes(["pp=2,3", *(f"{name}=false,true" for name in ends)])
    space = Space(read_base("llama3-8b", "tp=2,sp=true", "h100-sxm", {}), axes)
    (one,) = (one for family in families(space) for one in variants(family))
    # the formulas of a pipeline whose stages may differ, which hold for all
    assert all(getattr(one.asked.strategy, name) for name in ends)
    rows = rows_of("llama3-8b", {"pp": [3], **ends}, columns="memory.peak", where="account_for_loss_in_pipeline_split == true")
    assert len({r["memory.peak"] for r in rows}) == 2 and all(r["account_for_loss_in_pipeline_split"] for r in rows)
    fixed = rows_of("llama3-8b", {"pp": [3]}, overrides={n: True for n in ends}, columns="memory.peak")
    assert fixed[0]["memory.peak"] == next(r["memory.peak"] for r in rows if r["account_for_embedding_in_pipeline_split"])


def test_data_ranks_follow_from_experts_unless_given():
    assert [r["world"] for r in rows_of("mixtral-8x7b", {"ep": [1, 2, 4]})] == [1, 2, 4]
    assert [r["world"] for r in rows_of("mixtral-8x7b", {"ep": [1, 2, 4]}, strategy="dp=4")] == [4, 4, 4]


def test_the_memory_of_the_accelerator_can_vary():
    rows = rows_of("llama3-8b", {"accelerator.memory": ["100 GB", "200 GB"]}, fits=True, columns="memory.capacity")
    assert [r["memory.capacity"] for r in rows] == [200_000_000_000]


def test_an_imbalance_beyond_the_ranks_cannot_run():
    assert [r["lam"] for r in rows_of("mixtral-8x7b", {"lam": [1, 4, 5]}, strategy="ep=4,dp=4")] == [1, 4]


def test_architectures_vary_together(tmp_path):
    (tmp_path / "sizes.csv").write_text("hidden_size,mlp.ffn_hidden_size\n4096,14336\n8192,28672\n")
    found = symsim.sweep("llama3-8b", [f"@{tmp_path / 'sizes.csv'}", "tp=1,2"], columns="params.total")
    outright = override_architecture(symsim.load_model("llama3-8b"), {("hidden_size",): 8192, ("mlp", "ffn_hidden_size"): 28672})
    expected = [symsim.derive(m, symsim.load_strategy()).value("N") for m in (symsim.load_model("llama3-8b"), outright)]
    assert sorted(set(found.rows["params.total"].tolist())) == expected


def test_an_unfinished_sweep_of_another_system_is_refused(tmp_path):
    """The file of a system is part of what a sweep is."""
    system = tmp_path / "mine.yaml"
    text = (ROOT / "models" / "systems" / "h100-sxm.yaml").read_text()
    system.write_text(text)
    arguments = ["llama3-8b", "-y", "mine.yaml", *(f"--axis={a}" for a in [*AXES[:-1], "num_microbatches=1:2000"]), "-o", "x.csv"]
    process = subprocess.Popen(command(*arguments), cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    parts = tmp_path / "x.csv.parts"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (parts.exists() and list(parts.glob("*.part"))):
        time.sleep(0.02)
    process.kill()
    process.wait()
    system.write_text(text.replace("3.35 TB/s", "3.36 TB/s"))
    assert system.read_text() != text
    done = run(*arguments, "--resume", cwd=tmp_path)
    assert done.returncode == 2 and "other options" in done.stderr


def test_a_network_that_ends_is_a_rule(tmp_path):
    """Points with more ranks than the system joins cannot run, whichever is looked at first and whatever is kept on disk."""
    text = (ROOT / "models" / "systems" / "h100-sxm.yaml").read_text()
    (tmp_path / "small.yaml").write_text(text.replace("ranks: all", "ranks: 64"))
    found = symsim.sweep("llama3-8b", {"dp": [128, 8, 64]}, system=str(tmp_path / "small.yaml"))
    assert sorted(found.rows["dp"].tolist()) == [8, 64]


def test_tiers_vary_together(tmp_path):
    """Numbers of ranks that do not fit each other are points that cannot run."""
    text = (ROOT / "models" / "systems" / "h100-sxm.yaml").read_text()
    (tmp_path / "small.yaml").write_text(text.replace("ranks: all", "ranks: 64"))
    found = symsim.sweep("llama3-8b", {"R_1": [4, 16], "R_2": [8, 32], "dp": [8]}, system=str(tmp_path / "small.yaml"))
    assert sorted(zip(found.rows["R_1"].tolist(), found.rows["R_2"].tolist())) == [(4, 8), (4, 32), (16, 32)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("tp > 1 and tp < 8 and tp != 4", [2]),
        ("tp == 1 or tp == 2 or tp == 8", [1, 2, 8]),
        ("0 < tp < 9 != 10 > tp*2", [1, 2, 4]),
        ("max(1, 2, tp) == 2", [1, 2]),
    ],
)
def test_conditions_join_more_than_two(condition, expected):
    found = symsim.sweep("llama3-8b", {"tp": [1, 2, 4, 8]}, where=condition, columns="world")
    assert sorted(found.rows["tp"].tolist()) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("(tp-4)//2 == -1", [2]), ("ceil(0-tp) == 0-tp", [1, 2, 4, 8]), ("floor(0-tp/2) == -1", [1, 2]), ("tp % -3 < 0", [1, 2, 4, 8])],
)
def test_negative_numbers_round_as_numbers_do(condition, expected):
    found = symsim.sweep("llama3-8b", {"tp": [1, 2, 4, 8]}, where=condition, columns="world")
    assert sorted(found.rows["tp"].tolist()) == expected


def test_what_is_no_number_beats_nothing():
    """A quotient by zero is neither among the best nor on a front, and hides nothing behind it."""
    found = answer(made(["tp=2,4,8", "sp=true", "dp=2,4"], pareto="world,memory.peak % (tp-2)"), Engine())
    assert found.rows is not None and found.rows["tp"].tolist() == [4] and found.rows["dp"].tolist() == [2]
    best = answer(made(["tp=2,4,8", "sp=true"], top=3, by="tp % (tp-2)"), Engine())
    assert best.rows is not None and 2 not in best.rows["tp"].tolist()


def test_counts_are_whole_to_the_last_digit():
    values = np.array([2.0**50, 2.0**52 + 1, 7.0, 7 - 1e-9, 7 + 1e-9, 7.01, 0.0])
    assert whole(values).tolist() == [2**50, 2**52 + 1, 7, 7, 7, 8, 0]


def test_more_sequences_than_an_integer_holds_cannot_run():
    sizes = {"micro_batch_size": [1, 2**40], "dp": [1, 10**6], "global_batch_size": [64, 2**40]}
    found = symsim.sweep("llama3-8b", sizes, columns="world")
    expected = [(b, d, g) for b in sizes["micro_batch_size"] for d in sizes["dp"] for g in sizes["global_batch_size"] if g % (b * d) == 0]
    assert sorted(zip(*(found.rows[n].tolist() for n in sizes))) == sorted(expected)


@pytest.mark.parametrize(
    ("by", "largest"),
    [
        ("mfu", True),
        ("tokens_per_second/world", True),
        ("world/tokens_per_second", False),
        ("-tokens_per_second/world", False),
        ("time.step*world", False),
        ("-time.step", True),
        ("mfu - memory.peak/1e12", True),
        ("mfu + time.step", False),
        ("world", False),
        ("1/time.step", True),
        ("time.step**-1", True),
    ],
)
def test_which_end_is_best(by, largest):
    assert ask(timed=True, top=1, by=by).largest == (largest,)


def test_an_expression_is_shown_with_its_value():
    found = answer(made(["tp=1,2,4,8", "sp==tp>1"], top=3, by="tokens_per_second/world"), Engine())
    assert found.rows is not None
    values = found.rows["tokens_per_second/world"]
    np.testing.assert_allclose(values, found.rows["tokens_per_second"] / found.rows["world"], rtol=1e-12)
    assert values.tolist() == sorted(values.tolist(), reverse=True)


def test_a_sweep_in_python_is_refused_like_one_in_a_shell():
    with pytest.raises(InputError, match="did you mean 'tp'"):
        symsim.sweep("llama3-8b", {"tpp": [1, 2]})


def test_xarray_has_every_point_at_its_place():
    pytest.importorskip("xarray", reason="to_xarray needs the package xarray")
    found = symsim.sweep("llama3-8b", {"tp": [1, 2, 3], "dp": [1, 2], "sp": "tp>1"}, system="h100-sxm")
    data = found.to_xarray()
    assert data["time.step"].shape == (3, 2) and data["time.step"].attrs["units"] == "s"
    assert bool(data["time.step"].sel(tp=3).isnull().all()) and not bool(data["time.step"].sel(tp=2).isnull().any())
    at = (found.rows["tp"] == 2) & (found.rows["dp"] == 2)
    assert float(data["memory.peak"].sel(tp=2, dp=2)) == found.rows["memory.peak"][at][0]


def test_a_front_takes_an_axis_as_a_column_too(tmp_path):
    arguments = ["--axis=zero=0,1", "--axis=schedule=1f1b,gpipe", "--axis=pp=1,2", "--pareto", "params.per_rank,time.step"]
    assert run(*ON_H100, *arguments, "--columns", "zero,schedule,hfu", "-o", "x.csv", cwd=tmp_path).returncode == 0
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert rows and {r["zero"] for r in rows} <= {"0", "1"} and {r["schedule"] for r in rows} <= {"1f1b", "gpipe"}


EXPERTS = "tp=2,sp=true,pp=4,vpp=2,dp=8,ep=4,num_microbatches=16"


@pytest.mark.parametrize(
    ("model", "base", "name", "value"),
    [
        # sizes and degrees that follow from others where they are not given
        ("mixtral-8x7b", EXPERTS, "microbatch_group_size_per_vp_stage", 8),
        ("mixtral-8x7b", EXPERTS, "etp", 1),
        # symbols that stages have under one of the values alone
        ("llama3-8b", "tp=4,pp=2,num_microbatches=8,recompute=full", "num_microbatches_with_partial_activation_checkpoints", 1),
        ("llama3-8b", "tp=4,pp=2,num_microbatches=8", "assume.pipeline_scatter_gather", True),
        # null is the strategy's, though the model has a key of that name
        ("llama3-8b", "tp=4,pp=2,num_microbatches=8", "mtp_num_layers", 1),
    ],
)
def test_what_is_given_at_one_of_two_points(model: str, base: str, name: str, value: Any):
    """Rows that one program computes together are those of each evaluation; `null` along an axis: not given there."""
    values = ([False, True], ["false", "true"]) if value is True else ([None, value], [None, value])
    rows = rows_of(model, {name: values[0]}, strategy=base)
    assert len(rows) == 2
    for row, given in zip(sorted(rows, key=lambda row: str(row[name]) not in ("null", "False")), values[1]):
        alone = symsim.derive(model, base, overrides={} if given is None else {name: given}, system="h100-sxm")
        assert row["time.step"] == pytest.approx(float(alone.value("time.step")), rel=1e-12)
        assert row["memory.peak"] == alone.value("memory.peak")


@pytest.mark.parametrize(
    ("model", "base", "name", "values"),
    [
        # peak rates, a capacity of experts: numbers that follow from an option, of variants that one program computes
        ("llama3-8b", "tp=4,num_microbatches=8", "precision", ["bf16", "fp32"]),
        ("deepseek-v3", "tp=2,sp=true,ep=8,num_microbatches=8", "fp8", ["none", "blockwise"]),
        ("mixtral-8x7b", "ep=8,num_microbatches=8,moe_pad_expert_input_to_capacity=true", "moe_expert_capacity_factor", [1.0, 2.0]),
        # true is another value than 1
        ("llama3-8b", "zero=3,dp=8,num_microbatches=8,fusion=eager", "reshard_after_forward", [True, 1]),
    ],
)
def test_an_option_moves_what_follows_from_it_in_a_grid(model: str, base: str, name: str, values: list[Any]):
    rows = rows_of(model, {name: values}, strategy=base)
    made = []
    for value in values:
        alone = symsim.derive(model, base, overrides={name: value}, system="h100-sxm")
        made.append((pytest.approx(float(alone.value("time.step")), rel=1e-12), alone.value("memory.peak")))
    assert [(row["time.step"], row["memory.peak"]) for row in rows] == made
    assert len({row["memory.peak"] for row in rows}) == 2
