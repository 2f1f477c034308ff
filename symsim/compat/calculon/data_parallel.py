"""Calculon's messages over data ranks: a block's weights once a step, and what of them backward hides.

Source: calculon/llm/llm.py Llm._compute_batch_stats, from the overlap of blocks on.
"""

from __future__ import annotations

from symsim.compat.calculon.totals import Totals


def block_seconds(at: Totals) -> float:
    """A block's gradients reduced, or scattered and its weights gathered where the optimizer is sharded."""
    ranks = at.question.strategy.dp
    if ranks == 1 or not at.asked.training:
        return 0.0
    ops = ("reduce_scatter", "all_gather") if at.asked.sharded else ("all_reduce",)
    return sum(at.machine.message(at.asked.nets[2], op, at.space.weights, ranks) for op in ops)


def exposed(at: Totals) -> float:
    """Of all blocks of a rank: every one without overlap; else the last block, and what chunks are too short for."""
    each = block_seconds(at)
    if not each or not at.asked.data_beside:
        return at.blocks * each
    return each + (at.asked.chunks - 1) * _of_chunk(at, each) + _of_last_chunk(at, each)


def _of_chunk(at: Totals, each: float) -> float:
    """Beside a chunk's backward of as many micro-batches as there are stages."""
    strategy, usage = at.question.strategy, at.machine.usage(at.asked.nets[2])
    sent = at.in_chunk * each
    shared = 0.0
    if at.asked.nets[2] == at.asked.nets[1]:  # boundary tensors that meet them on the same tier
        shared = min(sent // at.chunk[1], strategy.microbatches % strategy.pp or strategy.pp)
    window = strategy.pp * _window(at) - shared * at.boundary(True)
    beyond = sent - window + strategy.pp * at.in_chunk * _computed(at) * usage
    return beyond if beyond > 0 else sent * usage


def _of_last_chunk(at: Totals, each: float) -> float:
    """Beside one micro-batch, all blocks but the last; nothing of a chunk of one block."""
    usage, window = at.machine.usage(at.asked.nets[2]), 0.0
    if at.in_chunk > 1:
        window = _window(at) - at.boundary(True) - (at.passes(edge=False)[1] + at.passes(edge=True)[1]) / 2
        window += 0.0 if at.asked.sharded else at.optimizer_beside
    sent = (at.in_chunk - 1) * each
    beyond = sent + _computed(at) * usage - window
    return beyond if beyond > 0 else sent * usage


def _window(at: Totals) -> float:
    """Of a chunk's backward what messages can run beside: not its accesses to memory, nor messages on the same tier."""
    moved = at.memory_seconds("agrad") + at.memory_seconds("wgrad") + at.summed_again("memory")
    found = 0.0
    for edge, often in ((False, at.in_chunk - 1), (True, 1)):
        own = at.passes(edge=edge)[1] - moved + (0.0 if at.asked.sharded else at.optimizer_beside)
        if at.asked.nets[2] == at.asked.nets[0]:
            own -= at.on_link("wgrad", edge=edge) + at.on_link("agrad", edge=edge)
        found += often * own
    return found


def _computed(at: Totals) -> float:
    """Seconds of a block's operations in backward, with the update's where it can run beside its message."""
    own = at.flop_seconds("agrad") + at.flop_seconds("wgrad") + at.summed_again("flops")
    return own + (0.0 if at.asked.sharded else at.optimizer_computed)
