"""What of a machine a step waits for: the share of it that goes with each of its rates and latencies.

A step's time is a sum of amounts over rates and of latencies, along the branches that are active. So it is of the first degree in the seconds that
the numbers of a machine stand for, and its elasticities by them, those of rates with the other sign, add up to one (Euler).
"""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.typeset import entry
from symsim.inputs.settable import system_path
from symsim.inputs.system import System
from symsim.report.amounts import THIN
from symsim.report.machine import joins

# units of numbers that stand for seconds: by how much these change for a change of the number
_WAYS = {"FLOP/s": -1, "byte/s": -1, "s": 1}
NETWORK = "network"
# so many are said to bind a step, and so much of it goes with each at least
_MOVERS, _MOVES = 3, 0.005
_WORDS = {
    ("accelerator", "peak"): "matrix products",
    ("accelerator", "memory_bandwidth"): "HBM traffic",
    ("accelerator", "exchange"): "kernels that exchange tokens",
    ("kernels",): "latency of kernels",
    ("host",): "the host",
}

_ONE = frozenset({("accelerator", "memory_bandwidth"), ("kernels",), ("host",)})  # whose words are of one thing

Resource = tuple[str, ...]
"""Where a system's file has the numbers of a resource: of a tier ('network', '2'), from 1."""


def resource_of(name: str) -> Resource:
    """That of a number of a machine, by its symbol."""
    path = system_path(name)
    assert path is not None, name
    return path[:1] if path[:1] in _WORDS else path[:2]


def words(system: System, of: Resource) -> str:
    """What a step does with a resource."""
    if of[0] != NETWORK:
        return _WORDS[of]
    return f"messages over {joins(system, int(of[1])).replace(', ', ' (', 1)})"


def _shortens(of: Resource) -> str:
    return "shortens it " if of in _ONE else "shorten it "


def shares(elasticities: Mapping[str, float]) -> dict[Resource, float]:
    """By resource the share of a step that goes with it, the largest first. elasticities: of the step, by symbol."""
    found: dict[Resource, float] = {}
    for name, percent in elasticities.items():
        way = _WAYS.get(entry(name).unit, 0)
        if way:
            of = resource_of(name)
            found[of] = found.get(of, 0.0) + way * percent
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def faster(system: System, elasticities: Mapping[str, float]) -> str:
    """By how much a step is shorter where what it waits for most is a percent faster."""
    most = [(of, share) for of, share in shares(elasticities).items() if share >= _MOVES][:_MOVERS]
    said = [f"{words(system, of)} {'' if n else _shortens(of)}by {share:.3f}{THIN}%" for n, (of, share) in enumerate(most)]
    return f"Faster by a percent, {', '.join(said)}."
