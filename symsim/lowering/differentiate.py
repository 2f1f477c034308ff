"""differentiate: the transpose of every operation.

A gradient lives where its tensor lives. An operation's gradient for an input is a partial sum over every axis that
shards a dimension the input lacks, so the messages of backward are those of forward transposed:

    all_gather <-> reduce_scatter,  all_to_all <-> all_to_all,  slice -> all_gather,
    nothing -> all_reduce where a whole tensor fed a sharded operation.

For a parameter the partial axes say over which ranks its gradient is reduced at the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from symsim.algebra.expr import ONE, Expr, product
from symsim.frameworks.framework import BY_RULE, Framework, Ring
from symsim.ir.block import NARROW, Block, Op, Tensor
from symsim.ir.collectives import COLLECTIVES
from symsim.ir.messages import Message
from symsim.ir.operations import (
    OPERATIONS,
    REDISTRIBUTIONS,
    Attention,
    Cast,
    CrossEntropy,
    IndexLoss,
    LinearCrossEntropy,
    Norm,
    Projection,
    Redistribution,
    TopK,
)
from symsim.lowering.communicate import Placed
from symsim.lowering.exchange import token_messages
from symsim.placement.mesh import Layout, Mesh, local_elements, local_size

CAST = "cast"
"""The backward kernel that casts an output's gradient, and an input that was kept as it was, to the type they are multiplied in."""

# index, operation, axis, send, receive, dtype, what
Say = Callable[[int, str, str, Expr, Expr, str, str], None]

DEQUANTISE = "dequantise"
"""The backward kernels that make a weight anew that is stored in few bits, for the gradient of the input."""


@dataclass(frozen=True)
class BackwardOp:
    """One kernel of backward: the products it multiplies and the tensors it reads and writes (gradients by the name of
    their tensor)."""

    label: str
    forward: int
    products: tuple[tuple[str, ...], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Differentiated:
    """A placed block with its backward: kernels, messages of both directions, and over which axes each parameter's
    gradient is a partial sum."""

    placed: Placed
    backward: tuple[BackwardOp, ...]
    forward_messages: tuple[tuple[int, Message], ...]
    backward_messages: tuple[tuple[int, Message], ...]
    reduced_over: Mapping[str, tuple[str, ...]]


def elements(placed: Placed, name: str) -> Expr:
    """Local elements of a tensor in its own layout."""
    if name not in placed.sizes:
        placed.sizes[name] = local_elements(placed.mesh, placed.block, placed.block.tensors[name], placed.layouts[name])
    return placed.sizes[name]


def room(placed: Placed, name: str, *, kept: bool = False) -> Expr:
    """Local elements that memory is set aside for: while a kernel works on the tensor, or between forward and backward."""
    dims = (placed.block.dims[d] for d in placed.block.tensors[name].dims)
    times = (d.kept if kept else d.room for d in dims)
    return elements(placed, name) * product(t for t in times if t is not None)


def differentiate(placed: Placed, framework: Framework = BY_RULE) -> Differentiated:
    """Backward of a block, last operation first, with what the framework does of its own: which partial gradients it leaves so,
    whether consumers share a reduction, its ring and what tells ranks of their tokens.
    """
    block, mesh = placed.block, placed.mesh
    partial: dict[str, list[tuple[str, ...]]] = {name: [()] for name in block.outputs if block.tensors[name].gradient}
    kernels: list[BackwardOp] = []
    messages: list[tuple[int, Message]] = []
    reduced: dict[str, tuple[str, ...]] = {}

    def say(index: int, op: str, axis: str, send: Expr, receive: Expr, dtype: str, what: str) -> None:
        messages.append((index, Message("backward", op, axis, mesh.degree(axis), send, receive, dtype, what)))

    for index in range(len(block.ops) - 1, -1, -1):
        op, layout = block.ops[index], placed.iteration[index]
        live = [t for t in op.outputs if t in partial]
        kernels += _of_statistics(block, index, partial) if framework.op_by_op and not live else []
        if OPERATIONS[op.kind].transpose == "again":
            if kernels:  # without, nothing is trained up to here
                kernels.append(BackwardOp("backward", index, (), (*op.inputs, *op.outputs), ()))
            continue
        if (not live and OPERATIONS[op.kind].role != "loss") or _leads_to_nothing(block, op):
            continue
        arriving: tuple[str, ...] = ()
        for name in live:
            arriving = _resolve(placed, index, op, name, partial[name], say, framework)
        source = op.inputs[0] if op.inputs else ""
        row = OPERATIONS[op.kind]
        if op.kind in REDISTRIBUTIONS:
            at = op.of(Redistribution)
            if row.transpose != "none" and (at.axis in arriving or not row.where_partial):
                dtype = at.gradient_dtype or _gradient_dtype(placed, at.dtype)
                before, after = elements(placed, source), elements(placed, op.outputs[0])
                say(index, row.transpose, at.axis, after, before, dtype, f"gradient at {op.name}")
            partial.setdefault(source, []).append(tuple(a for a in arriving if a != at.axis))
            continue
        for message in inner_messages(placed, index, "backward", framework.counts):
            messages.append((index, message))
        kernels += _transpose(placed, index, op)
        for name in op.inputs:
            tensor = block.tensors[name]
            own = {a for axes in placed.layouts[name].values() for a in axes}
            missing = tuple({a for axes in layout.values() for a in axes} - own)
            if not tensor.gradient:
                continue
            if tensor.kind == "parameter":
                reduced[name] = _reduction(placed, index, op, tensor, layout, missing)
            elif tensor.kind == "activation":
                if row.transpose == "passes":
                    missing = arriving
                elif row.role == "exchange":
                    missing = ()
                partial.setdefault(name, []).append(tuple(a for a in missing if a not in ("dp", "ep")))
    for name in block.inputs:
        _resolve_input(placed, name, partial.get(name, []), say, framework)
    ring = ring_messages(placed, mesh, framework.ring)
    forward = _forward_messages(placed, framework.counts) + [r for r in ring if r[1].phase == "forward"]
    messages += [r for r in ring if r[1].phase == "backward" and not _leads_to_nothing(block, block.ops[r[0]])]
    return Differentiated(placed, tuple(kernels), tuple(forward), tuple(messages), reduced)


def _of_statistics(block: Block, index: int, partial: dict[str, list[tuple[str, ...]]]) -> list[BackwardOp]:
    """What leads from the gradient of a statistic to what it is of, which has a gradient then."""
    op, tensors, measured = block.ops[index], block.tensors, block.statistics
    made = [t for t in op.outputs if t in measured]
    if not made or OPERATIONS[op.kind].role == "loss" or OPERATIONS[op.kind].transpose != "kernel":
        return []
    activations = [t for t in op.inputs if tensors[t].kind == "activation" and tensors[t].gradient]
    for name in activations:
        partial.setdefault(name, []).append(())
    return [BackwardOp("backward", index, (), (*made, *op.saves), (*activations, *(t for t in op.inputs if t in measured)))]


def _leads_to_nothing(block: Block, op: Op) -> bool:
    """Whether nothing that the operation reads has a gradient: neither a trained parameter nor what was made with one."""
    read = [block.tensors[t] for t in op.inputs if block.tensors[t].kind in ("activation", "parameter")]
    return bool(read) and not any(t.gradient for t in read)


def _resolve(
    placed: Placed,
    index: int,
    op: Op,
    name: str,
    contributions: list[tuple[str, ...]],
    say: Say,
    framework: Framework,
) -> tuple[str, ...]:
    """Reduce the partial gradients of an operation's output where the transpose itself does not."""
    distinct = {frozenset(c) for c in contributions if c}
    arriving = {a for c in distinct for a in c}
    if not framework.unreduced.isdisjoint(op.parts):
        return ()
    row = OPERATIONS[op.kind]
    handled = {op.of(Redistribution).axis} if row.where_partial else set()
    if row.transpose == "passes" or row.role == "exchange":
        handled = arriving
    _reduce(placed, index, name, arriving - handled, contributions, say, framework, f"gradient of the output of {op.name}")
    return tuple(sorted(arriving & handled))


def _resolve_input(placed: Placed, name: str, contributions: list[tuple[str, ...]], say: Say, framework: Framework) -> None:
    """Reduce the partial gradients of a block's input, where no norm stands between it and what multiplies it: the block before
    takes a whole one."""
    arriving = {a for c in contributions for a in c}
    reader = next((i for i, op in enumerate(placed.block.ops) if name in op.inputs), None)
    if reader is not None:
        _reduce(placed, reader, name, arriving, contributions, say, framework, f"gradient of the input of {placed.block.ops[reader].name}")


def _reduce(
    placed: Placed, index: int, name: str, axes: set[str], contributions: list[tuple[str, ...]], say: Say, framework: Framework, what: str
) -> None:
    """All-reduce a tensor's gradient, once for all that contribute to it, or once for each."""
    for axis in sorted(axes):
        calls = 1 if framework.shares_redistributions else sum(axis in c for c in contributions)
        for _ in range(calls):
            n = elements(placed, name)
            say(index, "all_reduce", axis, n, n, _gradient_dtype(placed, placed.block.tensors[name].dtype), what)


def _gradient_dtype(placed: Placed, dtype: str) -> str:
    """Gradients of quantised tensors are not quantised themselves."""
    return placed.mesh.precision if dtype in NARROW else dtype


def _reduction(placed: Placed, index: int, op: Op, parameter: Tensor, layout: Layout, missing: tuple[str, ...]) -> tuple[str, ...]:
    """Axes over which a parameter's gradient is a partial sum."""
    axes = set(missing)
    if op.einsums and not op.einsums[0].chosen and not set(op.einsums[0].contracted) & set(parameter.dims):
        axes = _of_bias(placed, op, parameter, layout)
    if "R" in layout:
        axes = (axes - {"ep"}) | ({"edp"} if placed.mesh.active("edp") else set())
    return tuple(sorted(axes))


def _of_bias(placed: Placed, op: Op, bias: Tensor, layout: Layout) -> set[str]:
    """A bias is added where the output of its product lands after the reduction, and sees the tokens that are there."""
    (result, *_) = op.outputs
    axes = {a for d in placed.block.tensors[result].dims if d not in bias.dims for a in layout[d]}
    return axes | set(placed.partial.get(result, ()) if placed.mesh.sequence_parallel else ())


def _transpose(placed: Placed, index: int, op: Op) -> list[BackwardOp]:
    tensors = placed.block.tensors
    activations = [t for t in op.inputs if tensors[t].kind == "activation" and tensors[t].gradient]
    gradients = [t for t in op.outputs if tensors[t].kind == "activation"]
    parameters = [t for t in op.inputs if tensors[t].kind == "parameter"]
    weights = [t for t in parameters if tensors[t].gradient]
    rule = OPERATIONS[op.kind].transpose
    casts = [BackwardOp(CAST, index, (), tuple(gradients), ())] if _casts(op) else []
    if rule == "einsum":
        of_input, of_weight = ((op.einsums[0].transpose(operand).product,) for operand in (0, 1))
        kernels = [BackwardOp("dgrad", index, of_input, (*gradients, *parameters[:1]), tuple(activations))] if activations else []
        if kernels and op.of(Projection).stored:
            kernels = [BackwardOp(DEQUANTISE, index, (), tuple(parameters[:1]), ()), *kernels]
        return casts + kernels + ([BackwardOp("wgrad", index, of_weight, (*gradients, *op.saves), tuple(weights))] if weights else [])
    if rule in ("passes", "free", "shared"):
        return []
    if rule == "shared_first":
        activations = [t for t in activations if t != op.inputs[0]]
        return [BackwardOp("backward", index, (), tuple(gradients), tuple(activations))] if activations else []
    return [*casts, BackwardOp("backward", index, tuple(p for _, p in op.backward_products), (*gradients, *op.saves), (*activations, *weights))]


def _casts(op: Op) -> bool:
    """Whether backward casts the gradient of what an operation made."""
    return isinstance(op.attrs, (Projection, Attention)) and op.attrs.gradient_cast is not None


def _forward_messages(placed: Placed, metadata: str) -> list[tuple[int, Message]]:
    made: list[tuple[int, Message]] = []
    for index, op in enumerate(placed.block.ops):
        collective = OPERATIONS[op.kind].sends
        if op.kind in REDISTRIBUTIONS and collective:
            at, group = op.of(Redistribution), placed.mesh.degree(op.of(Redistribution).axis)
            send, receive = elements(placed, op.inputs[0]), elements(placed, op.outputs[0])
            made.append((index, Message("forward", collective, at.axis, group, send, receive, at.dtype, at.what)))
        made += [(index, m) for m in inner_messages(placed, index, "forward", metadata)]
    return made


def inner_messages(placed: Placed, index: int, phase: str, metadata: str) -> list[Message]:
    """Messages inside an operation: reductions of a softmax over a sharded vocabulary or a norm over sharded channels,
    and the exchange of tokens with experts (Megatron-Core token_dispatcher.py)."""
    block, mesh, op = placed.block, placed.mesh, placed.block.ops[index]
    layout = placed.iteration[index]
    inner = OPERATIONS[op.kind].inner
    if inner == "softmax" and phase == "forward":
        return _softmax_messages(placed, index)
    if inner == "statistics":
        over = op.of(Norm).over
        split = [a for d in over for a in layout.get(d, ())]
        rows = [d for d in block.tensors[op.inputs[0]].dims if d not in over]
        n = product(local_size(mesh, block, d, layout[d]) for d in rows)
        return [Message(phase, "all_reduce", a, mesh.degree(a), n, n, "fp32", f"mean of squares in {op.name}") for a in split]
    if inner == "target":
        return _target_messages(placed, index, phase)
    if inner == "balance" and phase == "forward":
        return _balance_messages(placed, op)
    if inner == "maxima":
        return _maxima_messages(placed, op, phase) if op.of(Cast).maxima else []
    return token_messages(placed, index, phase, metadata) if inner == "tokens" else []


def redistributions(placed: Placed, name: str, collective: str) -> list[Op]:
    """Where a tensor goes through a collective."""
    return [o for o in placed.block.ops if o.kind in REDISTRIBUTIONS and OPERATIONS[o.kind].sends == collective and o.inputs[0] == name]


def _maxima_messages(placed: Placed, op: Op, phase: str) -> list[Message]:
    """The maximum of a tensor that ranks gather from each other once it is cast: it has to be the same on all (TransformerEngine
    module/linear.py set_quantizer_amax_reduction_group); in backward that of the gradient of what is scattered, gathered likewise."""
    source, collective = op.outputs[0], "all_gather"
    if phase == "backward":
        makers = [o for o in placed.block.ops if isinstance(o.attrs, Projection) and o.attrs.multiplied and source in o.inputs]
        source, collective = makers[0].outputs[0] if makers else "", "reduce_scatter"
    axes = [o.of(Redistribution).axis for o in redistributions(placed, source, collective)]
    what = f"maximum of the {'tensor' if phase == 'forward' else 'gradient'} cast at {op.name}"
    return [Message(phase, "all_reduce", a, placed.mesh.degree(a), ONE, ONE, "fp32", what) for a in axes if a == "tp"]


def _target_messages(placed: Placed, index: int, phase: str) -> list[Message]:
    """Probabilities of attention, summed over heads that are on several ranks: forward, and where backward makes them again."""
    block, mesh, op, layout = placed.block, placed.mesh, placed.block.ops[index], placed.iteration[index]
    at = op.of(IndexLoss)
    n = product(local_size(mesh, block, d, layout.get(d, ())) for d in ("b", "s", at.keys))
    what = f"probabilities of all heads in {op.name}"
    return [Message(phase, "all_reduce", axis, mesh.degree(axis), n, n, "fp32", what) for axis in layout[at.heads]]


def _balance_messages(placed: Placed, op: Op) -> list[Message]:
    """Tokens per expert summed for the auxiliary loss (Megatron-Core router.py): over tp and cp, or dp too (global)."""
    balancing = op.of(TopK).balancing
    axes = ("tp", *placed.mesh.context_axes) + (("dp",) if balancing == "global_aux_loss" else ())
    group = placed.mesh.group(axes)
    if balancing == "none" or group == ONE:
        return []
    n = placed.block.dims["E_r"].size * (placed.block.dims["b"].size if balancing == "seq_aux_loss" else 1)
    label = "tp_dp_cp" if balancing == "global_aux_loss" else "tp_cp"
    return [Message("forward", "all_reduce", label, group, n, n, "int64", f"tokens per expert for {balancing}")]


def _softmax_messages(placed: Placed, index: int) -> list[Message]:
    """Reductions of a softmax over a split vocabulary, which Megatron-Core issues even in a group of one
    (tensor_parallel/cross_entropy.py); of a loss in pieces, for each of them."""
    block, mesh, op = placed.block, placed.mesh, placed.block.ops[index]
    made: list[Message] = []
    pieces = op.attrs.pieces if isinstance(op.attrs, LinearCrossEntropy) else ONE
    rows = product(local_size(mesh, block, d, placed.iteration[index][d]) for d in op.of(CrossEntropy).rows) / pieces
    for axis in mesh.placement.of("V", within=op.name).always:
        for kind, times, dtype, what in op.of(CrossEntropy).exchanges:
            n = times * rows
            received = COLLECTIVES[kind].got_back(n, mesh.degree(axis))
            made.append(Message("forward", kind, axis, mesh.degree(axis), n, received, dtype, f"{what} in {op.name}", pieces))
    return made


def ring_messages(placed: Placed, mesh: Mesh, ring: Ring) -> list[tuple[int, Message]]:
    """Ring attention: c-1 steps pass keys and values on; backward passes them again, and their gradients
    (TransformerEngine context_parallel.py, AttnFuncWithCPAndKVP2P), or as the framework's ring has it."""
    made = []
    for index, op in enumerate(placed.block.ops):
        for axis in mesh.ring_axes if OPERATIONS[op.kind].inner == "ring" else ():
            n = elements(placed, op.inputs[1]) + elements(placed, op.inputs[2])
            dtype, degree = placed.block.tensors[op.inputs[1]].dtype, mesh.degree(axis)
            for phase in ("forward", "backward"):
                what = f"keys and values around the ring of {op.name}"
                if ring.gathers:
                    made.append((index, Message(phase, "all_gather", axis, degree, n, n * degree, dtype, what)))
                else:
                    made.append((index, Message(phase, "p2p", axis, degree, n, n, dtype, what, degree - 1)))
            steps, width = degree if ring.returns else degree - 1, ring.gradient_dtype or _gradient_dtype(placed, dtype)
            made.append(
                (index, Message("backward", "p2p", axis, degree, n, n, width, f"gradients of keys and values around the ring of {op.name}", steps))
            )
    return made
