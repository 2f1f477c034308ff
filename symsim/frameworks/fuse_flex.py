"""The flex dispatcher under the `te` profile: kernels that exchange tokens with experts in place of collectives.

A rank hands in its tokens as they are, with the experts and weights of each; every rank that holds an expert of a token gets it once
(dimension `R_u`), and sorts what it got by expert, unless the exchange has done so. On the way back a rank sums what its experts made
of a token first. Read at Megatron-Core (transformer/moe/token_dispatcher.py MoEFlexTokenDispatcher, transformer/moe/fused_a2a.py) and
DeepEP (deep_ep/buffer.py, branch hybrid-ep: deep_ep/hybrid_ep_buffer.py).
"""

from __future__ import annotations

from symsim.algebra.expr import symbol
from symsim.frameworks.kernels import Kernels
from symsim.ir.block import Dim, Op
from symsim.ir.operations import Exchange


def dispatch(k: Kernels, op: Op, weight_dtype: str) -> None:
    """What the exchange keeps is where every token went and came from; what sorting keeps, the place of every row."""
    x, probabilities, indices = op.inputs
    rows, weights = op.outputs
    at = op.of(Exchange)
    k.retype(weights, dtype=weight_dtype)
    reached = [*k.dims_of(indices)[:-1], "ep"]
    kept = [k.make("reached", reached, "bool", "index"), k.make("place", reached, "int32", "index")]
    if k.profile.strategy.moe_permute_fusion_into_hybridep:
        k.emit("exchange_fused", op.inputs, [rows, weights, *kept], saves=kept, attrs=at)
        return
    arrived = k.make("arrived", ["R_u", at.width], k.tensors[rows].dtype)
    of_arrived = [k.make("arrived_weights", ["R_u", "K"], "fp32"), k.make("arrived_indices", ["R_u", "K"], "int64", "index")]
    k.emit("exchange_fused", op.inputs, [arrived, *of_arrived, *kept], saves=kept, attrs=at)
    map_dims = ["R"]
    if k.profile.assumptions["moe_permute_fusion"] == "true":
        here = k.dims["E_r"].size / (symbol("ep") if k.profile.strategy.ep > 1 else 1)
        k.dims["row_map"], map_dims = Dim(2 * here + 1), ["R_u", "row_map"]
    order = k.make("row_id_map", map_dims, "int32" if len(map_dims) > 1 else "int64", "index")
    k.emit("permute", [arrived, *of_arrived], [rows, weights, order], saves=[order], name="permute", attrs=at)


def combine(k: Kernels, op: Op) -> None:
    """A rank's rows of a token summed, then sent to where the token is from and summed there."""
    y, at = op.inputs[0], op.of(Exchange)
    if k.profile.strategy.moe_permute_fusion_into_hybridep:
        k.emit("exchange_fused_back", [y], op.outputs, attrs=at)
        return
    summed = k.make("summed", ["R_u", at.width], k.tensors[y].dtype)
    k.emit("unpermute", [y], [summed], name="unpermute")
    k.emit("exchange_fused_back", [summed], op.outputs, attrs=at)
