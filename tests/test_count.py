"""FLOPs and HBM bytes of operations, against formulas written out by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from symsim.algebra.expr import symbol
from symsim.api.result import Result, derive
from symsim.evaluation.buffers import gradient_buffers
from symsim.grid.api import sweep
from symsim.inputs.architecture import Architecture, Mlp
from symsim.inputs.layer_pattern import parse_layers
from symsim.inputs.models import format_model, load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.program.base import read_base
from symsim.program.module import compile_module
from symsim.report import render_markdown

b, s, h, f, a, g, d, t, V = (symbol(n) for n in ("b", "s", "h", "f", "a", "g", "d", "tp", "V"))


def closed(result: Result, name: str):  # type: ignore[no-untyped-def]
    return result.formula(name).expand()


def dense(**strategy: object) -> Result:
    return derive(load_model("llama3-8b").architecture, Strategy(**strategy))  # type: ignore[arg-type]


def test_flops_of_a_layer() -> None:
    result = dense()
    assert closed(result, "F_dense") == 2 * b * s * h * (2 * a * d + 2 * g * d) + 4 * b * s * s * a * d + 6 * b * s * h * f
    assert closed(result, "G_dense") == 4 * b * s * h * (2 * a * d + 2 * g * d) + 10 * b * s * s * a * d + 12 * b * s * h * f


def test_one_rank_computes_its_share() -> None:
    result = dense(tp=8, sp=True)
    assert closed(result, "X_dense") * t == closed(result, "F_dense")


def test_hbm_bytes() -> None:
    result = dense(tp=8, sp=True)
    assert closed(result, "Q_dense_mlp_down_proj") == 2 * (b * s * f / t + h * f / t + b * s * h)
    assert closed(result, "Q_dense_pre_mlp_norm") == (2 * b * s * h + 2 * b * s * h + 4 * b * s) / t + 2 * h
    assert closed(result, "Q_embedding_embedding_lookup") == 8 * b * s + 4 * b * s * h + 9 * b * s  # rows, not the table; ids and mask kept


def test_megatron_saved_bytes_of_a_dense_layer() -> None:
    """8h + 8 + 4q + 4kappa + 4a + 6f bytes a token (te, one rank), and four rotary tables."""
    assert closed(dense(), "A_dense") == b * s * (8 * h + 8 + 4 * a * d + 4 * g * d + 4 * a + 6 * f) + 8 * s * d


def test_full_recomputation_keeps_inputs_only() -> None:
    result = dense(recompute="full", pp=2)
    per_stage = [result.stage_numbers(stage)["A_stage"] for stage in result.stages]
    one = int((2 * b * s * h).evaluate(result.values))
    tables = result.stage_numbers(result.stages[0])["A_dense_ckpt_shared"]
    assert per_stage[0] - result.value("A_embedding") == 16 * one + tables
    assert result.value("R") == result.value("F") - result.value("F_head")


BIASED_HEAD = {
    "name": "biased-head",
    "hidden_size": 64,
    "vocab_size": 1024,
    "layers": 4,
    "attention": {"num_attention_heads": 4},
    "mlp": {"ffn_hidden_size": 96},
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("strategy", [{}, {"pp": 2}, {"tp": 2, "dp": 2}, {"pp": 2, "dp": 2, "zero": 1}, {"dp": 2, "zero": 3, "fusion": "eager"}])
def test_the_bias_of_a_head_counts_whether_or_not_its_table_is_tied(tied: bool, strategy: dict[str, object]) -> None:
    """It is a parameter of the last stage with a gradient and optimizer states of its own."""
    both = []
    for bias in (False, True):
        model = Architecture.model_validate(BIASED_HEAD | {"tie_word_embeddings": tied, "lm_head_bias": bias})
        both.append(derive(model, Strategy(**strategy)))  # type: ignore[arg-type]
    plain, biased = both
    assert biased.value("N") - plain.value("N") == biased.value("N_lm_head") - (0 if tied else plain.value("N_lm_head")) == 1024
    last = biased.stages[-1]
    held = 1024 // int(biased.values["tp"])
    more = {n: biased.stage_numbers(last)[n] - plain.stage_numbers(last)[n] for n in ("P_stage", "P_stage_dense")}
    assert more == {"P_stage": held, "P_stage_dense": held}
    if biased.strategy.pp > 1:
        assert biased.stage_numbers(biased.stages[0])["P_stage"] == plain.stage_numbers(plain.stages[0])["P_stage"]
    sizes = [sum(x.parameters for x in gradient_buffers(r, r.stages[-1])) for r in both]
    assert sizes[1] - sizes[0] == held
    if biased.strategy.dp > 1:
        numbers = [r.stage_numbers(last) for r in both]
        sent = [sum(m.send_elements.evaluate(n) for m in r.stage_messages(last) if m.axis.startswith("dp")) for r, n in zip(both, numbers)]
        assert sent[1] > sent[0] > 0
    for part in ("weights", "gradients", "optimizer"):
        one, two = (r.stage_numbers(r.stages[-1])[f"M_stage_{part}"] for r in both)
        assert (two - one) * biased.stage_numbers(last)["P_stage"] == held * two > 0


def test_causal_conventions() -> None:
    full, half, exact = (derive(load_model("llama3-8b").architecture, Strategy(), {"causal": c}) for c in ("full", "half", "exact"))
    core = (4 * b * s * s * a * d).evaluate(full.values) * 32
    assert full.value("F") - half.value("F") == core / 2
    assert exact.value("F") - half.value("F") == core / (2 * 4096)
    windowed = derive(load_model("mistral-7b-v0.1").architecture, Strategy(seq_length=8192), {"causal": "exact"})
    pairs = sum(min(i, 4096) for i in range(1, 8193))
    assert windowed.value("n_w") * 8192 == pairs


CHUNKED = Architecture.model_validate(
    BIASED_HEAD | {"layer_kinds": {"chunked": {"window": 64, "chunked": True}, "full": {}}, "layers": "2 * (chunked + full)"}
)


@pytest.mark.parametrize(("s", "u"), [(1024, None), (1000, None), (40, None), (64, None), (1024, 100)])
def test_chunked_attention_stays_in_its_chunk(s: int, u: int | None) -> None:
    """Every pair of a query and a key of its chunk, counted one by one; also a last chunk that is not full."""
    result = derive(CHUNKED, Strategy(seq_length=s, packed_document_length=u), {"causal": "exact"})
    length = u or s
    pairs = sum(sum(j // 64 == i // 64 for j in range(i + 1)) for i in range(length))
    assert result.value("n_c") == Fraction(pairs, length)
    assert result.value("F_chunked_attention_core") == 4 * pairs * 64 * Fraction(s, length)
    if (s, u) == (1024, None):
        assert result.value("n_c") == Fraction(65, 2)


def test_a_chunk_is_shorter_than_a_window_in_flops_and_in_time() -> None:
    wide = {"kv_channels": 128, "num_attention_heads": 32}
    models = []
    for kind in ({"window": 2048, "chunked": True}, {"window": 2048}):
        models.append(Architecture.model_validate(BIASED_HEAD | {"layer_kinds": {"dense": kind}, "attention": wide}))
    strategy, system = Strategy(seq_length=16384), load_system("h100-sxm")
    chunks, window = (derive(m, strategy, {"causal": "exact"}, None, system) for m in models)
    for name in ("F", "G", "t_f_dense_attention_core", "t_b_dense_attention_core_backward"):
        assert chunks.value(name) < window.value(name), name
    whole = [derive(m, strategy).value("F") for m in models]
    assert whole[0] == whole[1]


def experts_saved(fusion: str, before: bool) -> dict[str, int]:
    moe = {"num_moe_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 48, "router_weight_before_experts": before}
    model = Architecture.model_validate(BIASED_HEAD | {"layer_kinds": {"moe": {"ffn": "moe"}}, "layers": "4 * moe", "moe": moe, "mlp": None})
    result = derive(model, Strategy(fusion=fusion, seq_length=128))  # type: ignore[arg-type]
    result.to_json()
    saved = result.lowered.blocks["moe"].saved
    return {s.tensor.name: int(s.bytes.evaluate(result.numbers)) for s in saved} | {"hbm": int(result.value("Q_moe"))}


def test_routing_weights_before_the_experts() -> None:
    """Llama 4 scales rows, not results: Megatron-Core keeps the rows twice, autograd the rows in place of the results."""
    rows = 128 * 2 * 64 * 2
    plain, before = experts_saved("te", False), experts_saved("te", True)
    own = "moe.experts.weighted.out"
    assert before[own] == rows and own not in plain
    assert sum(before.values()) - before["hbm"] == sum(plain.values()) - plain["hbm"] + rows
    assert before["hbm"] > plain["hbm"]
    plain, before = experts_saved("eager", False), experts_saved("eager", True)
    results = "moe.experts.down_proj.out"
    assert before[own] == rows == plain[results] and results not in before


@pytest.mark.long_after(1)
@pytest.mark.parametrize("layers", ["8 * dense", "1 * dense + 3 * moe", "4 * moe + 4 * dense"])
def test_models_with_experts_in_no_or_in_some_layers(layers: str, tmp_path: Path) -> None:
    """A section moe that no layer uses leaves every parameter active; everything that counts runs."""
    base = load_model("mixtral-8x7b").architecture
    moe = base.layer_kinds["moe"]
    kinds = {"dense": moe.model_copy(update={"ffn": "mlp"}), "moe": moe}
    model = base.model_copy(update={"layers": parse_layers(layers), "layer_kinds": kinds, "mlp": Mlp(ffn_hidden_size=14336)})
    path = tmp_path / "model.yaml"
    path.write_text(format_model(model))
    for strategy in ("tp=2,sp=true,pp=2,dp=2,num_microbatches=2", "dp=2,fusion=eager", "dp=2,zero=3"):
        result = derive(load_model(str(path)).architecture, load_strategy(strategy), system=load_system("h100-sxm"))
        params = result.to_json()["params"]
        experts = params["by_module"].get("experts", 0)
        assert params["total"] - params["active"] == experts * 3 // 4 and bool(experts) == ("moe" in layers)
        assert result.table() and render_markdown(result)
        space: dict[str, Any] = {}
        exec(compile(compile_module(read_base(str(path), strategy, "h100-sxm", []), None), "<module>", "exec"), space)
        assert space["kernel"]()["params.active"] == params["active"]
    rows = sweep(str(path), {"dp": [1, 2], "pp": [1, 2]}, "num_microbatches=2", "h100-sxm", columns="params.active,time.step").rows
    assert set(rows["params.active"]) == {params["active"]}
