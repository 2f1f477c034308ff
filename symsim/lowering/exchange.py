"""The exchange of tokens with experts, as messages.

Tokens are sharded over ranks; experts over `ep`, their widths over `etp`. What moves one to the other is a collective, which its row
of `OPERATIONS` says with its axes and its transpose: an all-to-all over `ep` (alltoall dispatcher), or a gather of all tokens over both
(allgather dispatcher), or a kernel's own exchange over `ep` (flex dispatcher). Gathers and reductions over `etp` are ordinary redistributions.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, product
from symsim.ir.block import WIDTHS
from symsim.ir.collectives import COLLECTIVES
from symsim.ir.messages import Message
from symsim.ir.operations import OPERATIONS, Exchange
from symsim.lowering.communicate import Placed
from symsim.placement.mesh import local_elements, local_size


def token_messages(placed: Placed, index: int, phase: str, counts: str) -> list[Message]:
    """Messages of one exchange operation, forward or transposed. counts: the collective that carries counts of tokens, or ''."""
    mesh, op, forward = placed.mesh, placed.block.ops[index], phase == "forward"
    row, at = OPERATIONS[op.kind], op.of(Exchange)
    made = _counts(placed, counts) if forward and at.counted and counts else []
    group, collective = mesh.group(row.over), row.sends if forward else row.transpose
    if group == ONE:
        return made
    if row.bound == "exchange":
        carried = _in_one(placed, index, forward)
    else:
        carried = _collected(placed, index, collective, group, forward) if at.sent else _passed_on(placed, index, forward)
    for what, send, receive, dtype in carried if forward else reversed(carried):
        made.append(Message(phase, collective, "_".join(row.over), group, send, receive, dtype, what))
    return made


Carried = list[tuple[str, Expr, Expr, str]]
"""What it is, elements handed in and got back, type."""


def _passed_on(placed: Placed, index: int, forward: bool) -> Carried:
    """Each input into the result in its place; its gradient back."""
    block, op, made = placed.block, placed.block.ops[index], []
    for ends in zip(op.inputs, op.outputs):
        own, other = (local_elements(placed.mesh, block, block.tensors[n], placed.layouts[n]) for n in ends)
        what, dtype = f"{'rows' if forward else 'gradient of rows'} in {op.name}", block.tensors[ends[1]].dtype
        made.append((what, own, other, dtype) if forward else (what, other, own, dtype))
    return made


def _in_one(placed: Placed, index: int, forward: bool) -> Carried:
    """Tokens in one message with what goes with them: on the side of their own ranks all tokens, on the experts' all that arrive once."""
    op, block, layout = placed.block.ops[index], placed.block, placed.iteration[index]
    tokens = op.inputs[0] if "b" in block.tensors[op.inputs[0]].dims else op.outputs[0]
    out = tokens == op.inputs[0]
    kept = block.tensors[tokens]
    # with every token, in its own type: experts (of 8 bytes) and weights (of 4) on the way out, gradients of weights on the way back
    beside = (12 if forward else 4) * block.dims["K"].size / WIDTHS[kept.dtype] if out else ZERO
    width = block.dims[op.of(Exchange).width].size + beside
    own = local_elements(placed.mesh, block, kept, placed.layouts[tokens]) / block.dims[op.of(Exchange).width].size
    there = local_size(placed.mesh, block, "R_u", layout.get("R_u", layout.get("R", ())))
    ends = (own * width, there * width) if out == forward else (there * width, own * width)
    return [(f"{'tokens' if forward else 'gradient of tokens'} in {op.name}", *ends, kept.dtype)]


def _collected(placed: Placed, index: int, collective: str, group: Expr, forward: bool) -> Carried:
    """What each rank has of its own tokens, and all of it."""
    op, layout, made = placed.block.ops[index], placed.iteration[index], []
    for sent in op.of(Exchange).sent:
        what, row = sent.what if forward else sent.gradient, COLLECTIVES[collective]
        own = product(local_size(placed.mesh, placed.block, d, layout.get(d, ())) for d in sent.dims)
        if what:
            handed_in = own if row.gathers else own * group
            made.append((what, handed_in, row.got_back(handed_in, group), sent.dtype))
    return made


def _counts(placed: Placed, collective: str) -> list[Message]:
    """Tokens per expert: Megatron-Core gathers every rank's counts over etp and ep, torchtitan exchanges them over ep."""
    row = COLLECTIVES[collective]
    over = ("etp", "ep") if row.gathers else ("ep",)
    group, experts = placed.mesh.group(over), placed.block.dims["E_r"].size
    message = Message("forward", collective, "_".join(over), group, experts, row.got_back(experts, group), "int64", "tokens per expert")
    return [message] if group != ONE else []
