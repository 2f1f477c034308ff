"""A model, a strategy and perhaps a system, to all definitions that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.algebra.expr import Number
from symsim.algebra.formula import Derivation
from symsim.cost.count import Counted, count
from symsim.cost.longest import at_longest
from symsim.cost.memory import peak_memory
from symsim.cost.run import define_run
from symsim.cost.step_time import step_time
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.conventions import OWN, Conventions
from symsim.inputs.models import override_architecture
from symsim.inputs.run import asks_run, check_run
from symsim.inputs.settings import settings_of
from symsim.inputs.strategies import override_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.systems import override_system
from symsim.inputs.traced import Memory, once
from symsim.inputs.trained import trained
from symsim.inputs.watched import forget
from symsim.lowering.checks import check
from symsim.lowering.lower import lower
from symsim.lowering.lowered import Lowered
from symsim.lowering.tuned import tuned


def check_imbalance(model: Architecture, strategy: Strategy, given: Number) -> None:
    """InputError for a load that no rank can have."""
    if model.moe is None:
        raise InputError(f"--set lam: {model.name} has no experts whose load could be uneven")
    # the busiest rank can receive the tokens of all ep ranks and no more
    if given > strategy.ep:
        most = f"the busiest of ep={strategy.ep} ranks gets at most {strategy.ep} times an even share of the tokens"
        raise InputError(f"--set lam={float(given):g}: {most}")


def evaluated(
    model: Architecture,
    strategy: Strategy,
    assumptions: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    system: System | None = None,
    conventions: Conventions = OWN,
    memory: Memory | None = None,
) -> Evaluation:
    """Derive the closed formulas of a model under a strategy, and of its time on a system. InputError when the
    combination is impossible.

    overrides: settings by name, all that `--set NAME=VALUE` takes and with the same effect: options of the strategy, fields
    of the architecture, numbers of the system (text with a unit, `{"B_2": "100 GB/s"}`), assumptions (`assume.NAME`), `lam`.
    conventions: options of the rules themselves (`symsim/compat`). memory: what passes made before (`symsim/inputs/traced.py`).
    """
    symbols: Mapping[str, Number] = {}
    if overrides is not None:
        asked = settings_of(overrides)
        model, strategy = override_architecture(model, asked.architecture), override_strategy(strategy, asked.strategy)
        system = override_system(system, asked.system)
        # as they are where no more are given: they may remember what is read
        assumptions = {**(assumptions or {}), **asked.assumptions} if asked.assumptions else assumptions
        symbols = asked.symbols
    model = trained(model, strategy)
    check(model, strategy)
    forget(strategy)
    forget(model)
    if "lam" in symbols:
        check_imbalance(model, strategy, symbols["lam"])
    given = resolve(assumptions or {})
    # these two change what passes have made
    if strategy.padding_free or strategy.placement is not None:
        memory = None
    read, book = (strategy, Derivation()) if memory is None else memory.begin(strategy)
    lowered, operations = _counted(book, model, read, given, conventions)
    model, counted = lowered.profile.model, Counted(book, operations)
    peak_memory(counted.derivation, lowered)
    if strategy.padding_free:
        at_longest(counted.derivation)
    if system is not None:
        step_time(counted.derivation, system, lowered)
    if asks_run(symbols):
        check_run(symbols)
        define_run(counted.derivation, system, lowered, symbols)
    return Evaluation(model, strategy, given, lowered, counted, dict(symbols), system)


@once
def _counted(
    book: Derivation, model: Architecture, strategy: Strategy, assumptions: Mapping[str, str], conventions: Conventions
) -> tuple[Lowered, dict[str, list[tuple[int, str]]]]:
    """Blocks, and in the book what they count to; of every block its operations' definitions (`Counted.ops`)."""
    lowered = lower(tuned(model, strategy), strategy, assumptions, conventions)
    return lowered, count(lowered, book).ops
