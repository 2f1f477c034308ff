"""Every option of a strategy and every assumption shows in some result: a knob that moves nothing is a bug."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.evaluation import evaluated
from symsim.evaluation.idle import idle_fields, idle_options
from symsim.inputs.architecture import HyperConnections
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.layer_pattern import parse_layers
from symsim.inputs.models import load_model, override_architecture
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system, override_system
from symsim.inputs.watched import forget, paths_read, unheeded, was_read, watched

DENSE, MOE, MLA, LINEAR, INDEXED = "llama3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b", "deepseek-v3.2"
BASE = {"seq_length": 4096}
SYSTEM = override_system(load_system("h100-sxm"), {("host", "drive"): "6 GB/s"})
LORA: dict[str, Any] = {"tuner_type": "lora"}
SP: dict[str, Any] = {"tp": 4, "sp": True}
GROUPS: dict[str, Any] = {"pp": 4, "vpp": 2, "num_microbatches": 16, "microbatch_group_size_per_vp_stage": 8}
OVERLAP: dict[str, Any] = {**SP, "tp_comm_overlap": True}
AWARE: dict[str, Any] = {"use_precision_aware_optimizer": True}

# (model, strategy around it, the knob's other value)
FLEX = {"moe_token_dispatcher_type": "flex"}
KNOBS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "tp": (DENSE, {}, 2),
    "sp": (DENSE, {"tp": 2}, True),
    "cp": (DENSE, {}, 2),
    "cp_comm_type": (DENSE, {"cp": 2}, "a2a"),
    "cp_partition_mode": (DENSE, {"cp": 2}, "contiguous"),
    "cp_saved_output": (DENSE, {"cp": 2, "cp_comm_type": "a2a"}, "projection"),
    "recompute_from_fp8": (MOE, {"fp8": "tensorwise", "recompute": "selective", "recompute_operations": ("moe.experts",)}, ("moe.experts.fc1",)),
    "hierarchical_context_parallel_sizes": (DENSE, {"cp": 8, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": (2, 4)}, (4, 2)),
    "pp": (DENSE, {}, 4),
    "vpp": (DENSE, {"pp": 4}, 2),
    "ep": (MOE, {"dp": 8}, 4),
    "etp": (MOE, {**SP, "dp": 2, "ep": 2}, 1),
    "dp": (DENSE, {}, 8),
    "micro_batch_size": (DENSE, {}, 2),
    "num_microbatches": (DENSE, {}, 16),
    "global_batch_size": (DENSE, {"dp": 2}, 64),
    "seq_length": (DENSE, {}, 8192),
    "zero": (DENSE, {"dp": 8}, 0),
    "num_distributed_optimizer_instances": (DENSE, {"dp": 8}, 2),
    "outer_dp_sharding_strategy": (DENSE, {"dp": 8, "zero": 3, "num_distributed_optimizer_instances": 2}, "optim"),
    "expert_shard_ranks": (MOE, {"dp": 8, "ep": 2, "zero": 3}, 2),
    "log_num_zeros_in_grad": (DENSE, {}, True),
    "log_params_norm": (DENSE, {}, True),
    "reshard_after_forward": (DENSE, {"dp": 8, "zero": 3}, False),
    "reshard_after_backward": (DENSE, {"dp": 8, "zero": 3}, False),
    "gradient_sync": (DENSE, {"dp": 8, "zero": 3}, "last_microbatch"),
    "prefetch_bucket_size": (DENSE, {"dp": 8, "zero": 3}, 5 * 10**7),
    "max_live_parameters": (DENSE, {"dp": 8, "zero": 3}, 3 * 10**8),
    "max_reuse_distance": (DENSE, {"dp": 8, "zero": 3}, 2 * 10**9),
    "param_persistence_threshold": (DENSE, {"dp": 8, "zero": 3}, 10**5),
    "ddp_bucket_size": (DENSE, {"dp": 8}, 10**8),
    "sub_group_size": (DENSE, {"dp": 2, "zero": 3, "grad_reduce_in_fp32": False, "seq_length": 128}, 10**6),
    "allgather_bucket_size": (DENSE, {"dp": 8}, 10**8),
    "grad_reduce_in_fp32": (DENSE, {"dp": 8}, False),
    "pad_buckets_for_high_nccl_busbw": (DENSE, {"dp": 48}, True),
    "num_layers_in_first_pipeline_stage": (DENSE, {"pp": 4}, 5),
    "num_layers_in_last_pipeline_stage": (DENSE, {"pp": 4}, 5),
    "account_for_embedding_in_pipeline_split": (DENSE, {"pp": 4}, True),
    "account_for_loss_in_pipeline_split": (DENSE, {"pp": 3}, True),
    "pipeline_model_parallel_layout": (DENSE, {"pp": 2}, "Et*20|t*12,L"),
    "recompute": (DENSE, {}, "full"),
    "recompute_method": (DENSE, {"recompute": "full", "recompute_num_layers": 4}, "block"),
    "recompute_num_layers": (DENSE, {"recompute": "full"}, 4),
    "recompute_layers_per_stage": (DENSE, {"pp": 4, "num_microbatches": 4, "recompute": "full"}, (8, 4, 2, 0)),
    "num_microbatches_with_partial_activation_checkpoints": (DENSE, {"pp": 4, "num_microbatches": 8, "recompute": "full"}, 2),
    "recompute_modules": (DENSE, {"recompute": "selective"}, ("mlp",)),
    "recompute_operations": (DENSE, {"recompute": "selective"}, ("mlp", "attention.qkv..attention.core")),
    "distribute_saved_activations": (DENSE, {"tp": 4, "recompute": "full"}, True),
    "precision": (DENSE, {}, "fp32"),
    "autocast": (DENSE, {"fusion": "eager", "zero": 0}, True),
    "fp8": (DENSE, {}, "mxfp8"),
    "fp8_param_gather": (DENSE, {"dp": 8, "fp8": "mxfp8"}, True),
    "fp8_wgrad": (DENSE, {"fp8": "tensorwise"}, False),
    "fp8_output_proj": (DENSE, {"fp8": "mxfp8"}, True),
    "fp8_dot_product_attention": (DENSE, {"fp8": "mxfp8"}, True),
    "fp8_multi_head_attention": (DENSE, {"fp8": "mxfp8", "fp8_dot_product_attention": True}, True),
    "num_layers_at_start_in_bf16": (DENSE, {"fp8": "mxfp8"}, 2),
    "num_layers_at_end_in_bf16": (DENSE, {"fp8": "blockwise"}, 2),
    "keep_fp8_transpose_cache": (DENSE, {"dp": 8, "zero": 3, "fp8": "tensorwise", "fp8_param_gather": True}, True),
    "fp32_residual_connection": (DENSE, {}, True),
    "activation_func_fp8_input_store": (DENSE, {}, True),
    "attention_output_store": (DENSE, {}, "e5m6"),
    "fusion": (DENSE, {}, "eager"),
    "gradient_accumulation_fusion": (DENSE, {}, False),
    "bias_activation_fusion": (DENSE, {}, False),
    "bias_dropout_fusion": ("gpt3-175b", {"seq_length": 1024}, False),
    "masked_softmax_fusion": (DENSE + " written out", {"seq_length": 512}, False),
    "norm_fusion": (DENSE, {}, False),
    "optimizer_in_bwd": (DENSE, {"fusion": "eager", "clip_grad": 0, "zero": 0, "num_microbatches": 1}, True),
    "use_fused_mhc": (DENSE + " with streams", {}, False),
    "cross_entropy_fusion": (DENSE, {"tp": 4}, "native"),
    "cross_entropy_chunks": (DENSE, {"cross_entropy_fusion": "liger"}, 4),
    "use_transformer_engine_op_fuser": (MOE, {"ep": 4, "fp8": "mxfp8"}, True),
    "moe_token_dispatcher_type": (MOE, {"ep": 4}, "allgather"),
    "cuda_graph_impl": (DENSE, {"seq_length": 128, "tp": 4}, "local"),
    "cuda_graph_scope": (DENSE, {"seq_length": 128, "tp": 4, "cuda_graph_impl": "local"}, ("attn", "mlp")),
    "moe_flex_dispatcher_backend": (MOE, {"ep": 4, **FLEX}, "hybridep"),
    "moe_flex_dispatcher_num_sms": (MOE, {"ep": 4, **FLEX}, 32),
    "moe_permute_fusion_into_hybridep": (MOE, {"ep": 4, **FLEX, "moe_flex_dispatcher_backend": "hybridep"}, True),
    "moe_expert_rank_capacity_factor": (MOE, {"ep": 4, **FLEX, "moe_flex_dispatcher_backend": "hybridep"}, 1.5),
    "moe_paged_stash": (MOE, {"ep": 4, **FLEX, "moe_flex_dispatcher_backend": "hybridep", "moe_expert_rank_capacity_factor": 1.5}, True),
    "moe_expert_capacity_factor": (MOE, {"ep": 4, "moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.0}, 2.0),
    "moe_pad_expert_input_to_capacity": (MOE, {"ep": 4, "moe_expert_capacity_factor": 2.0}, True),
    "moe_router_padding_for_quantization": (MOE, {"ep": 4, "fp8": "tensorwise"}, True),
    "moe_router_dtype": (MOE, {"ep": 4}, "fp32"),
    "moe_z_loss": (MOE, {}, True),
    "moe_router_load_balancing_type": (MOE, {**SP, "ep": 4}, "aux_loss"),
    "dsa_indexer_loss": (INDEXED, {}, "sparse"),
    "mtp_num_layers": (MLA, {}, 1),
    "tuner_type": (DENSE, {}, "lora"),
    "lora_rank": (DENSE, LORA, 32),
    "lora_expert_rank": (MOE, LORA, 4),
    "rank_pattern": (DENSE, LORA, ("linear_qkv=4",)),
    "oft_block_size": (DENSE, {"tuner_type": "oft", "fusion": "eager"}, 64),
    "lora_dropout": (DENSE, LORA, 0.05),
    "lora_dropout_position": (DENSE, {**LORA, "lora_dropout": 0.05}, "post"),
    "target_modules": (DENSE, LORA, ("linear_qkv",)),
    "exclude_modules": (DENSE, LORA, ("linear_proj",)),
    "fused_adapters": (DENSE, {**LORA, "fusion": "eager"}, ("qkv",)),
    "use_dora": (DENSE, LORA, True),
    "task_type": (DENSE, {}, "seq_cls"),
    "num_labels": (DENSE, {"task_type": "token_cls"}, 64),
    "fused_kernels": (DENSE, {"fusion": "eager"}, ("norm", "rope")),
    "quantize_base": (DENSE, LORA, "nf4"),
    "quantize_experts": (MOE, {**LORA, "quantize_base": "nf4"}, True),
    "modules_to_save": (DENSE, LORA, ("lm_head",)),
    "freeze_parameters": (DENSE, {}, ("layers.0-7",)),
    "trainable_parameters": (DENSE, {"freeze_parameters": ("layers",)}, ("layers.31",)),
    "trained_before": (DENSE, {"freeze_parameters": ("embedding", "layers.0-7")}, True),
    "reference_models": (DENSE, {}, 1),
    "further_forwards": (DENSE, {}, 1),
    "allocator_in_use": (DENSE, {}, 0.9),
    "optimizer": (DENSE, {}, "sgd"),
    "optimizer_bits": (DENSE, {}, 8),
    "fp32_embedding_moments": (DENSE, {"optimizer_bits": 8}, True),
    "local_step_clipper": (DENSE, {"optimizer": "zero_one_adam", "dp": 8, "zero": 0}, 4),
    "optimizer_rank": (DENSE, {"optimizer": "galore"}, 256),
    "muon_tp_mode": (DENSE, {"optimizer": "muon", "tp": 2}, "distributed"),
    "muon_num_ns_steps": (DENSE, {"optimizer": "muon"}, 6),
    "muon_split_qkv": (DENSE, {"optimizer": "muon"}, False),
    "muon_fp32_matmul_prec": (DENSE, {"optimizer": "muon"}, "high"),
    "muon_scalar_optimizer": (DENSE, {"optimizer": "muon"}, "lion"),
    "use_precision_aware_optimizer": (DENSE, {}, True),
    "store_param_remainders": (DENSE, AWARE, False),
    "main_params_dtype": (DENSE, {}, "fp16"),
    "main_grads_dtype": (DENSE, {**AWARE, "grad_reduce_in_fp32": False, "seq_length": 128}, "bf16"),
    "exp_avg_dtype": (DENSE, AWARE, "bf16"),
    "exp_avg_sq_dtype": (DENSE, AWARE, "fp8"),
    "optimizer_cpu_offload": (DENSE, AWARE, True),
    "offload_gradients": (DENSE, {"fusion": "eager", "zero": 3, "dp": 8, "optimizer_cpu_offload": True}, True),
    "overlap_cpu_optimizer_d2h_h2d": (DENSE, {**AWARE, "optimizer_cpu_offload": True}, True),
    "host_update": (DENSE, {**AWARE, "optimizer_cpu_offload": True}, "torch"),
    "optimizer_offload_fraction": (DENSE, {**AWARE, "optimizer_cpu_offload": True}, 0.5),
    "optimizer_offload_device": (DENSE, {**AWARE, "optimizer_cpu_offload": True}, "nvme"),
    "offload_operations": (DENSE, {"pp": 2, "num_microbatches": 2}, ("attention.core", "mlp")),
    "offload_parameters": (DENSE, {"dp": 8, "zero": 3}, True),
    "cpu_offloading_num_layers": (DENSE, {}, 4),
    "deallocate_pipeline_outputs": (DENSE, {"pp": 4}, False),
    "packed_document_length": (DENSE, {}, 1024),
    "document_lengths": (DENSE, {}, "lognormal:1024+0.5"),
    "mlp_padding_free": (DENSE, {"document_lengths": "lognormal:1024+0.5", "micro_batch_size": 2}, True),
    "padding_free": (DENSE, {"document_lengths": "lognormal:1024+0.5"}, True),
    "clip_grad": (DENSE, {}, 0.0),
    "placement": (DENSE, {"tp": 4}, ("embedding.V=none", "lm_head.V=none", "loss.V=none")),
    "rank_order": (DENSE, {"tp": 4, "dp": 4}, "dp-tp-cp-ep-pp"),
    "tp_comm_overlap": (DENSE, SP, True),
    "tp_comm_overlap_ag": (DENSE, OVERLAP, False),
    "tp_comm_overlap_rs": (DENSE, OVERLAP, False),
    "tp_comm_overlap_rs_dgrad": (DENSE, OVERLAP, True),
    "tp_comm_bulk_dgrad": (DENSE, OVERLAP, False),
    "tp_comm_bulk_wgrad": (DENSE, OVERLAP, False),
    "tp_comm_overlap_disable_qkv": (DENSE, OVERLAP, True),
    "tp_comm_overlap_disable_fc1": (DENSE, OVERLAP, True),
    "tp_comm_halves": (DENSE, {"tp": 4, "micro_batch_size": 2}, "linear"),
    "overlap_grad_reduce": (DENSE, {"dp": 8}, True),
    "overlap_param_gather": (DENSE, {"dp": 8, "overlap_grad_reduce": True}, True),
    "overlap_param_gather_with_optimizer_step": (
        DENSE,
        {"dp": 8, "pp": 2, "vpp": 2, "num_microbatches": 4, "overlap_grad_reduce": True, "overlap_param_gather": True},
        True,
    ),
    "host_waits": (DENSE, {}, 2),
    "overlap_p2p_comm": (DENSE, {"pp": 4, "vpp": 2, "num_microbatches": 8}, True),
    "overlap_p2p_comm_warmup_flush": (DENSE, {**GROUPS, "overlap_p2p_comm": True}, False),
    "p2p_comm": (DENSE, {"pp": 4, "num_microbatches": 8}, "batched"),
    "synchronize_checkpoint_boundary": (DENSE, {"recompute": "full"}, True),
    "batch_p2p_sync": (DENSE, {"pp": 4, "num_microbatches": 8}, True),
    "variable_seq_lengths": (DENSE, {"pp": 4, "num_microbatches": 8}, True),
    "moe_shared_expert_overlap": (MLA, {"ep": 8}, True),
    "overlap_moe_expert_parallel_comm": (MLA, {"ep": 8}, True),
    "delay_wgrad_compute": (MLA, {"ep": 64, "overlap_moe_expert_parallel_comm": True, "moe_router_dtype": "fp32"}, True),
    "defer_embedding_wgrad_compute": (DENSE, {"pp": 4, "num_microbatches": 8}, True),
    "pipeline_flushes": (DENSE, {"pp": 4, "num_microbatches": 8}, 2),
    "wgrad_deferral_limit": (DENSE, {"pp": 4, "num_microbatches": 8, "defer_embedding_wgrad_compute": True}, 2),
    "attention_sparse_ratio": (DENSE, {}, 0.5),
    "overlap_dispatch_backward_with_experts_wgrad": (MLA, {"ep": 8}, True),
    "ep_overlap_early_attn_memory_release": (MLA, {"ep": 8, "overlap_moe_expert_parallel_comm": True}, True),
    "schedule": (DENSE, {"pp": 4, "num_microbatches": 16}, "zb_h1"),
    "microbatch_group_size_per_vp_stage": (DENSE, {"pp": 4, "vpp": 2, "num_microbatches": 16}, 8),
}

# (model, strategy around it, the assumption's other choice)
CHOICES: dict[str, tuple[str, dict[str, Any], str]] = {
    "causal": (DENSE, {}, "half"),
    "linear_attention_flops": (LINEAR, {}, "recurrence"),
    "attention_kernel": (DENSE, {}, "math"),
    "dsa_stage": (INDEXED, {}, "warm_up"),
    "dsa_index_scores": (INDEXED, {}, "fp8"),
    "fp8_layouts": (DENSE, {"fp8": "tensorwise"}, "any"),
    "recompute_early_stop": (DENSE, {"recompute": "full"}, "true"),
    "layernorm_linear_fusion": (DENSE, {"recompute": "selective", "recompute_modules": ("layernorm",)}, "fused"),
    "moe_permute_fusion": (MOE, {}, "true"),
    "mla_k_pe_gradient": (MLA + " without experts", {"tp": 4}, "reduced"),
    "expert_bias_gradient": (MOE + " with biases", SP, "own"),
    "shared_redistribution": (DENSE, {"tp": 4, "fusion": "eager"}, "false"),
    "loss_parallel": (DENSE, {"tp": 4}, "false"),
    "save_gathered": (DENSE, SP, "true"),
    "dispatcher_metadata": (MOE, {"ep": 4}, "omitted"),
    "moe_probabilities": (MOE, {}, "combine"),
    "apply_rope_fusion": (DENSE, {}, "true"),
    "te_dummy_wgrad": (DENSE, {}, "false"),
    "library_workspace": (DENSE, {}, "hopper"),
    "device_context": (DENSE, {}, "cuda"),
    "memory": (DENSE, {}, "reserved"),
    "fsdp_parameters": (DENSE, {"dp": 8, "zero": 3}, "main"),
    "fsdp_initialization": (DENSE, {"dp": 64, "zero": 3, "seq_length": 128}, "device"),
    "checkpoint_unpacking": (MOE, {**LORA, "seq_length": 128}, "mxfp4"),
    "device_reserve": (DENSE, {}, "none"),
    "communicator_buffers": (DENSE, {"dp": 8}, "none"),
    "allocator": (DENSE, {}, "expandable"),
    "optimizer_implementation": (DENSE, {"seq_length": 128}, "foreach"),
    "tp_async_backward": (DENSE, SP, "true"),
    "pipeline_scatter_gather": (DENSE, {"tp": 4, "pp": 2}, "true"),
    "fsdp_prefetch": (DENSE, {"dp": 8, "zero": 3}, "false"),
    "fsdp_unit": (DENSE, {"dp": 8, "zero": 3, "seq_length": 128}, "module"),
    "gradient_scaling": (DENSE, {"dp": 8}, "owned"),
    "reduction_buffers": (DENSE, {"dp": 8, "ddp_bucket_size": 5 * 10**8}, "two"),
    "deterministic_attention": (DENSE, {}, "true"),
    "stragglers": (DENSE, {"dp": 32}, "nodes"),
    "row_balance": (DENSE, {"dp": 8, "document_lengths": "lognormal:1024+0.5"}, "balanced"),
    "zero_reduction": (DENSE, {"dp": 8, "zero": 2}, "all_reduce"),
    "moe_grouped_gemm": (MOE, {"ep": 4}, "false"),
    "fsdp_rings": (DENSE, {"dp": 64, "zero": 3}, "one"),
    "gemm_tiles": (DENSE, {"seq_length": 1000}, "ignored"),
    "moe_exchange": (MLA, {"ep": 16}, "once_per_node"),
    "expert_load": (MOE, {"ep": 4}, "random"),
    "lora_scaling": (DENSE, LORA, "rank"),
    "unit_ranks": (DENSE, {"dp": 12}, "full"),
    "host_launch": (DENSE, {"seq_length": 128, "tp": 4}, "hidden"),
    "mfu_flops": (DENSE, {}, "executed"),
    "step_barrier": (DENSE, {"pp": 4, "num_microbatches": 16, "schedule": "zb_h2"}, "false"),
    "mfu_windows": ("gemma-3-12b", {"seq_length": 8192}, "counted"),
}


@cache
def _output(model: str, around: str, assumptions: str) -> str:
    """Everything eval reports, the strategy and assumptions themselves aside."""
    architecture = load_model(model.split()[0]).architecture
    written_out = {"attention_kernel": "math"} if model.endswith("written out") else {}
    if model.endswith("with streams"):
        architecture = architecture.model_copy(update={"hyper_connections": HyperConnections(streams=4)})
    if model.endswith("without experts"):
        architecture = architecture.model_copy(update={"layers": parse_layers("61 * dense"), "moe": None})
    if model.endswith("with biases"):
        assert architecture.moe is not None
        architecture = architecture.model_copy(update={"moe": architecture.moe.model_copy(update={"expert_bias": True})})
    result = derive(architecture, Strategy(**{**BASE, **json.loads(around)}), {**json.loads(assumptions), **written_out}, None, SYSTEM)
    output = {k: v for k, v in result.to_json().items() if k not in ("strategy", "assumptions")}
    return json.dumps([output, int(result.values["m"])])


def output(model: str, around: dict[str, Any], assumptions: dict[str, str] | None = None) -> str:
    return _output(model, json.dumps(around), json.dumps(assumptions or {}))


def test_every_option_is_tried() -> None:
    assert set(KNOBS) == set(Strategy.model_fields)
    assert set(CHOICES) == {name for name, a in ASSUMPTIONS.items() if len(a.choices) > 1}


@pytest.mark.parametrize("name", KNOBS)
def test_option_moves_something(name: str) -> None:
    model, around, value = KNOBS[name]
    assert output(model, around) != output(model, {**around, name: value})


@pytest.mark.parametrize("name", CHOICES)
def test_assumption_moves_something(name: str) -> None:
    model, around, value = CHOICES[name]
    assert output(model, around) != output(model, around, {name: value})


def test_options_without_effect_are_named() -> None:
    strategy = Strategy(cp_comm_type="a2a", moe_router_dtype="fp32", recompute_method="block", grad_reduce_in_fp32=False, dp=2)
    assert idle_options(derive(load_model(DENSE).architecture, watched(strategy))) == ["cp_comm_type", "recompute_method", "moe_router_dtype"]
    used = Strategy(cp=2, cp_comm_type="a2a", recompute="full", recompute_method="block", recompute_num_layers=2)
    assert idle_options(derive(load_model(DENSE).architecture, watched(used))) == []


IDLE = [
    *("cp_partition_mode=contiguous", "variable_seq_lengths=true", "deallocate_pipeline_outputs=false", "schedule=gpipe", "num_labels=4"),
    *("gradient_sync=last_microbatch", "prefetch_bucket_size=4000", "max_live_parameters=4000", "max_reuse_distance=4000", "fp8_wgrad=false"),
    *("param_persistence_threshold=4000", "local_step_clipper=4", "optimizer_offload_device=nvme", "moe_expert_rank_capacity_factor=2"),
    "pp=2,num_microbatches=2,account_for_loss_in_pipeline_split=true",
    *("account_for_loss_in_pipeline_split=true", "account_for_embedding_in_pipeline_split=true", "trained_before=true"),
    *("fusion=eager,main_grads_dtype=bf16", "tuner_type=lora,freeze_parameters=norm", "tuner_type=lora,lora_expert_rank=4"),
    "fusion=eager,tuner_type=lora,quantize_base=nf4,quantize_experts=true",
]
IDLE_OF_EXPERTS = ["moe_router_load_balancing_type=aux_loss", "fusion=eager,tuner_type=lora,lora_expert_rank=4"]
IN_USE = [
    (DENSE, "cp=2,cp_partition_mode=contiguous,cp_comm_type=all_gather"),
    (DENSE, "pp=2,num_microbatches=2,variable_seq_lengths=true,deallocate_pipeline_outputs=false"),
    (DENSE, "pp=4,num_microbatches=2,account_for_embedding_in_pipeline_split=true,account_for_loss_in_pipeline_split=true"),
    (DENSE, "num_microbatches=2,schedule=gpipe"),
    (DENSE, "fusion=eager,cross_entropy_fusion=torch"),
    (DENSE, "task_type=seq_cls,num_labels=4"),
    (DENSE, "dp=2,zero=3,num_microbatches=2,gradient_sync=last_microbatch"),
    (DENSE, "dp=2,zero=3,prefetch_bucket_size=4000,max_live_parameters=400000000,param_persistence_threshold=40000"),
    (DENSE, "freeze_parameters=embedding,trained_before=true"),
    (DENSE, "optimizer=zero_one_adam,zero=0,dp=2,local_step_clipper=4"),
    (DENSE, "fp8=mxfp8,fp8_wgrad=false"),
    (MOE, "tp=2,sp=true,moe_router_load_balancing_type=aux_loss"),
    (MOE, "moe_router_load_balancing_type=global_aux_loss,dp=2"),
    (MOE, "tuner_type=lora,lora_expert_rank=4"),
    (MOE, "fusion=eager,tuner_type=lora,quantize_base=nf4,quantize_experts=true"),
]


@pytest.mark.parametrize("model,text", [*((DENSE, text) for text in IDLE), *((MOE, text) for text in IDLE_OF_EXPERTS)])
def test_an_option_whose_condition_is_not_met_is_named(model: str, text: str) -> None:
    """What is read on the way to what it decides, which there is none of."""
    made = derive(load_model(model).architecture, watched(load_strategy(text)), system=SYSTEM)
    assert idle_options(made) == [text.split(",")[-1].split("=")[0]]


@pytest.mark.parametrize("model,text", IN_USE)
def test_an_option_whose_condition_is_met_is_not(model: str, text: str) -> None:
    assert idle_options(derive(load_model(model).architecture, watched(load_strategy(text)), system=SYSTEM)) == []


def test_nothing_is_derived_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is remembered; of what is read everywhere, whether it decides what its default would."""
    one_node = load_strategy(
        "tp=2,pp=2,vpp=2,schedule=interleaved,rank_order=dp-tp-cp-ep-pp,reshard_after_backward=false,moe_token_dispatcher_type=allgather,"
        "precision=fp32,grad_reduce_in_fp32=false,tp_comm_overlap_disable_fc1=true,bias_dropout_fusion=false,num_microbatches=4"
    )
    several = load_strategy("tp=4,dp=8,zero=3,rank_order=dp-tp-cp-ep-pp,reshard_after_backward=false,grad_reduce_in_fp32=false")
    made, other = (derive(load_model(DENSE).architecture, watched(s), system=SYSTEM) for s in (one_node, several))
    monkeypatch.setattr(evaluated, "lower", None)
    said = idle_options(made)
    assert sorted(said) == sorted(
        "schedule rank_order reshard_after_backward moe_token_dispatcher_type grad_reduce_in_fp32 tp_comm_overlap_disable_fc1 "
        "bias_dropout_fusion".split()
    )
    assert idle_options(other) == []


FIELDS: list[tuple[str, str, dict[tuple[str, ...], Any], list[str]]] = [
    # sizes of another kind of attention stand in no formula, and a number of rows only where positions are learned
    (
        DENSE,
        "tp=2",
        {("attention", "qk_pos_emb_head_dim"): 64, ("vocab_size",): 64000, ("position_embedding_rows",): 5},
        ["attention.qk_pos_emb_head_dim", "rows"],
    ),
    ("gpt2", "", {("position_embedding_rows",): 512, ("num_layers",): 6}, []),
    # the groups that a router may choose hold tokens back where they enter a node once
    (MOE, "ep=4,dp=4", {("moe", "moe_router_group_topk"): 1}, ["moe.moe_router_group_topk"]),
    (MOE, "ep=4,dp=4", {("mtp_use_repeated_layer",): True}, ["mtp_use_repeated_layer"]),
    (MOE, "ep=4,dp=4,moe_token_dispatcher_type=flex", {("moe", "moe_router_group_topk"): 1}, []),
    # what the model has already, and what another change needs, are not named
    (DENSE, "", {("vocab_size",): 128256, ("attention", "clip_qkv"): False}, []),
    (DENSE, "", {("position_embedding",): "learned", ("position_embedding_rows",): 8192}, []),
]


@pytest.mark.parametrize(("model", "strategy", "changes", "said"), FIELDS)
def test_fields_without_effect_are_named(
    model: str, strategy: str, changes: dict[tuple[str, ...], Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = load_model(model).architecture
    made = derive(watched(override_architecture(own, changes)), watched(load_strategy(strategy or None)), system=SYSTEM)
    monkeypatch.setattr(evaluated, "lower", None)
    assert [path.removeprefix("position_embedding_") for path in idle_fields(made, own, changes)] == said


def test_parts_remember_together() -> None:
    own = load_model(MOE).architecture
    remembers = watched(own)
    assert remembers.moe is not None and repr(remembers) == repr(own) and paths_read(own) is None
    assert remembers.moe.moe_router_topk == 2 and remembers.layer_kinds["moe"].ffn == "moe"
    with unheeded(remembers):
        assert remembers.hidden_size == 4096
    copied = remembers.model_copy(update={"vocab_size": 5})
    assert copied.attention.kind == "gqa"
    read = paths_read(remembers)
    assert read is not None and {("moe", "moe_router_topk"), ("layer_kinds", "moe", "ffn"), ("attention", "kind")} <= read
    assert not {("hidden_size",), ("moe", "moe_ffn_hidden_size")} & read


def test_a_strategy_that_remembers_is_the_same_in_all_else() -> None:
    own = load_strategy("tp=2,pp=2,vpp=2")
    remembers = watched(own)
    assert repr(remembers) == repr(own) and remembers.model_dump() == own.model_dump() and remembers.model_fields_set == own.model_fields_set
    assert was_read(remembers) == frozenset() and was_read(own) == frozenset(Strategy.model_fields)
    assert remembers.model_copy(update={"pp": 4}).microbatches == 4 and was_read(remembers) == {"num_microbatches", "global_batch_size", "vpp", "pp"}
    forget(remembers)
    assert was_read(remembers) == frozenset()
