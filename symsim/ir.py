"""The intermediate representation: operations over tensors with named dimensions.

A `Block` is a straight line of operations: one decoder layer of a kind, the embedding, the head, or a
multi-token-prediction depth. Passes take a block and give a block; `verify` checks it in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symsim.errors import nearest
from symsim.expr import ONE, Expr, symbol
from symsim.vocabulary import SYMBOLS

WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int64": 8, "int32": 4, "bool": 1, "uint64": 8}


TENSOR_KINDS = ("activation", "parameter", "index", "table")

# Linear maps: what layers declare, and the kernels that run
LINEAR = ("linear", "einsum", "grouped")

# Every kind of operation: declared by layers, kernels of one operation or more, PyTorch's own (fusion=eager), redistributions
KINDS = frozenset(
    """
    linear einsum grouped attention norm rope rope_part rope_concat pack activation add multiply sigmoid clip embed add_positions dropout
    cross_entropy top_k dispatch combine convolution delta_rule view constant angles
    permute unpermute exchange exchange_back exchange_gather exchange_scatter quantise sort pad
    cast copy repeat cat concat choose pick clamp masked_fill index gather mul div sub sum mean max pow exp rsqrt scale multiplier
    gelu relu silu tanh softmax softplus topk
    all_reduce reduce_scatter all_gather all_to_all slice regroup
    """.split()
)


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


def shown(block: Block, op: Op) -> str:
    """An operation as a line: `einsum mlp.up_proj: x[b s h] up_proj.weight[f h] -> up_proj.out[b s f]`."""

    def named(tensors: Iterable[str]) -> str:
        return " ".join(f"{t}[{' '.join(block.tensors[t].dims)}]" if t in block.tensors else t for t in tensors) or "()"

    summed = f", over {' '.join(op.attrs['contract'])}" if "contract" in op.attrs else ""
    return f"{op.kind} {op.name}: {named(op.inputs)} -> {named(op.outputs)}{summed}"


def verify(block: Block) -> Block:
    """Check a block against the grammar: kinds of operations are known, every tensor is declared, made before its use and made
    once, dimensions are known, and a linear map contracts and makes what its operands have."""
    made = set(block.inputs) | {t.name for t in block.tensors.values() if t.kind in ("parameter", "table")}
    for tensor in block.tensors.values():
        _check_tensor(block, tensor)
    for op in block.ops:
        wrong = _kind(op) or _order(block, op, made) or _dimensions(block, op) or _linear_map(block, op)
        if wrong:
            raise IRError(f"{block.name}: {op.name} {wrong}, in `{shown(block, op)}`")
        made |= set(op.outputs)
    for name in block.outputs:
        if name not in made:
            raise IRError(f"{block.name}: output {name} is never made")
    return block


def _check_tensor(block: Block, tensor: Tensor) -> None:
    for dim in tensor.dims:
        if dim not in block.dims:
            raise IRError(f"{block.name}: tensor {tensor.name}[{' '.join(tensor.dims)}] has unknown dimension {dim}")
    if tensor.dtype not in WIDTHS:
        raise IRError(f"{block.name}: tensor {tensor.name} has unknown type {tensor.dtype}")
    if tensor.kind not in TENSOR_KINDS:
        raise IRError(f"{block.name}: tensor {tensor.name} is of unknown kind {tensor.kind}")
    if tensor.view_of is not None and tensor.view_of not in block.tensors:
        raise IRError(f"{block.name}: tensor {tensor.name} is a view of {tensor.view_of}, which is not declared")


def _kind(op: Op) -> str:
    return "" if op.kind in KINDS else f"is of unknown kind {op.kind}"


def _order(block: Block, op: Op, made: set[str]) -> str:
    """What is read is there, what is made is new, and what is kept exists."""
    for name in (*op.inputs, *op.outputs, *op.saves):
        if name not in block.tensors:
            return f"names {name}, which is not declared"
    for name in op.inputs:
        if name not in made:
            return f"reads {name} before it is made"
    for name in op.outputs:
        if name in made:
            return f"makes {name} twice"
    for name in op.saves:
        if name not in made and name not in op.outputs:
            return f"saves {name}, which does not exist yet"
    return ""


def _dimensions(block: Block, op: Op) -> str:
    for dims in (*op.products, *(p for _, p in op.backward_products)):
        for dim in dims:
            if dim not in block.dims:
                return f"multiplies over unknown dimension {dim}"
    return ""


def _linear_map(block: Block, op: Op) -> str:
    """y = x W sums over dimensions of x and of W, and every other dimension of y is one of x or of a weight."""
    if op.kind not in LINEAR:
        return ""
    x = block.tensors[op.inputs[0]].dims
    weights = [block.tensors[t].dims for t in op.inputs[1:] if block.tensors[t].kind == "parameter"]
    if "contract" not in op.attrs:
        return "says nothing of what it contracts"
    for dim in op.attrs["contract"]:
        if dim not in x:
            return f"contracts {dim}, which {op.inputs[0]} lacks"
        if weights and dim not in weights[0]:
            return f"contracts {dim}, which its weight lacks"
    operands = {d for dims in (x, *weights) for d in dims}
    for name in op.outputs:
        for dim in block.tensors[name].dims:
            if dim not in operands:
                return f"makes {dim}, which no operand has"
    for dims in op.products:
        for dim in dims:
            if dim not in operands:
                return f"multiplies over {dim}, which no operand has"
    return ""


class Net:
    """Builds a block: every method adds one operation and returns the name of its result."""

    def __init__(self, name: str, dtype: str, dims: Mapping[str, Dim] | None = None):
        self.name = name
        self.dtype = dtype
        self.dims: dict[str, Dim] = dict(dims or {})
        self.given = dims is not None
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.scope = ""
        self.module = ""
        self.regions: frozenset[str] = frozenset()
        self.idle: frozenset[str] = frozenset()

    def dim(self, name: str, size: "Expr | str | None" = None, logical: Expr | None = None) -> str:
        """Declare a dimension and return its name. Without a size it is the symbol of that name: one that the model has, or of the
        vocabulary where the net was made without dimensions."""
        if name not in self.dims and size is None and (self.given or name not in SYMBOLS):
            raise IRError(f"{self.name}: unknown dimension {name}: {nearest(name, list(self.dims) or list(SYMBOLS))}")
        self.dims.setdefault(name, Dim(symbol(name) if size is None else symbol(size) if isinstance(size, str) else size, logical))
        return name

    def _known(self, tensor: str, dims: Iterable[str], dim: str) -> None:
        try:
            self.dim(dim)
        except IRError as error:
            raise IRError(f"{error}, in {f'{self.scope}.{tensor}' if self.scope else tensor}[{' '.join(dims)}]") from None

    def _unique(self, name: str) -> str:
        if name not in self.tensors:
            return name
        return next(c for n in range(2, 10_000) if (c := f"{name}.{n}") not in self.tensors)

    def tensor(self, name: str, dims: "str | Iterable[str]", dtype: str | None = None, kind: str = "activation", view_of: str | None = None) -> str:
        dims = tuple(dims.split()) if isinstance(dims, str) else tuple(dims)
        for dim in dims:
            self._known(name, dims, dim)
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
                self._known(name, dims.split(), dim)
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
