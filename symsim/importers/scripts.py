"""What scripts around the Hugging Face Trainer say of adapters and base weights in few bits, by TRL's names (trl/trainer/model_config.py
ModelConfig, trl/trainer/utils.py get_peft_config, get_quantization_config)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from symsim.importers.adapted import Names, adapters, four_bits, frozen_decoder, stored_base
from symsim.importers.deepspeed import chat, openrlhf
from symsim.importers.keys import Entry, Given, Keys, natural
from symsim.importers.preferences import preferred
from symsim.inputs.architecture import Architecture

# where no linear maps are named, peft takes queries and values of most families (peft utils/constants.py)
_NAMES = Names("lora_r", "lora_dropout", "lora_target_modules", "lora_modules_to_save", 16, 0.05, None)

# what scripts that many start call these: s1, FastChat, Qwen, MiniCPM, LLaVA, InternVL, open-instruct (their finetune.py and train.py),
# Chinese-LLaMA-Alpaca (run_clm_sft_with_peft.py), QLoRA (qlora.py), ProLong (training/train_language_model.py)
_ALIASES = {
    **openrlhf.ALIASES,
    **chat.ALIASES,
    **dict.fromkeys(("model_name", "model"), "model_name_or_path"),
    "trainable": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "double_quant": "use_bnb_nested_quant",
    "quant_type": "bnb_4bit_quant_type",
    "grad_checkpoint": "gradient_checkpointing",
    "use_lora": "use_peft",
    "lora_enable": "use_peft",
    "lora_rank": "lora_r",
    **dict.fromkeys(("q_lora", "qlora", "use_qlora"), "load_in_4bit"),
    "per_device_max_tokens": "max_seq_length",
    "use_liger": "use_liger_kernel",
    "clip_grad_norm": "max_grad_norm",
    "max_train_steps": "max_steps",
}
_PREFERENCES = frozenset(
    """sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_pair aot_unpaired apo_zero apo_down discopop sigmoid_norm""".split()
)
_WEIGHTS = """beta dpo_alpha dpo_beta rpo_alpha gamma label_smoothing sigmoid_loss_weight sft_loss_weight bco_loss_weight bco_pair_loss_weight
    loss_weights""".split()
_LISTED = ("trainable", "modules_to_save")
_RANK_ALONE = "use_llm_lora"
# how many bits a base weight has, 16 where it is as it was
_BITS = ("bits", "load_in_kbits")
# scripts with adapters unless the other switch is on, by an argument of theirs alone
_WHOLE = {"trainable": "full_finetuning", "source_max_len": "full_finetune"}
# adapters that scripts make where they are told no more, by arguments that these alone have: linear maps, and a rank (LLaVA llava/train/train.py
# find_all_linear_names; InternVL modeling_internvl_chat.py wrap_llm_lora; finetune.py of MiniCPM-V, of MiniCPM, and of Qwen)
_MADE: dict[tuple[str, ...], tuple[str | list[str], int | None]] = {
    ("lora_enable",): ("all-linear", 64),
    (_RANK_ALONE,): ("all-linear", None),
    ("use_lora", "llm_type"): (["q_proj", "k_proj", "v_proj"], 64),
    ("use_lora", "train_data_path"): (["q_proj", "v_proj"], 64),
    ("use_lora", "lazy_preprocess"): ("all-linear", 64),
}
# arguments with a section, of which no part is read alone
UNREAD_SECTIONS = (
    "deepspeed",
    "lr_scheduler_kwargs",
    "dataset_mixture",
    "dataset_mixer",
    "dataset_kwargs",
    "model_init_kwargs",
    "chat_template_kwargs",
)


def respelt(given: Mapping[str, Given]) -> tuple[dict[str, Given], dict[str, str]]:
    """Arguments by the names of the Trainer and of TRL, and what the script calls those that it has other names for."""
    found, called = {key: one for key, one in given.items() if key not in _ALIASES and key != _RANK_ALONE}, {}
    for own, name in _ALIASES.items():
        if own in given:
            found.setdefault(name, _listed(given[own]) if own in _LISTED else given[own])
            called[name] = own
    if "optim" not in given and (_is_on(given, "use_qlora") or _is_on(given, "dpo_use_paged_optimizer")):
        # open-instruct e6c3044a (2026-08-20), finetune.py, dpo_tune_cache.py: bitsandbytes' Adam, whose states are paged
        own = next(name for name in ("use_8bit_optimizer", "dpo_use_paged_optimizer", "use_qlora") if _is_on(given, name))
        found["optim"] = Given("paged_adamw_8bit" if own == "use_8bit_optimizer" else "paged_adamw_32bit", given[own].where)
        if own != "use_qlora":
            del found[own]
            called["optim"] = own
    if "packing" in given and "dataset_mixer_list" in given:
        # open-instruct lays a micro-batch's samples one after the other, without padding (TensorDataCollatorWithFlattening)
        found["padding_free"] = found.pop("packing")
        called["padding_free"] = "packing"
    _bits(given, found, called)
    _towers(given, found, called)
    for keys, (maps, width) in _MADE.items():
        if set(keys) <= given.keys():
            found.setdefault("lora_target_modules", Given(maps, given[keys[0]].where))
            if width is not None:
                found.setdefault("lora_r", Given(width, given[keys[0]].where))
    for own, whole in _WHOLE.items():
        if own in given and not _is_on(given, whole) and "use_peft" not in found:
            found["use_peft"] = Given(True, given[own].where)
    if "source_max_len" in given:
        _of_qlora(given, found)
    rank = given.get(_RANK_ALONE)
    if rank is not None and natural(str(rank.value)):
        found |= {"lora_r": rank, "use_peft": Given(True, rank.where)}
        called |= {"lora_r": _RANK_ALONE}
    return found, called


def _listed(given: Given) -> Given:
    return replace(given, value=given.value.split(",")) if isinstance(given.value, str) else given


def _bits(given: Mapping[str, Given], found: dict[str, Given], called: dict[str, str]) -> None:
    """Base weights of 4 or 8 bits, by their number."""
    own = next((name for name in _BITS if name in given and natural(str(given[name].value)) in (4, 8)), None)
    if own is None:
        return
    name = "load_in_4bit" if natural(str(given[own].value)) == 4 else "load_in_8bit"
    found[name] = Given(True, found.pop(own).where)
    called[name] = own
    # bitsandbytes' switch is on in all of these scripts
    found.setdefault("use_bnb_nested_quant", Given(True, given[own].where))


def _towers(given: Mapping[str, Given], found: dict[str, Given], called: dict[str, str]) -> None:
    """Models with towers: a decoder that is not trained, by other names than InternVL's, and InternVL's packed rows."""
    parts = str(given["mm_tunable_parts"].value) if "mm_tunable_parts" in given else "mm_language_model"
    rests = {
        "tune_mm_mlp_adapter": _is_on(given, "tune_mm_mlp_adapter"),  # LLaVA llava/train/train.py: model.requires_grad_(False)
        "mm_tunable_parts": "mm_language_model" not in parts.split(","),
        "tune_llm": "tune_llm" in given and not _is_on(given, "tune_llm"),
    }
    own = next((key for key, said in rests.items() if said), None)
    if own is not None:
        found["freeze_llm"] = Given(True, given[own].where)
        called["freeze_llm"] = own
        found.pop(own, None)
    if "llm_type" in given and _is_on(given, "use_lora"):
        found.setdefault("lora_modules_to_save", Given(["embed_tokens"], given["use_lora"].where))
    if _is_on(given, "use_packed_ds") and "max_packed_tokens" in given:
        for key, own in (("packing", "use_packed_ds"), ("seq_length", "max_packed_tokens")):
            found[key] = found.pop(own)
            called[key] = own


def _of_qlora(given: Mapping[str, Given], found: dict[str, Given]) -> None:
    """qlora.py (artidoro/qlora): adapters of rank 64 beside all linear maps, and rows of a source and a target."""
    found.setdefault("lora_target_modules", Given("all-linear", given["source_max_len"].where))
    found.setdefault("lora_r", Given(64, given["source_max_len"].where))
    found.setdefault("lora_dropout", Given(0.0, given["source_max_len"].where))
    numbers = [natural(str(given[name].value)) if name in given else default for name, default in (("source_max_len", 1024), ("target_max_len", 256))]
    if all(numbers):
        found.setdefault("max_seq_length", Given(sum(map(int, filter(None, numbers))), given["source_max_len"].where))


def _is_on(given: Mapping[str, Given], name: str) -> bool:
    return name in given and str(given[name].value).casefold() == "true"


def as_called(rows: Sequence[Entry], called: Mapping[str, str]) -> list[Entry]:
    """The rows with the script's own names."""
    return [replace(row, key=called[row.key]) if row.key in called and row.value != "(default)" else row for row in rows]


def tuned(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Adapters, where the script makes some, and a decoder that rests, ahead of what says the mesh."""
    if not keys.flag("use_peft", False, to="tuner_type"):
        frozen_decoder(keys, "freeze_llm", strategy)
        if not keys.has("use_peft") and keys.has(_NAMES.rank):
            keys.note(_NAMES.rank, "not_modelled", why="adapters, where the script makes them whatever it is told: use_peft=true says so")
        return
    adapters(keys, strategy, architecture, _NAMES)
    if keys.has("freeze_llm"):
        keys.note("freeze_llm", "no_cost_effect", why="adapters are trained, and what they stand beside is not")
    if not keys.has("lora_target_modules") and "lora_target_modules" not in keys.rows:
        keys.note("lora_target_modules", "derived", "target_modules", "peft's own for the type of the model, where it is told none")
    if keys.has("only_optimize_lora") and not keys.flag("only_optimize_lora", False, to="trainable_parameters"):
        strategy["trainable_parameters"] = ["embedding", "norm", "final_norm", "lm_head"]
        keys.note("only_optimize_lora", "mapped", "trainable_parameters", "embeddings, norms and output layer too; biases as well, which rest here")
    if keys.flag("use_dora", False, to="use_dora"):
        strategy["use_dora"] = True


def behind_ranks(keys: Keys, strategy: dict[str, Any]) -> None:
    """What follows from rows, adapters and how parameters are sharded: base weights in few bits, and losses of preferences."""
    _stored(keys, strategy)
    _paired(keys, strategy)


def _paired(keys: Keys, strategy: dict[str, Any]) -> None:
    """Losses of direct preferences: by TRL's names of them (trainer/dpo_config.py loss_type), of which InternVL mixes several, or an argument that
    these alone have (LLaVA-NeXT train_dpo.py, MiniCPM finetune_dpo_trainer.py)."""
    own = next((key for key in ("loss_type", "dpo_alpha", "dpo_beta", "rpo_alpha") if keys.has(key)), None)
    if own is None:
        return
    asked = keys.given[own].value
    kinds = asked if isinstance(asked, list) else str(asked).split(",")
    if own == "loss_type" and not {str(kind).strip() for kind in kinds} <= _PREFERENCES:
        return
    ahead = keys.flag("precompute_ref_log_probs", False, to="reference_models", why="the reference has run before the first step")
    preferred(keys, own, "orpo" if ahead else "dpo", strategy)
    for key in _WEIGHTS:
        if keys.has(key) and key != own:
            keys.note(key, "no_cost_effect", why="a number of the loss")


def _stored(keys: Keys, strategy: dict[str, Any]) -> None:
    """Base weights in few bits."""
    four, eight = (keys.flag(key, False, to="quantize_base") for key in ("load_in_4bit", "load_in_8bit"))
    kind = keys.choice("bnb_4bit_quant_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    double = keys.flag("use_bnb_nested_quant", False, to="quantize_base")
    if four or eight:
        stored_base(keys, strategy, four_bits(kind, double) if four else "int8", "load_in_4bit" if four else "load_in_8bit")
    for key in ("bnb_4bit_quant_type", "use_bnb_nested_quant"):
        if key in keys.given and not four:
            keys.note(key, "no_cost_effect", why="read with load_in_4bit alone")
