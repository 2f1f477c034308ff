"""Impossible combinations are refused with the reason; every rule also lets a valid neighbour through."""

from __future__ import annotations

from typing import Any

import pytest

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.layer_pattern import compress
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import OWN_RULES, check
from symsim.pipeline.layout import pipeline_layout
from symsim.placement import names

DENSE = Architecture.model_validate(
    {
        "name": "dense",
        "hidden_size": 4096,
        "vocab_size": 128256,
        "layers": "32 * dense",
        "attention": {"num_attention_heads": 32, "num_query_groups": 8},
        "mlp": {"ffn_hidden_size": 14336},
    }
)
MOE = Architecture.model_validate(
    {
        "name": "moe",
        "hidden_size": 2048,
        "vocab_size": 32000,
        "layers": "12 * moe",
        "layer_kinds": {"moe": {"ffn": "moe"}},
        "attention": {"num_attention_heads": 16},
        "moe": {"num_moe_experts": 64, "moe_router_topk": 8, "moe_ffn_hidden_size": 1408},
    }
)
MIXED = Architecture.model_validate(
    {
        **MOE.model_dump(),
        "name": "mixed",
        "layers": compress(["dense"] + ["moe"] * 11),
        "layer_kinds": {"dense": {}, "moe": {"ffn": "moe"}},
        "mlp": {"ffn_hidden_size": 8192},
        "moe": {**MOE.moe.model_dump(), "moe_shared_expert_intermediate_size": 1406},
        "mtp_num_layers": 1,
        "attention": {
            "kind": "mla",
            "num_attention_heads": 16,
            "kv_lora_rank": 512,
            "qk_head_dim": 128,
            "qk_pos_emb_head_dim": 64,
            "v_head_dim": 128,
        },
    }
)
WINDOWED = DENSE.model_copy(update={"name": "windowed", "layer_kinds": {"dense": DENSE.layer_kinds["dense"].model_copy(update={"window": 1024})}})
SINKS = DENSE.model_copy(update={"name": "sinks", "attention": DENSE.attention.model_copy(update={"sinks": True})})
BOTH = WINDOWED.model_copy(update={"name": "windowed sinks", "attention": SINKS.attention})
LINEAR = Architecture.model_validate(
    {
        **DENSE.model_dump(),
        "name": "linear",
        "layers": "32 * lin",
        "layer_kinds": {"lin": {"mixer": "linear_attention"}},
        "linear_attention": {"linear_num_key_heads": 12, "linear_num_value_heads": 24, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    }
)
SIX_GROUPS = DENSE.model_copy(update={"attention": DENSE.attention.model_copy(update={"num_attention_heads": 24, "num_query_groups": 6})})
ODD_VOCAB = DENSE.model_copy(update={"vocab_size": 50257})

RULES: list[tuple[Architecture, dict[str, Any], str, dict[str, Any]]] = [
    # architecture, refused, what the sentence says, the change that makes it valid
    (DENSE, {"tp": 3}, "tp=3 does not divide num_attention_heads=32; valid: 1, 2, 4, 8, 16, 32", {"tp": 4}),
    (SIX_GROUPS, {"tp": 4}, "tp=4 neither divides num_query_groups=6 nor is a multiple of it; valid: 1, 2, 3, 6, 12, 24", {"tp": 2}),
    (DENSE, {"sp": True}, "sp=true needs tp above 1", {"tp": 2}),
    (ODD_VOCAB, {"tp": 2}, "vocab_size=50432", {"tp": 1}),
    (LINEAR, {"tp": 8}, "tp=8 does not divide linear_num_key_heads=12", {"tp": 4}),
    (MOE, {"tp": 2}, "needs sp=true", {"sp": True}),
    (MIXED, {"tp": 4, "sp": True}, "tp=4 does not divide moe_shared_expert_intermediate_size=1406", {"tp": 2}),
    (DENSE, {"ep": 2, "dp": 2}, "ep=2 needs a mixture of experts, and dense has none", {"ep": 1}),
    (DENSE, {"etp": 2, "dp": 2}, "etp=2 needs a mixture of experts", {"etp": 1}),
    (DENSE, {"moe_expert_capacity_factor": 1.0}, "moe_expert_capacity_factor needs a mixture of experts", {"moe_expert_capacity_factor": None}),
    (MOE, {"ep": 3, "dp": 3}, "ep=3 does not divide num_moe_experts=64", {"ep": 1}),
    (MOE, {"ep": 8, "dp": 1}, "etp*ep=1*8 does not divide the 1 ranks of a pipeline stage (tp*cp*dp=1*1*1)", {"dp": 8}),
    (MOE, {"tp": 2, "sp": True, "ep": 4, "dp": 2}, "(etp is tp unless given); give dp=4 or ep=2 or etp=1", {"etp": 1}),
    (MOE, {"ep": 8, "dp": 12}, "give dp=16 or ep=4", {"ep": 4}),
    (MOE, {"etp": 3, "dp": 3}, "etp=3 does not divide moe_ffn_hidden_size=1408", {"etp": 1}),
    (MOE, {"moe_pad_expert_input_to_capacity": True}, "needs moe_expert_capacity_factor", {"moe_expert_capacity_factor": 1.0}),
    (
        MOE,
        {"moe_expert_capacity_factor": 1.0, "moe_token_dispatcher_type": "allgather"},
        "moe_token_dispatcher_type=alltoall",
        {"moe_token_dispatcher_type": "alltoall"},
    ),
    (DENSE, {"cp": 2, "seq_length": 4098}, "seq_length=4098 is not a multiple of 2*cp=4", {"seq_length": 4100}),
    (DENSE, {"cp": 2, "seq_length": 4097, "cp_comm_type": "a2a"}, "seq_length=4097 is not a multiple of cp=2", {"seq_length": 4098}),
    (DENSE, {"cp": 4, "tp": 4, "cp_comm_type": "a2a"}, "does not divide num_query_groups/tp=2; valid: 1, 2", {"cp": 2}),
    (MIXED, {"cp": 32, "cp_comm_type": "a2a"}, "does not divide num_attention_heads/tp=16", {"cp": 16}),
    (DENSE, {"cp": 4, "cp_comm_type": "a2a+p2p"}, "needs hierarchical_context_parallel_sizes", {"hierarchical_context_parallel_sizes": (2, 2)}),
    (
        DENSE,
        {"cp": 4, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": (2, 4)},
        "=2+4 must be two degrees (a2a, p2p) whose product is cp=4",
        {"cp": 8},
    ),
    (
        DENSE,
        {"cp": 4, "hierarchical_context_parallel_sizes": (2, 2)},
        "belongs to cp_comm_type=a2a+p2p, and cp_comm_type is p2p",
        {"cp_comm_type": "a2a+p2p"},
    ),
    (WINDOWED, {"cp": 4, "tp": 4, "cp_comm_type": "a2a"}, "valid: 1, 2, or cp_comm_type=all_gather", {"cp_comm_type": "all_gather"}),
    (WINDOWED, {"cp": 2}, "does not support sliding-window attention (layers 'dense')", {"cp_comm_type": "all_gather"}),
    (SINKS, {"cp": 2, "cp_comm_type": "all_gather"}, "does not support learned softmax offsets", {"cp_comm_type": "a2a"}),
    # what a window could do with, sinks cannot
    (BOTH, {"cp": 2}, "does not support learned softmax offsets (attention.sinks); use cp_comm_type=a2a", {"cp_comm_type": "a2a"}),
    (DENSE, {"tp": 8, "sp": True, "seq_length": 4100}, "the next length that fits is 4104", {"seq_length": 4104}),
    (DENSE, {"pp": 64}, "pp=64 is more than the 32 layers of dense", {"pp": 32}),
    (DENSE, {"pp": 16, "vpp": 3}, "pp*vpp=16*3=48 is more than the 32 layers of dense", {"vpp": 2}),
    (DENSE, {"dp": 8, "zero": 3, "reshard_after_forward": 3}, "reshard_after_forward=3 does not divide the 8 ranks", {"reshard_after_forward": 4}),
    (DENSE, {"vpp": 2}, "vpp=2 needs pp above 1", {"pp": 2}),
    (DENSE, {"num_layers_in_first_pipeline_stage": 4}, "needs pp above 1", {"pp": 2}),
    (
        DENSE,
        {"pp": 4, "num_layers_in_first_pipeline_stage": 4},
        "the 28 layers left after num_layers_in_first_pipeline_stage do not divide into 3 stages",
        {"num_layers_in_first_pipeline_stage": 5},
    ),
    (
        DENSE,
        {"pp": 4, "num_layers_in_first_pipeline_stage": 5, "num_layers_in_last_pipeline_stage": 28},
        "hold 33 layers of 32",
        {"num_layers_in_last_pipeline_stage": 7},
    ),
    (
        DENSE,
        {"pp": 2, "num_layers_in_first_pipeline_stage": 15, "num_layers_in_last_pipeline_stage": 15},
        "hold 30 layers of 32, and pp=2 leaves 0 stages",
        {"num_layers_in_last_pipeline_stage": 17},
    ),
    (
        DENSE,
        {"pp": 2, "vpp": 2, "num_layers_in_first_pipeline_stage": 15},
        "vpp=2 does not divide num_layers_in_first_pipeline_stage=15",
        {"num_layers_in_first_pipeline_stage": 14},
    ),
    (
        DENSE,
        {"pp": 3, "num_layers_in_first_pipeline_stage": 10, "account_for_loss_in_pipeline_split": True},
        "cannot be given together",
        {"account_for_loss_in_pipeline_split": False},
    ),
    (DENSE, {"pp": 2, "pipeline_model_parallel_layout": "Et*16|t*15|tL"}, "has 3 stages, and pp*vpp=2*1 needs 2", {"pp": 3}),
    (
        DENSE,
        {"pp": 2, "pipeline_model_parallel_layout": "Et*16|t*15L"},
        "places 31 layers, and dense has 32",
        {"pipeline_model_parallel_layout": "Et*16|t*16L"},
    ),
    (
        DENSE,
        {"pp": 2, "pipeline_model_parallel_layout": "t*16|Et*16L"},
        "must begin with its only E",
        {"pipeline_model_parallel_layout": "Et*16|t*16L"},
    ),
    (
        DENSE,
        {"pp": 2, "pipeline_model_parallel_layout": "Et*16L|t*16L"},
        "must end with its only L",
        {"pipeline_model_parallel_layout": "Et*16|t*16,L"},
    ),
    (
        DENSE,
        {"pp": 2, "pipeline_model_parallel_layout": "Et*16|t*16L", "num_layers_in_last_pipeline_stage": 16},
        "already places every layer",
        {"num_layers_in_last_pipeline_stage": None},
    ),
    (
        MIXED,
        {"pp": 2, "pipeline_model_parallel_layout": "Et*6|t*6L"},
        "places 0 multi-token prediction depths, and 1 are trained",
        {"mtp_num_layers": 0},
    ),
    (MIXED, {"pp": 2, "pipeline_model_parallel_layout": "Et*6m|t*6L"}, "before the last layer", {"pipeline_model_parallel_layout": "Et*6|t*6mL"}),
    (
        DENSE,
        {"global_batch_size": 12, "micro_batch_size": 2, "dp": 4},
        "global_batch_size=12 is not a multiple of micro_batch_size*dp=2*4=8",
        {"dp": 2},
    ),
    (DENSE, {"global_batch_size": 16, "num_microbatches": 4, "dp": 2}, "makes 8 micro-batches", {"num_microbatches": 8}),
    (DENSE, {"pp": 4, "vpp": 2, "num_microbatches": 6}, "to be a multiple of pp=4", {"num_microbatches": 8}),
    (
        DENSE,
        {"num_distributed_optimizer_instances": 3, "dp": 4},
        "=3 does not divide dp*cp=4; valid: 1, 2, 4",
        {"num_distributed_optimizer_instances": 2},
    ),
    (DENSE, {"num_distributed_optimizer_instances": 2, "dp": 4, "zero": 0}, "needs zero=1 or above", {"zero": 1}),
    (MOE, {"num_distributed_optimizer_instances": 2, "dp": 4, "ep": 4}, "expert data-parallel degree tp*cp*dp/(etp*ep)=1", {"ep": 2}),
    (DENSE, {"zero": 3, "pp": 4, "num_microbatches": 8, "schedule": "dualpipe"}, "whose ranks hold two stages each; use zero=1", {"zero": 1}),
    (DENSE, {"zero": 1, "pp": 2, "vpp": 2, "gradient_sync": "every_group"}, "every_group needs zero=2 or 3", {"zero": 2}),
    (DENSE, {"zero": 3, "pp": 2, "gradient_sync": "every_group"}, "needs an interleaved schedule", {"vpp": 2, "num_microbatches": 2}),
    (DENSE, {"distribute_saved_activations": True, "recompute": "full"}, "needs tp above 1", {"tp": 2}),
    (DENSE, {"distribute_saved_activations": True, "recompute": "full", "tp": 2, "sp": True}, "with sp=true is refused", {"sp": False}),
    (DENSE, {"distribute_saved_activations": True, "tp": 2}, "needs recompute=full", {"recompute": "full"}),
    (DENSE, {"recompute": "full", "recompute_num_layers": 33}, "recompute_num_layers=33 is more than the 32 layers", {"recompute_num_layers": 32}),
    (DENSE, {"recompute_modules": ("mlp",)}, "recompute_modules=mlp needs recompute=selective", {"recompute": "selective"}),
    (
        DENSE,
        {"recompute": "selective", "recompute_modules": ("moe",)},
        "recompute_modules=moe needs a mixture of experts, and dense has none; valid: core_attn, mlp, layernorm",
        {"recompute_modules": ("mlp",)},
    ),
    (DENSE, {"recompute": "selective", "recompute_modules": ("moe_act",)}, "needs a mixture of experts", {"recompute_modules": ("layernorm",)}),
    (
        DENSE,
        {"recompute": "selective", "recompute_modules": ("mla_up_proj",)},
        "needs multi-head latent attention",
        {"recompute_modules": ("core_attn",)},
    ),
    (MOE, {"recompute": "selective", "recompute_modules": ("shared_experts",)}, "needs shared experts", {"recompute_modules": ("moe_act",)}),
    (MOE, {"recompute": "selective", "recompute_modules": ("mlp",)}, "needs a dense feed-forward layer", {"recompute_modules": ("moe",)}),
    (LINEAR, {"recompute": "selective"}, "needs softmax attention", {"recompute_modules": ("mlp",)}),
    (DENSE, {"recompute": "selective", "recompute_modules": ("mlp", "mlp")}, "names mlp twice", {"recompute_modules": ("mlp",)}),
    (DENSE, {"recompute": "selective", "recompute_modules": ()}, "needs at least one module", {"recompute_modules": ("mlp",)}),
    (DENSE, {"fp8": "mxfp8", "precision": "fp32"}, "needs precision=bf16 or fp16", {"precision": "bf16"}),
    (DENSE, {"fp8": "tensorwise", "fusion": "eager"}, "needs fusion=te", {"fusion": "te"}),
]


@pytest.mark.parametrize(("architecture", "refused", "reason", "change"), RULES, ids=[reason[:50] for _, _, reason, _ in RULES])
def test_rule(architecture: Architecture, refused: dict[str, Any], reason: str, change: dict[str, Any]):
    with pytest.raises(InputError) as caught:
        check(architecture, Strategy.model_validate(refused))
    assert reason in str(caught.value)
    check(architecture, Strategy.model_validate(refused | change))


@pytest.mark.parametrize(
    ("architecture", "strategy"),
    [
        (DENSE, {}),
        (DENSE, {"tp": 16, "sp": True}),
        (DENSE, {"tp": 8, "sp": True, "cp": 2, "pp": 4, "vpp": 2, "dp": 4, "global_batch_size": 512}),
        (MOE, {"tp": 4, "sp": True, "etp": 1, "ep": 64, "dp": 16}),
        (MOE, {"ep": 8, "dp": 8, "fusion": "eager", "zero": 3}),
        (MIXED, {"recompute": "selective", "recompute_modules": ("core_attn", "mlp", "moe_act", "mla_up_proj", "shared_experts", "layernorm")}),
        (WINDOWED, {"tp": 2}),
        (SINKS, {"tp": 2, "sp": True}),
        (DENSE, {"pp": 4, "vpp": 2}),
    ],
)
def test_valid_combinations_pass(architecture: Architecture, strategy: dict[str, Any]):
    check(architecture, Strategy.model_validate(strategy))


def test_every_dimension_of_tensor_ranks_has_a_rule_of_its_own() -> None:
    """For one that has none all sizes are made, at every check of a strategy."""
    assert set(names.BY_TENSOR) <= OWN_RULES


def test_a_further_dimension_of_tensor_parallelism_is_shared_out_whole(monkeypatch: pytest.MonkeyPatch):
    """As a layer of one's own would have it: a name more in the table of placements."""
    model = load_model("deepseek-v2").architecture
    odd = model.model_copy(update={"attention": model.attention.model_copy(update={"q_lora_rank": 1535})})
    check(odd, Strategy(tp=2, sp=True))
    monkeypatch.setattr(names, "BY_TENSOR", (*names.BY_TENSOR, "r_q"))
    check(model, Strategy(tp=2, sp=True))
    with pytest.raises(InputError, match=r"tp=2 does not divide r_q \(MLA query latent rank\)=1535; valid: 1, 5, 307, 1535"):
        check(odd, Strategy(tp=2, sp=True))


def test_layouts_are_written_out():
    stages = pipeline_layout("Et*3|(tt|)*29,m|L")
    assert len(stages) == 32 and stages[0] == "Ettt" and set(stages[1:30]) == {"tt"} and stages[30:] == ("m", "L")
    assert pipeline_layout("E t | ((t)*2|)*2 L") == ("Et", "tt", "tt", "L")
    assert pipeline_layout("Et||tL") == ("Et", "", "tL")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Ex|L", "has 'x'"),
        ("E(t|L", "does not read at '(t|L'"),
        ("Et*|L", "does not read at '*|L'"),
        ("Et)|L", "does not read at ')|L'"),
        ("Et3|L", "does not read at '3|L'"),
        ("Et*99999|L", "more than 10000"),
        ("E((((t*999)*999)*999)*999)L", "more than 10000"),
        ("Et*" + "9" * 6000, "more than 10000"),
    ],
)
def test_layouts_that_do_not_read(text: str, reason: str):
    with pytest.raises(InputError, match="pipeline_model_parallel_layout") as caught:
        pipeline_layout(text)
    assert reason in str(caught.value)
