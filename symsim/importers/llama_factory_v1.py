"""The YAML of LLaMA-Factory's second trainer (`v1`), whose sections are plug-ins with a name each.

LLaMA-Factory ff6d4d12e (2026-08-18), src/llamafactory/v1: config/*.py, core/base_trainer.py, core/model_engine.py, core/utils/batching.py,
plugins/model_plugins/peft.py, quantization.py, kernels/interface.py, plugins/trainer_plugins/distributed/fsdp2.py, fsdpturbo.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, nearest
from symsim.importers.adapted import Names, adapters, four_bits, stored_base, trained_ends, trained_modules
from symsim.importers.assumed import deterministic
from symsim.importers.documents import LONGEST, SAID, documents_said, free_rows
from symsim.importers.fsdp import HOST_PARAMETERS, host_states
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys, Silent, silent
from symsim.importers.losses import FUSED, liger_loss
from symsim.importers.optimizers import OPTIMIZERS
from symsim.importers.preferences import preferred
from symsim.importers.presets import with_deepspeed
from symsim.importers.ranks import known_variables, spread
from symsim.importers.rules import settle
from symsim.importers.sections import of_sections
from symsim.importers.weights import model_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.reading import Document

if TYPE_CHECKING:
    from symsim.importers.reading import Options

MARKS = ("model", "model_class", "dist_config", "peft_config", "kernel_config", "init_config", "optim_config", "train_dataset", "sample_backend")
_TABLE: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        "of the run: paths, checkpoints, logs and its length",
        """output_dir resume_from_checkpoint save_steps save_epochs save_ckpt_as_hf save_total_limit logging_steps num_train_epochs max_steps
        dist_timeout seed custom_chat_template trust_remote_code report_to dist_config.dcp_path""",
    ),
    **silent("no_cost_effect", "of the run: which data are read", "train_dataset eval_dataset batching_workers"),
    **silent("no_cost_effect", "the learning rate, not the work", "learning_rate lr_scheduler_config"),
    **silent(
        "no_cost_effect",
        "a number of the update or the loss, not its cost",
        """optim_config.lr optim_config.wd optim_config.momentum optim_config.nesterov optim_config.adamw_betas optim_config.adamw_eps
        optim_config.betas optim_config.eps pref_beta simpo_gamma dpo_label_smoothing ld_alpha peft_config.lora_alpha peft_config.use_rslora""",
    ),
    **silent("no_cost_effect", "generation is another workload", "sample_backend max_new_tokens"),
    **silent("no_cost_effect", "how weights come into memory, before the steps", "init_config init_config.name"),
    **silent("no_cost_effect", "pinned or pageable memory of what is on the host", "dist_config.pin_memory"),
    **silent(
        "no_cost_effect",
        "what adapters begin as, and what is written of them",
        """peft_config.adapter_name_or_path peft_config.export_dir peft_config.export_size peft_config.export_hub_model_id
        peft_config.infer_dtype peft_config.export_legacy_format""",
    ),
    **silent("no_cost_effect", "how experts' tokens are exchanged: by all-to-all", "dist_config.ep_dispatcher"),
    **silent("not_modelled", "the loss of what was chosen on top: a pass over its logits", "pref_ftx", (0, 0.0)),
    **silent("no_cost_effect", "tokens of a chunk inside a kernel", "kernel_config.chunk_size kernel_config.include_kernels"),
    **silent("not_modelled", "orthogonalisation in more or fewer rounds than five: products of every matrix", "optim_config.ns_steps", (5,)),
    **silent("no_cost_effect", "a plug-in that is left out", "peft_config kernel_config quant_config dist_config optim_config"),
}
# given keys of a plug-in that is not the one named
_OTHERS = """
    peft_config.r peft_config.lora_dropout peft_config.target_modules peft_config.modules_to_save peft_config.use_dora
    peft_config.freeze_trainable_layers peft_config.freeze_trainable_modules peft_config.freeze_extra_modules
    peft_config.cast_trainable_params_to_fp32 quant_config.quantization_bit quant_config.double_quantization quant_config.quantization_type
    dist_config.ep_size dist_config.reshard_after_forward dist_config.offload_params dist_config.config_file
    """.split()
_NAMES = Names("peft_config.r", "peft_config.lora_dropout", "peft_config.target_modules", "peft_config.modules_to_save", default_dropout=0.05)
_ATTENTION = {"eager": "eager", **dict.fromkeys(("sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"), "flash")}
_KERNELS: tuple[str, ...] = ("auto", "liger_kernel", "cuda_fused_moe", "flash-linear-attention", "npu_fused_moe")
_KERNELS += ("npu_fused_swiglu", "npu_fused_rmsnorm", "npu_fused_rope")
_BATCHING = ("normal", "padding_free", "dynamic_batching", "dynamic_padding_free")


def is_v1(document: Document) -> bool:
    """Whether the file is one of v1: none of the first trainer's names is its own."""
    return "model_name_or_path" not in document.data and any(mark in document.data for mark in MARKS)


def read_v1(document: Document, beside: str | None, options: "Options") -> Job:
    """The job of a YAML of v1, with the DeepSpeed JSON that it names. InputError for a key that there is not or a value that cannot be."""
    known_variables(options, SAID)
    keys = Keys("a LLaMA-Factory v1 file", of_sections(document, ("lr_scheduler_config",)), _TABLE, options.lenient)
    keys.known.update(_OTHERS)
    strategy: dict[str, Any] = {"fusion": "eager", "precision": "bf16" if keys.flag("bf16", True, to="precision") else "fp32"}
    assumptions: dict[str, str] = {}
    architecture = model_of(keys, "model", options)
    strategy["micro_batch_size"] = keys.integer("micro_batch_size", 1, to="micro_batch_size", least=1)
    strategy["seq_length"] = keys.integer("cutoff_len", 2048, to="seq_length", least=1)
    strategy["clip_grad"] = keys.number("max_grad_norm", 1.0, to="clip_grad")
    _heads(keys)
    _tuned(keys, strategy, architecture)
    _context(keys, strategy)
    _kernels(keys, strategy, assumptions, architecture)
    deterministic(keys, assumptions, "full_determinism")
    spread(keys, options, strategy, *_degrees(keys, strategy))
    _batch(keys, strategy, options)
    told = _distributed(keys, strategy, assumptions, architecture, options, document, beside)
    _update(keys, strategy, assumptions)
    _stored(keys, strategy)
    if any(keys.has(key) for key in ("pref_loss", "pref_beta")):
        keys.known.add("pref_loss")
        loss = keys.text("pref_loss", "sigmoid", to="reference_models")
        preferred(keys, "pref_loss", loss if loss in ("orpo", "simpo") else "dpo", strategy)
    settle(keys, strategy, architecture, "LLaMA-Factory")
    rows = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    notes = () if architecture is not None else ("no model is known by that name; --of MODEL says which",)
    return Job("llama-factory", (*rows, *told), architecture, strategy, None, assumptions, notes)


def _heads(keys: Keys) -> None:
    kind = keys.choice("model_class", {name: name for name in ("llm", "cls", "other")}, "llm")
    if kind == "llm":
        keys.note("model_class", "no_cost_effect", why="a decoder with its output layer")
    else:
        keys.note("model_class", "not_modelled", why="another head than the vocabulary's: products and logits of the output layer less")


def _tuned(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Which parameters are trained: all, adapters, or the last layers."""
    kind = keys.choice("peft_config.name", {"lora": "lora", "freeze": "freeze"}, None, to="tuner_type")
    if kind == "lora":
        adapters(keys, strategy, architecture, _NAMES)
        if keys.flag("peft_config.use_dora", False, to="use_dora"):
            strategy["use_dora"] = True
    if kind == "freeze":
        count = keys.number("peft_config.freeze_trainable_layers", 2, to="freeze_parameters", why="the last layers are trained")
        keys.flag("peft_config.cast_trainable_params_to_fp32", True, to="main_params_dtype")
        if architecture is None:
            keys.note("peft_config.name", "not_modelled", why="of a known model alone: all parameters are trained here")
        else:
            trained_ends(strategy, architecture, int(count))
            trained_modules(keys, strategy, architecture, "peft_config.freeze_trainable_modules", "peft_config.freeze_extra_modules")
            keys.note("peft_config.name", to="freeze_parameters, trainable_parameters")


def _context(keys: Keys, strategy: dict[str, Any]) -> None:
    cp = keys.integer("cp_size", 1, to="cp", least=1)
    keys.choice("cp_mode", {"ulysses": "a2a"}, "a2a", to="cp_comm_type")
    if cp > 1:
        strategy |= {"cp": cp, "cp_comm_type": "a2a"}
    elif keys.has("cp_mode"):
        keys.note("cp_mode", "no_cost_effect", why="there is no context parallelism")


def _degrees(keys: Keys, strategy: dict[str, Any]) -> tuple[int | None, str]:
    """The ranks that the file tells, and by what; HSDP's replicas and ep."""
    dp = keys.integer("dp_size", None, to="dp", least=1)
    replicas = keys.integer("mp_replicate_size", 1, to="num_distributed_optimizer_instances", least=1)
    shards = keys.integer("mp_shard_size", None, to="dp", least=1)
    if replicas > 1:
        strategy["num_distributed_optimizer_instances"] = replicas
    ep = keys.integer("dist_config.ep_size", 1, to="ep", least=1)
    if keys.has("dist_config.name") and keys.given["dist_config.name"].value == "fsdpturbo":
        if ep > 1:
            strategy["ep"] = ep
    elif "dist_config.ep_size" in keys.given:
        keys.note("dist_config.ep_size", "no_cost_effect", why="only fsdpturbo reads it")
    if dp is not None:
        return dp * int(strategy.get("cp", 1)), "dp_size"
    return (replicas * shards, "mp_replicate_size and mp_shard_size") if shards is not None else (None, "")


def _batch(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    total = keys.integer("global_batch_size", None, to="num_microbatches", least=1)
    rows = strategy["micro_batch_size"] * strategy["dp"]
    if total is not None and total % rows:
        raise keys.wrong("global_batch_size", f"a multiple of {rows}: micro_batch_size {strategy['micro_batch_size']} on {strategy['dp']} ranks")
    strategy["num_microbatches"] = (total or rows) // rows
    kind = keys.choice("batching_strategy", {name: name for name in _BATCHING}, "normal")
    said = documents_said(options, strategy)
    if kind == "normal":
        keys.note("batching_strategy", "derived", "seq_length", LONGEST)
    else:
        free_rows(keys, "batching_strategy", said, strategy)


def _kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: Architecture | None) -> None:
    if keys.choice("flash_attn", _ATTENTION, "flash", to="assume.attention_kernel") == "eager":
        assumptions["attention_kernel"] = "eager"
    if keys.flag("enable_activation_checkpointing", True, to="recompute"):
        strategy["recompute"] = "full"
        if not keys.has("enable_activation_checkpointing"):
            keys.note("enable_activation_checkpointing", "derived", "recompute", "every layer runs again by default")
    named = [name.strip() for name in str(keys.text("kernel_config.name", "")).split(",") if name.strip()]
    strange = [name for name in named if name not in _KERNELS]
    if strange:
        raise keys.wrong("kernel_config.name", f"names of kernels ({nearest(strange[0], list(_KERNELS))})")
    if "liger_kernel" in named:
        liger_loss(strategy, architecture)
        strategy["fused_kernels"] = list(FUSED)
        keys.note("kernel_config.name", to="cross_entropy_fusion, fused_kernels")
    elif "cuda_fused_moe" in named:
        keys.note("kernel_config.name", "not_modelled", why="one product for all experts of a rank: fewer and larger kernels than one an expert")
    elif named:
        keys.note("kernel_config.name", "no_cost_effect", why="on NVIDIA's accelerators auto replaces nothing")


def _distributed(
    keys: Keys,
    strategy: dict[str, Any],
    assumptions: dict[str, str],
    architecture: Architecture | None,
    options: "Options",
    document: Document,
    beside: str | None,
) -> list[Entry]:
    """Shards of FSDP2 or DeepSpeed; rows of a DeepSpeed JSON."""
    kind = keys.choice("dist_config.name", {name: name for name in ("fsdp2", "fsdpturbo", "deepspeed")}, None, to="zero")
    if kind == "deepspeed":
        file = keys.text("dist_config.config_file", "", to="zero")
        keys.given = {**keys.given, "deepspeed": Given(file, keys.place("dist_config.config_file"))}
        asked = Document({**document.data, "deepspeed": file}, document.where, document.lines)
        told = with_deepspeed(asked, beside, keys, strategy, assumptions, architecture, options, overlap=False) or []
        return [row for row in told if row.key != "world"]
    if beside is not None:
        raise InputError(f"{document.where} names no DeepSpeed JSON, and {beside} is given")
    # trained weights are fp32, or as adapters' libraries make them; gradients are reduced in fp32 either way
    strategy |= {"zero": 0 if kind is None else 3, "grad_reduce_in_fp32": True}
    if kind is None:
        strategy["overlap_grad_reduce"] = True
        keys.note("dist_config.name", "derived", "zero, overlap_grad_reduce", "replicas that reduce buckets beside backward (DDP)")
        return []
    assumptions["fsdp_parameters"] = "main"
    if not keys.flag("dist_config.reshard_after_forward", True, to="reshard_after_forward"):
        strategy["reshard_after_forward"] = False
    if keys.flag("dist_config.offload_params", False, to="offload_parameters, optimizer_cpu_offload", why=HOST_PARAMETERS):
        strategy |= {**host_states(strategy["precision"]), "offload_parameters": True, "offload_gradients": True, "host_update": "torch"}
    return []


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    name = keys.choice("optim_config.name", {"muon": "muon"}, None, to="optimizer")
    OPTIMIZERS[name or "adamw_torch"].apply(keys, "optim_config.name", strategy, assumptions)
    if name is None:
        keys.note("optim_config.name", "derived", "optimizer", "torch.optim.AdamW, which goes through all tensors at once")


def _stored(keys: Keys, strategy: dict[str, Any]) -> None:
    """Base weights in few bits, as bitsandbytes has them."""
    kind = keys.choice("quant_config.name", {"auto": "bnb", "bnb": "bnb"}, None, to="quantize_base")
    bits = keys.integer("quant_config.quantization_bit", 4 if kind else None, to="quantize_base")
    double = keys.flag("quant_config.double_quantization", True, to="quantize_base")
    layout = keys.choice("quant_config.quantization_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    if kind is not None and bits not in (4, 8):
        raise keys.wrong("quant_config.quantization_bit", "4 or 8")
    if kind is not None:
        stored_base(keys, strategy, "int8" if bits == 8 else four_bits(layout, double), "quant_config.name")
