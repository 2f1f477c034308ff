"""torchtune's configurations: the model of a builder, sharding, memory, and a row for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.importers.torchtune.tables import model_named
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "torchtune"


def job(tmp_path: Path, model: str = "llama3_2.llama3_2_1b", **data: Any) -> Job:
    path = tmp_path / "recipe.yaml"
    path.write_text(format_yaml({"model": {"_component_": f"torchtune.models.{model}"}, "tokenizer": {"max_seq_len": 1024}, **data}))
    return load_job("torchtune", str(path))


def test_a_bound_of_the_norm_that_nothing_reaches(tmp_path: Path) -> None:
    """clip_grad_norm: inf makes the norm and scales by 1 (torch.nn.utils.clip_grad_norm_)."""
    assert [job(tmp_path, clip_grad_norm=value).placed().clip_grad for value in (float("inf"), 0.5, None)] == [1, 0.5, 0]


def test_a_full_recipe() -> None:
    made = load_job("torchtune", str(FILES / "full" / "8B_full.yaml"), variables={"world": "16", "packed_document_length": "900"})
    found = dict(made.strategy or {})
    assert made.architecture is not None and made.architecture.name == "llama3.1-8b"
    assert (found["zero"], found["dp"], found["main_params_dtype"], found["recompute"], found["seq_length"]) == (3, 16, "bf16", "full", 8192)
    assert found["packed_document_length"] == 900 and "optimizer_implementation" not in made.assumptions
    told = {row.key: row for row in made.rows}
    assert told["batch_size_val"].value == "2" and told["loss._component_"].fate != "refused"


def test_one_device_keeps_its_activations_on_the_host() -> None:
    made = load_job("torchtune", str(FILES / "lora" / "3B_lora_single_device.yaml"))
    found = dict(made.strategy or {})
    assert (found["dp"], found["zero"], found["cpu_offloading_num_layers"], found["num_microbatches"]) == (1, 0, 27, 8)
    assert (found["tuner_type"], found["lora_rank"]) == ("lora", 64) and {"q_proj", "v_proj", "down_proj"} <= set(found["target_modules"])


def test_parameters_updated_inside_backward(tmp_path: Path) -> None:
    made = job(tmp_path, optimizer_in_bwd=True)
    assert made.placed().optimizer_in_bwd and {row.key: row.fate for row in made.rows}["optimizer_in_bwd"] == "mapped"
    projected = job(tmp_path, optimizer_in_bwd=True, optimizer={"_component_": "torch.optim.Adafactor"})
    assert {row.key: row.fate for row in projected.rows}["optimizer_in_bwd"] == "not_modelled" and not projected.placed().optimizer_in_bwd
    for key, value in (("clip_grad_norm", 1.0), ("gradient_accumulation_steps", 4)):
        with pytest.raises(InputError, match=f"optimizer_in_bwd is true; it should be false where {key} is given"):
            job(tmp_path, optimizer_in_bwd=True, **{key: value})


def test_the_library_of_an_optimizer_in_8_bits(tmp_path: Path) -> None:
    """torchao compiles its update, bitsandbytes has a kernel."""
    paths = ["torchao.optim.AdamW8bit", "torchao.prototype.low_bit_optim.Adam4bit", "bitsandbytes.optim.AdamW8bit", "bitsandbytes.optim.Adam8bit"]
    made = [job(tmp_path, optimizer={"_component_": path}) for path in paths]
    assert [m.placed().optimizer_bits for m in made] == [8, 4, 8, 8]
    assert [m.assumptions.get("optimizer_implementation") for m in made] == ["compiled", "compiled", None, None]


def test_tensor_parallel_host_and_8_bit_states(tmp_path: Path) -> None:
    optimizer = {"_component_": "bitsandbytes.optim.PagedAdamW8bit"}
    found = dict(job(tmp_path, tensor_parallel_dim=2, fsdp_cpu_offload=True, optimizer=optimizer, clip_grad_norm=0.5).strategy or {})
    assert found["tp"] == 2 and found["sp"] and found["dp"] == 4 and found["offload_parameters"] and found["optimizer_bits"] == 8
    assert found["clip_grad"] == 0.5


@pytest.mark.parametrize(
    ("component", "model"),
    [
        ("torchtune.models.llama3_1.qlora_llama3_1_405b", "llama3.1-405b"),
        ("torchtune.models.llama3_3.llama3_3_70b", "llama3.1-70b"),
        ("torchtune.models.qwen2_5.lora_qwen2_5_7b_base", "qwen2.5-7b"),
        ("torchtune.models.qwen3.qwen3_8b_instruct", "qwen3-8b"),
        ("torchtune.models.gemma2.gemma2_9b", "gemma-2-9b"),
        ("torchtune.models.mistral.lora_mistral_7b", "mistral-7b-v0.1"),
        ("torchtune.models.llama2.llama2", None),
    ],
)
def test_models_by_their_builders(component: str, model: str | None) -> None:
    assert model_named(component) == model


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"batchsize": 3}, "a torchtune file has no key 'batchsize': did you mean 'batch_size'"),
        ({"data_parallel_shard_dim": 0.5}, "data_parallel_shard_dim is 0.5; it should be a whole number from -1 up"),
        ({"data_parallel_shard_dim": 10**9}, "at most 1048576 ranks"),
        ({"dtype": "int8"}, "dtype is int8; it should be one of"),
        ({"optimizer": {"_component_": "my.Own"}}, "an optimizer of PyTorch"),
        ({"ac_mode": "selective", "ac_option": "x"}, "a whole number above 0"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, **data)


def test_four_bits_magnitudes_and_chunks(tmp_path: Path) -> None:
    chunks = {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss", "num_output_chunks": 16}
    plain = dict(job(tmp_path, "llama3_2.qlora_llama3_2_1b", loss=chunks).strategy or {})
    assert (plain["quantize_base"], plain["cross_entropy_fusion"], plain["cross_entropy_chunks"]) == ("nf4_torchao", "output_chunks", 16)
    linear = {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"}
    compiled = dict(job(tmp_path, "llama3_2.qlora_llama3_2_1b", loss=linear, compile=True).strategy or {})
    assert (compiled["quantize_base"], compiled["cross_entropy_fusion"]) == ("nf4_torchao_compiled", "compiled_chunks")
    made = load_job("torchtune", str(FILES / "lora" / "3B_lora_single_device.yaml"))
    assert "use_dora" not in (made.strategy or {}) and {row.key: row for row in made.rows}["loss._component_"].fate == "mapped"


def test_what_is_trained_of_a_model_with_towers_is_no_unknown_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    model = {"_component_": "torchtune.models.llama4.lora_llama4_scout_17b_16e", "decoder_trainable": "lora", "encoder_trainable": "frozen"}
    path.write_text(format_yaml({"model": model, "tokenizer": {"max_seq_len": 1024}}))
    told = {row.key: row.fate for row in load_job("torchtune", str(path)).rows}
    assert told["model.decoder_trainable"] == told["model.encoder_trainable"] == "no_cost_effect"


def test_numbers_of_rotary_embeddings_cost_nothing(tmp_path: Path) -> None:
    model = {"_component_": "torchtune.models.llama3_2.llama3_2_1b", "rope_base": 500_000, "scale_factor": 32}
    path = tmp_path / "recipe.yaml"
    path.write_text(format_yaml({"model": model, "tokenizer": {"max_seq_len": 1024}, "save_final_checkpoint": False}))
    told = {row.key: row.fate for row in load_job("torchtune", str(path)).rows}
    assert told["model.rope_base"] == told["model.scale_factor"] == told["save_final_checkpoint"] == "no_cost_effect"
