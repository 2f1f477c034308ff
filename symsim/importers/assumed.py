"""Switches of several systems that are one assumption here."""

from __future__ import annotations

from symsim.importers.keys import Keys

_IN_ORDER = "attention's backward at its largest measured loss; scatters and reductions in a fixed order, below that, are as ever"


def deterministic(keys: Keys, assumptions: dict[str, str], *names: str) -> None:
    """Kernels that give the same bits in every run."""
    for name in names:
        if keys.flag(name, False, to="assume.deterministic_attention", why=_IN_ORDER):
            assumptions["deterministic_attention"] = "true"


ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_SPLIT = "how the caching allocator cuts, rounds and gives back its blocks: within the 6 % of what it reserves that are taken as unused"


def allocator(keys: Keys, assumptions: dict[str, str], *names: str) -> None:
    """PyTorch's settings of its allocator, NAME:VALUE with commas between them: segments that grow page by page hold nothing unused."""
    for name in names:
        said = str(keys.text(name, "", to="assume.allocator")).replace(" ", "")
        if "expandable_segments:true" in said.casefold().split(","):
            assumptions["allocator"] = "expandable"
        elif said:
            keys.note(name, "not_modelled", why=_SPLIT)


# 320 blocks of 65,536 numbers a launch, some 200 us: apex csrc/multi_tensor_apply.cuh, multi_tensor_adam.cu
UPDATE_GRAPH = "an update's kernels take 21 million numbers each, longer than their launch: passes take what they do without a graph"
# TransformerEngine 2.0 to 2.20 common/recipe/__init__.py: DelayedScaling, a dataclass of pydantic, drops override_linear_precision unread
NARROW_WEIGHT_GRADIENTS = "Transformer Engine has not read it since 2.0: weight gradients are multiplied in 8 bits all the same (1.x: in 16)"
COLLECTED = "all ranks collect at the same step, so that none waits for another (assume.stragglers=none): a tenth of a second every so many steps"
