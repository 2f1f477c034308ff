"""Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): a state-space mixer, as transformers and Megatron-Core run it."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n


def mamba(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: one projection, short convolution of x, B and C, scan over `[D_m N_m]` states, gate, norm of a group.

    `G_m` groups of heads share B and C; `q_m` channels are a group's.
    """
    spec = model.mamba
    assert spec is not None
    inner, shared = (net.dims[many].size * net.dims[each].size for many, each in (("H_m", "D_m"), ("G_m", "N_m")))
    for name, width in (("zxBCdt", 2 * inner + 2 * shared + net.dims["H_m"].size), ("xBC", inner + 2 * shared)):
        net.dims[name] = Dim(width, parts=("H_m", "G_m"))
    net.dims["q_m"] = Dim(inner / net.dims["G_m"].size)
    projected = net.einsum("b s h, zxBCdt h -> b s zxBCdt", x, Weight("in_proj", spec.in_bias))
    heads, groups = "b s H_m D_m", "b s G_m N_m"
    parts = n.view(net, projected, "split", [("z", heads), ("x", heads), ("B", groups), ("C", groups), ("dt", "b s H_m")])
    convolution = [net.weight("conv1d", "xBC W_m"), *([net.weight("conv1d", "xBC", "bias")] if spec.conv_bias else [])]
    per_head = [net.parameter(name, "H_m") for name in ("A_log", "D", "dt_bias")]
    y = n.scan(net, parts, convolution, per_head, "ssd", norm="G_m q_m" if spec.gated_norm else "")
    return net.einsum("b s H_m D_m, h H_m D_m -> b s h", y, Weight("out_proj", spec.out_bias))
