"""Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): one depth."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.decoder import decoder_layer
from symsim.layers.head import head


def mtp_depth(net: Net, x: str, model: Architecture) -> str:
    """`x[b s h], ids[b s] -> loss[b s]`: embed the next token, merge with x (2h -> h), one layer, the shared head."""
    kind = model.layer_kinds[model.last_kind]
    net.dim("h2", 2 * net.dims["h"].size)
    net.dim("h_o", net.dims["h"].size)
    with net.within("embedding", "embedding", borrows=True):
        ids = net.input("mtp_ids", "b s", "int64", "index")
        table = net.weight("word_embeddings", "V h", "table")
        embedded = net.tensor("words", "b s h")
        net.op("embed", "lookup", [ids, table], [embedded])
        if model.dropped_embedding:
            embedded = n.dropout(net, embedded, "dropout")
        if model.mtp_detaches_embedding:
            embedded = n.detached(net, embedded, "words")
    with net.within("mtp", "mtp"):
        embedded = n.norm(net, embedded, "enorm", kind=model.normalization, bias=model.norm_bias)
        hidden = n.norm(net, x, "hnorm", kind=model.normalization, bias=model.norm_bias)
        both = net.tensor("concat", "b s h2")
        net.op("concat", "concat", [embedded, hidden], [both])
        merged = net.einsum("b s h2, h_o h2 -> b s h_o", both, Weight("eh_proj"))
        y = decoder_layer(net, n.whole(net, merged, "merged", "b s h"), model, kind)
        y = n.norm(net, y, "final_layernorm", kind=model.normalization, bias=model.norm_bias)
    with net.within("", part="prediction_depth"):
        return head(net, y, model, final_norm=False, borrows=True)
