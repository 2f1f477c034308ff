"""What waiting for the slowest of many ranks adds to the pipeline (assumption `stragglers`)."""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, ceil, log2, maximum, minimum, symbol
from symsim.inputs.system import System
from symsim.lowering.lowered import Lowered

_SHARE = 0.09
_DEEPEST = 20  # a million groups


def waited_share(system: System, lowered: Lowered) -> Expr:
    """The share of the pipeline that ranks wait for the slowest: 0.09 sqrt(x) x / (x + 1), where x is the depth of a tree over the groups
    that can differ (SimuMax v1.2 perf_llm.py: least of nodes, dp and the experts' dp).

    The square root of a depth is a sum of steps, to six digits: there are few depths.
    """
    if lowered.profile.assumptions["stragglers"] == "none" or len(system.network) < 2:
        return ZERO
    mesh = lowered.mesh
    groups = [ceil(symbol("world") / symbol(f"R_{len(system.network) - 1}")), mesh.degree("dp")]
    if lowered.profile.model.moe is not None:
        groups.append(mesh.degree("edp"))
    depth = log2(minimum(*groups))
    return sum((_added(x) * minimum(1, maximum(0, depth - x + 1)) for x in range(1, _DEEPEST + 1)), ZERO)


def share(depth: int) -> Fraction:
    """At one depth."""
    return Fraction(round(10**6 * _SHARE * depth**0.5 * depth / (depth + 1)), 10**6)


def _added(depth: int) -> Fraction:
    return share(depth) - share(depth - 1)
