"""The `compile` profile: the eager modules under torch.compile. A chain of elementwise operations and reductions over rows between two
products is one kernel, and keeps what goes into it, from which backward makes the rest again (PyTorch 2.13 torch/_inductor/scheduler.py,
torch/_functorch/partitioners.py min_cut_rematerialization_partition)."""

from __future__ import annotations

from symsim.frameworks import fuse_eager
from symsim.frameworks.eager_attention import tables
from symsim.frameworks.eager_modules import module_code
from symsim.frameworks.kernels import Kernels, Lowering
from symsim.ir.block import Op
from symsim.ir.operations import Activation, Norm, Rope


def compiled_norm(k: Kernels, op: Op) -> None:
    """Keeps its input, and of every row what it was divided by (and its mean, where there is one)."""
    x, over = op.inputs[0], op.of(Norm).over
    rows = [d for d in k.dims_of(x) if d not in over]
    statistics = [k.make("rstd", rows, "fp32", "index")]
    if op.of(Norm).norm == "LayerNorm":
        statistics.append(k.make("mean", rows, "fp32", "index"))
    k.emit("norm", op.inputs, [*op.outputs, *statistics], saves=[x, *statistics], attrs=op.attrs)


def compiled_activation(k: Kernels, op: Op) -> None:
    """act(gate) * up in one kernel, of what it keeps. Routing weights are applied after the experts."""
    parts = list(op.inputs[:2] if op.of(Activation).gated else op.inputs[:1])
    k.emit("activation", parts, op.outputs, saves=parts, attrs=op.attrs)


def compiled_rope(k: Kernels, op: Op) -> None:
    """Keeps nothing of its own: the tables are there for all layers, and turning back needs no more."""
    if op.of(Rope).fraction < 1 or module_code(k.profile.model).rotary_concatenates:
        fuse_eager.eager_rope(k, op)
        return
    made = tables(k, op.of(Rope).head, op.of(Rope).fraction)
    k.emit("rope", [*op.inputs, *made], op.outputs, saves=made, attrs=op.attrs)


def compiled_add(k: Kernels, op: Op) -> None:
    """Dropout and the residual addition, with a mask that is drawn again in backward."""
    k.emit("add", op.inputs, op.outputs)


LOWERINGS: dict[str, Lowering] = {
    **fuse_eager.LOWERINGS,
    "norm": compiled_norm,
    "activation": compiled_activation,
    "rope": compiled_rope,
    "add": compiled_add,
}
