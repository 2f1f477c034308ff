"""torchtitan's keys that no formula reads, and its models.

Names: torchtitan v0.1.0 (f7084fc78, config_manager.py), v0.2.2 and the last commit with TOML files, the parent of 9810191bb (2026-02-23),
config/job_config.py; models/*/__init__.py for flavors.
"""

from __future__ import annotations

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, DDP, EVALUATION, LENGTH, LOADING, LOGS, PATHS, RATES, RNG, SAVING
from symsim.inputs.arithmetic import Arithmetic

_TIMEOUT = "limits of waiting, and records of messages"
_JITTER = "Python's garbage collector runs on all ranks at once, every so many steps: below 1 %"
_PROFILED = "belongs to the run: a profiler's hooks in the steps that it records"
_FAULTS = "replicas that come and go: gradients go between replica groups by a message of their own, of 2 or 4 bytes a parameter"
_CAST = "how casts to 8 bits are written; the same bytes"
_DOCUMENTS = "attention stays inside a document: --var packed_document_length=N gives their mean length"
_DELAYED = "scales of a history of maxima: no pass for them before a product, and one reduction a step"
_CHECKS = "checks and pictures of recomputation"
_ESTIMATED = "a mode that estimates and does not train"


def _of(section: str, keys: str) -> str:
    return " ".join(f"{section}.{key}" for key in keys.split())


_CHECKPOINT = """enable_ft_dataloader_checkpoints folder initial_load_path initial_load_model_only initial_load_in_hf initial_load_in_hf_quantized
    last_save_model_only last_save_in_hf export_dtype keep_latest_k load_step exclude_from_loading enable_first_step_checkpoint
    create_seed_checkpoint load_only initial_load_model_weights_only last_save_model_weights_only model_weights_only interval_type"""
_DATALOADER = "dataloader.num_workers dataloader.persistent_workers dataloader.pin_memory dataloader.prefetch_factor"

SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        PATHS,
        _of(
            "job",
            """config_file dump_folder description print_config save_config_file custom_config_module print_args use_for_integration_test
            custom_import custom_args_module""",
        ),
    ),
    **silent("no_cost_effect", PATHS, "experimental.custom_import experimental.custom_args_module model.tokenizer_path model.print_after_conversion"),
    **silent(
        "no_cost_effect",
        LOGS,
        _of(
            "metrics",
            "log_freq enable_tensorboard disable_color_printing enable_color_printing save_tb_folder save_for_all_ranks enable_wandb rank_0_only",
        ),
    ),
    **silent(
        "not_modelled",
        _PROFILED,
        "profiling.enable_profiling profiling.enable_memory_snapshot",
    ),
    **silent(
        "no_cost_effect",
        _PROFILED,
        _of("profiling", "save_traces_folder profile_freq profiler_active profiler_warmup save_memory_snapshot_folder"),
    ),
    **silent("no_cost_effect", RATES, _of("optimizer", "lr beta1 beta2 eps weight_decay")),
    **silent("no_cost_effect", RATES, _of("lr_scheduler", "warmup_steps total_steps decay_ratio decay_type min_lr_factor lr_min")),
    **silent("no_cost_effect", DATA, "training.dataset training.dataset_path"),
    **silent("no_cost_effect", LENGTH, "training.steps"),
    **silent("no_cost_effect", DDP, "parallelism.ddp_bucket_cap_mb"),
    **silent("not_modelled", LOADING, _of("training", _DATALOADER)),
    **silent("not_modelled", _JITTER, "training.gc_freq"),
    **silent("not_modelled", "a full collection in every step: tens of milliseconds", "training.gc_debug"),
    **silent("no_cost_effect", RNG, "training.seed debug.seed"),
    **silent("not_modelled", "kernels that do not depend on the batch: products at lower shares", "debug.batch_invariant"),
    **silent("no_cost_effect", "what is said of operations without deterministic kernels", "debug.deterministic_warn_only"),
    **silent("no_cost_effect", "experts' loads are equal here", "debug.moe_force_load_balance"),
    **silent("no_cost_effect", "details of the compiler", "compile.backend parallelism.enable_compiled_autograd"),
    **silent("not_modelled", SAVING, "checkpoint.enable checkpoint.enable_checkpoint"),
    **silent("no_cost_effect", SAVING, _of("checkpoint", f"{_CHECKPOINT} interval async_mode")),
    **silent("not_modelled", EVALUATION, "validation.enable validation.enabled"),
    **silent("no_cost_effect", EVALUATION, _of("validation", f"dataset dataset_path local_batch_size seq_len freq steps {_DATALOADER}")),
    **silent(
        "no_cost_effect",
        _TIMEOUT,
        _of("comm", "init_timeout_seconds train_timeout_seconds trace_buf_size save_traces_folder save_traces_file_prefix mode"),
    ),
    **silent("no_cost_effect", _ESTIMATED, "memory_estimation.enable memory_estimation.enabled memory_estimation.disable_fake_mode"),
    **silent("not_modelled", _FAULTS, "fault_tolerance.enable"),
    **silent(
        "no_cost_effect",
        "read with fault_tolerance.enable",
        _of(
            "fault_tolerance",
            """process_group process_group_timeout_ms replica_id group_size min_replica_size semi_sync_method sync_steps should_quantize
            fragment_sync_delay fragment_update_alpha module_fqns_per_model_fragment num_fragments""",
        ),
    ),
    **silent(
        "no_cost_effect",
        _CHECKS,
        _of("activation_checkpoint", "visualize_memory_budget_pareto preserve_rng_state determinism_check debug memory_budget"),
    ),
    **silent(
        "no_cost_effect",
        "products of these shapes run again: a router's, a small one",
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    ),
    **silent("no_cost_effect", _CAST, "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice mx.use_fp8_dim1_cast_triton_kernel"),
    **silent("no_cost_effect", _CAST, "mx.mxfp8_dim1_cast_kernel_choice"),
    **silent("not_modelled", "another norm than the model's: a vector of parameters, and a pass over the stream", "model.norm_type", ("rmsnorm",)),
    **silent("no_cost_effect", "which kernel computes attention: a fused one either way", "model.use_flex_attn"),
    **silent("not_modelled", _DOCUMENTS, "model.attn_mask_type", ("causal",)),
    **silent("no_cost_effect", "the shards of data_parallel_degree, or replicas", "training.data_parallel_type"),
    **silent("not_modelled", _DELAYED, _of("float8", "scaling_type_input scaling_type_weight scaling_type_grad_output"), ("dynamic",)),
    # of LambdaLabs' fork (torchtitan/models/llama3/infra/parallelize.py, components/optimizer.py)
    **silent("no_cost_effect", "which cores of the host a process runs on", "infra.set_gpu_affinity"),
    **silent("not_modelled", "shards of several layers gathered ahead: their bytes more, and less waiting", "parallelism.prefetch_distance", (1,)),
    **silent("not_modelled", "the first layer's gather beside the loading of data", "parallelism.prefetch_before_data"),
    **silent("not_modelled", "an optimizer for every unit: launches of kernels for each", "optimizer.follow_fsdp_groups"),
    **silent(
        "refused",
        "a schedule written out in a file is not read; give parallelism.pipeline_parallel_schedule",
        "parallelism.pipeline_parallel_schedule_csv",
    ),
}

# model.name and model.flavor to a model that comes with symsim
FLAVORS: dict[str, dict[str, str]] = {
    "llama2": {"7B": "llama2-7b", "13B": "llama2-13b", "70B": "llama2-70b"},
    "llama3": {"1B": "llama3.2-1b", "3B": "llama3.2-3b", "8B": "llama3-8b", "70B": "llama3-70b", "405B": "llama3.1-405b"},
    "llama4": {"17bx16e": "llama4-scout", "17bx128e": "llama4-maverick"},
    "deepseek_v3": {"16B": "deepseek-v2-lite", "236B": "deepseek-v2", "671B": "deepseek-v3"},
    "qwen3": {size: f"qwen3-{size.casefold()}" for size in ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B")},
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
    "kimi_k2_7": {"moonlight-16B-A3B": "moonlight-16b-a3b"},
    "qwen3_5": {size: f"qwen3.5-{size.casefold()}" for size in ("0.8B", "4B", "9B", "27B", "35B-A3B", "122B-A10B", "397B-A17B")},
}

# of flavors numbers from which no cost follows: models/llama3/__init__.py, models/common/rope.py (RoPE.Config) and nn_modules.py, of every size
ARITHMETIC = {
    "llama3": Arithmetic(
        norm_epsilon=1e-5,
        rotary_base=500_000,
        rope_type="llama3",
        rope_scaling_factor=8,
        original_max_position_embeddings=8192,
        low_freq_factor=1,
        high_freq_factor=4,
    )
}
