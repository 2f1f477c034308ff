"""Arguments of Megatron-LM that change no formula, and why.

Names are those of its command line, with `_`, and of configuration fields that it has no argument for; read at commit d98e8a64
(2026-08-22), training/arguments.py and core/transformer/transformer_config.py. Names of older versions stand at the end.
"""

from __future__ import annotations

from symsim.importers.keys import Silent, silent

SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        "of the run: checkpoints",
        """
        async_ckpt_cpu_priority async_ckpt_io_priority async_ckpt_use_cpu_shm async_save async_strategy auto_detect_ckpt_format
        ckpt_assume_constant_structure ckpt_convert_format ckpt_convert_save ckpt_convert_update_legacy_dist_opt_format
        ckpt_drop_redundant_extra_state ckpt_format ckpt_fully_parallel_load ckpt_fully_parallel_load_exchange_algo
        ckpt_fully_parallel_load_per_rank_objects ckpt_fully_parallel_load_process_group ckpt_fully_parallel_save
        ckpt_fully_parallel_save_process_group ckpt_pg_tensors_cache_create ckpt_pg_tensors_cache_path ckpt_step
        disable_ckpt_load_validate_sharding_integrity disable_save_tokenizer_assets disable_strict_fsdp_dtensor_load
        disable_use_tokenizer_model_from_checkpoint_args dist_ckpt_format dist_ckpt_optim_fully_reshardable dist_ckpt_save_pre_mcore_014
        dist_ckpt_strictness dist_ckpt_workers distrib_optim_fully_reshardable_mem_efficient exit_on_missing_checkpoint finetune load
        load_main_params_from_ckpt no_ckpt_fully_parallel_save no_ckpt_load_validate_sharding_integrity no_load_optim no_load_rng no_save_optim
        no_save_rng no_save_tokenizer_assets no_strict_fsdp_dtensor_load no_use_tokenizer_model_from_checkpoint_args non_persistent_ckpt_type
        non_persistent_global_ckpt_dir non_persistent_local_ckpt_algo non_persistent_local_ckpt_dir non_persistent_save_interval
        override_ckpt_iteration persistent_save_interval pretrained_checkpoint replication replication_factor replication_jump save
        save_activations_interval save_dgrads_interval save_interval save_params_interval save_retain_interval save_tokens_per_expert_interval
        save_wgrads_interval use_checkpoint_args use_dist_ckpt use_mp_args_from_checkpoint_args use_persistent_ckpt_worker verify_integrity
        """,
    ),
    **silent(
        "no_cost_effect",
        "of the run: what is logged, and where",
        """
        app_tag_run_name app_tag_run_version disable_log_loss_scale_to_tensorboard disable_straggler_on_startup log_device_memory_used log_energy
        log_interval log_memory_interval log_memory_to_tensorboard log_progress log_straggler log_throughput
        log_timers_to_tensorboard log_validation_ppl_to_tensorboard log_world_size_to_tensorboard logging_level
        moe_routing_trace_capture_hidden_states moe_routing_trace_capture_logits moe_routing_trace_dump_weights
        moe_routing_trace_max_training_iters moe_routing_trace_path no_log_loss_scale_to_tensorboard no_one_logger one_logger_async
        one_logger_project one_logger_run_name otel_enabled otel_service_name otel_span_groups run_workload_inspector_server straggler_ctrlr_port
        straggler_minmax_count tensorboard_dir tensorboard_log_interval tensorboard_queue_size timing_log_option wandb_entity
        wandb_exp_name wandb_project wandb_save_dir
        """,
    ),
    **silent(
        "no_cost_effect",
        "of the run: profiling",
        """
        memory_snapshot_path nvtx_ranges profile profile_ranks profile_step_end profile_step_start pytorch_profiler_collect_callstack
        pytorch_profiler_collect_chakra pytorch_profiler_collect_shapes record_memory_history record_shapes use_pytorch_profiler
        """,
    ),
    **silent(
        "no_cost_effect",
        "no check is counted",
        "no_check_for_nan_in_loss_and_grad check_for_nan_in_loss_and_grad",
    ),
    **silent(
        "no_cost_effect",
        "a hook of the training loop; what it does by default follows from the data-parallel options",
        """
        _cpu_offloading_context embedding_init_method experimental_attention_variant_loss_scale_func finalize_model_grads_func grad_scale_func
        grad_sync_func init_method moe_grad_scale_func mtp_grad_scale_func no_sync_func output_layer_init_method param_sync_func timers
        """,
    ),
    **silent(
        "no_cost_effect",
        "the type of boundary tensors is that of the parameters",
        "pipeline_dtype",
    ),
    **silent(
        "no_cost_effect",
        "of configuration files, and for the framework only",
        """
        _target_ adaptive_muon_beta2 adaptive_muon_eps adaptive_muon_moment2_method beta_fast beta_slow cuda_graph_retain_backward_graph
        cuda_graph_use_single_mempool decoupled_weight_decay enable_megatron_core_experimental fsdp_all_gather_in_start_param_sync
        generation_config grad_norm_skip_threshold hetereogenous_dist_checkpoint heterogeneous_block_specs hf_model_id inference_sampling_seed
        inherit_from megatron_fsdp_cuda_graph_mode megatron_fsdp_use_decoupled_grad memory_efficient_layer_norm moe_token_dropping
        original_max_position_embeddings quant_recipe seq_len_interpolation_factor soap_shampoo_beta soap_use_kl_shampoo trust_remote_code
        use_inference_optimized_layers use_kitchen use_te_rng_tracker
        """,
    ),
    **silent(
        "no_cost_effect",
        "of forks of Megatron-LM (LLM-jp's, MLCommons'): the launcher, names, how weights begin and which of them decay",
        """
        bias_zero_mean_update do_layernorm_bias_weight_decay no_scaled_init no_seq_len_plus_one_tokens use_mpi wandb_name
        """,
    ),
    **silent(
        "no_cost_effect",
        "of the run: evaluation between training steps",
        """
        eval_global_batch_size eval_interval eval_iters eval_micro_batch_size full_validation multiple_validation_sets skip_train
        start_eval_at_iter test_mode validation_set_names
        """,
    ),
    **silent(
        "no_cost_effect",
        "of the run: which data are read, and by how many processes",
        """
        allow_ambiguous_pad_tokens data_args_path data_cache_path data_path dataloader_defer_npy_index_mmap dataloader_fast_cache_load
        decoder_seq_length eod_mask_loss fim_data fim_eod_token fim_fragment_rate fim_middle_token fim_no_prefix fim_pad_token fim_prefix_token
        fim_rate fim_split_sample fim_spm_rate fim_suffix_token mask_prob mid_level_dataset_surplus mock_data
        no_create_attention_mask_in_dataloader no_mmap_bin_files num_dataset_builder_threads num_workers object_storage_cache_path
        path_to_cache
        renormalize_blend_weights s3_cache_path
        per_dataset_sequences_path per_split_data_args_path phase_transition_iterations reset_position_ids sample_rate short_seq_prob split
        test_data_path train_data_path valid_data_path
        """,
    ),
    **silent(
        "no_cost_effect",
        "names the tokenizer, not its size",
        """
        chat_template disable_tokenizer_sentencepiece_ignore_extra_whitespaces merge_file no_tokenizer_sentencepiece_ignore_extra_whitespaces
        null_tokenizer_eod_id null_tokenizer_pad_id tiktoken_num_special_tokens
        tiktoken_pattern tiktoken_special_tokens tokenizer_hf_no_include_special_tokens
        tokenizer_hf_no_use_fast tokenizer_metadata tokenizer_model tokenizer_sentencepiece_legacy tokenizer_special_tokens use_gigatoken
        vocab_extra_ids vocab_file
        """,
    ),
    **silent(
        "no_cost_effect",
        "the learning rate, not the work",
        """
        decoupled_lr decoupled_min_lr end_weight_decay lr lr_decay_iters lr_decay_samples lr_decay_style lr_warmup_fraction lr_warmup_init
        lr_warmup_iters lr_warmup_samples lr_wsd_decay_iters lr_wsd_decay_samples lr_wsd_decay_style min_lr override_opt_param_scheduler
        start_weight_decay use_checkpoint_opt_param_scheduler weight_decay_incr_style
        """,
    ),
    **silent(
        "no_cost_effect",
        "a number of the update, not its cost",
        """
        adam_beta1 adam_beta2 adam_eps apply_wd_to_qk_layernorm lion_beta1 lion_beta2 muon_coefficient_type muon_extra_scale_factor
        muon_momentum muon_nesterov muon_scale_mode no_weight_decay_cond_type weight_decay
        """,
    ),
    **silent(
        "no_cost_effect",
        "values that weights start from, or random numbers",
        "seed te_rng_tracker inference_rng_tracker data_parallel_random_init init_method_xavier_uniform",
    ),
    **silent(
        "no_cost_effect",
        "how ranks find one another, what they do on a fault, or what they report",
        """
        adlr_autoresume adlr_autoresume_interval calc_ft_timeouts disable_flight_recorder_dump_on_timeout
        disable_flight_recorder_extra_dump_on_exec disable_flight_recorder_include_only_active disable_msc distributed_backend
        distributed_timeout_minutes distributed_timeout_seconds_after_init enable_ft_package enable_msc error_injection_rate error_injection_type
        fault_injector_delay_start_iteration fault_injector_fault_delay fault_injector_fault_probabilities fault_injector_fault_types
        fault_injector_mtti_seconds fault_injector_num_ranks fault_injector_offset_seconds fault_injector_ranks fault_injector_seed
        flight_recorder_dump_path flight_recorder_include_stack_trace flight_recorder_trace_buffer_size ft_num_warmup_iters
        inprocess_active_world_size inprocess_barrier_timeout inprocess_completion_timeout inprocess_empty_cuda_cache inprocess_granularity
        inprocess_hard_timeout inprocess_heartbeat_interval inprocess_heartbeat_timeout inprocess_last_call_wait inprocess_max_iterations
        inprocess_monitor_process_interval inprocess_monitor_thread_interval inprocess_progress_watchdog_interval inprocess_restart
        inprocess_soft_timeout inprocess_termination_grace_time no_flight_recorder_dump_on_timeout no_flight_recorder_extra_dump_on_exec
        no_flight_recorder_include_only_active rerun_mode
        """,
    ),
    **silent(
        "no_cost_effect",
        "generation with a trained model: another workload",
        """
        bert_embedder_type cache_mla_latents decode_only_cuda_graphs enable_chunked_prefill flash_decode inference_batch_times_seqlen_threshold
        inference_coordinator_port inference_cuda_graph_all_prefills inference_cuda_graph_max_tokens inference_cuda_graph_scope
        inference_disable_ep_consensus inference_disable_triton_nvls_kernels inference_dynamic_batching
        inference_dynamic_batching_async_sched_mode inference_dynamic_batching_block_size inference_dynamic_batching_buffer_size_gb
        inference_dynamic_batching_cuda_graph_mixed_prefill_count inference_dynamic_batching_cuda_graph_sizing_distribution
        inference_dynamic_batching_logprobs_mode inference_dynamic_batching_mamba_memory_ratio inference_dynamic_batching_max_requests
        inference_dynamic_batching_max_tokens inference_dynamic_batching_num_cuda_graphs inference_dynamic_batching_paused_buffer_size_gb
        inference_dynamic_batching_prefix_caching inference_dynamic_batching_prefix_caching_coordinator_policy
        inference_dynamic_batching_prefix_caching_eviction_policy inference_dynamic_batching_prefix_caching_mamba_gb
        inference_dynamic_batching_prefix_caching_routing_alpha inference_dynamic_batching_sampling_backend
        inference_dynamic_batching_track_generated_token_events inference_dynamic_batching_track_paused_request_events
        inference_dynamic_batching_unified_memory_level inference_fuse_tp_communication inference_grouped_gemm_backend
        inference_logging_step_interval inference_max_requests inference_max_seq_length inference_moe_disable_fused_quant_kernels
        inference_moe_token_dispatcher_type inference_shards inference_text_gen_server_logging inference_use_synchronous_zmq_collectives
        inference_wandb_logging mamba_inference_conv_states_dtype mamba_inference_ssm_states_dtype max_tokens_to_oom mlp_chunks_for_prefill
        moe_pad_experts_for_cuda_graph_inference nccl_all_reduce_for_prefill no_inference_disable_ep_consensus
        no_inference_dynamic_batching_prefix_caching no_inference_text_gen_server_logging no_inference_use_synchronous_zmq_collectives
        no_inference_wandb_logging num_speculative_tokens output_bert_embeddings symmetric_ar_type use_legacy_static_engine
        use_same_sampling_seed_across_dp_ranks
        """,
    ),
    **silent(
        "no_cost_effect",
        "read with perform_rl_step only",
        """
        grpo_clamp_eps_lower grpo_clamp_eps_upper grpo_entropy_term_weight grpo_filter_groups_with_same_reward grpo_group_size grpo_iterations
        grpo_kl_beta grpo_prompts_per_step langrl_env_config no_rl_inference_logprobs_is_correction
        no_rl_offload_inference_model_weights_when_idle no_rl_partial_rollouts no_rl_persist_cuda_graphs no_rl_skip_bos_token
        no_rl_training_cuda_graphs no_rl_use_sequence_packing no_rl_verify_model_weights_swap refit_method rl_consumption_granularity
        rl_default_temperature rl_default_top_k rl_default_top_p rl_durable_rollout_bank rl_generation_lag rl_importance_sampling_truncation_coef
        rl_inference_expert_model_parallel_size rl_inference_expert_tensor_model_parallel_size rl_inference_logprobs_is_correction
        rl_inference_model_unified_memory_level rl_inference_parsers rl_inference_pipeline_model_parallel_size
        rl_inference_tensor_model_parallel_size rl_kv_cache_management_mode rl_max_inflight_requests rl_offload_inference_model_weights_when_idle
        rl_offload_optimizer_during_inference rl_partial_rollouts rl_persist_cuda_graphs rl_profile rl_profile_dir rl_prompts_per_eval
        rl_rollout_bank_dir rl_rollout_bank_max_bytes rl_sequence_packing_algo rl_sequence_packing_max_sequences_per_bin rl_skip_bos_token
        rl_submission_granularity rl_training_cuda_graphs rl_use_sequence_packing rl_verify_model_weights_swap
        """,
    ),
    **silent(
        "no_cost_effect",
        "of retrieval models (BERT, REALM)",
        """
        bert_load biencoder_projection_dim biencoder_shared_query_context_model block_data_path embedding_path evidence_data_path ict_head_size
        ict_load indexer_batch_size indexer_log_interval query_in_block_prob retriever_report_topk_accuracies retriever_score_scaling
        titles_data_path
        """,
    ),
    **silent(
        "no_cost_effect",
        "read with retro_add_retriever",
        """
        retriever_seq_length retro_attention_gate retro_cyclic_train_iters retro_encoder_attention_dropout retro_encoder_hidden_dropout
        retro_encoder_layers retro_no_verify_neighbor_count retro_num_neighbors retro_num_retrieved_chunks retro_project_dir retro_workdir
        """,
    ),
    **silent(
        "no_cost_effect",
        "of vision models",
        """
        classes_fraction data_per_class_fraction dino_bottleneck_size dino_freeze_last_layer dino_head_hidden_size dino_local_crops_number
        dino_local_img_size dino_norm_last_layer dino_teacher_temp dino_warmup_teacher_temp dino_warmup_teacher_temp_epochs head_lr_mult img_h
        img_w iter_per_epoch mask_factor mask_type num_channels num_classes patch_dim swin_backbone_type vision_backbone_type vision_pretraining
        vision_pretraining_type
        """,
    ),
    **silent(
        "no_cost_effect",
        "a number in the arithmetic of a layer, not its size",
        """
        activation_func_clamp_value apply_layernorm_1p apply_query_key_layer_scaling disable_bf16_reduced_precision_matmul
        embedding_init_method_std glu_linear_offset init_method_std layernorm_epsilon mhc_init_gating_factor
        moe_router_bias_update_rate moe_router_topk_scaling_factor mrope_section mscale mscale_all_dim mtp_loss_scaling_factor
        mup_attn_scale_power mup_base_head_dim mup_base_hidden_size mup_embedding_mult mup_output_mult mup_width_mult
        no_yarn_correction_range_round_to_int norm_epsilon relative_attention_max_distance relative_attention_num_buckets rope_scaling_factor
        rope_type rotary_base rotary_interleaved rotary_scaling_factor rotary_seq_len_interpolation_factor softmax_scale use_mup use_rope_scaling
        yarn_beta_fast yarn_beta_slow yarn_correction_range_round_to_int yarn_original_max_position_embeddings
        """,
    ),
    **silent(
        "no_cost_effect",
        "read at the beginning of a run only",
        """
        config_logger_dir enable_experimental init_model_with_meta_device lazy_mpu_init moe_upcycling_granularity moe_use_upcycling
        no_initialization pipeline_model_parallel_comm_backend tp_comm_bootstrap_backend use_cpu_initialization use_mcore_models
        """,
    ),
    **silent(
        "no_cost_effect",
        "read by another kind of model or under another option only",
        """
        activation_offload_fraction batch_invariant_backend bert_no_binary_head cpu_offloading_retain_pinned_cpu_buffers cuda_graph_warmup_steps
        decoder_num_layers delay_offload_until_cuda_graph delta_offload_bytes_across_pp_ranks disable_dsa_indexer_rotate_activation
        disable_dsa_indexer_scoring_relu dsa_indexer_k_norm_epsilon dsa_indexer_k_norm_fp32 dsa_indexer_rope_interleaved
        dsa_kernel_backend fine_grained_offloading_max_inflight_offloads fp4_quantizer_factory fp4_recipe fp8_quantizer_factory gdp_cutedsl_kernel
        gdp_num_chunk_states_to_recompute gdp_num_householder gtp_remat_opt_in_modules kitchen_attention_backend local_rank megatron_fsdp_version
        min_offloaded_tensor_size moe_hybridep_num_sms_preprocessing
        moe_paged_stash_buffer_size_factor_cpu moe_paged_stash_buffer_size_factor_cuda moe_paged_stash_page_size no_dsa_indexer_rotate_activation
        no_dsa_indexer_scoring_relu no_pin_cpu_grads no_pin_cpu_params no_position_embedding onnx_safe qk_clip_alpha qk_clip_threshold
        tp_comm_overlap_cfg
        """,
    ),
    **silent(
        "no_cost_effect",
        "how maxima become scales, not what that costs",
        "fp8_margin fp8_interval fp8_amax_compute_algo",
    ),
    **silent(
        "no_cost_effect",
        "an alias with no residual of its own",
        "apply_residual_connection_post_layernorm",
    ),
    **silent(
        "no_cost_effect",
        "takes part in no step: exits, intervals, and what follows a fault",
        """
        check_weight_hash_across_dp_replicas_interval dataloader_type decrease_batch_size_if_needed dump_param_to_param_group_map
        exit_duration_in_mins exit_interval exit_signal exit_signal_handler exit_signal_handler_for_dataloader exit_signal_handler_for_training
        gpu_sniff_test_interval iterations_to_skip result_rejected_tracker_filename train_iters train_samples
        """,
    ),
    **silent(
        "no_cost_effect",
        "which experts tokens go to, not how many rows there are; set lam for a load imbalance",
        """
        moe_router_force_biased moe_token_drop_policy moe_enable_routing_replay moe_per_layer_logging
        moe_router_quantile_balancing_ema
        """,
    ),
    **silent(
        "no_cost_effect",
        "of TransformerEngine before 1.6",
        "no_tp_comm_split_ag disable_tp_comm_split_ag no_tp_comm_split_rs disable_tp_comm_split_rs tp_comm_atomic_ag tp_comm_atomic_rs",
    ),
    **silent(
        "no_cost_effect",
        "a chosen layout or stream, with the same work",
        """
        attention_softmax_in_fp32 calculate_per_token_loss create_all_gather_group disable_align_grad_reduce disable_gloo_process_groups
        disable_symmetric_registration flash_attention_version fp16_lm_cross_entropy fsdp_manual_registration high_priority_a2a_comm_stream
        high_priority_stream_groups hysteresis initial_loss_scale loss_scale loss_scale_window min_loss_scale moe_mlp_glu_interleave_size
        align_param_gather moe_ncclep_zero_copy moe_shared_expert_glu_interleave_size
        moe_single_grouped_bias moe_single_grouped_weight moe_use_grouped_tensor
        nccl_communicator_config_path no_align_grad_reduce no_align_param_gather no_use_layer_wise_param_layout sharp_enabled_group use_sharp
        """,
    ),
    **silent(
        "no_cost_effect",
        "read with logits_load_dir or logits_save_dir only",
        """
        logits_save_top_p_min_k logits_save_dtype logits_load_decode_threads logits_load_prefetch_factor logits_load_msc_prefetch_depth
        logits_load_kd_loss_alpha logits_load_ignore_errors
        """,
    ),
    **silent(
        "no_cost_effect",
        "of ModelOpt: which modules and data it begins with",
        """
        export_default_te_spec export_kd_teacher_ckpt_format export_legacy_megatron export_model_type export_moe_apply_probs_on_input
        export_qk_l2_norm finetune_data_files finetune_data_split finetune_hf_dataset
        """,
    ),
    **silent(
        "no_cost_effect",
        "of the run: fields of Megatron-Bridge's own sections",
        """
        check_for_nan_in_loss filter_warnings fully_parallel_load fully_parallel_save load_optim load_rng log_l2_norm_grad_to_tensorboard
        log_runtime_to_tensorboard log_throughput_to_tensorboard lr_decay_steps lr_warmup_steps memory_keys modules_to_filter most_recent_k
        runtime_time_unit save_config_filepath save_optim save_rng set_level_for_all_loggers throughput_window_size use_nsys_profiler
        wd_incr_steps wsd_decay_steps
        """,
    ),
    **silent(
        "no_cost_effect",
        "the prompt's format",
        "sft_tokenizer_prompt_format",
    ),
    **silent(
        "no_cost_effect",
        "simulates ranks; the work is the same",
        "fake_process_group",
    ),
    **silent(
        "no_cost_effect",
        "of Hygon's fork: how ranks find each other",
        "rank dist_url",
    ),
    **silent(
        "no_cost_effect",
        "of an older Megatron-LM, and without effect there or since",
        """
        DDP_impl async_tensor_model_parallel_allreduce data_impl dist_ckpt_save_pre_mcore distributed_timeout_seconds empty_unused_memory
        enable_gpt_oss encoder_pipeline_model_parallel_size encoder_tensor_model_parallel_size export_force_local_attention export_kd_cfg
        export_te_mcore_model log_batch_size_to_tensorboard log_learning_rate_to_tensorboard log_loss_to_tensorboard
        log_optimizer_states_to_tensorboard mmap_warmup modelopt_enabled moe_extended_tp nccl_ub_registration
        no_async_tensor_model_parallel_allreduce no_contiguous_buffers_in_local_ddp no_data_sharding no_query_key_layer_scaling
        no_save_optim_state no_scaled_masked_softmax_fusion no_scatter_gather_tensors_in_pipeline
        onnx_export save_ckpt tensorboard_log_dir tokenizer_prompt_format
        transformer_pipeline_model_parallel_size use_contiguous_buffers_in_local_ddp use_legacy_models use_one_sent_docs use_te
        """,
    ),
}
