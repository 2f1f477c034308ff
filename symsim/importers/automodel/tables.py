"""NeMo Automodel's keys that no formula reads.

Names and defaults: Automodel 36044ad3 (2026-08-22), nemo_automodel/components/distributed/config.py, pipelining/config.py,
components/models/common/utils.py BackendConfig, recipes.
"""

from __future__ import annotations

from symsim.importers.adapted import QUANTISED
from symsim.importers.assumed import COLLECTED
from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, DEVICE, EVALUATION, LENGTH, LOADING, LOGS, OTHER_MODELS, PATHS, RATES, RNG, SAVING

_PATCHED = "how the modules of a pipeline's stages are called"
_PREFETCH = "gathers issued further ahead: beside computation either way"
_TOWERS = "towers for images and sound are another workload"
_ROUTER = "the router runs again or not in backward: below 1 % of a step"
_QAT = "weights and activations through 8 and 4 bits and back in every product (QAT)"


_VECTORS = "vectors of whole sequences and a loss between them are another workload: no logits of a vocabulary"
_DIFFUSED = "a model that fills in masked tokens is another workload: attention to both sides, and a loss of its own"
_DRAFTED = "a model that drafts for another is another workload"


def _of(section: str, keys: str) -> str:
    return " ".join(f"{section}.{key}" for key in keys.split())


SILENT: dict[str, Silent] = {
    **silent("no_cost_effect", PATHS, "recipe recipe._target_ nvtx separate_meshes"),
    **silent("not_modelled", "fp32 weights with casts: 4 bytes a parameter in place of 2, and a pass over them", "autocast.enabled"),
    **silent("no_cost_effect", "read with autocast.enabled", "autocast.dtype autocast.cache_enabled"),
    **silent("not_modelled", "casts of what runs in 32 bits around every product: a pass over its inputs", "distributed.autocast_dtype"),
    **silent(
        "not_modelled",
        "parameters, gradients and states wait on the host: up to 16 bytes a parameter off the device, and the update there",
        "distributed.offload_policy distributed.offload_policy._target_",
    ),
    **silent("no_cost_effect", "whether memory that waits on the host is pinned", "distributed.offload_policy.pin_memory"),
    **silent("not_modelled", _VECTORS, "temperature model.pooling model.l2_normalize model.temperature model.do_distributed_inbatch_negative"),
    **silent(
        "not_modelled", _VECTORS, "model.detach_distributed_inbatch_negatives model.extract_submodel model.teacher_hidden_size model.capture_layers"
    ),
    **silent("not_modelled", _DRAFTED, "model.drafter_path model.drafter_loss_weight model.drafter_num_steps"),
    **silent("not_modelled", _DIFFUSED, "model.canvas_length model.dlm_paradigm"),
    **silent("not_modelled", _TOWERS, "model.backend.mot_grouped model.backend.fused_swiglu model.backend.fused_rope"),
    **silent("not_modelled", "a kernel of the delta rule that takes token after token", "model.kda_mode", ("chunk",)),
    **silent("no_cost_effect", "how weights of experts are written", "model.text_config.mtp_expert_hf_layout"),
    **silent("not_modelled", "routers alone keep no gradient and no states: below 1 % of them", "model.freeze_router"),
    **silent("no_cost_effect", PATHS, "model.cache_dir model.text_config.output_hidden_states"),
    **silent(
        "no_cost_effect",
        "a number of the loss",
        "loss_fn.reduction loss_fn.logit_softcapping loss_fn.coordinate_weight loss_fn.class_token_start_idx",
    ),
    **silent("no_cost_effect", DATA, "packed_sequence.packing_format packed_sequence.balance_media_tokens"),
    **silent("no_cost_effect", RNG, "seed"),
    **silent("no_cost_effect", LENGTH, _of("step_scheduler", "num_epochs max_steps")),
    **silent("not_modelled", SAVING, _of("step_scheduler", "ckpt_every_steps save_checkpoint_every_epoch")),
    **silent("not_modelled", EVALUATION, _of("step_scheduler", "val_every_steps")),
    **silent("no_cost_effect", COLLECTED, _of("step_scheduler", "gc_every_steps")),
    **silent("no_cost_effect", LOGS, _of("step_scheduler", "log_remote_every_steps loss_average_window_steps")),
    **silent("no_cost_effect", "how the mesh is held", _of("distributed", "_target_ moe patch_is_packed_sequence use_hf_tp_plan tp_plan")),
    **silent("no_cost_effect", _PREFETCH, _of("distributed", "enable_fsdp2_prefetch fsdp2_backward_prefetch_depth fsdp2_forward_prefetch_depth")),
    **silent("no_cost_effect", _PREFETCH, _of("distributed", "fsdp_double_buffer nccl_ub disable_bucketing init_fsdp_with_meta_device")),
    **silent(
        "no_cost_effect",
        "checks between steps",
        _of("distributed", "check_for_nan_in_grad report_nan_in_param_grad broadcast_buffers static_graph find_unused_parameters"),
    ),
    **silent("no_cost_effect", "types of what passes between units", _of("distributed.mp_policy", "_target_ cast_forward_inputs output_dtype")),
    **silent("not_modelled", _ROUTER, _of("distributed.moe", "ignore_router_for_ac")),
    **silent("not_modelled", "the head's product in fp32: its rate instead of that of 16 bits", _of("distributed.moe", "lm_head_precision")),
    **silent(
        "no_cost_effect",
        _PATCHED,
        " ".join(
            _of(
                section,
                "_target_ patch_inner_model patch_causal_lm_model scale_grads_in_schedule dtype patch_stage_backward_maybe_with_nosync pp_seq_len",
            )
            for section in ("distributed.pipeline", "autopipeline")
        ),
    ),
    **silent("no_cost_effect", "a class of the framework", "parallelizer._target_ peft._target_ qat.qat_config._target_"),
    **silent(
        "no_cost_effect",
        "which class, files and outputs",
        _of(
            "model",
            """_target_ trust_remote_code output_hidden_states load_base_model use_cache text_config.use_cache name backend._target_
            backend.enable_hf_state_dict_adapter config._target_ config.trust_remote_code config.use_cache config.architectures bos_token_id
            eos_token_id config.bos_token_id config.eos_token_id config.pad_token_id config.torch_dtype config.dtype revision""",
        ),
    ),
    **silent("no_cost_effect", "the router's product and scores in 4 bytes: below 1 % of a step", "model.backend.gate_precision"),
    **silent("not_modelled", "one kernel a compiled part", "model.backend.compile_attn distributed.enable_compile"),
    **silent("no_cost_effect", "the weight of a loss", "model.mtp_loss_scaling_factor model.router_aux_loss_coef"),
    **silent("not_modelled", "another head than the vocabulary's", "model.num_labels"),
    **silent(
        "no_cost_effect",
        "which kernel computes attention: a fused one either way",
        "model.use_sdpa_patching model.config._attn_implementation model.text_config.cp_full_attn_backend packed_sequence.attn_implementation",
    ),
    **silent(
        "no_cost_effect",
        RATES,
        _of(
            "optimizer",
            """lr weight_decay betas eps epsilon embed_lr lm_head_lr scalar_lr scalar_betas scalar_eps mu nesterov adjust_lr flatten
            adam_w_mode bias_correction warmup_ratio min_lr_ratio""",
        ),
    ),
    **silent("no_cost_effect", "how states are written to files", "optimizer.compress_state_dict"),
    **silent("no_cost_effect", "the part of Muon that is Adam's", "optimizer.scalar_opt optimizer.use_triton"),
    **silent("no_cost_effect", "the loss in 2 bytes a logit or 4 inside its kernels", "loss_fn.ignore_index loss_fn.compile"),
    **silent("no_cost_effect", "read by a loss in chunks", "loss_fn.chunk_len"),
    **silent("no_cost_effect", "details of the compiler", _of("compile", "mode fullgraph dynamic backend dynamo_cache_size_limit")),
    **silent("no_cost_effect", "one pass for all weights' maxima in place of one each", _of("fp8", "precompute_float8_dynamic_scale_for_fsdp")),
    **silent("no_cost_effect", "weights' copies in 8 bits are made again or kept", _of("fp8", "force_recompute_fp8_weight_in_bwd")),
    **silent("no_cost_effect", "the class of a recipe", "model.backend.te_fp8._target_"),
    **silent("refused", "8 bits are emulated in 16, which costs more than either; give false for products in 8 bits", "fp8.emulate"),
    **silent("no_cost_effect", "read where there are adapters alone", "peft.use_dora"),
    **silent("no_cost_effect", RATES, _of("peft", "alpha lora_A_init")),
    **silent("no_cost_effect", "kernels of the adapters' products", _of("peft", "use_triton")),
    **silent("not_modelled", QUANTISED, _of("quantization", "load_in_4bit load_in_8bit")),  # without adapters
    **silent(
        "no_cost_effect",
        "read with load_in_4bit",
        _of("quantization", "bnb_4bit_compute_dtype bnb_4bit_quant_storage bnb_4bit_quant_type bnb_4bit_use_double_quant"),
    ),
    **silent("not_modelled", _QAT, "qat.enabled"),
    **silent("no_cost_effect", "read with qat.enabled", "qat.fake_quant_after_n_steps qat.qat_config.groupsize qat.qat_config.quantizer_type"),
    # components/utils/model_utils.py apply_parameter_freezing
    **silent("no_cost_effect", "read by no recipe that trains a model as it is: embeddings are trained", "freeze_config.freeze_embeddings"),
    **silent("no_cost_effect", _TOWERS, "freeze_config.freeze_audio_tower freeze_config.freeze_vision_tower"),
    **silent(
        "no_cost_effect",
        DATA,
        _of(
            "packed_sequence",
            "split_across_pack packing_strategy drop_long_samples max_packs num_proc packing_ratio pretokenize post_tokenize_hook_fn",
        ),
    ),
    **silent("not_modelled", LOADING, "dataloader.num_workers"),
    **silent("no_cost_effect", "how the weights that it begins with are stored", "model.quantization_config._target_"),
    **silent("not_modelled", QUANTISED, "model.quantization_config.dequantize", (True,)),
}

SECTIONS: dict[str, Silent] = {
    **silent("not_modelled", "chunks and multiprocessors of an exchange of its own", "model.backend.mok"),
    **silent("no_cost_effect", RNG, "rng"),
    **silent("no_cost_effect", DEVICE, "dist_env distributed_config"),
    **silent("no_cost_effect", DATA, "dataset dataloader longalign neftune tokenizer processor embedding_row_repair"),
    **silent("no_cost_effect", EVALUATION, "validation_dataset validation_dataloader _validation_dataset _validation_dataloader tool_call_eval"),
    **silent("no_cost_effect", RATES, "lr_scheduler"),
    **silent("no_cost_effect", SAVING, "checkpoint"),
    **silent("no_cost_effect", LOGS, "wandb mlflow comet moe_metrics benchmark logger"),
    **silent("no_cost_effect", "tests and launches of the project's own", "ci skypilot slurm prewarm"),
    **silent("not_modelled", OTHER_MODELS, "teacher_model teacher_distributed kd_ratio kd_loss_fn offload_teacher_model"),
    **silent("not_modelled", _DIFFUSED, "dllm dflash"),
    **silent("not_modelled", _DRAFTED, "recipe_args"),
    **silent("no_cost_effect", "checks between steps", "performance"),
    **silent("no_cost_effect", _TOWERS, "distributed.multimodal"),
}
