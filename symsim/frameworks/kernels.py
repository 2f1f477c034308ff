"""Kernels: what fusion profiles are written in, and the lowerings they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from symsim.algebra.expr import ZERO, ceil, expr, floor, minimum, product
from symsim.frameworks.framework import Framework
from symsim.inputs.architecture import Architecture
from symsim.inputs.conventions import OWN, Conventions
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import is_trained
from symsim.ir.block import Block, Dim, Op, Tensor
from symsim.ir.einsum import Einsum
from symsim.ir.operations import Attention, Attributes, IndexLoss, Plain, Projection, Scoring, View
from symsim.placement.names import Placement

CONTEXT_AXES = ("cp", "cp_a2a", "cp_p2p")


@dataclass(frozen=True)
class Profile:
    """What decides which kernels run."""

    model: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str]
    framework: Framework
    placement: Placement
    conventions: Conventions = OWN

    @property
    def stands_on(self) -> tuple[Any, ...]:
        """What tells it from others, besides the strategy."""
        return self.model, self.framework, self.placement

    @property
    def declared(self) -> str:
        """The type of what no kernel gives another: under autocast that of the embedding's rows, fp32 where it is trained."""
        tables = {"embedding", "lm_head"} if self.model.tie_word_embeddings else {"embedding"}
        return "fp32" if self.strategy.autocast and is_trained(self.strategy, tables, None) else self.strategy.precision

    def splits(self, dim: str, op: Op) -> bool:
        """Whether tensor ranks hold a share each of a dimension of the operation."""
        return self.strategy.tp > 1 and "tp" in self.placement.of(dim, within=op.name).always


def multiplied_in(op: Op, strategy: Strategy, kind: str = "forward") -> str:
    """The type of the operands that a kernel multiplies, forward or in the backward kernel `kind`: a recipe's, or that of the computation."""
    if kind == "wgrad" and isinstance(op.attrs, Projection) and op.attrs.wide:
        return strategy.precision
    narrow = op.attrs.multiplied if isinstance(op.attrs, (Projection, Attention, Scoring)) else ""
    return narrow or strategy.precision


def attended(strategy: Strategy, assumptions: Mapping[str, str]) -> Fraction:
    """The share of the scores that attention computes: all where it is written out."""
    skips = assumptions["attention_kernel"] in ("flash", "efficient")
    return 1 - Fraction(str(strategy.attention_sparse_ratio)) if skips else Fraction(1)


class Types(NamedTuple):
    """What gives kernels' operands and results other types than they are declared in: of a kernel what it reads and keeps, of its results,
    and of an elementwise operation."""

    operands: Callable[["Kernels", str, object, Sequence[str], Iterable[str]], tuple[list[str], list[str]]]
    results: Callable[["Kernels", str, object, Sequence[str], Sequence[str]], None]
    promoted: Callable[["Kernels", str, Sequence[str]], tuple[list[str], str]]


class Kernels:
    """Collects the kernels that replace one declared operation, and the tensors they make."""

    def __init__(self, block: Block, profile: Profile, types: Types | None = None):
        self.block = block
        self.profile = profile
        self.types = types
        self.copies: dict[str, str] = {}
        self.tensors = dict(block.tensors)
        if types is not None:
            stored = {t.name: "fp32" if t.gradient else profile.strategy.precision for t in block.parameters()}
            self.tensors |= {name: replace(self.tensors[name], dtype=dtype) for name, dtype in stored.items()}
        self.dims = dict(block.dims)
        self.ops: list[Op] = []
        self.source: Op | None = None

    def make(self, name: str, dims: Iterable[str], dtype: str, kind: str = "activation", view_of: str | None = None) -> str:
        assert self.source is not None
        name = f"{self.source.name}.{name}"
        if name in self.tensors:
            name = next(c for i in range(2, 10_000) if (c := f"{name}.{i}") not in self.tensors)
        self.tensors[name] = Tensor(name, tuple(dims), dtype, kind, view_of, self.source.module)
        return name

    def retype(self, name: str, **changes: Any) -> None:
        self.tensors[name] = replace(self.tensors[name], **changes)

    def emit(
        self,
        kind: str,
        inputs: Iterable[str],
        outputs: Iterable[str],
        *,
        saves: Iterable[str] = (),
        name: str = "",
        products: Iterable[tuple[str, ...]] = (),
        backward: Iterable[tuple[str, tuple[str, ...]]] = (),
        attrs: Attributes | None = None,
        einsums: tuple[Einsum, ...] = (),
        idle: frozenset[str] | None = None,
        typed: bool = False,
    ) -> None:
        source = self.source
        assert source is not None
        if self.types is not None and not typed:
            outputs = tuple(outputs)
            inputs, saves = self.types.operands(self, kind, attrs, tuple(inputs), saves)
            self.types.results(self, kind, attrs, inputs, outputs)
        self.ops.append(
            replace(
                source,
                kind=kind,
                name=f"{source.name}.{name}" if name else source.name,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                saves=tuple(saves),
                products=tuple(products),
                backward_products=tuple(backward),
                attrs=attrs or (View() if kind == "view" else Plain()),
                einsums=einsums,
                idle=source.idle if idle is None else idle,
            )
        )

    def dims_of(self, tensor: str) -> tuple[str, ...]:
        return self.tensors[tensor].dims

    def is_view(self, tensor: str) -> bool:
        return self.tensors[tensor].view_of is not None


Lowering = Callable[[Kernels, Op], None]


def keep(k: Kernels, op: Op) -> None:
    """Views and operations that are one kernel as declared, keeping nothing."""
    idle = frozenset({"tp", *(CONTEXT_AXES if op.attrs.sequence else ())}) if isinstance(op.attrs, View) and op.attrs.whole else op.idle
    if k.types is not None:
        k.types.results(k, op.kind, op.attrs, op.inputs, op.outputs)
    k.ops.append(replace(op, idle=idle))


def keep_inputs(k: Kernels, op: Op) -> None:
    activations = [t for t in op.inputs if k.tensors[t].kind == "activation"]
    k.emit(op.kind, op.inputs, op.outputs, saves=activations, attrs=op.attrs)


def einsum(
    k: Kernels, x: str, parameters: list[str], y: str, says: Einsum, attrs: Projection, *, saves: Iterable[str] | None = None, name: str = ""
) -> None:
    """One GEMM: 2 FLOP a point of its einsum; keeps its input. Experts' weights, chosen by the row, make it a grouped one."""
    kind = "grouped" if says.chosen else "einsum"
    k.emit(kind, [x, *parameters], [y], saves=[x] if saves is None else saves, products=[says.product], einsums=(says,), name=name, attrs=attrs)


def joined_linear(
    k: Kernels, op: Op, x: str, saves: Iterable[str] | None = None, attrs: Projection | None = None, name: str = "", parts: View | None = None
) -> None:
    """Several projections of one input as one GEMM whose output is split by views: `x, w_1 -> y_1` and `x, w_2 -> y_2` are
    `x, w -> y` over a dimension that has the new ones of all side by side. name: of the GEMM where the operation has others. parts: how they are
    taken, a split where nothing is said."""
    at, says = attrs or op.of(Projection), op.einsums[0]
    new = [[d for d in e.result if d not in e.operands[0]] for e in op.einsums]
    width = f"{op.name.rsplit('.', 1)[-1]}[{'+'.join('*'.join(n) for n in new)}]"
    k.dims[width] = Dim(sum((product(k.dims[d].size for d in n) for n in new), ZERO), parts=tuple(dict.fromkeys(d for n in new for d in n)))
    chosen = [d for d, _ in says.chosen]
    batch = [d for d in says.result if d in says.operands[0]]
    joint = Einsum((says.operands[0], (*chosen, width, *says.contracted)), (*batch, width), says.chosen)
    parameters = [k.make("weight", joint.operands[1], k.tensors[op.inputs[1]].dtype, "parameter")]
    if at.bias:
        parameters.append(k.make("bias", [*chosen, width], k.tensors[op.inputs[1]].dtype, "parameter"))
    count = len(op.einsums)
    for made, of in zip(parameters, (op.inputs[1 : 1 + count], op.inputs[1 + count :]), strict=False):
        k.retype(made, gradient=any(k.tensors[t].gradient for t in of), borrowed=all(k.tensors[t].borrowed for t in of))
    y = k.make("out", joint.result, k.tensors[op.outputs[0]].dtype)
    einsum(k, x, parameters, y, joint, at, saves=saves, name=name)
    for output in op.outputs:
        k.retype(output, view_of=y, dtype=k.tensors[y].dtype)
    k.emit("view", [y], op.outputs, name="split", attrs=parts)


def grouped(k: Kernels, op: Op, x: str, saves: Iterable[str], attrs: Projection) -> None:
    """The experts' projections of one input as one grouped GEMM."""
    if len(op.outputs) > 1:
        joined_linear(k, op, x, saves, attrs)
    else:
        einsum(k, x, list(op.inputs[1:]), op.outputs[0], op.einsums[0], attrs, saves=saves)


def attention_products(op: Op, *, flash: bool) -> tuple[list[tuple[str, ...]], list[tuple[str, tuple[str, ...]]]]:
    """Matrix products of softmax(q k^T) v, forward and backward; flash recomputes the scores (5 for 2)."""
    forward, backward = op.of(Attention).products, op.of(Attention).transposed
    return list(forward), ([("scores again", forward[0])] if flash else []) + list(backward)


class Scores:
    """The kernels of written-out attention between its two products: what each makes of the scores, and what its backward
    needs. They are one operation with the products, so that context parallelism sees one attention."""

    def __init__(self, k: Kernels, op: Op, keys: str):
        self.k, self.op, self.keys = k, op, keys
        self.made: list[str] = []
        self.passes: list[tuple[str, str, str]] = []
        """Result, byte mask and what backward reads again (or "") of every pass over the scores."""

    def tensor(self, name: str, dtype: str, dims: Iterable[str] = ()) -> str:
        """A tensor made on the way, by default of the size of the scores."""
        self.made.append(self.k.make(name, tuple(dims) or ("b", self.op.of(Attention).heads, "s", self.keys), dtype, "index"))
        return self.made[-1]

    def softmax(self, name: str, dtype: str) -> None:
        """A pass whose backward needs its result (a tanh is another)."""
        result = self.tensor(name, dtype)
        self.passes.append((result, "", result))

    def cast(self, name: str, dtype: str) -> None:
        """A pass whose backward needs nothing; its result is kept where the product reads it."""
        self.passes.append((self.tensor(name, dtype), "", ""))

    def dropout(self, dtype: str) -> None:
        """A byte mask, and the probabilities that are left."""
        mask = self.tensor("mask", "bool")
        self.passes.append((self.tensor("dropped", dtype), mask, ""))

    def emit(self, inputs: list[str], result: str, masks: Iterable[str] = ()) -> None:
        """The attention over queries, keys, values (and offsets, and masks): keeps those, and of what was made of the scores what the
        second product reads (the last) and what backward of a pass needs."""
        forward, backward = attention_products(self.op, flash=False)
        passing = {made for made, _, kept in self.passes[:-1] if not kept}
        saves = [*inputs[:3], *(t for t in self.made if t not in passing), *masks]
        attrs = replace(self.op.of(Attention), passes=tuple(self.passes))
        self.k.emit("attention", inputs, [result, *self.made], saves=saves, products=forward, backward=backward, attrs=attrs)


def gathered_logits(k: Kernels, logits: str) -> str:
    """Logits of the whole vocabulary on every tensor-parallel rank, for a loss that knows of no sharding."""
    k.dims["V_all"] = Dim(k.dims["V"].size)
    whole = k.make("logits.whole", [d if d != "V" else "V_all" for d in k.dims_of(logits)], k.tensors[logits].dtype, view_of=logits)
    k.emit("view", [logits], [whole], name="gather", idle=frozenset({"tp"}))
    return whole


def pool(k: Kernels, op: Op) -> None:
    """One token of every row: keeps which."""
    rows = k.dims_of(op.outputs[0])[:-1]
    chosen = [k.make(name, rows, "int64", "index") for name in ("row", "token")]
    k.emit("index", op.inputs, [*op.outputs, *chosen], saves=chosen)


def index_scores(k: Kernels, op: Op) -> None:
    """Queries against the keys of all tokens; a ReLU and the weighted sum over heads where these have weights, else the best of every block."""
    queries, keys, *weights = (k.dims_of(t) for t in op.inputs)
    head, width = next(d for d in queries if d not in ("b", "s", keys[-1])), keys[-1]
    narrow = "fp8" if k.profile.assumptions["dsa_index_scores"] == "fp8" else ""
    seen = op.of(Scoring).keys
    products = [("b", "s", head, seen, width), *([("b", "s", seen, head)] if seen == "n_z" and weights else [])]
    k.emit("index_scores", op.inputs, op.outputs, products=products, attrs=Scoring(narrow, seen))


def index_loss(k: Kernels, op: Op) -> None:
    """The divergence of an indexer's scores from the probabilities of attention, summed over its heads: both are made again in backward, of queries,
    keys and weights (Megatron-Core experimental_attention_variant/dsa.py FusedDSAIndexerLoss). No kernel where it is not asked for."""
    asked = k.profile.strategy.dsa_indexer_loss
    if asked == "none":
        return
    query, _, weights, attended_by, *_ = (k.dims_of(t) for t in op.inputs)
    keys, head, width = "n_k" if asked == "sparse" else "n_z", weights[-1], query[-1]
    target, scored = ("b", "s", attended_by[2], keys, attended_by[3]), ("b", "s", head, keys, width)
    again = [("scores again", scored), ("sums again", ("b", "s", keys, head)), ("target again", target)]
    backward = [*again, ("dQ", scored), ("dK", scored), ("dW", ("b", "s", keys, head))]
    k.emit("index_loss", op.inputs, op.outputs, saves=op.inputs, products=[target], backward=backward, attrs=IndexLoss(keys, attended_by[2]))


def z_loss(k: Kernels, logits: str) -> None:
    """The square of the logarithm of the sum of a token's exponentials, whose mean keeps a router's logits small (arXiv:2202.08906; Megatron-Core
    moe_utils.py z_loss_func). No kernel where it is not asked for."""
    if k.profile.strategy.moe_z_loss:
        total = k.make("logsumexp", k.dims_of(logits)[:-1], k.tensors[logits].dtype, "index")
        k.emit("z_loss", [logits], [total], saves=[logits, total], name="z_loss", attrs=Plain())


INDEXER: Mapping[str, Lowering] = {"index_scores": index_scores, "index_loss": index_loss}

CHUNK = 64  # tokens of a chunk: transformers torch_chunk_gated_delta_rule, flash-linear-attention chunk_gated_delta_rule


def convolution(k: Kernels, op: Op) -> None:
    """Depthwise causal convolution over a few positions: keeps its input."""
    k.emit("convolution", op.inputs, op.outputs, saves=op.inputs[:1], attrs=op.attrs, **convolution_products(k, op))


def convolution_products(k: Kernels, op: Op) -> dict[str, Any]:
    """Forward, and as much again for each gradient; F.conv1d pads both ends, and makes positions behind the last that are cut off."""
    taps = k.dims_of(op.inputs[1])[-1]
    tap = [*k.dims_of(op.outputs[0]), taps]
    if k.profile.assumptions["linear_attention_flops"] == "chunked":
        k.dims.setdefault("s_padded", Dim(k.dims["s"].size + k.dims[taps].size - 1, parts=("s",)))
        tap[tap.index("s")] = "s_padded"
    return {"products": [tuple(tap)], "backward": [("dgrad", tuple(tap)), ("wgrad", tuple(tap))]}


def lightning(k: Kernels, op: Op) -> None:
    """Linear attention with a fixed decay: keeps its inputs."""
    k.emit("lightning", op.inputs, op.outputs, saves=op.inputs, **lightning_products(k))


def lightning_products(k: Kernels) -> dict[str, Any]:
    """Matrix products of lightning attention, forward and backward (assumption linear_attention_flops).

    recurrence: the state is written and read, two `[d, d]` products a head and token. chunked: inside a block scores `[C, C]` over d and these
    times values, between blocks the state read by queries and written by keys. The first state needs no gradient and the last is not used.
    """
    once = ("b", "s", "a", "d", "d")
    s, block = k.dims["s"].size, k.dims["C_l"].size
    whole, blocks = floor(s / block), ceil(s / block)
    rest = s - whole * block
    k.dims.setdefault("in_block", Dim((whole * block * block + rest * rest) / s))
    k.dims.setdefault("s_but_first", Dim(s - minimum(block, s), parts=("s",)))
    k.dims.setdefault("s_but_last", Dim(block * (blocks - 1), parts=("s",)))
    if k.profile.assumptions["linear_attention_flops"] == "recurrence":
        return {"products": [once] * 2, "backward": [("state", once)] * 4}
    inside, read, written = ("b", "s", "a", "in_block", "d"), ("b", "s_but_first", "a", "d", "d"), ("b", "s_but_last", "a", "d", "d")
    backward = [("scores", inside)] * 4 + [("queries", once), ("state", read), ("keys", written), ("values", written)]
    return {"products": [inside, inside, once, once], "backward": backward}


def delta_rule(k: Kernels, op: Op) -> None:
    """Gated delta rule: keeps its inputs."""
    activations = [t for t in op.inputs if k.tensors[t].kind == "activation"]
    k.emit(op.kind, op.inputs, op.outputs, saves=activations, **delta_rule_products(k))


def delta_rule_products(k: Kernels) -> dict[str, Any]:
    """Matrix products of the gated delta rule, forward and backward (assumption linear_attention_flops).

    recurrence: four `[D_k, D_v]` state products a head and token, as Megatron-LM's training.py counts them (with d_k d_v
    where it has d_v squared). chunked: with C = 64 and the sequence padded to whole chunks, scores of k with k and of q
    with k, `[C, C]` over D_k; the state read by k and by q and written by k, D_k D_v each; scores times values, C D_v.
    Triangular solves are not counted forward (FlopCounterMode has no formula for them); their backward has one product
    each, and with a decay for every channel (KDA) a product forward and one more in backward: the system is inverted first. The first state
    needs no gradient and the last is not used, so one chunk less of each.
    """
    of_channels = k.source is not None and k.source.kind == "kda"
    if k.profile.assumptions["linear_attention_flops"] == "recurrence":
        once = ("b", "s", "H_v", "D_k", "D_v")
        return {"products": [once] * 4, "backward": [("state", once)] * 8}
    whole = CHUNK * ceil(k.dims["s"].size / CHUNK)
    k.dims.setdefault("s_chunks", Dim(whole, parts=("s",)))
    k.dims.setdefault("s_chunks_but_one", Dim(whole - CHUNK, parts=("s",)))
    k.dims.setdefault("chunk", Dim(expr(CHUNK)))

    def over(tokens: str, *dims: str) -> tuple[str, ...]:
        return ("b", tokens, "H_v", *dims)

    keys, values, state = over("s_chunks", "chunk", "D_k"), over("s_chunks", "chunk", "D_v"), over("s_chunks", "D_k", "D_v")
    backward = [("scores", keys)] * 4 + [("values", values)] * 2 + [("state", state)] * 2 + [("solve", keys), ("solve", values)]
    backward += [("state", over("s_chunks_but_one", "D_k", "D_v"))] * 4
    if of_channels:
        solved = [("solve", keys), ("solve", values)]
        return {"products": [keys, keys, keys, values, state, state, state, values], "backward": [*backward, *solved]}
    return {"products": [keys, keys, state, state, state, values], "backward": backward}
