"""The dense feed-forward network, gated or not."""

from __future__ import annotations

from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def mlp(
    net: Net,
    x: str,
    *,
    width: str,
    gated: bool,
    activation: str,
    bias: bool = False,
    down_bias: bool | None = None,
    fused: bool = False,
    sparse: bool = False,
    norm: str = "",
    norm_bias: bool = False,
    dropped: bool = False,
    clamped: bool = False,
) -> str:
    """`x[b s h] -> y[b s h]` through `width`: act(x W_gate) * (x W_up) W_down, or act(x W_up) W_down. norm, dropped: of what is activated;
    clamped: what the first products make."""
    up, down = f"b s h, {width} h -> b s {width}", f"b s {width}, h {width} -> b s h"
    if gated:
        wide = net.einsums("gate_up", x, [(up, Weight("gate_proj", bias)), (up, Weight("up_proj", bias))], fused=fused)
    else:
        wide = (net.einsum(up, x, Weight("up_proj", bias)),)
    if sparse:
        wide = (n.gaussian_top_k(net, wide[0]), *wide[1:])
    if activation == "xielu":  # two learned slopes (Huang and Schlag 2024, arXiv 2411.13010)
        net.parameter("alpha_p", "one")
        net.parameter("alpha_n", "one")
    wide = n.clip(net, wide, "clamp") if clamped else wide
    hidden = n.activate(net, wide, "act", activation)
    hidden = n.norm(net, hidden, "sub_norm", width, kind=norm, bias=norm_bias) if norm else hidden
    hidden = n.dropout(net, hidden, "dropout") if dropped else hidden
    return net.einsum(down, hidden, Weight("down_proj", bias if down_bias is None else down_bias))
