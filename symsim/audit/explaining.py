"""Why a formula differs: the switches of assumptions under which symsim comes nearest to it, and the terms that remain then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from symsim.algebra.expr import Expr
from symsim.audit.proving import is_zero
from symsim.audit.references import relative_sizes
from symsim.audit.subjects import Derivations, Derived
from symsim.audit.switching import Switches, left_under, sides_under
from symsim.audit.verdicts import Outcome
from symsim.errors import InputError
from symsim.inputs.assumptions import ASSUMPTIONS

_TIMES = (
    "gemm_tiles host_launch tp_async_backward fsdp_prefetch fsdp_rings gradient_scaling moe_exchange moe_grouped_gemm mfu_flops mfu_windows "
    "unit_ranks"
).split()
_EXPERTS = "moe_permute_fusion moe_probabilities expert_bias_gradient dispatcher_metadata".split()
# a switch that cannot matter is not tried: what the subject must have for it to
_NEEDS: dict[str, Callable[[Derived], bool]] = {
    **dict.fromkeys(_TIMES, lambda d: d.result.system is not None),
    **dict.fromkeys(_EXPERTS, lambda d: d.result.model.moe is not None),
    "mla_k_pe_gradient": lambda d: d.result.model.attention.kind == "mla",
    "dsa_stage": lambda d: d.result.model.attention.dsa_indexer_topk is not None,
    "dsa_index_scores": lambda d: d.result.model.attention.dsa_indexer_topk is not None,
    "linear_attention_flops": lambda d: d.result.model.linear_attention is not None,
    "apply_rope_fusion": lambda d: d.result.model.position_embedding == "rope",
    "shared_redistribution": lambda d: d.result.strategy.tp > 1,
    "loss_parallel": lambda d: d.result.strategy.tp > 1,
    "save_gathered": lambda d: d.result.strategy.tp * d.result.strategy.cp > 1,
    "pipeline_scatter_gather": lambda d: d.result.strategy.pp > 1,
    "recompute_early_stop": lambda d: d.result.strategy.recompute != "none",
    "zero_reduction": lambda d: d.result.strategy.zero in (1, 2),
    "fsdp_parameters": lambda d: d.result.strategy.zero == 3,
    "fsdp_unit": lambda d: d.result.strategy.zero == 3,
    "fsdp_initialization": lambda d: d.result.strategy.zero == 3,
    "checkpoint_unpacking": lambda d: d.result.model.moe is not None,
    **dict.fromkeys(("device_reserve", "communicator_buffers", "allocator"), lambda d: False),
}


@dataclass(frozen=True)
class Nearest:
    """Switches (of assumptions, and the framework's fusion), and symsim less published under them."""

    switches: Switches
    left: Expr

    @property
    def equal(self) -> bool:
        return is_zero(self.left)

    def __str__(self) -> str:
        """As it is set: assume.NAME=VALUE."""
        return ", ".join(f"{name}={value}" for name, value in self.switches)


def nearest_switches(outcome: Outcome, derivations: Derivations) -> Nearest | None:
    """The single switch or pair of switches that leaves the fewest terms, the smallest of these; None where none leaves fewer or smaller."""
    if not outcome.difference:
        return None
    sides = sides_under(outcome.claim, derivations).alone

    def rank(found: Nearest) -> tuple[int, float, int]:
        size = max(map(abs, relative_sizes(sides, found.left).values()), default=0.0)
        return len(found.left.terms), size, len(found.switches)

    moved = [n for one in _singles(sides.derived) for n in _switched(outcome, (one,), derivations) if not is_zero(n.left - outcome.difference)]
    tried = list(moved)
    if not any(n.equal for n in moved):
        for a, b in combinations(moved, 2):
            if a.switches[0][0] != b.switches[0][0]:
                tried += _switched(outcome, a.switches + b.switches, derivations)
    best = min(tried, key=rank, default=None)
    return best if best is not None and rank(best) < rank(Nearest((), outcome.difference)) else None


def _singles(derived: Derived) -> Iterator[tuple[str, str]]:
    """Every other choice that may matter."""
    yield "fusion", "eager" if derived.result.strategy.fusion == "te" else "te"
    for name, assumption in ASSUMPTIONS.items():
        needed = _NEEDS.get(name)
        if needed is not None and not needed(derived):
            continue
        for choice in assumption.choices:
            if choice not in (derived.result.assumptions[name], "profile"):
                yield f"assume.{name}", choice


def _switched(outcome: Outcome, switches: Switches, derivations: Derivations) -> list[Nearest]:
    """What is left under some switches; nothing where they do not go with the subject, or a name is not there then."""
    try:
        return [Nearest(switches, left_under(outcome.claim, switches, derivations))]
    except InputError:
        return []
