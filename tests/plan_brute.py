"""A plan against every configuration of its space, from a sweep: what is best of each kind, and what its certificate says of each configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from symsim.grid.axes import Axis
from symsim.grid.family import Array
from symsim.grid.question import ask
from symsim.grid.space import Space
from symsim.grid.sweep import Sweep
from symsim.inputs.models import LoadedModel
from symsim.planning import plan as planning
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.plan import GOALS, Plan, plan
from symsim.planning.search import Cell, Rows, Search
from symsim.planning.space import Asked, options_of, space_of

KINDS = ("tp", "cp", "pp", "ep", "zero", "recompute")
# sums of the same terms in other orders
CLOSE = 1e-9


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
    """All configurations, each evaluated. InputError where none can run."""
    of = asked.asked
    options = options_of(of)
    options.pop("world")
    sizes, choices, derived = space_of(of)
    axes = [*sizes, Axis(("world",), ((of.world,),))]
    space = Space(of.base(options), [*axes, *(Axis(c.names, tuple(zip(*c.rows))) for c in choices)], derived, refused=of.refused)
    goal = GOALS[asked.goal]
    first = _sweep(space, "time.step")
    first.prepare()
    time = _values(first, space.points)
    again = [
        replace(first, question=_question(by, where), _works={}, _program=None)
        for by, where in (("memory.peak", None), (goal, f"memory.peak + memory.reserve <= {asked.share!r}*memory.capacity"))
    ]
    peak, value = (_values(sweep, space.points) for sweep in again)
    shape = (math.prod(space.sizes[: len(axes)]), *(len(c.rows) for c in choices))
    fields = {name: (column.axis, column.shown) for name, column in space.columns.items()}
    largest = again[1].question.largest[0]
    parts = [part.reshape(shape) for part in (time, peak, ~np.isnan(value), -value if largest else value)]
    return Brute(*parts, largest, [c.names for c in choices], fields, tuple(space.sizes[: len(axes)]))


def _question(by: str, where: str | None) -> Any:
    return ask(top=10_000_000, by=by, columns=by, where=[where] if where else [], timed=True)


def _sweep(space: Space, by: str) -> Sweep:
    return Sweep(space, _question(by, None), search="scan")


def _values(sweep: Sweep, points: int) -> Array:
    found = np.full(points, np.nan)
    for part in range(len(sweep.parts)):
        rows = sweep.run_part(part)
        found[rows["number"]] = rows["value"]
    return found


class Told(Search):
    """A search that says what became of each cell: what, the rows chosen, the points, and what none of them is below."""

    made: list["Told"] = []

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.told: list[tuple[str, Rows, Array, Array]] = []
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
