"""Seconds of every kernel of a block: which closed form of `curves` it takes, and the dimensions it puts in.

A matrix product takes its rows, columns and depth from the dimensions of its own einsum: what the operands share with
the output is rows or columns, what is contracted is depth; the transposes permute the three. Attention takes heads and
lengths. Everything else moves bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from symsim import curves
from symsim.expr import ONE, Expr, minimum, product, symbol
from symsim.formula import SECOND, Quantity
from symsim.ir import WIDTHS, Op
from symsim.mesh import local_size
from symsim.passes.communicate import Placed
from symsim.passes.count import touched, traffic
from symsim.passes.differentiate import BackwardOp
from symsim.passes.kernels import Profile, multiplied_in
from symsim.strategy import Strategy

PERMUTING = ("permute", "unpermute", "exchange", "exchange_back", "exchange_gather", "exchange_scatter", "sort", "index", "top_k")

# HBM passes of a kernel that is written as several, over the bytes its tensors have: unfused cross entropy reads and
# writes fp32 logits in ten elementwise kernels and reductions forward, and in three backward
# (megatron.core tensor_parallel/cross_entropy.py, counted in bytes a logit: 38 and 14)
UNFUSED_LOSS_FORWARD, UNFUSED_LOSS_BACKWARD = 38, 14


# Kernels that one operation issues where it is not one kernel, forward and backward, fusion=te: unfused rotary embedding
# (models/common/embeddings/rope_utils.py), router (moe_utils.py topk_routing_with_score_function), token permutation and
# the loss (tensor_parallel/cross_entropy.py), counted in Megatron-Core 0.20; a norm's and attention's backward have two and three
LAUNCHES: dict[str, tuple[int, int]] = {
    "rope": (6, 6),
    "top_k": (18, 10),
    "permute": (8, 4),
    "unpermute": (4, 4),
    "exchange": (4, 4),
    "exchange_back": (4, 4),
    "cross_entropy": (12, 4),
    "embed": (4, 2),
    "norm": (1, 2),
    "attention": (1, 3),
}


def launches(placed: Placed, index: int, profile: Profile, *, backward: bool) -> Expr:
    """Kernels that the host launches for an operation. A grouped GEMM is one product an expert on the device's streams
    (TransformerEngine cpp_extensions/gemm.py general_grouped_gemm); experts that run one by one launch all they do apart."""
    op = placed.block.ops[index]
    experts = local_size(placed.mesh, placed.block, "E", ("ep",) if placed.mesh.active("ep") else ()) if profile.model.moe else ONE
    if op.kind == "grouped":
        return experts
    if op.module == "experts" and profile.assumptions["moe_grouped_gemm"] == "false":
        return experts
    return ONE * (LAUNCHES.get(op.kind, (1, 1))[backward] if profile.strategy.fusion == "te" else 1)


def peak(op: Op, strategy: Strategy) -> Expr:
    """The rate of the multiplier that an operation uses, FLOP/s."""
    return symbol(f"Phi_{multiplied_in(op, strategy)}")


def forward_seconds(placed: Placed, index: int, profile: Profile) -> Quantity:
    """One forward kernel."""
    op, strategy = placed.block.ops[index], profile.strategy
    if op.kind in ("einsum", "grouped"):
        return _product(placed, index, "forward", profile)
    if op.kind == "attention":
        return _attention(placed, index, backward=False, profile=profile)
    moved = traffic(placed, touched(op)).expr
    if op.kind == "cross_entropy":
        return Quantity(curves.memory_bound(_loss_bytes(placed, op, strategy, moved, UNFUSED_LOSS_FORWARD), kind="cross_entropy"), SECOND)
    return _moving(placed, index, op.products, moved, strategy)


def backward_seconds(placed: Placed, kernel: BackwardOp, profile: Profile) -> Quantity:
    """One backward kernel."""
    op, strategy = placed.block.ops[kernel.forward], profile.strategy
    if op.kind in ("einsum", "grouped"):
        return _product(placed, kernel.forward, kernel.label, profile)
    if op.kind == "attention":
        return _attention(placed, kernel.forward, backward=True, profile=profile)
    moved = traffic(placed, [*kernel.reads, *kernel.writes]).expr
    if op.kind == "cross_entropy":
        return Quantity(curves.memory_bound(_loss_bytes(placed, op, strategy, moved, UNFUSED_LOSS_BACKWARD), kind="cross_entropy"), SECOND)
    return _moving(placed, kernel.forward, kernel.products, moved, strategy)


def _moving(placed: Placed, index: int, products: Iterable[tuple[str, ...]], moved: Expr, strategy: Strategy) -> Quantity:
    """A kernel bound by HBM; small products inside it (a convolution, a recurrence) run at the multiplier's rate."""
    op = placed.block.ops[index]
    kind = "permute" if op.kind in PERMUTING else "elementwise"
    found = Quantity(curves.memory_bound(moved, kind=kind), SECOND)
    work = sum((2 * _size(placed, index, dims) for dims in products), start=0 * ONE)
    if work:
        return Quantity(found.expr + work / peak(op, strategy), SECOND)
    return found


def _loss_bytes(placed: Placed, op: Op, strategy: Strategy, moved: Expr, unfused: int) -> Expr:
    if strategy.cross_entropy_fusion != "unfused" or strategy.fusion == "eager":
        return moved
    logits = placed.block.tensors[op.inputs[0]]
    return traffic(placed, [op.inputs[0]]).expr * unfused / WIDTHS[logits.dtype]


def _size(placed: Placed, index: int, dims: Iterable[str]) -> Expr:
    layout = placed.iteration[index]
    return product(local_size(placed.mesh, placed.block, d, layout.get(d, ())) for d in dims)


def _product(placed: Placed, index: int, kind: str, profile: Profile) -> Quantity:
    """forward: rows x new columns x contracted; dgrad: rows x contracted x new; wgrad: new x contracted x rows."""
    block, op, strategy = placed.block, placed.block.ops[index], profile.strategy
    tensors = block.tensors
    (dims,) = op.products
    contracted = set(op.attrs["contract"])
    read = set(tensors[op.inputs[0]].dims) | ({"R"} if op.kind == "grouped" else set())
    rows = _size(placed, index, [d for d in dims if d in read and d not in contracted])
    depth = _size(placed, index, [d for d in dims if d in contracted])
    columns = _size(placed, index, [d for d in dims if d not in read])
    groups = ONE
    if op.kind == "grouped":
        groups = local_size(placed.mesh, block, "E", ("ep",) if placed.mesh.active("ep") else ())
        rows = rows / groups
    width = 1 if multiplied_in(op, strategy) == "fp8" else WIDTHS[tensors[op.inputs[0]].dtype]
    out = WIDTHS[tensors[op.outputs[0]].dtype]
    m, n, k = {"forward": (rows, columns, depth), "dgrad": (rows, depth, columns), "wgrad": (columns, depth, rows)}[kind]
    if kind == "wgrad":
        out = 4 if strategy.grad_reduce_in_fp32 else WIDTHS[strategy.precision]
    if groups != ONE and profile.assumptions["moe_grouped_gemm"] == "false":
        return Quantity(groups * curves.gemm(m, n, k, kind=kind, width_in=width, width_out=out, peak=peak(op, strategy)), SECOND)
    return Quantity(curves.gemm(m, n, k, groups=groups, kind=kind, width_in=width, width_out=out, peak=peak(op, strategy)), SECOND)


def _attention(placed: Placed, index: int, *, backward: bool, profile: Profile) -> Quantity:
    """A rank's heads and queries against all keys they may see, whatever convention counts their FLOPs."""
    op, block, strategy = placed.block.ops[index], placed.block, profile.strategy
    at, packed = op.attrs, strategy.packed_document_length is not None

    def local(dim: str) -> Expr:
        return _size(placed, index, [dim])

    reach = symbol("u") if packed else symbol("s")
    keys = reach if at["keys"] == "n_z" else minimum(symbol("w"), reach)  # a chunk is a short causal sequence, a window a full band
    if any(block.tensors[t].dims[-1:] == ("z",) and block.tensors[t].kind != "table" for t in op.outputs):
        return _unfused_attention(placed, index, backward=backward, profile=profile)
    seconds = curves.attention(
        local("b"),
        local(at["heads"]),
        local("s"),
        keys,
        block.dims[at["key_dim"]].size,
        block.dims[at["value_dim"]].size,
        causal=at["keys"] != "n_w",
        backward=backward,
        peak=peak(op, strategy),
    )
    return Quantity(seconds, SECOND)


def _unfused_attention(placed: Placed, index: int, *, backward: bool, profile: Profile) -> Quantity:
    """Two batched products over whole rows, and a softmax between them that reads and writes the scores; with dropout the
    probabilities and a byte mask once more (Megatron-Core transformer/dot_product_attention.py, fusions/fused_softmax.py)."""
    op, block, strategy = placed.block.ops[index], placed.block, profile.strategy
    at, rate, width = op.attrs, peak(op, strategy), WIDTHS[block.tensors[op.inputs[0]].dtype]
    queries, keys, groups = _size(placed, index, ["s"]), symbol("s"), _size(placed, index, ["b", at["heads"]])
    d_qk, d_v = block.dims[at["key_dim"]].size, block.dims[at["value_dim"]].size

    def product(m: Expr, n: Expr, k: Expr) -> Expr:
        return curves.gemm(m, n, k, groups=groups, kind="forward", width_in=width, width_out=width, peak=rate, grouped=False)

    scores = groups * queries * keys * width
    dropped = scores * (2 * width + 1) / width if profile.model.attention_dropout else 0 * scores
    moved = (3 if backward else 2) * scores
    if backward:
        products = product(queries, d_qk, keys) + product(keys, d_qk, queries) + product(queries, keys, d_v) + product(keys, d_v, queries)
    else:
        products = product(queries, keys, d_qk) + product(queries, d_v, keys)
    passes = curves.memory_bound(moved, kind="elementwise") + (curves.memory_bound(dropped, kind="elementwise") if dropped else dropped)
    return Quantity(products + passes, SECOND)
