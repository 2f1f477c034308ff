"""ms-swift: `megatron sft|pt|rlhf ...` (Megatron-SWIFT) and `swift sft|pt|rlhf ...` (Hugging Face's trainer) as jobs.

Names and defaults are those of ms-swift at 54e9c5050 (`--version seed`, on Megatron-Core 0.12) and at 3602360a5 (`--version head`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut, nearest
from symsim.importers.adapted import (
    BOFT,
    QUANTISED,
    Names,
    biases,
    drawn_layers,
    four_bits,
    frozen,
    frozen_decoder,
    leading_layers,
    opened,
    stored_base,
)
from symsim.importers.adapted import adapters as with_adapters
from symsim.importers.assumed import ALLOCATOR, allocator
from symsim.importers.documents import ASK, LONGEST, balanced, documents_said, free_rows, packed_rows, padded_rows
from symsim.importers.heads import TASKS, headed
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys, Silent
from symsim.importers.megatron.gaps import GAPS
from symsim.importers.megatron.silent import SILENT
from symsim.importers.preferences import preferred
from symsim.importers.ranks import variable
from symsim.importers.rules import settle, states_on_host
from symsim.importers.swift.command import Run, read_run
from symsim.importers.swift.megatron import of_megatron
from symsim.importers.swift.model import find_model, shaped
from symsim.importers.swift.older import DATA_OF_2, renamed
from symsim.importers.swift.reading import Reading
from symsim.importers.swift.sections import ASIDE, expanded, further_arguments
from symsim.importers.swift.tables import ENVIRONMENT, WEIGHTS_OF_LOSSES, other_models, silent_keys
from symsim.importers.swift.trainer import cast_adapters, of_trainer
from symsim.importers.targets import of_parameters, pattern_targets
from symsim.importers.trainer import TRAINER
from symsim.inputs.strategies import LARGEST_WORLD

if TYPE_CHECKING:
    from symsim.importers.reading import Options

VERSIONS = ("seed", "head")
# arguments that later versions renamed or dropped
_OLD = frozenset(
    """load save save_interval eval_interval log_interval num_workers max_epochs train_type use_flash_attn no_rope_fusion
    no_gradient_accumulation_fusion no_masked_softmax_fusion no_bias_dropout_fusion no_bias_swiglu_fusion extra_megatron_kwargs
    ckpt_format distributed_backend transformer_impl num_layers hidden_size""".split()
)
# arguments since July 2025 on, before later versions dropped those above
_NEWER = frozenset(
    """load_safetensors save_safetensors merge_lora moe_enable_deepep padding_free optimizer_cpu_offload use_precision_aware_optimizer
    freeze_llm freeze_vit freeze_aligner lora_rank lora_alpha target_modules modules_to_save cached_dataset vit_gradient_checkpointing
    fp8_recipe mtp_num_layers rlhf_type virtual_pipeline_model_parallel_size pipeline_model_parallel_layout attn_impl""".split()
)
_WORLD = ("NPROC_PER_NODE", "NNODES")
_ASIDE = Silent("no_cost_effect", "not read by ms-swift, which takes fsdp and fsdp_config of the file")
_FOREIGN = Silent("no_cost_effect", "no variable that ms-swift is known to read")


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a command of ms-swift. InputError for arguments that it does not have or that cannot be."""
    run = read_run(inputs, options)
    today, written = renamed(run.arguments)
    run = replace(run, arguments=today)
    passed = further_arguments(run.arguments)
    run = replace(run, arguments=expanded(run.arguments))
    version, notes = _version(run, options)
    adapters = _adapters(run)
    environment = _environment(run, options)
    table = {**(TRAINER if run.program == "swift" else {}), **silent_keys(run.method, adapters is not None), **ENVIRONMENT}
    table |= DATA_OF_2 if written else {}
    table |= {name: _FOREIGN for name in environment if name not in table and name not in ALLOCATOR}
    table |= {name: _ASIDE for name in run.arguments if name.startswith(ASIDE)}
    table = {**{name: said for name, said in (SILENT | GAPS).items() if name in passed}, **table}
    keys = Keys(f"'{run.program} {run.method}'", {**environment, **run.arguments}, table, options.lenient)
    architecture = shaped(keys, find_model(keys, options))
    answered = run.method == "rlhf" and str(keys.text("rlhf_type", "")) in ("grpo", "ppo")
    reading = Reading(keys, version, architecture, _between(run, options), passed=frozenset(passed), answered=answered)
    world = _world(keys)
    (of_megatron if run.program == "megatron" else of_trainer)(reading, world)
    allocator(keys, reading.assumptions, *ALLOCATOR)
    _lengths(reading, options, run.program == "megatron")
    _tuned(reading, adapters)
    frozen_decoder(reading.keys, "freeze_llm", reading.strategy)
    if run.program == "swift":
        cast_adapters(reading)
    elif keys.has("lora_dtype") and adapters is not None:
        # megatron/utils/megatron_lm_utils.py wrap_model: Float16Module casts all parameters, those of adapters too, behind what lora_dtype did
        keys.note("lora_dtype", "no_cost_effect", why="all parameters are cast to the type of products as the model is wrapped, adapters too")
    _headed(reading, run)
    states_on_host(keys, reading.strategy)
    settle(keys, reading.strategy, reading.architecture, "ms-swift")
    _workload(keys, run, adapters, reading.strategy)
    told = (replace(row, key=written[row.key][0], value=written[row.key][1]) if row.key in written else row for row in keys.finish())
    rows = (*told, *reading.further, _of_version(version, options, reading.assumptions))
    return Job("swift", rows, reading.architecture, reading.strategy, assumptions=reading.assumptions, notes=(*run.notes, *notes))


def _version(run: Run, options: "Options") -> tuple[str, tuple[str, ...]]:
    """The version whose defaults hold: as said, or as the names of the arguments tell."""
    if options.version is not None:
        if options.version not in VERSIONS:
            raise InputError(f"--version {cut(options.version)}: {nearest(options.version, VERSIONS)}")
        return options.version, ()
    old = sorted(_OLD & run.arguments.keys())
    if not old:
        return "head", ("today's defaults; --version seed takes those of May 2025",)
    if _between(run, options):
        said = f"between the two versions, since it has --{old[0]} and newer arguments: the seed's defaults, but expert_tensor_parallel_size=1"
        return "seed", (f"{said}; --version seed or head takes either's",)
    return "seed", (f"defaults of the seed's version, since later ones have no --{old[0]}; --version head takes today's",)


def _between(run: Run, options: "Options") -> bool:
    """Whether the arguments are those of a version after the seed's, which has experts whole unless it is told otherwise."""
    return options.version is None and run.program == "megatron" and bool(_NEWER & run.arguments.keys())


def _of_version(version: str, options: "Options", assumptions: Mapping[str, str]) -> Entry:
    to = ", ".join(f"assume.{name}" for name in ("moe_probabilities", "te_dummy_wgrad") if name in assumptions)
    what = "54e9c5050, of May 2025, on Megatron-Core 0.12" if version == "seed" else "3602360a5, of August 2026"
    told = "" if options.version else ", as the names of the arguments tell" if version == "seed" else ", since no argument is of another"
    return Entry("--version", version, "derived", to, f"defaults of ms-swift {what}{told}")


def _adapters(run: Run) -> str | None:
    """The key that asks for adapters, or would by its default; None where all parameters are trained."""
    for key in ("tuner_type", "train_type"):
        if key in run.arguments:
            return None if str(run.arguments[key].value) == "full" else key
    if run.program == "swift":
        return "tuner_type"
    return "adapters" if run.arguments.get("adapters", Given(None, "")).value else None


def _environment(run: Run, options: "Options") -> dict[str, Given]:
    """Variables of the command, and those of --var that say how many ranks run."""
    told = {name: Given(options.variables[name], f"--var {name}") for name in (*_WORLD, "world") if name in options.variables}
    return {**run.environment, **told}


def _world(keys: Keys) -> int | None:
    """Ranks of all nodes, where anything says how many."""
    sizes = {name: keys.integer(name, to="dp", least=1) for name in (*_WORLD, "world", "gpus")}
    sizes["world"] = sizes["world"] or sizes["gpus"]
    if sizes["world"] is None and sizes["NPROC_PER_NODE"] is None and sizes["NNODES"] is None:
        return None
    world = int(sizes["world"] or (sizes["NPROC_PER_NODE"] or 1) * (sizes["NNODES"] or 1))
    if world > LARGEST_WORLD:
        raise InputError(f"NPROC_PER_NODE * NNODES = {world} ranks are more than the {LARGEST_WORLD} that are read")
    return world


def _lengths(r: Reading, options: "Options", free_by_default: bool) -> None:
    """What no argument tells of the rows, as --var says it. free_by_default: rows have no padding unless they are told to (megatron_args.py)."""
    length = variable(options, "seq_length")
    if length is not None:
        r.strategy["seq_length"] = length
        r.keys.note("seq_length", "mapped", "seq_length", f"--var seq_length={length}")
    said, packed = documents_said(options, r.strategy), bool(r.keys.flag("packing"))
    free = not packed and bool(r.keys.flag("padding_free", free_by_default))
    apart = bool(r.keys.flag("mlp_padding_free", False)) and r.strategy.get("micro_batch_size", 1) > 1
    if packed:
        packed_rows(r.keys, "packing", said)
    elif free and (said or r.keys.has("padding_free")):
        free_rows(r.keys, "padding_free", said, r.strategy)
    elif not apart and not free and (said or r.keys.has("padding_free")):
        padded_rows(r.keys, "padding_free" if r.keys.has("padding_free") else said, said, r.strategy)
    if r.keys.has("mlp_padding_free") and r.keys.flag("mlp_padding_free", False):
        _networks_without_padding(r, said, packed or free)
    balanced(r.keys, r.assumptions, "group_by_length")
    scheduler = str(r.keys.text("sequence_packing_scheduler", "none")).casefold()
    if scheduler != "none":
        r.assumptions["row_balance"] = "balanced"
        r.keys.note("sequence_packing_scheduler", to="assume.row_balance", why="samples go to ranks so that each has as much work")


def _networks_without_padding(r: Reading, said: str, nowhere: bool) -> None:
    """mlp_padding_free leaves out of feed-forward networks what pads the rows of a micro-batch (mcore-bridge 1.6.5,
    model/modules/transformer_layer.py: of several rows alone)."""
    key = "mlp_padding_free"
    if nowhere or r.strategy.get("micro_batch_size", 1) == 1:
        why = "rows have no padding anywhere" if nowhere else "read of micro-batches of several rows: one alone is as long as its sample"
        r.keys.note(key, "no_cost_effect", why=why)
    elif said:
        r.strategy[key] = True
        r.keys.note(key, "mapped", f"mlp_padding_free, {said}", "attention of whole rows, feed-forward networks of their mean length")
    else:
        r.keys.note(key, "derived", "seq_length", f"{LONGEST}, without padding; {ASK}")


# what no tuner of ms-swift is called (base_args.py, get_supported_tuners), and what it is there
_METHODS = {"dora": "lora with use_dora true, which is DoRA", "qlora": "lora with quant_method bnb and quant_bits 4, which is QLoRA"}
_KINDS = {
    **dict.fromkeys(("lora", "longlora", "full"), ""),
    "lora_llm": "adapters in the text part, whose towers are trained whole",
    "adalora": "of the rank that it begins with; a number more of each of its ranks (peft/tuners/adalora)",
}
_NEW_LAYERS = "timed as LoRA: llamapro trains whole layers beside those of the model (llamapro_num_new_blocks), which rest"
# pipelines/train/tuner.py _drop_mamba_incompatible_targets
_WITHOUT_OUT_PROJ = frozenset({"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"})
_NAMES = Names("lora_rank", "lora_dropout", "target_modules", "modules_to_save", default_dropout=0.05)


def _tuned(r: Reading, adapters: str | None) -> None:
    """Adapters, or parameters that are frozen; other tuners are timed as LoRA."""
    if adapters is not None:
        kind = str(r.keys.given[adapters].value) if adapters in r.keys.given and adapters != "adapters" else "lora"
        by_default = adapters not in r.keys.given
        if kind in _METHODS:
            raise r.keys.wrong(adapters, _METHODS[kind])
        if kind in _KINDS or adapters == "adapters":
            r.keys.note(adapters, "derived" if by_default else "mapped", "tuner_type", "adapters by default" if by_default else _KINDS.get(kind, ""))
        else:
            rest = f"{kind} is timed as LoRA: further products and vectors of an adapter are missing"
            why = {"boft": BOFT, "llamapro": _NEW_LAYERS}.get(kind, rest)
            r.keys.note(adapters, "not_modelled", "tuner_type", why)
        named = replace(_NAMES, rank="adalora_init_r", default_rank=12) if kind == "adalora" else _NAMES
        with_adapters(r.keys, r.strategy, r.architecture, named)
        _further(r)
        biases(r.keys, "lora_bias", r.strategy, r.architecture)
        return
    if "lisa_activated_layers" in r.keys.given:
        drawn_layers(r.keys, "lisa_activated_layers", r.strategy, r.architecture)
    lists = {}
    for key in ("freeze_parameters", "trainable_parameters"):
        asked = r.keys.texts(key, None, to=key) or []
        lists[key], lost = frozen(asked, r.architecture)
        if lost:
            r.keys.note(key, "not_modelled", key, f"{', '.join(lost)}: no parameter here is called so, or the model is not known")
        lists[key] += _of_pattern(r, key)
    ratio = r.keys.number("freeze_parameters_ratio", 0, to="freeze_parameters", why="in whole layers, from the embedding on")
    if not 0 <= ratio <= 1:
        raise r.keys.wrong("freeze_parameters_ratio", "from 0 to 1")
    if ratio and r.architecture is None:
        r.keys.note("freeze_parameters_ratio", "not_modelled", why="which layers it takes is known of a known model alone")
    elif ratio and r.architecture is not None:
        whole = ["embedding", "layers", "lm_head", "final_norm"] if ratio == 1 else leading_layers(r.architecture, ratio)
        lists["freeze_parameters"] = list(dict.fromkeys([*whole, *lists["freeze_parameters"]]))
    r.strategy |= {key: value for key, value in lists.items() if value}


def _of_pattern(r: Reading, key: str) -> list[str]:
    """The parameters in whose names a pattern is found (swift/utils/transformers_utils.py)."""
    pattern = str(r.keys.text(f"{key}_regex", "", to=key) or "")
    if not pattern or pattern.casefold() == "none":
        return []
    found, lost = opened([pattern], r.architecture)
    if lost:
        r.keys.note(f"{key}_regex", "not_modelled", key, f"{', '.join(lost)}: no parameter here is called so, or the model is not known")
    return found


def _headed(r: Reading, run: Run) -> None:
    """The head of a task; a reward model's is one column."""
    reward = run.method == "rlhf" and str(r.keys.text("rlhf_type", "")) == "rm"
    task = r.keys.choice("task_type", TASKS, "seq_cls" if reward else "causal_lm", to="task_type")
    one = reward or str(r.keys.text("task_type", "")) == "reranker"
    labels = r.keys.integer("num_labels", 1 if one else None, to="num_labels", least=1)
    headed(r.strategy, task, labels)


def _further(r: Reading) -> None:
    """Adapters that a pattern or parameters name, DoRA, and base weights in few bits."""
    keys, strategy = r.keys, r.strategy
    if keys.has("target_regex"):
        pattern_targets(keys, "target_regex", strategy, r.architecture)
    of_parameters(keys, "target_parameters", strategy, r.architecture, True, "their products beside the experts'")
    listed = not keys.has("target_regex") and strategy.get("fusion", "te") == "eager"
    if listed and r.architecture is not None and r.architecture.modelling in _WITHOUT_OUT_PROJ:
        strategy["exclude_modules"] = ["out_proj"]
        keys.note("target_modules", "mapped", "target_modules, exclude_modules", "without out_proj, whose mixer peft has no adapters for")
    if keys.flag("use_dora", False, to="use_dora"):
        strategy["use_dora"] = True
    method = str(keys.text("quant_method", "", to="quantize_base"))
    if not method:
        return
    bits = keys.integer("quant_bits", 4, to="quantize_base")
    double = keys.flag("bnb_4bit_use_double_quant", True, to="quantize_base")
    kind = keys.choice("bnb_4bit_quant_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    if method != "bnb" or bits not in (4, 8):
        keys.note("quant_method", "not_modelled", "quantize_base", QUANTISED)
        return
    stored_base(keys, strategy, "int8" if bits == 8 else four_bits(kind, double), "quant_method")


def _workload(keys: Keys, run: Run, adapters: str | None, strategy: dict[str, Any]) -> None:
    """Rows for what makes the step another one than the one timed here."""
    for key in ("tuner_type", "train_type"):
        if keys.has(key) and key != adapters:
            keys.note(key, "mapped", "all parameters are trained")
    if run.method == "rlhf":
        divergence, copy = bool(keys.flag("calculate_KL", True)), keys.has("ref_model")
        if not preferred(keys, "rlhf_type", str(keys.text("rlhf_type", "")), strategy, copy=copy, divergence=divergence):
            keys.note("rlhf_type", "not_modelled", why=other_models())
            return
        for key in WEIGHTS_OF_LOSSES:
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="a number of the loss, not its cost")
    elif keys.has("rlhf_type"):
        keys.note("rlhf_type", "no_cost_effect", why="read by 'rlhf' alone")
