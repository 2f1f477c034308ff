"""The mesh of ranks and the placement of dimension names on it.

This is all a strategy says to the compiler: `a -> tp`, `f -> tp`, `s -> cp` (and `tp` where nothing else of an
operation uses it: that is sequence parallelism), `E -> ep`, `f_e -> etp`, `b -> dp`. Dense tensors live on
(tp, cp, dp), experts on (etp, ep, edp) over the same ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from symsim.expr import ONE, Expr, product, symbol
from symsim.ir import Block, Op, Tensor
from symsim.strategy import Strategy

# Dimensions that tensor parallelism splits: heads, feed-forward widths, vocabulary, and the merged stream of MTP.
TENSOR_PARALLEL = frozenset({"a", "g", "f", "f_s", "V", "h_o", "H_k", "H_v"})
EXPERT_TENSOR_PARALLEL = frozenset({"f_e"})

Layout = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Mesh:
    """Axis degrees (numbers: which axes exist) and their symbols, and the type gradients are computed in."""

    degrees: Mapping[str, int]
    sequence_parallel: bool
    context_axes: tuple[str, ...]
    head_context_axes: tuple[str, ...]
    ring_axes: tuple[str, ...]
    precision: str = "bf16"

    def active(self, axis: str) -> bool:
        return self.degrees.get(axis, 1) > 1

    def degree(self, axis: str) -> Expr:
        return symbol(axis) if self.active(axis) else ONE

    def group(self, axes: Iterable[str]) -> Expr:
        return product(self.degree(a) for a in axes)


def mesh_of(strategy: Strategy, *, gathers_in_ring: bool = False) -> Mesh:
    """The mesh a strategy spans. Context parallelism by `a2a` moves from tokens to heads inside attention; `p2p` passes
    keys and values around a ring; `a2a+p2p` is both, on two axes. gathers_in_ring: `all_gather` belongs to the ring.
    """
    degrees = {
        "tp": strategy.tp,
        "cp": strategy.cp,
        "dp": strategy.dp,
        "ep": strategy.ep,
        "etp": strategy.expert_tp,
        "edp": strategy.expert_dp,
        "pp": strategy.pp,
        "vpp": strategy.vpp,
        "inst": strategy.num_distributed_optimizer_instances,
    }
    context: tuple[str, ...] = ("cp",)
    by_heads: tuple[str, ...] = ("cp",) if strategy.cp_comm_type == "a2a" else ()
    if strategy.cp_comm_type == "a2a+p2p" and strategy.hierarchical_context_parallel_sizes:
        inner, outer = strategy.hierarchical_context_parallel_sizes
        degrees |= {"cp_a2a": inner, "cp_p2p": outer}
        context, by_heads = ("cp_a2a", "cp_p2p"), ("cp_a2a",)
    ring = {"p2p": ("cp",), "a2a+p2p": ("cp_p2p",)}.get(strategy.cp_comm_type, ())
    if gathers_in_ring:
        ring = ("cp",)

    def existing(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(a for a in axes if degrees.get(a, 1) > 1)

    return Mesh(degrees, strategy.sp, existing(context), existing(by_heads), existing(ring), strategy.precision)


def _role(block: Block, dim: str) -> str | None:
    for part in (dim, *block.dims[dim].parts):
        if part == "s":
            return "sequence"
        if part in TENSOR_PARALLEL:
            return "tp"
        if part in EXPERT_TENSOR_PARALLEL:
            return "etp"
    return {"b": "data", "R": "rows", "E": "experts"}.get(dim)


def place(mesh: Mesh, block: Block, op: Op) -> Layout:
    """Which axes shard each dimension of the operation's iteration space; an axis shards one kind of dimension only.

    Weights do not move: a dimension named in the tables above takes its axis first; the sequence (or the rows of
    experts) takes what is left.
    """
    roles = {d: _role(block, d) for d in block.iteration(op)}
    usable = {a for a in mesh.degrees if mesh.active(a) and a not in op.idle}
    has = set(roles.values())
    heads_take = mesh.head_context_axes if op.kind == "attention" else ()
    layout: dict[str, tuple[str, ...]] = {}
    for dim, role in roles.items():
        axes: tuple[str, ...] = ()
        if role == "tp":
            axes = ("tp", *heads_take)
        elif role == "etp":
            axes = ("etp",)
        elif role == "sequence":
            axes = tuple(a for a in mesh.context_axes if a not in heads_take)
            if mesh.sequence_parallel and "tp" not in has:
                axes += ("tp",)
        elif role == "rows" and "etp" not in has:
            axes = ("etp",)
        elif role == "experts":
            axes = ("ep",)
        elif role == "data":
            axes = ("dp",)
        layout[dim] = tuple(a for a in axes if a in usable)
    return layout


def local_size(mesh: Mesh, block: Block, dim: str, axes: tuple[str, ...]) -> Expr:
    """Elements of a dimension one rank holds. `b` is the micro-batch of one rank already, so dp does not divide it."""
    return block.dims[dim].size / mesh.group(a for a in axes if a != "dp")


def local_elements(mesh: Mesh, block: Block, tensor: Tensor, layout: Layout) -> Expr:
    return product(local_size(mesh, block, d, layout.get(d, ())) for d in tensor.dims)


def parameter_layout(mesh: Mesh, block: Block, tensor: Tensor) -> Layout:
    """Where a weight lives: its own dimensions' axes."""
    axes = {"tp": ("tp",), "etp": ("etp",), "experts": ("ep",)}
    roles = {d: _role(block, d) or "" for d in tensor.dims}
    return {d: tuple(a for a in axes.get(role, ()) if mesh.active(a)) for d, role in roles.items()}
