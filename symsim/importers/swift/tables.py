"""The arguments of ms-swift that no formula reads: what each is for, or what it would change.

Names: of Megatron-SWIFT and of `swift sft` at 54e9c5050 (the seed) and 3602360a5, from the classes of its argument packages.
"""

from __future__ import annotations

from symsim.importers.assumed import COLLECTED, UPDATE_GRAPH
from symsim.importers.keys import Silent, silent

_LOGS = "logs, and where they go"
_RATES = "learning rates and other numbers of the update, which cost the same at any value"
_PATHS = "names, paths and files of the run"
_DATA = "which samples are read, and how text becomes tokens"
_RNG = "random numbers"
_OTHER_STEP = "read by 'rlhf' alone"
_ROLLOUT = "generation between training steps is another workload: it would add decoding time, of the length of the longest answers, to every step"
_OTHERS = "other models besides the policy are another workload: their forwards, weights and messages would come on top, 1/3 of a step's FLOPs each"
_COLOCATED = "an inference engine on the same accelerators is another workload: its memory, and states moved to the host and back, would come on top"
_REWARD = "rewards, sampling and terms of the loss of reinforcement learning, which is another workload; the policy's forward and backward are timed"
_ADAPTERS = "a variant of adapters, which are timed as LoRA's: two products of rank lora_rank beside each target"
_WIDE_ADAPTERS = "adapters of a type of their own: those of 4 bytes keep 2 more for each of their parameters, and cast the input of each target"
_VISION = "towers for images and sound are another workload: an encoder before the decoder, whose text part is timed"
_EVALUATION = "evaluation belongs to the run: forwards of eval_iters batches between steps"
_SAVING = "checkpoints belong to the run: bytes of weights and states over the storage's bandwidth, between steps"
_LOADING = "how samples reach the host's memory bounds a step from below, where workers are slower than it"
_LENGTH = "the length of the run: so many steps of the time given here"
_LENGTHS = "the lengths of samples and their order: ranks with short rows wait for those with long ones; every row is timed at seq_length"
_SCORES = "fusions of unfused attention's softmax, which flash attention does not have"
_PROJECTION = "optimizers that keep states in projected, few or low-precision parameters: less than Adam's 8 bytes, which is counted"
_GENERATED = "read where the model generates, not in training"
_CHUNKED = "the loss in chunks keeps the logits of one chunk only: less by up to 12 bytes a logit"

_RUN: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        _LOGS,
        """log_interval logging_steps tensorboard_dir tensorboard_log_interval tensorboard_queue_size no_log_learning_rate_to_tensorboard
        log_validation_ppl_to_tensorboard logging_level wandb_project wandb_exp_name wandb_save_dir swanlab_project swanlab_exp_name
        swanlab_token swanlab_workspace swanlab_mode swanlab_notification_method swanlab_webhook_url swanlab_secret swanlab_sender_email
        swanlab_receiver_email swanlab_smtp_server swanlab_smtp_port swanlab_email_language report_to log_throughput
        log_timers_to_tensorboard log_memory_to_tensorboard wandb_log_unique_prompts log_completions log_rollout_offpolicy_metrics
        callbacks early_stop_interval acc_strategy metric eval_metric""",
    ),
    **silent(
        "no_cost_effect",
        _RATES,
        """lr lr_decay_style lr_decay_iters lr_warmup_iters lr_warmup_fraction lr_warmup_init min_lr lr_wsd_decay_style lr_wsd_decay_iters
        weight_decay weight_decay_incr_style start_weight_decay end_weight_decay adam_beta1 adam_beta2 adam_eps vit_lr aligner_lr
        apply_wd_to_qk_layernorm muon_momentum muon_use_nesterov muon_scale_mode muon_coefficient_type muon_extra_scale_factor
        lora_alpha use_rslora lorap_lr_ratio router_aux_loss_coef mtp_loss_scaling_factor metric_warmup_step""",
    ),
    **silent(
        "no_cost_effect",
        _PATHS,
        """save output_dir add_version check_model use_hf hub_token max_shard_size bridge_backend external_plugins
        custom_register_path model_kwargs load_args load_data_args ignore_args_error use_swift_lora ckpt_dir model_revision
        local_repo_path model_name model_author create_checkpoint_symlink save_missing_weights save_total_limit metric_for_best_model
        greater_is_better dist_ckpt_save_pre_mcore_014 dist_ckpt_optim_fully_reshardable no_save_rng no_load_rng load_safetensors
        auto_detect_ckpt_format exit_on_missing_checkpoint finetune no_initialization perform_initialization use_cpu_initialization
        init_strategy init_weights model_type safe_serialization mcore_adapter tuner_backend lora_modules enable_npu_model_patch
        ray_exp_name device_groups resume_only_model local_rank ddp_timeout distributed_timeout_minutes
        nccl_comm_warmup skip_megatron_init galore_config""",
    ),
    **silent("no_cost_effect", _RNG, "seed data_seed te_rng_tracker data_parallel_random_init"),
    **silent(
        "no_cost_effect",
        _DATA,
        """dataset val_dataset cached_dataset cached_val_dataset split_dataset_ratio dataset_num_proc load_from_cache_file dataset_shuffle
        val_dataset_shuffle train_dataloader_shuffle data_sharding interleave_prob stopping_strategy shuffle_buffer_size download_mode
        columns strict remove_unused_columns disable_auto_column_mapping custom_dataset_info template system agent_template norm_bbox
        use_chat_template padding_side response_prefix template_backend enable_thinking preserve_thinking add_non_thinking_prefix
        disable_ignore_empty_think is_binary_loss_scale loss_scale truncation_strategy packing_num_proc""",
    ),
    **silent(
        "no_cost_effect",
        "a number or a name of the loss, whose passes are the same",
        "enable_dft_loss enable_channel_loss loss_type problem_type label_smoothing",
    ),
    **silent(
        "no_cost_effect",
        "values inside a kernel, whose passes are the same",
        "rotary_base norm_epsilon rope_scaling apply_query_key_layer_scaling max_model_len",
    ),
    **silent(
        "no_cost_effect",
        "scores of flash attention never leave the kernel; unfused attention would keep them in 4 bytes, not 2",
        "attention_softmax_in_fp32",
    ),
    **silent("no_cost_effect", "one scalar more in an all-reduce", "calculate_per_token_loss"),
    **silent("no_cost_effect", "which rows are dropped, not how many", "moe_token_drop_policy"),
    **silent("no_cost_effect", "scales of the delayed recipe", "fp8_amax_history_len fp8_amax_compute_algo"),
    **silent(
        "no_cost_effect",
        _GENERATED,
        "max_new_tokens num_beams stream stop_words logprobs top_logprobs structured_outputs_regex predict_with_generate",
    ),
    **silent(
        "no_cost_effect",
        "conversion of checkpoints, no training",
        "to_mcore to_hf test_convert_precision test_convert_dtype exist_ok device_map max_memory",
    ),
    **silent(
        "not_modelled",
        _EVALUATION,
        """eval_iters eval_interval eval_steps eval_use_evalscope eval_dataset eval_datasets eval_dataset_args
        eval_datasets_args eval_limit eval_generation_config extra_eval_args""",
        ("-1", -1),
    ),
    **silent(
        "not_modelled",
        _SAVING,
        """save_interval save_steps save_strategy no_save_optim ckpt_format async_save use_persistent_ckpt_worker
        distrib_optim_fully_reshardable_mem_efficient save_safetensors merge_lora use_flash_ckpt""",
        ("no",),
    ),
    **silent("not_modelled", "states that are read before the first step raise the peak at the start, not of a step", "no_load_optim"),
    **silent(
        "not_modelled",
        _LOADING,
        """dataloader_type num_workers dataloader_num_workers dataloader_persistent_workers dataloader_prefetch_factor
        dataloader_pin_memory streaming lazy_tokenize no_create_attention_mask_in_dataloader""",
    ),
    **silent("no_cost_effect", _LENGTH, "train_iters max_epochs num_train_epochs max_steps"),
    **silent("no_cost_effect", COLLECTED, "manual_gc manual_gc_interval manual_gc_steps manual_gc_eval"),
}

_STEP: dict[str, Silent] = {
    **silent("not_modelled", "messages by way of the host's memory: numbers of another system", "distributed_backend ddp_backend", ("nccl",)),
    **silent("no_cost_effect", "its keys have rows of their own", "extra_megatron_kwargs megatron_extra_kwargs"),
    **silent("not_modelled", _LENGTHS, "group_by_length sequence_packing_scheduler packing_strategy"),
    **silent("no_cost_effect", "of Megatron's layers alone", "mlp_padding_free"),
    **silent("no_cost_effect", _SCORES, "no_masked_softmax_fusion masked_softmax_fusion"),
    **silent(
        "no_cost_effect",
        "a stage begins its reductions and gathers with the first one, which waits for none and ends the step: later stages do it in their bubble",
        "align_grad_reduce align_param_gather",
    ),
    **silent("no_cost_effect", UPDATE_GRAPH, "optimizer_cuda_graph"),
    **silent("no_cost_effect", "the recipe of fp4_format, of which there is one", "fp4_recipe"),
    **silent(
        "no_cost_effect",
        "read with the muon optimizers only",
        "muon_split_qkv muon_scalar_optimizer muon_fp32_matmul_prec",
    ),
    **silent("not_modelled", "rows of the vocabulary beyond config.json's, where these tokens need any: at most 128", "new_special_tokens"),
    **silent("not_modelled", _VISION, "vit_gradient_checkpointing vit_gradient_checkpointing_kwargs vit_attn_impl max_pixels"),
    **silent("no_cost_effect", "its keys have rows of their own", "deepspeed zero_hpz_partition_size deepspeed_autotp_size"),
    **silent("no_cost_effect", "read where FSDP shards", "fsdp_config.activation_cpu_offload"),
    **silent("no_cost_effect", "the text part is all that is read", "language_model_only"),
    **silent(
        "no_cost_effect",
        "read where parameters are trained themselves, not adapters",
        "freeze_parameters freeze_parameters_regex freeze_parameters_ratio trainable_parameters trainable_parameters_regex",
    ),
    **silent("no_cost_effect", "of towers for images and sound, of which the text part has none", "freeze_vit freeze_aligner"),
    **silent("no_cost_effect", "shares of an embedding's columns in its loss, which is small", "mrl_dims"),
    **silent(
        "no_cost_effect",
        "read with quant_method only",
        "quant_bits hqq_axis bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage",
    ),
    **silent("not_modelled", _PROJECTION, "use_galore"),
    **silent(
        "no_cost_effect",
        "read with use_galore or lisa_activated_layers only",
        """galore_target_modules galore_rank galore_update_proj_gap galore_scale galore_proj_type galore_optim_per_parameter
        galore_with_embedding galore_quantization galore_proj_quant galore_proj_bits galore_proj_group_size galore_cos_threshold
        galore_gamma_proj galore_queue_size lisa_step_interval""",
    ),
    **silent("not_modelled", _CHUNKED, "use_logits_to_keep CELOSS_PARALLEL_SIZE"),
    **silent("not_modelled", "layers spread over accelerators in one process: one works while the others wait", "fsdp_num acc_steps", (1, "1")),
}

_TUNERS = silent(
    "no_cost_effect",
    "read where adapters are trained only",
    """target_modules target_regex modules_to_save lora_rank lora_dtype lora_bias lora_dropout target_parameters use_dora init_lora_weights
    lora_ga_batch_size lora_ga_iters lora_ga_max_length lora_ga_direction lora_ga_scale lora_ga_stable_gamma fourier_n_frequency
    fourier_scaling boft_block_size boft_block_num boft_n_butterfly_factor boft_dropout vera_rank vera_projection_prng_key vera_dropout
    vera_d_initial adapter_act adapter_length adalora_target_r adalora_init_r adalora_tinit adalora_tfinal adalora_deltaT adalora_beta1
    adalora_beta2 adalora_orth_reg_weight llamapro_num_new_blocks llamapro_num_groups reft_layer_key reft_layers reft_rank
    reft_intervention_type reft_args""",
)

_RL_MODELS = """mcore_ref_model ref_model mcore_ref_adapter ref_adapters reference_free teacher_model offload_teacher_model
    teacher_model_server _teacher_use_disable_adapter calculate_KL gkd_logits_topk lmbda reward_model sync_ref_model ref_model_sync_steps
    log_entropy top_entropy_quantile reward_adapters teacher_adapters teacher_deepspeed"""
_RL_ROLLOUT = """num_generations num_generations_eval max_completion_length generation_batch_size steps_per_generation num_iterations
    dynamic_sample max_resample_times multi_turn_scheduler max_turns completion_length_limit_scope async_generate use_vllm use_ray
    vllm_mode vllm_tensor_parallel_size vllm_max_model_len vllm_enforce_eager vllm_enable_prefix_caching vllm_max_num_seqs
    vllm_engine_kwargs vllm_limit_mm_per_prompt vllm_enable_lora vllm_disable_cascade_attn use_gym_env router_replay_mode
    vllm_pipeline_parallel_size vllm_enable_expert_parallel vllm_disable_custom_all_reduce vllm_max_lora_rank vllm_use_async_engine
    vllm_quantization vllm_reasoning_parser vllm_speculative_config vllm_data_parallel_size num_infer_workers vllm_device
    tensor_parallel_size multi_turn_func local_rollout_forward_batch_size num_sample_generations response_length num_ppo_epochs
    num_mini_batches chord_sft_per_device_train_batch_size
    rollout teacher ref reward colocate_groups"""
_RL_COLOCATED = """vllm_gpu_memory_utilization vllm_mm_processor_cache_gb sleep_level offload_optimizer offload_model offload_bridge
    move_model_batches SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE gc_collect_after_offload enable_flattened_weight_sync ds3_gather_for_generation"""
# of losses over preferences, where they are an elementwise part; of others they may ask for a reference
WEIGHTS_OF_LOSSES = "beta rpo_alpha f_divergence_type desirable_weight undesirable_weight center_rewards_coefficient".split()
_RL_NUMBERS = f"""{" ".join(WEIGHTS_OF_LOSSES)}
    teacher_model_type teacher_model_revision teacher_tag_key seq_kd sft_alpha teacher_kl_coef temperature importance_sampling_level
    tau_pos tau_neg real_tau fipo_decay_rate fipo_clip_range fipo_clip_high_only fipo_safety_threshold epsilon epsilon_high delta top_k
    top_p min_p repetition_penalty vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_server_group_port
    vllm_server_pass_dataset reward_funcs reward_weights reward_model_plugin cosine_min_len_value_wrong cosine_max_len_value_wrong
    cosine_min_len_value_correct cosine_max_len_value_correct cosine_max_len repetition_n_grams repetition_max_penalty soft_max_length
    soft_cache_length overlong_filter scale_rewards advantage_estimator kl_in_reward rollout_importance_sampling_mode
    rollout_importance_sampling_threshold off_policy_sequence_mask_delta ref_model_mixup_alpha gym_env reward_model_type
    reward_model_revision reward_template whiten_rewards kl_coef cliprange vf_coef cliprange_value gamma lam missing_eos_penalty
    chord_sft_dataset chord_enable_phi_function chord_mu_warmup_steps chord_mu_decay_steps chord_mu_peak chord_mu_valley
    advantage_reweight rlsd_lambda rlsd_reweight_clip_range rlsd_lambda_warmup_steps rlsd_lambda_decay_steps rlsd_negative_only
    sdar_loss_coef sdar_gate_beta ref_model_type ref_model_revision ld_alpha discopop_tau loss_weights cpo_alpha simpo_gamma"""


def silent_keys(method: str, adapters: bool) -> dict[str, Silent]:
    """What is known of the arguments that no formula reads. method: sft, pt or rlhf. adapters: whether adapters are trained."""
    if method == "rlhf":
        learning = {
            **silent("not_modelled", _OTHERS, _RL_MODELS),
            **silent("not_modelled", _ROLLOUT, _RL_ROLLOUT),
            **silent("not_modelled", _COLOCATED, _RL_COLOCATED),
            **silent("not_modelled", _REWARD, _RL_NUMBERS),
        }
    else:
        learning = silent("no_cost_effect", _OTHER_STEP, " ".join((_RL_MODELS, _RL_ROLLOUT, _RL_COLOCATED, _RL_NUMBERS)))
    tuners = {key: Silent("not_modelled", _ADAPTERS) for key in _TUNERS} if adapters else _TUNERS
    begun = silent("no_cost_effect", "what adapters begin as", "init_lora_weights")
    wide = silent("not_modelled", _WIDE_ADAPTERS, "lora_dtype", ("None", "none", None, "")) if adapters else {}
    return {**_RUN, **_STEP, **tuners, **learning, **begun, **wide}


def other_models() -> str:
    """What is said of `rlhf` itself."""
    return _OTHERS


ENVIRONMENT: dict[str, Silent] = {
    **silent("no_cost_effect", "which accelerators of a node; their number is NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES ASCEND_RT_VISIBLE_DEVICES"),
    **silent(
        "no_cost_effect",
        "how ranks find each other",
        "NODE_RANK MASTER_ADDR MASTER_PORT RANK LOCAL_RANK LOCAL_WORLD_SIZE NCCL_DEBUG NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME NCCL_IB_HCA",
    ),
    **silent("no_cost_effect", "threads of the host", "OMP_NUM_THREADS TOKENIZERS_PARALLELISM"),
    **silent(
        "no_cost_effect",
        _PATHS,
        """MEGATRON_LM_PATH USE_HF HF_HOME HF_ENDPOINT MODELSCOPE_CACHE MODELSCOPE_API_TOKEN WANDB_API_KEY WANDB_MODE HF_TOKEN PYTHONPATH
        SWIFT_PATCH_CONV3D SWIFT_DEBUG SWIFT_TIMEOUT MODELSCOPE_DOMAIN HF_HUB_OFFLINE TRANSFORMERS_OFFLINE CUDA_HOME""",
    ),
    **silent("no_cost_effect", "messages and products are issued in order, as symsim has them", "CUDA_DEVICE_MAX_CONNECTIONS"),
    **silent(
        "not_modelled",
        _VISION,
        """MAX_PIXELS MIN_PIXELS VIDEO_MAX_PIXELS VIDEO_MIN_PIXELS FPS FPS_MAX_FRAMES FPS_MIN_FRAMES IMAGE_MAX_TOKEN_NUM VIDEO_MAX_TOKEN_NUM
        NFRAMES MAX_NUM ENABLE_AUDIO_OUTPUT USE_AUDIO_IN_VIDEO VIDEO_TOTAL_PIXELS IMAGE_FACTOR""",
    ),
    **silent("not_modelled", _CHUNKED, "CELOSS_PARALLEL_SIZE"),
    **silent("not_modelled", "which heads of ring attention travel together", "RING_HEAD_STRIDE"),
    **silent("not_modelled", _COLOCATED, "SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE"),
}
