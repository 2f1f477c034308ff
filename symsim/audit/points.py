"""Numbers for claims: random points where no proof is found, the smallest counter-model, sizes of known models."""

from __future__ import annotations

from symsim.audit.proving import Proof, Sides


def tested_points(sides: Sides, proof: Proof) -> int:
    """At how many random exact points symsim less published is zero; 0 where it is not at one of them."""
    return 0
