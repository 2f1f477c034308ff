"""verl's configuration: the actor's training step, of a launch script's overrides or YAML.

What its keys do: verl b178a3cd (2026-01-29), verl/workers/actor/dp_actor.py, megatron_actor.py, verl/workers/fsdp_workers.py,
megatron_workers.py, verl/trainer/fsdp_sft_trainer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut
from symsim.importers.assumed import deterministic
from symsim.importers.documents import balanced, documents_said, fitting, free_rows
from symsim.importers.fsdp import HOST_PARAMETERS, host_states
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys, Unresolved
from symsim.importers.losses import liger_modules
from symsim.importers.optimizers import OPTIMIZERS, of_class
from symsim.importers.ranks import NODE
from symsim.importers.rules import settle
from symsim.importers.sections import under
from symsim.importers.shell.scope import Word
from symsim.importers.targets import excluded, targets, without
from symsim.importers.trainer import groups_on_host
from symsim.importers.verl.hydra import read_overrides
from symsim.importers.verl.megatron import of_megatron
from symsim.importers.verl.tables import ACTOR, MODEL, SECTIONS, SILENT, SUPERVISED
from symsim.importers.weights import model_of

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_TYPES = {
    spelling: short for short, long in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")) for spelling in (long, short, f"torch.{long}")
}
_FSDP = f"{ACTOR}.fsdp_config"
_ENGINES = {"dp": "fsdp", "megatron": "megatron", "veomni": "veomni"}


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of the actor's update. InputError for a key that there is not or a value that cannot be."""
    source = read_overrides(inputs, options.variables, "verl")
    supervised = "sft" in source.program or any(key.startswith(("model.", "optim.", "engine.")) for key in source.given)
    names = {key: _place(key) if supervised else key for key in source.given}
    given = {names[key]: one for key, one in source.given.items() if not key.rpartition(".")[2] == "_target_"}
    _named(given, source.launched)
    keys = Keys("verl", given, {**under(SECTIONS, given), **SILENT}, options.lenient)
    strategy: dict[str, Any] = {}
    assumptions: dict[str, str] = {}
    architecture = model_of(keys, f"{MODEL}.path", options)
    kind = _engine(keys, source.chosen)
    world = _ranks(keys, options)
    further: list[Entry] = []
    if kind == "megatron":
        keys.known |= {f"{MODEL}.enable_gradient_checkpointing", f"{MODEL}.enable_activation_offload", f"{ACTOR}.ulysses_sequence_parallel_size"}
        _length(keys, strategy, options)
        further = of_megatron(keys, strategy, assumptions, architecture, world)
    else:
        _sharded(keys, strategy, assumptions, world)
        _length(keys, strategy, options)
        _checkpoints(keys, strategy, architecture)
    _batch(keys, strategy, 1 if supervised else keys.integer("actor_rollout_ref.rollout.n", 1, to="num_microbatches", least=1))
    balanced(keys, assumptions, "trainer.balance_batch")
    _other_models(keys)
    _loss(keys, strategy)
    liger_modules(keys, f"{MODEL}.use_liger", strategy)
    _adapters(keys, strategy, architecture)
    strategy["clip_grad"] = keys.number(f"{ACTOR}.grad_clip", keys.number(f"{ACTOR}.optim.clip_grad", 1.0, to="clip_grad"), to="clip_grad")
    settle(keys, strategy, architecture, "verl")
    written = {place: key for key, place in names.items()}
    rows = [
        replace(row, key=written.get(row.key, row.key))
        for row in keys.finish()
        if row.value != "(default)" or row.fate in ("derived", "not_modelled")
    ]
    notes = [*source.notes, *(() if architecture is not None else ("no model is known by that name; --of MODEL says which",))]
    plain = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}
    strategy = {name: value for name, value in strategy.items() if plain.get(name) != value or name not in plain}
    return Job("verl", (*rows, *further), architecture, strategy, None, assumptions, tuple(notes))


def _engine(keys: Keys, chosen: str) -> str:
    """What runs the update: by its own name, by the group of files that is chosen (verl/trainer/config/model_engine), or by the actor's file."""
    default = "megatron" if "megatron" in chosen or any(key.startswith(f"{ACTOR}.megatron.") for key in keys.given) else "fsdp"
    for key, suffix in (("model_engine", ""), ("actor", "_actor")):
        default = str(keys.choice(key, {f"{name}{suffix}": kind for name, kind in _ENGINES.items()}, default, to="zero, fusion"))
    return str(keys.choice(f"{ACTOR}.strategy", {name: name for name in ("fsdp", "fsdp2", "megatron", "veomni")}, default, to="zero, fusion"))


def _place(key: str) -> str:
    """Where a key of the supervised trainer stands among the actor's."""
    for name, place in SUPERVISED.items():
        if key == name:
            return place
        if name.endswith(".") and key.startswith(name):
            return place + key.removeprefix(name)
    return key


def _named(given: dict[str, Given], launched: Mapping[str, Word]) -> None:
    """What a script leaves open and its other words tell: a model by the end of its path, ranks by torchrun's options."""
    path = given.get(f"{MODEL}.path")
    if path is not None and isinstance(path.value, Unresolved):
        last = path.value.text.rstrip("/").rpartition("/")[2]
        if last and "$" not in last:
            given[f"{MODEL}.path"] = replace(path, value=last)
    for name, key in (("nproc_per_node", "trainer.n_gpus_per_node"), ("nnodes", "trainer.nnodes")):
        if name in launched and key not in given:
            given[key] = Given(launched[name].text if launched[name].why is None else Unresolved(name, ""), launched[name].where)
        if key in given and isinstance(given[key].value, Unresolved):
            del given[key]


def _ranks(keys: Keys, options: "Options") -> int:
    """Ranks that train: those of all nodes, or of --var world."""
    nodes = keys.integer("trainer.nnodes", 1, to="dp", least=1)
    each = keys.integer("trainer.n_gpus_per_node", NODE, to="dp", least=1)
    told = options.variables.get("world", "")
    if told:
        if not (told.isascii() and told.isdigit() and 0 < int(told[:12]) <= 2**30):
            raise InputError("--var world: it should be a whole number above 0")
        return int(told)
    for key, number in (("trainer.n_gpus_per_node", NODE), ("trainer.nnodes", 1)):
        if key not in keys.given:
            keys.note(key, "derived", "dp", f"{number}, since nothing here says; --var world=N gives all ranks")
    if nodes * each > 2**30:
        raise keys.wrong("trainer.nnodes", f"at most {2**30} ranks in all")
    return int(nodes * each)


def _sharded(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], world: int) -> None:
    """FSDP of either version: weights as model_dtype says, cast as they are gathered, and reduced in fp32."""
    strategy |= {"fusion": "eager", "zero": 3, "grad_reduce_in_fp32": True}
    cp = 1
    for key in (f"{_FSDP}.ulysses_sequence_parallel_size", f"{ACTOR}.ulysses_sequence_parallel_size"):
        cp = keys.integer(key, cp, to="cp, cp_comm_type", why="Ulysses: heads exchanged for parts of the sequence", least=1)
    if world % cp:
        raise keys.wrong(f"{ACTOR}.ulysses_sequence_parallel_size", f"a divisor of the {world} ranks")
    if cp > 1:
        strategy |= {"cp": cp, "cp_comm_type": "a2a"}
    strategy["dp"] = world // cp
    computed = keys.choice(f"{_FSDP}.mixed_precision.param_dtype", _TYPES, "bf16", to="precision")
    strategy["precision"] = keys.choice(f"{_FSDP}.dtype", _TYPES, computed, to="precision")
    strategy["grad_reduce_in_fp32"] = "fp32" == keys.choice(f"{_FSDP}.mixed_precision.reduce_dtype", _TYPES, "fp32", to="grad_reduce_in_fp32")
    kept = keys.choice(f"{_FSDP}.model_dtype", _TYPES, "fp32", to="main_params_dtype, assume.fsdp_parameters")
    assumptions["fsdp_parameters"] = "main"
    if kept != "fp32":
        strategy["main_params_dtype"] = kept
    if not keys.flag(f"{_FSDP}.reshard_after_forward", True, to="reshard_after_forward"):
        strategy["reshard_after_forward"] = False
    size = keys.integer(f"{_FSDP}.fsdp_size", -1, to="num_distributed_optimizer_instances", least=-1)
    if 0 < size < world and strategy["dp"] % (world // size) == 0:
        strategy["num_distributed_optimizer_instances"] = world // size
    if keys.flag(f"{_FSDP}.offload_policy", False, to="offload_parameters"):
        strategy |= {**host_states(str(strategy["precision"])), "offload_parameters": True}
        keys.note(f"{_FSDP}.offload_policy", to="offload_parameters, optimizer_cpu_offload", why=HOST_PARAMETERS)
    deterministic(keys, assumptions, f"{_FSDP}.full_determinism")
    _update(keys, strategy, assumptions)


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    given = str(keys.text(f"{ACTOR}.optim.optimizer", "AdamW"))
    library = str(keys.text(f"{ACTOR}.optim.optimizer_impl", "torch.optim", to="assume.optimizer_implementation"))
    name = of_class(f"{library}.{given}")
    if name not in OPTIMIZERS:
        raise keys.wrong(f"{ACTOR}.optim.optimizer", "an optimizer of PyTorch, torchao or bitsandbytes")
    OPTIMIZERS[name].apply(keys, f"{ACTOR}.optim.optimizer", strategy, assumptions)
    if library == "torch.optim" and name in ("adam", "adamw"):
        assumptions["optimizer_implementation"] = "foreach"
    extra = f"{ACTOR}.optim.override_optimizer_config"
    if any(key == extra or key.startswith(f"{extra}.") for key in keys.given):
        keys.known.update(key for key in keys.given if key.startswith(extra))


def _checkpoints(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    if keys.flag(f"{MODEL}.enable_gradient_checkpointing", True, to="recompute"):
        strategy["recompute"] = "full"
        if f"{MODEL}.enable_gradient_checkpointing" not in keys.given:
            keys.note(f"{MODEL}.enable_gradient_checkpointing", "derived", "recompute", "on by default")
    groups_on_host(keys, f"{MODEL}.enable_activation_offload", strategy, architecture)


def _loss(keys: Keys, strategy: dict[str, Any]) -> None:
    """Log-probabilities of a few tokens' logits at a time, made again in backward."""
    fused = keys.flag(f"{MODEL}.use_fused_kernels", False, to="cross_entropy_fusion", why="the head and the loss are one: logits are never whole")
    if keys.flag(f"{ACTOR}.use_fused_kernels", fused, to="cross_entropy_fusion"):
        strategy["cross_entropy_fusion"] = "cut"


def _adapters(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """LoRA where a rank above 0 is given; on Megatron-Core its keys are in a section."""
    section = f"{MODEL}.lora."
    rank = keys.integer(f"{MODEL}.lora_rank", 0, to="lora_rank")
    rank = keys.integer(f"{section}rank", rank, to="lora_rank")
    dropout = keys.number(f"{section}dropout", 0.0, to="lora_dropout")
    if not 0 <= dropout < 1:
        raise keys.wrong(f"{section}dropout", "from 0 to below 1")
    named = [key for key in (f"{section}target_modules", f"{MODEL}.target_modules") if keys.has(key)]
    asked = keys.texts(named[0], [], to="target_modules") if named else []
    if rank == 0:
        for key in named:
            keys.note(key, "no_cost_effect", why="read with a rank above 0")
        keys.known.add(f"{MODEL}.exclude_modules")
        return
    found, lost = targets(asked or ["all_linear"], strategy, architecture)
    strategy |= {"tuner_type": "lora", "lora_rank": rank, "lora_dropout": dropout, "target_modules": found}
    excluded(keys, f"{MODEL}.exclude_modules", strategy, architecture)
    if lost:
        keys.note(named[0], "not_modelled", "target_modules", without(lost, found))


def _other_models(keys: Keys) -> None:
    """A critic that is not there, and a reward model (trainer/ppo/utils.py need_critic)."""
    estimator, critic, model = (
        str(keys.given[key].value).casefold() if keys.has(key) else "" for key in ("algorithm.adv_estimator", "critic.enable", "reward_model.enable")
    )
    alone = critic not in ("true", "false") and estimator not in ("", "gae")
    off = {"critic": critic == "false" or alone, "reward_model": model == "false"}
    told = f"no critic with algorithm.adv_estimator={cut(estimator)}"
    for key in keys.given:
        section = key.partition(".")[0]
        if off.get(section):
            keys.note(key, "no_cost_effect", why=told if alone and section == "critic" else "read where it is enabled")


def _length(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    """Rows: prompt and response, or as many of them as a bound of tokens takes, one after the other."""
    prompt = keys.integer("data.max_prompt_length", 512, to="seq_length", least=1)
    answer = keys.integer("data.max_response_length", 0 if "data.max_prompt_length" in keys.given else 512, to="seq_length")
    row = prompt + answer
    told = _variable(options, "seq_length")
    bare = keys.flag(f"{MODEL}.use_remove_padding", True, to="packed_document_length")
    packed = keys.flag(f"{ACTOR}.use_dynamic_bsz", False, to="micro_batch_size, packed_document_length")
    bound = keys.integer(f"{ACTOR}.ppo_max_token_len_per_gpu", 16384, to="seq_length", least=1)
    said = documents_said(options, strategy)
    strategy["seq_length"] = told or row
    if packed:
        # a rank's share of tokens is of the group that splits the sequence
        strategy |= {"seq_length": told or max(bound * int(strategy.get("cp", 1)), row), "micro_batch_size": 1}
        if not said:
            strategy["packed_document_length"] = row
        why = "micro-batches of at most ppo_max_token_len_per_gpu tokens, of rows that are as long as they may be; --var packed_document_length=N"
        keys.note(f"{ACTOR}.use_dynamic_bsz", to="micro_batch_size, packed_document_length", why=why)
        keys.note(f"{MODEL}.use_remove_padding", "no_cost_effect", why="use_dynamic_bsz lays rows one after the other")
        return
    if f"{ACTOR}.ppo_max_token_len_per_gpu" in keys.given:
        keys.note(f"{ACTOR}.ppo_max_token_len_per_gpu", "no_cost_effect", why="read with use_dynamic_bsz")
    if bare:
        free_rows(keys, f"{MODEL}.use_remove_padding", said, strategy)


def _variable(options: "Options", name: str) -> int | None:
    text = options.variables.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) and len(text) < 12):
        raise InputError(f"--var {name}: it should be a whole number above 0")
    return int(text)


def _batch(keys: Keys, strategy: dict[str, Any], rows: int) -> None:
    """Micro-batches of an update: those of the mini-batch's rows that a replica holds."""
    whole = keys.integer(f"{ACTOR}.ppo_mini_batch_size", 256, to="num_microbatches", least=1) * rows
    each = keys.integer(f"{ACTOR}.ppo_micro_batch_size_per_gpu", None, to="micro_batch_size", least=1)
    together = keys.integer(f"{ACTOR}.ppo_micro_batch_size", None, to="micro_batch_size", least=1)
    dp = int(strategy["dp"])
    own = max(1, -(-whole // dp))
    if strategy.get("micro_batch_size") == 1:
        # rows of a micro-batch at their mean length
        strategy["num_microbatches"] = max(1, -(-own // fitting(strategy, int(strategy["seq_length"]))))
        for key in ("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size"):
            if f"{ACTOR}.{key}" in keys.given:
                keys.note(f"{ACTOR}.{key}", "no_cost_effect", why="use_dynamic_bsz decides")
        return
    micro = each or (max(1, together // dp) if together is not None else 1)
    if each is None and together is None:
        keys.note(f"{ACTOR}.ppo_micro_batch_size_per_gpu", "derived", "micro_batch_size", "1, since nothing says")
    strategy |= {"micro_batch_size": micro, "num_microbatches": max(1, -(-own // micro))}
