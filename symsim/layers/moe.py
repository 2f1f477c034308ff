"""Mixture of experts: router, dispatch, grouped expert GEMMs, combine, shared experts."""

from __future__ import annotations

from dataclasses import replace

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.mlp import mlp


def moe(net: Net, x: str, model: Architecture, stream: str = "") -> str:
    """`x[b s h] -> y[b s h]`: every token goes to K of E experts; rows `R` are the tokens an expert rank computes. stream: what x was normed from."""
    spec = model.moe
    assert spec is not None
    width = "ell" if spec.moe_latent_size else "h"
    source = x
    if spec.moe_latent_size:
        with net.within("latent", "router"):
            source = net.einsum("b s h, ell h -> b s ell", x, Weight("fc1_latent_proj", spec.latent_bias))
    with net.within("gate", "router"):
        probabilities, indices = route(net, _routed(net, stream or x, model) if spec.router_norm else x, model)
    with net.within("experts", "experts"):
        rows, weights = dispatch(net, source, probabilities, indices, width)
        y = experts(net, rows, weights, model, width)
        y = combine(net, y, weights, indices, width)
    if spec.moe_latent_size:
        with net.within("latent", "router"):
            y = net.einsum("b s ell, h ell -> b s h", y, Weight("fc2_latent_proj", spec.latent_bias))
    if spec.moe_shared_expert_intermediate_size:
        clamped = spec.clamped and spec.clamped_shared
        with net.within("shared_experts", "shared_experts"):
            shared = mlp(net, x, width="f_s", gated=spec.gated, activation=spec.activation, bias=spec.shared_expert_bias, clamped=clamped)
        if spec.moe_shared_expert_gate:
            with net.within("shared_expert_gate", "router"):
                gate = n.sigmoid(net, net.einsum("b s h, one h -> b s one", x, Weight("shared_expert_gate")), "gate")
                shared = n.multiply(net, shared, gate, "gated")
        y = n.add(net, y, shared, "add_shared")
    return y


def _routed(net: Net, stream: str, model: Architecture) -> str:
    """modeling_gemma4.py, Gemma4TextRouter: normed, times a weight, times a constant."""
    normed = n.norm(net, stream, "router_norm", kind=model.normalization, weight=False)
    return n.scale(net, n.multiply(net, normed, net.parameter("scale", "h"), "scaled"), "root")


def route(net: Net, x: str, model: Architecture) -> tuple[str, str]:
    """Logits, scores, top-K: `x[b s h] -> probabilities[b s K], indices[b s K]`."""
    spec = model.moe
    assert spec is not None
    logits = net.einsum("b s h, E_r h -> b s E_r", x, Weight("router", spec.router_bias))
    if spec.moe_router_enable_expert_bias == "parameter":
        # moved by what experts got, not by a gradient (requires_grad=False in AFMoE, ERNIE 4.5 and Laguna)
        bias = net.parameter("e_score_correction_bias", "E_r")
        net.tensors[bias] = replace(net.tensors[bias], gradient=False)
    if spec.per_expert_scale:
        net.parameter("per_expert_scale", "E_r")
    probabilities = net.tensor("probabilities", "b s K", "fp32")
    indices = net.tensor("indices", "b s K", "int64", "index")
    net.op(
        "top_k",
        "top_k",
        [logits],
        [probabilities, indices],
        score=spec.moe_router_score_function,
        groups=spec.moe_router_num_groups or 0,
        pre_softmax=spec.moe_router_pre_softmax,
        normalise=spec.norm_topk_prob,
        per_expert=spec.per_expert_scale,
    )
    return probabilities, indices


def dispatch(net: Net, x: str, probabilities: str, indices: str, width: str) -> tuple[str, str]:
    """Tokens permuted by expert and sent to the ranks that hold it: `x[b s h] -> rows[R h], weights[R]`."""
    rows = net.tensor("rows", f"R {width}")
    weights = net.tensor("weights", "R", "bf16")
    net.op("dispatch", "dispatch", [x, probabilities, indices], [rows, weights], width=width)
    return rows, weights


def experts(net: Net, rows: str, weights: str, model: Architecture, width: str) -> str:
    """Grouped GEMMs: each row R with the weights of its own expert, `E(R)`; 2 R f h FLOPs whatever E is. Routing weights scale
    what goes into the second (or comes out of it, as the profile has it), or the rows themselves."""
    spec = model.moe
    assert spec is not None
    if spec.router_weight_before_experts:
        rows = n.multiply(net, weights, rows, "weighted")
    up, down = f"R {width}, E(R) f_e {width} -> R f_e", f"R f_e, E(R) {width} f_e -> R {width}"
    names = ("gate_proj", "up_proj") if spec.gated else ("up_proj",)
    wide = net.einsums("fc1", rows, [(up, Weight(name, spec.expert_bias)) for name in names])
    with net.within("", part="expert_activation"):
        wide = n.clip(net, wide, "clamp") if spec.clamped else wide
        hidden = n.activate(net, wide, "act", spec.activation, scale=None if spec.router_weight_before_experts else weights)
    return net.einsum(down, hidden, Weight("down_proj", spec.expert_bias), name="fc2")


def combine(net: Net, y: str, weights: str, indices: str, width: str) -> str:
    """Rows sent back and summed per token: `y[R h] -> z[b s h]`."""
    z = net.tensor("combined", f"b s {width}")
    net.op("combine", "combine", [y, weights, indices], [z], width=width)
    return z
