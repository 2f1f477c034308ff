"""autograd: the kernels that PyTorch runs for the derivative of an operation, where a module runs operation by operation, and what each moves.

A product of two tensors gives each its own product with the gradient, and sums that of one that was repeated along some dimensions; a power,
a root and a mean have the operations of their formulas; a tensor that several operations read has their gradients added up. (torch
tools/autograd/derivatives.yaml, csrc/autograd/FunctionsManual.cpp, input_buffer.cpp; aten/native/cuda/layer_norm_kernel.cu, whose backward
is two kernels.)
"""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr
from symsim.ir.block import WIDTHS, Block, Op
from symsim.ir.operations import OPERATIONS, CrossEntropy, Norm
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import BackwardOp, elements


def forward(placed: Placed, op: Op) -> list[Expr]:
    """Bytes of each kernel of an operation that is several."""
    return [times * _bytes(placed, op.outputs[0]) for times in OPERATIONS[op.kind].kernels]


def derivative(placed: Placed, kernel: BackwardOp) -> list[Expr]:
    """Bytes of each kernel of an operation's derivative, with the sums of the gradients of what it reads; none where a gradient is handed on."""
    return [*_of_operation(placed, kernel), *sums(placed, kernel.forward)]


def _of_operation(placed: Placed, kernel: BackwardOp) -> list[Expr]:
    op, tensors = placed.block.ops[kernel.forward], placed.block.tensors
    whole = _bytes(placed, op.outputs[0])
    row = OPERATIONS[op.kind]
    if row.hands_on:
        return []
    if row.keeps == "partners":
        return [moved for operand in _trained(placed.block, op) for moved in _product(placed, op, operand)]
    if row.derivative:
        return [times * whole for times in row.derivative]
    moved = sum((_bytes(placed, t) for t in (*kernel.reads, *kernel.writes)), ZERO) + elements(placed, op.inputs[0]) * row.masks
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
    """Bytes of the copies that lay the gradients of the slices of a product's result side by side."""
    tensors, made = placed.block.tensors, placed.block.ops[index].outputs[0]
    slices = [t for t, tensor in tensors.items() if tensor.view_of == made and _needs(placed.block, t)]
    return [2 * _bytes(placed, made)] if len(slices) > 1 and any(elements(placed, t) != elements(placed, made) for t in slices) else []


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
    """A tensor and what it is a view of."""
    parent = block.tensors[name].view_of
    return [name, *(_views(block, parent) if parent else ())]


def _trained(block: Block, op: Op) -> list[str]:
    """The factors of a product that have gradients: of a parameter's copy, where the parameter is trained."""
    copied = any(block.tensors[t].gradient for t in op.inputs[2:])
    return [t for t in op.inputs[:2] if _needs(block, t) or (copied and block.tensors[t].kind == "index")]


def _needs(block: Block, name: str) -> bool:
    tensor = block.tensors[name]
    return tensor.gradient and (tensor.kind in ("activation", "parameter") or name in block.statistics)


def _bytes(placed: Placed, name: str) -> Expr:
    return elements(placed, name) * WIDTHS[placed.block.tensors[name].dtype]
