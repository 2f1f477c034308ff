"""Adapters of programs on top of Megatron-Core (NeMo's `peft` section, Primus, Megatron-Bridge): LoRA beside its linear maps.

Names: NeMo nlp/parts/peft_config.py LoraPEFTConfig, nlp/modules/common/megatron/adapters; Megatron-Bridge peft/lora.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.importers.adapted import Names, adapters
from symsim.importers.keys import Keys
from symsim.importers.targets import excluded

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

SCHEME, DIM, DROPOUT, TARGETS, EXCLUDED = "peft.scheme", "peft.dim", "peft.dropout", "peft.target_modules", "peft.exclude_modules"
# names of NeMo, Primus and Megatron-Bridge
ARGUMENTS = {
    **dict.fromkeys(("peft.peft_scheme", "peft", "lora"), SCHEME),
    **dict.fromkeys(("peft.lora_tuning.adapter_dim", "peft_dim", "peft.dim"), DIM),
    **dict.fromkeys(("peft.lora_tuning.adapter_dropout", "peft.dropout"), DROPOUT),
    **dict.fromkeys(("peft.lora_tuning.target_modules", "peft.target_modules"), TARGETS),
    "peft.exclude_modules": EXCLUDED,
}
_NAMES = Names(DIM, DROPOUT, TARGETS, "peft.saved", 32)
_PLACES = {
    "attention_qkv": ("linear_qkv",),
    "attention_dense": ("linear_proj",),
    "attention": ("linear_qkv", "linear_proj"),
    "mlp_fc1": ("linear_fc1",),
    "mlp_fc2": ("linear_fc2",),
    "mlp": ("linear_fc1", "linear_fc2"),
    "all": ("all_linear",),
}
_OTHER = "adapters of another kind: gradients and states of adapters alone; full training is timed"


def lora(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """Set the adapters that the keys ask for; those of another scheme than LoRA are said. InputError for a value that cannot be."""
    if not any(key in keys.given for key in (SCHEME, DIM, DROPOUT, TARGETS, EXCLUDED)):
        return
    scheme = str(keys.text(SCHEME, "lora", to="tuner_type")).casefold()
    if scheme in ("none", "null", "", "false"):
        for key in (SCHEME, DIM, DROPOUT, TARGETS, EXCLUDED):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="no adapters")
        return
    if scheme not in ("lora", "canonical_lora", "true"):
        keys.note(SCHEME, "not_modelled", why=_OTHER)
        keys.known |= {DIM, DROPOUT, TARGETS, EXCLUDED}
        return
    asked = [place for name in keys.texts(TARGETS, ["attention_qkv"]) for place in _PLACES.get(name, (name,))]
    adapters(keys, strategy, architecture, _NAMES, asked)
    excluded(keys, EXCLUDED, strategy, architecture)
