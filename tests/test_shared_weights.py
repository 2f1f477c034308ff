"""Weights that several layers share: counted, kept and updated once, multiplied by every layer that borrows them."""

from __future__ import annotations

from functools import cache

import pytest

from symsim.algebra.kinds import spelt
from symsim.api.result import Result, derive
from symsim.cost.reduce import narrow_of_block
from symsim.errors import InputError
from symsim.inputs.hf import read_config
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


def test_layers_that_share_all_weights_hold_them_once() -> None:
    """ALBERT: two groups of three layers; every layer multiplies, and two of six hold parameters, gradients and states."""
    sizes = {"vocab_size": 96, "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = {"model_type": "albert", "num_hidden_layers": 6, "num_hidden_groups": 2, **sizes}
    model = read_config(config, "albert", "config.json")[0]
    result = derive(model, load_strategy("dp=2,zero=1"))
    held = 4 * (32 * 32 + 32) + 2 * 32 * 48 + 48 + 32 + 4 * 32
    assert sum(int(result.value(f"N_{module}")) for module in ("attention", "norm")) == 2 * (4 * (32 * 32 + 32) + 4 * 32) + 2 * 2 * 16
    embedded = 96 * 16 + 512 * 16 + 2 * 16 + 2 * 16 + 16 * 32 + 32
    assert int(result.value("params.total")) == 2 * held + embedded + 32 * 16 + 16 + 2 * 16 + 96
    unshared = derive(read_config(config | {"num_hidden_groups": 6}, "albert", "config.json")[0], load_strategy("dp=2,zero=1"))
    assert result.value("F") == unshared.value("F")
    for strategy, said in (("pp=2", "share their weights"), ("zero=3,dp=2", "share weights")):
        with pytest.raises(InputError, match=said):
            derive(model, load_strategy(strategy))
