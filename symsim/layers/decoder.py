"""A decoder layer: how norms, mixer and feed-forward network are put around the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from symsim.inputs.architecture import Architecture, HyperConnections, LayerKind
from symsim.ir.block import TOKENS, Net, Weight
from symsim.layers import notation as n
from symsim.layers.altup import corrected, laurel, predicted
from symsim.layers.attention import attention
from symsim.layers.compressed_attention import compressed_attention
from symsim.layers.hyper_connections import closed, opened
from symsim.layers.lightning_attention import lightning_attention
from symsim.layers.linear_attention import linear_attention
from symsim.layers.mamba import mamba
from symsim.layers.mla import mla
from symsim.layers.mlp import mlp
from symsim.layers.moe import moe
from symsim.layers.per_layer_input import per_layer_input
from symsim.layers.selective_scan import selective_scan
from symsim.layers.shared_block import shared_block
from symsim.layers.short_convolution import short_convolution

MIXERS: Mapping[str, Callable[[Net, str, Architecture, LayerKind], str]] = {
    "attention": attention,
    "mla": mla,
    "linear_attention": linear_attention,
    "lightning_attention": lightning_attention,
    "compressed_attention": compressed_attention,
    "short_convolution": short_convolution,
    "mamba": mamba,
    "selective_scan": selective_scan,
}


def decoder_layer(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: a layer of weights that it holds, or that an earlier one does."""
    with net.within("", borrows=kind.weights == "borrowed"):
        return _layer(net, x, model, kind)


def _layer(net: Net, x: str, model: Architecture, kind: LayerKind) -> str:
    """`x[b s h] -> y[b s h]`: sequential (x + mixer, then + ffn, of which a kind may have one alone) or parallel (x + mixer + ffn), norms
    where the model has them."""

    normed = partial(_normed, net, model, kind)

    def mixed(t: str) -> str:
        branches = []
        for mixer in (kind.beside, kind.mixer) if kind.beside else (kind.mixer,):
            with net.within("attention" if mixer == kind.mixer else mixer, "attention"):
                read = n.scale(net, t, "multiplier") if kind.beside and model.branch_multipliers else t
                latent = mixer == "attention" and model.attention.kind == "mla"
                branches.append(MIXERS["mla" if latent else mixer](net, read, model, kind))
        first, *rest = branches
        return n.add(net, first, rest[0], "add_mixers") if rest else first

    def fed(t: str, stream: str = "") -> str:
        if kind.beside_experts:
            return _beside_experts(net, _dense(net, t, model, kind), stream, model)
        if kind.ffn == "moe":
            with net.within("moe", "experts"):
                return moe(net, t, model, stream)
        return _dense(net, t, model, kind)

    def added(t: str, stream: str, position: str, name: str) -> str:
        if model.norms_after_residual:
            return normed(n.add(net, t, stream, name), position)
        return n.add(net, normed(t, position), stream, name)

    if model.parallel_block:
        ln1 = normed(x, "pre_attention")
        attended = normed(mixed(ln1), "post_attention")
        ln2 = normed(x, "pre_mlp") if "pre_mlp" in model.norms else ln1
        return n.add(net, n.add(net, attended, fed(ln2), "add_branches"), x, "add_residual")
    if model.hyper_connections:
        return _among_streams(net, x, model.hyper_connections, kind, {"attention": mixed, "mlp": fed}, normed)
    predictions, x = predicted(net, x) if model.altup else ("", x)
    active = x
    if kind.mixer != "none":
        entering = x if kind.shared_block == "none" else n.add(net, x, shared_block(net, x, model, kind), "add_shared_block")
        read = normed(entering, "pre_attention")
        x = added(mixed(read), read if model.residual_after_norm else x, "post_attention", "add_attention")
        x = laurel(net, read, x) if model.laurel_rank else x
    if kind.ffn == "none":
        return x
    packed = TOKENS in net.dims
    x = n.without_padding(net, x) if packed else x
    with net.within("", tokens=TOKENS if packed else None):
        read = normed(x, "pre_mlp")
        x = added(fed(read, x), read if model.residual_after_norm else x, "post_mlp", "add_ffn")
    x = n.padded_again(net, x) if packed else x
    if model.altup:
        return corrected(net, predictions, active, x, model)
    if model.per_layer_input:
        x = n.add(net, per_layer_input(net, x, model), x, "add_per_layer_input")
    return n.scale(net, x, "layer_scale") if model.layer_scale else x


def _dense(net: Net, t: str, model: Architecture, kind: LayerKind) -> str:
    spec = model.mlp
    assert spec is not None
    with net.within("mlp", "mlp"):
        return mlp(
            net,
            t,
            width="f",
            gated=spec.gated,
            activation=spec.activation,
            bias=spec.bias,
            down_bias=spec.down_bias,
            fused=spec.fused_gate_up,
            sparse=kind.activation_sparsity,
            norm=model.normalization if spec.inner_norm else "",
            norm_bias=model.norm_bias,
            dropped=bool(spec.inner_dropout),
        )


def _beside_experts(net: Net, made: str, stream: str, model: Architecture) -> str:
    """`made[b s h], stream[b s h] -> y[b s h]`: what the dense network made, normed, and what experts make of the stream, between norms."""
    norm = partial(n.norm, kind=model.normalization, bias=model.norm_bias, weight=model.norm_weight, unit_offset=model.norm_unit_offset)
    made = norm(net, made, "post_dense_norm")
    with net.within("moe", "experts"):
        y = moe(net, norm(net, stream, "pre_experts_norm", part="input_norm"), model, stream)
    return n.add(net, made, norm(net, y, "post_experts_norm"), "add_experts")


def _normed(net: Net, model: Architecture, kind: LayerKind, t: str, position: str) -> str:
    if position not in (model.norms if kind.norms is None else kind.norms):
        return t
    y = n.norm(
        net,
        t,
        f"{position}_norm",
        kind=model.normalization,
        bias=model.norm_bias,
        weight=model.norm_weight,
        unit_offset=model.norm_unit_offset,
        part="input_norm" if position.startswith("pre") else None,
    )
    return _gated_by_itself(net, y, position) if position in kind.gated_norms else y


def _gated_by_itself(net: Net, y: str, position: str) -> str:
    """`y[b s h] -> gated[b s h]`: what was normed, times a gate that two narrow products make of it."""
    with net.within(f"{position}_gate", "norm"):
        narrow = n.activate(net, (net.einsum("b s h, r_n h -> b s r_n", y, Weight("fc1")),), "act", "silu")
        logits = net.einsum("b s r_n, h r_n -> b s h", narrow, Weight("fc2"))
        return n.multiply(net, y, n.activate(net, (logits,), "gate", "sigmoid", in_fp32=True), "gated")


def _among_streams(
    net: Net, x: str, spec: HyperConnections, kind: LayerKind, sites: Mapping[str, Callable[[str], str]], normed: Callable[[str, str], str]
) -> str:
    """`x[b s n_r h] -> y[b s n_r h]`: mixer and network read a sum of the residual streams each, between norms, and go back to all of them."""
    for site, what in (("attention", kind.mixer), ("mlp", kind.ffn)):
        if what != "none":
            read, post, mixing = opened(net, x, site, spec)
            x = closed(net, x, normed(sites[site](normed(read, f"pre_{site}")), f"post_{site}"), post, mixing, site)
    return x
