"""unrecorded: parts of a layer that a framework runs without recording gradients, such as an indexer whose choice has none."""

from __future__ import annotations

from dataclasses import replace

from symsim.ir.block import Block


def unrecorded(block: Block, parts: frozenset[str]) -> Block:
    """The block in which parameters that only these parts read have no gradient."""
    inside = {t for op in block.ops if not parts.isdisjoint(op.parts) for t in op.inputs}
    outside = {t for op in block.ops if parts.isdisjoint(op.parts) for t in op.inputs}
    frozen = {t.name: replace(t, gradient=False) for t in block.parameters() if t.name in inside - outside}
    return replace(block, tensors={**block.tensors, **frozen}) if frozen else block
