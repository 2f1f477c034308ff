"""symsim: a symbolic cost-model compiler for training large language models.

import symsim
result = symsim.derive(symsim.load_model("llama3-70b"), symsim.load_strategy("tp=8,pp=4,sp=true"), system=symsim.load_system("h100-sxm"))
result.value("t_step"), result.formula("F").sympy(), result.to_json()
symsim.sweep("llama3-70b", {"tp": [2, 4, 8], "pp": [1, 2, 4], "dp": "128/(tp*pp)", "sp": "tp>1"}, system="h100-sxm", fits=True).to_xarray()
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

__all__ = ["derive", "load_model", "load_strategy", "load_system", "sweep", "write_report"]


def __getattr__(name: str) -> Any:
    if name == "derive":
        from symsim.result import derive

        return derive
    if name == "load_model":
        from symsim.loading import load_model

        return lambda reference: load_model(reference).architecture
    if name == "load_strategy":
        from symsim.loading import load_strategy

        return lambda text=None, **overrides: load_strategy(text, overrides)
    if name == "load_system":
        from symsim.loading import load_system

        return load_system
    if name == "sweep":
        from symsim.grid.api import sweep

        return sweep
    if name == "write_report":
        from symsim.report import write_report

        return write_report
    raise AttributeError(f"module 'symsim' has no attribute {name!r}")
