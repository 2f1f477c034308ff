"""Experts that are unpacked from MXFP4 as they are loaded (transformers 4.55 integrations/mxfp4.py): what that holds, worked out here by hand."""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.api.result import Result

RUN: dict[str, Any] = {"fusion": "eager", "zero": 0, "seq_length": 128, "micro_batch_size": 1, "tuner_type": "lora", "lora_rank": 8}
UNPACKED = {"assume.checkpoint_unpacking": "mxfp4"}


def derived(model: str, overrides: dict[str, str], **more: Any) -> Result:
    return symsim.derive(model, {**RUN, **more}, system="h200-sxm", overrides=overrides)


@pytest.mark.parametrize("ep", [1, 4])
def test_the_last_projection_has_indices_of_eight_bytes(ep: int) -> None:
    # gate_up_proj of one layer of GPT-OSS 20B: blocks [E, 2 f, h / 32, 16] of bytes, less than 2^30 elements
    result = derived("gpt-oss-20b", UNPACKED, ep=ep, dp=ep)
    (stage,) = result.stages
    experts, hidden, width = 32 // ep, 2880, 2880
    rows = experts * 2 * width * hidden // 32
    packed, scales, made, indices, looked_up = rows * 16, rows * (1 + 4), rows * 32 * 2, 2 * rows * 16 * 8, rows * 16 * 2
    numbers = result.stage_numbers(stage)
    model = int(numbers["P_stage"] - numbers["P_trained_stage_dense"] - numbers["P_trained_stage_expert"])
    assert numbers["M_at_load"] == (model - rows * 32) * 2 + packed + scales + made + indices + looked_up


def test_what_is_larger_is_unpacked_in_parts() -> None:
    result = derived("gpt-oss-120b", UNPACKED)
    (stage,) = result.stages
    n = 128 * 2 * 2880 * 2880
    numbers = result.stage_numbers(stage)
    model = int(numbers["P_stage"] - numbers["P_trained_stage_dense"] - numbers["P_trained_stage_expert"])
    assert n > 2**30
    assert numbers["M_at_load"] == (model - n) * 2 + n // 2 + 5 * n // 32 + 2 * n + 9 * 2**30


def test_a_load_is_no_moment_by_itself() -> None:
    (stage,) = (result := derived("gpt-oss-20b", {})).stages
    assert "M_at_load" not in result.stage_numbers(stage)
