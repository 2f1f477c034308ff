"""Losses over pairs of rows, as three systems ask for them: rows, and the forward of a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.importers.job import Job
from symsim.importers.reading import load_job

_LLAMA_FACTORY = "model_name_or_path: meta-llama/Meta-Llama-3-8B\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\ncutoff_len: 2048\n"
_AXOLOTL = "base_model: meta-llama/Meta-Llama-3-8B\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nsequence_len: 2048\n"


def _job(kind: str, text: str, tmp_path: Path) -> Job:
    file = tmp_path / ("run.sh" if kind == "swift" else "job.yaml")
    file.write_text(text)
    return load_job(kind, str(file))


@pytest.mark.parametrize(
    ("kind", "key", "text", "more"),
    [
        ("llama-factory", "stage", f"{_LLAMA_FACTORY}stage: dpo\nfinetuning_type: full\n", {"reference_models": 1}),
        ("llama-factory", "stage", f"{_LLAMA_FACTORY}stage: dpo\nfinetuning_type: lora\n", {"further_forwards": 1}),
        ("llama-factory", "stage", f"{_LLAMA_FACTORY}stage: dpo\nfinetuning_type: lora\nref_model: x/y\n", {"reference_models": 1}),
        ("llama-factory", "stage", f"{_LLAMA_FACTORY}stage: dpo\nfinetuning_type: full\npref_loss: simpo\n", {}),
        ("axolotl", "rl", f"{_AXOLOTL}rl: dpo\n", {"reference_models": 1}),
        ("axolotl", "rl", f"{_AXOLOTL}rl: ipo\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n", {"further_forwards": 1}),
        ("axolotl", "rl", f"{_AXOLOTL}rl: orpo\n", {}),
        ("swift", "rlhf_type", "swift rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --tuner_type full", {"reference_models": 1}),
        ("swift", "rlhf_type", "megatron rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --tuner_type lora", {"further_forwards": 1}),
    ],
)
def test_pairs_are_two_rows_and_a_forward(kind: str, key: str, text: str, more: dict[str, Any], tmp_path: Path) -> None:
    found = _job(kind, text, tmp_path)
    asked = {"stage: dpo": "stage: sft", "rlhf --rlhf_type dpo": "sft"}
    alone = "".join(line for line in text.splitlines(True) if not line.startswith("rl: "))
    for one, other in asked.items():
        alone = alone.replace(one, other)
    single = _job(kind, alone, tmp_path)
    assert found.strategy is not None and single.strategy is not None
    given = {name: value for name, value in found.strategy.items() if name in ("reference_models", "further_forwards")}
    assert given == more
    assert found.placed().micro_batch_size == 2 * single.placed().micro_batch_size
    assert found.placed().microbatches == single.placed().microbatches
    row = next(row for row in found.rows if row.key == key)
    assert row.fate == "mapped" and "two rows for each sample" in row.why


@pytest.mark.parametrize(
    ("kind", "key", "text", "more"),
    [
        ("llama-factory", "stage", f"{_LLAMA_FACTORY}stage: kto\nfinetuning_type: full\n", {"reference_models": 1, "further_forwards": 2}),
        ("llama-factory", "stage", f"{_LLAMA_FACTORY}stage: kto\nfinetuning_type: lora\n", {"further_forwards": 3}),
        ("axolotl", "rl", f"{_AXOLOTL}rl: kto\n", {"reference_models": 1, "further_forwards": 2}),
        ("swift", "rlhf_type", "megatron rlhf --rlhf_type kto --model Qwen/Qwen3-8B --tuner_type lora", {"further_forwards": 3}),
        ("swift", "rlhf_type", "megatron rlhf --rlhf_type kto --calculate_KL false --model Qwen/Qwen3-8B --tuner_type lora", {"further_forwards": 1}),
    ],
)
def test_single_rows_are_seen_with_completions_of_others(kind: str, key: str, text: str, more: dict[str, Any], tmp_path: Path) -> None:
    found = _job(kind, text, tmp_path)
    assert {name: value for name, value in (found.strategy or {}).items() if name in ("reference_models", "further_forwards")} == more
    assert found.placed().micro_batch_size == (1 if kind == "swift" else 2) and next(row for row in found.rows if row.key == key).fate == "mapped"


def test_a_reward_model_has_one_column(tmp_path: Path) -> None:
    found = _job("swift", "megatron rlhf --rlhf_type rm --micro_batch_size 2 --beta 0.1 --model Qwen/Qwen3-8B --tuner_type full", tmp_path).placed()
    assert (found.task_type, found.num_labels, found.micro_batch_size) == ("seq_cls", 1, 4)
    assert "reference_models" not in found.model_fields_set


@pytest.mark.parametrize("text", ["swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B", "swift rlhf --rlhf_type ppo --model Qwen/Qwen3-8B"])
def test_what_generates_or_pairs_otherwise_is_said(text: str, tmp_path: Path) -> None:
    found = _job("swift", text, tmp_path)
    assert next(row for row in found.rows if row.key == "rlhf_type").fate == "not_modelled"
    assert not {"reference_models", "further_forwards"} & set(found.strategy or ())
