"""torch.compile as trainers spell it: every one is fusion=compile, and what it makes no difference to says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

_LLAMA = "meta-llama/Llama-3.1-8B"
_FACTORY = {"model_name_or_path": _LLAMA, "finetuning_type": "full", "bf16": True}
_AXOLOTL = {"base_model": _LLAMA, "bf16": True, "sequence_len": 4096}
_TUNE = {"model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"}, "dtype": "bf16"}


def job(place: Path, kind: str, data: dict[str, Any]) -> Job:
    path = place / "train.yaml"
    path.write_text(format_yaml(data))
    return load_job(kind, str(path))


def fate(made: Job, key: str) -> tuple[str, str]:
    return next((row.fate, row.to) for row in made.rows if row.key == key)


@pytest.mark.parametrize(
    ("kind", "data", "key"),
    [
        ("axolotl", {**_AXOLOTL, "torch_compile": True}, "torch_compile"),
        ("axolotl", {**_AXOLOTL, "torch_compile": "auto", "chunked_cross_entropy": True}, "torch_compile"),
        ("llama-factory", {**_FACTORY, "torch_compile": True}, "torch_compile"),
        ("llama-factory", {**_FACTORY, "torch_compile_backend": "inductor"}, "torch_compile_backend"),
        ("torchtune", {**_TUNE, "compile": True}, "compile"),
        ("torchtune", {**_TUNE, "compile": {"model": True, "loss": False}}, "compile.model"),
    ],
)
def test_layers_are_compiled(tmp_path: Path, kind: str, data: dict[str, Any], key: str) -> None:
    made = job(tmp_path, kind, data)
    assert made.placed().fusion == "compile" and fate(made, key) == ("mapped", "fusion")


@pytest.mark.parametrize(
    ("kind", "data", "key", "fusion", "expected"),
    [
        ("axolotl", {**_AXOLOTL, "torch_compile": False}, "torch_compile", "eager", "mapped"),
        ("axolotl", {**_AXOLOTL, "torch_compile": True, "fp8": True}, "torch_compile", "te", "derived"),
        ("axolotl", {**_AXOLOTL, "torch_compile": True, "liger_rope": True}, "liger_rope", "compile", "derived"),
        ("llama-factory", {**_FACTORY, "torch_compile": True, "torch_compile_backend": "eager"}, "torch_compile_backend", "eager", "no_cost_effect"),
        ("torchtune", {**_TUNE, "compile": {"model": False, "loss": True}}, "compile.model", "eager", "mapped"),
    ],
)
def test_what_compiling_leaves(tmp_path: Path, kind: str, data: dict[str, Any], key: str, fusion: str, expected: str) -> None:
    made = job(tmp_path, kind, data)
    assert made.placed().fusion == fusion and fate(made, key)[0] == expected


def test_a_compiled_trainer_keeps_liger_s_loss_alone(tmp_path: Path) -> None:
    made = job(tmp_path, "llama-factory", {**_FACTORY, "torch_compile": True, "enable_liger_kernel": True})
    assert made.placed().cross_entropy_fusion == "liger" and not made.placed().fused_kernels


def test_chunks_of_a_loss_are_compiled_with_it(tmp_path: Path) -> None:
    loss = {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"}
    made = job(tmp_path, "torchtune", {**_TUNE, "compile": {"loss": False}, "loss": loss})
    assert (made.placed().fusion, made.placed().cross_entropy_fusion) == ("compile", "output_chunks")
    assert job(tmp_path, "torchtune", {**_TUNE, "compile": True, "loss": loss}).placed().cross_entropy_fusion == "compiled_chunks"
