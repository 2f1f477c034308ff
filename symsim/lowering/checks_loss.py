"""Losses and fused kernels that cannot run with the other options, refused with the reason."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.frameworks.linear_loss import COMPILED, IN_CHUNKS, LINEAR_LOSSES, OUTPUT
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy


def loss(_: Architecture, strategy: Strategy) -> None:
    """A loss with the output layer in it has no weight gradient apart, and some have no chunks."""
    how = LINEAR_LOSSES.get(strategy.cross_entropy_fusion)
    if how is not None and strategy.task_type != "causal_lm":
        fused = f"cross_entropy_fusion={strategy.cross_entropy_fusion}"
        raise InputError(f"{fused} multiplies by the vocabulary, which task_type={strategy.task_type} has not")
    if strategy.cross_entropy_chunks and strategy.cross_entropy_fusion not in IN_CHUNKS:
        raise InputError(f"cross_entropy_chunks={strategy.cross_entropy_chunks} needs cross_entropy_fusion={' or '.join(IN_CHUNKS)}")
    if strategy.fusion == "te" and strategy.cross_entropy_fusion in (OUTPUT, COMPILED):
        raise InputError(f"cross_entropy_fusion={strategy.cross_entropy_fusion} is a loss beside PyTorch's modules; give fusion=eager or compile")
    if strategy.cross_entropy_fusion == COMPILED and strategy.tp > 1:
        raise InputError("cross_entropy_fusion=compiled_chunks with tp above 1: the loss of a split vocabulary is not compiled; give output_chunks")
    if strategy.fusion != "eager" and strategy.fused_kernels:
        raise InputError(f"fused_kernels={'+'.join(strategy.fused_kernels)} stand in place of PyTorch's modules; give fusion=eager")
    if strategy.defer_embedding_wgrad_compute and how is not None:
        raise InputError(
            f"defer_embedding_wgrad_compute moves a product that cross_entropy_fusion={strategy.cross_entropy_fusion} runs inside the loss; "
            "give one of them"
        )
