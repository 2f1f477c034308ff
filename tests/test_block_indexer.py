"""An indexer that chooses blocks of keys for grouped queries (MiniMax-M3): what it costs, what attention over its blocks does, what it sends."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.attention import Attention
from symsim.inputs.hf import read_config
from symsim.inputs.strategies import load_strategy

B, S, H, HEADS, D, A_X, D_X, BLOCK, CHOSEN = 2, 64, 64, 4, 16, 2, 8, 4, 3
CONFIG: dict[str, Any] = {
    **{"model_type": "minimax_m3_vl_text", "vocab_size": 128, "hidden_size": H, "num_attention_heads": HEADS, "num_key_value_heads": 2},
    **{"head_dim": D, "num_hidden_layers": 2, "dense_intermediate_size": 96, "intermediate_size": 32, "shared_intermediate_size": 48},
    **{"num_local_experts": 4, "num_experts_per_tok": 2, "index_n_heads": A_X, "index_head_dim": D_X, "index_block_size": BLOCK},
    **{"index_topk_blocks": CHOSEN, "mlp_layer_types": ["dense", "dense"], "layer_types": ["full_attention", "minimax_m3_sparse"]},
}


@cache
def derived(strategy: str = "dp=1", length: int = S, causal: str = "full") -> Result:
    given = load_strategy(f"micro_batch_size={B},seq_length={length},{strategy}")
    return derive(read_config(CONFIG, "blocks", "config.json")[0], given, {"causal": causal})


def test_an_indexer_goes_through_all_keys_in_heads_without_weights() -> None:
    result = derived()
    plain, chooses = result.model.kind_names()
    found = {name.removeprefix(f"F_{chooses}_attention_"): int(n) for name, n in result.numbers.items() if "_indexer_" in name}
    own = {"q_proj": 2 * B * S * H * A_X * D_X, "k_proj": 2 * B * S * H * D_X, "scores": 2 * B * S * S * A_X * D_X}
    assert {name.removeprefix("indexer_"): n for name, n in found.items() if name.startswith("indexer_")} == own
    keys = CHOSEN * BLOCK
    core = {kind: int(result.numbers[f"F_{kind}_attention_core"]) for kind in (plain, chooses)}
    assert core == {plain: 2 * B * S * HEADS * S * 2 * D, chooses: 2 * B * S * HEADS * keys * 2 * D}
    held = int(result.numbers[f"N_{chooses}_attention"] - result.numbers[f"N_{plain}_attention"])
    assert held == H * (A_X + 1) * D_X and int(result.numbers[f"N_{chooses}_norm"] - result.numbers[f"N_{plain}_norm"]) == 2 * D_X
    assert not any("indexer" in kernel.label for kernel in result.lowered.blocks[chooses].differentiated.backward)


@pytest.mark.parametrize("length", [3, 8, 12, 13, 64, 67])
def test_a_query_has_the_keys_of_its_own_block_up_to_itself(length: int) -> None:
    keys = CHOSEN * BLOCK
    seen = [i + 1 if i < keys else keys - BLOCK + i % BLOCK + 1 for i in range(length)]
    assert Fraction(derived(length=length, causal="exact").numbers["n_k"]) == Fraction(sum(seen), length)


@pytest.mark.parametrize(("strategy", "axis"), [("tp=2,sp=true", "tp"), ("cp=2,cp_comm_type=a2a", "cp")])
def test_ranks_that_split_sequences_gather_its_keys_and_its_choice(strategy: str, axis: str) -> None:
    """One key of each token, and the numbers of the blocks of every head: neither has a gradient."""
    result = derived(strategy)
    plain, chooses = (result.lowered.blocks[kind].differentiated for kind in result.model.kind_names())
    more = [m for _, m in chooses.forward_messages if all((m.op, m.send_elements) != (o.op, o.send_elements) for _, o in plain.forward_messages)]
    sent = {(m.op, m.axis, m.dtype): int(m.send_elements.evaluate(result.numbers)) for m in more}
    assert sent == {("all_gather", axis, "bf16"): B * S * D_X // 2, ("all_gather", axis, "int32"): B * S * A_X * CHOSEN // 2}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_types": ["full_attention", "sparse"]}, "key 'layer_types' names 'sparse'"),
        ({"index_n_heads": 3}, "dsa_indexer_n_heads 3 does not divide num_attention_heads 4"),
        ({"layer_types": None, "sparse_attention_config": {"sparse_attention_freq": [1]}}, "has 1 entries for 2 layers"),
        ({"mlp_layer_types": None, "moe_layer_freq": [0]}, "key 'moe_layer_freq' has 1 entries for 2 layers"),
    ],
)
def test_bad_configs(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(CONFIG | changes, "blocks", "config.json")


def test_published_configs_say_the_same_under_other_names() -> None:
    """The names of the checkpoint's config.json, which transformers reads as its own."""
    theirs = {"sparse_num_index_heads": A_X, "sparse_index_dim": D_X, "sparse_block_size": BLOCK, "sparse_topk_blocks": CHOSEN}
    own = {key: value for key, value in CONFIG.items() if not key.startswith("index_") and key not in ("layer_types", "mlp_layer_types")}
    published = own | {"moe_layer_freq": [0, 0], "sparse_attention_config": theirs | {"sparse_attention_freq": [0, 1]}}
    assert read_config(published, "blocks", "x")[0] == read_config(CONFIG, "blocks", "x")[0]


def test_what_does_not_go_together() -> None:
    spec = read_config(CONFIG, "blocks", "config.json")[0].attention.model_dump()
    with pytest.raises(ValueError, match="has to divide dsa_indexer_topk"):
        Attention.model_validate(spec | {"dsa_indexer_block": 5})
    with pytest.raises(InputError, match="that of blocks chooses blocks; give dsa_indexer_loss=none"):
        derived("dsa_indexer_loss=dense")
