"""Mixture of experts: router, dispatch, grouped expert GEMMs, combine, shared experts."""

from __future__ import annotations

from symsim.architecture import Architecture
from symsim.ir import Net
from symsim.layers import notation as n
from symsim.layers.mlp import mlp


def moe(net: Net, x: str, model: Architecture) -> str:
    """`x[b s h] -> y[b s h]`: every token goes to K of E experts; rows `R` are the tokens an expert rank computes."""
    spec = model.moe
    assert spec is not None
    width = "ell" if spec.moe_latent_size else "h"
    source = x
    if spec.moe_latent_size:
        with net.within("latent", "router"):
            source = n.linear(net, x, "fc1_latent_proj", "b s ell", bias=spec.latent_bias)
    with net.within("gate", "router"):
        probabilities, indices = route(net, x, model)
    with net.within("experts", "experts"):
        rows, weights = dispatch(net, source, probabilities, indices, width)
        y = experts(net, rows, weights, model, width)
        y = combine(net, y, weights, indices, width)
    if spec.moe_latent_size:
        with net.within("latent", "router"):
            y = n.linear(net, y, "fc2_latent_proj", "b s h", contract="ell", bias=spec.latent_bias)
    if spec.moe_shared_expert_intermediate_size:
        with net.within("shared_experts", "shared_experts", region="shared_experts"):
            shared = mlp(net, x, width="f_s", gated=spec.gated, activation=spec.activation, bias=spec.shared_expert_bias)
        if spec.moe_shared_expert_gate:
            with net.within("shared_expert_gate", "router", region="shared_experts"):
                gate = n.sigmoid(net, n.linear(net, x, "shared_expert_gate", "b s one", high_precision=True), "gate")
                shared = n.multiply(net, gate, shared, "gated")
        y = n.add(net, y, shared, "add_shared")
    return y


def route(net: Net, x: str, model: Architecture) -> tuple[str, str]:
    """Logits, scores, top-K: `x[b s h] -> probabilities[b s K], indices[b s K]`."""
    spec = model.moe
    assert spec is not None
    logits = n.linear(net, x, "router", "b s E_r", bias=spec.router_bias, high_precision=True)
    if spec.moe_router_enable_expert_bias == "parameter":
        net.parameter("e_score_correction_bias", "E_r")
    probabilities = net.tensor("probabilities", "b s K", "fp32")
    indices = net.tensor("indices", "b s K", "int64", "index")
    net.op(
        "top_k",
        "top_k",
        [logits],
        [probabilities, indices],
        score=spec.moe_router_score_function,
        groups=spec.moe_router_num_groups or 1,
        pre_softmax=spec.moe_router_pre_softmax,
        normalise=spec.norm_topk_prob,
    )
    return probabilities, indices


def dispatch(net: Net, x: str, probabilities: str, indices: str, width: str) -> tuple[str, str]:
    """Tokens permuted by expert and sent to the ranks that hold it: `x[b s h] -> rows[R h], weights[R]`."""
    rows = net.tensor("rows", f"R {width}")
    weights = net.tensor("weights", "R", "bf16")
    net.op("dispatch", "dispatch", [x, probabilities, indices], [rows, weights], width=width)
    return rows, weights


def experts(net: Net, rows: str, weights: str, model: Architecture, width: str) -> str:
    """Grouped GEMMs: each row with its own expert's weights `[E f_e h]`; 2 R f h FLOPs whatever E is. Routing weights scale
    what goes into the second (or comes out of it, as the profile has it), or the rows themselves."""
    spec = model.moe
    assert spec is not None
    if spec.router_weight_before_experts:
        rows = n.multiply(net, weights, rows, "weighted")
    names = ["gate_proj", "up_proj"] if spec.gated else ["up_proj"]
    outputs = [net.tensor(f"{name}.out", "R f_e") for name in names]
    up_parameters = [net.parameter(f"{name}.weight", f"E f_e {width}") for name in names]
    if spec.expert_bias:
        up_parameters += [net.parameter(f"{name}.bias", "E f_e") for name in names]
    net.op("grouped", "fc1", [rows, *up_parameters], outputs, contract=(width,), labels=tuple(names), bias=spec.expert_bias)
    with net.within("", region="moe_act"):
        hidden = n.activate(
            net, tuple(outputs) if spec.gated else outputs[0], "act", spec.activation, scale=None if spec.router_weight_before_experts else weights
        )
    y = net.tensor("down_proj.out", f"R {width}")
    down = [net.parameter("down_proj.weight", f"E {width} f_e")]
    if spec.expert_bias:
        down.append(net.parameter("down_proj.bias", f"E {width}"))
    net.op("grouped", "fc2", [hidden, *down], [y], contract=("f_e",), labels=("down_proj",), bias=spec.expert_bias)
    return y


def combine(net: Net, y: str, weights: str, indices: str, width: str) -> str:
    """Rows sent back and summed per token: `y[R h] -> z[b s h]`."""
    z = net.tensor("combined", f"b s {width}")
    net.op("combine", "combine", [y, weights, indices], [z], width=width)
    return z
