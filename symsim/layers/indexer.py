"""The indexer of DeepSeek sparse attention (DeepSeek-V3.2, arXiv 2512.02556): which keys a query attends to; and one that chooses blocks of keys
(MiniMax-M3)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.attention import Attention
from symsim.ir.block import Dim, Net, Weight, all_parts
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


def block_indexer(net: Net, x: str, model: Architecture) -> str:
    """`x[b s h] -> chosen[b s a_x n_x]`: every query is held against one key of each token in `a_x` heads; in each of these the blocks of `c_x` keys
    are chosen whose best key has the best scores (transformers models/minimax_m3_vl/modeling_minimax_m3_vl.py MiniMaxM3VLIndexer). No gradient.
    What turns queries and keys is attention's tables, as far as an indexer's head goes."""
    net.dims["z_x"] = Dim(all_parts(net.dims["s"].size, net.dims["c_x"].size))
    net.dims["n_x"] = Dim(net.dims["k_x"].size / net.dims["c_x"].size)
    with net.within("indexer", part="indexer"):
        x = n.detached(net, x, "x")
        made = []
        for name, heads in (("q", "a_x"), ("k", "one")):
            t = net.einsum(f"b s h, {heads} d_x h -> b s {heads} d_x", x, Weight(f"{name}_proj"))
            t = n.norm(net, t, f"{name}_norm", "d_x", kind=model.normalization, unit_offset=model.norm_unit_offset)
            made.append(n.rope(net, t, f"rope_{name}", "d", fraction=model.attention.rotary_fraction))
        net.dim("z", "s")
        keys = n.whole(net, made[1], "k_gather", "b z one d_x", sequence=True)
        scores = net.tensor("scores", "b s a_x z_x", "fp32")
        net.op("index_scores", "scores", [made[0], keys], [scores])
        chosen = net.tensor("chosen", "b s a_x n_x", "int32", "index")
        net.op("choose", "choose", [scores], [chosen])
    return chosen
