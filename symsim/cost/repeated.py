"""Micro-batches of a pipeline that keep what their backward needs while others run their layers again.

Of every `window_i` micro-batches in a row on stage i, as many as it holds at once, the first `whole_i` keep it (Megatron-Core
pipeline_parallel/schedules.py, num_microbatches_with_partial_activation_checkpoints); means hold where the windows go into the step. Of a
rank of several chunks they count passes of a micro-batch through one, whatever chunk that is.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, symbol
from symsim.algebra.key import layers
from symsim.inputs.strategy import Strategy
from symsim.lowering.lowered import Lowered


def repeated_share(strategy: Strategy) -> Expr:
    """The share of the micro-batches of stage i that run their layers again, of those that recompute."""
    if strategy.num_microbatches_with_partial_activation_checkpoints is None:
        return ONE
    return 1 - symbol("whole_i") / symbol("window_i")


def layers_again(strategy: Strategy, lowered: Lowered, name: str) -> Expr:
    """Layers of a kind that run, and send, again as a whole on stage i, the mean of its micro-batches."""
    return layers(name, again=True).expr * repeated_share(strategy) if name in lowered.checkpointed else ZERO


def kept_whole(strategy: Strategy) -> Expr:
    """Micro-batches in flight on stage i that keep what they need."""
    if strategy.num_microbatches_with_partial_activation_checkpoints is None:
        return ZERO
    return symbol("whole_i") / symbol("vpp") if strategy.vpp > 1 else symbol("whole_i")
