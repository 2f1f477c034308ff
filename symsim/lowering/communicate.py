"""communicate: insert the redistributions that the placements require.

Every operation states where its dimensions live (`mesh.place`); a tensor produced elsewhere, or only as a partial
sum, is redistributed first:

    partial -> whole        all_reduce           shard -> whole        all_gather
    partial -> shard        reduce_scatter       shard d1 -> shard d2  all_to_all
    whole   -> shard        a local slice

A partial sum that one reader wants whole and another split is reduced once, to the split form, and gathered from there.

Nothing here knows a layer: tensor, sequence, context and expert parallelism all come out of these five.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from symsim.algebra.expr import Expr, symbol
from symsim.frameworks.recompute import KERNEL
from symsim.ir.block import Block, Dim, Op, Tensor
from symsim.ir.collectives import Held, between
from symsim.ir.operations import OPERATIONS, Projection, Redistribution
from symsim.placement.mesh import Layout, Mesh, parameter_layout, place

PARTIAL = "partial"


@dataclass(frozen=True)
class Placed:
    """A block with its layouts: `layouts[tensor]` maps its dimensions to axes, `partial[tensor]` the axes over which
    it is a partial sum, `iteration[op index]` the layout of the operation's iteration space.
    """

    block: Block
    mesh: Mesh
    layouts: Mapping[str, Layout]
    partial: Mapping[str, tuple[str, ...]]
    iteration: tuple[Layout, ...]
    sizes: dict[str, Expr] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Local elements of the tensors asked for so far (`differentiate.elements`)."""


@dataclass
class State:
    tensors: dict[str, Tensor]
    layouts: dict[str, Layout] = field(default_factory=dict)
    partial: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    iteration: list[Layout] = field(default_factory=list)
    versions: dict[tuple[str, str], str] = field(default_factory=dict)
    split: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of every tensor, by axis, a dimension that one of its readers wants split over it."""


def communicate(block: Block, mesh: Mesh, *, shared: bool = True, expand_groups: bool = False) -> Placed:
    """Place every operation and insert redistributions. shared=False: every consumer redistributes for itself.

    expand_groups: there are fewer key/value heads than TP ranks, so their projection is gathered and each rank
    takes the head it needs.
    """
    block = _expand_groups(block) if expand_groups else block
    state = State(dict(block.tensors))
    for name in block.inputs:
        state.layouts[name] = _stream_layout(mesh, block, block.tensors[name])
    readers = {t: op.name for op in reversed(block.ops) for t in op.inputs}
    for tensor in block.tensors.values():
        if tensor.kind == "parameter":
            state.layouts[tensor.name] = parameter_layout(mesh, block, tensor, readers.get(tensor.name, ""))
    layouts = [place(mesh, block, op) for op in block.ops]
    if shared:
        _read_split(state, mesh, block, layouts)
    for op, layout in zip(block.ops, layouts, strict=True):
        inputs = []
        for position, name in enumerate(op.inputs):
            tensor = block.tensors[name]
            if tensor.kind == "table":
                state.layouts.setdefault(name, {d: layout.get(d, ()) for d in tensor.dims})
            wanted = _wanted(mesh, op, position, tensor, layout)
            inputs.append(name if wanted is None else redistribute(state, mesh, op, name, wanted, shared))
        renamed = dict(zip(op.inputs, inputs))
        made = replace(op, inputs=tuple(inputs), saves=tuple(renamed.get(t, t) for t in op.saves))
        summed = _summed(op)
        for name in op.outputs:
            tensor = state.tensors[name]
            if tensor.view_of in renamed:
                state.tensors[name] = replace(tensor, view_of=renamed[tensor.view_of])
            state.layouts[name] = {d: layout[d] for d in tensor.dims}
            left = {a for d in summed for a in layout.get(d, ())}
            if tensor.kind == "activation" and left:
                state.partial[name] = tuple(sorted(left))
        state.ops.append(made)
        state.iteration.append(layout)
    outputs = []
    for name in block.outputs:
        tensor = state.tensors[name]
        last = Op("output", f"{name} to the stream", tensor.module, (name,), ())
        outputs.append(redistribute(state, mesh, last, name, _stream_layout(mesh, block, tensor), True))
    placed = replace(block, tensors=state.tensors, ops=tuple(state.ops), outputs=tuple(outputs))
    return Placed(placed, mesh, state.layouts, state.partial, tuple(state.iteration))


def _wanted(mesh: Mesh, op: Op, position: int, tensor: Tensor, layout: Layout) -> Layout | None:
    """Where an operation wants an input; None where it reads it as it lies: a parameter, or a partial sum that its own reduction completes."""
    if tensor.kind in ("parameter", "table") or OPERATIONS[op.kind].completes:
        return None
    wanted = {d: layout[d] for d in tensor.dims}
    if OPERATIONS[op.kind].role == "attention" and position in (1, 2) and "s" in wanted:
        wanted["s"] = tuple(a for a in wanted["s"] if a in mesh.ring_axes)
    return wanted


def _read_split(state: State, mesh: Mesh, block: Block, layouts: list[Layout]) -> None:
    """Note the tensors of which a reader wants a share."""
    reads = [(n, _wanted(mesh, op, at, block.tensors[n], layout)) for op, layout in zip(block.ops, layouts) for at, n in enumerate(op.inputs)]
    reads += [(name, _stream_layout(mesh, block, block.tensors[name])) for name in block.outputs]
    for name, wanted in reads:
        for dim, axes in (wanted or {}).items():
            state.split.setdefault(name, {}).update(dict.fromkeys(axes, dim))


def _summed(op: Op) -> set[str]:
    """Dimensions over which a rank's result is a partial sum, where they are split."""
    rule: str = OPERATIONS[op.kind].partial
    return {d for e in op.einsums for d in e.contracted} if rule == "contracted" else {rule} - {""}


def _stream_layout(mesh: Mesh, block: Block, tensor: Tensor) -> Layout:
    """What stands between blocks lies where the strategy's table says; ids, labels and losses leave tp alone."""
    lies = {d: mesh.placement.of((*block.dims[d].parts, d)[0]) for d in tensor.dims}
    wide = tensor.kind == "activation" and len(tensor.dims) > 2
    taken = {a for axes in lies.values() for a in axes.always}
    left = {d: [a for a in axes.left if a not in taken] if wide else [] for d, axes in lies.items()}
    return {d: tuple(a for a in (*axes.always, *left[d]) if mesh.active(a)) for d, axes in lies.items()}


def _where(layout: Layout, partial: tuple[str, ...], axis: str) -> str | None:
    if axis in partial:
        return PARTIAL
    return next((d for d, axes in layout.items() if axis in axes), None)


def redistribute(state: State, mesh: Mesh, op: Op, name: str, wanted: Layout, shared: bool) -> str:
    """Bring a tensor to the wanted layout, one axis at a time; consumers that want the same layout share the result."""
    split = state.split.get(name, {})
    # a layout has axes that are there alone
    for axis in mesh.degrees:
        target = _where(wanted, (), axis)
        summed = target is None and axis in state.partial.get(name, ())
        for there in dict.fromkeys((split.get(axis), target) if summed else (target,)):
            source = _where(state.layouts[name], state.partial.get(name, ()), axis)
            if source == there:
                continue
            key = (name, f"{axis}:{there}") if shared else (name, f"{axis}:{there}:{op.name}")
            if key not in state.versions:
                state.versions[key] = _insert(state, op, name, axis, source, there, key)
            name = state.versions[key]
    return name


def _insert(state: State, consumer: Op, name: str, axis: str, source: str | None, target: str | None, key: tuple[str, str]) -> str:
    there: Held = "whole" if target is None else "shard"
    kind = "slice" if source is None else between("partial" if source == PARTIAL else "shard", there)
    tensor = state.tensors[name]
    made = f"{name}@{key[1]}"
    # a rank's share of what a view has gathered is a view too: its memory stays whole
    gathered = kind == "slice" and any(o.is_view and name in o.outputs for o in state.ops)
    state.tensors[made] = replace(tensor, name=made, view_of=name if gathered else None)
    layout = {d: tuple(a for a in axes if a != axis) for d, axes in state.layouts[name].items()}
    if target is not None:
        layout[target] = (*layout[target], axis)
    state.layouts[made] = layout
    state.partial[made] = tuple(a for a in state.partial.get(name, ()) if a != axis)
    outside = OPERATIONS[kind].completes  # a reduction belongs to the operation that made the partial sum
    maker = next((o for o in state.ops if name in o.outputs), consumer) if outside else consumer
    by = maker.attrs if outside and isinstance(maker.attrs, Projection) else None
    state.ops.append(
        Op(
            kind,
            f"{maker.name}.{kind}",
            maker.module,
            (name,),
            (made,),
            Redistribution(
                axis,
                f"{'output' if outside else 'input'} of {maker.name}",
                (by.reduce_dtype or tensor.dtype) if by else tensor.dtype,
                by.gradient_dtype if by else None,
                source,
                target,
            ),
            regions=maker.regions - {KERNEL},
        )
    )
    state.iteration.append(layout)
    return made


def _expand_groups(block: Block) -> Block:
    """Fewer key/value heads than TP ranks: views of the joint projection first gather it (Megatron-Core attention.py), and
    every rank then holds the whole head that its queries need, `own[g]`: one of tp copies."""
    ops: list[Op] = []
    own, given = "own[g]", [n for n in block.inputs if "g" in block.tensors[n].dims]
    regrouped = bool(given)  # another layer's keys and values come so
    if regrouped:
        held = {n: replace(t, dims=tuple(own if d == "g" else d for d in t.dims)) for n in given for t in [block.tensors[n]]}
        dims = {**block.dims, own: Dim(symbol("tp"), block.dims["g"].size, parts=("g",))}
        block = replace(block, tensors={**block.tensors, **held}, dims=dims)
    for op in block.ops:
        parts = block.dims[block.tensors[op.inputs[0]].dims[-1]].parts if op.is_view and op.inputs else ()
        if "g" in parts and op.is_view:
            regrouped = True
            whole = f"{op.inputs[0]}.whole"
            joint = block.tensors[op.inputs[0]]
            dim = f"{joint.dims[-1]}.whole"
            tensors = {**block.tensors, whole: replace(joint, name=whole, dims=(*joint.dims[:-1], dim))}
            for name in op.outputs:
                tensors[name] = replace(tensors[name], view_of=whole)
            dims = {**block.dims, dim: replace(block.dims[joint.dims[-1]], parts=()), own: Dim(symbol("tp"), block.dims["g"].size, parts=("g",))}
            block = replace(block, tensors=tensors, dims=dims)
            name = f"{op.name}.regroup"
            ops.append(replace(op, kind="regroup", name=name, outputs=(whole,), attrs=Redistribution("tp", name, joint.dtype)))
            op = replace(op, inputs=(whole,))
        if regrouped:
            held = {n: replace(t, dims=tuple(own if d == "g" else d for d in t.dims)) for n in op.outputs if "g" in (t := block.tensors[n]).dims}
            block = replace(block, tensors={**block.tensors, **held})
        ops.append(op)
    return replace(block, ops=tuple(ops))
