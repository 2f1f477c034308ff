"""A result of what a command was given, and what of that moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symsim.api.result import Result, derive
from symsim.evaluation.idle import idle_assumptions, idle_fields, idle_numbers, idle_options, untimed_options
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import Remembered
from symsim.inputs.models import load_model, override_architecture
from symsim.inputs.settings import Settings, split_settings, text_of
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system, no_system
from symsim.inputs.watched import watched


@dataclass(frozen=True)
class Given:
    """result: of what was given. notes: what a user should know of it besides. idle: a sentence for each name that moves nothing."""

    result: Result
    notes: list[str]
    idle: dict[str, str]


def as_given(model: str, strategy: str | None, system: str | None, settings: Sequence[str] | None) -> Given:
    """What is asked for, by a command's arguments. InputError for what cannot be."""
    asked = split_settings(settings or ())
    loaded = load_model(model)
    architecture = override_architecture(loaded.architecture, asked.architecture)
    placed = watched(load_strategy(strategy if strategy is not None else loaded.strategy, asked.strategy))
    system = system if system is not None else loaded.system_file
    if asked.system and system is None:
        raise no_system(asked.system)
    machine = load_system(system, asked.system) if system is not None else None
    remembers = watched(architecture) if asked.architecture else architecture
    assumed = {**loaded.assumptions, **asked.assumptions}
    result = derive(remembers, placed, Remembered(assumed) if asked.assumptions else assumed, asked.symbols, machine)
    notes = loaded.notes(strategy)
    rows = architecture.position_embedding_rows
    if architecture.position_embedding == "learned" and rows is not None and placed.seq_length > rows:
        notes.append(f"seq_length={placed.seq_length} is longer than the {rows} learned positions of {architecture.name}")
    for name in untimed_options(result):
        notes.append(f"{name}={text_of(getattr(placed, name))} shows in times only; -y SYSTEM gives them")
    return Given(result, notes, _idle(result, loaded.architecture, system, asked))


def _idle(result: Result, original: Architecture, system: str | None, asked: Settings) -> dict[str, str]:
    here = f"has no effect on {original.name} under this strategy"
    without = "" if result.system is not None else " without a system"
    numbers = idle_numbers(result, system, asked.system) if system is not None else []
    return {
        **{n: f"{n}={text_of(getattr(result.strategy, n))} {here}" for n in idle_options(result)},
        **{path: f"{path} {here}" for path in [*idle_fields(result, original, asked.architecture), *numbers]},
        **{f"assume.{n}": f"assume.{n}={asked.assumptions[n]} {here}{without}" for n in idle_assumptions(result, asked.assumptions)},
    }
