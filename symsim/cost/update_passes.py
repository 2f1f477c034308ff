"""What an update moves through HBM besides gradient, states and parameter, once each.

A kernel that updates all at once moves nothing else. Torch operations one by one write numbers on their way and read them again, and so does what
works on copies in fp32 of a gradient and a parameter in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from symsim.cost.compiled_update import moved_by_compiled_update
from symsim.cost.states import main_type
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS

# numbers a parameter that Adam's update reads and writes in torch's operations, one by one, besides the seven of a kernel that does it at once
# (torch/optim/adam.py _multi_tensor_adam, _single_tensor_adam)
_BY_OPERATIONS = 13


def moved_beside(strategy: Strategy, assume: Mapping[str, str], gradient: int | Fraction) -> int | Fraction:
    """Bytes a parameter that an update moves besides its gradient, which has so many, its states and the parameter, once each: what it reads and
    writes on its way, and copies in fp32, which it then works on."""
    row, width = OPTIMIZERS[strategy.optimizer], WIDTHS[main_type(strategy)]
    moved: int | Fraction = row.moves + moved_by_compiled_update(strategy, assume)
    if strategy.optimizer == "adam" and strategy.optimizer_bits == 32 and assume["optimizer_implementation"] in ("foreach", "for_loop"):
        moved += _BY_OPERATIONS * width
    if row.widened and gradient < 4:
        moved += 2 * 4
    if row.widened == 2 and width < 4:
        moved += 4 * 4
    return moved
