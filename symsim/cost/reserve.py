"""What a rank needs beside its peak, and what `fits` therefore keeps free: the device's own, buffers of communicators, the allocator's rest.

    M_reserve = device + communicators + allocator

A communicator is a group of ranks in which a rank exchanges messages: the axes of its blocks' messages, those that share its parameters, the
pipeline. What a peak counts already by other assumptions (device_context, memory) is not kept free once more.
"""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, expr, maximum, minimum, symbol
from symsim.algebra.key import of_step
from symsim.algebra.quantity import BYTE, Quantity
from symsim.cost.memory_rank import Rank
from symsim.cost.memory_static import MIB
from symsim.cost.reduce import expert_groups, shards
from symsim.inputs.traced import once
from symsim.lowering.lowered import Lowered
from symsim.pipeline.shared import groups_of_stages

# NVIDIA/nccl issue 964: of a group of two ranks, and more of a larger one
OF_TWO, OF_MORE = 544 * MIB, (688 - 544) * MIB
# of 80 GiB an H100 shows PyTorch 79.11 (NVIDIA-NeMo/RL issue 2814)
DRIVER, CONTEXT = 911 * MIB, 500 * MIB

RESERVES = {"device": "the driver's, and CUDA context and modules", "communicators": "buffers of NCCL", "allocator": "fragments and rounding"}


@once
def define_reserve(rank: Rank) -> None:
    """Defines M_reserve and its parts, in bytes of the fullest rank."""
    assume = rank.assume
    on_device = 0 if assume["device_reserve"] == "none" else DRIVER + (CONTEXT if assume["device_context"] == "none" else 0)
    of_groups = ZERO if assume["communicator_buffers"] == "none" else _of_communicators(rank.lowered)
    caching = assume["allocator"] == "caching" and assume["memory"] == "allocated"
    unused = 1 / Fraction(str(rank.strategy.allocator_in_use)) - 1 if caching else 0
    values = {"device": expr(on_device), "communicators": of_groups, "allocator": symbol("M_peak") * unused}
    named = {"device": ("device_reserve", "device_context"), "communicators": ("communicator_buffers",), "allocator": ("allocator", "memory")}
    sources = {"device": "NVIDIA-NeMo/RL issue 2814", "communicators": "NVIDIA/nccl issue 964", "allocator": "SimuMax v1.2, mem_factor"}
    for part, value in values.items():
        latex = rf"M_{{\mathrm{{{part}}}}}"
        meaning = f"kept free beside the peak: {RESERVES[part]}"
        rank.book.define(
            of_step("M_reserve", part), Quantity(value, BYTE), meaning, unit=BYTE, latex=latex, source=sources[part], assumptions=named[part]
        )
    rank.book.define(
        of_step("M", "reserve"),
        Quantity(sum((of_step("M_reserve", part).expr for part in values), ZERO), BYTE),
        "kept free beside the peak",
        unit=BYTE,
        latex=r"M_{\mathrm{reserve}}",
        source="of its parts",
    )


def fits(peak: int, reserve: int, capacity: int) -> str:
    """Whether a peak fits: yes, with the reserve beside it; tight, into what the reserve keeps free; or no."""
    return "no" if peak > capacity else "tight" if peak + reserve > capacity else "yes"


def _of_communicators(lowered: Lowered) -> Expr:
    return sum((minimum(1, maximum(0, n - 1)) * OF_TWO + minimum(1, maximum(0, n - 2)) * OF_MORE for n in communicators(lowered).values()), ZERO)


def communicators(lowered: Lowered) -> dict[str, Expr]:
    """The groups in which a rank exchanges messages, by their axes, with the ranks of each."""
    found: dict[str, Expr] = {}
    for block in lowered.blocks.values():
        for _, message in (*block.differentiated.forward_messages, *block.backward_messages):
            found[message.axis] = message.group
    for expert in (False, True) if expert_groups(lowered) and lowered.profile.model.moe is not None else (False,):
        group = shards(lowered, expert)
        found |= {group.inside: group.shard, group.between: group.instances}
    if lowered.profile.strategy.pp > 1:
        found["pp"] = symbol("pp")
    found |= {label: expr(n) for label, n in groups_of_stages(lowered.profile.model, lowered.profile.strategy).items()}
    return {axis: ranks for axis, ranks in found.items() if ranks != ONE}
