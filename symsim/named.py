"""A result's numbers by the names of `symsim list quantities`, and what is said of a name that there is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symsim.errors import InputError, cut, nearest
from symsim.expr import Number
from symsim.grid.quantities import EXPOSED, QUANTITIES
from symsim.step_time import exposed_axes

if TYPE_CHECKING:
    from symsim.evaluation import Evaluation


class UnknownName(InputError, KeyError):
    """A name that a result does not have; the sentence names the nearest."""

    __str__ = Exception.__str__


def symbol_of(result: "Evaluation", name: str) -> str:
    """The definition behind a dotted name (time.step: t_step); another name is its own."""
    if name.startswith(EXPOSED):
        return exposed_axes(result.derivation).get(name.removeprefix(EXPOSED), name)
    return QUANTITIES[name].symbol if name in QUANTITIES else name


def value(result: "Evaluation", name: str) -> Number:
    """A number of the model, of the whole step, or, for what each stage has its own of, that of the rank that has most.

    UnknownName (a KeyError) for a name that there is not, or that needs a system.
    """
    entry = QUANTITIES.get(name)
    if entry is not None and entry.timed and result.system is None:
        raise UnknownName(f"{name} needs a system: derive(..., system='h100-sxm') gives one")
    if name == "memory.capacity":
        assert result.system is not None
        return -int(-result.system.accelerator.memory.value // 1)
    if name == "world":
        return result.strategy.world_size
    symbol = symbol_of(result, name)
    if symbol == "exposed":
        return sum(result.step_numbers[n] for n in exposed_axes(result.derivation).values())
    if symbol == "N_active" and symbol not in result.numbers:
        symbol = "N"
    for known in (result.numbers, result.step_numbers):
        if symbol in known:
            return known[symbol]
    if entry is not None and entry.over in ("stages", "fullest"):
        stages = [result.stage_numbers(s) for s in result.stages]
        if entry.over == "fullest":
            return max(stages, key=lambda n: n["M_stage_peak"])[symbol]
        return max(n[symbol] for n in stages)
    raise unknown(result, name, [*result.numbers, *result.step_numbers])


def unknown(result: "Evaluation", name: str, known: "list[str]") -> UnknownName:
    """Why there is no such name: the nearest of those that people mean, then of all."""
    if name in result.derivation.definitions and name not in known:
        return UnknownName(f"each stage has its own {name}: stage_numbers(stage) gives it, formula('{name}') its formula")
    for choices in (list(QUANTITIES), known):
        hint = nearest(name, choices, "")
        if hint:
            return UnknownName(f"there is no '{cut(name)}': {hint}")
    return UnknownName(f"there is no '{cut(name)}': 'symsim list quantities' and result.derivation.definitions have the names")
