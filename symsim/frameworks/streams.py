"""Kernels of hyper-connections: fused ones (arXiv 2512.24880, section 4.3: weights are made again in backward), and transformers' own torch code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.frameworks.kernels import Kernels, Lowering
from symsim.frameworks.primitives import cast, run
from symsim.ir.block import Op
from symsim.ir.operations import Norm


def te_hyper_weights(k: Kernels, op: Op) -> None:
    """Gates and the doubly stochastic matrix in one kernel: keeps what it reads, and makes the iterations again."""
    k.emit("hyper_weights", op.inputs, op.outputs, saves=op.inputs[:1])


def te_collapse(k: Kernels, op: Op) -> None:
    k.emit("collapse_streams", op.inputs, op.outputs, saves=op.inputs)


def te_mix(k: Kernels, op: Op) -> None:
    """Mixing and spreading in one kernel; or a product, a product with a weight of each stream, and an addition (Megatron-LM at d98e8a64,
    transformer/hyper_connection.py _fused_h_res_h_post_bda_native)."""
    if not k.profile.strategy.use_fused_mhc:
        eager_mix(k, op)
        return
    k.emit("mix_streams", op.inputs, op.outputs, saves=op.inputs, **mixing_products())


def te_spread(k: Kernels, op: Op) -> None:
    k.emit("spread_over_streams", op.inputs, op.outputs, saves=op.inputs[:2])


def te_scale_by_norm(k: Kernels, op: Op) -> None:
    k.emit("scale_by_norm", op.inputs, op.outputs, saves=op.inputs, attrs=op.attrs)


def mixing_products() -> dict[str, Any]:
    mixed = ("b", "s", "n_r", "n_q", "h")
    return {"products": [mixed], "backward": [("dgrad", mixed), ("wgrad", mixed)]}


def eager_hyper_weights(k: Kernels, op: Op) -> None:
    """Sigmoids of the scaled parts, and Sinkhorn-Knopp iterations on a softmax, each division of which keeps what it divides and by what."""
    made, base, scale = op.inputs
    connection = k.profile.model.hyper_connections
    assert connection is not None

    def part(y: str) -> str:
        """A part of the projection, scaled and shifted."""
        own = k.make("part", k.dims_of(y), "fp32", view_of=made)
        k.emit("view", [made], [own], name=f"split_{y.rsplit('.', 1)[-1]}")
        return run(k, "add", [run(k, "mul", [own, scale], k.dims_of(own)), base], k.dims_of(own))

    pre, *others = op.outputs
    run(k, "scale", [run(k, "sigmoid", [part(pre)])], into=pre)
    for post in others[:1]:
        run(k, "scale", [run(k, "sigmoid", [part(post)])], into=post)
    if len(others) < 2:
        return
    mixing = others[1]
    b, s, first, second = k.dims_of(mixing)
    now = run(k, "scale", [run(k, "softmax", [part(mixing)])])
    turns = [first, *[second, first] * (connection.sinkhorn_iterations - 1)]
    for at, over in enumerate(turns):
        rest = [b, s, *(d for d in (first, second) if d != over)]
        total = run(k, "scale", [run(k, "sum", [now], rest)])
        now = run(k, "div", [now, total], k.dims_of(mixing), into=mixing if at == len(turns) - 1 else "")


def eager_collapse(k: Kernels, op: Op) -> None:
    pre, x = op.inputs
    weighted = run(k, "mul", [pre, x], k.dims_of(x), "fp32")
    cast(k, run(k, "sum", [weighted], k.dims_of(op.outputs[0])), k.tensors[op.outputs[0]].dtype, into=op.outputs[0])


def eager_mix(k: Kernels, op: Op) -> None:
    post, y, mixing, x = op.inputs
    dtype = k.tensors[x].dtype
    narrow = [cast(k, t, dtype) for t in (post, mixing)]
    placed = run(k, "mul", [narrow[0], y], k.dims_of(x), dtype)
    mixed = k.make("mixed", k.dims_of(x), dtype)
    k.emit("mix_streams", [narrow[1], x], [mixed], saves=[narrow[1], x], name="product", **mixing_products())
    run(k, "add", [placed, mixed], into=op.outputs[0])


def eager_spread(k: Kernels, op: Op) -> None:
    """What goes to every stream is multiplied and added in fp32 (HYV4DecoderLayer)."""
    post, y, x = op.inputs
    placed = run(k, "mul", [post, cast(k, y, "fp32")], k.dims_of(x))
    cast(k, run(k, "add", [placed, cast(k, x, "fp32")]), k.tensors[x].dtype, into=op.outputs[0])


def eager_scale_by_norm(k: Kernels, op: Op) -> None:
    """The inverse of the root of the mean of squares, by which what was projected is multiplied (HYV4UnweightedRMSNorm)."""
    made, wide = op.inputs
    over = op.of(Norm).over
    rows = [d for d in k.dims_of(wide) if d not in over]
    mean = run(k, "mean", [run(k, "pow", [wide])], rows, kind="index", op_kind="norm", over=over)
    run(k, "mul", [made, run(k, "rsqrt", [mean], kind="index")], k.dims_of(made), into=op.outputs[0])


TE: Mapping[str, Lowering] = {
    "hyper_weights": te_hyper_weights,
    "collapse_streams": te_collapse,
    "mix_streams": te_mix,
    "spread_over_streams": te_spread,
    "scale_by_norm": te_scale_by_norm,
}
EAGER: Mapping[str, Lowering] = {
    "hyper_weights": eager_hyper_weights,
    "collapse_streams": eager_collapse,
    "mix_streams": eager_mix,
    "spread_over_streams": eager_spread,
    "scale_by_norm": eager_scale_by_norm,
}
