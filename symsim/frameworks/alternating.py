"""Kernels of alternating updates and of gates that are cut off: one each, which keeps what it reads, and transformers' own torch code
(models/gemma3n/modeling_gemma3n.py). No framework that symsim knows has fused ones: under `te` they are an assumption."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.frameworks.kernels import Kernels, Lowering, keep_inputs
from symsim.frameworks.primitives import cast, run
from symsim.frameworks.streams import mixing_products
from symsim.ir.block import Op
from symsim.ir.operations import Norm


def te_predict(k: Kernels, op: Op) -> None:
    k.emit("predict_streams", op.inputs, op.outputs, saves=op.inputs, **mixing_products())


def te_tanh(k: Kernels, op: Op) -> None:
    k.emit("tanh", op.inputs, op.outputs, saves=op.outputs)


def te_linear_in_streams(k: Kernels, op: Op) -> None:
    """Sums and copies keep nothing."""
    k.emit(op.kind, op.inputs, op.outputs)


def te_gaussian_top_k(k: Kernels, op: Op) -> None:
    """Both moments of a row, and one kernel for what is made of them."""
    k.emit("gaussian_top_k", [*op.inputs, *_moments(k, op)], op.outputs, saves=op.outputs, attrs=op.attrs)


def eager_tanh(k: Kernels, op: Op) -> None:
    cast(k, run(k, "tanh", [cast(k, op.inputs[0], "fp32")]), k.tensors[op.outputs[0]].dtype, into=op.outputs[0])


def eager_predict(k: Kernels, op: Op) -> None:
    """torch.matmul over the streams, which it leaves innermost; their sum with the streams is laid as these are."""
    mixing, x = op.inputs
    mixed = k.make("mixed", k.dims_of(x), k.tensors[x].dtype)
    k.emit("predict_streams", [mixing, x], [mixed], saves=[mixing, x], name="product", **mixing_products())
    run(k, "copy", [run(k, "add", [mixed, x])], into=op.outputs[0])


def eager_correct(k: Kernels, op: Op) -> None:
    """The change is repeated for every stream, and kept so."""
    predictions, active, y, weights = op.inputs
    repeated = run(k, "repeat", [run(k, "sub", [y, active])], k.dims_of(predictions))
    run(k, "add", [run(k, "mul", [repeated, run(k, "add", [weights])]), predictions], into=op.outputs[0])


def eager_take(k: Kernels, op: Op) -> None:
    run(k, "copy", op.inputs, k.dims_of(op.outputs[0]), into=op.outputs[0])


def eager_match(k: Kernels, op: Op) -> None:
    """Rows divided by their own root of the mean square, and multiplied by another's."""
    made, x = op.inputs
    target = run(k, "pow", [run(k, "mean", [run(k, "pow", [x])], k.dims_of(x)[:-1])])
    length = run(k, "sqrt", [run(k, "clamp", [run(k, "mean", [run(k, "pow", [made])], k.dims_of(made)[:-1])])])
    run(k, "div", [run(k, "mul", [made, target], k.dims_of(made)), length], k.dims_of(made), into=op.outputs[0])


def eager_stack(k: Kernels, op: Op) -> None:
    run(k, "cat", op.inputs, k.dims_of(op.outputs[0]), into=op.outputs[0])


def eager_average(k: Kernels, op: Op) -> None:
    *first, others = op.inputs
    b, s, _, h = k.dims_of(others)
    together = run(k, "cat", op.inputs, [b, s, "n_r", h]) if first else others
    run(k, "mean", [together], k.dims_of(op.outputs[0]), into=op.outputs[0])


def eager_gaussian_top_k(k: Kernels, op: Op) -> None:
    """Gate values below a quantile of the normal distribution of their row become zero."""
    (x,), (y,) = op.inputs, op.outputs
    mean, deviation = _moments(k, op)
    quantile = k.make("quantile", [], k.tensors[x].dtype, "index")
    k.emit("constant", [], [quantile], name="quantile")
    cutoff = run(k, "add", [mean, run(k, "mul", [deviation, quantile], kind="index")], kind="index")
    run(k, "relu", [run(k, "sub", [x, cutoff])], into=y)


def _moments(k: Kernels, op: Op) -> list[str]:
    (x,), over = op.inputs, op.of(Norm).over
    return [run(k, primitive, [x], k.dims_of(x)[:-1], kind="index", op_kind="norm", over=over) for primitive in ("mean", "std")]


TE: Mapping[str, Lowering] = {
    "tanh": te_tanh,
    "predict_streams": te_predict,
    "correct_streams": keep_inputs,
    "match_magnitude": keep_inputs,
    "gaussian_top_k": te_gaussian_top_k,
    **dict.fromkeys(("take_stream", "stack_streams", "average_streams"), te_linear_in_streams),
}
EAGER: Mapping[str, Lowering] = {
    "tanh": eager_tanh,
    "predict_streams": eager_predict,
    "correct_streams": eager_correct,
    "take_stream": eager_take,
    "match_magnitude": eager_match,
    "stack_streams": eager_stack,
    "average_streams": eager_average,
    "gaussian_top_k": eager_gaussian_top_k,
}
