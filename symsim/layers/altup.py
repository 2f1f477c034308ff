"""Alternating updates (Baykal et al. 2023, arXiv 2301.13310): several residual streams, of which a layer computes on one; the others are predicted
from all of them before it, and corrected by what it changed. Beside them a branch of low rank (LAuReL, Menghani et al. 2024, arXiv 2411.07501).

The equations are those of transformers (models/gemma3n/modeling_gemma3n.py, Gemma3nTextAltUp, Gemma3nTextLaurelBlock and Gemma3nTextModel).
"""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n
from symsim.layers.hyper_connections import STREAMS
from symsim.layers.per_layer_input import per_layer_input


def begun(net: Net, x: str) -> str:
    """`x[b s h] -> streams[b s n_r h]`: what the tokens are embedded as, and projections of it of the same magnitude."""
    _others(net)
    with net.within("altup", "mlp"):
        made = net.einsum("b s h, n_e h_t h -> b s n_e h_t", x, Weight("projections"))
        y = net.tensor("streams", STREAMS)
        net.op("stack_streams", "stack", [x, _matched(net, made, x)], [y])
    return y


def ended(net: Net, x: str) -> str:
    """`x[b s n_r h] -> y[b s h]`: the mean of the first stream and of projections of the others, of its magnitude."""
    _others(net)
    with net.within("altup", "mlp"):
        first, others = n.view(net, x, "apart", [("first", "b s h"), ("others", "b s n_e h")])
        made = net.einsum("b s n_e h, n_e h_t h -> b s n_e h_t", others, Weight("unembed_projections"))
        y = net.tensor("mean", "b s h")
        net.op("average_streams", "average", [first, _matched(net, made, first)], [y])
    return y


def predicted(net: Net, x: str) -> tuple[str, str]:
    """`x[b s n_r h] -> predictions[b s n_r h], active[b s h]`: every stream and a mixture of all, of weights that the active one makes."""
    streams = net.dims["n_r"].size
    net.dim("n_q", streams)
    net.dims["w_r"] = Dim(streams * streams)
    with net.within("altup", "mlp"):
        modalities = _modalities(net, n.view(net, x, "active", [("active", "b s h")])[0])
        made = net.einsum("b s n_q, w_r n_q -> b s w_r", modalities, Weight("prediction_coefs"))
        mixing = n.view(net, made, "as_matrix", [("mixing", "b s n_q n_r")])[0]
        y = net.tensor("predictions", STREAMS, net.tensors[x].dtype)
        net.op("predict_streams", "predict", [mixing, x], [y])
        return y, n.view(net, y, "predicted", [("predicted", "b s h")])[0]


def corrected(net: Net, predictions: str, active: str, y: str, model: Architecture) -> str:
    """`predictions[b s n_r h], active[b s h], y[b s h] -> z[b s n_r h]`: what the layer changed of its stream is added to all, each with a
    weight; and the layer's own embeddings to all but that one."""
    assert model.altup is not None
    with net.within("altup", "mlp"):
        with net.within("", borrows=True):  # the weights that predicted
            modalities = _modalities(net, y)
        weights = net.einsum("b s n_q, n_r n_q -> b s n_r", modalities, Weight("correction_coefs"))
        z = net.tensor("corrected", STREAMS, net.tensors[predictions].dtype)
        net.op("correct_streams", "correct", [predictions, active, y, weights], [z])
        if model.per_layer_input is None:
            return z
        first = net.tensor("first", "b s h")
        net.op("take_stream", "take", [z], [first])
        scale = net.parameter("correct_output_scale", "h")  # which is there whether it is used or not
        first = n.multiply(net, first, scale, "scaled") if model.altup.correct_scale else first
    return n.add(net, z, per_layer_input(net, first, model), "add_per_layer_input")


def laurel(net: Net, read: str, x: str) -> str:
    """`read[b s h], x[b s h] -> y[b s h]`: the stream, what it was normed to, and a normed product of low rank of that."""
    with net.within("laurel", "mlp"):
        left = net.einsum("b s h, r_u h -> b s r_u", read, Weight("linear_left"))
        right = n.norm(net, net.einsum("b s r_u, h r_u -> b s h", left, Weight("linear_right")), "post_norm")
        return n.scale(net, n.add(net, x, n.add(net, read, right, "add_read"), "add_branch"), "scaled")


def _others(net: Net) -> None:
    net.dims["n_e"] = Dim(net.dims["n_r"].size - 1)
    net.dim("h_t", "h")


def _modalities(net: Net, x: str) -> str:
    """What weights are made of: the stream, normed and projected, through tanh in fp32."""
    routed = net.einsum("b s h, n_q h -> b s n_q", n.scale(net, n.norm(net, x, "router_norm"), "router_scale"), Weight("modality_router"))
    y = net.tensor("modalities", "b s n_q")
    net.op("tanh", "tanh", [routed], [y])
    return y


def _matched(net: Net, made: str, x: str) -> str:
    """`made[b s n_e h_t], x[b s h] -> y[b s n_e h]`: rows as long as those of x."""
    y = net.tensor("matched", "b s n_e h")
    net.op("match_magnitude", "match", [n.view(net, made, "of_model", [("of_model", "b s n_e h")])[0], x], [y])
    return y
