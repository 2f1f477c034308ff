"""symsim: a symbolic cost-model compiler for training large language models.

Every name is imported when it is first asked for.

>>> import symsim
>>> result = symsim.derive("llama3-70b", "tp=8,pp=4,sp=true,num_microbatches=32", system="h100-sxm")
>>> result.value("params.total")
70553706496
>>> sorted(result.formula("N").symbols)
['L_dense', 'V', 'a', 'd', 'f', 'g', 'h']
>>> len(symsim.sweep("llama3-70b", {"tp": [2, 4, 8], "pp": [1, 2, 4], "dp": "128/(tp*pp)", "sp": "tp>1"}, system="h100-sxm", fits=True))
6
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symsim.version import __version__ as __version__

if TYPE_CHECKING:
    from symsim.algebra.formula import Formula
    from symsim.api.anchored import anchor
    from symsim.api.python import ask, compile, derive, load_model, load_strategy, load_system
    from symsim.api.result import Result
    from symsim.api.run import run
    from symsim.audit.python import audit
    from symsim.compat.verbs import compare
    from symsim.errors import InputError
    from symsim.grid.api import SweepRows, sweep
    from symsim.importers.job import Job
    from symsim.importers.reading import load_job
    from symsim.inputs.architecture import Architecture
    from symsim.inputs.strategy import Strategy
    from symsim.inputs.system import System
    from symsim.planning.plan import Plan, plan
    from symsim.planning.verbs import next_changes, sizing
    from symsim.report import write_report


__all__ = [
    "Architecture",
    "Formula",
    "InputError",
    "Job",
    "Plan",
    "Result",
    "Strategy",
    "SweepRows",
    "System",
    "anchor",
    "ask",
    "audit",
    "compare",
    "compile",
    "derive",
    "load_job",
    "load_model",
    "load_strategy",
    "load_system",
    "next_changes",
    "plan",
    "run",
    "sizing",
    "sweep",
    "write_report",
]

_HOMES = {
    "Architecture": "symsim.inputs.architecture",
    "Formula": "symsim.algebra.formula",
    "InputError": "symsim.errors",
    "Job": "symsim.importers.job",
    "Plan": "symsim.planning.plan",
    "Result": "symsim.api.result",
    "Strategy": "symsim.inputs.strategy",
    "SweepRows": "symsim.grid.api",
    "System": "symsim.inputs.system",
    "anchor": "symsim.api.anchored",
    "ask": "symsim.api.python",
    "compare": "symsim.compat.verbs",
    "audit": "symsim.audit.python",
    "compile": "symsim.api.python",
    "derive": "symsim.api.python",
    "load_job": "symsim.importers.reading",
    "load_model": "symsim.api.python",
    "load_strategy": "symsim.api.python",
    "load_system": "symsim.api.python",
    "next_changes": "symsim.planning.verbs",
    "plan": "symsim.planning.plan",
    "run": "symsim.api.run",
    "sizing": "symsim.planning.verbs",
    "sweep": "symsim.grid.api",
    "write_report": "symsim.report",
}

if not TYPE_CHECKING:  # a type checker that saw this would take any name

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'symsim' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
