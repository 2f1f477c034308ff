"""Arguments of the Hugging Face Trainer: what each is to a step, and the table of those that no formula reads.

Names and defaults: TrainingArguments of transformers 4.50.3 (132) and 5.23 (114, of which 15 are new), training_args.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.errors import nearest
from symsim.importers.assumed import deterministic
from symsim.importers.compiled import compiled
from symsim.importers.fsdp import sharded, silent_names
from symsim.importers.keys import Entry, Keys, Silent, silent
from symsim.importers.losses import liger_kernels
from symsim.importers.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

LOGS = "logs, and where they go"
RATES = "learning rates and other numbers of the update, which cost the same at any value"
PATHS = "names, paths and files of the run"
DATA = "which samples are read, in which order"
RNG = "random numbers"
HUB = "uploads to a hub, beside the training"
DEVICE = "which device or launcher is used"
SAVING = "checkpoints belong to the run: bytes of weights and states over the storage's bandwidth, between steps"
EVALUATION = "evaluation belongs to the run: forwards between steps"
LENGTH = "the length of the run: so many steps of the time given here"
LOADING = "how samples reach the device bounds a step from below, where workers are slower than it"
LENGTHS = "the lengths of samples and their order: ranks with short rows wait for those with long ones; every row is timed at seq_length"
FUSED = (
    "fused norms, activations and a loss in chunks: less by up to 12 bytes a logit at the peak and by about 10 % of a step's time; "
    "the modules run op by op here"
)
SYNCHRONISED = "the device waits for the host once in so many steps: below 1 % of a step"
DDP = "read by DDP, which shards nothing"
COMPILER = ("torch_compile", "torch_compile_backend", "torch_compile_mode", "torchdynamo")
OTHER_MODELS = "a reference or reward model's forward on top, 1/3 of a step's FLOPs each and its weights; and two rows for each sample of a pair"
OTHER_RUN = "read by another accelerator's or an older runner"

TRAINER: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        PATHS,
        """output_dir overwrite_output_dir run_name project trackio_space_id trackio_bucket_id trackio_static_space_id logging_dir
        resume_from_checkpoint save_safetensors enable_jit_checkpoint""",
    ),
    **silent(
        "no_cost_effect",
        RATES,
        """learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon lr_scheduler_type lr_scheduler_kwargs warmup_ratio warmup_steps
        label_smoothing_factor neftune_noise_alpha""",
    ),
    **silent(
        "no_cost_effect",
        LOGS,
        """log_level log_level_replica log_on_each_node logging_strategy logging_first_step logging_steps logging_nan_inf_filter disable_tqdm
        report_to""",
    ),
    **silent("no_cost_effect", RNG, "seed data_seed"),
    **silent(
        "no_cost_effect",
        HUB,
        """push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_always_push hub_revision push_to_hub_model_id
        push_to_hub_organization push_to_hub_token""",
    ),
    **silent("no_cost_effect", DATA, "remove_unused_columns label_names length_column_name ignore_data_skip dataloader_in_order"),
    **silent("no_cost_effect", DEVICE, "no_cuda use_cpu use_mps_device local_rank ray_scope ddp_timeout ddp_backend"),
    **silent("no_cost_effect", OTHER_RUN, "tpu_num_cores tpu_metrics_debug use_ipex use_legacy_prediction_loop past_index mp_parameters debug"),
    **silent("no_cost_effect", LENGTH, "max_steps num_train_epochs"),
    **silent("no_cost_effect", "inside a step only where the model has unused parameters", "ddp_find_unused_parameters ddp_static_graph"),
    **silent("no_cost_effect", "buffers of a decoder: rotary frequencies, some kB", "ddp_broadcast_buffers"),
    **silent("no_cost_effect", "a cache of keys and values is for generation", "use_cache"),
    **silent(
        "no_cost_effect",
        EVALUATION,
        """do_train do_predict prediction_loss_only eval_delay eval_do_concat_batches include_inputs_for_metrics include_for_metrics
        batch_eval_metrics eval_use_gather_object bf16_full_eval fp16_full_eval jit_mode_eval load_best_model_at_end metric_for_best_model
        greater_is_better""",
    ),
    **silent(
        "not_modelled",
        EVALUATION,
        """do_eval eval_steps eval_strategy evaluation_strategy per_device_eval_batch_size per_gpu_eval_batch_size eval_accumulation_steps
        eval_on_start""",
        ("no",),
    ),
    **silent("not_modelled", SAVING, "save_strategy save_steps save_only_model", ("no",)),
    **silent("no_cost_effect", SAVING, "save_total_limit save_on_each_node restore_callback_states_from_checkpoint"),
    **silent(
        "not_modelled",
        LOADING,
        """dataloader_num_workers dataloader_prefetch_factor dataloader_pin_memory dataloader_persistent_workers dispatch_batches
        split_batches dataloader_multiprocessing_context""",
    ),
    **silent("not_modelled", LENGTHS, "group_by_length train_sampling_strategy", ("random", "sequential")),
    **silent("no_cost_effect", "the last, smaller step of an epoch", "dataloader_drop_last"),
    **silent("not_modelled", SYNCHRONISED, "torch_empty_cache_steps include_tokens_per_second include_num_input_tokens_seen"),
    **silent("no_cost_effect", "memory is measured around the training, where it is not skipped", "skip_memory_metrics"),
    **silent("not_modelled", FUSED, "use_liger_kernel"),
    **silent("no_cost_effect", "which of Liger's kernels replace a model's: all of them, or a few", "liger_kernel_config"),
    **silent("no_cost_effect", DDP, "ddp_bucket_cap_mb"),
    **silent("not_modelled", "one number summed over ranks a step: tens of microseconds", "average_tokens_across_devices"),
    **silent("not_modelled", "arguments of an optimizer besides its rates: other states, where it reads one for them", "optim_args"),
    **silent("not_modelled", "which matrices an optimizer projects or leaves out: states of those alone", "optim_target_modules"),
    **silent("refused", "a run tries which micro-batch fits; give false, and the size that it found", "auto_find_batch_size"),
    **silent("no_cost_effect", "fp32 products of bf16 or fp16 training: the loss's alone", "tf32"),
    **silent("no_cost_effect", "which library casts; the same types", "fp16_opt_level half_precision_backend fp16_backend"),
    **silent("no_cost_effect", "units that FSDP gathers: layers here", "fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap"),
    **silent("no_cost_effect", "arguments of a launcher's own accelerator; its batches and data as above", "accelerator_config"),
    **silent("no_cost_effect", "the kernels are those of no option named here", "gradient_checkpointing_kwargs activation_checkpointing_kwargs"),
    **silent("no_cost_effect", "a section, or the name of a file with it", "fsdp_config parallelism_config"),
    **silent("no_cost_effect", "the name of a DeepSpeed JSON: `symsim import deepspeed` reads it beside these arguments", "deepspeed"),
    **silent_names("fsdp_config"),
}


def batch(keys: Keys, strategy: dict[str, Any]) -> None:
    """micro_batch_size and num_microbatches; 8 and 1 by default."""
    each = None
    for key in ("per_gpu_train_batch_size", "per_device_train_batch_size"):
        each = keys.integer(key, each, to="micro_batch_size", least=1)
    if each is None:
        keys.note("per_device_train_batch_size", "derived", "micro_batch_size", "8 by default")
    strategy["micro_batch_size"] = each or 8
    many = keys.integer("gradient_accumulation_steps", to="num_microbatches", least=1)
    strategy["num_microbatches"] = many or 1


def precision(keys: Keys, strategy: dict[str, Any]) -> None:
    """The type that products run in: bf16 or fp16 where one is set, else fp32."""
    bf16 = keys.flag("bf16", False, to="precision")
    fp16 = keys.flag("fp16", False, to="precision")
    if bf16 and fp16:
        raise keys.wrong("fp16", "left out beside bf16: the Trainer runs in one of them")
    strategy["precision"] = "bf16" if bf16 else "fp16" if fp16 else "fp32"
    if not (bf16 or fp16):
        keys.note("bf16", "derived", "precision", "fp32, since neither bf16 nor fp16 is set")


# of transformers where PyTorch is 2.8 or later (training_args.py); adamw_torch before
NEWEST, BEFORE = "adamw_torch_fused", "adamw_torch"


def update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], key: str = "optim", default: str = NEWEST) -> None:
    """The optimizer, its states' types, and clipping. InputError for a name that no trainer has."""
    if keys.flag("adafactor", False, to="optimizer"):
        OPTIMIZERS["adafactor"].apply(keys, "adafactor", strategy, assumptions)
    elif not keys.has(key):
        OPTIMIZERS[default].apply(keys, key, strategy, assumptions)
        why = f"{BEFORE} with PyTorch before 2.8" if default == NEWEST else OPTIMIZERS[default].why
        keys.note(key, "derived", "optimizer", f"{default} by default; {why}")
    else:
        name = str(keys.text(key)).casefold()
        if name not in OPTIMIZERS:
            raise keys.wrong(key, f"an optimizer of the Trainer ({nearest(name, list(OPTIMIZERS))})")
        OPTIMIZERS[name].apply(keys, key, strategy, assumptions)
        embeds = strategy.get("tuner_type", "full") == "full" or "embedding" in (strategy.get("modules_to_save") or ())
        if embeds and OPTIMIZERS[name].in_blocks:
            strategy["fp32_embedding_moments"] = True
            why = "; ".join(filter(None, (OPTIMIZERS[name].why, "moments of nn.Embedding in 32 bits (trainer.py create_optimizer)")))
            keys.note(key, OPTIMIZERS[name].fate, "optimizer, fp32_embedding_moments", why)
    # the Trainer, and open-instruct, clip above 0 alone
    strategy["clip_grad"] = max(0.0, keys.number("max_grad_norm", 1.0, to="clip_grad"))


def recomputation(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], default: bool = False) -> None:
    """Checkpoints of every decoder layer; a reentrant one runs the whole layer again, the other stops at what backward needs."""
    keys.known |= {"gradient_checkpointing", "activation_checkpointing"}
    found = default
    for key in ("gradient_checkpointing", "activation_checkpointing"):
        found = keys.flag(key, found, to="recompute")
    if found:
        strategy["recompute"] = "full"
    for section in ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"):
        again = keys.flag(f"{section}.use_reentrant", to="assume.recompute_early_stop")
        if found and again is not None:
            assumptions["recompute_early_stop"] = "false" if again else "true"


def checkpoints_on_host(keys: Keys, key: str, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """The inputs of checkpoints wait on the host, or all that layers save; but that of the last layer, which backward needs at once."""
    if architecture is None or architecture.num_layers < 2:
        keys.note(key, "not_modelled", "recompute", "checkpoints wait on the host: 2 bytes a hidden state off the device, and as many each way")
        return
    strategy["cpu_offloading_num_layers"] = architecture.num_layers - 1
    if strategy.get("recompute") == "full":
        keys.note(key, to="recompute, cpu_offloading_num_layers", why="the inputs of all layers but the last wait on the host")
    else:
        keys.note(key, to="cpu_offloading_num_layers", why="what all layers but the last save waits on the host")


def groups_on_host(keys: Keys, key: str, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """What units of FSDP save waits on the host, while the next one is computed (verl/utils/activation_offload.py, of which ms-swift has a copy)."""
    if not keys.flag(key, False):
        return
    if architecture is not None and architecture.num_layers < 3:
        keys.note(key, "no_cost_effect", why="fewer than three layers stay where they are")
    else:
        checkpoints_on_host(keys, key, strategy, architecture)


def replicas(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Data parallelism without DeepSpeed: FSDP where it is asked for, else DDP, which reduces buckets beside backward."""
    if sharded(keys, strategy, assumptions):
        # accelerate's policy gathers and reduces in the type that products run in
        strategy["grad_reduce_in_fp32"] = strategy.get("precision") == "fp32"
        return
    strategy |= {"zero": 0, "overlap_grad_reduce": True, "grad_reduce_in_fp32": True}
    keys.note("fsdp", "derived", "zero, overlap_grad_reduce", "replicas that reduce buckets beside backward (DDP), where nothing shards them")
    buckets(keys, strategy, "ddp_bucket_cap_mb")


def autocast(keys: Keys, strategy: dict[str, Any], what: str = "trained parameters") -> None:
    """Products in another type than the fp32 parameters of replicas, which torch.autocast casts for them; where kernels' types under it are not
    known, a row says what is left out."""
    if strategy.get("precision", "bf16") == "fp32" or strategy.get("zero", 0) != 0 or "main_params_dtype" in strategy:
        return
    whole = strategy.get("tuner_type", "full") == "full" or bool(strategy.get("modules_to_save"))
    fused = whole and strategy.get("cross_entropy_fusion", "unfused") not in ("unfused", "native", "te")
    apart = "DoRA's magnitudes" if strategy.get("use_dora") else "rotations" if strategy.get("tuner_type") == "oft" else ""
    lost = "other kernels" if strategy.get("fusion") != "eager" or fused else apart
    if lost:
        why = f"{what} are fp32 and cast for products, which {lost} have here in the type of products: 6 bytes of HBM a parameter and micro-batch"
        if lost == "rotations":  # peft tuners/oft/layer.py: into fp32, as autocast has it, and back, in front of the rotation and behind it
            why += ", and 24 an element of what goes into a rotated map, forward and again backward"
        keys.rows["autocast"] = Entry("autocast", "(default)", "not_modelled", "autocast", why)
        return
    strategy |= {"autocast": True, "grad_reduce_in_fp32": True}
    keys.rows["autocast"] = Entry("autocast", "(default)", "derived", "autocast", f"{what} are fp32 and cast for products (torch.autocast)")


def buckets(keys: Keys, strategy: dict[str, Any], key: str, width: int = 4) -> None:
    """DDP's buckets, in MiB of gradients of `width` bytes (torch.nn.parallel.DistributedDataParallel bucket_cap_mb)."""
    size = keys.number(key, to="ddp_bucket_size", why="MiB of gradients")
    if size is not None:
        if not 0 < size <= 2**40:
            raise keys.wrong(key, "a number of MiB above 0")
        strategy["ddp_bucket_size"] = max(1, int(size * 2**20 / width))


def tensor_parallel(keys: Keys, strategy: dict[str, Any]) -> None:
    """tp of transformers 4.50 (tp_size), and the degrees of parallelism_config since 5.0."""
    tp = keys.integer("tp_size", 0, to="tp")
    for key, option in (("tp_size", "tp"), ("cp_size", "cp"), ("sp_size", "cp")):
        degree = keys.integer(f"parallelism_config.{key}", 0, to=option)
        if degree > 1:
            strategy[option] = degree
            if key == "sp_size":
                strategy["cp_comm_type"] = "a2a"
    if tp > 1:
        strategy["tp"] = tp


def read_trainer(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """All that TrainingArguments says of a step, in symsim's options and assumptions. Modules run op by op, or compiled."""
    strategy["fusion"] = "eager"
    compiled(keys, strategy, *COMPILER)
    deterministic(keys, assumptions, "full_determinism")
    batch(keys, strategy)
    precision(keys, strategy)
    tensor_parallel(keys, strategy)
    update(keys, strategy, assumptions)
    liger_kernels(keys, "use_liger_kernel", strategy, None)
    recomputation(keys, strategy, assumptions)
