"""PyTorch operations and what autograd keeps of them: what the eager profile is written in.

Source: pytorch 2.13 tools/autograd/derivatives.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symsim.frameworks.kernels import Kernels
from symsim.ir.block import FLOATS
from symsim.ir.operations import OPERATIONS, Norm


def needs_gradient(k: Kernels, name: str) -> bool:
    """Statistics and copies of parameters (kind index) need one when what they are made from does."""
    tensor = k.tensors[name]
    if tensor.kind in ("activation", "parameter"):
        return True
    if tensor.kind == "table" or tensor.dtype not in FLOATS:
        return False
    maker = next((op for op in reversed(k.ops) if name in op.outputs), None)
    return maker is not None and any(needs_gradient(k, t) for t in maker.inputs)


def kept(k: Kernels, primitive: str, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """The tensors a primitive keeps, by its row of `OPERATIONS`."""
    rule = OPERATIONS[primitive].keeps
    if rule == "inputs":
        return list(inputs)
    if rule == "all":
        return [*inputs, outputs[0]]
    if rule == "result":
        return [outputs[0]]
    if rule == "partners":
        left, right = inputs[0], inputs[-1]
        return [t for t, partner in ((left, right), (right, left)) if needs_gradient(k, partner)]
    if rule == "integers":
        return [t for t in (*inputs, *outputs) if k.tensors[t].dtype in ("int64", "int32", "bool")]
    return []


def run(
    k: Kernels,
    primitive: str,
    inputs: Sequence[str],
    dims: Iterable[str] | None = None,
    dtype: str | None = None,
    *,
    into: str = "",
    also: Sequence[str] = (),
    of: Sequence[str] = (),
    kind: str = "activation",
    op_kind: str = "",
    over: Sequence[str] | None = None,
) -> str:
    """One aten operation and the name of its result (like the first input unless told).

    into: a declared tensor to make. also: further results. of: parameters that its operands are copies of.
    """
    natural = k.tensors[inputs[0]].dtype
    if k.types is not None:
        inputs, natural = k.types.promoted(k, primitive, inputs)
    shape, width = tuple(dims) if dims is not None else k.dims_of(inputs[0]), dtype or natural
    if into:
        k.retype(into, dims=shape, dtype=width)
    y = into or k.make(primitive, shape, width, kind)
    attrs = Norm(tuple(over)) if over is not None else None
    saves = kept(k, primitive, inputs, (y, *also))
    k.emit(op_kind or primitive, [*inputs, *of], [y, *also], saves=saves, name=unique(k, primitive), attrs=attrs, typed=True)
    return y


def unique(k: Kernels, name: str) -> str:
    """A name no operation of the block has yet."""
    assert k.source is not None
    taken = {op.name for op in k.ops}
    return next(c for c in (name, *(f"{name}_{i}" for i in range(2, 1000))) if f"{k.source.name}.{c}" not in taken)


def cast(k: Kernels, x: str, dtype: str, *, into: str = "") -> str:
    """x.to(dtype): x itself when it has that type already. A parameter's copy carries its gradient to the parameter."""
    if k.tensors[x].dtype == dtype and not into:
        return x
    if k.types is not None and k.tensors[x].dtype == dtype:
        k.retype(into, dims=k.dims_of(x), dtype=dtype, view_of=x)
        k.emit("view", [x], [into], name=unique(k, "cast"))
        return into
    return run(k, "cast", [x], dtype=dtype, into=into, kind="index" if k.tensors[x].kind == "parameter" else "activation")


def in_order(k: Kernels, x: str, dims: Iterable[str]) -> str:
    """x with its dimensions in this memory order, as a matrix product needs them: a copy when they are not."""
    wanted = tuple(dims)
    return x if k.dims_of(x) == wanted else run(k, "copy", [x], wanted)


def dropped(k: Kernels, x: str, rate: float) -> str:
    """Dropout makes new storage and keeps a byte mask; at rate zero it is not run."""
    if not rate:
        return x
    return run(k, "dropout", [x], also=[k.make("mask", k.dims_of(x), "bool", "index")])
