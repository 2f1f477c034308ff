"""tests/draws/mutations.py: its facts stand in the tree, and a fact that no test holds is seen. The whole is run by hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from draws import mutations
from draws.mutations_claims import CLAIMS

ROOT = Path(__file__).parents[1]
AREAS = {"ir", "placement", "lowering", "frameworks", "cost", "pipeline", "inputs"}


def test_every_fact_stands_once_and_its_tests_are_there() -> None:
    texts = {f.file: (ROOT / "symsim" / f.file).read_text() for f in mutations.FACTS}
    assert not [f for f in mutations.FACTS if texts[f.file].count(f.text) != 1 or f.text == f.changed]
    assert not [t for f in mutations.FACTS for t in f.tests if not (ROOT / "tests" / t).is_file()]
    assert all(f.tests for f in mutations.FACTS)


def test_claims_hold_facts_that_stand() -> None:
    facts = Counter((f.file, f.says) for f in mutations.FACTS)
    assert not [key for key in CLAIMS if facts[key] != 1]
    ids = {name for path in (ROOT / "derivations").glob("*.yaml") for name in re.findall(r"^- id: (\S+)", path.read_text(), re.MULTILINE)}
    assert not set(CLAIMS.values()) - ids
    assert len(CLAIMS) >= 60


def test_they_are_many_and_of_all_rooms() -> None:
    assert len(mutations.FACTS) >= 120
    assert {f.file.split("/")[0] for f in mutations.FACTS} == AREAS
    assert not [says for says, n in Counter((f.file, f.says) for f in mutations.FACTS).items() if n > 1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of two numbers, of which a test holds one."""
    (tmp_path / "symsim").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "symsim" / "__init__.py").write_text("")
    (tmp_path / "symsim" / "two.py").write_text("HELD = 1\nFREE = 2\n")
    (tmp_path / "tests" / "test_two.py").write_text("from symsim import two\n\n\ndef test_held():\n    assert two.HELD == 1 and two.FREE\n")
    return tmp_path


@pytest.mark.long
def test_what_no_test_holds_is_seen(tree: Path) -> None:
    def fact(text: str, changed: str) -> mutations.Fact:
        return mutations.Fact("two.py", text, text, changed, ("test_two.py",))

    facts = [fact("HELD = 1", "HELD = 3"), fact("FREE = 2", "FREE = 3"), fact("FREE = 2", "FREE =")]
    assert [fate for _, fate, _ in mutations.outcomes(tree, facts)] == ["red", "NOT", "broken"]
    assert (tree / "symsim" / "two.py").read_text() == "HELD = 1\nFREE = 2\n", "the tree itself is never changed"
    with pytest.raises(SystemExit, match="0 times, not once: GONE"):
        list(mutations.outcomes(tree, [fact("GONE", "")]))
    (tree / "tests" / "test_two.py").write_text("def test_wrong():\n    assert False\n")
    with pytest.raises(SystemExit, match="fail before any fact is broken"):
        list(mutations.outcomes(tree, facts))


def test_claims_that_turn_red_are_named() -> None:
    fact = mutations.FACTS[0]
    assert mutations.audit_line(fact, list("abcdefgh")).endswith("a, b, c, d, e, f and 2 more")
    assert mutations.audit_line(fact, []).startswith("NOT") and mutations.audit_line(fact, None).startswith("broken")
