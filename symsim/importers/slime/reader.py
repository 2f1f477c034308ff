"""slime's launch scripts, and those of its fork miles: the actor's update on Megatron-Core, whose arguments stand beside slime's own.

What its arguments do: slime/utils/arguments.py, slime/backends/megatron_utils/arguments.py
(_set_default_megatron_args, validate_args), slime/backends/megatron_utils/data.py get_data_iterator.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symsim.importers.documents import SAID, balanced, documents_said, fitting
from symsim.importers.job import Job
from symsim.importers.keys import Given, Keys, Unresolved, natural, shown
from symsim.importers.megatron.adapters import DIM, DROPOUT, EXCLUDED, SCHEME, TARGETS
from symsim.importers.megatron.reader import TABLE, of_source
from symsim.importers.megatron.source import Source, put_field, read_source
from symsim.importers.slime.tables import OWN, of_beginnings
from symsim.inputs.hub import shipped_model
from symsim.inputs.reading import read_text

if TYPE_CHECKING:
    from symsim.importers.reading import Options

READ = frozenset(
    """actor_num_nodes actor_num_gpus_per_node num_steps_per_rollout rollout_batch_size n_samples_per_prompt use_dynamic_batch_size
    max_tokens_per_gpu log_probs_max_tokens_per_gpu rollout_max_prompt_len rollout_max_response_len rollout_max_context_len balance_data
    balance_by_flops allgather_cp enable_mtp_training gradient_checkpointing""".split()
)
_DEFAULTS = "slime's defaults"
# put in Megatron-LM's place of them; a script's own have dashes
_SET = frozenset(
    """micro_batch_size global_batch_size seq_length use_distributed_optimizer bf16 recompute_granularity recompute_method
    recompute_num_layers""".split()
)
_FULL = "rows are as long as prompts and responses may be; --var packed_document_length=N gives their mean"
_BOUND = f"micro-batches of at most max_tokens_per_gpu tokens a rank; {_FULL}"
# of the files in slime's scripts/models whose models have experts
_OF_MODELS = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True, "moe_permute_fusion": True, "moe_router_dtype": "fp32"}
_PLACEHOLDER = 4096
_LONGEST = 2**19
# scripts set a model's arguments in a file of their own (slime scripts/models)
_MODEL = "MODEL_ARGS"
_LISTS = re.compile(r"\$\{(\w{1,60})\[@\]\}", re.ASCII)
_SOURCED = re.compile(r"(?m)^\s*(?:source|\.)\s[^\n]{0,200}?\b(models/[\w.-]{1,100}\.sh)")


@dataclass(frozen=True)
class _Rows:
    """row: tokens of the longest sample, where they are told. bound: tokens of a micro-batch over context-parallel ranks, where that is bounded."""

    row: int | None
    bound: int | None


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of the actor's update. InputError for an argument that there is not or a value that cannot be."""
    where = inputs[0] if inputs and not inputs[0].startswith("--") else "the command line"
    variables = {name: text for name, text in options.variables.items() if name not in SAID}
    inputs, missing = _with_models(inputs)
    source = read_source(inputs, {**{name: "" for name in missing}, **variables}, options.lenient)
    if options.model is None and (_MODEL in missing or "spec" in source.given):
        options = replace(options, model=_named(source))
        for name, value in _OF_MODELS.items() if _MODEL in missing else ():
            if name not in source.given:
                put_field(source, name, name, value, _DEFAULTS)
    keys = Keys("slime", {name: one for name, one in source.given.items() if name in READ}, {}, options.lenient)
    assumptions: dict[str, str] = {}
    balanced(keys, assumptions, "balance_data", "balance_by_flops")
    _ranks(keys, source)
    _samples(keys, source)
    rows = _lengths(keys, source)
    _megatron(keys, source)
    _adapted(source)
    if keys.flag("gradient_checkpointing", False, to="recompute"):
        put_field(source, "recompute_granularity", "recompute_granularity", "full", _DEFAULTS)
        put_field(source, "recompute_method", "recompute_method", "uniform", _DEFAULTS)
        put_field(source, "recompute_num_layers", "recompute_num_layers", 1, _DEFAULTS)
    source.run += [replace(row, key=f"--{row.key.replace('_', '-')}") for row in keys.finish() if row.value != "(default)"]
    source.given = {name: one for name, one in source.given.items() if name not in READ}
    job = of_source("slime", source, options, where, {**TABLE, **of_beginnings(source.given), **OWN})
    strategy = dict(job.strategy or {})
    _filled(strategy, rows, documents_said(options, strategy))
    told = tuple(replace(row, value="(default)", fate="derived") if row.key in _SET and row.fate == "mapped" else row for row in job.rows)
    return replace(job, rows=told, strategy=strategy, assumptions={**job.assumptions, **assumptions})


def _with_models(inputs: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The files with those of models that they source, where these lie beside them; and the lists that none of them sets."""
    found: list[str] = []
    texts = ""
    for given in inputs:
        if given.startswith("--") or not given.endswith(".sh"):
            found.append(given)
            continue
        text = read_text(given, _LONGEST)
        beside = [Path(given).parent / name for name in _SOURCED.findall(text)]
        more = [path for path in beside if os.path.isfile(path) and str(path) not in (*inputs, *found)]
        texts += "".join(read_text(path, _LONGEST) for path in more) + text
        found += [*map(str, more), given]
    return found, tuple(name for name in dict.fromkeys(_LISTS.findall(texts)) if f"{name}=" not in texts and f"{name}+=" not in texts)


def _named(source: Source) -> str | None:
    """The model that the checkpoint's name says."""
    one = source.given.get("hf_checkpoint")
    shipped = shipped_model(str(one.value)) if one is not None else None
    return shipped.name if shipped is not None else None


def _ranks(keys: Keys, source: Source) -> None:
    """Ranks that train; those that generate stand beside them or take turns with them."""
    for key in ("actor_num_nodes", "actor_num_gpus_per_node"):
        if key in keys.given and isinstance(keys.given[key].value, Unresolved):
            keys.note(key, "derived", "dp", "as many as where nothing says: 8 a node")
            keys.given = {name: one for name, one in keys.given.items() if name != key}
    nodes = keys.integer("actor_num_nodes", None, to="dp", least=1)
    each = keys.integer("actor_num_gpus_per_node", None, to="dp", least=1)
    if nodes is not None or each is not None:
        source.world = min((nodes or 1) * (each or 8), 2**30)
        source.ranks = f"{nodes or 1} nodes of {each or 8} ranks"


def _samples(keys: Keys, source: Source) -> None:
    """Samples of an update, and of a micro-batch where its tokens are not bounded."""
    prompts = keys.integer("rollout_batch_size", None, to="global_batch_size", least=1)
    each = keys.integer("n_samples_per_prompt", 1, to="global_batch_size", least=1)
    updates = keys.integer("num_steps_per_rollout", None, to="global_batch_size", least=1)
    if "global_batch_size" in source.given:
        for key in ("rollout_batch_size", "n_samples_per_prompt", "num_steps_per_rollout"):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="global_batch_size says how many samples an update has")
    elif prompts is not None:
        put_field(source, "global_batch_size", "global_batch_size", max(1, prompts * each // (updates or 1)), _DEFAULTS)
    if "micro_batch_size" not in source.given:
        put_field(source, "micro_batch_size", "micro_batch_size", 1, _DEFAULTS)


def _lengths(keys: Keys, source: Source) -> _Rows:
    """Samples one after the other without padding: one or so many a micro-batch, or as many as a bound of tokens takes."""
    prompt = keys.integer("rollout_max_prompt_len", 0, to="seq_length")
    answer = keys.integer("rollout_max_response_len", None, to="seq_length", least=1, why=_FULL)
    whole = keys.integer("rollout_max_context_len", None, to="seq_length", least=1)
    row = whole if answer is None else min(prompt + answer, whole or prompt + answer)
    packed = keys.flag("use_dynamic_batch_size", False, to="micro_batch_size, packed_document_length", why=_BOUND)
    most = keys.integer("max_tokens_per_gpu", None, to="seq_length", least=1)
    if "log_probs_max_tokens_per_gpu" in keys.given:
        keys.note("log_probs_max_tokens_per_gpu", "no_cost_effect", why="of forwards between the updates")
    if not packed or most is None:
        if most is not None:
            keys.note("max_tokens_per_gpu", "no_cost_effect", why="read with use_dynamic_batch_size")
        if row is not None or "seq_length" not in source.given:
            source.given["seq_length"] = Given(row or _PLACEHOLDER, _DEFAULTS)
        return _Rows(row, None)
    cp = source.given.get("context_parallel_size")
    shares = (natural(cp.value) if cp is not None else None) or 1
    bound = max(most * shares, row or 1)
    source.given |= {"seq_length": Given(bound, _DEFAULTS), "micro_batch_size": Given(1, _DEFAULTS)}
    return _Rows(row, bound)


def _megatron(keys: Keys, source: Source) -> None:
    """What slime sets of Megatron-LM's arguments whatever a script says."""
    given = source.given
    put_field(source, "use_distributed_optimizer", "use_distributed_optimizer", True, _DEFAULTS)
    if "fp16" not in given and "bf16" not in given:
        put_field(source, "bf16", "bf16", True, _DEFAULTS)
    if "num_experts" in given:
        kind = given.get("moe_token_dispatcher_type")
        if kind is None:
            put_field(source, "moe_token_dispatcher_type", "moe_token_dispatcher_type", "alltoall", _DEFAULTS)
        elif kind.value == "allgather":
            given["moe_token_dispatcher_type"] = replace(kind, value="alltoall")
    if keys.flag("allgather_cp", False, to="cp_comm_type"):
        given["cp_comm_type"] = Given("all_gather", _DEFAULTS)
    if not keys.flag("enable_mtp_training", False, to="mtp_num_layers") and "mtp_num_layers" in given:
        given["mtp_num_layers"] = replace(given["mtp_num_layers"], value=0)


def _adapted(source: Source) -> None:
    """miles' adapters by the names that Megatron-Bridge has; with rank 0 there are none."""
    rank = source.given.get("lora_rank")
    if rank is None:
        return
    if shown(rank.value) == "0":
        source.given["lora_rank"] = replace(rank, value="none")
    names = {"lora_rank": DIM if shown(rank.value) != "0" else SCHEME, "lora_dropout": DROPOUT, "lora_type": SCHEME}
    names |= {"target_modules": TARGETS, "exclude_modules": EXCLUDED}
    source.given = {names.get(key, key): one for key, one in source.given.items()}
    source.written = [(key, value, names.get(argument, argument)) for key, value, argument in source.written]


def _filled(strategy: dict[str, Any], rows: _Rows, said: str) -> None:
    """Micro-batches of a bound: as many as hold a rank's samples at their mean length."""
    if rows.bound is None:
        if said and rows.row is not None:
            strategy["padding_free"] = True
        return
    if not said and rows.row is not None and rows.row < rows.bound:
        strategy["packed_document_length"] = rows.row
    samples = strategy.pop("global_batch_size", None)
    if samples is None:
        return
    own = -(-int(samples) // int(strategy["dp"]))
    strategy["num_microbatches"] = max(1, -(-own // fitting(strategy, rows.bound)))
