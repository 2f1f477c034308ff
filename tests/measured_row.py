"""What a measured row becomes: an architecture, a strategy and what was measured; or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy

GIB = 2**30
UNITS = {"GiB": GIB, "GB": 10**9}


@dataclass(frozen=True)
class Case:
    """One measured training run as symsim's input.

    `step_seconds` is one optimizer step; `memory_bytes` the largest rank's peak. `guessed` names the settings that the
    source does not give; `note` says how values were converted and what the run fixed that symsim has no name for.
    """

    id: str
    source: str
    architecture: Architecture
    strategy: Strategy
    assumptions: dict[str, str]
    system: str
    step_seconds: float | None
    memory_bytes: float | None
    note: str = ""
    guessed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uncovered:
    """A measured row that is no case, and why; ran_out: what it set, where it measured that this does not fit."""

    id: str
    source: str
    reason: str
    ran_out: Case | None = None


Rows = list[Case | Uncovered]


def architecture(name: str, changes: Mapping[str, Any], vocabulary_multiple: int = 1) -> Architecture:
    """The model of models/ with these fields changed (a mapping changes a section), its vocabulary padded to a multiple."""
    data = load_model(name).architecture.model_dump()
    for key, value in changes.items():
        data[key] = {**(data[key] or {}), **value} if isinstance(value, Mapping) else value
    data["vocab_size"] = -(-data["vocab_size"] // vocabulary_multiple) * vocabulary_multiple
    return Architecture.model_validate(data)


def strategy(settings: Mapping[str, Any]) -> tuple[Strategy, list[str]]:
    """The settings as a strategy, and those in force that Strategy has no field for, as `name=value`.

    A setting of None is not given; one that Strategy lacks and that is off costs nothing and is dropped.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    chosen = {name: get_args(field.annotation) for name, field in Strategy.model_fields.items() if get_origin(field.annotation) is Literal}
    known = {name: value for name, value in given.items() if name in Strategy.model_fields and value in chosen.get(name, (value,))}
    unnamed = [f"{name}={str(value).lower()}" for name, value in given.items() if name not in known and value]
    return Strategy.model_validate(known), unnamed


class DoesNotFit(Exception):
    """A printed layout that cannot be: its degrees do not divide the GPUs."""


def data_parallel(gpus: int, tp: int, pp: int, cp: int = 1, experts: int = 1) -> int:
    """Replicas that fill the machine; DoesNotFit when the degrees, or `experts` = etp*ep, do not divide it."""
    if gpus % (tp * pp * cp):
        raise DoesNotFit(f"the printed tp*pp*cp={tp}*{pp}*{cp} does not divide {gpus} GPUs")
    if gpus // pp % experts:
        raise DoesNotFit(f"the printed etp*ep={experts} does not divide the {gpus // pp} ranks of a stage")
    return gpus // (tp * pp * cp)


def row(name: str, source: str, reader: Callable[..., Case | Uncovered], *arguments: Any) -> Case | Uncovered:
    """`reader(name, source, *arguments)`, or the reason why the printed layout is no case."""
    try:
        return reader(name, source, *arguments)
    except DoesNotFit as reason:
        return Uncovered(name, source, str(reason))


def note(*parts: str | list[str]) -> str:
    """The parts that say something, as one sentence list; a list is of settings without a name in symsim."""
    texts = [f"without a name in symsim: {', '.join(p)}" if isinstance(p, list) else p for p in parts if p]
    return "; ".join(texts)
