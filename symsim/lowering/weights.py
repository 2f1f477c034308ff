"""A block as what follows from its weights reads it: of kernels without weights, and of what others are given beside them, nothing is left.

What stays in memory for a step, and what is sent and updated at its end, is the same however a block computes between its weights. Strategies that
differ in that alone have equal blocks here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from symsim.algebra.expr import ONE
from symsim.ir.block import Block, Op, Tensor
from symsim.ir.messages import Message
from symsim.ir.operations import OPERATIONS
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import Differentiated

# in place of whatever a kernel reads that is no weight
_READ = Tensor("", (), "bf16")


@dataclass(frozen=True)
class OfWeights(Differentiated):
    """content: all that tells it from others, besides the mesh."""

    content: str

    @property
    def stands_on(self) -> tuple[Any, ...]:
        return self.content, self.placed.mesh


def of_weights(made: Differentiated) -> OfWeights:
    """Kernels that read weights, or that balance experts, with their weights; what goes into the block and out of it; and of the messages, for every
    axis one, without sizes."""
    block, placed = made.placed.block, made.placed
    ops = tuple(_of_op(block, op) for op in block.ops if _weights(block, op) or OPERATIONS[op.kind].inner == "balance")
    weights = dict.fromkeys(t for op in ops for t in op.inputs if t)
    weights |= dict.fromkeys(t.name for t in block.parameters())
    named = [name for name in dict.fromkeys((*block.inputs, *block.outputs, *weights)) if name in block.tensors]
    tensors = {name: block.tensors[name] for name in named} | {"": _READ}
    layouts = {name: dict(placed.layouts[name]) for name in named if name in placed.layouts} | {"": {}}
    least = Block(block.name, block.dims, tensors, ops, block.inputs, block.outputs)
    reduced = {name: axes for name, axes in made.reduced_over.items() if name in weights}
    forward, backward = (_groups(m for _, m in sent) for sent in (made.forward_messages, made.backward_messages))
    content = repr((least, layouts, reduced, forward, backward))
    return OfWeights(Placed(least, placed.mesh, layouts, {}, ()), (), forward, backward, reduced, content)


def _weights(block: Block, op: Op) -> bool:
    return any(block.tensors[t].kind == "parameter" for t in op.inputs)


def _of_op(block: Block, op: Op) -> Op:
    inputs = tuple(t if block.tensors[t].kind == "parameter" else "" for t in op.inputs)
    none: dict[str, Any] = dict(outputs=(), backward_products=(), saves=(), parts=(), regions=frozenset(), idle=frozenset(), frame="", recorded=False)
    return replace(op, inputs=inputs, **none)


def _groups(messages: Iterable[Message]) -> tuple[tuple[int, Message], ...]:
    """A message over every axis and its group, in the order of their names."""
    groups = {m.axis: m.group for m in messages}
    return tuple((0, Message("", "all_gather", axis, groups[axis], ONE, ONE, "bf16", "")) for axis in sorted(groups))
