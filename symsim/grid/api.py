"""`symsim.sweep` in Python: the rows of a sweep as NumPy columns, or as an xarray dataset over its axes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from symsim.api.python import model_of, path_of, strategy_of
from symsim.errors import InputError, cut
from symsim.grid.answer import Engine, answer
from symsim.grid.command import Options, make_sweep, sweep_options
from symsim.grid.rows import Column
from symsim.importers.job import Job
from symsim.inputs.architecture import Architecture
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.program.base import read_base

if TYPE_CHECKING:
    from symsim.report.figure import Figure

_SHOWN, _SCREEN = 20, 80  # rows and characters of a line


@dataclass(frozen=True, repr=False)
class SweepRows:
    """rows: one array a column, by name. columns: unit and meaning of each. axes: the values along every axis, by the names that vary.
    refused: how many configurations each rule stops, the first that each breaks. of: the model and the system."""

    columns: tuple[Column, ...]
    rows: Mapping[str, np.ndarray]
    axes: Mapping[tuple[str, ...], Sequence[Any]]
    refused: Mapping[str, int] = field(default_factory=dict)
    of: str = "Sweep"

    def __len__(self) -> int:
        return len(next(iter(self.rows.values()))) if self.rows else 0

    def __repr__(self) -> str:
        """The first rows as a table, and how many there are."""
        from symsim.grid.shown import sweep_table

        first = {name: values[:_SHOWN] for name, values in self.rows.items()}
        table = sweep_table(self.columns, first, _SCREEN, "rows") if len(self) else ""
        return f"{table}{len(self):,} row{'s' if len(self) != 1 else ''}; to_pandas() and to_xarray() have them all"

    def _repr_html_(self) -> str:
        from symsim.grid.shown import sweep_shown
        from symsim.report.notebook import html

        return html(sweep_shown(self.of, self.columns, self.rows, _SHOWN))

    def _repr_latex_(self) -> str:
        from symsim.grid.shown import sweep_shown
        from symsim.report.notebook import latex

        return latex(sweep_shown(self.of, self.columns, self.rows, _SHOWN))

    def _repr_mimebundle_(self, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> dict[str, str]:
        from symsim.report.notebook import bundle

        return bundle(self, include, exclude)

    def plot(self, by: str | None = None, over: Sequence[str] | str = ()) -> "Figure":
        """A curve over one axis or a heat map over two, of each place the best of all other axes.

        by: a quantity or an expression of the columns; tokens_per_second where it is not given, without a system memory.peak.
        InputError for axes that are none, and for a quantity that is no column.
        """
        from symsim.grid.drawn import rows_picture
        from symsim.report.figure import Figure

        by = by if by is not None else next((n for n in ("tokens_per_second", "memory.peak") if n in self.rows), self.columns[-1].name)
        axes = {name: [row[k] for row in values] for names, values in self.axes.items() for k, name in enumerate(names)}
        wanted = [name.strip() for name in over.split(",")] if isinstance(over, str) else over
        return Figure(f"{by} of {len(self):,} rows", *rows_picture(self.rows, axes, wanted, by, self.of))

    def to_pandas(self) -> Any:
        """A DataFrame with a column for each of `columns`, whose units are in its attrs. InputError without pandas."""
        from symsim.api.frames import sweep_frame

        return sweep_frame(self.columns, self.rows)

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
    model: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any],
    axes: Mapping[str, Any] | Iterable[str] | str,
    strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    system: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    where: Sequence[str] | str = (),
    fits: bool = False,
    top: int | None = None,
    by: str | None = None,
    pareto: Sequence[str] | str | None = None,
    columns: Sequence[str] | str | None = None,
    workers: int = 1,
) -> SweepRows:
    """Evaluate a model over a grid, as `symsim sweep` does: all points that can run, or the best of them.

    model, strategy, system, overrides: as of `derive`. axes: a text or several as of --axis, or a mapping of names to values. columns: names, or text
    as of --columns. where, fits, top, by, pareto: as on the command line. InputError for what `symsim sweep` refuses.

    >>> found = sweep("llama3-8b", {"tp": [1, 2, 4], "sp": "tp>1", "dp": "8/tp"}, columns=["params.per_rank"])
    >>> {name: values.tolist() for name, values in found.rows.items()}
    {'tp': [1, 2, 4], 'sp': [False, True, True], 'dp': [8, 4, 2], 'params.per_rank': [8030261248, 4015263744, 2007764992]}
    """
    several = [axes] if isinstance(axes, str) else axes
    if not isinstance(several, Iterable):
        raise InputError(f"the axes are {cut(repr(axes))}; a mapping such as {{'tp': [1, 2, 4]}}, or texts such as tp=1,2,4, are needed")
    texts = [f"{name}={_text(values)}" for name, values in several.items()] if isinstance(several, Mapping) else list(several)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"an axis is a text such as tp=1,2,4, or an entry of a mapping such as {{'tp': [1, 2, 4]}}, not {cut(str(text))}")
    asked = [where] if isinstance(where, str) else list(where)
    for what, names in (("columns", columns), ("pareto", pareto)):
        if not isinstance(names, Sequence | None) or not all(isinstance(name, str) for name in names or ()):
            raise InputError(f"{what} is {cut(repr(names))}; names of quantities are needed, such as ['time.step', 'memory.peak']")
    shown, both = (given if isinstance(given, str) or given is None else ",".join(given) for given in (columns, pareto))
    if not isinstance(by, str | None) or not isinstance(top, int | np.integer | None):
        raise InputError(f"by={cut(repr(by))}, top={cut(repr(top))}: the name of a quantity and a number of points are needed")
    made: Options = sweep_options(asked, fits, top, by, both, shown, None, False, "auto", "auto", "local", None, workers)
    machine = path_of(system, "the system") if system is not None else None
    base = read_base(model_of(model), strategy_of(strategy), machine, overrides or {})
    ready = make_sweep(base, texts, made, everything=top is None and by is None and pareto is None)
    ready.prepare()
    if ready.question.objectives:
        found = answer(ready, Engine(workers=workers))
        assert found.rows is not None
        rows = found.rows
    else:
        parts = [ready.run_part(k) for k in range(len(ready.parts))]
        rows = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    along = {a.names: list(zip(*(ready.space.columns_of(k)))) for k, a in enumerate(ready.space.axes)}
    return SweepRows(tuple(ready.columns()), rows, along, {r.rule: r.points for r in ready.refused()}, base.said)


def _text(values: Any) -> str:
    if isinstance(values, str):
        return values
    if isinstance(values, Path):
        return f"@{values}"
    # a lone value is an axis of one
    several = values if isinstance(values, Iterable) else [values]
    return ",".join(text_of(v.item() if isinstance(v, np.generic) else v) for v in several)
