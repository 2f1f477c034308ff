"""The end of the model: final norm, language-model head, cross entropy."""

from __future__ import annotations

from symsim.architecture import Architecture
from symsim.ir import Net
from symsim.layers import notation as n


def head(net: Net, x: str, model: Architecture, *, final_norm: bool = True, borrows: str = "", acceptance: bool = False) -> str:
    """`x[b s h] -> loss[b s]`: norm, logits `[b s V]`, cross entropy.

    borrows: "table": the weight is the embedding's (tied); "all": the whole output layer is another head's.
    acceptance: the predicted token is gathered for statistics (MTP).
    """
    if final_norm and model.final_norm:
        x = n.norm(net, x, "final_norm", kind=model.normalization, bias=model.norm_bias, weight=model.norm_weight, unit_offset=model.norm_unit_offset)
    with net.within("lm_head", "lm_head"):
        weight = net.parameter("lm_head.weight", "V h")
        inputs = [x, weight]
        if model.lm_head_bias:
            inputs.append(net.parameter("lm_head.bias", "V"))
        logits = net.tensor("logits", "b s V")
        net.op(
            "linear",
            "lm_head",
            inputs,
            [logits],
            labels=("lm_head",),
            bias=model.lm_head_bias,
            fused=False,
            contract=("h",),
            keep_original=False,
            high_precision=True,
            tied=tuple({"": [], "table": [weight], "all": inputs[1:]}[borrows]),
        )
    with net.within("loss", "loss"):
        target = net.input("labels", "b s", "int64", "index")
        loss = net.tensor("loss", "b s", "fp32")
        net.op("cross_entropy", "cross_entropy", [logits, target], [loss], acceptance=acceptance)
    return loss
