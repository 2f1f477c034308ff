"""The names of symbols: as formulas have them, and as settings do."""

from __future__ import annotations

from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import field_of
from symsim.inputs.settable import architecture_keys, system_path
from symsim.inputs.symbols_set import STRATEGY_SYMBOLS


def settings_symbols(result: Evaluation) -> dict[str, str]:
    """Names of settings -> the symbol that each stands for."""
    found = {option: name for name, option in STRATEGY_SYMBOLS.items()}
    paths = {path: name for name, path in architecture_keys().items() if name in result.values}
    found |= {name: paths[path] for name, path in architecture_keys().items() if path in paths}
    places = {path: name for name in result.values if (path := system_path(name)) is not None}
    found |= {".".join(path): name for path, name in places.items()}
    for j, tier in enumerate(result.system.network if result.system is not None else (), 1):
        found |= {".".join(("network", tier.name, *path[2:])): name for path, name in places.items() if path[:2] == ("network", str(j))}
    return found


def named_symbol(result: Evaluation, name: str) -> str:
    if name == "Phi" and result.system is not None:
        return f"Phi_{result.strategy.precision}"
    return name if name in result.values else settings_symbols(result).get(field_of(name), name)
