"""`symsim sweep`: from the texts of the command line to what it prints."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from symsim.algebra.quantity import BYTE
from symsim.api.given import as_given
from symsim.errors import InputError, nearest, sentence
from symsim.exporters.registry import TARGETS
from symsim.grid.answer import Answer, Engine, Progress, answer
from symsim.grid.axes import Axis, DerivedAxis, parse_axes
from symsim.grid.conditions import FITS
from symsim.grid.exported import exported
from symsim.grid.names import RANKS, field_of
from symsim.grid.processes import cores
from symsim.grid.question import ask
from symsim.grid.shown import sweep_json, sweep_table
from symsim.grid.space import Space
from symsim.grid.store import check_output
from symsim.grid.sweep import Sweep
from symsim.inputs.settings import split_settings, text_of
from symsim.inputs.systems import load_system
from symsim.program.base import Base, read_base
from symsim.report.amounts import human
from symsim.report.drawn import check_picture, write_picture
from symsim.version import __version__

# more rows than this are no file that anybody reads
_MOST_ROWS = 2_000_000_000
_MOST_POINTS = 2**62
# a table on a terminal has an end
_MOST_PRINTED = 1000
_NARROWEST = 40
# lines below the picture of a page
_MOST_DRAWN = 100
# say who does what only where there is something to wait for
_WORTH_WATCHING_S = 0.5


@dataclass(frozen=True)
class Taken:
    """What is taken from a sweep besides its rows. plot: a picture, over these axes. strategies: -s of every row. export: a system and a file, of
    the best."""

    plot: Path | None = None
    over: tuple[str, ...] = ()
    strategies: bool = False
    export: tuple[str, Path] | None = None


@dataclass(frozen=True)
class Options:
    where: tuple[str, ...]
    fits: bool
    top: int | None
    by: str | None
    pareto: str | None
    columns: str | None
    output: Path | None
    resume: bool
    search: str
    backend: str
    engine: Engine
    taken: Taken = Taken()


def sweep_options(
    where: Sequence[str] | None,
    fits: bool,
    top: int | None,
    by: str | None,
    pareto: str | None,
    columns: str | None,
    output: Path | None,
    resume: bool,
    search: str,
    backend: str,
    engine: str,
    scheduler: str | None,
    workers: int | None,
    taken: Taken = Taken(),
    *,
    as_json: bool = False,
) -> Options:
    """The options, checked against each other before anything is read."""
    for name, given, valid in (
        ("--search", search, ("auto", "scan", "bounds")),
        ("--backend", backend, ("auto", "numpy", "c")),
        ("--engine", engine, ("local", "dask")),
    ):
        if given not in valid:
            raise InputError(f"{name} {given}: {nearest(given, valid)}")
    if scheduler is not None and engine != "dask":
        raise InputError(f"--scheduler {scheduler} belongs to --engine dask")
    if workers is not None and not 1 <= workers <= 4096:
        raise InputError(f"--workers {workers}: a number of processes from 1 up is needed")
    if resume and output is None:
        raise InputError("--resume goes on with a sweep to a file; name it with -o")
    if output is not None:
        if as_json:
            raise InputError("--json prints the points, and -o writes them to a file; give one of the two")
        check_output(output)
    _check_taken(taken, output)
    if search == "bounds" and top is None and by is None and (output is not None or pareto is not None):
        raise InputError("--search bounds finds the best points; give --top and --by")
    made = Engine(engine, scheduler, workers if workers is not None else cores())
    return Options(tuple(where or ()), fits, top, by, pareto, columns, output, resume, search, backend, made, taken)


def _check_taken(taken: Taken, output: Path | None) -> None:
    if taken.plot is not None:
        check_picture(taken.plot)
    elif taken.over:
        raise InputError("--over names the axes of a picture: give --plot FILE.svg")
    if taken.export is not None and taken.export[0] not in TARGETS:
        raise InputError(f"symsim does not export '{taken.export[0]}': {nearest(taken.export[0], list(TARGETS))}")
    if output is not None and (taken.strategies or taken.export is not None or taken.plot is not None):
        raise InputError("--strategies, --export and --plot are of the best points: leave -o out, which writes every point")


def sweep(
    model: str, strategy: str | None, system: str | None, settings: Sequence[str], axes: Sequence[str], options: Options, *, as_json: bool = False
) -> str:
    """Run a sweep; what is printed on standard output."""
    began = time.perf_counter()
    base = read_base(model, strategy, system, settings)
    made = make_sweep(base, axes, options)
    if options.taken.plot is not None and not made.question.pareto:
        # most sweeps draw nothing
        from symsim.grid.drawn import drawn_axes

        # before the points are looked at
        drawn_axes(made.space, options.taken.over)
    with shown_progress() as progress:
        made.prepare(progress)
        try:
            found = answer(
                made,
                options.engine,
                output=options.output,
                resume=options.resume,
                metadata=_metadata(base, axes, options),
                progress=progress,
            )
        except KeyboardInterrupt:
            if options.output is not None:
                _say(f"stopped; the blocks that are finished are kept in {options.output}.parts, and --resume goes on from them")
            raise
    _summary(made, found, options, time.perf_counter() - began, as_json=as_json)
    if base.note:
        _say(base.note)
    if options.output is not None:
        return ""
    assert found.rows is not None
    rows = {name: values[:_MOST_PRINTED] for name, values in found.rows.items()}
    fixed = [item for item in settings if not split_settings([item]).strategy]
    points = [point_of(made.space, rows, k, fixed) for k in range(min(found.count, _MOST_PRINTED))]
    lines = [point.text for point in points]
    _take(made, rows, lines, options.taken)
    if points and (strategy is not None or settings):
        _say_without_effect(model, base, points[0])
    if as_json:
        told = sweep_json(found.columns, found.rows)
        if options.taken.strategies:
            told = [{**row, "again": point_of(made.space, found.rows, k, fixed).text} for k, row in enumerate(told)]
        return json.dumps(told, indent=1, allow_nan=False) + "\n"
    if not found.count:
        return ""
    # as wide as the terminal, or COLUMNS; 80 where neither is known
    table = sweep_table(found.columns, rows, max(shutil.get_terminal_size().columns, _NARROWEST), by=made.question.by)
    if options.taken.strategies:
        return table + "".join(f"{k}: {line}\n" for k, line in enumerate(lines, 1))
    if made.question.objectives:
        _say_too_large(base, made, rows)
    return table + (f"first: {lines[0]}\n" if made.question.objectives else "")


def _say_too_large(base: Base, made: Sweep, rows: Mapping[str, Any]) -> None:
    """Where the first point needs more memory than there is, unless the system is an axis."""
    moved = {column.name for column in made.space.columns.values()} & {"system", "accelerator.memory"}
    if base.system is None or moved or "memory.peak" not in rows:
        return
    needed, there = int(rows["memory.peak"][0]), int(load_system(base.system, base.system_changes).accelerator.memory.value)
    if needed > there:
        _say(f"the first needs {human(needed, BYTE)} of {human(there, BYTE)}; --fits leaves out what does not fit")


def _say_without_effect(model: str, base: Base, point: "Point") -> None:
    """What was given for all points and moves nothing of the first."""
    made = as_given(model, point.strategy or None, point.system, point.settings)
    fixed = base.strategy.model_fields_set | {f"assume.{n}" for n in base.assumptions} | base.settled
    for name, said in made.idle.items():
        if name in fixed:
            _say(f"the first point: {said}")


def _take(made: Sweep, rows: Mapping[str, Any], lines: Sequence[str], taken: Taken) -> None:
    """The picture, and the best as a trainer's file."""
    if taken.plot is not None:
        from symsim.grid.drawn import front_picture, grid_picture

        title = made.space.base.said
        if made.question.pareto:
            if not lines:
                raise InputError("--plot: no configuration that can run meets the conditions")
            picture = front_picture(made.question, rows, lines, title)
        else:
            picture = grid_picture(made, taken.over, title)
        write_picture(taken.plot, picture, title, lines[:_MOST_DRAWN])
        _say(f"wrote {taken.plot}")
    if taken.export is not None:
        if not lines:
            raise InputError("--export: no configuration that can run meets the conditions")
        for note in exported(made.space.base, lines[0], *taken.export):
            _say(note)


def make_sweep(base: Base, axes: Sequence[str], options: Options, *, everything: bool = False) -> Sweep:
    """A sweep of these axes, not yet prepared; InputError for what cannot be asked."""
    free, derived = parse_axes(axes)
    if not free:
        raise InputError("a sweep needs an axis: give --axis, such as --axis tp=1,2,4,8")
    space = Space(base, _with_ranks(base, free, derived), derived)
    timed = base.system is not None or any(c.place.part == "machine" for c in space.columns.values())
    question = ask(
        where=options.where,
        top=options.top,
        by=options.by,
        pareto=options.pareto,
        columns=options.columns,
        fits=options.fits,
        timed=timed,
        everything=everything or options.output is not None,
    )
    if space.points > _MOST_POINTS:
        raise InputError(f"the axes make {space.points:.2e} points; at most {_MOST_POINTS:.0e} are numbered")
    if not question.objectives and space.points > _MOST_ROWS:
        raise InputError(
            f"the axes make {space.points:,} points, too many rows for a file (at most {_MOST_ROWS:,}): give --top or --pareto, or fewer values"
        )
    return Sweep(space, question, options.search, options.backend, workers=options.engine.workers, alone=options.engine.name == "local")


def _with_ranks(base: Base, free: Sequence[Axis], derived: Sequence[DerivedAxis]) -> tuple[Axis, ...]:
    """The axes, and the ranks of the strategy as one more: dp follows from them at every point."""
    if base.ranks is None:
        return tuple(free)
    for name in [*(n for axis in free for n in axis.names), *(one.name for one in derived)]:
        if field_of(name) in (*RANKS, "dp"):
            raise InputError(f"{base.ranks.where} gives world={base.ranks.world}, from which dp follows; leave it or the axis {name} out")
    return (*free, Axis((RANKS[0],), ((base.ranks.world,),)))


class Point(NamedTuple):
    """What `symsim eval MODEL` takes for a row: -s, --set and -y."""

    strategy: str
    settings: list[str]
    system: str | None

    @property
    def text(self) -> str:
        given = (w for item in self.settings for w in ("--set", item))
        return shlex.join([*(["-s", self.strategy] if self.strategy else []), *given, *(["-y", self.system] if self.system else [])])


def point_of(space: Space, rows: Mapping[str, Any], row: int, fixed: Sequence[str] = ()) -> Point:
    """fixed: what --set gave beside options of the strategy."""
    base = space.base
    options = base.strategy.model_dump(mode="json", exclude_unset=True)
    settings: dict[str, str] = {}
    system = base.system
    for name, values in rows.items():
        value = text_of(values[row].item() if hasattr(values[row], "item") else values[row])
        column = next((c for c in space.columns.values() if c.name == name), None)
        if name in space.derived or (column is not None and column.place.part == "strategy"):
            options[field_of(name)] = value
        elif column is not None and column.place.part == "machine":
            system = value
        elif column is not None and column.place.part != "ranks":
            settings[name] = value
    text = ",".join(f"{n}={text_of(v)}" for n, v in options.items() if v is not None)
    return Point(text, [*fixed, *(f"{n}={v}" for n, v in settings.items())], system)


def _metadata(base: Base, axes: Sequence[str], options: Options) -> dict[str, str]:
    """What a Parquet file says of how it came to be."""
    return {
        "version": __version__,
        "model": base.architecture.name,
        "strategy": json.dumps(base.strategy.model_dump(mode="json", exclude_defaults=True), sort_keys=True),
        "system": base.system or "",
        "assumptions": json.dumps(dict(base.assumptions), sort_keys=True),
        "axes": json.dumps(list(axes)),
        "where": json.dumps(list(options.where) + ([FITS] if options.fits else [])),
        "best": options.by or options.pareto or "",
    }


def _summary(made: Sweep, found: Answer, options: Options, seconds: float, *, as_json: bool = False) -> None:
    points, running = made.space.points, made.running - made.refused_runs.points
    derivations = made.derivations
    _say(f"{points:,} configurations, {running:,} can run, {derivations} derivation{'s' if derivations > 1 else ''}, {seconds:.1f} s")
    if made.found is not None:
        _say(f"{made.found.evaluated:,} of those evaluated: bounds of the step and of memory rule out that another is better")
    refused = made.refused()
    if as_json and refused:
        _say(f"refused {json.dumps({r.rule: r.points for r in refused})}")
    for reason in refused if not as_json else ():
        _say(f"{reason.points:,} refused by {reason.rule}, one of them: {reason.why}")
    best = " and ".join(f"{'largest' if more else 'least'} {text}" for text, more in zip(made.question.by, made.question.largest))
    if found.count > 0 and best:
        _say(f"best: {best}" + (" first" if made.question.top is not None else ""))
    if found.count == 0:
        conditions = " and ".join([*options.where, *([FITS] if options.fits else [])])
        _say(f"no configuration that can run meets {conditions or 'the question'}")
    elif options.output is None and found.count > _MOST_PRINTED:
        _say(f"the first {_MOST_PRINTED} of {found.count} points are shown; -o FILE.csv has all")
    if options.output is not None:
        _say(f"wrote {options.output}")


def _say(note: str) -> None:
    """A note on standard error; the answer does not depend on whether anybody can read it."""
    with suppress(OSError, ValueError):
        print(f"symsim: {sentence(note)}", file=sys.stderr)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Progress with rate and time left on standard error, where that is a terminal and there is something to wait for."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            if speed is None:
                return Text("")
            return Text(f"{speed / 1e6:.0f} M/s" if speed >= 1e6 else f"{speed:.0f}/s")

    began = time.perf_counter()
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f} %"),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        tasks: dict[str, object] = {}

        def progress(what: str, done: float, total: float) -> None:
            if time.perf_counter() - began < _WORTH_WATCHING_S:
                return
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield progress
