"""symsim: a symbolic cost-model compiler for training large language models.

import symsim
result = symsim.derive("llama3-70b", "tp=8,pp=4,sp=true", system="h100-sxm")
result.value("time.step"), result.formula("F").sympy(), result.to_json()
symsim.sweep("llama3-70b", {"tp": [2, 4, 8], "pp": [1, 2, 4], "dp": "128/(tp*pp)", "sp": "tp>1"}, system="h100-sxm", fits=True).to_xarray()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symsim.api import derive, load_model, load_strategy, load_system
    from symsim.grid.api import sweep
    from symsim.report import write_report

__version__ = "0.1.0"

__all__ = ["derive", "load_model", "load_strategy", "load_system", "sweep", "write_report"]

# nothing is imported before it is asked for
_HOMES = {"sweep": "symsim.grid.api", "write_report": "symsim.report"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "symsim.api")), name)
    raise AttributeError(f"module 'symsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
