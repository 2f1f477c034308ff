"""Peaks of training steps of small models by the moments of the eager profile, beside what PyTorch held (`tests/draws/peaks.py`)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import symsim
from symsim.cost import states
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

WITHIN = 0.01
"""The share within which a peak is PyTorch's."""
CLOSE = 0.0005
"""That of the peaks of a kept draw for which it says no other."""


def ours(config: dict[str, Any], o: dict[str, Any]) -> dict[str, int]:
    """The largest moments of the same."""
    architecture = read_config(config, "small", "config.json")[0]
    optimizer, _, how = o["optimizer"].partition(" ")
    tuned: dict[str, Any] = {"lora_rank": o["rank"], "tuner_type": "lora", "use_dora": o["method"] == "dora"}
    settings = {
        **{"fusion": "eager", "zero": 0, "micro_batch_size": o["b"], "seq_length": o["s"], "num_microbatches": o["m"], "optimizer": optimizer},
        **{"recompute": o.get("recompute") or ("full" if o["checkpoints"] else "none"), "clip_grad": 0, "autocast": o["autocast"]},
        **({} if o["autocast"] else {"main_params_dtype": "bf16", "grad_reduce_in_fp32": False}),
        **(tuned if o["method"] in ("lora", "dora") else {}),
        "optimizer_in_bwd": bool(o.get("in_backward")),
        **({"freeze_parameters": ("embedding", "layers.0")} if o["method"] == "frozen" else {}),
    }
    settings |= {"zero": 3, "dp": o["ranks"]} if o.get("ranks") else {}
    if how == "8 bit":
        settings |= {"optimizer_bits": 8, "main_params_dtype": "fp32"}
        how = ""
    if o.get("loss"):
        settings["cross_entropy_fusion"] = o["loss"]
    if o.get("quantize"):
        settings["quantize_base"] = o["quantize"]
    # the draws ask bitsandbytes for blocks of the smallest tensors too (draws/peaks.py bitsandbytes_adam)
    with patch.object(states, "SMALLEST_IN_BLOCKS", 0):
        result = symsim.derive(architecture, Strategy(**settings), {"attention_kernel": "flash", "optimizer_implementation": how or "fused"})
    at = result.stage_numbers(result.stages[0])

    def most(*names: str) -> int:
        return int(max(v for n, v in at.items() if n.startswith(names)))

    backward = most("M_at_backward", "M_at_first", "M_at_second")
    return {"forward": most("M_at_forward", "M_at_gather"), "backward": backward, "update": most("M_at_optimizer")}


def apart(found: dict[str, int], expected: dict[str, int], within: dict[str, float] | None = None) -> dict[str, str]:
    """What differs by more than that, or than its own share (a kept draw's: at least CLOSE), in words."""
    shares = dict.fromkeys(expected, WITHIN) if within is None else dict.fromkeys(expected, CLOSE) | within
    return {part: f"{found[part] - n:+d} of {n}" for part, n in expected.items() if abs(found[part] / n - 1) > shares[part]}
