"""The part of the input that all points of a sweep have in common, as `symsim eval` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symsim.inputs.architecture import Architecture
from symsim.inputs.models import LoadedModel, load_model, override_architecture
from symsim.inputs.settings import settings_of, split_settings
from symsim.inputs.strategies import Ranks, read_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import no_system


@dataclass(frozen=True)
class Base:
    """What every point of the space has in common, before its own values: as `symsim eval` reads it. settled: what --set gave. ranks: of every
    point, where the strategy says so (its dp is not yet that which follows). note: what a user should know of how the model was found."""

    architecture: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str]
    symbols: Mapping[str, Any]
    system: str | None
    system_changes: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    ranks: Ranks | None = None
    note: str = ""

    @property
    def said(self) -> str:
        """The model, and the system where there is one."""
        return f"{self.architecture.name}{f' on {self.system}' if self.system else ''}"


def read_base(
    model: str | LoadedModel, strategy: str | Mapping[str, Any] | None, system: str | None, settings: Sequence[str] | Mapping[str, Any]
) -> Base:
    """The fixed part of a sweep, from what the command line names; InputError as `symsim eval` raises it."""
    asked = settings_of(settings) if isinstance(settings, Mapping) else split_settings(settings)
    loaded = model if isinstance(model, LoadedModel) else load_model(model)
    placed, ranks = read_strategy(strategy if strategy is not None else loaded.strategy, asked.strategy)
    system = system if system is not None else loaded.system_file
    if asked.system and system is None:
        raise no_system(asked.system)
    architecture = override_architecture(loaded.architecture, asked.architecture)
    named = read_strategy(None, asked.strategy)[0].model_fields_set if asked.strategy else set()
    settled = frozenset([*named, *map(".".join, asked.architecture), *asked.assumptions, *asked.symbols, *map(".".join, asked.system)])
    assumed = {**loaded.assumptions, **asked.assumptions}
    note = "; ".join(loaded.notes(strategy))
    return Base(architecture, placed, assumed, asked.symbols, system, asked.system, settled, ranks, note)
