"""autograd: the kernels that PyTorch runs for the derivative of an operation, where a module runs operation by operation, and what each moves.

A product of two tensors gives each its own product with the gradient, and sums that of one that was repeated along some dimensions; a power,
a root and a mean have the operations of their formulas; a tensor that several operations read has their gradients added up.
The gradient of a tensor whose parts are read is one copy of those of a split, laid side by side; each part that is taken by indices fills a whole
with zeros and is copied there, and the wholes are added up; so does what rows were taken of, to which their gradients are added. Of what was
written into its places of a new tensor the whole gradient is copied for each, last first, its place taken from there, and filled with zeros for
the one before. A whole lies as it is written down, and is copied into the order of what the heads were transposed from. (torch
tools/autograd/derivatives.yaml, csrc/autograd/FunctionsManual.cpp, custom_function.cpp CopySlices, input_buffer.cpp; aten/native/TensorShape.cpp
slice_backward, TensorAdvancedIndexing.cpp index_backward; aten/native/cuda/layer_norm_kernel.cu, whose backward is two kernels.)
"""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr
from symsim.ir.block import WIDTHS, Block, Op
from symsim.ir.operations import OPERATIONS, CrossEntropy, Norm, View
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import BackwardOp, elements


def forward(placed: Placed, op: Op) -> list[Expr]:
    """Bytes of each kernel of an operation that is several."""
    if OPERATIONS[op.kind].assigns:
        return [_bytes(placed, t) + place for t, place in _places(placed, op)]
    return [times * _bytes(placed, op.outputs[0]) for times in OPERATIONS[op.kind].kernels]


def derivative(placed: Placed, kernel: BackwardOp) -> list[Expr]:
    """Bytes of each kernel of an operation's derivative: before it what puts the gradient of its result together, behind it the sums of the
    gradients of what it reads; none where a gradient is handed on."""
    return [*joined(placed, kernel.forward), *_of_operation(placed, kernel), *sums(placed, kernel.forward)]


def _of_operation(placed: Placed, kernel: BackwardOp) -> list[Expr]:
    op, tensors = placed.block.ops[kernel.forward], placed.block.tensors
    whole = _bytes(placed, op.outputs[0])
    row = OPERATIONS[op.kind]
    if row.negates:
        return [moved for operand in op.inputs[1:2] if _needs(placed.block, operand) for moved in _negated(placed, operand, whole)]
    if row.hands_on:
        return []
    if row.divides:
        return _divided(placed, op)
    if row.assigns:
        return _assigned(placed, op)
    if row.keeps == "partners":
        return [moved for operand in _trained(placed.block, op) for moved in _product(placed, op, operand)]
    if row.derivative:
        first, *others = (times * whole for times in row.derivative)
        return [first + elements(placed, op.outputs[0]) * row.masks, *others]
    moved = sum((_bytes(placed, t) for t in (*kernel.reads, *kernel.writes)), ZERO) + elements(placed, op.inputs[0]) * row.masks
    if row.scatters:
        read_again = ZERO if op.inputs[0] in kernel.reads else _bytes(placed, op.inputs[0])
        return [_bytes(placed, op.inputs[0]), moved + read_again]
    weights = any(tensors[t].kind == "parameter" and tensors[t].gradient for t in op.inputs)
    if row.inner == "statistics" and op.of(Norm).norm == "LayerNorm" and weights:
        return [moved, whole + _bytes(placed, op.inputs[0])]
    inside = [_bytes(placed, t) for t in op.attrs.inside] if isinstance(op.attrs, CrossEntropy) else []
    return [*inside, moved + sum(inside, ZERO)]


def _product(placed: Placed, op: Op, operand: str) -> list[Expr]:
    """The gradient of one of two factors: that of the result times the other, in the result's type; summed where it was repeated, and cast."""
    tensors, whole = placed.block.tensors, _bytes(placed, op.outputs[0])
    other = next((t for t in op.inputs[:2] if t != operand), operand)
    made = [2 * whole + _bytes(placed, other)]
    if set(tensors[operand].dims) != set(tensors[op.outputs[0]].dims) or tensors[operand].dtype != tensors[op.outputs[0]].dtype:
        made.append(whole + _bytes(placed, operand))
    return made


def _divided(placed: Placed, op: Op) -> list[Expr]:
    """The gradient over the divisor; and of the divisor minus it times the result over the divisor, which is divided again, summed where it was
    repeated."""
    whole = _bytes(placed, op.outputs[0])
    if len(op.inputs) == 1:
        return [2 * whole]
    by = _bytes(placed, op.inputs[1])
    once = [2 * whole + by] if _needs(placed.block, op.inputs[0]) else []
    summed = [] if by == whole else [whole + by]
    return once + ([2 * whole + by, 2 * whole + by, 2 * whole, 3 * whole, *summed] if _needs(placed.block, op.inputs[1]) else [])


def _places(placed: Placed, op: Op) -> list[tuple[str, Expr]]:
    """Of an operation that writes what it reads into one tensor, the bytes that each has there; what is repeated has what the others leave."""
    dims = set(placed.block.tensors[op.outputs[0]].dims[:-1])
    own = {t: _bytes(placed, t) for t in op.inputs if dims <= set(placed.block.tensors[t].dims)}
    rest = _bytes(placed, op.outputs[0]) - sum(own.values(), ZERO)
    return [(t, own.get(t, rest)) for t in op.inputs]


def _assigned(placed: Placed, op: Op) -> list[Expr]:
    """For each of what was written the whole gradient copied, its place of that, zeros there for the one before, and a sum where it was repeated."""
    whole, made = _bytes(placed, op.outputs[0]), []
    for number, (operand, place) in reversed(list(enumerate(_places(placed, op)))):
        made += [2 * whole, 2 * place, *([place, 2 * place] if number else [])]
        made += [place + _bytes(placed, operand)] if place != _bytes(placed, operand) else []
    return made


def _negated(placed: Placed, operand: str, whole: Expr) -> list[Expr]:
    """The gradient of what is subtracted: that of the result, negated; summed where the operand was repeated."""
    own = _bytes(placed, operand)
    return [2 * whole] if own == whole else [2 * whole, whole + own]


def sums(placed: Placed, index: int) -> list[Expr]:
    """Bytes of the sums in which an operation's gradients join those that operations behind it have made of the same tensors."""
    block, op = placed.block, placed.block.ops[index]
    read = {t for later in block.ops[index + 1 :] if _contributes(block, later) for t in later.inputs}
    own = dict.fromkeys(t for t in op.inputs if block.tensors[t].kind != "parameter" and _needs(block, t))
    return [3 * _bytes(placed, t) for t in own if any(_overlap(placed, t, other) for other in read)]


def of_bias(placed: Placed, index: int) -> list[Expr]:
    """Bytes of the sum over tokens that is the gradient of a product's bias, which its weight gradient does not make."""
    op, tensors = placed.block.ops[index], placed.block.tensors
    (says,) = op.einsums
    biases = (t for t in op.inputs if tensors[t].kind == "parameter" and tensors[t].gradient and not {*tensors[t].dims} & {*says.contracted})
    return [_bytes(placed, op.outputs[0]) + _bytes(placed, t) for t in biases]


def joined(placed: Placed, index: int) -> list[Expr]:
    """Bytes of the kernels that put the gradient of an operation's result together from those of its parts."""
    return _assembled(placed, placed.block.ops[index].outputs[0])


def _assembled(placed: Placed, name: str) -> list[Expr]:
    """Of a tensor and, before it, of its parts and what they are views of in turn."""
    block, whole = placed.block, _bytes(placed, name)
    readers = [op for op in block.ops if name in op.inputs]
    views = [(op, t) for op in readers for t in op.outputs if op.is_view and block.tensors[t].view_of == name and _needs(block, t)]
    made = [moved for _, t in views for moved in _assembled(placed, t)]
    indexed = [t for op, t in views if op.of(View).indexed]
    split = [t for _, t in views if t not in indexed]
    if len(split) > 1 and any(elements(placed, t) != elements(placed, name) for t in split):
        made.append(2 * whole)
    made += [moved for t in indexed for moved in (whole, 2 * _bytes(placed, t)) if moved]
    others = bool(split) or any(_contributes(block, op) for op in readers)
    made += [3 * whole] * (len(indexed) - 1 + others if indexed else 0)
    if not _is_transposed(block, name) and any(_reads_heads_first(op) for op in readers):
        made.append(2 * whole)
    return made


def _reads_heads_first(op: Op) -> bool:
    return OPERATIONS[op.kind].heads_first or (op.is_view and op.of(View).heads_first)


def _is_transposed(block: Block, name: str) -> bool:
    """Whether it is a view of heads that were transposed, or a cast of such."""
    maker = next((op for op in block.ops if name in op.outputs), None)
    if maker is None or not OPERATIONS[maker.kind].casts:
        return maker is not None and maker.is_view and maker.of(View).heads_first
    return _is_transposed(block, maker.inputs[0])


def _contributes(block: Block, op: Op) -> bool:
    """Whether gradients go through it to what it reads, and it is more than a view."""
    return not op.is_view and OPERATIONS[op.kind].transpose != "none" and any(_needs(block, t) for t in op.outputs)


def _overlap(placed: Placed, one: str, other: str) -> bool:
    """Whether two tensors have elements in common; slices of one tensor beside one another have not."""
    block, owner = placed.block, placed.block.storage(one).name
    if block.storage(other).name != owner:
        return False
    return one in _views(block, other) or other in _views(block, one) or elements(placed, owner) in (elements(placed, one), elements(placed, other))


def _views(block: Block, name: str) -> list[str]:
    """A tensor and what it is a view of, as far as it is no part by indices, whose gradient is added to others' as a whole."""
    parent = block.tensors[name].view_of
    indexed = any(op.is_view and op.of(View).indexed and name in op.outputs for op in block.ops)
    return [name, *(_views(block, parent) if parent and not indexed else ())]


def _trained(block: Block, op: Op) -> list[str]:
    """The factors of a product that have gradients: of a parameter's copy, where the parameter is trained."""
    copied = any(block.tensors[t].gradient for t in op.inputs[2:])
    return [t for t in op.inputs[:2] if _needs(block, t) or (copied and block.tensors[t].kind == "index")]


def _needs(block: Block, name: str) -> bool:
    tensor = block.tensors[name]
    return tensor.gradient and (tensor.kind in ("activation", "parameter") or name in block.statistics)


def _bytes(placed: Placed, name: str) -> Expr:
    return elements(placed, name) * WIDTHS[placed.block.tensors[name].dtype]
