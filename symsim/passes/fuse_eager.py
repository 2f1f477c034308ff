"""The `eager` profile: Hugging Face modules (transformers 5.23) run op by op under PyTorch autograd (2.13).

A declared operation becomes the aten operations its module runs; what each keeps for backward follows from `KEEPS`
alone (torch tools/autograd/derivatives.yaml). Casts and copies make new storage, views do not, and a tensor's `dims`
are in memory order. Storage that autograd saves on a branch it drops afterwards is not counted. Three modules are taken for
their plainer relatives: PhiMoE's sparsemixer router, Llama 4's router and experts (which run every expert on every token),
and DBRX's bf16 router; Qwen3-Next's convolution and delta rule keep their inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from symsim.expr import expr
from symsim.ir import Dim, Op, Tensor
from symsim.passes.kernels import (
    Kernels,
    Lowering,
    attention_products,
    convolution,
    delta_rule,
    einsum,
    gathered_logits,
    grouped,
    joined_linear,
    keep,
)

# What an aten operation keeps. partners: each operand whose partner needs a gradient; integers: indices, offsets and masks.
KEEPS = {
    "mul": "partners",
    "div": "inputs",
    "pow": "inputs",
    "silu": "inputs",
    "gelu": "inputs",
    "clamp": "inputs",
    "gather": "inputs",
    "rsqrt": "result",
    "sigmoid": "result",
    "tanh": "result",
    "relu": "result",
    "softmax": "result",
    "index": "integers",
    "topk": "integers",
    "max": "integers",
    "masked_fill": "integers",
    "dropout": "integers",
}  # cast, copy, repeat, cat, add, sum, mean and scale (by a number) keep nothing

# Facts of module code that no config key tells (src/transformers/models/<model_type>/modeling_<model_type>.py).
WEIGHT_IN_FP32 = frozenset({"olmo2", "gpt_oss"})  # *RMSNorm: (weight * x).to(dtype), where Llama casts x first
NORM_IN_FP32 = frozenset({"olmo"})  # OlmoLayerNorm: layer_norm of an fp32 copy
CENTRED_NORM = frozenset({"cohere"})  # CohereLayerNorm: written out in fp32, with an fp32 weight
ROTARY_CONCATENATES = frozenset({"phi3", "gpt_oss", "glm4", "glm4_moe", "gpt_neox", "minimax_m2", "stablelm"})  # apply_rotary_pos_emb ends in a cat
ROTARY_IN_FP32 = frozenset({"olmo", "olmo2"})  # *RotaryEmbedding leaves cos and sin in fp32
ROTARY_HALF = frozenset({"gpt_oss"})  # tables of half the width
ROTARY_COMPLEX = frozenset({"deepseek_v2", "llama4_text"})  # one complex64 table in place of cos and sin
SOFTMAX_IN_COMPUTE_TYPE = frozenset({"gpt2", "falcon", "gpt_oss", "llama4_text"})  # eager_attention_forward without dtype=float32
ROUTER_IN_FP32 = frozenset({"deepseek_v2", "deepseek_v3", "glm4_moe", "dots1", "ernie4_5_moe"})  # F.linear of fp32 copies of x and weight
ROUTER_CASTS_WEIGHTS = frozenset({"qwen2_moe", "qwen3_moe", "qwen3_next", "olmoe", "ernie4_5_moe"})  # top-k weights .to(dtype)
ROUTER_GATHERS = frozenset({"ernie4_5_moe"})  # weights gathered by indices chosen from biased scores, as all sigmoid routers do
TOP_K_FIRST = frozenset({"gpt_oss"})  # softmax over the chosen experts only; every other softmax router is over all


# ---------------------------------------------------------------- primitives


def needs_gradient(k: Kernels, name: str) -> bool:
    """Statistics and copies of parameters (kind index) need one when what they are made from does."""
    tensor = k.tensors[name]
    if tensor.kind in ("activation", "parameter"):
        return True
    if tensor.kind == "table" or tensor.dtype not in ("fp32", "bf16", "fp16"):
        return False
    maker = next((op for op in reversed(k.ops) if name in op.outputs), None)
    return maker is not None and any(needs_gradient(k, t) for t in maker.inputs)


def kept(k: Kernels, primitive: str, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """The tensors a primitive keeps, by its row of `KEEPS`."""
    rule = KEEPS.get(primitive)
    if rule == "inputs":
        return list(inputs)
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
    like = k.tensors[inputs[0]]
    shape, width = tuple(dims) if dims is not None else like.dims, dtype or like.dtype
    if into:
        k.retype(into, dims=shape, dtype=width)
    y = into or k.make(primitive, shape, width, kind)
    attrs = {"over": tuple(over)} if over is not None else None
    k.emit(op_kind or primitive, [*inputs, *of], [y, *also], saves=kept(k, primitive, inputs, (y, *also)), name=unique(k, primitive), attrs=attrs)
    return y


def unique(k: Kernels, name: str) -> str:
    """A name no operation of the block has yet."""
    assert k.source is not None
    taken = {op.name for op in k.ops if op.name.startswith(k.source.name)}
    return next(c for c in (name, *(f"{name}_{i}" for i in range(2, 1000))) if f"{k.source.name}.{c}" not in taken)


def cast(k: Kernels, x: str, dtype: str, *, into: str = "") -> str:
    """x.to(dtype): x itself when it has that type already. A parameter's copy carries its gradient to the parameter."""
    if k.tensors[x].dtype == dtype and not into:
        return x
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


def declared_primitive(k: Kernels, op: Op) -> None:
    """A declared operation that is one aten operation."""
    primitive = "mul" if op.kind == "multiply" else op.kind
    run(k, primitive, op.inputs, k.dims_of(op.outputs[0]), k.tensors[op.outputs[0]].dtype, into=op.outputs[0])


# ---------------------------------------------------------------- linear maps, norms, rotary embedding


def eager_linear(k: Kernels, op: Op) -> None:
    """F.linear for each projection, or one for all where the module has a fused weight (op.attrs fused)."""
    contract, count = op.attrs["contract"], len(op.outputs)
    dims = k.dims_of(op.inputs[0])
    x = in_order(k, op.inputs[0], [*(d for d in dims if d not in contract), *contract])
    parameters, saves = op.inputs[1:], [x]
    if op.attrs["labels"] == ("router",) and k.profile.model.modelling in ROUTER_IN_FP32:
        x = cast(k, x, "fp32")
        saves = [x, cast(k, parameters[0], "fp32")]
        k.retype(op.outputs[0], dtype="fp32")
    if op.attrs["fused"] and count > 1:
        joined_linear(k, replace(op, inputs=(x, *parameters)), saves)
        return
    for i, (label, y) in enumerate(zip(op.attrs["labels"], op.outputs, strict=True)):
        einsum(k, x, list(parameters[i::count]), y, contract, name=label if count > 1 else "", saves=saves, attrs=op.attrs)


def eager_norm(k: Kernels, op: Op) -> None:
    """native_layer_norm, or the pieces an RMSNorm module is written in."""
    x, *parameters = op.inputs
    family, over, y = k.profile.model.modelling, op.attrs["over"], op.outputs[0]
    precision = k.tensors[y].dtype
    rows = [d for d in k.dims_of(x) if d not in over]
    if op.attrs["norm"] == "LayerNorm" and family not in CENTRED_NORM:
        statistics = [k.make(n, rows, "fp32", "index") for n in ("mean", "rstd")]
        x = cast(k, x, "fp32") if family in NORM_IN_FP32 else x
        k.emit("norm", [x, *parameters], [y, *statistics], saves=[x, *statistics], attrs=op.attrs)
        return
    x = cast(k, x, "fp32")
    if op.attrs["norm"] == "LayerNorm":
        mean = run(k, "mean", [x], rows, kind="index", op_kind="norm", over=over)
        squared, x = (run(k, "sub", [x, mean]) for _ in range(2))
    else:
        squared = x
    variance = run(k, "mean", [run(k, "pow", [squared])], rows, kind="index", op_kind="norm", over=over)
    scale = run(k, "rsqrt", [variance], kind="index")
    unscaled = run(k, "mul", [x, scale])
    if not parameters:
        cast(k, unscaled, precision, into=y)
    elif op.attrs["unit_offset"]:
        weight = run(k, "add", [parameters[0]], dtype="fp32", kind="index")
        cast(k, run(k, "mul", [unscaled, weight], of=parameters), precision, into=y)
    elif family in WEIGHT_IN_FP32 | CENTRED_NORM:
        weight = cast(k, parameters[0], "fp32") if family in CENTRED_NORM else parameters[0]
        cast(k, run(k, "mul", [weight, unscaled], k.dims_of(x), "fp32", of=[] if weight in parameters else parameters), precision, into=y)
    else:
        run(k, "mul", [parameters[0], cast(k, unscaled, precision)], k.dims_of(x), precision, into=y)


def tables(k: Kernels, head: str, fraction: float) -> list[str]:
    """Rotary tables, made once for all layers: cos and sin [s rotary], or one of complex numbers [s rotary/2]."""
    family = k.profile.model.modelling
    rotary = head
    if family in ROTARY_HALF:
        fraction /= 2
    if fraction != 1:
        rotary = f"{head}_rotary"
        k.dims.setdefault(rotary, Dim(k.dims[head].size * expr(Fraction(str(fraction)))))
    names = ("rotary.freqs",) if family in ROTARY_COMPLEX else ("rotary.cos", "rotary.sin")
    dtype = "fp32" if family in ROTARY_IN_FP32 | ROTARY_COMPLEX else k.profile.strategy.precision
    for name in names:
        k.tensors.setdefault(name, Tensor(name, ("s", rotary), dtype, "table", None, "attention"))
    return list(names)


def eager_rope(k: Kernels, op: Op) -> None:
    """x * cos + rotate_half(x) * sin, in x's memory order; a module that ends in a cat makes [b heads s d]."""
    (x,), (y,) = op.inputs, op.outputs
    turned = [run(k, "mul", [x, table], dtype=k.tensors[table].dtype) for table in tables(k, op.attrs["head"], op.attrs["fraction"])]
    b, s, heads, d = k.dims_of(x)
    if op.attrs["fraction"] < 1 or k.profile.model.modelling in ROTARY_CONCATENATES:
        run(k, "cat", turned, (b, heads, s, d), into=y)
    else:
        cast(k, run(k, "add", turned), k.tensors[y].dtype, into=y)


def eager_mla_rope(k: Kernels, op: Op) -> None:
    """Multi-head latent attention puts the turned part beside the other one: new storage [b a s d]."""
    b, s, heads, d = k.dims_of(op.outputs[0])
    part = op.inputs[-1]
    if op.kind == "rope_part":
        part = k.make("turned_part", (*k.dims_of(part)[:-1], op.attrs["head"]), k.tensors[part].dtype, view_of=part)
        k.emit("view", [op.inputs[0]], [part], name="split")
    for table in tables(k, op.attrs["head"], 1):
        turned = run(k, "mul", [part, table])
    run(k, "cat", [op.inputs[0], turned], (b, heads, s, d), into=op.outputs[0])


def eager_pack(k: Kernels, op: Op) -> None:
    """Values stay a slice of what kv_b_proj made, and keep all of it."""
    k.retype(op.outputs[0], view_of=op.inputs[0])
    k.emit("view", op.inputs, op.outputs)


# ---------------------------------------------------------------- attention


def eager_attention(k: Kernels, op: Op) -> None:
    """One of four kernels (assumption attention_kernel). The two written in aten operations are one operation here, so
    that context parallelism sees one attention; it keeps what their two matrix products and the softmax keep.
    """
    kernel = k.profile.assumptions["attention_kernel"]
    q, key, value, *offsets = op.inputs
    lowering = {"flash": flash_attention, "efficient": efficient_attention, "math": math_attention, "eager": written_attention}[kernel]
    lowering(k, op, q, key, value, offsets)


def repeated(k: Kernels, op: Op, x: str) -> str:
    """Keys or values repeated to every query head: new storage, when there are fewer of them."""
    model = k.profile.model
    if op.attrs["groups"] == op.attrs["heads"] or model.query_groups == model.attention.num_attention_heads:
        return x
    return run(k, "repeat", [x], ["b", op.attrs["heads"], "s", k.dims_of(x)[-1]])


def flash_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """_scaled_dot_product_flash_attention: keeps q, k, v, out, log-sum-exp and 24 bytes of random state; the result is in
    the memory order of the queries."""
    o, heads = op.outputs[0], op.attrs["heads"]
    k.retype(o, dims=(*k.dims_of(q)[:-1], op.attrs["value_dim"]))
    k.dims.setdefault("seed_and_offset", Dim(expr(2)))
    extra = [
        k.make("lse", ["b", heads, "s"], "fp32", "index"),
        k.make("rng_state", ["seed_and_offset"], "uint64", "index"),
        k.make("unused", [], "uint64", "index"),
    ]
    forward, backward = attention_products(op, flash=True)
    k.emit("attention", [q, key, value, *offsets], [o, *extra], saves=[q, key, value, o, *extra], products=forward, backward=backward, attrs=op.attrs)


def efficient_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """_scaled_dot_product_efficient_attention: the same for one head count, with 16 bytes of random state; the result is
    always [b s a d]."""
    key, value = repeated(k, op, key), repeated(k, op, value)
    extra = [
        k.make("lse", ["b", op.attrs["heads"], "s"], "fp32", "index"),
        k.make("philox_seed", [], "int64", "index"),
        k.make("philox_offset", [], "int64", "index"),
    ]
    forward, backward = attention_products(op, flash=True)
    k.emit(
        "attention",
        [q, key, value, *offsets],
        [*op.outputs, *extra],
        saves=[q, key, value, op.outputs[0], *extra],
        products=forward,
        backward=backward,
        attrs=op.attrs,
    )


def math_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """_scaled_dot_product_attention_math: fp32, queries and keys scaled first (new storage)."""
    precision, at = k.tensors[q].dtype, op.attrs
    operands = [cast(k, t, "fp32") for t in (q, key, value)]
    operands = [operands[0], *(repeated(k, op, t) for t in operands[1:])]
    operands = [run(k, "scale", [t]) for t in operands[:2]] + operands[2:]
    operands = [in_order(k, t, ["b", at["heads"], "s", k.dims_of(t)[-1]]) for t in operands]
    scores = k.make("probabilities", ["b", at["heads"], "s", "z"], "fp32", "index")
    result = k.make("out", ["b", at["heads"], "s", at["value_dim"]], "fp32")
    forward, backward = attention_products(op, flash=False)
    k.emit("attention", [*operands, *offsets], [result, scores], saves=[*operands, scores], products=forward, backward=backward, attrs=at)
    k.retype(op.outputs[0], dims=k.dims_of(result))
    cast(k, result, precision, into=op.outputs[0])


def written_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """eager_attention_forward of the modules: bmm, softmax (in fp32 and cast back, in most), bmm, then a copy to [b s a d].

    A softcap adds a tanh; sinks add a column to the scores, and the index of the largest score.
    """
    model, at = k.profile.model, op.attrs
    precision = k.tensors[q].dtype
    operands = [in_order(k, t, ["b", at["heads"], "s", k.dims_of(t)[-1]]) for t in (q, repeated(k, op, key), repeated(k, op, value))]
    keys = "z"
    made: list[str] = []

    def scores(name: str, dtype: str, dims: Iterable[str] = ()) -> None:
        made.append(k.make(name, tuple(dims) or ("b", at["heads"], "s", keys), dtype, "index"))

    if model.attention.logit_softcap:
        scores("capped", precision)
    if offsets:
        keys = "z_and_sink"
        k.dims.setdefault(keys, Dim(k.dims["z"].size + 1))
        scores("largest", "int64", ["b", at["heads"], "s"])
    if model.modelling in SOFTMAX_IN_COMPUTE_TYPE:
        scores("probabilities", precision)
    else:
        scores("softmax", "fp32")
        if not model.attention_dropout and precision != "fp32":
            scores("probabilities", precision)
    if model.attention_dropout:
        scores("mask", "bool")
        scores("dropped", precision)
    result = k.make("out", ["b", at["heads"], "s", at["value_dim"]], precision)
    forward, backward = attention_products(op, flash=False)
    k.emit("attention", [*operands, *offsets], [result, *made], saves=[*operands, *made], products=forward, backward=backward, attrs=at)
    run(k, "copy", [result], k.dims_of(op.outputs[0]), into=op.outputs[0])


# ---------------------------------------------------------------- elementwise operations, embedding, loss


def eager_activation(k: Kernels, op: Op) -> None:
    """act(gate) * up, or act(x). Routing weights are applied after the experts, not here."""
    y, function = op.outputs[0], op.attrs["function"]
    gate, *rest = op.inputs[:2] if op.attrs["gated"] else op.inputs[:1]
    if function == "swiglu_clamped":
        clamped = run(k, "clamp", [gate])
        gated = run(k, "mul", [clamped, run(k, "sigmoid", [run(k, "scale", [clamped])])])
        run(k, "mul", [run(k, "add", [run(k, "clamp", rest)]), gated], into=y)
        return
    result = "" if op.attrs["gated"] else y
    if function == "gelu_new":
        half = run(k, "scale", [gate])
        inner = run(k, "scale", [run(k, "add", [gate, run(k, "scale", [run(k, "pow", [gate])])])])
        result = run(k, "mul", [half, run(k, "add", [run(k, "tanh", [inner])])], into=result)
    elif function == "relu2":
        result = run(k, "pow", [run(k, "relu", [gate])], into=result)
    else:
        result = run(k, "gelu" if function.startswith("gelu") else function, [gate], into=result)
    if op.attrs["gated"]:
        run(k, "mul", [result, rest[0]], into=y)


def eager_add(k: Kernels, op: Op) -> None:
    """The residual stream, after dropout of what is added to it."""
    left, right = op.inputs
    run(k, "add", [dropped(k, left, k.profile.model.hidden_dropout), right], into=op.outputs[0])


def eager_embed(k: Kernels, op: Op) -> None:
    """Keeps the ids; a scaled embedding (Gemma) also the scale, a tensor of one number."""
    ids, table = op.inputs
    if not k.profile.model.embedding_scale:
        k.emit("embed", op.inputs, op.outputs, saves=[ids])
        return
    rows = k.make("rows", k.dims_of(op.outputs[0]), k.tensors[op.outputs[0]].dtype)
    k.emit("embed", [ids, table], [rows], saves=[ids], name="rows")
    run(k, "mul", [rows, k.make("scale", [], k.tensors[rows].dtype, "table")], into=op.outputs[0])


def eager_positions(k: Kernels, op: Op) -> None:
    """Learned positions: an embedding of the same ids for every sequence."""
    ids = k.make("position_ids", ["s"], "int64", "index")
    k.emit("add", op.inputs, [*op.outputs, ids], saves=[ids])


def eager_cross_entropy(k: Kernels, op: Op) -> None:
    """ForCausalLMLoss (loss/loss_utils.py): fp32 logits; log_softmax keeps its result, nll_loss that, the labels and the
    total weight. Over a sharded vocabulary: torch.distributed.tensor.parallel.loss_parallel."""
    logits, target = op.inputs
    if k.profile.assumptions["loss_parallel"] == "false":
        k.source = replace(op, idle=op.idle | {"tp"})  # every rank computes the whole loss
        logits = gathered_logits(k, logits)
    if k.profile.model.logit_softcap:
        logits = run(k, "scale", [run(k, "tanh", [run(k, "scale", [logits])])])
    if op.attrs.get("upcast", True):
        logits = cast(k, logits, "fp32")
    rows = tuple(d for d in k.dims_of(logits) if d not in ("V", "V_all"))
    extra = [k.make("log_softmax", k.dims_of(logits), k.tensors[logits].dtype, "index"), k.make("total_weight", [], k.tensors[logits].dtype, "index")]
    exchanges = [("all_reduce", 1, "fp32", w) for w in ("maximum", "sum of exponentials", "loss")] if "V" in k.dims_of(logits) else []
    k.emit("cross_entropy", [logits, target], [*op.outputs, *extra], saves=[*extra, target], attrs={"exchanges": tuple(exchanges), "rows": rows})


# ---------------------------------------------------------------- mixture of experts


def eager_top_k(k: Kernels, op: Op) -> None:
    """A *TopKRouter after its GEMM. Choosing among biased or grouped scores has no gradient; the weights are gathered."""
    (scores,), (weights, indices) = op.inputs, op.outputs
    family, precision = k.profile.model.modelling, k.profile.strategy.precision
    chosen = k.dims_of(indices)
    if family in TOP_K_FIRST:
        best = run(k, "topk", [scores], chosen, also=[indices])
        run(k, "softmax", [best], into=weights)
        return
    scores = run(k, "sigmoid" if op.attrs["score"] == "sigmoid" else "softmax", [cast(k, scores, "fp32")])
    if op.attrs["score"] == "sigmoid" or family in ROUTER_GATHERS:
        k.emit("choose", [scores], [indices], name="choose")
        values = run(k, "gather", [scores, indices], chosen)
    else:
        if op.attrs["groups"] > 1:
            mask = k.make("group_mask", k.dims_of(scores), "bool", "index")
            k.emit("choose", [scores], [mask], name="choose")
            scores = run(k, "masked_fill", [scores, mask])
        values = run(k, "topk", [scores], chosen, also=[indices])
    if op.attrs["normalise"]:
        total = run(k, "sum", [values], chosen[:-1])
        values = run(k, "div", [values, run(k, "clamp", [total]) if family in ROUTER_GATHERS else total])
    if family in ROUTER_CASTS_WEIGHTS:
        cast(k, values, precision, into=weights)
    else:
        run(k, "scale", [values], into=weights)


def eager_dispatch(k: Kernels, op: Op) -> None:
    """grouped_mm_experts_forward (integrations/moe.py): rows and weights indexed by expert order."""
    x, probabilities, indices = op.inputs
    rows, weights = op.outputs
    width = op.attrs["width"]
    dims = k.dims_of(indices)
    order, token = k.make("order", dims, "int64", "index"), k.make("token", dims, "int64", "index")
    offsets, ids = k.make("offsets", ["E"], "int32", "index"), k.make("expert_ids", ["R"], "int64", "index")
    k.emit("sort", [indices], [order, token, offsets, ids], name="sort")
    sent = run(k, "index", [x, token], (*dims, width))
    run(k, "index", [probabilities, order], dims, into=weights, dtype=k.tensors[probabilities].dtype)
    exchange(k, sent, rows, {**op.attrs, "sent": (*dims, width), "counts": "all_to_all"}, "exchange")


def exchange(k: Kernels, source: str, target: str, attrs: dict[str, object], kind: str) -> None:
    """Tokens between their own rank and the experts' (torchtitan's dispatcher): the same memory where no rank is left."""
    alone = k.profile.strategy.ep * k.profile.strategy.expert_tp == 1
    if alone:
        k.retype(target, view_of=source)
    k.emit("view" if alone else kind, [source], [target], name=kind, attrs=attrs)


def eager_grouped(k: Kernels, op: Op) -> None:
    """grouped_mm keeps its input and the int32 offsets of the experts; a bias is gathered by expert."""
    offsets, ids = (next(t for t in k.tensors if t.endswith(f".dispatch.{n}")) for n in ("offsets", "expert_ids"))
    grouped(k, op, op.inputs[0], [op.inputs[0], offsets, *([ids] if op.attrs["bias"] else [])], {**op.attrs})


def eager_combine(k: Kernels, op: Op) -> None:
    """Rows times their weights, in the order of tokens again, summed over the K experts of each."""
    y, weights, indices = op.inputs
    width = op.attrs["width"]
    dims = (*k.dims_of(indices), width)
    home = k.make("returned", dims, k.tensors[y].dtype)
    exchange(k, y, home, {**op.attrs, "sent": dims}, "exchange_back")
    wide = "fp32" if "fp32" in (k.tensors[home].dtype, k.tensors[weights].dtype) else k.tensors[home].dtype
    weighted = run(k, "mul", [home, weights], dtype=wide)
    inverse = k.make("inverse_order", k.dims_of(indices), "int64", "index")
    k.emit("sort", [indices], [inverse], name="sort")
    z = run(k, "sum", [run(k, "index", [weighted, inverse])], k.dims_of(op.outputs[0]))
    cast(k, z, k.tensors[op.outputs[0]].dtype, into=op.outputs[0])


LOWERINGS: dict[str, Lowering] = {
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
    "multiply": declared_primitive,
    "embed": eager_embed,
    "add_positions": eager_positions,
    "cross_entropy": eager_cross_entropy,
    "top_k": eager_top_k,
    "dispatch": eager_dispatch,
    "grouped": eager_grouped,
    "combine": eager_combine,
    "concat": keep,
    "convolution": convolution,
    "delta_rule": delta_rule,
}
