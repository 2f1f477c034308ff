"""tests/draws/commands.py: every command says the same of a configuration, and one that says anything else is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from draws import commands

DRAWN = ["eval", "smollm2-135m", "-s", "tp=3,pp=2,dp=2,num_microbatches=8,seq_length=1024", "-y", "h100-sxm", "--set", "B_2=25 GB/s", "--json"]
COMMANDS = {"run", "sweep", "ask", "diff", "parts of diff", "compile"}


def test_drawn_configurations_are_the_same_everywhere() -> None:
    tally = commands.run(2, 3)
    assert set(tally.compared) == COMMANDS and not tally.wrong, "\n".join(commands.lines(tally, 0))


def test_what_a_command_says_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = commands.Tally(), commands.Tally()
    assert commands.check(DRAWN, right) and not right.wrong
    own = commands.numbers

    def longer(said: Mapping[str, Any]) -> dict[str, float]:
        found = own(said)
        return found if "run" in said else {name: number * (1 + 1e-9) for name, number in found.items()}

    monkeypatch.setattr(commands, "numbers", longer)
    assert commands.check(DRAWN, wrong)
    # the parts of a difference still add up to its own sum
    assert {text.partition(":")[0] for text in wrong.wrong} == COMMANDS - {"parts of diff"}
    assert not commands.check([*DRAWN[:2], "-s", "tp=2", "-y", "h100-sxm"], wrong), "tp=2 divides no heads of it"
