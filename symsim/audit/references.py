"""How large a difference is: over symsim's side, at the sizes of three models that many know."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from symsim.algebra.expr import Expr, Number
from symsim.algebra.facts import solved
from symsim.audit.proving import Sides, about, prove
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.placement.sizes import values

MODELS = ("gpt3-175b", "llama3-70b", "deepseek-v3")
STRATEGY = "tp=8,pp=8,dp=8,cp=2,ep=8,num_microbatches=64,seq_length=4096"
_STAGE: dict[str, Number] = {"i": 0, "first_i": 1, "embedding_i": 1, "loss_i": 0, "output_i": 0, "last_layer_i": 0, "t_step": 10}


@cache
def sizes_of(model: str) -> Mapping[str, Number]:
    """The symbols of a model under a usual strategy; its layers are L."""
    return _STAGE | values(load_model(model).architecture, load_strategy(STRATEGY))


def relative_sizes(sides: Sides, difference: Expr) -> dict[str, float]:
    """The difference over symsim's side at each model that has all their symbols."""
    try:
        whole = prove(sides, about(sides, sides.says), sides.says).left
    except InputError:
        return {}
    rates: dict[str, Number] = {n: v for n, v in sides.derived.values.items() if n.startswith(("Phi", "B_", "R_", "n_sm"))}
    given = solved(sides.facts)
    found = {}
    for model in MODELS:
        point = {**rates, **sizes_of(model)}
        try:
            point |= {name: value.evaluate(point) for name, value in given.items()}
            found[model] = float(difference.evaluate(point)) / float(whole.evaluate(point))
        except (KeyError, ZeroDivisionError, OverflowError):
            continue
    return found
