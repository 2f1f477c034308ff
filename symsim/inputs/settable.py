"""The names that --set knows: symbols, dotted paths and bare names, and the place that each stands for."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

from pydantic import BaseModel

from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.curves import SYMBOLS as KERNEL_SYMBOLS
from symsim.inputs.shipped import list_systems
from symsim.inputs.symbols_set import ARCHITECTURE_SYMBOLS, MACHINE_SYMBOLS
from symsim.inputs.system import DISPATCHERS, Accelerator, Host, Peak
from symsim.inputs.systems import load_system
from symsim.ir.collectives import COLLECTIVES

# Symbols of the time formulas that stand for one number of the system; those of its tiers carry the tier's place
SYSTEM_SYMBOLS: dict[str, tuple[str, ...]] = {
    **MACHINE_SYMBOLS,
    **{f"B_sm_{name}": ("accelerator", "exchange", name) for name in DISPATCHERS},
    **{name: ("kernels", *path) for name, path in KERNEL_SYMBOLS.items()},
}
_TIER_SYMBOL = re.compile(rf"(R|B|C|alpha|lambda|chi|eta)_([1-9][0-9]{{0,2}})(?:_({'|'.join(COLLECTIVES)}))?")
_CALL_SYMBOL = re.compile(rf"lambda_([1-9][0-9]{{0,2}})_({'|'.join(('default', *COLLECTIVES, *DISPATCHERS))})_([1-9][0-9]*)")
_EXCHANGE_SYMBOL = re.compile(rf"eta_([1-9][0-9]{{0,2}})_({'|'.join(DISPATCHERS)})_([1-9][0-9]*)")
_TIER_FIELDS = {"R": "ranks", "B": "bandwidth", "C": "ring", "alpha": "latency", "lambda": "launch", "chi": "processors", "eta": "efficiency"}
_SYSTEM_PARTS = ("accelerator", "kernels", "network", "host")


def system_path(name: str) -> tuple[str, ...] | None:
    """Where a system keeps the number that --set calls `name`: a symbol, or a dotted path."""
    if name in SYSTEM_SYMBOLS:
        return SYSTEM_SYMBOLS[name]
    call = _CALL_SYMBOL.fullmatch(name)
    if call is not None:
        return ("network", call[1], "calls", call[2], call[3])
    exchange = _EXCHANGE_SYMBOL.fullmatch(name)
    if exchange is not None:
        return ("network", exchange[1], "exchange", exchange[2], exchange[3])
    tier = _TIER_SYMBOL.fullmatch(name)
    if tier is not None and (tier[1] == "eta") == (tier[3] is not None):
        return ("network", tier[2], _TIER_FIELDS[tier[1]], *([tier[3]] if tier[3] else []))
    path = tuple(name.split("."))
    return path if path[0] in _SYSTEM_PARTS and len(path) > 1 and all(path) else None


@cache
def architecture_keys() -> dict[str, tuple[str, ...]]:
    """Every name under which --set finds a field of the architecture: symbols, dotted paths, and bare names that are unique."""
    paths: list[tuple[str, ...]] = [("num_layers",)]
    for name, field in Architecture.model_fields.items():
        if name in ("layers", "layer_kinds", "norms"):
            continue
        section = next((t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type) and issubclass(t, BaseModel)), None)
        paths += [(name, inner) for inner in section.model_fields] if section else [(name,)]
    bare = [path[-1] for path in paths]
    keys = {".".join(path): path for path in paths}
    keys |= {path[-1]: path for path in paths if bare.count(path[-1]) == 1}
    return keys | ARCHITECTURE_SYMBOLS


def architecture_fields() -> list[str]:
    """Names under which --set finds a field of the architecture, without symbols: bare where that is unique, else dotted."""
    return [name for name in architecture_keys() if name not in ARCHITECTURE_SYMBOLS]


@cache
def other_settings() -> dict[str, str]:
    """Every other setting by its full name, and what kind of thing it is."""
    tiers = dict.fromkeys(tier.name for system in list_systems() for tier in load_system(system).network)
    numbers = [f"network.{tier}.bandwidth" for tier in tiers]
    numbers += [f"accelerator.{n}" for n in Accelerator.model_fields if n != "peak"] + [f"accelerator.peak.{n}" for n in Peak.model_fields]
    numbers += [f"host.{n}" for n in Host.model_fields]
    return {
        **dict.fromkeys(numbers, "a number of the system"),
        **dict.fromkeys(architecture_fields(), "a field of the model"),
        **dict.fromkeys((f"assume.{a}" for a in ASSUMPTIONS), "an assumption"),
    }
