"""The indexer of DeepSeek sparse attention (DeepSeek-V3.2, arXiv 2512.02556): which keys a query attends to."""

from __future__ import annotations

from symsim.inputs.architecture import LayerKind
from symsim.inputs.attention import Attention
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def indexer(net: Net, x: str, latent: str, query: str, key: str, spec: Attention, kind: LayerKind) -> str:
    """`x[b s h], latent[b s r_q] (or x) -> chosen[b s k_x]`: every query is held against one key of each token, in `a_x` heads whose scores are
    weighted and summed; the best `k_x` of them are chosen. No gradient flows back: the choice has none. What trains it is a loss of its own, the
    divergence of its scores from what the heads of attention make of query[b s a d_qk] and key[b s a d_qk], which are detached as x is."""
    with net.within("indexer", part="indexer"):
        x, latent = n.detached(net, x, "x"), "" if spec.dsa_indexer_input_norm else n.detached(net, latent, "latent")
        if spec.dsa_indexer_input_norm:
            read = n.norm(net, x, "q_input_norm", kind="LayerNorm", bias=True)
            q = net.einsum("b s h, a_x d_x h -> b s a_x d_x", read, Weight("wq_b"))
        else:
            q = net.einsum("b s r_q, a_x d_x r_q -> b s a_x d_x", latent, Weight("wq_b"))
        if spec.log_scaling:
            q = n.scaled_by_position(net, q, "softmax_scaling", "a_x")
        k = n.norm(net, net.einsum("b s h, one d_x h -> b s one d_x", x, Weight("wk")), "k_norm", "d_x", kind="LayerNorm", bias=True)
        weights = net.einsum("b s h, a_x h -> b s a_x", x, Weight("weights_proj"))
        turned = []
        for name, t in (("q", q), ("k", k)):
            if not kind.rope and spec.flat_heads:
                turned.append(t)
                continue
            turned.append(net.tensor(f"{name}_rot", net.dims_of(t)))
            net.op("rope_part", f"rope_{name}", [t], [turned[-1]], head="d_r")
        net.dim("z", "s")
        keys = n.whole(net, turned[1], "k_gather", "b z one d_x", sequence=True)
        scores = net.tensor("scores", "b s z", "fp32")
        net.op("index_scores", "scores", [turned[0], keys, weights], [scores])
        chosen = net.tensor("chosen", "b s k_x", "int32", "index")
        net.op("choose", "choose", [scores], [chosen])
        scored = [n.detached(net, t, name) for t, name in ((query, "query"), (key, "key"))]
        loss = net.tensor("loss", "b s", "fp32")
        net.op("index_loss", "loss", [turned[0], keys, weights, *scored, chosen], [loss])
    return chosen
