"""What of a SimuMax job its differences depend on: keys of its files where it was imported from them, else what follows from the strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.compat.difference import Question

_FLAGS = ("attn_recompute", "mla_rms_recompute", "mlp_recompute", "mlp_rms_recompute")


@dataclass(frozen=True)
class Settings:
    """strategy: the keys as given. output_goes_again: attention's output is exchanged for the backward too. The rest is what the rows ask for."""

    strategy: Mapping[str, Any]
    swiglu: bool
    flash: bool
    padded: bool
    shared_experts: bool
    one_attention_output: bool
    output_goes_again: bool


def settings_of(question: Question) -> Settings:
    given = question.given.get("strategy", {})
    strategy, model = question.strategy, question.model
    version = version_of(given.get("te_version"))
    networks = [model.mlp] if model.mlp is not None else []
    gated = all(n.gated for n in networks) and (model.moe is None or model.moe.gated)
    kept = strategy.cp > 1 and strategy.cp_comm_type == "a2a" and strategy.cp_saved_output == "attention"
    older = version < version_of(given.get("te_cp_a2a_save_pre_posta2a_min_version", "2.8.0"))
    return Settings(
        given,
        gated,
        question.assumptions.get("attention_kernel", "flash") == "flash",
        strategy.moe_pad_expert_input_to_capacity,
        model.moe is not None and bool(model.moe.moe_shared_expert_intermediate_size),
        kept and older and strategy.fp8 == "none",
        older,
    )


def version_of(text: Any) -> tuple[int, ...]:
    """A version by its numbers; none where nothing is said."""
    parts = str(text or "").split(".")
    return tuple(int(p) for p in parts if p.isascii() and p.isdigit() and len(p) < 9)


def flags(given: Mapping[str, Any]) -> dict[str, bool]:
    return {name: bool(given.get(name)) for name in _FLAGS}
