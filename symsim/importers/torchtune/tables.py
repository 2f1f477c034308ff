"""torchtune's keys that no formula reads, and its models.

Names: torchtune bd2a0fc7 (2026-04-23), recipes/*.py and recipes/configs; torchtune/models for builders.
"""

from __future__ import annotations

import re

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, DEVICE, EVALUATION, LENGTH, LENGTHS, LOADING, LOGS, OTHER_MODELS, PATHS, RATES, RNG, SAVING
from symsim.inputs.hub import shipped_model
from symsim.inputs.shipped import list_models

_ROLLOUT = "generation, rewards and other models between updates: roll-outs are another workload"
_GENERATION = "read where the model generates or is evaluated, not in training"
_PROFILED = "belongs to the run: a profiler's hooks in the steps that it records"
_UNITS = "parameters of their own units, gathered apart: as many bytes"

SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        "towers for images are another workload; of the decoder what the builder's name says is trained",
        "model.encoder_trainable model.decoder_trainable model.fusion_trainable",
    ),
    **silent("no_cost_effect", PATHS, "output_dir resume_from_checkpoint base_model_path name enable_async_checkpointing"),
    **silent("no_cost_effect", SAVING, "save_adapter_weights_only use_distributed_state_dict save_final_checkpoint"),
    **silent("no_cost_effect", "frequencies of rotary embeddings", "model.rope_base model.scale_factor"),
    **silent("not_modelled", SAVING, "save_every_n_steps save_every_n_epochs"),
    **silent("no_cost_effect", RNG, "seed"),
    **silent("no_cost_effect", DATA, "shuffle train_on_input max_samples apply_chat_template"),
    **silent("no_cost_effect", LENGTHS, "collate_fn"),
    **silent("no_cost_effect", LENGTH, "epochs max_steps_per_epoch num_steps"),
    **silent("no_cost_effect", EVALUATION, "batch_size_val"),
    **silent("not_modelled", EVALUATION, "run_val_every_n_steps"),
    **silent("no_cost_effect", LOGS, "log_every_n_steps log_peak_memory_stats log_level debug_logging_enabled debug_num_samples_per_step"),
    **silent("no_cost_effect", DEVICE, "device low_cpu_ram enable_expert_parallel_debug"),
    **silent("no_cost_effect", _UNITS, "custom_sharded_layers memory_efficient_fsdp_wrap"),
    **silent("no_cost_effect", "copies to the host beside computation or not: the same bytes", "activation_offloading_use_streams"),
    **silent("not_modelled", "attention by another kernel, whose mask knows documents", "use_flex"),
    **silent("not_modelled", "a vocabulary of other size: head and embedding grow with it", "resize_token_embeddings"),
    **silent("no_cost_effect", "numbers of the losses", "loss.beta loss.label_smoothing loss.epsilon loss.kl_coeff loss.ignore_index"),
    **silent("no_cost_effect", "numbers of the losses", "loss.value_coeff loss.value_clip_range kd_ratio"),
    **silent("no_cost_effect", _ROLLOUT, "ppo_epochs gamma lmbda whiten_rewards kl_coeff min_response_length penalise_no_eos reward_penalty"),
    **silent("no_cost_effect", _ROLLOUT, "stop_token_ids max_generated_tokens temperature top_k"),
    **silent("not_modelled", _ROLLOUT, "ppo_batch_size forward_batch_size grpo_samples"),
    **silent("no_cost_effect", RATES, "optimizer.lr optimizer.weight_decay optimizer.betas optimizer.eps model.lora_alpha"),
    **silent("no_cost_effect", "read where the builder has adapters alone", "model.use_dora model.quantize_base"),
    **silent("not_modelled", "weights and activations through 8 and 4 bits and back in every product (QAT)", "quantizer._component_"),
    **silent("no_cost_effect", "read with a quantizer alone", "quantizer.groupsize quantizer fake_quant_after_n_steps"),
    **silent("no_cost_effect", _GENERATION, "max_new_tokens enable_kv_cache tasks limit max_seq_length quantization_method"),
    **silent("no_cost_effect", "which linear maps are split over ranks: all of a layer", "tensor_parallel_plan._component_ tensor_parallel_plan"),
    **silent("no_cost_effect", "which samples", "dataset.split dataset._component_ dataset.source"),
}

# sections of which every key is the same
SECTIONS: dict[str, Silent] = {
    **silent("no_cost_effect", PATHS, "checkpointer tokenizer"),
    **silent("no_cost_effect", LOGS, "metric_logger"),
    **silent("no_cost_effect", RATES, "lr_scheduler"),
    **silent("no_cost_effect", DATA, "dataset datasets"),
    **silent("no_cost_effect", EVALUATION, "dataset_val dataloader_val"),
    **silent("not_modelled", LOADING, "dataloader"),
    **silent("no_cost_effect", _PROFILED, "profiler"),
    **silent("no_cost_effect", _GENERATION, "prompt"),
    **silent("not_modelled", OTHER_MODELS, "teacher_model reward_and_value_model policy_model"),
    **silent("no_cost_effect", PATHS, "teacher_checkpointer ref_checkpointer ref_policy_checkpointer value_checkpointer reward_checkpointer"),
    **silent("not_modelled", _ROLLOUT, "orchestration inference postprocessing training reward_functions"),
    **silent("no_cost_effect", "a towers' sizes, of images and sound", "model.image_size model.encoder_trainable model.fusion_trainable"),
    **silent("not_modelled", OTHER_MODELS, "kd_loss"),
}

# builders whose names say another model's
_NAMES = {"llama3_3_70b": "llama3.1-70b", "mistral_7b": "mistral-7b-v0.1", "phi3_mini": "phi-3-mini", "phi4_14b": "phi-4"}
_NAMES |= {"llama4_scout_17b_16e": "llama4-scout", "llama4_maverick_17b_128e": "llama4-maverick", "code_llama2_34b": "codellama-34b"}
_MARKS = re.compile(r"^(?:q?lora_|dora_|qdora_|partial_)+")


def model_named(component: str) -> str | None:
    """The model of models/ that a builder (`torchtune.models.llama3_1.lora_llama3_1_8b`) makes, or None."""
    last = _MARKS.sub("", component.rpartition(".")[2])
    if last in _NAMES:
        return _NAMES[last]
    plain = re.sub(r"_(?:base|instruct)$", "", last)
    wanted = re.sub(r"[^a-z0-9]", "", plain)
    # qwen2 and qwen2.5 of these sizes have one shape
    names = {re.sub(r"[^a-z0-9]", "", name): name for name in list_models()}
    return names.get(wanted) or names.get(wanted.replace("qwen2", "qwen25", 1))


def of_checkpoints(directory: str) -> str | None:
    """The model that a directory of weights is named for."""
    shipped = shipped_model(directory)
    return shipped.name if shipped is not None else None
