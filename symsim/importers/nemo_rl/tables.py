"""NeMo-RL's keys that no formula of a policy's update reads, and the values that hold where a file says nothing.

Names and defaults: NeMo-RL examples/configs (grpo_math_1B.yaml, sft.yaml, dpo.yaml), nemo_rl/models/policy/__init__.py.
"""

from __future__ import annotations

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, DEVICE, EVALUATION, LENGTH, LOGS, OTHER_MODELS, PATHS, RATES, SAVING
from symsim.importers.verl.tables import COLOCATED, ROLLOUT

POLICY = "policy"
MEGATRON = f"{POLICY}.megatron_cfg"
DTENSOR = f"{POLICY}.dtensor_cfg"
_NUMBERS = "numbers of the loss and of rewards"
_PIECES = "log-probabilities of pieces of the logits, in fp32 for a piece alone: up to 8 bytes a logit less at the peak"
_LATE = "logits in 2 bytes until the loss needs them in 4: up to 4 bytes a logit less at the peak"
_TYPE = "the type of adapters: 2 or 4 bytes a parameter of theirs, some 1 % of the model's"
_BETWEEN = "of forwards between the updates"
_PARTS = "which class or kernels make the modules; the same products"
_COUNTERS = "counters of experts' loads"


def _of(section: str, keys: str) -> str:
    return " ".join(f"{section}.{key}" for key in keys.split())


SILENT: dict[str, Silent] = {
    **silent("no_cost_effect", _BETWEEN, _of(POLICY, "logprob_batch_size generation_batch_size offload_optimizer_for_logprob")),
    **silent("no_cost_effect", _BETWEEN, "policy.dynamic_batching.logprob_mb_tokens policy.sequence_packing.logprob_mb_tokens"),
    **silent("not_modelled", _PIECES, _of(POLICY, "logprob_chunk_size")),
    **silent("no_cost_effect", "how rows are packed, and rounded by some tokens", _of(f"{POLICY}.sequence_packing", "algorithm microbatch_order")),
    **silent("no_cost_effect", "rows rounded up by some tokens", "policy.make_sequence_length_divisible_by"),
    **silent("no_cost_effect", "rows rounded up by some tokens", "policy.dynamic_batching.sequence_length_round"),
    **silent("no_cost_effect", "rows rounded up by some tokens", "policy.sequence_packing.sequence_length_round"),
    **silent("no_cost_effect", PATHS, _of(POLICY, "hf_config_overrides worker_extension_cls refit_buffer_size_gb scheduler model_kwargs")),
    **silent("no_cost_effect", PATHS, "defaults policy.pretrained_checkpoint policy.optimizer policy.precision_cfg"),
    **silent("no_cost_effect", _PARTS, _of(DTENSOR, "_v2 custom_parallel_plan env_vars automodel_kwargs automodel_kwargs.force_hf")),
    **silent("no_cost_effect", _PARTS, _of(f"{DTENSOR}.automodel_kwargs", "backend._target_ backend.enable_hf_state_dict_adapter use_liger_kernel")),
    **silent("not_modelled", "PyTorch's cache is emptied around every update: milliseconds", _of(DTENSOR, "clear_cache_every_n_steps")),
    **silent("no_cost_effect", RATES, _of(f"{DTENSOR}.lora_cfg", "alpha lora_A_init use_triton")),
    **silent("not_modelled", _TYPE, f"{DTENSOR}.lora_cfg.lora_dtype {MEGATRON}.peft.lora_dtype"),
    **silent(
        "no_cost_effect",
        RATES,
        _of(f"{MEGATRON}.peft", "alpha lora_A_init_method lora_B_init_method a2a_experimental"),
    ),
    **silent("no_cost_effect", RATES, _of(f"{MEGATRON}.optimizer", "adam_eps sgd_momentum")),
    **silent("no_cost_effect", PATHS, _of(MEGATRON, "force_reconvert_from_hf converter_type pipeline_dtype use_gloo_process_groups")),
    **silent("no_cost_effect", DEVICE, _of(MEGATRON, "env_vars force_overwrite_initial_ckpt")),
    **silent("no_cost_effect", "PyTorch's cache is emptied between phases", _of(MEGATRON, "empty_unused_memory_level")),
    **silent("no_cost_effect", _COUNTERS, _of(MEGATRON, "moe_per_layer_logging track_moe_metrics")),
    **silent("not_modelled", _LATE, _of(MEGATRON, "defer_fp32_logits")),
    **silent("no_cost_effect", "read with use_fused_linear_logprobs", _of(MEGATRON, "fused_linear_logprobs_chunk_size linear_ce_fusion_chunk_size")),
    **silent(
        "no_cost_effect",
        "how a gradient of further tokens is scaled or cut",
        _of(MEGATRON, "mtp_detach_heads mtp_loss_scaling_factor mtp_use_repeated_layer"),
    ),
    **silent("no_cost_effect", "an activation's own kernel", _of(MEGATRON, "use_fused_weighted_squared_relu")),
    **silent("not_modelled", COLOCATED, "policy.generation.colocated.enabled"),
    **silent("no_cost_effect", "of the first version of FSDP, which is gone: dtensor_cfg has its own", f"{POLICY}.activation_checkpointing_enabled"),
    **silent("no_cost_effect", "towers for images and sound are another workload", f"{POLICY}.is_vlm {MEGATRON}.radio_force_cpe_eval_mode"),
    **silent("no_cost_effect", "PyTorch's cache is emptied between phases", f"{MEGATRON}.clear_memory_caches_before_refit"),
    **silent("no_cost_effect", "units of FSDP for experts apart: as many bytes", f"{DTENSOR}.automodel_kwargs.backend.enable_fsdp_optimizations"),
    **silent("no_cost_effect", "the router's scores in 8 bytes: below 1 % of a step", f"{DTENSOR}.automodel_kwargs.backend.gate_precision"),
    **silent("no_cost_effect", "the loss in one pass with packing", "policy.sequence_packing.fuse_loss"),
    **silent("no_cost_effect", PATHS, "policy.dequantize_base_checkpoint"),
    **silent("no_cost_effect", "which experts were chosen in generation", "policy.router_replay.enabled"),
    **silent("not_modelled", "a head of one column in place of the vocabulary's, and two rows for each sample", "policy.reward_model_cfg.enabled"),
    **silent("no_cost_effect", "read with policy.reward_model_cfg.enabled", "policy.reward_model_cfg.reward_model_type"),
    **silent("not_modelled", "weights and inputs that are rounded and unpacked in every product: passes over them", "policy.quant_cfg"),
    **silent("no_cost_effect", "read with quant_cfg", _of(POLICY, "quant_calib_data quant_calib_size quant_batch_size quant_sequence_length")),
    **silent("no_cost_effect", _PARTS, f"policy.disable_modelopt_layer_spec {DTENSOR}.automodel_kwargs.use_sdpa_patching"),
    **silent("no_cost_effect", "the router runs again with its layer, or not: below 1 % of it", f"{DTENSOR}.moe_parallelizer.ignore_router_for_ac"),
    **silent("no_cost_effect", _NUMBERS, _of(MEGATRON, "do_not_average_loss cp_normalize scale_loss_by_dp_cp_size moe_router_enable_expert_bias")),
    **silent(
        "no_cost_effect",
        DEVICE,
        _of("cluster", "segment_size master_port_range_low master_port_range_high port_range_low port_range_high name"),
    ),
}

SECTIONS: dict[str, Silent] = {
    **silent("no_cost_effect", ROLLOUT, "policy.generation"),
    **silent("not_modelled", OTHER_MODELS, "policy.draft teacher teachers value policy.value critic distillation"),
    **silent(
        "no_cost_effect",
        _NUMBERS,
        "loss_fn value_loss_fn grpo ppo rm reward reward_penalties async_rl on_policy_distillation data_plane quantize metadata",
    ),
    **silent("no_cost_effect", LENGTH, "sft dpo"),
    **silent("no_cost_effect", DATA, "data policy.tokenizer env processor"),
    **silent("no_cost_effect", LOGS, "logger"),
    **silent("no_cost_effect", SAVING, "checkpointing policy.megatron_cfg.checkpoint"),
    **silent("no_cost_effect", EVALUATION, "eval"),
    **silent("no_cost_effect", RATES, "policy.scheduler policy.megatron_cfg.scheduler policy.optimizer.kwargs"),
    **silent(
        "no_cost_effect",
        "towers for images and sound are another workload",
        f"{DTENSOR}.freeze_config {DTENSOR}.automodel_kwargs.freeze_config {MEGATRON}.freeze_config",
    ),
    **silent("no_cost_effect", PATHS, f"sif_dir {MEGATRON}.env_vars {DTENSOR}.env_vars policy.hf_config_overrides policy.model_kwargs"),
}

# of grpo_math_1B.yaml, from which most files start
DEFAULTS = {"global": 512, "micro": 4, "length": 512}
# that file's megatron_cfg, where it is not Megatron-Core's own
OF_MEGATRON = {
    "optimizer.use_distributed_optimizer": True,
    "optimizer.use_precision_aware_optimizer": True,
    "optimizer.bf16": True,
    "optimizer.optimizer": "adam",
    "distributed_data_parallel_config.overlap_grad_reduce": True,
    "distributed_data_parallel_config.overlap_param_gather": True,
    "distributed_data_parallel_config.grad_reduce_in_fp32": False,
    "moe_token_dispatcher_type": "alltoall",
    "moe_permute_fusion": True,
    "moe_grouped_gemm": True,
    "expert_tensor_parallel_size": 1,
    "moe_router_dtype": "fp64",
    "moe_router_load_balancing_type": "none",
    "apply_rope_fusion": True,
    "gradient_accumulation_fusion": False,
    "bias_activation_fusion": True,
}
