"""How many parameters a model has, from its declared blocks alone: what a list of many models can wait for."""

from __future__ import annotations

from symsim.algebra.expr import Number, product
from symsim.algebra.key import layers_of_model
from symsim.algebra.kinds import DEPTH
from symsim.cost.count import owned_parameters
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import respelt
from symsim.ir.roles import role_of
from symsim.lowering.lower import declared_alone
from symsim.pipeline.stages import sizes_of_kinds
from symsim.placement.sizes import values


def parameters(model: Architecture) -> tuple[int, int]:
    """All parameters, and those that a token uses: `params.total` and `params.active` of the model under no strategy (elements)."""
    read = respelt(model)
    known: dict[str, Number] = values(read, Strategy()) | sizes_of_kinds(read)
    total = experts = 0
    for name, block in declared_alone(model).items():
        times = known[layers_of_model(name).text] if name in read.layer_kinds else role_of(name).times.evaluate(known)
        copies = 1 if name == DEPTH and model.mtp_use_repeated_layer else int(times)
        for tensor in owned_parameters(block):
            held = int(product(block.dims[d].size for d in tensor.dims).evaluate(known)) * copies
            total += held
            experts += held if tensor.module == "experts" else 0
    return total, total - experts + (experts * int(known["K"]) // int(known["E"]) if experts else 0)
