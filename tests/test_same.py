"""tests/draws/same.py: a tree says what it itself says, and a tree that says anything else is seen."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from draws import same

ROOT = Path(__file__).parents[1]
WIDER = ["eval", "llama3-8b", "-s", "tp=2,sp=true,pp=2", "-y", "h100-sxm", "--set", "assume.causal=half", "--json"]
REFUSED = ["eval", "llama3-8b", "-s", "tp=3", "--json"]
DIVIDES = ["eval", "llama3-8b", "-s", "tp=4", "--json"]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree with one number of one model changed."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("symsim", "models", "derivations"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    model = tree / "models" / "llama3-8b.yaml"
    text = model.read_text()
    assert "14336" in text
    model.write_text(text.replace("14336", "14338"))
    return tree


@pytest.mark.long
def test_a_tree_says_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = same.asked(12, 5)
    assert len({arguments[1] for arguments, _ in drawn}) == 12 and drawn == same.asked(12, 5) != same.asked(12, 6)
    found = same.run(ROOT, ROOT, [*drawn, (REFUSED, False)])
    text, different = same.table(found, 0.0, 10)
    assert different == 0, text
    total = text.splitlines()[-1].split()
    assert total[:2] == ["all", "13"] and int(total[2]) >= 6 and int(total[3]) >= 1 and int(total[2]) + int(total[3]) == 13


def test_another_number_is_seen(changed: Path) -> None:
    cases = [(WIDER, False), (WIDER, True), (["eval", "llama3-70b", "--json"], True), (DIVIDES, True), (REFUSED, True)]
    found = same.run(ROOT, changed, cases)
    assert [bool(same.compared(old, new)) for _, old, new in found] == [True, True, False, True, False]
    text, different = same.table(found, 0.0, 10)
    assert different == 3
    assert "symsim eval llama3-8b -s tp=2,sp=true,pp=2 -y h100-sxm --set assume.causal=half --json\n  symbols.f: 14336 before, 14338 after" in text
    assert "  fate: an answer before, status 2 (symsim: tp=4 does not divide ffn_hidden_size=14338" in text and "other than floats" in text
    direct, by_command = (same.compared(old, new) for _, old, new in found[:2])
    assert direct == by_command, "symsim.derive gives what the command prints"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1.0, "b": [2, "x", None]}, {"a": 1.0, "b": [2, "x", None]}, []),
        ({"a": 1.0}, {"a": 1.5}, [("a", 1 / 3)]),
        ({"a": 1.0}, {"a": 1}, [("a", math.inf)]),
        ({"a": True}, {"a": 1}, [("a", math.inf)]),
        ({"a": 1}, {"b": 1}, [("a", math.inf), ("b", math.inf)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [("", math.inf)]),
        ({"a": [1, 2]}, {"a": [1]}, [("a", math.inf)]),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, [("a.b", math.inf)]),
    ],
)
def test_differences(old: Any, new: Any, expected: list[tuple[str, float]]) -> None:
    assert [(place, size) for place, _, size in same.differences(old, new)] == [(p, pytest.approx(s)) for p, s in expected]


def test_a_tolerance_is_for_floats() -> None:
    near = (["eval", "m"], (0, '{"t": 1.0, "n": 3}', "", 0.0), (0, '{"t": 1.0000001, "n": 3}', "", 0.0))
    other = (["eval", "m"], near[1], (0, '{"t": 1.0, "n": 4}', "", 0.0))
    crash = (["eval", "m"], (-1, "", "KeyError: 1", 0.0), (-1, "", "KeyError: 1", 0.0))
    assert [same.table([one], 0.0, 1)[1] for one in (near, other, crash)] == [1, 1, 1]
    assert [same.table([one], 1e-6, 1)[1] for one in (near, other, crash)] == [0, 1, 1]
