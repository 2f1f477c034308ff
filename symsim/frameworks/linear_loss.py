"""Losses that have the output layer in them: the logits of a chunk are there at a time, or a tile of them inside a kernel.

A row of `LINEAR_LOSSES` says what one keeps and when it multiplies. `at_once` makes the gradients of the hidden states and of the weight in
forward, a chunk after the other, and keeps those; others keep the hidden states and multiply once more in backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from symsim.algebra.expr import ONE, Expr, ceil, expr
from symsim.errors import InputError
from symsim.frameworks.kernels import Kernels
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS, Dim, Op
from symsim.ir.operations import LinearCrossEntropy, Projection

CHUNK = "s[chunk]"
# reduced over a split vocabulary, an fp32 number a row each
SUMS = ("maximum", "sum of exponentials", "predicted logit")


@dataclass(frozen=True)
class LinearLoss:
    """chunks: of the tokens, from (vocabulary, hidden size); columns: of the vocabulary, whose gradient is there at a time in backward; with
    neither, tiles of logits never leave a kernel. held: types of what has the size of a chunk's logits, "": that of the computation.
    moved: bytes a logit between the products, from the width of the computation. hidden: the type that the gradient of the hidden states is
    made in. adds: every chunk runs backward by itself, which adds to the weight's gradient. statistics: fp32 numbers a row that are kept.
    scaled: backward multiplies the gradients by that of the loss."""

    source: str
    at_once: bool = False
    adds: bool = False
    chunks: Callable[[Expr, Expr], Expr] | None = None
    columns: int = 0
    held: tuple[str, ...] = ()
    moved: Callable[[int], int] = lambda width: 0
    hidden: str = ""
    statistics: tuple[str, ...] = ()
    scaled: bool = False


LINEAR_LOSSES: dict[str, LinearLoss] = {
    # the kernel reads the logits twice and writes their gradient over them
    "liger": LinearLoss(
        "Liger-Kernel ops/fused_linear_cross_entropy.py",
        at_once=True,
        chunks=lambda vocabulary, hidden: ceil(vocabulary / hidden),
        held=("",),
        moved=lambda width: 3 * width,
        scaled=True,
    ),
    # logits, their fp32 copy, log-softmax and its gradient: one kernel each way for each (aten _log_softmax, nll_loss)
    "chunked": LinearLoss(
        "torchtitan components/loss.py ChunkedLossWrapper, GradAccumulator",
        at_once=True,
        adds=True,
        chunks=lambda vocabulary, hidden: expr(8),
        held=("", "fp32", "fp32", "fp32"),
        moved=lambda width: 2 * (width + 4) + 7 * 4,
        hidden="fp32",
    ),
    "cut": LinearLoss(
        "Wijmans et al., arXiv:2411.09009; ml-cross-entropy cut_cross_entropy/cce.py, vocab_parallel/utils.py",
        statistics=("lse",),
    ),
    "linear": LinearLoss(
        "Megatron-Core fusions/linear_cross_entropy/blackwell/entry.py",
        columns=3072,
        hidden="fp32",
        statistics=("maximum", "accumulate"),
    ),
}


def pieces_of_tokens(strategy: Strategy, vocabulary: Expr, hidden: Expr) -> Expr:
    """Chunks that the tokens are cut into."""
    how = LINEAR_LOSSES[strategy.cross_entropy_fusion]
    if how.chunks is None:
        return ONE
    return expr(strategy.cross_entropy_chunks) if strategy.cross_entropy_chunks else how.chunks(vocabulary, hidden)


def linear_cross_entropy(k: Kernels, op: Op) -> None:
    """The output layer's product and the loss behind it as one operation, in the product's place."""
    logits, target = op.inputs
    strategy = k.profile.strategy
    how = LINEAR_LOSSES[strategy.cross_entropy_fusion]
    product = next(o for o in k.ops if logits in o.outputs)
    if k.profile.splits("V", product) and k.profile.assumptions["loss_parallel"] == "false":
        raise InputError(f"assume.loss_parallel=false gathers whole logits, which cross_entropy_fusion={strategy.cross_entropy_fusion} never has")
    k.ops.remove(product)
    k.source = replace(op, name=product.name, module=product.module, parts=(*product.parts, *op.parts), regions=product.regions | op.regions)
    x, *parameters = product.inputs
    rows = tuple(d for d in k.dims_of(logits) if d != "V")
    pieces = pieces_of_tokens(strategy, k.dims["V"].size, k.dims["h"].size)
    made = [k.make(name, rows, "fp32", "index") for name in how.statistics]
    saves = [x, *made, target]
    if how.at_once:
        saves, made = _made_at_once(k, x, parameters, logits, pieces, how)
    (says,) = product.einsums
    at = product.of(Projection)
    attrs = LinearCrossEntropy(
        labels=at.labels,
        bias=at.bias,
        exchanges=tuple(("all_reduce", 1, "fp32", what) for what in SUMS),
        rows=rows,
        at_once=how.at_once,
        adds=how.adds,
        pieces=pieces,
        columns=how.columns,
        in_kernel=not (how.held or how.columns),
        moved=how.moved(int(WIDTHS[k.tensors[logits].dtype])),
        hidden=how.hidden or k.tensors[x].dtype,
        scaled=how.scaled,
    )
    again = [] if how.at_once else [("logits again", says.product)]
    sources = (("dgrad", x), ("wgrad", parameters[0]))
    gradients = [(label, says.transpose(operand).product) for operand, (label, t) in enumerate(sources) if k.tensors[t].gradient]
    results, backward = [*op.outputs, *made], [*again, *gradients]
    k.emit(
        "linear_cross_entropy",
        [x, *parameters, target],
        results,
        saves=saves,
        products=[says.product],
        backward=backward,
        attrs=attrs,
        einsums=(says,),
    )


def _made_at_once(k: Kernels, x: str, parameters: list[str], logits: str, pieces: Expr, how: LinearLoss) -> tuple[list[str], list[str]]:
    """Gradients that are kept in place of what they are made from; and all that forward makes."""
    saves = [k.make("gradient", k.dims_of(x), k.tensors[x].dtype, "index")]
    if not how.adds:
        saves += [k.make("weight_gradient", k.dims_of(w), k.tensors[w].dtype, "index") for w in parameters if k.tensors[w].gradient]
    k.dims[CHUNK] = Dim(k.dims["s"].size / pieces, parts=("s",))
    chunk = [CHUNK if d == "s" else d for d in k.dims_of(logits)]
    held = [k.make("chunk", chunk, dtype or k.tensors[logits].dtype, "index") for dtype in how.held]
    sums = [k.make("sum", k.dims_of(x), how.hidden, "index")] if how.hidden else []
    return saves, [*saves, *held, *sums]


# losses of finished logits, whose fp32 copies are those of a chunk
OUTPUT, COMPILED = "output_chunks", "compiled_chunks"
BY_PIECES = OUTPUT, COMPILED
IN_CHUNKS = (OUTPUT, *(name for name, row in LINEAR_LOSSES.items() if row.chunks))


def chunked_rows(k: Kernels, dims: tuple[str, ...]) -> list[str]:
    """Dimensions of what is there for a chunk of the tokens at a time, and made for all (torchtune modules/loss/ce_chunked_output_loss.py)."""
    if k.profile.strategy.cross_entropy_fusion != OUTPUT or "s" not in dims:
        return list(dims)
    share = expr(1) / (k.profile.strategy.cross_entropy_chunks or 8)
    k.dims[CHUNK] = Dim(k.dims["s"].size, parts=("s",), room=share)
    return [CHUNK if d == "s" else d for d in dims]
