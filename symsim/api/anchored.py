"""`symsim anchor`: measured steps and kernels, read and derived, to a system moved to them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from symsim.api.python import derive, model_of, own_system, path_of
from symsim.calibration.anchor import Anchor, Measured
from symsim.calibration.anchor import anchor as moved
from symsim.calibration.steps import KERNELS, Run, read_runs, read_trace, seconds_of
from symsim.errors import InputError, cut, nearest
from symsim.evaluation.numbers import Evaluation
from symsim.importers.job import Job
from symsim.inputs.architecture import Architecture
from symsim.inputs.settings import settings_of
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.systems import load_system, override_system

Path_ = str | os.PathLike[str]
STEP = "--step"


def anchor(
    model: Architecture | Job | Path_ | Mapping[str, Any] | None,
    strategy: Strategy | Path_ | Mapping[str, Any] | None = None,
    system: System | Path_ | None = None,
    *,
    step: str | float | None = None,
    rows: Path_ | Sequence[Mapping[str, Any]] | None = None,
    trace: Path_ | Mapping[str, float] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Anchor:
    """A system moved to what was measured of it; `.system` is the new one, `.write(path)` its file.

    step: the measured time of this model under this strategy, as '12.9 s' or in seconds. rows: more measured steps, a CSV or YAML file, or
    mappings with `step`, `model`, `strategy` and whatever overrides take. trace: seconds of each kind of kernels in the step, a
    CSV file or a mapping. overrides: what --set takes. model: None where every row
    names its own. InputError for what does not fit, and where no shares explain what was measured.

    >>> found = anchor("llama3-70b", "tp=8,pp=4,sp=true,num_microbatches=32", "h100-sxm", step="5.5 s")
    >>> round(derive("llama3-70b", "tp=8,pp=4,sp=true,num_microbatches=32", system=found.system).value("time.step"), 2)
    5.5
    """
    system = system if system is not None or model is None or isinstance(model, Architecture) else own_system(model_of(model))
    if system is None:
        raise InputError("a measured step moves the numbers of a system, and none is named: give one with -y")
    base = override_system(system if isinstance(system, System) else load_system(path_of(system, "the system")), settings_of(overrides or {}).system)
    assert base is not None
    runs = (
        []
        if rows is None
        else read_runs(path_of(rows, "rows"))
        if isinstance(rows, (str, os.PathLike))
        else [_run(n, r) for n, r in enumerate(rows, 1)]
    )
    if step is not None:
        runs.insert(0, Run(seconds_of(step, STEP), STEP))
    told = {name: value for name, value in (overrides or {}).items() if not settings_of({name: value}).system}
    found = [_measured(run, model, strategy, base, told) for run in runs]
    if trace is not None:
        if model is None:
            raise InputError("a trace is of a model, and none is named")
        kinds = read_trace(path_of(trace, "trace")) if isinstance(trace, (str, os.PathLike)) else _kinds(trace)
        at = derive(model, strategy, overrides=told, system=base)
        found += [Measured(at, seconds, f"kernels of {kind} in {_said(at)}", kind) for kind, seconds in kinds.items()]
    return moved(found)


def _measured(run: Run, model: Any, strategy: Any, system: System, told: Mapping[str, Any]) -> Measured:
    """A run as it is derived: what the command says, with what the run says of itself in its place."""
    try:
        if settings_of(run.settings).system:
            raise InputError("a run changes the model or the strategy; numbers of the system are the same for all, with --set")
        asked = run.model or model
        if asked is None:
            raise InputError("the run has no 'model', and nothing else names one")
        at = derive(asked, run.strategy or strategy, overrides={**told, **run.settings}, system=system)
    except InputError as error:
        raise InputError(f"{run.where}: {error}") if run.where != STEP else error from None
    return Measured(at, run.seconds, _said(at))


def _said(at: Evaluation) -> str:
    """What ran: the model, and the options that are not at their defaults."""
    options = at.strategy.model_dump(exclude_defaults=True, mode="json")
    texts = (
        f"{name}={'+'.join(map(str, v)) if isinstance(v, list) else str(v).lower() if isinstance(v, bool) else v}" for name, v in options.items()
    )
    return " ".join([at.model.name, ",".join(texts)]).strip()


def _run(number: int, row: Mapping[str, Any]) -> Run:
    where = f"rows[{number - 1}]"
    if not isinstance(row, Mapping) or "step" not in row:
        raise InputError(f"{where} is no mapping with 'step', the measured time, and what ran")
    settings = {str(name): value for name, value in row.items() if name not in ("step", "model", "strategy")}
    return Run(seconds_of(row["step"], f"{where}: step"), where, row.get("model") or "", row.get("strategy") or "", settings)


def _kinds(trace: Mapping[str, float]) -> dict[str, float]:
    for kind in trace:
        if kind not in KERNELS:
            raise InputError(f"trace: there is no kind of kernels '{cut(str(kind))}': {nearest(str(kind), KERNELS)}")
    return {kind: seconds_of(given, f"trace: {kind}") for kind, given in trace.items()}
