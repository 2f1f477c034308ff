"""From a sweep that is ready to its rows: parts run by an engine, kept as they come, and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symsim.grid.engines import Part, Progress, run_here, run_on_dask
from symsim.grid.rows import Column
from symsim.grid.shown import BY
from symsim.grid.store import BlockStore, open_store
from symsim.grid.sweep import Sweep
from symsim.grid.work import Best, Front

_BEST = (Column("value", "", "", "number"), Column("number", "", "", "integer"))
_FRONT = (Column("one", "", "", "number"), Column("two", "", "", "number"), Column("number", "", "", "integer"))


@dataclass(frozen=True)
class Engine:
    """name: 'local' or 'dask'; scheduler: address of a Dask scheduler; workers: processes, or local Dask workers."""

    name: str = "local"
    scheduler: str | None = None
    workers: int = 1


@dataclass(frozen=True)
class Answer:
    """The rows found, by column; None where they are in a file only. count: how many there are."""

    columns: list[Column]
    rows: Mapping[str, np.ndarray] | None
    count: int


def answer(
    sweep: Sweep,
    engine: Engine,
    *,
    output: Path | None = None,
    resume: bool = False,
    metadata: Mapping[str, str] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Answer:
    """Run what is not yet kept, and give the rows; with an output file they are written there."""
    columns = sweep.columns()
    kept = columns if not sweep.question.objectives else list(_FRONT if sweep.question.pareto else _BEST)
    if output is None:
        return _answer(sweep, engine, columns, None, progress)
    with open_store(output, sweep.key, kept, len(sweep.parts), resume) as store:
        found = _answer(sweep, engine, columns, store, progress)
        progress("writing", 0, 1)
        if found.rows is None:
            store.finish(metadata=metadata, columns=columns)
        else:
            store.finish([found.rows], metadata, found.columns)
        return found


def _answer(sweep: Sweep, engine: Engine, columns: list[Column], store: BlockStore | None, progress: Progress) -> Answer:
    """The rows of the points found; without them where a store keeps all as they are."""
    if sweep.found is not None:
        count, rows = sweep.best_rows()
        return Answer(columns, rows, count)
    merged = _run(sweep, engine, store, progress)
    return Answer(columns, None, -1) if merged is None else _found(sweep, columns, merged)


def _found(sweep: Sweep, columns: list[Column], merged: Best | Front) -> Answer:
    """The rows of the points found; an objective that is an expression is a column of its own."""
    rows = sweep.rows_at(merged.places)
    question = sweep.question
    found = [merged.values] if isinstance(merged, Best) else [merged.one, merged.two]
    made = list(columns)
    for text, node, largest, values in zip(question.by, question.objectives, question.largest, found):
        if node.kind != "name":
            rows[text] = -values if largest else values
            made.append(Column(text, "", BY, "number"))
    return Answer(made, rows, len(merged.places))


def _run(sweep: Sweep, engine: Engine, store: BlockStore | None, progress: Progress) -> Best | Front | None:
    """All parts, those kept first; what they merge to, or None where all rows are kept as they are."""
    sink = sweep.sink()
    merged = sink if isinstance(sink, (Best, Front)) else None
    done = store.finished() if store is not None else set()
    if merged is not None and store is not None:
        for part in store.parts():
            _merge(merged, part)
    left = [p for p in range(len(sweep.parts)) if p not in done]
    total = sum(sweep.part_points(p) for p in range(len(sweep.parts)))
    points = total - sum(sweep.part_points(p) for p in left)
    progress("sweeping", points, total)
    for number, found in _engine(sweep, engine, left, lambda: merged.worst if isinstance(merged, Best) else float("inf")):
        if store is not None:
            store.write(number, found)
        if merged is not None:
            _merge(merged, found)
        points += sweep.part_points(number)
        progress("sweeping", points, total)
    return merged


def _engine(sweep: Sweep, engine: Engine, left: list[int], bound: Callable[[], float]) -> Iterator[tuple[int, Part]]:
    if not left:
        return iter(())
    if engine.name == "dask":
        return run_on_dask(sweep, left, bound, engine.scheduler, engine.workers)
    return run_here(sweep, left, bound, engine.workers)


def _merge(merged: Best | Front, part: Mapping[str, Any]) -> None:
    if isinstance(merged, Best):
        merged.add(part["value"], part["number"])
    else:
        merged.add(part["one"], part["two"], part["number"])
