"""The audit as a report: every claim with its verdict, terms that one side has not in colour, errors in print on a page of their own."""

from __future__ import annotations

import json
from pathlib import Path

import in_process
import pytest

from symsim.algebra.grammar import parse
from symsim.audit.claims import read_claims, shipped_sources
from symsim.audit.mended import mended
from symsim.audit.printed import audit_tables, table_ids
from symsim.audit.report import WORDS, audit_report
from symsim.audit.running import Audit, asked, audit
from symsim.audit.schema import VERDICTS
from symsim.audit.subjects import Derivations
from symsim.report import rendered

CLAIMS = r"""
source: {title: "Of <angles> & 100 %", authors: Nobody, year: 2024, url: "https://example.org"}
same: [b, s, h, a, d, L]
of: {model: bare-gpt}
claims:
- id: own.core
  at: eq. (1)
  status: seen
  latex: '4bs^2ad'
  formula: "4*b*s**2*a*d"
  says: F_dense_attention_core
  verdict: equal
- id: own.forgot
  at: eq. (2)
  status: recalled
  latex: '8bshad \unknown{'
  formula: "8*b*s*h*a*d"
  says: F_dense_of_attention
  given: ["g = a"]
  neglects:
  - {term: "4*a*b*d*s**2", why: the two products of the scores}
  verdict: equal_under
- id: own.other
  at: eq. (3)
  status: seen
  latex: '3bs^2ad'
  formula: "3*b*s**2*a*d"
  says: F_dense_attention_core
  verdict: {is: differs, difference: "a*b*d*s**2", why: a count of three}
- id: own.wrong
  at: eq. (4)
  status: seen
  latex: '5bs^2ad'
  formula: "5*b*s**2*a*d"
  says: F_dense_attention_core
  verdict: {is: source_contradicts_itself, difference: "-a*b*d*s**2", instead: "4*b*s**2*a*d", why: eq. (1) says four}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    path = tmp_path_factory.mktemp("claims") / "own.yaml"
    path.write_text(CLAIMS)
    return audit(*asked([str(path)]))


def test_words_for_every_verdict() -> None:
    assert set(WORDS) == set(VERDICTS)


def test_markdown_has_claims_conditions_and_colours(found: Audit) -> None:
    text = rendered(audit_report(found), ".md").decode()
    assert "| all sources" not in text and "**4**" in text
    wrong = text[text.index("## Errors found in sources") : text.index("## Claims")]
    assert "own.wrong" in wrong and "eq. (1) says four" in wrong and "own.other" not in wrong
    assert "$`4bs^{2}ad`$" in wrong
    claims = text[text.index("## Claims") :]
    assert claims.count(r"\textcolor{blue}{4bs^{2}ad}") == 2, "of the derived form, and where the term is named"
    assert r"\textcolor{red}{3bs^{2}ad}" in claims and r"\textcolor{red}{4bs^{2}ad}" in claims and r"\textcolor{red}{bs^{2}ad}" in claims
    assert "1 at L = 1" not in claims and "1 at a = 1, b = 1, d = 1, s = 1" in claims
    assert "(recalled, not read again)" in claims and "the two products of the scores" in claims


def test_html_opens_assumptions_in_place_and_shows_latex_that_does_not_convert(found: Audit) -> None:
    text = rendered(audit_report(found), ".html").decode()
    assert "<details><summary>causal=full</summary>" in text
    assert r"<code>8bshad \unknown{</code>" in text
    assert "Of &lt;angles&gt; &amp; 100 %" in text and '<mstyle mathcolor="red">' in text


def test_latex_and_json_and_places(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(CLAIMS)
    for suffix in ("tex", "json"):
        done = in_process.run("audit", "own.yaml", "-o", f"x.{suffix}", cwd=tmp_path)
        assert done.returncode == 0 and done.stdout == "" and done.stderr == f"symsim: wrote x.{suffix}\n"
    assert r"\textcolor{red}{3bs^{2}ad}" in (tmp_path / "x.tex").read_text()
    assert [r["verdict"] for r in json.loads((tmp_path / "x.json").read_text())["results"]] == [
        "equal",
        "equal_under",
        "differs",
        "source_contradicts_itself",
    ]
    done = in_process.run("audit", "own.yaml", "-o", "x.doc", cwd=tmp_path)
    assert done.returncode == 2 and "a report is written as" in done.stderr
    (tmp_path / "own.yaml").write_text(CLAIMS.replace("says: F_dense_attention_core", "says: F_dense_attention_cure", 1))
    done = in_process.run("audit", "own.yaml", "-o", "bad.md", cwd=tmp_path)
    assert done.returncode == 2 and not (tmp_path / "bad.md").exists() and "F_dense_attention_core" in done.stderr


def test_printed_numbers_stand_beside_what_is_derived(found: Audit) -> None:
    tables = audit_tables([sorted(table_ids())[0]], Derivations()).found
    text = rendered(audit_report(found, tables), ".md").decode()
    section = text[text.index("## Printed numbers, recomputed") :]
    for one in tables:
        for cell, value in zip(one.table.cells, one.values):
            assert f"| {float(cell.printed):.6g} | {float(value):.6g} |" in section


def test_what_was_mended_names_claims_that_hold_now() -> None:
    known = {c.id: c for path in shipped_sources().values() for c in read_claims(path)}
    for one in mended():
        stored = known[one.claim].stored
        assert one.what and (stored is None or stored.verdict != "symsim_wrong")
        parse(one.difference or "0")


def test_errors_in_symsim_are_a_page_of_their_own() -> None:
    found = audit(*asked(["korthikanti.embed_dropout"]))
    text = rendered(audit_report(found), ".md").decode()
    assert "## Errors found in symsim" in text and "| `korthikanti.embed_dropout` | the mask of the embedding's dropout" in text
    assert "narayanan.p2p" not in text
