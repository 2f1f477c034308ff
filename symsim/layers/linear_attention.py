"""Gated delta net (Yang et al. 2024, arXiv 2412.06464), as Qwen3-Next runs it."""

from __future__ import annotations

from symsim.architecture import Architecture
from symsim.ir import Net
from symsim.layers import notation as n


def linear_attention(net: Net, x: str, model: Architecture) -> str:
    """`x[b s h] -> y[b s h]`: projections, short convolution, delta-rule recurrence over `[D_k D_v]` states, gated norm."""
    spec = model.linear_attention
    assert spec is not None
    size = net.dims
    net.dim("kQ", size["H_k"].size * size["D_k"].size)
    net.dim("vW", size["H_v"].size * size["D_v"].size)
    net.dim("qkvz", 2 * size["kQ"].size + 2 * size["vW"].size)
    net.dim("qkv_c", 2 * size["kQ"].size + size["vW"].size)
    net.dim("ba", 2 * size["H_v"].size)
    qkvz = n.linear(net, x, "in_proj_qkvz", "b s qkvz")
    n.linear(net, x, "in_proj_ba", "b s ba")
    conv_in, z = n.view(net, qkvz, "split", [("conv_in", "b s qkv_c"), ("z", "b s H_v D_v")])
    conv_weight = net.parameter("conv1d.weight", "qkv_c W_c")
    mixed = net.tensor("conv.out", "b s qkv_c")
    net.op("convolution", "conv1d", [conv_in, conv_weight], [mixed])
    q, k, v = n.view(net, mixed, "split_conv", [("q", "b s H_k D_k"), ("k", "b s H_k D_k"), ("v", "b s H_v D_v")])
    o = net.tensor("delta.out", "b s H_v D_v")
    a_log, dt_bias = net.parameter("A_log", "H_v"), net.parameter("dt_bias", "H_v")
    net.op("delta_rule", "delta_rule", [q, k, v, a_log, dt_bias], [o])
    o = n.norm(net, o, "norm", "D_v", kind="RMSNorm")
    o = n.multiply(net, n.sigmoid(net, z, "gate"), o, "gated")
    return n.linear(net, o, "out_proj", "b s h", contract="H_v D_v")
