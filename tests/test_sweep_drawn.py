"""What is taken from a sweep besides its rows: pictures, what each row is given to 'symsim eval' as, and the best as a trainer's file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import in_process
import numpy as np
import pytest

import symsim
from symsim.errors import InputError
from symsim.grid.command import Options, make_sweep, sweep_options
from symsim.grid.drawn import _places, grid_picture
from symsim.grid.sweep import Sweep
from symsim.program.base import read_base

MODEL, STRATEGY, SYSTEM = "llama3-8b", "world=8,global_batch_size=16", "h100-sxm"
AXES = ("tp=1,2,8", "pp=1,2", "micro_batch_size=1,2", "sp==tp>1")
SVG = "{http://www.w3.org/2000/svg}"


def swept(*where: str, fits: bool = False, by: str = "time.step") -> Sweep:
    options: Options = sweep_options(where, fits, 3, by, None, None, None, False, "auto", "auto", "local", None, None)
    return make_sweep(read_base(MODEL, STRATEGY, SYSTEM, []), AXES, options)


@pytest.fixture(scope="module")
def points() -> dict[tuple[int, int, int], tuple[float, bool]]:
    """Of every point that can run its step, and whether it fits."""
    columns = "time.step,memory.peak,memory.reserve,memory.capacity"
    rows = symsim.sweep(MODEL, AXES, strategy=STRATEGY, system=SYSTEM, columns=columns).rows
    fits = rows["memory.peak"] + rows["memory.reserve"] <= rows["memory.capacity"]
    return {
        at: (float(step), bool(well))
        for *at_, step, well in zip(rows["tp"].tolist(), rows["pp"].tolist(), rows["micro_batch_size"].tolist(), rows["time.step"], fits)
        for at in [tuple(at_)]
    }


def test_each_place_is_the_best_of_the_other_axes_that_meets_the_conditions(points) -> None:
    found = _places(swept(fits=True), ["tp", "pp"])
    assert [list(v) for v in found.values] == [[1, 2, 8], [1, 2]]
    told = set()
    for (row, column), value in found.best.items():
        own = {at: p for at, p in points.items() if at[:2] == (found.values[0][row], found.values[1][column])}
        fitting = [step for step, fits in own.values() if fits]
        assert ((row, column) in found.meets) == bool(fitting)
        assert value == pytest.approx(min(fitting or [step for step, _ in own.values()]), rel=1e-12)
        told.add(bool(fitting))
    assert told == {True, False} and len(found.best) == len({at[:2] for at in points})


def test_conditions_may_be_on_axes_and_options(points) -> None:
    found = _places(swept("sp == true and micro_batch_size == 1 and recompute == 'none'", "not overlap_grad_reduce"), ["tp"])
    assert found.meets == {(1,), (2,)}
    own = {b: min(step for at, (step, _) in points.items() if at[0] == 2 and at[2] == b) for b in (1, 2)}
    assert own[2] < own[1] == pytest.approx(found.best[(1,)], rel=1e-12)


def test_what_is_largest_is_best_where_more_is_better(points) -> None:
    found = _places(swept(by="tokens_per_second"), ["tp"])
    for (k,), value in found.best.items():
        tokens = 16 * 4096
        assert value == pytest.approx(max(tokens / step for at, (step, _) in points.items() if at[0] == (1, 2, 8)[k]), rel=1e-9)


def test_a_heat_map_has_a_cell_a_place_hatched_where_it_does_not_fit() -> None:
    made = swept(fits=True)
    picture = ElementTree.fromstring(grid_picture(made, ["tp", "pp"], "llama3-8b"))
    found = _places(made, ["tp", "pp"])
    hatched = [r for r in picture.iter(f"{SVG}rect") if r.get("fill") == "url(#hatch)"]
    # one more in the legend
    assert len(hatched) == len(found.best) - len(found.meets) + 1 > 1
    texts = {t.text for t in picture.iter(f"{SVG}text")}
    assert {f"{value:.2f}" for value in found.best.values()} <= texts and "llama3-8b: time.step: one step, s" in texts


@pytest.mark.parametrize(("name", "values"), [("reshard_after_forward", [True, 1]), ("reshard_after_backward", [True, False]), ("dp", [4, 8])])
def test_an_axis_is_drawn_as_its_rows_have_it(name: str, values: list[object], tmp_path: Path) -> None:
    """Values of several kinds are text in rows, and true is another than 1."""
    found = symsim.sweep(MODEL, {name: values}, "zero=3,dp=8,num_microbatches=8" if name != "dp" else "zero=3", SYSTEM)
    assert "<svg" in found.plot("memory.peak").svg
    text = ",".join(str(v).lower() for v in values)
    asked = ["sweep", MODEL, "-s", "zero=3,num_microbatches=8" + ",dp=8" * (name != "dp"), "-y", SYSTEM, "--axis", f"{name}={text}", "--top", "1"]
    ended = in_process.run(*asked, "--plot", str(tmp_path / "a.svg"))
    assert ended.returncode == 0 and (tmp_path / "a.svg").exists(), ended.stderr


def drawn(picture: str) -> list[list[float]]:
    """The points of a curve, as they say themselves."""
    titles = [str(t.text) for t in ElementTree.fromstring(picture).iterfind(f".//{SVG}circle/{SVG}title")]
    return [[float(n) for n in title.split(", ")] for title in titles]


def test_a_curve_has_the_unit_that_it_says() -> None:
    """Bytes are drawn in the GiB that stand beside them, whichever name of the quantity is asked for."""
    rows = symsim.sweep(MODEL, {"tp": [1, 2, 4]}, "sp=false,num_microbatches=2", SYSTEM)
    peaks = [[int(tp), float(peak) / 2**30] for tp, peak in zip(rows.rows["tp"], rows.rows["memory.peak"])]
    picture = rows.plot("memory.peak").svg
    assert "memory.peak: peak memory of the fullest rank, GiB" in picture
    assert np.allclose(drawn(picture), peaks, rtol=5e-3)
    seconds = grid_picture(swept(by="t_step"), ["micro_batch_size"], MODEL)
    assert "t_step: one step, s" in seconds and np.allclose(drawn(seconds), drawn(grid_picture(swept(), ["micro_batch_size"], MODEL)))


@pytest.mark.parametrize(
    ("values", "said", "places"),
    [
        ("25 GB/s,0.1 TB/s,400 Gb/s", "B_2, GB/s", [25, 50, 100]),
        ("2:6:2 TB/s", "B_2, TB/s", [2, 4, 6]),
    ],
)
def test_rates_are_numbers_of_an_axis(values: str, said: str, places: list[float], tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    asked = ["sweep", MODEL, "-s", "tp=4,dp=4", "-y", SYSTEM, "--axis", f"B_2={values}", "--by", "time.step", "--plot", str(picture)]
    ended = in_process.run(*asked)
    assert ended.returncode == 0 and [x for x, _ in drawn(picture.read_text())] == places and f">{said}<" in picture.read_text(), ended.stderr


def test_labels_of_a_heat_map_have_room(tmp_path: Path) -> None:
    """No label runs into what its axis is called, or into its neighbour."""
    picture = tmp_path / "a.svg"
    axes = ("B_2=25 GB/s,100 GB/s", "schedule=1f1b,interleaved,grouped_interleaved")
    asked = ["sweep", MODEL, "-s", "pp=4,vpp=2,dp=4,num_microbatches=4", "-y", SYSTEM, *(word for axis in axes for word in ("--axis", axis))]
    ended = in_process.run(*asked, "--plot", str(picture))
    assert ended.returncode == 0, ended.stderr
    root = ElementTree.fromstring(picture.read_text())
    texts = {str(t.text): t for t in root.iter(f"{SVG}text")}
    assert float(texts["100 GB/s"].get("x", 0)) - 6.6 * len("100 GB/s") > float(texts["B_2"].get("x", 0))
    across = sorted((float(texts[n].get("x", 0)), len(n)) for n in ("1f1b", "interleaved", "grouped_interleaved"))
    assert all(other - x > 6.6 * (wide + more) / 2 for (x, wide), (other, more) in zip(across, across[1:]))


def test_pictures_of_the_command(tmp_path: Path) -> None:
    front = tmp_path / "front.svg"
    asked = ["sweep", MODEL, "-s", STRATEGY, "-y", SYSTEM, *(word for axis in AXES for word in ("--axis", axis))]
    ended = in_process.run(*asked, "--pareto", "time.step,memory.peak", "--strategies", "--plot", str(front))
    assert ended.returncode == 0 and f"wrote {front}" in ended.stderr
    labels = [t.text for t in ElementTree.fromstring(front.read_text()).iterfind(f".//{SVG}circle/{SVG}title")]
    lines = dict(re.findall(r"^(\d+): (-s .*)$", ended.stdout, re.MULTILINE))
    assert len(lines) == len(labels) > 3 and all(any(line in str(label) for label in labels) for line in lines.values())
    curve = tmp_path / "curve.html"
    ended = in_process.run(*asked, "--over", "micro_batch_size", "--by", "memory.peak", "--top", "1", "--plot", str(curve))
    page = curve.read_text()
    assert ended.returncode == 0 and page.count("<circle") == 2 and "first: " in ended.stdout and "-s global_batch_size=16" in page


def test_each_row_says_what_eval_takes_and_the_best_is_exported(tmp_path: Path) -> None:
    asked = ["sweep", MODEL, "-s", STRATEGY, "-y", SYSTEM, "--axis", "tp=1,2", "--axis", "seq_length=2048", "--axis", "sp==tp>1"]
    ended = in_process.run(*asked, "--fits", "--json", "--strategies", "--export", "megatron", str(tmp_path / "best.sh"))
    rows = json.loads(ended.stdout)
    for row in rows:
        text = re.fullmatch(rf"-s (\S+) -y {SYSTEM}", row["again"])
        assert text is not None and np.isclose(float(symsim.derive(MODEL, text[1], system=SYSTEM).value("time.step")), row["time.step"], rtol=1e-12)
    best = re.fullmatch(rf"-s (\S+) -y {SYSTEM}", rows[0]["again"])
    assert best is not None
    in_process.run("export", "megatron", MODEL, "-s", best[1], "-y", SYSTEM, "-o", str(tmp_path / "own.sh"))
    assert (tmp_path / "best.sh").read_text() == (tmp_path / "own.sh").read_text()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--plot", "a.svg"], "--plot draws over one or two axes, and these vary: tp, pp, micro_batch_size; name two with --over"),
        (["--plot", "a.png"], "--plot a.png: a picture ends in .svg or .html"),
        (["--over", "tp"], "--over names the axes of a picture: give --plot FILE.svg"),
        (["--plot", "a.svg", "--over", "tpp"], "--over tpp: it is no axis of more than one value: did you mean"),
        (["--strategies", "-o", "a.csv"], "--strategies, --export and --plot are of the best points"),
        (["--plot", "a.svg", "--over", "tp", "--where", "time.step<0"], "--plot: no configuration that can run meets the conditions"),
        (["--export", "megatrom", "a.sh"], "symsim does not export 'megatrom': did you mean 'megatron'?"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(asked: list[str], said: str, tmp_path: Path) -> None:
    ended = in_process.run("sweep", MODEL, "-s", STRATEGY, "-y", SYSTEM, *(word for axis in AXES for word in ("--axis", axis)), *asked, cwd=tmp_path)
    assert ended.returncode == 2 and said in ended.stderr.splitlines()[-1] and not list(tmp_path.iterdir())


@pytest.mark.parametrize("over", [None, "tp"])
def test_of_rows_that_do_not_vary_there_is_nothing_to_draw_over(over: str | None) -> None:
    with pytest.raises(InputError, match=r"^plot\(\) draws over one or two axes, and none of these rows varies$"):
        symsim.sweep(MODEL, {"tp": [1]}, "", SYSTEM).plot(over=over)
