"""What each assumption moves is written down for all of them, and is what symsim gives now."""

from __future__ import annotations

import re

import in_process
import pytest

from symsim.api.python import derive
from symsim.audit.effects import CASES, SYSTEM, alternatives, measure, numbers
from symsim.inputs.effects import said, said_in_brief, stored
from symsim.report import rendered
from symsim.report.content import report


def test_every_alternative_has_its_effect() -> None:
    found = stored()
    assert [(e.assumption, e.choice) for e in found.effects] == list(alternatives()), "python docs/remake.py makes derivations/effects.json"
    assert (found.cases, found.system) == (CASES, SYSTEM)


def test_effects_are_those_of_now() -> None:
    """Of some that move counts, bytes and seconds."""
    before = {"llama3-70b": numbers("llama3-70b", {})}
    by_name = {(e.assumption, e.choice): e for e in stored().effects}
    for name, choice in (("causal", "half"), ("save_gathered", "true"), ("attention_kernel", "math")):
        now = measure(name, choice, before).moves.get("llama3-70b", {})
        was = by_name[name, choice].moves.get("llama3-70b", {})
        assert now.keys() == was.keys() and now, "python docs/remake.py makes derivations/effects.json anew"
        assert now == pytest.approx(was, abs=2e-3)


def test_the_list_shows_what_an_alternative_moves() -> None:
    listed = " ".join(in_process.run("list", "assumptions").stdout.split())
    effect = next(e for e in stored().effects if (e.assumption, e.choice) == ("causal", "half"))
    assert said(effect) in listed and "half: forward -" in listed


@pytest.mark.parametrize("suffix", [".md", ".html", ".tex"])
def test_a_report_has_of_every_assumption_its_default_and_what_it_moves(suffix: str) -> None:
    result = derive("llama3-8b", "tp=2,sp=true", overrides={"assume.causal": "half"}, system="h100-sxm")
    text = rendered(report(result), suffix).decode()
    plain = text.replace("<wbr/>", "").replace(r"\allowbreak{}", "").replace(r"\,", " ").replace("\\", "").replace("\u202f", " ")
    assert "half (default full)" in plain
    assert "true: peak +1.3 to +40 %; step " in plain and "saved +2.1 to +81 %" not in plain
    # without time and peak, all that there is
    bare = rendered(report(derive("llama3-8b", "tp=2,sp=true")), suffix).decode().replace(r"\,", " ").replace("\\", "").replace("\u202f", " ")
    assert "saved +2.1 to +81 %" in bare
    effect = next(e for e in stored().effects if (e.assumption, e.choice) == ("save_gathered", "true"))
    assert "saved +2.1 to +81 %" in said_in_brief(effect) and "+2.1 % deepseek-v3" in said(effect)
    math = next(e for e in stored().effects if (e.assumption, e.choice) == ("attention_kernel", "math"))
    assert re.search(r"saved -0\.62 to \+3\d\d %", said_in_brief(math)) and "e+0" not in said(math)
