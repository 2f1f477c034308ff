"""The public verbs in Python: what the command line reads, as names, texts, paths, mappings, or objects read before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from symsim import loading
from symsim.architecture import Architecture
from symsim.result import Result
from symsim.result import derive as derive_from
from symsim.strategy import Strategy
from symsim.system import System


def load_model(reference: "str | os.PathLike[str] | Mapping[str, Any]") -> Architecture:
    """A model by name ('llama3-70b'), from a YAML file, a Hugging Face config.json or a directory, or the contents of one of these."""
    return _model(reference).architecture


def load_strategy(text: "str | os.PathLike[str] | Mapping[str, Any] | None" = None, **overrides: Any) -> Strategy:
    """A strategy from text ('tp=8,pp=4'), a YAML file or a mapping, then the overrides."""
    return loading.load_strategy(os.fspath(text) if isinstance(text, os.PathLike) else text, overrides)


def load_system(reference: "str | os.PathLike[str]") -> System:
    """A system by name ('h100-sxm'), or from a YAML file."""
    return loading.load_system(os.fspath(reference))


def derive(
    model: "Architecture | str | os.PathLike[str] | Mapping[str, Any]",
    strategy: "Strategy | str | os.PathLike[str] | Mapping[str, Any] | None" = None,
    assumptions: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    system: "System | str | os.PathLike[str] | None" = None,
) -> Result:
    """Derive the closed formulas of a model under a strategy, and of its time on a system.

    Each of the three is what its `load_...` takes, or what that returned. assumptions: values by name, as of
    --set assume.NAME=VALUE; overrides: what else --set takes. InputError when the combination is impossible.
    """
    if not isinstance(model, Architecture):
        loaded = _model(model)
        model, strategy = loaded.architecture, strategy if strategy is not None else loaded.strategy
    if not isinstance(strategy, Strategy):
        strategy = load_strategy(strategy)
    if system is not None and not isinstance(system, System):
        system = load_system(system)
    return derive_from(model, strategy, assumptions, overrides, system)


def _model(reference: "str | os.PathLike[str] | Mapping[str, Any]") -> loading.LoadedModel:
    if isinstance(reference, Mapping):
        return loading.model_of_mapping(reference)
    return loading.load_model(os.fspath(reference))
