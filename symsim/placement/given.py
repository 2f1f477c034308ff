"""Operations that a strategy places otherwise, by name: `lm_head.V=none`, `lm_head.s=cp*tp`.

A replicated embedding and head (Merak's parallel_vocab=false), a head whose tokens are split in place of its vocabulary
(torchtitan): what follows of them, follows by the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from symsim.errors import InputError, cut, nearest
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Block, Op
from symsim.ir.operations import OPERATIONS, Projection
from symsim.placement.names import BY_TENSOR, Placement, placement_of
from symsim.placement.sizes import values

MOVABLE = (*BY_TENSOR, "h", "s")
ELSEWHERE = {"b": "dp", "E": "ep", "f_e": "etp", "R": "ep and etp", "E_r": "the router, which every rank has whole"}
# what reads or makes whole sequences
OVER_SEQUENCES = (
    "attention",
    "pool_tokens",
    "append",
    "convolution",
    "delta_rule",
    "kda",
    "lightning",
    "index_scores",
    "top_k",
    "dispatch",
    "combine",
    "grouped",
)

Named = dict[str, dict[str, tuple[str, ...]]]


def named_placement(model: Architecture, strategy: Strategy, blocks: Mapping[str, Block]) -> Placement:
    """The strategy's table with what `placement` moves. blocks: the declared ones.

    InputError where there is no such operation, dimension or axis, and where what is asked for cannot be.
    """
    found: Named = {}
    for entry in strategy.placement or ():
        name, dim, axes = _read(entry)
        target, ops = _operations(name, blocks, entry)
        _movable(entry, dim, target, ops)
        own = found.setdefault(target, {})
        if dim in own:
            raise InputError(f"placement gives {dim} of {target} twice")
        own[dim] = _axes(entry, dim, axes, model, strategy)
    made = replace(placement_of(strategy), named=dict(sorted(found.items(), key=lambda item: -len(item[0]))))
    _consistent(made, model, strategy, blocks)
    return made


def _read(entry: str) -> tuple[str, str, list[str]]:
    what, equals, axes = entry.partition("=")
    name, dot, dim = what.strip().rpartition(".")
    if not (equals and dot and name and dim and axes.strip()):
        raise InputError(f"placement '{cut(entry)}' is not NAME.DIMENSION=AXES, such as lm_head.V=none or lm_head.s=cp*tp")
    return name, dim, [] if axes.strip() == "none" else [a.strip() for a in axes.split("*")]


def _operations(name: str, blocks: Mapping[str, Block], entry: str) -> tuple[str, list[Op]]:
    """The name as operations have it, and the operations: one, those of a scope, or the one that a weight belongs to."""
    every = [op for block in blocks.values() for op in block.ops]
    scopes = {op.name.rsplit(".", n)[0]: None for op in every for n in range(op.name.count(".") + 1)}
    if name in scopes:
        return name, [op for op in every if op.name == name or op.name.startswith(f"{name}.")]
    weights = {block.tensors[t].owner: op for block in blocks.values() for op in block.ops for t in op.inputs if block.tensors[t].owner}
    if name not in weights:
        raise InputError(f"placement '{cut(entry)}': no operation is called '{cut(name, 40)}': {nearest(name, [*scopes, *weights])}")
    op = weights[name]
    if len(op.outputs) > 1:
        raise InputError(f"placement '{cut(entry)}': {name} is one of the projections that {op.name} makes; place {op.name}")
    return op.name, [o for o in every if o.name == op.name]


def _dims(ops: Sequence[Op], blocks: Mapping[str, Block]) -> list[str]:
    found: dict[str, None] = {}
    for block in blocks.values():
        for op in ops:
            if any(o is op for o in block.ops):
                found |= dict.fromkeys(block.iteration(op))
    return list(found)


def _movable(entry: str, dim: str, name: str, ops: Sequence[Op]) -> None:
    if dim in ELSEWHERE:
        raise InputError(f"placement '{cut(entry)}': {dim} is placed by {ELSEWHERE[dim]}, not by name")
    if dim not in MOVABLE:
        raise InputError(f"placement '{cut(entry)}': '{cut(dim, 20)}' cannot be placed by name: {nearest(dim, list(MOVABLE))}")
    whole = next((op.name for op in ops if op.kind in OVER_SEQUENCES), None)
    if dim == "s" and whole is not None:
        raise InputError(f"placement '{cut(entry)}': {whole} needs its sequences as cp_comm_type has them; place a linear map of {name}")


def _axes(entry: str, dim: str, axes: Sequence[str], model: Architecture, strategy: Strategy) -> tuple[str, ...]:
    allowed = ("tp", "cp") if dim == "s" else ("tp",)
    for axis in axes:
        if axis not in allowed:
            raise InputError(f"placement '{cut(entry)}': {dim} cannot lie on '{cut(axis, 20)}': {nearest(axis, ['none', *allowed])}")
    if len(set(axes)) < len(axes):
        raise InputError(f"placement '{cut(entry)}' names an axis twice")
    if dim == "s" and strategy.cp > 1 and "cp" not in axes:
        raise InputError(f"placement '{cut(entry)}': cp={strategy.cp} splits every sequence; give cp, or cp*tp")
    degree = strategy.tp * (strategy.cp if "cp" in axes else 1)
    # a model's own sizes follow from no strategy: what asks for all of one reads every field of it, at each point of a grid
    size = strategy.seq_length if dim == "s" else values(model, Strategy()).get(dim)
    if "tp" in axes and size is not None and size % degree:
        raise InputError(f"placement '{cut(entry)}': {degree} ranks do not divide {dim}={size}")
    context = placement_of(strategy).dims["s"].always
    return tuple(a for axis in axes for a in (context if axis == "cp" else (axis,)))


def _consistent(made: Placement, model: Architecture, strategy: Strategy, blocks: Mapping[str, Block]) -> None:
    moved = {dim for at in made.named.values() for dim in at}
    fewest = min(model.group_counts, default=strategy.tp)
    if moved & {"a", "g"} and model.attention.kind == "gqa" and fewest < strategy.tp:
        many = f"tp={strategy.tp} is above num_query_groups={fewest}"
        raise InputError(f"placement moves heads, and {many}, so ranks share a head")
    for name, at in made.named.items():
        lacking = _lacking(name, at, blocks)
        if lacking:
            raise InputError(lacking)
    for block in blocks.values():
        for op in block.ops:
            _one_dimension_an_axis(made, block, op)
            _side_by_side(made, block, op)
    if model.tie_word_embeddings:
        lies = {op.name: made.of("V", within=op.name) for b in ("embedding", "head") for op in _with_table(blocks[b])}
        if len(set(lies.values())) > 1:
            raise InputError(f"placement: {' and '.join(lies)} share one table, so V lies on the same axes in both")


def _with_table(block: Block) -> Iterator[Op]:
    for op in block.ops:
        if any(block.tensors[t].kind == "parameter" and "V" in block.tensors[t].dims for t in op.inputs):
            yield op


def _lacking(name: str, at: Mapping[str, tuple[str, ...]], blocks: Mapping[str, Block]) -> str:
    ops = [op for block in blocks.values() for op in block.ops if op.name == name or op.name.startswith(f"{name}.")]
    dims = _dims(ops, blocks)
    dim = next((d for d in at if d not in dims), None)
    return f"placement: {name} has no dimension {dim}: {nearest(dim, [d for d in dims if d in MOVABLE])}" if dim else ""


def _one_dimension_an_axis(made: Placement, block: Block, op: Op) -> None:
    for tensor in (block.tensors[t] for t in (*op.inputs, *op.outputs)):
        on: dict[str, str] = {}
        for dim in tensor.dims:
            for axis in made.of(dim, within=op.name, attention=OPERATIONS[op.kind].role == "attention").always:
                if axis in on:
                    raise InputError(f"placement: {on[axis]} and {dim} of {op.name} would both lie on {axis}; give {on[axis]} or {dim} none")
                on[axis] = dim


def _side_by_side(made: Placement, block: Block, op: Op) -> None:
    """Projections of one input are one weight in some frameworks."""
    if not isinstance(op.attrs, Projection) or len(op.outputs) < 2:
        return
    read = set(block.tensors[op.inputs[0]].dims)
    new = [d for t in op.outputs for d in block.tensors[t].dims if d not in read and d in BY_TENSOR]
    if len({made.of(d, within=op.name) for d in new}) > 1:
        raise InputError(f"placement: {', '.join(dict.fromkeys(new))} of {op.name} lie side by side in one weight; place them alike")
