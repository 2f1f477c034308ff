"""What Megatron-Core does that a rule had wrong: each on a small model, with the count that Megatron-Core 0.20 itself gives
(module registration, autograd's saved tensors, traced collectives) as the number.
"""

from __future__ import annotations

from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.cost.reduce import tensor_parallel_gradients
from symsim.errors import InputError
from symsim.evaluation.buffers import _parameters, gradient_buffers
from symsim.inputs.architecture import Architecture, Attention, LayerKind, Mlp, Moe
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import check


def model(
    attention: dict[str, Any] | None = None, moe: dict[str, Any] | None = None, layers: int = 1, vocab_size: int = 256, **rest: Any
) -> Architecture:
    """One kind of layer, h = 64, 8 heads of 8, two groups unless told otherwise."""
    return Architecture(
        name="small",
        hidden_size=64,
        vocab_size=vocab_size,
        layers=f"{layers} * dense",  # type: ignore[arg-type]
        layer_kinds={"dense": LayerKind(ffn="moe" if moe else "mlp")},
        attention=Attention(**{"num_attention_heads": 8, "num_query_groups": 2, "kv_channels": 8, **(attention or {})}),
        mlp=Mlp(ffn_hidden_size=96),
        moe=Moe(**{"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 48, **moe}) if moe else None,
        **rest,
    )


def traced(architecture: Architecture, **strategy: Any) -> Result:
    return derive(architecture, Strategy(**{"micro_batch_size": 2, "seq_length": 16, **strategy}))


def kept(result: Result) -> dict[str, int]:
    """Bytes kept for backward by one layer, by tensor."""
    block = result.lowered.blocks["dense"]
    return {s.tensor.name: int(s.bytes.evaluate(result.numbers)) for s in block.saved}


def attention_parameters(architecture: Architecture) -> int:
    block = traced(architecture).lowered.blocks["dense"].placed.block
    sizes = {"d": 8, "r_q": 12, "r_k": 20}
    found = [t for t in block.parameters() if t.module == "norm" and "attention." in t.name]
    return sum(sizes[t.dims[0]] for t in found)


def test_norms_of_queries_and_keys_have_biases_with_layer_norm() -> None:
    """SelfAttention.q_layernorm and k_layernorm are TENorm: weight and bias of LayerNorm, of size d each."""
    heads = {"qk_norm": "head"}
    assert attention_parameters(model(heads, normalization="LayerNorm", norm_bias=True)) == 4 * 8
    assert attention_parameters(model(heads, normalization="LayerNorm", norm_bias=False)) == 2 * 8
    assert attention_parameters(model({**heads, "qk_norm_bias": False}, normalization="LayerNorm", norm_bias=True)) == 2 * 8
    assert attention_parameters(model(heads)) == 2 * 8


MLA = {"kind": "mla", "num_query_groups": None, "kv_channels": None, "q_lora_rank": 12, "kv_lora_rank": 20}
MLA |= {"qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8}


def test_norms_of_latents_have_biases_with_layer_norm_and_can_be_absent() -> None:
    assert attention_parameters(model(MLA, normalization="LayerNorm", norm_bias=True)) == 2 * (12 + 20)
    assert attention_parameters(model(MLA)) == 12 + 20
    assert attention_parameters(model({**MLA, "latent_norm": False})) == 0


def test_biases_of_the_experts_second_product_are_summed_over_tp() -> None:
    """RowParallelLinear marks its bias sequence_parallel whatever etp is, so finalize_model_grads.py sums it over TP."""
    biased = model(moe={"expert_bias": True})
    counts = {}
    for choice in ("summed", "own"):
        result = derive(biased, Strategy(tp=2, sp=True, etp=1), {"expert_bias_gradient": choice})
        counts[choice] = int(tensor_parallel_gradients(result.lowered, "dense").evaluate(result.values))
    assert counts["own"] == 2 * 64 + 4 * 64, "two norms and the router"
    assert counts["summed"] == counts["own"] + 4 * 64
    alone = derive(biased, Strategy(tp=1, etp=1))
    assert tensor_parallel_gradients(alone.lowered, "dense").evaluate(alone.values) == 0


def order(architecture: Architecture, **strategy: Any) -> list[int]:
    """Sizes of a rank's parameters in the order of registration: gradient buckets hold them from the last to the first."""
    result = derive(architecture, Strategy(**strategy))
    return [size for size, _, _ in _parameters(result, result.stages[0], 0)]


def test_parameters_lie_in_the_order_in_which_modules_register_them() -> None:
    shared = {"moe_latent_size": 16, "moe_shared_expert_intermediate_size": 32, "moe_shared_expert_gate": True}
    experts = 2 * [96 * 16, 16 * 48]
    assert order(model({"qk_norm": "head", "sinks": True}, {**shared, "num_moe_experts": 2})) == [
        *(256 * 64, 64),  # the table; input_layernorm
        *(8, 64 * 64, 96 * 64, 8, 8),  # softmax_offset, linear_proj, linear_qkv, q_layernorm, k_layernorm
        64,  # pre_mlp_layernorm
        *(2 * 64, 16 * 64, 64 * 16, *experts),  # router, fc1_latent_proj, fc2_latent_proj, local_experts
        *(64, 64 * 64, 64 * 32),  # gate_weight, linear_fc1, linear_fc2
        *(64, 256 * 64),  # final_layernorm, output_layer
    ]
    assert order(model(MLA))[2:9] == [64 * 64, 12 * 64, 96 * 12, 24 * 64, 128 * 20, 12, 20], "proj, q down, q up, kv down, kv up, norms"


def test_buffers_without_the_padding_of_buckets_hold_that_of_parameters() -> None:
    """numel_unpadded of param_and_grad_buffer.py: parameters start at multiples of 64 elements."""
    architecture = model({"qk_norm": "head"})  # two norms of 8 elements in a row
    (buffer,) = gradient_buffers(r := derive(architecture, Strategy(dp=2)), r.stages[0])
    assert buffer.parameters - sum(order(architecture)) == 2 * 56
    (plain,) = gradient_buffers(r := derive(architecture, Strategy(dp=2, zero=0)), r.stages[0])
    assert plain.parameters == sum(order(architecture))


def test_tables_that_a_depth_reads_too_lie_in_buckets_of_their_own() -> None:
    """setup_embeddings_and_output_layer marks the first stage's table where another stage holds a copy for MTP."""
    result = derive(model(layers=2, mtp_num_layers=1), Strategy(pp=2, dp=2))
    (first,), (last,) = (gradient_buffers(result, s) for s in result.stages)
    assert first.buckets[-1] == last.buckets[-1] == 256 * 64
    assert len(first.buckets) == len(last.buckets) == 2, "the output layer is not a copy"
    (plain,) = gradient_buffers(r := derive(model(layers=2), Strategy(pp=2, dp=2)), r.stages[0])
    assert len(plain.buckets) == 1


def test_a_rank_keeps_a_whole_group_of_keys_and_values_below_tp() -> None:
    tokens = 2 * 16
    for tp in (2, 4, 8):
        held = kept(traced(model(), tp=tp, sp=True))
        assert held["attention.rope_k.out"] == held["attention.core.v.packed"] == 2 * tokens * 8, "one group of two"
        assert held["attention.rope_q.out"] == 2 * tokens * 64 // tp


def test_queries_of_one_group_are_not_copied() -> None:
    """Of several groups the queries are copied together, which a norm then keeps; of one they lie together already."""
    tokens, normed = 2 * 16, {"qk_norm": "head"}
    one, two = kept(traced(model(normed), tp=2, sp=True)), kept(traced(model(normed), tp=1))
    assert one["attention.qkv.out"] == 2 * tokens * 96 // 2 and "attention.q_proj.out" not in one
    assert two["attention.qkv.out"] == 2 * tokens * 96 and two["attention.q_proj.out"] == 2 * tokens * 64


def test_what_a_router_keeps() -> None:
    """topk_routing_with_score_function: indices int64, fp32 scores before and after the choice, the sigmoid's normaliser."""
    tokens, indices, chosen, scores = 2 * 16, 8 * 2, 4 * 2, 4 * 4

    def held(**router: Any) -> int:
        return sum(n for name, n in kept(traced(model(moe={"num_moe_experts": 4, **router}))).items() if name.startswith("moe.gate.")) // tokens

    assert held() == indices + chosen
    assert held(moe_router_pre_softmax=True) == indices + scores
    assert held(moe_router_score_function="sigmoid") == indices + chosen + scores + 4
    assert held(moe_router_score_function="sigmoid", moe_router_topk=1) == indices // 2 + scores


def test_shared_experts_run_again_with_their_gate() -> None:
    shared = {"moe_shared_expert_intermediate_size": 32, "moe_shared_expert_gate": True}
    result = traced(model(moe=shared), recompute="selective", recompute_modules=("shared_experts",))
    assert not [n for n in kept(result) if "shared_expert_gate" in n]
    assert result.value("R_dense") == 2 * 2 * 16 * (3 * 64 * 32 + 64)
    with pytest.raises(InputError, match="drop shared_experts"):
        traced(model(moe=shared), recompute="selective", recompute_modules=("moe", "shared_experts"))


def test_full_recomputation_by_layers_takes_depths_too() -> None:
    """MultiTokenPredictionLayer._checkpointed_forward: one region, from the two norms to the last; by blocks it is skipped."""
    architecture = model(mtp_num_layers=1)
    uniform, block = (traced(architecture, recompute="full", recompute_method=m) for m in ("uniform", "block"))
    depth, head = 2 * 2 * 16 * 64 * 128, 2 * 2 * 16 * 64 * 256
    assert uniform.value("R_mtp") == uniform.value("F_dense") + depth == uniform.value("F_mtp") - head
    assert block.value("R_mtp") == 0
    with pytest.raises(InputError, match="give recompute_num_layers=1"):
        traced(model(layers=2, mtp_num_layers=1), recompute="full", recompute_num_layers=2)


@pytest.mark.parametrize("again", [{"recompute": "full"}, {"recompute": "selective", "recompute_modules": ("moe",)}])
def test_an_auxiliary_loss_counts_tokens_once_where_its_layer_runs_again(again: dict[str, Any]) -> None:
    """router.py takes the loss only where gradients are recorded: not in the first pass of a checkpoint."""
    architecture = model(moe={"num_moe_experts": 4})

    def counted(**recompute: Any) -> list[tuple[str, int]]:
        result = traced(architecture, tp=2, sp=True, etp=1, moe_router_load_balancing_type="aux_loss", **recompute)
        messages = result.stage_messages(result.stages[0])
        return [(m.phase, int(m.count.evaluate(result.values))) for m in messages if "aux_loss" in m.what]

    assert counted() == [("forward", 1)]
    assert counted(**again) == [("backward", 1)]


def test_the_final_norm_is_with_the_loss_unless_a_depth_reads_it() -> None:
    """TransformerBlock.has_final_layernorm_in_this_stage, seen where the loss has a stage of its own."""
    held = {}
    for depths, layout in ((0, "Et|t|t|L"), (1, "Et|t|t|mL")):
        result = derive(model(layers=3, mtp_num_layers=depths), Strategy(pp=4, pipeline_model_parallel_layout=layout))
        held[depths] = [int(result.stage_values(s)["last_layer_i"]) for s in result.stages]
        own = [size for size, _, _ in _parameters(result, result.stages[2], 0)]
        assert own[6:] == [64] * depths, "what follows a layer's two norms and four weights"
    assert held == {0: [0, 0, 0, 1], 1: [0, 0, 1, 0]}


def test_the_allgather_dispatcher_keeps_its_map() -> None:
    """Per row an int64 index; per gathered token and local expert a bool and a probability."""
    tokens = 2 * 16
    found = kept(traced(model(moe={"num_moe_experts": 4}), moe_token_dispatcher_type="allgather", ep=2, dp=2))
    held = {n.rsplit(".", 1)[-1]: size for n, size in found.items() if n.startswith("moe.experts.dispatch.")}
    assert held == {"index": 8 * 2 * tokens, "local_probabilities": 2 * 2 * tokens * 2, "local_map": 2 * tokens * 2}


def test_a_depth_keeps_the_whole_of_the_stream_that_it_gathered() -> None:
    """eh_proj's output is gathered over TP and a rank's tokens are sliced from it, which copies nothing."""
    result = traced(model(mtp_num_layers=1), tp=2, sp=True)
    found = {s.tensor.name: int(s.bytes.evaluate(result.numbers)) for s in result.lowered.blocks["mtp"].saved}
    assert max(n for name, n in found.items() if "eh_proj.out" in name) == 2 * 2 * 16 * 64


def test_learned_positions_leave_in_the_type_of_the_stream() -> None:
    """LanguageModelEmbedding: float() before the scatter to the sequence-parallel ranks, whose gradient is gathered."""
    learned = model(position_embedding="learned", position_embedding_rows=64)
    result = traced(learned, tp=2, sp=True, fp32_residual_connection=True)
    (gathered,) = [m for _, m in result.lowered.blocks["embedding"].backward_messages if m.op == "all_gather"]
    assert gathered.dtype == "fp32"


PAIRED = {"ep": 4, "dp": 4, "num_microbatches": 8, "overlap_moe_expert_parallel_comm": True}


@pytest.mark.parametrize(
    ("options", "depths", "words"),
    [
        ({"pp": 2}, 0, "pp=2 needs virtual stages.* give vpp=2 or more"),
        ({"recompute": "selective", "recompute_modules": ("layernorm", "moe")}, 0, "does not run with recompute_modules=moe"),
        ({}, 2, "one depth of multi-token prediction at most, and 2 are trained"),
        ({"mtp_num_layers": 2}, 1, "and 2 are trained"),
        ({"precision": "fp32"}, 0, "needs precision=bf16 or fp16"),
        (
            {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ("attn", "mlp")},
            0,
            "does not run with cuda_graph_scope=mlp",
        ),
    ],
)
def test_what_two_microbatches_side_by_side_refuse(options: dict[str, Any], depths: int, words: str) -> None:
    """transformer_config.py, __post_init__ under overlap_moe_expert_parallel_comm: all of it runs without the overlap."""
    architecture = model(moe={"num_moe_experts": 4}, layers=4, mtp_num_layers=depths)
    check(architecture, Strategy(**{**PAIRED, **options, "overlap_moe_expert_parallel_comm": False}))
    with pytest.raises(InputError, match=f"^overlap_moe_expert_parallel_comm .*{words}"):
        check(architecture, Strategy(**{**PAIRED, **options}))


@pytest.mark.parametrize(
    "options",
    [
        {"pp": 2, "vpp": 2},
        {"recompute": "selective", "recompute_modules": ("layernorm", "moe_act")},
        {"mtp_num_layers": 1},
        {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ("attn", "moe_router")},
        {"pp": 4, "schedule": "dualpipe"},
        {"pp": 2, "fusion": "eager"},
    ],
)
def test_what_two_microbatches_side_by_side_run_with(options: dict[str, Any]) -> None:
    """Schedules that Megatron-LM has not, and other frameworks, are not under its rules."""
    check(model(moe={"num_moe_experts": 4}, layers=4), Strategy(**{**PAIRED, **options}))
