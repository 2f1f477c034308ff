"""Exported files that their trainers start with, and sentences for what a trainer refuses. `tests/draws/starts.py` asks the trainers themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import symsim
from symsim.errors import InputError
from symsim.exporters.export import Asked, export, plain
from symsim.inputs.strategies import load_strategy

STAGES = "pp=4,dp=4,zero=3,num_microbatches=8"


def written(kind: str, model: str, options: str, place: Path) -> tuple[str, list[str]]:
    (path,), said = export(kind, Asked(symsim.load_model(model), load_strategy(options)), place)
    return path.read_text(), said


@pytest.mark.parametrize(
    "model, options, suffix, sentence",
    [
        ("llama2-7b", "dp=4,zero=3", ".toml", "TOML files has no llama2 7B"),
        ("llama2-7b", "dp=4,zero=3", ".py", "torchtitan since 2026-02 has no llama2 7B"),
        ("llama3.2-1b", "dp=4,zero=3", ".toml", "has no llama3 1B, as llama3.2-1b is called there: write a file that ends in .py"),
        ("qwen3.5-9b", "dp=4,zero=3", ".toml", "has no qwen3_5 9B"),
        ("moonlight-16b-a3b", "dp=4,zero=3", ".toml", "has no kimi_k2_7 moonlight-16B-A3B"),
        ("llama4-scout", "dp=4,zero=3", ".py", "has no llama4 17bx16e, as llama4-scout is called there: write a file that ends in .toml"),
        ("qwen3-8b", STAGES, ".toml", "does not cut qwen3 into stages"),
        ("gpt-oss-20b", STAGES, ".toml", "does not cut gpt_oss into stages"),
        ("deepseek-v3", "cp=2,dp=4,zero=3", ".toml", "runs deepseek_v3 without context ranks"),
        ("qwen3-0.6b", STAGES, ".py", "whose head is its embedding, as that of qwen3-0.6b is; give pp=1"),
        ("qwen3.5-9b", "cp=2,dp=4,zero=3", ".py", "qwen3_5, as qwen3.5-9b is called there, without context parallelism; give cp=1"),
        ("moonlight-16b-a3b", "cp=2,dp=4,zero=3", ".py", "kimi_k2_7, as moonlight-16b-a3b is called there, without context parallelism"),
        ("qwen3.5-4b", "tp=8,sp=true,dp=4,zero=3", ".py", "tp=8 does not divide the 4 of qwen3.5-4b"),
        (
            "deepseek-v3",
            "dp=4,zero=3,seq_length=32768",
            ".py",
            "positions for 16384 tokens of deepseek_v3, as deepseek-v3 is called there; seq_length=32768",
        ),
        ("llama3-8b", "pp=4,dp=4,zero=3,num_microbatches=2", ".py", "schedule=1f1b with as many micro-batches as stages, 4, or more; there are 2"),
        ("llama3-8b", "pp=4,dp=4,zero=3,num_microbatches=2", ".toml", "schedule=1f1b with as many micro-batches as stages, 4, or more; there are 2"),
    ],
)
def test_what_torchtitan_does_not_start_with_is_not_written(model: str, options: str, suffix: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        written("torchtitan", model, options, tmp_path / f"job{suffix}")
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "model, options, suffix",
    [
        ("qwen3-8b", STAGES, ".py"),
        ("llama3-8b", STAGES, ".toml"),
        ("qwen3-0.6b", "dp=4,zero=3", ".toml"),
        ("qwen3.5-4b", STAGES, ".py"),
        ("deepseek-v3", "cp=2,dp=4,zero=3", ".py"),
        ("deepseek-v3", "dp=4,zero=3,seq_length=16384", ".py"),
        ("deepseek-v3", "dp=4,zero=3,seq_length=32768", ".toml"),
        ("llama3-8b", "pp=4,dp=4,zero=3,num_microbatches=2,schedule=gpipe", ".toml"),
    ],
)
def test_what_torchtitan_starts_with_is_written(model: str, options: str, suffix: str, tmp_path: Path) -> None:
    assert written("torchtitan", model, options, tmp_path / f"job{suffix}")[0]


def test_torchtitan_has_a_head_beside_the_embedding_of_qwen_3_5(tmp_path: Path) -> None:
    """Its own count of parameters of the flavor 0.8B without the vision tower."""
    _, said = written("torchtitan", "qwen3.5-0.8b", "dp=4,zero=3", tmp_path / "job.py")
    assert "torchtitan cannot say tie_word_embeddings=true: what is written means false" in said
    job = symsim.load_job("torchtitan", str(tmp_path / "job.py"))
    assert symsim.derive(job.architecture, job.strategy, job.assumptions).value("params.total") == 1_006_672_704


def arguments(model: str, options: str, place: Path) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(written("swift", model, options, place)[0])
    return made


def test_ms_swift_has_data_and_an_end(tmp_path: Path) -> None:
    """Without train_iters it fails before the first step, without packing rows are as long as samples."""
    made = arguments("llama3-8b", "tp=2,sp=true,dp=4", tmp_path / "train.yaml")
    assert (made["train_iters"], made["packing"], made["dataset"]) == (100, True, ["AI-ModelScope/alpaca-gpt4-data-en"])
    back = symsim.load_job("swift", str(tmp_path / "train.yaml"))
    assert back.placed().seq_length == 4096


@pytest.mark.parametrize("zero, queues", [(3, 32), (2, 32), (1, None)])
def test_ms_swift_shards_with_many_queues(zero: int, queues: int | None, tmp_path: Path) -> None:
    made = arguments("llama3-8b", f"dp=8,zero={zero}", tmp_path / "train.yaml")
    assert made["ENV"].get("CUDA_DEVICE_MAX_CONNECTIONS") == queues


@pytest.mark.parametrize("backend, extra", [("deepep", None), ("hybridep", {"moe_flex_dispatcher_backend": "hybridep"})])
def test_ms_swift_is_told_of_an_exchange_where_it_listens(backend: str, extra: dict[str, str] | None, tmp_path: Path) -> None:
    options = f"dp=8,ep=8,moe_token_dispatcher_type=flex,moe_flex_dispatcher_backend={backend}"
    made = arguments("qwen3-30b-a3b", options, tmp_path / "train.yaml")
    assert "moe_flex_dispatcher_backend" not in made and made.get("megatron_extra_kwargs") == extra
    assert symsim.load_job("swift", str(tmp_path / "train.yaml")).placed().moe_flex_dispatcher_backend == backend


def test_ms_swift_has_no_argument_for_the_norm_of_parameters(tmp_path: Path) -> None:
    text, said = written("swift", "llama3-8b", "dp=8,log_params_norm=true", tmp_path / "train.yaml")
    assert "log_params_norm:" not in text and "ms-swift cannot say log_params_norm=true: what is written means false" in said


def test_ms_swift_runs_sinks_with_another_kernel_than_flash(tmp_path: Path) -> None:
    assert arguments("gpt-oss-20b", "dp=8,ep=2,etp=1", tmp_path / "train.yaml")["attention_backend"] == "fused"
    assert "attention_backend" not in arguments("llama3-8b", "dp=8", tmp_path / "train.yaml")


def test_models_that_ms_swift_does_not_train_by_megatron(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ms-swift does not train mixtral-8x7b by Megatron-Core"):
        written("swift", "mixtral-8x7b", "dp=8", tmp_path / "train.yaml")


def test_deepspeed_counts_tensor_ranks_as_replicas(tmp_path: Path) -> None:
    made = json.loads(written("deepspeed", "llama3-8b", "tp=2,dp=4,zero=1,num_microbatches=4,fusion=eager", tmp_path / "ds.json")[0])
    assert made["train_batch_size"] == 4 * 8
    assert symsim.load_job("deepspeed", str(tmp_path / "ds.json"), model="llama3-8b").placed().dp == 4


def test_deepspeed_is_told_both_sizes_of_its_mesh(tmp_path: Path) -> None:
    options = "cp=2,cp_comm_type=a2a,dp=4,zero=3,num_microbatches=4,fusion=eager"
    made = json.loads(written("deepspeed", "llama3-8b", options, tmp_path / "ds.json")[0])
    assert (made["data_parallel_size"], made["sequence_parallel_size"], made["train_batch_size"]) == (4, 2, 16)
    back = symsim.load_job("deepspeed", str(tmp_path / "ds.json"), model="llama3-8b").placed()
    assert {name: plain(back)[name] for name in ("dp", "cp", "num_microbatches")} == {"dp": 4, "cp": 2, "num_microbatches": 4}


@pytest.mark.parametrize("optimizer, zero, told", [("sgd", 2, True), ("lamb", 1, True), ("adam", 2, False), ("lion", 1, False), ("sgd", 0, False)])
def test_zero_takes_an_optimizer_that_is_not_tested_when_told_to(optimizer: str, zero: int, told: bool, tmp_path: Path) -> None:
    made = json.loads(written("deepspeed", "llama3-8b", f"dp=4,zero={zero},optimizer={optimizer},fusion=eager", tmp_path / "ds.json")[0])
    assert made.get("zero_allow_untested_optimizer", False) is told


@pytest.mark.parametrize(
    "options, sentence",
    [
        ("zero=0", "DeepSpeed sums gradients of bf16 in fp32 without ZeRO before 0.17.6 alone"),
        ("zero=0,grad_reduce_in_fp32=false", "DeepSpeed sums gradients of bf16 in bf16 without ZeRO since 0.17.6 alone"),
        ("zero=1,optimizer=muon", "DeepSpeed has Muon since 0.17.6"),
        ("tp=2,zero=3", "DeepSpeed has tensor ranks beside ZeRO stage 3 in newer versions alone: 0.19.5 starts so, 0.16.4 does not"),
    ],
)
def test_what_some_versions_of_deepspeed_refuse_is_said(options: str, sentence: str, tmp_path: Path) -> None:
    _, said = written("deepspeed", "llama3-8b", f"dp=4,fusion=eager,{options}", tmp_path / "ds.json")
    assert sentence in said
    _, said = written("deepspeed", "llama3-8b", "dp=4,fusion=eager,zero=1", tmp_path / "ds.json")
    assert not [one for one in said if "0.17.6" in one]


def test_types_that_no_deepspeed_puts_together(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not sum gradients of fp16 in fp32 without ZeRO"):
        written("deepspeed", "llama3-8b", "dp=4,zero=0,precision=fp16,fusion=eager", tmp_path / "ds.json")
    assert written("deepspeed", "llama3-8b", "dp=4,zero=0,precision=fp16,grad_reduce_in_fp32=false,fusion=eager", tmp_path / "ds.json")


@pytest.mark.parametrize("zero, ratio", [(1, None), (3, 0.5)])
def test_a_part_of_the_optimizer_goes_to_the_host_in_stage_3_alone(zero: int, ratio: float | None, tmp_path: Path) -> None:
    options = f"dp=4,zero={zero},use_precision_aware_optimizer=true,optimizer_cpu_offload=true,optimizer_offload_fraction=0.5,fusion=eager"
    text, said = written("deepspeed", "llama3-8b", options, tmp_path / "ds.json")
    assert json.loads(text)["zero_optimization"]["offload_optimizer"].get("ratio") == ratio
    assert any("cannot say optimizer_offload_fraction" in one for one in said) is (ratio is None)
