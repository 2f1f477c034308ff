"""A strategy as another system's files: what comes back, and a sentence for all that does not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.exporters.export import Asked, export, lost, plain, plain_model
from symsim.exporters.registry import TARGETS
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategies import load_strategy

MODELS = {
    "simumax": ("llama3-8b", "llama2-13b", "mixtral-8x7b"),
    "megatron": ("llama3-8b", "gpt3-175b", "qwen2.5-7b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "qwen3-30b-a3b"),
}
MODELS["swift"] = tuple(name for name in MODELS["megatron"] if name != "gpt3-175b")
# models that every target can say whole
WHOLE = ("llama3-8b", "llama2-13b", "qwen2.5-7b")
# options that a target can say, and values of them
SAYABLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "simumax": {
        "tp": (1, 2, 4), "pp": (1, 2, 4), "dp": (1, 2, 4), "micro_batch_size": (1, 2), "num_microbatches": (4, 8), "seq_length": (2048, 8192),
        "zero": (0, 1), "grad_reduce_in_fp32": (True, False), "precision": ("bf16", "fp16"), "cross_entropy_fusion": ("unfused", "te"),
        "recompute": ("none", "full", "selective"),
    },
    "megatron": {
        "tp": (1, 2, 4), "pp": (1, 2, 4), "dp": (1, 2, 4), "cp": (1, 2), "micro_batch_size": (1, 2), "num_microbatches": (4, 8),
        "seq_length": (2048, 8192), "zero": (0, 1), "grad_reduce_in_fp32": (True, False), "cross_entropy_fusion": ("unfused", "te", "native"),
        "recompute": ("none", "full", "selective"), "fp8": ("none", "tensorwise", "blockwise"), "fp32_residual_connection": (True, False),
        "clip_grad": (0.0, 1.0), "optimizer": ("adam", "sgd", "sgd_momentum"), "moe_token_dispatcher_type": ("alltoall", "allgather"),
    },
}  # fmt: skip
MODELS["deepspeed"] = ("llama3-8b", "qwen2.5-7b")
SAYABLE["deepspeed"] = {
    "dp": (2, 4, 8), "micro_batch_size": (1, 2), "num_microbatches": (1, 4), "zero": (0, 1, 2, 3), "precision": ("bf16", "fp16"),
    "grad_reduce_in_fp32": (True, False), "clip_grad": (0.0, 1.0), "optimizer": ("adam", "sgd", "sgd_momentum"),
}  # fmt: skip
# bf16 with fp32 gradients is fixed there
_NOT_SWIFT = ("fp32_residual_connection", "grad_reduce_in_fp32")
SAYABLE["swift"] = {name: values for name, values in SAYABLE["megatron"].items() if name not in _NOT_SWIFT}
COMPLETE = {
    "simumax": {"recompute_method": "block", "recompute_num_layers": 2},
    "megatron": {"recompute_method": "uniform"},
    "swift": {"recompute_method": "uniform"},
}


def drawn(kind: str, number: int) -> Asked:
    """A random model and strategy that the target can say."""
    rng = random.Random(f"{kind} {number}")
    options = {name: rng.choice(values) for name, values in SAYABLE[kind].items()}
    options |= {"sp": options.get("tp", 1) > 1 and rng.random() < 0.5, "etp": 1}
    if options.get("recompute") == "full":
        options |= COMPLETE[kind]
    architecture = symsim.load_model(rng.choice(MODELS[kind]))
    if architecture.moe is None:
        options.pop("etp")
        options.pop("moe_token_dispatcher_type", None)
    else:
        options |= {"ep": rng.choice((1, 2)), "dp": options["dp"] * 2, "sp": options["tp"] > 1}
    if architecture.moe is not None and kind == "simumax":
        options |= {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.0}
    if any(kind.window for kind in architecture.layer_kinds.values()):
        options["cp_comm_type"] = "a2a"
    return Asked(architecture, load_strategy(options))


@pytest.mark.parametrize("kind", TARGETS)
def test_what_a_target_can_say_comes_back(kind: str, tmp_path: Path) -> None:
    for number in range(40):
        asked = drawn(kind, number)
        paths, said = export(kind, asked, tmp_path / f"{number}{TARGETS[kind].suffix.split(' ')[0]}")
        job = symsim.load_job(kind, *map(str, paths))
        assert job.strategy is not None
        back = plain(load_strategy(job.strategy))
        for name in SAYABLE[kind]:
            assert back[name] == plain(asked.strategy)[name], (number, name)
        if job.architecture is not None:
            theirs = symsim.derive(job.architecture, job.strategy, job.assumptions).to_json()
            ours = symsim.derive(asked.architecture, asked.strategy, job.assumptions).to_json()
            assert theirs["flops"] == ours["flops"] and theirs["params"]["per_rank"] == ours["params"]["per_rank"]
            lost = [sentence for sentence in said if "cannot say" in sentence]
            assert lost or theirs["memory"] == ours["memory"], number
            assert asked.architecture.name not in WHOLE or not lost


def test_what_a_target_cannot_say_is_a_sentence(tmp_path: Path) -> None:
    strategy = load_strategy("tp=2,overlap_grad_reduce=true,clip_grad=0")
    _, said = export("simumax", Asked(symsim.load_model("gemma-2-9b"), strategy, symsim.load_system("h100-sxm")), tmp_path)
    assert "SimuMax cannot say overlap_grad_reduce=true: what is written means false" in said
    assert "SimuMax cannot say tie_word_embeddings=true: what is written means false" in said
    assert any("of h100-sxm the curves, the host, price and power are left out" in one for one in said)


@pytest.mark.parametrize("kind", TARGETS)
def test_every_option_comes_back_or_is_said(kind: str) -> None:
    """Each option away from its default, one at a time: the files say it, or a sentence does."""
    from importlib import import_module

    architecture = symsim.load_model("mixtral-8x7b")
    base = {"tp": 2, "sp": True, "dp": 4, "pp": 2, "num_microbatches": 4}
    changes: list[dict[str, Any]] = [
        {"overlap_grad_reduce": True}, {"optimizer": "sgd"}, {"fp32_residual_connection": True}, {"clip_grad": 0.5}, {"zero": 0},
        {"moe_router_load_balancing_type": "aux_loss"}, {"moe_router_dtype": "fp32"}, {"cpu_offloading_num_layers": 1, "pp": 1},
        {"schedule": "gpipe"}, {"cross_entropy_fusion": "native"}, {"fp8": "blockwise"}, {"num_layers_in_first_pipeline_stage": 12},
        {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True},
    ]  # fmt: skip
    def told(options: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        asked = Asked(architecture, load_strategy(options))
        made = import_module(f"symsim.exporters.{TARGETS[kind].module}").files(asked)
        return made, lost(kind, asked, made)

    before = told(base)
    for change in changes:
        assert told({**base, **change}) != before, change


def test_an_uneven_split_is_laid_out_for_megatron(tmp_path: Path) -> None:
    """Its own arguments divide evenly or are refused; a layout says the same stages."""
    asked = Asked(symsim.load_model("deepseek-v3"), load_strategy("pp=8,vpp=2,ep=8,num_microbatches=16,overlap_p2p_comm=true"))
    (path,), said = export("megatron", asked, tmp_path / "train.sh")
    assert '--pipeline-model-parallel-layout "Et*3|t*4|' in path.read_text() and not [s for s in said if "cannot say" in s]
    even = Asked(symsim.load_model("llama3-8b"), load_strategy("pp=4,vpp=2,num_microbatches=4"))
    (path,), _ = export("megatron", even, tmp_path / "even.sh")
    assert "layout" not in path.read_text() and "--num-virtual-stages-per-pipeline-rank 2" in path.read_text()


def test_what_megatron_assumes_otherwise_is_said(tmp_path: Path) -> None:
    chosen = {"attention_kernel": "math", "optimizer_implementation": "foreach"}
    asked = Asked(symsim.load_model("llama3-8b"), load_strategy("tp=2"), assumptions=chosen)
    _, said = export("megatron", asked, tmp_path / "train.sh")
    assert "Megatron-LM cannot say assume.optimizer_implementation=foreach: what is written means fused" in said
    assert not [sentence for sentence in said if "attention_kernel" in sentence]
    assert any("--set assume.apply_rope_fusion=true" in sentence for sentence in said)


def test_the_export_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from symsim.api.cli import main

    with pytest.raises(SystemExit) as left:
        main(["export", "simumax", "llama3-8b", "-s", "tp=2,sp=true,num_microbatches=2", "-y", "h100-sxm", "-o", str(tmp_path / "job")])
    assert left.value.code == 0 and "wrote" in capsys.readouterr().err
    assert {p.name for p in (tmp_path / "job").iterdir()} == {"strategy.json", "model.json", "system.json"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "simumx", "llama3-8b", "-o", "x"], "symsim does not export 'simumx': did you mean 'simumax'?"),
        (["export", "simumax", "llama3-8b"], "symsim export writes a file: give one with -o"),
        (["export", "simumax", "jamba", "-o", "x"], "no model or file is named 'jamba'"),
    ],
)
def test_what_cannot_be_exported(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    from symsim.api.cli import main

    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2 and sentence in capsys.readouterr().err


def test_alternating_layers_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SimuMax cannot say the layers of llama4-maverick"):
        export("simumax", Asked(symsim.load_model("llama4-maverick"), load_strategy("tp=2")), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_two_spellings_of_one_strategy_are_equal() -> None:
    assert plain(load_strategy("tp=2,global_batch_size=8,dp=2")) == plain(load_strategy("tp=2,etp=2,num_microbatches=4,dp=2"))
    assert plain_model(symsim.load_model("llama3-8b"))["attention"]["kv_channels"] == 128
    assert resolve({})
