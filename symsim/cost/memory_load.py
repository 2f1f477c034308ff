"""What a rank holds as a checkpoint of packed experts is loaded: bytes that reserved memory keeps, and that no step of training needs."""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, maximum, minimum
from symsim.algebra.key import of_stage
from symsim.cost.held import some_frozen, trained_part
from symsim.cost.memory_rank import Rank, total
from symsim.ir.block import WIDTHS
from symsim.lowering.differentiate import elements

# bytes an element of a projection as it is unpacked (transformers 4.55 integrations/mxfp4.py, convert_moe_packed_tensors): packed, a scale of
# every 32 as it came and in int32, and what is made in bf16; of at most 2^30 elements at a time both nibbles as int64 indices, and one half
# looked up; or then, with what is packed, the result as it was made and as it lies in the model
HELD = Fraction(1, 2) + Fraction(1 + 4, 32) + 2
INDICES, AT_ONCE = 2 * Fraction(8, 2) + 1, 2**30
TRANSPOSED = Fraction(1, 2) + Fraction(1, 32) + 2 * 2


def loading(rank: Rank) -> Expr:
    """Bytes as the last projection of experts is unpacked, all else being loaded; adapters are not there yet."""
    there = of_stage("P").expr
    if rank.strategy.tuner_type == "lora" and some_frozen(rank.lowered):
        there = there - trained_part(rank.lowered, "dense") - trained_part(rank.lowered, "expert")
    n, width = _largest_projection(rank), WIDTHS[rank.strategy.precision]
    return (there - n) * width + maximum(HELD * n + INDICES * minimum(n, AT_ONCE), TRANSPOSED * n)


def _largest_projection(rank: Rank) -> Expr:
    """Elements of the largest weight of experts on a rank; a gate and what it weighs are one, as checkpoints have them."""
    found: list[Expr] = []
    for name, block in rank.lowered.blocks.items():
        placed, of_input = block.placed, dict[str, list[Expr]]()
        for op in placed.block.ops:
            for weight, tensor in ((t, placed.block.tensors[t]) for t in op.inputs):
                if tensor.kind == "parameter" and "E" in tensor.dims and len(tensor.dims) > 2:
                    of_input.setdefault(op.inputs[0], []).append(elements(placed, weight))
        found += [rank.has[name] * total(weights) for weights in of_input.values()]
    return maximum(*found) if found else ZERO
