"""Weights that several layers use, as elements of one rank: what a layer has from another, and what it lends.

torch's fully_shard takes what layers share as a unit of its own: it is gathered for every layer that has it, and its gradient, which autograd
sums until the last of them has run backward, is scattered once (torch autograd/input_buffer.cpp; distributed/fsdp/_fully_shard, run on a model
whose layers are one module)."""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr
from symsim.algebra.key import layers
from symsim.cost.count import counted_parameters
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.pipeline.shared import holder_of


def borrowed(lowered: Lowered, kind: str) -> Expr:
    """The weights that a kind of layer has from an earlier one."""
    if not lowered.profile.model.layer_kinds[kind].borrows:
        return ZERO
    placed = lowered.blocks[kind].placed
    return sum((elements(placed, t.name) for t in placed.block.parameters() if t.borrowed), ZERO)


def lent(lowered: Lowered, kind: str, *, trained: bool = False) -> Expr:
    """The weights of a kind of layer that later layers have from it; trained: of those that are."""
    kinds = lowered.profile.model.layer_kinds.items()
    by = [k for k in lowered.profile.model.kind_names() if holder_of(k, kinds) == kind]
    names = {t.name for k in by for t in lowered.blocks[k].placed.block.parameters() if t.borrowed}
    placed = lowered.blocks[kind].placed
    return sum((elements(placed, t.name) for t in counted_parameters(placed) if t.name in names and (t.gradient or not trained)), ZERO)


def lent_by_stage(lowered: Lowered) -> Expr:
    """The trained ones of all layers of stage i."""
    return sum((lent(lowered, kind, trained=True) * layers(kind).expr for kind in lowered.profile.model.kind_names()), ZERO)
