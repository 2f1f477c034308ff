"""The `eager` profile's state-space mixer: transformers' torch functions of Mamba-2, in fp32 and chunk by chunk.

Source: transformers 5.23, models/bamba/modeling_bamba.py causal_conv1d_fn, mamba2_chunk_scan, segment_sum, BambaRMSNormGated, which
granitemoehybrid, nemotron_h and others share; what is kept was measured by the storages alive after forward.
"""

from __future__ import annotations

from symsim.algebra.expr import minimum
from symsim.frameworks.kernels import Kernels
from symsim.frameworks.primitives import cast, run
from symsim.frameworks.state_space import chunks
from symsim.ir.block import Dim, Op
from symsim.ir.operations import StateSpace

Products = list[tuple[str, ...]]


def eager_state_space(k: Kernels, op: Op) -> None:
    """Convolution and silu, the scan, and a norm of what the gate leaves, all of it in fp32 after the convolution."""
    chunks(k)
    whole, many = k.dims["n_scan"].size, minimum(1, k.dims["n_scan"].size - 1)
    for name, size in (("n_scan_1", whole + 1), ("n_first", whole + 1 - many), ("s_if_many", many * k.dims["s_scan"].size)):
        k.dims.setdefault(name, Dim(size, parts=("s",)))
    at = op.of(StateSpace)
    z, x, b, c, dt, *parameters = op.inputs
    taps = 2 if at.biased else 1
    convolved = _convolved(k, [x, b, c], parameters[:taps])
    y = _scanned(k, convolved, dt, parameters[taps : taps + 3])
    _gated(k, op, y, z, parameters[-1] if at.over else "", at.over)


def _convolved(k: Kernels, parts: list[str], parameters: list[str]) -> str:
    """F.conv1d of a view, padded at both ends, into s + W_m - 1 positions, and a silu that keeps those."""
    k.dims.setdefault("s_taps", Dim(k.dims["s"].size + k.dims["W_m"].size - 1, parts=("s",)))
    wide, dtype = ("b", "xBC", "s_taps"), k.tensors[parts[0]].dtype
    y = k.make("wide", wide, dtype)
    tap = (*wide, "W_m") if k.profile.assumptions["linear_attention_flops"] == "chunked" else ("b", "xBC", "s", "W_m")
    k.emit("scan", [*parts, *parameters], [y], saves=parts, name="conv1d", products=[tap], backward=[("dgrad", tap), ("wgrad", tap)])
    return run(k, "silu", [y], ("b", "xBC", "s"))


def _scanned(k: Kernels, x: str, dt: str, per_head: list[str]) -> str:
    """mamba2_chunk_scan: every matrix product keeps copies of its operands in the order in which it multiplies them, but of a single chunk x and
    the states as they are."""
    a, skip, bias = per_head
    rate = run(k, "scale", [run(k, "exp", [cast(k, a, "fp32")], kind="activation")])
    step = run(k, "softplus", [run(k, "add", [dt], of=[bias])])
    step = run(k, "clamp", [step])

    def kept(name: str, *dims: str, dtype: str = "fp32") -> str:
        return k.make(name, dims, dtype, "index")

    tokens, chunked = ("b", "s", "H_m"), ("b", "s_scan", "H_m")
    states = ("b", "H_m", "D_m", "N_m")
    made = [
        kept("x", *tokens, "D_m"),
        kept("x.skipped", *chunked, "D_m"),
        kept("steps.of_x", *tokens),
        kept("steps.of_decay", *tokens),
        *(kept(name, "Q_m", "Q_m", dtype="bool") for name in ("below", "above")),
        *(kept(name, "n_scan_1", "n_scan_1", dtype="bool") for name in ("chunks_below", "chunks_above")),
        kept("decay.within", *chunked, "Q_m"),
        kept("scores", *chunked, "Q_m"),
        kept("decayed_scores", *chunked, "Q_m"),
        kept("decay.to_end", *chunked),
        kept("decay.from_start", *chunked),
        kept("decay.of_chunks", "b", "H_m", "n_scan_1", "n_scan_1"),
        kept("B", *chunked, "N_m"),
        kept("B.of_scores", *chunked, "N_m"),
        kept("B.of_states", *chunked, "N_m"),
        kept("C.of_scores", *chunked, "N_m"),
        kept("C.of_output", *chunked, "N_m"),
        kept("x.of_output", *chunked, "D_m"),
        kept("x.of_states", "b", "s_if_many", "H_m", "D_m"),
        kept("states", "n_scan_1", *states),
        kept("first_states", "n_first", *states),
        kept("from_states", *chunked, "D_m"),
    ]
    y, products = k.make("out", (*chunked, "D_m"), "fp32"), _products(k)
    backward = [(label, product) for product in products for label in ("left", "right")]
    k.emit("scan", [x, step, rate, skip], [y, *made], saves=[rate, *made], name="scan", products=products, backward=backward)
    tokens_alone = k.make("tokens", (*tokens, "D_m"), "fp32", view_of=y)
    k.emit("view", [y], [tokens_alone], name="cut")
    return tokens_alone


def _products(k: Kernels) -> Products:
    """torch's FlopCounterMode of mamba2_chunk_scan: C with B and their sums with x inside a chunk, for every head by itself; states of chunks,
    each chunk's from all before it by one dense product, and what it reads of them (assumption linear_attention_flops: recurrence has two)."""
    if k.profile.assumptions["linear_attention_flops"] == "recurrence":
        return [("b", "s", "H_m", "D_m", "N_m")] * 2
    k.dims.setdefault("n_scan_2", Dim(k.dims["n_scan_1"].size, parts=("s",)))
    tokens, state = ("b", "s_scan", "H_m"), ("D_m", "N_m")
    return [(*tokens, "Q_m", "N_m"), (*tokens, "Q_m", "D_m"), (*tokens, *state), ("b", "n_scan_1", "n_scan_2", "H_m", *state), (*tokens, *state)]


def _gated(k: Kernels, op: Op, y: str, z: str, weight: str, over: tuple[str, ...]) -> None:
    """*RMSNormGated: the gate and the norm in fp32, and a cast for the projection that follows; without a norm the gate is in the type of z."""
    into, dtype, dims = op.outputs[0], k.tensors[z].dtype, k.dims_of(y)
    gate = run(k, "silu", [cast(k, z, "fp32") if over else z])
    gated = run(k, "mul", [y, gate], dims, "fp32")
    if not over:
        run(k, "cast", [gated], k.dims_of(into), dtype, into=into)
        return
    grouped = k.make("grouped", ("b", "s", "G_m", *over), "fp32", view_of=gated)
    k.emit("view", [gated], [grouped], name="group")
    rows = ("b", "s", "G_m")
    variance = run(k, "mean", [run(k, "pow", [grouped])], rows, kind="index", op_kind="norm", over=over)
    scaled = run(k, "mul", [grouped, run(k, "rsqrt", [variance], kind="index")])
    weighted = run(k, "mul", [weight, scaled], k.dims_of(scaled), "fp32")
    whole = k.make("whole", dims, "fp32", view_of=weighted)
    k.emit("view", [weighted], [whole], name="ungroup")
    run(k, "cast", [whole], k.dims_of(into), dtype, into=into)
