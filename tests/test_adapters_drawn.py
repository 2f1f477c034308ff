"""Adapters beside all linear layers, counted by peft (tests/oracle/adapters.json, made by tests/draws/adapters.py --write)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symsim.api.result import derive
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

ORACLE = json.loads((Path(__file__).parent / "oracle" / "adapters.json").read_text())


@pytest.mark.parametrize("kind", ORACLE["cases"])
def test_trained_parameters_equal_pefts(kind: str) -> None:
    """Of LoRA, of rsLoRA, whose scale is another and nothing else, and of DoRA."""
    case = ORACLE["cases"][kind]
    model = read_config(case["config"], kind, kind)[0]
    plain = Strategy(tuner_type="lora", lora_rank=ORACLE["rank"], fusion="eager")
    with_magnitudes = plain.model_copy(update={"use_dora": True})
    lora, dora = (derive(model, strategy).value("params.trained") for strategy in (plain, with_magnitudes))
    assert case["trained"] == {"LoRA": lora, "rsLoRA": lora, "DoRA": dora}
