"""Einsum strings: what follows from one, and what a layer's author is told where one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Net, Weight
from symsim.ir.einsum import Einsum, IRError, parsed
from symsim.ir.exceptions import EXCEPTIONS, exceptional
from symsim.ir.operations import Projection
from symsim.layers import notation as n
from symsim.lowering.lower import lower


def declared(text: str, weight: str = "w") -> Net:
    net = Net("dense", "bf16")
    with net.within("attention", "attention"):
        net.einsum(text, net.input("x", "b s h"), Weight(weight))
    return net


@pytest.mark.parametrize(
    ("text", "contracted", "product", "gradients"),
    [
        ("b s h, a d h -> b s a d", "h", "b s a d h", ("b s a d, a d h -> b s h", "b s a d, b s h -> a d h")),
        ("b s a d, h a d -> b s h", "a d", "b s h a d", ("b s h, h a d -> b s a d", "b s h, b s a d -> h a d")),
        ("R h, E(R) f_e h -> R f_e", "h", "R f_e h", ("R f_e, E(R) f_e h -> R h", "R f_e, R h -> E(R) f_e h")),
        ("b s a d, b z g(a) d -> b s a z", "d", "b s a z d", ("b s a z, b z g(a) d -> b s a d", "b s a z, b s a d -> b z g(a) d")),
    ],
)
def test_what_follows_from_a_string(text: str, contracted: str, product: str, gradients: tuple[str, str]) -> None:
    made = parsed(text)
    assert str(made) == text
    assert " ".join(made.contracted) == contracted
    assert " ".join(made.product) == product
    for operand, gradient in enumerate(gradients):
        assert str(made.transpose(operand)) == gradient
        assert set(made.transpose(operand).product) == set(made.product)  # a gradient costs what forward does


@pytest.mark.parametrize(
    ("text", "said", "marked"),
    [
        ("b s h, f h", "an einsum is `operands -> result`, with one ->", ""),
        ("b s h -> b s h", "an einsum has two operands, parted by a comma", ""),
        ("b s h, f d -> b s f", "h is summed over, and no other operand has it", "h"),
        ("b s h, f h d -> b s f", "d is summed over, and the first operand lacks it", "d"),
        ("b s h, E f h -> b s f", "E is summed over, and the first operand lacks it", "E"),
        ("b s h, f h -> b s g", "the result has g, and no operand has it", "g"),
        ("b s h, f h h -> b s f", "h stands twice in one tensor", "h"),
        ("b s h, E(R) f h -> b s f", "E is chosen by R, which the first operand lacks", "E(R)"),
        ("b s h, f( h -> b s f", "`f(` is no dimension", "f("),
        ("b s h, ff h -> b s ff", "unknown dimension ff: ", "ff"),
        ("b s f, h f -> b s h", "operand 1 is [b s h]", "f"),
        ("s b h, f h -> s b f", "operand 1 is [b s h]", ""),
    ],
)
def test_a_wrong_string_is_quoted_and_marked(text: str, said: str, marked: str) -> None:
    with pytest.raises(IRError) as wrong:
        declared(text)
    first, quoted, *mark = str(wrong.value).splitlines()
    assert first.startswith(f"dense: attention.w of attention.x: {said}")
    assert quoted == f"    {text}"
    if not marked:
        assert not mark
        return
    at = mark[0].index("^")
    assert set(mark[0].strip()) == {"^"}
    assert quoted[at : at + len(mark[0].strip())] == marked


def test_the_page_shows_this_error() -> None:
    with pytest.raises(IRError) as wrong:
        declared("b s h, a d e -> b s a d", "q_proj")
    page = Path(__file__).parents[1] / "docs" / "rules.md"
    assert str(wrong.value) in page.read_text()


def test_a_weight_has_the_dimensions_of_its_string_and_a_bias_what_it_adds() -> None:
    net = Net("dense", "bf16")
    made = net.einsum("b s h, a d h -> b s a d", net.input("x", "b s h"), Weight("q_proj", bias=True))
    assert net.dims_of("q_proj.weight") == ("a", "d", "h") and net.dims_of("q_proj.bias") == ("a", "d")
    assert net.dims_of(made) == ("b", "s", "a", "d")
    (op,) = net.ops
    assert op.kind == "linear" and op.of(Projection) == Projection(("q_proj",), bias=True)


def test_a_chosen_dimension_makes_a_grouped_product() -> None:
    net = Net("moe", "bf16")
    net.dim("R", "E")
    net.einsum("R h, E(R) f_e h -> R f_e", net.input("x", "R h"), Weight("up", bias=True))
    (op,) = net.ops
    assert op.kind == "grouped" and net.dims_of("up.bias") == ("E", "f_e")


def test_attention_says_its_two_products() -> None:
    net = Net("dense", "bf16")
    q, k, v = net.input("q", "b s a d"), net.input("k", "b s g d"), net.input("v", "b s g d")
    n.attend(net, (q, k, v), scores="b s a d, b z g(a) d -> b s a z", values="b s a z, b z g(a) d -> b s a d")
    with pytest.raises(IRError, match=r"operand 2 is \[b z g d\]"):
        n.attend(net, (q, k, v), scores="b s a d, b z a d -> b s a z", values="b s a z, b z g(a) d -> b s a d")
    with pytest.raises(IRError, match="g is summed over, and the first operand lacks it"):
        n.attend(net, (q, k, v), scores="b s a d, b z g d -> b s a z", values="b s a z, b z g(a) d -> b s a d")


def test_unknown_kinds_and_attributes_are_refused() -> None:
    net = Net("dense", "bf16")
    with pytest.raises(IRError, match=r"dense: n is of unknown kind normm: .*norm"):
        net.op("normm", "n", [], [])
    with pytest.raises(IRError, match=r"dense: n, of kind norm: .*unexpected keyword argument 'contract'"):
        net.op("norm", "n", [], [], over=("h",), contract="h")


def test_projections_of_one_input_are_one_product() -> None:
    block = lower(load_model("llama3-8b").architecture, Strategy(), {}).blocks["dense"].placed.block
    qkv = next(op for op in block.ops if op.name == "attention.qkv")
    assert qkv.einsums == (Einsum((("b", "s", "h"), ("qkv[a*d+g*d+g*d]", "h")), ("b", "s", "qkv[a*d+g*d+g*d]")),)


def test_exceptions_have_a_source() -> None:
    assert all(row.reason and row.source for row in EXCEPTIONS.values())
    assert exceptional("high_precision", Projection(("router",))) and not exceptional("high_precision", Projection(("q_proj",)))
