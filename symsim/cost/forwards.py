"""Forwards besides those that are trained on: of reference models and teachers, and of the trained model without gradients.

Every micro-batch goes through the pipeline once more for each, before it is trained on:

    t_further = n (m t_f + k (sum_i t_f_i - t_f) / v)

where the pipeline fills k times a step.

A reference model is as large as the trained one and lies as its parameters do; it has no gradients, states or kept activations. What a
forward holds for a moment the trained model's own forward holds, too, beside what it keeps: the peak is of the latter.
"""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_step
from symsim.algebra.quantity import FLOP, SECOND, Quantity
from symsim.inputs.strategy import Strategy


def forwards(strategy: Strategy) -> int:
    """Of a micro-batch, besides that which is trained on."""
    return strategy.reference_models + strategy.further_forwards


def forward_pass(strategy: Strategy) -> Expr:
    """Seconds of the forwards of a step's micro-batches through the pipeline, with nothing between them while it is full."""
    return symbol("m") * symbol("tf") + strategy.pipeline_flushes * (symbol("sum_tf") - symbol("tf")) / symbol("vpp")


def define_forward_flops(book: Derivation, strategy: Strategy) -> None:
    """F_further, where there are any."""
    if forwards(strategy):
        meaning = "FLOPs of forwards of reference models, and of others without gradients, one micro-batch"
        counted = Quantity(Key("F").expr * forwards(strategy), FLOP)
        book.define(Key("F", part="further"), counted, meaning, unit=FLOP, latex=r"F_{\mathrm{further}}")


def further_seconds(book: Derivation, strategy: Strategy) -> Expr:
    """Defines t_further where there are any: its symbol, or zero."""
    if not forwards(strategy):
        return ZERO
    meaning = "forwards of reference models, and of others without gradients"
    taken = Quantity(forward_pass(strategy) * forwards(strategy), SECOND)
    return book.define(of_step("t", "further"), taken, meaning, unit=SECOND, latex=r"t_{\mathrm{further}}").expr
