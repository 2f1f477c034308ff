"""verl's actor on Megatron-Core: its own keys and those that it hands on to Megatron-Core's configurations.

Defaults: verl b178a3cd (2026-01-29), verl/trainer/config/engine/megatron.yaml, verl/workers/config/engine.py McoreEngineConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.importers.keys import Entry, Given, Keys
from symsim.importers.megatron.handed import handed
from symsim.importers.megatron.source import Source, put_field
from symsim.importers.rules import states_on_host
from symsim.importers.verl.tables import ACTOR

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

_OWN = f"{ACTOR}.megatron"
_DEGREES = """tensor_model_parallel_size pipeline_model_parallel_size virtual_pipeline_model_parallel_size context_parallel_size
    expert_model_parallel_size expert_tensor_parallel_size sequence_parallel use_distributed_optimizer use_megatron_fsdp""".split()
_HANDED = (
    f"{_OWN}.override_transformer_config",
    f"{_OWN}.override_ddp_config",
    f"{_OWN}.override_mcore_model_config",
    f"{ACTOR}.optim.override_optimizer_config",
)
_DEFAULTS: dict[str, Any] = {"sequence_parallel": True, "use_distributed_optimizer": True}
# what verl's bridge to Megatron-Core sets before any override
_BRIDGED: dict[str, Any] = {"variable_seq_lengths": True, "masked_softmax_fusion": True, "bias_dropout_fusion": True, "attention_backend": "flash"}


def of_megatron(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None", world: int) -> list[Entry]:
    """Set the options that Megatron-Core's fields give, and return the rows of these. InputError for a value that cannot be."""
    source = Source(dialect="recipe")
    for key, one in keys.given.items():
        section = next((name for name in (*_HANDED, _OWN) if key.startswith(f"{name}.")), None)
        name = key.removeprefix(f"{section}.")
        if section is None or (section == _OWN and name not in _DEGREES) or "." in name:
            continue
        keys.known.add(key)
        if one.value is None:
            continue
        put_field(source, name, key, one.value, one.where)
    for name, value in {**_DEFAULTS, **_BRIDGED}.items():
        if not any(argument == name for _, _, argument in source.written):
            put_field(source, name, f"{_OWN}.{name}", value, "verl's defaults")
    optimizer = str(keys.text(f"{ACTOR}.optim.optimizer", "adam", to="optimizer")).casefold()
    if optimizer not in ("adam", "adamw", "sgd"):
        raise keys.wrong(f"{ACTOR}.optim.optimizer", "adam or sgd")
    source.given["optimizer"] = Given(optimizer.removesuffix("w"), "verl's defaults")
    source.given["bf16"] = Given(str(keys.text(f"{_OWN}.dtype", "bfloat16", to="precision")) in ("bfloat16", "bf16"), "verl's defaults")
    rows = handed(keys, source, strategy, assumptions, architecture)
    states_on_host(keys, strategy)
    each = int(strategy.get("tp", 1)) * int(strategy.get("cp", 1)) * int(strategy.get("pp", 1))
    if world % each:
        raise keys.wrong(
            f"{_OWN}.tensor_model_parallel_size", f"such that tp*pp*cp={each} divides the {world} ranks of trainer.nnodes and n_gpus_per_node"
        )
    strategy["dp"] = world // each
    return rows
