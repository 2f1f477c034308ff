"""torch.compile: what lies between two products is one kernel, which keeps what goes into it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

TOKENS, HIDDEN, FFN = 512, 4096, 14336
SEED = 3 * 8  # of attention: what its dropout would be drawn from


@cache
def layer(fusion: str, model: str = "llama3-8b", **more: Any) -> Result:
    return derive(load_model(model).architecture, Strategy(fusion=fusion, seq_length=TOKENS, **more), system=load_system("h100-sxm"))  # type: ignore[arg-type]


def test_a_norm_an_activation_and_a_sum_are_one_kernel_each() -> None:
    """Bytes by hand: a norm reads and writes a row of 16 bits and writes its divisor; the activation reads gate and up."""
    numbers = layer("compile").numbers
    assert numbers["Q_dense_pre_mlp_norm"] == TOKENS * (2 * 2 * HIDDEN + 4) + 2 * HIDDEN
    assert numbers["Q_dense_mlp_act"] == TOKENS * FFN * 2 * 3
    kinds = [op.kind for op in layer("compile").lowered.blocks["dense"].placed.block.ops]
    assert kinds.count("norm") == 2 and kinds.count("rope") == 2 and kinds.count("activation") == 1
    assert len(kinds) < len(layer("eager").lowered.blocks["dense"].placed.block.ops)


def test_what_a_layer_keeps() -> None:
    """Two norms keep the stream and their divisors, products their inputs, attention its own: nothing of the passes between."""
    kept = sum(int(s.bytes.evaluate(layer("compile").numbers)) for s in layer("compile").lowered.blocks["dense"].saved if "rotary" not in s.name)
    attention = TOKENS * ((2 * HIDDEN + 2 * 1024) * 2 + 32 * 4)
    assert kept == TOKENS * (4 * HIDDEN * 2 + 2 * 4 + 3 * FFN * 2) + attention + SEED
    assert layer("compile").numbers["A_dense"] < layer("eager").numbers["A_dense"]


def test_products_are_those_of_the_modules() -> None:
    for model in ("llama3-8b", "gpt2", "mixtral-8x7b", "qwen3-8b"):
        assert layer("compile", model).value("flops.forward") == layer("eager", model).value("flops.forward")
        assert layer("compile", model).value("time.step") < layer("eager", model).value("time.step")


def test_torchtitans_gain() -> None:
    """Llama 3 8B on 8 H100 of 2.4 TB/s at 500 W: 5,762 tokens a second and rank, and 6,667 with torch.compile, which sets the rate of products here
    (torchtitan benchmarks/llama3_h100_202412_torchtitan.md, FSDP alone). Its rotary embedding is a product of complex numbers, which moves less."""
    machine = {"B_hbm": "2.4 TB/s", "Phi_bf16": "566.5 TFLOP/s"}
    given = {"dp": 8, "zero": 3, "micro_batch_size": 2, "seq_length": 8192, "recompute": "sac_mm_attn"}
    steps = [
        derive(load_model("llama3-8b").architecture, Strategy(fusion=fusion, **given), {"fsdp_parameters": "main"}, machine, load_system("h100-sxm"))  # type: ignore[arg-type]
        for fusion in ("eager", "compile")
    ]
    tokens = [2 * 8192 / float(step.value("time.step")) for step in steps]
    assert tokens[1] == pytest.approx(6667, rel=1e-3) and tokens[0] == pytest.approx(5762, rel=0.055)


def test_torchtitans_switch(tmp_path: Path) -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 512\n[compile]\nenable = true\n'
    for more, fusion in (("", "compile"), ('components = ["loss"]\n', "eager")):
        (tmp_path / "train.toml").write_text(text + more)
        made = load_job("torchtitan", str(tmp_path / "train.toml"))
        assert dict(made.strategy or {})["fusion"] == fusion and not [row for row in made.rows if row.fate == "not_modelled"]
