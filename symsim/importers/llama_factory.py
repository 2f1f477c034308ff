"""A LLaMA-Factory YAML, with the DeepSpeed JSON that it names.

What its arguments do beside the Trainer's: LLaMA-Factory ff6d4d12e (2026-08-18), src/llamafactory/hparams/*.py, model/adapter.py,
model/model_utils/checkpointing.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.adapted import (
    QUANTISED,
    Names,
    adapters,
    four_bits,
    frozen_decoder,
    one_layer,
    rotated,
    stored_base,
    trained_ends,
    trained_modules,
)
from symsim.importers.assumed import deterministic
from symsim.importers.compiled import compiled
from symsim.importers.documents import SAID, balanced, documents_said, packed_rows, padded_rows
from symsim.importers.fsdp import narrow_gathers
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys, Silent, silent
from symsim.importers.launched import is_script, read_script
from symsim.importers.llama_factory_megatron import HANDED, of_megatron
from symsim.importers.llama_factory_megatron import asked as of_megatron_core
from symsim.importers.llama_factory_v1 import is_v1, read_v1
from symsim.importers.losses import liger_kernels
from symsim.importers.optimizers import OPTIMIZERS
from symsim.importers.preferences import preferred
from symsim.importers.presets import with_deepspeed
from symsim.importers.ranks import WORLD, known_variables, spread, world_size
from symsim.importers.rules import settle
from symsim.importers.sections import of_sections
from symsim.importers.shell.reader import Command
from symsim.importers.trainer import (
    COMPILER,
    DATA,
    EVALUATION,
    LOADING,
    LOGS,
    OTHER_MODELS,
    PATHS,
    RATES,
    TRAINER,
    autocast,
    batch,
    checkpoints_on_host,
    precision,
    replicas,
    update,
)
from symsim.importers.trainer import tensor_parallel as degrees
from symsim.importers.weights import model_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.reading import read_json, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options

ADAPTERS = (
    "adapters are another workload: gradients and states of adapters alone (of 16 bytes a parameter 2 are left), and backward near 1 forward in "
    "place of 2; full fine-tuning is timed"
)
FROZEN = "frozen parameters lose gradients, states and messages (14 of 16 bytes), and their weight gradients 1/3 of the FLOPs; all are trained here"
_GENERATION = "read where the model generates, not in training"
_VISION = "towers for images and sound are another workload; the text part is timed"
_UNSLOTH = "hand-written kernels and a loss in chunks: less by up to 12 bytes a logit, and by tens of per cent of a step's time"
_OTHER_ATTENTION = "attention over groups of tokens, or layers that skip tokens: less by the share that is skipped"
_MEGATRON = "read by its trainer of Megatron-Core alone, which degrees such as tensor_model_parallel_size ask for"
_ROUTER = "an auxiliary loss over router logits: below 1 % of a step"


_TABLE: dict[str, Silent] = {
    **TRAINER,
    **silent(
        "no_cost_effect",
        PATHS,
        """adapter_folder cache_dir use_fast_tokenizer split_special_tokens model_revision low_cpu_mem_usage train_from_scratch offload_folder
        hf_hub_token ms_hub_token om_hub_token print_param_status trust_remote_code export_dir export_size export_device export_quantization_bit
        export_quantization_dataset export_quantization_nsamples export_quantization_maxlen export_legacy_format export_hub_model_id
        ray_num_workers ray_init_kwargs ray_run_name ray_storage_path ray_storage_filesystem resources_per_worker placement_strategy
        master_addr master_port device_map compute_dtype config_name tokenizer_name task_dir save_dir download_mode use_modelscope_hub""",
    ),
    **silent(
        "no_cost_effect",
        DATA,
        """template dataset eval_dataset dataset_dir media_dir train_on_prompt mask_history streaming buffer_size mix_strategy interleave_probs
        overwrite_cache preprocessing_batch_size max_samples ignore_pad_token_for_loss tool_format default_system enable_thinking
        preserve_thinking tokenized_path data_shared_file_system disable_shuffling add_tokens add_special_tokens new_special_tokens_config
        init_special_tokens messages formatting role_tag content_tag user_tag assistant_tag system_tag system tools""",
    ),
    **silent("not_modelled", "a vocabulary of other size: head and embedding grow with it", "resize_vocab"),
    **silent("not_modelled", LOADING, "preprocessing_num_workers"),
    **silent("not_modelled", EVALUATION, "val_size eval_on_each_dataset compute_accuracy predict_with_generate"),
    **silent("no_cost_effect", EVALUATION, "eval_num_beams early_stopping_steps task lang n_shot batch_size"),
    **silent(
        "no_cost_effect",
        LOGS,
        """plot_loss include_effective_tokens_per_second use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode
        swanlab_api_key swanlab_logdir swanlab_lark_webhook_url swanlab_lark_secret profiler_output_dir profiler_wait_steps profiler_warmup_steps
        profiler_active_steps profiler_repeat profiler_record_shapes profiler_profile_memory profiler_with_stack profile_modules""",
    ),
    **silent("not_modelled", "belongs to the run: a profiler's hooks in the steps that it records", "enable_torch_profiler"),
    **silent(
        "no_cost_effect",
        RATES,
        """lora_alpha loraplus_lr_ratio loraplus_lr_embedding use_rslora pref_beta pref_ftx pref_bco_weight pref_loss
        dpo_label_smoothing kto_chosen_weight kto_rejected_weight simpo_gamma ppo_buffer_size ppo_score_norm ppo_target ppo_whiten_rewards
        ld_alpha galore_scale galore_proj_type apollo_scale apollo_proj apollo_proj_type apollo_scale_type apollo_scale_front asft_alpha
        eaft_alpha use_dft_loss use_eaft_loss badam_verbose""",
    ),
    **silent(
        "not_modelled",
        ADAPTERS,
        "create_new_adapter",
    ),
    **silent("no_cost_effect", "read with finetuning_type oft alone", "oft_rank oft_block_size oft_target module_dropout"),
    **silent("no_cost_effect", "what adapters begin as", "adapter_name_or_path pissa_init pissa_iter pissa_convert"),
    **silent(
        "no_cost_effect",
        "read with finetuning_type lora or freeze alone",
        "additional_target lora_rank lora_target lora_dropout use_dora freeze_trainable_layers freeze_trainable_modules freeze_extra_modules",
    ),
    **silent("not_modelled", FROZEN, "use_llama_pro"),
    **silent("no_cost_effect", _VISION, "freeze_vision_tower freeze_multi_modal_projector train_mm_proj_only"),
    **silent(
        "not_modelled",
        _VISION,
        """image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels video_fps video_maxlen
        use_audio_in_video audio_sampling_rate image_resolution video_resolution""",
    ),
    **silent(
        "no_cost_effect", "read with quantization_bit alone", "quantization_method quantization_type double_quantization quantization_device_map"
    ),
    **silent(
        "not_modelled",
        OTHER_MODELS,
        "ref_model ref_model_adapters ref_model_quantization_bit reward_model reward_model_adapters reward_model_quantization_bit use_asft_loss",
    ),
    **silent("no_cost_effect", "read by stage ppo alone", "reward_model_type ppo_epochs"),
    **silent(
        "no_cost_effect",
        "details of an optimizer that is named apart",
        """galore_target galore_update_interval apollo_target apollo_update_interval
        badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode""",
    ),
    **silent("no_cost_effect", "on NVIDIA's accelerators it replaces nothing (v1 model_plugins/kernels: auto)", "use_v1_kernels"),
    **silent("not_modelled", _UNSLOTH, "use_unsloth"),
    **silent("not_modelled", _OTHER_ATTENTION, "shift_attn mixture_of_depths"),
    **silent("not_modelled", _ROUTER, "moe_aux_loss_coef"),
    **silent("not_modelled", "Megatron-Bridge's model in place of mcore_adapter's", "megatron_bridge_args extra_config"),
    **silent(
        "no_cost_effect", "its trainer of Megatron-Core, where degrees ask for it", "use_mca use_megatron_bridge swap_optimizer additional_configs"
    ),
    **silent("no_cost_effect", PATHS, "megatron_pretrained_checkpoint export_hf_on_finish"),
    **silent("not_modelled", "samples packed into rows: --var packed_document_length=N says their mean length", "use_packed_sequences"),
    **silent("no_cost_effect", _MEGATRON, " ".join(HANDED)),
    **silent("no_cost_effect", "not read: disable_gradient_checkpointing decides", "gradient_checkpointing_kwargs.use_reentrant"),
    **silent("not_modelled", "experts on the host's processor: another system", "use_kt kt_use_lora_experts"),
    **silent(
        "no_cost_effect",
        "read with use_kt alone",
        """kt_cpu_activation kt_weight_path kt_non_expert_weight_path kt_expert_checkpoint_path kt_lora_expert_num
        kt_lora_expert_intermediate_size kt_config kt_config_path kt_optimize_rule kt_mode cpu_infer chunk_size""",
    ),
    **silent("no_cost_effect", "norms' weights alone, or a cast that the loss makes anyway", "upcast_layernorm upcast_lmhead_output"),
    **silent("no_cost_effect", "frequencies of rotary embeddings", "rope_scaling"),
    **silent("no_cost_effect", "set by the framework itself", "model_max_length block_diag_attn hyper_parallel_args"),
    **silent(
        "no_cost_effect",
        _GENERATION,
        """infer_backend infer_dtype use_kv_cache vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config sglang_maxlen
        sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend do_sample temperature top_p top_k num_beams max_length max_new_tokens
        repetition_penalty length_penalty skip_special_tokens generation_max_length generation_num_beams""",
    ),
    **silent("no_cost_effect", "the library that multiplies in 8 bits", "fp8_backend"),
}

_STAGES = {
    "pt": "",
    "sft": "",
    "rm": "a head of one column beside the vocabulary's, whose logits no gradient reaches, and two rows for each sample",
    "ppo": "generation, rewards and a value head in every step: roll-outs are another workload",
    "dpo": OTHER_MODELS,
    "kto": OTHER_MODELS,
}
_TYPES = ("full", "lora", "oft", "freeze")
# what is no type of its own
_METHODS = {"dora": "lora with use_dora: true, which is DoRA", "qlora": "lora with quantization_bit: 4, which is QLoRA"}
_ATTENTION = {
    **dict.fromkeys(("auto", "fa2", "fa3", "flash_attention_2", "flash_attention_3", "sdpa", "flex_attention"), "flash"),
    **dict.fromkeys(("disabled", "eager"), "eager"),
}
_WHOLE_SECTIONS = ("deepspeed", "vllm_config", "sglang_config", "kt_config", "resources_per_worker")


_PROGRAMS = ("llamafactory-cli", "lmf")
_FILES = ("train.py", "train_bash.py", "launcher.py")
_NO_START = "no command starts LLaMA-Factory: llamafactory-cli train, or train.py with --stage"


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a LLaMA-Factory YAML, or of a script that starts it. InputError for a key that there is not or a value that cannot be."""
    if len(inputs) > 2 or (len(inputs) == 2 and not inputs[1].lower().endswith(".json")):
        raise InputError("'symsim import llama-factory' reads a YAML or a launch script and, where it names one, its DeepSpeed JSON")
    if is_script(inputs[0]):
        launched = read_script(inputs[0], options.variables, _start, _NO_START)
        document, said = launched.document, {name: text for name, text in options.variables.items() if name in (*WORLD, *SAID)}
        ranks = {} if launched.world is None or world_size(options) is not None else {"world": str(launched.world)}
        options = replace(options, variables={**said, **ranks})
    else:
        known_variables(options, SAID)
        document = read_json(inputs[0]) if inputs[0].lower().endswith(".json") else read_yaml(inputs[0])
    if is_v1(document):
        return read_v1(document, inputs[1] if len(inputs) == 2 else None, options)
    keys = Keys("a LLaMA-Factory file", of_sections(document, _WHOLE_SECTIONS), _TABLE, options.lenient)
    strategy: dict[str, Any] = {"fusion": "eager"}
    assumptions: dict[str, str] = {}
    architecture = model_of(keys, "model_name_or_path", options)
    _tuned(keys, strategy, architecture)
    frozen_decoder(keys, "freeze_language_model", strategy)
    batch(keys, strategy)
    options = _by_their_sequences(keys, strategy, options)
    precision(keys, strategy)
    degrees(keys, strategy)
    _length(keys, strategy, options)
    balanced(keys, assumptions, "group_by_length")
    deterministic(keys, assumptions, "full_determinism")
    if of_megatron_core(keys):
        rows = of_megatron(keys, strategy, assumptions, architecture, options)
        return _job(keys, rows, architecture, strategy, assumptions)
    _update(keys, strategy, assumptions)
    _checkpoints(keys, strategy, assumptions, architecture)
    _kernels(keys, strategy, assumptions)
    compiled(keys, strategy, *COMPILER)
    liger_kernels(keys, "enable_liger_kernel", strategy, architecture)
    told = with_deepspeed(document, inputs[1] if len(inputs) == 2 else None, keys, strategy, assumptions, architecture, options, overlap=False)
    if told is None:
        spread(keys, options, strategy)
        replicas(keys, strategy, assumptions)
        _pure(keys, strategy)
    _stored(keys, strategy)
    narrow_gathers(keys, strategy, "fp8_enable_fsdp_float8_all_gather")
    return _job(keys, told or [], architecture, strategy, assumptions)


def _job(keys: Keys, told: Sequence[Entry], architecture: Architecture | None, strategy: dict[str, Any], assumptions: Mapping[str, str]) -> Job:
    """What is read, once what is trained of which model is said."""
    _workload(keys, strategy)
    settle(keys, strategy, architecture, "LLaMA-Factory")
    rows = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    notes = () if architecture is not None else ("no model is known by that name; --of MODEL says which",)
    return Job("llama-factory", (*rows, *told), architecture, strategy, None, assumptions, notes)


def _by_their_sequences(keys: Keys, strategy: dict[str, Any], options: "Options") -> "Options":
    """The ranks that share the sequences of a step, where a fork's files say how many these are, and nothing how many ranks run."""
    total = keys.integer("global_batch_size", None, to="dp", why="the ranks that its sequences, micro-batches and their number leave", least=1)
    each = strategy["micro_batch_size"] * strategy["num_microbatches"]
    if total is None or world_size(options) is not None:
        return options
    if total % each:
        raise keys.wrong("global_batch_size", f"a multiple of per_device_train_batch_size gradient_accumulation_steps = {each}")
    return replace(options, variables={**options.variables, "world": str(total // each)})


def _workload(keys: Keys, strategy: dict[str, Any]) -> None:
    """What is trained of which model: full training is timed and pairs with their reference, what else is asked for is said."""
    stage = keys.choice("stage", {name: name for name in _STAGES}, "sft")
    loss = keys.text("pref_loss", "sigmoid", to="reference_models") if stage == "dpo" else ""
    # a reward model there is the language model with a head of one column beside its own
    if stage != "rm" and preferred(keys, "stage", loss if loss in ("orpo", "simpo") else stage, strategy, copy=keys.has("ref_model")):
        return
    if _STAGES[stage]:
        keys.note("stage", "not_modelled", why=_STAGES[stage])


_NAMES = Names("lora_rank", "lora_dropout", "lora_target", "additional_target")


def _tuned(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Which parameters are trained: all, adapters, or the last layers."""
    given = str(keys.given["finetuning_type"].value) if keys.has("finetuning_type") else ""
    if given in _METHODS:
        raise keys.wrong("finetuning_type", _METHODS[given])
    kind = keys.choice("finetuning_type", {name: name for name in _TYPES}, "lora", to="tuner_type")
    if "finetuning_type" not in keys.given:
        keys.note("finetuning_type", "derived", "tuner_type", "lora by default")
    if kind == "lora":
        adapters(keys, strategy, architecture, _NAMES)
    if kind == "oft":
        rotated(keys, strategy, architecture, "oft_target", "module_dropout")
    if kind == "lora" and keys.flag("use_dora", False, to="use_dora"):
        strategy["use_dora"] = True
    if kind == "full" and keys.flag("use_badam", False, to="freeze_parameters"):
        _in_blocks(keys, strategy, architecture)
    if kind != "freeze":
        return
    count = keys.number("freeze_trainable_layers", 2, to="freeze_parameters", why="the last layers, or the first where it is negative, are trained")
    if architecture is None:
        for key in ("finetuning_type", "freeze_trainable_modules", "freeze_extra_modules"):
            keys.note(key, "not_modelled", why=f"of a known model alone; {FROZEN}")
        return
    trained_ends(strategy, architecture, int(count))
    trained_modules(keys, strategy, architecture, "freeze_trainable_modules", "freeze_extra_modules")


def _in_blocks(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """BAdam: a layer at a time, or a share of every parameter (train/trainer_utils.py _create_badam_optimizer)."""
    mode = keys.choice("badam_mode", {"layer": "layer", "ratio": "ratio"}, "layer", to="freeze_parameters")
    stays = keys.choice("badam_switch_mode", {name: name for name in ("ascending", "descending", "random", "fixed")}, "ascending") == "fixed"
    start = keys.integer("badam_start_block", None)
    share = keys.number("badam_update_ratio", 0.05)
    if mode == "layer":
        one_layer(keys, "use_badam", strategy, architecture, (start or 0) if stays else None)
    else:
        why = f"gradients of all parameters, and main ones and moments of a share of {share:g}: up to 12 bytes less of every other one"
        keys.note("badam_mode", "not_modelled", "exp_avg_dtype", why)


def _stored(keys: Keys, strategy: dict[str, Any]) -> None:
    """Base weights in few bits, quantised as they are loaded (model/model_utils/quantization.py)."""
    bits = keys.integer("quantization_bit", None, to="quantize_base")
    if bits is None:
        return
    method = str(keys.text("quantization_method", "bnb", to="quantize_base")).casefold()
    double = keys.flag("double_quantization", True, to="quantize_base")
    kind = keys.choice("quantization_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    if method not in ("bnb", "bitsandbytes") or bits not in (4, 8):
        keys.note("quantization_bit", "not_modelled", "quantize_base", QUANTISED)
        return
    stored_base(keys, strategy, "int8" if bits == 8 else four_bits(kind, double), "quantization_bit")


def _length(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    strategy["seq_length"] = keys.integer("cutoff_len", 2048, to="seq_length", least=1)
    if "cutoff_len" not in keys.given:
        keys.note("cutoff_len", "derived", "seq_length", "2048 by default")
    if "stage" in keys.given and str(keys.given["stage"].value) == "ppo":
        # prompts are cut, and what the model answers stands behind them (train/ppo/trainer.py get_inputs, hparams/generating_args.py)
        answer = keys.integer("max_new_tokens", 1024, to="seq_length", least=-1, why="of prompt and answer")
        strategy["seq_length"] += max(answer, 0)
        if "max_new_tokens" not in keys.given:
            keys.note("max_new_tokens", "derived", "seq_length", "1024 by default, of prompt and answer")
    apart = keys.flag("neat_packing", False)
    packed = keys.flag("packing", None, to="seq_length", why="rows of cutoff_len, filled with samples")
    said = documents_said(options, strategy)
    if apart:
        packed_rows(keys, "neat_packing", said)
    elif not packed:
        padded_rows(keys, "packing", said, strategy)


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    update(keys, strategy, assumptions)
    named = {"use_muon": "muon", "use_galore": "galore_adamw", "use_apollo": "apollo_adamw", "use_adam_mini": "adam_mini"}
    for key, name in named.items():
        if keys.flag(key, False):
            OPTIMIZERS[name].apply(keys, key, strategy, assumptions)
    for kind in ("galore", "apollo"):
        rank = keys.integer(f"{kind}_rank", 16, to="optimizer_rank", least=1)
        layerwise = keys.flag(f"{kind}_layerwise", False)
        if strategy["optimizer"] == kind:
            strategy["optimizer_rank"] = rank
            if layerwise:
                OPTIMIZERS[f"{kind}_adamw_layerwise"].apply(keys, f"{kind}_layerwise", strategy, assumptions)
        elif keys.has(f"{kind}_rank"):
            keys.note(f"{kind}_rank", "no_cost_effect", why=f"read with use_{kind} alone")


def _checkpoints(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: Architecture | None) -> None:
    """Every layer is a checkpoint unless that is switched off; the Trainer's own switch is not read."""
    off = keys.flag("disable_gradient_checkpointing", False, to="recompute")
    reentrant = keys.flag("use_reentrant_gc", True, to="assume.recompute_early_stop")
    if keys.flag("gradient_checkpointing", None) is not None:
        keys.note("gradient_checkpointing", "no_cost_effect", why="not read: disable_gradient_checkpointing decides")
    if off:
        return
    strategy["recompute"] = "full"
    assumptions["recompute_early_stop"] = "false" if reentrant else "true"
    if keys.flag("use_unsloth_gc", False):
        checkpoints_on_host(keys, "use_unsloth_gc", strategy, architecture)
    if "disable_gradient_checkpointing" not in keys.given:
        keys.note("disable_gradient_checkpointing", "derived", "recompute", "every layer runs again by default")


def _kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    if keys.choice("flash_attn", _ATTENTION, "flash", to="assume.attention_kernel") == "eager":
        assumptions["attention_kernel"] = "eager"
    if keys.flag("fp8", False):
        strategy |= {"fp8": "tensorwise", "fusion": "te"}
        keys.note("fp8", to="fp8, fusion", why="products in 8 bits are te's kernels here, with the weights' copies that it keeps")
    cp = keys.integer("hyper_parallel_cp_size", 1, to="cp", least=1)
    if keys.flag("use_hyper_parallel", False, to="cp") and cp > 1:
        strategy["cp"] = cp
    elif cp > 1:
        keys.note("hyper_parallel_cp_size", "no_cost_effect", why="read with use_hyper_parallel alone")


def _pure(keys: Keys, strategy: dict[str, Any]) -> None:
    """Without DeepSpeed weights are fp32 and cast, or bf16 as pure_bf16 says."""
    if keys.flag("use_badam", False):
        return  # weights stay in their type, and the layer's fp32 copy is updated
    if keys.flag("pure_bf16", False, to="main_params_dtype"):
        strategy |= {"precision": "bf16", "main_params_dtype": "bf16", "grad_reduce_in_fp32": False}
    else:
        autocast(keys, strategy)


def _start(command: Command) -> int | None:
    """Where the arguments of a training begin."""
    names = [word.text.rpartition("/")[2] for word in command.words]
    for at, name in enumerate(names):
        if name in _PROGRAMS and names[at + 1 : at + 2] == ["train"]:
            return at + 2
        if name in _FILES and any(word.text == "--stage" for word in command.words[at:]):
            return at + 1
    return None
