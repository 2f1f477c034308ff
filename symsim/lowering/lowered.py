"""What the lowering hands to counting: every distinct block of a model, lowered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.frameworks.kernels import Profile
from symsim.lowering.remember import Remembered
from symsim.placement.mesh import Mesh


@dataclass(frozen=True)
class Lowered:
    """The embedding, one layer of each kind, the head, and a multi-token-prediction depth, by name.

    checkpointed: the same layer kinds under full recomputation, where the strategy uses it.
    """

    profile: Profile
    mesh: Mesh
    blocks: Mapping[str, Remembered]
    checkpointed: Mapping[str, Remembered]

    @property
    def stands_on(self) -> tuple[Any, ...]:
        return self.profile, self.mesh, self.blocks, self.checkpointed

    @property
    def alone(self) -> bool:
        """Whether layers are all that there is, by a convention."""
        return self.profile.conventions.alone
