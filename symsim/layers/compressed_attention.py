"""Attention to a window and, further back, to one key for every few tokens (DeepSeek-V4; transformers models/deepseek_v4/modeling_deepseek_v4.py)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Dim, Net, Weight, whole_parts
from symsim.layers import notation as n


def compressed_attention(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: low-rank queries, one head that is key and value at once, and what heads give projected group by group.

    Positions are turned out of the result again, since values were turned as keys are.
    """
    spec, section = model.attention, model.compressed_attention
    assert section is not None

    def normed(t: str, name: str, over: str = "d", weight: bool = True) -> str:
        return n.norm(net, t, name, over, kind=model.normalization, weight=weight)

    def turned(t: str, name: str) -> str:
        return n.rope(net, t, name, "d", fraction=spec.rotary_fraction)

    latent = normed(net.einsum("b s h, r_q h -> b s r_q", x, Weight("q_a_proj")), "q_a_norm", "r_q")
    q = turned(normed(net.einsum("b s r_q, a d r_q -> b s a d", latent, Weight("q_b_proj")), "q_b_norm", weight=False), "rope_q")
    keys = turned(normed(net.einsum("b s h, one d h -> b s one d", x, Weight("kv_proj")), "kv_norm"), "rope_kv")
    chosen = ""
    if kind.compression is not None:
        net.dims["s_c"] = Dim(whole_parts(net.dims["s"].size, net.dims["m_x"].size), parts=("s",))
        net.dims["series"] = Dim(net.dims["one"].size * (2 if kind.chosen_entries else 1))
        with net.within("compressor"):
            entries = turned(normed(_pooled(net, x, "d"), "kv_norm"), "rope_kv")
        if kind.chosen_entries:
            chosen = _chosen(net, x, latent, model)
        net.dims["z"] = Dim(net.dims["s"].size + net.dims["s_c"].size)
        keys, own = net.tensor("joined", "b z one d"), keys
        net.op("append", "append", [own, entries], [keys])
    o = n.attend(
        net,
        (q, keys, keys),
        scores="b s a d, b z one(a) d -> b s a z",
        values="b s a z, b z one(a) d -> b s a d",
        reach=kind.reach,
        sinks=spec.sinks,
        chosen=chosen,
    )
    o = turned(o, "rope_back")
    net.dims["a_o"] = Dim(net.dims["a"].size / net.dims["G_o"].size)
    (grouped,) = n.view(net, o, "group", [("grouped", "b s G_o a_o d")])
    narrow = net.einsum("b s G_o a_o d, G_o r_o a_o d -> b s G_o r_o", grouped, Weight("o_a_proj"))
    return net.einsum("b s G_o r_o, h G_o r_o -> b s h", narrow, Weight("o_b_proj"))


def _pooled(net: Net, x: str, width: str) -> str:
    """`x[b s h] -> entries[b s_c one width]`: of `m_x` tokens a mean, weighted by a softmax over them for every channel; of two series the first is
    of the tokens before."""
    made = [net.einsum(f"b s h, series {width} h -> b s series {width}", x, Weight(name)) for name in ("kv_proj", "gate_proj")]
    entries = net.tensor("entries", f"b s_c one {width}")
    net.op("pool_tokens", "pool", [*made, net.parameter("position_bias", f"m_x series {width}")], [entries])
    return entries


def _chosen(net: Net, x: str, latent: str, model: Architecture) -> str:
    """`x[b s h], latent[b s r_q] -> chosen[b s k_x]`: the entries that a query attends to, by scores against entries of its own. No gradient."""
    with net.within("indexer", part="indexer"):
        x, latent = n.detached(net, x, "x"), n.detached(net, latent, "latent")
        entries = n.norm(net, _pooled(net, x, "d_x"), "kv_norm", "d_x", kind=model.normalization)
        q = net.einsum("b s r_q, a_x d_x r_q -> b s a_x d_x", latent, Weight("q_b_proj"))
        turned = []
        for name, t in (("q", q), ("kv", entries)):
            turned.append(n.rope(net, t, f"rope_{name}", "d_x"))
        weights = net.einsum("b s h, a_x h -> b s a_x", x, Weight("weights_proj"))
        net.dim("z_c", net.dims["s_c"].size)
        keys = n.whole(net, turned[1], "entries_gather", "b z_c one d_x", sequence=True)
        scores = net.tensor("scores", "b s z_c", "fp32")
        net.op("index_scores", "scores", [turned[0], keys, weights], [scores], keys="n_e")
        chosen = net.tensor("chosen", "b s k_x", "int32", "index")
        net.op("choose", "choose", [scores], [chosen])
    return chosen
