"""The `eager` profile: Hugging Face modules (transformers 5.23) run op by op under PyTorch autograd (2.13).

A declared operation becomes the aten operations its module runs; what each keeps for backward follows from
its row of `OPERATIONS` alone (torch tools/autograd/derivatives.yaml). Casts and copies make new storage, views do not, and a tensor's `dims`
are in memory order. Storage that autograd saves on a branch it drops afterwards is not counted. Modules that are taken for
their plainer relatives: Llama 4's router and experts (which run every expert on every token), and the experts of DBRX and Step 3.5 (a loop).
"""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.expr import expr
from symsim.frameworks import alternating, streams
from symsim.frameworks.eager_attention import eager_attention, eager_mla_rope, eager_pack, eager_rope
from symsim.frameworks.eager_lightning import eager_lightning
from symsim.frameworks.eager_linear_attention import eager_convolution, eager_delta_rule, eager_kda
from symsim.frameworks.eager_modules import module_code
from symsim.frameworks.eager_pooling import eager_pool_tokens
from symsim.frameworks.eager_state_space import eager_state_space
from symsim.frameworks.kernels import (
    INDEXER,
    Kernels,
    Lowering,
    einsum,
    gathered_logits,
    grouped,
    joined_linear,
    keep,
    pool,
    z_loss,
)
from symsim.frameworks.linear_loss import BY_PIECES, COMPILED, chunked_rows
from symsim.frameworks.padding import PADDING
from symsim.frameworks.primitives import cast, dropped, in_order, run, unique
from symsim.frameworks.selective_scan import eager_selective_scan
from symsim.ir.block import Op
from symsim.ir.operations import PRODUCTS, Activation, CrossEntropy, Exchange, Norm, Projection, Rope, TopK, View


def declared_primitive(k: Kernels, op: Op) -> None:
    """A declared operation that is one aten operation."""
    y, inputs = op.outputs[0], list(op.inputs)
    if op.kind == "multiply":  # in one memory order, and in fp32 where an operand is
        inputs = [in_order(k, x, k.dims_of(y)) if set(k.dims_of(x)) == set(k.dims_of(y)) else x for x in inputs]
        wide = "fp32" if "fp32" in [k.tensors[x].dtype for x in inputs] else k.tensors[y].dtype
        if wide != k.tensors[y].dtype:
            cast(k, run(k, "mul", inputs, k.dims_of(y), wide), k.tensors[y].dtype, into=y)
            return
    run(k, "mul" if op.kind == "multiply" else op.kind, inputs, k.dims_of(y), k.tensors[y].dtype, into=y)


def eager_linear(k: Kernels, op: Op) -> None:
    """F.linear for each projection, or one for all where the module has a fused weight (`fused`)."""
    at, count, summed = op.of(Projection), len(op.outputs), op.einsums[0].contracted
    dims = k.dims_of(op.inputs[0])
    code = module_code(k.profile.model)
    x = in_order(k, op.inputs[0], [*(d for d in dims if d not in summed), *summed])
    parameters, saves = op.inputs[1:], [x]
    if at.labels == ("router",) and code.router_in_fp32:
        x = cast(k, x, "fp32")
        saves = [x] if code.router_weight_in_fp32 else [x, cast(k, parameters[0], "fp32")]
        k.retype(op.outputs[0], dtype="fp32")
    if at.labels == ("correction_coefs",):  # clamped in training (Gemma3nTextAltUp.correct)
        saves = [x, run(k, "clamp", [parameters[0]], kind="index")]
    joined = code.shared_gate_up_joined and op.module == "shared_experts"
    if (at.fused or joined) and count > 1:
        heads = op.module == "attention"
        joined_linear(k, op, x, saves, parts=View(indexed=heads and code.qkv_indexed, heads_first=heads and code.qkv_heads_first))
        return
    apart = 0
    if at.together > 1:
        apart, first = at.together, slice(at.together)
        part = replace(
            op,
            inputs=(op.inputs[0], *parameters[:count][first], *parameters[count:][first]),
            outputs=op.outputs[first],
            einsums=op.einsums[first],
        )
        joined_linear(k, part, x, saves, replace(at, labels=at.labels[first]), at.labels[0])
    for i, (label, y, says) in list(enumerate(zip(at.labels, op.outputs, op.einsums, strict=True)))[apart:]:
        einsum(k, x, list(parameters[i::count]), y, says, at, saves=saves, name=label if count > 1 else "")


def eager_norm(k: Kernels, op: Op) -> None:
    """native_layer_norm, or the pieces an RMSNorm module is written in."""
    x, *parameters = op.inputs
    code, over, y = module_code(k.profile.model), op.of(Norm).over, op.outputs[0]
    precision = k.tensors[y].dtype if k.types is None else k.tensors[x].dtype
    rows = [d for d in k.dims_of(x) if d not in over]
    if op.of(Norm).norm == "LayerNorm" and code.norm_by_steps:
        centred = run(k, "sub", [x, run(k, "mean", [x], rows, kind="index", op_kind="norm", over=over)])
        variance = run(k, "mean", [run(k, "pow", [centred])], rows, kind="index", op_kind="norm", over=over)
        unscaled = run(k, "div", [centred, run(k, "sqrt", [run(k, "add", [variance], kind="index")], kind="index")])
        run(k, "add", [run(k, "mul", [unscaled, parameters[0]]), *parameters[1:]], into=y)
        return
    if op.of(Norm).norm == "LayerNorm" and not code.centred_norm:
        statistics = [k.make(n, rows, "fp32", "index") for n in ("mean", "rstd")]
        x = cast(k, x, "fp32") if code.norm_in_fp32 else x
        shifted = [run(k, "add", parameters[:1], kind="index")] if op.of(Norm).unit_offset else []
        normed = k.make("normed", k.dims_of(x), "fp32") if code.norm_in_fp32 and precision != "fp32" else y
        k.emit("norm", [x, *parameters], [normed, *statistics], saves=[x, *statistics, *shifted], attrs=op.attrs)
        if normed != y:
            cast(k, normed, precision, into=y)
        return
    x = cast(k, x, "fp32")
    if op.of(Norm).norm == "LayerNorm":
        mean = run(k, "mean", [x], rows, kind="index", op_kind="norm", over=over)
        squared, x = (run(k, "sub", [x, mean]) for _ in range(2))
    else:
        squared = x
    variance = run(k, "mean", [run(k, "pow", [squared])], rows, kind="index", op_kind="norm", over=over)
    by_power = code.norm_by_power or (code.plain_norm_by_power and not parameters)
    scale = run(k, "pow" if by_power else "rsqrt", [variance], kind="index")
    if not parameters and code.norm_scale_cast and k.tensors[op.inputs[0]].dtype != "fp32":
        run(k, "mul", [op.inputs[0], cast(k, scale, precision)], k.dims_of(x), into=y)
        return
    unscaled = run(k, "mul", [x, scale])
    if not parameters:
        cast(k, unscaled, precision, into=y)
    elif op.of(Norm).unit_offset:
        weight = run(k, "add", [parameters[0]], dtype="fp32", kind="index")
        cast(k, run(k, "mul", [unscaled, weight], of=parameters), precision, into=y)
    elif over == ("D_v",) and code.gated_norm_in_fp32:
        run(k, "mul", [cast(k, parameters[0], "fp32"), unscaled], k.dims_of(x), of=parameters, into=y)
        k.retype(y, dtype="fp32")
    elif (code.norm_weight_in_fp32 and over != ("D_v",)) or code.centred_norm:  # other gated norms of delta nets are as Llama's in every family
        weight = cast(k, parameters[0], "fp32") if code.centred_norm or code.norm_weight_cast else parameters[0]
        cast(k, run(k, "mul", [weight, unscaled], k.dims_of(x), "fp32", of=[] if weight in parameters else parameters), precision, into=y)
    else:
        own = precision if k.types is None else None
        run(k, "mul", [parameters[0], cast(k, unscaled, precision)], k.dims_of(x), own, into=y)


def eager_activation(k: Kernels, op: Op) -> None:
    """act(gate) * up, or act(x). Routing weights are applied after the experts, not here."""
    y, at = op.outputs[0], op.of(Activation)
    function = at.function
    gate, *rest = op.inputs[:2] if at.gated else op.inputs[:1]
    if at.in_fp32:
        gate = cast(k, gate, "fp32")
        k.retype(y, dtype="fp32")
    if function == "swiglu_clamped":
        clamped = run(k, "clamp", [gate])
        gated = run(k, "mul", [clamped, run(k, "sigmoid", [run(k, "scale", [clamped])])])
        run(k, "mul", [run(k, "add", [run(k, "clamp", rest)]), gated], into=y)
        return
    code = module_code(k.profile.model)
    wide = at.gated and code.glu_in_fp32
    if wide:
        gate, *rest = (cast(k, part, "fp32") for part in op.inputs[:2])
    result = "" if at.gated else y
    if function == "gelu_new":
        half = run(k, "scale", [gate])
        inner = run(k, "scale", [run(k, "add", [gate, run(k, "scale", [run(k, "pow", [gate])])])])
        result = run(k, "mul", [half, run(k, "add", [run(k, "tanh", [inner])])], into=result)
    elif function == "gelu_python":
        half, error = run(k, "scale", [gate]), run(k, "erf", [run(k, "scale", [gate])])
        result = run(k, "mul", [half, run(k, "add", [error])], into=result)
    elif function == "gelu_fast":
        half, linear = run(k, "scale", [gate]), run(k, "scale", [gate])
        cubic = run(k, "add", [run(k, "mul", [run(k, "scale", [gate]), gate])])
        result = run(k, "mul", [half, run(k, "add", [run(k, "tanh", [run(k, "mul", [linear, cubic])])])], into=result)
    elif function == "quick_gelu":
        result = run(k, "mul", [gate, run(k, "sigmoid", [run(k, "scale", [gate])])], into=result)
    elif function == "relu2":
        result = run(k, "pow", [run(k, "relu", [gate])], into=result)
    elif function == "xielu":  # where(x > 0, a x x + x / 2, (expm1(min(x, eps)) - x) b + x / 2)
        slopes = [k.make(name, ["one"], k.tensors[gate].dtype, "index") for name in ("slope_above", "slope_below")]
        k.emit("constant", [], slopes, name="slopes")
        is_above = run(k, "scale", [gate], dtype="bool", kind="index")
        above = run(k, "mul", [run(k, "times_number", [gate, slopes[0]]), gate])
        above = run(k, "add", [above, run(k, "scale", [gate])])
        below = run(k, "times_number", [run(k, "sub", [run(k, "expm1", [run(k, "minimum", [gate])]), gate]), slopes[1]])
        below = run(k, "add", [below, run(k, "scale", [gate])])
        result = run(k, "where", [above, below, is_above], into=result)
    else:
        result = run(k, "gelu" if function.startswith("gelu") else function, [gate], into=result)
    if wide:
        cast(k, run(k, "mul", [result, rest[0]]), k.tensors[y].dtype, into=y)
    elif at.gated and code.glu_clamps:
        run(k, "mul", [run(k, "clamp", [result]), run(k, "clamp", rest)], into=y)
    elif at.gated:
        run(k, "mul", [result, rest[0]], into=y)


def eager_add(k: Kernels, op: Op) -> None:
    """The residual stream, after dropout of what is added to it, times a number in some families."""
    left, right = op.inputs
    if not op.module and "residual" in module_code(k.profile.model).factors:
        left = run(k, "scale", [left])
    run(k, "add", [dropped(k, left, k.profile.model.hidden_dropout), right], into=op.outputs[0])


def eager_embed(k: Kernels, op: Op) -> None:
    """Keeps the ids; a scaled embedding (Gemma) also the scale, where that is a tensor of one number."""
    ids, table = op.inputs
    by_number = "embedded" in module_code(k.profile.model).factors
    if not k.profile.model.embedding_scale and not by_number:
        k.emit("embed", op.inputs, op.outputs, saves=[ids], attrs=op.attrs)
        return
    rows = k.make("rows", k.dims_of(op.outputs[0]), k.tensors[op.outputs[0]].dtype)
    k.emit("embed", [ids, table], [rows], saves=[ids], name="rows", attrs=op.attrs)
    if by_number:
        run(k, "scale", [rows], into=op.outputs[0])
        return
    run(k, "mul", [rows, k.make("scale", [], k.tensors[rows].dtype, "table")], into=op.outputs[0])


def eager_clip(k: Kernels, op: Op) -> None:
    """Clamp keeps what it clamps: each tensor, or queries, keys and values at once where one GEMM made them; gate and values never are."""
    whole = {k.tensors[x].view_of for x in op.inputs}
    if op.module == "attention" and len(whole) == 1 and None not in whole:
        (x,) = whole
        assert x is not None
        joined = run(k, "clamp", [x])
        for y in op.outputs:
            k.retype(y, view_of=joined)
        k.emit("view", [joined], op.outputs, name="split")
        return
    for x, y in zip(op.inputs, op.outputs, strict=True):
        run(k, "clamp", [x], into=y)


def eager_positions(k: Kernels, op: Op) -> None:
    """Learned positions: an embedding of the same ids for every sequence."""
    ids = k.make("position_ids", ["s"], "int64", "index")
    k.emit("add", op.inputs, [*op.outputs, ids], saves=[ids])


def eager_dropout(k: Kernels, op: Op) -> None:
    """nn.Dropout of what the stream begins with (GPT2Model.drop)."""
    run(k, "dropout", op.inputs, also=[k.make("mask", k.dims_of(op.inputs[0]), "bool", "index")], into=op.outputs[0])


def eager_cross_entropy(k: Kernels, op: Op) -> None:
    """ForCausalLMLoss (loss/loss_utils.py): fp32 logits; log_softmax keeps its result, nll_loss that, the labels and the
    total weight. Over a sharded vocabulary: torch.distributed.tensor.parallel.loss_parallel."""
    logits, target = op.inputs
    if k.profile.assumptions["loss_parallel"] == "false":
        k.source = replace(op, idle=op.idle | {"tp"})  # every rank computes the whole loss
        logits = gathered_logits(k, logits)
    if "logits" in module_code(k.profile.model).factors:
        logits = run(k, "scale", [logits])
    if k.profile.model.logit_softcap:
        logits = run(k, "scale", [run(k, "tanh", [run(k, "scale", [logits])])])
    whole, asked = k.dims_of(logits), k.profile.strategy.cross_entropy_fusion
    chunks = chunked_rows(k, whole)
    if asked in BY_PIECES:
        _by_pieces(k, op.inputs[0], k.profile.strategy.cross_entropy_chunks or 8)
    if asked == COMPILED:
        _compiled_loss(k, op, logits)
        return
    narrow = asked == "torch" or not op.of(CrossEntropy).upcast
    if not narrow and chunks != list(whole):
        logits = run(k, "cast", [logits], chunks, "fp32")
    torch_loss(k, op, logits if narrow else cast(k, logits, "fp32"), whole, chunks != list(whole))


def torch_loss(k: Kernels, op: Op, logits: str, whole: tuple[str, ...], in_chunks: bool = False) -> None:
    """log_softmax and nll_loss of logits, in their type. in_chunks: backward makes their gradient chunk by chunk, else like the kept result."""
    rows = k.dims_of(op.inputs[1])
    extra = [k.make("log_softmax", whole, k.tensors[logits].dtype, "index"), k.make("total_weight", [], k.tensors[logits].dtype, "index")]
    exchanges = [("all_reduce", 1, "fp32", w) for w in ("maximum", "sum of exponentials", "loss")] if "V" in k.dims_of(logits) else []
    attrs = CrossEntropy(exchanges=tuple(exchanges), rows=rows, inside=(logits if in_chunks else extra[0],))
    k.emit("cross_entropy", [logits, op.inputs[1]], [*op.outputs, *extra], saves=[*extra, op.inputs[1]], attrs=attrs)


def _by_pieces(k: Kernels, logits: str, pieces: int) -> None:
    """The output layer multiplies chunk by chunk (torchtune modules/transformer.py chunked_output)."""
    k.ops = [
        replace(op, attrs=replace(op.of(Projection), pieces=expr(pieces))) if logits in op.outputs and op.kind in PRODUCTS else op for op in k.ops
    ]


def _compiled_loss(k: Kernels, op: Op, logits: str) -> None:
    """Chunks of rows whose loss is one kernel each way: it keeps the logits as they are and a row's statistic, and chunk after chunk their
    gradient takes their place."""
    gradient = k.make("gradient", k.dims_of(logits), k.tensors[logits].dtype, "index", view_of=logits)
    statistic = k.make("lse", k.dims_of(op.inputs[1]), "fp32", "index")
    kept = [gradient, statistic]
    attrs = CrossEntropy(rows=k.dims_of(op.inputs[1]))
    k.emit("cross_entropy", [logits, op.inputs[1]], [*op.outputs, *kept], saves=[*kept, op.inputs[1]], attrs=attrs)


def fused_norm(k: Kernels, op: Op) -> None:
    """A norm as one kernel: keeps its input and a row's statistics (Liger-Kernel ops/rms_norm.py, layer_norm.py)."""
    x, at = op.inputs[0], op.of(Norm)
    rows = [d for d in k.dims_of(x) if d not in at.over]
    statistics = [k.make(name, rows, "fp32", "index") for name in (("mean", "rstd") if at.norm == "LayerNorm" else ("rstd",))]
    k.emit("norm", op.inputs, [*op.outputs, *statistics], saves=[x, *statistics], attrs=at)


def fused_activation(k: Kernels, op: Op) -> None:
    """An activation and its gate as one kernel: keeps its inputs (Liger-Kernel ops/swiglu.py, geglu.py)."""
    parts = list(op.inputs[:2] if op.of(Activation).gated else op.inputs[:1])
    k.emit("activation", parts, op.outputs, saves=parts, attrs=op.attrs)


def fused_rope(k: Kernels, op: Op) -> None:
    """Rotary embedding as one kernel: keeps the cosines and sines (Liger-Kernel ops/rope.py)."""
    tables = [k.make(name, ["s", op.of(Rope).head], k.tensors[op.outputs[0]].dtype, "index") for name in ("cos", "sin")]
    k.emit("rope", op.inputs, [*op.outputs, *tables], saves=tables, attrs=op.attrs)


FUSED: dict[str, Lowering] = {"norm": fused_norm, "activation": fused_activation, "rope": fused_rope}


def eager_top_k(k: Kernels, op: Op) -> None:
    """A *TopKRouter after its GEMM. Choosing among biased or grouped scores has no gradient; the weights are gathered."""
    (scores,), (weights, indices) = op.inputs, op.outputs
    code, precision, at = module_code(k.profile.model), k.profile.strategy.precision, op.of(TopK)
    chosen = k.dims_of(indices)
    z_loss(k, scores)
    if code.sparsemixer:
        sparsemixer(k, scores, weights, indices)
        return
    if code.top_k_first:
        best = run(k, "topk", [cast(k, scores, "fp32") if code.router_casts_weights else scores], chosen, also=[indices])
        if code.router_casts_weights:
            cast(k, run(k, "softmax", [best]), precision, into=weights)
        else:
            run(k, "softmax", [best], into=weights)
        return
    if code.chosen_first:
        _score_of_the_chosen(k, scores, weights, indices)
        return
    scores = scores if code.router_in_compute_type else cast(k, scores, "fp32")
    scores = run(k, "sqrt", [run(k, "softplus", [scores])]) if at.score == "sqrtsoftplus" else run(k, at.score, [scores])
    if at.score != "softmax" or code.router_gathers:
        k.emit("choose", [scores], [indices], name="choose")
        values = run(k, "gather", [scores, indices], chosen)
    else:
        if at.groups:
            mask = k.make("group_mask", k.dims_of(scores), "bool", "index")
            k.emit("choose", [scores], [mask], name="choose")
            scores = run(k, "masked_fill", [scores, mask])
        values = run(k, "topk", [scores], chosen, also=[indices])
    if at.normalise:
        total = run(k, "sum", [values], chosen[:-1])
        values = run(k, "div", [values, run(k, "clamp", [total]) if code.router_clamps else total])
    if at.per_expert:
        run(k, "mul", [values, run(k, "index", [indices], chosen, precision)], into=weights)
    elif code.router_casts_weights:
        cast(k, values, precision, into=weights)
    else:
        run(k, "scale", [values], into=weights)


def _score_of_the_chosen(k: Kernels, scores: str, weights: str, indices: str) -> None:
    """Logits of the experts that are chosen, with their biases where there are any, then their scores."""
    chosen, at, moe = k.dims_of(indices), k.source.of(TopK) if k.source else TopK(), k.profile.model.moe
    if moe and moe.moe_router_enable_expert_bias != "none":
        k.emit("choose", [scores], [indices], name="choose")
        values = run(k, "gather", [scores, indices], chosen)
    else:
        values = run(k, "topk", [scores], chosen, also=[indices])
    values = run(k, at.score, [cast(k, values, "fp32") if at.score == "softmax" else values])
    if at.normalise:
        values = run(k, "div", [values, run(k, "sum", [values], chosen[:-1])])
    if module_code(k.profile.model).router_casts_weights:
        cast(k, values, k.profile.strategy.precision, into=weights)
    else:
        run(k, "scale", [values], into=weights)


def sparsemixer(k: Kernels, scores: str, weights: str, indices: str) -> None:
    """modeling_phimoe.py sparsemixer in training: each expert's weight is read from a softmax over the scores within the
    jitter of the best, and a PhimoeMultiplier keeps that weight, the choice and the softmax."""
    rows, multipliers, choices = k.dims_of(indices)[:-1], [], []
    for _ in range(2):
        mask, choice = k.make("far", k.dims_of(scores), "bool", "index"), k.make("choice", rows, "int64", "index")
        k.emit("choose", [scores], [mask], name=unique(k, "choose"))
        gates = run(k, "softmax", [run(k, "masked_fill", [scores, mask])])
        k.emit("choose", [gates], [choice], name=unique(k, "choose"))
        value = run(k, "gather", [gates, choice], rows)
        multiplier = k.make("multiplier", rows, k.tensors[value].dtype)
        k.emit("multiplier", [scores, value, choice, gates], [multiplier], saves=[value, choice, gates], name=unique(k, "multiplier"))
        multipliers.append(multiplier)
        choices.append(choice)
    run(k, "cat", multipliers, k.dims_of(weights), into=weights)
    k.emit("choose", choices, [indices], name=unique(k, "choose"))


def eager_dispatch(k: Kernels, op: Op) -> None:
    """grouped_mm_experts_forward (integrations/moe.py): rows and weights indexed by expert order."""
    x, probabilities, indices = op.inputs
    rows, weights = op.outputs
    at = op.of(Exchange)
    dims = k.dims_of(indices)
    order, token = k.make("order", dims, "int64", "index"), k.make("token", dims, "int64", "index")
    offsets, ids = k.make("offsets", ["E"], "int32", "index"), k.make("expert_ids", ["R"], "int64", "index")
    k.emit("sort", [indices], [order, token, offsets, ids], name="sort")
    sent = run(k, "index", [x, token], (*dims, at.width))
    run(k, "index", [probabilities, order], dims, into=weights, dtype=k.tensors[probabilities].dtype)
    exchange(k, sent, rows, replace(at, counted=True), "exchange")


def exchange(k: Kernels, source: str, target: str, attrs: Exchange, kind: str) -> None:
    """Tokens between their own rank and the experts' (torchtitan's dispatcher): the same memory where no rank is left."""
    alone = k.profile.strategy.ep * k.profile.strategy.expert_tp == 1
    if alone:
        k.retype(target, view_of=source)
    k.emit("view" if alone else kind, [source], [target], name=kind, attrs=None if alone else attrs)


def eager_grouped(k: Kernels, op: Op) -> None:
    """grouped_mm keeps its input and the int32 offsets of the experts; a bias is gathered by expert."""
    _, _, offsets, ids = next(o for o in k.ops if o.kind == "sort").outputs
    grouped(k, op, op.inputs[0], [op.inputs[0], offsets, *([ids] if op.of(Projection).bias else [])], op.of(Projection))


def eager_combine(k: Kernels, op: Op) -> None:
    """Rows times their weights, in the order of tokens again, summed over the K experts of each."""
    y, weights, indices = op.inputs
    at = op.of(Exchange)
    dims = (*k.dims_of(indices), at.width)
    home = k.make("returned", dims, k.tensors[y].dtype)
    exchange(k, y, home, at, "exchange_back")
    weighted = home
    if k.profile.model.moe is None or not k.profile.model.moe.router_weight_before_experts:
        wide = "fp32" if "fp32" in (k.tensors[home].dtype, k.tensors[weights].dtype) else k.tensors[home].dtype
        weighted = run(k, "mul", [home, weights], dtype=wide)
    inverse = k.make("inverse_order", k.dims_of(indices), "int64", "index")
    k.emit("sort", [indices], [inverse], name="sort")
    z = run(k, "sum", [run(k, "index", [weighted, inverse])], k.dims_of(op.outputs[0]))
    cast(k, z, k.tensors[op.outputs[0]].dtype, into=op.outputs[0])


LOWERINGS: dict[str, Lowering] = {
    **PADDING,
    "linear": eager_linear,
    "norm": eager_norm,
    "rope": eager_rope,
    "rope_part": eager_mla_rope,
    "rope_concat": eager_mla_rope,
    "pack": eager_pack,
    "attention": eager_attention,
    "activation": eager_activation,
    "add": eager_add,
    "sigmoid": declared_primitive,
    "softmax": declared_primitive,
    **dict.fromkeys(("multiply", "sum", "exp", "repeat"), declared_primitive),
    "embed": eager_embed,
    "add_positions": eager_positions,
    "dropout": eager_dropout,
    "cross_entropy": eager_cross_entropy,
    "pool": pool,
    "top_k": eager_top_k,
    "dispatch": eager_dispatch,
    "grouped": eager_grouped,
    "combine": eager_combine,
    "concat": keep,
    "convolution": eager_convolution,
    **INDEXER,
    "lightning": eager_lightning,
    "pool_tokens": eager_pool_tokens,
    "delta_rule": eager_delta_rule,
    "selective_scan": eager_selective_scan,
    "state_space": eager_state_space,
    "kda": eager_kda,
    **{**streams.EAGER, **alternating.EAGER},
    "clip": eager_clip,
}
