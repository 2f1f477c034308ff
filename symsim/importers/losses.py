"""Losses with the output layer in them, as trainers ask for them: Liger's kernels, cut cross entropy, chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.inputs.architecture import Architecture

if TYPE_CHECKING:
    from symsim.importers.keys import Keys

FUSED = ("norm", "activation", "rope")


def liger_kernels(keys: "Keys", key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """All of Liger's kernels: its loss is one of them."""
    if keys.flag(key, False, to="cross_entropy_fusion"):
        liger_loss(strategy, architecture)
        to, which = "cross_entropy_fusion, cross_entropy_chunks", "the loss in chunks"
        if strategy.get("fusion") == "eager":
            strategy["fused_kernels"] = list(FUSED)
            to, which = f"{to}, fused_kernels", f"{which}; norms, activations and rotary embeddings a kernel each"
        keys.note(key, "mapped", to, which)


def liger_modules(keys: "Keys", key: str, strategy: dict[str, Any]) -> None:
    """Liger's kernels in place of a model's modules, where the trainer asks for logits and computes its loss from them."""
    if not keys.flag(key, False, to="fused_kernels"):
        return
    if strategy.get("fusion") == "eager":
        strategy["fused_kernels"] = list(FUSED)
        keys.note(key, to="fused_kernels", why="norms, activations and rotary embeddings a kernel each; the loss is of whole logits")
    else:
        keys.note(key, "no_cost_effect", why="kernels are fused already")


def liger_loss(strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Chunks of a power of two of tokens, whose logits are about as large as the hidden states (Liger-Kernel ops/fused_linear_cross_entropy.py)."""
    strategy["cross_entropy_fusion"] = "liger"
    sizes = [int(strategy.get(name) or 0) for name in ("micro_batch_size", "seq_length")]
    if architecture is None or not all(sizes):
        return
    tokens = max(1, sizes[0] * sizes[1] // int(strategy.get("cp", 1)))
    pieces = -(-architecture.vocab_size // architecture.hidden_size)
    size = 1 << (-(-tokens // pieces) - 1).bit_length()
    strategy["cross_entropy_chunks"] = -(-tokens // min(size, tokens))
