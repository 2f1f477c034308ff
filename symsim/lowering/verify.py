"""The verifier: what holds between any two passes, one small function an invariant, named in the message of what breaks it.

    SYMSIM_VERIFY=1 symsim derive ...      checks after every pass (the tests always do); else nothing is checked

An invariant gives what it finds wrong: the operation, if it is one's, and what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from symsim.ir.block import TENSOR_KINDS, WIDTHS, Block, Op, shown
from symsim.ir.collectives import COLLECTIVES
from symsim.ir.einsum import IRError
from symsim.ir.messages import Message
from symsim.ir.operations import KINDS, LINEAR, OPERATIONS, Attention
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import Differentiated
from symsim.lowering.remember import Remembered

Broken = Iterator[tuple[Op | None, str]]
T = TypeVar("T")
Invariants = tuple[Callable[[T], Broken], ...]
Made = TypeVar("Made", Block, Placed, Differentiated, Remembered)


def tensors_are_of_the_grammar(block: Block) -> Broken:
    for tensor in block.tensors.values():
        for dim in tensor.dims:
            if dim not in block.dims:
                yield None, f"tensor {tensor.name}[{' '.join(tensor.dims)}] has unknown dimension {dim}"
        if tensor.dtype not in WIDTHS:
            yield None, f"tensor {tensor.name} has unknown type {tensor.dtype}"
        if tensor.kind not in TENSOR_KINDS:
            yield None, f"tensor {tensor.name} is of unknown kind {tensor.kind}"


def views_look_into_tensors(block: Block) -> Broken:
    for tensor in block.tensors.values():
        if tensor.view_of is not None and tensor.view_of not in block.tensors:
            yield None, f"tensor {tensor.name} is a view of {tensor.view_of}, which is not declared"


def kinds_are_known(block: Block) -> Broken:
    for op in block.ops:
        if op.kind not in KINDS:
            yield op, f"is of unknown kind {op.kind}"


def attributes_are_of_their_kind(block: Block) -> Broken:
    for op in block.ops:
        wanted = OPERATIONS[op.kind].attributes
        if type(op.attrs) is not wanted:
            yield op, f"has attributes {type(op.attrs).__name__}, and its kind {wanted.__name__}"


def tensors_are_declared(block: Block) -> Broken:
    for op in block.ops:
        for name in (*op.inputs, *op.outputs, *op.saves):
            if name not in block.tensors:
                yield op, f"names {name}, which is not declared"


def made_once_and_before_use(block: Block) -> Broken:
    made = set(block.inputs) | {t.name for t in block.tensors.values() if t.kind in ("parameter", "table")}
    for op in block.ops:
        for name in op.inputs:
            if name not in made:
                yield op, f"reads {name} before it is made"
        for name in op.outputs:
            if name in made:
                yield op, f"makes {name} twice"
        made |= set(op.outputs)
        for name in op.saves:
            if name not in made:
                yield op, f"saves {name}, which does not exist yet"
    for name in block.outputs:
        if name not in made:
            yield None, f"output {name} is never made"


def products_are_over_known_dimensions(block: Block) -> Broken:
    for op in block.ops:
        for dims in (*op.products, *(p for _, p in op.backward_products)):
            for dim in dims:
                if dim not in block.dims:
                    yield op, f"multiplies over unknown dimension {dim}"


def linear_maps_are_their_einsums(block: Block) -> Broken:
    """Operands, results and products have the dimensions that the string says, in whatever order memory has them."""
    for op in block.ops:
        if op.kind not in LINEAR:
            continue
        if len(op.einsums) != len(op.outputs):
            yield op, f"has {len(op.einsums)} einsums for {len(op.outputs)} results"
        weights = [t for t in op.inputs[1:] if block.tensors[t].kind == "parameter"]
        for says, weight, result in zip(op.einsums, weights, op.outputs):
            for name, dims in zip((op.inputs[0], weight, result), (*says.operands, says.result)):
                if set(block.tensors[name].dims) != set(dims):
                    yield op, f"has {name}[{' '.join(block.tensors[name].dims)}], and `{says}` has [{' '.join(dims)}]"
            for product in op.products:
                if set(product) != set(says.product):
                    yield op, f"multiplies over {' '.join(product)}, and `{says}` over {' '.join(says.product)}"


def attention_is_its_einsums(block: Block) -> Broken:
    """Queries, keys and values have the dimensions that its two products say, keys by the positions of keys."""
    for op in block.ops:
        if OPERATIONS[op.kind].role != "attention":
            continue
        at = op.of(Attention)
        stands_for = {"z": "s", at.groups: at.heads}
        for name, dims in zip(op.inputs, (*at.scores.operands, at.values.operands[1])):
            has = {stands_for.get(d, d) for d in block.tensors[name].dims if block.dims[d].parts != (at.groups,)}
            if not has <= {stands_for.get(d, d) for d in dims}:
                yield op, f"has {name}[{' '.join(block.tensors[name].dims)}], and its products [{' '.join(dims)}]"


def no_axis_shards_twice(placed: Placed) -> Broken:
    for name, layout in placed.layouts.items():
        axes = [a for d in layout.values() for a in d]
        if len(axes) != len(set(axes)):
            yield None, f"{name} is sharded twice by one axis: {dict(layout)}"


def partial_sums_are_completed(placed: Placed) -> Broken:
    for op in placed.block.ops:
        for name in op.inputs:
            if placed.partial.get(name) and not OPERATIONS[op.kind].completes:
                yield op, f"reads {name}, a partial sum over {placed.partial[name]}"


def every_operation_is_placed(placed: Placed) -> Broken:
    for op, layout in zip(placed.block.ops, placed.iteration):
        for name in (*op.inputs, *op.outputs):
            if name not in placed.layouts:
                yield op, f"touches {name}, which lies nowhere"
        for axes in layout.values():
            for axis in axes:
                if axis not in placed.mesh.degrees:
                    yield op, f"lies on unknown axis {axis}"
    if len(placed.iteration) != len(placed.block.ops):
        yield None, f"{len(placed.block.ops)} operations have {len(placed.iteration)} placements"


def backward_transposes_operations(made: Differentiated) -> Broken:
    block = made.placed.block
    for kernel in made.backward:
        if not 0 <= kernel.forward < len(block.ops):
            yield None, f"a backward kernel {kernel.label} transposes operation {kernel.forward} of {len(block.ops)}"
            continue
        op = block.ops[kernel.forward]
        of = f"has a backward ({kernel.label}) that"
        for name in (*kernel.reads, *kernel.writes):
            if name not in block.tensors:
                yield op, f"{of} names {name}, which is not declared"
        for name in kernel.writes:
            if name not in op.inputs:
                yield op, f"{of} makes the gradient of {name}, which the operation does not read"
        for dim in (d for dims in kernel.products for d in dims):
            if dim not in block.dims:
                yield op, f"{of} multiplies over unknown dimension {dim}"


def weight_gradients_are_summed(made: Differentiated) -> Broken:
    block = made.placed.block
    for kernel in made.backward:
        for name in kernel.writes:
            if block.tensors[name].kind == "parameter" and name not in made.reduced_over:
                yield block.ops[kernel.forward], f"makes the gradient of {name}, and nothing says over which ranks it is summed"


def messages_of_differentiate(made: Differentiated) -> Broken:
    yield from _messages(made.placed, made.forward_messages, "forward")
    yield from _messages(made.placed, made.backward_messages, "backward")


def messages_of_remember(made: Remembered) -> Broken:
    yield from _messages(made.placed, made.differentiated.forward_messages, "forward")
    yield from _messages(made.placed, made.backward_messages, "backward")


def _messages(placed: Placed, messages: Iterable[tuple[int, Message]], phase: str) -> Broken:
    """Each belongs to an operation of the block and to the phase, and is a collective that there is over axes of the mesh."""
    block = placed.block
    for index, message in messages:
        if not 0 <= index < len(block.ops):
            yield None, f"a message ({message.what}) belongs to operation {index} of {len(block.ops)}"
            continue
        wrong = ""
        if message.phase != phase:
            wrong = f"is of phase {message.phase}, and stands among those of {phase}"
        elif message.op not in COLLECTIVES:
            wrong = f"is of unknown kind {message.op}"
        elif message.axis not in placed.mesh.degrees and not set(message.axis.split("_")) <= placed.mesh.degrees.keys():
            wrong = f"goes over unknown axis {message.axis}"
        elif message.dtype not in WIDTHS:
            wrong = f"has unknown type {message.dtype}"
        elif not message.send_elements and not message.receive_elements:
            wrong = "carries nothing"
        if wrong:
            yield block.ops[index], f"has a message ({message.what}) that {wrong}"


def what_is_kept_is_a_storage(made: Remembered) -> Broken:
    block, names = made.placed.block, [s.name for s in (*made.saved, *made.shared)]
    for saved in (*made.saved, *made.shared):
        name = saved.tensor.name
        keepers = {by.operation for by in saved.by}
        keeper = next((op for op in block.ops if op.name in keepers), None)
        if name not in block.tensors:
            yield keeper, f"keeps {name} for backward, which is not declared"
        elif saved.tensor.kind == "parameter":
            yield keeper, f"keeps {name} for backward, which is a parameter"
        elif saved.tensor.view_of is not None and saved.apart != "view":
            yield keeper, f"keeps {name} for backward, which is a view of {saved.tensor.view_of}"
        elif names.count(saved.name) > 1:
            yield keeper, f"keeps {name} for backward, which is kept twice"


def what_runs_again_exists(made: Remembered) -> Broken:
    for index in made.recomputed:
        if not 0 <= index < len(made.placed.block.ops):
            yield None, f"operation {index} of {len(made.placed.block.ops)} runs again"


OF_BLOCK: Invariants[Block] = (
    tensors_are_of_the_grammar,
    views_look_into_tensors,
    kinds_are_known,
    attributes_are_of_their_kind,
    tensors_are_declared,
    made_once_and_before_use,
    products_are_over_known_dimensions,
    linear_maps_are_their_einsums,
    attention_is_its_einsums,
)
OF_PLACED: Invariants[Placed] = (no_axis_shards_twice, partial_sums_are_completed, every_operation_is_placed)
OF_DIFFERENTIATED: Invariants[Differentiated] = (backward_transposes_operations, weight_gradients_are_summed, messages_of_differentiate)
OF_REMEMBERED: Invariants[Remembered] = (what_is_kept_is_a_storage, what_runs_again_exists, messages_of_remember)


def verify(made: Made, after: str = "") -> Made:
    """What a pass made, if it breaks no invariant. IRError for the first that it breaks."""
    if isinstance(made, Block):
        _held(made, made, OF_BLOCK, after)
    elif isinstance(made, Placed):
        verify(made.block, after)
        _held(made.block, made, OF_PLACED, after)
    elif isinstance(made, Differentiated):
        _held(made.placed.block, made, OF_DIFFERENTIATED, after)
    else:
        _held(made.placed.block, made, OF_REMEMBERED, after)
    return made


def _held(block: Block, made: T, invariants: Invariants[T], after: str) -> None:
    for invariant in invariants:
        for op, said in invariant(made):
            name = f"{op.name} " if op else ""
            line = f", in\n    {shown(block, op)}" if op else ""
            raise IRError(f"{block.name}: {name}{said} ({invariant.__name__}{', after ' + after if after else ''}){line}")


def passed(name: str, made: Made) -> Made:
    """What the pass of this name made: verified where the environment asks for it."""
    return verify(made, name) if os.environ.get("SYMSIM_VERIFY", "") not in ("", "0") else made
