"""Merak: MerakArguments with Merak.init, as keywords of a script that is never run, as JSON or YAML, or as a command line.

The `seed` is the API document of 2024-10 (216a041), the `head` is 1593043 (2026-02). Defaults are the code's, which the document
gives otherwise in places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys
from symsim.importers.merak.adapters import LORA, flattened, tuned
from symsim.importers.merak.parallel import data_parallel, degrees, sequence_parallel, tensor_parallel
from symsim.importers.merak.sources import DEGREES, Sources, read_sources
from symsim.importers.merak.stages import pipeline
from symsim.importers.merak.table import MERAK
from symsim.importers.rules import settle
from symsim.importers.trainer import BEFORE, batch, precision, update
from symsim.inputs.architecture import Architecture
from symsim.inputs.hub import shipped_model
from symsim.inputs.models import load_model

if TYPE_CHECKING:
    from symsim.importers.reading import Options

VERSIONS = ("seed", "head")
# arguments that symsim's options and assumptions follow from
READ = (
    *DEGREES,
    *"""col_para_list row_para_list input_output_mapping weight_change_list train_schedule partition_method split_method
    custom_split_points shard_count custom_partition activation_checkpointing checkpoint_num_layers activation_checkpoint_ratio seq_length
    prescale_gradients gradient_predivide_factor zero_stage zero_reduce_bucket_size parallel_vocab sequence_parallel sequence_dim
    dealloc_pipeoutput tp_overlapping_level no_tie_modules half_precision_backend per_device_train_batch_size per_gpu_train_batch_size
    gradient_accumulation_steps bf16 fp16 optim adafactor max_grad_norm total_batch_size _attn_implementation lora_config
    wall_clock_breakdown""".split(),
)


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of Merak's arguments. InputError for what it does not have, or what it would not run."""
    if options.version not in (None, *VERSIONS):
        raise InputError(f"--version {options.version}: merak has {' and '.join(VERSIONS)}")
    found = read_sources(inputs, options, {*MERAK, *READ})
    keys = Keys("Merak", flattened(found.given), {k: v for k, v in {**MERAK, **LORA}.items() if k not in READ}, options.lenient)
    version = _version(options, found)
    model = _model(keys, load_model(options.model).architecture if options.model is not None else found.model or _named(keys))
    strategy: dict[str, Any] = {}
    assumptions: dict[str, str] = {}
    notes = [*found.notes]
    degrees(keys, strategy)
    batch(keys, strategy)
    _total(keys, strategy)
    _length(keys, strategy, model)
    precision(keys, strategy)
    update(keys, strategy, assumptions, default=BEFORE)
    sequence_parallel(keys, strategy, version, options.faithful, notes)
    tensor_parallel(keys, strategy, assumptions, model)
    data_parallel(keys, strategy, assumptions, options.faithful, notes)
    model = pipeline(keys, strategy, assumptions, model, options.faithful)
    _modules(keys, strategy, assumptions)
    _timers(keys, strategy)
    tuned(keys, strategy, model)
    settle(keys, strategy, model, "Merak")
    notes.append(f"defaults are those of Merak's code; --version {version} decides what sequence_parallel means")
    return Job("merak", keys.finish(), model, strategy, None, assumptions, tuple(notes))


def _version(options: "Options", found: Sources) -> str:
    """Since 2025-06 Merak.init has sp, and sequence_parallel means what it is the degree of."""
    return options.version or ("head" if "sp" in found.given else "seed")


def _named(keys: Keys) -> Architecture | None:
    """The model that a script's model_name_or_path names, where symsim has it."""
    name = keys.given.get("model_name_or_path")
    if name is None or not isinstance(name.value, str):
        return None
    found = shipped_model(name.value)
    if found is None:
        return None
    keys.note("model_name_or_path", "mapped", f"model {found.name}", "" if found.exact else f"of the shape of {found.source}")
    return load_model(found.name).architecture


def _model(keys: Keys, model: Architecture | None) -> Architecture | None:
    """The model as no_tie_modules leaves its tables."""
    untied = keys.flag("no_tie_modules", False, to="tie_word_embeddings", why="a table of its own for the head, and no sum over two stages")
    if not untied or model is None or not model.tie_word_embeddings:
        return model
    return model.model_copy(update={"tie_word_embeddings": False})


def _total(keys: Keys, strategy: dict[str, Any]) -> None:
    total = keys.integer("total_batch_size", to="global_batch_size", why="made of the others in Merak", least=1)
    if total is not None:
        strategy["global_batch_size"] = total


def _length(keys: Keys, strategy: dict[str, Any], model: Architecture | None) -> None:
    """Tokens a row: the longest that is traced, and else what the model has positions for."""
    length = keys.integer("seq_length", to="seq_length", why="the longest row that is traced; the rows of the data may be shorter", least=1)
    if length is None:
        positions = model.position_embedding_rows if model is not None else None
        length = positions or 4096
        why = "the model's positions" if positions else "4096, since the data decides; --set seq_length=N of symsim eval changes it"
        keys.note("seq_length", "derived", "seq_length", why)
    strategy["seq_length"] = length


def _timers(keys: Keys, strategy: dict[str, Any]) -> None:
    """Timers wait for the device: around forward at any value, around backward and boundary tensors with wall_clock_breakdown
    (core/printer/timer.py, core/merak_engine.py). Where one part ends the next begins, so that their waits are one."""
    every = keys.flag("wall_clock_breakdown", False, to="host_waits")
    if strategy["pp"] > 1:
        strategy["host_waits"] = 4 if every else 2
    else:
        strategy["host_waits"] = 2
        keys.note("wall_clock_breakdown", "no_cost_effect", why="one stage: forward's timers wait where backward's would")
    if "wall_clock_breakdown" not in keys.given:
        keys.note("wall_clock_breakdown", "derived", "host_waits", "timers of forward wait for the device at any value")


def _modules(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """transformers' modules op by op, with the attention that can be traced."""
    strategy["fusion"] = "eager"
    kernel = keys.choice("_attn_implementation", {"eager": "eager", "sdpa": "efficient", "flash_attention_2": "flash"}, to="assume.attention_kernel")
    if kernel is None:
        keys.rows["_attn_implementation"] = Entry(
            "_attn_implementation", "(default)", "derived", "assume.attention_kernel", "eager, as Merak's examples set it for tracing"
        )
    assumptions["attention_kernel"] = kernel or "eager"
    keys.rows["modules"] = Entry("modules", "(default)", "derived", "fusion", "transformers' modules run op by op")
