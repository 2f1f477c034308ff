"""axolotl's keys that no formula reads: what each is for, or what it would change.

Names: axolotl 067b021c8 (2026-07-24), src/axolotl/utils/schemas/*.py and the arguments of src/axolotl/integrations, with the deprecated ones
and those of older examples.
"""

from __future__ import annotations

from symsim.importers.adapted import QUANTISED
from symsim.importers.keys import Silent, silent
from symsim.importers.llama_factory import ADAPTERS, FROZEN
from symsim.importers.trainer import (
    DATA,
    DDP,
    DEVICE,
    EVALUATION,
    FUSED,
    HUB,
    LENGTH,
    LENGTHS,
    LOADING,
    LOGS,
    OTHER_MODELS,
    PATHS,
    RATES,
    RNG,
    SAVING,
)
from symsim.importers.trainer import SYNCHRONISED as WAITS

_GENERATION = "generation between steps is another workload: decoding time of the longest answers in every step"
_REWARDS = "rewards, and terms of a loss, of reinforcement learning, which is another workload; the policy's step is timed"
_VISION = "towers for images and sound are another workload; the text part is timed"
_EXPERTS = "kernels of experts that need no copies of rows: less passes over them"
_TILED = "feed-forward layers in pieces of the sequence: less at the peak by what one keeps; the same products"
HOST = "saved tensors on the host: bytes of checkpoints off the device, and as many over the host link each way"
_LAYERS_HOST = "weights of layers on the host: 2 bytes a parameter over the host link each way"
_QAT = "quantised and unpacked weights in every product: passes over them"
_DISTILLED = "a teacher's logits beside the student's: 1/3 of a step's FLOPs for its forward, where it runs here"
_GROWING = "other layers or rows in some steps: the step with all of them is timed"
_ONE_TIME = "before the first step"

SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        PATHS,
        """strict resume_from_checkpoint auto_resume_from_checkpoints trainer_cls output_dir hub_model_id hub_strategy hub_revision
        save_safetensors base_model_config cls_model_config tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common
        tokenizer_type processor_type processor_kwargs tokenizer_save_jinja_files trust_remote_code experimental_skip_move_to_device
        axolotl_config_path model_type type_of_model revision_of_model model_revision base_model_ignore_patterns is_falcon_derived_model
        is_llama_derived_model is_mistral_derived_model is_qwen_derived_model hf_use_auth_token push_dataset_to_hub low_cpu_mem_usage
        project_name debug lora_model_dir merge_lora merge_method plugins overrides_of_model_kwargs cloud full_finetune""",
    ),
    **silent(
        "no_cost_effect",
        LOGS,
        """logging_steps use_wandb wandb_name wandb_run_id wandb_mode wandb_project wandb_entity wandb_watch wandb_log_model use_mlflow
        mlflow_tracking_uri mlflow_experiment_name mlflow_run_name hf_mlflow_log_artifacts use_comet comet_api_key comet_workspace
        wandb_run wandb_runid
        comet_project_name comet_experiment_key comet_mode comet_online comet_experiment_config gradio_title gradio_share gradio_server_name
        gradio_server_port gradio_max_new_tokens gradio_temperature use_otel_metrics otel_metrics_host otel_metrics_port use_trackio
        trackio_project_name trackio_run_name trackio_space_id use_tensorboard use_swanlab swanlab_project swanlab_experiment_name
        swanlab_description swanlab_mode swanlab_workspace swanlab_api_key swanlab_log_model swanlab_web_host swanlab_api_host
        swanlab_lark_webhook_url swanlab_lark_secret swanlab_log_completions swanlab_completion_log_interval swanlab_completion_max_buffer
        loss_watchdog_threshold loss_watchdog_patience include_tkps""",
    ),
    **silent(
        "no_cost_effect",
        RATES,
        """learning_rate embedding_lr embedding_lr_scale weight_decay lr_scheduler lr_scheduler_kwargs lr_quadratic_warmup cosine_min_lr_ratio
        cosine_constant_lr_ratio lr_div_factor lr_groups adam_epsilon adam_epsilon2 adam_beta1 adam_beta2 adam_beta3 adam_eps dion_lr
        dion_momentum warmup_steps warmup_ratio eta_min jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps
        neftune_noise_alpha noisy_embedding_alpha lora_alpha loraplus_lr_ratio loraplus_lr_embedding peft_use_rslora
        grokfast_alpha grokfast_lamb eaft_alpha eaft_k use_eaft scaling_softmax_factor scaling_softmax_bias liger_use_token_scaling""",
    ),
    **silent("no_cost_effect", HUB, "hub_repo hub_token"),
    **silent("not_modelled", "weights of three values: a cast of each for every product", "ternary"),
    **silent("not_modelled", "losses weighed by the tokens' own probabilities: a pass over the logits", "enable_dft_loss"),
    **silent("no_cost_effect", "read with enable_dft_loss", "dft_chunk_size enable_dft_channel_loss"),
    **silent(
        "not_modelled",
        "parameters, gradients and states on the host, and a layer's weights at a time on the device",
        "megatrain_checkpoint_interval megatrain_num_grad_slabs megatrain_devices",
    ),
    **silent(
        "no_cost_effect",
        "in which order parts of a sequence lie, and which kernel a ring has",
        """context_parallel.rotate_method context_parallel.load_balance context_parallel.ring_impl context_parallel.ulysses_size
        context_parallel.ring_size""",
    ),
    **silent("no_cost_effect", RNG, "seed"),
    **silent(
        "no_cost_effect",
        DATA,
        """datasets test_datasets shuffle_merged_datasets shuffle_before_merging_datasets dataset_prepared_path dataset_shard_num
        dataset_shard_idx skip_prepare_dataset num_dataset_shards_to_save pretraining_dataset dataset_exact_deduplication
        dataset_keep_in_memory remove_unused_columns excess_length_strategy min_sample_len max_prompt_len sample_packing_group_size
        sample_packing_bin_size sample_packing_sequentially sample_packing_mp_start_method pretrain_multipack_buffer_size
        pretrain_multipack_attn pretraining_sample_concatenation streaming streaming_multipack_buffer_size total_num_tokens
        total_supervised_tokens sample_packing_eff_est sample_packing_seq_len_multiplier chat_template chat_template_jinja
        chat_template_kwargs eot_tokens default_system_message special_tokens tokens added_tokens_overrides train_on_inputs
        fix_untrained_tokens is_preprocess preprocess_iterable pose_split_on_token_ids pose_max_context_len pose_num_chunks role_boundaries
        max_packed_sequence_len""",
    ),
    **silent(
        "not_modelled",
        LOADING,
        """dataset_processes dataset_num_proc dataloader_pin_memory dataloader_num_workers dataloader_prefetch_factor dataloader_drop_last
        accelerator_config""",
    ),
    **silent("no_cost_effect", DDP, "ddp_bucket_cap_mb"),
    **silent("not_modelled", LENGTHS, "group_by_length curriculum_sampling multipack_real_batches use_pose"),
    **silent("no_cost_effect", DEVICE, "device device_map world_size local_rank ddp ddp_timeout max_memory gpu_memory_limit use_ray ray_run_name"),
    **silent("no_cost_effect", DEVICE, "ray_num_workers resources_per_worker use_kernels"),
    **silent("no_cost_effect", "inside a step only where the model has unused parameters", "ddp_find_unused_parameters ddp_broadcast_buffers"),
    **silent("no_cost_effect", LENGTH, "num_epochs max_steps"),
    **silent(
        "not_modelled",
        EVALUATION,
        """val_set_size eval_steps evals_per_epoch eval_strategy evaluation_strategy do_causal_lm_eval do_bench_eval generate_samples
        lm_eval_tasks""",
        ("no",),
    ),
    **silent(
        "no_cost_effect",
        EVALUATION,
        """eval_batch_size eval_sequence_len eval_sample_packing eval_causal_lm_metrics bench_dataset bench_split metric_for_best_model
        greater_is_better early_stopping_patience load_best_model_at_end eval_table_size eval_max_new_tokens num_generation_samples
        generation_max_new_tokens generation_temperature generation_top_p generation_top_k generation_prompt_ratio generation_do_sample
        lm_eval_batch_size lm_eval_post_train lm_eval_model eval_table_max_new_tokens""",
    ),
    **silent("not_modelled", SAVING, "save_steps saves_per_epoch save_strategy save_first_step save_only_model dynamic_checkpoint", ("no",)),
    **silent("no_cost_effect", SAVING, "save_total_limit fsdp_final_state_dict_type"),
    **silent("not_modelled", WAITS, "gc_steps torch_empty_cache_steps gc_collect_steps include_tokens_per_second profiler_steps"),
    **silent("no_cost_effect", "read with profiler_steps alone", "profiler_steps_start"),
    **silent(
        "not_modelled",
        ADAPTERS,
        "peft peft_layer_replication peft_trainable_token_indices peft_ensure_weight_tying relora mora",
    ),
    **silent("no_cost_effect", "what adapters begin as, or a factor of theirs", "peft_init_lora_weights lora_alpha_pattern lora_fan_in_fan_out"),
    **silent("no_cost_effect", "read of replicas with adapters", "peft_autocast_adapter_dtype"),
    **silent("no_cost_effect", "read with adapter alone", "lora_r lora_dropout lora_target_modules lora_target_linear lora_modules_to_save"),
    **silent(
        "no_cost_effect",
        "read with adapter alone",
        "lora_target_parameters peft_use_dora peft_layers_to_transform lora_rank_pattern",
    ),
    **silent("no_cost_effect", "read with adapter alone", "load_in_8bit load_in_4bit quantize_moe_experts"),
    **silent("no_cost_effect", "adapters rest all else", "unfrozen_parameters"),
    **silent("no_cost_effect", "what the modules of layers are called", "peft_layers_pattern"),
    **silent("no_cost_effect", "how adapters are loaded", "lora_on_cpu qlora_sharded_model_loading relora_prune_ratio relora_prune_method"),
    **silent("no_cost_effect", "how adapters are loaded", "relora_cpu_offload relora_warmup_steps"),
    **silent("not_modelled", "an adapter's rows of the embedding in one function: passes over them", "lora_embedding_kernel"),
    **silent("no_cost_effect", "read with adapters alone", "lora_mlp_kernel lora_qkv_kernel lora_o_kernel"),
    **silent(
        "not_modelled",
        QUANTISED,
        "gptq model_quantization_config use_onebitllms nonexpert_quantization",
    ),
    **silent(
        "no_cost_effect",
        "details of base weights in few bits",
        """bnb_config_kwargs.bnb_4bit_compute_dtype bnb_config_kwargs.bnb_4bit_quant_storage bnb_config_kwargs.llm_int8_has_fp16_weight
        bnb_config_kwargs.llm_int8_skip_modules bnb_config_kwargs.bnb_4bit_quant_type bnb_config_kwargs.bnb_4bit_use_double_quant
        bnb_config_kwargs bnb_config_kwargs.llm_int8_threshold
        model_quantization_config_kwargs gptq_groupsize gptq_model_v1 gptq_disable_exllama moe_dequant_chunk_size moe_bnb_fast
        nvfp4_merge_aware nvfp4_merge_aware_start_step""",
    ),
    **silent(
        "not_modelled",
        QUANTISED,
        """dsv4_fp8_nonexpert_mode dsv4_fp8_lora_kernel dsv4_shared_mlp_lora_kernel dsv4_fp4_grouped_mode gemma4_fp8_nonexpert
        gemma4_nf4_nonexpert""",
    ),
    **silent("not_modelled", FROZEN, "spectrum_top_fraction"),
    **silent("no_cost_effect", "which layers are trained, and for how many steps", "lisa_layers_attribute lisa_step_interval spectrum_model_name"),
    **silent("not_modelled", _VISION, "freeze_mm_modules image_size image_resize_algorithm"),
    **silent("not_modelled", _QAT, "qat quantization llmcompressor"),
    **silent("not_modelled", _DISTILLED, "kd_trainer kd_alpha"),
    **silent(
        "no_cost_effect",
        "details of distillation",
        """kd_ce_alpha kd_temperature kd_beta kd_normalize_topk kd_online_server_base_url kd_online_topk kd_online_server kd_online_timeout
        kd_temperature_min""",
    ),
    **silent("not_modelled", _GENERATION, "vllm trl ebft nemo_gym_enabled hatchery diffusion"),
    **silent(
        "no_cost_effect",
        _REWARDS,
        """center_rewards_coefficient dpo_use_weighting dpo_label_smoothing dpo_loss_type dpo_loss_weights orpo_alpha simpo_gamma cpo_alpha
        kto_desirable_weight kto_undesirable_weight rl_beta dpo_beta rpo_alpha dpo_norm_loss dpo_generate_during_eval nemo_gym_dir
        nemo_gym_auto_clone nemo_gym_config_paths nemo_gym_head_port nemo_gym_server_timeout nemo_gym_verify_timeout nemo_gym_run_timeout
        nemo_gym_datasets nemo_gym_auto_start nemo_gym_model_name nemo_gym_multi_turn nemo_gym_max_turns""",
    ),
    **silent("not_modelled", OTHER_MODELS, "precompute_ref_log_probs dpo_padding_free dpo_use_logits_to_keep"),
    **silent(
        "not_modelled",
        FUSED,
        "liger_rms_norm_gated liger_cross_entropy flash_attn_cross_entropy fused_attn_kernel dpo_use_liger_kernel",
    ),
    **silent("not_modelled", _EXPERTS, "use_scattermoe use_sonicmoe expert_backend moe_grouped_backend experts_implementation dense_mixer"),
    **silent("not_modelled", _TILED, "tiled_mlp"),
    **silent("no_cost_effect", "read with tiled_mlp alone", "tiled_mlp_num_shards tiled_mlp_use_original_mlp"),
    **silent("not_modelled", HOST, "activation_offloading"),
    **silent("not_modelled", _LAYERS_HOST, "layer_offloading"),
    **silent("no_cost_effect", "details of the compiler", "torch_compile_options"),
    **silent("no_cost_effect", "read with torch_compile alone", "torch_compile_backend torch_compile_mode"),
    **silent("not_modelled", "where ZeRO gathers shards, moved by the compiler: what of the gathers is exposed", "deepcompile"),
    **silent("not_modelled", "norms' weights and states in fp32: some MiB", "fp32_norms fp32_norm_classes"),
    **silent("not_modelled", "attention of chosen tokens, or another softmax: a share of its work", "s2_attention scaling_softmax"),
    **silent("not_modelled", "kernels of one model's attention", "use_dsv4_kernels use_glm_dsa_kernels gemma4_hybrid_attn_impl dsv4_bf16_all"),
    **silent("no_cost_effect", "kernels of one model's attention", "large_head_attention flash_attn_d512 sdpa_varlen llama4_linearized_experts"),
    **silent("no_cost_effect", "details of an attention kernel", "flex_attn_compile_kwargs heads_k_stride pad_to_multiple_of"),
    **silent("not_modelled", "a vocabulary of other size: head and embedding shrink with it", "shrink_embeddings"),
    **silent("no_cost_effect", _ONE_TIME, "mean_resizing_embeddings embeddings_skip_upcast reinit_weights"),
    **silent("not_modelled", "other sizes than the model's", "overrides_of_model_config model_config"),
    **silent("no_cost_effect", "frequencies of rotary embeddings", "rope_scaling"),
    **silent("refused", "a run tries which micro-batch fits; give false, and the size that it found", "auto_find_batch_size"),
    **silent("not_modelled", "arguments of an optimizer besides its rates: other states, where it reads one for them", "optim_args"),
    **silent(
        "no_cost_effect",
        "details of an optimizer that optimizer names",
        """optim_target_modules torchdistx_path dion_rank_fraction dion_rank_multiple_of qgalore_rank qgalore_update_proj_gap qgalore_scale
        qgalore_proj_type qgalore_proj_quant qgalore_proj_bits qgalore_proj_group_size qgalore_cos_threshold qgalore_gamma_proj
        qgalore_queue_size""",
    ),
    **silent(
        "no_cost_effect",
        "buffers and fallbacks of DeepEP",
        """expert_parallel_backend expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes expert_parallel_token_capacity
        expert_parallel_fallback_on_unsupported""",
    ),
    **silent("not_modelled", _GROWING, "relora_steps"),
    **silent("no_cost_effect", "a section, whose keys have rows of their own", "fsdp_config"),
}
# values that are not looked into
WHOLE = frozenset(
    """deepspeed trl vllm ebft qat quantization hatchery diffusion llmcompressor peft mora dynamic_checkpoint accelerator_config
    pretraining_dataset
    special_tokens lr_scheduler_kwargs optim_args torch_compile_options chat_template_kwargs processor_kwargs
    comet_experiment_config overrides_of_model_config overrides_of_model_kwargs model_quantization_config_kwargs flex_attn_compile_kwargs
    max_memory tokens device_map resources_per_worker
    ternary added_tokens_overrides lora_rank_pattern lora_alpha_pattern model_config selective_checkpointing cloud""".split()
)
