"""The names of symbols: as formulas have them, and as settings do."""

from __future__ import annotations

from collections.abc import Sequence

from symsim.algebra.quantity import BYTE
from symsim.errors import InputError, cut, nearest
from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import field_of
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.settable import architecture_keys, system_path
from symsim.inputs.strategy import Strategy
from symsim.inputs.symbols_set import STRATEGY_SYMBOLS
from symsim.report.amounts import human


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


def no_symbol(result: Evaluation, name: str, valid: Sequence[str]) -> InputError:
    """Why a name is no symbol that could move: what does instead where it is a setting, else the nearest of those that are."""
    if name in ("world", "world_size"):
        return InputError(f"{name} follows from the degrees and cannot be moved: dp can, as {name} = tp*cp*pp*dp")
    if name in ("accelerator.memory", "memory.capacity"):
        needs = "memory.peak + memory.reserve"
        if result.system is not None:
            needs += f", here {human(-int(-(result.value('memory.peak') + result.value('memory.reserve')) // 1), BYTE)}"
        moved = "symsim sweep --axis 'accelerator.memory=40:160:40 GiB' --fits"
        return InputError(f"{name} stands in no formula and is not moved: what fits needs of it is {needs}; {moved} looks at its values")
    choices = [f"assume.{a}" for a in ASSUMPTIONS]
    if field_of(name) in Strategy.model_fields or name in choices:
        return InputError(f"{name} is a setting and no symbol of a formula: symsim sweep --axis {name}=VALUE,VALUE looks at its values")
    hint = nearest(name, [*valid, *choices], "'symsim list symbols' has symbols, 'symsim list options' options of a strategy")
    return InputError(f"there is no symbol '{cut(name)}' that could move: {hint}")
