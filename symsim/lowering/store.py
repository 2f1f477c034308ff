"""store: frozen weights of linear maps in the type they are stored in, and what makes them anew for their products.

A product of a weight in 4 bits reads a copy of it in the type of the computation, which one more kernel has made and which nobody keeps;
backward makes it again (`differentiate`). A product in integers reads its input in 8 bits and writes integers, which another kernel scales.
Which: all linear maps but routers and the output layer; experts where asked for (transformers 5 has no linear modules of them).

Sources: bitsandbytes autograd/_functions.py; transformers quantizers/base.py get_modules_to_not_convert; `symsim/ir/quantised.py`.
"""

from __future__ import annotations

from dataclasses import replace

from symsim.frameworks.eager_modules import of_its_own
from symsim.frameworks.kernels import Profile
from symsim.ir.block import Block, Op, Tensor, rebuild
from symsim.ir.operations import PRODUCTS, Cast, Dequantise, Projection
from symsim.ir.quantised import STORED
from symsim.lowering.adapt import AGAIN

_WHOLE = frozenset({"lm_head", "router", "fn", "shared_expert_gate", "lora_A", "lora_B"})


def store(block: Block, profile: Profile) -> Block:
    """The block with its frozen weights stored so."""
    if profile.strategy.quantize_base == "none":
        return block
    made = _Made(profile, dict(block.tensors), frozenset(op.inputs[1] for op in block.ops if _is_stored(op, block, profile)))
    for op in block.ops:
        if op.kind in PRODUCTS and op.inputs[1] in made.weights:
            made.product(op)
        elif made.weights & set(op.inputs):
            made.beside(op)
        else:
            made.ops.append(op)
    return rebuild(block, made.ops, made.tensors)


def _is_stored(op: Op, block: Block, profile: Profile) -> bool:
    if op.kind not in PRODUCTS or block.tensors[op.inputs[1]].gradient:
        return False
    if not profile.framework.adapts_experts and of_its_own(op, profile.model):
        return False
    ours = not _WHOLE & set(op.of(Projection).labels) and not block.tensors[op.inputs[1]].borrowed
    return ours and (profile.strategy.quantize_experts or not op.einsums[0].chosen)


class _Made:
    """A block's operations as they read weights that are stored so."""

    def __init__(self, profile: Profile, tensors: dict[str, Tensor], weights: frozenset[str]):
        self.profile, self.tensors, self.weights = profile, tensors, weights
        self.ops: list[Op] = []
        self.beside_products: dict[str, str] = {}  # weights that what is no linear map has made anew

    def product(self, op: Op) -> None:
        if AGAIN in op.of(Projection).labels:
            self._of_what_is_there(op)
        elif STORED[self.profile.strategy.quantize_base].integer:
            self._in_integers(op)
        else:
            made = self._made_anew(op, op.inputs[1])
            self.ops.append(replace(op, inputs=(*op.inputs, made), attrs=self._attributes(op)))

    def beside(self, op: Op) -> None:
        """An operation that is no linear map, and reads the weight made anew."""
        weight = next(t for t in op.inputs if t in self.weights)
        self.beside_products[weight] = self._made_anew(op, weight)
        self.ops.append(replace(op, inputs=tuple(self.beside_products.get(t, t) for t in op.inputs)))

    def _of_what_is_there(self, op: Op) -> None:
        """The second product of a weight, of the copy that is there, which it keeps for its backward (peft tuners/lora/dora.py)."""
        made = self.beside_products[op.inputs[1]]
        keeps = (made,) if self.tensors[op.inputs[0]].gradient else ()
        self.ops.append(replace(op, inputs=(*op.inputs, made), saves=(*op.saves, *keeps)))

    def _made_anew(self, op: Op, name: str) -> str:
        weight, made = self.tensors[name], f"{op.name}.dequantised"
        self.tensors[made] = Tensor(made, weight.dims, self.profile.strategy.precision, module=op.module, gradient=False)
        kernel = _kernel(op, "dequantise", (weight.name,), made)
        self.ops.append(replace(kernel, attrs=Dequantise(self.profile.strategy.quantize_base)))
        return made

    def _in_integers(self, op: Op) -> None:
        """The cast of the input, the product of integers, and the scaling of its result; the input stays for backward as it was."""
        x, (y,) = op.inputs[0], op.outputs
        narrow, whole = f"{op.name}.int8", f"{op.name}.int32"
        self.tensors[narrow] = replace(self.tensors[x], name=narrow, dtype="int8", view_of=None)
        self.tensors[whole] = replace(self.tensors[y], name=whole, dtype="int32", view_of=None)
        keeps = (x,) if self.tensors[x].gradient else ()
        product = replace(op, inputs=(narrow, *op.inputs[1:]), outputs=(whole,), attrs=self._attributes(op))
        self.ops += [
            replace(_kernel(op, "quantise", (x,), narrow), attrs=Cast()),
            replace(product, saves=tuple(dict.fromkeys((*op.saves, *keeps)))),
            replace(_kernel(op, "quantise", (whole,), y), name=f"{op.name}.scale", attrs=Cast()),
        ]

    def _attributes(self, op: Op) -> Projection:
        return replace(op.of(Projection), stored=self.profile.strategy.quantize_base)


def _kernel(op: Op, kind: str, inputs: tuple[str, ...], output: str) -> Op:
    return replace(op, kind=kind, name=f"{op.name}.{kind}", inputs=inputs, outputs=(output,), einsums=(), products=(), backward_products=(), saves=())
