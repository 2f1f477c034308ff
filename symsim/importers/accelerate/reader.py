"""An Accelerate config file, alone or with the Hugging Face Trainer's arguments and a DeepSpeed JSON, or a script that starts the Trainer.

What its keys do: accelerate 16cb6eb8 (2026-07-24), commands/launch.py, utils/launch.py, accelerator.py, utils/dataclasses.py
DeepSpeedPlugin, MegatronLMPlugin; parallelism_config.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.accelerate.script import Started, of_script
from symsim.importers.accelerate.tables import MEGATRON, SILENT
from symsim.importers.deepspeed.reader import attention, configured, lengths, settings_of
from symsim.importers.deepspeed.tables import SCRIPT
from symsim.importers.fsdp import narrow_gathers, sharded
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys
from symsim.importers.ranks import known_variables, spread, variable, world_size
from symsim.importers.rules import settle
from symsim.importers.scripts import UNREAD_SECTIONS, as_called, behind_ranks, respelt, tuned
from symsim.importers.sections import of_sections
from symsim.importers.trainer import TRAINER, autocast, buckets, read_trainer, replicas
from symsim.importers.weights import model_of
from symsim.inputs.reading import Document, read_json, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
_REPLICAS = ("NO", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_SDAA", "MULTI_XPU", "MULTI_HPU")
_KINDS = (*_REPLICAS, "FSDP", "DEEPSPEED", "MEGATRON_LM")
_DEGREES = "parallelism_config.parallelism_config_"
_COMPILERS = ("NO", "no", "EAGER", "eager", "")


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of an Accelerate file. InputError for a key that there is not or a value that cannot be."""
    started = of_script(inputs, options)
    options = options if started is None else started.options
    known_variables(options, ("seq_length", "packed_document_length", "micro_batch_size", "num_microbatches"))
    launch, settings, arguments = _sorted(inputs if started is None else started.rest, started)
    given = of_sections(launch, ("tpu_env", "tpu_vm", "commands", "additional_args"))
    keys = Keys("an Accelerate file", given, SILENT, options.lenient)
    found, called = respelt(of_sections(arguments, UNREAD_SECTIONS) if arguments is not None else {})
    trainer = Keys("the Trainer's arguments", found, {**TRAINER, **SCRIPT}, options.lenient)
    strategy: dict[str, Any] = {}
    assumptions: dict[str, str] = {}
    read_trainer(trainer, strategy, assumptions)
    architecture = model_of(trainer, "model_name_or_path", options)
    lengths(trainer, options, strategy)
    tuned(trainer, strategy, architecture)
    _batch(trainer, options, strategy)
    attention(trainer, assumptions)
    _precision(keys, trainer, strategy)
    kind = keys.choice("distributed_type", {name: name for name in _KINDS}, "NO", to="zero, dp")
    ranked = _ranks(keys, options, kind)
    told: list[Entry] = []
    if "deepspeed" in found and arguments is not None:
        # the Trainer's own goes before the launcher's
        kind, settings = "DEEPSPEED", settings or settings_of(arguments)
        if settings is None:
            raise trainer.wrong("deepspeed", "a file that is here; give it behind the others")
    if kind == "DEEPSPEED":
        told = _deepspeed(launch, settings, keys, trainer, strategy, assumptions, architecture, ranked)
    elif kind == "MEGATRON_LM":
        _megatron(keys, strategy, assumptions, ranked)
    elif started is not None and started.launch is None:
        spread(keys, ranked, strategy)
        replicas(trainer, strategy, assumptions)
        if strategy["zero"] == 0:
            autocast(trainer, strategy)
    else:
        _mesh(keys, strategy, ranked)
        _replicas(keys, strategy, assumptions, kind)
    _compiled(keys, strategy)
    _others(keys, kind)
    behind_ranks(trainer, strategy)
    narrow_gathers(keys, strategy, "fp8_config.enable_fsdp_float8_all_gather")
    _synchronised(keys, trainer, strategy)
    settle(keys, strategy, architecture, "Accelerate")
    rows = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    further = [
        row for row in as_called(trainer.finish(), called) if arguments is not None or row.key in ("seq_length", "model") or row.fate == "derived"
    ]
    notes = () if architecture is not None else ("no model is named; --of MODEL says which",)
    return Job("accelerate", (*rows, *told, *further), architecture, strategy, None, assumptions, notes)


def _sorted(inputs: Sequence[str], started: Started | None) -> tuple[Document, Document | None, Document | None]:
    """The files by what is in them: Accelerate's has a distributed_type, a DeepSpeed JSON zero_optimization; the rest are arguments."""
    found: dict[str, Document] = {} if started is None else {"arguments": started.arguments}
    for path in inputs:
        suffix = path.rpartition(".")[2].lower()
        if suffix not in ("json", "yaml", "yml"):
            raise InputError(f"{path}: 'symsim import accelerate' reads .yaml and .json files, and a launch script")
        document = read_json(path) if suffix == "json" else read_yaml(path)
        ours = {"distributed_type", "compute_environment"} & document.data.keys()
        what = "launch" if ours else "settings" if "zero_optimization" in document.data else "arguments"
        if what in found:
            raise InputError(f"{path}: a second file of the same kind; 'symsim import accelerate' reads CONFIG.yaml [ARGUMENTS] [DS.json]")
        found[what] = document
    if started is not None:
        found["launch"] = _launched(found.get("launch"), started)
    if "launch" not in found:
        raise InputError(f"{inputs[0]}: no file here is Accelerate's, with a distributed_type")
    return found["launch"], found.get("settings"), found.get("arguments")


def _launched(file: Document | None, started: Started) -> Document:
    """The launcher's options over those of an Accelerate file; many processes are replicas unless something says otherwise."""
    if started.launch is None:
        return Document({}, started.arguments.where)
    base = file if file is not None else Document({}, started.launch.where)
    data = {**base.data, **started.launch.data}
    if "distributed_type" not in data:
        data["distributed_type"] = "NO" if str(data.get("num_processes")) == "1" else "MULTI_GPU"
    return Document(data, started.launch.where, {**base.lines, **started.launch.lines})


def _synchronised(keys: Keys, trainer: Keys, strategy: dict[str, Any]) -> None:
    """Shards of gradients that are reduced in every micro-batch (GradientAccumulationPlugin), where they wait for the last without it."""
    if strategy.get("gradient_sync") == "last_microbatch" and trainer.flag("sync_each_batch", False, to="gradient_sync"):
        del strategy["gradient_sync"]
        for one in (keys, trainer):
            one.rows.pop("no_sync", None)


def _batch(trainer: Keys, options: "Options", strategy: dict[str, Any]) -> None:
    """Sizes that the script knows, of --var."""
    for option, key in (("micro_batch_size", "per_device_train_batch_size"), ("num_microbatches", "gradient_accumulation_steps")):
        told = variable(options, option)
        if told is not None:
            strategy[option] = told
            trainer.rows[key] = Entry(option, str(told), "mapped", option, "--var")


def _precision(keys: Keys, trainer: Keys, strategy: dict[str, Any]) -> None:
    kind = keys.choice("mixed_precision", _PRECISIONS, None, to="precision")
    for older in ("fp16",):
        if keys.flag(older, False, to="precision") and kind is None:
            kind = older
    if kind is None:
        return
    strategy["precision"] = kind
    if "bf16" not in trainer.given:
        # the launcher's holds where the arguments ask for none (transformers training_args.py, ACCELERATE_MIXED_PRECISION)
        trainer.rows.pop("bf16", None)
    if "mixed_precision" in keys.given and str(keys.given["mixed_precision"].value) == "fp8":
        backend = str(keys.text("fp8_config.backend", "AO", to="fp8")).upper()
        # Transformer Engine's default recipe is delayed scaling (utils/dataclasses.py TERecipeKwargs); torchao scales each tensor as it is
        strategy |= {"fp8": "delayed" if backend == "TE" else "tensorwise", "fusion": "te"}
        keys.note("mixed_precision", to="fp8, fusion", why="products in 8 bits are te's kernels here, with the weights' copies that it keeps")
    keys.text("fp8_config.backend", None, to="fp8")


def _ranks(keys: Keys, options: "Options", kind: str) -> "Options":
    """The options with num_processes, which counts those of all machines, where --var does not say."""
    keys.integer("num_machines", 1, to="dp", least=1)
    processes = keys.number("num_processes", None, to="dp")
    if kind == "NO":
        processes = 1
    if processes is not None and (processes != int(processes) or processes > 2**30):
        raise keys.wrong("num_processes", "a whole number above 0")
    if processes is None or processes < 1 or world_size(options) is not None:
        return options
    return replace(options, variables={**options.variables, "world": str(int(processes))})


def _world(keys: Keys, options: "Options", strategy: dict[str, Any]) -> None:
    """dp of the ranks that the degrees leave; one node of 8 where no number is known."""
    spread(keys, options, strategy)
    if "num_processes" in keys.given and keys.rows["world"].fate == "mapped":
        keys.rows.pop("world")


def _mesh(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    for name, option in (("tp_size", "tp"), ("cp_size", "cp"), ("sp_size", "cp")):
        degree = keys.integer(f"{_DEGREES}{name}", 1, to=option, least=1)
        if degree > 1:
            strategy[option] = degree
            if option == "cp":
                strategy["cp_comm_type"] = "a2a" if name == "sp_size" else "all_gather"
    rotated = keys.choice(f"{_DEGREES}cp_comm_strategy", {"allgather": "all_gather", "alltoall": "p2p"}, None, to="cp_comm_type")
    if rotated is not None and strategy.get("cp", 1) > 1:
        strategy["cp_comm_type"] = rotated
    _world(keys, options, strategy)
    replicas = keys.integer(f"{_DEGREES}dp_replicate_size", 1, to="num_distributed_optimizer_instances", least=1)
    shards = keys.integer(f"{_DEGREES}dp_shard_size", None, to="dp", least=-1)
    if shards is not None and shards >= 1 and shards * replicas not in (1, strategy["dp"]):
        raise keys.wrong(f"{_DEGREES}dp_shard_size", f"{strategy['dp']} ranks over dp_replicate_size, {replicas}")
    if replicas > 1 and strategy["dp"] % replicas == 0:
        strategy["num_distributed_optimizer_instances"] = replicas


def _replicas(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], kind: str) -> None:
    """FSDP, or DDP."""
    asked = kind == "FSDP" or strategy.get("cp", 1) > 1 or strategy.get("num_distributed_optimizer_instances", 1) > 1
    replicas = strategy.pop("num_distributed_optimizer_instances", 1)
    if asked and sharded(keys, strategy, assumptions, "fsdp", "fsdp_config", on=True):
        strategy["grad_reduce_in_fp32"] = strategy.get("precision") == "fp32"
        if replicas > 1 and strategy["dp"] > replicas:
            strategy["num_distributed_optimizer_instances"] = replicas
        return
    strategy |= {"zero": 0, "overlap_grad_reduce": True, "grad_reduce_in_fp32": True}
    buckets(keys, strategy, "ddp_bucket_cap_mb")
    autocast(keys, strategy)


def _deepspeed(
    launch: Document,
    settings: Document | None,
    keys: Keys,
    trainer: Keys,
    strategy: dict[str, Any],
    assumptions: dict[str, str],
    architecture: "Architecture | None",
    options: "Options",
) -> list[Entry]:
    """The rows of the DeepSpeed JSON that is given or named, or of what the section itself says."""
    section = "deepspeed_config."
    named = keys.text(f"{section}deepspeed_config_file", None, to="zero")
    if settings is None and named is not None:
        settings = _beside(launch.where, named)
    if named is not None and settings is None:
        keys.refuse(f"{section}deepspeed_config_file", "this file is not here; give it after this one: CONFIG.yaml DS.json")
    if settings is None:
        settings = _described(keys, strategy, launch.where)
    _mesh_of_arguments(keys, strategy)
    rows = configured(settings, trainer, strategy, assumptions, architecture, options, by_arguments=False)
    return [row for row in rows if row.key != "world" or row.fate == "derived"]


def _beside(where: str, name: str) -> Document | None:
    for place in (Path(where).parent / name, Path(where).parent / Path(name).name):
        try:
            if place.is_file():
                return read_json(str(place))
        except (OSError, ValueError):
            continue
    return None


def _described(keys: Keys, strategy: dict[str, Any], where: str) -> Document:
    """DeepSpeedPlugin's JSON, of the section's own keys."""
    section = "deepspeed_config."
    zero: dict[str, Any] = {"stage": keys.integer(f"{section}zero_stage", 2, to="zero")}
    for name in ("optimizer", "param"):
        device = keys.text(f"{section}offload_{name}_device", "none", to="optimizer_cpu_offload" if name == "optimizer" else "offload_parameters")
        if device != "none":
            zero[f"offload_{name}"] = {"device": device}
    kind = strategy.get("precision")
    many = keys.given.get(f"{section}gradient_accumulation_steps")
    steps = strategy["num_microbatches"]
    if many is not None and str(many.value) != "auto":
        steps = keys.integer(f"{section}gradient_accumulation_steps", 1, to="num_microbatches", least=1)
    elif many is not None:
        keys.note(f"{section}gradient_accumulation_steps", to="num_microbatches", why="auto: the Trainer's")
    clip = keys.given.get(f"{section}gradient_clipping")
    norm = strategy["clip_grad"]
    if clip is not None and str(clip.value) not in ("auto", "none"):
        norm = keys.number(f"{section}gradient_clipping", 0.0, to="clip_grad")
    elif clip is not None:
        keys.note(f"{section}gradient_clipping", to="clip_grad", why="the Trainer's" if str(clip.value) == "auto" else "no clipping")
        norm = norm if str(clip.value) == "auto" else 0.0
    data: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": strategy["micro_batch_size"],
        "gradient_accumulation_steps": steps,
        "gradient_clipping": norm,
        "zero_optimization": zero,
        "bf16": {"enabled": kind == "bf16"},
        "fp16": {"enabled": kind == "fp16"},
    }
    return Document(data, where)


def _mesh_of_arguments(keys: Keys, strategy: dict[str, Any]) -> None:
    """With DeepSpeed, Ulysses of its own (sp_backend), and sizes that only FSDP reads."""
    parts = keys.integer(f"{_DEGREES}sp_size", 1, to="cp, cp_comm_type", why="Ulysses: heads exchanged for parts of the sequence", least=1)
    if parts > 1:
        strategy |= {"cp": parts, "cp_comm_type": "a2a"}
    for name in ("tp_size", "cp_size", "dp_replicate_size", "dp_shard_size", "cp_comm_strategy"):
        if f"{_DEGREES}{name}" in keys.given:
            keys.note(f"{_DEGREES}{name}", "no_cost_effect", why="the DeepSpeed JSON decides")


def _megatron(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], options: "Options") -> None:
    """MegatronLMPlugin: Megatron-LM's kernels and schedule, of a few of its arguments."""
    strategy["fusion"] = "te"
    assumptions.pop("optimizer_implementation", None)
    for name, option in (
        ("tp_degree", "tp"),
        ("pp_degree", "pp"),
        ("context_parallel_size", "cp"),
        ("expert_model_parallel_size", "ep"),
        ("expert_tensor_parallel_size", "etp"),
        ("num_micro_batches", "num_microbatches"),
        ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"),
        ("recompute_num_layers", "recompute_num_layers"),
        ("seq_length", "seq_length"),
    ):
        number = keys.integer(f"{MEGATRON}{name}", None, to=option, least=1)
        if number is not None and (number > 1 or option in ("num_microbatches", "seq_length", "etp")):
            strategy[option] = number
    if keys.flag(f"{MEGATRON}sequence_parallelism", False, to="sp"):
        strategy["sp"] = True
    selective = keys.flag(f"{MEGATRON}recompute_activations", False, to="recompute")
    granularity = keys.choice(f"{MEGATRON}recompute_granularity", {"full": "full", "selective": "selective"}, None, to="recompute")
    if granularity or selective:
        strategy["recompute"] = granularity or "selective"
    method = keys.choice(f"{MEGATRON}recompute_method", {"uniform": "uniform", "block": "block"}, None, to="recompute_method")
    if method is not None:
        strategy["recompute_method"] = method
    strategy["zero"] = 1 if keys.flag(f"{MEGATRON}use_distributed_optimizer", False, to="zero") else 0
    if keys.flag(f"{MEGATRON}use_custom_fsdp", False, to="zero"):
        strategy["zero"] = 3
    for name in ("use_precision_aware_optimizer", "optimizer_cpu_offload"):
        if keys.flag(f"{MEGATRON}{name}", False, to=name):
            strategy[name] = True
    norm = keys.number(f"{MEGATRON}gradient_clipping", 1.0, to="clip_grad")
    strategy["clip_grad"] = norm
    for name in ("attention_dropout", "hidden_dropout"):
        keys.number(f"{MEGATRON}{name}", None, to="model", why="dropout is of the model's file here")
    keys.text(f"{MEGATRON}attention_backend", None, to="assume.attention_kernel")
    virtual = keys.integer(f"{MEGATRON}num_layers_per_virtual_pipeline_stage", None, to="vpp", least=1)
    if virtual is not None:
        why = "chunks of a stage: -s vpp=N says how many, once the model's layers are known"
        keys.note(f"{MEGATRON}num_layers_per_virtual_pipeline_stage", "not_modelled", "vpp", why)
    strategy["grad_reduce_in_fp32"] = strategy.get("precision") != "fp16"
    _world(keys, options, strategy)


def _compiled(keys: Keys, strategy: dict[str, Any]) -> None:
    for key in ("dynamo_config.dynamo_backend", "dynamo_backend"):
        if keys.has(key) and str(keys.text(key)) in _COMPILERS:
            keys.note(key, "no_cost_effect", why="off at this value")
        elif keys.has(key):
            strategy["fusion"] = "compile" if strategy["fusion"] == "eager" else strategy["fusion"]
            keys.note(key, to="fusion", why="te: kernels fused already" if strategy["fusion"] == "te" else "compile")


def _others(keys: Keys, kind: str) -> None:
    """Sections that the type of the job does not read."""
    sections = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config", "MEGATRON_LM": "megatron_lm_config"}
    for other, section in sections.items():
        if other != kind:
            for key in keys.given:
                if key.startswith(f"{section}.") and key not in keys.rows:
                    keys.note(key, "no_cost_effect", why=f"read with distributed_type: {other}")
