"""The systems whose numbers can be had beside symsim's: name, and the module whose `differences(question)` lists what they do otherwise,
and whose `MEASURES`, where it has them, are what it says in place of a stage's bytes and FLOPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from symsim.errors import InputError, nearest

if TYPE_CHECKING:
    from symsim.compat.compare import Measure
    from symsim.compat.difference import Difference, Question

KINDS = {"simumax": "simumax.differences", "calculon": "calculon.differences", "megatron": "megatron.differences"}


def differences(kind: str, question: "Question") -> "Sequence[Difference]":
    """What a system does otherwise for a question; InputError for a system that is not known."""
    if kind not in KINDS:
        raise InputError(f"--compat {kind}: there is no such system: {nearest(kind, list(KINDS))}")
    found: "Sequence[Difference]" = import_module(f"symsim.compat.{KINDS[kind]}").differences(question)
    return found


def measures(kind: str) -> "Mapping[str, Measure] | None":
    """Quantities that a system has of its own."""
    found: "Mapping[str, Measure] | None" = getattr(import_module(f"symsim.compat.{KINDS[kind]}"), "MEASURES", None)
    return found
