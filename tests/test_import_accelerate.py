"""Accelerate's files: FSDP, DeepSpeed, Megatron-LM's plugin and replicas, with the Trainer's arguments or without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "accelerate"


def of(name: str) -> Job:
    return load_job("accelerate", str(FILES / name / "accelerate.yaml"), str(FILES / name / "arguments.json"))


def job(tmp_path: Path, *more: str, variables: dict[str, str] | None = None, **data: Any) -> Job:
    path = tmp_path / "config.yaml"
    path.write_text(format_yaml({"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8, **data}))
    return load_job("accelerate", str(path), *more, model="llama3-8b", variables=variables)


def test_deepspeed_splits_sequences_itself(tmp_path: Path) -> None:
    degrees = {f"parallelism_config_{name}": value for name, value in dict(sp_size=2, sp_backend="deepspeed", dp_shard_size=2).items()}
    section = {"zero_stage": 3, "seq_parallel_communication_data_type": "bf16"}
    made = job(tmp_path, distributed_type="DEEPSPEED", num_processes=4, deepspeed_config=section, parallelism_config=degrees)
    found = made.placed()
    assert (found.cp, found.cp_comm_type, found.dp, found.zero) == (2, "a2a", 2, 3)
    assert {row.key: row.fate for row in made.rows}["parallelism_config.parallelism_config_sp_size"] == "mapped"


def test_fsdp_with_arguments() -> None:
    made = of("fsdp")
    found = dict(made.strategy or {})
    assert made.architecture is not None and made.architecture.name == "llama3.1-8b"
    assert (found["zero"], found["dp"], found["recompute"], found["seq_length"]) == (3, 16, "full", 8192)
    assert (found["micro_batch_size"], found["num_microbatches"], found["gradient_sync"]) == (2, 4, "last_microbatch")
    assert made.assumptions["fsdp_parameters"] == "main" and "optimizer_implementation" not in made.assumptions


def test_zero_3_of_the_section() -> None:
    found = dict(of("zero3").strategy or {})
    assert (found["zero"], found["optimizer_cpu_offload"], found["num_microbatches"], found["clip_grad"]) == (3, True, 2, 1.0)
    assert found["dp"] == 8 and found["precision"] == "bf16"


def test_megatron() -> None:
    found = dict(of("megatron").strategy or {})
    assert (found["tp"], found["pp"], found["dp"], found["sp"], found["zero"]) == (2, 2, 2, True, 1)
    assert (found["num_microbatches"], found["recompute"], found["fusion"]) == (8, "selective", "te")


def test_a_mesh_of_parallelism_config(tmp_path: Path) -> None:
    mesh = {f"parallelism_config_{name}": degree for name, degree in (("tp_size", 2), ("dp_replicate_size", 2), ("dp_shard_size", 2))}
    found = dict(job(tmp_path, fsdp_config={"fsdp_version": 2, "fsdp_reshard_after_forward": False}, parallelism_config=mesh).strategy or {})
    assert (found["tp"], found["dp"], found["num_distributed_optimizer_instances"]) == (2, 4, 2) and found["reshard_after_forward"] is False


def test_the_json_that_it_names_and_sizes_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}))
    made = job(tmp_path, distributed_type="DEEPSPEED", deepspeed_config={"deepspeed_config_file": "ds.json"}, variables={"micro_batch_size": "3"})
    found = dict(made.strategy or {})
    assert found["zero"] == 2 and found["dp"] == 8
    plain = dict(job(tmp_path, distributed_type="MULTI_GPU", variables={"micro_batch_size": "3", "seq_length": "256"}).strategy or {})
    assert (plain["zero"], plain["micro_batch_size"], plain["seq_length"], plain["overlap_grad_reduce"]) == (0, 3, 256, True)


def test_recipes_of_8_bits(tmp_path: Path) -> None:
    assert dict(job(tmp_path, mixed_precision="fp8", fp8_config={"backend": "TE"}).strategy or {})["fp8"] == "delayed"
    assert dict(job(tmp_path, mixed_precision="fp8", fp8_config={"backend": "AO"}).strategy or {})["fp8"] == "tensorwise"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"num_machins": 3}, "an Accelerate file has no key 'num_machins': did you mean 'num_machines'"),
        ({"parallelism_config": {"parallelism_config_dp_shard_size": 1.5}}, "dp_shard_size is 1.5; it should be a whole number from -1 up"),
        ({"distributed_type": "TPU"}, "distributed_type is TPU; it should be one of"),
        ({"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "none.json"}}, "this file is not here; give it after"),
        ({"parallelism_config": {"parallelism_config_tp_size": 3}}, "no multiple of"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, **data)


def test_adapters_of_a_script(tmp_path: Path) -> None:
    """TRL's names: rank 16 of queries and values by default, over base weights in 4 bits."""
    (tmp_path / "args.json").write_text(json.dumps({"use_peft": True, "lora_r": 32, "load_in_4bit": True, "bf16": True}))
    made = job(tmp_path, str(tmp_path / "args.json"), distributed_type="MULTI_GPU")
    found = dict(made.strategy or {})
    assert (found["tuner_type"], found["lora_rank"], found["lora_dropout"], found["quantize_base"]) == ("lora", 32, 0.05, "nf4")
    assert found["target_modules"] == ["q_proj", "v_proj"] and found["autocast"] and symsim.derive(made.architecture, found).strategy.autocast
    plain = dict(job(tmp_path, distributed_type="MULTI_GPU").strategy or {})
    assert "tuner_type" not in plain and plain["autocast"]


def test_keys_of_deepspeeds_json_that_accelerate_does_not_read(tmp_path: Path) -> None:
    """Its launcher takes the section's names for arguments, of which there is none like these (commands/launch.py)."""
    path = tmp_path / "a.yaml"
    section = "  zero_stage: 2\n  bf16:\n    enabled: true\n  tensor_parallel_size: 1\n"
    path.write_text(f"distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n{section}")
    rows = {row.key: row for row in load_job("accelerate", str(path), model="qwen2.5-7b").rows}
    assert rows["deepspeed_config.bf16.enabled"].fate == rows["deepspeed_config.tensor_parallel_size"].fate == "no_cost_effect"
    assert rows["deepspeed_config.zero_stage"].to == "zero"


def test_the_launchers_precision_holds_where_the_arguments_name_none(tmp_path: Path) -> None:
    made = job(tmp_path)
    told = {row.key: row for row in made.rows}
    assert made.placed().precision == "bf16" and told["mixed_precision"].fate == "mapped" and "bf16" not in told
    plain = {row.key: row.fate for row in job(tmp_path, mixed_precision=None).rows}
    assert plain["bf16"] == "derived"


LAUNCH = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
accelerate launch --config_file configs/fsdp.yaml --num_processes 16 --machine_rank $RANK \\
    scripts/sft.py --model_name meta-llama/Llama-3.1-8B --per_device_train_batch_size=2 --gradient_accumulation_steps 4 \\
    --max_seq_length 8192 --bf16 --use_lora --lora_rank 32 --dataset_mixer_list a 1.0
"""


def script(tmp_path: Path, text: str, *more: str, **variables: str) -> Job:
    path = tmp_path / "jobs" / "train.sh"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return load_job("accelerate", str(path), *more, variables=variables)


def test_a_script_that_launches_the_trainer(tmp_path: Path) -> None:
    """The file lies where its path from the root of a checkout says; the launcher's options hold over it."""
    (tmp_path / "configs").mkdir()
    file = tmp_path / "configs" / "fsdp.yaml"
    file.write_text(format_yaml({"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8}))
    made = script(tmp_path, LAUNCH)
    found, told = made.placed(), {row.key: row.fate for row in made.rows}
    assert made.architecture is not None and made.architecture.name == "llama3.1-8b"
    assert (found.zero, found.dp, found.micro_batch_size, found.num_microbatches, found.seq_length) == (3, 16, 2, 4, 8192)
    assert (found.tuner_type, found.lora_rank) == ("lora", 32)
    assert told["use_lora"] == told["lora_rank"] == told["model_name"] == told["num_processes"] == "mapped" and "lora_r" not in told
    file.rename(tmp_path / "fsdp.yaml")
    with pytest.raises(InputError, match=r"train.sh:\d+: --config_file names 'configs/fsdp.yaml', which is not here"):
        script(tmp_path, LAUNCH)
    assert script(tmp_path, LAUNCH, str(tmp_path / "fsdp.yaml")).placed() == found


def test_scripts_without_accelerate(tmp_path: Path) -> None:
    """FSDP by the Trainer's own words with the section that a file has, or DDP; a DeepSpeed JSON where the arguments name one."""
    text = "torchrun --nproc_per_node=4 --nnodes 2 train.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1 --bf16 True"
    found = script(tmp_path, text).placed()
    assert (found.zero, found.dp, found.overlap_grad_reduce, found.autocast) == (0, 8, True, True)
    (tmp_path / "section.json").write_text(json.dumps({"activation_checkpointing": True, "backward_prefetch": "backward_pre"}))
    found = script(tmp_path, f"{text} --fsdp 'full_shard auto_wrap' --fsdp_config section.json").placed()
    assert (found.zero, found.dp, found.recompute) == (3, 8, "full")
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}))
    assert script(tmp_path, f"{text} --deepspeed ds.json").placed().zero == 2
    with pytest.raises(InputError, match="deepspeed is other.json; it should be a file that is here"):
        script(tmp_path, f"{text} --deepspeed other.json")
    with pytest.raises(InputError, match="no command starts a training"):
        script(tmp_path, "python evaluate.py --tasks all")


def test_what_the_launcher_alone_says(tmp_path: Path) -> None:
    """No file: replicas, FSDP or DeepSpeed by its switches; a YAML of arguments, over which those of the script hold; TRL's own command."""
    program = "sft.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1 --bf16"
    assert script(tmp_path, f"accelerate launch --num_processes 4 {program}").placed().zero == 0
    found = script(tmp_path, f"accelerate launch --use_fsdp --fsdp_reshard_after_forward false --num_processes 4 {program}").placed()
    assert (found.zero, found.reshard_after_forward, found.dp) == (3, False, 4)
    found = script(tmp_path, f"mason.py --gpus 8 -- accelerate launch --use_deepspeed --zero_stage 2 {program}").placed()
    assert (found.zero, found.dp) == (2, 8)
    (tmp_path / "sft.yaml").write_text("model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 8\nmax_length: 2048\n")
    made = script(tmp_path, "trl sft --config sft.yaml --accelerate_config zero3 --num_processes 2 --per_device_train_batch_size 4")
    found = made.placed()
    assert (found.zero, found.dp, found.micro_batch_size, found.seq_length, found.precision) == (3, 2, 4, 2048, "bf16")
    with pytest.raises(InputError, match="--accelerate_config zero4: it should be one of single_gpu"):
        script(tmp_path, "trl sft --config sft.yaml --accelerate_config zero4")
    with pytest.raises(InputError, match="--config names 'none.yaml', which is not here"):
        script(tmp_path, "trl sft --config none.yaml")


def test_packing_of_open_instruct_is_without_padding(tmp_path: Path) -> None:
    """Not rows that are filled, as TRL's."""
    script = tmp_path / "run.sh"
    words = "--model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_length 2048 --packing"
    for more, option in (("", False), (" --dataset_mixer_list a/b 1.0", True)):
        script.write_text(f"accelerate launch --num_processes 8 finetune.py {words}{more}\n")
        made = load_job("accelerate", str(script), variables={"packed_document_length": "512"})
        assert made.placed().padding_free == option and {row.key: row.fate for row in made.rows}["packing"] == "mapped"


def test_keys_of_scripts_that_change_a_step_where_they_are_off(tmp_path: Path) -> None:
    """open-instruct's finetune.py until 2026: attn_implementation is eager without use_flash_attn, AdamW not fused without fused_optimizer."""
    start = (
        "accelerate launch --mixed_precision bf16 --num_processes 8 finetune.py --model_name_or_path meta-llama/Llama-3.1-8B --max_seq_length 4096"
    )
    for said, kernel, fate in (
        ("True", None, "no_cost_effect"),
        ("False", "eager", "not_modelled"),
    ):
        made = script(tmp_path, f"{start} --use_flash_attn {said} --fused_optimizer {said} --lora_bias {'none' if said == 'True' else 'all'}")
        told = {row.key: row.fate for row in made.rows}
        assert made.assumptions.get("attention_kernel") == kernel
        assert (told["use_flash_attn"], told["fused_optimizer"], told["lora_bias"]) == ("mapped", fate, fate)


def test_gradients_of_every_micro_batch_and_paged_states(tmp_path: Path) -> None:
    """open-instruct's finetune.py: shards of gradients wait unless it synchronises each batch; bitsandbytes' Adam with weights in few bits alone."""
    start = "accelerate launch --mixed_precision bf16 --num_processes 8 --use_fsdp finetune.py --model_name_or_path meta-llama/Llama-3.1-8B \\\n"
    sizes = "  --max_seq_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --use_8bit_optimizer True"
    found = {}
    for more in ("", "--sync_each_batch", "--use_lora True --use_qlora True"):
        made = script(tmp_path, f"{start}{sizes} {more}")
        strategy = made.placed()
        fates = {row.key: row.fate for row in made.rows}
        found[more] = strategy.gradient_sync, strategy.optimizer_bits, fates["use_8bit_optimizer"], fates.get("no_sync"), fates.get("sync_each_batch")
    assert found[""] == ("last_microbatch", 32, "no_cost_effect", "derived", None)
    assert found["--sync_each_batch"] == ("every_microbatch", 32, "no_cost_effect", None, "mapped")
    assert found["--use_lora True --use_qlora True"] == ("last_microbatch", 8, "mapped", "derived", None)
