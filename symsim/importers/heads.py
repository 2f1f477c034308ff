"""Heads of other tasks than the next token, as trainers ask for them."""

from __future__ import annotations

from typing import Any

TASKS = {
    "causal_lm": "causal_lm",
    "seq_cls": "seq_cls",
    "token_cls": "token_cls",
    "embedding": "embedding",
    "reranker": "seq_cls",
    "generative_reranker": "causal_lm",
}
# what has the vocabulary's head in it
_OF_VOCABULARY = ("cross_entropy_fusion", "cross_entropy_chunks")


def headed(strategy: dict[str, Any], task: str, labels: int | None = None) -> None:
    """A strategy with the head of a task, and without what the vocabulary's has: fused losses, and depths of prediction."""
    if task == "causal_lm":
        return
    strategy["task_type"] = task
    if labels is not None and task != "embedding":
        strategy["num_labels"] = labels
    for name in _OF_VOCABULARY:
        strategy.pop(name, None)
