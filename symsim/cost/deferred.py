"""Weight gradients of the output layer that wait until the last stage has nothing else to do (defer_embedding_wgrad_compute).

Of the D micro-batches whose gradient waits, the stage keeps the layer's input and the gradient of its logits. The products run while the
gradients of the last micro-batch go back through the other stages; what is longer than that comes on top:

    t_deferred = max(0, D t_w_head - (sum of the other stages' backward) / vpp - (pp - 1) t_c)

Sources: Megatron-Core tensor_parallel/layers.py ColumnParallelLinear (which micro-batches wait), pipeline_parallel/schedules.py
finish_embedding_wgrad_compute.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_block, of_stage, of_step
from symsim.algebra.kinds import HEAD
from symsim.algebra.quantity import BYTE, SECOND, Quantity
from symsim.algebra.reductions import stages_at
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.ir.operations import PRODUCTS, Redistribution
from symsim.ir.roles import role_of
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered


def deferred(strategy: Strategy) -> Expr:
    """Micro-batches whose weight gradient of the output layer waits."""
    if not strategy.defer_embedding_wgrad_compute:
        return ZERO
    limit = strategy.wgrad_deferral_limit
    return minimum(symbol("m"), limit) if limit else symbol("m")


def at_once(strategy: Strategy, block: str) -> Expr:
    """The share of a block's weight gradients that do not wait."""
    return 1 - deferred(strategy) / symbol("m") if role_of(block).behind else ONE


def define_waiting(book: Derivation, lowered: Lowered) -> Key | None:
    """Defines what one of them keeps: the input of the output layer, as it is kept, and the gradient of the logits. None where nothing waits."""
    if not lowered.profile.strategy.defer_embedding_wgrad_compute:
        return None
    meaning = "bytes that wait for a micro-batch's weight gradient of the output layer: its input and the gradient of the logits"
    key = of_block("A", HEAD, part="waiting")
    book.define(key, Quantity(_kept(lowered), BYTE), meaning, unit=BYTE, latex=r"A^{\mathrm{waiting}}_{\mathrm{head}}")
    return key


def _kept(lowered: Lowered) -> Expr:
    placed = lowered.blocks[HEAD].placed
    product = next(op for op in placed.block.ops if op.module == "lm_head" and op.kind in PRODUCTS)
    held = (_before_gather(lowered, product.inputs[0]), product.outputs[0])
    return sum((elements(placed, name) * WIDTHS[placed.block.tensors[name].dtype] for name in held), ZERO)


def _before_gather(lowered: Lowered, name: str) -> str:
    """What is kept of an input that is gathered again for its weight gradient: its shard."""
    if lowered.profile.framework.keeps_gathered:
        return name
    ops = lowered.blocks[HEAD].placed.block.ops
    return next((op.inputs[0] for op in ops if isinstance(op.attrs, Redistribution) and name in op.outputs), name)


def define_left_over(book: Derivation, strategy: Strategy) -> Expr:
    """Defines t_deferred, and gives it; zero where nothing waits."""
    if not strategy.defer_embedding_wgrad_compute:
        return ZERO
    backward = sum((of_stage("t", phase=phase).expr for phase in ("inputs", "weights", "again")), ZERO)
    own = book.define(
        of_step("t", "last"),
        Quantity(stages_at(backward, symbol("loss_i")), SECOND),
        "backward of a micro-batch on the stage of the output layer",
        unit=SECOND,
        latex=r"t_{\mathrm{last}}",
    )
    others = symbol("sum_ti") + symbol("sum_tw") + symbol("sum_tr") - own.expr
    meantime = others / (symbol("vpp") if strategy.vpp > 1 else 1) + (symbol("pp") - 1) * symbol("tc")
    whole = deferred(strategy) * of_block("t", HEAD, phase="weights").expr
    left = Quantity(maximum(0, whole - meantime), SECOND)
    meaning = "weight gradients of the output layer that outlast the pipeline's drain"
    return book.define(of_step("t", "deferred"), left, meaning, unit=SECOND, latex=r"t_{\mathrm{deferred}}").expr
