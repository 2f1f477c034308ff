"""Tensor-parallel all-reduces of two halves of a micro-batch, each beside what the other half computes.

    linear    inside a linear map: one half's message beside the other half's product; the second half's is left
    layer     inside a layer: the halves take turns from one message to the next; the last one of the layer is left
    model     the same from layer to layer: none is left, but that of a stage's last layer, which is not counted

Sources: Merak core/tensor_parallel/mp_layers.py (PipedColumnParallelLinear, PipedRowParallelLinear), transformer_blocks.py; DeepSpeed
Domino (arXiv:2409.15241). A product of half the rows is taken to need half the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from symsim.algebra.expr import ZERO, Expr, maximum
from symsim.algebra.quantity import SECOND, Quantity
from symsim.cost.collectives import Network
from symsim.ir.messages import Message
from symsim.ir.operations import PRODUCTS
from symsim.lowering.remember import Remembered

Seconds = Mapping[int, Expr]


@dataclass(frozen=True)
class Turn:
    """What a rank computes after one message and before the next, and that message by halves (seconds of a whole batch, and of half
    a message). product: of the computation, the linear map that the message follows."""

    compute: Expr
    product: Expr
    half: Expr


def half_of(network: Network, message: Message) -> Expr:
    """Seconds of a message of half the batch."""
    less = replace(message, send_elements=message.send_elements / 2, receive_elements=message.receive_elements / 2)
    return (network.seconds(less) * message.count).expr


def exposed(level: str, turns: Sequence[Turn], after: Expr) -> Quantity:
    """Seconds of the messages that nothing hides. after: what the layer computes behind its last message."""
    left = ZERO
    for index, turn in enumerate(turns):
        if level == "linear":
            left = left + turn.half + maximum(0, turn.half - turn.product / 2)
            continue
        left = left + maximum(0, turn.half - turn.compute / 2)
        last = index == len(turns) - 1
        following = after + turns[0].compute if last else turns[index + 1].compute
        left = left + (turn.half if last and level == "layer" else maximum(0, turn.half - following / 2))
    return Quantity(left, SECOND)


def turns_of(
    network: Network, remembered: Remembered, messages: Iterable[tuple[int, Message]], forward: Seconds, backward: Mapping[tuple[int, str], Expr]
) -> tuple[list[Turn], Expr]:
    """The all-reduces of a block in the order in which they run, forward or (with what is recomputed first) backward, and what the
    block computes behind the last."""
    found = [(i, m) for i, m in messages if m.row.reduces]
    again = sorted((i, m) for i, m in found if m.phase == "forward" or m.purpose == "recomputed")
    back = sorted(((i, m) for i, m in found if not (m.phase == "forward" or m.purpose == "recomputed")), reverse=True, key=lambda one: one[0])
    run = {i: t for i, t in forward.items() if i in remembered.recomputed} if any(m.phase == "backward" for _, m in found) else forward
    turns: list[Turn] = []
    behind, before = ZERO, -1
    for index, message in again:
        turns.append(Turn(_sum(run, before, index), _written(remembered, index, forward), half_of(network, message)))
        before = index
    if again:
        behind = _sum(run, before, len(remembered.placed.block.ops))
    until = len(remembered.placed.block.ops)
    gradients = {i: sum((t for (of, _), t in backward.items() if of == i), ZERO) for i in {of for of, _ in backward}}
    for index, message in back:
        turns.append(Turn(behind + _sum(gradients, index, until), _read(remembered, index, backward), half_of(network, message)))
        behind, until = ZERO, index
    return turns, behind + (_sum(gradients, -1, until) if back else ZERO)


def _sum(seconds: Seconds, first: int, last: int) -> Expr:
    """Of the operations behind `first`, up to `last`."""
    return sum((t for i, t in seconds.items() if first < i <= last), ZERO)


def _written(remembered: Remembered, index: int, forward: Seconds) -> Expr:
    """Forward of the linear map whose partial sums a message adds."""
    ops = remembered.placed.block.ops
    made = [i for i in forward if ops[i].kind in PRODUCTS and set(ops[index].inputs) & set(ops[i].outputs)]
    return forward[made[0]] if made else ZERO


def _read(remembered: Remembered, index: int, backward: Mapping[tuple[int, str], Expr]) -> Expr:
    """Input gradient of the linear maps that read what a message sums the gradient of."""
    ops = remembered.placed.block.ops
    return sum((t for (i, kind), t in backward.items() if kind == "dgrad" and set(ops[index].outputs) & set(ops[i].inputs)), ZERO)
