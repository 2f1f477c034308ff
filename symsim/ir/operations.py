"""Every kind of operation, one row each: what it says about itself, and what the passes do with it.

This is the grammar of the IR. A pass looks a kind up here (`OPERATIONS[op.kind]`) and knows no kind by name; an operation's
attributes are those of its row (`op.of(Norm).over`). What follows from no row is in `exceptions.py`, with its reason and source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from symsim.algebra.expr import ONE, Expr
from symsim.ir.collectives import COLLECTIVES, between
from symsim.ir.einsum import Einsum


@dataclass(frozen=True)
class Plain:
    """No attributes."""


@dataclass(frozen=True)
class Cast:
    """A tensor written in a narrow type. passes: how often it is read; forms: how often it is written (rows, columns for the transposed
    products); maxima: what is summed up over the ranks that gather it goes ahead; kernels: of one tensor; together: those of all experts
    are of one. Without passes the kernel that makes it casts it."""

    passes: int = 1
    forms: int = 1
    maxima: bool = False
    kernels: int = 1
    together: bool = False

    @property
    def inside(self) -> "Cast":
        """As the kernel writes it that makes what is cast."""
        return replace(self, passes=0, maxima=False)


@dataclass(frozen=True)
class Projection:
    """Linear maps of one input. labels: what their weights are called; fused: the modelling code has one weight for all; together: for so
    many, the first. reduce_dtype, gradient_dtype: the types in which partial sums of the result, and of the input's gradient, go between ranks,
    where they are not those of the tensors. multiplied: the narrow type of the operands; "": that of the tensors. gradient_cast: of the
    output's gradient, where it is multiplied in a narrow type; input_cast: of an input that was kept as it was, for the weight gradient.
    bias_apart: the bias is added by kernels of its own, in fp32. stored: the type in which the weight is stored, that is made anew for backward
    (`symsim/ir/quantised.py`). joined: the products of all experts are one kernel, which makes of its result (before the activation) or of its
    input's gradient (behind) what stands next to it. pieces: of the rows, each multiplied by itself, whose weight gradients are added. wide: weight
    gradients are multiplied in the type of the computation, of operands that are kept so."""

    labels: tuple[str, ...] = ()
    bias: bool = False
    fused: bool = False
    together: int = 1
    reduce_dtype: str | None = None
    gradient_dtype: str | None = None
    multiplied: str = ""
    gradient_cast: Cast | None = None
    input_cast: Cast | None = None
    bias_apart: bool = False
    stored: str = ""
    joined: Literal["", "before", "behind"] = ""
    pieces: Expr = ONE
    wide: bool = False


@dataclass(frozen=True)
class Dequantise:
    """The type in which the weight is stored that is made anew."""

    stored: str = ""


@dataclass(frozen=True)
class Attention:
    """The two products over queries `s` and keys `z`. keys: the mean number of keys that a query is charged for; unread:
    inputs that the kernel keeps and does not read. passes: where it is written out, the kernels between its products: result,
    byte mask and what backward reads again (or "") of each. multiplied: the narrow type of the products; gradient_cast: of the output's
    gradient, which is multiplied so too."""

    scores: Einsum
    values: Einsum
    keys: str
    unread: tuple[str, ...] = ()
    passes: tuple[tuple[str, str, str], ...] = ()
    multiplied: str = ""
    gradient_cast: Cast | None = None

    @cached_property
    def key_dim(self) -> str:
        return self.scores.contracted[0]

    @cached_property
    def value_dim(self) -> str:
        return next(d for d in self.values.result if d not in self.scores.result)

    @cached_property
    def heads(self) -> str:
        return next(d for d in self.scores.result if d not in ("b", "s", "z"))

    @cached_property
    def groups(self) -> str:
        return next((group for group, by in self.scores.chosen if by == self.heads), self.heads)

    @cached_property
    def products(self) -> tuple[tuple[str, ...], ...]:
        return tuple(e.rename({"z": self.keys}).product for e in (self.scores, self.values))

    @cached_property
    def transposed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Gradients of values, probabilities, queries and keys."""
        scores, values = (e.rename({"z": self.keys}) for e in (self.scores, self.values))
        gradients = (("dV", values.transpose(1)), ("dP", values.transpose(0)), ("dQ", scores.transpose(0)), ("dK", scores.transpose(1)))
        return tuple((label, e.product) for label, e in gradients)


@dataclass(frozen=True)
class Scoring:
    """multiplied: the narrow type of its products; "": that of the tensors. keys: the mean number of those that a query is held against; over heads
    their scores are summed by a product, or (n_e) elementwise."""

    multiplied: str = ""
    keys: str = "n_z"


@dataclass(frozen=True)
class IndexLoss:
    """keys: the dimension of keys that the divergence is taken over; heads: those of attention, whose probabilities are summed."""

    keys: str = ""
    heads: str = ""


@dataclass(frozen=True)
class Norm:
    """Dimensions it is taken over, its kind as model files name it, and whether its weight is an offset from one."""

    over: tuple[str, ...]
    norm: str = "RMSNorm"
    unit_offset: bool = False


@dataclass(frozen=True)
class Rotation:
    """An input turned by blocks. of_input: which of its products backward is the gradient of the input."""

    of_input: str = ""


@dataclass(frozen=True)
class Rope:
    """The head dimension that is turned, and the share of it; apart: each product, sum and copy of it a kernel; in_place: what is not turned is
    neither read nor written."""

    head: str
    fraction: float = 1.0
    apart: bool = False
    in_place: bool = False


@dataclass(frozen=True)
class Activation:
    """The function; of a gate beside another tensor, and with rows scaled, where so; in_fp32: the modelling code casts first; joined: the products
    before and behind it make it in their kernels."""

    function: str
    gated: bool = False
    scaled: bool = False
    in_fp32: bool = False
    joined: bool = False


@dataclass(frozen=True)
class Convolution:
    """The function of its result; "": none. joined: what it reads of a projection is laid together first, where torch runs it."""

    activation: str = ""
    joined: bool = True


@dataclass(frozen=True)
class CrossEntropy:
    """upcast: logits are cast to fp32; exchanges: what is reduced over a split vocabulary (collective, elements a row, type, what);
    rows: the dimensions of a row; inside: results like which backward makes another on its way."""

    upcast: bool = True
    exchanges: tuple[tuple[str, int, str, str], ...] = ()
    rows: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinearCrossEntropy(Projection, CrossEntropy):
    """A product and the loss of its result in one. at_once: forward makes the operands' gradients, and keeps those; adds: each piece adds its weight
    gradient to what is there; columns: of the result's gradient in backward at a time; in_kernel: tiles of the result never leave a kernel. moved:
    bytes a point of the result between the products; hidden: the type in which the first operand's gradient is summed; scaled: backward scales."""

    at_once: bool = False
    adds: bool = False
    columns: int = 0
    in_kernel: bool = False
    moved: int = 0
    hidden: str = ""
    scaled: bool = False


@dataclass(frozen=True)
class TopK:
    """The score function, groups of experts, whether it comes before the choice, whether weights are divided by their sum, and
    how loads are balanced."""

    score: str = "softmax"
    groups: int = 0  # none: the choice is among all
    pre_softmax: bool = False
    normalise: bool = False
    balancing: str = "none"
    per_expert: bool = False  # weights are multiplied by a number of their expert


@dataclass(frozen=True)
class Sent:
    """What one collective of an exchange carries, with the dimensions of the tokens a rank has itself. gradient: what is sent back
    for it; "": nothing."""

    what: str
    dims: tuple[str, ...]
    dtype: str
    gradient: str


@dataclass(frozen=True)
class Exchange:
    """Tokens on their way to experts and back. width: the dimension of a row; counted: ranks first tell each other how many rows
    come; sent: what is carried, where it is not each input into the result in its place."""

    width: str
    counted: bool = False
    sent: tuple[Sent, ...] = ()


@dataclass(frozen=True)
class View:
    """whole: on every rank that splits heads and widths, all of it: a redistribution that a layer asks for; sequence: on those that split
    sequences too. indexed: parts are taken by indices, each of whose gradients fills a whole; else by a split, which lays them side by side.
    heads_first: of heads as they are transposed for attention."""

    whole: bool = False
    sequence: bool = False
    indexed: bool = False
    heads_first: bool = False


@dataclass(frozen=True)
class Redistribution:
    """The axis it goes over, what is sent (and as what in backward), and the dimension that axis shards before and after."""

    axis: str
    what: str = ""
    dtype: str = ""
    gradient_dtype: str | None = None
    source: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class StateSpace:
    """biased: the convolution has a bias; over: the dimensions that what is gated is normalised over, or none."""

    biased: bool = False
    over: tuple[str, ...] = ()


Attributes = (
    Plain
    | Cast
    | Dequantise
    | Projection
    | Attention
    | Norm
    | Rotation
    | Scoring
    | IndexLoss
    | Rope
    | Activation
    | Convolution
    | CrossEntropy
    | TopK
    | Exchange
    | View
    | Redistribution
    | StateSpace
)

Role = Literal["declared", "product", "attention", "kernel", "loss", "lookup", "moves", "exchange", "primitive", "view", "aside", "redistribution"]


@dataclass(frozen=True)
class Operation:
    """A kind of operation.

    role: declared ones are lowered by every profile; products are einsums; kernels, the loss (where backward begins), lookups
    (rows of a table), kernels that move rows, exchanges of tokens with experts and PyTorch's primitives run; views share memory;
    what stands aside has neither FLOPs nor bytes worth counting; redistributions are inserted where placements ask for them.
    sends: the collective that a redistribution or an exchange is; over: the axes of an exchange (a redistribution has its own).
    partial: dimensions over which its result is a partial sum on a rank, where they are sharded: those contracted, or one named.
    transpose: its backward: an einsum has two (gradients of input and weight), a kernel one; through a view or an exchange the
    gradient passes as it comes, of a cast it is the result's (free), of a sum that of all that it adds (shared), or of the first
    alone (shared_first: one kernel makes those of the others), what is copied away is copied back (again), and what sends has the
    collective of the gradient (`COLLECTIVES`), or none.
    in_place: its result lies where its input lay, when nothing else reads that. casts: its result is its input in another type.
    inner: messages inside it. bound: the closed form of its seconds (exchange: its message's, no others).
    keeps: what PyTorch's autograd keeps of a primitive.
    assumed: what the bytes kept rest on. counted_by: what the count of its products rests on, forward and backward;
    gradients_by: what that of backward does. stored_by: the checkpointing that keeps its results. where_partial: a collective
    that backward needs only where the gradient arrives as a partial sum. whole_sequences: what it makes of a token depends
    on those before it, so no axis splits its tokens, and context parallelism gives its ranks heads in their place; a layer says so of several
    operations at once with the part `WHOLE_SEQUENCES`.
    """

    role: Role
    attributes: type[Attributes] = Plain
    partial: Literal["", "contracted", "V"] = ""
    transpose: str = "kernel"
    sends: str = ""
    over: tuple[str, ...] = ()
    inner: Literal["", "softmax", "statistics", "balance", "tokens", "ring", "maxima", "target"] = ""
    bound: Literal["gemm", "attention", "elementwise", "unvectorised", "permute", "cross_entropy", "linear_loss", "exchange"] = "elementwise"
    keeps: Literal["", "inputs", "result", "all", "partners", "integers"] = ""
    assumed: tuple[str, ...] = ()
    counted_by: tuple[str, ...] = ()
    gradients_by: tuple[str, ...] = ()
    stored_by: tuple[str, ...] = ()
    where_partial: bool = False
    in_place: bool = False
    casts: bool = False
    whole_sequences: bool = False
    any_token: bool = False  # a token of its result may be any of what it reads: sequence parallelism gathers that
    hands_on: bool = False  # PyTorch's derivative hands on the gradient that it is given, or parts of it (AddBackward0, CloneBackward0, CatBackward0)
    negates: bool = False  # or, of what is subtracted, the negated one
    divides: bool = False  # the gradient is divided again, and that of what it was divided by made of both
    scatters: bool = False  # the gradient of what it takes rows of is filled with zeros, and the rows are added there
    assigns: bool = False  # what it reads is copied into its places of a new tensor, one after the other (CopySlices)
    heads_first: bool = False  # reads heads as they are transposed for attention, and fills their gradient in that order
    # bytes an element that backward moves besides gradient, input and result
    masks: int = 0
    # tensors like the result that PyTorch's formula of the derivative makes on its way
    between: int = 0
    # of each kernel of such a formula, and of forward where it is several, how many tensors like the result it reads and writes
    derivative: tuple[int, ...] = ()
    kernels: tuple[int, ...] = ()

    @property
    def completes(self) -> bool:
        """Whether it takes a partial sum and completes it."""
        return bool(self.sends) and COLLECTIVES[self.sends].sums

    @property
    def adds_in_place(self) -> bool:
        """Whether it adds to what it reads where that lies."""
        return self.in_place and self.transpose == "shared"


def _sends(row: Operation, collective: str) -> Operation:
    """The row of a kind that is such a collective, with the collective of its gradient."""
    return replace(row, sends=collective, transpose=COLLECTIVES[collective].transpose or "none")


_REDISTRIBUTION = Operation("redistribution", Redistribution)
_EXCHANGE = Operation("exchange", Exchange, inner="tokens", bound="permute")

# Checkpointing that keeps results: torch.utils.checkpoint create_selective_checkpoint_contexts.
# What primitives keep: pytorch 2.13 tools/autograd/derivatives.yaml. partners: each operand whose partner needs a gradient;
# integers: indices, offsets and masks.
OPERATIONS: dict[str, Operation] = {
    "linear": Operation("declared", Projection),
    "state_space": Operation("declared", StateSpace),
    "rope_part": Operation("declared", Rope),
    "rope_concat": Operation("declared", Rope),
    "dispatch": Operation("declared", Exchange),
    "combine": Operation("declared", Exchange),
    **dict.fromkeys(("pool", "selective_scan", "pack", "clip", "add_positions", "leave_padding_out", "pad_again"), Operation("declared")),
    "einsum": Operation("product", Projection, "contracted", "einsum", bound="gemm", stored_by=("sac_mm", "sac_mm_attn")),
    "grouped": Operation("product", Projection, "contracted", "einsum", bound="gemm", stored_by=("sac_mm_attn",)),
    "attention": Operation(
        "attention",
        Attention,
        inner="ring",
        bound="attention",
        assumed=("attention_kernel",),
        gradients_by=("attention_kernel",),
        stored_by=("sac_attn", "sac_mm_attn"),
    ),
    "cross_entropy": Operation("loss", CrossEntropy, inner="softmax", bound="cross_entropy", assumed=("loss_parallel",)),
    "linear_cross_entropy": Operation("loss", LinearCrossEntropy, inner="softmax", bound="linear_loss", assumed=("loss_parallel",)),
    "permute": Operation("moves", Exchange, bound="permute", assumed=("moe_permute_fusion",)),
    "unpermute": Operation("moves", bound="permute"),
    "exchange": _sends(replace(_EXCHANGE, over=("ep",), assumed=("expert_load", "dispatcher_metadata")), "all_to_all"),
    "exchange_back": _sends(replace(_EXCHANGE, over=("ep",)), "all_to_all"),
    "exchange_fused": _sends(replace(_EXCHANGE, over=("ep",), bound="exchange", assumed=("expert_load",)), "all_to_all"),
    "exchange_fused_back": _sends(replace(_EXCHANGE, over=("ep",), bound="exchange"), "all_to_all"),
    "exchange_gather": _sends(replace(_EXCHANGE, over=("etp", "ep")), "all_gather"),
    "exchange_scatter": _sends(replace(_EXCHANGE, over=("etp", "ep")), "reduce_scatter"),
    "norm": Operation("kernel", Norm, inner="statistics", assumed=("layernorm_linear_fusion",)),
    "pool_tokens": Operation("kernel"),
    "append": Operation("primitive", transpose="passes", whole_sequences=True),
    "rope": Operation("kernel", Rope),
    "activation": Operation("kernel", Activation),
    "multiply": Operation("kernel"),
    **{kind: Operation("kernel") for kind in ("hyper_weights", "collapse_streams", "mix_streams", "predict_streams", "correct_streams")},
    **{kind: Operation("kernel") for kind in ("take_stream", "stack_streams", "average_streams", "spread_over_streams", "match_magnitude")},
    **{"add": Operation("kernel", hands_on=True), **dict.fromkeys(("gaussian_top_k", "scale_by_norm"), Operation("kernel", Norm))},
    "quantise": Operation("kernel", Cast, transpose="free", inner="maxima"),
    "dequantise": Operation("kernel", Dequantise, transpose="free"),
    "copy_to_pages": Operation("kernel", transpose="again"),
    "column_norm": Operation("primitive", transpose="none"),
    "column_product": Operation("primitive", transpose="none", stored_by=("sac_mm_attn", "sac_mm")),
    "orthogonal": Operation("kernel"),
    "rotate": Operation("kernel", Rotation),
    "convolution": Operation("kernel", Convolution, counted_by=("linear_attention_flops",), whole_sequences=True),
    "lightning": Operation("kernel", counted_by=("linear_attention_flops",), whole_sequences=True),
    "kda": Operation("kernel", counted_by=("linear_attention_flops",), whole_sequences=True),
    "delta_rule": Operation("kernel", counted_by=("linear_attention_flops",), whole_sequences=True),
    "scan": Operation("kernel", counted_by=("linear_attention_flops",), whole_sequences=True),
    "top_k": Operation("kernel", TopK, inner="balance", bound="permute"),
    "embed": Operation("lookup", partial="V"),
    "view": Operation("view", View, transpose="passes"),
    "detach": Operation("view", transpose="none"),
    "index_scores": Operation("kernel", Scoring, transpose="none", assumed=("dsa_index_scores",)),
    "index_loss": Operation("loss", IndexLoss, inner="target"),
    "z_loss": Operation("loss"),
    "constant": Operation("aside"),
    "angles": Operation("aside"),
    "all_reduce": _sends(replace(_REDISTRIBUTION, in_place=True), "all_reduce"),
    "reduce_scatter": _sends(_REDISTRIBUTION, "reduce_scatter"),
    "all_gather": _sends(replace(_REDISTRIBUTION, where_partial=True, assumed=("save_gathered", "shared_redistribution")), "all_gather"),
    "all_to_all": _sends(_REDISTRIBUTION, "all_to_all"),
    "slice": replace(_REDISTRIBUTION, transpose=between("shard", "whole")),
    "regroup": _sends(_REDISTRIBUTION, "all_gather"),
    **{kind: Operation("primitive", keeps="inputs") for kind in ("silu", "gelu", "softplus", "log")},
    "div": Operation("primitive", keeps="inputs", divides=True),
    "gather": Operation("primitive", keeps="inputs", scatters=True),
    "times_number": Operation("primitive", keeps="inputs", derivative=(2, 3, 1)),  # the number's gradient is a product's sum
    # where both are equal half the gradient, and nothing where the other is less: masks of either, of which three kernels more read one each
    "minimum": Operation("primitive", keeps="inputs", derivative=(1, 1, 2, 3, 2), masks=4),
    "expm1": Operation("primitive", keeps="result", derivative=(2, 3)),
    "where": Operation("primitive", keeps="integers", derivative=(2, 2), masks=2),  # a kernel for each of both
    "erf": Operation("primitive", keeps="inputs", derivative=(2, 2, 2, 2, 3)),
    # the power less one, that times the exponent (pow_backward), and times the gradient
    "pow": Operation("primitive", keeps="inputs", between=2, derivative=(2, 2, 3)),
    **{kind: Operation("primitive", keeps="result") for kind in ("exp", "sigmoid", "tanh", "relu", "softmax")},
    "rsqrt": Operation("primitive", keeps="result", derivative=(2, 2, 3)),  # the cube of the result, times -1/2, times the gradient
    "sqrt": Operation("primitive", keeps="result", derivative=(2, 3)),
    **{kind: Operation("primitive", keeps="integers") for kind in ("topk", "masked_fill", "dropout")},
    "cast": Operation("primitive", casts=True),
    # forward negates a half and joins both; backward negates one, fills a whole for each and copies it there (slice_backward), and adds them
    "rotate_half": Operation("primitive", between=1, derivative=(1, 1, 1, 1, 1, 3), kernels=(1, 2), heads_first=True),
    "rotate_pairs": Operation("primitive", between=1, derivative=(1, 1, 1, 1, 1, 3), kernels=(1, 2)),  # the same, before heads are transposed
    **{kind: Operation("primitive", hands_on=True) for kind in ("copy", "cat")},
    "assign": Operation("primitive", assigns=True, between=1),
    "sub": Operation("primitive", hands_on=True, negates=True),
    **{kind: Operation("primitive") for kind in "repeat pad concat sum mean scale choose pick multiplier".split()},
    # masks of what lies inside: a comparison a bound (2 + 1), joined (1 + 1 + 1) where there are two, read; the mean of one bound (8 in all) and of
    # two (14), which the halves of a clamped GLU have (pytorch torch/csrc/autograd/FunctionsManual.cpp clamp_backward)
    "clamp": Operation("primitive", bound="unvectorised", keeps="inputs", masks=5),
    "mul": Operation("primitive", keeps="partners"),
    "plus": Operation("primitive", transpose="shared"),
    "plus_scaled": Operation("primitive", transpose="shared_first"),
    "added_in": Operation("primitive", transpose="shared", in_place=True),
    "index": Operation("primitive", bound="permute", keeps="integers", scatters=True),
    "sort": Operation("primitive", bound="permute"),
    **dict.fromkeys(("tokens_of_rows", "rows_of_tokens"), Operation("primitive", bound="permute", any_token=True)),
    "std": Operation("primitive", keeps="all"),
}

KINDS = frozenset(OPERATIONS)

WHOLE_SEQUENCES = "whole_sequences"
"""The part of a layer that works on whole sequences, whatever the kinds of its operations: a rank has heads there in place of tokens."""


def of_role(*roles: Role) -> frozenset[str]:
    """The kinds of some roles."""
    return frozenset(kind for kind, row in OPERATIONS.items() if row.role in roles)


PRODUCTS = of_role("product")
LINEAR = PRODUCTS | {"linear"}
REDISTRIBUTIONS = of_role("redistribution")
UNCOUNTED = of_role("view", "aside", "redistribution")
"""Kinds without FLOPs or HBM bytes of their own."""
