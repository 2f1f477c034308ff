"""`symsim.run`: a run of many steps in Python, as `symsim run` makes it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from symsim.algebra.expr import Number
from symsim.api.python import derive
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.run import Run, day_of, run_of
from symsim.importers.job import Job
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System


class Running(Run):
    """A run that shows itself as `symsim run` prints it."""

    def __repr__(self) -> str:
        from symsim.report.text import heading
        from symsim.report.text_run import run_table

        return run_table(self, heading(self.at)).rstrip("\n")


def run(
    model: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any],
    strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    system: System | str | os.PathLike[str] | None = None,
    *,
    tokens: Number | str | None = None,
    steps: Number | str | None = None,
    days: Number | str | None = None,
    start: str | date | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Run:
    """A run of so many tokens (a number, or text such as '15T'), steps, or of as many as fit in so many days.

    start: the day on which it begins, as '2026-12-01'. overrides: what --set takes, numbers of the run among them (mtbf, B_store, ..).
    InputError for what cannot be, and where the run never ends.

    >>> made = run("llama3-8b", "dp=8,zero=1,num_microbatches=8", "h100-sxm", tokens="10B")
    >>> round(made.days, 1), round(made.numbers["goodput"], 3)
    (1.4, 0.997)
    """
    length = {name: value for name, value in (("tokens", tokens), ("steps", steps), ("days", days)) if value is not None}
    result = derive(model, strategy, overrides={**length, **(overrides or {})}, system=system)
    return _run_of(result, day_of(start) if isinstance(start, str) else start)


def printed(result: Result, start: str | None, output: Path | None, as_json: bool) -> tuple[str, list[str]]:
    """What `symsim run` prints of a result, and notes of what it wrote. InputError as `run`."""
    made = _run_of(result, day_of(start) if start is not None else None)
    notes: list[str] = []
    if output is not None:
        from symsim.report import write_report

        notes = write_report(result, output)
    if as_json:
        return json.dumps(result.to_json() | {"run": made.to_json()}, indent=2, allow_nan=False) + "\n", notes
    if output is not None:
        return "", notes
    return f"{made!r}\n", notes


def _run_of(result: Result, start: date | None) -> Run:
    made = run_of(result, start)
    if made is None:
        raise InputError("a run needs a length: give tokens, steps or days")
    return Running(made.at, made.start)
