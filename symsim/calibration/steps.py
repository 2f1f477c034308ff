"""Measured steps of a machine as they come: one time, a table of runs (CSV or YAML), a table of kernels (CSV).

runs      step, and what ran: model, strategy, and any name that --set takes; empty cells and names left out are as the command says
kernels   kind (gemm, grouped_gemm, attention, memory), seconds: of one step, on a rank of the slowest stage; several rows of a kind add up
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from symsim.errors import InputError, cut, nearest
from symsim.inputs.known import UNITS
from symsim.inputs.reading import Document, read_text, read_yaml

KERNELS = ("gemm", "grouped_gemm", "attention", "memory")
_MESSAGES = ("node", "network", "exchange", "nccl", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p", "send", "recv")
_TIMES = {unit: float(size) for unit, (kind, size) in UNITS.items() if kind == "time"}
_MOST_RUNS = 1000


@dataclass(frozen=True)
class Run:
    """A measured step: seconds, and what ran where it is not what the command says. `where` is its file and line."""

    seconds: float
    where: str
    model: str = ""
    strategy: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


def seconds_of(given: str | float, where: str) -> float:
    """'12.9 s', '850 ms' or a number of seconds; InputError for what is no time above zero."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        found = float(given)
    else:
        text = str(given).strip()
        number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        unit = text[len(number) :]
        if unit not in _TIMES:
            hint = nearest(unit, list(_TIMES)) if unit else f"it needs a unit: {', '.join(_TIMES)}"
            raise InputError(f"{where}: '{cut(text)}' is no time such as 12.9s or 850 ms: {hint}")
        try:
            found = float(number) * _TIMES[unit]
        except ValueError:
            raise InputError(f"{where}: '{cut(text)}' is no time such as 12.9s or 850 ms") from None
    if not 0 < found < math.inf:
        raise InputError(f"{where}: a step takes more than no time, and '{cut(str(given))}' is not above zero")
    return found


def read_runs(path: str) -> list[Run]:
    """The runs of a CSV or YAML file; InputError says what does not fit, and where."""
    if path.lower().endswith((".yaml", ".yml")):
        rows = _of_yaml(read_yaml(path), path)
    elif path.lower().endswith(".csv"):
        header, *lines = _cells(path) or [(1, [])]
        rows = [(f"{path}:{line}", {n.strip(): c.strip() for n, c in zip(header[1], cells) if c.strip()}) for line, cells in lines]
        if "step" not in [n.strip() for n in header[1]]:
            raise InputError(f"{path}:1: there is no column 'step', the measured time of each run")
    else:
        raise InputError(f"{path}: measured runs come in a .csv or .yaml file")
    if not rows:
        raise InputError(f"{path}: there are no runs in it")
    if len(rows) > _MOST_RUNS:
        raise InputError(f"{path}: {len(rows)} runs are more than {_MOST_RUNS}")
    return [_run(where, row) for where, row in rows]


def _run(where: str, row: Mapping[str, str]) -> Run:
    if "step" not in row:
        raise InputError(f"{where}: the run has no 'step', its measured time")
    settings = {name: value for name, value in row.items() if name not in ("step", "model", "strategy")}
    return Run(seconds_of(row["step"], f"{where}: step"), where, row.get("model", ""), row.get("strategy", ""), settings)


def _of_yaml(document: Document, path: str) -> list[tuple[str, dict[str, str]]]:
    data: Any = document.data.get("runs") if isinstance(document.data, Mapping) else document.data
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise InputError(f"{path}: 'runs:' should be a list of runs, each with step and what ran, such as {{step: 12.9 s, tp: 8}}")
    made = []
    for n, row in enumerate(data, 1):
        for name, value in row.items():
            if not isinstance(value, (str, int, float, bool)):
                raise InputError(f"{path}: run {n}: {cut(str(name))} should be text, a number, true or false")
        made.append((f"{path}: run {n}", {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in row.items()}))
    return made


def read_trace(path: str) -> dict[str, float]:
    """Seconds of each kind of kernels in a step; InputError says what does not fit, and where."""
    if not path.lower().endswith(".csv"):
        raise InputError(f"{path}: a table of kernels is a .csv file with the columns kind and seconds")
    header, *lines = _cells(path) or [(1, [])]
    names = [name.strip() for name in header[1]]
    for name in ("kind", "seconds"):
        if name not in names:
            raise InputError(f"{path}:1: there is no column '{name}'; a table of kernels has kind and seconds")
    found: dict[str, float] = {}
    for line, cells in lines:
        row = dict(zip(names, (c.strip() for c in cells)))
        kind = row.get("kind", "")
        if kind in _MESSAGES:
            raise InputError(f"{path}:{line}: '{kind}' is a message, which runs beside kernels: what counts of it is in --step")
        if kind not in KERNELS:
            raise InputError(f"{path}:{line}: there is no kind of kernels '{cut(kind)}': {nearest(kind, KERNELS)}")
        given = row.get("seconds", "")
        found[kind] = found.get(kind, 0.0) + seconds_of(_number(given), f"{path}:{line}: seconds")
    if not found:
        raise InputError(f"{path}: there are no kernels in it")
    return found


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _cells(path: str) -> list[tuple[int, list[str]]]:
    """Lines of a CSV file that say something, with their numbers; none has more or fewer cells than the first."""
    try:
        rows = [(n, row) for n, row in enumerate(csv.reader(io.StringIO(read_text(path)), strict=True), 1) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{path}: it is no table of commas: {error}") from None
    for n, row in rows:
        if len(row) != len(rows[0][1]):
            raise InputError(f"{path}:{n}: {len(row)} cells, where the header has {len(rows[0][1])}; text with commas stands in quotes")
    return rows
