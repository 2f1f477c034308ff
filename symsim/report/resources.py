"""What of a machine a step waits for: the share of it that goes with each of its rates and latencies.

A step's time is a sum of amounts over rates and of latencies, along the branches that are active. So it is of the first degree in the seconds that
the numbers of a machine stand for, and its elasticities by them, those of rates with the other sign, add up to one (Euler).
"""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.typeset import entry
from symsim.inputs.system import System
from symsim.report.machine import joins, tier_of

# units of numbers that stand for seconds: by how much these change for a change of the number
_WAYS = {"FLOP/s": -1, "byte/s": -1, "s": 1}
MESSAGES = "messages over"
_HOST = frozenset({"B_host", "B_drive", "B_dram", "t_launch", "t_gather"})


def resource(system: System, name: str) -> str:
    """What a number of a machine that stands for seconds is a number of, in words."""
    if tier := tier_of(name):
        return f"{MESSAGES} {joins(system, tier).replace(', ', ' (', 1)})"
    if name.startswith("Phi_"):
        return "matrix products"
    if name in _HOST:
        return "the host"
    if name.startswith("B_sm_"):
        return "kernels that exchange tokens"
    return "HBM traffic" if name == "B_hbm" else "latency of kernels"


def shares(system: System, elasticities: Mapping[str, float]) -> dict[str, float]:
    """By resource the share of a step that goes with it, the largest first. elasticities: of the step, by symbol."""
    found: dict[str, float] = {}
    for name, percent in elasticities.items():
        way = _WAYS.get(entry(name).unit, 0)
        if way:
            words = resource(system, name)
            found[words] = found.get(words, 0.0) + way * percent
    return dict(sorted(found.items(), key=lambda item: -item[1]))
