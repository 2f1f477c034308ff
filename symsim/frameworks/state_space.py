"""The `te` profile's state-space mixer: the Triton kernels of mamba_ssm behind one autograd function, which keeps what it is handed and what
it scanned, and makes all between them again in its own backward.

Source: mamba_ssm 2.3 ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn), Megatron-Core ssm/mamba_mixer.py (_ssm_training) and
ssm/mamba_context_parallel.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from symsim.algebra.expr import ceil, maximum, symbol
from symsim.frameworks.kernels import Kernels
from symsim.frameworks.recompute import KERNEL
from symsim.ir.block import Dim, Op
from symsim.ir.operations import Norm, StateSpace

Products = list[tuple[str, ...]]


def chunks(k: Kernels) -> None:
    """Dimensions of a sequence in chunks, the last one padded."""
    chunk = k.dims["Q_m"].size
    many = ceil(k.dims["s"].size / chunk)
    for name, size in (("s_scan", chunk * many), ("n_scan", many)):
        k.dims.setdefault(name, Dim(size, parts=("s",)))


def te_state_space(k: Kernels, op: Op) -> None:
    """Convolution, steps, states of chunks, their passing on, products of C with B, and the scan with its gate: of all these the backward keeps
    inputs and the scan before its gate. The norm stands apart, since ranks of context parallelism have tokens again before it."""
    chunks(k)
    at = op.of(StateSpace)
    z, x, b, c, dt, *parameters = op.inputs
    b, c = _a_group_a_rank(k, op, (b, c))
    taps = 2 if at.biased else 1
    k.source = replace(op, regions=op.regions | {KERNEL})
    x, b, c = _convolved(k, [x, b, c], parameters[:taps])
    y = _scanned(k, op, (z, x, b, c, dt), parameters[taps : taps + 3])
    if at.over:
        _normed(k, op, y, parameters[-1], at.over)


def _a_group_a_rank(k: Kernels, op: Op, shared: tuple[str, ...]) -> tuple[str, ...]:
    """B and C of every rank that has heads of the group: repeated where there are fewer groups than ranks."""
    strategy = k.profile.strategy
    if strategy.cp == 1:
        return shared
    ranks = symbol("cp") * (symbol("tp") if strategy.tp > 1 else 1)
    k.dims["G_r"] = Dim(maximum(k.dims["G_m"].size, ranks), k.dims["G_m"].size, parts=("G_m",))
    made = []
    for name, t in zip(("B", "C"), shared):
        made.append(k.make(f"{name}.repeated", ("b", "s", "G_r", "N_m"), k.tensors[t].dtype, view_of=t))
        k.emit("view", [t], made[-1:], name=f"repeat_{name}")
    return tuple(made)


def _convolved(k: Kernels, parts: list[str], parameters: list[str]) -> tuple[str, ...]:
    """Depthwise causal convolution over `W_m` positions and a silu, of x, B and C side by side."""
    groups = k.dims_of(parts[1])[2]
    k.dims["xBC_r"] = Dim(k.dims["H_m"].size * k.dims["D_m"].size + 2 * k.dims[groups].size * k.dims["N_m"].size, parts=("H_m", "G_m"))
    made, tap = tuple(k.make(name, k.dims_of(t), k.tensors[t].dtype) for name, t in zip(("x", "B", "C"), parts)), ("b", "s", "xBC_r", "W_m")
    k.emit("scan", [*parts, *parameters], made, saves=parts, name="conv1d", products=[tap], backward=[("dgrad", tap), ("wgrad", tap)])
    return made


def _scanned(k: Kernels, op: Op, parts: tuple[str, ...], per_head: list[str]) -> str:
    """The scan and its gate: the tensor that is gated, which is the result where no norm follows."""
    z, x, b, c, dt = parts
    a, skip, bias = per_head
    steps, decay = (k.make(name, ("b", "H_m", "s_scan"), "fp32") for name in ("steps", "decay"))
    k.emit("scan", [dt, a, bias], [steps, decay], saves=[dt], name="cumsum")
    of_state, within = _products(k)
    state = ("b", "n_scan", "H_m", "D_m", "N_m")
    states, first = k.make("states", state, "fp32"), k.make("first_states", state, k.tensors[c].dtype)
    k.emit("scan", [b, x, steps, decay], [states], saves=[b, x, steps, decay], name="states", products=of_state, backward=_twice(of_state))
    k.emit("scan", [states, decay], [first], saves=[decay, first], name="passing")
    groups, scores = k.dims_of(b)[2], k.make("scores", ("b", "s_scan", "Q_m", k.dims_of(b)[2]), "fp32")
    of_scores = [("b", "s_scan", "Q_m", groups, "N_m")] if within else []
    k.emit("scan", [c, b], [scores], saves=[c, b], name="scores", products=of_scores, backward=_twice(of_scores))
    assert k.source is not None
    k.source = replace(k.source, regions=op.regions)
    last = not op.of(StateSpace).over
    y = op.outputs[0] if last else k.make("gated", k.dims_of(op.outputs[0]), k.tensors[x].dtype)
    ungated = k.make("scanned", k.dims_of(y), k.tensors[x].dtype, "index")
    read = [scores, x, steps, decay, c, first, z]
    # _chunk_scan_bwd_ddAcs_stable multiplies the result's gradient with x once more
    backward = [*_twice([*within, *of_state]), *(("decay", product) for product in within)]
    k.emit("scan", [*read, skip], [y, ungated], saves=[*read, ungated], name="scan", products=[*within, *of_state], backward=backward)
    return y


def _products(k: Kernels) -> tuple[Products, Products]:
    """A state's products with x or C, and those inside a chunk (assumption linear_attention_flops: recurrence has none)."""
    if k.profile.assumptions["linear_attention_flops"] == "recurrence":
        return [("b", "s", "H_m", "D_m", "N_m")], []
    return [("b", "s_scan", "H_m", "D_m", "N_m")], [("b", "s_scan", "Q_m", "H_m", "D_m")]


def _twice(products: Iterable[tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """A product's gradients of both operands."""
    return [(label, product) for product in products for label in ("left", "right")]


def _normed(k: Kernels, op: Op, y: str, weight: str, over: tuple[str, ...]) -> None:
    """RMSNormGated without its gate: keeps its input and a statistic a group."""
    dims, dtype = ("b", "s", "G_m", *over), k.tensors[y].dtype
    grouped, normed = k.make("grouped", dims, dtype, view_of=y), k.make("normed", dims, dtype)
    k.source = op
    k.emit("view", [y], [grouped], name="group")
    statistics = k.make("rsigma", ("b", "s", "G_m"), "fp32", "index")
    k.emit("norm", [grouped, weight], [normed, statistics], saves=[grouped, statistics], name="norm", attrs=Norm(over))
    k.retype(op.outputs[0], view_of=normed)
    k.emit("view", [normed], op.outputs, name="ungroup")
