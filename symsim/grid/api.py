"""`symsim.sweep` in Python: the rows of a sweep as NumPy columns, or as an xarray dataset over its axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from symsim.errors import InputError
from symsim.grid.answer import Engine, answer
from symsim.grid.base import read_base
from symsim.grid.command import Options, make_sweep, sweep_options
from symsim.grid.store import Column


@dataclass(frozen=True)
class SweepRows:
    """rows: one array a column, by name. columns: unit and meaning of each. axes: the values along every axis, by the names that vary.
    refused: how many configurations each rule stops, the first that each breaks."""

    columns: tuple[Column, ...]
    rows: Mapping[str, np.ndarray]
    axes: Mapping[tuple[str, ...], Sequence[Any]]
    refused: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.rows.values()))) if self.rows else 0

    def to_xarray(self) -> Any:
        """A Dataset with one dimension an axis; NaN (and false, and '') where a configuration cannot run or was not asked for.

        An axis of several names is a dimension named by them, joined by '+', along which each is a coordinate. InputError without xarray.
        """
        try:
            import xarray
        except ImportError:
            raise InputError("to_xarray needs the package xarray; pip install 'symsim[xarray]'") from None
        dims = ["+".join(names) for names in self.axes]
        shape = [len(values) for values in self.axes.values()]
        positions = []
        for names, values in self.axes.items():
            place = {value: k for k, value in enumerate(values)}
            own = [self.rows[n].tolist() for n in names]
            positions.append(np.array([place[row] for row in zip(*own)], dtype=np.int64))
        found = {}
        named = {n for names in self.axes for n in names}
        for column in self.columns:
            if column.name in named:
                continue
            kind = np.float64 if column.kind in ("integer", "number") else object
            data = np.full(shape, np.nan if kind is np.float64 else None, dtype=kind)
            data[tuple(positions)] = self.rows[column.name]
            found[column.name] = (dims, data, {"units": column.unit, "long_name": column.meaning})
        coordinates = {n: (dim, [row[k] for row in values]) for dim, (names, values) in zip(dims, self.axes.items()) for k, n in enumerate(names)}
        return xarray.Dataset(found, coordinates)


def sweep(
    model: str,
    axes: Mapping[str, Any] | Iterable[str],
    strategy: str | None = None,
    system: str | None = None,
    *,
    settings: Sequence[str] = (),
    where: Sequence[str] | str = (),
    fits: bool = False,
    top: int | None = None,
    by: str | None = None,
    pareto: str | None = None,
    columns: str | None = None,
    workers: int = 1,
) -> SweepRows:
    """Evaluate a model over a grid, as `symsim sweep` does: all points that can run, or the best of them.

    axes: texts as of --axis, or a mapping of names to values: {'tp': [1, 2, 4], 'dp': 'world/(tp*pp)'}. InputError as on the command line.
    """
    texts = list(axes) if not isinstance(axes, Mapping) else [f"{name}={_text(values)}" for name, values in axes.items()]
    asked = [where] if isinstance(where, str) else list(where)
    made: Options = sweep_options(asked, fits, top, by, pareto, columns, None, False, "auto", "auto", "local", None, workers)
    ready = make_sweep(read_base(model, strategy, system, settings), texts, made, everything=top is None and by is None and pareto is None)
    ready.prepare(workers=workers)
    if ready.question.objectives:
        found = answer(ready, Engine(workers=workers))
        assert found.rows is not None
        rows = found.rows
    else:
        parts = [ready.run_part(k) for k in range(len(ready.parts))]
        rows = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    shown = {a.names: list(zip(*(ready.space.columns_of(k)))) for k, a in enumerate(ready.space.axes)}
    return SweepRows(tuple(ready.columns()), rows, shown, {r.rule: r.points for r in ready.refused()})


def _text(values: Any) -> str:
    if isinstance(values, str):
        return values
    if isinstance(values, Path):
        return f"@{values}"
    return ",".join(str(v).lower() if isinstance(v, (bool, np.bool_)) else str(v) for v in values)
