"""Options that were given and move nothing here: said out loud, so that no key is silently without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.json_object import json_object
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import override_architecture
from symsim.inputs.strategy import Strategy

# Options that decide when things happen, and so show in times alone
TIME_ONLY = (
    "rank_order",
    "tp_comm_overlap",
    "tp_comm_overlap_ag",
    "tp_comm_overlap_rs",
    "tp_comm_overlap_rs_dgrad",
    "tp_comm_bulk_dgrad",
    "tp_comm_bulk_wgrad",
    "tp_comm_overlap_disable_qkv",
    "tp_comm_overlap_disable_fc1",
    "tp_comm_halves",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p_comm",
    "overlap_p2p_comm_warmup_flush",
    "p2p_comm",
    "batch_p2p_sync",
    "moe_shared_expert_overlap",
    "clip_grad",
    "allgather_bucket_size",
    "overlap_cpu_optimizer_d2h_h2d",
    "host_update",
)
# Those that show in times, and under some strategies in memory too
TIMED = (
    *TIME_ONLY,
    "ddp_bucket_size",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "overlap_dispatch_backward_with_experts_wgrad",
    "ep_overlap_early_attn_memory_release",
)

# Options whose effect depends on other options or on the model. Degrees, sizes and batches always show.
CONDITIONAL = (
    "cp_comm_type",
    "zero",
    "num_distributed_optimizer_instances",
    "outer_dp_sharding_strategy",
    "reshard_after_forward",
    "reshard_after_backward",
    "gradient_sync",
    "prefetch_bucket_size",
    "max_live_parameters",
    "max_reuse_distance",
    "param_persistence_threshold",
    "grad_reduce_in_fp32",
    "pad_buckets_for_high_nccl_busbw",
    "recompute_method",
    "recompute_num_layers",
    "recompute_layers_per_stage",
    "num_microbatches_with_partial_activation_checkpoints",
    "recompute_modules",
    "recompute_operations",
    "activation_func_fp8_input_store",
    "fp32_residual_connection",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "cross_entropy_fusion",
    "cross_entropy_chunks",
    "fused_kernels",
    "cuda_graph_impl",
    "cuda_graph_scope",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_flex_dispatcher_num_sms",
    "moe_permute_fusion_into_hybridep",
    "moe_expert_rank_capacity_factor",
    "moe_paged_stash",
    "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity",
    "moe_router_dtype",
    "moe_router_load_balancing_type",
    "optimizer_rank",
    "muon_tp_mode",
    "muon_num_ns_steps",
    "use_precision_aware_optimizer",
    "store_param_remainders",
    "main_params_dtype",
    "main_grads_dtype",
    "exp_avg_dtype",
    "exp_avg_sq_dtype",
    "optimizer_offload_fraction",
    "optimizer_offload_device",
    "offload_gradients",
    "attention_sparse_ratio",
    "deallocate_pipeline_outputs",
    "variable_seq_lengths",
    "wgrad_deferral_limit",
    "num_labels",
    "lora_rank",
    "lora_dropout",
    "target_modules",
    "modules_to_save",
    "use_dora",
    "quantize_base",
    "quantize_experts",
    "trainable_parameters",
    "schedule",
    *TIMED,
)


def idle_options(result: Evaluation) -> list[str]:
    """Given options without effect on this model under this strategy: those whose default gives the same output. Without a
    system, options that show in times alone are left out (`untimed_options`)."""
    given = {n: v for n, v in result.strategy.model_dump().items() if n in result.strategy.model_fields_set}
    found = []
    output = None
    for name in CONDITIONAL:
        default = Strategy.model_fields[name].default
        if name not in given or given[name] == default or (result.system is None and name in TIMED):
            continue
        try:
            other = evaluated(result.model, Strategy(**{**given, name: default}), result.assumptions, result.overrides, result.system)
        except InputError:
            continue  # the other options need this one
        # other numbers of the same definitions settle it without writing everything out
        if any(other.value(n) != result.value(n) for n in ("N", "F", "G", "R")) or _peaks(other) != _peaks(result):
            continue
        output = output or _output(result)
        if _output(other) == output:
            found.append(name)
    return found


def _peaks(result: Evaluation) -> tuple[float, ...]:
    """A few numbers in which most options show: the step's time, and the first stage's memory."""
    at = result.stage_numbers(result.stages[0])
    return (float(at["M_stage_peak"]), float(at["A_stage"]), float(result.step_numbers["t_step"]) if result.system else 0.0)


def untimed_options(result: Evaluation) -> list[str]:
    """Given options that would show in times, where no system is given to take times from."""
    given = result.strategy.model_fields_set if result.system is None else ()
    return [n for n in TIME_ONLY if n in given and getattr(result.strategy, n) != Strategy.model_fields[n].default]


def idle_fields(result: Evaluation, original: Architecture, changes: Mapping[tuple[str, ...], Any]) -> list[str]:
    """Fields of the original architecture that were changed without effect: the output is the same without the change."""
    found = []
    for path in changes:
        try:
            other = override_architecture(original, {p: v for p, v in changes.items() if p != path})
            if other != override_architecture(original, changes) and _output(
                evaluated(other, result.strategy, result.assumptions, result.overrides, result.system)
            ) == _output(result):
                found.append(".".join(path))
        except InputError:
            continue  # the other changes need this one
    return found


def _output(result: Evaluation) -> dict:
    return {key: value for key, value in json_object(result).items() if key not in ("model", "strategy", "symbols")}
