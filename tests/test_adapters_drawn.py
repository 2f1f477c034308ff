"""Adapters counted by peft: beside all linear layers (tests/oracle/adapters.json, made by tests/draws/adapters.py --write), and by drawn configs
(adapter_configs.json, adapter_configs.py --write)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy

ORACLE = json.loads((Path(__file__).parent / "oracle" / "adapters.json").read_text())
CONFIGS = json.loads((Path(__file__).parent / "oracle" / "adapter_configs.json").read_text())["cases"]


@pytest.mark.long_after(6)
@pytest.mark.parametrize("kind", ORACLE["cases"])
def test_trained_parameters_equal_pefts(kind: str) -> None:
    """Of LoRA, of rsLoRA, whose scale is another and nothing else, and of DoRA."""
    case = ORACLE["cases"][kind]
    model = read_config(case["config"], kind, kind)[0]
    plain = Strategy(tuner_type="lora", lora_rank=ORACLE["rank"], fusion="eager")
    with_magnitudes = plain.model_copy(update={"use_dora": True})
    lora, dora = (derive(model, strategy).value("params.trained") for strategy in (plain, with_magnitudes))
    assert case["trained"] == {"LoRA": lora, "rsLoRA": lora, "DoRA": dora}


@pytest.mark.long_after(20)
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


GPT_OSS = {
    **{"model_type": "gpt_oss", "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 16, "num_local_experts": 4, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8},
}


def test_biases_of_experts_rest(tmp_path: Path) -> None:
    """Their names end in gate_up_proj_bias in transformers 5, and peft takes those that end in .bias (tuners_utils.py): counted by peft 0.21.2."""
    made = _merak(tmp_path, GPT_OSS, {"r": 2, "target_modules": ["q_proj"], "bias": "all"})
    assert made.architecture is not None
    adapters, biases = 2 * (16 + 16), 16 + 8 + 8 + 16 + 4
    assert derive(made.architecture, made.placed()).value("params.trained") == 2 * (adapters + biases)


MIXTRAL = {
    **{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_local_experts": 4, "vocab_size": 64},
    **{"num_experts_per_tok": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
}


def test_biases_beside_adapters_of_parameters_rest(tmp_path: Path) -> None:
    """down_proj_bias is no bias of a module with adapters: counted by peft 0.21.2. Four experts, rank 2, of 16 inputs and outputs."""
    made = _merak(tmp_path, GPT_OSS, {"r": 2, "target_modules": ["q_proj"], "target_parameters": ["experts.down_proj"], "bias": "lora_only"})
    assert made.architecture is not None
    assert derive(made.architecture, made.placed()).value("params.trained") == 2 * (2 * (16 + 16) + 16 + 4 * 2 * (16 + 16))


def test_names_of_experts_maps_mean_parameters(tmp_path: Path) -> None:
    """Two of an expert's maps are one parameter with twice the rank: 2 r (h + 2 f) and r (f + h), counted by peft 0.21.2; one alone is not."""
    made = _merak(tmp_path, MIXTRAL, {"r": 4, "target_modules": ["w1", "w2", "w3"]})
    assert made.placed().rank_pattern == ("moe.experts.fc1=8",)
    assert made.architecture is not None
    assert derive(made.architecture, made.placed()).value("params.trained") == 2 * 5376 == 2 * 4 * (8 * (32 + 96) + 4 * (48 + 32))
    with pytest.raises(InputError, match="w1 and w3 of experts are one parameter, gate_up_proj, in transformers 5: name w3 too, or neither"):
        _merak(tmp_path, MIXTRAL, {"r": 4, "target_modules": ["w1", "q_proj"]})


@pytest.mark.parametrize(
    ("adapters", "said"),
    [
        ({"target_modules": ["down_proj"]}, "no linear module of the model is called so"),
        ({"target_modules": ["q_porj"]}, "no linear module of the model is called so: did you mean 'q_proj'"),
        ({"target_modules": r".*\.mlp\.q_proj"}, "no linear module of the model is called so"),
        ({"target_modules": ["w2"], "use_dora": True}, "lora_config.use_dora=true: adapters of parameters have it not, and moe.experts.fc2 is one"),
        ({"target_modules": ["w2"], "lora_dropout": 0.1}, "lora_config.lora_dropout=0.1: adapters of parameters have it not"),
        ({"target_modules": ["q_proj"], "rank_pattern": {"q_proj": 0}}, "lora_config.rank_pattern is .*it should be a whole number above 0 for each"),
        ({"target_modules": ["q_proj"], "rank_pattern": ["q_proj"]}, "it should be ranks by names of linear maps"),
    ],
)
def test_what_peft_stops_at_is_refused(adapters: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        _merak(tmp_path, MIXTRAL, {"r": 4, **adapters})


def test_patterns_of_no_adapter_are_said(tmp_path: Path) -> None:
    """Of a rank for what has no adapter, or for what an earlier pattern means, and of one that is not run."""
    ranks = {"layers.0.self_attn.q_proj": 8, "q_proj": 2, "k_proj": 2, r"self_attn\..*": 1}
    made = _merak(tmp_path, MIXTRAL, {"r": 4, "target_modules": ["q_proj"], "rank_pattern": ranks})
    assert made.placed().rank_pattern == ("layers.0-0.q_proj=8", "layers.1-1.q_proj=2")
    assert next(row.why for row in made.rows if row.key == "lora_config.rank_pattern") == r"k_proj, self_attn\..*: of no adapter, or said before"


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
