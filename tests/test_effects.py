"""What each assumption moves is written down for all of them, and is what symsim gives now."""

from __future__ import annotations

import in_process
import pytest

from symsim.audit.effects import CASES, alternatives, measure, numbers, said, stored


def test_every_alternative_has_its_effect() -> None:
    found = stored()
    assert [(e.assumption, e.choice) for e in found.effects] == list(alternatives()), "python docs/remake.py makes derivations/effects.yaml"
    assert found.cases == CASES


def test_effects_are_those_of_now() -> None:
    """Of some that move counts, bytes and seconds."""
    before = {"llama3-70b": numbers("llama3-70b", {})}
    by_name = {(e.assumption, e.choice): e for e in stored().effects}
    for name, choice in (("causal", "half"), ("save_gathered", "true"), ("attention_kernel", "math")):
        now = measure(name, choice, before).moves.get("llama3-70b", {})
        was = by_name[name, choice].moves.get("llama3-70b", {})
        assert now.keys() == was.keys() and now, "python docs/remake.py makes derivations/effects.yaml anew"
        assert now == pytest.approx(was, abs=2e-3)


def test_the_list_shows_what_an_alternative_moves() -> None:
    listed = " ".join(in_process.run("list", "assumptions").stdout.split())
    effect = next(e for e in stored().effects if (e.assumption, e.choice) == ("causal", "half"))
    assert said(effect) in listed and "half: forward -" in listed
