"""A loss with the output layer in it: the products that it runs forward and backward, and the bytes between them.

Of every piece of the tokens (or of the vocabulary) the logits, the passes over them, and the gradients of hidden states and weight, in forward
where both are made at once, else in backward, where the logits come first once more. What stays inside a kernel is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, product
from symsim.cost.shapes import Shape, size
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS, Block, Op
from symsim.ir.operations import LinearCrossEntropy
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.placement.mesh import local_size


@dataclass(frozen=True)
class Work:
    """shapes: products of a piece, one after the other; passes: bytes of each kernel over its logits; after: bytes of kernels behind all
    pieces."""

    pieces: Expr
    shapes: tuple[Shape, ...]
    passes: tuple[Expr, ...]
    after: tuple[Expr, ...]

    @property
    def bytes(self) -> Expr:
        return self.pieces * sum((*(s.bytes for s in self.shapes), *self.passes), ZERO) + sum(self.after, ZERO)


def linear_loss_bytes(placed: Placed, index: int, strategy: Strategy, *, backward: bool) -> Expr:
    """What it reads and writes in HBM on one rank."""
    return linear_loss_work(placed, index, strategy, backward=backward).bytes


def linear_loss_work(placed: Placed, index: int, strategy: Strategy, *, backward: bool) -> Work:
    """What one rank runs."""
    op = placed.block.ops[index]
    at = op.of(LinearCrossEntropy)
    if backward and at.at_once:
        return Work(ONE, (), (), () if at.adds else _scaled(placed, op, at) + _added(placed, op, strategy))
    pieces, logits, gradients = _products(placed, index, at, columns=backward)
    if not any(placed.block.tensors[t].gradient for t in op.inputs if placed.block.tensors[t].kind == "parameter"):
        gradients = gradients[:1]
    passes = (logits.m * logits.n * at.moved,) if at.moved else ()
    if not backward:
        # where each piece adds its weight gradient, forward has what is backward's elsewhere
        after = (_cast(placed, op, at) if at.at_once else ()) + (_added(placed, op, strategy) if at.adds else ())
        return Work(pieces, (logits, *(gradients if at.at_once else ())), passes, after)
    return Work(pieces, (logits, *gradients), passes, _cast(placed, op, at) + _added(placed, op, strategy))


def _products(placed: Placed, index: int, at: LinearCrossEntropy, *, columns: bool) -> tuple[Expr, Shape, tuple[Shape, ...]]:
    """How many pieces, and of one of them the logits and the two gradients."""
    op = placed.block.ops[index]
    (says,) = op.einsums
    rows = size(placed, index, [d for d in says.result if d in says.operands[0]])
    depth = size(placed, index, says.contracted)
    new = size(placed, index, [d for d in says.result if d not in says.operands[0]])
    pieces = ceil(new / at.columns) if columns and at.columns else at.pieces
    if columns and at.columns:
        new = new / pieces
    else:
        rows = rows / pieces
    width = WIDTHS[placed.block.tensors[op.inputs[0]].dtype]
    logits = Shape(rows, new, depth, ONE, "forward", width, width)
    # the weight's gradient is summed over pieces of tokens, that of the hidden states over columns; the latter has few tiles and a long depth
    of_hidden = Shape(rows, depth, new, ONE, "dgrad", width, WIDTHS[at.hidden], accumulates=columns and bool(at.columns), split=True)
    of_weight = Shape(new, depth, rows, ONE, "wgrad", width, width, accumulates=pieces != ONE and not (columns and at.columns))
    if at.in_kernel or (at.columns and not columns):
        logits = replace(logits, width_out=0)
    if at.in_kernel:
        of_hidden = replace(of_hidden, width_in=0, biases=width * new * depth)
        of_weight = replace(of_weight, width_in=0, biases=width * rows * depth)
    trained = [placed.block.tensors[t].gradient for t in op.inputs[:2]]
    return pieces, logits, tuple(shape for shape, made in zip((of_hidden, of_weight), trained) if made)


def _scaled(placed: Placed, op: Op, at: LinearCrossEntropy) -> tuple[Expr, ...]:
    """Both gradients times that of the loss, where they lie."""
    return tuple(2 * elements(placed, t) * WIDTHS[placed.block.tensors[t].dtype] for t in op.saves) if at.scaled else ()


def _cast(placed: Placed, op: Op, at: LinearCrossEntropy) -> tuple[Expr, ...]:
    """The gradient of the hidden states from the type that it is summed in."""
    hidden = placed.block.tensors[op.inputs[0]]
    return (elements(placed, hidden.name) * (WIDTHS[at.hidden] + WIDTHS[hidden.dtype]),) if at.hidden != hidden.dtype else ()


def _added(placed: Placed, op: Op, strategy: Strategy) -> tuple[Expr, ...]:
    """The weight's gradient added to the accumulated one: reads both, writes the sum."""
    kept = 4 if strategy.grad_reduce_in_fp32 else WIDTHS[strategy.precision]
    weights = [t for t in op.inputs if placed.block.tensors[t].kind == "parameter" and placed.block.tensors[t].gradient]
    return tuple(elements(placed, t) * (WIDTHS[placed.block.tensors[t].dtype] + 2 * kept) for t in weights)


def forward_in_turn(block: Block, op: Op, live: Expr, size: Callable[[str], Expr]) -> tuple[tuple[str, Expr, Expr, Expr], ...]:
    """What forward holds where every piece runs backward by itself, of its name, activations, parameter gradients so far and those just made: the
    loss of a piece, its products, whose logits live until the next piece's are there, and the end, as the gradient of the hidden states is cast."""
    pieces = [t for t in op.outputs if "V" in block.tensors[t].dims]
    held, logits = sum(map(size, pieces), ZERO), size(pieces[0])
    weights = sum((size(t) for t in op.inputs if block.tensors[t].kind == "parameter" and block.tensors[t].gradient), ZERO)
    before = live - sum((size(t) for t in op.saves if t in op.outputs), ZERO)
    return (
        (op.name, before, weights, ZERO),
        (f"{op.name}, products", before - held + 2 * logits, 2 * weights, weights),
        (f"{op.name}, cast", live - held, weights, ZERO),
    )


def beside_backward(placed: Placed, op: Op) -> Expr:
    """Bytes that backward makes on its way: the gradient of some columns of the logits, and that of the hidden states in its own type."""
    at = op.of(LinearCrossEntropy)
    if at.at_once or not at.columns:
        return ZERO
    hidden, layout = placed.block.tensors[op.inputs[0]], placed.layouts[op.inputs[0]]
    rows = product(local_size(placed.mesh, placed.block, d, layout[d]) for d in at.rows)
    return rows * at.columns * WIDTHS[hidden.dtype] + elements(placed, hidden.name) * WIDTHS[at.hidden]
