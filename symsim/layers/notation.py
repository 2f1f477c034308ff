"""The notation layers are declared in: one function an operation, over named dimensions.

Declared operations are whole (a norm, a rotary embedding, a linear map); the fusion profile (`passes/fuse.py`)
rewrites each into the kernels that run and the tensors they keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symsim.ir import Net


def linear(
    net: Net,
    x: str,
    name: str,
    dims: str,
    *,
    contract: str = "h",
    bias: bool = False,
    keep_original: bool = False,
    high_precision: bool = False,
) -> str:
    """y = x W (+ bias): `x[... contract] -> y[dims]`.

    keep_original: another operation keeps x anyway, so FP8 keeps no second copy (TransformerEngine save_original_input).
    high_precision: an FP8 recipe leaves this product in the type of the computation.
    """
    made = projections(net, x, name, [(name, dims)], contract=contract, bias=bias, keep_original=keep_original, high_precision=high_precision)
    return made[0]


def projections(
    net: Net,
    x: str,
    name: str,
    outputs: Sequence[tuple[str, str]],
    *,
    contract: str = "h",
    bias: bool = False,
    fused: bool = False,
    keep_original: bool = False,
    high_precision: bool = False,
) -> tuple[str, ...]:
    """Several linear maps of one input, each (name, output dims); one GEMM when `fused` or when the profile fuses them."""
    summed = contract.split()
    batch = [d for d in net.dims_of(x) if d not in summed]
    weights, biases, results = [], [], []
    for label, dims in outputs:
        new = [d for d in dims.split() if d not in batch]
        weights.append(net.parameter(f"{label}.weight", [*new, *summed]))
        if bias:
            biases.append(net.parameter(f"{label}.bias", new))
    for label, dims in outputs:
        results.append(net.tensor(f"{label}.out", dims))
    net.op(
        "linear",
        name,
        [x, *weights, *biases],
        results,
        labels=tuple(label for label, _ in outputs),
        bias=bias,
        fused=fused,
        contract=tuple(summed),
        keep_original=keep_original,
        high_precision=high_precision,
    )
    return tuple(results)


def norm(
    net: Net,
    x: str,
    name: str,
    over: str = "h",
    *,
    kind: str = "RMSNorm",
    bias: bool = False,
    weight: bool = True,
    weight_dims: "str | None" = None,
    unit_offset: bool = False,
    region: "str | None" = None,
) -> str:
    """Normalisation of x over the dims `over`, with weight (and bias) of dims `weight_dims` (default: `over`)."""
    held = weight_dims or over
    with net.within("", "norm", region):
        parameters = [net.parameter(f"{name}.weight", held)] if weight else []
        parameters += [net.parameter(f"{name}.bias", held)] if weight and bias else []
        y = net.tensor(f"{name}.out", net.dims_of(x))
        net.op("norm", name, [x, *parameters], [y], over=tuple(over.split()), norm=kind, unit_offset=unit_offset)
    return y


def rope(net: Net, x: str, name: str, head: str, *, fraction: float = 1.0) -> str:
    """Rotary position embedding of `x[b s heads head]`."""
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("rope", name, [x], [y], head=head, fraction=fraction)
    return y


def attend(
    net: Net,
    q: str,
    k: str,
    v: str,
    *,
    heads: str = "a",
    groups: str = "g",
    key_dim: str = "d",
    value_dim: str = "d",
    reach: str = "all",
    sinks: bool = False,
) -> str:
    """softmax(q k^T) v, causal: `q[b s a d], k[b s g d], v[b s g e] -> o[b s a e]`."""
    net.dim("z", "s")
    keys = {"all": "n_z", "window": "n_w", "chunk": "n_c"}[reach]
    net.dim(keys)
    offsets = [net.parameter("sinks", heads)] if sinks else []
    with net.within("", region="core_attn"):
        o = net.tensor("core.out", f"b s {heads} {value_dim}")
        net.op(
            "attention",
            "core",
            [q, k, v, *offsets],
            [o],
            heads=heads,
            groups=groups,
            key_dim=key_dim,
            value_dim=value_dim,
            keys=keys,
        )
    return o


def activate(net: Net, x: "str | tuple[str, ...]", name: str, function: str, *, scale: "str | None" = None, in_fp32: bool = False) -> str:
    """function(gate) * up for a pair, function(x) otherwise; `scale` multiplies rows (routing probabilities).

    in_fp32: the modelling code casts x first.
    """
    parts = [x] if isinstance(x, str) else list(x)
    y = net.tensor(f"{name}.out", net.dims_of(parts[-1]))
    net.op(
        "activation",
        name,
        parts + ([scale] if scale else []),
        [y],
        function=function,
        gated=len(parts) == 2,
        scaled=scale is not None,
        in_fp32=in_fp32,
    )
    return y


def clip(net: Net, tensors: "Sequence[str]", name: str) -> tuple[str, ...]:
    """Each tensor clamped to a range."""
    made = tuple(net.tensor(f"{name}.{i}", net.dims_of(x), net.tensors[x].dtype) for i, x in enumerate(tensors))
    net.op("clip", name, tensors, made)
    return made


def add(net: Net, x: str, y: str, name: str) -> str:
    """Residual addition."""
    z = net.tensor(f"{name}.out", net.dims_of(x), net.tensors[x].dtype)
    net.op("add", name, [x, y], [z])
    return z


def dropout(net: Net, x: str, name: str) -> str:
    """x with elements set to zero at random."""
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("dropout", name, [x], [y])
    return y


def view(net: Net, x: str, name: str, parts: "Iterable[tuple[str, str]]") -> tuple[str, ...]:
    """Parts of x that share its memory."""
    made = tuple(net.tensor(label, dims, net.tensors[x].dtype, net.tensors[x].kind, view_of=x) for label, dims in parts)
    net.op("view", name, [x], made)
    return made


def multiply(net: Net, x: str, y: str, name: str) -> str:
    """Elementwise product of two activations (broadcast over missing dims)."""
    z = net.tensor(f"{name}.out", net.dims_of(y) if len(net.dims_of(y)) > len(net.dims_of(x)) else net.dims_of(x))
    net.op("multiply", name, [x, y], [z])
    return z


def sigmoid(net: Net, x: str, name: str) -> str:
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("sigmoid", name, [x], [y])
    return y


def gather(net: Net, x: str, name: str, dims: "str | None" = None) -> str:
    """x whole on every tensor-parallel rank (`dims` renames its dimensions): a redistribution the layer itself asks for."""
    y = net.tensor(f"{name}.whole", dims or net.dims_of(x), net.tensors[x].dtype, view_of=x)
    before, net.idle = net.idle, frozenset({"tp"})
    net.op("view", name, [x], [y])
    net.idle = before
    return y
