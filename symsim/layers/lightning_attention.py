"""Lightning attention (Qin et al. 2024, arXiv 2405.17381), as MiniMax-Text-01 runs it (transformers models/minimax MiniMaxLightningAttention)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def lightning_attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: activated q, k and v of as many heads as attention, a recurrence over `[d d]` states in blocks of `C_l` tokens,
    a norm over all heads and a gate."""
    spec = model.lightning_attention
    assert spec is not None
    net.dim("d_qkv", 3 * net.dims["d"].size)
    qkv = n.activate(net, (net.einsum("b s h, a d_qkv h -> b s a d_qkv", x, Weight("qkv_proj")),), "qkv_act", spec.activation)
    q, k, v = n.view(net, qkv, "split", [(name, "b s a d") for name in "qkv"])
    o = net.tensor("lightning.out", "b s a d")
    net.op("lightning", "lightning", [q, k, v], [o])
    o = n.norm(net, o, "norm", "a d", kind="RMSNorm")
    gate = n.sigmoid(net, net.einsum("b s h, a d h -> b s a d", x, Weight("output_gate")), "gate")
    return net.einsum("b s a d, h a d -> b s h", n.multiply(net, gate, o, "gated"), Weight("out_proj"))
