"""The verifier refuses inconsistent blocks, and passes leave consistent ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from symsim.architecture import Moe
from symsim.expr import ZERO
from symsim.ir import KINDS, Block, IRError, Net, rebuild, verify
from symsim.layers.notation import linear
from symsim.loading import load_model
from symsim.lower import lower
from symsim.mesh import mesh_of
from symsim.passes import fuse_eager, fuse_te
from symsim.passes.communicate import check_layouts
from symsim.passes.differentiate import REDISTRIBUTIONS, check_backward
from symsim.passes.primitives import KEEPS
from symsim.passes.remember import Remembered, check_kept
from symsim.sizes import dimensions
from symsim.strategy import Strategy


def two_ops():  # type: ignore[no-untyped-def]
    net = Net("block", "bf16")
    x = net.input("x", "b s h")
    y, z = net.tensor("y", "b s h"), net.tensor("z", "b s h")
    net.op("add", "first", [x, x], [y])
    net.op("add", "second", [y, x], [z], saves=[y])
    return net.block([z])


def test_consistent() -> None:
    assert [op.name for op in verify(two_ops()).ops] == ["first", "second"]


def test_reads_before_made() -> None:
    block = two_ops()
    with pytest.raises(IRError, match="second reads y before it is made"):
        rebuild(block, reversed(block.ops))


def test_made_twice() -> None:
    block = two_ops()
    with pytest.raises(IRError, match="makes y twice"):
        rebuild(block, [block.ops[0], *block.ops])


def test_unknown_dimension() -> None:
    block = two_ops()
    op = replace(block.ops[0], products=(("b", "nowhere"),))
    with pytest.raises(IRError, match="unknown dimension nowhere"):
        rebuild(block, [op, block.ops[1]])


def test_saves_what_does_not_exist() -> None:
    block = two_ops()
    with pytest.raises(IRError, match="saves z, which does not exist yet"):
        rebuild(block, [replace(block.ops[0], saves=("z",)), block.ops[1]])


def test_sharded_twice() -> None:
    placed = lower(load_model("llama3-8b").architecture, Strategy(tp=2, sp=True), {}).blocks["dense"].placed
    check_layouts(placed)
    twice = {**placed.layouts, "x": {"b": (), "s": ("tp",), "h": ("tp",)}}
    with pytest.raises(IRError, match="sharded twice by one axis"):
        check_layouts(replace(placed, layouts=twice))


def test_partial_sum_is_reduced_before_use() -> None:
    placed = lower(load_model("llama3-8b").architecture, Strategy(tp=2), {}).blocks["dense"].placed
    reduced = next(op for op in placed.block.ops if op.kind == "all_reduce")
    with pytest.raises(IRError, match="a partial sum over"):
        check_layouts(replace(placed, partial={**placed.partial, reduced.outputs[0]: ("tp",)}))


def projected(out: str = "b s f", contract: str = "h") -> Block:
    net = Net("block", "bf16")
    return net.block([linear(net, net.input("x", "b s h"), "up", out, contract=contract)])


def test_a_misspelt_dimension_is_refused_where_it_is_named() -> None:
    with pytest.raises(IRError, match=r"block: unknown dimension ff: .*, in up.out\[b s ff\]|up.weight\[ff h\]"):
        projected("b s ff")
    strategy, model = Strategy(), load_model("llama3-8b").architecture
    net = Net("block", "bf16", dimensions(model, strategy, mesh_of(strategy), "full"))
    with pytest.raises(IRError, match="unknown dimension f_s"):  # a symbol, but not of this model
        net.tensor("y", "b s f_s")
    with pytest.raises(IRError, match=r"unknown dimension k: .*, in mask\[s k\]"):
        net.table("mask", "s k")


def test_a_linear_map_contracts_what_its_input_has() -> None:
    with pytest.raises(IRError, match=r"up contracts d, which x lacks, in `linear up: x\[b s h\] up.weight\[f d\] -> up.out\[b s f\], over d`"):
        projected(contract="d")


@pytest.mark.parametrize(
    ("change", "tensors", "said"),
    [
        ({"kind": "einsumm"}, {}, "up is of unknown kind einsumm, in `einsumm up: x"),
        ({"inputs": ("z", "up.weight")}, {}, "up names z, which is not declared"),
        ({"saves": ("z",)}, {}, "up names z, which is not declared"),
        ({"outputs": ("up.out", "z")}, {}, "up names z, which is not declared"),
        ({"attrs": {"contract": ("a",)}}, {}, "up contracts a, which x lacks"),
        ({"attrs": {}}, {}, "up says nothing of what it contracts"),
        ({}, {"up.weight": {"dims": ("f", "d")}}, "up contracts h, which its weight lacks"),
        ({}, {"up.out": {"dims": ("b", "s", "a")}}, "up makes a, which no operand has"),
        ({"products": (("b", "s", "a", "h"),)}, {}, "up multiplies over a, which no operand has"),
        ({"products": (("b", "nowhere"),)}, {}, "up multiplies over unknown dimension nowhere"),
        ({"backward_products": (("dgrad", ("b", "nowhere")),)}, {}, "up multiplies over unknown dimension nowhere"),
        ({}, {"up.out": {"dims": ("b", "s", "nowhere")}}, r"tensor up.out\[b s nowhere\] has unknown dimension nowhere"),
        ({}, {"up.out": {"dtype": "fp17"}}, "tensor up.out has unknown type fp17"),
        ({}, {"up.out": {"kind": "weight"}}, "tensor up.out is of unknown kind weight"),
        ({}, {"up.out": {"view_of": "z"}}, "tensor up.out is a view of z, which is not declared"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], tensors: dict[str, dict[str, Any]], said: str) -> None:
    net = Net("block", "bf16")
    net.dim("a")
    block = net.block([linear(net, net.input("x", "b s h"), "up", "b s f")])
    net.dim("d")
    block = replace(block, dims=net.dims)
    verify(block)
    changed = {n: replace(t, **tensors.get(n, {})) for n, t in block.tensors.items()}
    with pytest.raises(IRError, match=f"block: {said}"):
        rebuild(block, [replace(block.ops[0], **change)], changed)


def test_outputs_are_made() -> None:
    with pytest.raises(IRError, match="output nothing is never made"):
        rebuild(two_ops(), two_ops().ops, outputs=("nothing",))


def test_what_is_saved_exists_by_then() -> None:
    block = two_ops()
    with pytest.raises(IRError, match=r"first saves z, which does not exist yet, in `add first: x\[b s h\] x\[b s h\] -> y\[b s h\]`"):
        rebuild(block, [replace(block.ops[0], saves=("z",)), block.ops[1]])


def remembered() -> Remembered:
    return lower(load_model("llama3-8b").architecture, Strategy(tp=2, sp=True), {}).blocks["dense"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"forward": 999}, "a backward kernel dgrad transposes operation 999 of"),
        ({"reads": ("nothing",)}, r"\(dgrad\) names nothing, which is not declared, in `einsum"),
        ({"writes": ("x",)}, r"\(dgrad\) makes the gradient of x, which the operation does not read, in `einsum"),
        ({"products": (("b", "nowhere"),)}, r"\(dgrad\) multiplies over unknown dimension nowhere, in `einsum"),
    ],
)
def test_backward_kernels_are_checked(change: dict[str, Any], said: str) -> None:
    made = remembered().differentiated
    at = next(i for i, k in enumerate(made.backward) if k.label == "dgrad" and "x" not in made.placed.block.ops[k.forward].inputs)
    kernels = [replace(k, **change) if i == at else k for i, k in enumerate(made.backward)]
    with pytest.raises(IRError, match=f"dense: .*{said}"):
        check_backward(replace(made, backward=tuple(kernels)))


def test_every_weight_gradient_has_its_reduction() -> None:
    made = remembered().differentiated
    with pytest.raises(IRError, match=r"\(wgrad\) makes the gradient of .*, and nothing says over which ranks it is summed"):
        check_backward(replace(made, reduced_over={}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phase": "forward"}, "is of phase forward, and stands among those of backward, in `"),
        ({"op": "gossip"}, "is of unknown kind gossip, in `"),
        ({"axis": "tp_nowhere"}, "goes over unknown axis tp_nowhere, in `"),
        ({"dtype": "fp17"}, "has unknown type fp17, in `"),
        ({"send_elements": ZERO, "receive_elements": ZERO}, "carries nothing, in `"),
    ],
)
def test_messages_are_checked_after_differentiate_and_remember(change: dict[str, Any], said: str) -> None:
    made = remembered()
    (index, first), *rest = made.differentiated.backward_messages
    wrong = ((index, replace(first, **change)), *rest)
    with pytest.raises(IRError, match=said):
        check_backward(replace(made.differentiated, backward_messages=wrong))
    with pytest.raises(IRError, match=said):
        check_kept(replace(made, backward_messages=wrong))
    with pytest.raises(IRError, match="belongs to operation 999 of"):
        check_kept(replace(made, backward_messages=((999, first),)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "nothing"}, "nothing is kept for backward and is not declared"),
        ({"kind": "parameter"}, "is kept for backward and is a parameter"),
        ({"view_of": "x"}, "is kept for backward and is a view of x, in `"),
    ],
)
def test_what_is_kept_is_checked(change: dict[str, Any], said: str) -> None:
    made = remembered()
    first, *rest = made.saved
    check_kept(made)
    with pytest.raises(IRError, match=said):
        check_kept(replace(made, saved=(replace(first, tensor=replace(first.tensor, **change)), *rest)))
    with pytest.raises(IRError, match="is kept twice"):
        check_kept(replace(made, saved=(first, *made.saved)))
    with pytest.raises(IRError, match="operation 999 of .* runs again"):
        check_kept(replace(made, recomputed=frozenset({999})))


def test_every_kind_that_a_profile_lowers_to_is_in_the_grammar() -> None:
    assert {*fuse_te.LOWERINGS, *fuse_eager.LOWERINGS, *KEEPS, *REDISTRIBUTIONS} <= KINDS
    model = load_model("mixtral-8x7b").architecture
    assert model.moe is not None
    for activation in get_args(Moe.model_fields["activation"].annotation):
        for fusion in ("eager", "te"):
            changed = model.model_copy(update={"moe": model.moe.model_copy(update={"activation": activation})})
            assert lower(changed, Strategy(fusion=fusion), {}).blocks["moe"].saved
