"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from __future__ import annotations

from symsim.architecture import Architecture, LayerKind
from symsim.ir import Net
from symsim.layers import notation as n


def mla(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: low-rank queries (optional) and keys/values; one rotary key shared by all heads."""
    spec = model.attention
    net.dim("d_qk", net.dims["d_k"].size + net.dims["d_r"].size)
    net.dim("d_kv", net.dims["d_k"].size + net.dims["d_v"].size)
    net.dim("r_kd", net.dims["r_k"].size + net.dims["d_r"].size)

    def normed(latent: str, name: str, rank: str) -> str:
        return n.norm(net, latent, name, rank, kind=model.normalization, bias=model.qk_norm_bias) if spec.latent_norm else latent

    if spec.q_lora_rank:
        q_latent = normed(n.linear(net, x, "q_a_proj", "b s r_q", bias=spec.qkv_bias), "q_a_layernorm", "r_q")
        q_source, q_contract, q_name = q_latent, "r_q", "q_b_proj"
    else:
        q_source, q_contract, q_name = x, "h", "q_proj"
        if spec.q_input_norm:
            q_source = n.norm(net, x, "q_layernorm", "h", kind=model.normalization, bias=model.norm_bias)
    joint = n.linear(net, x, "kv_a_proj_with_mqa", "b s r_kd", bias=spec.qkv_bias)
    latent, k_pe = n.view(net, joint, "kv_split", [("latent", "b s r_k"), ("k_pe", "b s d_r")])
    latent = normed(latent, "kv_a_layernorm", "r_k")
    k_pe = n.gather(net, k_pe, "k_pe_gather")  # every rank needs the rotary key for its own heads

    with net.within("", region="mla_up_proj"):
        q = n.linear(net, q_source, q_name, "b s a d_qk", contract=q_contract)
        kv = n.linear(net, latent, "kv_b_proj", "b s a d_kv", contract="r_k")
        k_nope, v = n.view(net, kv, "kv_up_split", [("k_nope", "b s a d_k"), ("v", "b s a d_v")])
        q_rot = net.tensor("q_rot", "b s a d_qk")
        net.op("rope_part", "rope_q", [q], [q_rot], head="d_r")
        k = net.tensor("k", "b s a d_qk")
        net.op("rope_concat", "rope_k", [k_nope, k_pe], [k], head="d_r")
        v = packed(net, v)
    o = n.attend(net, q_rot, k, v, groups="a", key_dim="d_qk", value_dim="d_v")
    return n.linear(net, o, "o_proj", "b s h", contract="a d_v", bias=spec.out_bias, keep_original=True)


def packed(net: Net, v: str) -> str:
    """The values in memory of their own where the profile's attention kernel asks for that."""
    y = net.tensor("v.packed", net.dims_of(v))
    net.op("pack", "v_pack", [v], [y])
    return y
