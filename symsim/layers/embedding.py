"""Token embedding, learned positions, and the norm and the dropout some models put after them."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net
from symsim.layers import notation as n


def embedding(net: Net, model: Architecture) -> str:
    """`ids[b s] -> x[b s h]`: rows of a table `[V h]`, plus learned positions `[P h]`."""
    with net.within("embedding", "embedding"):
        ids = net.input("ids", "b s", "int64", "index")
        table = net.weight("word_embeddings", "V h", "table")
        x = net.tensor("words", "b s h")
        net.op("embed", "lookup", [ids, table], [x])
        if model.position_embedding == "learned":
            positions = net.weight("position_embeddings", "P h")
            y = net.tensor("positioned", "b s h")
            net.op("add_positions", "add_positions", [x, positions], [y])
            x = y
        if model.embedding_norm:
            x = n.norm(net, x, "norm", kind=model.normalization, bias=model.norm_bias, weight=model.norm_weight)
        if model.dropped_embedding:
            x = n.dropout(net, x, "dropout")
    return x
