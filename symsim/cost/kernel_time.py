"""Seconds of every kernel of a block: which closed form of `curves` it takes, and the dimensions it puts in.

A matrix product takes its rows, columns and depth from the dimensions of its own einsum: what the operands share with
the output is rows or columns, what is contracted is depth; the transposes permute the three. Attention takes heads and
lengths. Everything else moves bytes. Which bytes any of them moves is counted once, in `cost/hbm.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, product, summed, symbol
from symsim.algebra.quantity import SECOND, Quantity
from symsim.cost import autograd
from symsim.cost.hbm import (
    added_afterwards,
    attention_passes,
    attention_shapes,
    backward_bytes,
    beside_gradient,
    forward_bytes,
    merged_bytes,
    one_by_one,
    product_shape,
    ring_steps,
    summed_bytes,
    written_out,
)
from symsim.cost.linear_loss import Work, linear_loss_work
from symsim.cost.shapes import Shape, size
from symsim.frameworks.kernels import Profile, attended, multiplied_in
from symsim.inputs import curves
from symsim.inputs.lengths import attention_documents
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Op
from symsim.ir.operations import OPERATIONS, PRODUCTS, Activation, Attention, Cast, Dequantise, Projection, Rope
from symsim.ir.quantised import STORED
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import CAST, DEQUANTISE, BackwardOp
from symsim.placement.mesh import local_size
from symsim.placement.sizes import keys_per_query, own_symbols, reached_by, span

# kernels of a rotary embedding that is written out: of its tables and of what it turns (megatron.core models/common/embeddings/rope_utils.py)
ROPE_KERNELS = {"forward": 12, "backward": 10}
# kernels of an expert's bias that is added apart, for every expert and once for all (BIAS_APART)
BIAS_KERNELS = {"forward": (2, 2), "dgrad": (6, 2)}
# a kernel of PyTorch's own takes the host 3 to 10 us to launch, as does one more of the same call, and one of a module 40, which has Python
# around it (host: launch of a system)
PLAIN = Fraction(1, 4)


def launches(placed: Placed, index: int, profile: Profile, label: str = "") -> Expr:
    """Kernels that the host launches for an operation, or for its derivative of a label. A cast is one call; of experts' rows it makes a
    tensor for every expert, each of which takes as long as a plain kernel (TransformerEngine pytorch/csrc/extensions/cast.cpp
    split_quantize). A grouped GEMM is one product an expert on the device's streams (TransformerEngine cpp_extensions/gemm.py
    general_grouped_gemm); experts that run one by one launch all they do apart."""
    op, backward = placed.block.ops[index], bool(label)
    if OPERATIONS[op.kind].bound == "linear_loss":
        work = linear_loss_work(placed, index, profile.strategy, backward=backward)
        return work.pieces * (len(work.shapes) + len(work.passes)) + len(work.after)
    if label == DEQUANTISE or isinstance(op.attrs, Dequantise):
        assert isinstance(op.attrs, (Projection, Dequantise))
        return STORED[op.attrs.stored].launches * ONE
    if label == CAST or isinstance(op.attrs, Cast):
        return sum((ONE + PLAIN * (_apart(placed, op, cast, profile) - 1) for cast in _casts(op)), ZERO)
    if isinstance(op.attrs, Activation) and op.attrs.joined:
        return ZERO
    if isinstance(op.attrs, Projection) and op.attrs.joined:
        return ONE
    if op.einsums and op.einsums[0].chosen:
        return _experts(placed, profile) + PLAIN * _kernels_of_bias(placed, op, profile, label or "forward")
    if isinstance(op.attrs, Rope) and op.attrs.apart:
        return PLAIN * ONE * ROPE_KERNELS["backward" if backward else "forward"]
    if op.module == "experts" and profile.assumptions["moe_grouped_gemm"] == "false":
        return _experts(placed, profile)
    if backward and (op.kind in PRODUCTS or one_by_one(op, profile)):
        several = len(_kernels(placed, BackwardOp(label, index, (), (), ()), profile))
        return ONE + PLAIN * (several - 1) if several else ZERO
    return ONE * profile.framework.launches.get(op.kind, (1, 1))[backward]


def _kernels(placed: Placed, kernel: BackwardOp, profile: Profile) -> list[Expr]:
    """Bytes of each kernel of a derivative: a product's, and what stands beside it; or those of a formula."""
    if placed.block.ops[kernel.forward].kind in PRODUCTS:
        return [ONE, *beside_gradient(placed, kernel.forward, kernel.label, profile)]
    return autograd.derivative(placed, kernel)


def _kernels_of_bias(placed: Placed, op: Op, profile: Profile, kind: str) -> Expr:
    """Kernels of a bias of experts that is added apart."""
    if kind not in BIAS_KERNELS or not op.of(Projection).bias_apart:
        return ZERO
    of_each, together = BIAS_KERNELS[kind]
    return of_each * _experts(placed, profile) + together


def _experts(placed: Placed, profile: Profile) -> Expr:
    """Experts of a rank."""
    return local_size(placed.mesh, placed.block, "E", ("ep",) if placed.mesh.active("ep") else ()) if profile.model.moe else ONE


def _kernels_of_casts(placed: Placed, op: Op, profile: Profile) -> Expr:
    """Kernels of what an operation casts: of its own, or in backward of its gradient and of an input that was kept as it was. The rows of
    experts are cast expert by expert (TransformerEngine pytorch/csrc/extensions/cast.cpp split_quantize)."""
    return sum((cast.kernels * _apart(placed, op, cast, profile) for cast in _casts(op)), ZERO)


def _apart(placed: Placed, op: Op, cast: Cast, profile: Profile) -> Expr:
    """Tensors that a cast works through one by one: those of a rank's experts."""
    return _experts(placed, profile) if op.module == "experts" and not cast.together else ONE


def _casts(op: Op) -> list[Cast]:
    at = op.attrs
    casts = [at] if isinstance(at, Cast) else [getattr(at, "gradient_cast", None), getattr(at, "input_cast", None)]
    return [cast for cast in casts if cast is not None and cast.passes]


def peak(op: Op, strategy: Strategy, kind: str = "forward") -> Expr:
    """The rate of the multiplier that an operation uses, forward or in the backward kernel `kind`, FLOP/s."""
    return symbol(f"Phi_{multiplied_in(op, strategy, kind)}")


def forward_seconds(placed: Placed, index: int, profile: Profile) -> Quantity:
    """One forward kernel."""
    op = placed.block.ops[index]
    if op.kind in profile.conventions.kernels:
        return Quantity(profile.conventions.kernels[op.kind](placed, index, "forward", profile), SECOND)
    if OPERATIONS[op.kind].bound == "gemm":
        return _product(placed, index, "forward", profile)
    if OPERATIONS[op.kind].bound == "attention":
        return _attention(placed, index, profile, forward_bytes(placed, index, profile), backward=False)
    if OPERATIONS[op.kind].bound == "linear_loss":
        return _linear_loss(linear_loss_work(placed, index, profile.strategy, backward=False), peak(op, profile.strategy), profile)
    if isinstance(op.attrs, Cast):
        return _casting(placed, op, forward_bytes(placed, index, profile), profile)
    return _moving(placed, index, op.products, forward_bytes(placed, index, profile), profile.strategy)


def backward_seconds(placed: Placed, kernel: BackwardOp, profile: Profile) -> Quantity:
    """One backward kernel."""
    op = placed.block.ops[kernel.forward]
    if op.kind in profile.conventions.kernels:
        if kernel.label in (CAST, DEQUANTISE):
            return Quantity(ZERO, SECOND)
        return Quantity(profile.conventions.kernels[op.kind](placed, kernel.forward, kernel.label, profile), SECOND)
    if kernel.label == CAST:
        return _casting(placed, op, backward_bytes(placed, kernel, profile), profile)
    if kernel.label == DEQUANTISE:
        return Quantity(curves.memory_bound(backward_bytes(placed, kernel, profile).expr, kind="elementwise"), SECOND)
    if OPERATIONS[op.kind].bound == "gemm":
        return _product(placed, kernel.forward, kernel.label, profile)
    if OPERATIONS[op.kind].bound == "attention":
        return _attention(placed, kernel.forward, profile, backward_bytes(placed, kernel, profile), backward=True)
    if OPERATIONS[op.kind].bound == "linear_loss":
        return _linear_loss(linear_loss_work(placed, kernel.forward, profile.strategy, backward=True), peak(op, profile.strategy), profile)
    if one_by_one(op, profile):
        return Quantity(summed(curves.memory_bound(moved, kind=OPERATIONS[op.kind].bound) for moved in autograd.derivative(placed, kernel)), SECOND)
    return _moving(placed, kernel.forward, kernel.products, backward_bytes(placed, kernel, profile), profile.strategy)


def _casting(placed: Placed, op: Op, moved: Quantity, profile: Profile) -> Quantity:
    """Casts, each kernel with its start; what other kernels cast on their way is written by them."""
    more = _kernels_of_casts(placed, op, profile) - 1
    if not moved.expr:
        return Quantity(ZERO, SECOND)
    return Quantity(curves.memory_bound(moved.expr, kind="elementwise") + more * symbol("t_mem"), SECOND)


def _moving(placed: Placed, index: int, products: Iterable[tuple[str, ...]], moved: Quantity, strategy: Strategy) -> Quantity:
    """A kernel bound by HBM; small products inside it (a convolution, a recurrence) run at the multiplier's rate. One that is an exchange
    takes what its message takes."""
    op = placed.block.ops[index]
    if OPERATIONS[op.kind].bound == "exchange":
        return Quantity(ZERO, SECOND)
    if isinstance(op.attrs, Rope) and op.attrs.apart:
        return Quantity(curves.memory_bound(moved.expr, kind="unvectorised") + (ROPE_KERNELS["forward"] - 1) * symbol("t_mem"), SECOND)
    if isinstance(op.attrs, Activation) and op.attrs.joined:
        return Quantity(curves.memory_bound(moved.expr, kind="elementwise") - symbol("t_mem") if moved.expr else ZERO, SECOND)
    work = sum((2 * size(placed, index, dims) for dims in products), ZERO)
    return Quantity(curves.memory_bound(moved.expr, kind=OPERATIONS[op.kind].bound) + work / peak(op, strategy), SECOND)


def _product(placed: Placed, index: int, kind: str, profile: Profile) -> Quantity:
    """A matrix product; experts that run one by one are as many apart."""
    op = placed.block.ops[index]
    shape, rate = product_shape(placed, index, kind, profile.strategy), peak(op, profile.strategy, kind)
    added, further = added_afterwards(placed, index, shape, profile.strategy), beside_gradient(placed, index, kind, profile)
    of_bias = kind in BIAS_KERNELS and op.of(Projection).bias_apart
    starts = maximum(0, _kernels_of_bias(placed, op, profile, kind) - 1) * symbol("t_mem")
    after = curves.memory_bound(added, kind="unvectorised" if of_bias else "elementwise") + starts if added else ZERO
    after = after + summed(curves.memory_bound(moved, kind="elementwise") for moved in further)
    if shape.groups != ONE and profile.assumptions["moe_grouped_gemm"] == "false":
        one = replace(shape, groups=ONE, biases=shape.biases / shape.groups)
        return Quantity(shape.groups * _seconds(one, rate, profile, grouped=False) + after, SECOND)
    return Quantity(_seconds(shape, rate, profile, grouped=shape.groups != ONE) + after, SECOND)


def _linear_loss(work: Work, rate: Expr, profile: Profile) -> Quantity:
    """The output layer's products of every piece, and the passes over its logits between them."""
    of_piece = sum((_seconds(shape, rate, profile, grouped=False) for shape in work.shapes), ZERO)
    of_piece = of_piece + sum((curves.memory_bound(moved, kind="cross_entropy") for moved in work.passes), ZERO)
    after = sum((curves.memory_bound(moved, kind="elementwise") for moved in work.after), ZERO)
    return Quantity(work.pieces * of_piece + after, SECOND)


def _seconds(shape: Shape, rate: Expr, profile: Profile, *, grouped: bool) -> Expr:
    return curves.gemm(
        shape.m,
        shape.n,
        shape.k,
        groups=shape.groups,
        kind=shape.adds,
        width_in=shape.width_in,
        width_out=shape.width_out,
        peak=rate,
        grouped=grouped,
        beside=shape.biases,
        tiled=profile.assumptions["gemm_tiles"] == "counted",
        split=shape.split,
    )


# seconds of flash attention's backward in a fixed order, over those in any (assumption deterministic_attention)
_IN_ORDER = 1 / (1 - Fraction("0.379"))


def _attention(placed: Placed, index: int, profile: Profile, moved: Quantity, *, backward: bool) -> Quantity:
    """A rank's heads and queries against the keys that a causal mask or a window leaves, whatever convention counts their FLOPs."""
    op, block, strategy = placed.block.ops[index], placed.block, profile.strategy
    at = op.of(Attention)
    if written_out(op):
        return _written_out_attention(placed, index, profile, backward=backward)

    def local(dim: str) -> Expr:
        return size(placed, index, [dim])

    # a chunk is a short causal sequence; chosen keys are as many as those of a window
    reach, share = reached_by(at.keys, profile.assumptions), attended(strategy, profile.assumptions)
    own, compressed = own_symbols(profile.model, profile.model.kind_of(block.name)), reach in ("compressed", "picked")
    w = {name: symbol for name, symbol in own.items() if name == "w"}
    keys = (block.dims["z"].size if compressed else span("chunk" if reach == "chunk" else "all", strategy, **w)) * share
    window = span(reach, strategy, **w) * share if reach in ("window", "chosen", "band") else None
    merged = merged_bytes(placed, index, profile, backward=backward)
    summed = summed_bytes(placed, index, profile) if backward else ZERO
    seconds = curves.attention(
        local("b"),
        local(at.heads),
        local("s"),
        keys,
        block.dims[at.key_dim].size,
        block.dims[at.value_dim].size,
        causal=reach not in ("both", "band") and not compressed,
        backward=backward,
        fp8=bool(at.multiplied),
        peak=symbol(f"Phi_{strategy.precision}"),
        moved=moved.expr - merged - summed,
        window=keys_per_query("exact", reach, strategy, **own) * share if compressed else window,
        visited=share,
        summed=summed,
    )
    seconds = seconds * _IN_ORDER if backward and profile.assumptions["deterministic_attention"] == "true" else seconds
    seconds = seconds * _of_the_last(placed, index, profile) if reach == "all" else seconds
    return Quantity(seconds, SECOND) + merging_seconds(placed, index, profile, backward=backward)


def _of_the_last(placed: Placed, index: int, profile: Profile) -> Expr:
    """Causal attention of the last of n ranks that hold a part of every row each, over the mean: its s / n queries see s (1 - 1/2n) keys, not
    s / 2. Of rows of several documents no rank has more than another."""
    if profile.strategy.cp_partition_mode == "zigzag" or attention_documents(profile.strategy) is not None:
        return ONE
    axes = set(placed.iteration[index]["s"]) & set(placed.mesh.context_axes)
    return 2 - 1 / product(placed.mesh.degree(axis) for axis in axes)


def merging_seconds(placed: Placed, index: int, profile: Profile, *, backward: bool) -> Quantity:
    """What merges the steps of a ring of attention: a kernel a step forward, behind the last; three in every step backward."""
    merged, kernels = merged_bytes(placed, index, profile, backward=backward), ring_steps(placed, index, profile) * (3 if backward else 1)
    return Quantity(curves.memory_bound(merged, kind="elementwise") + (kernels - 1) * symbol("t_mem") if merged else ZERO, SECOND)


def _written_out_attention(placed: Placed, index: int, profile: Profile, *, backward: bool) -> Quantity:
    """Batched products over whole rows, and the kernels between them that read and write the scores (Megatron-Core
    transformer/dot_product_attention.py, fusions/fused_softmax.py; transformers' eager_attention_forward)."""
    rate = peak(placed.block.ops[index], profile.strategy)
    products = (_seconds(shape, rate, profile, grouped=False) for shape in attention_shapes(placed, index, backward=backward))
    passes = (curves.memory_bound(moved, kind="elementwise") for moved in attention_passes(placed, index, backward=backward))
    return Quantity(sum((*products, *passes), ZERO), SECOND)
