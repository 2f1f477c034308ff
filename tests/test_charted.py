"""Figures as objects of Altair and matplotlib: they hold the numbers that are drawn, and without the library one sentence says what is missing."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.report.figure import Figure
from symsim.report.step import Step


@cache
def result() -> Result:
    return symsim.derive("llama3-8b", "tp=2,pp=2,dp=2,num_microbatches=4", system="h100-sxm")


@cache
def rows() -> Any:
    return symsim.sweep("llama3-8b", {"tp": [1, 2, 4], "pp": [1, 2]}, strategy="dp=2,num_microbatches=8", system="h100-sxm")


def figures() -> dict[str, Figure]:
    line = symsim.sweep("llama3-8b", {"tp": [1, 2, 4]}, strategy="dp=2,num_microbatches=8", system="h100-sxm")
    return {
        "step": result().plot(),
        "memory": result().plot("memory"),
        "roofline": result().plot("roofline"),
        "line": line.plot(),
        "heat": rows().plot(),
    }


def test_a_figure_has_the_numbers_that_it_draws() -> None:
    drawn = figures()
    assert all(one.charted is not None for one in drawn.values())
    shares = {row["part"]: row["x"] for row in drawn["step"].charted.rows}
    assert shares == {p.name: p.share for p in Step(result()).parts if p.seconds > 0}
    heat = {(row["x"], row["y"]): row["amount"] for row in drawn["heat"].charted.rows}
    frame = rows().rows
    assert len(heat) == len(frame["tokens_per_second"]) == 6
    assert sorted(heat.values()) == sorted(map(float, frame["tokens_per_second"]))
    line = drawn["line"].charted
    assert [row["x"] for row in line.rows] == [1.0, 2.0, 4.0] and line.mark == "line"


def test_altair_gets_them() -> None:
    pytest.importorskip("altair", reason="to_altair needs the package altair")
    for name, one in figures().items():
        made = one.to_altair().to_dict()
        data = made.get("data") or made["layer"][0]["data"]
        assert len(data["values"]) == len(one.charted.rows), name
    assert result().plot().to_altair().to_dict()["mark"]["type"] == "bar"


def test_matplotlib_gets_them() -> None:
    pytest.importorskip("matplotlib", reason="to_matplotlib needs the package matplotlib")
    drawn = figures()
    (axes,) = drawn["step"].to_matplotlib().axes
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(1)
    assert [line.get_xscale() for line in drawn["roofline"].to_matplotlib().axes] == ["log"]
    heat, _ = drawn["heat"].to_matplotlib().axes
    assert heat.images[0].get_array().shape == (2, 3) or heat.images[0].get_array().shape == (3, 2)
    assert len(drawn["line"].to_matplotlib().axes[0].lines[0].get_xdata()) == 3


@pytest.mark.parametrize("library", ["altair", "matplotlib"])
def test_without_the_library_a_sentence_says_so(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.figure", None)
    with pytest.raises(InputError, match=f"needs the package {library}; pip install 'symsim\\[{library}\\]'"):
        getattr(result().plot(), f"to_{library}")()


@pytest.mark.long
def test_a_schedule_is_a_picture_alone() -> None:
    with pytest.raises(InputError, match="drawn as SVG alone"):
        result().plot("schedule").to_altair()
