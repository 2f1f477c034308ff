"""What scripts around the Hugging Face Trainer say of adapters and base weights in few bits, by TRL's names (trl/trainer/model_config.py
ModelConfig, trl/trainer/utils.py get_peft_config, get_quantization_config)."""

from __future__ import annotations

from typing import Any

from symsim.importers.adapted import Names, adapters, four_bits, stored_base
from symsim.importers.keys import Keys
from symsim.inputs.architecture import Architecture

# where no linear maps are named, peft takes queries and values of most families (peft utils/constants.py)
_NAMES = Names("lora_r", "lora_dropout", "lora_target_modules", "lora_modules_to_save", 16, 0.05, ("q_proj", "v_proj"))


def tuned(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Adapters, where the script makes some, ahead of what says the mesh."""
    if not keys.flag("use_peft", False, to="tuner_type"):
        if not keys.has("use_peft") and keys.has(_NAMES.rank):
            keys.note(_NAMES.rank, "not_modelled", why="adapters, where the script makes them whatever it is told: use_peft=true says so")
        return
    adapters(keys, strategy, architecture, _NAMES)
    if not keys.has("lora_target_modules"):
        keys.note("lora_target_modules", "derived", "target_modules", "queries and values, where peft is told none")
    if keys.flag("use_dora", False, to="use_dora"):
        strategy["use_dora"] = True


def stored(keys: Keys, strategy: dict[str, Any]) -> None:
    """Base weights in few bits, behind what says how parameters are sharded."""
    four, eight = (keys.flag(key, False, to="quantize_base") for key in ("load_in_4bit", "load_in_8bit"))
    kind = keys.choice("bnb_4bit_quant_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    double = keys.flag("use_bnb_nested_quant", False, to="quantize_base")
    if four or eight:
        stored_base(keys, strategy, four_bits(kind, double) if four else "int8", "load_in_4bit" if four else "load_in_8bit")
    for key in ("bnb_4bit_quant_type", "use_bnb_nested_quant"):
        if key in keys.given and not four:
            keys.note(key, "no_cost_effect", why="read with load_in_4bit alone")
