"""DeepSeek-V4's attention: which keys its queries see, what it costs, and what ranks exchange. Its counts and kept bytes are among
tests/oracle/families.json."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

B, S, HEADS, D, W, K_X, A_X, D_X = 2, 46, 4, 16, 8, 3, 3, 8
TOKENS = {"picked": 4, "compressed": 7}
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "vocab_size": 100,
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "head_dim": D,
    "q_lora_rank": 48,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "o_groups": 2,
    "o_lora_rank": 24,
    "index_n_heads": A_X,
    "index_head_dim": D_X,
    "index_topk": K_X,
    "sliding_window": W,
    "hc_mult": 2,
    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
    "compress_rates": {"compressed_sparse_attention": TOKENS["picked"], "heavily_compressed_attention": TOKENS["compressed"]},
}


@cache
def model() -> Architecture:
    return read_config(CONFIG, "small", "config.json")[0]


@cache
def derived(causal: str = "exact", tp: int = 1, timed: bool = False) -> Result:
    strategy = Strategy(micro_batch_size=B, seq_length=S, tp=tp, sp=tp > 1)
    return derive(model(), strategy, {"causal": causal}, system=load_system("h100-sxm") if timed else None)


def seen(kind: str, query: int) -> int:
    """Keys of a query: those of its window, and entries that are complete before it, of which an indexer chooses some."""
    complete = 0 if kind == "local" else (query + 1) // TOKENS[kind]
    return min(query + 1, W) + (min(complete, K_X) if kind == "picked" else complete)


@pytest.mark.parametrize("kind", ["local", "picked", "compressed"])
def test_keys_of_every_query(kind: str) -> None:
    assert int(derived().numbers[f"F_{kind}_attention_core"]) == 4 * B * HEADS * D * sum(seen(kind, i) for i in range(S))


def test_the_indexer_goes_through_all_entries() -> None:
    scores = 2 * B * A_X * D_X
    assert int(derived().numbers["F_picked_attention_indexer_scores"]) == scores * sum((i + 1) // 4 for i in range(S))
    assert int(derived("full").numbers["F_picked_attention_indexer_scores"]) == scores * S * (S // 4)
    labels = {k.label for k in derived().lowered.blocks["picked"].differentiated.backward if "indexer" in _op(derived(), k.forward)}
    assert labels == set()  # the choice has no gradient


def _op(result: Result, index: int) -> str:
    return result.lowered.blocks["picked"].placed.block.ops[index].name


def test_utilisation_leaves_out_what_no_query_sees() -> None:
    """Counted with every key, F has FLOPs outside of windows and entries, which MFU takes away: with those that are seen it has none."""
    full = derived("full", timed=True)
    outside = sum(
        4 * B * HEADS * D * (S * (S + full_entries(kind)) - sum(seen(kind, i) for i in range(S))) for kind in ("local", "picked", "compressed")
    )
    assert int(full.numbers["F_outside"]) == outside
    assert full.value("mfu") < derived("exact", timed=True).value("mfu") * 1.2


def full_entries(kind: str) -> int:
    return {"local": 0, "picked": min(K_X, S // 4), "compressed": S // 7}[kind]


def test_ranks_gather_keys_and_entries_and_sum_their_gradients_into_shares() -> None:
    messages = derived(tp=2).lowered.blocks["compressed"].differentiated
    forward = [m.op for _, m in messages.forward_messages if "attention" in m.what]
    backward = [m.op for _, m in messages.backward_messages if "attention" in m.what]
    assert forward == ["all_gather"] * 3 + ["reduce_scatter"]  # queries' latent, keys, entries; the output
    assert backward == ["all_gather"] + ["reduce_scatter"] * 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tuner_type": "lora"}, "adapters that are not counted"),
        ({"cp": 2}, "runs compressed attention on parts of one"),
        ({"packed_document_length": 8}, "documents in a row are not counted for compressed"),
    ],
)
def test_what_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        derive(model(), Strategy(seq_length=48, **given))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"compress_rates": {"heavily_compressed_attention": 4}}, "key 'compress_rates.compressed_sparse_attention' must be a positive integer"),
        ({"layer_types": None, "compress_ratios": [0, 4, 5]}, "key 'compress_ratios' must be 3 numbers, each 0, 4 or 128"),
        ({"o_groups": 3}, "output_groups 3 does not divide num_attention_heads 4"),
    ],
)
def test_configs_that_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config({k: v for k, v in (CONFIG | changed).items() if v is not None}, "small", "config.json")
