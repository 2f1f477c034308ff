"""The z-loss of a router: what it keeps (torch 2.13: logsumexp keeps its input and its result, which the square keeps too) and moves."""

from __future__ import annotations

import pytest

from symsim.api.result import Result, derive
from symsim.cost.hbm import backward_bytes, forward_bytes
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy

B, S, EXPERTS = 2, 512, 8


def made(asked: bool, **given: object) -> Result:
    strategy = Strategy.model_validate({"moe_z_loss": asked, "micro_batch_size": B, "seq_length": S, **given})
    return derive(load_model("mixtral-8x7b").architecture, strategy)


@pytest.mark.parametrize(("given", "width", "ranks"), [({}, 2, 1), ({"moe_router_dtype": "fp32"}, 4, 1), ({"tp": 2, "sp": True}, 2, 2)])
def test_what_it_keeps(given: dict[str, object], width: int, ranks: int) -> None:
    kept = []
    for asked in (False, True):
        result = made(asked, **given)
        block = result.lowered.blocks["moe"]
        kept.append(sum(int(item.bytes.evaluate(result.numbers)) for item in block.saved))
    assert kept[1] - kept[0] == B * S // ranks * (EXPERTS + 1) * width


def test_a_pass_over_logits_and_over_their_gradients() -> None:
    result = made(True)
    remembered = result.lowered.blocks["moe"]
    placed = remembered.placed
    at = next(i for i, op in enumerate(placed.block.ops) if op.kind == "z_loss")
    logits, sums = B * S * EXPERTS * 2, B * S * 2
    assert forward_bytes(placed, at, result.lowered.profile).expr.evaluate(result.numbers) == logits + sums
    backward = [k for k in remembered.differentiated.backward if k.forward == at]
    assert [backward_bytes(placed, k, result.lowered.profile).expr.evaluate(result.numbers) for k in backward] == [2 * logits + sums]
    assert not any(op.kind == "z_loss" for op in made(False).lowered.blocks["moe"].placed.block.ops)
