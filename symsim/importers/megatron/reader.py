"""Megatron-LM's arguments, in a launch script, a list, YAML or JSON, and Megatron-Bridge's overrides, as a job.

Names, defaults and derived values: Megatron-LM at commit d98e8a64 (2026-08-22), training/arguments.py validate_args,
training/argument_utils.py core_transformer_config_from_args, core/model_parallel_config.py, core/transformer/transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.adapted import frozen_decoder
from symsim.importers.assumed import ALLOCATOR, allocator
from symsim.importers.documents import documents_said, packed_rows
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys, Silent, shown
from symsim.importers.megatron import flagscale, megatron_deepspeed, pai, zero_bubble
from symsim.importers.megatron.adapters import lora
from symsim.importers.megatron.arguments import SWITCHED_OFF
from symsim.importers.megatron.bridge import BRIDGE
from symsim.importers.megatron.gaps import GAPS
from symsim.importers.megatron.model import ignore_model, read_model
from symsim.importers.megatron.shards import weight_shards
from symsim.importers.megatron.silent import SILENT
from symsim.importers.megatron.source import Source, read_source
from symsim.importers.megatron.strategy import read_strategy
from symsim.importers.rules import data_parallel, settle
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_WHO = "Megatron-LM"
_OPPOSITE = "the opposite"
TABLE: Mapping[str, Silent] = {**BRIDGE, **SILENT, **GAPS, **pai.TABLE, **flagscale.TABLE, **zero_bubble.TABLE}
_PACKED = (
    *("reset_attention_mask", "dataloader_inter_document_masking", "sft", "packed_sequence", "enable_packed_sequences"),
    *("packed_sequence_size", "pack_sequences_in_batch", "enable_in_batch_packing", "enable_offline_packing"),
)
_OTHERS = {
    "pretrain_t5": "an encoder and a decoder",
    "pretrain_bert": "an encoder",
    "pretrain_ict": "a retrieval model",
    "pretrain_retro": "a retrieval model",
    "pretrain_realm": "a retrieval model",
    "pretrain_vlm": "a model of images and text",
    "pretrain_vision": "a vision model",
    "pretrain_mimo": "a model of images and text",
    "train_rl": "with reinforcement learning",
}


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of scripts, files and arguments. InputError names the line of what does not fit."""
    source = read_source(inputs, options.variables, options.lenient)
    where = inputs[0] if inputs and not inputs[0].startswith("--") else "the command line"
    return of_source("megatron", source, options, where, TABLE)


def of_source(kind: str, source: Source, options: "Options", where: str, table: Mapping[str, Silent]) -> Job:
    """The job of arguments, where a program on top of Megatron-LM has further ones in the table."""
    _refuse_others(source, options.lenient, where)
    pai.in_megatrons_words(source)
    flagscale.in_megatrons_words(source)
    megatron_deepspeed.recomputed(source)
    deepspeed = megatron_deepspeed.speaks(source)
    if deepspeed:
        megatron_deepspeed.in_megatrons_words(source, options.lenient)
        table = {**{key: one for key, one in table.items() if one.fate != "refused"}, **megatron_deepspeed.TABLE}
    keys = Keys(_WHO if kind == "megatron" else kind, source.given, table, options.lenient)
    tp = keys.integer("tensor_model_parallel_size", 1, to="tp", least=1)
    architecture = _model(keys, source, options.model, tp, where)
    architecture = megatron_deepspeed.gated(architecture) if deepspeed and options.model is None else architecture
    settings = read_strategy(keys, source.dialect, architecture)
    strategy = settings.options
    _packed(keys, strategy, options)
    lora(keys, strategy, architecture)
    for key in ("freeze_LM", "freeze_language_model"):
        frozen_decoder(keys, key, strategy)
    allocator(keys, settings.assumptions, *ALLOCATOR)
    of_engine = megatron_deepspeed.engine(keys, source, strategy, settings.assumptions, architecture, options) if deepspeed else []
    notes = [*source.notes, *_ranks(keys, source, strategy, where)]
    mixture = settings.mixture or (architecture is not None and architecture.moe is not None)
    weight_shards(keys, strategy, mixture, mixture or architecture is None)
    settle(keys, strategy, architecture, _WHO)
    if options.version is not None:
        notes.append(f"--version {options.version} changes nothing: defaults are those of Megatron-LM at commit d98e8a64")
    if architecture is None:
        notes.append("no argument here describes a model: --of MODEL gives one")
    rows = as_written(source, keys.finish())
    return Job(kind, (*rows, *of_engine), architecture, _ordered(strategy), None, settings.assumptions, tuple(notes))


def _refuse_others(source: Source, lenient: bool, where: str) -> None:
    """Programs that train something else than a decoder of text."""
    if any(key.startswith("actor_rollout_ref.") for key, _, _ in source.written):
        raise InputError(f"{where}: these are overrides of verl, which 'symsim import verl' reads")
    kind = next((kind for part, kind in _OTHERS.items() if source.entry.startswith(part)), None)
    if kind is None:
        return
    if not lenient:
        raise InputError(f"{where}: {source.entry} trains {kind}, which is not modelled; --lenient takes its arguments for those of a decoder")
    source.run.append(Entry(source.entry, "", "refused", why=f"{kind} is not modelled; taken for a decoder"))


def _model(keys: Keys, source: Source, named: str | None, tp: int, where: str) -> Architecture | None:
    if named is None:
        return read_model(keys, source.name, source.dialect != "arguments", tp, where, source.entry)
    architecture = load_model(named).architecture
    changed: dict[str, Any] = {}
    for key in ("hidden_dropout", "attention_dropout"):
        rate = keys.number(key, None, to=key)
        if rate is not None and not 0 <= rate < 1:
            raise keys.wrong(key, "a share from 0 to below 1")
        if rate is not None:
            changed[key] = float(rate)
    ignore_model(keys, named)
    for key in changed:
        keys.note(key, "mapped", key)
    return architecture.model_copy(update=changed) if changed else architecture


def _packed(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    """Rows of several samples that do not see one another, whose lengths no argument tells."""
    said = documents_said(options, strategy)
    for key in _PACKED:
        if keys.has(key) and shown(keys.given[key].value).strip().lower() not in ("false", "0", "-1", "null"):
            packed_rows(keys, key, said)
        elif keys.has(key):
            keys.note(key, "no_cost_effect", why="off at this value")


def _ranks(keys: Keys, source: Source, strategy: dict[str, Any], where: str) -> list[str]:
    """dp from the number of ranks, which the launcher knows and the arguments do not; what to say of it."""
    world = keys.integer("world_size", None, to="dp", least=1) or source.world
    told = source.ranks if not keys.has("world_size") else f"world_size {world}"
    dp = data_parallel(strategy, world)
    names = {"tp": "tensor", "cp": "context", "pp": "pipeline"}
    product = " x ".join(f"{name} {strategy.get(option, 1)}" for option, name in names.items())
    if dp is None:
        advice = "--world-size N after the files, or --var of the number of nodes, gives another"
        raise InputError(f"{where}: {world} ranks ({told}) are not a multiple of {product}; {advice}")
    strategy["dp"] = dp
    if world is None:
        keys.rows["dp"] = Entry(
            "dp", "(default)", "derived", "dp", f"{dp}: the fewest replicas that hold the experts, since no number of ranks is given"
        )
        return [f"the number of ranks is in none of the files: dp={dp} is taken; --world-size N gives it"]
    why = f"{dp}: {world} ranks ({told}) over {product}"
    if keys.has("world_size"):
        keys.note("world_size", to="dp", why=why)
    else:
        keys.rows["dp"] = Entry("dp", "(launcher)", "derived", "dp", why)
    return []


def _ordered(strategy: dict[str, Any]) -> dict[str, Any]:
    """The options in the order of the strategy's own fields, without degrees of 1."""
    from symsim.inputs.strategy import Strategy

    plain = {name: value for name, value in strategy.items() if not (name in ("tp", "cp", "pp", "ep") and value == 1)}
    return {name: plain[name] for name in Strategy.model_fields if name in plain}


def as_written(source: Source, rows: Sequence[Entry]) -> tuple[Entry, ...]:
    """The ledger with every key and value as it was written; what is derived stands behind."""
    by_argument = {row.key: row for row in rows}
    found: list[Entry] = []
    last = {argument: at for at, (_, _, argument) in enumerate(source.written)}
    for at, (key, value, argument) in enumerate(source.written):
        row = by_argument.get(argument)
        if row is None:
            continue
        if last[argument] == at:
            # a field says what the argument switches off
            field = key.rpartition(".")[2] in SWITCHED_OFF and row.why == _OPPOSITE
            found.append(replace(row, key=key, value=value, why="" if field else row.why))
        elif all(entry.key != key or entry.value != value for entry in found):
            found.append(Entry(key, value, "no_cost_effect", why="given again, and the last one holds"))
    given = {argument for _, _, argument in source.written}
    return (*found, *source.run, *(row for row in rows if row.key not in given))
