"""A plan against every configuration of its space, from a sweep: what is best of each kind, and what its certificate says of each configuration."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from symsim.errors import InputError
from symsim.grid.axes import Axis
from symsim.grid.conditions import parse_quantity
from symsim.grid.family import Array
from symsim.grid.question import ask, largest_first
from symsim.grid.space import Space
from symsim.grid.stored import Memories
from symsim.grid.sweep import Sweep
from symsim.grid.work import Rows
from symsim.inputs.models import LoadedModel
from symsim.planning import plan as planning
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.plan import GOALS, Plan, plan
from symsim.planning.search import Cell, Search
from symsim.planning.search import Rows as Chosen
from symsim.planning.space import Asked, options_of, space_of

KINDS = ("tp", "cp", "pp", "ep", "zero", "recompute")
# sums of the same terms in other orders
CLOSE = 1e-9
# combinations of options whose derivations are held at a time, and points whose numbers are
_MOST_COMBINATIONS, _MOST_POINTS = 64, 1 << 17
# bytes of this process from which what passes made is made again
_MOST_HELD = 800_000_000


@dataclass(frozen=True)
class Question:
    """What a plan is asked, as `plan` takes it."""

    loaded: LoadedModel
    system: str
    world: int
    batch: int
    seq_length: int
    framework: str
    goal: str
    share: float
    top: int
    fixed: Mapping[str, Any]
    allowed: tuple[str, ...]

    @property
    def asked(self) -> Asked:
        framework = FRAMEWORKS[self.framework]
        return Asked(self.loaded, self.loaded.architecture, self.system, self.world, self.batch, self.seq_length, framework, self.fixed, self.allowed)

    def planned(self) -> Plan:
        """Without what would fit on more ranks."""
        with patch.object(planning, "_FURTHEST", 1):
            return self._planned()

    def _planned(self) -> Plan:
        return plan(
            self.loaded,
            self.system,
            world=self.world,
            global_batch_size=self.batch,
            seq_length=self.seq_length,
            goal=self.goal,
            framework=self.framework,
            fix=self.fixed,
            allow=self.allowed,
            fits_with=self.share,
            top=self.top,
        )

    def said(self) -> str:
        fixed = ",".join(f"{n}={v}" for n, v in self.fixed.items())
        return (
            f"{self.loaded.architecture.name} -y {self.system} --world {self.world} --global-batch-size {self.batch} --seq-length {self.seq_length} "
            f"--framework {self.framework} --for {self.goal} --fits-with {self.share} --top {self.top} --fix '{fixed}' {' '.join(self.allowed)}"
        )


@dataclass(frozen=True)
class Brute:
    """Of every configuration (a row a point of the grid of sizes, an axis a choice): seconds of a step and bytes of the peak, NaN where it cannot
    run; whether it fits; the goal, NaN where it does not. fields: what varies, with the axis it lies on and its values along it."""

    time: Array
    peak: Array
    fits: Array
    value: Array
    largest: bool
    names: Sequence[tuple[str, ...]]
    fields: Mapping[str, tuple[int, Sequence[Any]]]
    sizes: tuple[int, ...]

    @property
    def configurations(self) -> int:
        return int(self.time.size)

    def where(self, name: str, value: Any) -> Array:
        """Which configurations have an option so."""
        return self.at(name, [str(v) == str(value) for v in self.fields[name][1]])

    def at(self, name: str, along: Sequence[Any]) -> Array:
        """What is along the axis of a name, of every configuration."""
        axis, _ = self.fields[name]
        shape = [1] * (len(self.sizes) + len(self.names))
        shape[axis] = -1
        whole = np.broadcast_to(np.array(along).reshape(shape), (*self.sizes, *self.time.shape[1:]))
        return whole.reshape(self.time.shape)

    def best(self, of: Array, least: bool) -> dict[tuple[str, ...], float]:
        """The best of each kind where a number is given."""
        there = ~np.isnan(of)
        code, values = np.zeros(int(there.sum()), dtype=np.int64), []
        for name in (n for n in KINDS if n in self.fields):
            texts = list(dict.fromkeys(map(str, self.fields[name][1])))
            code = code * len(texts) + self.at(name, [texts.index(str(v)) for v in self.fields[name][1]])[there]
            values.append(texts)
        numbers = of[there]
        order = np.lexsort((numbers if least else -numbers, code))
        codes, first = np.unique(code[order], return_index=True)
        found = {}
        for one, number in zip(codes, numbers[order][first]):
            kind = []
            for texts in reversed(values):
                one, k = divmod(int(one), len(texts))
                kind.append(texts[k])
            found[tuple(reversed(kind))] = float(number)
        return dict(sorted(found.items(), key=lambda item: item[1] if least else -item[1]))


def brute(asked: Question) -> Brute:
    """All configurations, each evaluated, part by part. InputError where none can run."""
    of = asked.asked
    options = options_of(of)
    options.pop("world")
    sizes, choices, derived = space_of(of)
    axes = [*sizes, Axis(("world",), ((of.world,),))]
    along = [(tuple(a.names), list(zip(*a.columns))) for a in axes] + [(c.names, list(c.rows)) for c in choices]

    def space_with(positions: Sequence[Sequence[int]]) -> Space:
        own = [Axis(names, tuple(zip(*(rows[k] for k in at)))) for (names, rows), at in zip(along, positions)]
        return Space(of.base(options), own, derived, refused=of.refused)

    every = [range(len(rows)) for _, rows in along]
    whole = space_with(every)
    names = tuple(dict.fromkeys(("time.step", "memory.peak", "memory.reserve", "memory.capacity", GOALS[asked.goal])))
    question = ask(columns=",".join(names), timed=True, everything=True)
    found = {name: np.full(whole.sizes, np.nan) for name in names}
    memories, nothing = Memories(), None
    for own in _parts(every, len(axes)):
        if _held() > _MOST_HELD:
            memories = Memories()
        memories.found.clear()
        sweep = Sweep(space_with(own), question, search="scan", _memories=memories)
        try:
            sweep.prepare()
        except InputError as error:
            nothing = error
            continue
        numbers, columns = _evaluated(sweep, names)
        for name, values in columns.items():
            part = np.full(math.prod(map(len, own)), np.nan)
            part[numbers] = values
            found[name][np.ix_(*own)] = part.reshape(tuple(map(len, own)))
    shape = (math.prod(whole.sizes[: len(axes)]), *whole.sizes[len(axes) :])
    found = {name: values.reshape(shape) for name, values in found.items()}
    time, peak, value = found["time.step"], found["memory.peak"], found[GOALS[asked.goal]]
    if nothing is not None and np.isnan(time).all():
        raise nothing
    fits = peak + found["memory.reserve"] <= asked.share * found["memory.capacity"]
    fields = {name: (column.axis, column.shown) for name, column in whole.columns.items()}
    largest = largest_first(parse_quantity(GOALS[asked.goal], "--by"))
    return Brute(time, peak, fits, np.where(fits, value, np.nan), largest, [c.names for c in choices], fields, tuple(whole.sizes[: len(axes)]))


def _parts(positions: Sequence[range], sizes: int) -> Iterator[Sequence[range]]:
    """Of a grid parts of few combinations of options, the axes behind those of sizes, and of few points."""
    lengths = [len(own) for own in positions]
    if math.prod(lengths[sizes:]) > _MOST_COMBINATIONS:
        at = max(range(sizes, len(lengths)), key=lengths.__getitem__)
    elif math.prod(lengths) > _MOST_POINTS:
        at = max(range(len(lengths)), key=lengths.__getitem__)
    else:
        yield positions
        return
    half = lengths[at] // 2
    for part in (positions[at][:half], positions[at][half:]):
        yield from _parts([*positions[:at], part, *positions[at + 1 :]], sizes)


def _evaluated(sweep: Sweep, names: Sequence[str]) -> tuple[Array, dict[str, Array]]:
    """Of the points that run the numbers, and what names are there."""
    numbers, columns = [], []
    for task in sweep.parts:
        sink, work = Rows(len(names)), sweep.work(task.group)
        if not work.empty:
            work.walk(task.first, work.plan.blocks if task.last is None else task.last, sink, 1)
            own, found = sink.rows()
            numbers.append(own)
            columns.append(found)
        sweep.forget(task.group)
    if not numbers:
        return np.empty(0, dtype=np.int64), {name: np.empty(0) for name in names}
    return np.concatenate(numbers), {name: np.concatenate([c[k] for c in columns]) for k, name in enumerate(sweep.question.columns)}


def _held() -> int:
    """Bytes of memory that this process has, where the system says so."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


class Told(Search):
    """A search that says what became of each cell: what, the rows chosen, the points, and what none of them is below."""

    made: list["Told"] = []

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.told: list[tuple[str, Chosen, Array, Array]] = []
        Told.made.append(self)

    def _tell(self, what: str, before: Cell, gone: Array) -> None:
        if gone.any():
            self.told.append((what, before.rows, before.points[gone], before.low[gone]))

    def _ruled_out(self, cell: Cell) -> Cell:
        left = super()._ruled_out(cell)
        self._tell("slower", cell, ~np.isin(cell.points, left.points))
        return left

    def _fitting(self, cell: Cell, least: Any, memory: tuple[Array, Array]) -> tuple[Cell, Array]:
        left, most = super()._fitting(cell, least, memory)
        self._tell("larger", cell, ~np.isin(cell.points, left.points))
        return left, most

    def _unbarred(self, cell: Cell) -> Cell:
        left = super()._unbarred(cell)
        self._tell("refused", cell, ~np.isin(cell.points, left.points))
        return left

    def _allowed(self, cell: Cell, parts: Any) -> Array:
        allowed = super()._allowed(cell, parts)
        self._tell("refused", cell, ~allowed)
        return allowed

    def _evaluate(self, cell: Cell, part: Any, asked: Any) -> int | None:
        at = super()._evaluate(cell, part, asked)
        if at is None:
            self._tell("evaluated", cell, np.ones(len(cell.points), dtype=bool))
        return at


def told(asked: Question) -> tuple[Plan, Told]:
    """A plan, and the search that its certificate is of, which says what became of each cell; in one process."""
    Told.made.clear()
    with patch.object(planning, "Search", Told), patch("symsim.planning.search.cores", lambda: 1):
        found = asked.planned()
    return found, Told.made[0 if found.fits else -1]


def wrong_best(found: Plan, top: int, of: Brute, among: Array | None = None) -> list[str]:
    """What of a plan's best is not the best of each kind of all configurations. among: those that are in its space."""
    goal = found.goal if found.fits else "memory.peak"
    if not found.fits and (of.fits if among is None else of.fits & among).any():
        return ["something fits, and the plan says that nothing does"]
    numbers = of.value if found.fits else of.peak
    best = of.best(numbers if among is None else np.where(among, numbers, np.nan), not (found.fits and of.largest))
    wrong = []
    values = [float(choice.result.value(goal)) for choice in found.best]
    expected = list(best.values())[:top]
    if len(values) != len(expected):
        wrong.append(f"{len(values)} kinds of {len(best)}, of which {top} were asked for")
    for place, (is_, should) in enumerate(zip(values, expected), 1):
        if abs(is_ - should) > CLOSE * abs(should):
            wrong.append(f"best {place}: {goal} {is_!r}, of all configurations {should!r}")
    for choice, value in zip(found.best, values):
        kind = tuple(str(choice.options[n]) for n in KINDS if n in of.fields)
        if kind not in best or abs(best[kind] - value) > CLOSE * abs(value):
            wrong.append(f"kind {kind}: {goal} {value!r}, of all configurations {best.get(kind)}")
    return wrong


def wrong_certificate(found: Plan, search: Told, of: Brute) -> list[str]:
    """What a certificate says of configurations and is not so: each is counted once, what was refused cannot run, what was too large does not fit,
    what was slower is not below the bound of its cell, nor better than the bound of all."""
    wrong, said = [], found.certificate
    order = [of.names.index(c.names) for c in search.choices]
    time, peak, fits, value = (np.transpose(a, [0, *(k + 1 for k in order)]) for a in (of.time, of.peak, of.fits, of.value))
    own = time if search.goal.objective == "time.step" else peak
    asks = fits if search.goal.share is not None else ~np.isnan(time)
    counted = np.zeros(time.shape, dtype=np.int32)
    sums = {"refused": 0, "slower": 0, "larger": 0, "evaluated": 0}
    for what, rows, points, low in search.told:
        at = (points, *(slice(None) if row is None else row for row in rows))
        counted[at] += 1
        sums[what] += counted[at].size
        if what == "refused" and not np.isnan(time[at]).all():
            wrong.append(f"{rows}: refused, and runs")
        if what == "larger" and fits[at].any():
            wrong.append(f"{rows}: too large at best, and fits")
        if what == "slower":
            # rows that are chosen behind some that are not leave the points' axis where it is, as it is an array as they are
            bound = low.reshape(-1, *[1] * (counted[at].ndim - 1)) * (1 - CLOSE)
            if (asks[at] & (own[at] < bound)).any():
                wrong.append(f"{rows}: excluded by a bound that is above what one of them takes")
            if said.bound is not None and found.fits:
                better = value[at] > said.bound * (1 + CLOSE) if of.largest else value[at] < said.bound * (1 - CLOSE)
                if (asks[at] & better).any():
                    wrong.append(f"{rows}: better than the largest bound of what was excluded")
    if not (counted == 1).all():
        wrong.append(f"{int((counted == 0).sum())} configurations counted nowhere, {int((counted > 1).sum())} more than once")
    numbers = {"refused": sum(said.refused.values()), "slower": said.slower, "larger": said.larger, "evaluated": said.evaluated}
    if numbers != sums:
        wrong.append(f"the certificate says {numbers}, and the search did {sums}")
    if said.configurations != of.configurations or sum(numbers.values()) != of.configurations:
        wrong.append(f"{said.configurations} configurations, {sum(numbers.values())} accounted for, {of.configurations} in the space")
    return wrong
