"""NeMo-RL's configuration: the policy's update, with PyTorch's FSDP (dtensor_cfg) or Megatron-Core (megatron_cfg).

What its keys do: NeMo-RL nemo_rl/models/policy/lm_policy.py, workers/dtensor_policy_worker.py, megatron_policy_worker.py,
nemo_rl/models/megatron/setup.py; nemo_rl/utils/config.py for `defaults`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.adapted import Names, adapters
from symsim.importers.documents import SAID, documents_said, fitting, free_rows
from symsim.importers.fsdp import HOST_PARAMETERS, host_states
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys
from symsim.importers.nemo_rl.megatron import of_megatron
from symsim.importers.nemo_rl.ranks import ranks
from symsim.importers.nemo_rl.tables import DEFAULTS, DTENSOR, MEGATRON, POLICY, SECTIONS, SILENT
from symsim.importers.optimizers import OPTIMIZERS, of_class
from symsim.importers.ranks import known_variables, variable
from symsim.importers.rules import settle
from symsim.importers.sections import of_sections, referred, under
from symsim.importers.targets import excluded
from symsim.importers.weights import model_of
from symsim.inputs.reading import read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_WHOLE = ("env_vars", "hf_config_overrides", "defaults")
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_DEEPEST = 5
_PAIRS = "rows are pairs of samples: twice as many"
_MOST_TOKENS = "micro-batches of at most train_mb_tokens tokens; rows are as long as they may be: --var packed_document_length=N gives their mean"


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a NeMo-RL YAML. InputError for a key that there is not or a value that cannot be."""
    if len(inputs) != 1:
        raise InputError(f"'symsim import nemo-rl' reads one YAML, and {len(inputs)} files are given")
    known_variables(options, ("seq_length", *SAID))
    given, missing = _inherited(inputs[0])
    given = {key: one for key, one in referred(given).items() if not (isinstance(one.value, str) and one.value.startswith("${mul:"))}
    keys = Keys("a NeMo-RL file", given, {**under(SECTIONS, given), **SILENT}, options.lenient)
    strategy: dict[str, Any] = {}
    assumptions: dict[str, str] = {}
    architecture = model_of(keys, f"{POLICY}.model_name", options)
    world = ranks(keys, options)
    on_megatron = keys.flag(f"{MEGATRON}.enabled", _on_megatron(keys, missing), to="fusion")
    keys.flag(f"{DTENSOR}.enabled", not on_megatron, to="zero, fusion")
    strategy["precision"] = keys.choice(f"{POLICY}.precision", _TYPES, "bf16", to="precision")
    strategy["clip_grad"] = keys.number(f"{POLICY}.max_grad_norm", 1.0, to="clip_grad")
    further: list[Entry] = []
    if on_megatron:
        further = of_megatron(keys, strategy, assumptions, architecture, world)
        _unread(keys, DTENSOR, "megatron_cfg is enabled", f"{POLICY}.optimizer")
    else:
        _sharded(keys, strategy, assumptions, architecture, world)
        _unread(keys, MEGATRON, "dtensor_cfg is enabled")
    _batch(keys, strategy, options)
    settle(keys, strategy, architecture, "NeMo-RL")
    rows = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    plain = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}
    strategy = {name: value for name, value in strategy.items() if plain.get(name) != value or name not in plain}
    notes = [*(f"{name}, from which it inherits, is not beside it: values of NeMo-RL's own grpo_math_1B.yaml hold" for name in missing)]
    notes += [] if architecture is not None else ["no model is known by that name; --of MODEL says which"]
    return Job("nemo-rl", (*rows, *further), architecture, strategy, None, assumptions, tuple(notes))


def _inherited(path: str) -> tuple[dict[str, Given], list[str]]:
    """The keys of a file and of those that its `defaults` name, where they lie where it says; and those that do not."""
    chain: list[dict[str, Given]] = []
    missing: list[str] = []
    waiting = [path]
    while waiting and len(chain) < _DEEPEST:
        name = waiting.pop(0)
        document = read_yaml(name)
        chain.append(of_sections(document, _WHOLE))
        named = document.data.get("defaults")
        for one in named if isinstance(named, list) else [named]:
            if not isinstance(one, str):
                continue
            place = Path(name).parent / one
            if place.suffix in (".yaml", ".yml") and os.path.isfile(place):
                waiting.append(str(place))
            else:
                missing.append(one)
    found: dict[str, Given] = {}
    for keys in reversed(chain):
        # a section that is set to nothing takes its keys away
        emptied = [key for key, one in keys.items() if one.value is None]
        found = {key: one for key, one in found.items() if not any(key.startswith(f"{name}.") for name in emptied)} | keys
    return found, missing


def _on_megatron(keys: Keys, missing: Sequence[str]) -> bool:
    """Which engine runs where no file here says: FSDP in NeMo-RL's own values; else the one whose section alone has keys."""
    own = any(key.startswith(f"{DTENSOR}.") for key in keys.given) or not any(key.startswith(f"{MEGATRON}.") for key in keys.given)
    if own or all(Path(name).name == "grpo_math_1B.yaml" for name in missing):
        return False
    if f"{MEGATRON}.enabled" not in keys.given:
        keys.note(f"{MEGATRON}.enabled", "derived", "fusion", "true, since keys of megatron_cfg are set and the file that says is not here")
    return True


def _unread(keys: Keys, section: str, why: str, *more: str) -> None:
    """Keys of the engine that is not chosen."""
    for key in keys.given:
        if key.startswith((f"{section}.", *(f"{one}." for one in more))) and key not in keys.rows:
            keys.note(key, "no_cost_effect", why=f"not read: {why}")


_LORA = Names(
    f"{DTENSOR}.lora_cfg.dim",
    f"{DTENSOR}.lora_cfg.dropout",
    f"{DTENSOR}.lora_cfg.target_modules",
    f"{DTENSOR}.lora_cfg.saved",
    position=f"{DTENSOR}.lora_cfg.dropout_position",
    default_position="post",
)


def _sharded(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None", world: int) -> None:
    """FSDP over what other degrees leave: fp32 shards, cast as they are gathered."""
    strategy |= {"fusion": "eager", "zero": 3, "grad_reduce_in_fp32": True}
    assumptions["fsdp_parameters"] = "main"
    for name, option in (("tensor", "tp"), ("context", "cp"), ("expert", "ep")):
        strategy[option] = keys.integer(f"{DTENSOR}.{name}_parallel_size", 1, to=option, least=1)
    if strategy["cp"] > 1:
        strategy["cp_comm_type"] = "all_gather"
    if keys.flag(f"{DTENSOR}.sequence_parallel", False, to="sp"):
        strategy["sp"] = True
    each = strategy["tp"] * strategy["cp"]
    if world % each:
        raise keys.wrong(f"{DTENSOR}.tensor_parallel_size", f"such that tp*cp={each} divides the {world} ranks that train")
    strategy["dp"] = world // each
    copies = keys.integer(f"{DTENSOR}.dp_replicate_size", 1, to="num_distributed_optimizer_instances", least=1)
    if copies > 1:
        strategy["num_distributed_optimizer_instances"] = copies
    if keys.flag(f"{DTENSOR}.activation_checkpointing", False, to="recompute"):
        strategy["recompute"] = "full"
    if keys.flag(f"{DTENSOR}.cpu_offload", False, to="offload_parameters"):
        strategy |= {**host_states(str(strategy["precision"])), "offload_parameters": True}
        keys.note(f"{DTENSOR}.cpu_offload", to="offload_parameters, optimizer_cpu_offload", why=HOST_PARAMETERS)
    _kernels(keys, strategy, assumptions)
    _update(keys, strategy, assumptions)
    lora = f"{DTENSOR}.lora_cfg"
    if keys.flag(f"{lora}.enabled", False, to="tuner_type"):
        adapters(keys, strategy, architecture, _LORA)
        assumptions["lora_scaling"] = "rank"
        if keys.flag(f"{lora}.match_all_linear", True, to="target_modules"):
            strategy["target_modules"] = ["all_linear"]
        excluded(keys, f"{lora}.exclude_modules", strategy, architecture)
    else:
        _unread(keys, lora, "lora_cfg is not enabled")


def _kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Transformer Engine's linear maps where Automodel's backend asks for them."""
    place = f"{DTENSOR}.automodel_kwargs.backend"
    linear = str(keys.text(f"{place}.linear", "torch", to="fusion"))
    core = str(keys.text(f"{place}.attn", "", to="assume.attention_kernel"))
    if str(keys.text(f"{DTENSOR}.automodel_kwargs.attn_implementation", "", to="assume.attention_kernel")) == "eager":
        assumptions["attention_kernel"] = "eager"
    if keys.flag(f"{place}.fake_balanced_gate", False, to="assume.expert_load"):
        assumptions["expert_load"] = "in_turn"
    if "te" in (linear, core):
        strategy |= {"fusion": "te", "gradient_accumulation_fusion": False, "use_precision_aware_optimizer": True}
    for name, option in (("rms_norm", "norm_fusion"), ("rope_fusion", "assume.apply_rope_fusion"), ("experts", "assume.moe_grouped_gemm")):
        keys.text(f"{place}.{name}", "", to=option, why="as this framework's modules have it")
    keys.text(f"{place}.dispatcher", "", to="assume.moe_exchange")
    if keys.flag(f"{place}.enable_deepep", False, to="assume.moe_exchange") or str(keys.text(f"{place}.dispatcher", "")) in ("deepep", "hybridep"):
        key = f"{place}.dispatcher" if f"{place}.dispatcher" in keys.given else f"{place}.enable_deepep"
        if strategy["ep"] == 1:
            keys.note(key, "no_cost_effect", why="no exchange where experts are not spread over ranks")
        else:
            assumptions["moe_exchange"] = "once_per_node"


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    key = f"{POLICY}.optimizer.name"
    name = of_class(str(keys.text(key, "torch.optim.AdamW")))
    if name not in OPTIMIZERS:
        raise keys.wrong(key, "an optimizer of PyTorch")
    OPTIMIZERS[name].apply(keys, key, strategy, assumptions)
    fused = keys.flag(f"{POLICY}.optimizer.kwargs.fused", False, to="assume.optimizer_implementation")
    many = keys.flag(f"{POLICY}.optimizer.kwargs.foreach", not fused, to="assume.optimizer_implementation")
    if not fused and name in ("adam", "adamw"):
        assumptions["optimizer_implementation"] = "foreach" if many else "for_loop"


def _batch(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    """Micro-batches of rows that are padded, or packed up to a bound of tokens."""
    samples = keys.integer(f"{POLICY}.train_global_batch_size", DEFAULTS["global"], to="num_microbatches", least=1)
    micro = keys.integer(f"{POLICY}.train_micro_batch_size", DEFAULTS["micro"], to="micro_batch_size", least=1)
    length = keys.integer(f"{POLICY}.max_total_sequence_length", DEFAULTS["length"], to="seq_length", least=1)
    if any(key.startswith("dpo.") for key in keys.given):
        samples, micro = 2 * samples, 2 * micro
        for key in ("train_global_batch_size", "train_micro_batch_size"):
            keys.note(f"{POLICY}.{key}", to="num_microbatches" if "global" in key else "micro_batch_size", why=_PAIRS)
    length = variable(options, "seq_length") or length
    said = documents_said(options, strategy)
    packing, dynamic = f"{POLICY}.sequence_packing", f"{POLICY}.dynamic_batching"
    packed = keys.flag(f"{packing}.enabled", False, to="seq_length, packed_document_length", why=_MOST_TOKENS)
    sorted_rows = keys.flag(f"{dynamic}.enabled", False, to="micro_batch_size", why="rows of like lengths, as many as train_mb_tokens takes")
    bounds = {place: keys.integer(f"{place}.train_mb_tokens", length * micro, to="seq_length", least=1) for place in (packing, dynamic)}
    own = -(-samples // int(strategy["dp"]))
    strategy["seq_length"] = length
    if packed:
        bound = max(bounds[packing], length)
        strategy |= {"seq_length": bound, "micro_batch_size": 1}
        if not said and length < bound:
            strategy["packed_document_length"] = length
        strategy["num_microbatches"] = max(1, -(-own // fitting(strategy, bound)))
        return
    if sorted_rows:
        micro = max(1, bounds[dynamic] // length)
        strategy["micro_batch_size"] = micro
    elif said:
        free_rows(keys, f"{POLICY}.max_total_sequence_length", said, strategy)
    strategy |= {"micro_batch_size": micro, "num_microbatches": max(1, -(-own // micro))}
