"""DeepSeek sparse attention: what its indexer costs, what attention over the chosen keys does, and that no gradient flows through the choice."""

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

B, S, H, R_Q, HEADS, D_QK, D_V, A_X, D_X, K_X = 2, 64, 64, 24, 4, 12, 8, 3, 16, 10
CONFIG = {
    "model_type": "glm_moe_dsa",
    "hidden_size": H,
    "num_hidden_layers": 4,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "intermediate_size": 96,
    "vocab_size": 128,
    "q_lora_rank": R_Q,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": D_V,
    "index_topk": K_X,
    "index_n_heads": A_X,
    "index_head_dim": D_X,
    "first_k_dense_replace": 4,
    "index_topk_pattern": "FSFF",
}


@cache
def model(indexed: bool = True) -> Architecture:
    config = CONFIG if indexed else {k: v for k, v in CONFIG.items() if "index" not in k} | {"model_type": "deepseek_v3"}
    return read_config(config, "indexed", "config.json")[0]


@cache
def derived(indexed: bool = True, tp: int = 1, cp: int = 1, fusion: str = "te", **assumptions: str) -> Result:
    strategy = Strategy(micro_batch_size=B, seq_length=S, tp=tp, sp=tp > 1, cp=cp, fusion=fusion)  # type: ignore[arg-type]
    return derive(model(indexed), strategy, dict(assumptions))


def core(keys: int) -> int:
    return 2 * B * S * HEADS * keys * (D_QK + D_V)


def test_the_indexer_goes_through_all_keys_and_attention_through_those_chosen() -> None:
    result = derived()
    assert result.value("F_full_attention_indexer_wq_b") == 2 * B * S * R_Q * A_X * D_X
    assert result.value("F_full_attention_indexer_wk") == 2 * B * S * H * D_X
    assert result.value("F_full_attention_indexer_weights_proj") == 2 * B * S * H * A_X
    assert result.value("F_full_attention_indexer_scores") == 2 * B * S * S * A_X * (D_X + 1)
    assert result.value("F_full_attention_core") == result.value("F_following_attention_core") == core(K_X)
    assert "F_following_attention_indexer_scores" not in result.numbers


@pytest.mark.parametrize("assumptions", [{"dsa_stage": "warm_up"}, {"attention_kernel": "eager"}])
def test_attention_goes_through_all_keys_while_it_warms_up_or_has_a_mask(assumptions: dict[str, str]) -> None:
    assert derived(**assumptions).value("F_full_attention_core") == core(S)


def test_each_query_sees_the_keys_before_it_and_at_most_those_chosen() -> None:
    assert derived(causal="exact").value("n_k") * S == sum(min(i, K_X) for i in range(1, S + 1))


def test_no_gradient_flows_through_the_choice() -> None:
    """Beside latent attention without an indexer, only the chosen keys are kept, and no backward is longer."""
    result, plain = derived(), derived(indexed=False)
    assert result.value("A_full") - plain.value("A_dense") == B * S * K_X * 4
    with_mask = derived(fusion="eager", attention_kernel="eager")
    assert with_mask.value("A_full") == derived(indexed=False, fusion="eager", attention_kernel="eager").value("A_dense")
    block = result.lowered.blocks["full"]
    assert not [k for k in block.differentiated.backward if "indexer" in block.placed.block.ops[k.forward].name]
    assert not [name for name in block.differentiated.reduced_over if "indexer" in name]


def test_its_products_run_in_fp8_where_that_is_assumed() -> None:
    for assumed, peak in (("compute", "Phi_bf16"), ("fp8", "Phi_fp8")):
        result = derive(model(), Strategy(seq_length=S), {"dsa_index_scores": assumed}, system=load_system("h100-sxm"))
        definition = next(d for name, d in result.derivation.definitions.items() if name.endswith("full_attention_indexer_scores") and name[0] == "t")
        assert peak in definition.expr.symbols()


def test_ranks_exchange_the_keys_of_the_indexer_and_what_was_chosen() -> None:
    block = derived(tp=2, cp=2).lowered.blocks["full"]
    said = [(block.placed.block.ops[i].name.removesuffix(".all_gather"), m.axis, m.dtype) for i, m in block.differentiated.forward_messages]
    assert [m for m in said if "indexer" in m[0]] == [("attention.indexer.k_gather", axis, "bf16") for axis in ("tp", "cp")]
    assert ("attention.core", "tp", "int32") in said


@cache
def trained(loss: str, tp: int = 1, stage: str = "sparse", alone: bool = False) -> Result:
    frozen = {"freeze_parameters": ("embedding", "layers", "lm_head", "final_norm"), "trainable_parameters": ("attention.indexer",)} if alone else {}
    strategy = Strategy(micro_batch_size=B, seq_length=S, tp=tp, sp=tp > 1, dsa_indexer_loss=loss, **frozen)  # type: ignore[arg-type]
    return derive(model(), strategy, {"dsa_stage": stage})


@pytest.mark.parametrize(("loss", "keys"), [("dense", S), ("sparse", K_X)])
def test_a_loss_of_its_own_trains_the_indexer(loss: str, keys: int) -> None:
    """Forward the probabilities of attention again; backward both scores again, and gradients of queries, keys and weights; of three linear maps
    gradients of weights alone, since what they read is detached."""
    result, plain = trained(loss), trained("none")
    target, scores, sums = 2 * B * S * keys * HEADS * D_QK, 2 * B * S * keys * A_X * D_X, 2 * B * S * keys * A_X
    maps = 2 * B * S * (R_Q * A_X * D_X + H * D_X + H * A_X)
    assert result.value("F_full") - plain.value("F_full") == target
    assert result.value("G_full") - plain.value("G_full") == target + 3 * scores + 2 * sums + maps
    assert result.value("F_following") == plain.value("F_following") and result.value("G_following") == plain.value("G_following")


def test_what_the_loss_keeps() -> None:
    """Queries, keys and weights of the indexer, and what its norm and its rotary embeddings keep; attention keeps its own."""
    results = {loss: trained(loss) for loss in ("none", "dense")}
    kept = {loss: {s.name: int(s.bytes.evaluate(r.numbers)) for s in r.lowered.blocks["full"].saved} for loss, r in results.items()}
    more = {name.removeprefix("attention.indexer."): n for name, n in kept["dense"].items() if name not in kept["none"]}
    assert kept["none"].items() <= kept["dense"].items()
    ours = {"q_rot": 2 * B * S * A_X * D_X, "k_rot": 2 * B * S * D_X, "weights_proj.out": 2 * B * S * A_X, "wk.out": 2 * B * S * D_X}
    assert {name: more[name] for name in ours} == ours and {name.split(".")[0] for name in more.keys() - ours} <= {"k_norm", "rope_q", "rope_k"}


def test_probabilities_of_heads_on_several_ranks_are_summed() -> None:
    """Once forward and once where backward makes them again; and ranks have the same queries of the indexer."""
    block = trained("dense", tp=2).lowered.blocks["full"]
    messages, ops = (*block.differentiated.forward_messages, *block.differentiated.backward_messages), block.placed.block.ops
    said = [(m.phase, m.op) for i, m in messages if ops[i].name == "attention.indexer.loss"]
    assert said == [("forward", "all_reduce"), ("backward", "all_reduce")]


def test_gathered_keys_are_compared_where_their_queries_lie() -> None:
    """As Megatron-Core has it over context ranks (dsa.py gathers keys of attention and of the indexer): no FLOPs more, and a trained indexer's keys
    have a gradient to scatter."""
    over = {"micro_batch_size": B, "seq_length": S, "cp": 2, "cp_comm_type": "all_gather"}
    apart, plain = (derive(model(), Strategy(**over, dsa_indexer_loss=loss)) for loss in ("dense", "none"))
    assert apart.value("F_full") - plain.value("F_full") == trained("dense").value("F_full") - trained("none").value("F_full")
    block = apart.lowered.blocks["full"]
    said = [(m.op, m.axis) for i, m in block.differentiated.backward_messages if "indexer" in block.placed.block.ops[i].name]
    assert said == [("reduce_scatter", "cp")]
    kept = {s.name: int(s.bytes.evaluate(apart.numbers)) for s in block.saved}
    assert kept["attention.indexer.q_rot"] == 2 * B * (S // 2) * A_X * D_X


def test_the_stage_that_warms_it_up_has_no_backward_but_its_own() -> None:
    result = trained("dense", stage="warm_up", alone=True)
    own = R_Q * A_X * D_X + H * D_X + H * A_X + 2 * D_X
    assert result.value("params.trained") == 3 * own
    ops = {k: result.lowered.blocks[k] for k in result.model.kind_names()}
    run = {b.placed.block.ops[k.forward].name for b in ops.values() for k in b.differentiated.backward}
    assert run and all(name.startswith("attention.indexer") for name in run) and result.value("G_head") == 0


@pytest.mark.parametrize(
    ("indexed", "changes", "said"),
    [
        (False, {}, "trains an indexer, and indexed has none; give dsa_indexer_loss=none"),
        (True, {"fusion": "eager"}, "needs fusion=te: transformers does not train an indexer"),
        (True, {"cp": 2}, "which cp=2 with cp_comm_type=p2p leaves in parts; give cp_comm_type=all_gather"),
    ],
)
def test_where_the_loss_is_refused(indexed: bool, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        derive(model(indexed), Strategy(seq_length=S, dsa_indexer_loss="dense", **changes))


def test_documents_of_varied_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="not counted for attention over chosen keys"):
        derive(model(), Strategy(seq_length=4096, document_lengths="lognormal:500+0.5"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"index_topk_pattern": "FSF"}, "'index_topk_pattern' must be 4 letters, F or S"),
        ({"indexer_types": ["shared"] * 4}, "begins with a shared indexer"),
        ({"indexer_types": ["full", "half", "full", "full"]}, "names 'half'"),
        ({"q_lora_rank": None}, "'q_lora_rank' must be a positive integer"),
    ],
)
def test_bad_configs(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(CONFIG | changes, "indexed", "config.json")
