"""slime's own arguments that no formula of an update reads; all others are Megatron-LM's.

Names: slime/utils/arguments.py, slime/backends/megatron_utils/arguments.py; of its fork miles (radixark/miles 2026-08) miles/utils/arguments.py.
"""

from __future__ import annotations

from collections.abc import Collection

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, EVALUATION, LENGTH, LOGS, OTHER_MODELS, PATHS, SAVING
from symsim.importers.verl.tables import COLOCATED, ROLLOUT

_NUMBERS = "numbers of the loss and of rewards"
_HOOKS = "functions of a user's own, beside the update or in place of a part of it: the built-in ones are timed"
_PIECES = "fp32 copies of logits in pieces, or made again in backward: up to 8 bytes a logit less at the peak"
_WEIGHTS = "weights that go to the engines between the steps"
_FROZEN = "frozen parameters lose gradients, states and messages; all are trained here"
_PASS = "one more pass over the logits or two: below 1 % of a step"
_MODULES = "modules of a specification in Python, which is not read; --of MODEL gives the model"
_SHARDED = "FSDP of transformers' modules in place of Megatron-Core's: parameters and gradients sharded too (zero=3), modules op by op (fusion=eager)"
_CHECKS = "checks of continuous integration"

OWN: dict[str, Silent] = {
    **silent("not_modelled", ROLLOUT, "num_rollout rollout_num_gpus rollout_num_gpus_per_engine num_gpus_per_node"),
    **silent("not_modelled", ROLLOUT, "over_sampling_batch_size partial_rollout use_fault_tolerance"),
    **silent("not_modelled", COLOCATED, "colocate offload offload_train offload_rollout release_train"),
    **silent("no_cost_effect", COLOCATED, "no_offload_train no_offload_rollout no_offload"),
    **silent("not_modelled", OTHER_MODELS, "use_kl_loss kl_coef use_opd use_critic num_critic_only_steps use_rollout_logprobs get_mismatch_metrics"),
    **silent("not_modelled", _PASS, "entropy_coef", (0, "0", "0.0", "0.00", 0.0)),
    **silent("not_modelled", _PIECES, "recompute_loss_function log_probs_chunk_size", (-1, "-1")),
    **silent("not_modelled", _FROZEN, "only_train_params_name_list freeze_params_name_list"),
    **silent("not_modelled", "moments begin anew in every update, and are kept between updates by nothing", "use_stateless_adam"),
    **silent("not_modelled", EVALUATION, "eval_interval", (None,)),
    **silent("not_modelled", SAVING, "save_interval", (None,)),
    **silent("no_cost_effect", SAVING, "save_hf async_save save load"),
    **silent("not_modelled", OTHER_MODELS, "ref_micro_batch_size"),
    **silent("no_cost_effect", LENGTH, "num_epoch start_rollout_id"),
    **silent("no_cost_effect", PATHS, "hf_checkpoint model_name ref_load ref_ckpt_step train_env_vars dump_details qwen_gdn_backend"),
    # of earlier versions and of miles (backends/fsdp_utils/arguments.py)
    **silent("not_modelled", _SHARDED, "train_backend", ("megatron",)),
    **silent("no_cost_effect", "which kernel computes attention: a fused one either way", "attn_implementation"),
    **silent(
        "no_cost_effect",
        DATA,
        """prompt_data input_key label_key apply_chat_template apply_chat_template_kwargs multimodal_keys metadata_key tool_key data_source_path
        disable_rollout_global_dataset loss_mask_type data_pad_size_multiplier skip_eval_before_train debug_train_only load_debug_rollout_data
        load_debug_rollout_data_subsample save_debug_rollout_data save_debug_train_data load_forge_rollout_data""",
    ),
    **silent(
        "no_cost_effect",
        _NUMBERS,
        """advantage_estimator eps_clip eps_clip_high eps_clip_c value_clip kl_loss_type kl_loss_coef loss_type use_unbiased_kl gamma lambd
        normalize_advantages disable_grpo_std_normalization disable_rewards_normalization disable_compute_advantages_and_returns use_tis tis_clip
        tis_clip_low use_opsm opsm_delta opd_type opd_kl_coef opd_teacher_load opd_teacher_ckpt_step ref_update_interval reset_optimizer_states
        use_rollout_entropy rm_type rm_url reward_key eval_reward_key group_rm keep_old_actor update_weights_interval
        mask_offpolicy_in_partial_rollout use_routing_replay use_rollout_routing_replay""",
    ),
    **silent("no_cost_effect", _HOOKS, "dynamic_sampling_filter_path buffer_filter_path megatron_config_path"),
    **silent("no_cost_effect", ROLLOUT, "fetch_trajectory_retry_times min_batch_collection_ratio http_proxy use_distributed_post router_policy"),
    **silent(
        "no_cost_effect",
        LOGS,
        """use_wandb use_tensorboard disable_wandb_random_suffix log_multi_turn log_passrate log_reward_category log_correct_samples
        memory_snapshot_dir memory_snapshot_num_steps memory_recorder profile_target record_memory_history check_weight_update_equal""",
    ),
    **silent("refused", "nothing is trained with it; leave it out for the policy's update", "debug_rollout_only"),
    **silent("refused", _MODULES, "use_gated_attention"),
    # of earlier versions
    **silent("no_cost_effect", _WEIGHTS, "megatron_to_hf_mode disable_weights_backuper train_memory_margin_bytes"),
    **silent("no_cost_effect", ROLLOUT, "use_slime_router disable_rollout_trim_samples"),
    **silent("not_modelled", "rows padded to the longest of their micro-batch, where samples without padding are timed", "qkv_format", ("thd",)),
    **silent("not_modelled", "updates of as many samples as a roll-out gave, where a fixed number is timed", "use_dynamic_global_batch_size"),
    **silent("not_modelled", "products of forward in 8 bits: half their time", "megatron_deepgemm_forward_layers"),
    **silent("not_modelled", "products of forward in 8 bits: half their time", "megatron_deepgemm_moe_forward_layers"),
    **silent("no_cost_effect", "which of its modules", "megatron_deepgemm_forward_modules megatron_deepgemm_moe_forward_modules"),
}

# of miles, a fork of slime
OWN |= {
    **silent("no_cost_effect", "how much an adapter's output counts, and where it is kept", "lora_alpha lora_adapter_path lora_train_only"),
    **silent("no_cost_effect", _WEIGHTS, "lora_sync_from_tensor lora_base_cpu_backup extra_high_precision_layers_hf object_store_backend"),
    **silent("no_cost_effect", _WEIGHTS, "extra_high_precision_layers_megatron rematerialize_param_from_master_weight max_weight_staleness"),
    **silent("not_modelled", "one first or last product of adapters for all experts of a layer", "experts_shared_outer_loras"),
    **silent(
        "not_modelled",
        "states come from a drive and go back in every step, by buckets",
        "stream_optimizer_state_to_disk",
    ),
    **silent("no_cost_effect", "read with stream_optimizer_state_to_disk", "stream_optimizer_state_moment_dtype"),
    **silent("not_modelled", _FROZEN, "freeze_indexer"),
    **silent("not_modelled", "kernels that do not depend on the batch: products at lower shares", "true_on_policy_mode"),
    **silent("not_modelled", _PASS, "observe_training_entropy"),
    **silent("not_modelled", "a forward less between the updates: of the roll-out, not of the update", "skip_actor_forward_only"),
    **silent("not_modelled", "gradients between replicas go outside Megatron-Core: as many bytes, later", "indep_dp"),
    **silent("no_cost_effect", "which kernel computes attention", "dsa_attention_backend linear_attention_backend"),
    **silent("no_cost_effect", "the last, smaller step of a roll-out", "allow_partial_train_step"),
    **silent("no_cost_effect", COLOCATED, "offload_train_target offload_train_disk_dir offload_train_disk_chunk_mb offload_rollout_level"),
    **silent(
        "no_cost_effect",
        ROLLOUT,
        """fully_async chat_template_path control_server_port pause_generation_mode pin_rollout_manager_to_head tito_model use_miles_router
        recompute_logprobs_via_prefill miles_dsa_topk_backend filter_zero_reward_samples delay_split_train_data_by_dp low_memory_resume
        no_sglang_lora_use_virtual_experts use_session_server use_indexer_replay use_rollout_indexer_replay ft_components""",
    ),
    **silent("no_cost_effect", LOGS, "use_mlflow use_prometheus env_report mfu_peak_tflops enable_event_analyzer enable_witness"),
    **silent("no_cost_effect", LOGS, "save_debug_event_data save_debug_trajectory_data save_local_weight_checksum save_trigger_sentinel"),
}

# beginnings of names: an engine's arguments are handed on, and there are hundreds
_BEGINNINGS = (
    (("sglang_", "vllm_", "router_", "rollout_", "prefill_", "speculative_"), Silent("no_cost_effect", ROLLOUT)),
    (("eval_", "n_samples_per_eval"), Silent("no_cost_effect", EVALUATION)),
    (("update_weight_",), Silent("no_cost_effect", _WEIGHTS)),
    (("wandb_", "tb_", "mlflow_", "prometheus_", "witness_", "dumper_"), Silent("no_cost_effect", LOGS)),
    (("miles_router_", "session_", "async_", "multi_lora_", "mini_ft_", "mooncake_"), Silent("no_cost_effect", ROLLOUT)),
    (("critic_", "opd_"), Silent("not_modelled", OTHER_MODELS)),
    (("custom_",), Silent("no_cost_effect", _HOOKS)),
    (("ci_", "check_", "debug_"), Silent("no_cost_effect", _CHECKS)),
)


def of_beginnings(given: Collection[str]) -> dict[str, Silent]:
    """What the beginning of a name says of those keys that are given and stand in no table."""
    return {key: known for key in given for beginnings, known in _BEGINNINGS if key.startswith(beginnings) and key not in OWN}
