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
