"""Sparse attention, determinism, stragglers and the scaling of gradients, each by hand, and the keys of other systems that mean them."""

from __future__ import annotations

import math
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.cost.stragglers import share
from symsim.importers.job import Job
from symsim.importers.reading import Options, read_job


def made(options: str, model: str = "llama3-8b", **assumptions: str) -> Result:
    result = symsim.derive(model, options, assumptions, system="h100-sxm")
    assert isinstance(result, Result)
    return result


def test_a_share_of_the_scores() -> None:
    plain, sparse = made(""), made("attention_sparse_ratio=0.75")
    name = "F_dense_attention_core"
    assert 4 * sparse.numbers[name] == plain.numbers[name]
    for phase in ("f", "b"):
        attention = next(n for n in plain.numbers if n.startswith(f"t_{phase}_dense_attention_core") and "pack" not in n)
        assert 0.2 < float(sparse.numbers[attention]) / float(plain.numbers[attention]) < 0.4
    written = made("attention_sparse_ratio=0.75,tp=4", attention_kernel="math")
    assert written.numbers[name] == plain.numbers[name]


def test_a_fixed_order() -> None:
    plain, ordered = made(""), made("", deterministic_attention="true")
    differ = {n for n in plain.numbers if n.startswith("t_") and "_dense_" in n and plain.numbers[n] != ordered.numbers[n]}
    assert len(differ) == 1
    (name,) = differ
    assert float(ordered.numbers[name]) == pytest.approx(float(plain.numbers[name]) / (1 - 0.379))


@pytest.mark.parametrize(
    ("options", "groups"),
    # nodes of eight: of 64 ranks 8; of 256 with tp=8 32, which dp is too; dp=2 of pp=16 with tp=8
    [("dp=64", 8), ("tp=8,sp=true,dp=32", 32), ("tp=8,sp=true,pp=16,dp=2,num_microbatches=16", 2), ("tp=8,sp=true", 1)],
)
def test_waiting_for_the_slowest(options: str, groups: int) -> None:
    plain, waited = made(options), made(options, stragglers="nodes")
    x = math.log2(groups)
    longer = 0.09 * math.sqrt(x) * x / (x + 1)
    pipeline = float(plain.value("t_pipeline"))
    assert float(waited.value("t_step") - plain.value("t_step")) == pytest.approx(longer * pipeline, rel=1e-4, abs=1e-12)
    if groups > 1:
        assert float(waited.value("time.exposed.stragglers")) == pytest.approx(longer * pipeline, rel=1e-4)
        parts = ("time.compute", "time.bubble", "time.exposed", "time.optimizer")
        assert sum(float(waited.value(name)) for name in parts) == pytest.approx(float(waited.value("t_step")))


def test_shares_are_those_of_the_source() -> None:
    # 1.045, 1.085, 1.117, 1.168, 1.226 at 2, 4, 8, 32 and 256 groups
    assert [round(float(1 + share(x)), 3) for x in (1, 2, 3, 5, 8)] == [1.045, 1.085, 1.117, 1.168, 1.226]


def test_who_divides_gradients() -> None:
    seconds = {how: float(made("dp=8,zero=1", gradient_scaling=how).value("t_opt")) for how in ("all", "owned", "both", "collective")}
    assert seconds["all"] + seconds["owned"] == pytest.approx(seconds["both"] + seconds["collective"])
    read_and_written = 2 * 4 * made("dp=8,zero=1").stage_numbers(made("dp=8,zero=1").stages[0])["P_stage"]
    at = made("").values
    assert seconds["all"] - seconds["collective"] == pytest.approx(float(read_and_written) / (at["B_hbm"] * at["eta_mem"]) + at["t_mem"], rel=1e-3)


WORDS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 1024 --seq-length 64 --micro-batch-size 1 --global-batch-size 8 --bf16"


def megatron(words: str) -> Job:
    return read_job("megatron", f"{WORDS} --world-size 8 {words}".split(), Options())


def test_arguments_of_megatron() -> None:
    assumed = megatron("--deterministic-mode --ddp-average-in-collective").assumptions
    assert (assumed["deterministic_attention"], assumed["gradient_scaling"]) == ("true", "collective")
    assert not {"deterministic_attention", "gradient_scaling"} & megatron("").assumptions.keys()


def read(kind: str, path: Any, text: str) -> Job:
    path.write_text(text)
    return read_job(kind, [str(path)], Options())


def test_keys_of_simumax(tmp_path: Any) -> None:
    given = '{"seq_len": 4096, "micro_batch_size": 1, "micro_batch_num": 8, "world_size": 8, "tp_size": 1, "pp_size": 1'
    found = read("simumax", tmp_path / "s.json", f'{given}, "enable_straggler_model": true, "attention_sparse_ratio": 0.5}}')
    assert found.assumptions["stragglers"] == "nodes" and found.strategy is not None and found.strategy["attention_sparse_ratio"] == 0.5
    assert "stragglers" not in read("simumax", tmp_path / "p.json", f'{given}, "enable_straggler_model": false}}').assumptions
    silent = read("simumax", tmp_path / "d.json", f"{given}}}")
    row = next(row for row in silent.rows if row.key == "enable_straggler_model")
    assert silent.assumptions["stragglers"] == "nodes" and row.fate == "derived"  # SimuMax's default


@pytest.mark.parametrize("words", ["megatron sft --deterministic_mode true", "swift sft --full_determinism true"])
def test_arguments_of_swift(words: str) -> None:
    assert read_job("swift", [*words.split(), "--model", "Qwen/Qwen3-8B"], Options()).assumptions["deterministic_attention"] == "true"


def test_keys_of_torchtitan_and_deepspeed(tmp_path: Any) -> None:
    found = read("torchtitan", tmp_path / "t.toml", '[model]\nname = "llama3"\nflavor = "8B"\n[training]\ndeterministic = true\n')
    assert found.assumptions["deterministic_attention"] == "true"
    for stage, scaling in ((0, "both"), (1, None)):
        text = f'"gradient_predivide_factor": 4, "zero_optimization": {{"stage": {stage}}}'
        text = f'{{"train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}}, {text}}}'
        assert read("deepspeed", tmp_path / "d.json", text).assumptions.get("gradient_scaling") == scaling
