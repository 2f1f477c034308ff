"""Layers whose heads are not those of the rest: as many as their kind has, split over ranks kind by kind."""

from __future__ import annotations

import pytest

import symsim
from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture, Attention, LayerKind, Mlp, Segment
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

SMALL = Architecture(
    name="small",
    hidden_size=64,
    vocab_size=128,
    layers=(Segment(repeat=2, kinds=("local", "full")),),
    layer_kinds={"local": LayerKind(window=16), "full": LayerKind(kv_channels=32, num_query_groups=2, keys_as_values=True)},
    attention=Attention(num_attention_heads=16, num_query_groups=8, kv_channels=16, qk_norm="head"),
    mlp=Mlp(ffn_hidden_size=192),
)
MORE_HEADS = SMALL.model_copy(update={"layer_kinds": {"local": LayerKind(num_attention_heads=24), "full": LayerKind()}})
COLUMNS = ["memory.peak", "activations.saved_per_microbatch"]


@pytest.mark.parametrize("fusion", ["te", "eager"])
def test_formulas_change_where_ranks_outnumber_the_key_heads_of_either_kind(fusion: str) -> None:
    """Two key/value heads in layers of one kind and eight in the others: a sweep asks for other formulas above two ranks, and above eight."""
    strategy = Strategy(seq_length=64, fusion=fusion, sp=fusion == "te")
    rows = symsim.sweep(SMALL, {"tp": [2, 4, 8, 16]}, strategy, columns=COLUMNS).rows
    alone = [derive(SMALL, strategy.model_copy(update={"tp": tp})) for tp in (2, 4, 8, 16)]
    assert {name: [int(x) for x in rows[name]] for name in COLUMNS} == {name: [int(one.value(name)) for one in alone] for name in COLUMNS}


def test_ranks_share_the_key_heads_of_one_kind_alone() -> None:
    """On four ranks a layer with two key/value heads gathers its projection, and one with eight does not."""
    blocks = derive(SMALL, Strategy(seq_length=64, tp=4, sp=True)).lowered.blocks
    gathered = {kind: [m.op for _, m in blocks[kind].differentiated.forward_messages].count("all_gather") for kind in ("local", "full")}
    assert gathered == {"local": 2, "full": 3}


def test_query_heads_of_a_kind() -> None:
    """Parameters and FLOPs of attention in proportion to its query heads, beside the same keys and values."""
    result = derive(MORE_HEADS, Strategy(seq_length=64))
    per_head, keys = 2 * 16 * 64, 2 * 8 * 16 * 64
    assert [int(result.numbers[f"N_{kind}_attention"]) for kind in ("local", "full")] == [24 * per_head + keys, 16 * per_head + keys]
    assert 2 * int(result.numbers["F_local_attention_core"]) == 3 * int(result.numbers["F_full_attention_core"])


TWO_WINDOWS = SMALL.model_copy(update={"layer_kinds": {"local": LayerKind(window=16), "full": LayerKind(window=40)}})


def test_layers_of_two_windows() -> None:
    """Keys of either kind are those that its own queries see, which a loop over queries counts; each window is a symbol."""
    result = derive(TWO_WINDOWS, Strategy(seq_length=64), {"causal": "exact"})
    for kind, window in (("local", 16), ("full", 40)):
        pairs = sum(min(i + 1, window) for i in range(64))
        assert int(result.numbers[f"F_{kind}_attention_core"]) == 4 * pairs * 16 * 16
        assert result.numbers[f"w_{kind}"] == window
    system = load_system("h100-sxm")
    one, two = (derive(m, Strategy(seq_length=4096), system=system).numbers for m in (SMALL, TWO_WINDOWS))
    assert two["t_f_local_attention_core"] == one["t_f_local_attention_core"] < two["t_f_full_attention_core"] < one["t_f_full_attention_core"]
    rows = symsim.sweep(TWO_WINDOWS, {"s": [32, 64]}, Strategy(), overrides={"assume.causal": "exact"}, columns=["F_full_attention_core"]).rows
    assert [int(x) for x in rows["F_full_attention_core"]] == [4 * sum(min(i + 1, 40) for i in range(s)) * 256 for s in (32, 64)]


@pytest.mark.parametrize(
    ("model", "strategy", "said"),
    [
        (SMALL.model_copy(update={"layer_kinds": SMALL.layer_kinds | {"full": LayerKind(num_query_groups=6)}}), {"tp": 4}, "of it; valid: 1, 2"),
        (MORE_HEADS, {"tp": 16}, "tp=16 does not divide layer_kinds.local.num_attention_heads=24; valid: 1, 2, 3, 4, 6, 8, 12, 24"),
        (TWO_WINDOWS, {"document_lengths": "lognormal:16+0.5"}, "not counted for windows of several sizes"),
        (SMALL, {"tp": 2, "cp": 2, "cp_comm_type": "a2a"}, "does not divide num_query_groups/tp=1"),
    ],
)
def test_what_is_refused(model: Architecture, strategy: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        derive(model, Strategy(**{"seq_length": 64, **strategy}))
