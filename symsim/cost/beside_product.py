"""What of a tensor-parallel message hides beside the products of the projection that it feeds or follows.

Under tp_comm_overlap a layer's messages run in pieces beside a product, or whole beside an independent one (bulk), each kind under
its own switch. Of a projection whose input is gathered (qkv, fc1), and of one whose output is scattered (proj, fc2):

    forward   gather of the input                beside the product        tp_comm_overlap_ag
              scatter of the output              beside the product        tp_comm_overlap_rs
    backward  gather of the output's gradient    beside its dgrad          tp_comm_overlap_ag
              repeated gather of the input       beside dgrad              tp_comm_bulk_dgrad
              scatter of the input's gradient    beside wgrad              tp_comm_bulk_wgrad
              the same, in pieces                beside dgrad, not bulk    tp_comm_overlap_rs_dgrad

Sources: Megatron-Core extensions/transformer_engine.py, TransformerEngine module/layernorm_linear.py (a layer whose scatter is in pieces has
no bulk message; tp_comm_overlap_disable_qkv and _fc1 take the gather and the scatter in pieces from one layer, not its bulk messages).
"""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.expr import ZERO, Expr, maximum
from symsim.algebra.quantity import SECOND, Quantity
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Op
from symsim.ir.messages import Message
from symsim.ir.operations import PRODUCTS
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered


def left_beside_product(
    lowered: Lowered,
    index: int,
    message: Message,
    seconds: Quantity,
    remembered: Remembered,
    forward: Mapping[int, Quantity],
    backward: Mapping[tuple[int, str], Quantity],
) -> Quantity:
    """Seconds of a message of operation `index` that its product does not hide. forward, backward: seconds of the block's kernels.

    Without overlap options two of three messages of backward may hide already (assumption tp_async_backward): the gather of the
    saved input beside the input gradient, and the reduction of the input gradient beside the weight gradient.
    """
    strategy, asynchronous = lowered.profile.strategy, lowered.profile.framework.reduces_beside
    ops = remembered.placed.block.ops
    op = ops[index]
    readers = [i for i in forward if op.outputs and op.outputs[0] in ops[i].inputs]
    writers = [i for i in forward if op.inputs and op.inputs[0] in ops[i].outputs]
    reader = next((ops[i] for i in readers if ops[i].kind in PRODUCTS), None)
    gathers, scatters, in_pieces = _switched(strategy, reader)
    bulk = strategy.tp_comm_overlap and not in_pieces

    def product(candidates: list[int], kind: str) -> Expr:
        found = [i for i in candidates if ops[i].kind in PRODUCTS]
        if not found:
            return ZERO
        return (forward[found[0]] if kind == "forward" else backward.get((found[0], kind), Quantity(ZERO, SECOND))).expr

    beside = ZERO
    if message.phase == "forward" or message.purpose == "recomputed":
        of_input = message.row.gathers
        if gathers if of_input else scatters:
            beside = product(readers if of_input else writers, "forward")
    elif message.purpose == "gathered again":
        if asynchronous or (bulk and strategy.tp_comm_bulk_dgrad):
            beside = product(readers, "dgrad")
    elif message.row.sums:
        if in_pieces:
            beside = product(readers or [index], "dgrad")
        elif asynchronous or (bulk and strategy.tp_comm_bulk_wgrad):
            beside = product(readers or [index], "wgrad")
    elif strategy.tp_comm_overlap and strategy.tp_comm_overlap_ag:
        beside = product(writers, "dgrad")
    return Quantity(maximum(0, seconds.expr - beside), SECOND) if beside else seconds


def _switched(strategy: Strategy, reader: Op | None) -> tuple[bool, bool, bool]:
    """Whether the gather before a product, the scatter behind one, and the scatter of an input's gradient run in pieces."""
    if not strategy.tp_comm_overlap:
        return False, False, False
    of_qkv, of_fc1 = reader is not None and reader.name == "attention.qkv", reader is not None and reader.module in ("mlp", "shared_experts")
    taken = (of_qkv and strategy.tp_comm_overlap_disable_qkv) or (of_fc1 and strategy.tp_comm_overlap_disable_fc1)
    return not taken and strategy.tp_comm_overlap_ag, strategy.tp_comm_overlap_rs, not taken and strategy.tp_comm_overlap_rs_dgrad
