"""Token embedding, learned positions, and the norm and the dropout some models put after them."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.altup import begun
from symsim.layers.hyper_connections import spread
from symsim.layers.per_layer_input import embeddings_of_layers


def embedding(net: Net, model: Architecture) -> list[str]:
    """`ids[b s] -> x[b s h]`: rows of a table `[V h]` (or `[V h_e]`, projected), plus learned positions `[P h]`; and, of a model whose layers
    have embeddings of their own, these `[b s L h_p]`."""
    with net.within("embedding", "embedding"):
        ids = net.input("ids", "b s", "int64", "index")
        width = "h_e" if model.embedding_size else "h"
        table = net.weight("word_embeddings", f"V {width}", "table")
        x = net.tensor("words", f"b s {width}")
        net.op("embed", "lookup", [ids, table], [x])
        if model.embedding_size:
            x = net.einsum("b s h_e, h h_e -> b s h", x, Weight("project_in"))
        if model.position_embedding == "learned":
            positions = net.weight("position_embeddings", "P h")
            y = net.tensor("positioned", "b s h")
            net.op("add_positions", "add_positions", [x, positions], [y])
            x = y
        if model.token_types:
            types = net.weight("token_type_embeddings", "T_v h")
            y = net.tensor("typed", "b s h")
            net.op("add_positions", "add_token_types", [x, types], [y])
            x = y
        if model.embedding_norm:
            x = n.norm(net, x, "norm", kind=model.normalization, bias=model.norm_bias, weight=model.norm_weight)
        if model.dropped_embedding:
            x = n.dropout(net, x, "dropout")
        words = x
        if model.hyper_connections:
            x = spread(net, x)
    if model.altup:
        x = begun(net, x)
    return [x, embeddings_of_layers(net, ids, words, model)] if model.per_layer_input else [x]
