"""The configuration of NeMo's Megatron models (trainer, exp_manager, model), and Primus's (modules): their keys as Megatron-LM's arguments.

Names: NeMo at e8e55a4 (2025-09-20), examples/nlp/language_modeling/conf, and how collections/nlp/models/language_modeling and
parts/megatron_trainer_builder.py read them; Primus examples/megatron/configs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Silent, silent
from symsim.importers.megatron.adapters import ARGUMENTS, DIM, DROPOUT, SCHEME, TARGETS
from symsim.inputs.reading import Document, KeyPath

# (argument, key as written, its value for the argument, its value as written, where); an empty argument: the key is none of Megatron-LM's
Found = Iterator[tuple[str, str, Any, Any, str]]

_RENAMED = {
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "encoder_seq_length": "seq_length",
    "rotary_percentage": "rotary_percent",
    "ub_tp_comm_overlap": "tp_comm_overlap",
    "ub_tp_comm_overlap_cfg": "tp_comm_overlap_cfg",
    "bias_dropout_add_fusion": "bias_dropout_fusion",
    "fp8_params": "fp8_param_gather",
    "gc_interval": "manual_gc_interval",
    "bias": "add_bias_linear",
    "qkv_bias": "add_qkv_bias",
    "mamba_ssm_ngroups": "mamba_num_groups",
    "override_vocab_size": "padded_vocab_size",
    "optim.lr": "lr",
    "optim.overlap_grad_sync": "overlap_grad_reduce",
    "optim.overlap_param_sync": "overlap_param_gather",
    "optim.weight_decay": "weight_decay",
    "data.num_workers": "num_workers",
    "data.eod_mask_loss": "eod_mask_loss",
    "data.reset_position_ids": "reset_position_ids",
    "data.reset_attention_mask": "reset_attention_mask",
    "trainer.gradient_clip_val": "clip_grad",
    "trainer.max_steps": "train_iters",
}
_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm1p": "LayerNorm", "low_precision_layernorm": "LayerNorm"}
_ACTIVATIONS = {"swiglu": "swiglu", "geglu": "quick_geglu", "squared-relu": "squared_relu"}
_SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")
_PRECISIONS = {"bf16": "bf16", "16": "fp16"}
_PROMPTS = "prompt_learning p_tuning prompt_tuning adapter_tuning virtual_prompt_style new_tasks existing_tasks task_templates"
_ALIGNED = "rewards, another model's forward, or generation between the updates of NeMo-Aligner: another workload"
_RUN = "of the run: devices, logs, checkpoints and validation"
_WEIGHTS = "which weights training begins with"

TABLE: dict[str, Silent] = {
    **silent("no_cost_effect", _RUN, "trainer exp_manager name run hydra defaults restore_from_path restore_from_ckpt resume_from_checkpoint"),
    **silent("no_cost_effect", _WEIGHTS, "use_scaled_init_method init_method_std mcore_gpt pre_process post_process megatron_core"),
    **silent("no_cost_effect", "fp32 main parameters, or fp32 weights that are cast: as many bytes", "megatron_amp_O2"),
    **silent("no_cost_effect", "learning rates cost the same at any value", "reset_lr reset_lr_steps"),
    **silent("not_modelled", "a step runs all layers here", "drop_layers"),
    **silent("not_modelled", "a pass over what the stream begins with", "scale_positional_embedding apply_embedding_scaling"),
    **silent("no_cost_effect", "the trainer's decides", "precision"),
    **silent(
        "no_cost_effect",
        "scales of losses and gradients, and other numbers that cost the same at any value",
        "native_amp_init_scale native_amp_growth_interval normalize_attention_scores do_layer_norm_weight_decay optim get_attention_mask_from_fusion",
    ),
    **silent("no_cost_effect", "which samples are read, in which order", "data tokenizer"),
    **silent("no_cost_effect", "gradients in buckets either way", "gradient_as_bucket_view grad_div_ar_fusion"),
    **silent("no_cost_effect", "logs and profiles", "apex_transformer_log_level enable_megatron_timers megatron_timer_kwargs nsys_profile"),
    **silent("no_cost_effect", "read by a distributed optimizer of NeMo alone: the size of a bucket", "grad_allreduce_chunk_size_mb"),
    **silent("no_cost_effect", "checkpoints belong to the run", "dist_ckpt_load_on_device dist_ckpt_parallel_save dist_ckpt_parallel_load"),
    **silent("no_cost_effect", "checkpoints belong to the run", "dist_ckpt_parallel_save_within_dp dist_ckpt_torch_dist_multiproc"),
    **silent("no_cost_effect", "checkpoints belong to the run", "dist_ckpt_assume_constant_structure dist_ckpt_parallel_dist_opt"),
    **silent("no_cost_effect", "checkpoints belong to the run", "dist_ckpt_load_strictness fsdp_sharded_checkpoint save_nemo_on_validation_end"),
    **silent("no_cost_effect", "the usual block", "transformer_block_type attention_type reduce_amax", ("pre_ln", "multihead")),
    **silent("no_cost_effect", "te's modules are taken in either case", "transformer_engine fp8_e4m3 fp8_hybrid fp8_amax_compute_algo"),
    **silent("no_cost_effect", "validation belongs to the run", "validation_param_sync_overlap validation_drop_last"),
    **silent("not_modelled", "a scale for every head: parameters of their number, and a pass", "headscale"),
    **silent("not_modelled", "a pass with random masks, of which the others are not counted", "ffn_dropout"),
    **silent("not_modelled", "the device waits after each boundary tensor", "sync_batch_comm"),
    **silent("not_modelled", "attention in another kernel than te's", "use_emha"),
    **silent("not_modelled", "reductions inside switches", "sharp"),
    **silent("not_modelled", "gradients leave beside backward: what of their reduction is exposed", "async_grad_allreduce", (False,)),
    **silent("not_modelled", "towers for images are another workload: an encoder before the decoder, whose text part is timed", "mm_cfg"),
    **silent("no_cost_effect", "numbers of adapters' beginnings, or of a scheme that is not chosen", "peft"),
    **silent("not_modelled", "other stages run other numbers of layers again", "activations_checkpoint_layers_per_pipeline"),
    **silent("not_modelled", "some micro-batches run fewer layers again", "num_micro_batches_with_partial_activation_checkpoints"),
    **silent("no_cost_effect", "read with fsdp alone", "fsdp_sharding_strategy fsdp_grad_reduce_dtype fsdp_use_orig_params"),
    **silent("no_cost_effect", "which tokens count in the loss", "answer_only_loss"),
    **silent("no_cost_effect", "of the run: names, debugging and files", "megatron_legacy version dump_debug_info dump_debug_info_to_file nemo_path"),
    **silent("not_modelled", "layers that NeMo's own code changes (soft caps, windows): --of MODEL gives them", "mcore_customization_config"),
    **silent("refused", "layers of this kind are not modelled; leave it out for a decoder of attention or Mamba", "hyena retro"),
    **silent("no_cost_effect", "which configuration the checkpoint's is put under", "overwrite_base_config"),
    **silent("no_cost_effect", "a misspelt megatron_amp_O2, which nothing reads", "megatron_amp_02"),
    **silent("no_cost_effect", "of a model with an encoder and a decoder", "pipeline_model_parallel_split_rank"),
    **silent("not_modelled", "prompts that are learned, the model frozen: full training is timed", _PROMPTS),
    **silent("not_modelled", _ALIGNED, "dpo kto spin rs reinforce ppo steerlm2 knowledge_distillation"),
    **silent("no_cost_effect", "read with cpu_offloading alone", "cpu_offloading_activations cpu_offloading_weights"),
}

_TURBO = "kernels of Primus in place of TransformerEngine's: other shares of the same peaks"
PRIMUS: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        "of the run: logs, profiles, checkpoints and data",
        """disable_last_saving auto_continue_train stderr_sink_level log_avg_skip_iterations log_avg_reset_interval disable_wandb disable_tensorboard
        torch_profiler_with_stack torch_profiler_use_gzip torch_profiler_record_shapes disable_profiler_activity_cpu use_nsys_profiler
        wall_clock_step_timer warmup_train_steps mock_dataset target_val_loss model_type stage hf_path sft_dataset_name sft_conversation_format
        disable_delayed_scaling_patches work_group user_name exp_name workspace platform modules""",
    ),
    **silent(
        "not_modelled",
        _TURBO,
        """use_turbo_deepep turbo_sync_free_moe_stage turbo_deepep_use_comm_stream turbo_deepep_num_cu
        moe_use_fused_router_with_aux_score no_fp8_weight_transpose_cache torch_compile enable_odc odc_phase enable_odc_lb_mini
        lb_mini_cost_model odc_p2p_backend odc_rocshmem_gda""",
    ),
    **silent(
        "no_cost_effect",
        "whose kernels multiply: the same FLOPs and bytes, at the shares that the system's file has",
        """enable_primus_turbo use_turbo_attention use_turbo_gemm use_turbo_grouped_gemm use_turbo_grouped_mlp use_turbo_rms_norm
        moe_use_legacy_grouped_gemm fused_padded_mla_attention enable_turbo_gemm_float8 kda_backend use_fla_fused_swiglu use_fla_fused_rmsnorm
        use_fla_fused_gated_norm use_fla_short_conv use_fla_triton_kda use_v4_attention_backend use_v4_csa_attention_backend
        use_v4_compiled_sinkhorn""",
    ),
    **silent("not_modelled", "attention's products in 8 bits: at up to twice the rate", "enable_turbo_attention_float8"),
    **silent(
        "not_modelled",
        "a window of attention in layers with sinks: the share of scores outside it",
        "sink_sliding_window sink_window_even_layers_only",
    ),
    **silent("no_cost_effect", "numbers of adapters' beginnings, or of adapters that are off", "lora"),
    **silent("no_cost_effect", "names a recipe, whose sizes --of MODEL gives", "flavor"),
    **silent(
        "no_cost_effect",
        "of the model, which the file of another name describes: --of MODEL gives it",
        "hybrid_attention_enabled attn_sink hc_use_sinkhorn mtp_use_separate_hc_head swiglu_limit",
    ),
    **silent(
        "not_modelled",
        "an indexer's products in 8 bits: at up to twice the rate",
        "use_v4_fp8_indexer",
        ("${PRIMUS_USE_V4_FP8_INDEXER:false}", False),
    ),
    **silent("no_cost_effect", "stages run once before the first step", "pp_warmup"),
    **silent("no_cost_effect", "learning rates, scales and the data", "finetune_lr peft_alpha nemo_aligned_lr_warmup data_paths dataset_name mock"),
    **silent("no_cost_effect", "of the run: checkpoints, random numbers and environment", "skip_save per_step_rng_reseed use_fla_data mlperf_mode"),
    **silent(
        "not_modelled",
        "documents packed into a row do not see one another: attention work falls; set packed_document_length",
        "max_samples_per_sequence use_packed_attention",
    ),
    **silent("not_modelled", "which messages run beside computation, in a section of its own", "comm_overlap_config"),
    **silent("not_modelled", "types of FSDP's shards: a few bytes a parameter", "use_fsdp2_fp32_param_optimizer use_fsdp2_fp8_all_gather"),
    **silent("not_modelled", "a loss that is fused with the output layer", "fused_ce_mode fused_ce_chunks enable_fused_linear_ce"),
    **silent("not_modelled", "the allocator gives its cache back: allocation takes time again", "empty_cache_interval"),
}
_OF_PRIMUS = {"precision_config": "mixed_precision"}
# of its pre_trainer.yaml and trainer_base.yaml
_PRIMUS_DEFAULTS = {"bf16": True, "use_distributed_optimizer": True, "seq_length": 2048}


def is_nemo(data: Mapping[str, Any]) -> bool:
    """A model beside a trainer of PyTorch Lightning."""
    return isinstance(data.get("model"), dict) and isinstance(data.get("trainer"), dict)


def of_nemo(document: Document) -> Found:
    """The keys of a NeMo configuration, with its interpolations put in."""
    model = document.data["model"]
    yield from _trainer(document)
    tower = model.get("mm_cfg")
    decoder = tower.get("llm") if isinstance(tower, dict) else None
    if isinstance(decoder, dict) and decoder.get("freeze") is True and "peft" not in model:
        # collections/multimodal/models/multimodal_llm/neva/neva_model.py NevaBaseModel.freeze_llm
        yield "freeze_LM", "model.mm_cfg.llm.freeze", True, True, document.place(("model", "mm_cfg", "llm", "freeze"))
    for key, value in model.items():
        where = document.place(("model", key))
        if key in ("optim", "data", "tokenizer", "peft") and isinstance(value, dict):
            yield from _section(document, key, value)
        else:
            yield from _of_model(key, resolved(document.data, ("model", key), value), where, model)
    if "make_vocab_size_divisible_by" not in model:
        yield "make_vocab_size_divisible_by", "model.make_vocab_size_divisible_by", 128, "(default)", document.place(("model",))
    optimizer = model.get("optim")
    name = str(optimizer.get("name") if isinstance(optimizer, dict) else None)
    yield "use_distributed_optimizer", "model.optim.name", name in _SHARDED, name, document.place(("model", "optim"))
    for key, value in document.data.items():
        if key not in ("model", "trainer"):
            yield "", key, value, value, document.place((key,))


def _trainer(document: Document) -> Found:
    trainer = document.data["trainer"]
    ranks = [resolved(document.data, ("trainer", name), trainer.get(name)) for name in ("devices", "num_nodes")]
    if all(type(one) is int for one in ranks):
        yield "world_size", "trainer.devices", ranks[0] * ranks[1], ranks[0], document.place(("trainer", "devices"))
    precision = str(trainer.get("precision", "32")).partition("-")[0]
    if precision in _PRECISIONS:
        yield _PRECISIONS[precision], "trainer.precision", True, trainer["precision"], document.place(("trainer", "precision"))
    for key, value in trainer.items():
        written = f"trainer.{key}"
        if key not in ("devices", "precision"):
            value = resolved(document.data, ("trainer", key), value)
            yield _RENAMED.get(written, ""), written, value, value, document.place(("trainer", key))


def _section(document: Document, section: str, data: Mapping[str, Any]) -> Found:
    for key, value in data.items():
        name = f"{section}.{key}"
        if name == "optim.name":
            continue
        argument = _tokenizer(name, data, value) if section == "tokenizer" else _RENAMED.get(name, "")
        value = resolved(document.data, ("model", section, key), value)
        if name == "peft.lora_tuning" and isinstance(value, dict):
            for inner, one in value.items():
                place = document.place(("model", section, key, inner))
                yield ARGUMENTS.get(f"{name}.{inner}", ""), f"model.{name}.{inner}", one, one, place
            continue
        argument = argument if value is None else ARGUMENTS.get(name, argument)
        if name == "data.train_ds" and isinstance(value, dict) and isinstance(value.get("max_seq_length"), int):
            length = value["max_seq_length"]
            yield "seq_length", "model.data.train_ds.max_seq_length", length, length, document.place(("model", section, key, "max_seq_length"))
        yield argument, f"model.{name}", value, value, document.place(("model", section, key))


def _of_samples(model: Mapping[str, Any]) -> int | None:
    """The longest row of fine-tuning's data, which goes before the model's own."""
    data = model.get("data")
    rows = data.get("train_ds") if isinstance(data, dict) else None
    length = rows.get("max_seq_length") if isinstance(rows, dict) else None
    return length if isinstance(length, int) else None


def _tokenizer(name: str, data: Mapping[str, Any], value: Any) -> str:
    """The argument of a key of NeMo's tokenizer (collections/nlp/modules/common/tokenizer_utils.py): the library says which one is read."""
    read = {"megatron": {"tokenizer.type": "tokenizer_type"}, "sentencepiece": {"tokenizer.model": "tokenizer_model"}}
    return "" if value is None else read.get(str(data.get("library")), {"tokenizer.type": "tokenizer_model"}).get(name, "")


def _of_model(key: str, value: Any, where: str, model: Mapping[str, Any]) -> Found:
    """A key of `model`, as the argument whose meaning it has."""
    written = f"model.{key}"
    name = str(value).removeprefix("fast-")
    argument, meant = "" if key in TABLE else _RENAMED.get(key, key), value
    if key == "activation":
        argument, meant = (_ACTIVATIONS[name], True) if name in _ACTIVATIONS else ("activation_func", name)
    elif key == "ub_tp_comm_overlap_cfg" and isinstance(value, dict):
        meant = "a section"
    elif key == "position_embedding_type":
        meant = str(value).lower()
    elif key == "encoder_seq_length" and _of_samples(model) not in (None, value):
        argument = key
    elif key == "normalization":
        meant = _NORMS.get(str(value), value)
    elif key == "share_embeddings_and_output_weights":
        argument, meant = "untie_embeddings_and_output_weights", value is False
    elif key == "fp8":
        argument, meant = "fp8_format" if value is True else "", "e4m3" if model.get("fp8_e4m3") is True else "hybrid"
    elif key in ("use_flash_attention", "fsdp"):
        argument = {"fsdp": "use_torch_fsdp2"}.get(key, "use_flash_attn") if value is True else ""
    elif key.startswith("fp8_") and not model.get("fp8"):
        argument, value = "", None
    elif (key == "cpu_offloading_num_layers" and not model.get("cpu_offloading")) or (key == "gc_interval" and not value):
        argument = ""
    yield argument, written, meant, value, where


def is_primus(data: Mapping[str, Any]) -> bool:
    """Modules of Primus, one of which trains with Megatron-LM."""
    modules = data.get("modules")
    return isinstance(modules, dict) and any(isinstance(one, dict) and isinstance(one.get("overrides"), dict) for one in modules.values())


def of_primus(document: Document) -> Found:
    """What a module of Primus overrides: arguments of Megatron-LM."""
    for module, data in document.data["modules"].items():
        other = data.get("framework") if isinstance(data, dict) else None
        if other not in (None, "megatron", "megatron_bridge"):
            where = document.place(("modules", module, "framework"))
            said = "'symsim import torchtitan' reads it" if other == "torchtitan" else "modules of Megatron-LM and torchtitan are read"
            raise InputError(f"{where}: framework is {cut(str(other))}; {said}")
        overrides = data.get("overrides") if isinstance(data, dict) else None
        if not isinstance(overrides, dict):
            continue
        for key, default in _PRIMUS_DEFAULTS.items():
            if key not in overrides and not (key == "bf16" and overrides.get("fp16")):
                yield key, f"{module}.{key}", default, default, document.place(("modules", module))
        exchanges = _exchanges(overrides)
        for key, value in overrides.items():
            if key in exchanges:
                argument, meant = exchanges[key]
                yield argument, f"overrides.{key}", meant, value, document.place(("modules", module, "overrides", key))
                continue
            text = re.sub(r"\$\{(\w+):(?=[^-}])", r"${\1:-", value) if isinstance(value, str) else value
            if key == "use_sink_attention":
                yield "softmax_type", f"overrides.{key}", "learnable" if value is True else "vanilla", value, document.place(("modules", module))
                continue
            if key == "lora" and isinstance(value, dict):
                yield from _adapted(value, document, module)
                continue
            argument = "" if key in PRIMUS else _OF_PRIMUS.get(str(key), ARGUMENTS.get(str(key), str(key)))
            if argument.startswith("peft.") and isinstance(value, dict):
                raise InputError(f"{document.place(('modules', module, 'overrides', key))}: {key} is a section, and a value is expected")
            yield argument, f"overrides.{key}", text, value, document.place(("modules", module, "overrides", key))
    for key, value in document.data.items():
        if key != "modules":
            yield "", key, value, value, document.place((key,))


def _adapted(data: Mapping[str, Any], document: Document, module: str) -> Found:
    """The section of adapters (Primus backends/megatron, LoRA): off unless it is enabled."""
    on = data.get("enabled") is True
    for name, value in data.items():
        argument = {"enabled": SCHEME, "dim": DIM, "dropout": DROPOUT, "target_modules": TARGETS}.get(name, "") if on else ""
        where = document.place(("modules", module, "overrides", "lora", name))
        yield argument, f"overrides.lora.{name}", "lora" if name == "enabled" else value, value, where


def _exchanges(overrides: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Keys of Primus-Turbo's exchange of tokens, each with the argument of Megatron-LM and its value; without argument: off (Primus
    backends/megatron/patches/turbo/moe_dispatcher_patches.py, args/rocm_arg_validation.py)."""
    turbo, stage = overrides.get("enable_primus_turbo") is True, overrides.get("turbo_sync_free_moe_stage")
    told = overrides.get("use_turbo_deepep") is True
    fused = turbo and (told or stage in (2, 3))
    made: dict[str, tuple[str, Any]] = {"moe_token_dispatcher_type": (_EXCHANGE, "flex")} if fused else {}
    made["use_turbo_deepep"] = (_EXCHANGE, "flex") if fused and told else ("", False)
    made["turbo_deepep_num_cu"] = ("moe_flex_dispatcher_num_sms", overrides.get("turbo_deepep_num_cu")) if fused else ("", 0)
    if turbo and stage in (1, 2, 3):
        made["turbo_sync_free_moe_stage"] = (_EXCHANGE, "flex") if fused and not told else ("moe_permute_fusion", True)
    return made


_EXCHANGE = "moe_token_dispatcher_type"


# what the launcher of NeMo registers with OmegaConf (NeMo-Framework-Launcher launcher_scripts/main.py)
_COUNTED = re.compile(r"\$\{(multiply|divide_ceil|divide_floor): *([\w.]+|\$\{[\w.]+\}) *, *([\w.]+|\$\{[\w.]+\})\}")


def resolved(data: Mapping[str, Any], path: KeyPath, value: Any, deep: int = 0) -> Any:
    """A value with `${section.key}`, `${.key}` or `${multiply:4,${.key}}` put in; other interpolations stay as they are written."""
    if deep > 10 or not isinstance(value, str):
        return value
    counted = _COUNTED.fullmatch(value)
    if counted is not None:
        numbers = [int(one) if one.isdecimal() and len(one) < 20 else resolved(data, path, one, deep + 1) for one in counted.groups()[1:]]
        if not all(type(one) is int and 0 < one < 10**18 for one in numbers):
            return value
        return {"multiply": numbers[0] * numbers[1], "divide_ceil": -(-numbers[0] // numbers[1])}.get(counted[1], numbers[0] // numbers[1])
    match = re.fullmatch(r"\$\{(\.{0,4})([\w.]+)\}", value)
    if match is None:
        return value
    up, names = len(match[1]), tuple(match[2].split("."))
    if not up and names[0] not in data and names[1:2] and names[1] in data:
        # the launcher puts a file below the name of its group: ${training.model.hidden_size}
        names = names[1:]
    place = (*path[: len(path) - up], *names) if up else names
    found: Any = data
    for name in place:
        if not isinstance(found, dict) or name not in found:
            return value
        found = found[name]
    return resolved(data, place, found, deep + 1)
