"""Mamba-1's scan: the kernel of mamba_ssm, and transformers' loop over tokens.

Source: mamba_ssm 2.3 ops/selective_scan_interface.py (SelectiveScanFn) and csrc/selective_scan (kNThreads * kNItems: 2,048 tokens between the
states that are kept); transformers 5.23, models/mamba/modeling_mamba.py mamba_selective_scan, which jamba and falcon_mamba share.
"""

from __future__ import annotations

from typing import Any

from symsim.algebra.expr import ceil, expr
from symsim.frameworks.kernels import Kernels
from symsim.frameworks.primitives import cast, run
from symsim.ir.block import Dim, Op

BETWEEN = 2048


def products(k: Kernels) -> dict[str, Any]:
    """Each state read by C, forward and for both gradients, which is all that transformers' loop multiplies; what is elementwise there counts as
    a product more where recurrences do (assumption linear_attention_flops)."""
    once = ("b", "s", "D_i", "N_i")
    many = 2 if k.profile.assumptions["linear_attention_flops"] == "recurrence" else 1
    return {"products": [once] * many, "backward": [("left", once), ("right", once)] * many}


def te_selective_scan(k: Kernels, op: Op) -> None:
    """One kernel: keeps its inputs, the states at every 2,048th token, and what it scanned before its gate."""
    x, steps, b, c, z, *_ = op.inputs
    k.dims.setdefault("n_states", Dim(ceil(k.dims["s"].size / BETWEEN), parts=("s",)))
    k.dims.setdefault("two", Dim(expr(2)))
    states = k.make("states", ("b", "D_i", "n_states", "two", "N_i"), "fp32", "index")
    scanned = k.make("scanned", k.dims_of(op.outputs[0]), k.tensors[x].dtype, "index")
    k.emit("scan", op.inputs, [*op.outputs, states, scanned], saves=[x, steps, b, c, z, states, scanned], **products(k))


def eager_selective_scan(k: Kernels, op: Op) -> None:
    """One token after the other, in fp32: decays `[b D_i s N_i]` and what is written of B are kept, and every state twice."""
    x, steps, b, c, z, bias, a, skip = op.inputs
    narrow, channels = k.tensors[x].dtype, ("b", "D_i", "s")
    step = run(k, "softplus", [run(k, "add", [steps], channels, of=[bias])])
    rate = run(k, "exp", [cast(k, a, "fp32")], kind="activation")
    rates = run(k, "scale", [rate], kind="activation")
    k.dims.setdefault("s_but_one", Dim(k.dims["s"].size - 1, parts=("s",)))
    wide = [run(k, "cast", [t], dtype="fp32") for t in (b, x)]
    made = [
        k.make(name, dims, dtype, "index")
        for name, dims, dtype in (
            ("decay", (*channels, "N_i"), "fp32"),
            ("written", (*channels, "N_i"), "fp32"),
            ("first", ("b", "D_i", "N_i"), narrow),
            ("states", ("b", "D_i", "s_but_one", "N_i"), "fp32"),
            ("states.read", (*channels, "N_i"), narrow),
            ("skip", ("D_i",), "fp32"),
        )
    ]
    y = k.make("out", channels, "fp32")
    k.emit("scan", [x, step, *wide, c, rates, skip], [y, *made], saves=[x, step, *wide, c, rates, *made], name="scan", **products(k))
    gated = run(k, "mul", [y, run(k, "silu", [z], channels)], channels, "fp32")
    run(k, "cast", [gated], channels, narrow, into=op.outputs[0])
