"""Published formulas against each other: every row as written, and no row that a wrong factor leaves as it is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from shared import SHARED

from symsim.api.cli import main
from symsim.audit.between import Comparison, compare, compared, shipped_comparisons
from symsim.audit.claims import Claim, read_claims, shipped_sources
from symsim.errors import InputError
from symsim.inputs.reading import parse_yaml

HEAD = "letters: {N: parameters}\ncomparisons:\n"


@cache
def claims() -> dict[str, Claim]:
    return {c.id: c for path in shipped_sources().values() for c in read_claims(path)}


@cache
def shipped() -> tuple[Comparison, ...]:
    return tuple(c for path in shipped_comparisons() for c in compare(path, claims().get))


def one(text: str) -> Comparison:
    (found,) = compared(parse_yaml(HEAD + f"- {{id: mine, title: mine, {text}}}\n", "mine.yaml"), claims().get)
    return found


def test_every_row_is_as_written() -> None:
    assert not [f"{c.entry.id}: {c.red}" for c in shipped() if c.red]
    assert sum(c.entry.kind == "identity" for c in shipped()) >= 34


def test_rows_of_the_survey() -> None:
    """Every identity, and every disagreement with two formulas, of the survey of published formulas."""
    path = SHARED / "papers" / "papers.yaml"
    if not path.exists():
        pytest.skip("../shared/papers/papers.yaml is not on this machine")
    survey = yaml.load(path.read_text(), yaml.CSafeLoader)
    wanted = {r["id"] for r in survey["identities"]} | {r["id"] for r in survey["disagreements"] if "A" in r}
    assert len(wanted) == 101
    assert not wanted - {c.entry.id for c in shipped()}


def test_a_wrong_factor_is_found(tmp_path: Path) -> None:
    """Each row with its first side doubled, all in one file."""
    for path in shipped_comparisons():
        rows: dict[str, Any] = yaml.load(path.read_text(), yaml.CSafeLoader)
        for row in rows["comparisons"]:
            row["a"]["times"] = f"2*({row['a'].get('times', '1')})"
        wrong = tmp_path / path.name
        wrong.write_text(yaml.safe_dump(rows))
        assert not [c.entry.id for c in compare(wrong, claims().get) if not c.red]


def test_a_row() -> None:
    found = one('kind: convention, a: {at: here, formula: "6*N"}, b: {claim: palm.per_token}, difference: "-12*L*a*d*s", why: attention')
    assert (found.red, str(found.difference)) == ("", "-12*L*a*d*s")
    found = one('kind: identity, a: {at: here, formula: "6*N"}, b: {claim: palm.per_token}')
    assert found.red == "a less b is -12*L*a*d*s, not 0"
    assert one('kind: error, a: {at: here, formula: "6*N"}, b: {at: there, formula: "2*N", times: "3"}, why: none').red == "both sides are the same"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: identity, a: {claim: palm.per_tokn}, b: {claim: palm.mfu}", "mine.yaml:3: a: no claim is named 'palm.per_tokn'"),
        ('kind: identity, a: {at: x, formula: "6*NN"}, b: {at: x, formula: "6*N"}', "mine.yaml:3: a: 'NN' is neither a symbol of symsim nor one of"),
        (
            'kind: identity, a: {at: x, formula: "6*N +"}, b: {at: x, formula: "6*N"}',
            "mine.yaml:3: a: column 1: '6*N +' does not read as an expression",
        ),
        ('kind: identity, a: {at: x, formula: N}, b: {at: x, formula: N}, given: ["N = 2*h"]', "mine.yaml:3: mine does not need the fact 'N = 2*h'"),
        ('kind: error, a: {at: x, formula: "N"}, b: {at: x, formula: "2*N"}, difference: "-N"', "mine is no identity: it needs a why"),
        ('kind: identity, a: {formula: "N"}, b: {at: x, formula: "N"}', "a formula needs `at`, where it stands"),
        ("kind: identity, a: {at: x, formula: b}, b: {at: x, formula: b}", "mine.yaml:1: no comparison has 'N'"),
    ],
)
def test_bad_rows(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        one(text)
    assert said in str(error.value)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["audit", "D78.params_narayanan", "I34", "bridge"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "the first less the second: 2*h" in shown and "1 claim: 1 equal_under" in shown
    assert "2 comparisons: 1 identity, 1 exact difference" in shown
