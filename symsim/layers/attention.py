"""Multi-head, grouped-query and multi-query attention."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: q, k, v projections, optional norms, RoPE, core attention, output projection."""
    spec = model.attention
    to_queries, to_keys = "b s h, a d h -> b s a d", "b s h, g d h -> b s g d"
    projections = [(to_queries, Weight("q_proj", spec.qkv_bias))]
    projections += [(to_queries, Weight("gate_proj", spec.gate_bias))] if spec.output_gate else []
    made = () if kind.shared_keys else ("k_proj",) if kind.keys_as_values else ("k_proj", "v_proj")
    projections += [(to_keys, Weight(name, spec.qkv_bias)) for name in made]
    q, *others = net.einsums("qkv", x, projections, fused=spec.fused_qkv)
    gate, keys = others[: spec.output_gate], others[spec.output_gate :]
    if kind.shared_keys:
        keys = [net.input(name, "b s g d", borrowed=True) for name in ("keys", "values")]
    o = attended(net, (q, keys[0], keys[-1]), model, kind)
    if spec.output_gate:
        o = n.multiply(net, n.sigmoid(net, gate[0], "gate"), o, "gated")
    return net.einsum("b s a d, h a d -> b s h", o, Weight("o_proj", spec.out_bias))


def attended(net: Net, qkv: tuple[str, str, str], model: Architecture, kind: LayerKind) -> str:
    """`q[b s a d], k[b s g d], v[b s g d] -> o[b s a d]`: norms and RoPE where the model has them, core attention. Keys and values of another layer
    come normed and turned."""
    spec, (q, k, v) = model.attention, qkv
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
            weight=spec.qk_norm != "l2",
            weight_dims=f"{heads} d" if spec.qk_norm == "per_head" else None,
            unit_offset=model.norm_unit_offset,
        )

    has_norm = spec.qk_norm != "none" and (rotary or spec.qk_norm != "l2")  # Llama 4 normalises in its rotary layers only
    if has_norm and spec.qk_norm_position == "before_rope":
        q = normed(q, "q_norm", "a")
    if has_norm and spec.qk_norm_position == "before_rope" and not kind.shared_keys:
        k, values = normed(k, "k_norm", "g"), v
        v = n.norm(net, values, "v_norm", "d", kind=model.normalization, weight=False) if spec.v_norm else values
    if spec.clip_qkv:
        q, k, v = n.clip(net, (q, k, v), "clip_qkv")
    if rotary:
        q = n.rope(net, q, "rope_q", "d", fraction=spec.rotary_fraction)
        k = k if kind.shared_keys else n.rope(net, k, "rope_k", "d", fraction=spec.rotary_fraction)
    if has_norm and spec.qk_norm_position == "after_rope":
        q, k = normed(q, "q_norm", "a"), normed(k, "k_norm", "g")
    return n.attend(
        net,
        (q, k, v),
        scores="b s a d, b z g(a) d -> b s a z",
        values="b s a z, b z g(a) d -> b s a d",
        reach=kind.reach,
        sinks=spec.sinks,
    )
