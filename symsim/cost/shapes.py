"""The shape of a product, which its bytes and its seconds follow from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, product
from symsim.inputs import curves
from symsim.lowering.communicate import Placed
from symsim.placement.mesh import local_size


@dataclass(frozen=True)
class Shape:
    """Products of m x k by k x n: rows, columns and depth of each, how many, bytes an element of operands and result.

    kind: forward, dgrad or wgrad (accumulates: it adds to what is there). biases: bytes of a bias that it reads, or of its gradient. split:
    multiprocessors without a tile take a part of its depth.
    """

    m: Expr
    n: Expr
    k: Expr
    groups: Expr
    kind: str
    width_in: int | Fraction
    width_out: int | Fraction
    biases: Expr = ZERO
    accumulates: bool = False
    split: bool = False

    @property
    def adds(self) -> str:
        """What `curves` knows of the kind: only a wgrad that accumulates reads what it writes."""
        return "wgrad" if self.accumulates else "forward"

    @property
    def bytes(self) -> Expr:
        moved = curves.gemm_bytes(self.m, self.n, self.k, groups=self.groups, kind=self.adds, width_in=self.width_in, width_out=self.width_out)
        return moved + self.biases


def size(placed: Placed, index: int, dims: Iterable[str]) -> Expr:
    """Points of an operation's iteration over these dimensions on one rank."""
    layout = placed.iteration[index]
    return product(local_size(placed.mesh, placed.block, d, layout.get(d, ())) for d in dims)
