"""Weights that several layers share: counted, kept and updated once, multiplied by every layer that borrows them."""

from __future__ import annotations

from functools import cache

import pytest

from symsim.algebra.kinds import spelt
from symsim.api.result import Result, derive
from symsim.cost.reduce import narrow_of_block
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy

KINDS = tuple(map(spelt, ("hybrid", "hybrid_again", "mamba")))


@cache
def zamba2(strategy: str) -> Result:
    return derive(load_model("zamba2-7b").architecture, load_strategy(strategy))


@pytest.mark.parametrize("fusion", ["te", "eager"])
def test_a_block_counts_where_it_is_held(fusion: str) -> None:
    """Zamba2-7B: two blocks of 13 uses; what products are made of does not depend on who holds them."""
    result = zamba2(f"fusion={fusion}")
    assert int(result.value("params.total")) == 7_356_749_648  # 7.4 billion, arXiv 2411.15242
    held, again = (result.lowered.blocks[kind].differentiated for kind in KINDS[:2])
    assert [k.label for k in held.backward] == [k.label for k in again.backward]
    attention = [int(result.numbers[f"N_{kind}_attention"]) for kind in KINDS[1:]]
    assert attention[0] == attention[1]  # of a mixer, and no attention of its own
    assert int(result.numbers[f"N_{KINDS[1]}_mlp"]) == 3584**2 + 128 * (3584 + 2 * 14336)  # a projection, and adapters


def test_gradients_of_what_is_borrowed_are_sent_once() -> None:
    """Each rank sends as many gradients as it has parameters, and norms in front of what tensor ranks share as often as they are held."""
    result = zamba2("tp=2,sp=true,dp=4")
    (stage,) = result.stages
    numbers = result.stage_numbers(stage)
    assert 4 * numbers["P_stage"] == numbers["M_stage_gradients"]
    reduced = result.lowered.blocks[KINDS[1]].differentiated.reduced_over
    assert "tp" in reduced["shared_block.input_norm.weight"]  # a partial sum all the same, which the held one's gradient takes up


def test_copies_of_what_is_borrowed_are_kept_once() -> None:
    """A recipe's copies of a block's weights are no more than its parameters, though its products multiply more than these."""
    result = zamba2("fp8=delayed")
    held, again = (int(narrow_of_block(result.lowered, kind).evaluate(result.numbers)) for kind in KINDS[:2])
    assert 0 < again <= sum(result.numbers[f"N_{KINDS[1]}_{module}"] for module in ("attention", "mlp", "norm")) < held


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("pp=3", "layers of zamba2-7b read what the embedding made, which no framework"),
        ("zero=3,dp=2", "zero=3 gathers a layer's parameters for that layer alone"),
        ("tp=3", "tp=3 does not divide num_attention_heads=32"),
    ],
)
def test_what_shared_weights_cannot_run_with(strategy: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        zamba2(strategy)
    assert said in str(found.value)
