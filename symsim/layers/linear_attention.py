"""Gated delta net (Yang et al. 2024, arXiv 2412.06464), as Qwen3-Next and Qwen3.5 run it."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n
from symsim.layers.kda import kda


def linear_attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: projections, short convolution, delta-rule recurrence over `[D_k D_v]` states, gated norm."""
    spec = model.linear_attention
    assert spec is not None
    if spec.kind == "kda":
        return kda(net, x, model, kind)
    keys, values = (net.dims[n].size * net.dims[d].size for n, d in (("H_k", "D_k"), ("H_v", "D_v")))
    for name, width in (("qkvz", 2 * keys + 2 * values), ("qkv_c", 2 * keys + values), ("ba", 2 * net.dims["H_v"].size)):
        net.dims[name] = Dim(width, parts=("H_k", "H_v"))
    if spec.fused_in_proj:
        projections = [("qkvz", "in_proj_qkvz"), ("ba", "in_proj_ba")]
        qkvz, *gates = net.einsums("in_proj", x, [(f"b s h, {to} h -> b s {to}", Weight(name)) for to, name in projections])
    elif spec.separate_qkv:
        widths = {"q": "H_k D_k", "k": "H_k D_k", "v": "H_v D_v", "b": "H_v", "a": "H_v", "g": "H_v D_v"}
        projections = [(to, f"{name}_proj") for name, to in widths.items()]
        *parts, b, a, z = net.einsums("in_proj", x, [(f"b s h, {to} h -> b s {to}", Weight(name)) for to, name in projections])
        gates, conv_in = [b, a], net.tensor("joined", "b s qkv_c")
        net.op("concat", "join", parts, [conv_in])
    else:
        projections = [("qkv_c", "in_proj_qkv"), ("H_v D_v", "in_proj_z"), ("H_v", "in_proj_b"), ("H_v", "in_proj_a")]
        conv_in, z, *gates = net.einsums("in_proj", x, [(f"b s h, {to} h -> b s {to}", Weight(name)) for to, name in projections])
    with n.whole_sequences(net):
        if spec.fused_in_proj:
            conv_in, z = n.view(net, qkvz, "split", [("conv_in", "b s qkv_c"), ("z", "b s H_v D_v")])
        conv_weight = net.weight("conv1d", "qkv_c W_c")
        mixed = net.tensor("conv.out", "b s qkv_c")
        net.op("convolution", "conv1d", [conv_in, conv_weight], [mixed], activation="silu")
        q, k, v = n.view(net, mixed, "split_conv", [("q", "b s H_k D_k"), ("k", "b s H_k D_k"), ("v", "b s H_v D_v")])
        o = net.tensor("delta.out", "b s H_v D_v")
        a_log, dt_bias = net.parameter("A_log", "H_v"), net.parameter("dt_bias", "H_v")
        net.op("delta_rule", "delta_rule", [q, k, v, *gates, a_log, dt_bias], [o])
        o = n.norm(net, o, "norm", "D_v", kind="RMSNorm")
        o = n.multiply(net, n.activate(net, (z,), "gate", "silu", in_fp32=True), o, "gated")
    return net.einsum("b s H_v D_v, h H_v D_v -> b s h", o, Weight("out_proj"))
