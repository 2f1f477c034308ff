"""Parameters that are not trained, marked in what is declared; and whether a gradient flows into a block."""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.kinds import BLOCKS
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import TunedKind, is_trained, tunes
from symsim.ir.block import Block, Tensor

TABLES = ("embedding", "lm_head")


def names_of(block: Block, tensor: Tensor, model: Architecture) -> frozenset[str]:
    """The names that mean a parameter: its own and those of its scopes, its linear map's, its module, `layers` in a layer, `bias`."""
    parts = tensor.name.split(".")
    found = {".".join(parts[:n]) for n in range(1, len(parts) + 1)} | {
        tensor.module,
        block.name if block.name in BLOCKS else "layers",
    }
    if len(parts) > 1 and parts[-1] in ("weight", "bias"):
        found.add(parts[-2])
    if tensor.role == "bias":
        found.add("bias")
    if model.tie_word_embeddings and "V" in tensor.dims and tensor.role != "bias" and tensor.module in TABLES:
        found |= {*TABLES}
    return frozenset(found)


def marked(block: Block, model: Architecture, strategy: Strategy) -> Block:
    """The block with its frozen parameters as such."""
    if not tunes(strategy):
        return block
    kind = model.layer_kinds.get(block.name)
    at = kind.at if isinstance(kind, TunedKind) else None
    frozen = {t.name: replace(t, gradient=False) for t in block.parameters() if not is_trained(strategy, names_of(block, t, model), at)}
    return replace(block, tensors={**block.tensors, **frozen})


def gradient_enters(block: Block, model: Architecture, strategy: Strategy) -> bool:
    """Whether the stream that enters a block needs a gradient: something before it is trained."""
    kinds = model.layer_kinds
    if not tunes(strategy):
        return True
    if block.name in kinds:
        kind = kinds[block.name]
        return not isinstance(kind, TunedKind) or kind.enters
    return any(not isinstance(k, TunedKind) or (k.trains and not k.aside) or k.enters for k in map(kinds.__getitem__, model.kind_names()))
