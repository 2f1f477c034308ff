"""What the lowering hands to counting: every distinct block of a model, lowered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.algebra.kinds import HEAD
from symsim.frameworks.kernels import Profile
from symsim.lowering.communicate import Placed
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
    def passed_on(self) -> list[tuple[Placed, str]]:
        """What goes from stage to stage, each with a block that reads it: the stream, and what layers read beside it that was made before all of
        them (keys and values of earlier layers are not sent)."""
        kinds = self.profile.model.layer_kinds
        layers = (self.blocks[kind].placed for kind in self.profile.model.kind_names() if not kinds[kind].shared_keys)
        beside = {name: placed for placed in layers for name in placed.block.inputs if placed.block.tensors[name].borrowed}
        return [(self.blocks[HEAD].placed, "x"), *((placed, name) for name, placed in beside.items())]

    @property
    def alone(self) -> bool:
        """Whether layers are all that there is, by a convention."""
        return self.profile.conventions.alone


@dataclass(frozen=True)
class Kept:
    """Of a lowering, what an evaluation asks for: which blocks are under full recomputation, and that there are others than layers."""

    checkpointed: Mapping[str, None]
    alone: bool = False
