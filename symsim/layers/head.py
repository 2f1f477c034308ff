"""The end of the model: final norm, language-model head, cross entropy; or the head of another task."""

from __future__ import annotations

from symsim.inputs.architecture import Architecture
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.altup import ended
from symsim.layers.hyper_connections import collapsed


def _final_norm(net: Net, x: str, model: Architecture) -> str:
    bias, weight, offset = model.final_norm_biased, model.norm_weight, model.norm_unit_offset
    return n.norm(net, x, "final_norm", kind=model.normalization, bias=bias, weight=weight, unit_offset=offset)


def task_head(net: Net, x: str, model: Architecture, task: str) -> str:
    """`x[b s h] -> loss`: norm and scores `[b s y]`, of every token, or of the last (transformers modeling_layers.py); embeddings `[b h]` have no
    scores, and their loss runs over them."""
    x = collapsed(net, x, model.hyper_connections) if model.hyper_connections else ended(net, x) if model.altup else x
    if model.final_norm:
        x = _final_norm(net, x, model)
    if task == "token_cls":
        x = n.dropout(net, x, "dropout")
    if task != "embedding":
        with net.within("lm_head", "lm_head"):
            x = net.einsum("b s h, y h -> b s y", x, Weight("lm_head", model.lm_head_bias), out="scores")
    with net.within("loss", "loss"):
        if task != "token_cls":
            last = net.tensor("last", tuple(d for d in net.dims_of(x) if d != "s"))
            net.op("pool", "pool", [x], [last])
            x = last
        rows = net.dims_of(x)[:-1]
        target, loss = net.input("labels", " ".join(rows), "int64", "index"), net.tensor("loss", rows, "fp32")
        net.op("cross_entropy", "cross_entropy", [x, target], [loss], upcast=task == "token_cls")
    return loss


def transformed(net: Net, x: str, model: Architecture) -> str:
    """`x[b s h] -> x[b s e]`: the projection, activation and norm of a masked language model's head (BERT), to the width of its output layer."""
    width = _width(model)
    with net.within("head_transform", "mlp"):
        made = "h_t" if width == "h" else width
        net.dim(made, width)
        x = net.einsum(f"b s h, {made} h -> b s {made}", x, Weight("dense", model.head_transform_bias))
        x = n.activate(net, (x,), "act", model.head_transform or "")
        x = n.norm(net, x, "norm", made, kind=model.normalization, bias=model.norm_bias)
        return n.view(net, x, "of_model", [("of_model", "b s h")])[0] if width == "h" else x


def _width(model: Architecture) -> str:
    """The dimension that the output layer reads."""
    return "h_y" if model.head_size else "h_e" if model.embedding_size else "h"


def head(net: Net, x: str, model: Architecture, *, final_norm: bool = True, tied: bool = False, borrows: bool = False) -> str:
    """`x[b s h] -> loss[b s]`: norm, logits `[b s V]`, cross entropy.

    tied: the weight is the embedding's; borrows: the whole output layer is another head's.
    """
    x = collapsed(net, x, model.hyper_connections) if model.hyper_connections else ended(net, x) if model.altup else x
    if final_norm and model.final_norm:
        x = _final_norm(net, x, model)
    if model.head_transform:
        x = transformed(net, x, model)
    width = _width(model)
    if net.dims_of(x)[-1] != width:
        with net.within("", "mlp"):
            x = net.einsum("b s h, h_e h -> b s h_e", x, Weight("project_out"))
    with net.within("lm_head", "lm_head", borrows=borrows):
        logits = net.einsum(f"b s {width}, V {width} -> b s V", x, Weight("lm_head", model.lm_head_bias, tied), out="logits")
    with net.within("loss", "loss"):
        target = net.input("labels", "b s", "int64", "index")
        loss = net.tensor("loss", "b s", "fp32")
        net.op("cross_entropy", "cross_entropy", [logits, target], [loss])
    return loss
