"""The dense feed-forward network, gated or not."""

from __future__ import annotations

from symsim.ir import Net
from symsim.layers import notation as n


def mlp(net: Net, x: str, *, width: str, gated: bool, activation: str, bias: bool = False, fused: bool = False, latent: str = "h") -> str:
    """`x[b s h] -> y[b s h]` through `width`: act(x W_gate) * (x W_up) W_down, or act(x W_up) W_down."""
    lead = " ".join(d for d in net.dims_of(x) if d != latent)
    if gated:
        gate, up = n.projections(
            net, x, "gate_up", [("gate_proj", f"{lead} {width}"), ("up_proj", f"{lead} {width}")], contract=latent, bias=bias, fused=fused
        )
        y = n.activate(net, (gate, up), "act", activation)
    else:
        y = n.activate(net, n.linear(net, x, "up_proj", f"{lead} {width}", contract=latent, bias=bias), "act", activation)
    return n.linear(net, y, "down_proj", f"{lead} {latent}", contract=width, bias=bias)
