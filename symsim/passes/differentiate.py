"""differentiate: the transpose of every operation.

A gradient lives where its tensor lives. An operation's gradient for an input is a partial sum over every axis that
shards a dimension the input lacks, so the messages of backward are those of forward transposed:

    all_gather <-> reduce_scatter,  all_to_all <-> all_to_all,  slice -> all_gather,
    nothing -> all_reduce where a whole tensor fed a sharded operation.

For a parameter the partial axes say over which ranks its gradient is reduced at the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from symsim.expr import ONE, Expr, product
from symsim.framework import BY_RULE, Framework, Ring
from symsim.ir import WIDTHS, Block, IRError, Op, Tensor, shown
from symsim.mesh import Layout, Mesh, local_elements, local_size
from symsim.messages import COLLECTIVES, Message
from symsim.passes.communicate import Placed

REDISTRIBUTIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "slice", "regroup")

# index, operation, axis, send, receive, dtype, what
Say = Callable[[int, str, str, Expr, Expr, str, str], None]
EXCHANGES = ("exchange", "exchange_back", "exchange_gather", "exchange_scatter")


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


def differentiate(placed: Placed, framework: Framework = BY_RULE) -> Differentiated:
    """Backward of a block, last operation first, with what the framework does of its own: which partial gradients it leaves so,
    whether consumers share a reduction, its ring and what tells ranks of their tokens.
    """
    block, mesh = placed.block, placed.mesh
    partial: dict[str, list[tuple[str, ...]]] = {name: [()] for name in block.outputs}
    kernels: list[BackwardOp] = []
    messages: list[tuple[int, Message]] = []
    reduced: dict[str, tuple[str, ...]] = {}

    def say(index: int, op: str, axis: str, send: Expr, receive: Expr, dtype: str, what: str) -> None:
        messages.append((index, Message("backward", op, axis, mesh.degree(axis), send, receive, dtype, what)))

    for index in range(len(block.ops) - 1, -1, -1):
        op, layout = block.ops[index], placed.iteration[index]
        live = [t for t in op.outputs if t in partial]
        if not live and op.kind != "cross_entropy":
            continue
        arriving: tuple[str, ...] = ()
        for name in live:
            arriving = _resolve(placed, index, op, name, partial[name], say, framework)
        source = op.inputs[0] if op.inputs else ""
        if op.kind in REDISTRIBUTIONS:
            axis = op.attrs.get("axis", "tp")
            before, after = elements(placed, source), elements(placed, op.outputs[0])
            dtype = op.attrs.get("gradient_dtype") or _gradient_dtype(placed, op.attrs.get("dtype", block.tensors[source].dtype))
            what = f"gradient at {op.name}"
            if op.kind in ("reduce_scatter", "slice"):
                say(index, "all_gather", axis, after, before, dtype, what)
            elif op.kind == "all_to_all":
                say(index, "all_to_all", axis, after, before, dtype, what)
            elif op.kind == "regroup" or axis in arriving:
                say(index, "reduce_scatter", axis, after, before, dtype, what)
            left = tuple(a for a in arriving if a != axis)
            partial.setdefault(source, []).append(left)
            continue
        for message in exchange_messages(placed, index, "backward", framework.counts):
            messages.append((index, message))
        kernels += _transpose(placed, index, op)
        for name in op.inputs:
            tensor = block.tensors[name]
            own = {a for axes in placed.layouts[name].values() for a in axes}
            missing = tuple({a for axes in layout.values() for a in axes} - own)
            if tensor.kind == "parameter":
                reduced[name] = _reduction(placed, index, op, tensor, layout, missing)
            elif tensor.kind == "activation":
                if op.is_view:
                    missing = arriving
                elif op.kind in EXCHANGES:
                    missing = ()
                partial.setdefault(name, []).append(tuple(a for a in missing if a not in ("dp", "ep")))
    ring = ring_messages(placed, mesh, framework.ring)
    forward = _forward_messages(placed, framework.counts) + [r for r in ring if r[1].phase == "forward"]
    messages += [r for r in ring if r[1].phase == "backward"]
    return check_backward(Differentiated(placed, tuple(kernels), tuple(forward), tuple(messages), reduced))


def check_backward(made: Differentiated) -> Differentiated:
    """Kernels of backward transpose an operation that there is, over dimensions and tensors that it has; every parameter that one
    writes has its reduction; messages are collectives over axes of the mesh, of operations that there are."""
    block = made.placed.block
    for kernel in made.backward:
        if not 0 <= kernel.forward < len(block.ops):
            raise IRError(f"{block.name}: a backward kernel {kernel.label} transposes operation {kernel.forward} of {len(block.ops)}")
        op = block.ops[kernel.forward]
        wrong = _kernel(block, op, kernel) or _unreduced(made, kernel)
        if wrong:
            raise IRError(f"{block.name}: backward of {op.name} ({kernel.label}) {wrong}, in `{shown(block, op)}`")
    check_messages(made.placed, made.forward_messages, "forward")
    check_messages(made.placed, made.backward_messages, "backward")
    return made


def _kernel(block: Block, op: Op, kernel: BackwardOp) -> str:
    for name in (*kernel.reads, *kernel.writes):
        if name not in block.tensors:
            return f"names {name}, which is not declared"
    for name in kernel.writes:
        if name not in op.inputs:
            return f"makes the gradient of {name}, which the operation does not read"
    for dims in kernel.products:
        for dim in dims:
            if dim not in block.iteration(op) and dim not in block.dims:
                return f"multiplies over unknown dimension {dim}"
    return ""


def _unreduced(made: Differentiated, kernel: BackwardOp) -> str:
    for name in kernel.writes:
        if made.placed.block.tensors[name].kind == "parameter" and name not in made.reduced_over:
            return f"makes the gradient of {name}, and nothing says over which ranks it is summed"
    return ""


def check_messages(placed: Placed, messages: Iterable[tuple[int, Message]], phase: str) -> None:
    """Each belongs to an operation of the block and to the phase, and is a collective that there is over axes of the mesh."""
    block = placed.block
    for index, message in messages:
        if not 0 <= index < len(block.ops):
            raise IRError(f"{block.name}: a message ({message.what}) belongs to operation {index} of {len(block.ops)}")
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
            raise IRError(f"{block.name}: a message ({message.what}) {wrong}, in `{shown(block, block.ops[index])}`")


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
    if op.name.rsplit(".", 1)[-1] in framework.unreduced:
        return ()
    handled = {op.attrs["axis"]} if op.kind == "all_gather" else set()
    if op.is_view or op.kind in EXCHANGES:
        handled = arriving
    for axis in sorted(arriving - handled):
        calls = 1 if framework.shares_redistributions else sum(axis in c for c in contributions)
        for _ in range(calls):
            n = elements(placed, name)
            say(index, "all_reduce", axis, n, n, _gradient_dtype(placed, placed.block.tensors[name].dtype), f"gradient of the output of {op.name}")
    return tuple(sorted(arriving & handled))


def _gradient_dtype(placed: Placed, dtype: str) -> str:
    """Gradients of quantised tensors are not quantised themselves."""
    return placed.mesh.precision if dtype == "fp8" else dtype


def _reduction(placed: Placed, index: int, op: Op, parameter: Tensor, layout: Layout, missing: tuple[str, ...]) -> tuple[str, ...]:
    """Axes over which a parameter's gradient is a partial sum. A bias is added where the output lands after its reduction."""
    axes = set(missing)
    if op.kind == "einsum" and not set(op.attrs["contract"]) & set(parameter.dims):
        axes = {a for d in placed.block.tensors[op.outputs[0]].dims if d not in parameter.dims for a in layout[d]}
        if placed.mesh.sequence_parallel and placed.partial.get(op.outputs[0]):
            axes |= set(placed.partial[op.outputs[0]])
    if "R" in layout:
        axes = (axes - {"ep"}) | ({"edp"} if placed.mesh.active("edp") else set())
    return tuple(sorted(axes))


def _transpose(placed: Placed, index: int, op: Op) -> list[BackwardOp]:
    tensors = placed.block.tensors
    activations = [t for t in op.inputs if tensors[t].kind == "activation"]
    gradients = [t for t in op.outputs if tensors[t].kind == "activation"]
    if op.kind in ("einsum", "grouped"):
        kernels = [BackwardOp("dgrad", index, op.products, (*gradients, *_weights(placed, op)[:1]), tuple(activations))] if activations else []
        weights = _weights(placed, op)
        if weights:
            kernels.append(BackwardOp("wgrad", index, op.products, (*gradients, *op.saves), tuple(weights)))
        return kernels
    if op.is_view or op.kind == "output":
        return []
    return [
        BackwardOp("backward", index, tuple(p for _, p in op.backward_products), (*gradients, *op.saves), tuple(activations + _weights(placed, op)))
    ]


def _weights(placed: Placed, op: Op) -> list[str]:
    return [t for t in op.inputs if placed.block.tensors[t].kind == "parameter"]


def _forward_messages(placed: Placed, metadata: str) -> list[tuple[int, Message]]:
    made: list[tuple[int, Message]] = []
    mesh, block = placed.mesh, placed.block
    for index, op in enumerate(block.ops):
        if op.kind == "regroup":
            made.append(
                (
                    index,
                    Message(
                        "forward",
                        "all_gather",
                        "tp",
                        mesh.degree("tp"),
                        elements(placed, op.inputs[0]),
                        elements(placed, op.outputs[0]),
                        block.tensors[op.inputs[0]].dtype,
                        op.name,
                    ),
                )
            )
        elif op.kind in REDISTRIBUTIONS and op.kind != "slice":
            axis = op.attrs["axis"]
            made.append(
                (
                    index,
                    Message(
                        "forward",
                        op.kind,
                        axis,
                        mesh.degree(axis),
                        elements(placed, op.inputs[0]),
                        elements(placed, op.outputs[0]),
                        op.attrs["dtype"],
                        op.attrs["what"],
                    ),
                )
            )
        made += [(index, m) for m in exchange_messages(placed, index, "forward", metadata)]
    return made


def exchange_messages(placed: Placed, index: int, phase: str, metadata: str) -> list[Message]:
    """Messages inside an operation: reductions of a softmax over a sharded vocabulary or a norm over sharded channels,
    and the exchange of tokens with experts (Megatron-Core token_dispatcher.py)."""
    block, mesh, op = placed.block, placed.mesh, placed.block.ops[index]
    layout = placed.iteration[index]
    if op.kind == "cross_entropy" and phase == "forward":
        return _softmax_messages(placed, index)
    if op.kind == "norm":
        split = [a for d in op.attrs["over"] for a in layout.get(d, ())]
        rows = [d for d in block.tensors[op.inputs[0]].dims if d not in op.attrs["over"]]
        n = product(local_size(mesh, block, d, layout[d]) for d in rows)
        return [Message(phase, "all_reduce", a, mesh.degree(a), n, n, "fp32", f"mean of squares in {op.name}") for a in split]
    if op.kind == "top_k" and phase == "forward":
        return _balance_messages(placed, op)
    from symsim.passes.exchange import token_messages

    return token_messages(placed, index, phase, metadata)


def _balance_messages(placed: Placed, op: Op) -> list[Message]:
    """Tokens per expert summed for the auxiliary loss (Megatron-Core router.py): over tp and cp, or dp too (global)."""
    balancing = op.attrs.get("balancing", "none")
    axes = ("tp", *placed.mesh.context_axes) + (("dp",) if balancing == "global_aux_loss" else ())
    group = placed.mesh.group(axes)
    if balancing == "none" or group == ONE:
        return []
    n = placed.block.dims["E_r"].size * (placed.block.dims["b"].size if balancing == "seq_aux_loss" else 1)
    label = "tp_dp_cp" if balancing == "global_aux_loss" else "tp_cp"
    return [Message("forward", "all_reduce", label, group, n, n, "int64", f"tokens per expert for {balancing}")]


def _softmax_messages(placed: Placed, index: int) -> list[Message]:
    """Issued by Megatron-Core even in a group of one (tensor_parallel/cross_entropy.py)."""
    block, mesh, op = placed.block, placed.mesh, placed.block.ops[index]
    made = []
    rows = product(local_size(mesh, block, d, placed.iteration[index][d]) for d in op.attrs["rows"])
    for kind, times, dtype, what in op.attrs["exchanges"]:
        n = times * rows
        received = n * mesh.degree("tp") if kind == "all_gather" else n
        made.append(Message("forward", kind, "tp", mesh.degree("tp"), n, received, dtype, f"{what} in {op.name}"))
    return made


def ring_messages(placed: Placed, mesh: Mesh, ring: Ring) -> list[tuple[int, Message]]:
    """Ring attention: c-1 steps pass keys and values on; backward passes them again, and their gradients
    (TransformerEngine context_parallel.py, AttnFuncWithCPAndKVP2P), or as the framework's ring has it."""
    made = []
    for index, op in enumerate(placed.block.ops):
        for axis in mesh.ring_axes if op.kind == "attention" else ():
            n = elements(placed, op.inputs[1]) + elements(placed, op.inputs[2])
            dtype, degree = placed.block.tensors[op.inputs[1]].dtype, mesh.degree(axis)
            for phase in ("forward", "backward"):
                what = f"keys and values around the ring of {op.name}"
                if ring.gathers:
                    made.append((index, Message(phase, "all_gather", axis, degree, n, n * degree, dtype, what)))
                else:
                    made.append((index, Message(phase, "p2p", axis, degree, n, n, dtype, what, degree - 1)))
            steps, width = degree if ring.returns else degree - 1, ring.gradient_dtype or dtype
            made.append(
                (index, Message("backward", "p2p", axis, degree, n, n, width, f"gradients of keys and values around the ring of {op.name}", steps))
            )
    return made
