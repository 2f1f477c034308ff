"""Calibration: known coefficients are found again, from each kind of file; what remains of real measurements is as documented."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from shared import SHARED

from symsim.api.cli import main
from symsim.calibration.calibrate import OPS, Calibration, Errors, calibrate, calibrated, seconds, table, write_system
from symsim.calibration.points import Point, Points, read_points
from symsim.errors import InputError
from symsim.inputs.reading import Document, parse_yaml
from symsim.inputs.settings import split_settings
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, symbol_values
from symsim.inputs.systems import load_system
from symsim.inputs.validation import validate

SYSTEM = """\
name: lab
title: a machine with round numbers
sources: {lab: made up}
accelerator:
  peak: {bf16: [1000 TFLOP/s, datasheet, lab], fp8: [2000 TFLOP/s, datasheet, lab]}
  multiprocessors: [100, datasheet, lab]
  memory: [80 GiB, datasheet, lab]
  memory_bandwidth: [4 TB/s, datasheet, lab]
kernels:
  gemm: {efficiency: [0.5, estimated, lab], exposed: [0.5, estimated, lab], start: [1 us, estimated, lab], tile: [1 us, estimated, lab]}
  grouped_gemm: {efficiency: [0.5, estimated, lab], exposed: [0.5, estimated, lab]}
  attention:
    forward: [0.5, estimated, lab]
    backward: [0.5, estimated, lab]
    uneven: [0.123, estimated, lab]
    key: [10 ns, estimated, lab]
    query: [10 ns, estimated, lab]
  memory:
    elementwise: [0.9, estimated, lab]
    permute: [0.321, estimated, lab]
    cross_entropy: [0.3, estimated, lab]
    start: [2 us, estimated, lab]
network:
  - {name: inside, ranks: 8, bandwidth: [400 GB/s, datasheet, lab], latency: [1 us, estimated, lab], launch: [9 us, estimated, lab]}
  - {name: between, ranks: all, bandwidth: [50 GB/s, datasheet, lab], latency: [9 us, estimated, lab]}
"""
TRUE = {
    "eta_gemm": 0.731,
    "phi_gemm": 0.214,
    "t_gemm": 7.31e-6,
    "t_tile": 1.23e-6,
    "eta_group": 0.562,
    "phi_group": 0.687,
    "eta_fa": 0.643,
    "eta_fab": 0.478,
    "zeta_fa": 0.391,
    "tau_fa": 2.34e-8,
    "tau_fab": 5.67e-8,
    "omega_fa": 0.456,
    "omega_fab": 0.178,
    "kappa_fa": 234,
    "phi_fa": 0.345,
    "eta_mem": 0.821,
    "eta_permute": 0.432,
    "eta_ce": 0.345,
    "t_mem": 4.56e-6,
    "alpha_1": 3.21e-6,
    "lambda_1": 1.23e-5,
    "eta_1_all_gather": 0.765,
}


def lab() -> System:
    document = parse_yaml(SYSTEM, "lab.yaml")
    return validate(System, document.data, "lab.yaml", document)


def timed(op: str, kind: str, sizes: dict[str, int], precision: str = "bf16", **changed: float) -> Point:
    """A point whose time is what the form gives with the true coefficients."""
    system = lab()
    values = {**{n: float(v) for n, v in symbol_values(system, Strategy()).items()}, **TRUE, **changed}
    exact = float(seconds(Point(op, kind, sizes, 1.0, precision), system).evaluate(values))
    return Point(op, kind, sizes, exact, precision)


def products(op: str) -> list[Point]:
    made = []
    for (m, n, k), (kind, out) in itertools.product(
        itertools.product((128, 700, 4096), (640, 2048, 8192), (64, 1000, 8192)), (("forward", 2), ("wgrad", 4))
    ):
        sizes = {"m": m, "n": n, "k": k, "width_in": 2, "width_out": out}
        made.append(timed(op, kind, sizes | ({"groups": 16} if op == "grouped_gemm" else {})))
    return made


def attentions(heads_of_two_sizes: bool) -> list[Point]:
    made = []
    for heads, s, kind, d_qk in itertools.product((1, 4, 16, 64), (1024, 4096, 16384), ("forward", "backward"), (128, 192)):
        if d_qk == 128 or heads_of_two_sizes:
            made.append(timed("attention", kind, {"b": 1, "heads": heads, "s_q": s, "n_keys": s, "d_qk": d_qk, "d_v": 128, "causal": 1}))
    for s, kind, mask in itertools.product((1024, 4096), ("forward", "backward"), ({"causal": 0}, {"causal": 1}, {"causal": 1, "window": 256})):
        made.append(timed("attention", kind, {"b": 4, "heads": 32, "groups": 8, "s_q": s, "n_keys": s, "d_qk": 64, "d_v": 64, **mask}))
    return made


def moved() -> list[Point]:
    return [timed("memory", kind, {"bytes": 10**p}) for kind in ("elementwise", "permute", "cross_entropy") for p in (5, 6, 7, 8, 9)]


def gathered() -> list[Point]:
    return [timed("all_gather", "", {"ranks": n, "bytes": 2**p}) for n in (2, 4, 8) for p in range(16, 31, 2)]


def everything() -> list[Point]:
    return [*moved(), *products("gemm"), *products("grouped_gemm"), *attentions(True), *gathered()]


def test_known_coefficients_are_found_again() -> None:
    found = calibrate(lab(), Points(tuple(everything()), {}))
    assert [fit.op for fit in found.fits] == list(OPS)
    assert found.coefficients == TRUE
    for fit in found.fits:
        assert fit.inside.worst < 1e-9
        assert fit.held_out is None or fit.held_out.worst < 1e-4


@pytest.mark.parametrize("op", ("gemm", "attention"))
def test_a_coefficient_of_nothing_is_found_to_be_nothing(op: str) -> None:
    name = {"gemm": "t_gemm", "attention": "zeta_fa"}[op]
    points = [timed(p.op, p.kind, dict(p.sizes), **{name: 0}) for p in (products("gemm") if op == "gemm" else attentions(True))]
    # what is not fitted is known
    system = lab()
    plainly = Document({**parse_yaml(SYSTEM, "lab").data}, "lab")
    plainly.data["kernels"]["memory"]["elementwise"] = ["0.821", "measured", "lab"]
    system = validate(System, plainly.data, "lab", plainly)
    found = calibrate(system, Points(tuple(points), {}), op).coefficients
    assert found == {n: 0.0 if n == name else TRUE[n] for n in found} and name in found


def test_a_coefficient_that_no_point_depends_on_keeps_its_value() -> None:
    found = calibrate(lab(), Points((*attentions(False), *[p for p in moved() if p.kind != "permute"]), {}))
    assert "zeta_fa" not in found.coefficients and "eta_permute" not in found.coefficients
    assert found.coefficients["tau_fa"] == TRUE["tau_fa"] and found.coefficients["eta_mem"] == TRUE["eta_mem"]


def test_no_share_is_above_one(tmp_path: Path) -> None:
    """Points faster than the data sheet allows (a smaller L2 hit than thought) fit the whole, and the file can be read."""
    points = [Point("memory", p.kind, p.sizes, p.seconds / 8) if p.kind == "elementwise" else p for p in moved()]
    found = calibrate(lab(), Points(tuple(points), {}), "memory")
    assert found.coefficients["eta_mem"] == 1
    write_system(tmp_path / "mine.yaml", parse_yaml(SYSTEM, "lab.yaml").data, found, "points")
    assert load_system(str(tmp_path / "mine.yaml")).kernels.memory.elementwise.value == 1


@pytest.mark.parametrize("name", ["eta_gemm", "eta_group", "eta_fa", "eta_fab", "eta_mem", "eta_permute", "eta_ce", "phi_gemm"])
def test_a_share_above_one_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="'1.01' is more than the whole"):
        load_system("h100-sxm", split_settings([f"{name}=1.01"]).system)
    assert load_system("h100-sxm", split_settings([f"{name}=1"]).system)


def test_a_few_runs_at_another_clock_move_little() -> None:
    draw = random.Random(1)  # nine coefficients stand on these: each shape is timed three times
    timed_thrice = [p for _ in range(3) for p in attentions(True)]
    noisy = [Point(p.op, p.kind, p.sizes, p.seconds * (0.7 if draw.random() < 0.15 else draw.uniform(0.98, 1.02))) for p in timed_thrice]
    (fit,) = calibrate(lab(), Points(tuple(noisy), {}), "attention").fits
    assert fit.coefficients["eta_fa"] == pytest.approx(TRUE["eta_fa"], rel=0.03)
    assert fit.coefficients["eta_fab"] == pytest.approx(TRUE["eta_fab"], rel=0.03)
    assert fit.held_out is not None and fit.inside.mean < fit.held_out.mean


def test_fp8_points_are_held_against_their_own_peak() -> None:
    points = [timed(p.op, p.kind, dict(p.sizes), "fp8", eta_mem=0.9) for p in products("gemm")]
    assert calibrate(lab(), Points(tuple(points), {})).coefficients["eta_gemm"] == TRUE["eta_gemm"]
    with pytest.raises(InputError, match="gives no Phi_fp16"):
        calibrate(lab(), Points((Point("gemm", "forward", points[0].sizes, 1e-3, "fp16"),), {}))


def test_one_operation_at_a_time() -> None:
    points = Points(tuple(everything()), {})
    assert set(calibrate(lab(), points, "memory").coefficients) == {"eta_mem", "eta_permute", "eta_ce", "t_mem"}
    with pytest.raises(InputError, match="no points of collective; it holds memory"):
        calibrate(lab(), Points(tuple(moved()), {}), "collective")


def csv_of(points: list[Point]) -> str:
    columns = ["op", "kind", "seconds", "precision", *dict.fromkeys(name for p in points for name in p.sizes)]
    rows = [[p.op, p.kind, repr(p.seconds), p.precision, *(str(p.sizes.get(c, "")) for c in columns[4:])] for p in points]
    return "\n".join(",".join(row) for row in [columns, *rows]) + "\n"


def test_a_csv_file_gives_the_same_points(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(csv_of(everything()))
    assert read_points(str(path)) == Points(tuple(everything()), {})


def test_csv_defaults(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("op,m,n,k,kind,seconds\ngemm,1,2,3,forward,1e-3\ngemm,1,2,3,wgrad,2e-3\n")
    assert [p.sizes["width_out"] for p in read_points(str(path)).points] == [2, 4]
    assert {(p.sizes["width_in"], p.precision) for p in read_points(str(path)).points} == {(2, "bf16")}


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("op,seconds,depth\n", "points.csv:1: there is no column 'depth'"),
        ("op,bytes\n", "points.csv:1: the column 'seconds' is missing"),
        ("op,seconds\n", "there are no measured points in it"),
        ("op,seconds\ngem,1\n", "points.csv:2: op 'gem' is not measured here: did you mean 'gemm'?"),
        ("op,seconds,kind,bytes\nmemory,1,scatter,8\n", "points.csv:2: kind 'scatter' of memory should be one of elementwise, permute"),
        ("op,seconds,kind,bytes\nmemory,1,permute,8\nmemory,1,permute,0\n", "points.csv:3: bytes of memory should be a whole number above zero"),
        ("op,seconds,kind,bytes\nmemory,1,permute,8.5\n", "and is '8.5'"),
        ("op,seconds,kind,bytes\nmemory,1e99,permute,8\n", "points.csv:2: seconds should be a number above zero, from 1e-15 to 1e15, and is '1e99'"),
        ("op,seconds,ranks,bytes\nall_reduce,1,2000000,8\n", "points.csv:2: ranks of all_reduce is 2000000; at most 1000000 is read"),
        ("op,seconds,ranks,bytes\np2p,1,8192,8\n", "points.csv:2: ranks of p2p is 8192; at most 4096 is read"),
        (f"op,seconds,ranks,bytes\np2p,1,2,{10**17}\n", f"points.csv:2: bytes of p2p is {10**17}; at most {10**15} is read"),
        ("op,seconds,kind,bytes\nmemory,0,permute,8\n", "points.csv:2: seconds should be a number above zero, and is '0'"),
        ("op,seconds,kind,bytes\nmemory,nan,permute,8\n", "and is 'nan'"),
        ("op,seconds,kind,bytes\nmemory\n", "points.csv:2: kind '' of memory"),
        ("op,seconds,kind,bytes\n\nmemory,1,permute,8,9\n", "points.csv:3: 5 cells, and the header names 4 columns"),
        ('op,seconds,kind,bytes\nmemory,"1"2,permute,8\n', "points.csv:2: not CSV"),
        ("op,seconds,kind,bytes,precision\nmemory,1,permute,8,int4\n", "precision 'int4' is unknown"),
        ("op,seconds,ranks,bytes\nall_reduce,1,,8\n", "ranks of all_reduce should be a whole number above zero, and is ''"),
        (
            "op,seconds,kind,b,heads,s_q,n_keys,d_qk,d_v,causal\nattention,1,forward,1,1,1,1,1,1,2\n",
            "causal of attention should be 0 or 1, and is '2'",
        ),
    ],
)
def test_what_is_wrong_with_a_csv_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_points(str(path))
    assert sentence in str(error.value)


def simumax(**tables: dict[str, float]) -> str:
    ops = {name: {"tflops": 1000, "accurate_efficient_factor": table} for name, table in tables.items()}
    bandwidth = {"default": {"gbps": 1000, "efficient_factor": 0.5, "latency_us": 30}, "ce": {"gbps": 1000, "efficient_factor": 0.25}}
    return json.dumps({"accelerator": {"op": ops, "bandwidth": bandwidth}})


def test_a_simumax_system(tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    grouped = "ng=4, M=16, N=32, K=64, dtype=bf16, out_dtype=bf16, main_grad_dtype=fp32, stage=bwd_grad_w, grad=True"
    core = "batch=2, seq_len=512, head_num=8, kv_head_num=2, qk_head_dim=192, v_head_dim=128, qkv_contiguous=True"
    path.write_text(
        simumax(
            matmul={"b=1, m=100, k=200, n=300, layout=NT, accumulate=True, out_dtype=fp32": 0.5},
            group_matmul={grouped: 0.25},
            sdp_fwd={core: 0.8},
            sdp_bwd={core: 0.4},
        )
    )
    found = read_points(str(path))
    gemm, group, forward, backward = found.points
    assert gemm == Point("gemm", "wgrad", {"m": 100, "n": 300, "k": 200, "width_in": 2, "width_out": 4}, 2 * 100 * 200 * 300 / 500e12)
    assert group.sizes == {"m": 32, "n": 64, "k": 16, "groups": 4, "width_in": 2, "width_out": 4}
    assert group.seconds == pytest.approx(2 * 4 * 16 * 32 * 64 / 250e12)
    assert forward.seconds == pytest.approx(2 * 2 * 512**2 * 8 * 320 / 800e12) and forward.sizes["causal"] == 1
    assert backward.kind == "backward" and backward.seconds == pytest.approx(5 * 2 * 512**2 * 8 * 320 / 400e12)
    assert found.bandwidths == {"elementwise": 500 * 2**30, "cross_entropy": 250 * 2**30}
    assert calibrate(lab(), found, "memory").coefficients == {"eta_mem": 0.134, "eta_ce": 0.0671}


@pytest.mark.parametrize(
    "text, sentence",
    [
        (simumax(matmul={"b=1, m=100, k=200, layout=TN": 0.5}), "matmul: 'b=1, m=100, k=200, layout=TN': not a shape of SimuMax"),
        (simumax(matmul={"b=1, m=0, k=2, n=3, layout=TN, out_dtype=bf16": 0.5}), "a size is below one"),
        (simumax(matmul={"b=1, m=1, k=2, n=3, layout=TN, out_dtype=bf16": 0.0}), "should be a number above zero, and is '0.0'"),
        ('{"accelerator": {"op": []}}', "'op' should be a mapping"),
        ('{"accelerator": {"op": {"matmul": 3}}}', "'matmul' should be a mapping"),
        ('{"accelerator": {"op": {}, "bandwidth": {"ce": 1}}}', "'ce' should be a mapping"),
        ('{"accelerator": {"op": {}, "bandwidth": {"ce": {"gbps": 1}}}}', "bandwidth: ce should be a number above zero, and is 'None'"),
        ('{"fits": {"a100": {}}}', "'a100' should end in the number of ranks"),
        ('{"fits": {"a100_8": 3}}', "'a100_8' should be a mapping"),
        (f'{{"fits": {{"a100_{"8" * 5000}": {{}}}}}}', "should end in the number of ranks"),
        ('{"fits": {"a100_9000000": {"busbw_16MB": 1.0}}}', "ranks of all_reduce is 9000000; at most 1000000 is read"),
        (f'{{"fits": {{"a100_8": {{"busbw_{10**15}MB": 1.0}}}}}}', "at most 1000000000000000 is read"),
        (simumax(matmul={f"b=1, m={10**400}, k=2, n=3, layout=TN, out_dtype=bf16": 0.5}), "at most 1000000000000000 is read"),
        ("[]", "system.json"),
    ],
)
def test_what_is_wrong_with_a_json_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "system.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_points(str(path))
    assert sentence in str(error.value)


def test_a_summary_of_all_reduces(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"fits": {"x_8": {"busbw_16MB": 100.0, "points": 3}, "y_2": {"busbw_1GB": 50.0}}}))
    (point,) = read_points(f"{path}#x").points
    assert point == Point("all_reduce", "", {"ranks": 8, "bytes": 2**24}, pytest.approx(2 * 7 / 8 * 2**24 / 100e9))
    assert len(read_points(str(path)).points) == 2
    with pytest.raises(InputError, match="no measured points"):
        read_points(f"{path}#z")


@pytest.mark.parametrize("op", ["gemm", "attention", "all_gather"])
def test_times_that_no_efficiency_explains_are_refused(tmp_path: Path, op: str) -> None:
    slow = [replace(p, seconds=p.seconds * 1e5) for p in everything() if p.op == op]
    path = tmp_path / "slow.csv"
    path.write_text(csv_of(slow))
    with pytest.raises(InputError, match="would be 0; are the times in seconds"):
        calibrate(lab(), read_points(str(path)))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(list(arguments))
    return int(leaving.value.code or 0)


def test_the_command_writes_a_system_that_predicts_the_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lab.yaml").write_text(SYSTEM)
    (tmp_path / "points.csv").write_text(csv_of(everything()))
    assert run("calibrate", str(tmp_path / "lab.yaml"), "--points", str(tmp_path / "points.csv"), "-o", str(tmp_path / "mine.yaml")) == 0
    out = capsys.readouterr()
    assert "gemm" in out.out and "held out" in out.out and "wrote" in out.err
    assert all(len(line) <= 80 for line in out.out.splitlines())
    made = load_system(str(tmp_path / "mine.yaml"))
    known = symbol_values(made, Strategy())
    assert {n: pytest.approx(float(known[n])) for n in TRUE} == TRUE
    assert made.name == "mine" and made.network[1] == lab().network[1] and made.accelerator == lab().accelerator
    assert made.kernels.gemm.efficiency.tag == "measured" and "points.csv" in made.sources[made.kernels.gemm.efficiency.source]
    # once more from there: nothing moves, and sources that nothing names any more are gone
    assert run("calibrate", str(tmp_path / "mine.yaml"), "--points", str(tmp_path / "points.csv"), "-o", str(tmp_path / "again.yaml")) == 0
    again = load_system(str(tmp_path / "again.yaml"))
    assert symbol_values(again, Strategy()) == known
    assert len(again.sources) == len(made.sources)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("lab.yaml", "--points", "none.csv"), "none.csv: no such file"),
        (("lab.yaml", "--points", "points.txt"), "measured points come in a .csv or .json file"),
        (("lab.yaml", "--points", "points.csv", "--op", "gem"), "--op gem: did you mean 'gemm'?"),
        (("lab.yaml", "--points", "points.csv", "-o", "mine.json"), "a system file ends in .yaml"),
        (("labs.yaml", "--points", "points.csv"), "labs.yaml: no such file"),
        (("lab.yaml", "--points", "points.csv", "--longer-than", "nan"), "--longer-than nan: a number of milliseconds is needed"),
        (("lab.yaml", "--points", "points.csv", "--longer-than", "9999"), "no points of any operation of 9999 ms and more; it holds memory"),
        (("lab.yaml", "--points", "other.json"), "neither a SimuMax system"),
    ],
)
def test_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.yaml").write_text(SYSTEM)
    Path("points.csv").write_text(csv_of(moved()))
    Path("other.json").write_text("{}")
    before = sorted(tmp_path.iterdir())
    assert run("calibrate", *arguments) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_a_system_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    found = calibrate(lab(), Points(tuple(moved()), {}))
    with pytest.raises(InputError, match="there is no directory .*absent"):
        write_system(tmp_path / "absent" / "mine.yaml", parse_yaml(SYSTEM, "lab.yaml").data, found, "points")
    assert "eta_mem" in table(found)


def test_short_calls_at_another_clock_are_left_out() -> None:
    # a chip that runs a third faster until its power limit is reached
    points = [Point(p.op, p.kind, p.sizes, p.seconds * (0.75 if p.seconds < 1e-4 else 1)) for p in attentions(True)]
    found = calibrate(lab(), Points(tuple(points), {}), "attention", 1e-4)
    assert found.coefficients["eta_fa"] == TRUE["eta_fa"] and found.fits[0].points == sum(p.seconds >= 1e-4 for p in points) < len(points)


def simumax_points(name: str) -> Points:
    path = SHARED / "peers" / "simumax" / "configs" / "system" / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{path.name} of ../shared is not on this machine")
    return read_points(str(path))


def per_cent(errors: Errors) -> tuple[float, float, float]:
    return round(100 * errors.mean, 1), round(100 * errors.median, 1), round(100 * errors.bias, 1)


# mean, median, error of the summed time, per cent: in sample, then held out
MEASURED = {
    ("a100-pcie-80", "a100_pcie"): {
        "gemm": ((3.7, 1.5, -0.1), (3.7, 1.6, -0.1)),
        "grouped_gemm": ((2.5, 2.7, -0.1), (3.1, 3.4, -0.2)),
        "attention": ((1.5, 1.3, -0.3), (2.2, 2.0, -0.3)),
    },
    ("b200-sxm", "b200_bf16_ceperm"): {
        "gemm": ((10.3, 4.7, -3.3), (10.3, 4.7, -3.3)),
        "grouped_gemm": ((10.7, 8.5, 0.4), (10.9, 8.6, 0.1)),
        "attention": ((6.4, 4.3, -5.5), (7.3, 4.8, -5.8)),
    },
}


@pytest.mark.parametrize("system, name", MEASURED)
def test_errors_that_remain(system: str, name: str) -> None:
    found = calibrate(load_system(system), simumax_points(name))
    assert {fit.op: (per_cent(fit.inside), per_cent(fit.held_out)) for fit in found.fits if fit.held_out} == MEASURED[system, name]


# kernels of a millisecond and more run at the sustained clock: eta, phi, then mean, median, error of the summed time
SUSTAINED = {
    ("a100-pcie-80", "a100_pcie"): (0.776, 0.463, (1.4, 1.1, -0.3)),
    ("b200-sxm", "b200_bf16_ceperm"): (0.502, 0.466, (3.1, 2.3, -2.2)),
}


@pytest.mark.parametrize("system, name", SUSTAINED)
def test_products_at_the_sustained_clock(system: str, name: str) -> None:
    (fit,) = calibrate(load_system(system), simumax_points(name), "gemm", 1e-3).fits
    assert (fit.coefficients["eta_gemm"], fit.coefficients["phi_gemm"], per_cent(fit.inside)) == SUSTAINED[system, name]


def has(point: Point, *widths: int) -> bool:
    return any(point.sizes[name] in widths for name in ("m", "n", "k"))


# fitted to one family of models, held against another: mean and summed error of what was not seen, per cent
UNSEEN: list[tuple[str, str, str, str, Callable[[Point], bool], Callable[[Point], bool], tuple[float, float]]] = [
    ("a100-pcie-80", "a100_pcie", "gemm", "all but hidden 7168 -> 7168", lambda p: not has(p, 7168), lambda p: has(p, 7168), (3.1, 0.2)),
    ("b200-sxm", "b200_bf16_ceperm", "gemm", "all but hidden 16384 -> 16384", lambda p: not has(p, 16384), lambda p: has(p, 16384), (5.7, -4.3)),
    ("b200-sxm", "b200_bf16_ceperm", "gemm", "all but hidden 7168 -> 7168", lambda p: not has(p, 7168), lambda p: has(p, 7168), (12.9, -4.5)),
    ("b200-sxm", "b200_bf16_ceperm", "grouped_gemm", "hidden 5120 -> 7168", lambda p: has(p, 5120), lambda p: has(p, 7168), (9.4, -0.3)),
    ("b200-sxm", "b200_bf16_ceperm", "attention", "4K -> longer", lambda p: p.sizes["s_q"] == 4096, lambda p: p.sizes["s_q"] > 4096, (13.7, -15.7)),
]


@pytest.mark.parametrize("system, name, op, split, seen, unseen, expected", UNSEEN, ids=[f"{row[1]}-{row[2]}-{row[3]}" for row in UNSEEN])
def test_shapes_of_other_models(
    system: str, name: str, op: str, split: str, seen: Callable[[Point], bool], unseen: Callable[[Point], bool], expected: tuple[float, float]
) -> None:
    machine, points = load_system(system), simumax_points(name)
    own = tuple(p for p in points.points if p.op == op)
    found = calibrate(machine, Points(tuple(p for p in own if seen(p)), points.bandwidths))
    values = {n: float(v) for n, v in symbol_values(machine, Strategy()).items()} | found.coefficients
    test = [p for p in own if unseen(p)]
    ratios = [float(seconds(p, machine).evaluate(values)) / p.seconds for p in test]
    mean = sum(abs(r - 1) for r in ratios) / len(ratios)
    summed = sum(r * p.seconds for r, p in zip(ratios, test)) / sum(p.seconds for p in test) - 1
    assert (round(100 * mean, 1), round(100 * summed, 1)) == expected


@pytest.mark.parametrize("name, nothing", [("kappa_fa", True), ("psi_fa", True), ("zeta_fa", True), ("t_gemm", True), ("eta_fa", False)])
def test_a_coefficient_that_may_be_nothing_is_written_as_such(name: str, nothing: bool) -> None:
    data = parse_yaml(SYSTEM, "lab.yaml").data
    found = Calibration((), {name: 0.0}, {name: 1.0})
    if nothing:
        assert symbol_values(validate(System, calibrated(data, found, "points"), "lab.yaml"), Strategy())[name] == 0
    else:
        with pytest.raises(InputError, match=f"{name} was fitted to zero"):
            calibrated(data, found, "points")
