"""Adapters of Merak: `lora_config` names a file of peft's LoraConfig, whose keys are read as `lora_config.NAME`.

Merak merak_args/args.py, core/pipeline/module.py at 1593043; peft tuners/lora/config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symsim.importers.adapted import Names, adapters, biases
from symsim.importers.adapter_ranks import ranks
from symsim.importers.converted import none_found, refused_of_parameters, renamed
from symsim.importers.keys import Given, Keys, Silent, Unresolved, silent
from symsim.importers.targets import EVERY, excluded, of_parameters, some_layers
from symsim.inputs.architecture import Architecture
from symsim.inputs.reading import read_json

KEY = "lora_config"
_NAMES = Names(f"{KEY}.r", f"{KEY}.lora_dropout", f"{KEY}.target_modules", f"{KEY}.modules_to_save", default_targets=None, own_names=True)


def _inside(names: str) -> str:
    return " ".join(f"{KEY}.{name}" for name in names.split())


LORA: dict[str, Silent] = {
    **silent("no_cost_effect", "a number of the adapters, which costs the same at any value", _inside("lora_alpha use_rslora alpha_pattern")),
    **silent(
        "no_cost_effect",
        "names of the adapter, or what it begins as",
        _inside(
            """peft_type task_type base_model_name_or_path revision inference_mode init_lora_weights auto_mapping fan_in_fan_out
            loftq_config eva_config corda_config lora_ga_config kasa_config peft_version runtime_config megatron_config megatron_core
            qalora_group_size"""
        ),
    ),
    **silent("no_cost_effect", "what the modules of layers are called", _inside("layers_pattern")),
    **silent("not_modelled", "a bias of each adapter: as many numbers as the linear map has outputs", _inside("lora_bias")),
    **silent("not_modelled", "rows of the embedding that are trained beside adapters: the model's width each", _inside("trainable_token_indices")),
    **silent("not_modelled", "layers that stand several times: as many more forwards and backwards of them", _inside("layer_replication")),
    **silent("not_modelled", "one copy of a table that is embedding and output layer: they are two here", _inside("ensure_weight_tying")),
    **silent(
        "not_modelled",
        "another adapter than LoRA's, timed as LoRA",
        _inside("velora_config alora_invocation_tokens use_qalora monteclora_config use_bdlora arrow_config"),
    ),
}


def flattened(given: Mapping[str, Given]) -> dict[str, Given]:
    """The arguments with the keys of lora_config in its place, where it is a mapping or a file that is there."""
    one = given.get(KEY)
    if one is None or isinstance(one.value, Unresolved):
        return dict(given)
    inner: Mapping[str, Any] | None = one.value if isinstance(one.value, Mapping) else None
    where = one.where
    if isinstance(one.value, str) and one.value.lower().endswith(".json"):
        beside = Path(one.where.rpartition(":")[0]).parent / one.value
        if beside.is_file():
            document = read_json(beside)
            inner, where = document.data, document.where
    if inner is None:
        return dict(given)
    found = {key: value for key, value in given.items() if key != KEY}
    return found | {f"{KEY}.{name}": Given(value, where) for name, value in inner.items()}


def tuned(keys: Keys, strategy: dict[str, Any], model: Architecture | None) -> None:
    """What is trained. InputError for adapters whose file is not here, or under tensor parallelism, which Merak does not run."""
    if keys.has(KEY):
        keys.refuse(KEY, "this file of adapters is not beside the script; put the JSON there, or its keys under lora_config in a YAML of arguments")
    named = [key for key in keys.given if key.startswith(f"{KEY}.")]
    if not named:
        return
    if strategy["tp"] > 1:
        keys.refuse(named[0], f"Merak has adapters without tensor parallelism alone (core/pipeline/module.py); give tp=1, not {strategy['tp']}")
        return
    targets = _NAMES.targets
    old = renamed(keys, targets, f"{KEY}.exclude_modules", keys.integer(_NAMES.rank, _NAMES.default_rank, least=1), strategy, model)
    adapters(keys, strategy, model, _NAMES, told=() if old is None else old.modules or EVERY)
    if old is not None:
        strategy["target_modules"] = strategy["target_modules"] if old.modules else []
        keys.note(targets, "mapped", "target_modules, rank_pattern", f"names of maps of experts mean parameters: {', '.join(old.parameters)}")
    if strategy["target_modules"]:
        some_layers(keys, f"{KEY}.layers_to_transform", strategy, model)
    excluded(keys, f"{KEY}.exclude_modules", strategy, model, own_names=True)
    beside, more = bool(strategy["target_modules"]) and keys.has(targets), old.parameters if old is not None else ()
    of_parameters(keys, f"{KEY}.target_parameters", strategy, model, beside, more=more)
    if not strategy["target_modules"]:
        none_found(keys, targets, strategy, model)
    ranks(keys, f"{KEY}.rank_pattern", strategy, model, old.ranks if old is not None else {})
    biases(keys, f"{KEY}.bias", strategy, model)
    if keys.flag(f"{KEY}.use_dora", False, to="use_dora"):
        strategy["use_dora"] = True
    for asked, key in ((strategy["lora_dropout"] > 0, _NAMES.dropout), (strategy.get("use_dora"), f"{KEY}.use_dora")):
        if asked:
            refused_of_parameters(keys, key, strategy, model)
