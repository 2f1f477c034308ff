"""A DeepSpeed JSON, alone or with the Hugging Face Trainer's arguments, or a script that gives them, and a config.json.

`auto` is filled in as transformers does (5.23, integrations/deepspeed.py HfTrainerDeepSpeedConfig). What ZeRO does: DeepSpeed 0.16.4 and
edaa72212, runtime/engine.py, runtime/zero/stage_1_and_2.py, stage3.py, parameter_offload.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, nearest
from symsim.importers.compiled import compiled
from symsim.importers.deepspeed.script import of_script
from symsim.importers.deepspeed.tables import CHECKPOINTING, OTHER_STAGES, PIPELINE, SCRIPT, SILENT, WHOLE
from symsim.importers.documents import SAID, balanced, documents_said, free_rows, packed_rows
from symsim.importers.fsdp import host_states
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys, natural
from symsim.importers.optimizers import OPTIMIZERS
from symsim.importers.ranks import known_variables, spread, variable, world_size
from symsim.importers.rules import settle
from symsim.importers.scripts import UNREAD_SECTIONS, as_called, behind_ranks, respelt, tuned
from symsim.importers.sections import of_sections
from symsim.importers.trainer import TRAINER, read_trainer
from symsim.importers.weights import model_of
from symsim.inputs.reading import Document, read_json, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_TOP = frozenset("zero_optimization train_batch_size train_micro_batch_size_per_gpu zero_allow_untested_optimizer steps_per_print".split())
_LENGTHS = ("max_seq_length", "max_length", "model_max_length", "block_size", "cutoff_len", "seq_length", "max_seq_len", "max_token_length")
_LARGE = 10**15
# stage 3: symsim's option, DeepSpeed's default (runtime/zero/config.py), and what it does
_LIMITS = {
    "max_live_parameters": (10**9, "nothing is fetched ahead beyond so many"),
    "max_reuse_distance": (10**9, "what is needed again so soon stays"),
    "prefetch_bucket_size": (5 * 10**7, "fetched ahead"),
    "param_persistence_threshold": (10**5, "smaller parameters stay whole"),
}
_DTYPES = {"fp32": "fp32", "float32": "fp32", "float": "fp32", "fp16": "fp16", "float16": "fp16", "bf16": "bf16", "bfloat16": "bf16"}
_DEVICES = {"cpu": "cpu", "nvme": "nvme", "none": None}
_HOST_STATES = "in 2 bytes a gradient and 2 a parameter there, 4 and 4 here, over the host link"
_PARAMETERS = "shards come over the host link for every gather"
_NVME = "states wait on a drive, read and written in every step: a system's host.drive says what a rank reaches of it"


@dataclass(frozen=True)
class _Files:
    """What was given: the JSON, the Trainer's arguments, the model's config."""

    settings: Document
    arguments: Document | None
    config: str | None


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a DeepSpeed JSON. InputError for a key that there is not, a value that cannot be, or files that are something else."""
    inputs, options, started = of_script(inputs, options)
    known_variables(options, ("seq_length", *SAID))
    files = _sorted(inputs, started)
    strategy: dict[str, Any] = {}
    assumptions: dict[str, str] = {}
    given, called = respelt(of_sections(files.arguments, UNREAD_SECTIONS) if files.arguments is not None else {})
    arguments = Keys("the Trainer's arguments", given, {**TRAINER, **SCRIPT}, options.lenient)
    read_trainer(arguments, strategy, assumptions)
    balanced(arguments, assumptions, "group_by_length")
    if files.arguments is None:
        assumptions.pop("optimizer_implementation", None)
    architecture = model_of(arguments, "model_name_or_path", options, files.config)
    lengths(arguments, options, strategy)
    tuned(arguments, strategy, architecture)
    rows = configured(files.settings, arguments, strategy, assumptions, architecture, options, files.arguments is not None)
    attention(arguments, assumptions)
    behind_ranks(arguments, strategy)
    kept = as_called(arguments.finish(), called)
    told = [row for row in kept if files.arguments is not None or row.value != "(default)" or row.key in ("seq_length", "model")]
    return Job("deepspeed", (*rows, *told), architecture, strategy, None, assumptions, _notes(files, architecture))


def configured(
    settings: Document,
    arguments: Keys,
    strategy: dict[str, Any],
    assumptions: dict[str, str],
    architecture: "Architecture | None",
    options: "Options",
    by_arguments: bool = True,
) -> list[Entry]:
    """What a DeepSpeed JSON adds to a strategy that holds the Trainer's arguments already, and the rows of its keys.

    by_arguments: the Trainer's arguments are given, and the JSON may not say otherwise.
    """
    return of_settings(of_sections(settings, WHOLE), arguments, strategy, assumptions, architecture, options, by_arguments)


def of_settings(
    raw: Mapping[str, Given],
    arguments: Keys,
    strategy: dict[str, Any],
    assumptions: dict[str, str],
    architecture: "Architecture | None",
    options: "Options",
    by_arguments: bool = True,
) -> list[Entry]:
    """`configured` of a JSON's keys by their dotted names."""
    filled = _filled(raw, arguments, strategy, architecture, world_size(options))
    keys = Keys("a DeepSpeed JSON", filled, {**SILENT, **OTHER_STAGES, **CHECKPOINTING, **PIPELINE}, options.lenient)
    _batch(keys, options, strategy, by_arguments)
    _precision(keys, strategy)
    _main_types(keys, strategy)
    _update(keys, strategy, assumptions)
    _zero(keys, strategy, assumptions)
    compiled(keys, strategy, "compile.enabled")
    settle(keys, strategy, architecture, "DeepSpeed")
    return [_auto(row, raw) for row in keys.finish()]


def settings_of(arguments: Document, given: str | None = None) -> Document | None:
    """The DeepSpeed JSON that arguments hold or name: from their folder, beside them, from here, or from a folder above them, as paths from the root
    of a checkout are; the one given, where there is one. None where none is."""
    if given is not None:
        return read_json(given)
    named = arguments.data.get("deepspeed")
    if isinstance(named, dict):
        lines = {path[1:]: line for path, line in arguments.lines.items() if path[0] == "deepspeed"}
        return Document(named, arguments.where, lines)
    if not isinstance(named, str) or not named:
        return None
    folder = Path(arguments.where).resolve().parent
    places = (folder / named, folder / Path(named).name, Path(named), *(above / named for above in folder.parents))
    found = next((str(place) for place in places if os.path.isfile(place)), None)
    return read_json(found) if found is not None else None


def _notes(files: _Files, architecture: "Architecture | None") -> tuple[str, ...]:
    notes = ["no model is named; --of MODEL says which"] if architecture is None else []
    if files.arguments is None:
        notes.append("no training arguments are given: recomputation is off, and 'auto' is what the Trainer's defaults make it")
    return tuple(notes)


def _sorted(inputs: Sequence[str], started: Document | None) -> _Files:
    """The files by what is in them: a model's config has a model_type, a DeepSpeed JSON zero_optimization or its batch sizes."""
    found: dict[str, Any] = {"arguments": started} if started is not None else {}
    for path in inputs:
        suffix = path.rpartition(".")[2].lower()
        if suffix not in ("json", "yaml", "yml"):
            raise InputError(f"{path}: 'symsim import deepspeed' reads .json and .yaml files, and a launch script")
        document = read_json(path, infinite=True) if suffix == "json" else read_yaml(path)
        what = "config" if "model_type" in document.data else "settings" if is_deepspeed(document.data) else "arguments"
        if what in found:
            raise InputError(f"{path}: a second file of the same kind; 'symsim import deepspeed' reads DS.json [ARGUMENTS] [config.json]")
        found[what] = path if what == "config" else document
    settings = found.get("settings") or (settings_of(found["arguments"]) if "arguments" in found else None)
    if settings is None:
        where, more = (started.where, "; 'symsim import accelerate' reads scripts without one") if started is not None else (inputs[0], "")
        raise InputError(f"{where}: no file here is a DeepSpeed JSON, with zero_optimization or train_batch_size{more}")
    return _Files(settings, found.get("arguments"), found.get("config"))


def is_deepspeed(data: Mapping[str, Any]) -> bool:
    """Whether a file's keys are those of a DeepSpeed JSON."""
    return bool(_TOP & data.keys()) or any(isinstance(data.get(key), dict) for key in ("fp16", "bf16", "bfloat16"))


def lengths(keys: Keys, options: "Options", strategy: dict[str, Any]) -> None:
    """seq_length of --var, else of the arguments; and the mean length of packed documents."""
    length = None
    for key in _LENGTHS:
        length = keys.integer(key, length, to="seq_length", least=1)
    asked = variable(options, "seq_length")
    if asked is not None:
        keys.rows["seq_length"] = Entry("seq_length", str(asked), "mapped", "seq_length", "--var")
    elif length is None:
        keys.note("seq_length", "derived", "seq_length", "4096, since the files do not say; --var seq_length=N does")
    strategy["seq_length"] = asked or length or 4096
    said = documents_said(options, strategy)
    if keys.flag("packing", False):
        packed_rows(keys, "packing", said)
    elif keys.flag("padding_free", False):
        free_rows(keys, "padding_free", said, strategy)


def attention(keys: Keys, assumptions: dict[str, str]) -> None:
    kernels = {**dict.fromkeys(("flash_attention_2", "flash_attention_3", "sdpa", "flex_attention", "fa2", "flash_2"), "flash"), "eager": "eager"}
    written_out = keys.has("use_flash_attn") and not keys.flag("use_flash_attn", True, to="assume.attention_kernel")
    if keys.choice("attn_implementation", kernels, None, to="assume.attention_kernel") == "eager" or written_out:
        assumptions["attention_kernel"] = "eager"
    for key in ("torch_dtype", "dtype"):
        if keys.has(key):
            keys.note(key, "no_cost_effect", why="DeepSpeed casts the model to the type that it runs in")


def _filled(
    raw: Mapping[str, Given], arguments: Keys, strategy: Mapping[str, Any], architecture: "Architecture | None", world: int | None
) -> dict[str, Given]:
    """The JSON's keys with `auto` replaced as transformers does, which counts tensor ranks as replicas; what it leaves alone stays."""
    shares = int(strategy.get("cp", 1))
    auto: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": strategy["micro_batch_size"],
        "gradient_accumulation_steps": strategy["num_microbatches"],
        "train_batch_size": None if world is None else strategy["micro_batch_size"] * strategy["num_microbatches"] * (world // shares),
        "gradient_clipping": strategy["clip_grad"],
        "bf16.enabled": strategy["precision"] == "bf16" or bool(arguments.flag("bf16_full_eval", False)),
        "fp16.enabled": strategy["precision"] == "fp16" or bool(arguments.flag("fp16_full_eval", False)),
        "optimizer.type": None,
        "zero_optimization.stage3_gather_16bit_weights_on_model_save": False,
    }
    hidden = architecture.hidden_size if architecture is not None else None
    for key, factor in (("reduce_bucket_size", "1"), ("stage3_prefetch_bucket_size", "0.9"), ("stage3_param_persistence_threshold", "10")):
        by = None if hidden is None else 10 * hidden if factor == "10" else int(float(factor) * hidden * hidden)
        auto[f"zero_optimization.{key}"] = by
    return {key: replace(one, value=auto[key]) if one.value == "auto" and key in auto else one for key, one in raw.items()}


def _auto(row: Entry, raw: Mapping[str, Given]) -> Entry:
    if row.key not in raw or raw[row.key].value != "auto" or row.value in ("auto", "null"):
        return row
    return replace(row, value=f"auto: {row.value}")


def _batch(keys: Keys, options: "Options", strategy: dict[str, Any], by_arguments: bool) -> None:
    """Of the three batch sizes, two give the third (DeepSpeedConfig._configure_train_batch_size)."""
    _parallel(keys, strategy)
    each = keys.integer("train_micro_batch_size_per_gpu", to="micro_batch_size", least=1)
    many = keys.integer("gradient_accumulation_steps", to="num_microbatches", least=1)
    whole = keys.integer("train_batch_size", to="global_batch_size", least=1)
    if by_arguments:
        for key, value, option in (
            ("train_micro_batch_size_per_gpu", each, "micro_batch_size"),
            ("gradient_accumulation_steps", many, "num_microbatches"),
        ):
            if value is not None and value != strategy[option]:
                keys.refuse(key, f"the arguments make it {strategy[option]}, and the Trainer refuses two values; 'auto' takes the arguments'")
    world = world_size(options)
    shares = int(strategy.get("cp", 1)) * int(strategy.get("pp", 1))
    if whole is not None and world is not None and not world % shares:
        ranks = world // shares
        each, many = _third(keys, whole, ranks, each, many)
    elif each is None and many is None and whole is not None:
        each, many = 1, 1
        keys.note("train_micro_batch_size_per_gpu", "derived", "micro_batch_size", "1, since only train_batch_size is given, and no --var world")
    strategy["micro_batch_size"] = each or (strategy["micro_batch_size"] if by_arguments else 1)
    strategy["num_microbatches"] = many or (strategy["num_microbatches"] if by_arguments else 1)
    found = None
    if keys.has("train_batch_size") is False and "train_batch_size" in keys.given:
        keys.note("train_batch_size", "derived", "global_batch_size", "the micro-batch size times gradient_accumulation_steps times ranks")
    if whole is not None:
        step = strategy["micro_batch_size"] * strategy["num_microbatches"]
        if whole % step:
            raise keys.wrong("train_batch_size", f"a multiple of the micro-batch size times gradient_accumulation_steps, {step}")
        found = whole // step * shares
    spread(keys, options, strategy, found, "train_batch_size over the batch of a rank")


def _third(keys: Keys, whole: int, ranks: int, each: int | None, many: int | None) -> tuple[int, int]:
    parts = ranks * (each or 1) * (many or 1)
    if whole % parts or (each is not None and many is not None and whole != parts):
        raise keys.wrong("train_batch_size", f"train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks, here a multiple of {parts}")
    rest = whole // parts
    return (each, rest) if each is not None and many is None else (each or rest, many or 1)


def _parallel(keys: Keys, strategy: dict[str, Any]) -> None:
    """AutoTP's ranks; Ulysses' sequence-parallel ranks, which are DeepSpeed's only context parallelism."""
    for key in ("tensor_parallel.autotp_size", "tensor_parallel.tp_size"):
        tp = keys.integer(key, 0, to="tp")
        if tp > 1:
            strategy["tp"] = tp
    keys.integer("tensor_parallel.tp_grain_size", to="", why="how AutoTP rounds its shares")
    cp = keys.integer("sequence_parallel_size", 0, to="cp, cp_comm_type", why="Ulysses: heads exchanged for parts of the sequence")
    if cp > 1:
        strategy |= {"cp": cp, "cp_comm_type": "a2a"}


def _precision(keys: Keys, strategy: dict[str, Any]) -> None:
    """The compute type; that of gradients, which DeepSpeed accumulates and sends in the compute type unless it is told otherwise."""
    flags = {name: keys.flag(f"{name}.enabled", None, to="precision") for name in ("bf16", "fp16", "bfloat16")}
    if (flags["bf16"] or flags["bfloat16"]) and flags["fp16"]:
        raise keys.wrong("fp16.enabled", "left out beside bf16: DeepSpeed runs in one of them")
    if any(value is not None for value in flags.values()):
        strategy["precision"] = "fp16" if flags["fp16"] else "bf16" if flags["bf16"] or flags["bfloat16"] else "fp32"
    else:
        keys.note("bf16.enabled", "derived", "precision", f"{strategy['precision']}: neither bf16 nor fp16 is set, so the arguments decide")
    kept = keys.choice("data_types.grad_accum_dtype", _DTYPES, None, to="grad_reduce_in_fp32")
    sent = keys.choice("communication_data_type", _DTYPES, None, to="grad_reduce_in_fp32")
    wide = "fp32" in (kept or strategy["precision"], sent or strategy["precision"])
    strategy["grad_reduce_in_fp32"] = wide
    if kept is None:
        keys.note("data_types.grad_accum_dtype", "derived", "grad_reduce_in_fp32", "gradients are kept and sent in the compute type")
    elif sent != kept:
        why = "kept in one type and sent in the other there; symsim has the wider for both: 2 bytes a gradient more"
        keys.note("data_types.grad_accum_dtype", "not_modelled", "grad_reduce_in_fp32", why)


def _main_types(keys: Keys, strategy: dict[str, Any]) -> None:
    """Main parameters in the compute type, with moments in fp32 unless they are too (runtime/config.py, runtime/precision_config.py)."""
    precision = strategy["precision"]
    narrow = {name: keys.flag(f"{name}.{name}_master_weights_and_grads", False, to="main_params_dtype") for name in ("bf16", "fp16")}
    states = keys.flag("bf16.bf16_optimizer_states", False, to="exp_avg_dtype, exp_avg_sq_dtype")
    if narrow.get(precision):
        strategy |= {"main_params_dtype": precision} | ({} if states else {"exp_avg_dtype": "fp32", "exp_avg_sq_dtype": "fp32"})
    for key in (key for key in ("torch_autocast.enabled", "torch_autocast.dtype") if keys.has(key) and precision != "fp32"):
        keys.note(key, "no_cost_effect", why="parameters are in the type of products already, and nothing is cast")


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """The JSON's optimizer goes before the Trainer's; DeepSpeed's Adam is one kernel."""
    if keys.has("optimizer.type"):
        name = str(keys.text("optimizer.type")).casefold()
        if name not in OPTIMIZERS:
            raise keys.wrong("optimizer.type", f"an optimizer that DeepSpeed knows ({nearest(name, list(OPTIMIZERS))})")
        assumptions.pop("optimizer_implementation", None)
        OPTIMIZERS[name].apply(keys, "optimizer.type", strategy, assumptions)
        params = keys.given["optimizer.params"].value if keys.has("optimizer.params") else None
        if name == "sgd" and isinstance(params, dict) and params.get("momentum") not in (None, 0, 0.0, "auto"):
            strategy["optimizer"] = "sgd_momentum"
        if name == "zerooneadam" and isinstance(params, dict) and "local_step_clipper" in params:
            if not (steps := natural(params["local_step_clipper"])):
                raise keys.wrong("optimizer.params", "with a local_step_clipper from 1 up")
            strategy["local_step_clipper"] = steps
            keys.note("optimizer.params", "mapped", "local_step_clipper", "and numbers of the update that change no cost")
    clip = keys.number("gradient_clipping", to="clip_grad")
    if clip is None:
        keys.note("gradient_clipping", "derived", "clip_grad", "no clipping by default")
    strategy["clip_grad"] = clip or 0.0


def _zero(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    stage = _stage(keys)
    strategy["zero"] = stage
    if stage:
        strategy.pop("fp32_embedding_moments", None)  # its flat parameters are none of those that the Trainer names
    if not stage and strategy["precision"] == "bf16" and strategy.get("pp", 1) > 1:
        _sharded_anyway(keys, strategy, assumptions)
    hidden = "overlap_grad_reduce" if stage < 3 else "assume.fsdp_prefetch"
    overlap = keys.flag("zero_optimization.overlap_comm", None, to=hidden)
    if overlap is None:
        overlap = stage == 3
        keys.note("zero_optimization.overlap_comm", "derived", hidden, f"{'on' if overlap else 'off'} at stage {stage}")
    if stage < 3:
        strategy["overlap_grad_reduce"] = overlap
        _reductions(keys, stage, assumptions)
    else:
        assumptions |= {"fsdp_unit": "module", "fsdp_prefetch": "true" if overlap else "false"}
        _gathers(keys, strategy)
    _scaling(keys, stage, assumptions)
    _offload(keys, stage, strategy)
    _buffers(keys, stage, overlap, strategy, assumptions)
    _groups(keys, strategy)


def _stage(keys: Keys) -> int:
    if keys.has("zero_optimization") and keys.given["zero_optimization"].value != {}:
        return int(keys.flag("zero_optimization", to="zero", why="the older switch: stage 1"))
    stages = {str(number): number for number in range(4)}
    stage: int | None = keys.choice("zero_optimization.stage", stages, None, to="zero")
    if stage is None:
        keys.note("zero_optimization.stage", "derived", "zero", "0 by default: replicas")
    return stage or 0


def _sharded_anyway(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """A pipeline's bf16 has an optimizer of its own at stage 0, which cuts its states over replicas (runtime/bf16_optimizer.py)."""
    strategy["zero"] = 1
    assumptions["zero_reduction"] = "all_reduce"
    why = "1: a pipeline's bf16 optimizer shards its states at stage 0 too, and all-reduces gradients"
    keys.note("zero_optimization.stage", "derived", "zero, assume.zero_reduction", why)


def _scaling(keys: Keys, stage: int, assumptions: dict[str, str]) -> None:
    """By what gradients are divided, in one pass or, without ZeRO, in one on either side of their message."""
    before = keys.flag("prescale_gradients", False, to="assume.gradient_scaling", why="one pass on either side")
    factor = keys.number("gradient_predivide_factor", 1.0, to="assume.gradient_scaling", why="one pass")
    if stage:
        for key in ("prescale_gradients", "gradient_predivide_factor"):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="read without ZeRO alone")
    elif factor != 1 and not before:
        assumptions["gradient_scaling"] = "both"
        keys.note("gradient_predivide_factor", to="assume.gradient_scaling", why="both: a pass on either side of the message")


def _reductions(keys: Keys, stage: int, assumptions: dict[str, str]) -> None:
    """Stages 1 and 2 all-reduce their buckets, although reduce_scatter is on, unless a bucket goes to one rank at a time."""
    scattered = keys.flag("zero_optimization.reduce_scatter", True, to="assume.zero_reduction")
    together = keys.flag("zero_optimization.use_multi_rank_bucket_allreduce", True, to="assume.zero_reduction")
    if stage:
        assumptions["zero_reduction"] = "all_reduce" if together or not scattered else "reduce_scatter"
        if "zero_optimization.use_multi_rank_bucket_allreduce" not in keys.given:
            often = "every micro-batch" if stage == 2 else "once a step"
            why = f"on by default: buckets are all-reduced {often}, and each rank keeps its part"
            keys.note("zero_optimization.use_multi_rank_bucket_allreduce", "derived", "assume.zero_reduction", why)
    keys.flag("zero_optimization.allgather_partitions", why="a gather or broadcasts of the updated parameters: as many bytes")


def _gathers(keys: Keys, strategy: dict[str, Any]) -> None:
    """Limits of what stage 3 gathers ahead and keeps gathered."""
    for option, (default, why) in _LIMITS.items():
        number = _size(keys, (f"zero_optimization.stage3_{option}", f"zero_optimization.{option}"), default, option, why)
        strategy[option] = number
    for key in ("stage3_model_persistence_threshold", "model_persistence_threshold"):
        if keys.has(f"zero_optimization.{key}"):
            keys.note(f"zero_optimization.{key}", "no_cost_effect", why="a bound on the parameters that stay whole, which norms alone do not reach")
    if keys.flag("zero_optimization.memory_efficient_linear", True) is False:
        why = "weights that linears keep for backward: gathered parameters live until then"
        keys.note("zero_optimization.memory_efficient_linear", "mapped", "reshard_after_forward", why)
        strategy["reshard_after_forward"] = False
    elif keys.has("zero_optimization.memory_efficient_linear"):
        keys.note("zero_optimization.memory_efficient_linear", "mapped", "reshard_after_forward", "weights are gathered again for backward")


def _size(keys: Keys, names: tuple[str, ...], default: int, option: str, why: str) -> int:
    """A number of elements under the first of these names that is given, or DeepSpeed's default, which is then a row."""
    for name in names:
        if keys.has(name):
            value = _elements(keys, name, default)
            keys.note(name, to=option, why=why)
            return value
    keys.note(names[0], "derived", option, f"{default:.0e} by default".replace("e+0", "e"))
    return default


def _elements(keys: Keys, name: str, default: int) -> int:
    if keys.given[name].value == "auto":
        return default
    return min(int(keys.integer(name, default)), _LARGE)


def _offload(keys: Keys, stage: int, strategy: dict[str, Any]) -> None:
    section = "zero_optimization.offload_optimizer"
    device = keys.choice(f"{section}.device", _DEVICES, None, to="optimizer_cpu_offload")
    if keys.flag("zero_optimization.cpu_offload", False, to="optimizer_cpu_offload"):
        device = "cpu"
    if device is not None and stage:
        strategy |= host_states(strategy["precision"])
        key = f"{section}.device" if keys.has(f"{section}.device") else "zero_optimization.cpu_offload"
        if device == "nvme":
            strategy["optimizer_offload_device"] = "nvme"
            keys.note(key, "mapped", "optimizer_cpu_offload, optimizer_offload_device", _NVME)
        else:
            keys.note(key, to="optimizer_cpu_offload", why=_HOST_STATES)
    elif device is not None:
        keys.note(f"{section}.device", "no_cost_effect", why="read by ZeRO alone")
    share = keys.number(f"{section}.ratio", 1.0, to="optimizer_offload_fraction")
    if share != 1:
        strategy["optimizer_offload_fraction"] = share
    elif stage >= 2 and strategy.get("optimizer_cpu_offload"):
        strategy["offload_gradients"] = True
    for name, on in (
        ("zero_optimization.offload_param.device", keys.choice("zero_optimization.offload_param.device", _DEVICES, None)),
        ("zero_optimization.cpu_offload_param", keys.flag("zero_optimization.cpu_offload_param", False)),
    ):
        if on:
            keys.note(name, to="offload_parameters", why=_PARAMETERS if stage == 3 else "")
            strategy |= {"offload_parameters": True} if stage == 3 else {}
            if stage != 3:
                keys.note(name, "no_cost_effect", why="read at stage 3 alone")
    for name in ("offload_optimizer", "offload_param"):
        keys.known.add(f"zero_optimization.{name}")


def _buffers(keys: Keys, stage: int, overlap: bool, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Buckets, each a message, and the buffers that gradients are copied into."""
    contiguous = keys.flag("zero_optimization.contiguous_gradients", True, to="assume.reduction_buffers", why="gradients are copied into a buffer")
    for key, option in (("reduce_bucket_size", "ddp_bucket_size"), ("allgather_bucket_size", "allgather_bucket_size")):
        name = f"zero_optimization.{key}"
        if stage and (stage < 3 or option == "ddp_bucket_size"):
            strategy[option] = max(1, _size(keys, (name,), 5 * 10**8, option, ""))
        elif keys.has(name):
            keys.note(name, "no_cost_effect", why="read at stages 1 and 2 alone" if stage else "read by ZeRO alone")
    if stage and contiguous:
        assumptions["reduction_buffers"] = "two" if overlap and stage < 3 else "one"
    name = "zero_optimization.sub_group_size"
    if keys.has(name):
        size = _elements(keys, name, 10**9)
        if stage == 3:
            strategy["sub_group_size"] = max(1, size)
            keys.note(name, to="sub_group_size")
        else:
            keys.note(name, "no_cost_effect", why="read at stage 3 alone")


def _groups(keys: Keys, strategy: dict[str, Any]) -> None:
    """ZeRO++ keeps a second shard inside a smaller group; MiCS shards inside one and replicates across."""
    inside = keys.integer("zero_optimization.zero_hpz_partition_size", 1, to="reshard_after_forward")
    if inside > 1:
        strategy["reshard_after_forward"] = inside
    shared = keys.integer("zero_optimization.mics_shard_size", -1, to="num_distributed_optimizer_instances", least=-1)
    if shared > 0:
        dp = int(strategy["dp"])
        if dp % shared:
            raise keys.wrong("zero_optimization.mics_shard_size", f"a divisor of the {dp} data-parallel ranks")
        strategy["num_distributed_optimizer_instances"] = dp // shared
