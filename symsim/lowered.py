"""What the lowering hands to counting: every distinct block of a model, lowered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symsim.mesh import Mesh
from symsim.passes.kernels import Profile
from symsim.passes.remember import Remembered


@dataclass(frozen=True)
class Lowered:
    """The embedding, one layer of each kind, the head, and a multi-token-prediction depth, by name.

    checkpointed: the same layer kinds under full recomputation, where the strategy uses it.
    """

    profile: Profile
    mesh: Mesh
    blocks: Mapping[str, Remembered]
    checkpointed: Mapping[str, Remembered]
