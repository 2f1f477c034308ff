"""A NeMo Automodel recipe's YAML.

What its keys do: Automodel 36044ad3 (2026-08-22), nemo_automodel/components/distributed/*.py, pipelining/functional.py, moe/parallelizer.py,
recipes/llm/train_ft.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.adapted import dropout_position, four_bits, frozen_decoder, stored_base
from symsim.importers.automodel.kernels import kernels
from symsim.importers.automodel.sharding import sharded
from symsim.importers.automodel.tables import SECTIONS, SILENT
from symsim.importers.documents import SAID, documents_said, packed_rows
from symsim.importers.fsdp import narrow_gathers
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys
from symsim.importers.optimizers import OPTIMIZERS, of_class
from symsim.importers.pytorch_pipeline import SCHEDULES, add_groups, add_rounds
from symsim.importers.ranks import NODE, known_variables, variable, world_size
from symsim.importers.rules import parts_apart, settle, split_sequence
from symsim.importers.sections import of_sections, referred, under
from symsim.importers.targets import excluded, targets, without
from symsim.importers.trainer import OTHER_MODELS
from symsim.importers.weights import model_of
from symsim.inputs.hf.reader import read_config
from symsim.inputs.reading import read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_TYPES = {
    spelling: short for short, long in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")) for spelling in (long, short, f"torch.{long}")
} | {"auto": "bf16"}
_STATES = {key: short for key, short in _TYPES.items() if key != "auto"}
_DEPTHS = [f"model.{name}num_nextn_predict_layers" for name in ("", "config.", "text_config.")]
_DEPTHS += ["model.text_config.num_mtp_modules", "model.text_config.mtp_num_hidden_layers"]
_RECIPES = {"mxfp8": "mxfp8", "block": "blockwise", "current": "tensorwise"}
# transformers.models.qwen3_moe.configuration_qwen3_moe.Qwen3MoeConfig
_CLASS = re.compile(r"(?:\w+\.)*models\.(\w{1,60})\.(?:\w+\.)*\w+Config")
_FUNCTIONS = "peft.use_memory_efficient_lora"
_NONE = ("none", "None", "null", "")


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a recipe. InputError for a key that there is not or a value that cannot be."""
    if len(inputs) != 1:
        raise InputError(f"'symsim import automodel' reads one YAML, and {len(inputs)} files are given")
    known_variables(options, ("seq_length", *SAID))
    written = of_sections(read_yaml(inputs[0]))
    given = {key: one for key, one in referred(written).items() if not (isinstance(one.value, str) and one.value in _NONE)}
    keys = Keys("an Automodel file", given, {**under(SECTIONS, given), **SILENT}, options.lenient)
    strategy: dict[str, Any] = {}
    assumptions: dict[str, str] = {}
    architecture = _model(keys, options)
    _mesh(keys, strategy, options)
    kernels(keys, strategy, assumptions, architecture)
    _precision(keys, strategy)
    _batch(keys, strategy, options)
    _pipeline(keys, strategy, architecture)
    sharded(keys, strategy, assumptions)
    _update(keys, strategy, assumptions)
    _checkpoints(keys, strategy)
    _adapters(keys, strategy, assumptions, architecture)
    frozen_decoder(keys, "freeze_config.freeze_language_model", strategy)
    _quantised(keys, strategy)
    if strategy["fusion"] != "eager":
        strategy.pop("fused_kernels", None)
    _stored(keys, strategy)
    narrow_gathers(keys, strategy, "fp8.enable_fsdp_float8_all_gather")
    parts_apart(keys, strategy, architecture, "distributed.cp_size")
    split_sequence(keys, strategy, architecture, "Automodel")
    settle(keys, strategy, architecture, "Automodel")
    rows = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    notes = () if architecture is not None else ("no model is known by that name; --of MODEL says which",)
    plain = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "vpp": 1}
    strategy = {name: value for name, value in strategy.items() if plain.get(name) != value or name not in plain}
    return Job("automodel", tuple(rows), architecture, strategy, None, assumptions, notes)


def _model(keys: Keys, options: "Options") -> "Architecture | None":
    """The model by its weights' name, or by its config's; depths of multi-token prediction as they are asked for."""
    sized = [key for key in keys.given if key.startswith("model.config.") and key not in keys.table]
    _refuse_others(keys, options)
    names = ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config.name_or_path")
    key = next((name for name in names if name in keys.given), names[0])
    architecture = model_of(keys, key, options)
    for name in names:
        if name in keys.given and name != key:
            keys.note(name, "no_cost_effect", why=f"{key} names the model")
    if architecture is None and key not in keys.given:
        architecture = _of_class(keys, sized)
    for name in sized:
        if name not in keys.rows and not name.endswith(".num_nextn_predict_layers"):
            keys.note(
                name, "refused" if options.model is None else "no_cost_effect", why="another size than the named model's; --of FILE gives a model"
            )
    for name in ("vocab_size", "n_embd", "n_head", "n_layer", "n_positions"):
        if f"model.{name}" in keys.given:
            keys.note(f"model.{name}", "no_cost_effect" if options.model else "refused", why="sizes of a model; --of FILE gives one")
    depths = [keys.integer(name, None, to="mtp_num_layers") for name in _DEPTHS]
    keys.flag("model.mtp_use_repeated_layer", False, to="model mtp_use_repeated_layer")
    if any(name.startswith("teacher_model.") for name in keys.given):
        keys.rows["workload"] = Entry("workload", "teacher_model", "not_modelled", why=OTHER_MODELS)
    if architecture is None:
        return None
    asked = next((number for number in depths if number is not None), None)
    if asked is not None and asked != architecture.mtp_num_layers:
        return architecture.model_copy(update={"mtp_num_layers": min(asked, 64)})
    return architecture


def _refuse_others(keys: Keys, options: "Options") -> None:
    """InputError for a recipe of images or video, which trains no decoder."""
    other = next((key for key in keys.given if key.startswith("flow_matching.")), None)
    if other is not None and options.model is None:
        raise InputError(f"{keys.place(other)}: flow_matching trains a model of images or video; decoders of text are read, --of MODEL gives another")


def _of_class(keys: Keys, sized: Sequence[str]) -> "Architecture | None":
    """The model whose sizes stand in the file, as arguments of transformers' class of its config; None, and why, where none is known so."""
    found = _CLASS.fullmatch(str(keys.given["model.config._target_"].value)) if "model.config._target_" in keys.given else None
    if found is None or not sized:
        return None
    config: dict[str, Any] = {"model_type": found[1]}
    for name in sized:
        inner = config
        *path, last = name.removeprefix("model.config.").split(".")
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = keys.given[name].value
    try:
        architecture, rows = read_config(config, found[1], keys.given[sized[0]].where)
    except InputError as error:
        keys.note("model.config._target_", "refused", why=f"{error}; --of FILE gives a model")
        return None
    for key, said, why in rows:
        name = f"model.config.{key}"
        if name in keys.given and said in ("mapped", "no cost effect"):
            keys.note(name, "mapped", why) if said == "mapped" else keys.note(name, "no_cost_effect", why=why)
    keys.note("model.config._target_", to=f"model {architecture.name}")
    return architecture


def _mesh(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    """Degrees; dp of the ranks that the others leave, experts over ranks of data and context parallelism."""
    for name, option in (("tp_size", "tp"), ("cp_size", "cp"), ("pp_size", "pp"), ("ep_size", "ep")):
        strategy[option] = keys.integer(f"distributed.{name}", 1, to=option, least=1)
    replicas = keys.integer("distributed.dp_replicate_size", 1, to="num_distributed_optimizer_instances", least=1)
    own = keys.integer("distributed.dp_size", None, to="dp", least=1)
    each = strategy["tp"] * strategy["cp"] * strategy["pp"]
    # experts lie over ranks of data and context parallelism
    least = math.lcm(replicas, strategy["ep"] // math.gcd(strategy["ep"], strategy["cp"]))
    world = world_size(options)
    if world is not None:
        keys.rows["world"] = Entry("world", str(world), "mapped", "dp")
    elif own is not None:
        world = own * each
    else:
        dp = max(1, -(-NODE // (each * least))) * least
        world = dp * each
        keys.rows["world"] = Entry("world", "(default)", "derived", "dp", f"{world} ranks, since the file does not say; --var world=N does")
    if world % (each * least):
        raise InputError(f"--var world={world}: it should be a multiple of {each * least}, the ranks that the other degrees need")
    strategy["dp"] = world // each
    if strategy["ep"] > 1:
        strategy["etp"] = 1
    if replicas > 1:
        strategy["num_distributed_optimizer_instances"] = replicas
    if keys.flag("distributed.sequence_parallel", False, to="sp") and strategy["tp"] > 1:
        strategy["sp"] = True
    elif "distributed.sequence_parallel" in keys.given and strategy["tp"] == 1:
        keys.note("distributed.sequence_parallel", "no_cost_effect", why="nothing to split at tp_size=1")
    if keys.flag("distributed.enable_async_tensor_parallel", False, to="tp_comm_overlap"):
        strategy["tp_comm_overlap"] = True
    if strategy["cp"] > 1:
        strategy["cp_comm_type"] = "all_gather"


def _precision(keys: Keys, strategy: dict[str, Any]) -> None:
    strategy["precision"] = keys.choice("distributed.mp_policy.param_dtype", _STATES, "bf16", to="precision")
    kept = "bf16"
    for name in ("model.dtype", "model.torch_dtype"):
        kept = keys.choice(name, _TYPES, kept, to="main_params_dtype")
    sent = keys.choice("distributed.mp_policy.reduce_dtype", _STATES, "fp32", to="grad_reduce_in_fp32")
    strategy["grad_reduce_in_fp32"] = sent == "fp32" or keys.flag("distributed.grad_reduce_in_fp32", False, to="grad_reduce_in_fp32")
    if kept != "fp32":
        strategy["main_params_dtype"] = kept
        if not {"model.dtype", "model.torch_dtype"} & keys.given.keys():
            keys.note("model.torch_dtype", "derived", "main_params_dtype", "weights are updated in the type of their files, bf16")


def _batch(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    local = keys.integer("step_scheduler.local_batch_size", 1, to="micro_batch_size", least=1)
    whole = keys.integer("step_scheduler.global_batch_size", None, to="num_microbatches", least=1)
    step = local * strategy["dp"]
    rounds = 1
    if whole is not None:
        rounds = max(1, whole // step)
        if whole % step:
            keys.note("step_scheduler.global_batch_size", "derived", "num_microbatches", f"{rounds} of {step} samples on {strategy['dp']} replicas")
    strategy |= {"micro_batch_size": local, "num_microbatches": rounds}
    packed = 0
    for key in ("packed_sequence.packed_sequence_size", "packed_sequence.pack_size"):
        packed = keys.integer(key, packed, to="seq_length")
    length = packed or None
    for key in ("dataset.seq_len", "dataset.seq_length", "packed_sequence.collate_max_length", "packed_sequence.max_length"):
        found = keys.integer(key, None, to="seq_length", least=1)
        length = length or found
    told = variable(options, "seq_length")
    if told is not None:
        keys.rows["seq_length"] = Entry("seq_length", str(told), "mapped", "seq_length", "--var")
    elif length is None:
        why = "4096, since rows are as long as their longest sample; --var seq_length=N"
        keys.rows["seq_length"] = Entry("seq_length", "(default)", "derived", "seq_length", why)
    strategy["seq_length"] = told or length or 4096
    said = documents_said(options, strategy)
    for key in ("packed_sequence.packed_sequence_size", "packed_sequence.pack_size"):
        if packed and key in keys.given:
            packed_rows(keys, key, said)


def _pipeline(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """Schedules are PyTorch's; layers of a stage say how many chunks a rank has."""
    name, each, part = "1f1b", None, 1
    for section in ("autopipeline", "distributed.pipeline"):
        schedules = {spelt: known for known in SCHEDULES for spelt in (known, known.upper(), "Interleaved1F1B", "1F1B") if spelt.lower() == known}
        name = keys.choice(f"{section}.pp_schedule", schedules, name, to="schedule")
        each = keys.integer(f"{section}.layers_per_stage", each, to="vpp", least=1)
        part = keys.integer(f"{section}.pp_microbatch_size", part, to="micro_batch_size", least=1)
        keys.integer(f"{section}.pp_batch_size", None, to="num_microbatches", least=1)
        for key in ("round_virtual_stages_to_pp_multiple",):
            keys.choice(f"{section}.{key}", {"up": "up", "down": "down"}, None, to="vpp")
        if keys.has(f"{section}.module_fqns_per_model_part"):
            keys.note(
                f"{section}.module_fqns_per_model_part", "not_modelled", why="stages written out by their modules; layers are spread evenly here"
            )
    if strategy["pp"] == 1:
        for key in keys.given:
            if key.startswith(("autopipeline.", "distributed.pipeline.")) and key in keys.rows:
                keys.note(key, "no_cost_effect", why="read with a pipeline alone")
        return
    schedule, chunks = SCHEDULES[name]
    if each is not None and architecture is not None and chunks > 1:
        chunks = max(1, round(architecture.num_layers / (each * strategy["pp"])))
    strategy["schedule"] = "1f1b" if schedule == "interleaved" and chunks == 1 else schedule
    if chunks > 1:
        strategy["vpp"] = chunks
    local = strategy["micro_batch_size"]
    if local % part:
        raise keys.wrong("step_scheduler.local_batch_size", f"a multiple of pp_microbatch_size, {part}")
    rounds = strategy["num_microbatches"]
    strategy |= {"micro_batch_size": part, "num_microbatches": local // part}
    add_rounds(keys, "step_scheduler.global_batch_size", strategy, rounds)
    add_groups(strategy)
    _stages(keys, strategy, architecture)


def _stages(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """Layers that do not divide: one more in the first of the stages."""
    stages = strategy["pp"] * int(strategy.get("vpp", 1))
    if architecture is None or architecture.num_layers % stages == 0:
        return
    if architecture.num_layers < stages:
        raise keys.wrong("distributed.pp_size", f"at most the number of layers, {architecture.num_layers}, over the chunks of a rank")
    each, more = divmod(architecture.num_layers, stages)
    parts = [f"t*{each + (stage < more)}" for stage in range(stages)]
    depths = "m" * architecture.mtp_num_layers
    strategy["pipeline_model_parallel_layout"] = "|".join(["E" + parts[0], *parts[1:-1], f"{parts[-1]}{depths}L"])
    why = f"{each} or {each + 1} layers a stage"
    keys.rows["stages"] = Entry("stages", "(default)", "derived", "pipeline_model_parallel_layout", why)


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    target = str(keys.text("optimizer._target_", "torch.optim.AdamW"))
    name = of_class(target)
    name = {"flashadamw": "flash_adamw"}.get(name, name)
    if name not in OPTIMIZERS:
        raise keys.wrong("optimizer._target_", "an optimizer of PyTorch, Transformer Engine or bitsandbytes")
    OPTIMIZERS[name].apply(keys, "optimizer._target_", strategy, assumptions)
    fused = keys.flag("optimizer.fused", False, to="assume.optimizer_implementation")
    together = keys.flag("optimizer.foreach", True, to="assume.optimizer_implementation")
    main = keys.flag("optimizer.master_weights", False, to="main_params_dtype")
    bits = keys.choice("optimizer.master_weight_bits", {"24": 24, "32": 32}, None, to="main_params_dtype")
    remainders = keys.flag("optimizer.store_param_remainders", False, to="store_param_remainders")
    kept = keys.choice("optimizer.master_weight_dtype", _STATES, "fp32", to="main_params_dtype")
    states = {option: keys.choice(f"optimizer.{option}", _STATES, None, to=option) for option in ("exp_avg_dtype", "exp_avg_sq_dtype")}
    if target.startswith("torch.optim.") and not fused and name in ("adam", "adamw"):
        assumptions["optimizer_implementation"] = "foreach" if together else "for_loop"
    if main or bits:
        strategy.pop("main_params_dtype", None)
    if main and strategy.get("zero") and strategy["precision"] == "bf16":
        strategy |= {"use_precision_aware_optimizer": True, "store_param_remainders": remainders}
        strategy |= {option: kind for option, kind in states.items() if kind is not None}
        if kept != "fp32":
            strategy["main_params_dtype"] = kept
    elif "optimizer.master_weight_dtype" in keys.given:
        keys.note("optimizer.master_weight_dtype", "no_cost_effect", why="read where master weights are kept beside sharded ones in bf16")
    limit = keys.number("clip_grad_norm.max_norm", 1.0, to="clip_grad")
    strategy["clip_grad"] = limit


def _checkpoints(keys: Keys, strategy: dict[str, Any]) -> None:
    whole = False
    kinds = {"true": True, "True": True, "false": False, "False": False, "full": True, "none": False, "selective": True}
    for key in ("parallelizer.activation_checkpointing", "distributed.activation_checkpointing", "model.base_activation_checkpointing"):
        if keys.has(key):
            given = keys.given[key].value
            whole = kinds.get(str(given), False)
            if str(given) not in kinds:
                raise keys.wrong(key, "true or false")
            keys.note(key, to="recompute")
    keys.choice("distributed.activation_checkpointing_scope", {"all": "all", "language": "all"}, None, to="recompute")
    if whole:
        strategy["recompute"] = "full"


def _adapters(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None") -> None:
    """LoRA of the linear maps that patterns name; of an unknown model a pattern of the end of names (`*_proj`) is all of them."""
    rank = keys.integer("peft.dim", 8, to="lora_rank", least=1)
    dropout = keys.number("peft.dropout", 0.0, to="lora_dropout", why="a mask of bytes, at any rate above 0")
    if not 0 <= dropout < 1:
        raise keys.wrong("peft.dropout", "from 0 to below 1")
    every = keys.flag("peft.match_all_linear", False, to="target_modules")
    named = keys.texts("peft.target_modules", [], to="target_modules")
    scaled = keys.flag("peft.moe_rank_scaling", False, to="lora_rank")
    if not any(key.startswith("peft.") for key in keys.given):
        return
    asked = ["all_linear" if architecture is None and "*" in name.rsplit(".", 1)[-1] else name for name in named] or ["all_linear"]
    found, lost = (["all_linear"], []) if every else targets(asked, strategy, architecture)
    strategy |= {"tuner_type": "lora", "lora_rank": rank, "lora_dropout": dropout, "target_modules": found}
    assumptions["lora_scaling"] = "rank"
    dropout_position(keys, "peft.dropout_position", "post", strategy)
    excluded(keys, "peft.exclude_modules", strategy, architecture)
    if "peft._target_" not in keys.given:
        keys.rows["tuner_type"] = Entry("tuner_type", "(default)", "derived", "tuner_type", "adapters, since there is a section of them")
    if lost:
        keys.note("peft.target_modules", "not_modelled", "target_modules", without(lost, found))
    if scaled and architecture is not None and architecture.moe is not None:
        top = architecture.moe.moe_router_topk
        if rank < top:
            raise keys.wrong("peft.moe_rank_scaling", f"false, or peft.dim at least the {top} experts of a token: {rank} over them is no rank")
        strategy["lora_expert_rank"] = rank // top
        keys.note("peft.moe_rank_scaling", to="lora_expert_rank", why=f"{rank // top}: {rank} over the {top} experts of a token")


def _stored(keys: Keys, strategy: dict[str, Any]) -> None:
    """Magnitudes of adapters, base weights in 4 or 8 bits (components/quantization/qlora.py), and functions that adapters are in."""
    alone = keys.flag(_FUNCTIONS, True, to="fused_adapters")
    if strategy.get("tuner_type") != "lora":
        return
    if keys.flag("peft.use_dora", False, to="use_dora"):
        if strategy.get("tp", 1) > 1:
            keys.note("peft.use_dora", "not_modelled", why="magnitudes of adapters (DoRA) with tensor parallelism: timed as LoRA")
        else:
            strategy["use_dora"] = True
    double = keys.flag("quantization.bnb_4bit_use_double_quant", True, to="quantize_base")
    kind = keys.choice("quantization.bnb_4bit_quant_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    if keys.flag("quantization.load_in_4bit", False, to="quantize_base"):
        stored_base(keys, strategy, four_bits(kind, double), "quantization.load_in_4bit")
    elif keys.flag("quantization.load_in_8bit", False, to="quantize_base"):
        stored_base(keys, strategy, "int8", "quantization.load_in_8bit")
    # split and compiled weights, and magnitudes, are in none (components/_peft/lora.py _should_use_memory_efficient_lora)
    if alone and strategy["fusion"] == "eager" and strategy.get("tp", 1) == 1 and not strategy.get("use_dora"):
        strategy["fused_adapters"] = ["each"]
        if _FUNCTIONS not in keys.given:
            keys.rows[_FUNCTIONS] = Entry(_FUNCTIONS, "(default)", "derived", "fused_adapters", "on unless it is turned off")


def _quantised(keys: Keys, strategy: dict[str, Any]) -> None:
    recipe = keys.choice("model.backend.te_fp8.recipe", _RECIPES, None, to="fp8")
    asked = keys.flag("fp8.enabled", False, to="fp8")
    name = str(keys.text("fp8.recipe_name", "tensorwise", to="fp8"))
    keys.texts("fp8.filter_fqns", [], to="fp8", why="the output layer runs in 16 bits here too")
    if recipe is not None:
        strategy |= {"fp8": recipe, "fusion": "te"}
    elif asked:
        strategy |= {"fp8": "tensorwise", "fusion": "te"}
        keys.note("fp8.enabled", to="fp8, fusion", why="products in 8 bits are te's kernels here, with the weights' copies that it keeps")
        if name.startswith("rowwise"):
            keys.note("fp8.recipe_name", "not_modelled", "fp8", "scales for every row there, one for a tensor here: passes for maxima")
