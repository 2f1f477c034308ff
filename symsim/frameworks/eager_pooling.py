"""The `eager` profile's pooling of tokens to entries (transformers 5.23, models/deepseek_v4/modeling_deepseek_v4.py DeepseekV4HCACompressor,
DeepseekV4CSACompressor)."""

from __future__ import annotations

from symsim.frameworks.kernels import Kernels
from symsim.frameworks.primitives import cast, run
from symsim.ir.block import Op


def eager_pool_tokens(k: Kernels, op: Op) -> None:
    """Weights by a softmax in fp32 over the tokens of an entry; two series are laid behind each other in new storage first."""
    kv, gate, bias = op.inputs
    (y,) = op.outputs
    _, _, series, width = k.dims_of(kv)
    b, entries, _, _ = k.dims_of(y)
    spans = (b, entries, "m_x", series, width)
    shifted = run(k, "add", [gate, bias], spans)
    values = k.make("spans", spans, k.tensors[kv].dtype, view_of=kv)
    k.emit("view", [kv], [values], name="spans")
    if k.block.dims[series].size != k.block.dims["one"].size:
        shifted, values = run(k, "copy", [shifted], spans), run(k, "copy", [values], spans)
    weights = cast(k, run(k, "softmax", [cast(k, shifted, "fp32")], spans), k.tensors[kv].dtype)
    run(k, "sum", [run(k, "mul", [values, weights], spans)], k.dims_of(y), into=y)
