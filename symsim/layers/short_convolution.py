"""A gated short convolution, as LFM2 runs it (transformers models/lfm2 Lfm2ShortConv)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def short_convolution(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: two gates and a value of `h_c` channels, as many as h; each channel of the gated value is convolved over `W_l`
    positions."""
    spec = model.short_convolution
    assert spec is not None
    net.dim("h_c", net.dims["h"].size)
    parts = [("b s h, h_c h -> b s h_c", Weight(f"in_proj_{name}", spec.conv_bias)) for name in ("gate", "out_gate", "value")]
    gate, out_gate, value = net.einsums("in_proj", x, parts, fused=True)
    y = n.convolve(net, n.multiply(net, gate, value, "gated_in"), "conv1d", "W_l", bias=spec.conv_bias)
    return net.einsum("b s h_c, h h_c -> b s h", n.multiply(net, out_gate, y, "gated_out"), Weight("out_proj", spec.conv_bias))
