"""A transformer block whose weights several layers share, in front of each one's own mixer (Zamba2, arXiv 2411.15242, figure 2)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n
from symsim.layers.attention import attended


def shared_block(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h], embedded[b s h] -> y[b s h]`: both side by side, norm, attention, norm, network, and a projection of the layer's own.

    The products into heads and into the network's width have adapters of the layer's own beside them; all else is held by one layer and
    borrowed by others.
    """
    spec, borrows = model.shared_block, kind.shared_block == "borrowed"
    assert spec is not None
    net.dim("h2", 2 * net.dims["h"].size)
    with net.within("shared_block", borrows=borrows):
        both = net.tensor("concat", "b s h2")
        net.op("concat", "concat", [x, net.input("embedded", "b s h", borrowed=True)], [both])
        t = n.norm(net, both, "input_norm", "h2", kind=model.normalization, bias=model.norm_bias)
        with net.within("attention", "attention"):
            t = _attention(net, t, model, kind)
        t = n.norm(net, t, "pre_ff_norm", kind=model.normalization, bias=model.norm_bias)
        with net.within("mlp", "mlp"):
            t = _network(net, t, model)
    with net.within("linear", "mlp"):
        net.dim("h_t", "h")
        t = net.einsum("b s h, h_t h -> b s h_t", t, Weight("linear"))
        return n.view(net, t, "of_model", [("of_model", "b s h")])[0]


def _attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    spec = model.shared_block
    assert spec is not None
    heads, bias = {"q": "a", "k": "g", "v": "g"}, model.attention.qkv_bias
    q, k, v = net.einsums("qkv", x, [(f"b s h2, {many} d h2 -> b s {many} d", Weight(f"{name}_proj", bias)) for name, many in heads.items()])
    if spec.attention_adapters:
        adapted = [_adapted(net, x, t, f"{name}_adapter", "h2", f"{many} d") for t, (name, many) in zip((q, k, v), heads.items(), strict=True)]
        q, k, v = adapted
    return net.einsum("b s a d, h a d -> b s h", attended(net, (q, k, v), model, kind), Weight("o_proj", model.attention.out_bias))


def _network(net: Net, x: str, model: Architecture) -> str:
    mlp = model.mlp
    assert mlp is not None
    net.dims["ff"] = Dim(2 * net.dims["f"].size, parts=("f",))
    wide = net.einsum("b s h, ff h -> b s ff", x, Weight("gate_up_proj", mlp.bias))
    wide = _adapted(net, x, wide, "gate_up_adapter", "h", "ff")
    parts = n.view(net, wide, "split", [("gate", "b s f"), ("up", "b s f")])
    return net.einsum("b s f, h f -> b s h", n.activate(net, parts, "act", mlp.activation), Weight("down_proj", mlp.bias))


def _adapted(net: Net, x: str, t: str, name: str, read: str, made: str) -> str:
    """t, and what the layer's own two narrow products make of x."""
    with net.within(name, borrows=False):
        narrow = net.einsum(f"b s {read}, r_b {read} -> b s r_b", x, Weight("down"))
        return n.add(net, t, net.einsum(f"b s r_b, {made} r_b -> b s {made}", narrow, Weight("up")), "add")
