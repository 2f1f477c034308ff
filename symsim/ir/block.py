"""The intermediate representation: operations over tensors with named dimensions.

A `Block` is a straight line of operations: one decoder layer of a kind, the embedding, the head, or a
multi-token-prediction depth. Passes take a block and give a block; `verify.py` checks it in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, TypeVar

from symsim.algebra.expr import Expr, ceil, floor, symbol
from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import nearest
from symsim.ir.einsum import Einsum, IRError, fault, parsed
from symsim.ir.operations import KINDS, OPERATIONS, Attributes, Plain
from symsim.ir.quantised import STORED

WIDTHS: Mapping[str, int | Fraction] = {
    **{"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int64": 8, "int32": 4, "bool": 1, "uint64": 8},
    "int8": 1,
    **{"fp4": Fraction(1, 2), "nf4": Fraction(1, 2), "nf4_torchao": STORED["nf4_torchao"].width + STORED["nf4_torchao"].scale},
    "e5m6": Fraction(3, 2),
    # both forms of a tensor, by rows and by columns
    **{"fp8x2": 2, "fp4x2": 1},
}
"""Bytes of an element."""


MODULES = ("embedding", "attention", "mlp", "experts", "shared_experts", "router", "norm", "lm_head", "mtp", "loss")
"""What parameters, FLOPs and bytes are counted by, in the order of tables."""
TOKENS = "s_u"
"""Of a row, the tokens that are no padding."""
TENSOR_KINDS = ("activation", "parameter", "index", "table")
NARROW = ("fp8", "fp4", "int8")
FLOATS = ("fp32", "bf16", "fp16")
# what a tensor is to its module; the table is that of the tokens
TensorRole = Literal["", "weight", "bias", "table"]


@dataclass(frozen=True)
class Dim:
    """A named dimension: `size` before sharding, `logical` its size in the unsharded model when that differs,
    `parts` the dimensions laid side by side in it (a fused projection is placed as its parts are). Where memory is set aside for another number
    than there are: `room` times so many while a kernel works on it, `kept` times so many between forward and backward.
    """

    size: Expr
    logical: Expr | None = None
    parts: tuple[str, ...] = ()
    room: Expr | None = None
    kept: Expr | None = None

    @property
    def whole_model(self) -> Expr:
        return self.size if self.logical is None else self.logical


def whole_parts(size: Expr, length: Expr) -> Expr:
    """How many parts of a length a dimension has, a rest left out."""
    return floor(size / length)


def all_parts(size: Expr, length: Expr) -> Expr:
    """How many parts of a length a dimension has, the last with what is left."""
    return ceil(size / length)


@dataclass(frozen=True)
class Tensor:
    """A tensor with named dimensions in memory order.

    kind: activation (has a gradient), parameter, index (no gradient), table (made once, shared by all layers).
    view_of names the tensor whose storage this one shares. owner: of a weight or bias, the linear map, norm or table that has it.
    gradient: backward computes one; not of a frozen parameter, nor of what is made of nothing that is trained.
    borrowed: it is another block's, which counts it and keeps it: a tied table, a weight that several layers share.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    kind: str = "activation"
    view_of: str | None = None
    module: str = ""
    role: TensorRole = ""
    owner: str = ""
    gradient: bool = True
    borrowed: bool = False


A = TypeVar("A", bound=Attributes)


@dataclass(frozen=True)
class Op:
    """One operation, of a kind of `OPERATIONS`.

    attrs: what its kind says besides, of the type in its row. einsums: of a linear map, one for each result.
    products: the matrix products of forward, each the dimensions multiplied out (2 FLOP each).
    backward_products: those of backward with a label (dgrad, wgrad, ...); an einsum's follow by transposition.
    saves: tensors this operation keeps for backward.
    parts: the parts of the layer that it stands in, outermost first; regions: the recompute modules that follow from them.
    idle: mesh axes that this operation does not use although its dimensions could be placed there.
    frame: the call in whose frame what it makes stays until the call returns, under a name of its own; recorded: it is autograd's graph of that
    frame that holds it, and nothing does where forward runs again.
    """

    kind: str
    name: str
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes = Plain()
    einsums: tuple[Einsum, ...] = ()
    products: tuple[tuple[str, ...], ...] = ()
    backward_products: tuple[tuple[str, tuple[str, ...]], ...] = ()
    saves: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    regions: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    frame: str = ""
    recorded: bool = False

    @property
    def is_view(self) -> bool:
        return self.kind == "view"

    def of(self, attributes: type[A]) -> A:
        """Its attributes, which are of this type. IRError where they are not."""
        if not isinstance(self.attrs, attributes):
            raise IRError(f"{self.name}, of kind {self.kind}, has the attributes {self.attrs}, and no {attributes.__name__}")
        return self.attrs


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

    @cached_property
    def statistics(self) -> frozenset[str]:
        """What operations make of activations on the way to others, and PyTorch takes for any other operand: the mean of squares, its root."""
        found: set[str] = set()
        for op in self.ops:
            if any(t in found or (self.tensors[t].kind == "activation" and self.tensors[t].gradient) for t in op.inputs):
                made = (self.tensors[t] for t in op.outputs)
                found |= {t.name for t in made if t.kind == "index" and t.gradient and t.dtype in FLOATS}
        return frozenset(found)

    def parameters(self) -> list[Tensor]:
        return [t for t in self.tensors.values() if t.kind == "parameter"]


def shown(block: Block, op: Op) -> str:
    """An operation as a line: `einsum mlp.up_proj: x[b s h] up_proj.weight[f h] -> up_proj.out[b s f]`."""

    def named(tensors: Iterable[str]) -> str:
        return " ".join(f"{t}[{' '.join(block.tensors[t].dims)}]" if t in block.tensors else t for t in tensors) or "()"

    says = f": {'; '.join(map(str, op.einsums))}" if op.einsums else ""
    return f"{op.kind} {op.name}: {named(op.inputs)} -> {named(op.outputs)}{says}"


@dataclass(frozen=True)
class Weight:
    """The weight of an einsum, declared by it: named, with the dimensions that the string gives it.

    bias: another parameter of the dimensions that the weight adds to the result. borrowed: the weight belongs to another block, its bias
    does not.
    """

    name: str
    bias: bool = False
    borrowed: bool = False


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
        self.borrows = False
        self.tokens = "s"
        self.parts: tuple[str, ...] = ()

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
        dims = tuple(self.tokens if d == "s" else d for d in (dims.split() if isinstance(dims, str) else dims))
        for dim in dims:
            self._known(name, dims, dim)
        name = self._unique(f"{self.scope}.{name}" if self.scope else name)
        self.tensors[name] = Tensor(name, dims, dtype or self.dtype, kind, view_of, self.module)
        return name

    def input(self, name: str, dims: str, dtype: str | None = None, kind: str = "activation", borrowed: bool = False) -> str:
        made = self.tensor(name, dims, dtype, kind)
        self.tensors[made] = replace(self.tensors[made], borrowed=borrowed)
        self.inputs.append(made)
        return made

    def parameter(self, name: str, dims: "str | Iterable[str]", dtype: str | None = None) -> str:
        made = self.tensor(name, dims, dtype, "parameter")
        if self.module and ("E" in self.dims_of(made)) != (self.module == "experts"):
            held = "of experts (E)" if self.module != "experts" else "no expert's (it lacks E)"
            raise IRError(f"{self.name}: {made} is {held}, in the module '{self.module}': 'experts' has the parameters of which each has its own")
        if self.borrows:
            self.tensors[made] = replace(self.tensors[made], borrowed=True)
        return made

    def weight(self, owner: str, dims: "str | Iterable[str]", role: TensorRole = "weight") -> str:
        """A parameter that is its owner's weight, bias or table."""
        made = self.parameter(f"{owner}.{'bias' if role == 'bias' else 'weight'}", dims)
        self.tensors[made] = replace(self.tensors[made], role=role, owner=f"{self.scope}.{owner}" if self.scope else owner)
        return made

    def table(self, name: str, dims: str, dtype: str | None = None) -> str:
        """A constant made once and shared by all layers (a mask, a rotary table)."""
        if name not in self.tensors:
            for dim in dims.split():
                self._known(name, dims.split(), dim)
            self.tensors[name] = Tensor(name, tuple(dims.split()), dtype or self.dtype, "table", None, self.module)
        return name

    def op(self, kind: str, name: str, inputs: Iterable[str], outputs: Iterable[str], *, einsums: Iterable[Einsum] = (), **attrs: Any) -> Op:
        """Declare an operation; its attributes are those of its kind. IRError for an unknown kind or attribute."""
        where = f"{self.scope}.{name}" if self.scope else name
        if kind not in OPERATIONS:
            raise IRError(f"{self.name}: {where} is of unknown kind {kind}: {nearest(kind, sorted(KINDS))}")
        try:
            says = OPERATIONS[kind].attributes(**attrs)
        except TypeError as error:
            raise IRError(f"{self.name}: {where}, of kind {kind}: {str(error).partition(' ')[2]}") from None
        made = Op(kind, where, self.module, tuple(inputs), tuple(outputs), says, tuple(einsums), parts=self.parts)
        self.ops.append(made)
        return made

    def einsum(self, equation: str, x: str, weight: Weight, *, name: str = "", out: str = "") -> str:
        """`net.einsum("b s h, a d h -> b s a d", x, Weight("q_proj"))`: declares the weight and the result, adds the product.

        name: of the operation, else the weight's; out: of the result. IRError quotes the string: an undeclared dimension, a sum
        over one that an operand lacks, a dimension of the result that none has, an operand of other dimensions.
        """
        (made,) = self.einsums(name or weight.name, x, [(equation, weight)], out=out)
        return made

    def einsums(
        self, name: str, x: str, projections: "Sequence[tuple[str, Weight]]", *, fused: bool = False, together: int = 1, out: str = ""
    ) -> tuple[str, ...]:
        """Several of one input: one product where they are `fused` (of the first `together` where these are), or where the profile fuses them."""
        says, weights, biases, results = [], [], [], []
        for text, weight in projections:
            says.append(self.checked(text, {0: self.dims_of(x)}, f"{weight.name} of {x}"))
            weights.append(self.weight(weight.name, says[-1].operands[1]))
            if weight.borrowed:
                self.tensors[weights[-1]] = replace(self.tensors[weights[-1]], borrowed=True)
            if weight.bias:
                biases.append(self.weight(weight.name, [d for d in says[-1].operands[1] if d not in says[-1].contracted], "bias"))
        for equation, (_, weight) in zip(says, projections):
            results.append(self.tensor(out or f"{weight.name}.out", equation.result))
        labels = tuple(weight.name for _, weight in projections)
        kind = "grouped" if says[0].chosen else "linear"
        inputs = [x, *weights, *biases]
        self.op(kind, name, inputs, results, einsums=says, labels=labels, bias=bool(biases), fused=fused, together=together)
        return tuple(results)

    def checked(self, text: str, operands: "Mapping[int, tuple[str, ...]]", of: str) -> Einsum:
        """What a string says, held against the dimensions of the block and of the operands that exist."""
        where = f"{self.name}: {self.scope}{'.' if self.scope else ''}{of}"
        try:
            made = parsed(text) if self.tokens == "s" else parsed(text).rename({"s": self.tokens})
        except IRError as error:
            raise IRError(f"{where}: {error}") from None
        for dim in made.dimensions:
            try:
                self.dim(dim)
            except IRError:
                raise fault(text, f"unknown dimension {dim}: {nearest(dim, list(self.dims) or list(SYMBOLS))}", dim, where=where) from None
        for position, dims in operands.items():
            if made.operands[position] != dims:
                said = f"operand {position + 1} is [{' '.join(dims)}]"
                other = next((d for d in made.operands[position] if d not in dims), "")
                raise fault(text, said, other, where=where)
        return made

    def within(
        self, scope: str, module: str | None = None, part: str | None = None, borrows: bool | None = None, tokens: str | None = None
    ) -> "Scope":
        """A `with` scope: operation names get the prefix, a cost module, and the part of the layer that they are; parameters are another
        block's, or not; tokens: what `s` stands for."""
        return Scope(self, scope, module, part, borrows, tokens)

    def dims_of(self, tensor: str) -> tuple[str, ...]:
        return self.tensors[tensor].dims

    def block(self, outputs: Iterable[str]) -> Block:
        return Block(self.name, dict(self.dims), dict(self.tensors), tuple(self.ops), tuple(self.inputs), tuple(outputs))


class Scope:
    """What `Net.within` opens."""

    def __init__(self, net: Net, scope: str, module: str | None, part: str | None, borrows: bool | None, tokens: str | None = None):
        self.net, self.change, self.tokens = net, (scope, module, part, borrows), tokens

    def __enter__(self) -> Net:
        net, (scope, module, part, borrows) = self.net, self.change
        if module is not None and module not in MODULES:
            raise IRError(f"{net.name}: {scope or net.scope} is of the module '{module}', which is no row of MODULES: {nearest(module, MODULES)}")
        self.before = (net.scope, net.module, net.parts, net.borrows, net.tokens)
        net.scope = f"{net.scope}.{scope}" if net.scope and scope else scope or net.scope
        net.module = module or net.module
        net.parts = (*net.parts, part or scope) if part or scope else net.parts
        net.borrows = net.borrows if borrows is None else borrows
        net.tokens = self.tokens or net.tokens
        return net

    def __exit__(self, *_: object) -> None:
        self.net.scope, self.net.module, self.net.parts, self.net.borrows, self.net.tokens = self.before


def rebuild(block: Block, ops: Iterable[Op], tensors: Mapping[str, Tensor] | None = None, **changes: Any) -> Block:
    """The block with other operations (and tensors)."""
    return replace(block, ops=tuple(ops), tensors=dict(tensors if tensors is not None else block.tensors), **changes)
