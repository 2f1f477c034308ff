"""The messages of one rank of stage i, in one list: those of its blocks, of the pipeline, and of gradients and parameters.

Reports evaluate it (`evaluation/traffic.py`), and `further.py` makes definitions of it. Counts are over the symbols of the stage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from symsim.algebra.expr import ZERO, Expr, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import layers
from symsim.cost.compressed import momentum_messages
from symsim.cost.orthogonal import orthogonal_messages
from symsim.cost.reduce import arrivals, pipeline_messages, update_messages
from symsim.ir.messages import Message, between_ranks
from symsim.lowering.lowered import Lowered
from symsim.pipeline.stages import runs


class Sent(NamedTuple):
    """A message, and the block that sends it (again: as it is recomputed in full), where one does."""

    message: Message
    block: str = ""
    again: bool = False


def of_blocks(lowered: Lowered) -> list[Sent]:
    """Messages of a micro-batch in the stage's blocks."""
    made = []
    for name, block in lowered.blocks.items():
        whole = layers(name, again=True).expr if name in lowered.checkpointed else ZERO
        for variant, times in ((block, symbol(runs(name)) - whole), (lowered.checkpointed.get(name), whole)):
            if variant is not None:
                both = between_ranks([*variant.differentiated.forward_messages, *variant.backward_messages])
                made += [Sent(replace(m, count=m.count * times), name, variant is not block) for _, m in both]
    return made


def of_the_rest(lowered: Lowered, book: Derivation, sent: "Expr | int", received: "Expr | int") -> tuple[list[Message], list[Message]]:
    """Messages of the pipeline, of which a stage sends and receives so many forward, and those for gradients and parameters."""
    between = pipeline_messages(lowered, sent, received) if lowered.profile.strategy.pp > 1 else []
    return between, [*arrivals(lowered), *update_messages(lowered, book), *orthogonal_messages(lowered), *momentum_messages(lowered)]
