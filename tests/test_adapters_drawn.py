"""Adapters counted by peft: beside all linear layers (tests/oracle/adapters.json, made by tests/draws/adapters.py --write), and by drawn configs
(adapter_configs.json, adapter_configs.py --write)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.importers.reading import load_job
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

ORACLE = json.loads((Path(__file__).parent / "oracle" / "adapters.json").read_text())
CONFIGS = json.loads((Path(__file__).parent / "oracle" / "adapter_configs.json").read_text())["cases"]


@pytest.mark.parametrize("kind", ORACLE["cases"])
def test_trained_parameters_equal_pefts(kind: str) -> None:
    """Of LoRA, of rsLoRA, whose scale is another and nothing else, and of DoRA."""
    case = ORACLE["cases"][kind]
    model = read_config(case["config"], kind, kind)[0]
    plain = Strategy(tuner_type="lora", lora_rank=ORACLE["rank"], fusion="eager")
    with_magnitudes = plain.model_copy(update={"use_dora": True})
    lora, dora = (derive(model, strategy).value("params.trained") for strategy in (plain, with_magnitudes))
    assert case["trained"] == {"LoRA": lora, "rsLoRA": lora, "DoRA": dora}


@pytest.mark.parametrize("case", CONFIGS, ids=[f"{case['model']['model_type']}-{i}" for i, case in enumerate(CONFIGS)])
def test_configs_of_adapters_train_what_pefts_do(case: dict[str, Any], tmp_path: Path) -> None:
    """Names of modules by their ends, in single layers, patterns, biases, modules trained whole, experts' parameters (draws/adapter_configs.py)."""
    (tmp_path / "config.json").write_text(json.dumps(case["model"]))
    (tmp_path / "lora.json").write_text(json.dumps(case["adapters"]))
    (tmp_path / "train.py").write_text("Merak.init(1, 1, 1)\nMerakArguments(lora_config='lora.json')")
    job = load_job("merak", str(tmp_path / "train.py"), model=str(tmp_path))
    assert job.architecture is not None
    assert derive(job.architecture, job.placed()).value("params.trained") == case["trained"]
