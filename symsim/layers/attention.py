"""Multi-head, grouped-query and multi-query attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.attention import Attention
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.indexer import block_indexer


def attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: q, k, v projections, optional norms, RoPE, core attention, output projection."""
    spec = model.attention
    d_v = "d_v" if spec.v_head_dim else "d"  # values may have heads of another width
    projections = [("b s h, a d h -> b s a d", Weight("q_proj", spec.qkv_bias))]
    projections += [(f"b s h, a {d_v} h -> b s a {d_v}", Weight("gate_proj", spec.gate_bias))] if spec.output_gate else []
    made = () if kind.shared_keys else (("k_proj", "d"),) if kind.keys_as_values else (("k_proj", "d"), ("v_proj", d_v))
    projections += [(f"b s h, g {width} h -> b s g {width}", Weight(name, spec.qkv_bias)) for name, width in made]
    q, *others = net.einsums("qkv", x, projections, fused=spec.fused_qkv, together=2 if spec.fused_gate else 1)
    gate, keys = others[: spec.output_gate], others[spec.output_gate :]
    if kind.shared_keys:
        keys = [net.input(name, "b s g d", borrowed=True) for name in ("keys", "values")]
    chosen = ""
    if spec.dsa_indexer_block and kind.indexer:
        chosen = block_indexer(net, x, model)
    o = attended(net, (q, keys[0], keys[-1]), model, kind, chosen)
    if spec.gate_head_bias:
        net.parameter("gate_bias", "a")
    if spec.output_gate:
        o = n.multiply(net, gate_of(net, gate[0], spec), o, "gated")
    if spec.head_gate:
        o = gated_by_head(net, x, o, spec)
    if spec.out_norm:
        o = n.norm(net, o, "sub_norm", f"a {d_v}", kind=model.normalization, bias=model.norm_bias)
    biased = spec.out_bias if kind.out_bias is None else kind.out_bias
    heads = "a_2 d_2" if spec.differential else f"a {d_v}"
    return net.einsum(f"b s {heads}, h {heads} -> b s h", o, Weight("o_proj", biased))


def gated_by_head(net: Net, x: str, o: str, spec: Attention) -> str:
    """`x[b s h], o[b s a e] -> gated[b s a e]`: what attention gives, times a number of every head that is made of x."""
    return n.multiply(net, gate_of(net, net.einsum("b s h, a h -> b s a", x, Weight("g_proj")), spec), o, "gated")


def gate_of(net: Net, logits: str, spec: Attention) -> str:
    """What multiplies, in fp32 and cast where the module code does so."""
    if not spec.gate_in_fp32:
        return n.sigmoid(net, logits, "gate") if spec.gate_activation == "sigmoid" else n.activate(net, (logits,), "gate", spec.gate_activation)
    gate = n.activate(net, (logits,), "gate", spec.gate_activation, in_fp32=True)
    narrow = net.tensor("gate.narrow", net.dims_of(logits))
    net.op("cast", "narrow_gate", [gate], [narrow])
    return narrow


def attended(net: Net, qkv: tuple[str, str, str], model: Architecture, kind: LayerKind, chosen: str = "") -> str:
    """`q[b s a d], k[b s g d], v[b s g e] -> o[b s a e]`: norms and RoPE where the model has them, core attention. Keys and values of another layer
    come normed and turned. chosen: what an indexer chose."""
    spec, (q, k, v) = model.attention, qkv
    d_v = net.dims_of(v)[-1]
    fraction = spec.rotary_fraction if kind.rotary_fraction is None else kind.rotary_fraction
    rotary = model.position_embedding == "rope" and kind.rope

    def normed(t: str, name: str, heads: str) -> str:
        over = f"{heads} d" if spec.qk_norm == "full" else "d"
        return n.norm(
            net,
            t,
            name,
            over,
            kind=model.normalization,
            bias=model.qk_norm_bias,
            weight=spec.qk_norm not in ("l2", "plain"),
            weight_dims=f"{heads} d" if spec.qk_norm == "per_head" else None,
            unit_offset=model.norm_unit_offset,
        )

    has_norm = spec.qk_norm != "none" and (rotary or spec.qk_norm != "l2")  # Llama 4 normalises in its rotary layers only
    if has_norm and spec.qk_norm_position == "before_rope":
        q = normed(q, "q_norm", "a")
    if has_norm and spec.qk_norm_position == "before_rope" and not kind.shared_keys:
        k, values = normed(k, "k_norm", "g"), v
        v = n.norm(net, values, "v_norm", d_v, kind=model.normalization, weight=False) if spec.v_norm else values
    if spec.clip_qkv:
        q, k, v = n.clip(net, (q, k, v), "clip_qkv")
    if rotary:
        q = n.rope(net, q, "rope_q", "d", fraction=fraction)
        k = k if kind.shared_keys else n.rope(net, k, "rope_k", "d", fraction=fraction)
    if has_norm and spec.qk_norm_position == "after_rope":
        q, k = normed(q, "q_norm", "a"), normed(k, "k_norm", "g")
    attend = partial(
        n.attend,
        net,
        scores="b s a d, b z g(a) d -> b s a z",
        values=f"b s a z, b z g(a) {d_v} -> b s a {d_v}",
        reach=kind.reach,
        sinks=spec.sinks if kind.sinks is None else kind.sinks,
        chosen=chosen,
    )
    if spec.differential:
        return difference(net, [attend((q, k, half)) for half in _halves(net, v)])
    return attend((q, k, v))


def _halves(net: Net, v: str) -> tuple[str, ...]:
    """`v[b s g d]`: the first half of the heads twice, and the second."""
    net.dim("g_2", net.dims["g"].size / 2)
    made = []
    for half in n.view(net, v, "split_values", [("first_values", "b s g_2 d"), ("second_values", "b s g_2 d")]):
        made.append(net.tensor("values", "b s g d"))
        net.op("repeat", "repeat_values", [half], made[-1:])
    return tuple(made)


def difference(net: Net, o: Sequence[str]) -> str:
    """`o[b s a d], o[b s a d] -> y[b s a_2 d_2]`: side by side, the first half of the heads less a number that is learned times the second, normed
    (arXiv 2410.05258, section 2.1; transformers models/diffllama/modeling_diffllama.py)."""
    net.dim("a_2", net.dims["a"].size / 2)
    net.dim("d_2", 2 * net.dims["d"].size)
    joined = net.tensor("joined", "b s a d_2")
    net.op("concat", "join", o, [joined])
    first, second = n.view(net, joined, "split_heads", [("first", "b s a_2 d_2"), ("second", "b s a_2 d_2")])
    less = net.tensor("less", "b s a_2 d_2")
    net.op("sub", "subtract", [first, n.multiply(net, _learned_part(net), second, "part")], [less])
    return n.scale(net, n.norm(net, less, "groupnorm", "d_2", weight=False), "scale")


def _learned_part(net: Net) -> str:
    """`lambda[one]`: exp(q1 k1) - exp(q2 k2) and a constant, of four vectors."""
    with net.within("lambda"):
        parts = []
        for i in (1, 2):
            product, summed, raised = net.tensor("product", "d"), net.tensor("sum", "one", "fp32"), net.tensor("exp", "one", "fp32")
            net.op("multiply", "multiply", [net.parameter(f"q{i}", "d"), net.parameter(f"k{i}", "d")], [product])
            net.op("sum", "sum", [product], [summed])
            net.op("exp", "exp", [summed], [raised])
            parts.append(net.tensor("part", "one"))
            net.op("cast", "narrow", [raised], parts[-1:])
        less = net.tensor("difference", "one")
        net.op("sub", "subtract", parts, [less])
    return less
