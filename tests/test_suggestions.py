"""What symsim says of a name that it does not know: the nearest that is near, in the right place; else what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared import SHARED
from typer.testing import CliRunner

from symsim.api.cli import app
from symsim.errors import InputError, near
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.hf.families import FAMILIES
from symsim.inputs.hf.wrappers import WRAPPERS
from symsim.inputs.models import load_model
from symsim.inputs.reading import read_yaml
from symsim.inputs.settings import split_settings
from symsim.inputs.shipped import list_models, list_systems
from symsim.inputs.spellings import ALIASES, ELSEWHERE, TOPICS, VALUES
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.pipeline.schedules import SCHEDULES


def of_strategy(text: str) -> str:
    with pytest.raises(InputError) as caught:
        load_strategy(text)
    return str(caught.value)


def of_set(text: str) -> str:
    with pytest.raises(InputError) as caught:
        split_settings([text])
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tp_size=8", "tp"),
        ("cp_size=2", "cp"),
        ("ep_size=2", "ep"),
        ("dp_degree=2", "dp"),
        ("pp-degree=2", "pp"),
        ("zero_stage=1", "zero"),
        ("zero_state=1", "zero"),
        ("seq_len=8192", "seq_length"),
        ("max_length=8192", "seq_length"),
        ("per_device_train_batch_size=1", "micro_batch_size"),
        ("train_micro_batch_size_per_gpu=1", "micro_batch_size"),
        ("gradient_accumulation_steps=8", "num_microbatches"),
        ("micro_batch_num=8", "num_microbatches"),
        ("train_batch_size=8", "global_batch_size"),
        ("interleaving_size=2", "vpp"),
        ("enable_sequence_parallel=true", "sp"),
        ("enable_recompute=true", "recompute"),
        ("gradient_checkpointing=true", "recompute"),
        ("max_grad_norm=1.0", "clip_grad"),
        ("train_schedule=1f1b", "schedule"),
        ("bf16=true", "precision"),
        ("moe_dispatcher_policy=all2all", "moe_token_dispatcher_type"),
        ("--tensor-model-parallel-size=8", "tensor_model_parallel_size"),
        ("micro_batchsize=8", "micro_batch_size"),
        ("shedule=gpipe", "schedule"),
    ],
)
def test_a_strategy_key_suggests_the_strategy_key_that_is_meant(text: str, meant: str):
    assert of_strategy(text).endswith(f"did you mean '{meant}'?")


@pytest.mark.parametrize("text", ["foo=1", "banana=1", "xp=3", "size=3", "gamma=3"])
def test_a_key_near_none_is_answered_with_the_options_by_topic(text: str):
    said = of_strategy(text)
    assert "did you mean" not in said
    assert "degrees tp, sp, cp, pp, vpp, ep, etp, dp; batch " in said and "'symsim list options'" in said


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("hidden_size=64", "a field of the model: --set hidden_size=..."),
        ("num_hidden_layers=4", "a field of the model: --set num_layers=..."),
        ("price=2", "a number of the system: --set accelerator.price=..."),
        ("nvlink=2", "a number of the system: --set network.nvlink.bandwidth=..."),
        ("causal=half", "an assumption: --set assume.causal=..."),
        ("assume.causal=half", "an assumption: --set assume.causal=..."),
        ("use_flash_sdp=true", "an assumption: --set assume.attention_kernel=..."),
    ],
)
def test_what_belongs_elsewhere_is_sent_there(text: str, place: str):
    assert place in of_strategy(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("price=2", "accelerator.price"),
        ("power=300", "accelerator.power"),
        ("memory_bandwidth=3", "accelerator.memory_bandwidth"),
        ("nvlink=400", "network.nvlink.bandwidth"),
        ("tp_size=2", "tp"),
        ("cp_size=2", "cp"),
        ("num_experts_per_tok=2", "moe_router_topk"),
        ("intermediate_size=2", "ffn_hidden_size"),
        ("attention_kernel=math", "assume.attention_kernel"),
    ],
)
def test_a_setting_suggests_the_setting_that_is_meant(text: str, meant: str):
    assert of_set(text).endswith(f"did you mean '{meant}'?")


@pytest.mark.parametrize("text", ["foo=1", "gamma=3", "banana=2"])
def test_a_setting_near_none_is_answered_with_where_names_are_listed(text: str):
    said = of_set(text)
    assert "did you mean" not in said and "'symsim list options'" in said and "'symsim list symbols'" in said


@pytest.mark.parametrize(
    ("given", "valid", "found"),
    [
        ("price", ["source", "prefix"], []),
        ("nvlink", ["sinks"], []),
        ("tp_size", ["data_parallel_size", "vocab_size"], []),
        ("foo", ["f", "h"], []),
        ("casual", ["causal", "usual"], ["causal"]),
        ("TFLOPS", ["TFLOP/s", "GFLOP/s"], ["TFLOP/s"]),
        ("h100", ["h100-sxm", "h20"], ["h100-sxm"]),
        ("", ["a", "b"], []),
        ("x", ["a", "b"], []),
        ("h200", ["h20", "h200-sxm", "h100-sxm"], ["h200-sxm"]),
        ("h2O0", ["h20", "h200-sxm"], ["h20"]),
    ],
)
def test_what_is_near(given: str, valid: list[str], found: list[str]):
    assert near(given, valid) == found


@pytest.mark.parametrize(("given", "meant"), [("adapter", "tuner_type"), ("finetuning_type", "tuner_type"), ("gpus", "world"), ("wrold", "world")])
def test_options_of_others_lead_to_ours(given: str, meant: str):
    with pytest.raises(InputError, match=f"unknown key '{given}': did you mean '{meant}'"):
        load_strategy(f"{given}=1", {})


def test_a_method_that_is_several_options_is_told_by_them():
    assert of_strategy("tuner_type=dora").endswith("valid: full, lora or oft (DoRA is tuner_type=lora,use_dora=true)")
    assert of_strategy("tuner_type=QLoRA").endswith("(QLoRA is tuner_type=lora,quantize_base=nf4_double)")
    assert of_strategy("tuner_type=lorra").endswith("(did you mean 'lora'?)")
    for name, value in VALUES:
        told = VALUES[name, value].rpartition(" ")[2]
        assert load_strategy(told) != load_strategy("tuner_type=lora") and value not in str(Strategy.model_fields[name].annotation)


def test_every_name_of_the_tables_is_there():
    for name, meant in ELSEWHERE.items():
        assert name not in Strategy.model_fields and name not in ALIASES, name
        try:
            # a value that does not fit is no matter here: the name is known
            split_settings([f"{meant}=1"])
        except InputError as error:
            assert "no such setting" not in str(error) and "not an assumption" not in str(error), (name, meant)
    assert all(name in Strategy.model_fields for _, names in TOPICS for name in names)


def test_every_alias_of_the_degrees_and_the_batch_is_known():
    if not (SHARED / "vocabulary.yaml").exists():
        pytest.skip("../shared/vocabulary.yaml is not on this machine")
    canonical = read_yaml(SHARED / "vocabulary.yaml").data["canonical"]
    ours = {
        "batch.seq_len": "seq_length",
        "batch.micro": "micro_batch_size",
        "parallel.tp": "tp",
        "parallel.pp": "pp",
        "parallel.ep": "ep",
        "parallel.sp": "sp",
        "pipeline.vpp": "vpp",
        "optim.clip": "clip_grad",
        "pipeline.schedule": "schedule",
    }
    for topic, name in ours.items():
        for keys in canonical[topic]["aliases"].values():
            for key in (k["key"] for k in keys):
                if key == "max_position_embeddings" or key in Strategy.model_fields or key in ALIASES:
                    continue
                assert of_strategy(f"{key}=2").endswith(f"did you mean '{name}'?"), key


def test_an_axis_and_a_quantity_suggest_what_is_near():
    import symsim

    for axes, options, said in (
        ({"tp_size": [1, 2]}, {}, "did you mean 'tp'?"),
        ({"price": [1, 2]}, {}, "did you mean 'accelerator.price'?"),
        ({"tp": [1, 2]}, {"by": "price"}, "'symsim list quantities' has them"),
        ({"tp": [1, 2]}, {"by": "peak"}, "did you mean 'memory.peak'?"),
    ):
        with pytest.raises(InputError) as caught:
            symsim.sweep("llama3-8b", axes, system="h100-sxm", **options)
        assert said in str(caught.value)


def test_a_systems_name_too_far_from_all_is_answered_with_the_systems():
    with pytest.raises(InputError, match="'symsim list systems'") as caught:
        load_system("zzzz")
    assert "did you mean" not in str(caught.value)


def test_a_name_that_is_meant_is_whole():
    """Names of messages say of what they are, and are long: one that is cut is no name."""
    import symsim

    result = symsim.derive("llama3-8b", "cp=4")
    with pytest.raises(InputError) as caught:
        result.formula("on_wire_dense_forward_p2p_cp")
    meant = str(caught.value).split("did you mean '")[1].removesuffix("'?")
    assert meant.startswith("on_wire_dense_forward_p2p_cp_keys") and result.formula(meant).result.symbol == meant


def listed(what: str) -> str:
    return CliRunner().invoke(app, ["list", what]).output


def test_options_are_listed():
    first = [line.split("=")[0] for line in listed("options").splitlines() if not line.startswith(" ")]
    assert first == [*Strategy.model_fields, "world"]


def test_sources_are_those_that_the_project_cites():
    said = " ".join(listed("sources").split())
    cited = [a.source for a in ASSUMPTIONS.values()] + [s.source for s in SCHEDULES.values()]
    cited += [text for system in list_systems() for text in load_system(system).sources.values()]
    cited += [load_model(m).architecture.source for m in list_models()]
    cited += [row["source"] for row in read_yaml(Path(__file__).parents[1] / "derivations/published_totals.yaml").data["totals"]]
    assert len(set(cited)) > 100
    assert [text for text in cited if text and " ".join(text.split()) not in said] == []
    assert "megatron.core transformer/moe/moe_utils.py get_capacity for formula C" in said


@pytest.mark.parametrize(("given", "said"), [("zzz", "supported: bloom, "), ("glm5", "'glm4'?"), ("qwen3moe", "did you mean 'qwen3_moe'?")])
def test_an_unknown_model_type_is_answered_with_those_that_are_read(given: str, said: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": given, "hidden_size": 64}))
    with pytest.raises(InputError) as caught:
        load_model("config.json")
    assert said in str(caught.value)
    if given == "zzz":
        assert all(family in str(caught.value) for family in ("bloom", "llama", "qwen", "deepseek", "gemma", "mixtral", "phi", "starcoder"))


def test_model_types_are_listed():
    assert listed("model_types").split() == sorted({*FAMILIES, *WRAPPERS})
