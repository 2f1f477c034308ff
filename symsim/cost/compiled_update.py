"""compiled_update: what lies in memory while a kernel that torch.compile made updates one parameter, its moments in blocks.

The update reads and writes the parameter and its moments where they are; what of it goes through memory on the way follows from how
Inductor cuts it into kernels. In the first step the kernel is tuned: each way to run it is timed on copies of all that it changes, one for
what it reads and one for what it writes, behind a cache that is flushed by writing 256 MB. (torchao 0.7 prototype/low_bit_optim/adam.py
single_param_adam as torch 2.5.1 compiles it for AdamW; torch/_inductor/runtime/triton_heuristics.py clone_args; triton/testing.py do_bench.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.expr import Expr
from symsim.cost.states import main_type
from symsim.inputs.optimizers import BLOCKS, bytes_of_blocks
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS

_FLUSHED = 256 * 10**6


@dataclass(frozen=True)
class _Kernels:
    """written: bytes an element that go through memory: an fp32 number in 8 bits; in 4 bits both scaled moments and their codes as int64, and two
    more fp32 numbers. codes: whether the kernel that is tuned writes the codes, which of 4 bits another one packs."""

    written: int
    codes: bool


_OF_BITS = {8: _Kernels(4, True), 4: _Kernels(4 + 8 + 4 + 8 + 4 + 4, False)}


def of_compiled_update(strategy: Strategy, assume: Mapping[str, str]) -> Callable[[Expr], Expr] | None:
    """Bytes beside a parameter of so many elements and its gradient as it is updated; None where no such kernel updates it."""
    row = _kernels(strategy, assume)
    if row is None:
        return None
    moment = bytes_of_blocks(strategy.optimizer_bits) if row.codes else Fraction(4, BLOCKS[strategy.optimizer_bits])
    each = row.written + 2 * (WIDTHS[main_type(strategy)] + 2 * moment)
    return lambda elements: each * elements + _FLUSHED


def moved_by_compiled_update(strategy: Strategy, assume: Mapping[str, str]) -> int:
    """Bytes a parameter that such a kernel moves besides gradient, states and parameter: what it writes on its way, and reads."""
    row = _kernels(strategy, assume)
    return 2 * row.written if row else 0


def _kernels(strategy: Strategy, assume: Mapping[str, str]) -> _Kernels | None:
    return _OF_BITS.get(strategy.optimizer_bits) if strategy.optimizer == "adam" and assume["optimizer_implementation"] == "compiled" else None
