"""Any run of a layer's operations runs again: as modules where it is one, as the whole layer where it is all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.frameworks.recompute import runs_of
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

BASE: dict[str, Any] = {"tp": 2, "sp": True, "seq_length": 512, "num_microbatches": 2}
SYSTEM = load_system("h100-sxm")


def stage(model: str, **strategy: Any) -> dict[str, float]:
    result = derive(load_model(model).architecture, Strategy(**BASE, **strategy), {}, None, SYSTEM)
    return {name: float(value) for name, value in result.stage_numbers(result.stages[0]).items()}


def said(model: str, **strategy: Any) -> tuple[float, ...]:
    return tuple(stage(model, **strategy)[name] for name in ("M_stage_peak", "A_stage", "tr_stage", "t_stage"))


@pytest.mark.parametrize(
    ("model", "modules", "operations"),
    [
        ("llama3-8b", ("mlp",), ("mlp",)),
        ("llama3-8b", ("core_attn", "mlp"), ("attention.core", "mlp.gate_up..mlp.down_proj")),
        ("deepseek-v2-lite", ("mlp", "moe"), ("mlp", "moe")),
    ],
)
def test_a_module_is_a_run(model: str, modules: tuple[str, ...], operations: tuple[str, ...]) -> None:
    asked = said(model, recompute="selective", recompute_operations=operations)
    assert asked[2:] == said(model, recompute="selective", recompute_modules=modules)[2:]
    if "core_attn" not in modules:  # which also keeps the type of its mask
        assert asked == said(model, recompute="selective", recompute_modules=modules)


def test_the_run_of_all_is_the_whole_layer() -> None:
    every = said("llama3-8b", recompute="selective", recompute_operations=("pre_attention_norm..add_ffn",))
    assert every == said("llama3-8b", recompute="full")


def test_a_region_keeps_what_it_reads_from_outside() -> None:
    """Of attention but its output projection stay the norm's output, and what attention makes for the projection."""
    run = {"recompute": "selective", "recompute_operations": ("attention.qkv..attention.core",)}
    plain, again = stage("llama3-8b"), stage("llama3-8b", **run)
    tokens, heads, groups, size = 512, 32, 8, 128
    dropped = 2 * tokens * size * (heads + 2 * groups) / 2 + 4 * tokens * heads / 2  # q, k and v, and the logarithms of the sums
    tables = 4 * 2 * tokens * size  # cosines and sines of queries and of keys
    assert plain["A_dense"] - again["A_dense"] == dropped + tables
    assert 0 < again["tr_stage"] < stage("llama3-8b", recompute="full")["tr_stage"]


def test_experts_that_run_again_from_narrow_copies() -> None:
    """A byte for two of every row, and no cast in what runs again."""
    run = {"fp8": "tensorwise", "recompute": "selective", "recompute_operations": ("moe.experts.fc1..moe.experts.fc2",)}
    wide, narrow = stage("mixtral-8x7b", **run), stage("mixtral-8x7b", **run, recompute_from_fp8=("moe.experts.fc1",))
    assert wide["A_moe"] - narrow["A_moe"] == 512 * 2 * 4096 // 2
    assert 0 < narrow["tr_stage"] < wide["tr_stage"] and narrow["ti_stage"] == wide["ti_stage"]


def test_neighbours_are_one_region() -> None:
    names = ["norm", "a.q", "a.core", "a.o", "add", "m.up", "m.down"]
    assert runs_of(names, ["a.q", "a.core", "m"]) == {"a.q": "run a.q", "a.core": "run a.q", "m.up": "run m.up", "m.down": "run m.up"}
    assert list(runs_of(names, ["a.core..m.up"])) == ["a.core", "a.o", "add", "m.up"]
    assert runs_of(names, ["m..a"]) == {} == runs_of(names, ["mm"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"recompute": "selective", "recompute_operations": ("atention",)}, "did you mean 'attention'"),
        ({"recompute": "selective", "recompute_operations": ("mlp..attention",)}, "no layer has all from the first to the last"),
        ({"recompute": "full", "recompute_operations": ("mlp",)}, "needs recompute=selective"),
        ({"recompute": "selective", "recompute_modules": ("mlp",), "recompute_operations": ("mlp",)}, "give one of them"),
        ({"recompute": "full", "recompute_from_fp8": ("mlp",)}, "recompute_from_fp8 needs a recipe and what runs again: here fp8=none"),
        ({"recompute": "full", "fp8": "tensorwise", "recompute_from_fp8": ("moe",)}, "recompute_from_fp8=moe: no operation of a layer is called"),
    ],
)
def test_runs_that_are_none(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        derive(load_model("llama3-8b").architecture, Strategy(**BASE, **given))


@pytest.mark.parametrize(
    ("flags", "model", "runs"),
    [
        ({"attn_recompute": True}, "llama3-8b", ["attention.qkv..attention.core"]),
        ({"attn_recompute": True, "mlp_recompute": True}, "deepseek-v2-lite",
         ["attention.q_proj", "attention.kv_a_layernorm..attention.core", "mlp", "moe.experts.fc1..moe.experts.fc2"]),
        ({"mla_rms_recompute": True, "attn_recompute": True, "mlp_rms_recompute": True}, "deepseek-v3",
         ["pre_attention_norm", "attention.q_a_proj", "attention.kv_a_proj_with_mqa..attention.kv_split", "attention.q_a_layernorm",
          "attention.q_b_proj", "attention.kv_a_layernorm..attention.core", "pre_mlp_norm", "moe.gate", "moe.shared_experts"]),
    ],
)  # fmt: skip
def test_regions_of_simumax(tmp_path: Path, flags: dict[str, bool], model: str, runs: list[str]) -> None:
    settings = {"seq_len": 512, "world_size": 8, "micro_batch_size": 1, "micro_batch_num": 1, "recompute_granularity": "selective_recompute"}
    (tmp_path / "strategy.json").write_text(json.dumps({**settings, **flags}))
    made = load_job("simumax", str(tmp_path / "strategy.json"), model=model)
    assert dict(made.strategy or {})["recompute_operations"] == runs
    assert {row.fate for row in made.rows if row.key in flags} == {"mapped"}
    architecture = load_model(model).architecture
    derive(architecture, Strategy(seq_length=512, recompute="selective", recompute_operations=tuple(runs)))
