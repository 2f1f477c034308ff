"""An elasticity says what else moves: a head's width follows the width and the heads, micro-batches the ranks that share a batch."""

from __future__ import annotations

from functools import cache

import symsim
from symsim.api.result import Result

ASKED = "llama3-8b", "tp=2,sp=true,dp=4,global_batch_size=64"


@cache
def _result() -> Result:
    return symsim.derive(*ASKED, system="h100-sxm")


def test_what_moves_along_is_said() -> None:
    found = _result().elasticity("M_peak", "a, h")
    assert {m.symbol: m.along for m in found.moves} == {"a": (("d", 64, 128),), "h": (("d", 144, 128),)}
    text = str(found)
    assert "  with a = 64 goes d = 64 (128 now)" in text.splitlines() and "  with h = 4,608 goes d = 144 (128 now)" in text.splitlines()
    there = symsim.derive(ASKED[0], ASKED[1], overrides={"a": 64}, system="h100-sxm")
    assert there.values["d"] == 64 and there.value("M_peak") < _result().value("M_peak")
    assert found.to_json()["elasticities"][0]["moves_along"] == [{"symbol": "d", "to": 144, "now": 128}]


def test_of_a_derivative_too_and_of_what_moves_alone_nothing() -> None:
    found = _result().elasticity("mfu", "Phi_bf16, B_1, s, dp")
    assert {m.symbol: [name for name, _, _ in m.along] for m in found.moves} == {"Phi_bf16": ["Phi"], "B_1": [], "s": [], "dp": ["m", "world"]}
    assert "  with Phi_bf16 moves Phi\n" in str(found)


def test_a_width_of_heads_that_is_given_stays() -> None:
    held = symsim.derive(ASKED[0], ASKED[1], overrides={"d": 128}, system="h100-sxm").elasticity("M_peak", "a")
    assert held.moves[0].along == () and held["a"] > 0 > _result().elasticity("M_peak", "a")["a"]
