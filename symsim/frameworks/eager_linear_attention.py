"""The `eager` profile's gated delta net: the convolution and the delta rule as transformers' torch functions run them.

Source: transformers 5.23, models/qwen3_next/modeling_qwen3_next.py causal_conv1d_fn, torch_chunk_gated_delta_rule,
Qwen3NextGatedDeltaNet; what is kept was measured by the storages alive after forward.
"""

from __future__ import annotations

from symsim.algebra.expr import ceil, expr, minimum
from symsim.frameworks.eager_modules import module_code
from symsim.frameworks.kernels import CHUNK, Kernels, convolution_products, delta_rule_products
from symsim.frameworks.primitives import cast, run
from symsim.ir.block import Dim, Op
from symsim.ir.operations import Convolution


def eager_convolution(k: Kernels, op: Op) -> None:
    """q, k and v, joined again (new storage) where they are parts of a projection, convolved into more positions than there are, and a silu that
    keeps those; without one, the first s are looked into."""
    at = op.of(Convolution)
    x = run(k, "cat", [op.inputs[0]]) if k.is_view(op.inputs[0]) and at.joined else op.inputs[0]
    b, s, channels = k.dims_of(x)
    k.dims.setdefault("s_padded", Dim(k.dims["s"].size + k.dims[k.dims_of(op.inputs[1])[-1]].size - 1, parts=("s",)))
    wide = k.make("wide", [b, channels, "s_padded"], k.tensors[x].dtype)
    k.emit("convolution", [x, *op.inputs[1:]], [wide], saves=[x], attrs=op.attrs, **convolution_products(k, op))
    y = op.outputs[0]
    if at.activation:
        run(k, at.activation, [wide], k.dims_of(y) if at.joined else (b, channels, s), into=y)
        return
    k.retype(y, view_of=wide)
    k.emit("view", [wide], [y], name="cut")


def eager_delta_rule(k: Kernels, op: Op) -> None:
    """In fp32, chunk by chunk. With one chunk the state is never read with a gradient, so what writes it is not kept."""
    q, key, v, *gates, a_log, dt_bias = op.inputs
    chunks = ceil(k.dims["s"].size / CHUNK)
    many = minimum(1, chunks - 1)
    for name, size in (("s_chunks", CHUNK * chunks), ("n_chunks", chunks), ("s_if_many", many * CHUNK * chunks), ("n_if_many", many * chunks)):
        k.dims.setdefault(name, Dim(size, parts=("s",)))
    k.dims.setdefault("chunk", Dim(expr(CHUNK)))
    by_head = ("b", "H_v", "s")

    def normalised(x: str) -> str:
        """l2norm of x repeated to every value head."""
        x = run(k, "cast", [x], (*by_head, "D_k"), "fp32")
        inverse = run(k, "rsqrt", [run(k, "sum", [run(k, "mul", [x, x])], by_head)])
        return padded(run(k, "mul", [x, inverse]))

    def padded(x: str) -> str:
        b, heads, _, *rest = k.dims_of(x)
        return run(k, "pad", [x], (b, heads, "s_chunks", *rest))

    q, key = normalised(q), normalised(key)
    v = padded(run(k, "cast", [v], (*by_head, "D_v"), "fp32"))
    joined = len(gates) == 1
    strength = run(k, "sigmoid", [run(k, "copy", gates, ("b", "s", "H_v")) if joined else gates[0]])
    strength = padded(run(k, "cast", [strength], by_head, "fp32"))
    rate = run(k, "scale", [run(k, "exp", [cast(k, a_log, "fp32")], kind="activation")])
    step = run(k, "softplus", [run(k, "add", [run(k, "cast", gates[-1:], ("b", "s", "H_v"), "fp32")], of=[dt_bias])])
    decay = padded(run(k, "copy", [run(k, "mul", [step, rate])], by_head))

    def kept(name: str, *dims: str, dtype: str = "fp32") -> str:
        return k.make(name, dims, dtype, "index")

    tokens, later = ("b", "H_v", "s_chunks"), ("b", "H_v", "s_if_many")
    within = [
        kept("causal", "chunk", "chunk", dtype="bool"),
        kept("pairwise_decay", *tokens, "chunk"),
        kept("scaled_keys", *tokens, "D_k"),
        kept("keys_by_keys", *tokens, "chunk"),
        kept("queries_by_keys", *tokens, "chunk"),
        kept("attention", *tokens, "chunk"),
        kept("system", *tokens, "chunk"),
        kept("new_values", *tokens, "D_v"),
        kept("old_keys", *tokens, "D_k"),
        kept("decay_of_keys", *tokens),
        kept("decay_of_queries", *tokens),
    ]
    scan = [
        kept("corrections", *tokens, "D_v"),
        kept("states", "b", "H_v", "n_chunks", "D_k", "D_v"),
        kept("decayed_queries", *later, "D_k"),
        kept("decayed_keys", *later, "D_k"),
        kept("decay_to_end", *later),
        kept("decay_of_state", "b", "H_v", "n_if_many"),
    ]
    y = k.make("out", (*by_head, "D_v"), "fp32")
    operands = [q, key, v, strength]
    k.emit("delta_rule", [*operands, decay], [y, *within, *scan], saves=[*operands, *within, *scan], **delta_rule_products(k))
    run(k, "cast", [y], k.dims_of(op.outputs[0]), k.tensors[op.outputs[0]].dtype, into=op.outputs[0])


def eager_kda(k: Kernels, op: Op) -> None:
    """The decay as the module writes it, and flash-linear-attention's kernel, which keeps what it reads: torch's own code makes [chunk chunk D_k] of
    every chunk (docs/accuracy.md)."""
    *operands, decay, strength, a_log, dt_bias = op.inputs
    gate = run(k, "add", [cast(k, decay, "fp32")], of=[dt_bias])
    if module_code(k.profile.model).decay_bounded:
        rate = run(k, "exp", [a_log], kind="activation")
        decay = cast(k, run(k, "scale", [run(k, "sigmoid", [run(k, "mul", [gate, rate])])]), k.tensors[decay].dtype)
    else:  # softplus, written out
        rate = run(k, "scale", [run(k, "exp", [cast(k, a_log, "fp32")], kind="activation")])
        smooth = run(k, "log", [run(k, "add", [run(k, "exp", [gate])])])
        large = run(k, "scale", [gate], dtype="bool", kind="index")
        decay = run(k, "mul", [run(k, "masked_fill", [gate, smooth, large]), rate])
    read = [*operands, decay, strength]
    k.emit("kda", read, op.outputs, saves=read, **delta_rule_products(k))
