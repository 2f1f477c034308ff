"""The verifier refuses inconsistent blocks, and passes leave consistent ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from symsim.ir import IRError, Net, rebuild, verify
from symsim.loading import load_model
from symsim.lower import lower
from symsim.passes.communicate import check_layouts
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
