"""Momenta that travel in one bit a number: what an update sends in place of gradients, keeps of what the bits leave out, and moves for it.

After its warm-up an optimizer of this kind adds every rank's own gradient to its momentum and sums the momenta: signs go to their owners, a share
of each tensor a rank, are averaged there, and their signs come back; one fp32 scale a tensor and rank goes along either way. What the
signs leave out is added the next time (worker_error of a tensor, server_error of the share). Tensors are padded to whole bytes of every rank.
Where ranks go on alone between two messages, of the sum of their updates (0/1 Adam), a step has its share of these.

Sources: DeepSpeed runtime/fp16/onebit/adam.py, zoadam.py, runtime/comm/nccl.py compressed_allreduce; 1-bit Adam, arXiv:2102.02888; 0/1 Adam,
arXiv:2202.06009.
"""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, ceil
from symsim.cost.held import trained_part
from symsim.cost.matrices import weights_of
from symsim.cost.reduce import expert_groups, shards
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.ir.messages import Message
from symsim.lowering.lowered import Lowered

# bytes a number that PyTorch's operations read and write one by one around the two messages (nccl.py): the error added (12), the norm (4), signs as
# fp32 times the scale taken off (62), signs as bytes and as bits (24 1/8)
_TO_BITS = Fraction(12 + 4 + 62 + 24) + Fraction(1, 8)
# bits as bytes and as fp32 times the scale (30 1/8): then their sum over ranks (4), or a copy into the momentum (8)
_FROM_BITS = Fraction(30) + Fraction(1, 8)


# at a message (zoadam.py step): what the rank did alone taken back (20), the sum times the root of the second moment (28), copied (8); the first
# moment made of it (24), the parameters moved by it (40), the sum set to zero (4)
_AT_A_MESSAGE = 20 + 28 + 8 + 24 + 40 + 4


def share_of_steps(lowered: Lowered) -> Fraction:
    """The share of steps that send."""
    strategy = lowered.profile.strategy
    return Fraction(1, strategy.local_step_clipper) if OPTIMIZERS[strategy.optimizer].local else Fraction(1)


def compressed(lowered: Lowered) -> bool:
    return OPTIMIZERS[lowered.profile.strategy.optimizer].compressed


def momentum_messages(lowered: Lowered) -> list[Message]:
    """The messages of one step's update, on one rank of stage i."""
    made: list[Message] = []
    for weight in weights_of(lowered) if compressed(lowered) else ():
        group = shards(lowered, weight.expert and expert_groups(lowered))
        if group.ranks == ONE:
            continue
        share = ceil(weight.elements / (8 * group.ranks))
        whole = share * group.ranks
        for op, sent, received, dtype, what, often in (
            ("all_to_all", whole, whole, "int8", "signs of momenta to their owners", 1),
            ("all_gather", share, whole, "int8", "signs of the mean momenta", 1),
            ("all_gather", ONE, group.ranks, "fp32", "scales of momenta", 2),
        ):
            times = often * weight.times * share_of_steps(lowered)
            made.append(Message("step", op, group.whole, group.ranks, sent, received, dtype, what, times, per="step", purpose="update"))
    return made


def error_bytes(lowered: Lowered, *, expert: bool) -> Expr:
    """Bytes of what the bits leave out, in fp32, of the experts or of all others."""
    group = shards(lowered, expert and expert_groups(lowered))
    if not compressed(lowered) or group.ranks == ONE:
        return ZERO
    return trained_part(lowered, "expert" if expert else "dense") * 4 * (1 + ONE / group.ranks)


def compression_passes(lowered: Lowered, held: Expr, ranks: Expr) -> Expr:
    """Bytes of HBM that a step moves to make bits of so many numbers and numbers of bits: on the rank, and on the share that it owns."""
    if not compressed(lowered) or ranks == ONE:
        return ZERO
    share = share_of_steps(lowered)
    alone = _AT_A_MESSAGE if OPTIMIZERS[lowered.profile.strategy.optimizer].local else 0
    return held * share * (_TO_BITS + _FROM_BITS + 4 + _FROM_BITS + 8 + alone) + held * share * _TO_BITS / ranks
