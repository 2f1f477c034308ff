"""Korthikanti et al., Reducing Activation Recomputation (arXiv 2205.05198), proven on the te profile: the byte masks of
dropout and the dropped probabilities of unfused attention, the embedding's mask, and equations 1, 2, 4 and 5.

The paper's shape is a d = h, f = 4h, g = a. It leaves out the norms' fp32 statistics (8 bytes a row and norm), and of the
embedding and the loss what is not of size b s h: ids, masks and targets of a row.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import sympy

from symsim.algebra.expr import symbol
from symsim.api.result import Result, derive
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

b, s, h, a, L, V, t, p = (sympy.Symbol(n, positive=True) for n in ("b", "s", "h", "a", "L", "V", "tp", "pp"))
STATISTICS = 16 * b * s  # two LayerNorms: mean and 1/sigma of every row in fp32
KERNELS = {"attention_kernel": "math"}
PARALLEL = {"tensor": {"tp": 8}, "tensor and sequence": {"tp": 8, "sp": True}, "one rank": {}}


def made(given: Mapping[str, object], assumptions: Mapping[str, str] = KERNELS, **changes: object) -> Result:
    model: Architecture = load_model("gpt3-175b").architecture.model_copy(update=changes)
    return derive(model, Strategy(seq_length=2048, **given), assumptions)  # type: ignore[arg-type]


def closed(result: Result, name: str) -> sympy.Expr:
    """A definition in the paper's symbols, in the paper's shape."""
    found = result.formula(name).sympy()
    plain = {v: sympy.Symbol(v.name, positive=True) for v in found.free_symbols}
    shape = {sympy.Symbol(n, positive=True): value for n, value in {"d": h / a, "f": 4 * h, "g": a}.items()}
    return sympy.expand(found.xreplace(plain).subs(shape))


def layer(parallel: str) -> sympy.Expr:
    """Equations 1, 2 and 4, and the statistics."""
    return {
        "one rank": s * b * h * (34 + 5 * a * s / h) + STATISTICS,
        "tensor": s * b * h * (10 + 24 / t + 5 * a * s / (h * t)) + STATISTICS,
        "tensor and sequence": s * b * h / t * (34 + 5 * a * s / h) + STATISTICS / t,
    }[parallel]


@pytest.mark.parametrize("kernel", ["math", "eager"])
@pytest.mark.parametrize("parallel", PARALLEL)
def test_a_layer(parallel: str, kernel: str) -> None:
    found = closed(made(PARALLEL[parallel], {"attention_kernel": kernel}), "A_dense")
    assert sympy.expand(found - layer(parallel)) == 0


def test_34_and_5as_over_h() -> None:
    """Equation 4 in the paper's own form, per layer and sbh/t."""
    found = closed(made(PARALLEL["tensor and sequence"]), "A_dense")
    assert sympy.expand(found * t / (s * b * h)) == 34 + 5 * a * s / h + 16 / h


def test_dropped_probabilities_and_their_mask_stand_apart() -> None:
    result = made(PARALLEL["tensor and sequence"])
    kept = {n: closed(result, f"A_dense_attention_core_{n}") for n in ("probabilities", "mask", "dropped")}
    assert kept == {"probabilities": 2 * a * b * s**2 / t, "mask": a * b * s**2 / t, "dropped": 2 * a * b * s**2 / t}
    assert sum(result.value(f"A_dense_attention_core_{n}") for n in kept) == 5 * 96 * 2048**2 // 8


def test_without_dropout_neither_is_kept() -> None:
    found = closed(made({}, attention_dropout=0.0), "A_dense")
    assert sympy.expand(found - s * b * h * (34 + 2 * a * s / h) - STATISTICS) == 0


def test_keys_and_values_are_repeated_to_every_query_head() -> None:
    """Megatron-Core's DotProductAttention repeats keys and values of fewer groups than heads, and its products keep those."""
    model = load_model("llama3-8b").architecture
    closed_form = derive(model, Strategy(tp=2, sp=True), KERNELS).formula("A_dense").expand()
    flash = derive(model, Strategy(tp=2, sp=True)).formula("A_dense").expand()
    B, S, A, G, D, T = (symbol(n) for n in ("b", "s", "a", "g", "d", "tp"))
    # q, o and the new keys and values of all heads; flash keeps those of the groups and the log-sum-exp
    assert closed_form - flash == (2 * B * S * S * A + 4 * B * S * D * (A - G) - 4 * B * S * A) / T


@pytest.mark.parametrize(("given", "share"), [({"tp": 8, "sp": True}, t), ({"tp": 8}, 1), ({}, 1)], ids=["sequence", "tensor", "one rank"])
def test_the_embeddings_mask(given: dict[str, object], share: sympy.Expr) -> None:
    with_mask, without = made(given), made(given, embedding_dropout=0.0)
    assert sympy.expand(closed(with_mask, "A_embedding") - closed(without, "A_embedding") - b * s * h / share) == 0


def test_the_embeddings_mask_is_held_for_every_micro_batch_in_flight() -> None:
    """sbhp/t (section 4.3): the first stage of 1F1B holds p of them, the others none."""
    given = {"tp": 8, "sp": True, "pp": 8, "num_microbatches": 16}
    results = made(given), made(given, embedding_dropout=0.0)
    held = [[r.stage_numbers(stage)["M_stage_activations"] for stage in r.stages] for r in results]
    mask = 2048 * 12288 // 8
    assert [x - y for x, y in zip(*held, strict=True)] == [8 * mask] + [0] * 7


def test_the_embeddings_dropout_takes_time_and_bytes() -> None:
    model = load_model("gpt3-175b").architecture
    on, off = (
        derive(model.model_copy(update={"embedding_dropout": rate}), Strategy(tp=8, sp=True), system=load_system("h100-sxm")) for rate in (None, 0.0)
    )
    moved = 2048 * 12288 // 8 * (2 + 2 + 1)
    assert Strategy().seq_length == 4096
    assert on.value("Q_embedding") - off.value("Q_embedding") == 2 * moved
    assert on.value("U_embedding") - off.value("U_embedding") == 2 * moved
    assert on.step_numbers["t_step"] > off.step_numbers["t_step"]


def test_the_embeddings_dropout_of_hugging_face() -> None:
    """GPT2Model.drop: new storage and a byte mask."""
    model = load_model("gpt2").architecture
    on, off = (derive(model.model_copy(update={"embedding_dropout": rate}), Strategy(fusion="eager")) for rate in (0.1, 0.0))
    B, S, H = (on.values[n] for n in "bsh")
    assert on.value("A_embedding") - off.value("A_embedding") == B * S * H
    kernels = [op.kind for op in on.lowered.blocks["embedding"].placed.block.ops]
    assert kernels.count("dropout") == 1


def test_equation_5_and_its_extras() -> None:
    """First stage of p in flight, all its layers, the embedding's mask: sbhL/t (34 + 5as/h) + sbhp/t, and of every
    row in flight the norms' statistics, the ids of tokens and positions, and the tokens' mask."""
    given = {"tp": 8, "sp": True, "pp": 8, "num_microbatches": 16}
    result = made(given)
    saved = p * (closed(result, "A_dense") * L / p + closed(result, "A_embedding"))
    paper = s * b * h * L / t * (34 + 5 * a * s / h) + s * b * h * p / t
    rows = closed(made(given, embedding_dropout=0.0), "A_embedding")
    assert not rows.has(h)
    assert sympy.expand(saved - paper - L * STATISTICS / t - p * rows) == 0
    first = result.stage_numbers(result.stages[0])
    numbers = {sympy.Symbol(n, positive=True): v for n, v in result.values.items()}
    assert first["M_stage_activations"] == saved.subs(numbers)


def test_the_extras_of_one_stage() -> None:
    """p = 1: the embedding's mask, and 4 (1 + V/h) of the final norm, the output layer's input and the fp32 logits."""
    result = made({"tp": 8, "sp": True})
    extras = closed(result, "A_embedding") + closed(result, "A_head")
    paper = s * b * h / t * (1 + 4 * (1 + V / h))
    rows = sympy.expand(extras - paper)
    assert not rows.has(h) and not rows.has(V)
