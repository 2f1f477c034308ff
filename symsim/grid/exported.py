"""A row of a sweep as a file that a trainer starts from."""

from __future__ import annotations

import shlex
from pathlib import Path

from symsim.exporters import export
from symsim.inputs.models import override_architecture
from symsim.inputs.settings import split_settings
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.program.base import Base


def exported(base: Base, words: str, kind: str, place: Path) -> list[str]:
    """Write it; notes of what the file does not carry and where it is. words: what `symsim eval MODEL` takes for the row (-s, --set, -y).
    InputError as `symsim export`."""
    given: dict[str, list[str]] = {"-s": [], "--set": [], "-y": []}
    split = shlex.split(words)
    for name, value in zip(split[::2], split[1::2]):
        given[name].append(value)
    asked = split_settings(given["--set"])
    system = load_system(given["-y"][0], {**base.system_changes, **asked.system}) if given["-y"] else None
    strategy = load_strategy(given["-s"][0] if given["-s"] else None, asked.strategy)
    architecture = override_architecture(base.architecture, asked.architecture)
    return export.exported(kind, export.Asked(architecture, strategy, system, {**base.assumptions, **asked.assumptions}), place)
