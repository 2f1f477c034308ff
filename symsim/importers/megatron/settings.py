"""What the readers of Megatron-LM's arguments fill: options of a strategy and assumptions, with the arguments that they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from symsim.importers.keys import Keys
from symsim.importers.megatron.source import Dialect
from symsim.inputs.architecture import Architecture


@dataclass
class Settings:
    """Options of symsim as they are gathered, and assumptions."""

    keys: Keys
    dialect: Dialect
    architecture: Architecture | None
    options: dict[str, Any] = field(default_factory=dict)
    assumptions: dict[str, str] = field(default_factory=dict)

    @property
    def mixture(self) -> bool:
        return self.architecture is not None and self.architecture.moe is not None

    def derived(self, argument: str, option: str, value: Any, why: str) -> None:
        """A default of Megatron-LM's that is not symsim's."""
        self.options[option] = value
        self.keys.note(argument, "derived", option, why)

    def assumed(self, argument: str, assumption: str, value: str, why: str, default: bool = False) -> None:
        self.assumptions[assumption] = value
        self.keys.note(argument, "derived" if default else "mapped", f"assume.{assumption}", why)
