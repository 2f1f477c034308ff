"""Optimizers by what they keep and what their update moves: a row each.

A moment has an element a parameter. What depends on the shapes of matrices (factors of a second moment, projections, orthogonal updates) is said by
the row, and counted from each weight's own rows and columns (`cost/states.py`, `cost/orthogonal.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Moment = Literal["first", "second"]


@dataclass(frozen=True)
class Optimizer:
    """moments: of every parameter, or of matrices where `others` says what all other parameters have. factors: pairs of an fp32 number a row and
    an fp32 number a column, of each matrix. projected: moments of a gradient of `optimizer_rank` rows, and whether its projector is kept. random: it
    has so many rows of a matrix with fewer, too.
    orthogonal: the first moment of a matrix is made orthogonal (Muon). compressed: the first moment travels in one bit a number in place of
    gradients (`cost/compressed.py`); local: in one of `local_step_clipper` steps alone. hidden: embeddings and the output layer are no matrices
    to it. moves: bytes a parameter in the update besides those of gradient, states and parameter. largest: temporaries of the size of the largest
    parameter, bytes an element; looped: temporaries in fp32 of the parameter at work, beside those of the one
    before it whose names are still bound. widened: what of gradient and parameter is copied to fp32 for it where the update is of less."""

    meaning: str
    source: str
    moments: tuple[Moment, ...] = ()
    others: tuple[Moment, ...] | None = None
    factors: int = 0
    projected: int = 0
    projector: bool = False
    random: bool = False
    orthogonal: bool = False
    compressed: bool = False
    local: bool = False
    hidden: bool = False
    moves: int = 0
    largest: int = 0
    looped: int = 0
    bound: int = 1
    widened: int = 0

    @property
    def by_shape(self) -> bool:
        """Whether its states depend on what is a matrix."""
        return self.others is not None


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer("two moments (AdamW the same)", "torch.optim.adamw", ("first", "second")),
    "sgd": Optimizer("none", "torch.optim.sgd"),
    "sgd_momentum": Optimizer("one moment", "torch.optim.sgd", ("first",)),
    "lion": Optimizer("one moment, whose sign is the update", "Chen et al., arXiv:2302.06675; bitsandbytes optim/lion.py", ("first",)),
    "rmsprop": Optimizer("one moment, of squares (Adagrad the same)", "torch.optim.rmsprop, adagrad", ("second",)),
    "ademamix": Optimizer("three moments", "Pagliardini et al., arXiv:2409.03137; bitsandbytes optim/ademamix.py", ("first", "first", "second")),
    # a second kernel, behind the norms, makes the update again: of both moments and the parameter (apex's writes it and reads it twice: 20)
    "lamb": Optimizer(
        "two moments, and norms of every tensor",
        "You et al., arXiv:1904.00962; DeepSpeed csrc/lamb/fused_lamb_cuda_kernel.cu",
        ("first", "second"),
        moves=12,
    ),
    # the next three by torch operations, one by one: 88, 216 and 108 bytes
    "onebit_adam": Optimizer(
        "two moments, and after the warm-up what a momentum of one bit a number leaves out",
        "Tang et al., arXiv:2102.02888; DeepSpeed runtime/fp16/onebit/adam.py",
        ("first", "second"),
        compressed=True,
        moves=60,
        largest=8,
    ),
    # a second moment of the momenta's differences beside the frozen one
    "onebit_lamb": Optimizer(
        "three moments, norms of every tensor, and what a momentum of one bit a number leaves out",
        "Li et al., arXiv:2104.06069; DeepSpeed runtime/fp16/onebit/lamb.py",
        ("first", "second", "second"),
        compressed=True,
        moves=180,
        largest=8,
    ),
    # a step of the rank alone, which adds what it moves to the sum that is sent
    "zero_one_adam": Optimizer(
        "two moments, the sum of the updates since the last message, and what one bit a number of it leaves out",
        "Lu et al., arXiv:2202.06009; DeepSpeed runtime/fp16/onebit/zoadam.py, beyond var_freeze_step",
        ("first", "second", "first"),
        compressed=True,
        local=True,
        moves=72,
        largest=8,
    ),
    # the parameter's norm, the square of the gradient and its means, their product, its root, the update's norm, its scalings, what is taken off:
    # torch operations one by one
    "adafactor": Optimizer(
        "means of squares over rows and over columns; of vectors, all of them",
        "Shazeer and Stern, arXiv:1804.04235; transformers optimization.py Adafactor",
        others=("second",),
        factors=1,
        moves=72,
        looped=2,
        widened=2,
    ),
    # the same, the moment, the square of what the update differs from it by, its means and their product, and weight decay
    "came": Optimizer(
        "a moment, and two pairs of means over rows and over columns",
        "Luo et al., arXiv:2307.02047; came_pytorch CAME.py",
        ("first",),
        others=("first", "second"),
        factors=2,
        moves=148,
        looped=3,
        bound=2,
        widened=1,
    ),
    "adam_mini": Optimizer("one moment; one second moment a block", "Zhang et al., arXiv:2406.16793", ("first",)),
    # the moment as it is multiplied, in 16 bits, and the update
    "muon": Optimizer(
        "one moment of matrices, made orthogonal; Adam for all others",
        "Jordan et al., kellerjordan.github.io/posts/muon; Megatron-Core optimizer/muon.py; torch.optim.Muon",
        ("first",),
        others=("first", "second"),
        orthogonal=True,
        hidden=True,
        moves=8,
    ),
    # the update of full size is written and read
    "galore": Optimizer(
        "two moments of a gradient of few rows, and its projector",
        "Zhao et al., arXiv:2403.03507; galore_torch galore_projector.py",
        others=("first", "second"),
        projected=2,
        projector=True,
        hidden=True,
        moves=8,
        largest=4,
    ),
    "apollo": Optimizer(
        "two moments of a gradient of few rows, and its projector, of random numbers",
        "Zhu et al., arXiv:2412.05270; apollo_torch 1.0.3 random_projector.py",
        others=("first", "second"),
        projected=2,
        projector=True,
        random=True,
        hidden=True,
        moves=8,
        largest=4,
    ),
}

# moments in blocks: bits a number, and an fp32 scale for so many; of tensors from so many numbers up
BLOCKS = {8: 256, 4: 128}
SMALLEST_IN_BLOCKS = 4096


def bytes_of_blocks(bits: int) -> Fraction:
    """Bytes an element of a moment in whole blocks (bitsandbytes optim/optimizer.py, torchao optim/adam.py)."""
    return Fraction(bits, 8) + Fraction(4, BLOCKS[bits])
