"""The cases of ../shared/oracle/megatron.json as symsim architectures and strategies."""

from __future__ import annotations

from typing import Any

from symsim.architecture import Architecture, Attention, LayerKind, Mlp, Moe, compress
from symsim.strategy import Strategy


def architecture(case: dict[str, Any]) -> Architecture:
    m = case["config"]["model"]
    strategy = case["config"].get("strategy") or {}
    gated = m["gated_linear_unit"]
    activation = {"gelu": "gelu", None: "silu" if gated else "relu2"}[m.get("act")]
    bias = m.get("add_bias_linear", False)
    if m.get("multi_latent_attention"):
        attention = Attention(kind="mla", num_attention_heads=m["num_attention_heads"], q_lora_rank=m["q_lora_rank"], kv_lora_rank=m["kv_lora_rank"],
                              qk_head_dim=m["qk_head_dim"], qk_pos_emb_head_dim=m["qk_pos_emb_head_dim"], v_head_dim=m["v_head_dim"],
                              q_input_norm=m["q_lora_rank"] is None and m.get("qk_layernorm", False))
    else:
        attention = Attention(num_attention_heads=m["num_attention_heads"], num_query_groups=m.get("num_query_groups"), kv_channels=m.get("kv_channels"),
                              qkv_bias=bias or m.get("add_qkv_bias", False), out_bias=bias, qk_norm="head" if m.get("qk_layernorm") else "none",
                              output_gate=m.get("attention_output_gate", False), sinks=m.get("softmax_type") == "learnable")
    moe = None
    frequency: list[int] = [0] * m["num_layers"]
    if m.get("num_moe_experts"):
        moe = Moe(num_moe_experts=m["num_moe_experts"], moe_router_topk=m["moe_router_topk"],
                  moe_ffn_hidden_size=m.get("moe_ffn_hidden_size", m["ffn_hidden_size"]), gated=gated, activation=activation, expert_bias=bias,
                  moe_shared_expert_intermediate_size=m.get("moe_shared_expert_intermediate_size"), moe_shared_expert_gate=m.get("moe_shared_expert_gate", False),
                  moe_router_score_function=m.get("moe_router_score_function", "softmax"), moe_router_pre_softmax=m.get("moe_router_pre_softmax", False),
                  moe_latent_size=m.get("moe_latent_size"), router_bias=bias, moe_router_enable_expert_bias="buffer" if m.get("moe_router_enable_expert_bias") else "none")
        freq = m.get("moe_layer_freq", 1)
        frequency = freq if isinstance(freq, list) else [int(i % freq == 0) for i in range(m["num_layers"])]
    layer_norm = m["normalization"] == "LayerNorm"
    return Architecture(
        name=case["name"], hidden_size=m["hidden_size"], vocab_size=m["vocab_size"],
        layers=compress(["moe" if f else "dense" for f in frequency]),
        layer_kinds={"dense": LayerKind(), "moe": LayerKind(ffn="moe")} if moe else {"dense": LayerKind()},
        attention=attention, mlp=Mlp(ffn_hidden_size=m["ffn_hidden_size"], gated=gated, activation=activation, bias=bias), moe=moe,
        normalization=m["normalization"], norm_bias=layer_norm, tie_word_embeddings=m.get("tied", False),
        position_embedding="learned" if m.get("pos") == "learned_absolute" else "rope",
        position_embedding_rows=m.get("max_seq", 4096) if m.get("pos") == "learned_absolute" else None,
        mtp_num_layers=m.get("mtp_num_layers", 0), mtp_use_repeated_layer=m.get("mtp_use_repeated_layer", False),
        hidden_dropout=strategy.get("hidden_dropout", 0.0), attention_dropout=strategy.get("attention_dropout", 0.0))


def strategy(case: dict[str, Any]) -> Strategy:
    given = case["config"].get("strategy") or {}
    m = case["config"]["model"]
    p = case["result"]["parallel"]
    aux = given.get("moe_router_load_balancing_type", m.get("moe_router_load_balancing_type", "aux_loss")) if m.get("moe_aux_loss_coeff") else "none"
    ddp = case["config"].get("ddp") or {}
    plain = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "account_for_embedding_in_pipeline_split",
             "account_for_loss_in_pipeline_split", "pipeline_model_parallel_layout", "fp32_residual_connection", "distribute_saved_activations",
             "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_token_dispatcher_type", "recompute_method", "recompute_num_layers",
             "activation_func_fp8_input_store")
    result = {k: given[k] for k in plain if k in given}
    return Strategy(
        tp=p["tp"], pp=p["pp"], vpp=p["vpp"] or 1, cp=p["cp"], ep=p["ep"], etp=p["etp"], dp=p["dp"], sp=p["sp"] and p["tp"] > 1,
        num_distributed_optimizer_instances=p["n_distopt"], zero=0 if ddp.get("use_distributed_optimizer") is False else 1,
        grad_reduce_in_fp32=ddp.get("grad_reduce_in_fp32", True), pad_buckets_for_high_nccl_busbw=ddp.get("pad_buckets_for_high_nccl_busbw", False),
        micro_batch_size=case["result"].get("micro_batch_size", 1), seq_length=case["result"].get("seq_length", 4096),
        recompute=given.get("recompute_granularity") or "none",
        **({"recompute_modules": tuple(given["recompute_modules"])} if given.get("recompute_modules") else {}),
        cross_entropy_fusion=given.get("cross_entropy_fusion_impl", "native") if given.get("cross_entropy_loss_fusion") else "unfused",
        moe_router_dtype="fp32" if m.get("moe_router_dtype") == "fp32" else "compute", moe_router_load_balancing_type=aux, **result)


def assumptions(case: dict[str, Any]) -> dict[str, str]:
    return {"attention_kernel": "flash" if case["config"].get("fused") else "math"}
