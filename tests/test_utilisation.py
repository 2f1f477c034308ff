"""MFU and HFU: what they count in layers with windows and chunks, and what is said of one above 100 %."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.report.content import report
from symsim.report.markdown import render


def timed(model: str, assumptions: dict[str, str] | None = None, **settings: Any) -> Result:
    return derive(load_model(model).architecture, Strategy(**settings), assumptions or {}, None, load_system("h100-sxm"))


@pytest.mark.parametrize(
    ("model", "windowed", "heads", "size", "inside"),
    [
        ("gemma-3-12b", 40, 16, 256, 1024 - Fraction(1024 * 1023, 2 * 65536)),  # a window of 1024 in five layers of six
        ("gpt-oss-20b", 12, 64, 64, 128 - Fraction(128 * 127, 2 * 65536)),  # of 128 in every other one
        ("llama4-scout", 36, 40, 128, Fraction(8193, 2)),  # chunks of 8192 in three of four
    ],
)
@pytest.mark.parametrize("causal", ["full", "half", "exact"])
def test_windows_count_what_is_computed(model: str, windowed: int, heads: int, size: int, inside: Fraction, causal: str) -> None:
    """Forward multiplies 4 b s a d a key, flash attention's backward 10; recomputing everything, forward once more."""
    s = 65536
    result, counted = (
        timed(model, {"causal": causal, "mfu_windows": how}, tp=8, sp=True, seq_length=s, recompute="full") for how in ("computed", "counted")
    )
    keys = {"full": Fraction(s), "half": Fraction(s, 2), "exact": inside}[causal]
    products = windowed * 2 * s * heads * size * (keys - inside)
    world_seconds = 8 * result.values["Phi"] * float(result.value("t_step"))
    mfu, hfu = (float(counted.value(n) - result.value(n)) * world_seconds for n in ("mfu", "hfu"))
    assert mfu == pytest.approx(3 * 2 * products, rel=1e-9, abs=1e9)
    assert hfu == pytest.approx((2 + 5 + 2) * products, rel=1e-9, abs=1e9)
    assert result.to_json()["flops"] == counted.to_json()["flops"]


def test_models_without_windows_count_as_before() -> None:
    one, other = (timed("llama3-8b", {"mfu_windows": how}, tp=2) for how in ("computed", "counted"))
    assert [d.expr for d in one.derivation.definitions.values()] == [d.expr for d in other.derivation.definitions.values()]


ABOVE: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("gemma-3-12b", {"mfu_windows": "counted"}, {"tp": 8, "sp": True, "seq_length": 131072}),
    ("llama3-8b", {}, {"tp": 8, "sp": True, "seq_length": 2**20}),
    ("mistral-7b-v0.1", {"mfu_windows": "counted"}, {"tp": 8, "sp": True, "seq_length": 2**18}),
]


@pytest.mark.parametrize(("model", "assumptions", "settings"), ABOVE, ids=[m for m, _, _ in ABOVE])
def test_above_the_peak_a_sentence_names_the_convention(model: str, assumptions: dict[str, str], settings: dict[str, Any]) -> None:
    result = timed(model, assumptions, **settings)
    data = result.to_json()
    assert max(data["mfu"], data["hfu"]) > 1
    sentence = data["above_peak"]
    sets = dict(re.findall(r"--set assume\.(\w+)=(\w+)", sentence))
    assert sets and "\n" not in sentence and len(sentence) <= 300
    for name in sets:
        assert f"assume.{name}={result.assumptions[name]}" in sentence
    other = timed(model, {**assumptions, **sets}, **settings).to_json()
    assert max(other["mfu"], other["hfu"]) <= 1 and "above_peak" not in other
    assert other["time"] == data["time"]
    assert f"{100 * other['mfu']:.1f} % and {100 * other['hfu']:.1f} %" in sentence
    for shown in (result.table(), render(report(result))):
        assert " ".join(sentence.split()) in " ".join(shown.split()).replace("\\", "")


def test_below_the_peak_nothing_is_said() -> None:
    result = timed("gemma-3-12b", tp=8, sp=True, seq_length=131072)
    assert result.above_peak == "" and "above_peak" not in result.to_json() and "above 100" not in result.table()


def test_fp8_above_the_bf16_peak() -> None:
    """MFU is of the bf16 peak; a machine whose FP8 products are fast enough passes it, and no convention of attention is at fault."""
    system = load_system("h100-sxm")
    kernels = system.kernels
    fast = kernels.gemm.model_copy(update={"efficiency": replace(kernels.gemm.efficiency, value=Fraction(99, 100))})
    chip = system.accelerator.model_copy(update={"fp8_share": None})
    quick = system.model_copy(update={"kernels": kernels.model_copy(update={"gemm": fast}), "accelerator": chip})
    strategy = Strategy(seq_length=1024, micro_batch_size=16, fp8="blockwise", num_microbatches=64)
    result = derive(load_model("llama3.1-405b").architecture, strategy, {}, None, quick)
    assert result.to_json()["mfu"] > 1
    assert "bf16 peak" in result.above_peak and "fp8=blockwise multiplies at 2.00 times that" in result.above_peak


def test_frozen_products_leave_out_the_gradients_that_nobody_needs() -> None:
    """LoRA on every linear map of llama3-8b, by hand: frozen weights have no gradient, and nothing before the first layer's adapters is
    trained, so that its q, k and v, and what goes into their adapters, need no gradient of their input."""
    result = derive(load_model("llama3-8b").architecture, Strategy(tuner_type="lora", lora_rank=16), system=load_system("h100-sxm"))
    h, f, s, wide = 4096, 14336, 4096, 6144
    of_layer = 2 * s * (h * wide + h * h + 3 * h * f)
    lowest = 2 * s * h * (wide + 16)
    assert result.value("F_frozen") == 32 * of_layer + lowest + 2 * s * h * 128256
    assert result.value("mfu") < result.value("hfu")
    whole = derive(load_model("llama3-8b").architecture, Strategy(), system=load_system("h100-sxm"))
    assert "F_frozen" not in whole.derivation.definitions
