"""Bytes that a layer keeps for backward, measured on transformers' modules by tests/draws/kept.py (kept_cases.json: transformers 5.23, of types that
came with it 5.24; torch 2.13): configs in which a family's module code differs from Llama's. tests/draws/kept_drawn.py draws more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from draws import kept

CASES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "kept_cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_what_a_layer_keeps_is_what_torch_keeps(name: str) -> None:
    case = CASES[name]
    assert list(kept.own(case["config"], case["layer"], case["b"], case["s"])) == case["kept"]
