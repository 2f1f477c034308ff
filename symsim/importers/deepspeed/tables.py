"""DeepSpeed's keys that no formula reads, and those of scripts around the Hugging Face Trainer.

Names: DeepSpeed 0.16.4 and edaa72212 (0.19.6): runtime/config.py, runtime/constants.py, runtime/zero/config.py, runtime/precision_config.py,
runtime/zero/offload_config.py, docs/_pages/config-json.md.
"""

from __future__ import annotations

from symsim.importers.deepspeed import chat, openrlhf
from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, EVALUATION, LENGTH, LOGS, OTHER_MODELS, PATHS

_PERMITS = "a permission or a check, which costs nothing"
_FIRST_STEPS = "before the first step or after the last"
_SCALE = "loss scaling: a number a step"
_COMPRESSED = "compression is another workload: quantised or pruned weights, and a teacher's forward where layers are dropped"
_CURRICULUM = "lengths or layers that grow with the steps: the step at full length is timed"
_ZENFLOW = "updates on the host beside the next steps: the exposed part of the host's update becomes shorter"
# utils/timer.py ThroughputTimer, CudaEventTimer; runtime/engine.py step: the one stops, and is logged, before the others
_TIMERS = "the throughput's timer waits for the device behind every micro-batch at any value, and the others are read there"
_ONE_TIME = "which modules are gathered whole: as many bytes, fewer and larger gathers"

# values that are not looked into: numbers of an update, a monitor, a tuner
WHOLE = frozenset(
    """optimizer.params scheduler tensorboard wandb csv_monitor comet monitor_config comms_logger flops_profiler autotuning aio elasticity nebula
    datastates checkpoint timers eigenvalue compression_training curriculum_learning data_efficiency progressive_layer_drop quantize_training
    sparse_attention hybrid_engine zero_optimization.zeropp_loco_param zero_optimization.zenflow zero_optimization.leaf_module
    tensor_parallel.tp tensor_parallel.partition_config weight_quantization mesh_param expert_parallel comms_config""".split()
)

_MISPLACED = """elastic_checkpoint offload_optimizer offload_optimizer.device offload_optimizer.pin_memory offload_param offload_param.device
    offload_param.pin_memory overlap_comm contiguous_gradients"""
_ZERO = """load_from_fp32_weights elastic_checkpoint ignore_unused_parameters pipeline_loading_checkpoint override_module_apply
    log_trace_cache_warnings enable_sanity_checks save_muon_momentum_buffer_in_memory cpu_offload_use_pin_memory legacy_stage1 grad_hooks"""
_HOST = """offload_optimizer.pin_memory offload_optimizer.buffer_count offload_optimizer.nvme_path offload_optimizer.fast_init
    offload_optimizer.buffer_size offload_param.pin_memory offload_param.buffer_count offload_param.buffer_size offload_param.nvme_path
    offload_param.max_in_cpu offload_optimizer.cpuadam_cores_perc"""


def _inside(section: str, keys: str) -> str:
    return " ".join(f"{section}.{key}" for key in keys.split())


SILENT: dict[str, Silent] = {
    **silent("no_cost_effect", _PERMITS, _inside("zero_optimization", _ZERO)),
    **silent(
        "no_cost_effect",
        _PERMITS,
        "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer managed_gradient_accumulation bf16.check_grad_overflow bf16.check_overflow",
    ),
    **silent("no_cost_effect", "buffers of what is on the host, and where it lies", _inside("zero_optimization", _HOST)),
    **silent("not_modelled", _ONE_TIME, "zero_optimization.leaf_module"),
    **silent("not_modelled", _ZENFLOW, "zero_optimization.zenflow zero_optimization.offload_optimizer.super_offload"),
    **silent(
        "not_modelled",
        "reads and writes of a disk beside the update: its exposed part becomes shorter",
        _inside("zero_optimization.offload_optimizer", "pipeline_read pipeline_write pipeline"),
    ),
    **silent("no_cost_effect", "which rank a gradient belongs to: copies to the host in another order", "zero_optimization.round_robin_gradients"),
    **silent(
        "not_modelled",
        "weights gathered as a checkpoint is written, between steps: 2 bytes a parameter over the ranks' network",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.stage3_gather_fp16_weights_on_model_save "
        "zero_optimization.gather_16bit_weights_on_model_save",
    ),
    **silent(
        "not_modelled",
        "gathers and copies of other sizes for as many bytes: tens of microseconds a module",
        "zero_optimization.stage3_module_granularity_threshold zero_optimization.stage3_allgather_sequential",
    ),
    **silent(
        "not_modelled",
        "parameters gathered by an all-reduce: twice the bytes of a gather",
        "zero_optimization.stage3_use_all_reduce_for_fetch_params",
    ),
    **silent(
        "not_modelled",
        "weights gathered in 1 byte in place of 2, and passes that quantise and unpack them: half the gathers' time",
        "zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_nontrainable_weights",
    ),
    **silent(
        "not_modelled",
        "gradients exchanged in 1/2 byte in place of 2, in an all-to-all: a quarter of the bytes",
        "zero_optimization.zero_quantized_gradients zero_optimization.zeropp_loco_param",
    ),
    **silent(
        "not_modelled", "gathers in two levels, inside a node last: bytes between nodes once", "zero_optimization.mics_hierarchical_params_gather"
    ),
    **silent("no_cost_effect", _SCALE, _inside("fp16", "loss_scale loss_scale_window initial_scale_power hysteresis min_loss_scale")),
    **silent(
        "no_cost_effect",
        "loss scaling is fp16's, and no key of bf16's: DeepSpeed 0.16 passes over it",
        _inside("bf16", "loss_scale loss_scale_window initial_scale_power initial_scale hysteresis min_loss_scale auto_cast"),
    ),
    **silent("no_cost_effect", _SCALE, "fp16.consecutive_hysteresis fp16.auto_cast fp16.fp16 fp16.type bf16.type"),
    **silent("not_modelled", "gradients leave as they are made: 2 bytes a parameter less at the peak", "bf16.immediate_grad_update"),
    **silent("no_cost_effect", "apex's names for the same types", "amp.opt_level amp.loss_scale"),
    **silent(
        "not_modelled",
        "fp32 weights with casts for every product: 4 bytes a parameter in place of 2, and a pass over them",
        "torch_autocast.enabled torch_autocast.dtype torch_autocast.lower_precision_safe_modules amp.enabled",
    ),
    **silent("no_cost_effect", "learning rates and other numbers of the update", "optimizer.params scheduler optimizer.legacy_fusion"),
    **silent("no_cost_effect", LOGS, "steps_per_print dump_state tensorboard wandb csv_monitor comet monitor_config comms_logger log_level timers"),
    **silent("no_cost_effect", "a remark, or which accelerators are used", "_comment comment _description comms_config cuda_visible_devices"),
    **silent("no_cost_effect", PATHS, "nebula datastates checkpoint dataloader_drop_last"),
    **silent("no_cost_effect", "buffers of reads from disk", "aio"),
    **silent("no_cost_effect", _TIMERS, "wall_clock_breakdown memory_breakdown"),
    **silent("not_modelled", "belongs to the run: a profiler's hooks in the step that it records", "flops_profiler"),
    **silent("no_cost_effect", LOGS, "log.steps_per_print"),
    **silent("no_cost_effect", f"a tuner runs {_FIRST_STEPS}", "autotuning"),
    **silent("no_cost_effect", "restarts and batches of a run whose ranks come and go", "elasticity"),
    **silent("no_cost_effect", "sums or means: the same message", "gradient_allreduce_op"),
    **silent("no_cost_effect", "types of messages over sequence-parallel ranks", "seq_parallel_comm_data_type"),
    **silent("no_cost_effect", "read where ranks split a sequence", "seq_parallel_communication_data_type"),
    **silent("not_modelled", "an embedding's gradient as rows and indices: bytes of the rows used alone", "sparse_gradients"),
    **silent("no_cost_effect", "never read by ZeRO", "disable_allgather"),
    **silent("no_cost_effect", "not read at this place: zero_optimization has a key of this name, and DeepSpeed passes over others", _MISPLACED),
    **silent(
        "no_cost_effect",
        "no key of DeepSpeed's, which passes over it",
        "deepspeed logging.log_level fp16.opt_level fp16.fp16_scale_tolerance",
    ),
    **silent("not_modelled", "one graph launched for many kernels: the host bounds nothing", "graph_harvesting"),
    **silent("not_modelled", "attention over chosen blocks: the share of scores that the layout leaves", "sparse_attention"),
    **silent("not_modelled", _COMPRESSED, "compression_training quantize_training weight_quantization"),
    **silent("not_modelled", _CURRICULUM, "curriculum_learning data_efficiency progressive_layer_drop"),
    **silent("no_cost_effect", "eigenvalues for quantised training, between steps", "eigenvalue"),
    **silent("not_modelled", "generation between steps is another workload", "hybrid_engine"),
    **silent(
        "not_modelled", "where shards are gathered, moved by the compiler: what of the gathers is exposed", _inside("compile", "deepcompile passes")
    ),
    **silent("no_cost_effect", "of earlier versions: compile.enabled says whether layers are compiled", _inside("compile", "disable")),
    **silent("no_cost_effect", "read with compile.deepcompile", _inside("compile", "schedule")),
    **silent("no_cost_effect", "details of the compiler", _inside("compile", "backend kwargs free_activation offload_activation debug_log")),
    **silent("no_cost_effect", "details of the compiler", _inside("compile", "offload_opt_states double_buffer symmetric_memory sync_before_reduce")),
    **silent("no_cost_effect", "details of the compiler", _inside("compile", "offload_activation_pin_memory offload_parameters sync_after_reduce")),
    **silent("no_cost_effect", "the order of ranks in groups", "use_data_before_expert_parallelism mesh_param data_parallel_size"),
    **silent("no_cost_effect", "types of buffers such as rotary frequencies", "data_types.buffer_dtype data_types.param_dtype"),
    **silent("no_cost_effect", "how AutoTP finds the linears that it splits", _inside("tensor_parallel", "tp partition_config preset_model dtype")),
    **silent(
        "no_cost_effect", "how AutoTP finds the linears that it splits", _inside("tensor_parallel", "injection_policy_tuple keep_module_on_host")
    ),
    **silent("not_modelled", "experts spread over ranks, with an exchange of tokens in every layer: -s ep=N has it", "expert_parallel"),
    **silent("no_cost_effect", "the older name of a bucket's size, of gathers", "allgather_size"),
    **silent("not_modelled", "half batches, whose messages run beside the other half", "tensor_parallel.tp_overlap_comm"),
}

_STAGE_3 = """stage3_max_live_parameters stage3_max_reuse_distance stage3_prefetch_bucket_size stage3_param_persistence_threshold
    stage3_model_persistence_threshold max_live_parameters max_reuse_distance prefetch_bucket_size param_persistence_threshold
    model_persistence_threshold memory_efficient_linear"""
OTHER_STAGES: dict[str, Silent] = {
    **silent("no_cost_effect", "read at stage 3 alone", _inside("zero_optimization", _STAGE_3)),
    **silent(
        "no_cost_effect",
        "read below stage 3 alone",
        _inside("zero_optimization", "reduce_scatter use_multi_rank_bucket_allreduce allgather_partitions"),
    ),
}

# read by models that call DeepSpeed's own checkpointing function, which those of transformers do not
CHECKPOINTING: dict[str, Silent] = silent(
    "no_cost_effect",
    "read by models that call deepspeed.checkpointing; those of transformers checkpoint as gradient_checkpointing says",
    _inside(
        "activation_checkpointing",
        """partition_activations cpu_checkpointing contiguous_memory_optimization number_checkpoints synchronize_checkpoint_boundary profile
        use_reentrant""",
    ),
)
PIPELINE: dict[str, Silent] = silent(
    "no_cost_effect",
    "read by pipelines that a script builds, whose stages no JSON names",
    _inside(
        "pipeline", "stages partition seed_layers activation_checkpoint_interval pipe_partitioned grad_partitioned use_reentrant micro_batch_size"
    ),
)

_ON = (True, "true", "True", 1, "1")
SCRIPT: dict[str, Silent] = {
    **openrlhf.TABLE,
    **chat.TABLE,
    **silent(
        "no_cost_effect",
        PATHS,
        """config_name tokenizer_name tokenizer_name_or_path cache_dir use_fast_tokenizer model_revision token trust_remote_code low_cpu_mem_usage
        use_auth_token config_overrides config_overrides_json llama use_llama use_auth model_type chat_template""",
    ),
    **silent(
        "no_cost_effect",
        DATA,
        """dataset_name dataset_config_name dataset_config dataset_train_split dataset_test_split train_file validation_file max_train_samples
        max_eval_samples overwrite_cache validation_split_percentage preprocessing_num_workers keep_linebreaks streaming dataset_text_field
        dataset_num_proc dataset_mixer dataset_splits dataset_kwargs dataset_mixture text_column data_path lazy_preprocess train_data eval_data
        assistant_only_loss completion_only_loss eos_token dataset_dir data_cache_dir query_field resp_field prompt_template tokenized_cache_home
        shuffle_seed dataset dataset_format source_max_len target_max_len train_on_source
        tokenized_mds_train apply_instruct_masks""",
    ),
    **silent("not_modelled", EVALUATION, "predict_with_generate eval_packing"),
    **silent(
        "no_cost_effect",
        EVALUATION,
        """do_mmlu_eval mmlu_dataset mmlu_split max_mmlu_samples mmlu_source_max_len eval_dataset_size max_new_tokens min_new_tokens do_sample
        num_beams eval_file""",
    ),
    # open-instruct, s1, FastChat, Qwen, MiniCPM, LLaVA, InternVL: arguments of their own scripts
    **silent(
        "no_cost_effect",
        PATHS,
        """exp_name wandb_project wandb_entity wandb_project_name with_tracking hf_entity hf_repo_id hf_repo_revision hf_repo_url
        hf_metadata_dataset try_launch_beaker_eval_jobs try_auto_save_to_beaker gs_bucket_path oe_eval_tasks oe_eval_max_length
        oe_eval_gpu_multiplier oe_eval_beaker_image eval_workspace eval_priority save_to_hub send_slack_alerts
        try_launch_beaker_eval_jobs_on_weka tokenizer_revision gather_whole_model verbose do_not_randomize_output_dir timeout
        checkpointing_steps keep_last_n_checkpoints clean_checkpoints_at_end use_slow_tokenizer additional_model_arguments log_freq
        strict_mode lora_weight_path wandb_tags wandb_run_group hub_model_revision system_prompt""",
    ),
    **silent(
        "no_cost_effect",
        DATA,
        """train_file_path train_data_path eval_data_path dataset_mixer_list dataset_mixer_list_splits dataset_transform_fn dataset_target_columns
        dataset_cache_mode dataset_local_cache_dir dataset_config_hash dataset_skip_cache dataset_mix_dir dataset_eval_mixer dataset_train_splits
        dataset_eval_splits meta_path conv_style llm_type use_data_resampling replacement allow_overflow max_buffer_size dataset_id_or_path add_bos
        model_init_kwargs chat_template_kwargs mixer_list dataset_prompt_column dagger chat_template_name eos_token_id pad_token""",
    ),
    **silent(
        "no_cost_effect", "a number of the loss", "reduce_loss loss_reduction loss_reduction_all_gather final_lr_ratio min_lr_ratio token_scaled_loss"
    ),
    **silent("not_modelled", "biases are trained beside adapters: of each map as many as it has outputs", "lora_bias", ("none",)),
    **silent(
        "not_modelled",
        "a fused kernel computes attention here; written out it keeps its scores, a number a head and pair of tokens",
        "flash_attn use_flash_attn_2 use_flash_attention_2 use_xformers",
        _ON,
    ),
    **silent(
        "not_modelled",
        "towers for images and sound are another workload: an encoder before the decoder, whose text part is timed",
        """vision_tower vision_path mlp_path llm_path fix_vit
        force_image_size down_sample_ratio drop_path_rate freeze_mlp freeze_backbone unfreeze_vit_layers
        use_backbone_lora vision_select_layer dynamic_image_size min_dynamic_patch max_dynamic_patch use_thumbnail ps_version pad2square
        normalize_type min_num_frame max_num_frame num_images_expected version image_folder image_aspect_ratio image_grid_pinpoints is_multimodal
        mm_projector_type mm_projector_lr mm_vision_select_layer mm_vision_select_feature mm_use_im_start_end mm_use_im_patch_token
        mm_patch_merge_type tune_mm_mlp_adapter freeze_mm_mlp_adapter pretrain_mm_mlp_adapter tune_vit_pos_embedding group_by_modality_length
        tune_llm tune_vision max_slice_nums mm_tunable_parts mm_vision_tower_lr mm_resampler_type mm_spatial_pool_stride mm_spatial_pool_mode
        mm_spatial_pool_out_channels mm_newline_position tune_mm_vision_resampler freeze_mm_vision_resampler unfreeze_mm_vision_tower
        vision_tower_pretrained video_folder video_fps frames_upbound add_faster_video faster_token_stride force_sample add_time_instruction
        image_crop_resolution image_split_resolution delay_load group_by_modality_length_auto""",
    ),
    **silent("not_modelled", "rows are packed to max_packed_tokens: --var seq_length=N and packed_document_length=N say so", "use_packed_ds"),
    **silent("no_cost_effect", "read with use_packed_ds", "max_packed_tokens"),
    **silent("not_modelled", "rows of the vocabulary alone are trained beside what is", "unfreeze_lm_head"),
    **silent(
        "no_cost_effect", "read with use_qlora or dpo_use_paged_optimizer, and these with each other", "use_8bit_optimizer dpo_use_paged_optimizer"
    ),
    **silent("not_modelled", "the allocator gives its cache back: allocation takes time again", "cuda_empty_cache"),
    **silent("no_cost_effect", LENGTH, "num_epochs n_epochs"),
    **silent("no_cost_effect", "adapters are made where it is false", "full_finetuning full_finetune lora_modules"),
    **silent("no_cost_effect", "where a model's layers lie at the first step", "max_memory_MB"),
    **silent("not_modelled", "rows are packed up to it: --var seq_length=N and packed_document_length=N say so", "pack_len"),
    **silent(
        "not_modelled",
        OTHER_MODELS,
        """beta loss_type sigmoid_loss_weight sft_loss_weight bco_loss_weight label_smoothing gamma_beta_ratio rpo_alpha sync_ref_model
        precompute_ref_log_probs max_prompt_length teacher_model_name_or_path dpo_alpha gamma generate_during_eval bco_pair_loss_weight
        dpo_beta use_dpo""",
    ),
    **silent(
        "not_modelled",
        "generation between steps is another workload",
        """reward_funcs reward_weights num_generations generation_batch_size steps_per_generation max_completion_length use_vllm vllm_mode
        vllm_device mask_truncated_completions vllm_gpu_memory_utilization vllm_server_host temperature top_p top_k cosine_max_len
        scale_rewards epsilon epsilon_high num_iterations""",
    ),
    **silent("no_cost_effect", LOGS, "log_completions num_completions_to_print benchmarks callbacks hub_model_revision"),
    **silent("not_modelled", "one kernel updates all here; PyTorch's own kernels pass over states once an operation", "fused_optimizer", _ON),
    **silent("not_modelled", "base weights in another few bits: 1/4 to 1 byte a parameter; 2 bytes here", "bits load_in_kbits", (16, "16")),
    **silent("not_modelled", "an auxiliary loss over router logits: below 1 % of a step", "load_balancing_loss"),
    **silent("no_cost_effect", "read with load_balancing_loss", "load_balancing_weight"),
    **silent(
        "not_modelled",
        "DDP reduces gradients in every micro-batch in place of the last; DeepSpeed does either way",
        "sync_each_batch",
    ),
    **silent("no_cost_effect", "read with use_peft alone", "lora_r lora_dropout lora_target_modules lora_modules_to_save use_dora"),
    **silent("no_cost_effect", "a number of adapters' beginnings, or the task that their configuration names", "lora_alpha lora_task_type"),
    **silent("no_cost_effect", "which shards are gathered of weights in few bits", "bnb_4bit_quant_storage"),
}
