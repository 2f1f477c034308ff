"""Mamba-1 (Gu and Dao 2023, arXiv 2312.00752): a state for every channel, whose steps and matrices follow from the token."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def selective_scan(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: `D_i` channels and a gate, a short convolution, steps (of rank `r_i`) and B and C made of its result, a scan over
    `[D_i N_i]` states."""
    spec = model.selective_scan
    assert spec is not None
    net.dim("x_p", net.dims["r_i"].size + 2 * net.dims["N_i"].size)
    into = "b s h, D_i h -> b s D_i"
    x, z = net.einsums("in_proj", x, [(into, Weight("in_proj", spec.proj_bias)), (into, Weight("in_proj_z", spec.proj_bias))], fused=True)
    x = n.convolve(net, x, "conv1d", "W_i", bias=spec.conv_bias, activation="silu", joined=False)
    parts = n.view(
        net,
        net.einsum("b s D_i, x_p D_i -> b s x_p", x, Weight("x_proj")),
        "split_x",
        [("steps", "b s r_i"), ("B", "b s N_i"), ("C", "b s N_i")],
    )
    if spec.inner_norm != "none":
        widths = zip(parts, (("dt_norm", "r_i"), ("b_norm", "N_i"), ("c_norm", "N_i")))
        parts = tuple(n.norm(net, t, name, over, kind="RMSNorm", weight=spec.inner_norm == "weight") for t, (name, over) in widths)
    steps, b, c = parts
    steps = net.einsum("b s r_i, D_i r_i -> b s D_i", steps, Weight("dt_proj"))
    bias = net.weight("dt_proj", "D_i", "bias")
    y = net.tensor("scan.out", "b s D_i")
    net.op("selective_scan", "scan", [x, steps, b, c, z, bias, net.parameter("A_log", "D_i N_i"), net.parameter("D", "D_i")], [y])
    return net.einsum("b s D_i, h D_i -> b s h", y, Weight("out_proj", spec.proj_bias))
