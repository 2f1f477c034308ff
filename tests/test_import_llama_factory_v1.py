"""The YAML of LLaMA-Factory's second trainer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

BASE = {"model": "Qwen/Qwen3-4B", "model_class": "llm", "train_dataset": "data/ours.yaml", "cutoff_len": 4096, "dist_config": {"name": "fsdp2"}}

# of the classes at ff6d4d12e
NAMES = """custom_chat_template trust_remote_code flash_attn init_config.name peft_config.name kernel_config.name quant_config.name output_dir
micro_batch_size global_batch_size learning_rate num_train_epochs max_steps max_grad_norm bf16 batching_strategy batching_workers
enable_activation_checkpointing dp_size cp_size cp_mode mp_replicate_size mp_shard_size dist_timeout optim_config.name lr_scheduler_config seed
full_determinism resume_from_checkpoint save_steps save_epochs save_ckpt_as_hf save_total_limit logging_steps pref_loss pref_beta pref_ftx
simpo_gamma dpo_label_smoothing ld_alpha eval_dataset sample_backend max_new_tokens peft_config.r peft_config.lora_alpha peft_config.use_rslora
peft_config.target_modules peft_config.use_dora peft_config.modules_to_save peft_config.adapter_name_or_path peft_config.export_dir
peft_config.freeze_trainable_layers peft_config.freeze_trainable_modules peft_config.cast_trainable_params_to_fp32
quant_config.quantization_bit quant_config.double_quantization dist_config.reshard_after_forward dist_config.offload_params
dist_config.dcp_path dist_config.ep_size dist_config.ep_dispatcher""".split()


def job(tmp_path: Path, data: dict[str, Any], *more: str, **options: Any) -> Job:
    path = tmp_path / "train.yaml"
    path.write_text(format_yaml({key: value for key, value in {**BASE, **data}.items() if value is not None}))
    return load_job("llama-factory", str(path), *more, **options)


def rows(made: Job) -> dict[str, Any]:
    return {row.key: row for row in made.rows}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {"zero": 3, "dp": 8, "precision": "bf16", "recompute": "full", "seq_length": 4096, "micro_batch_size": 1, "grad_reduce_in_fp32": True}),
        ({"dist_config": None}, {"zero": 0, "overlap_grad_reduce": True}),
        ({"bf16": False, "enable_activation_checkpointing": False}, {"precision": "fp32", "recompute": None}),
        ({"micro_batch_size": 2, "global_batch_size": 64}, {"num_microbatches": 4}),
        ({"cp_size": 2, "cp_mode": "ulysses"}, {"cp": 2, "cp_comm_type": "a2a", "dp": 4}),
        ({"dp_size": 16, "cp_size": 2}, {"dp": 16, "cp": 2}),
        ({"mp_replicate_size": 2, "mp_shard_size": 8}, {"dp": 16, "num_distributed_optimizer_instances": 2}),
        ({"peft_config": {"name": "lora", "r": 16, "target_modules": "all"}}, {"tuner_type": "lora", "lora_rank": 16, "lora_dropout": 0.05}),
        (
            {"peft_config": {"name": "lora"}, "quant_config": {"name": "bnb", "quantization_bit": 4}},
            {"quantize_base": "nf4_double", "lora_rank": 8, "use_dora": None},
        ),
        ({"peft_config": {"name": "lora", "use_dora": True}, "pref_loss": "sigmoid"}, {"use_dora": True, "further_forwards": 1}),
        ({"pref_loss": "simpo"}, {"micro_batch_size": 2, "reference_models": None}),
        ({"peft_config": {"name": "freeze", "freeze_trainable_layers": 3}}, {"trainable_parameters": ["layers.33-35"]}),
        (
            {"peft_config": {"name": "freeze", "freeze_trainable_layers": 3, "freeze_trainable_modules": "mlp"}},
            {"trainable_parameters": ["layers.33-35.mlp"]},
        ),
        ({"optim_config": {"name": "muon", "wd": 0.1, "ns_steps": 5}}, {"optimizer": "muon"}),
        ({"kernel_config": {"name": "auto, liger_kernel"}}, {"cross_entropy_fusion": "liger"}),
        ({"dist_config": {"name": "fsdpturbo", "ep_size": 8}, "model": "Qwen/Qwen3-30B-A3B"}, {"ep": 8, "dp": 8, "zero": 3}),
        ({"dist_config": {"name": "fsdpturbo", "ep_size": 16}, "model": "Qwen/Qwen3-30B-A3B"}, {"ep": 16, "dp": 16, "zero": 3}),
        ({"dist_config": {"name": "fsdp2", "ep_size": 16}, "model": "Qwen/Qwen3-30B-A3B"}, {"ep": None, "dp": 8, "zero": 3}),
        ({"dist_config": {"name": "fsdp2", "reshard_after_forward": False}}, {"reshard_after_forward": False}),
        ({"dist_config": {"name": "fsdp2", "offload_params": True}}, {"offload_parameters": True, "optimizer_cpu_offload": True}),
        ({"dist_config": {"name": "deepspeed", "config_file": "examples/deepspeed/ds_z2_config.json"}}, {"zero": 2}),
    ],
)
def test_what_a_file_says(tmp_path: Path, data: dict[str, Any], expected: dict[str, Any]) -> None:
    made = job(tmp_path, data)
    strategy = dict(made.strategy or {})
    assert {key: strategy.get(key) for key in expected} == expected
    assert len(rows(made)) == len(made.rows)


def test_a_deepspeed_file_that_is_given(tmp_path: Path) -> None:
    stage = tmp_path / "ours.json"
    stage.write_text(json.dumps({"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": "auto"}))
    made = job(tmp_path, {"dist_config": {"name": "deepspeed", "config_file": "ours.json"}}, str(stage), variables={"world": "16"})
    assert (made.strategy or {})["zero"] == 1 and (made.strategy or {})["dp"] == 16
    with pytest.raises(InputError, match="names no DeepSpeed JSON"):
        job(tmp_path, {}, str(stage))


def test_every_key_has_a_row(tmp_path: Path) -> None:
    """Given or not, a name of the classes is known."""
    for name in NAMES:
        section, _, key = name.partition(".")
        data = {section: {**({"name": "lora"} if section == "peft_config" else {}), key: None}} if key else {name: None}
        path = tmp_path / "train.yaml"
        path.write_text(format_yaml({**{k: v for k, v in BASE.items() if k != section}, **data}))
        assert name in rows(load_job("llama-factory", str(path))), name


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"micro_batch_sise": 1}, "did you mean 'micro_batch_size'"),
        ({"kernel_config": {"name": "ligre_kernel"}}, "did you mean 'liger_kernel'"),
        ({"global_batch_size": 12}, "a multiple of 8: micro_batch_size 1 on 8 ranks"),
        ({"dist_config": {"name": "fsdp3"}}, "one of fsdp2, fsdpturbo, deepspeed"),
        ({"peft_config": {"name": "lora"}, "quant_config": {"name": "bnb", "quantization_bit": 3}}, "it should be 4 or 8"),
        ({"cutoff_len": 0}, "a whole number from 1 up"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, data)


def test_mutated_files_end_in_a_job_or_a_sentence(tmp_path: Path) -> None:
    draw = random.Random(3)
    whole = format_yaml({**BASE, "peft_config": {"name": "lora", "r": 16}, "kernel_config": {"name": "auto"}, "quant_config": {"name": "bnb"}})
    pieces = ("!!python/object:os.system ls", "$(touch pwned)", "9" * 50, "[", "{", "\t", "\x00", "~", "- ", "&a", "true", "-1", "1e999", "é")
    path = tmp_path / "train.yaml"
    for _ in range(50):
        at = draw.randrange(len(whole))
        path.write_text(whole[:at] + draw.choice(pieces) + whole[at + draw.choice((0, 1, 5)) :])
        try:
            load_job("llama-factory", str(path), lenient=draw.random() < 0.5)
        except InputError as error:
            assert "\n" not in str(error)
    assert not (tmp_path / "pwned").exists()
