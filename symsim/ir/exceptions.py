"""What holds for some operations alone, and follows from no row of `operations.OPERATIONS`: each with its reason and source."""

from __future__ import annotations

from dataclasses import dataclass

from symsim.ir.operations import PRODUCTS, Attributes, Projection


@dataclass(frozen=True)
class Exceptional:
    """What holds for some operations (by the labels of their weights) and follows from no row."""

    what: str
    labels: frozenset[str]
    reason: str
    source: str


EXCEPTIONS = {
    "high_precision": Exceptional(
        "an FP8 recipe leaves the product in the type of the computation",
        frozenset({"router", "shared_expert_gate", "lm_head", "lora_A", "lora_B"}),
        "routing and logits lose too much, and adapters are of too low a rank for it",
        "no TransformerEngine module: megatron.core transformer/moe/moe_utils.py, shared_experts.py, tensor_parallel/layers.py",
    ),
    "keeps_original": Exceptional(
        "under a narrow recipe the input is kept as it is, and cast again for the weight gradient",
        frozenset({"o_proj"}),
        "attention keeps its result anyway",
        "TransformerEngine pytorch/module/linear.py save_original_input, set by megatron.core for linear_proj",
    ),
}


def exceptional(which: str, attributes: Attributes) -> bool:
    """Whether an exception holds for an operation."""
    return isinstance(attributes, Projection) and not EXCEPTIONS[which].labels.isdisjoint(attributes.labels)


def of_linear_module(kind: str, attributes: Attributes) -> bool:
    """Whether it is a product of a linear module of TransformerEngine's: every one is but those that an FP8 recipe leaves alone."""
    return kind in PRODUCTS and not exceptional("high_precision", attributes)
