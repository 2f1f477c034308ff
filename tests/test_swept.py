"""The best points of a sweep of many options, searched over the options: what a scan of all of them finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from symsim.api.cli import main
from symsim.errors import InputError
from symsim.evaluation.quantities import QUANTITIES
from symsim.grid.answer import Answer, Engine, answer
from symsim.grid.command import make_sweep, sweep_options
from symsim.grid.sweep import Sweep
from symsim.planning import search, swept
from symsim.planning.found import Found, OfPoints
from symsim.program.base import read_base

OPTIONS = (
    "recompute=none,selective,full",
    "zero=0,1",
    "tp_comm_overlap=false,true",
    "overlap_grad_reduce=false,true",
    "overlap_param_gather=false,true",
)
SIZES = ("world=16", "tp=1,2,4", "pp=1,2", "micro_batch_size=1,2", "sp==tp>1")


def made(
    axes: Sequence[str],
    *,
    model: str = "llama3-8b",
    base: str = "global_batch_size=32",
    where: Sequence[str] = ("memory.peak <= memory.capacity",),
    top: int = 7,
    by: str | None = None,
    search: str = "auto",
) -> Sweep:
    asked = sweep_options(where, False, top, by, None, None, None, False, search, "auto", "local", None, 1)
    ready = make_sweep(read_base(model, base, "h100-sxm", []), axes, asked)
    ready.prepare()
    return ready


def same(one: Answer, other: Answer) -> bool:
    assert one.rows is not None and other.rows is not None
    return [c.name for c in one.columns] == [c.name for c in other.columns] and all(
        np.array_equal(own, other.rows[name])
        if own.dtype in (object, bool)
        else np.allclose(own.astype(float), other.rows[name].astype(float), 1e-12, 0)
        for name, own in one.rows.items()
    )


@pytest.mark.parametrize(
    ("axes", "given"),
    [
        ((*SIZES, *OPTIONS), {}),
        ((*OPTIONS, *SIZES), {"where": ("fits",), "by": "time.step", "top": 1}),
        ((*SIZES[:-1], *OPTIONS[1:], "recompute=none,full", "sp==tp>1"), {"where": (), "by": "energy_per_trillion_tokens", "top": 10}),
        ((*SIZES, *OPTIONS), {"where": ("memory.peak <= 30 GiB", "tp*pp >= 4 or mfu >= 30 %")}),
        ((*SIZES, *OPTIONS), {"where": ("memory.peak <= 40 GiB and dp < 16",), "by": "time.step"}),
        # tokens of a step differ
        (("seq_length=2048,8192", "num_microbatches=4,8", *SIZES[1:], *OPTIONS), {"base": "dp=4", "top": 12}),
        # interleaved: points of vpp=1 are refused under all rows of the options that the rule reads
        ((*SIZES, "vpp=1,2", "overlap_p2p_comm=false,true", *OPTIONS[:4]), {}),
    ],
)
def test_a_search_finds_what_a_scan_finds(axes: Sequence[str], given: dict[str, object]) -> None:
    searched, whole = made(axes, **given), made(axes, search="scan", **given)  # type: ignore[arg-type]
    assert searched.found is not None and whole.found is None and len(whole.variants) >= 60
    assert searched.derivations < len(whole.variants) / 3 and not searched.variants
    found = answer(searched, Engine())
    assert found.count == whole.question.top and same(found, answer(whole, Engine()))
    assert searched.running == whole.running and searched.refused() == whole.refused()


def test_points_that_tie_come_in_the_order_of_the_grid() -> None:
    """Of one data-parallel rank no gradient travels, whatever it overlaps with."""
    axes = (
        "tp=2,4",
        "sp==tp>1",
        "overlap_grad_reduce=true,false",
        "zero=0,1",
        "distribute_saved_activations=false,true",
        "recompute=none,full",
        "vpp=1",
    )
    given = {"base": "pp=2,dp=1,num_microbatches=4", "where": ()}
    for top in (1, 3, 9):
        with patch("symsim.grid.sweep._SEARCHED_FAMILIES", 1), patch.object(swept, "_FEWEST_POINTS", 1):
            searched = made(axes, top=top, **given)  # type: ignore[arg-type]
        assert searched.found is not None and len(searched.found.numbers) >= top
        found, whole = answer(searched, Engine()), answer(made(axes, top=top, search="scan", **given), Engine())  # type: ignore[arg-type]
        assert same(found, whole)
    assert found.rows is not None and len(set(found.rows["tokens_per_second"].tolist())) < 9


def test_what_equals_the_last_of_the_best_is_kept() -> None:
    """Of two that are wanted: two members of one point, then a point as good, one better, one worse than the last."""
    known, rows, where = OfPoints(2), (None, 1), np.array([3, 4, 5])
    assert len(known.take((), np.array([7]), np.array([2.0]), rows, 2)) == 1
    assert known.worse(None, where, np.array([1.0, 2.0, 2.1])).tolist() == [False, False, True]
    assert [told[2].point for told in known.take((), np.array([8, 9]), np.array([2.0, 2.5]), (0, 0), 1)] == [8]
    known.hear(OfPoints(2).take((), np.array([6]), np.array([1.0]), (0, 1), 1))
    assert [(f.point, f.value) for f in known.best] == [(6, 1.0), (7, 2.0), (8, 2.0)]
    known.take((), np.array([2]), np.array([1.5]), (0, 0), 1)
    assert [f.point for f in known.best] == [6, 2]


def test_rows_that_are_left_open_are_points_of_the_grid() -> None:
    space = made(("world=8", "recompute=none,full", "tp=1,2", "zero=0,1,2"), where=(), top=1).space
    assert swept._numbers(Found(1.0, 1, (1, None)), space, [0, 2], [1, 3]).tolist() == [9, 10, 11]
    assert swept._numbers(Found(1.0, 0, (None, 2)), space, [0, 2], [1, 3]).tolist() == [2, 8]


def test_points_that_no_rows_let_run_are_refused_at_once() -> None:
    """Parameters gathered beside the step of the optimizer, without chunks, whatever else overlaps; else every option is cut before they are."""
    base, looked = "global_batch_size=32,overlap_param_gather_with_optimizer_step=true", list[int]()
    for barred in (search.barred, lambda apart, points: (np.full(len(points), -1), [])):
        with (
            patch.object(search, "barred", barred),
            patch.object(search.Search, "_looked", autospec=True, side_effect=search.Search._looked) as cells,
        ):
            found = made((*SIZES, "vpp=1,2", *OPTIONS), base=base).found
        assert found is not None
        looked.append(cells.call_count)
    assert looked[0] < looked[1] / 1.5


@pytest.mark.parametrize(
    ("axes", "given"),
    [
        ((*SIZES, *OPTIONS), {"by": "mfu"}),
        ((*SIZES, *OPTIONS), {"where": ("zero == 1",)}),
        ((*SIZES, *OPTIONS, "assume.causal=exact,full"), {}),
        ((*SIZES, *OPTIONS, "hidden_size=4096,8192"), {}),
        ((*SIZES, *OPTIONS[:-1], "overlap_param_gather==zero>0"), {}),
        ((*SIZES, *OPTIONS[1:], "@{}/points.csv"), {}),
        ((*SIZES, *OPTIONS[:2]), {}),
        ((*SIZES, *OPTIONS), {"top": 50}),
    ],
)
def test_other_sweeps_are_scanned(axes: Sequence[str], given: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("recompute,seq_length\nnone,4096\nselective,4096\nfull,8192\n")
    axes = [axis.format(tmp_path) for axis in axes]
    asked = sweep_options(
        given.get("where", ()),  # type: ignore[arg-type]
        False,
        given.get("top", 7),  # type: ignore[arg-type]
        given.get("by"),  # type: ignore[arg-type]
        None,
        None,
        None,
        False,
        "auto",
        "auto",
        "local",
        None,
        1,
    )
    ready = make_sweep(read_base("llama3-8b", "global_batch_size=32", "h100-sxm", []), axes, asked)
    with patch.object(swept, "best_points", side_effect=AssertionError), patch.object(ready, "_derive"):
        ready.prepare()
    assert ready.found is None


def test_a_large_grid_of_sizes_is_scanned() -> None:
    for most, searched in ((23, False), (24, True)):
        with patch.object(swept, "_MOST_POINTS", most):
            assert (made((*SIZES[:3], "micro_batch_size=1,2,4,8", "sp==tp>1", *OPTIONS), top=2).found is not None) == searched


def test_a_search_that_excludes_too_little_is_given_up() -> None:
    with patch.object(swept, "_MOST_CELLS", 0):
        given_up = made((*SIZES, *OPTIONS))
    assert given_up.found is None and len(given_up.variants) > 60
    assert same(answer(given_up, Engine()), answer(made((*SIZES, *OPTIONS)), Engine()))


def test_the_command_says_what_was_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    axes = [part for axis in (*SIZES, *OPTIONS) for part in ("--axis", axis)]
    arguments = ["sweep", "llama3-8b", "-s", "global_batch_size=32", "-y", "h100-sxm", *axes, "--fits", "--top", "3"]
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    shown = capsys.readouterr()
    assert "of those evaluated: bounds of the step and of memory rule out that another is better" in " ".join(shown.err.split())
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--search", "scan"])
    scanned = capsys.readouterr()
    assert scanned.out == shown.out and "evaluated" not in scanned.err


def test_columns_of_single_strategies_are_found_by_a_scan(capsys: pytest.CaptureFixture[str]) -> None:
    """Without tensor ranks there is no such message; all other quantities there are under every strategy."""
    axes = [part for axis in (*SIZES, *OPTIONS) for part in ("--axis", axis)]
    arguments = ["sweep", "llama3-8b", "-s", "global_batch_size=32", "-y", "h100-sxm", *axes, "--top", "3", "--columns"]
    every = ",".join(name for name, one in QUANTITIES.items() if not one.of_run)
    for columns, searched in (("time.step,c_f_dense_tp", False), ("time.exposed.tp", False), (every, True)):
        with pytest.raises(SystemExit, match="0"):
            main([*arguments, columns])
        assert ("of those evaluated" in " ".join(capsys.readouterr().err.split())) == searched


def test_a_name_that_is_none_is_refused_as_by_a_scan() -> None:
    for columns in ("time.step,memory.peek", "zeero"):
        asked = sweep_options((), False, 3, None, None, columns, None, False, "auto", "auto", "local", None, 1)
        ready = make_sweep(read_base("llama3-8b", "global_batch_size=32", "h100-sxm", []), (*SIZES, *OPTIONS), asked)
        with pytest.raises(InputError, match=columns.rsplit(",", 1)[-1]):
            ready.prepare()
