"""Adapters counted by peft: beside all linear layers (tests/oracle/adapters.json, made by tests/draws/adapters.py --write), and by drawn configs
(adapter_configs.json, adapter_configs.py --write)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
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
    job = _merak(tmp_path, case["model"], case["adapters"])
    assert job.architecture is not None
    assert derive(job.architecture, job.placed()).value("params.trained") == case["trained"]


def _merak(tmp_path: Path, model: dict[str, Any], adapters: dict[str, Any]) -> Job:
    (tmp_path / "config.json").write_text(json.dumps(model))
    (tmp_path / "lora.json").write_text(json.dumps(adapters))
    (tmp_path / "train.py").write_text("Merak.init(1, 1, 1)\nMerakArguments(lora_config='lora.json')")
    return load_job("merak", str(tmp_path / "train.py"), model=str(tmp_path))


def test_biases_of_experts_rest(tmp_path: Path) -> None:
    """Their names end in gate_up_proj_bias in transformers 5, and peft takes those that end in .bias (tuners_utils.py): counted by peft 0.21.2."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 16, "num_local_experts": 4, "vocab_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    made = _merak(tmp_path, {"model_type": "gpt_oss", **sizes, **heads}, {"r": 2, "target_modules": ["q_proj"], "bias": "all"})
    assert made.architecture is not None
    adapters, biases = 2 * (16 + 16), 16 + 8 + 8 + 16 + 4
    assert derive(made.architecture, made.placed()).value("params.trained") == 2 * (adapters + biases)


def test_layers_that_there_are_not_have_no_adapters(tmp_path: Path) -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 96}
    made = _merak(tmp_path, llama, {"r": 2, "target_modules": ["layers.7.q_proj", "v_proj"]})
    assert made.placed().target_modules == ("v_proj",)
    assert (
        next(row for row in made.rows if row.key == "lora_config.target_modules").why
        == "no linear map here is called layers.7.q_proj: no adapters beside them"
    )


def test_megatron_trains_the_one_table_that_it_has() -> None:
    """peft wraps embedding and output layer as two; Megatron-Core ties their weights."""
    model = load_model("smollm2-360m").architecture
    table = model.vocab_size * model.hidden_size
    lora = Strategy(tuner_type="lora", lora_rank=8)
    for fusion, tables in (("te", 1), ("eager", 2)):
        own, beside = (lora.model_copy(update={"fusion": fusion, "modules_to_save": names}) for names in (None, ("embedding", "lm_head")))
        assert derive(model, beside).value("params.trained") - derive(model, own).value("params.trained") == tables * table
