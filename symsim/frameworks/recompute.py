"""Recompute modules: which parts of a layer make up each, and which keep nothing of their results either.

Layers name their parts (`net.within`); what a framework may run again is data of the framework. Source: Megatron-Core 0.20
transformer/transformer_config.py recompute_modules; `mtp` is what full recomputation runs again of a depth of multi-token
prediction (multi_token_prediction.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Module:
    """Parts of a layer that run again together. discards: their results are dropped too, and made again for what reads them
    (megatron.core tensor_parallel/random.py CheckpointWithoutOutput)."""

    parts: frozenset[str]
    discards: bool = False


MODULES: Mapping[str, Module] = {
    "core_attn": Module(frozenset({"core_attention"})),
    "mlp": Module(frozenset({"mlp"})),
    "moe": Module(frozenset({"moe"})),
    "shared_experts": Module(frozenset({"shared_experts", "shared_expert_gate"})),
    "layernorm": Module(frozenset({"input_norm"}), discards=True),
    "moe_act": Module(frozenset({"expert_activation"}), discards=True),
    "mla_up_proj": Module(frozenset({"up_projection"}), discards=True),
    "mhc": Module(frozenset({"attention_connection", "mlp_connection"}), discards=True),
    "mtp": Module(frozenset({"mtp"})),
}
KERNEL = "kernel"
"""The region of what a fused kernel makes again in its own backward, whatever else runs again."""
DISCARD = frozenset(name for name, module in MODULES.items() if module.discards) | {KERNEL}


@cache
def modules_of(parts: tuple[str, ...]) -> frozenset[str]:
    """The recompute modules that something in these parts of a layer belongs to."""
    return frozenset(name for name, module in MODULES.items() if not module.parts.isdisjoint(parts))


RUN = "run "


def runs_of(names: Sequence[str], asked: Iterable[str]) -> dict[str, str]:
    """Of a block's operations those that `asked` names, each with the label of its run: neighbours are one region. A name is that of an
    operation, of a scope, or FIRST..LAST: all from the one to the other, in a block that has both."""
    chosen: set[int] = set()
    for one in asked:
        first, _, last = one.partition("..")
        ends = [[i for i, name in enumerate(names) if name == end or name.startswith(f"{end}.")] for end in (first, last or first)]
        if last and all(ends):
            chosen |= set(range(ends[0][0], ends[1][-1] + 1))
        elif not last:
            chosen |= set(ends[0])
    labels: dict[str, str] = {}
    for i in sorted(chosen):
        labels[names[i]] = labels[names[i - 1]] if i - 1 in chosen else f"{RUN}{names[i]}"
    return labels
