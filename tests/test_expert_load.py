"""The busiest of the experts' ranks where tokens choose at random: the formula against draws."""

from __future__ import annotations

import numpy as np
import pytest

from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy


def rows(ep: int, load: str, seq: int = 512, **overrides: float) -> float:
    """Rows of a rank of a small mixture's experts: those that its activation takes, over its width."""
    result = derive(load_model("qwen3-30b-a3b").architecture, Strategy(ep=ep, dp=ep, seq_length=seq), {"expert_load": load}, overrides)
    block = result.lowered.blocks["moe"].placed.block
    return float(block.dims["R"].size.evaluate(result.values))


@pytest.mark.parametrize("ep", [2, 8, 32])
def test_against_draws(ep: int) -> None:
    """512 tokens a rank, 8 of 128 experts each: the mean of the busiest rank's excess over 60 draws, and its spread."""
    rng = np.random.default_rng(7)
    busiest = []
    for _ in range(60):
        chosen = np.argpartition(rng.random((512 * ep, 128)), 8, axis=1)[:, :8]
        busiest.append(np.bincount((chosen // (128 // ep)).ravel(), minlength=ep).max())
    excess = np.array(busiest) / (512 * 8) - 1
    said = rows(ep, "random") / rows(ep, "balanced") - 1
    assert said == pytest.approx(excess.mean(), abs=3 * excess.std() / np.sqrt(60) + 0.04 * excess.mean())


def test_a_measured_load_holds_beside_it() -> None:
    assert rows(8, "balanced") == 512 * 8 and rows(8, "balanced", lam=1.5) == 1.5 * 512 * 8
    assert rows(8, "random", lam=1.5) == pytest.approx(1.5 * rows(8, "random"))
    assert 1 < rows(8, "random") / rows(8, "balanced") < 1.1


def test_no_rank_gets_more_than_all_tokens() -> None:
    assert rows(2, "random", seq=1) <= 2 * 8
