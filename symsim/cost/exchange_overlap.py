"""What of an exchange of tokens hides beside computation, and what of that computation waits for the multiprocessors that it takes.

Under overlap_moe_expert_parallel_comm a layer's forward runs beside the backward of another micro-batch's, each cut at its exchanges
(Megatron-Core models/common/model_chunk_schedule_plan.py):

    messages      combine, backward        dispatch, then dispatch of gradients                        combine
    computation   forward up to dispatch   experts' backward, (weight gradients,) experts' forward     backward of what is before dispatch

so that each exchange has one part of the layer beside it. Kernels of a dispatcher, or of a collective, take a share q of the
multiprocessors, so that what is beside an exchange of c seconds advances by (1 - q) c meanwhile:

    exposed = max(q c, c - beside)

Sources as above, and transformer/moe/moe_layer.py (shared experts; the experts' weight gradients).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symsim.algebra.expr import Expr, maximum, minimum, symbol
from symsim.algebra.quantity import SECOND, Quantity, total
from symsim.ir.messages import Message
from symsim.ir.operations import PRODUCTS
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered

# multiprocessors that NCCL's kernel takes in a group of NVLink and InfiniBand (Megatron-Core distributed/fsdp/src/megatron_fsdp/
# distributed_data_parallel_config.py nccl_ub, gathers and scatters without SHARP; an exchange has no number of its own there)
COLLECTIVE_MULTIPROCESSORS = 16

Kernels = Mapping[int, Quantity]
Gradients = Mapping[tuple[int, str], Quantity]


def left_of_exchange(
    lowered: Lowered,
    forward: bool,
    sent: Quantity,
    times: list[tuple[int, Message, Quantity]],
    remembered: Remembered,
    kernels: Kernels,
    gradients: Gradients,
    taken: Expr,
) -> Quantity:
    """Seconds of a block's exchanges of one direction that show. kernels, gradients: seconds of the block's. taken: the share of the
    multiprocessors that an exchange takes."""
    strategy, ops = lowered.profile.strategy, remembered.placed.block.ops
    products = [i for i in kernels if ops[i].module == "experts" and ops[i].kind in PRODUCTS]
    first, last = min(products), max(products)
    dispatched = total((t for i, _, t in times if i < first), SECOND)
    combined = total((t for i, _, t in times if i > first), SECOND)

    def of(inside: Callable[[int], bool], *phases: str) -> Quantity:
        found = [q for i, q in kernels.items() if "forward" in phases and inside(i)]
        found += [q for (i, kind), q in gradients.items() if ("weights" if kind == "wgrad" else "inputs") in phases and inside(i)]
        return total(found, SECOND)

    before, behind = _between(remembered, first, last)

    def experts(i: int) -> bool:
        return before < i < behind

    def rest(i: int) -> bool:
        return not experts(i)

    if strategy.overlap_moe_expert_parallel_comm:
        weights = ("weights",) if strategy.delay_wgrad_compute else ()
        pairs = [(dispatched, of(experts, "inputs", "weights")), (combined, of(rest, "inputs", "weights"))]
        if not forward:
            pairs = [(dispatched, of(experts, "forward", *weights)), (combined, of(rest, "forward"))]
        if not strategy.ep_overlap_early_attn_memory_release:
            return total((left(message, beside, taken) for message, beside in pairs), SECOND)
        # attention's backward, which the combine ran beside, has run by then; the forward behind it waits for its gradients
        hidden, shown = (pairs[0], combined) if forward else (pairs[1], dispatched)
        return left(*hidden, taken) + shown
    if strategy.moe_shared_expert_overlap:
        return left(sent, of(lambda i: ops[i].module == "shared_experts", *(("forward",) if forward else ("inputs", "weights"))), taken)
    if strategy.overlap_dispatch_backward_with_experts_wgrad and not forward:
        return left(dispatched, of(lambda i: ops[i].module == "experts", "weights"), taken) + combined
    return sent


def taken_by_collective() -> Expr:
    """The share of the multiprocessors that a collective takes from what runs beside it."""
    return minimum(1, COLLECTIVE_MULTIPROCESSORS / symbol("n_sm"))


def _between(remembered: Remembered, first: int, last: int) -> tuple[int, int]:
    """The operations that exchange tokens on both sides of the experts' products."""
    exchanges = [i for i, _ in remembered.differentiated.forward_messages if remembered.placed.block.ops[i].module == "experts"]
    return max((i for i in exchanges if i < first), default=first - 1), min((i for i in exchanges if i > last), default=last + 1)


def slowed(left: Quantity, message: Quantity, taken: Expr) -> Quantity:
    """What shows of a message, which is no less than what computation beside it loses of the multiprocessors meanwhile."""
    return left if not taken or left.expr == message.expr else Quantity(maximum(left.expr, message.expr * taken), SECOND)


def left(message: Quantity, beside: Quantity, taken: Expr) -> Quantity:
    """What shows of a message that runs beside computation and takes a share of its multiprocessors."""
    if not beside.expr or not message.expr:
        return message
    return Quantity(maximum(message.expr * taken, message.expr - beside.expr), SECOND)
