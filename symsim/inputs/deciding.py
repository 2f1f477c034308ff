"""What of a strategy's sizes and degrees decides which terms a derivation has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from symsim.inputs.architecture import Architecture
from symsim.inputs.lengths import networks_pack, stand_on_rows
from symsim.inputs.limits import MOST_STAGES

# Fields that a derivation knows by their symbols alone
SIZES = (
    "micro_batch_size",
    "seq_length",
    "num_microbatches",
    "global_batch_size",
    "packed_document_length",
    "microbatch_group_size_per_vp_stage",
    "lora_rank",
)
# Fields whose symbol appears once they are above 1
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "num_distributed_optimizer_instances")


def deciding(model: Architecture) -> dict[str, Callable[[Any], Any]]:
    """What of a strategy's degrees decides the terms of a derivation: which are above 1, and how some compare; and the row that documents lie
    in, on which what there is of them stands.

    The depth matters where ranks hold pairs of stages, which differ from one depth to the next, and where stages share weights, of which
    it says how many.
    """
    above = {name: partial(_is_above_one, name) for name in (*DEGREES, "expert_tp", "expert_dp")}
    return {
        **above,
        "padded": networks_pack,
        "pieces": lambda s: s.seq_length if stand_on_rows(s) else 0,
        "same_tp": lambda s: s.expert_tp == s.tp,
        "few_groups": lambda s: sum(s.tp > groups for groups in model.group_counts),
        "one_group": lambda s: model.keeps_projected_queries and s.tp in model.group_counts,
        "depth": lambda s: (s.pp if s.schedule == "dualpipe" else 0) + (s.pp + MOST_STAGES * s.vpp) * model.shares_weights,
    }


def _is_above_one(name: str, strategy: Any) -> bool:
    return bool((getattr(strategy, name) or 1) > 1)
