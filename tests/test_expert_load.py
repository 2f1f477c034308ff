"""The busiest of the experts' ranks where tokens choose at random: the formula against draws."""

from __future__ import annotations

import numpy as np
import pytest

from symsim.algebra.expr import expr
from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.placement.sizes import reached, reached_in_turn


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


def in_a_row(experts: int, chosen: int, parts: int) -> float:
    """Parts of the experts that hold one of a token's, where the next token takes the next: as many tokens as make the same again."""
    tokens = np.arange(experts)[:, None] * chosen + np.arange(chosen)
    held = tokens % experts // (experts // parts)
    return float(np.mean([len(set(row)) for row in held]))


@pytest.mark.parametrize(("experts", "chosen"), [(128, 8), (256, 8), (64, 6), (8, 2)])
def test_experts_in_a_row_are_of_few_ranks(experts: int, chosen: int) -> None:
    """Where one of a token's experts and a part's divides the other."""
    moe = load_model("qwen3-30b-a3b").architecture.moe
    assert moe is not None
    moe, sizes = moe.model_copy(update={"num_moe_experts": experts, "moe_router_topk": chosen}), {"E": experts, "K": chosen}
    for parts in (n for n in range(1, experts + 1) if experts % n == 0 and (chosen % (experts // n) == 0 or (experts // n) % chosen == 0)):
        found = reached_in_turn(expr(parts)).evaluate(sizes)
        assert found == in_a_row(experts, chosen, parts) and found <= reached(moe, expr(parts)).evaluate({}) + 1e-12


def test_kernels_of_an_exchange_send_a_token_once_to_few_ranks() -> None:
    """8 of 128 experts, 16 on each of 8 ranks: one rank has them all, of 5.3 otherwise; rows of experts stay."""
    flex = {"ep": 8, "dp": 8, "etp": 1, "moe_token_dispatcher_type": "flex"}
    model = load_model("qwen3-30b-a3b").architecture
    turns, drawn = (derive(model, Strategy(**flex), {"expert_load": load}, {}, load_system("h100-sxm")) for load in ("in_turn", "balanced"))
    rows_of, arrive = (
        [float(r.lowered.blocks["moe"].placed.block.dims[dim].size.evaluate(r.values)) for r in (turns, drawn)] for dim in ("R", "R_u")
    )
    assert rows_of[0] == rows_of[1] == 8 * 4096 and arrive[0] == 4096 and 5.2 < arrive[1] / 4096 < 5.4
    assert turns.step_numbers["exposed_ep"] < drawn.step_numbers["exposed_ep"] / 4
    # between nodes too: 64 ranks on 8 nodes, 2 experts on each rank; a token reaches 4 ranks of one node
    wide = {**flex, "ep": 64, "dp": 64}
    apart, near = (derive(model, Strategy(**wide), {"expert_load": load}, {}, load_system("h100-sxm")) for load in ("balanced", "in_turn"))
    assert near.step_numbers["exposed_ep"] < apart.step_numbers["exposed_ep"] / 3


def test_messages_of_tokens_reach_few_nodes() -> None:
    """Of 16 ranks on two nodes one has a token's 8 experts in a row, and both where they are drawn: half as much between nodes."""
    model, rate = load_model("qwen3-30b-a3b").architecture, []
    for load in ("in_turn", "balanced"):
        found = derive(model, Strategy(ep=16, dp=16, etp=1), {"expert_load": load, "moe_exchange": "once_per_node"}, {}, load_system("h100-sxm"))
        rate.append(found.step_numbers["beta_ep_all_to_all"])
    assert rate[1] == pytest.approx(2 * rate[0], rel=1e-12)
