"""HBM bytes of every kernel, forward and backward: one count, for what a report gives and for the seconds of what HBM bounds.

A kernel reads its operands and writes its results once. A matrix product has them all in the type it multiplies in; a
weight gradient is added to the one accumulated so far, which is read and written: in the product, or (gradient_accumulation_fusion off)
in a pass after it. What is written as several kernels (the
loss unfused, attention written out) moves what stands between them as well. What a dispatcher's kernels read and write is in their message.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, product, summed
from symsim.algebra.quantity import BYTE, Quantity, total
from symsim.cost import autograd
from symsim.cost.linear_loss import linear_loss_bytes
from symsim.cost.shapes import Shape, size
from symsim.cost.stored import made_anew
from symsim.frameworks.kernels import Profile, multiplied_in
from symsim.inputs import curves
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS, Op
from symsim.ir.operations import OPERATIONS, PRODUCTS, Activation, Attention, Cast, Dequantise, LinearCrossEntropy, Projection, Rope
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import CAST, DEQUANTISE, BackwardOp, elements, redistributions
from symsim.placement.mesh import local_size
from symsim.placement.sizes import reached_by

# bytes a logit of unfused cross entropy, which reads and writes fp32 logits in ten elementwise kernels and reductions
# forward, and in three backward (megatron.core tensor_parallel/cross_entropy.py)
UNFUSED_LOSS = {"forward": 38, "backward": 14}
# bytes an element of an expert's bias in 16 bits that is scaled and added in fp32: forward writes b p (4), adds it (2 + 4 + 4), joins the
# experts' parts (4 + 4) and casts the result (4 + 2); backward casts the gradient (2 + 4), gives each expert's part its own (4 + 2 and
# 2 + 2) and for b and for p multiplies and sums it (4 + 4 + 4 each) (megatron.core transformer/moe/experts.py _apply_bias)
BIAS_APART = {"forward": 28, "dgrad": 40}
# bytes an element of a rotary embedding in kernels of 16 bits: forward negates a half, joins it with the other, multiplies twice, adds and joins
# what was turned with what was not; backward multiplies twice, negates, joins and adds, and for either of the two slices fills a whole with
# zeros, copies into one of them and adds (megatron.core models/common/embeddings/rope_utils.py _apply_rotary_pos_emb_bshd)
ROPE_APART = {"forward": 24, "backward": 34}


def forward_bytes(placed: Placed, index: int, profile: Profile) -> Quantity:
    """What one forward kernel reads and writes on one rank."""
    op = placed.block.ops[index]
    if OPERATIONS[op.kind].bound == "exchange":
        return Quantity(ZERO, BYTE)
    if isinstance(op.attrs, Dequantise):
        return Quantity(made_anew(placed, op.inputs[0], op.attrs.stored), BYTE)
    if op.kind in PRODUCTS:
        shape = product_shape(placed, index, "forward", profile.strategy)
        return Quantity(shape.bytes + added_afterwards(placed, index, shape, profile.strategy), BYTE)
    if isinstance(op.attrs, LinearCrossEntropy):
        return Quantity(linear_loss_bytes(placed, index, profile.strategy, backward=False), BYTE)
    if OPERATIONS[op.kind].adds_in_place:  # a product's result, which it writes, lies where it reads what it is added to
        return _traffic(placed, op.inputs[:1])
    if written_out(op):
        return _attention_bytes(placed, index, backward=False)
    if OPERATIONS[op.kind].inner == "softmax" and _in_kernels(profile):
        return _loss_bytes(placed, op, "forward")
    if isinstance(op.attrs, Cast):
        return Quantity(_traffic(placed, op.inputs).expr * op.attrs.passes + _traffic(placed, op.outputs).expr * op.attrs.forms, BYTE)
    if isinstance(op.attrs, Rope) and op.attrs.apart:
        return Quantity(elements(placed, op.outputs[0]) * ROPE_APART["forward"], BYTE)
    if isinstance(op.attrs, Rope) and op.attrs.in_place:
        return _turned_in_place(placed, op)
    if isinstance(op.attrs, Activation) and op.attrs.joined:
        return Quantity(ZERO, BYTE)
    if several := autograd.forward(placed, op):
        return Quantity(summed(several), BYTE)
    return Quantity(_traffic(placed, touched(op)).expr + merged_bytes(placed, index, profile, backward=False), BYTE)


def backward_bytes(placed: Placed, kernel: BackwardOp, profile: Profile) -> Quantity:
    """What one backward kernel reads and writes on one rank."""
    op = placed.block.ops[kernel.forward]
    if OPERATIONS[op.kind].bound == "exchange":
        return Quantity(ZERO, BYTE)
    if kernel.label == CAST:
        return _cast_in_backward(placed, kernel, profile)
    if kernel.label == DEQUANTISE:
        return Quantity(made_anew(placed, kernel.reads[0], op.of(Projection).stored), BYTE)
    if op.kind in PRODUCTS:
        shape = product_shape(placed, kernel.forward, kernel.label, profile.strategy)
        beside = summed(beside_gradient(placed, kernel.forward, kernel.label, profile))
        return Quantity(shape.bytes + added_afterwards(placed, kernel.forward, shape, profile.strategy) + beside, BYTE)
    if isinstance(op.attrs, LinearCrossEntropy):
        return Quantity(linear_loss_bytes(placed, kernel.forward, profile.strategy, backward=True), BYTE)
    if written_out(op):
        return _attention_bytes(placed, kernel.forward, backward=True)
    if OPERATIONS[op.kind].inner == "softmax" and _in_kernels(profile):
        return _loss_bytes(placed, op, "backward")
    if isinstance(op.attrs, Rope) and op.attrs.apart:
        return Quantity(elements(placed, op.outputs[0]) * ROPE_APART["backward"], BYTE)
    if isinstance(op.attrs, Rope) and op.attrs.in_place:
        return _turned_in_place(placed, op)
    if isinstance(op.attrs, Activation) and op.attrs.joined:
        return _traffic(placed, op.saves)
    if one_by_one(op, profile):
        return Quantity(summed(autograd.derivative(placed, kernel)), BYTE)
    beside = elements(placed, op.inputs[0]) * OPERATIONS[op.kind].masks + merged_bytes(placed, kernel.forward, profile, backward=True)
    beside = beside + summed_bytes(placed, kernel.forward, profile) + _of_shared_table(placed, op, profile)
    return Quantity(_traffic(placed, [*kernel.reads, *kernel.writes]).expr + beside, BYTE)


def _of_shared_table(placed: Placed, op: Op, profile: Profile) -> Expr:
    """Bytes of the sum of a lookup's gradient and the output layer's, of a table that both have on a rank (torch autograd input_buffer.cpp)."""
    shared = profile.model.tie_word_embeddings and profile.strategy.pp == 1 and not profile.framework.main_gradients
    if OPERATIONS[op.kind].role != "lookup" or not shared:
        return ZERO
    trained = [t for t in op.inputs if placed.block.tensors[t].kind == "parameter" and placed.block.tensors[t].gradient]
    return 3 * _traffic(placed, trained).expr


def one_by_one(op: Op, profile: Profile) -> bool:
    """Whether the derivative of what is no product is as many kernels as PyTorch's formula has operations."""
    return profile.framework.op_by_op and OPERATIONS[op.kind].bound != "attention" and OPERATIONS[op.kind].role != "lookup"


def beside_gradient(placed: Placed, index: int, label: str, profile: Profile) -> list[Expr]:
    """Bytes of the kernels beside a product's gradients, where a module runs operation by operation: beside that of its input what joins the
    gradient of its result, and sums in which its own joins others; beside that of its weight the bias's."""
    if label == "forward" or not profile.framework.op_by_op:
        return []
    return autograd.of_bias(placed, index) if label == "wgrad" else [*autograd.joined(placed, index), *autograd.sums(placed, index)]


def _turned_in_place(placed: Placed, op: Op) -> Quantity:
    """The turned part of every head read and written, and the cosines and sines."""
    dims, tensor = placed.block.dims, placed.block.tensors[op.outputs[0]]
    share = dims[op.of(Rope).head].size / dims[tensor.dims[-1]].size
    return Quantity(2 * elements(placed, tensor.name) * share * WIDTHS[tensor.dtype], BYTE) + _traffic(placed, op.saves)


def merged_bytes(placed: Placed, index: int, profile: Profile, *, backward: bool) -> Expr:
    """Bytes in 16 bits of what a ring of n ranks moves besides attention, in every one of its steps: its results are brought to one softmax
    and added up, and backward the gradients of queries, keys and values are; the first step's are written, and under a causal mask half of them
    are there in half of the others in the mean over ranks. Keys and values are joined to be sent (TransformerEngine pytorch/attention/
    dot_product_attention/context_parallel.py AttnFuncWithCPAndKVP2P, flash_attn_fwd_out_correction)."""
    op, n = placed.block.ops[index], ring_steps(placed, index, profile)
    if n == ONE:
        return ZERO
    queries, keys, values = (elements(placed, t) for t in op.inputs[:3])
    result = elements(placed, op.outputs[0])
    whole = Fraction(3, 4) if reached_by(op.of(Attention).keys, profile.assumptions) not in ("both", "band") else ONE
    each = 4 + 6 * whole * (n - 1)
    return (queries + keys + values) * each if backward else result * each + (keys + values) * 4


def summed_bytes(placed: Placed, index: int, profile: Profile) -> Expr:
    """Bytes of the gradients of keys and values of every head, before those of the heads that share them are summed: in FP8, by cuDNN
    (`curves.summed_bytes`)."""
    op, block = placed.block.ops[index], placed.block
    at = op.attrs if isinstance(op.attrs, Attention) else None
    if at is None or not at.multiplied or at.groups == at.heads or profile.model.groups_of(block.name) == profile.model.heads_of(block.name):
        return ZERO
    keys, values = (elements(placed, t) for t in op.inputs[1:3])
    heads = block.dims[at.heads].size / block.dims[at.groups].size
    return curves.summed_bytes(keys + values, heads, ring_steps(placed, index, profile), 1)


def ring_steps(placed: Placed, index: int, profile: Profile) -> Expr:
    """Steps of a ring of attention: as many as ranks; one without a ring, or in another framework's."""
    if OPERATIONS[placed.block.ops[index].kind].inner != "ring" or profile.strategy.fusion != "te":
        return ONE
    return product(placed.mesh.degree(axis) for axis in placed.mesh.ring_axes)


def _cast_in_backward(placed: Placed, kernel: BackwardOp, profile: Profile) -> Quantity:
    """Gradients of an operation's results as they are multiplied, cast before they are gathered, and what it kept of its input as it was."""
    op, strategy = placed.block.ops[kernel.forward], profile.strategy
    at = op.attrs
    assert isinstance(at, (Projection, Attention)) and at.gradient_cast is not None
    to, wide = WIDTHS[multiplied_in(op, strategy)], WIDTHS[strategy.precision]
    moved = ZERO
    for name in kernel.reads:
        scattered = redistributions(placed, name, "reduce_scatter")
        each = at.gradient_cast.passes * wide + at.gradient_cast.forms * to
        moved = moved + elements(placed, scattered[0].outputs[0] if scattered else name) * each
    if isinstance(at, Projection) and at.input_cast is not None:
        moved = moved + elements(placed, op.inputs[0]) * (at.input_cast.passes * wide + at.input_cast.forms * to)
    return Quantity(moved, BYTE)


def touched(op: Op) -> list[str]:
    """The tensors a forward kernel reads and writes; a lookup reads as many rows as it writes, not its table."""
    if OPERATIONS[op.kind].role == "lookup":
        return [op.inputs[0], op.outputs[0], *op.outputs]
    unread = op.attrs.unread if isinstance(op.attrs, Attention) else ()
    return [*(t for t in op.inputs if t not in unread), *op.outputs]


def product_shape(placed: Placed, index: int, kind: str, strategy: Strategy) -> Shape:
    """A product's dimensions, from its einsum: forward rows x new columns x contracted; dgrad rows x contracted x new;
    wgrad new x contracted x rows."""
    block, op = placed.block, placed.block.ops[index]
    tensors = block.tensors
    (says,) = op.einsums
    contracted = set(says.contracted)
    rows = size(placed, index, [d for d in says.result if d in says.operands[0]])
    depth = size(placed, index, says.contracted)
    columns = size(placed, index, [d for d in says.result if d not in says.operands[0]])
    groups = ONE
    if says.chosen:
        groups = local_size(placed.mesh, block, "E", ("ep",) if placed.mesh.active("ep") else ())
        rows = rows / groups
    narrow = multiplied_in(op, strategy, kind) if op.of(Projection).multiplied else tensors[op.inputs[0]].dtype
    whole = kind != "forward" and op.of(Projection).stored  # made anew
    width = WIDTHS[strategy.precision if whole else narrow]
    out = WIDTHS[strategy.precision if whole else tensors[op.outputs[0]].dtype]
    biases = [t for t in op.inputs if tensors[t].kind == "parameter" and not contracted & set(tensors[t].dims)]
    if kind == "wgrad":
        out = 4 if strategy.grad_reduce_in_fp32 else WIDTHS[strategy.precision]
        beside = sum((elements(placed, t) * out * 2 for t in biases), ZERO)
    else:
        beside = _traffic(placed, biases).expr if kind == "forward" else ZERO
    if kind == "dgrad" and op.of(Projection).joined == "behind":
        out = 0
    m, n, k = {"forward": (rows, columns, depth), "dgrad": (rows, depth, columns), "wgrad": (columns, depth, rows)}[kind]
    accumulates = kind == "wgrad" and strategy.gradient_accumulation_fusion and not strategy.autocast
    if kind == "wgrad" and not accumulates:
        out = WIDTHS[strategy.precision]
    return Shape(m, n, k, groups, kind, width, out, beside, accumulates)


def added_afterwards(placed: Placed, index: int, shape: Shape, strategy: Strategy) -> Expr:
    """Bytes of the passes over what a product made: those of a bias that is added apart, and the one that adds a weight gradient to the
    accumulated one: reads both, writes the sum (Megatron-Core distributed/distributed_data_parallel.py, the hook of a parameter whose
    gradient is not in main_grad already)."""
    op = placed.block.ops[index]
    if shape.kind in BIAS_APART and isinstance(op.attrs, Projection) and op.attrs.bias_apart:
        return elements(placed, op.outputs[0]) * BIAS_APART[shape.kind]
    if shape.kind != "wgrad" or shape.accumulates:
        return ZERO
    kept, made = 4 if strategy.grad_reduce_in_fp32 else WIDTHS[strategy.precision], WIDTHS[strategy.precision]
    # under autocast the copy's gradient is cast to the parameter's type before it is added
    cast = made + kept if strategy.autocast else 0
    return shape.groups * shape.m * shape.n * (cast + (kept if strategy.autocast else made) + 2 * kept)


def written_out(op: Op) -> bool:
    """Whether attention is two products with kernels between them that read and write the scores."""
    return isinstance(op.attrs, Attention) and bool(op.attrs.passes)


def attention_shapes(placed: Placed, index: int, *, backward: bool) -> list[Shape]:
    """The products of written-out attention: two forward, four backward."""
    block, op = placed.block, placed.block.ops[index]
    at, width = op.of(Attention), WIDTHS[block.tensors[op.inputs[0]].dtype]
    groups, queries, keys = size(placed, index, ["b", at.heads]), size(placed, index, ["s"]), block.dims["z"].size
    d_qk, d_v = block.dims[at.key_dim].size, block.dims[at.value_dim].size
    forward = [(queries, keys, d_qk), (queries, d_v, keys)]
    gradients = [(queries, d_qk, keys), (keys, d_qk, queries), (queries, keys, d_v), (keys, d_v, queries)]
    return [Shape(m, n, k, groups, "forward", width, width) for m, n, k in (gradients if backward else forward)]


def attention_passes(placed: Placed, index: int, *, backward: bool) -> list[Expr]:
    """Bytes of each kernel between the products. It reads the scores as the one before left them and writes them in its own
    type, with a byte mask where it drops; backward reads and writes the gradients of both, and what it kept."""
    block, op = placed.block, placed.block.ops[index]
    made, before = [], WIDTHS[block.tensors[op.inputs[0]].dtype]
    for result, mask, kept in op.of(Attention).passes:
        after = WIDTHS[block.tensors[result].dtype]
        moved = elements(placed, result) * (before + after)
        read_again = {mask, kept} if backward else {mask}
        made.append(moved + _traffic(placed, sorted(read_again - {""})).expr)
        before = after
    return made


def _attention_bytes(placed: Placed, index: int, *, backward: bool) -> Quantity:
    products = (shape.bytes for shape in attention_shapes(placed, index, backward=backward))
    return Quantity(sum((*products, *attention_passes(placed, index, backward=backward)), ZERO), BYTE)


def _in_kernels(profile: Profile) -> bool:
    """Whether the loss is written as several kernels."""
    return profile.strategy.cross_entropy_fusion in profile.framework.losses_in_kernels


def _loss_bytes(placed: Placed, op: Op, direction: str) -> Quantity:
    return Quantity(elements(placed, op.inputs[0]) * UNFUSED_LOSS[direction], BYTE)


def _traffic(placed: Placed, names: Iterable[str]) -> Quantity:
    """Bytes of these tensors as one rank holds them."""
    block = placed.block
    return total((Quantity(elements(placed, n) * WIDTHS[block.tensors[n].dtype], BYTE) for n in names), BYTE)
