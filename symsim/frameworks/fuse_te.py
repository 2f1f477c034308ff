"""The `te` profile: TransformerEngine kernels as Megatron-Core uses them.

Read at Megatron-Core 0.20.0 (paths under megatron/core/) and TransformerEngine 2.20 (paths under
transformer_engine/pytorch/).
"""

from __future__ import annotations

from dataclasses import replace

from symsim.frameworks import alternating, streams
from symsim.frameworks.fuse_eager import eager_activation, eager_norm, torch_loss
from symsim.frameworks.fuse_te_experts import fused_experts, joined_experts, probabilities_at_combine, te_combine, te_dispatch, te_grouped
from symsim.frameworks.kernels import (
    INDEXER,
    Kernels,
    Lowering,
    Scores,
    attention_products,
    convolution,
    delta_rule,
    einsum,
    gathered_logits,
    joined_linear,
    keep_inputs,
    lightning,
    pool,
    z_loss,
)
from symsim.frameworks.narrow import STORED, dropping, narrowed, narrowed_attention, store
from symsim.frameworks.padding import PADDING
from symsim.frameworks.primitives import cast, dropped, run
from symsim.frameworks.selective_scan import te_selective_scan
from symsim.frameworks.state_space import te_state_space
from symsim.ir.block import Op, Tensor
from symsim.ir.operations import Activation, Attention, CrossEntropy, Norm, Plain, Projection, Rope, TopK

SIGMOID_IN_FP32 = ("attention",)  # the output gate of attention (transformer/attention.py _apply_output_gate)


def te_linear(k: Kernels, op: Op) -> None:
    """TransformerEngine (LayerNorm)Linear: keeps its input; a narrow recipe casts it first, so what is kept and gathered is narrow, and
    so is the output gradient where it is gathered (module/linear.py, layernorm_linear.py)."""
    x, saves, attrs = narrowed(k, op)
    if len(op.outputs) > 1:
        joined_linear(k, op, x, saves, attrs)
        model, groups = k.profile.model, k.profile.model.groups_of(k.block.name)
        together = model.keeps_projected_queries and k.profile.strategy.tp >= groups
        if groups != model.heads_of(k.block.name) and not together:
            _ungroup_heads(k, op)
    else:
        einsum(k, x, list(op.inputs[1:]), op.outputs[0], op.einsums[0], attrs, saves=saves)


def _ungroup_heads(k: Kernels, op: Op) -> None:
    """The joint projection is laid out by group, (a/g queries, key, value) each, so bringing the queries of a rank's several
    groups together copies them (Megatron-Core attention.py get_query_key_value_tensors). Those of one group lie together; where
    nothing keeps them that is left out, for a copy that is read once, so that one formula serves tp below and at g."""
    copies = []
    for name in op.outputs:
        if k.dims_of(name)[-2:] == ("a", "d"):
            held = k.tensors[name]
            apart = k.make(f"{name.split('.')[-2]}.by_group", held.dims, held.dtype, view_of=held.view_of)
            split = k.ops[-1]
            k.ops[-1] = replace(split, outputs=tuple(apart if o == name else o for o in split.outputs))
            k.retype(name, view_of=None)
            copies.append((apart, name))
    for apart, name in copies:
        k.emit("copy", [apart], [name], name="ungroup")


def te_norm(k: Kernels, op: Op) -> None:
    """Fused norm: keeps its input and fp32 statistics (1/sigma; LayerNorm also mu) per row (module/layernorm.py)."""
    if not k.profile.strategy.norm_fusion:
        eager_norm(k, op)
        return
    x = op.inputs[0]
    rows = [d for d in k.dims_of(x) if d not in op.of(Norm).over]
    statistics = [k.make("rsigma", rows, "fp32", "index")]
    if op.of(Norm).norm == "LayerNorm":
        statistics.append(k.make("mu", rows, "fp32", "index"))
    k.emit("norm", op.inputs, [*op.outputs, *statistics], saves=[x, *statistics], attrs=op.attrs)


def te_rope(k: Kernels, op: Op) -> None:
    """Rotary embedding: keeps the cosine and sine tables it made (models/common/embeddings/rope_utils.py); the fused kernel
    (TransformerEngine attention/rope.py) only the angles, one table for all layers. What YaRN scales is not fused (mscale)."""
    head, asked, tokens = op.of(Rope).head, k.profile.assumptions["apply_rope_fusion"], "s_c" if "s_c" in k.dims_of(op.inputs[0]) else "s"
    table = "rotary.angles" if tokens == "s" else f"rotary.angles.{tokens}"
    apart = asked == "apart" or k.profile.model.attention.rotary_scaled
    if op.kind == "rope" and asked == "true" and not apart:
        k.tensors.setdefault(table, Tensor(table, (tokens, head), "fp32", "table", None, "attention"))
        k.emit("rope", [*op.inputs, table], op.outputs, saves=[table], attrs=op.attrs)
        return
    angles = k.make("angles", [tokens, head], "fp32", "table") if op.kind == "rope" else None
    tables = [k.make(n, [tokens, head], k.tensors[op.outputs[0]].dtype, "index") for n in ("cos", "sin")]
    inputs = list(op.inputs)
    if angles:
        k.tensors[table] = replace(k.tensors.pop(angles), name=table)
        inputs.append(table)
    k.emit("rope", inputs, [*op.outputs, *tables], saves=tables, attrs=replace(op.of(Rope), apart=apart))


def te_pool_tokens(k: Kernels, op: Op) -> None:
    """One kernel, which makes the softmax again in backward; no framework that symsim knows has published one."""
    k.emit("pool_tokens", op.inputs, op.outputs, saves=op.inputs[:2])


def te_mla_rope(k: Kernels, op: Op) -> None:
    """MLA makes its angles in every layer, before the up-projection region (multi_latent_attention.py). The fused kernel turns a part of the
    queries where they lie (fusions/fused_mla_yarn_rope_apply.py)."""
    angles = "rotary.layer_angles"
    if angles not in k.tensors:
        source = k.source
        k.tensors[angles] = Tensor(angles, ("s", op.of(Rope).head), "fp32", "index", None, "attention")
        assert source is not None
        position = next(i for i, o in enumerate(k.ops) if "up_projection" in o.parts)
        k.ops.insert(
            position,
            replace(
                source,
                kind="angles",
                name="attention.rotary",
                inputs=(),
                outputs=(angles,),
                saves=(),
                regions=source.regions - {"mla_up_proj"},
                attrs=Plain(),
                idle=frozenset({"tp"}),
            ),
        )
    tables = [k.make(n, ["s", op.of(Rope).head], k.tensors[op.outputs[0]].dtype, "index") for n in ("cos", "sin")]
    in_place = op.kind == "rope_part" and k.profile.assumptions["apply_rope_fusion"] == "true"
    k.emit("rope", [*op.inputs, angles], [*op.outputs, *tables], saves=tables, attrs=replace(op.of(Rope), in_place=in_place))


def te_pack(k: Kernels, op: Op) -> None:
    k.emit("copy", op.inputs, op.outputs)


def te_attention(k: Kernels, op: Op) -> None:
    """FlashAttention / cuDNN fused attention: keeps q, k, v (packed), out and the fp32 log-sum-exp (backends.py)."""
    q, key, value, *rest = op.inputs
    chosen = [t for t in rest if k.tensors[t].kind != "parameter"]
    o = op.outputs[0]
    if k.profile.assumptions["attention_kernel"] in ("math", "eager"):
        _written_out_attention(k, op)
        return
    packed = []
    for name, tensor in (("q", q), ("k", key), ("v", value)):
        if k.is_view(tensor):
            copy = k.make(f"{name}.packed", k.dims_of(tensor), k.tensors[tensor].dtype)
            k.emit("copy", [tensor], [copy], name=f"pack_{name}")
            tensor = copy
        packed.append(tensor)
    packed, at, narrower = narrowed_attention(k, op, packed)
    lse = k.make("lse", ["b", op.of(Attention).heads, "s"], "fp32", "index")
    stored = [] if narrower is None else [k.make(STORED, k.dims_of(o), narrower, "index")]
    forward, backward = attention_products(op, flash=True)
    mask = _mask(k)
    inputs = [*packed, *rest, *mask]
    k.emit(
        "attention",
        inputs,
        [o, lse, *stored],
        saves=[*packed, *(stored or [o]), lse, *chosen],
        products=forward,
        backward=backward,
        attrs=replace(at, unread=tuple(mask)),
    )


def _written_out_attention(k: Kernels, op: Op) -> None:
    """Two products with a softmax between them (transformer/dot_product_attention.py): keeps q, k, v, the probabilities, and
    with dropout its byte mask and the probabilities that are left. Keys and values of fewer groups than heads are repeated."""
    q, key, value, *offsets = (t for t in op.inputs if k.tensors[t].kind in ("activation", "parameter"))
    at, model, tp = op.of(Attention), k.profile.model, k.profile.strategy.tp
    if at.groups != at.heads and model.heads_of(k.block.name) // tp > max(1, model.groups_of(k.block.name) // tp):
        repeated = []
        for name, tensor in (("k", key), ("v", value)):
            repeated.append(k.make(f"{name}.repeated", ("b", "s", at.heads, k.dims_of(tensor)[-1]), k.tensors[tensor].dtype))
            k.emit("copy", [tensor], repeated[-1:], name=f"repeat_{name}")
        key, value = repeated
    scores = Scores(k, op, "z")
    if k.profile.strategy.masked_softmax_fusion:
        scores.softmax("probabilities", k.tensors[q].dtype)
    else:  # fusions/fused_softmax.py forward_torch_softmax: in fp32, mask, softmax, and back
        scores.cast("scores", "fp32")
        scores.cast("masked", "fp32")
        scores.softmax("softmax", "fp32")
        scores.cast("probabilities", k.tensors[q].dtype)
    if model.attention_dropout:
        scores.dropout(k.tensors[q].dtype)
    scores.emit([q, key, value, *offsets], op.outputs[0])


def _mask(k: Kernels) -> list[str]:
    """The causal mask, one for all layers; checkpointing core attention passes (so keeps) it and a one-element mask type
    (Megatron-Core attention.py _checkpointed_attention_forward)."""
    k.tensors.setdefault("attention_mask", Tensor("attention_mask", ("s", "z"), "bool", "table", None, "attention"))
    source = k.source
    assert source is not None
    if not k.profile.strategy.core_attention_again:
        return ["attention_mask"]
    kind = k.make("mask_type", ["one"], "int32", "index")
    k.ops.append(replace(source, kind="constant", name=f"{source.name}.mask_type", inputs=(), outputs=(kind,), regions=frozenset(), attrs=Plain()))
    return ["attention_mask", kind]


def te_activation(k: Kernels, op: Op) -> None:
    """Fused (gated) activation: keeps its input, or an FP8 copy of it (fusions/fused_bias_swiglu.py), and row scales. Where it runs again
    for what reads its result, it does so from the copy (DeepSeek-V3, arXiv:2412.19437, sec. 3.3.3)."""
    if not k.profile.strategy.bias_activation_fusion:
        _activation_in_kernels(k, op)
        return
    parts = list(op.inputs[:2] if op.of(Activation).gated else op.inputs[:1])
    scales = [] if probabilities_at_combine(k) else list(op.inputs[len(parts) :])
    if op.of(Activation).function == "swiglu_clamped" and not fused_experts(k):
        parts = _clamped(k, parts)
    extra: list[str] = []
    saves = [*parts, *scales]
    if k.profile.strategy.activation_func_fp8_input_store and dropping(k):
        parts = [store(k, part, f"stored{i}") for i, part in enumerate(parts)]
        saves = [*parts, *scales]
    elif k.profile.strategy.activation_func_fp8_input_store:
        extra = [k.make(f"stored{i}", k.dims_of(p), "fp8", "index") for i, p in enumerate(parts)]
        saves = [*extra, *scales]
    joined = op.module == "experts" and joined_experts(k)
    k.emit("activation", [*parts, *scales], [*op.outputs, *extra], saves=saves, attrs=replace(op.of(Activation), joined=joined))


def _clamped(k: Kernels, parts: list[str]) -> list[str]:
    """Gate and values clamped each by a kernel, and joined again for the fused kernel, all of it 16 bits (fusions/fused_bias_geglu.py
    weighted_bias_quick_geglu_impl)."""
    left = [run(k, "clamp", [x]) for x in parts]
    whole = k.tensors[parts[0]].view_of
    if whole is None:
        return [run(k, "copy", [x]) for x in left]
    joined = k.make("joined", k.dims_of(whole), k.tensors[whole].dtype)
    k.emit("cat", left, [joined], name="cat")
    halves = [k.make(f"half{i}", k.dims_of(x), k.tensors[x].dtype, view_of=joined) for i, x in enumerate(left)]
    k.emit("view", [joined], halves, name="halves")
    return halves


def _activation_in_kernels(k: Kernels, op: Op) -> None:
    """A bias, the function, its gate and routing weights each a kernel (transformer/mlp.py, experts.py without bias_activation_fusion)."""
    count = 2 if op.of(Activation).gated else 1
    parts, scales, y = list(op.inputs[:count]), op.inputs[count:], op.outputs[0]
    scaled = scales and not probabilities_at_combine(k)
    if _biased(k, parts[0]):
        parts = [run(k, "add", [x]) for x in parts]
    unscaled = k.make("unscaled", k.dims_of(y), k.tensors[y].dtype) if scaled else y
    eager_activation(k, replace(op, inputs=(*parts, *scales), outputs=(unscaled,)))
    if scaled:
        run(k, "mul", [unscaled, *scales], k.dims_of(y), k.tensors[y].dtype, into=y)


def _biased(k: Kernels, x: str) -> bool:
    """Whether x comes from a linear map with a bias, as the whole or a part of its result."""
    roots = {x, k.tensors[x].view_of}
    return any(isinstance(o.attrs, Projection) and o.attrs.bias for o in k.ops if roots & set(o.outputs))


def te_add(k: Kernels, op: Op) -> None:
    """Fused bias-dropout-add: keeps a byte mask when dropout is on; or each by itself (fusions/fused_bias_dropout.py, unfused)."""
    if not k.profile.strategy.bias_dropout_fusion:
        added, residual = op.inputs
        biased = run(k, "add", [added]) if _biased(k, added) else added
        left = dropped(k, biased, k.profile.model.hidden_dropout)
        run(k, "add", [left, residual], into=op.outputs[0], dtype="fp32" if k.profile.strategy.fp32_residual_connection else None)
        return
    extra = []
    if k.profile.model.hidden_dropout:
        extra = [k.make("mask", k.dims_of(op.outputs[0]), "bool", "index")]
    if k.profile.strategy.fp32_residual_connection:
        k.retype(op.outputs[0], dtype="fp32")
    k.emit("add", op.inputs, [*op.outputs, *extra], saves=extra)


def te_sigmoid(k: Kernels, op: Op) -> None:
    """Keeps its result."""
    if op.module in SIGMOID_IN_FP32:
        k.retype(op.outputs[0], dtype="fp32")
    k.emit("sigmoid", op.inputs, op.outputs, saves=op.outputs)


def te_embed(k: Kernels, op: Op) -> None:
    """Vocabulary-parallel lookup: keeps the ids, and their mask where the table is split (tensor_parallel/layers.py)."""
    ids, table = op.inputs
    extra = []
    if k.profile.splits("V", op):
        extra = [k.make("ids_masked", k.dims_of(ids), "int64", "index"), k.make("mask", k.dims_of(ids), "bool", "index")]
    if k.profile.strategy.fp32_residual_connection and k.profile.model.position_embedding != "learned":
        k.retype(op.outputs[0], dtype="bf16")
    k.emit("embed", op.inputs, [*op.outputs, *extra], saves=extra or [ids], attrs=op.attrs)


def te_positions(k: Kernels, op: Op) -> None:
    """Learned positions are added to the whole sequence, which is split only afterwards, and in the residual stream's type
    (language_model_embedding.py)."""
    if k.profile.strategy.fp32_residual_connection:
        k.retype(op.outputs[0], dtype="fp32")
    ids = k.make("position_ids", ["b", "s"], "int64", "index")
    k.emit("add", op.inputs, [*op.outputs, ids], saves=[ids], idle=frozenset({"tp"}))


def te_dropout(k: Kernels, op: Op) -> None:
    """Of what the stream begins with: a byte mask (language_model_embedding.py, after the split of the sequence)."""
    if k.profile.strategy.fp32_residual_connection:
        k.retype(op.outputs[0], dtype="fp32")
    mask = k.make("mask", k.dims_of(op.outputs[0]), "bool", "index")
    k.emit("dropout", op.inputs, [*op.outputs, mask], saves=[mask])


def te_cross_entropy(k: Kernels, op: Op) -> None:
    """Vocabulary-parallel cross entropy in three fusions: what each reduces over TP and keeps.

    unfused: tensor_parallel/cross_entropy.py (max, predicted, sum of exponentials); native:
    fusions/fused_cross_entropy.py (max, the two sums together); te: triton/cross_entropy.py (one gather of three rows). Or PyTorch's own.
    """
    logits, target = op.inputs
    rows = k.dims_of(target)
    written = k.profile.strategy.cross_entropy_fusion
    if k.profile.splits("V", op) and k.profile.assumptions["loss_parallel"] == "false":
        logits = gathered_logits(k, logits)
    if written in ("torch", "torch_fp32"):
        torch_loss(k, op, cast(k, logits, "fp32") if written == "torch_fp32" else logits, k.dims_of(logits))
        return
    if written == "te":  # the gradient is written over the logits
        extra = [k.make("gradient", k.dims_of(logits), k.tensors[logits].dtype, "index", view_of=logits)]
    else:
        extra = [k.make("softmax", k.dims_of(logits), "fp32", "index")]
    if written != "te":
        extra += [k.make("mask", rows, "bool", "index"), k.make("target", rows, "int64", "index")]
    exchanges = {
        "unfused": [("all_reduce", 1, "fp32", what) for what in ("maximum", "predicted logit", "sum of exponentials")],
        "native": [("all_reduce", 1, "fp32", "maximum"), ("all_reduce", 2, "fp32", "predicted logit and sum of exponentials")],
        "te": [("all_gather", 3, "fp32", "maximum, sum and predicted logit")],
    }[written]
    if "prediction_depth" in op.parts and k.profile.splits("V", op):  # multi_token_prediction.py gathers each rank's best token
        exchanges += [("all_gather", 1, k.tensors[logits].dtype, "best logit"), ("all_gather", 1, "int64", "best token")]
    exchanges = exchanges if "V" in k.dims_of(logits) else []
    k.emit("cross_entropy", [logits, target], [*op.outputs, *extra], saves=extra, attrs=CrossEntropy(exchanges=tuple(exchanges), rows=rows))


def te_top_k(k: Kernels, op: Op) -> None:
    """Unfused router (moe_utils.py topk_routing_with_score_function): keeps the chosen indices and the softmax of their
    scores; or the scores of all experts where those come first, and with sigmoid what is divided and the sum it is divided by."""
    (logits,), (probabilities, indices) = op.inputs, op.outputs
    dims = k.dims_of(logits)
    assert k.profile.model.moe is not None
    several = k.profile.model.moe.moe_router_topk > 1
    at = op.of(TopK)
    pointwise = at.score != "softmax"
    first = at.pre_softmax or pointwise
    extra = [k.make("scores", dims, "fp32", "index")] if first else []
    if pointwise and several:
        extra.append(k.make("sum", dims[:-1], "fp32", "index"))
    chosen = [probabilities] if not first or (pointwise and several) else []
    balancing = k.profile.strategy.moe_router_load_balancing_type
    if k.profile.strategy.moe_router_dtype == "fp32":  # moe_utils.py RouterGatingLinearFunction
        k.retype(logits, dtype="fp32")
    z_loss(k, logits)
    k.emit("top_k", op.inputs, [probabilities, indices, *extra], saves=[indices, *chosen, *extra], attrs=replace(at, balancing=balancing))


LOWERINGS: dict[str, Lowering] = {
    **PADDING,
    "linear": te_linear,
    "norm": te_norm,
    "rope": te_rope,
    **dict.fromkeys(("rope_part", "rope_concat"), te_mla_rope),
    "pack": te_pack,
    "attention": te_attention,
    "activation": te_activation,
    "add": te_add,
    "sigmoid": te_sigmoid,
    **dict.fromkeys(("multiply", "clip"), keep_inputs),
    **{**streams.TE, **alternating.TE},
    "embed": te_embed,
    "add_positions": te_positions,
    "dropout": te_dropout,
    "cross_entropy": te_cross_entropy,
    "pool": pool,
    "top_k": te_top_k,
    "pool_tokens": te_pool_tokens,
    "dispatch": te_dispatch,
    "grouped": te_grouped,
    "combine": te_combine,
    "convolution": convolution,
    **INDEXER,
    "lightning": lightning,
    **dict.fromkeys(("delta_rule", "kda"), delta_rule),
    "selective_scan": te_selective_scan,
    "state_space": te_state_space,
}
