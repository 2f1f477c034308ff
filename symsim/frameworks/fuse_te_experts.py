"""Experts under the `te` profile: what brings rows to them, their grouped products, and what brings them back.

Read at Megatron-Core 0.20.0 (paths under megatron/core/transformer/) and TransformerEngine 2.20 (paths under transformer_engine/pytorch/).
"""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.expr import symbol
from symsim.frameworks import fuse_flex
from symsim.frameworks.kernels import Kernels, grouped
from symsim.frameworks.narrow import discarded, narrowed, pads_rows, recipe_in
from symsim.ir.block import Dim, Op
from symsim.ir.operations import Activation, Cast, Exchange, Projection, Sent


def probabilities_at_combine(k: Kernels) -> bool:
    strategy = k.profile.strategy
    if k.profile.model.moe is not None and k.profile.model.moe.router_weight_before_experts:
        return False
    return k.profile.assumptions["moe_probabilities"] == "combine" and strategy.moe_token_dispatcher_type == "alltoall"


def te_dispatch(k: Kernels, op: Op) -> None:
    """The exchange of tokens, and where the rows of an expert are not yet as many as a recipe's products need (`pads_rows`), a kernel that copies
    them to where they are, and one that does so with their probabilities (moe/experts.py quantization_padding)."""
    if not pads_rows(k):
        _dispatch(k, op)
        return
    kept = [(x, k.make(f"unpadded{i}", k.dims_of(x), k.tensors[x].dtype)) for i, x in enumerate(op.outputs)]
    _dispatch(k, replace(op, outputs=tuple(short for _, short in kept)))
    for (whole, short), name in zip(kept, ("pad", "pad_weights"), strict=True):
        k.retype(whole, dtype=k.tensors[short].dtype)
        if not (name == "pad_weights" and probabilities_at_combine(k)):
            k.emit("copy", [short], [whole], name=name)


def _dispatch(k: Kernels, op: Op) -> None:
    """permute, then the exchange between ranks: token_dispatcher.py, moe_utils.py permute."""
    x, probabilities, indices = op.inputs
    rows, weights = op.outputs
    at = op.of(Exchange)
    strategy = k.profile.strategy
    if strategy.moe_token_dispatcher_type == "flex":
        fuse_flex.dispatch(k, op, _weight_dtype(k))
        return
    if strategy.moe_token_dispatcher_type == "allgather":
        k.retype(weights, dtype=_weight_dtype(k))
        kept = _gathered_map(k, k.dims_of(indices)[:-1])
        attrs, made = replace(at, sent=_gathered(k, x)), [rows, weights, *kept]
        k.emit("exchange_gather", [x, probabilities, indices], made, saves=kept, attrs=attrs, idle=frozenset({"etp"}))
        return
    padded = strategy.moe_pad_expert_input_to_capacity
    tokens = k.dims_of(indices)[:-1]
    sent_dims = ("E_r", "C") if padded else (*tokens, "K")
    if padded:
        kept = [
            k.make("capacity_index", sent_dims, "int64", "index"),
            k.make("kept_map", [*tokens, "E_r"], "bool", "index"),
            k.make("order", sent_dims, "int64", "index"),
            k.make("index", sent_dims, "int64", "index"),
        ]
    elif k.profile.assumptions["moe_permute_fusion"] == "true":
        k.dims["row_map"] = Dim(2 * k.dims["E_r"].size + 1)
        kept = [k.make("row_id_map", [*tokens, "row_map"], "int32", "index")]
    else:
        kept = [k.make("order", [*tokens, "E_r"], "int64", "index"), k.make("index", sent_dims, "int64", "index")]
    sent = k.make("sent", [*sent_dims, at.width], k.tensors[rows].dtype)
    if probabilities_at_combine(k):
        k.emit("permute", [x, indices], [sent, *kept], saves=kept, name="permute", attrs=op.attrs)
        k.emit("exchange", [sent], [rows], attrs=replace(at, counted=not padded))
        return
    sent_weights = k.make("sent_weights", sent_dims, _weight_dtype(k))
    k.emit("permute", [x, probabilities, indices], [sent, sent_weights, *kept], saves=kept, name="permute", attrs=op.attrs)
    k.retype(weights, dtype=_weight_dtype(k))
    k.emit("exchange", [sent, sent_weights], [rows, weights], attrs=replace(at, counted=not padded))


def _gathered(k: Kernels, x: str) -> tuple[Sent, ...]:
    """What the allgather dispatcher gathers: tokens, and for every expert whether it is theirs and with which probability."""
    of_experts = (*k.dims_of(x)[:-1], "E_r")
    routes = (Sent("routing map", of_experts, "bool", ""),) if k.profile.framework.counts else ()
    weights = Sent("probabilities", of_experts, _weight_dtype(k), "gradient of probabilities")
    return (*routes, weights, Sent("tokens", k.dims_of(x), k.tensors[x].dtype, "gradient of tokens"))


def _gathered_map(k: Kernels, tokens: tuple[str, ...]) -> list[str]:
    """What the allgather dispatcher keeps: the token of every row, and of all gathered tokens the map to the rank's experts
    with its probabilities, from which those of the rows are selected (token_dispatcher.py dispatch_postprocess)."""
    if k.profile.assumptions["moe_permute_fusion"] == "true":
        return []
    k.dims["gathered_map"] = Dim(k.dims["E_r"].size * (symbol("etp") if k.profile.strategy.expert_tp > 1 else 1))
    local = (*tokens, "gathered_map")
    return [
        k.make("index", ["R"], "int64", "index"),
        k.make("local_probabilities", local, _weight_dtype(k), "index"),
        k.make("local_map", local, "bool", "index"),
    ]


def _weight_dtype(k: Kernels) -> str:
    return "fp32" if k.profile.strategy.moe_router_dtype == "fp32" else k.profile.strategy.precision


def te_grouped(k: Kernels, op: Op) -> None:
    """Grouped GEMM of the local experts (TEGroupedLinear): keeps its input; all projections in one. The activation adds the first
    bias; the second is scaled by the rows' probabilities and added by kernels of its own (Megatron-Core moe/experts.py _apply_bias)."""
    x, saves, attrs = narrowed(k, op)
    behind = "f_e" in op.einsums[0].contracted
    apart = attrs.bias and behind and not fused_experts(k)
    if joined_experts(k):
        x, attrs = _joined(k, x, attrs, behind)
    # probabilities in fp32 promote what experts over etp sum, whose gradients are gathered as they are
    grouped(k, op, x, saves, replace(attrs, reduce_dtype=_weight_dtype(k), gradient_dtype=None, bias_apart=apart))


def fused_experts(k: Kernels) -> bool:
    """Whether experts are TransformerEngine's fusible operations (moe/experts.py _fused_forward)."""
    return k.profile.strategy.use_transformer_engine_op_fuser


def joined_experts(k: Kernels) -> bool:
    """Whether the activation and the casts between experts' products are in their kernels, and one kernel casts the rows of all experts
    (TransformerEngine ops/fused/grouped_mlp.py)."""
    recipe = recipe_in(k)
    return fused_experts(k) and recipe is not None and recipe.joins


def _joined(k: Kernels, x: str, attrs: Projection, behind: bool) -> tuple[str, Projection]:
    """The cast of a product's input, which is the last operation, and its attributes: what is between two products is cast by the one before,
    forward and backward, unless it is made again."""
    assert attrs.gradient_cast is not None
    cast, gradient = replace(k.ops[-1].of(Cast), together=True), replace(attrs.gradient_cast, together=True)
    if behind:
        cast = cast.inside
    else:
        gradient = gradient.inside
    k.ops[-1] = replace(k.ops[-1], attrs=cast)
    return x, replace(attrs, gradient_cast=gradient, joined="behind" if behind else "before")


def te_combine(k: Kernels, op: Op) -> None:
    """The exchange back, then unpermute: probabilities were applied inside the experts, so only the map is kept; where they
    are applied here, the rows and the probabilities are (Megatron-Core 0.12 moe_utils.py unpermute)."""
    y, weights, indices = op.inputs
    strategy, at = k.profile.strategy, op.of(Exchange)
    if strategy.moe_paged_stash:
        _copy_to_pages(k)
    if pads_rows(k):
        short = k.make("unpadded", k.dims_of(y), k.tensors[y].dtype)
        k.emit("copy", [y], [short], name="unpad")
        y, op = short, replace(op, inputs=(short, weights, indices))
    if strategy.moe_token_dispatcher_type == "flex":
        fuse_flex.combine(k, op)
        return
    if strategy.moe_token_dispatcher_type == "allgather":
        sent = Sent("combined tokens", k.dims_of(op.outputs[0]), _weight_dtype(k), "combined tokens")
        k.emit("exchange_scatter", [y, indices], op.outputs, attrs=replace(at, sent=(sent,)), idle=frozenset({"etp"}))
        return
    sent_dims = ("E_r", "C") if strategy.moe_pad_expert_input_to_capacity else k.dims_of(indices)
    back = k.make("returned", [*sent_dims, at.width], k.tensors[y].dtype)
    k.emit("exchange_back", [y], [back], name="exchange", attrs=at)
    if probabilities_at_combine(k):
        probabilities = next(o for o in k.ops if o.kind == "top_k").outputs[0]
        k.emit("unpermute", [back, probabilities, indices], op.outputs, saves=[back, probabilities])
        return
    k.emit("unpermute", [back, indices], op.outputs)


def _copy_to_pages(k: Kernels) -> None:
    """What experts keep of their rows lies in a buffer of a fixed size until it is copied to pages, and again where backward reads it
    (moe/paged_stash.py, on a stream beside kernels that HBM binds as well)."""
    of_experts = (t for op in k.ops if op.module == "experts" and isinstance(op.attrs, Projection | Activation) for t in op.saves)
    kept = [t for t in dict.fromkeys(of_experts) if "R" in k.dims_of(t)[:-1] and not discarded(k, t)]
    pages = [k.make(f"pages{i}", k.dims_of(t), k.tensors[t].dtype, "index") for i, t in enumerate(kept)]
    k.emit("copy_to_pages", kept, pages, name="copy_to_pages")
