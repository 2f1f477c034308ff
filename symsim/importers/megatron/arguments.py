"""How Megatron-LM spells its arguments: which take no value, which take several, and the fields of its configurations that they set.

Read at commit d98e8a64 (2026-08-22), training/arguments.py, training/argument_utils.py.
"""

from __future__ import annotations

# without a value
FLAGS = frozenset(
    """
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split accumulate_allreduce_grads_in_fp32 add_qkv_bias adlr_autoresume
    align_param_gather
    allow_ambiguous_pad_tokens apply_layernorm_1p apply_query_key_layer_scaling apply_residual_connection_post_layernorm apply_wd_to_qk_layernorm
    async_ckpt_use_cpu_shm async_save async_tensor_model_parallel_allreduce attention_output_gate attention_softmax_in_fp32 auto_detect_ckpt_format
    batch_invariant_mode bert_no_binary_head bf16 biencoder_shared_query_context_model cache_mla_latents calc_ft_timeouts calculate_per_token_loss
    check_for_large_grads check_for_spiky_loss checkpoint_activations ckpt_assume_constant_structure ckpt_convert_update_legacy_dist_opt_format
    ckpt_drop_redundant_extra_state ckpt_fully_parallel_load ckpt_fully_parallel_load_per_rank_objects ckpt_fully_parallel_save
    ckpt_pg_tensors_cache_create cpu_offloading_retain_pinned_cpu_buffers create_all_gather_group cross_entropy_loss_fusion
    data_parallel_random_init dataloader_defer_npy_index_mmap dataloader_fast_cache_load dataloader_inter_document_masking ddp_average_in_collective
    ddp_pad_buckets_for_high_nccl_busbw ddp_reduce_scatter_with_fp32_accumulation decode_only_cuda_graphs decrease_batch_size_if_needed
    defer_embedding_wgrad_compute delay_offload_until_cuda_graph delay_wgrad_compute deterministic_mode dino_norm_last_layer
    disable_align_grad_reduce disable_bf16_reduced_precision_matmul disable_bias_linear disable_ckpt_load_validate_sharding_integrity
    disable_clone_scatter_output_in_embedding disable_dsa_indexer_rotate_activation disable_dsa_indexer_scoring_relu
    disable_flight_recorder_dump_on_timeout disable_flight_recorder_extra_dump_on_exec disable_flight_recorder_include_only_active disable_fp8_wgrad
    disable_gloo_process_groups disable_jit_fuser disable_log_loss_scale_to_tensorboard disable_mamba_mem_eff_path disable_manual_gc_eval
    disable_msc disable_pad_vocab_size disable_save_tokenizer_assets disable_straggler_on_startup disable_strict_fsdp_dtensor_load
    disable_symmetric_registration disable_tokenizer_sentencepiece_ignore_extra_whitespaces disable_tp_comm_bulk_dgrad disable_tp_comm_bulk_wgrad
    disable_tp_comm_overlap_ag disable_tp_comm_overlap_rs disable_tp_comm_split_ag disable_tp_comm_split_rs
    disable_use_tokenizer_model_from_checkpoint_args dist_ckpt_optim_fully_reshardable dist_ckpt_save_pre_mcore_014
    distrib_optim_fully_reshardable_mem_efficient distribute_saved_activations dsa_indexer_k_norm_fp32 dsa_indexer_rope_interleaved
    dsa_indexer_use_sparse_loss enable_chunked_prefill enable_cuda_graph enable_experimental enable_ft_package enable_full_sharding_in_hsdp
    enable_gpt_oss enable_mhc_connections enable_msc eod_mask_loss ep_overlap_early_attn_memory_release exit_on_missing_checkpoint
    exit_signal_handler exit_signal_handler_for_dataloader exit_signal_handler_for_training export_force_local_attention export_te_mcore_model
    export_default_te_spec export_legacy_megatron export_moe_apply_probs_on_input export_offline_model export_qk_l2_norm freeze_base_for_mtp
    external_cuda_graph fake_process_group fim_data fine_grained_activation_offloading finetune first_last_layers_bf16 flash_decode
    flight_recorder_include_stack_trace fp16 fp16_lm_cross_entropy fp32_residual_connection fp4_param_gather fp8_output_proj fp8_param_gather
    freeze_all_layers fsdp_db_use_persist_buf_on_alloc_fail fsdp_double_buffer fsdp_manual_registration full_validation fused_residual_rmsnorm
    gdp_cutedsl_kernel grad_reduce_in_bf16 group_query_attention grpo_filter_groups_with_same_reward gtp_expert_remat_nccl_ub gtp_remat_nccl_ub
    gtp_remat_reduce_scatter_with_fp32_accumulation high_priority_a2a_comm_stream hybrid_context_parallel inference_cuda_graph_all_prefills
    inference_disable_ep_consensus inference_disable_triton_nvls_kernels inference_dynamic_batching inference_dynamic_batching_prefix_caching
    inference_dynamic_batching_track_generated_token_events inference_dynamic_batching_track_paused_request_events inference_fuse_tp_communication
    inference_moe_disable_fused_quant_kernels inference_rng_tracker inference_text_gen_server_logging inference_use_synchronous_zmq_collectives
    inference_wandb_logging init_method_xavier_uniform init_model_with_meta_device inprocess_empty_cuda_cache inprocess_restart is_hybrid_model
    keep_fp8_transpose_cache lazy_mpu_init load_main_params_from_ckpt log_batch_size_to_tensorboard log_device_memory_used log_energy
    log_learning_rate_to_tensorboard log_loss_to_tensorboard log_max_attention_logit log_memory_to_tensorboard log_num_zeros_in_grad
    log_optimizer_states_to_tensorboard log_params_norm log_progress log_straggler log_throughput log_timers_to_tensorboard
    log_validation_ppl_to_tensorboard log_world_size_to_tensorboard logits_load_ignore_errors manual_gc
    megatron_fsdp_enable_fine_grained_param_gather megatron_fsdp_max_pool_double_buffer mla_down_proj_fusion mmap_warmup mock_data modelopt_enabled
    moe_apply_probs_on_input moe_enable_deepep moe_enable_routing_replay moe_extended_tp moe_grouped_gemm moe_hybridep_pad_uneven_dispatch_inputs
    moe_layer_recompute moe_ncclep_zero_copy moe_pad_expert_input_to_capacity moe_pad_experts_for_cuda_graph_inference moe_paged_stash
    moe_per_layer_logging moe_permute_fusion moe_permute_fusion_into_hybridep moe_router_enable_expert_bias moe_router_force_load_balancing
    moe_router_fusion moe_router_padding_for_fp8 moe_router_padding_for_quantization moe_router_pre_softmax moe_routing_trace_capture_hidden_states
    moe_routing_trace_capture_logits moe_routing_trace_dump_weights moe_shared_expert_gate moe_shared_expert_overlap moe_single_grouped_bias
    moe_single_grouped_weight moe_use_grouped_tensor moe_use_upcycling mtp_detach_heads mtp_hsm mtp_standalone mtp_use_repeated_layer
    multi_latent_attention multiple_validation_sets muon_nesterov muon_no_split_qkv muon_use_syrk nccl_all_reduce_for_prefill no_align_grad_reduce
    no_align_param_gather no_async_tensor_model_parallel_allreduce no_barrier_with_level_1_timing no_bias_dropout_fusion no_bias_gelu_fusion
    no_bias_swiglu_fusion no_check_for_nan_in_loss_and_grad no_ckpt_fully_parallel_save no_ckpt_load_validate_sharding_integrity
    no_clone_scatter_output_in_embedding no_create_attention_mask_in_dataloader no_data_sharding no_dsa_indexer_rotate_activation
    no_dsa_indexer_scoring_relu no_flight_recorder_dump_on_timeout no_flight_recorder_extra_dump_on_exec no_flight_recorder_include_only_active
    no_fp8_wgrad no_gradient_accumulation_fusion no_gradient_reduce_div_fusion no_inference_disable_ep_consensus
    no_inference_dynamic_batching_prefix_caching no_inference_text_gen_server_logging no_inference_use_synchronous_zmq_collectives
    no_inference_wandb_logging no_initialization no_load_optim no_load_rng no_log_loss_scale_to_tensorboard no_manual_gc_eval
    no_masked_softmax_fusion no_mmap_bin_files no_one_logger no_overlap_p2p_communication no_pad_vocab_size no_persist_layer_norm no_pin_cpu_grads
    no_pin_cpu_params no_position_embedding no_query_key_layer_scaling no_rl_inference_logprobs_is_correction
    no_rl_offload_inference_model_weights_when_idle no_rl_partial_rollouts no_rl_persist_cuda_graphs no_rl_skip_bos_token no_rl_training_cuda_graphs
    no_rl_use_sequence_packing no_rl_verify_model_weights_swap no_rope_fusion no_save_optim no_save_rng no_save_tokenizer_assets
    no_scaled_masked_softmax_fusion no_scatter_gather_tensors_in_pipeline
    no_strict_fsdp_dtensor_load no_tokenizer_sentencepiece_ignore_extra_whitespaces no_tp_comm_bulk_dgrad
    no_tp_comm_bulk_wgrad no_tp_comm_overlap_ag no_tp_comm_overlap_rs no_tp_comm_split_ag no_tp_comm_split_rs no_use_layer_wise_param_layout
    no_use_tokenizer_model_from_checkpoint_args no_yarn_correction_range_round_to_int nvtx_ranges one_logger_async openai_gelu optimizer_cpu_offload
    optimizer_cuda_graph otel_enabled output_bert_embeddings overlap_cpu_optimizer_d2h_h2d overlap_dispatch_backward_with_experts_wgrad
    overlap_grad_reduce overlap_moe_expert_parallel_comm overlap_p2p_communication_warmup_flush overlap_param_gather
    overlap_param_gather_with_optimizer_step override_opt_param_scheduler perform_rl_step profile pytorch_profiler_collect_callstack
    pytorch_profiler_collect_chakra pytorch_profiler_collect_shapes qk_clip qk_l2_norm qk_layernorm quick_geglu recompute_activations
    record_memory_history record_shapes renormalize_blend_weights replication reset_attention_mask reset_position_ids retriever_score_scaling
    retro_add_retriever retro_attention_gate retro_no_verify_neighbor_count
    reuse_grad_buf_for_mxfp8_param_ag rl_durable_rollout_bank rl_inference_logprobs_is_correction rl_offload_inference_model_weights_when_idle
    rl_offload_optimizer_during_inference rl_partial_rollouts rl_persist_cuda_graphs rl_profile rl_skip_bos_token rl_training_cuda_graphs
    rl_use_sequence_packing rl_verify_model_weights_swap rotary_interleaved run_workload_inspector_server sequence_parallel sft skip_train
    squared_relu swiglu te_rng_tracker test_mode tokenizer_hf_no_include_special_tokens tokenizer_hf_no_use_fast tokenizer_sentencepiece_legacy
    torch_fsdp2_no_reshard_after_forward tp_comm_overlap tp_comm_overlap_disable_fc1 tp_comm_overlap_disable_qkv tp_comm_overlap_rs_dgrad
    trust_remote_code untie_embeddings_and_output_weights use_checkpoint_args use_checkpoint_opt_param_scheduler use_cpu_initialization
    use_dist_ckpt use_distributed_optimizer use_flash_attn use_fused_weighted_squared_relu use_gigatoken use_grouped_gemm_for_dense_mlp
    use_grouped_gemm_for_shared_expert use_kitchen_attention use_legacy_models use_legacy_static_engine use_mcore_models use_megatron_fsdp
    use_mp_args_from_checkpoint_args use_mup use_nccl_ub use_one_sent_docs use_persistent_ckpt_worker use_precision_aware_optimizer
    use_pytorch_profiler use_ring_exchange_p2p use_rope_scaling use_rotary_position_embeddings use_same_sampling_seed_across_dp_ranks use_sharp
    use_te use_te_activation_func use_torch_fsdp2 use_torch_optimizer_for_cpu_offload use_tp_pp_dp_mapping use_transformer_engine_op_fuser
    verify_integrity vision_pretraining yarn_correction_range_round_to_int
    """.split()
)

# without a value in forks: of zero-bubble, and of FlagScale
FORKS = frozenset(
    """
    enable_zb_runtime no_pre_communication_optimization enable_optimizer_post_validation enable_exactly_numeric_match enable_zero_bubble
    zero_bubble_v_schedule enable_1f1b_v allow_padding_num_layers auto_offload_time offload_overlap_sr cpu_offload no_paired_barrier
    offload_continuous_buffers recompute_lgd measure_activation_memory use_dualpipev
    """.split()
)

# with one value, of those that are read (the others are in the tables of megatron_silent.py and megatron_gaps.py)
VALUED = frozenset(
    """
    attention_backend attention_dropout clip_grad context_parallel_size cpu_offloading_num_layers cross_entropy_fusion_impl cuda_graph_impl
    data_parallel_sharding_strategy decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers dsa_indexer_head_dim dsa_indexer_n_heads
    dsa_indexer_skip_topk_offset dsa_indexer_topk dsa_indexer_topk_freq encoder_num_layers encoder_seq_length exp_avg_dtype exp_avg_sq_dtype
    experimental_attention_variant expert_gtp_weight_remat_size expert_model_parallel_size expert_tensor_parallel_num_weight_shards
    expert_tensor_parallel_size ffn_hidden_size fp8_format fp8_recipe global_batch_size gtp_weight_remat_size hidden_dropout hidden_size
    hybrid_attention_ratio hybrid_layer_pattern hybrid_mlp_ratio hybrid_override_pattern kv_channels kv_lora_rank linear_attention_freq
    linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim main_grads_dtype main_params_dtype
    make_vocab_size_divisible_by mamba_head_dim mamba_num_groups mamba_num_heads mamba_state_dim max_position_embeddings micro_batch_size
    microbatch_group_size_per_virtual_pipeline_stage moe_expert_capacity_factor moe_ffn_hidden_size moe_flex_dispatcher_backend moe_latent_size
    moe_layer_freq moe_router_dtype moe_router_group_topk moe_router_num_groups moe_router_score_function moe_router_topk
    moe_shared_expert_intermediate_size moe_token_dispatcher_type mtp_hybrid_override_pattern mtp_num_layers no_rope_freq normalization
    num_attention_heads num_distributed_optimizer_instances num_experts num_layers num_layers_at_end_in_bf16 num_layers_at_start_in_bf16
    num_layers_per_virtual_pipeline_stage num_query_groups num_virtual_stages_per_pipeline_rank optimizer optimizer_offload_fraction
    outer_dp_sharding_strategy padded_vocab_size pipeline_model_parallel_layout pipeline_model_parallel_size position_embedding_type q_lora_rank
    qk_head_dim qk_pos_emb_head_dim recompute_granularity recompute_method recompute_num_layers rotary_percent seq_length sgd_momentum softmax_type
    tensor_model_parallel_size tensor_parallel_num_weight_shards tokenizer_type transformer_impl v_head_dim vocab_size window_attn_skip_freq
    window_size world_size
    """.split()
)

# with one value or more
LISTS = frozenset(
    """
    cp_comm_type cuda_graph_modules cuda_graph_scope data_path ddp_param_name_patterns_for_fp32_local_accumulation gtp_remat_opt_in_modules
    hierarchical_context_parallel_sizes high_priority_stream_groups iterations_to_skip moe_aux_loss_coeff moe_router_load_balancing_type
    mrope_section offload_modules profile_ranks rampup_batch_size recompute_modules retriever_report_topk_accuracies rl_inference_parsers spec
    step_batch_size_schedule test_data_path tokenizer_special_tokens train_data_path valid_data_path validation_set_names
    """.split()
)

# with one value in Megatron-LM, and with one for every mixture in Megatron-DeepSpeed
SEVERAL = frozenset(["num_experts"])

# fields that an argument switches off: --disable-bias-linear makes add_bias_linear false
SWITCHED_OFF = {
    "perform_initialization": "no_initialization",
    "tp_comm_bulk_wgrad": "no_tp_comm_bulk_wgrad",
    "tp_comm_bulk_dgrad": "no_tp_comm_bulk_dgrad",
    "tp_comm_overlap_ag": "no_tp_comm_overlap_ag",
    "tp_comm_overlap_rs": "no_tp_comm_overlap_rs",
    "tp_comm_split_ag": "no_tp_comm_split_ag",
    "tp_comm_split_rs": "no_tp_comm_split_rs",
    "add_bias_linear": "disable_bias_linear",
    "dsa_indexer_rotate_activation": "no_dsa_indexer_rotate_activation",
    "dsa_indexer_scoring_relu": "no_dsa_indexer_scoring_relu",
    "fp8_wgrad": "no_fp8_wgrad",
    "clone_scatter_output_in_embedding": "no_clone_scatter_output_in_embedding",
    "use_mamba_mem_eff_path": "disable_mamba_mem_eff_path",
    "yarn_correction_range_round_to_int": "no_yarn_correction_range_round_to_int",
    "add_position_embedding": "no_position_embedding",
    "bert_binary_head": "bert_no_binary_head",
    "muon_split_qkv": "muon_no_split_qkv",
    "manual_gc_eval": "no_manual_gc_eval",
    "check_for_nan_in_loss_and_grad": "no_check_for_nan_in_loss_and_grad",
    "masked_softmax_fusion": "no_masked_softmax_fusion",
    "bias_gelu_fusion": "no_bias_gelu_fusion",
    "bias_swiglu_fusion": "no_bias_swiglu_fusion",
    "bias_dropout_fusion": "no_bias_dropout_fusion",
    "apply_rope_fusion": "no_rope_fusion",
    "pin_cpu_grads": "no_pin_cpu_grads",
    "pin_cpu_params": "no_pin_cpu_params",
    "gradient_accumulation_fusion": "no_gradient_accumulation_fusion",
    "use_tokenizer_model_from_checkpoint_args": "no_use_tokenizer_model_from_checkpoint_args",
    "ckpt_fully_parallel_save": "no_ckpt_fully_parallel_save",
    "ckpt_load_validate_sharding_integrity": "no_ckpt_load_validate_sharding_integrity",
    "strict_fsdp_dtensor_load": "no_strict_fsdp_dtensor_load",
    "save_tokenizer_assets": "no_save_tokenizer_assets",
    "align_grad_reduce": "no_align_grad_reduce",
    "use_gloo_process_groups": "disable_gloo_process_groups",
    "flight_recorder_dump_on_timeout": "no_flight_recorder_dump_on_timeout",
    "flight_recorder_include_only_active": "no_flight_recorder_include_only_active",
    "flight_recorder_extra_dump_on_exec": "no_flight_recorder_extra_dump_on_exec",
    "overlap_p2p_comm": "no_overlap_p2p_communication",
    "scatter_gather_tensors_in_pipeline": "no_scatter_gather_tensors_in_pipeline",
    "use_layer_wise_param_layout": "no_use_layer_wise_param_layout",
    "gradient_reduce_div_fusion": "no_gradient_reduce_div_fusion",
    "torch_fsdp2_reshard_after_forward": "torch_fsdp2_no_reshard_after_forward",
    "mmap_bin_files": "no_mmap_bin_files",
    "create_attention_mask_in_dataloader": "no_create_attention_mask_in_dataloader",
    "pad_vocab_size": "no_pad_vocab_size",
    "tokenizer_sentencepiece_ignore_extra_whitespaces": "no_tokenizer_sentencepiece_ignore_extra_whitespaces",
    "data_sharding": "no_data_sharding",
    "log_loss_scale_to_tensorboard": "no_log_loss_scale_to_tensorboard",
    "barrier_with_L1_time": "no_barrier_with_level_1_timing",
    "offset_sampling_seed_by_dp_rank": "use_same_sampling_seed_across_dp_ranks",
    "enable_one_logger": "no_one_logger",
    "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
    "persist_layer_norm": "no_persist_layer_norm",
    "bias_activation_fusion": "no_bias_swiglu_fusion",
    "should_pad_vocab": "no_pad_vocab_size",
}

# fields that an argument of another name sets
RENAMED = {
    "overlap_p2p_comm_warmup_flush": "overlap_p2p_communication_warmup_flush",
    "microbatch_group_size_per_vp_stage": "microbatch_group_size_per_virtual_pipeline_stage",
    "layernorm_epsilon": "norm_epsilon",
    "layernorm_zero_centered_gamma": "apply_layernorm_1p",
    "fp8": "fp8_format",
    "fp4": "fp4_format",
    "deprecated_use_mcore_models": "use_mcore_models",
    "logit_dtype": "output_logit_dtype",
    "nccl_ub": "use_nccl_ub",
    "metadata_path": "tokenizer_metadata",
    "special_tokens": "tokenizer_special_tokens",
    "inference_dynamic_batching_enable_prefix_caching": "inference_dynamic_batching_prefix_caching",
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "fp8_param": "fp8_param_gather",
    "fp4_param": "fp4_param_gather",
    "check_for_nan_in_grad": "check_for_nan_in_loss_and_grad",
    "grad_reduce_in_fp32": "accumulate_allreduce_grads_in_fp32",
    "bucket_size": "ddp_bucket_size",
    "num_buckets": "ddp_num_buckets",
    "pad_buckets_for_high_nccl_busbw": "ddp_pad_buckets_for_high_nccl_busbw",
    "reduce_scatter_with_fp32_accumulation": "ddp_reduce_scatter_with_fp32_accumulation",
    "average_in_collective": "ddp_average_in_collective",
    "param_name_patterns_for_fp32_local_accumulation": "ddp_param_name_patterns_for_fp32_local_accumulation",
    "use_custom_fsdp": "use_megatron_fsdp",
    "sequence_length": "seq_length",
    "enable_hyper_connections": "enable_mhc_connections",
    "num_residual_streams": "mhc_num_residual_streams",
}
