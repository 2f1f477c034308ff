"""The notation layers are declared in: one function an operation, over named dimensions; linear maps are `net.einsum`.

Declared operations are whole (a norm, a rotary embedding, a linear map); the fusion profile (`frameworks/fuse.py`)
rewrites each into the kernels that run and the tensors they keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from symsim.ir.block import TOKENS, Net, Scope
from symsim.ir.operations import WHOLE_SEQUENCES, Attention


def whole_sequences(net: Net) -> Scope:
    """A `with` scope of operations that pass something on from token to token, and of what a framework keeps beside them."""
    return net.within("", part=WHOLE_SEQUENCES)


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
    part: "str | None" = None,
) -> str:
    """Normalisation of x over the dims `over`, with weight (and bias) of dims `weight_dims` (default: `over`)."""
    held = weight_dims or over
    with net.within("", "norm", part):
        parameters = [net.weight(name, held)] if weight else []
        parameters += [net.weight(name, held, "bias")] if weight and bias else []
        y = net.tensor(f"{name}.out", net.dims_of(x))
        net.op("norm", name, [x, *parameters], [y], over=tuple(over.split()), norm=kind, unit_offset=unit_offset)
    return y


def rope(net: Net, x: str, name: str, head: str, *, fraction: float = 1.0) -> str:
    """Rotary position embedding of `x[b s heads head]`."""
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("rope", name, [x], [y], head=head, fraction=fraction)
    return y


def attend(net: Net, qkv: tuple[str, str, str], *, scores: str, values: str, reach: str = "all", sinks: bool = False, chosen: str = "") -> str:
    """softmax(q k^T) v, causal unless it reaches both ways: `scores` and `values` say its two products over the
    positions `s` of queries and `z` of keys.

    `q[b s a d], k[b s g d], v[b s g e] -> o[b s a e]` where g is chosen by a: `b z g(a) d`. chosen: indices of the keys that a query
    attends to, `[b s k_x]`.
    """
    net.dim("z", "s")
    names = {"all": "n_z", "both": "n_b", "window": "n_w", "chunk": "n_c", "band": "n_v", "chosen": "n_k", "compressed": "n_j", "picked": "n_p"}
    keys = net.dim(names["chosen" if chosen and reach == "all" else reach])
    q, k, v = (net.dims_of(t) for t in qkv)
    of_keys, of_values = (tuple("z" if d == "s" else d for d in dims) for dims in (k, v))
    first = net.checked(scores, {0: q, 1: of_keys}, "scores of attention")
    second = net.checked(values, {0: first.result, 1: of_values}, "values of attention")
    says = Attention(first, second, keys)
    offsets = [net.parameter("sinks", says.heads)] if sinks else []
    with net.within("", part="core_attention"):
        o = net.tensor("core.out", second.result)
        net.op("attention", "core", [*qkv, *offsets, *([chosen] if chosen else [])], [o], scores=first, values=second, keys=keys)
    return o


def activate(net: Net, parts: tuple[str, ...], name: str, function: str, *, scale: "str | None" = None, in_fp32: bool = False) -> str:
    """function(gate) * up for a pair, function(x) for one; `scale` multiplies rows (routing probabilities).

    in_fp32: the modelling code casts x first.
    """
    y = net.tensor(f"{name}.out", net.dims_of(parts[-1]))
    inputs = [*parts, *([scale] if scale else [])]
    net.op("activation", name, inputs, [y], function=function, gated=len(parts) == 2, scaled=scale is not None, in_fp32=in_fp32)
    return y


def gaussian_top_k(net: Net, x: str) -> str:
    """x where it is above a quantile of the normal distribution that its row has, less that; else zero."""
    y = net.tensor("cut.out", net.dims_of(x))
    net.op("gaussian_top_k", "cut", [x], [y], over=net.dims_of(x)[-1:])
    return y


def convolve(net: Net, x: str, name: str, taps: str, *, bias: bool = False, activation: str = "", joined: bool = True) -> str:
    """Each channel (the last dimension of x) convolved over the last `taps` positions of its sequence, and activated."""
    held = [net.weight(name, (net.dims_of(x)[-1], taps))]
    held += [net.weight(name, net.dims_of(x)[-1], "bias")] if bias else []
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("convolution", name, [x, *held], [y], activation=activation, joined=joined)
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


def scale(net: Net, x: str, name: str) -> str:
    """x times a number that is not learned."""
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("scale", name, [x], [y])
    return y


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
    """Elementwise product of two activations; one of them may lack dimensions of the other, or have `one` there. ValueError for others."""
    own, other = ({d for d in net.dims_of(t) if d != "one"} for t in (x, y))
    if not (own <= other or other <= own):
        raise ValueError(f"{name}: '{' '.join(net.dims_of(x))}' times '{' '.join(net.dims_of(y))}' is of neither's dimensions")
    z = net.tensor(f"{name}.out", net.dims_of(x if other <= own else y))
    net.op("multiply", name, [x, y], [z])
    return z


def scan(net: Net, parts: "Sequence[str]", convolution: "Sequence[str]", per_head: "Sequence[str]", name: str, *, norm: str = "") -> str:
    """States passed on from token to token: parts are z (the gate), x, B, C and the steps dt; x, B and C are convolved first (weight, bias).

    per_head: A, D and the bias of the steps. norm: dimensions of the weight of a norm of what is gated, over the last of them.
    """
    y = net.tensor(f"{name}.out", net.dims_of(parts[0]))
    inputs = [*parts, *convolution, *per_head]
    if norm:
        with net.within("", "norm"):
            inputs.append(net.weight("norm", norm))
    net.op("state_space", name, inputs, [y], biased=len(convolution) == 2, over=tuple(norm.split()[1:]))
    return y


def scaled_by_position(net: Net, x: str, name: str, heads: str) -> str:
    """x times a + b log(position), with an a and a b of every head."""
    with net.within(name):
        positions = net.tensor("positions", "s", kind="index")
        net.op("copy", "positions", [net.table("position", "s", "int64")], [positions])
        slope, factors = (net.tensor(t, f"s {heads}") for t in ("slope", "factors"))
        net.op("multiply", "slope", [positions, net.parameter("scale", heads)], [slope])
        net.op("plus", "factors", [slope, net.parameter("bias", heads)], [factors])
        return multiply(net, x, factors, "scaled")


def sigmoid(net: Net, x: str, name: str) -> str:
    y = net.tensor(f"{name}.out", net.dims_of(x))
    net.op("sigmoid", name, [x], [y])
    return y


def detached(net: Net, x: str, name: str) -> str:
    """x, through which no gradient passes."""
    y = net.tensor(f"{name}.detached", net.dims_of(x), net.tensors[x].dtype, view_of=x)
    net.op("detach", name, [x], [y])
    net.tensors[y] = replace(net.tensors[y], gradient=False)
    return y


def without_padding(net: Net, x: str) -> str:
    """`x[b s h] -> y[b s_u h]`: the tokens of x that are no padding."""
    y = net.tensor("tokens", [TOKENS if d == "s" else d for d in net.dims_of(x)], net.tensors[x].dtype)
    net.op("leave_padding_out", "leave_padding_out", [x], [y])
    return y


def padded_again(net: Net, x: str) -> str:
    """`x[b s_u h] -> y[b s h]`: rows as long as the longest, with zeros where there is padding."""
    y = net.tensor("rows", ["s" if d == TOKENS else d for d in net.dims_of(x)], net.tensors[x].dtype)
    net.op("pad_again", "pad_again", [x], [y])
    return y


def whole(net: Net, x: str, name: str, dims: "str | None" = None, *, sequence: bool = False) -> str:
    """x whole on every rank that splits heads and widths (`dims` renames its dimensions): a redistribution the layer asks for. sequence: on
    those that split sequences too."""
    y = net.tensor(f"{name}.whole", dims or net.dims_of(x), net.tensors[x].dtype, view_of=x)
    net.op("view", name, [x], [y], whole=True, sequence=sequence)
    return y
