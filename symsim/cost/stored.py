"""Bytes of frozen weights as they are stored (`symsim/ir/quantised.py`): what stays, what is gathered, and what making them anew moves."""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr, product
from symsim.ir.block import WIDTHS, Op
from symsim.ir.operations import PRODUCTS, Dequantise, Projection
from symsim.ir.quantised import STORED
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements, room
from symsim.lowering.lowered import Lowered


def stored_products(placed: Placed, expert: bool | None = None) -> list[Op]:
    """The products of a block whose weights are stored in few bits; expert: those of experts, or all others."""
    own = (op for op in placed.block.ops if op.kind in PRODUCTS and op.of(Projection).stored)
    return [op for op in own if expert is None or (op.module == "experts") == expert]


def stored_elements(lowered: Lowered, block: str, expert: bool | None = None) -> Expr:
    """Elements of a block's weights that are stored so, on one rank."""
    placed = lowered.blocks[block].placed
    return sum((elements(placed, op.inputs[1]) for op in stored_products(placed, expert)), ZERO)


def instead(lowered: Lowered, block: str, shard: Expr, expert: bool | None = None) -> Expr:
    """Bytes that a rank holds more, less than none, for a block's weights that are stored so; shard: the ranks that share a copy."""
    placed, whole = lowered.blocks[block].placed, WIDTHS[lowered.profile.strategy.precision]
    found = ZERO
    for op in stored_products(placed, expert):
        row, n = STORED[op.of(Projection).stored], elements(placed, op.inputs[1])
        found = found + n * (row.width - whole) / shard + scales(placed, op) / (shard if row.sharded else 1)
    return found


def instead_gathered(lowered: Lowered, block: str) -> Expr:
    """The same of what is gathered of a block."""
    whole = WIDTHS[lowered.profile.strategy.precision]
    return stored_elements(lowered, block) * (WIDTHS[stored_type(lowered)] - whole) if stored_products(lowered.blocks[block].placed) else ZERO


def stored_type(lowered: Lowered) -> str:
    """The type in which weights that are stored so are gathered."""
    return STORED[lowered.profile.strategy.quantize_base].gathered


def scales(placed: Placed, op: Op) -> Expr:
    """Bytes of a weight's scales."""
    row, n = STORED[op.of(Projection).stored], elements(placed, op.inputs[1])
    if not row.per_row:
        return n * row.scale
    return n * row.per_row / product(placed.block.dims[d].size for d in op.einsums[0].contracted)


def made_anew(placed: Placed, weight: str, stored: str) -> Expr:
    """Bytes that making a weight anew reads and writes."""
    return elements(placed, weight) * (STORED[stored].moved + WIDTHS[placed.mesh.precision])


def beside_forward(placed: Placed, op: Op) -> Expr:
    """Bytes held inside the kernel that makes a weight anew, besides it."""
    return room(placed, op.inputs[0]) * STORED[op.attrs.stored].inside if isinstance(op.attrs, Dequantise) else ZERO


def beside_backward(placed: Placed, op: Op, *, making: bool) -> Expr:
    """Bytes of a product's weight that is made anew for backward, and what is held while it is made."""
    if not isinstance(op.attrs, Projection) or not op.attrs.stored:
        return ZERO
    inside = STORED[op.attrs.stored].inside if making else 0
    return room(placed, op.inputs[1]) * (WIDTHS[placed.mesh.precision] + inside)
