"""The `eager` profile's attention: rotary embeddings and attention kernels as Hugging Face modules run them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from symsim.algebra.expr import expr
from symsim.frameworks.eager_modules import module_code
from symsim.frameworks.kernels import (
    Kernels,
    Scores,
    attention_products,
)
from symsim.frameworks.primitives import cast, in_order, run
from symsim.ir.block import Dim, Op, Tensor
from symsim.ir.operations import Attention, Rope, View


def tables(k: Kernels, head: str, fraction: float, tokens: str = "s") -> list[str]:
    """Rotary tables, made once for all layers: cos and sin [s rotary], or one of complex numbers [s rotary/2]; of other positions than tokens' own,
    made by the layer."""
    code = module_code(k.profile.model)
    rotary = head
    if code.rotary_half:
        fraction /= 2
    if fraction != 1:
        rotary = f"{head}_rotary"
        k.dims.setdefault(rotary, Dim(k.dims[head].size * expr(Fraction(fraction).limit_denominator(10**6))))
    positions = ("b", tokens) if code.rotary_by_row or tokens != "s" else (tokens,)
    names: tuple[str, ...] = ("rotary.freqs",) if code.rotary_complex else ("rotary.cos", "rotary.sin")
    dtype = "fp32" if code.rotary_in_fp32 or code.rotary_complex else k.profile.declared
    names = names if tokens == "s" else tuple(f"{name}.{tokens}" for name in names)
    for name in names:
        k.tensors.setdefault(name, Tensor(name, (*positions, rotary), dtype, "table", None, "attention"))
    if code.rotary_repeated_by_call:
        return [run(k, "repeat", [name], kind="index") for name in names]
    if code.rotary_repeated:
        return [_repeated_table(k, name) for name in names]
    return list(names)


def _repeated_table(k: Kernels, table: str) -> str:
    """The layer's own table, made once for queries and keys."""
    made = f"{table}.interleaved"
    if made not in k.tensors:
        k.tensors[made] = replace(k.tensors[table], name=made, kind="index")
        k.emit("repeat", [table], [made], name=made.split(".")[1])
    return made


def eager_rope(k: Kernels, op: Op) -> None:
    """x * cos + rotate_half(x) * sin, in x's memory order; a module that ends in a cat makes [b heads s d]."""
    (x,), (y,) = op.inputs, op.outputs
    b, s, heads, d = k.dims_of(x)
    made = tables(k, op.of(Rope).head, op.of(Rope).fraction, _tokens(k, x))
    code, part, turns = module_code(k.profile.model), x, k.tensors[made[0]].dims[-1]
    joined, dtype = op.of(Rope).fraction < 1 or code.rotary_concatenates, "fp32" if code.rotary_widened else k.tensors[made[0]].dtype
    beside = []
    if _in_halves(k, made) and joined:
        part, *beside = _parts(k, x, turns)
    if not joined and len(made) == 2 and k.types is None and dtype == k.tensors[y].dtype:
        _turned(k, part, made, dtype, into=y)
        return
    turned = _turned(k, part, made, dtype)
    if joined:
        run(k, "cat", [turned, *beside], (b, heads, s, d), into=y)
    else:
        cast(k, turned, k.tensors[y].dtype, into=y)


def _parts(k: Kernels, x: str, turns: str) -> list[str]:
    """What of every head is turned, and what is not: taken by indices, also where that is nothing."""
    *others, d = k.dims_of(x)
    rest = f"{d}_beside_rotary"
    k.dims.setdefault(rest, Dim(k.dims[d].size - k.dims[turns].size))
    sizes = {"turned_part": turns, "passed_part": rest}
    parts = [k.make(name, (*others, size), k.tensors[x].dtype, view_of=x) for name, size in sizes.items() if size != d]
    k.emit("view", [x], parts, name="split", attrs=View(indexed=True, heads_first=not module_code(k.profile.model).rotary_tokens_first))
    return parts if turns != d else [x, *parts]


def _turned(k: Kernels, x: str, made: list[str], dtype: str, into: str = "") -> str:
    """A product with complex numbers, or two with cosines and sines and their sum: of the sines, with x whose halves change places."""
    code = module_code(k.profile.model)
    if code.rotary_widened:
        transposed = k.make("transposed", k.dims_of(x), k.tensors[x].dtype, view_of=x)
        k.emit("view", [x], [transposed], name="transpose", attrs=View(heads_first=True))
        x = cast(k, transposed, "fp32")
    factors = [x, run(k, "rotate_pairs" if code.rotary_tokens_first else "rotate_half", [x])] if _in_halves(k, made) else [x, x]
    turned = [run(k, "mul", [part, table], dtype=dtype) for part, table in zip(factors, made, strict=False)]
    return run(k, "add", turned, into=into) if len(turned) == 2 else turned[0]


def _in_halves(k: Kernels, made: list[str]) -> bool:
    """Whether the module joins two halves to a whole before it multiplies, not its products behind."""
    return len(made) == 2 and not module_code(k.profile.model).rotary_half


def _tokens(k: Kernels, x: str) -> str:
    """The dimension of positions, wherever it lies in memory."""
    return next(d for d in k.dims_of(x) if d in ("s", "s_c"))


def eager_mla_rope(k: Kernels, op: Op) -> None:
    """Multi-head latent attention puts the turned part beside the other one: new storage [b a s d]. Keys are written into it, after their heads and
    those of values were transposed and parted (expand_kv)."""
    b, s, heads, d = k.dims_of(op.outputs[0])
    part, beside = op.inputs[-1], op.inputs[0]
    if op.kind == "rope_part":
        whole = k.dims_of(part)
        passed = f"{whole[-1]}_beside_rotary"
        k.dims.setdefault(passed, Dim(k.dims[whole[-1]].size - k.dims[op.of(Rope).head].size))
        sizes = {"passed_part": passed, "turned_part": op.of(Rope).head}
        parts = [k.make(name, (*whole[:-1], size), k.tensors[part].dtype, view_of=part) for name, size in sizes.items()]
        k.emit("view", [part], parts, name="split", attrs=View(heads_first=True))
        beside, part = parts
    else:
        k.ops = [replace(o, attrs=View(heads_first=True)) if beside in o.outputs and o.is_view else o for o in k.ops]
    made = tables(k, op.of(Rope).head, 1)
    joined = "cat" if op.kind == "rope_part" else "assign"
    run(k, joined, [beside, _turned(k, part, made, k.tensors[part].dtype)], (b, heads, s, d), into=op.outputs[0])


def eager_pack(k: Kernels, op: Op) -> None:
    """Values stay a slice of what kv_b_proj made, and keep all of it."""
    k.retype(op.outputs[0], view_of=op.inputs[0])
    k.emit("view", op.inputs, op.outputs)


def eager_attention(k: Kernels, op: Op) -> None:
    """One of four kernels (assumption attention_kernel). The two written in aten operations are one operation here, so
    that context parallelism sees one attention; it keeps what their two matrix products and the softmax keep.
    """
    kernel = k.profile.assumptions["attention_kernel"]
    q, key, value, *rest = op.inputs
    offsets = [t for t in rest if k.tensors[t].kind == "parameter" or kernel == "flash"]
    if _picks_heads(k):
        picks = [k.make(f"{name}_head", [], "int64", "index") for name in ("key", "value")]
        k.emit("pick", [key, value], picks, saves=picks, name="pick")
    q = _scaled(k, q)
    lowering = {"flash": flash_attention, "efficient": efficient_attention, "math": math_attention, "eager": written_attention}[kernel]
    if kernel != "eager":
        q, key, value = (cast(k, t, _type(k, value)) for t in (q, key, value))
    lowering(k, op, q, key, value, offsets)


def _scaled(k: Kernels, q: str) -> str:
    """Queries times a factor of their position."""
    where, model = module_code(k.profile.model).queries_scaled, k.profile.model
    if not where or (where != "every" and model.layer_kinds[model.kind_of(k.block.name)].rope):
        return q
    own = k.tensors[q].dtype
    dtype = own if where == "every" else "fp32"
    if where == "unturned_by_table":
        factor = "position_factor"
        k.tensors.setdefault(factor, Tensor(factor, ("s",), dtype, "table", None, "attention"))
    else:
        factor = k.make("position_factor", ("s",), dtype, "index")
        k.emit("constant", [], [factor], name="position_factor")
    return cast(k, run(k, "mul", [q, factor], dtype=dtype), own)


def _type(k: Kernels, value: str) -> str:
    """In which attention runs: that of the values; rotary tables may leave queries and keys in fp32."""
    return k.tensors[value].dtype if k.types is None else k.profile.strategy.precision


def _picks_heads(k: Kernels) -> bool:
    """modeling_falcon.py _split_heads takes keys and values by a list of one index, which autograd keeps: with multi-query
    attention, and in the new decoder (parallel with two norms)."""
    model = k.profile.model
    new = model.parallel_block and "pre_mlp" in model.norms
    return module_code(model).picks_heads and (new or model.groups_of(k.block.name) < model.heads_of(k.block.name))


def repeated(k: Kernels, op: Op, x: str) -> str:
    """Keys or values repeated to every query head: new storage, when there are fewer of them."""
    model = k.profile.model
    if op.of(Attention).groups == op.of(Attention).heads or model.groups_of(k.block.name) == model.heads_of(k.block.name):
        return x
    return run(k, "repeat", [x], ["b", op.of(Attention).heads, _keys(k, x), k.dims_of(x)[-1]])


def _keys(k: Kernels, x: str) -> str:
    """The dimension of keys or values in memory: the tokens', or that of all that stand beside them too."""
    return "z" if "z" in k.dims_of(x) else "s"


def flash_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """_scaled_dot_product_flash_attention: keeps q, k, v, out, log-sum-exp and 24 bytes of random state; the result is in
    the memory order of the queries."""
    o, heads = op.outputs[0], op.of(Attention).heads
    k.retype(o, dims=(*k.dims_of(q)[:-1], op.of(Attention).value_dim))
    k.dims.setdefault("seed_and_offset", Dim(expr(2)))
    extra = [
        k.make("lse", ["b", heads, "s"], "fp32", "index"),
        k.make("rng_state", ["seed_and_offset"], "uint64", "index"),
        k.make("unused", [], "uint64", "index"),
    ]
    forward, backward = attention_products(op, flash=True)
    chosen = [t for t in offsets if k.tensors[t].kind != "parameter"]
    k.emit(
        "attention",
        [q, key, value, *offsets],
        [o, *extra],
        saves=[q, key, value, o, *extra, *chosen],
        products=forward,
        backward=backward,
        attrs=op.attrs,
    )


def efficient_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """_scaled_dot_product_efficient_attention: the same for one head count, with 16 bytes of random state; the result is
    always [b s a d]."""
    key, value = repeated(k, op, key), repeated(k, op, value)
    extra = [
        k.make("lse", ["b", op.of(Attention).heads, "s"], "fp32", "index"),
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
    precision, at = k.tensors[q].dtype, op.of(Attention)
    operands = [cast(k, t, "fp32") for t in (q, key, value)]
    operands = [operands[0], *(repeated(k, op, t) for t in operands[1:])]
    operands = [run(k, "scale", [t]) for t in operands[:2]] + operands[2:]
    operands = [in_order(k, t, ["b", at.heads, "s", k.dims_of(t)[-1]]) for t in operands]
    scores = Scores(k, op, "z")
    scores.softmax("probabilities", "fp32")
    if k.profile.model.attention_dropout:
        scores.dropout("fp32")
    result = k.make("out", ["b", at.heads, "s", at.value_dim], "fp32")
    scores.emit([*operands, *offsets], result)
    k.retype(op.outputs[0], dims=k.dims_of(result))
    cast(k, result, precision, into=op.outputs[0])


def written_attention(k: Kernels, op: Op, q: str, key: str, value: str, offsets: list[str]) -> None:
    """eager_attention_forward of the modules: bmm, softmax (in fp32 and cast back, in most), bmm, then a copy to [b s a d].

    A softcap adds a tanh; sinks add a column to the scores, and the index of the largest score.
    """
    model, at = k.profile.model, op.of(Attention)
    precision = _type(k, value)
    parts = [q, repeated(k, op, key), repeated(k, op, value)]
    types = ["fp32", "fp32", precision] if module_code(model).scores_in_fp32 else [precision] * 3
    parts = [cast(k, part, to) for part, to in zip(parts, types, strict=True)]
    operands = [in_order(k, t, ["b", at.heads, _keys(k, t), k.dims_of(t)[-1]]) for t in parts]
    keys, scale, by_result = "z", "", bool(offsets) and module_code(model).sinks_scale_result
    if offsets and not by_result:
        keys = "z_and_sink"
        k.dims.setdefault(keys, Dim(k.dims["z"].size + 1))
    scores = Scores(k, op, keys)
    if model.attention.logit_softcap:
        scores.softmax("capped", precision)
    code, rows = module_code(model), ("b", at.heads, "s")
    if code.scores_bounded:
        scores.softmax("bounded", precision)
        scores.made.append(k.make("bound", [], "fp32", "index"))
    masks = []
    if code.scores_filled:
        k.tensors.setdefault("mask", Tensor("mask", ("b", "s", "z"), "bool", "table", None, "attention"))
        masks = ["mask"]
    if by_result:
        scores.tensor("scores", precision)
        scores.tensor("log_of_sum", precision, rows)
        scale = scores.tensor("result_scale", "fp32", rows)
    elif (offsets and not code.scores_in_fp32) or code.scores_shifted:
        scores.tensor("largest", "int64", rows)
    widened = bool(offsets) and code.sinks_in_fp32
    if code.softmax_in_compute_type and not widened:
        scores.softmax("probabilities", precision)
    else:
        scores.softmax("softmax", "fp32")
        if code.scores_in_fp32 or widened:
            scores.keys = "z"  # what is cast is without the offset
        if precision != "fp32":
            scores.cast("probabilities", precision)
    if model.attention_dropout:
        scores.dropout(precision)
    result = k.make("out", ["b", at.heads, "s", at.value_dim], precision)
    scores.emit([*operands, *offsets, *masks], result, masks)
    if by_result:
        result = run(k, "mul", [result, cast(k, scale, precision)])
    run(k, "copy", [result], k.dims_of(op.outputs[0]), into=op.outputs[0])
