"""Kimi delta attention (Kimi Linear, arXiv 2510.26692): the gated delta rule with a decay for every channel of the keys."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n


def kda(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: q, k and v convolved together, a decay `[H_k D_k]` and an output gate `[H_v D_v]` of rank D_k (or made
    in one step), and a norm of each head before the gate."""
    spec = model.linear_attention
    assert spec is not None
    keys, values = (net.dims[n].size * net.dims[d].size for n, d in (("H_k", "D_k"), ("H_v", "D_v")))
    net.dims["qkv_c"] = Dim(2 * keys + values, parts=("H_k", "H_v"))
    net.dim("r_g", net.dims["D_k"].size)

    def projected(to: str, name: str) -> str:
        if not spec.low_rank_gates:
            return net.einsum(f"b s h, {to} h -> b s {to}", x, Weight(f"{name}_proj"))
        down = net.einsum("b s h, r_g h -> b s r_g", x, Weight(f"{name}_a_proj"))
        return net.einsum(f"b s r_g, {to} r_g -> b s {to}", down, Weight(f"{name}_b_proj"))

    widths = {"q": "H_k D_k", "k": "H_k D_k", "v": "H_v D_v"}
    parts = net.einsums("qkv", x, [(f"b s h, {to} h -> b s {to}", Weight(f"{name}_proj")) for name, to in widths.items()])
    joined = net.tensor("conv_in", "b s qkv_c")
    net.op("concat", "join", parts, [joined])
    with n.whole_sequences(net):
        mixed = n.convolve(net, joined, "conv1d", "W_c", activation="silu")
        q, k, v = n.view(net, mixed, "split_conv", [(name, f"b s {to}") for name, to in widths.items()])
    decay = projected("H_k D_k", "f")
    strength = net.einsum("b s h, H_v h -> b s H_v", x, Weight("b_proj"))
    with n.whole_sequences(net):
        strength = n.sigmoid(net, strength, "strength")
        a_log, dt_bias = net.parameter("A_log", "H_v"), net.parameter("dt_bias", "H_k D_k")
        o = net.tensor("delta.out", "b s H_v D_v")
        net.op("kda", "delta_rule", [q, k, v, decay, strength, a_log, dt_bias], [o])
    gate = projected("H_v D_v", "g")
    with n.whole_sequences(net):
        o = n.norm(net, o, "o_norm", "D_v", kind="RMSNorm")
        o = n.multiply(net, n.activate(net, (gate,), "gate", "sigmoid", in_fp32=True), o, "gated")
    return net.einsum("b s H_v D_v, h H_v D_v -> b s h", o, Weight("o_proj"))
