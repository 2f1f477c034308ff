"""PyTorch's autocast: parameters stay in fp32, and operands are cast in front of the kernels that its lists name.

Operands of a product in fp32 are cast to the type of the computation: those that are parameters once in a forward, others for every product.
Softmax, powers, layer norms and losses take fp32. What else there is takes the widest type among its operands, as PyTorch promotes.

Sources: torch/amp/autocast_mode.py; aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32), autocast_mode.cpp cached_cast
(PyTorch 2.13).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symsim.frameworks.kernels import Kernels, Profile, Types
from symsim.frameworks.primitives import cast
from symsim.ir.block import FLOATS
from symsim.ir.operations import PRODUCTS, Norm

_LOWER = (*PRODUCTS, "attention")
# of the operations that modules are written in here
_WIDE = frozenset({"pow", "rsqrt", "exp", "softmax", "sum", "cross_entropy"})


def autocast_types(profile: Profile) -> Types | None:
    """The types of kernels' operands and results under autocast; None without it: they are as declared."""
    return Types(operands, results, promoted) if profile.strategy.autocast else None


def operands(k: Kernels, kind: str, attrs: object, inputs: Sequence[str], saves: Iterable[str]) -> tuple[list[str], list[str]]:
    """What a kernel reads and keeps, with the casts in front of it. A product goes on naming its parameters, and keeps their copies. Grouped
    products of experts are taken for the linear maps that experts are before transformers 5, whose own kernel autocast does not know."""
    layer_norm = isinstance(attrs, Norm) and kind == "norm" and attrs.norm == "LayerNorm"
    if kind not in _LOWER and not layer_norm:
        return list(inputs), list(saves)
    to = "fp32" if layer_norm else k.profile.strategy.precision
    made = {t: cast(k, t, to) for t in dict.fromkeys(inputs) if k.tensors[t].kind == "activation" and k.tensors[t].dtype in FLOATS}
    kept = [made.get(t, t) for t in saves]
    if kind in PRODUCTS:
        copies = [_copy(k, t, to) for t in inputs if k.tensors[t].kind == "parameter" and k.tensors[t].dtype != to]
        kept += [t for t in copies[:1] if k.tensors[inputs[1]].dtype != to]
    return [made.get(t, t) for t in inputs], kept


def _copy(k: Kernels, parameter: str, to: str) -> str:
    """The copy of a parameter that all products of a forward share."""
    if parameter not in k.copies:
        k.copies[parameter] = cast(k, parameter, to)
    return k.copies[parameter]


def results(k: Kernels, kind: str, attrs: object, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give what a kernel makes its type."""
    for name in outputs:
        if k.tensors[name].kind == "activation" and inputs:
            k.retype(name, dtype=_of_result(k, kind, attrs, inputs))


def _of_result(k: Kernels, kind: str, attrs: object, inputs: Sequence[str]) -> str:
    if kind in _LOWER:
        return k.profile.strategy.precision
    if kind in ("view", "rope"):
        return k.tensors[inputs[0]].dtype
    if kind == "embed":
        return k.tensors[inputs[1]].dtype
    read = inputs if kind == "norm" else [t for t in inputs if k.tensors[t].kind == "activation"]
    return _widest(k, read or inputs)


def promoted(k: Kernels, primitive: str, inputs: Sequence[str]) -> tuple[list[str], str]:
    """Operands of an elementwise operation or a reduction with their casts, and the type of its result."""
    read = [cast(k, t, "fp32") if primitive in _WIDE and k.tensors[t].dtype in FLOATS else t for t in inputs]
    return read, k.tensors[read[0]].dtype if primitive in ("index", "gather", "repeat", "copy", "cast", "dropout") else _widest(k, read)


def _widest(k: Kernels, names: Iterable[str]) -> str:
    found = [k.tensors[t].dtype for t in names]
    return next((dtype for dtype in FLOATS if dtype in found), found[0])
