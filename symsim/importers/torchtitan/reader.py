"""A torchtitan TOML file, or a configuration of a config_registry.py.

What its keys do: torchtitan at the parent of 9810191bb (2026-02-23, the last with TOML files) and v0.1.0: train.py, distributed/
parallel_dims.py, distributed/pipeline_parallel.py, distributed/activation_checkpoint.py, models/llama3/infra/parallelize.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut
from symsim.importers.assumed import deterministic
from symsim.importers.documents import SAID, documents_said
from symsim.importers.fsdp import HOST_PARAMETERS, host_states, narrow_gathers
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys
from symsim.importers.optimizers import OPTIMIZERS
from symsim.importers.pytorch_pipeline import SCHEDULES, add_groups, add_rounds
from symsim.importers.ranks import NODE, known_variables, world_size
from symsim.importers.rules import settle
from symsim.importers.sections import of_sections, under
from symsim.importers.torchtitan import newer
from symsim.importers.torchtitan.debug import DEBUG, debug_model
from symsim.importers.torchtitan.mixed import precision, unsharded
from symsim.importers.torchtitan.older import of_today, with_names
from symsim.importers.torchtitan.primus import TABLE as PRIMUS
from symsim.importers.torchtitan.primus import read_primus
from symsim.importers.torchtitan.registry import read_registry
from symsim.importers.torchtitan.tables import ARITHMETIC, FLAVORS, SILENT
from symsim.importers.torchtitan.toml import read_toml
from symsim.importers.trainer import buckets
from symsim.importers.weights import model_of
from symsim.inputs.hub import shipped_model
from symsim.inputs.models import load_model

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_EXCHANGES = {"standard": None, "minimal_async_ep": None, "deepep": "once_per_node", "hybridep": "once_per_node"}
_RECIPES = {"nvfp4": "nvfp4", "mx": "mxfp8", "float8": "tensorwise"}
_WHOLE_STAGES = "with a pipeline parameters are kept after backward and gradients reduced once, when the last micro-batch has come back"
_OP = "outputs of products and attention are kept; there those of every second product run again"
_ROWS = "scales for every row there, one for a tensor here: no message of maxima there, and an input and a gradient are cast once more, along columns"
_LESS_MEMORY = "kept by what the compiler chooses; nothing runs again here: an upper bound of memory, a lower one of time"


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a torchtitan TOML file, or of a configuration in Python. InputError for a key that there is not or a value that cannot be."""
    kind = inputs[0].lower().rpartition(".")[2]
    if kind not in ("toml", "yaml", "yml", "py") or (kind != "py" and len(inputs) > 1):
        raise InputError("'symsim import torchtitan' reads one .toml file, a .yaml of Primus, or a config_registry.py with --config NAME")
    known_variables(options, SAID)
    table = SILENT if kind == "toml" else {**SILENT, **PRIMUS}
    if kind == "py":
        written, given, old = newer.of_registry(read_registry(inputs[0], inputs[1:]))
        table = {**SILENT, **under(newer.SECTIONS, given), **newer.SILENT}
    else:
        written = of_sections(read_toml(inputs[0])) if kind == "toml" else read_primus(inputs[0])
        given, old = of_today(written)
    empty = {section for section, one in given.items() if one.value == {} and any(key.startswith(f"{section}.") for key in SILENT)}
    keys = Keys("a torchtitan file", {key: one for key, one in given.items() if key not in empty}, table, options.lenient)
    strategy: dict[str, Any] = {"fusion": "eager"}
    assumptions: dict[str, str] = {}
    architecture = _model(keys, options)
    if architecture is not None and architecture.mtp_num_layers:
        strategy["mtp_num_layers"] = 0
        keys.rows["mtp"] = Entry("mtp", "(default)", "derived", "mtp_num_layers", "torchtitan trains no multi-token prediction")
    instances = _mesh(keys, options, strategy, kind == "py")
    precision(keys, strategy)
    _data_parallel(keys, strategy, assumptions, instances)
    _overlap(keys, strategy, assumptions)
    deterministic(keys, assumptions, "training.deterministic", "debug.deterministic")
    _batch(keys, strategy)
    _pipeline(keys, strategy, architecture)
    add_groups(strategy)
    _update(keys, strategy, assumptions)
    _recomputed(keys, strategy, assumptions, architecture)
    _quantised(keys, strategy)
    _compiled(keys, strategy)
    unsharded(keys, strategy)
    if kind == "py":
        newer.apply(keys, strategy, architecture)
    documents_said(options, strategy)
    _early(keys, strategy)
    settle(keys, strategy, architecture, "torchtitan")
    notes = () if architecture is not None else ("no model of these names comes with symsim; --of MODEL says which",)
    told = tuple(row for row in with_names(keys.finish(), written, old) if row.value != "(default)" or row.fate in ("derived", "not_modelled"))
    return Job("torchtitan", told, architecture, _without_defaults(strategy), None, assumptions, notes)


def _early(keys: Keys, strategy: dict[str, Any]) -> None:
    """Parameters updated inside backward, whose norm finds no gradients then (components/optimizer.py OptimizersInBackwardContainer)."""
    key = "optimizer.early_step_in_backward"
    if not keys.flag(key, False, to="optimizer_in_bwd"):
        return
    alone = strategy.get("pp", 1) == 1 and strategy.get("num_microbatches", 1) == 1 and strategy["fusion"] != "te"
    whole = strategy["zero"] == 3 or (strategy["zero"] == 0 and strategy.get("dp", 1) == 1)
    if alone and whole and not strategy.get("optimizer_cpu_offload"):
        strategy |= {"optimizer_in_bwd": True, "clip_grad": 0.0}
        keys.note(key, to="optimizer_in_bwd, clip_grad", why="a gradient is freed as its parameter is updated, so that there is none to clip")
    else:
        keys.note(key, "not_modelled", why="gradients live until their own update alone: less by all but the largest")


def _compiled(keys: Keys, strategy: dict[str, Any]) -> None:
    """torch.compile of the model's layers; of TransformerEngine's kernels, which stand for FP8 here, nothing is left to fuse."""
    parts = keys.texts("compile.components", ["model", "loss"], to="fusion")
    for key in ("compile.enable", "training.compile"):
        if not keys.flag(key, False, to="fusion"):
            continue
        if "model" in parts and strategy["fusion"] == "eager":
            strategy["fusion"] = "compile"
        else:
            keys.note(key, "derived", "fusion", f"{strategy['fusion']}: " + ("kernels fused already" if "model" in parts else "the loss alone"))
    if keys.has("compile.components") and strategy["fusion"] != "compile":
        keys.note("compile.components", "no_cost_effect", why="no layer is compiled")


def _without_defaults(strategy: dict[str, Any]) -> dict[str, Any]:
    """The strategy without degrees of 1, and without etp where it is tp."""
    plain = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "vpp": 1, "tp_comm_overlap": False, "etp": strategy["tp"]}
    return {name: value for name, value in strategy.items() if plain.get(name) != value or name not in plain}


def _model(keys: Keys, options: "Options") -> "Architecture | None":
    name = str(keys.text("model.name", "llama3")).casefold().rpartition(".")[2]
    written = str(keys.text("model.flavor", "debugmodel")).casefold()
    flavor = written.partition("_")[0]
    assets, whole = keys.text("model.hf_assets_path"), keys.text("hf_transformers.model")
    if options.model is not None:
        architecture = load_model(options.model).architecture
        keys.note("model.flavor", to=f"model {architecture.name}", why="named by --of")
        keys.note("model.hf_assets_path", "no_cost_effect", why="weights and tokenizer")
        return architecture
    shipped = next((model for known, model in FLAVORS.get(name.removesuffix("_ft"), {}).items() if known.casefold() == flavor), None)
    if shipped is None and "/" in flavor and (named := shipped_model(flavor)) is not None:
        shipped = named.name
    if shipped is not None:
        keys.note("model.flavor", to=f"model {shipped}")
        keys.note("model.hf_assets_path", "no_cost_effect", why="weights and tokenizer")
        known = load_model(shipped).architecture
        own: dict[str, Any] = {"arithmetic": ARITHMETIC.get(name.removesuffix("_ft"))}
        # models/qwen3_5/__init__.py: every flavor has a head of its own
        return known.model_copy(update={**own, **({"tie_word_embeddings": False} if name == "qwen3_5" else {})})
    small = debug_model(name.removesuffix("_ft")) if written in DEBUG else None
    if small is not None:
        keys.note("model.flavor", to=f"model {small.name}")
        keys.note("model.hf_assets_path", "no_cost_effect", why="weights and tokenizer")
        return small
    if name == "flux":
        raise InputError(f"{keys.place('model.name')}: model.name is {name}, which makes images; decoders of text are read, --of MODEL gives another")
    # experiments/transformers_modeling_backend, whose other flavors cut the model down
    if whole is not None and "full" in written.split("_"):
        keys.note("model.flavor", "no_cost_effect", why="the whole model of hf_transformers.model")
        keys.note("model.hf_assets_path", "no_cost_effect", why="weights and tokenizer")
        return model_of(keys, "hf_transformers.model", options)
    why = "no model that comes with symsim has this name and flavor; --of MODEL names one"
    keys.note("model.flavor", "refused", why=why)
    return model_of(keys, "model.hf_assets_path", options) if assets is not None else None


def _degree(keys: Keys, name: str, option: str) -> int:
    return int(keys.integer(f"parallelism.{name}", 1, to=option, least=1))


def _mesh(keys: Keys, options: "Options", strategy: dict[str, Any], always: bool) -> int:
    """Degrees of the mesh; the number of replicas of what FSDP shards (1 where nothing is sharded)."""
    for name, option in (("tensor_parallel", "tp"), ("context_parallel", "cp"), ("pipeline_parallel", "pp"), ("expert_parallel", "ep")):
        strategy[option] = _degree(keys, f"{name}_degree", option)
    within = keys.integer("parallelism.expert_tensor_parallel_degree", 1, to="etp", least=1)
    strategy["etp"] = within if strategy["ep"] > 1 else strategy["tp"]
    if strategy["ep"] == 1 and "parallelism.expert_tensor_parallel_degree" in keys.given:
        keys.note("parallelism.expert_tensor_parallel_degree", "derived", "etp", "tp where experts are not spread over ranks")
    if not keys.flag("parallelism.enable_sequence_parallel", True, to="sp") and strategy["tp"] > 1:
        strategy["sp"] = False
    elif strategy["tp"] > 1:
        strategy["sp"] = True
        keys.rows["sp"] = Entry("sp", "(default)", "derived", "sp", "torchtitan's tensor parallelism splits the sequence between its products")
    if strategy["cp"] > 1:
        rotated = keys.choice("parallelism.context_parallel_rotate_method", {"allgather": "all_gather", "alltoall": "p2p"}, "all_gather")
        strategy["cp_comm_type"] = rotated
        keys.note("parallelism.context_parallel_rotate_method", "mapped", "cp_comm_type")
    keys.choice("parallelism.context_parallel_rotate_method", {"allgather": 1, "alltoall": 1}, to="cp_comm_type")
    balancer = keys.text("parallelism.context_parallel_load_balancer", "headtail")
    if balancer not in ("headtail", "ptrr"):
        strategy["cp_partition_mode"] = "contiguous"
        keys.note("parallelism.context_parallel_load_balancer", to="cp_partition_mode", why="contiguous: the last rank has nearly twice the mean")
    return _ranks(keys, options, strategy, always)


def _ranks(keys: Keys, options: "Options", strategy: dict[str, Any], always: bool) -> int:
    """How many replicas of the shards there are. always: FSDP holds the types of parameters and products where it has one rank, too (since
    models are configured in Python)."""
    replicas = _degree(keys, "data_parallel_replicate_degree", "dp")
    shards = keys.integer("parallelism.data_parallel_shard_degree", -1, to="dp", least=-1)
    each = strategy["tp"] * strategy["cp"] * strategy["pp"]
    named = world_size(options)
    if shards >= 1:
        world = replicas * shards * each
        if named is not None and named != world:
            raise InputError(f"--var world={named}: the degrees of {next(iter(keys.given.values())).where.rpartition(':')[0]} make {world} ranks")
    else:
        # experts lie over the ranks of a pipeline's stage
        stage = math.lcm(strategy["tp"] * strategy["cp"] * replicas, strategy["ep"] * strategy["etp"])
        least = each * replicas
        # what is left to shards is two of them at least
        most = stage * strategy["pp"] if strategy["cp"] > 1 else math.lcm(stage * strategy["pp"], 2 * least)
        world = named or max(1, -(-NODE // most)) * most
        if world % least:
            raise InputError(f"--var world={world}: it should be a multiple of the {least} ranks of all other degrees")
        fate = "mapped" if named else "derived"
        why = "" if named else f"{world} ranks, since the file leaves the rest to the launcher; --var world=N says how many"
        keys.rows["world"] = Entry("world", str(named or "(default)"), "mapped" if fate == "mapped" else "derived", "dp", why)
    strategy["dp"] = world // each
    sharded = strategy["dp"] // replicas > 1 or strategy["cp"] > 1
    strategy["zero"] = 3 if sharded or always else 0
    return replicas if strategy["zero"] else 1


def _data_parallel(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], replicas: int) -> None:
    """FSDP where anything shards, else DDP."""
    if replicas > 1:
        strategy["num_distributed_optimizer_instances"] = replicas
        keys.note("parallelism.data_parallel_replicate_degree", to="dp, num_distributed_optimizer_instances", why="replicas of the shards (HSDP)")
    policy = {"default": strategy["pp"] == 1, "always": True, "never": False}
    again = keys.choice("parallelism.fsdp_reshard_after_forward", policy, strategy["pp"] == 1, to="reshard_after_forward")
    if strategy["zero"] == 0:
        strategy["overlap_grad_reduce"] = True
        buckets(keys, strategy, "parallelism.ddp_bucket_cap_mb")
        return
    assumptions["fsdp_parameters"] = "main"
    keys.note("parallelism.data_parallel_shard_degree", to="dp, zero")
    if not again:
        strategy["reshard_after_forward"] = False
    if strategy["pp"] > 1:
        # torch.distributed.pipelining stage.py backward_maybe_with_nosync
        strategy |= {"reshard_after_backward": False, "gradient_sync": "last_microbatch"}
        keys.rows["no_sync"] = Entry("no_sync", "(default)", "derived", "reshard_after_backward, gradient_sync", _WHOLE_STAGES)


def _overlap(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    strategy["tp_comm_overlap"] = keys.flag("parallelism.enable_async_tensor_parallel", False, to="tp_comm_overlap")
    if keys.flag("parallelism.disable_loss_parallel", False, to="assume.loss_parallel") and strategy["tp"] > 1:
        assumptions["loss_parallel"] = "false"
    backend = keys.choice("parallelism.expert_parallel_comm_backend", _EXCHANGES, None, to="assume.moe_exchange")
    if backend is not None and strategy["ep"] > 1:
        assumptions["moe_exchange"] = backend
    elif backend is not None:
        keys.note("parallelism.expert_parallel_comm_backend", "no_cost_effect", why="no exchange where experts are not spread over ranks")


def _batch(keys: Keys, strategy: dict[str, Any]) -> None:
    local = keys.integer("training.local_batch_size", None, to="micro_batch_size", least=1)
    local = keys.integer("training.batch_size", local, to="micro_batch_size", least=1)
    if local is None:
        keys.note("training.local_batch_size", "derived", "micro_batch_size", "8 by default")
    local = local or 8
    whole = keys.integer("training.global_batch_size", -1, to="num_microbatches", least=-1)
    step = local * strategy["dp"]
    if whole > 0 and whole % step:
        raise keys.wrong("training.global_batch_size", f"a multiple of local_batch_size times the data-parallel ranks, {step}")
    rounds = whole // step if whole > 0 else 1
    strategy["seq_length"] = keys.integer("training.seq_len", 2048, to="seq_length", least=1)
    if "training.seq_len" not in keys.given:
        keys.note("training.seq_len", "derived", "seq_length", "2048 by default")
    part = keys.integer("parallelism.pipeline_parallel_microbatch_size", 1, to="micro_batch_size", least=1)
    if strategy["pp"] == 1:
        strategy |= {"micro_batch_size": local, "num_microbatches": rounds}
        keys.note("parallelism.pipeline_parallel_microbatch_size", "no_cost_effect", why="read with a pipeline alone")
        return
    if local % part:
        key = "training.batch_size" if "training.batch_size" in keys.given else "training.local_batch_size"
        raise keys.wrong(key, f"a multiple of parallelism.pipeline_parallel_microbatch_size, {part}")
    strategy |= {"micro_batch_size": part, "num_microbatches": local // part}
    keys.note("training.local_batch_size", to="num_microbatches", why="cut into the pipeline's micro-batches")
    add_rounds(keys, "training.global_batch_size", strategy, rounds)


def _pipeline(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """The schedule, and layers spread over stages with embedding and head counted as layers (generate_llm_fqn_per_model_part)."""
    names = {spelt: name for name in SCHEDULES for spelt in (name, *_SPELT[name])}
    name = keys.choice("parallelism.pipeline_parallel_schedule", names, "1f1b", to="schedule")
    overlapped = keys.flag("parallelism.pipeline_parallel_expert_parallel_overlap", True)
    if overlapped and name == "dualpipev" and strategy["ep"] > 1:
        why = "a micro-batch's exchange runs beside another's computation there"
        keys.note("parallelism.pipeline_parallel_expert_parallel_overlap", "not_modelled", why=why)
    elif "parallelism.pipeline_parallel_expert_parallel_overlap" in keys.given:
        keys.note("parallelism.pipeline_parallel_expert_parallel_overlap", "no_cost_effect", why="read by DualPipeV alone")
    first = keys.integer("parallelism.pipeline_parallel_first_stage_less_layers", 1, to="pipeline_model_parallel_layout")
    last = keys.integer("parallelism.pipeline_parallel_last_stage_less_layers", 1, to="pipeline_model_parallel_layout")
    per_stage = keys.integer("parallelism.pipeline_parallel_layers_per_stage", None, to="vpp", least=1)
    parts = _parts(keys)
    if keys.has("parallelism.pipeline_parallel_split_points") and keys.given["parallelism.pipeline_parallel_split_points"].value:
        why = "layers are spread evenly here: another stage may be the slowest"
        keys.note("parallelism.pipeline_parallel_split_points", "not_modelled", why=why)
    pp = strategy["pp"]
    if pp == 1:
        keys.note("parallelism.pipeline_parallel_schedule", "no_cost_effect", why="read with a pipeline alone")
        return
    schedule, chunks = SCHEDULES[name]
    layers = architecture.num_layers if architecture is not None else None
    if per_stage is not None and layers is not None:
        stages = math.ceil((layers + first + last) / per_stage)
        if stages % pp:
            raise keys.wrong("parallelism.pipeline_parallel_layers_per_stage", f"one that makes a multiple of {pp} stages; it makes {stages}")
        chunks = stages // pp
    if parts:
        key = "parallelism.module_fqns_per_model_part"
        if len(parts) % pp:
            raise keys.wrong(key, f"as many parts as a multiple of {pp} stages; it has {len(parts)}")
        strategy |= {"schedule": schedule, "vpp": len(parts) // pp, "pipeline_model_parallel_layout": "|".join(parts)}
        return
    strategy |= {"schedule": schedule, "vpp": chunks}
    if layers is not None and layers <= 10_000 and pp * chunks <= layers:
        strategy["pipeline_model_parallel_layout"] = _layout(keys, pp * chunks, layers, first, last)


def _parts(keys: Keys) -> list[str]:
    """The stages of module_fqns_per_model_part as those of a layout; none where it is not given, or names other modules than a decoder's."""
    key = "parallelism.module_fqns_per_model_part"
    if not keys.has(key) or not keys.given[key].value:
        return []
    value, found, layers = keys.given[key].value, [], 0
    for part in value if isinstance(value, list) else [value]:
        words = ""
        for name in part if isinstance(part, list) else [part]:
            if name == f"layers.{layers}":
                layers += 1
                words += "t"
            elif name in _MODULES:
                words += _MODULES[name]
            else:
                keys.note(key, "not_modelled", why=f"'{cut(str(name))}' is not read here; layers are spread evenly: another stage may be the slowest")
                return []
        found.append(re.sub("t{4,}", lambda run: f"t*{len(run[0])}", words))
    keys.note(key, to="vpp, pipeline_model_parallel_layout")
    return found


_MODULES = {"tok_embeddings": "E", "norm": "", "output": "L", "lm_head": "L"}


_SPELT = {
    "1f1b": ("1F1B",),
    "gpipe": ("GPipe",),
    "interleaved1f1b": ("Interleaved1F1B",),
    "loopedbfs": ("LoopedBFS",),
    "interleavedzerobubble": ("InterleavedZeroBubble",),
    "zbvzerobubble": ("ZBVZeroBubble",),
    "dualpipev": ("DualPipeV",),
}


def _layout(keys: Keys, stages: int, layers: int, first: int, last: int) -> str:
    counts = spread(stages, layers, first, last)
    each = (layers + first + last) // stages
    if min(counts) < 0:
        key = "parallelism.pipeline_parallel_first_stage_less_layers" if counts[0] < 0 else "parallelism.pipeline_parallel_last_stage_less_layers"
        if key in keys.given:
            raise keys.wrong(key, f"at most the {each} layers of a stage")
        raise InputError(f"{stages} stages have {each} layers each, fewer than {key.partition('.')[2]} takes off")
    words = [f"t*{count}" if count else "" for count in counts]
    return "|".join(["E" + words[0], *words[1:-1], words[-1] + "L"])


def spread(stages: int, layers: int, first: int, last: int) -> list[int]:
    """Layers of each stage, where the first counts `first` and the last `last` more than it has (generate_llm_fqn_per_model_part)."""
    each, extra = divmod(layers + first + last, stages)
    counts = [each + (stage < extra) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    return counts


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    name = str(keys.text("optimizer.name", "AdamW")).casefold()
    if name not in ("adam", "adamw", "sgd", "muon"):
        raise keys.wrong("optimizer.name", "Adam or AdamW")
    if "optimizer.name" in keys.given:
        OPTIMIZERS[name].apply(keys, "optimizer.name", strategy, assumptions)
    kinds = {"fused": "fused", "foreach": "foreach", "for-loop": "for_loop", "fused_opt_states_bf16": "fused"}
    way = keys.choice("optimizer.implementation", kinds, "fused", to="assume.optimizer_implementation")
    if keys.text("optimizer.implementation", "") == "fused_opt_states_bf16":
        strategy |= {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}
        keys.note("optimizer.implementation", to="exp_avg_dtype, exp_avg_sq_dtype")
    if way != "fused":
        assumptions["optimizer_implementation"] = way
    strategy["clip_grad"] = keys.number("training.max_norm", 1.0, to="clip_grad")
    if keys.flag("training.enable_cpu_offload", False, to="optimizer_cpu_offload"):
        if strategy["zero"]:
            strategy |= host_states(str(strategy["precision"]))
        if strategy["zero"] == 3:
            strategy |= {"offload_parameters": True, "offload_gradients": True, "host_update": "torch"}
        keys.note("training.enable_cpu_offload", to="optimizer_cpu_offload, offload_parameters", why=HOST_PARAMETERS)


def _recomputed(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None") -> None:
    modes = {name: name for name in ("none", "full", "selective", "memory_budget")}
    mode = keys.choice("activation_checkpoint.mode", modes, "selective", to="recompute")
    option = keys.text("activation_checkpoint.selective_ac_option", "2", to="recompute")
    early = keys.flag("activation_checkpoint.early_stop", False, to="assume.recompute_early_stop")
    if "activation_checkpoint.mode" not in keys.given:
        keys.note("activation_checkpoint.mode", "derived", "recompute", "every second layer runs again by default")
    if mode != "selective":
        keys.note("activation_checkpoint.selective_ac_option", "no_cost_effect", why="read with mode=selective alone")
    if mode == "memory_budget":
        keys.note("activation_checkpoint.mode", "not_modelled", "recompute", _LESS_MEMORY)
    if mode in ("none", "memory_budget"):
        return
    assumptions["recompute_early_stop"] = "true" if early else "false"
    if mode == "full":
        strategy["recompute"] = "full"
    elif option == "op":
        strategy["recompute"] = "sac_mm_attn"
        keys.note("activation_checkpoint.selective_ac_option", to="recompute", why=_OP)
    elif option.isascii() and option.isdigit() and 0 < int(option[:6]) and len(option) < 6:
        _every(keys, strategy, int(option), architecture)
    else:
        raise keys.wrong("activation_checkpoint.selective_ac_option", "op, or a whole number above 0: every so manieth layer runs again")


def _every(keys: Keys, strategy: dict[str, Any], nth: int, architecture: "Architecture | None") -> None:
    """Every nth layer runs again: as many layers of each chunk, from its first."""
    strategy["recompute"] = "full"
    if nth == 1:
        return
    strategy["recompute_method"] = "block"
    if architecture is not None:
        chunk = -(-architecture.num_layers // (strategy["pp"] * int(strategy.get("vpp", 1))))
        strategy["recompute_num_layers"] = -(-chunk // nth)
    why = f"as many layers as every {nth}th, of each chunk its first" if architecture is not None else "one layer a chunk, since no model is known"
    keys.note("activation_checkpoint.selective_ac_option", to="recompute, recompute_method, recompute_num_layers", why=why)


def _quantised(keys: Keys, strategy: dict[str, Any]) -> None:
    """FP8 where a converter is named; symsim has its products in te's kernels alone."""
    converters = set(keys.texts("model.converters", [], to="fp8"))
    named = next((name for name, recipe in _RECIPES.items() if converters & {name, f"quantize.linear.{name}"}), None)
    asked = named is not None
    if named is not None:
        strategy |= {"fp8": _RECIPES[named], "fusion": "te"}
        keys.note("model.converters", to="fp8, fusion", why="products in 8 bits are te's kernels here, with the weights' copies that it keeps")
    for section in ("quantize.linear.float8", "float8", "quantize.linear.mx", "mx", "quantize.linear.nvfp4"):
        _linear(keys, section, asked, strategy)
    for section in ("quantize.grouped_mm.float8", "quantize.grouped_mm.mx"):
        keys.known |= {f"{section}.fqns", f"{section}.recipe_name"}
        experts = keys.texts(f"{section}.fqns", [], to="fp8")
        if experts and asked:
            keys.note(f"{section}.fqns", to="fp8", why="experts' products run in 8 bits too")
        elif experts:
            keys.note(f"{section}.fqns", "no_cost_effect", why="read with its converter alone")


def _linear(keys: Keys, section: str, asked: bool, strategy: dict[str, Any]) -> None:
    recipe = keys.text(f"{section}.recipe_name", None, to="fp8")
    left = keys.texts(f"{section}.filter_fqns", [], to="fp8", why="the output layer and routers run in 16 bits here too")
    narrow_gathers(keys, strategy, f"{section}.enable_fsdp_float8_all_gather")
    for name in ("precompute_float8_dynamic_scale_for_fsdp", "force_recompute_fp8_weight_in_bwd"):
        keys.flag(f"{section}.{name}", False, why="one pass for all weights' maxima in place of one each")
    if keys.flag(f"{section}.emulate", False) and asked:
        keys.refuse(f"{section}.emulate", "8 bits are emulated in 16, which costs more than either; give false for products in 8 bits")
    for name in ("recipe_name", "filter_fqns", "enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp", "emulate"):
        if f"{section}.{name}" in keys.rows and not asked:
            keys.note(f"{section}.{name}", "no_cost_effect", why="read where a converter is named in model.converters")
    if asked and recipe == "rowwise_with_gw_hp":
        strategy["fp8_wgrad"] = False
        keys.note(f"{section}.recipe_name", to="fp8, fp8_wgrad", why="of linear maps forward and input gradients; with a scale for every row there")
    elif asked and recipe == "rowwise":
        keys.note(f"{section}.recipe_name", "not_modelled", "fp8", _ROWS)
    if asked and any(not {"output", "lm_head", "router"} & set(name.split(".")) for name in left):
        keys.note(
            f"{section}.filter_fqns",
            "not_modelled",
            "fp8",
            "these linears run in 16 bits there, at half the rate; all but output and routers in 8 here",
        )
