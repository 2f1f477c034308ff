"""Multi-head, grouped-query and multi-query attention."""

from __future__ import annotations

from symsim.architecture import Architecture, LayerKind
from symsim.ir import Net
from symsim.layers import notation as n

NAMES = {"q_proj": "q", "k_proj": "k", "v_proj": "v"}


def attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: q, k, v projections, optional norms, RoPE, core attention, output projection."""
    spec = model.attention
    net.dim("qd", net.dims["a"].size * net.dims["d"].size)
    outputs = [("q_proj", "b s a d"), ("k_proj", "b s g d"), ("v_proj", "b s g d")]
    if spec.output_gate:
        outputs.insert(1, ("gate_proj", "b s a d"))
    q, *gate, k, v = n.linear(net, x, "qkv", outputs, bias=spec.qkv_bias, fused=spec.fused_qkv)
    rotary = model.position_embedding == "rope" and kind.rope

    def normed(t: str, name: str, heads: str) -> str:
        over = {"head": "d", "per_head": "d", "full": f"{heads} d"}[spec.qk_norm]
        return n.norm(net, t, name, over, kind=model.normalization, bias=model.norm_bias and spec.qk_norm != "per_head",
                      weight_dims=f"{heads} d" if spec.qk_norm == "per_head" else None, unit_offset=model.norm_unit_offset)

    if spec.qk_norm != "none" and spec.qk_norm_position == "before_rope":
        q, k = normed(q, "q_norm", "a"), normed(k, "k_norm", "g")
    if rotary:
        q = n.rope(net, q, "rope_q", "d", fraction=spec.rotary_fraction)
        k = n.rope(net, k, "rope_k", "d", fraction=spec.rotary_fraction)
    if spec.qk_norm != "none" and spec.qk_norm_position == "after_rope":
        q, k = normed(q, "q_norm", "a"), normed(k, "k_norm", "g")
    o = n.attend(net, q, k, v, window=kind.window is not None, sinks=spec.sinks)
    if spec.output_gate:
        o = n.multiply(net, n.sigmoid(net, gate[0], "gate"), o, "gated")
    return n.linear(net, o, "o_proj", "b s h", contract="a d", bias=spec.out_bias, keep_original=True)
