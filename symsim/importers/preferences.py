"""Losses of preferences: over pairs of rows, one chosen and one rejected, so that rows are twice as many; over single rows (KTO); and where
there is one the forwards of a reference.

The reference of adapters is the model without them (trl trainer/dpo_trainer.py null_ref_context; LLaMA-Factory train/trainer_utils.py
create_ref_model; Megatron-SWIFT megatron/trainers/rlhf_mixin.py null_ref_context), else a frozen copy. ORPO, SimPO and CPO have none.
KTO's divergence is that of rows with another's completion: one forward more of the trained model and one of the reference, without gradients
(trl trainer/kto_trainer.py forward, LLaMA-Factory train/kto/trainer.py concatenated_forward, Megatron-SWIFT megatron/trainers/kto_trainer.py
forward_step). Rewards are compared over pairs too (Megatron-SWIFT megatron/trainers/reward_trainer.py).
"""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Keys

_REFERENCE = {"dpo": True, "ipo": True, "orpo": False, "simpo": False, "cpo": False, "rm": False}


def preferred(keys: Keys, key: str, loss: str, strategy: dict[str, Any], *, copy: bool = False, divergence: bool = True) -> bool:
    """Whether the loss, which `key` says, is one of these; then the strategy has its rows and forwards. copy: the reference is a model of its own
    beside adapters. divergence: of KTO, whether its divergence is estimated."""
    if loss == "kto":
        return _single(keys, key, strategy, copy, 2 if divergence else 0)
    if loss not in _REFERENCE:
        return False
    packed = {"packed_document_length", "document_lengths"} & strategy.keys() and not strategy.get("padding_free")
    if not packed:
        # pairs of a packed row lie in it; else each sample is two rows
        strategy["micro_batch_size"] = 2 * strategy.get("micro_batch_size", 1)
        if strategy.get("global_batch_size"):
            strategy["global_batch_size"] *= 2
    rows = "two rows for each sample" if not packed else "pairs lie in the packed rows"
    if not _REFERENCE[loss]:
        keys.note(key, "mapped", "micro_batch_size", f"{rows}, and no reference model")
        return True
    option = "further_forwards" if strategy.get("tuner_type", "full") != "full" and not copy else "reference_models"
    strategy[option] = 1
    what = "the model without its adapters is the reference" if option == "further_forwards" else "a frozen copy is the reference"
    keys.note(key, "mapped", option, f"{what}; {rows}")
    return True


def _single(keys: Keys, key: str, strategy: dict[str, Any], copy: bool, more: int) -> bool:
    """Single rows: the reference's forward, and `more` of rows with completions of others."""
    beside = strategy.get("tuner_type", "full") != "full" and not copy
    if not beside:
        strategy["reference_models"] = 1
    strategy["further_forwards"] = more + beside
    what = "the model without its adapters is the reference" if beside else "a frozen copy is the reference"
    other = "; both also see as many rows with completions of others" if more else ""
    keys.note(key, "mapped", "further_forwards" if beside else "reference_models, further_forwards", f"{what}{other}")
    return True
