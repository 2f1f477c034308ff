"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.attention import gate_of, gated_by_head
from symsim.layers.indexer import indexer


def mla(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: low-rank queries (optional) and keys/values; one rotary key shared by all heads."""
    spec = model.attention
    net.dim("d_qk", net.dims["d_k"].size + net.dims["d_r"].size)
    flat = spec.flat_heads and not kind.rope
    net.dim("d_kv", net.dims["d_qk" if flat else "d_k"].size + net.dims["d_v"].size)
    net.dim("r_kd", net.dims["r_k"].size + net.dims["d_r"].size)

    values_gate = gate_of(net, net.einsum("b s h, a d_v h -> b s a d_v", x, Weight("gate_proj", spec.gate_bias)), spec) if spec.output_gate else ""

    def normed(latent: str, name: str, rank: str) -> str:
        return n.norm(net, latent, name, rank, kind=model.normalization, bias=model.qk_norm_bias) if spec.latent_norm else latent

    if spec.q_lora_rank:
        q_latent = net.einsum("b s h, r_q h -> b s r_q", x, Weight("q_a_proj", spec.qkv_bias))
        q_source = normed(q_latent, "q_a_layernorm", "r_q")
        q_up, q_weight = "b s r_q, a d_qk r_q -> b s a d_qk", Weight("q_b_proj")
    else:
        q_source, q_up, q_weight = x, "b s h, a d_qk h -> b s a d_qk", Weight("q_proj")
        if spec.q_input_norm:
            q_source = n.norm(net, x, "q_layernorm", "h", kind=model.normalization, bias=model.norm_bias)
    if flat:
        latent, k_pe = net.einsum("b s h, r_k h -> b s r_k", x, Weight("kv_a_proj_with_mqa", spec.qkv_bias)), ""
    else:
        joint = net.einsum("b s h, r_kd h -> b s r_kd", x, Weight("kv_a_proj_with_mqa", spec.qkv_bias))
        latent, k_pe = n.view(net, joint, "kv_split", [("latent", "b s r_k"), ("k_pe", "b s d_r")])
    latent = normed(latent, "kv_a_layernorm", "r_k")
    if k_pe:
        with net.within("", part="rotary_key"):
            k_pe = n.whole(net, k_pe, "k_pe_gather")  # every rank needs the rotary key for its own heads

    with net.within("", part="up_projection"):
        q, gate = _gated(net, q_source, q_latent) if spec.latent_gate else (net.einsum(q_up, q_source, q_weight), "")
        kv = net.einsum("b s r_k, a d_kv r_k -> b s a d_kv", latent, Weight("kv_b_proj"))
        k_nope, v = n.view(net, kv, "kv_up_split", [("k_nope", "b s a d_qk" if flat else "b s a d_k"), ("v", "b s a d_v")])
        k = net.tensor("k", "b s a d_qk")
        if kind.rope:
            q_rot = net.tensor("q_rot", "b s a d_qk")
            net.op("rope_part", "rope_q", [q], [q_rot], head="d_r")
            net.op("rope_concat", "rope_k", [k_nope, k_pe], [k], head="d_r")
        else:
            q_rot = q
            net.op("concat", "join_k", [k_nope, *([k_pe] if k_pe else [])], [k])
        if spec.log_scaling:
            q_rot = n.scaled_by_position(net, q_rot, "softmax_scaling", "a")
        v = packed(net, v)
    chosen = ""
    if spec.dsa_indexer_topk and kind.indexer:
        chosen = net.table("chosen_before", "b s k_x", "int32") if kind.shared_index else indexer(net, x, q_source, q_rot, k, spec, kind)
    scores, values = "b s a d_qk, b z a d_qk -> b s a z", "b s a z, b z a d_v -> b s a d_v"
    o = n.attend(net, (q_rot, k, v), scores=scores, values=values, sinks=spec.sinks, chosen=chosen)
    if values_gate:
        o = n.multiply(net, values_gate, o, "gated")
    if spec.head_gate:
        o = gated_by_head(net, x, o, spec)
    if gate:
        o = n.multiply(net, o, n.activate(net, (gate,), "gate", "sigmoid", in_fp32=True), "gated")
    return net.einsum("b s a d_v, h a d_v -> b s h", o, Weight("o_proj", spec.out_bias))


def _gated(net: Net, normed: str, latent: str) -> tuple[str, str]:
    """`normed[b s r_q], latent[b s r_q] -> q[b s a d_qk], gate[b s a d_v]`: one product of both side by side."""
    net.dim("r_qq", 2 * net.dims["r_q"].size)
    net.dim("d_qg", net.dims["d_qk"].size + net.dims["d_v"].size)
    both = net.tensor("q_both", "b s r_qq")
    net.op("concat", "join_q", [normed, latent], [both])
    made = net.einsum("b s r_qq, a d_qg r_qq -> b s a d_qg", both, Weight("q_gate_proj"))
    q, gate = n.view(net, made, "q_split", [("q", "b s a d_qk"), ("gate", "b s a d_v")])
    return q, gate


def packed(net: Net, v: str) -> str:
    """The values, which were made in one product with keys, in memory of their own or not, as the framework has it."""
    y = net.tensor("v.packed", net.dims_of(v))
    net.op("pack", "v_pack", [v], [y])
    return y
