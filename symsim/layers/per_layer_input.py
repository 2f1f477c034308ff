"""Embeddings that every layer has of its own (per-layer embeddings of Gemma 3n and Gemma 4, transformers models/gemma4/modeling_gemma4.py)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Dim, Net, Weight
from symsim.layers import notation as n


def embeddings_of_layers(net: Net, ids: str, x: str, model: Architecture) -> str:
    """`ids[b s], x[b s h] -> y[b s L h_p]`: rows of a table `[V_p L*h_p]` of all layers, and a projection of what the tokens are embedded as."""
    net.dim("n_layers", "L")
    net.dims["h_all"] = Dim(net.dims["n_layers"].size * net.dims["h_p"].size)
    with net.within("per_layer_embedding", "embedding"):
        words = net.tensor("words", "b s h_all")
        net.op("embed", "lookup", [ids, net.weight("embed_tokens_per_layer", "V_p h_all", "table")], [words])
        words = n.view(net, words, "of_layers", [("words_of_layers", "b s n_layers h_p")])[0]
        projected = n.scale(net, net.einsum("b s h, h_all h -> b s h_all", x, Weight("per_layer_model_projection")), "projection_scale")
        projected = n.view(net, projected, "projected", [("projected_of_layers", "b s n_layers h_p")])[0]
        projected = n.norm(net, projected, "projection_norm", "h_p", kind=model.normalization)
        return n.scale(net, n.add(net, projected, words, "add_words"), "input_scale")


def per_layer_input(net: Net, x: str, model: Architecture) -> str:
    """`x[b s h], own[b s h_p] -> y[b s h]`: the layer's embeddings, gated by the stream, projected and normed."""
    assert model.mlp is not None
    with net.within("per_layer_input", "mlp"):
        gate = net.einsum("b s h, h_p h -> b s h_p", x, Weight("per_layer_input_gate"))
        gated = n.activate(net, (gate, net.input("own_embeddings", "b s h_p")), "act", model.mlp.activation)
        y = net.einsum("b s h_p, h h_p -> b s h", gated, Weight("per_layer_projection"))
        return n.norm(net, y, "post_norm", kind=model.normalization)
