"""What scripts around the Hugging Face Trainer say of adapters and base weights in few bits, by TRL's names (trl/trainer/model_config.py
ModelConfig, trl/trainer/utils.py get_peft_config, get_quantization_config)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from symsim.importers.adapted import Names, adapters, four_bits, frozen_decoder, stored_base
from symsim.importers.keys import Entry, Given, Keys, natural
from symsim.inputs.architecture import Architecture

# where no linear maps are named, peft takes queries and values of most families (peft utils/constants.py)
_NAMES = Names("lora_r", "lora_dropout", "lora_target_modules", "lora_modules_to_save", 16, 0.05, ("q_proj", "v_proj"))

# what scripts that many start call these: s1, FastChat, Qwen, MiniCPM, LLaVA, InternVL, open-instruct (their finetune.py and train.py)
_ALIASES = {
    "model_name": "model_name_or_path",
    "grad_checkpoint": "gradient_checkpointing",
    "use_lora": "use_peft",
    "lora_enable": "use_peft",
    "lora_rank": "lora_r",
    **dict.fromkeys(("q_lora", "qlora", "use_qlora"), "load_in_4bit"),
    "use_liger": "use_liger_kernel",
    "clip_grad_norm": "max_grad_norm",
    "max_train_steps": "max_steps",
}
_RANK_ALONE = "use_llm_lora"
# arguments with a section, of which no part is read alone
UNREAD_SECTIONS = ("lr_scheduler_kwargs", "dataset_mixture", "dataset_mixer", "dataset_kwargs", "model_init_kwargs", "chat_template_kwargs")


def respelt(given: Mapping[str, Given]) -> tuple[dict[str, Given], dict[str, str]]:
    """Arguments by the names of the Trainer and of TRL, and what the script calls those that it has other names for."""
    found, called = {key: one for key, one in given.items() if key not in _ALIASES and key != _RANK_ALONE}, {}
    for own, name in _ALIASES.items():
        if own in given:
            found.setdefault(name, given[own])
            called[name] = own
    if "optim" not in given and (_is_on(given, "use_qlora") or _is_on(given, "dpo_use_paged_optimizer")):
        # open-instruct e6c3044a (2026-08-20), finetune.py, dpo_tune_cache.py: bitsandbytes' Adam, whose states are paged
        own = next(name for name in ("use_8bit_optimizer", "dpo_use_paged_optimizer", "use_qlora") if _is_on(given, name))
        found["optim"] = Given("paged_adamw_8bit" if own == "use_8bit_optimizer" else "paged_adamw_32bit", given[own].where)
        if own != "use_qlora":
            del found[own]
            called["optim"] = own
    rank = given.get(_RANK_ALONE)
    if rank is not None and natural(str(rank.value)):
        found |= {"lora_r": rank, "use_peft": Given(True, rank.where)}
        called |= {"lora_r": _RANK_ALONE}
    return found, called


def _is_on(given: Mapping[str, Given], name: str) -> bool:
    return name in given and str(given[name].value).casefold() == "true"


def as_called(rows: Sequence[Entry], called: Mapping[str, str]) -> list[Entry]:
    """The rows with the script's own names."""
    return [replace(row, key=called[row.key]) if row.key in called and row.value != "(default)" else row for row in rows]


def tuned(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Adapters, where the script makes some, and a decoder that rests, ahead of what says the mesh."""
    frozen_decoder(keys, "freeze_llm", strategy)
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
