"""The verifier refuses inconsistent blocks, and passes leave consistent ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from symsim.algebra.expr import ZERO, expr
from symsim.frameworks import fuse_eager, fuse_te
from symsim.frameworks.choices import framework_of
from symsim.frameworks.kernels import Profile
from symsim.inputs.architecture import Moe
from symsim.inputs.assumptions import resolve
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Block, Net, Weight
from symsim.ir.block import rebuild as rebuilt
from symsim.ir.einsum import IRError
from symsim.ir.operations import KINDS, Norm, Plain
from symsim.layers.mlp import mlp
from symsim.layers.notation import add, convolve
from symsim.lowering.lower import lower, lower_block
from symsim.lowering.remember import Remembered
from symsim.lowering.verify import verify
from symsim.placement.mesh import mesh_of
from symsim.placement.names import placement_of
from symsim.placement.sizes import dimensions


def rebuild(block: Block, *changes: Any, **fields: Any) -> Block:
    return verify(rebuilt(block, *changes, **fields))


def two_ops():  # type: ignore[no-untyped-def]
    net = Net("block", "bf16")
    x = net.input("x", "b s h")
    y, z = net.tensor("y", "b s h"), net.tensor("z", "b s h")
    first, second = net.op("add", "first", [x, x], [y]), net.op("add", "second", [y, x], [z])
    return replace(net.block([z]), ops=(first, replace(second, saves=(y,))))


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
    verify(placed)
    twice = {**placed.layouts, "x": {"b": (), "s": ("tp",), "h": ("tp",)}}
    with pytest.raises(IRError, match="sharded twice by one axis"):
        verify(replace(placed, layouts=twice))


def test_partial_sum_is_reduced_before_use() -> None:
    placed = lower(load_model("llama3-8b").architecture, Strategy(tp=2), {}).blocks["dense"].placed
    reduced = next(op for op in placed.block.ops if op.kind == "all_reduce")
    with pytest.raises(IRError, match="a partial sum over"):
        verify(replace(placed, partial={**placed.partial, reduced.outputs[0]: ("tp",)}))


def test_a_module_that_nothing_counts_is_refused() -> None:
    """Its parameters would be in no sum."""
    said = "dense: adapter is of the module 'adaptor', which is no row of MODULES"
    with pytest.raises(IRError, match=said), Net("dense", "bf16").within("adapter", "adaptor"):
        pass


@pytest.mark.parametrize(("module", "dims", "said"), [("mlp", "E h", r"of experts \(E\)"), ("experts", "h", r"no expert's \(it lacks E\)")])
def test_parameters_of_experts_are_those_of_their_module(module: str, dims: str, said: str) -> None:
    """Their ranks, gradients and messages are others than those of the rest."""
    net = Net("moe", "bf16")
    with pytest.raises(IRError, match=f"moe: rank.w is {said}, in the module '{module}'"), net.within("rank", module):
        net.parameter("w", dims)


def lowered(layer: Callable[[Net, str], str], strategy: Strategy) -> Remembered:
    """A layer of one's own, with the dimensions of Llama 3 8B."""
    model, given, mesh = load_model("llama3-8b").architecture, resolve({}), mesh_of(strategy)
    net = Net("dense", "bf16", dimensions(model, strategy, mesh, {}))
    profile = Profile(model, strategy, given, framework_of(strategy, given), placement_of(strategy))
    return lower_block(net.block([layer(net, net.input("x", "b s h"))]), profile, mesh)


@pytest.mark.parametrize(("strategy", "axis"), [(Strategy(tp=2, sp=True), "tp"), (Strategy(cp=2), "cp")])
def test_what_passes_on_from_token_to_token_has_whole_sequences(strategy: Strategy, axis: str) -> None:
    """A convolution in a layer that says nothing of placements: no rank convolves a share of the tokens."""

    def convolved(net: Net, x: str) -> str:
        net.dim("taps", expr(4))
        with net.within("mixed", "attention"):
            return add(net, convolve(net, x, "mix", "taps"), x, "add")

    made = lowered(convolved, strategy)
    assert [(m.op, m.axis, m.what) for _, m in made.differentiated.forward_messages] == [("all_gather", axis, "input of mixed.mix")]


def test_a_partial_sum_that_is_read_whole_and_split_is_reduced_once() -> None:
    """A network behind another, with a sum around it: the first one's result is scattered, and gathered from there."""

    def networks(net: Net, x: str) -> str:
        for name in ("first", "second"):
            with net.within(name, "mlp"):
                y = mlp(net, x, width="f", gated=False, activation="gelu")
                x = add(net, y, x, "add") if name == "second" else y
        return x

    made = lowered(networks, Strategy(tp=2, sp=True, seq_length=4096))
    assert [(m.op, m.what.partition(" of ")[2]) for _, m in made.differentiated.forward_messages] == [
        ("all_gather", "first.up_proj"),
        ("reduce_scatter", "first.down_proj"),
        ("all_gather", "second.up_proj"),
        ("reduce_scatter", "second.down_proj"),
    ]
    assert {s.name: s.bytes.evaluate({"b": 1, "s": 4096, "h": 4096, "f": 1, "tp": 2}) for s in made.saved}["first.down_proj.out@tp:s"] == 4096 * 4096


def projected(einsum: str = "b s h, f h -> b s f") -> Block:
    net = Net("block", "bf16")
    return net.block([net.einsum(einsum, net.input("x", "b s h"), Weight("up"))])


def test_a_misspelt_dimension_is_refused_where_it_is_named() -> None:
    strategy, model = Strategy(), load_model("llama3-8b").architecture
    net = Net("block", "bf16", dimensions(model, strategy, mesh_of(strategy), {}))
    with pytest.raises(IRError, match="unknown dimension f_s"):  # a symbol, but not of this model
        net.tensor("y", "b s f_s")
    with pytest.raises(IRError, match=r"unknown dimension k: .*, in mask\[s k\]"):
        net.table("mask", "s k")


@pytest.mark.parametrize(
    ("change", "tensors", "said"),
    [
        ({"kind": "einsumm"}, {}, "up is of unknown kind einsumm .*kinds_are_known"),
        ({"inputs": ("z", "up.weight")}, {}, "up names z, which is not declared .*tensors_are_declared"),
        ({"saves": ("z",)}, {}, "up names z, which is not declared"),
        ({"outputs": ("up.out", "z")}, {}, "up names z, which is not declared"),
        ({"einsums": ()}, {}, "up has 0 einsums for 1 results .*linear_maps_are_their_einsums"),
        ({"attrs": Plain()}, {}, "up has attributes Plain, and its kind Projection .*attributes_are_of_their_kind"),
        ({}, {"up.weight": {"dims": ("f", "d")}}, r"up has up.weight\[f d\], and `b s h, f h -> b s f` has \[f h\]"),
        ({}, {"up.out": {"dims": ("b", "s", "a")}}, r"up has up.out\[b s a\], and `b s h, f h -> b s f` has \[b s f\]"),
        ({"products": (("b", "s", "a", "h"),)}, {}, "up multiplies over b s a h, and `b s h, f h -> b s f` over b s f h"),
        ({"products": (("b", "nowhere"),)}, {}, "up multiplies over unknown dimension nowhere .*products_are_over_known_dimensions"),
        ({"backward_products": (("dgrad", ("b", "nowhere")),)}, {}, "up multiplies over unknown dimension nowhere"),
        ({}, {"up.out": {"dims": ("b", "s", "nowhere")}}, r"tensor up.out\[b s nowhere\] has unknown dimension nowhere"),
        ({}, {"up.out": {"dtype": "fp17"}}, "tensor up.out has unknown type fp17 .*tensors_are_of_the_grammar"),
        ({}, {"up.out": {"kind": "weight"}}, "tensor up.out is of unknown kind weight"),
        ({}, {"up.out": {"view_of": "z"}}, "tensor up.out is a view of z, which is not declared .*views_look_into_tensors"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], tensors: dict[str, dict[str, Any]], said: str) -> None:
    block = projected()
    net = Net("other", "bf16", block.dims)
    net.given = False
    net.dim("a")
    net.dim("d")
    block = replace(block, dims=net.dims)
    verify(block)
    changed = {n: replace(t, **tensors.get(n, {})) for n, t in block.tensors.items()}
    with pytest.raises(IRError, match=f"block: {said}"):
        rebuild(block, [replace(block.ops[0], **change)], changed)


def test_a_broken_invariant_names_itself_its_pass_and_the_operation() -> None:
    with pytest.raises(IRError) as broken:
        verify(replace(projected(), ops=(replace(projected().ops[0], inputs=("y", "up.weight")),)), "fuse")
    assert str(broken.value) == (
        "block: up names y, which is not declared (tensors_are_declared, after fuse), in\n"
        "    linear up: y up.weight[f h] -> up.out[b s f]: b s h, f h -> b s f"
    )


def test_attention_has_the_operands_that_its_products_say() -> None:
    block = lower(load_model("llama3-8b").architecture, Strategy(), {}).blocks["dense"].placed.block
    at = next(i for i, op in enumerate(block.ops) if op.kind == "attention")
    tensors = {**block.tensors, block.ops[at].inputs[0]: replace(block.tensors[block.ops[at].inputs[0]], dims=("b", "s", "f"))}
    with pytest.raises(IRError, match=r"has .*\[b s f\], and its products \[b s a d\] \(attention_is_its_einsums"):
        rebuild(block, block.ops, tensors)


def test_an_operation_has_the_attributes_of_its_kind() -> None:
    with pytest.raises(IRError, match="first, of kind add, has the attributes Plain\\(\\), and no Norm"):
        two_ops().ops[0].of(Norm)


def test_outputs_are_made() -> None:
    with pytest.raises(IRError, match="output nothing is never made"):
        rebuild(two_ops(), two_ops().ops, outputs=("nothing",))


def test_what_is_saved_exists_by_then() -> None:
    block = two_ops()
    with pytest.raises(IRError, match=r"first saves z, which does not exist yet \(made_once_and_before_use\), in\s+add first: x\[b s h\] x"):
        rebuild(block, [replace(block.ops[0], saves=("z",)), block.ops[1]])


def remembered() -> Remembered:
    return lower(load_model("llama3-8b").architecture, Strategy(tp=2, sp=True), {}).blocks["dense"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"forward": 999}, "a backward kernel dgrad transposes operation 999 of"),
        ({"reads": ("nothing",)}, r"\(dgrad\) that names nothing, which is not declared .*backward_transposes_operations"),
        ({"writes": ("x",)}, r"\(dgrad\) that makes the gradient of x, which the operation does not read .*\s+einsum"),
        ({"products": (("b", "nowhere"),)}, r"\(dgrad\) that multiplies over unknown dimension nowhere .*\s+einsum"),
    ],
)
def test_backward_kernels_are_checked(change: dict[str, Any], said: str) -> None:
    made = remembered().differentiated
    at = next(i for i, k in enumerate(made.backward) if k.label == "dgrad" and "x" not in made.placed.block.ops[k.forward].inputs)
    kernels = [replace(k, **change) if i == at else k for i, k in enumerate(made.backward)]
    with pytest.raises(IRError, match=f"dense: .*{said}"):
        verify(replace(made, backward=tuple(kernels)))


def test_every_weight_gradient_has_its_reduction() -> None:
    made = remembered().differentiated
    with pytest.raises(IRError, match="makes the gradient of .*, and nothing says over which ranks it is summed .*weight_gradients_are_summed"):
        verify(replace(made, reduced_over={}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phase": "forward"}, "is of phase forward, and stands among those of backward "),
        ({"op": "gossip"}, "is of unknown kind gossip "),
        ({"axis": "tp_nowhere"}, "goes over unknown axis tp_nowhere "),
        ({"dtype": "fp17"}, "has unknown type fp17 "),
        ({"send_elements": ZERO, "receive_elements": ZERO}, "carries nothing "),
    ],
)
def test_messages_are_checked_after_differentiate_and_remember(change: dict[str, Any], said: str) -> None:
    made = remembered()
    (index, first), *rest = made.differentiated.backward_messages
    wrong = ((index, replace(first, **change)), *rest)
    with pytest.raises(IRError, match=said):
        verify(replace(made.differentiated, backward_messages=wrong))
    with pytest.raises(IRError, match=said):
        verify(replace(made, backward_messages=wrong))
    with pytest.raises(IRError, match="belongs to operation 999 of"):
        verify(replace(made, backward_messages=((999, first),)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "nothing"}, "keeps nothing for backward, which is not declared .*what_is_kept_is_a_storage"),
        ({"kind": "parameter"}, "keeps .* for backward, which is a parameter"),
        ({"view_of": "x"}, "keeps .* for backward, which is a view of x "),
    ],
)
def test_what_is_kept_is_checked(change: dict[str, Any], said: str) -> None:
    made = remembered()
    first, *rest = made.saved
    verify(made)
    with pytest.raises(IRError, match=said):
        verify(replace(made, saved=(replace(first, tensor=replace(first.tensor, **change)), *rest)))
    with pytest.raises(IRError, match="is kept twice"):
        verify(replace(made, saved=(first, *made.saved)))
    with pytest.raises(IRError, match="operation 999 of .* runs again"):
        verify(replace(made, recomputed=frozenset({999})))


def test_every_kind_that_a_profile_lowers_to_is_in_the_grammar() -> None:
    assert {*fuse_te.LOWERINGS, *fuse_eager.LOWERINGS} <= KINDS
    model = load_model("mixtral-8x7b").architecture
    assert model.moe is not None
    for activation in get_args(Moe.model_fields["activation"].annotation):
        for fusion in ("eager", "te"):
            changed = model.model_copy(update={"moe": model.moe.model_copy(update={"activation": activation})})
            assert lower(changed, Strategy(fusion=fusion), {}).blocks["moe"].saved
