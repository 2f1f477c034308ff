"""The mesh of ranks, and where an operation's dimensions lie on it.

Dense tensors live on (tp, cp, dp), experts on (etp, ep, edp) over the same ranks. Which dimension lies on which axis is the
strategy's table (`names.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from symsim.algebra.expr import ONE, Expr, product, symbol
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import reading
from symsim.ir.block import Block, Op, Tensor
from symsim.ir.operations import OPERATIONS, WHOLE_SEQUENCES
from symsim.placement.names import Axes, Placement, placement_of

Layout = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Mesh:
    """Axis degrees (numbers: which axes exist) and their symbols, and the type gradients are computed in. returns_output: attention's output is kept
    where its exchange brought it, and comes back for the backward."""

    degrees: Mapping[str, int]
    sequence_parallel: bool
    context_axes: tuple[str, ...]
    ring_axes: tuple[str, ...]
    placement: Placement
    precision: str = "bf16"
    returns_output: bool = False

    @property
    def stands_on(self) -> tuple[Any, ...]:
        """What tells it from others, besides which axes it has."""
        return self.degrees, self.sequence_parallel, self.context_axes, self.ring_axes, self.placement, self.precision, self.returns_output

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
    kind = strategy.cp_comm_type if strategy.cp > 1 else "p2p"
    if kind == "a2a+p2p" and strategy.hierarchical_context_parallel_sizes:
        inner, outer = strategy.hierarchical_context_parallel_sizes
        degrees |= {"cp_a2a": inner, "cp_p2p": outer}
        context = ("cp_a2a", "cp_p2p")
    ring = {"p2p": ("cp",), "a2a+p2p": ("cp_p2p",)}.get(kind, ())
    if gathers_in_ring:
        ring = ("cp",)

    def existing(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(a for a in axes if degrees.get(a, 1) > 1)

    axes, returns = reading(strategy, "axis", degrees), strategy.cp_saved_output == "projection"
    return Mesh(axes, strategy.sp, existing(context), existing(ring), placement_of(strategy), strategy.precision, returns)


def place(mesh: Mesh, block: Block, op: Op) -> Layout:
    """Which axes shard each dimension of the operation's iteration space: those of the strategy's table that exist and that the
    operation uses. What is left is taken last, so that weights do not move: tokens give way to them, and are whole where one passes on to another.
    """
    row = OPERATIONS[op.kind]
    attends, whole = row.role == "attention", row.whole_sequences or WHOLE_SEQUENCES in op.parts
    wanted = {d: _axes(mesh, block, d, op.name, attention=attends, whole=whole) for d in block.iteration(op)}
    taken = {a for axes in wanted.values() for a in axes.always}

    def usable(axes: Axes) -> tuple[str, ...]:
        left = () if row.whole_sequences or row.any_token else axes.left
        return tuple(a for a in (*axes.always, *(a for a in left if a not in taken)) if mesh.active(a) and a not in op.idle)

    return {d: usable(axes) for d, axes in wanted.items()}


def _axes(mesh: Mesh, block: Block, dim: str, within: str, *, attention: bool = False, whole: bool = False) -> Axes:
    """Where a dimension lies; one of several parts lies where the first of them that the table has does."""
    part = next((p for p in (dim, *block.dims[dim].parts) if p in mesh.placement.dims), dim)
    return mesh.placement.of(part, within=within, attention=attention, whole=whole)


def _dividing(axes: Iterable[str]) -> Iterator[str]:
    """Of axes that a dimension lies on those that divide it. `b` is the micro-batch of one rank already, so dp does not."""
    return (a for a in axes if a != "dp")


def divisor(mesh: Mesh, axes: Iterable[str]) -> Expr:
    """What axes divide a dimension by that lies on them."""
    return mesh.group(_dividing(axes))


def local_size(mesh: Mesh, block: Block, dim: str, axes: tuple[str, ...]) -> Expr:
    """Elements of a dimension one rank holds; axes: of a layout, which has those alone that are there."""
    return block.dims[dim].size / product(map(symbol, _dividing(axes)))


def local_elements(mesh: Mesh, block: Block, tensor: Tensor, layout: Layout) -> Expr:
    return product(local_size(mesh, block, d, layout.get(d, ())) for d in tensor.dims)


def parameter_layout(mesh: Mesh, block: Block, tensor: Tensor, reader: str) -> Layout:
    """Where a weight lives: its own dimensions' axes, in the operation that reads it."""
    found = {d: _axes(mesh, block, d, reader).always for d in tensor.dims}
    return {d: tuple(a for a in axes if mesh.active(a)) for d, axes in found.items()}
