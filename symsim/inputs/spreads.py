"""How far the numbers of a system may be off, by kind: derivations/spreads.json, made by `python docs/spreads.py` from measured steps.

A spread is the standard deviation of the logarithm of a kind's seconds. Within a kind all numbers are off together, kinds are off
independently of one another. What no step was measured of is off by one of two spreads besides, that of `source` or that of `system`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from pydantic import BaseModel, ConfigDict

from symsim.inputs import curves
from symsim.inputs.architecture import Architecture
from symsim.inputs.known import Known
from symsim.inputs.reading import parse_json, read_text
from symsim.inputs.settable import SYSTEM_SYMBOLS, system_path
from symsim.inputs.shipped import derivations_directory
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import DISPATCHERS, System, symbol_values
from symsim.inputs.systems import ASIDE, load_system
from symsim.inputs.validation import validate
from symsim.ir.collectives import carried_by

# kinds of numbers, and how outputs call what each makes uncertain
KINDS = {
    "gemm": "matrix products",
    "grouped_gemm": "grouped products of experts",
    "attention": "attention",
    "memory": "kernels bound by HBM",
    "fp8": "the FP8 rate",
    "node": "messages inside a node",
    "network": "messages between nodes",
    "exchange": "the exchange of tokens",
    "host": "the host",
    "bubble": "waiting in the pipeline",
    "machine": "the machine and its software as a whole",
    "run": "run-to-run variation",
    "settings": "settings that are guessed",
    "source": "a framework or kind of model never measured on this system",
    "system": "a system never measured",
}
# kinds that are no numbers of a system file: shares of the whole step
OF_STEP = ("bubble", "machine", "run", "settings", "source", "system")
UNMEASURED = ("source", "system")

Measured = tuple[str, str, str, str, str]
"""What a step is a measurement of: the system, its framework, dense or experts, the type of its products, what it trains."""

# symbols of numbers that no step stands on, or that follow from a strategy
_APART = frozenset(("world", *(symbol for symbol, path in SYSTEM_SYMBOLS.items() if path in ASIDE)))
# symbols of what a step moves with by jumps
_IN_STEPS = ("n_sm", "R_", "fully_connected_")
_TIER = re.compile(r"(eta|alpha|lambda|C)_([0-9]+)(?:_(.+))?")
_EXCHANGES = (*carried_by("exchange"), *DISPATCHERS)


class Spread(BaseModel):
    """Of a kind: the deviation of what was measured, of what was estimated or borrowed, and where that is from."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    measured: float
    estimated: float
    source: str


class Spreads(BaseModel):
    """level: the share of steps that an interval is to hold; factor: deviations on either side of a prediction that do; anchored: times the
    spread of a run, how far a step that a system was anchored on may be off for reasons of its own; measured: what there are steps of."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    level: float
    factor: float
    anchored: float
    source: str
    kinds: dict[str, Spread]
    measured: frozenset[Measured]

    def of(self, kind: str, tag: str) -> float:
        """The deviation of a kind of numbers that are known so (measured, datasheet or estimated)."""
        return self.kinds[kind].estimated if tag == "estimated" else self.kinds[kind].measured


@cache
def stored() -> Spreads:
    """The spreads that were estimated last."""
    path = derivations_directory() / "spreads.json"
    document = parse_json(read_text(path), str(path))
    return validate(Spreads, document.data, document.where, document)


def measured_as(model: Architecture, strategy: Strategy, system: System) -> Measured:
    """What a step of it would be a measurement of. Types of 16 bits run at one rate."""
    wide = "16-bit" if strategy.precision in ("bf16", "fp16") else strategy.precision
    kind = "experts" if model.moe is not None else "dense"
    return system.name, strategy.fusion, kind, wide if strategy.fp8 == "none" else strategy.fp8, strategy.tuner_type


@dataclass(frozen=True)
class Standing:
    """What measured steps say of a system. near: the measured one that it is, or would be with other numbers ("" for none); changed: the symbols
    whose numbers are not that one's."""

    near: str = ""
    changed: tuple[str, ...] = ()

    @property
    def jumps(self) -> bool:
        """Whether a step moves with one of them by jumps, so that no derivative tells."""
        return any(symbol.startswith(_IN_STEPS) for symbol in self.changed)


def standing(system: System, strategy: Strategy) -> Standing:
    """A system by what it consists of: a measured one under any name is that one, and with one number changed it is another."""
    names = sorted({one[0] for one in stored().measured})
    if system.name in names:
        return Standing(system.name, _changed(system, strategy, system.name))
    return next((Standing(name) for name in names if not _changed(system, strategy, name)), Standing())


def _changed(system: System, strategy: Strategy, name: str) -> tuple[str, ...]:
    """Symbols of which a system has other numbers than the measured one of that name, what it costs, draws or holds left out."""
    own, there = (_numbers(one, strategy) for one in (system, _shipped(name)))
    same = {symbol for symbol in own.keys() & there.keys() if math.isclose(own[symbol], there[symbol], rel_tol=1e-9)}
    return tuple(sorted((own.keys() | there.keys()) - same))


_shipped = cache(load_system)


def _numbers(system: System, strategy: Strategy) -> dict[str, float]:
    if getattr(system.accelerator.peak, strategy.precision) is None:
        return {}
    found = {symbol: float(value) for symbol, value in symbol_values(system, strategy).items() if symbol not in _APART}
    found |= {f"fully_connected_{j}": float(tier.fully_connected) for j, tier in enumerate(system.network, 1)}
    # one rank sends nothing
    aside = ("R_", "fully_connected_") if strategy.world_size == 1 else ()
    return {symbol: value for symbol, value in found.items() if not symbol.startswith(aside)}


def other_than(strategy: Strategy, system: System, moving: Collection[str] | None) -> Standing:
    """Its standing, with those numbers alone that a step moves with: moving are the symbols of these, None for all."""
    found = standing(system, strategy)
    return Standing(found.near, tuple(n for n in found.changed if moving is None or n in moving or n.startswith(_IN_STEPS)))


def unmeasured(model: Architecture, strategy: Strategy, system: System, moving: Collection[str] | None = None) -> str | None:
    """Which of UNMEASURED a step of it is: no step was measured on its system, or none of its framework and kind there; none where there is one.
    A system that was anchored on steps has them. moving: as of `other_than`."""
    if system.anchored:
        return None
    found = other_than(strategy, system, moving)
    if not found.near or found.changed:
        return "system"
    return None if (found.near, *measured_as(model, strategy, system)[1:]) in stored().measured else "source"


@dataclass(frozen=True)
class Uncertain:
    """A number of a system, by its symbol: its kind, how it is known, and 1 where seconds rise with it, -1 where they fall."""

    symbol: str
    kind: str
    tag: str
    way: int


def uncertain(system: System, symbols: Mapping[str, float]) -> Iterator[Uncertain]:
    """Those of these symbols whose numbers are shares that something reaches or seconds that it takes, which no data sheet knows."""
    for symbol in symbols:
        kind = kind_of(symbol, len(system.network))
        if kind is not None:
            known = known_of(system, symbol)
            falls = symbol.startswith(("eta_", "C_", "B_", "Phi_"))
            yield Uncertain(symbol, kind, known.tag if known is not None else "estimated", -1 if falls else 1)


def kind_of(symbol: str, tiers: int) -> str | None:
    """The kind of a system's symbol; none of peaks, bandwidths, and coefficients of a kernel that are neither a share that it reaches nor seconds."""
    if symbol in curves.SYMBOLS:
        return curves.SYMBOLS[symbol][0] if symbol.startswith(("eta_", "t_", "tau_")) else None
    if symbol in ("Phi_fp8", "Phi_fp4"):
        return "fp8"
    if symbol in ("t_launch", "t_gather", "B_host", "B_drive", "B_dram"):
        return "host"
    tier = _TIER.fullmatch(symbol)
    if tier is None:
        return "exchange" if symbol.startswith("B_sm_") else None
    if tier[3] is not None and tier[3].startswith(_EXCHANGES):
        return "exchange"
    return "network" if int(tier[2]) == tiers > 1 else "node"


def known_of(system: System, symbol: str) -> Known | None:
    """What a system file says for a symbol; none where it leaves the number out."""
    if symbol in ("Phi_fp8", "Phi_fp4"):
        return system.accelerator.fp8_share
    path = system_path(symbol)
    assert path is not None, symbol
    at: object = system
    for part in path:
        if isinstance(at, tuple):
            at = at[int(part) - 1]
        elif isinstance(at, Mapping):
            at = at.get(part) or at.get(int(part) if part.isdigit() else "default")
        else:
            at = getattr(at, part, None)
    return at if isinstance(at, Known) else None
