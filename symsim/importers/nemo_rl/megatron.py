"""NeMo-RL's policy on Megatron-Core: its own keys, and those that it hands on to Megatron-Bridge's configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.adapted import Names, adapters
from symsim.importers.keys import Entry, Keys
from symsim.importers.megatron.handed import handed
from symsim.importers.megatron.source import Source, put_field
from symsim.importers.nemo_rl.tables import MEGATRON, OF_MEGATRON, SILENT
from symsim.importers.targets import excluded

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

_SECTIONS = ("optimizer", "distributed_data_parallel_config", "fp8_cfg", "model_overrides")
_OWN = frozenset(
    """enabled activation_checkpointing fp8_cfg.enabled use_fused_linear_logprobs use_linear_ce_fusion_loss
    fine_grained_activation_offloading optimizer.clip_grad mtp_num_layers freeze_moe_router""".split()
)
_RENAMED = {"fp8_cfg.fp8_param": "fp8_param_gather", "use_custom_fsdp": "use_megatron_fsdp"}
_DEFAULT = "NeMo-RL's defaults"
# of roll-outs' log-probabilities, and of a supervised loss
_HEADS = ("use_fused_linear_logprobs", "use_linear_ce_fusion_loss")
_LOGITS = "the output layer's product inside the loss, in chunks: logits are never whole"


def of_megatron(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None", world: int) -> list[Entry]:
    """Set the options that megatron_cfg gives, and return the rows of what it hands on. InputError for a value that cannot be."""
    source = Source(dialect="recipe")
    again = keys.flag(f"{MEGATRON}.activation_checkpointing", False, to="recompute")
    narrow = keys.flag(f"{MEGATRON}.fp8_cfg.enabled", False, to="fp8")
    waits = keys.flag(f"{MEGATRON}.fine_grained_activation_offloading", False, to="offload_operations")
    for key, one in keys.given.items():
        name = key.removeprefix(f"{MEGATRON}.")
        if name == key or name in _OWN or key in SILENT or name.startswith(("peft.", "checkpoint.", "scheduler.", "env_vars")):
            continue
        section, _, field = name.rpartition(".")
        if section not in ("", *_SECTIONS):
            continue
        keys.known.add(key)
        if one.value is None or one.value == {}:
            continue
        if (name.startswith("recompute_") and not again) or (section == "fp8_cfg" and not narrow) or (name == "offload_modules" and not waits):
            keys.note(key, "no_cost_effect", why="read with the switch beside it")
            continue
        put_field(source, _RENAMED.get(name, _RENAMED.get(field, field)), key, one.value, one.where)
    own = _defaults(source, again, waits)
    rows = [_derived(row) if row.key in own else row for row in handed(keys, source, strategy, assumptions, architecture)]
    if f"{MEGATRON}.optimizer.clip_grad" in keys.given:
        strategy["clip_grad"] = keys.number(f"{MEGATRON}.optimizer.clip_grad", 1.0, to="clip_grad")
    whole = [keys.flag(f"{MEGATRON}.{name}", False, to="cross_entropy_fusion", why=_LOGITS) for name in _HEADS]
    if any(whole):
        strategy["cross_entropy_fusion"] = "linear"
    _further_tokens(keys, strategy, architecture)
    if keys.flag(f"{MEGATRON}.freeze_moe_router", False, to="freeze_parameters"):
        if architecture is not None and architecture.moe is None:
            keys.note(f"{MEGATRON}.freeze_moe_router", "no_cost_effect", why="the model has no experts")
        else:
            strategy["freeze_parameters"] = ["router"]
    _adapters(keys, strategy, architecture)
    tp, cp, pp = (int(strategy.get(name, 1)) for name in ("tp", "cp", "pp"))
    if world % (tp * cp * pp):
        said = f"tp*cp*pp={tp}*{cp}*{pp} does not divide the {world} ranks that train, those of the cluster without ranks of other models"
        # the launch scripts count them beside the cluster
        gym = keys.integer("env.nemo_gym.num_gpu_nodes", 0)
        said += f", of which env.nemo_gym.num_gpu_nodes={gym} are none: take them off cluster.num_nodes" if gym else ""
        raise InputError(f"{keys.place('cluster.num_nodes')}: {said}")
    strategy["dp"] = world // (tp * cp * pp)
    return rows


def _derived(row: Entry) -> Entry:
    return replace(row, value="(default)", fate="derived" if row.fate == "mapped" else row.fate, why=f"{row.value} by default")


def _defaults(source: Source, again: bool, waits: bool) -> set[str]:
    """Put what holds where the file says nothing; the keys that it has."""
    written = {key for key, _, _ in source.written}
    more: dict[str, Any] = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1} if again else {}
    if again and any(key == f"{MEGATRON}.recompute_granularity" and value != "full" for key, value, _ in source.written):
        more = {}
    if waits:
        more["fine_grained_activation_offloading"] = True
    own = {f"{MEGATRON}.{name}": value for name, value in {**OF_MEGATRON, **more}.items() if f"{MEGATRON}.{name}" not in written}
    for key, value in own.items():
        put_field(source, key.rpartition(".")[2], key, value, _DEFAULT)
    return set(own)


def _further_tokens(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """Multi-token prediction, which is off where nothing says."""
    depths = keys.integer(f"{MEGATRON}.mtp_num_layers", 0, to="mtp_num_layers")
    if architecture is None or architecture.mtp_num_layers:
        strategy["mtp_num_layers"] = min(depths, architecture.mtp_num_layers or 0) if architecture is not None else depths
    elif depths:
        keys.note(f"{MEGATRON}.mtp_num_layers", "not_modelled", why="further layers than the model's own have no sizes here")


_PEFT = Names(
    f"{MEGATRON}.peft.dim",
    f"{MEGATRON}.peft.dropout",
    f"{MEGATRON}.peft.target_modules",
    f"{MEGATRON}.peft.saved",
    position=f"{MEGATRON}.peft.dropout_position",
)


def _adapters(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    if keys.flag(f"{MEGATRON}.peft.enabled", False, to="tuner_type"):
        strategy.pop("freeze_parameters", None)
        adapters(keys, strategy, architecture, _PEFT)
        excluded(keys, f"{MEGATRON}.peft.exclude_modules", strategy, architecture)
        return
    for key in keys.given:
        if key.startswith(f"{MEGATRON}.peft.") and key not in keys.rows:
            keys.note(key, "no_cost_effect", why="read with peft.enabled")
