"""Token embedding, learned positions, and the norm and the dropout some models put after them."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.altup import begun
from symsim.layers.hyper_connections import spread
from symsim.layers.per_layer_input import embeddings_of_layers


def embedding(net: Net, model: Architecture) -> list[str]:
    """`ids[b s] -> x[b s h]`: rows of a table `[V h]` (or `[V h_e]`, projected), plus learned positions `[P h]` (or all of it in `h_e`, normed and
    then projected); and, of a model whose layers have embeddings of their own, these `[b s L h_p]`."""
    with net.within("embedding", "embedding"):
        ids = net.input("ids", "b s", "int64", "index")
        width = "h_e" if model.embedding_size else "h"
        late = model.factored_embedding
        if model.embedding_rows:
            net.dims["V"] = net.dims["V_t"]
        table = net.weight("word_embeddings", f"V {width}", "table")
        x = net.tensor("words", f"b s {width}")
        net.op("embed", "lookup", [ids, table], [x])
        if model.embedding_size and not late:
            x, width = net.einsum("b s h_e, h h_e -> b s h", x, Weight("project_in")), "h"
        if model.position_embedding == "learned":
            positions = net.weight("position_embeddings", f"P {width}")
            y = net.tensor("positioned", f"b s {width}")
            net.op("add_positions", "add_positions", [x, positions], [y])
            x = y
        if model.token_types:
            types = net.weight("token_type_embeddings", f"T_v {width}")
            y = net.tensor("typed", f"b s {width}")
            net.op("add_positions", "add_token_types", [x, types], [y])
            x = y
        if model.embedding_norm:
            weight = model.norm_weight if model.embedding_norm_weight is None else model.embedding_norm_weight
            x = n.norm(net, x, "norm", width, kind=model.normalization, bias=model.norm_bias, weight=weight)
        if model.dropped_embedding:
            x = n.dropout(net, x, "dropout")
        if late:
            x = net.einsum("b s h_e, h h_e -> b s h", x, Weight("project_in", bias=True))
        words = x
        if model.hyper_connections:
            x = spread(net, x)
    if model.altup:
        x = begun(net, x)
    return [x, embeddings_of_layers(net, ids, words, model)] if model.per_layer_input else [x]
