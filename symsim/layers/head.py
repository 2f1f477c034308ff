"""The end of the model: final norm, language-model head, cross entropy."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n


def head(net: Net, x: str, model: Architecture, *, final_norm: bool = True, borrows: str = "") -> str:
    """`x[b s h] -> loss[b s]`: norm, logits `[b s V]`, cross entropy.

    borrows: "weight": the weight is the embedding's (tied); "all": the whole output layer is another head's.
    """
    if final_norm and model.final_norm:
        x = n.norm(net, x, "final_norm", kind=model.normalization, bias=model.norm_bias, weight=model.norm_weight, unit_offset=model.norm_unit_offset)
    with net.within("lm_head", "lm_head"):
        logits = net.einsum("b s h, V h -> b s V", x, Weight("lm_head", model.lm_head_bias, borrows), out="logits")
    with net.within("loss", "loss"):
        target = net.input("labels", "b s", "int64", "index")
        loss = net.tensor("loss", "b s", "fp32")
        net.op("cross_entropy", "cross_entropy", [logits, target], [loss])
    return loss
