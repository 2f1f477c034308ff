"""The intermediate representation: operations over tensors with named dimensions.

A `Block` is a straight line of operations: one decoder layer of a kind, the embedding, the head, or a
multi-token-prediction depth. Passes take a block and give a block; `verify` checks it in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symsim.expr import ONE, Expr, symbol

WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int64": 8, "int32": 4, "bool": 1, "uint64": 8}


@dataclass(frozen=True)
class Dim:
    """A named dimension: `size` before sharding, `logical` its size in the unsharded model when that differs,
    `parts` the dimensions laid side by side in it (a fused projection is placed as its parts are).
    """

    size: Expr
    logical: Expr | None = None
    parts: tuple[str, ...] = ()

    @property
    def whole_model(self) -> Expr:
        return self.size if self.logical is None else self.logical


@dataclass(frozen=True)
class Tensor:
    """A tensor with named dimensions in memory order.

    kind: activation (has a gradient), parameter, index (no gradient), table (made once, shared by all layers).
    view_of names the tensor whose storage this one shares.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    kind: str = "activation"
    view_of: str | None = None
    module: str = ""


@dataclass(frozen=True)
class Op:
    """One operation.

    products: the matrix products of forward, each the dimensions multiplied out (2 FLOP each).
    backward_products: those of backward with a label (dgrad, wgrad, ...); an einsum's follow by transposition.
    saves: tensors this operation keeps for backward.
    regions: recompute modules that this operation belongs to.
    idle: mesh axes that this operation does not use although its dimensions could be placed there.
    """

    kind: str
    name: str
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    products: tuple[tuple[str, ...], ...] = ()
    backward_products: tuple[tuple[str, tuple[str, ...]], ...] = ()
    saves: tuple[str, ...] = ()
    regions: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()

    @property
    def is_view(self) -> bool:
        return self.kind == "view"


@dataclass(frozen=True)
class Block:
    """A straight line of operations with its tensors and dimensions; `inputs` and `outputs` are tensor names."""

    name: str
    dims: Mapping[str, Dim]
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def producer(self, tensor: str) -> Op | None:
        return next((op for op in self.ops if tensor in op.outputs), None)

    def storage(self, name: str) -> Tensor:
        """The tensor that owns the memory of `name`."""
        tensor = self.tensors[name]
        while tensor.view_of is not None:
            tensor = self.tensors[tensor.view_of]
        return tensor

    def iteration(self, op: Op) -> tuple[str, ...]:
        """Every dimension that the operation runs over, in order of appearance."""
        named = [d for t in (*op.inputs, *op.outputs) for d in self.tensors[t].dims]
        return tuple(dict.fromkeys(named + [d for p in op.products for d in p]))

    def parameters(self) -> list[Tensor]:
        return [t for t in self.tensors.values() if t.kind == "parameter"]


def size_of(block: Block, dims: Iterable[str]) -> Expr:
    result = ONE
    for dim in dims:
        result = result * block.dims[dim].size
    return result


class IRError(AssertionError):
    """A pass produced an inconsistent block; a bug of symsim, never of its input."""


def verify(block: Block) -> Block:
    """Check that every tensor is made before use, views share storage with a tensor, and names are unique."""
    made = set(block.inputs) | {t.name for t in block.tensors.values() if t.kind in ("parameter", "table")}
    for op in block.ops:
        for name in op.inputs:
            if name not in block.tensors:
                raise IRError(f"{block.name}: {op.name} reads {name}, which is not declared")
            if name not in made:
                raise IRError(f"{block.name}: {op.name} reads {name} before it is made")
        for name in op.outputs:
            if name in made:
                raise IRError(f"{block.name}: {op.name} makes {name} twice")
            made.add(name)
        for name in op.saves:
            if name not in made:
                raise IRError(f"{block.name}: {op.name} saves {name}, which does not exist yet")
        for dims in op.products:
            missing = [d for d in dims if d not in block.dims]
            if missing:
                raise IRError(f"{block.name}: {op.name} multiplies over unknown dimension {missing[0]}")
    for tensor in block.tensors.values():
        for dim in tensor.dims:
            if dim not in block.dims:
                raise IRError(f"{block.name}: tensor {tensor.name} has unknown dimension {dim}")
        if tensor.dtype not in WIDTHS:
            raise IRError(f"{block.name}: tensor {tensor.name} has unknown type {tensor.dtype}")
    for name in block.outputs:
        if name not in made:
            raise IRError(f"{block.name}: output {name} is never made")
    return block


class Net:
    """Builds a block: every method adds one operation and returns the name of its result."""

    def __init__(self, name: str, dtype: str, dims: Mapping[str, Dim] | None = None):
        self.name = name
        self.dtype = dtype
        self.dims: dict[str, Dim] = dict(dims or {})
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.scope = ""
        self.module = ""
        self.regions: frozenset[str] = frozenset()
        self.idle: frozenset[str] = frozenset()

    def dim(self, name: str, size: "Expr | str | None" = None, logical: Expr | None = None) -> str:
        """Declare a dimension (its size defaults to the symbol of its name) and return its name."""
        self.dims.setdefault(name, Dim(symbol(name) if size is None else symbol(size) if isinstance(size, str) else size, logical))
        return name

    def _unique(self, name: str) -> str:
        if name not in self.tensors:
            return name
        return next(c for n in range(2, 10_000) if (c := f"{name}.{n}") not in self.tensors)

    def tensor(self, name: str, dims: "str | Iterable[str]", dtype: str | None = None, kind: str = "activation", view_of: str | None = None) -> str:
        dims = tuple(dims.split()) if isinstance(dims, str) else tuple(dims)
        for dim in dims:
            self.dim(dim)
        name = self._unique(f"{self.scope}.{name}" if self.scope else name)
        self.tensors[name] = Tensor(name, dims, dtype or self.dtype, kind, view_of, self.module)
        return name

    def input(self, name: str, dims: str, dtype: str | None = None, kind: str = "activation") -> str:
        made = self.tensor(name, dims, dtype, kind)
        self.inputs.append(made)
        return made

    def parameter(self, name: str, dims: "str | Iterable[str]", dtype: str | None = None) -> str:
        return self.tensor(name, dims, dtype, "parameter")

    def table(self, name: str, dims: str, dtype: str | None = None) -> str:
        """A constant made once and shared by all layers (a mask, a rotary table)."""
        if name not in self.tensors:
            for dim in dims.split():
                self.dim(dim)
            self.tensors[name] = Tensor(name, tuple(dims.split()), dtype or self.dtype, "table", None, self.module)
        return name

    def op(
        self,
        kind: str,
        name: str,
        inputs: Iterable[str],
        outputs: Iterable[str],
        *,
        saves: Iterable[str] = (),
        products: Iterable[tuple[str, ...]] = (),
        backward: Iterable[tuple[str, tuple[str, ...]]] = (),
        **attrs: Any,
    ) -> Op:
        made = Op(
            kind,
            f"{self.scope}.{name}" if self.scope else name,
            self.module,
            tuple(inputs),
            tuple(outputs),
            attrs,
            tuple(products),
            tuple(backward),
            tuple(saves),
            self.regions,
            self.idle,
        )
        self.ops.append(made)
        return made

    def within(self, scope: str, module: str | None = None, region: str | None = None) -> "_Scope":
        """A `with` scope: operation names get the prefix, a cost module, and optionally a recompute module."""
        return _Scope(self, scope, module, region)

    def dims_of(self, tensor: str) -> tuple[str, ...]:
        return self.tensors[tensor].dims

    def block(self, outputs: Iterable[str]) -> Block:
        return verify(Block(self.name, dict(self.dims), dict(self.tensors), tuple(self.ops), tuple(self.inputs), tuple(outputs)))


class _Scope:
    def __init__(self, net: Net, scope: str, module: str | None, region: str | None):
        self.net, self.change = net, (scope, module, region)

    def __enter__(self) -> Net:
        net, (scope, module, region) = self.net, self.change
        self.before = (net.scope, net.module, net.regions)
        net.scope = f"{net.scope}.{scope}" if net.scope and scope else scope or net.scope
        net.module = module or net.module
        net.regions = net.regions | {region} if region else net.regions
        return net

    def __exit__(self, *_: object) -> None:
        self.net.scope, self.net.module, self.net.regions = self.before


def rebuild(block: Block, ops: Iterable[Op], tensors: Mapping[str, Tensor] | None = None, **changes: Any) -> Block:
    """The block with other operations (and tensors), verified."""
    return verify(replace(block, ops=tuple(ops), tensors=dict(tensors if tensors is not None else block.tensors), **changes))
