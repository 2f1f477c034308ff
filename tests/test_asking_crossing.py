"""Crossings over integers lie between neighbours that can run, and say both sides at both."""

from __future__ import annotations

from functools import cache

import pytest

import symsim
from symsim.api.result import Result

ASKED = "llama3-8b", "tp=2,sp=true,dp=4,global_batch_size=64"


@cache
def _result() -> Result:
    return symsim.derive(*ASKED, system="h100-sxm")


def _with(name: str, value: int) -> str:
    return ",".join(f"{name}={value}" if part.startswith(f"{name}=") else part for part in ASKED[1].split(","))


@pytest.mark.parametrize(("question", "low", "high"), [("crossing t_step = 2 s over dp", 4, 8), ("crossing t_step = 3.4 s over tp=2:8", 2, 4)])
def test_both_sides_are_said_at_both_neighbours(question: str, low: int, high: int) -> None:
    found = _result().ask(question)
    (meeting,) = found.meetings
    assert (meeting.value, meeting.until, meeting.before, meeting.after) == (low, high, 1, -1)
    name = question.split()[-1][:2]
    there = [symsim.derive(ASKED[0], _with(name, x), system="h100-sxm") for x in (low, high)]
    numbers = [float(r.value("t_step")) for r in there]
    assert [float(v.value) for v in (*meeting.sides, *meeting.until_sides)] == pytest.approx(numbers, rel=1e-12)
    text = " ".join(str(found).split())
    assert f"= {low} and {high}: at {low} t_step is {numbers[0]:.6g} s; at {high} t_step is {numbers[1]:.6g} s; below it t_step is larger" in text


def test_a_long_row_that_cannot_run_hides_no_crossing() -> None:
    """Groups of queries divide 32 heads: none of the many below 1,000,000,000 does."""
    now = _result().value("memory.peak")
    (meeting,) = _result().crossing("memory.peak", f"{float(now) + 1e6} B", "g").meetings
    assert (meeting.value, meeting.until, meeting.sides[0].value) == (8, 16, now)
