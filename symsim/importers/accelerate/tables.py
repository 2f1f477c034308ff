"""Accelerate's keys that no formula reads.

Names and defaults: accelerate 16cb6eb8 (2026-07-24), commands/config/config_args.py ClusterConfig and SageMakerConfig, commands/config/cluster.py,
utils/dataclasses.py, parallelism_config.py.
"""

from __future__ import annotations

from symsim.importers.fsdp import silent_names
from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, DEVICE, EVALUATION, LENGTH, LOGS, RATES, SAVING

_LAUNCH = "which machines are used, and how ranks are started"
_RECIPE = "numbers of the 8-bit recipe"
_COMPILER = "details of the compiler"
_LOADED = "how weights come into memory and leave it, before and after the steps"
_CUSTOM = "functions of the script's own"
_UNREAD = "a key of DeepSpeed's JSON, which Accelerate does not read here: deepspeed_config_file names such a file"
MEGATRON = "megatron_lm_config.megatron_lm_"


def _of(section: str, keys: str) -> str:
    return " ".join(f"{section}{key}" for key in keys.split())


SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        _LAUNCH,
        """compute_environment machine_rank gpu_ids main_process_ip main_process_port rdzv_backend same_network main_training_function
        enable_cpu_affinity mpirun_config mpirun_config.mpirun_hostfile mpirun_config.mpirun_ccl deepspeed_config fsdp_config megatron_lm_config
        parallelism_config fp8_config dynamo_config""",
    ),
    **silent(
        "no_cost_effect",
        _LAUNCH,
        """tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_env tpu_vm command_file commands downcast_bf16 ec2_instance_type iam_role_name
        image_uri profile region base_job_name pytorch_version transformers_version py_version sagemaker_inputs_file sagemaker_metrics_file
        additional_args additional_args.TOTAL_TRAIN_BATCH_SIZE""",
    ),
    **silent("no_cost_effect", DEVICE, "use_cpu ipex_config ipex_config.ipex ipex_config.use_xpu"),
    **silent("not_modelled", "shapes of messages are exchanged and compared before every one", "debug"),
    **silent_names("fsdp_config"),
    **silent("no_cost_effect", "the only libraries there are", _of("parallelism_config.parallelism_config_", "cp_backend sp_backend")),
    **silent(
        "no_cost_effect",
        "the length that heads are exchanged for, which the data say",
        _of("parallelism_config.parallelism_config_", "sp_seq_length sp_seq_length_is_variable sp_attn_implementation"),
    ),
    **silent(
        "no_cost_effect",
        _LAUNCH,
        _of(
            "deepspeed_config.deepspeed_",
            "multinode_launcher hostfile exclusion_filter inclusion_filter moe_layer_cls_names",
        ),
    ),
    **silent(
        "no_cost_effect",
        _UNREAD,
        _of(
            "deepspeed_config.",
            """bf16.enabled fp16.enabled train_batch_size train_micro_batch_size_per_gpu optimizer.type optimizer.params.lr optimizer.params.betas
            optimizer.params.eps optimizer.params.weight_decay offload_optimizer.device offload_optimizer.pin_memory offload_param.device
            offload_param.pin_memory tensor_parallel.tp_size pipeline_parallel_size data_parallel_size tensor_parallel_size
            zero_allow_untested_optimizer
            zero_optimization.stage zero_optimization.overlap_comm zero_optimization.contiguous_gradients zero_optimization.reduce_bucket_size
            overlap_comm contiguous_gradients reduce_bucket_size allgather_bucket_size sub_group_size stage3_max_live_parameters
            stage3_max_reuse_distance stage3_prefetch_bucket_size stage3_param_persistence_threshold steps_per_print wall_clock_breakdown""",
        ),
    ),
    **silent("no_cost_effect", "types of messages over sequence-parallel ranks", "deepspeed_config.seq_parallel_communication_data_type"),
    **silent("no_cost_effect", _LOADED, _of("deepspeed_config.", "zero3_init_flag zero3_save_16bit_model")),
    **silent("no_cost_effect", "where what is on a disk lies", _of("deepspeed_config.", "offload_optimizer_nvme_path offload_param_nvme_path")),
    **silent(
        "no_cost_effect",
        _RECIPE,
        _of(
            "fp8_config.",
            """amax_compute_algo amax_compute_algorithm amax_history_len amax_history_length fp8_format interval margin
            override_linear_precision use_autocast_during_eval opt_level optimization_level pad_inner_dim""",
        ),
    ),
    **silent("no_cost_effect", _COMPILER, _of("dynamo_config.dynamo_", "mode use_dynamic use_fullgraph use_regional_compilation")),
    **silent("no_cost_effect", RATES, _of(MEGATRON, "lr_decay_style lr_decay_iters lr_decay_samples lr_warmup_iters lr_warmup_samples min_lr")),
    **silent("no_cost_effect", RATES, _of(MEGATRON, "lr_warmup_fraction weight_decay_incr_style start_weight_decay end_weight_decay lr_mult")),
    **silent("no_cost_effect", LENGTH, _of(MEGATRON, "train_iters train_samples consumed_samples")),
    **silent("no_cost_effect", SAVING, _of(MEGATRON, "no_load_optim no_save_optim")),
    **silent("no_cost_effect", EVALUATION, _of(MEGATRON, "eval_iters eval_interval")),
    **silent("no_cost_effect", LOGS, _of(MEGATRON, "tensorboard_dir set_all_logging_options")),
    **silent("no_cost_effect", DATA, _of(MEGATRON, "eod_mask_loss megatron_dataset_flag is_train_batch_min")),
    **silent("no_cost_effect", "one number summed over ranks a step", _of(MEGATRON, "calculate_per_token_loss")),
    **silent("no_cost_effect", "read by encoders", _of(MEGATRON, "encoder_seq_length decoder_seq_length pipeline_model_parallel_split_rank")),
    **silent("no_cost_effect", "the model has its own", _of(MEGATRON, "use_rotary_position_embeddings attention_softmax_in_fp32")),
    **silent("not_modelled", "logits go back to the script: as many bytes as a micro-batch's stay until then", _of(MEGATRON, "return_logits")),
    **silent("not_modelled", _CUSTOM, _of(MEGATRON, "custom_train_step_class other_megatron_args")),
    **silent("not_modelled", "transfers of states beside the host's update", _of(MEGATRON, "overlap_cpu_optimizer_d2h_h2d")),
}
