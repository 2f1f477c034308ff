"""Manifold-constrained hyper-connections (Xie et al. 2026, arXiv 2512.24880): several residual streams, of which a mixer or a network reads a
weighted sum, and which are mixed by matrices whose rows and columns sum to one.

The weights are made of the streams themselves, as in transformers (models/deepseek_v4/modeling_deepseek_v4.py, DeepseekV4HyperConnection), and
without the matrices where streams are independent (models/hy_v4/modeling_hy_v4.py, HYV4HyperConnection).
"""

from __future__ import annotations

from dataclasses import replace

from symsim.inputs.architecture import HyperConnections
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n

STREAMS = "b s n_r h"


def spread(net: Net, x: str) -> str:
    """`x[b s h] -> streams[b s n_r h]`: every stream begins as what the tokens are embedded as."""
    y = net.tensor("streams", STREAMS)
    net.op("repeat", "streams", [x], [y])
    return y


def opened(net: Net, x: str, site: str, spec: HyperConnections) -> tuple[str, str, list[str]]:
    """`x[b s n_r h] -> collapsed[b s h], post[b s n_r], [mixing[b s n_q n_r]]`: what the site reads, how what it makes is spread, and how streams
    are mixed, if they are."""
    net.dim("n_q", net.dims["n_r"].size)
    streams = net.dims["n_r"].size
    net.dims["w_r"] = Dim(2 * streams if spec.independent else (streams + 2) * streams)
    net.dims["n_scales"] = Dim(net.dims["one"].size * (2 if spec.independent else 3))
    with net.within(f"{site}_connection", "mlp"):
        made = _projected(net, x, "b s n_r h, w_r n_r h -> b s w_r", spec)
        held = [_in_fp32(net, net.parameter(name, dims)) for name, dims in (("base", "w_r"), ("scale", "n_scales"))]
        of_streams = (("pre", "b s n_r"), ("post", "b s n_r"), *([] if spec.independent else [("mixing", "b s n_q n_r")]))
        pre, post, *mixing = (net.tensor(name, dims, "fp32") for name, dims in of_streams)
        net.op("hyper_weights", "weights", [made, *held], [pre, post, *mixing])
        return _collapsed(net, pre, x), post, mixing


def closed(net: Net, x: str, y: str, post: str, mixing: list[str], site: str) -> str:
    """`x[b s n_r h], y[b s h] -> z[b s n_r h]`: the streams, mixed or not, and what the site made of their sum added to each."""
    z = net.tensor(f"{site}_streams", STREAMS, net.tensors[x].dtype)
    with net.within(f"{site}_connection", "mlp"):
        net.op("mix_streams" if mixing else "spread_over_streams", "mix", [post, y, *mixing, x], [z])
    return z


def collapsed(net: Net, x: str, spec: HyperConnections) -> str:
    """`x[b s n_r h] -> y[b s h]`: one stream of all, in front of the final norm."""
    if spec.averaged:
        with net.within("collapse", "mlp"):
            y = net.tensor("mean", "b s h", net.tensors[x].dtype)
            net.op("average_streams", "average", [x], [y])
            return y
    net.dim("n_q", net.dims["n_r"].size)
    with net.within("collapse", "mlp"):
        made = _projected(net, x, "b s n_r h, n_q n_r h -> b s n_q", spec)
        held = [_in_fp32(net, net.parameter(name, dims)) for name, dims in (("base", "n_q"), ("scale", "one"))]
        pre = net.tensor("pre", "b s n_r", "fp32")
        net.op("hyper_weights", "weights", [made, *held], [pre])
        return _collapsed(net, pre, x)


def _projected(net: Net, x: str, equation: str, spec: HyperConnections) -> str:
    """The streams side by side, normed and projected, in fp32; or projected, and scaled as they would be normed."""
    wide = net.tensor("wide", STREAMS, "fp32")
    net.op("cast", "widen", [x], [wide])
    normed = wide if spec.independent else _in_fp32(net, n.norm(net, wide, "input_norm", "n_r h", weight=False))
    made = _in_fp32(net, net.einsum(equation, normed, Weight("fn")))
    _in_fp32(net, net.ops[-1].inputs[1])
    if not spec.independent:
        return made
    scaled = net.tensor("scaled", net.dims_of(made), "fp32")
    with net.within("", "norm"):
        net.op("scale_by_norm", "input_norm", [made, wide], [scaled], over=("n_r", "h"))
    return scaled


def _collapsed(net: Net, pre: str, x: str) -> str:
    y = net.tensor("collapsed", "b s h", net.tensors[x].dtype)
    net.op("collapse_streams", "collapse", [pre, x], [y])
    return y


def _in_fp32(net: Net, name: str) -> str:
    net.tensors[name] = replace(net.tensors[name], dtype="fp32")
    return name
