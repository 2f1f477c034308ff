"""Peaks of training steps on PyTorch beside the moments of the eager profile: draws that once differed, and one of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peak_cases
import pytest

CASES = {case["draw"]: case for case in json.loads(Path(__file__).with_name("oracle").joinpath("peaks.json").read_text())["cases"]}


@pytest.mark.parametrize("draw", CASES)
def test_peaks_are_pytorchs(draw: str) -> None:
    case: dict[str, Any] = CASES[draw]
    assert not peak_cases.apart(peak_cases.ours(case["config"], case["options"]), case["peaks"], case["within"])


def test_gradients_that_their_own_update_frees() -> None:
    """python tests/draws/peaks.py --in-backward --seed 3 --only 0, by PyTorch 2.13."""
    config: dict[str, Any] = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 320, "pad_token_id": 0, "head_dim": 32}
    config |= {"num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128, "tie_word_embeddings": False}
    options: dict[str, Any] = {"method": "full", "b": 3, "s": 128, "m": 1, "checkpoints": False, "optimizer": "adam fused", "rank": 4}
    options |= {"autocast": False, "in_backward": True}
    peaks = {"forward": 17626208, "backward": 17913416, "update": 5857856}
    found = peak_cases.ours(config, options)
    assert not peak_cases.apart(found, peaks, dict.fromkeys(peaks, 0.0005))
    assert peak_cases.ours(config, options | {"in_backward": False})["backward"] > found["backward"]
