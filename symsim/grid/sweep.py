"""A sweep from end to end: space -> variants -> work in blocks -> rows.

    Space       what varies (space.py)              Family      parts of it with the same options (family.py)
    variants()  points that share a derivation (variant.py)
    grouped()   variants as one, where they have few points (group.py)
    Question    what is asked (question.py)         Work        a group's kernel (work.py)
    tasks       blocks of one group each; an engine runs them in any order, their parts merge to one answer (engines.py)
    rows        the columns of the points that were found

Parts are numbered; a part holds all that its task found, so that a sweep that was stopped goes on with the parts it lacks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from symsim.errors import InputError, printable
from symsim.evaluation.quantities import EXPOSED, QUANTITIES
from symsim.grid.axes import Axis
from symsim.grid.collection import no_collection
from symsim.grid.family import Array, Family, families
from symsim.grid.group import Group, grouped
from symsim.grid.question import Question, check_names, is_text, shown
from symsim.grid.refused import Refused, refused, refused_runs
from symsim.grid.reported import Reported
from symsim.grid.rows import Column
from symsim.grid.space import Space
from symsim.grid.stored import Memories
from symsim.grid.symbols import Symbols
from symsim.grid.variant import Points, Variant, neighbours, variants, with_formulas
from symsim.grid.work import Best, Front, Rows, Work
from symsim.inputs.strategy import Strategy
from symsim.program.bounds import best_points
from symsim.program.c_kernel import compiler
from symsim.program.cache import key_of, source_hash
from symsim.program.program import SHARED_SMALL, SMALL, Program
from symsim.program.value import Value

if TYPE_CHECKING:
    from symsim.planning.swept import Best as BestOfOptions

# points of a task: enough to be worth handing over, few enough that a stop loses little
TASK_POINTS = 1 << 24
# points of a block whose rows are kept
ROWS_POINTS = 1 << 18
# where a scan would take longer than finding out whether bounds are tight
BOUNDS_FROM = 200_000_000
BOUNDS_FROM_COMPILED = 4_000_000_000
# of so many variants lowering is worth a process
_FORK_VARIANTS = 64
# so many combinations of options, whose derivations are several times as many, are worth a search over them
_SEARCHED_FAMILIES = 24
# sums of the same terms in other orders differ by less
_ROUNDING = 1e-13
# the largest float below 2^63
_MOST = 2.0**63 - 1024

Progress = Callable[[str, float, float], None]


def _silent(what: str, done: float, total: float) -> None:
    return None


@dataclass(frozen=True)
class Task:
    """Blocks first .. last - 1 of a group's plan; the whole of it where `last` is None."""

    group: int
    first: int = 0
    last: int | None = None


@dataclass
class Sweep:
    """A space and a question, made ready. search: 'auto', 'scan' or 'bounds'; backend: 'auto', 'numpy' or 'c'. workers: how many
    processes may derive. alone: whether this process, and those that it forks, do all of it. excluded: of parts that this process
    searched by bounds, how many points were not looked at, and what none of them is below. found: what a search over options found. running:
    points that can run."""

    space: Space
    question: Question
    search: str = "auto"
    backend: str = "auto"
    threads: int = 1
    workers: int = 1
    alone: bool = False
    variants: list[Variant] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    parts: list[Task] = field(default_factory=list)
    excluded: dict[int, tuple[int, float]] = field(default_factory=dict)
    found: BestOfOptions | None = None
    running: int = 0
    _families: list[Family] = field(default_factory=list)
    _impossible: list[tuple[Family, InputError]] = field(default_factory=list)
    _works: dict[int, Work] = field(default_factory=dict)
    _program: Program | None = None
    _memories: Memories = field(default_factory=Memories)

    def prepare(self, progress: Progress = _silent) -> None:
        """Find the variants, derive their formulas, and cut the grid into parts; of a search over options, which is done here, no more than it finds.
        InputError where nothing can run."""
        with no_collection():
            self._families, self._impossible, self.running = [], [], 0
            for family in families(self.space):
                try:
                    self.running += Points(family.chosen, family.masks).running_points
                    self._families.append(family)
                except InputError as error:
                    # sizes of a model that do not go together are points that cannot run
                    self._impossible.append((family, error))
            if not self.running:
                raise self._impossible[0][1] if self._impossible else _nothing_runs(self.space)
            self.found = self._searched(progress)
            if self.found is None:
                self._derive(progress)
            if self.alone and self.refused_runs.points == self.running:
                raise InputError(f"none of the {self.space.points} configurations can run; of one of them: {self.refused_runs.why}")
        self.parts = [task for index in range(len(self.groups)) for task in self._tasks(index)]

    def _derive(self, progress: Progress) -> None:
        """The formulas of all variants, in groups."""
        undone = [one for family in self._families for one in variants(family)]
        order = neighbours(undone)
        made = with_formulas([undone[k] for k in order], self._memories, lambda done: progress("deriving", done, len(undone)), self.workers)
        self.variants = [made[place] for place in sorted(range(len(order)), key=order.__getitem__)]
        check_names(self.question, [Symbols(v) for v in self.variants])
        self.groups = list(grouped(self.variants))

    def _searched(self, progress: Progress) -> BestOfOptions | None:
        """The best points by a search over options, where that is sooner done than all variants are derived."""
        if not self.alone or self.search != "auto" or self._impossible or len(self._families) < _SEARCHED_FAMILIES:
            return None
        # most sweeps have few options
        from symsim.planning.swept import best_points, searchable

        if not searchable(self.space, self.question):
            return None
        # names that there are under all strategies
        first = next(one for family in self._families for one in variants(family))
        check_names(self.question, [Symbols(v) for v in with_formulas([first], self._memories)])
        return best_points(self.space, self.question, self._memories, progress)

    @property
    def derivations(self) -> int:
        """Of how many variants formulas were derived."""
        return len(self.variants) if self.found is None else self.found.derivations

    def refused(self) -> list[Refused]:
        """Why the others cannot, rule by rule."""
        found = refused(self._families, self._impossible) if self.running < self.space.points else []
        runs = [self.refused_runs] if self.refused_runs.points else []
        return sorted([*found, *runs], key=lambda r: -r.points)

    @cached_property
    def refused_runs(self) -> Refused:
        """Of `running` points those that `symsim run` refuses; of a search by bounds, which does not look at all, none is counted."""
        return refused_runs([g for index, g in enumerate(self.groups) if not self._by_bounds(index)], self.space.sizes)

    @property
    def key(self) -> str:
        """A hash of all that determines the rows."""
        base = self.space.base
        given = (sorted(base.strategy.model_fields_set), sorted(base.assumptions.items()), sorted(base.symbols.items()), base.system)
        systems = {name: self.space.documents[name].data for name in sorted(self.space.documents)}
        asked = (self.space.axes, self.space.given, self.question, sorted(base.system_changes.items()), self.parts)
        return key_of(
            base.architecture.model_dump_json(), base.strategy.model_dump_json(), repr(given), repr(asked), repr(systems), source_hash(whole=True)
        )

    def recipe(self) -> bytes:
        """What another process needs to make the same sweep ready."""
        space = self.space
        return pickle.dumps((space.base, space.axes, space.given, space.documents, self.question, self.search, self.backend), 5)

    @staticmethod
    def of_recipe(recipe: bytes) -> "Sweep":
        base, axes, derived, documents, question, search, backend = pickle.loads(recipe)
        made = Sweep(Space(base, axes, derived, documents), question, search, backend)
        made.prepare()
        return made

    def work(self, index: int) -> Work:
        if index not in self._works:
            if self._program is None:
                self._program = Program(self.space.sizes, small=SMALL if len(self.variants) == 1 else SHARED_SMALL)
            most = None if self.question.objectives else ROWS_POINTS
            with no_collection():
                self._works[index] = Work(
                    self.groups[index], self.question, self._program, most_points=most, backend=self.backend, apart=self._apart(index)
                )
        return self._works[index]

    def _apart(self, index: int) -> bool:
        """Whether a process beside this one is worth it, which finds the points that meet conditions while this one finds objectives: of one part,
        the lowering of which is the work."""
        group, asked = self.groups[index], self.question
        alone = self.workers > 1 and len(self.parts) == 1 and not self._by_bounds(index)
        return alone and bool(asked.objectives and asked.where) and len(group.variants) >= _FORK_VARIANTS and group.points < TASK_POINTS

    def forget(self, index: int) -> None:
        """Let go of a group's kernel and its arrays."""
        self._works.pop(index, None)

    def _tasks(self, index: int) -> list[Task]:
        """The tasks of a group, the same every time."""
        points = self.groups[index].points
        each = TASK_POINTS if self.question.objectives else ROWS_POINTS
        if points <= 2 * each or self._by_bounds(index):
            return [Task(index)]
        each *= 4 if self.work(index).compiled else 1
        plan = self.work(index).plan
        step = max(1, each // plan.block_points)
        return [Task(index, k, min(k + step, plan.blocks)) for k in range(0, plan.blocks, step)]

    def _by_bounds(self, index: int) -> bool:
        if self.question.top is None or self.search == "scan":
            return False
        if self.search == "bounds":
            return True
        points = self.groups[index].points
        if points < BOUNDS_FROM:
            return False
        compiles = self.backend != "numpy" and compiler() is not None
        return points >= (BOUNDS_FROM_COMPILED if compiles else BOUNDS_FROM)

    @property
    def threaded(self) -> bool:
        """Whether compiled kernels look for the best, which run beside each other in one process."""
        return self.question.top is not None and any(self.work(t.group).compiled for t in self.parts if t.last is not None)

    def by_bounds(self, part: int) -> bool:
        return self._by_bounds(self.parts[part].group)

    def part_points(self, part: int) -> int:
        """Points that a part stands for."""
        task = self.parts[part]
        if task.last is None:
            return self.groups[task.group].points
        return (task.last - task.first) * self.work(task.group).plan.block_points

    def sink(self, worst: float = np.inf) -> Best | Front | Rows:
        if self.question.top is not None:
            return Best(self.question.top, worst)
        return Front() if self.question.pareto else Rows(len(self._value_columns()))

    def run_part(self, part: int, worst: float = np.inf) -> dict[str, Array]:
        """What a part finds: the best by value and number, the front, or the rows. worst: nothing above it is wanted."""
        task, sink = self.parts[part], self.sink(worst)
        work = self.work(task.group)
        if work.empty:
            return self._nothing(sink)
        if self._by_bounds(task.group):
            assert isinstance(sink, Best)
            objective, wanted = work.values
            found = best_points(work.program, objective, wanted, sink.count, worst, patient=self.search == "bounds")
            if found is not None:
                points = self.groups[task.group].running_points
                self.excluded[part] = (max(0, points - found.evaluated), found.bound)
                sink.add(found.values, _numbers(work.group.chosen, found.positions, self.space.sizes))
                return {"value": sink.values, "number": sink.places}
        work.walk(task.first, work.plan.blocks if task.last is None else task.last, sink, self.threads)
        if isinstance(sink, Rows):
            numbers, columns = sink.rows()
            texts = {name: work.group.text_at(own, numbers, self.space.sizes) for name, own in work.texts.items()}
            return self._rows(numbers, dict(zip(self._value_columns(), columns)), texts)
        return sink.rows()

    def _nothing(self, sink: Best | Front | Rows) -> dict[str, Array]:
        if isinstance(sink, Rows):
            return self.rows_at(np.empty(0, dtype=np.int64))
        none = np.empty(0)
        numbers = np.empty(0, dtype=np.int64)
        return {"value": none, "number": numbers} if isinstance(sink, Best) else {"one": none, "two": none, "number": numbers}

    def best_rows(self) -> tuple[int, dict[str, Array]]:
        """The best points that a search over options found, of equal ones (but for rounding) the first by number: how many, and their rows."""
        assert self.found is not None
        rows = self.rows_at(self.found.numbers)
        values = rows[self.question.by[0]]
        rising = np.argsort(-values if self.question.largest[0] else values, kind="stable")
        several = np.cumsum(np.abs(np.diff(values[rising], prepend=values[rising[:1]])) > _ROUNDING * np.abs(values[rising]))
        order = rising[np.lexsort((self.found.numbers[rising], several))][: self.question.top]
        return len(order), {name: own[order] for name, own in rows.items()}

    # columns -----------------------------------------------------------------------------------------------------------

    def columns(self) -> list[Column]:
        """The columns of the rows: what varies, as the user gave it, what is derived, and what is reported."""
        made = [Column(c.name, "", "an axis", _kind(c.shown)) for c in self.space.columns.values()]
        made += [Column(d.name, "", f"derived: {d.text}", "boolean" if self._is_option(k) else "integer") for k, d in self.space.derived.items()]
        taken = {c.name for c in made}
        texts = self._text_columns()
        return made + [
            Column(name, "", "an option", "text") if name in texts else _reported(name) for name in self.question.columns if name not in taken
        ]

    def _text_columns(self) -> set[str]:
        return {name for name in self.question.columns if is_text(name)}

    def _value_columns(self) -> list[str]:
        return [name for name in self.question.columns if not is_text(name)]

    def _is_option(self, key: str) -> bool:
        return isinstance(Strategy.model_fields[key].default, bool)

    def _rows(self, numbers: Array, found: Mapping[str, Array], texts: Mapping[str, Array]) -> dict[str, Array]:
        rows: dict[str, Array] = {}
        positions = np.unravel_index(numbers, self.space.sizes)
        for c in self.space.columns.values():
            rows[c.name] = as_column(c.shown)[positions[c.axis]]
        for key, derived in self.space.derived.items():
            rows[derived.name] = self._derived_values(key, positions)
        for one in self.columns():
            if one.name in rows:
                continue
            if one.name in texts:
                rows[one.name] = texts[one.name]
            else:
                rows[one.name] = whole(found[one.name]) if one.kind == "integer" else found[one.name].astype(np.float64)
        return rows

    def _derived_values(self, key: str, positions: Sequence[Array]) -> Array:
        made = [np.asarray(family.fields[key]) for family in self._families]
        found = np.zeros(len(positions[0]), dtype=np.result_type(*made))
        for family, value in zip(self._families, made):
            here = np.arange(len(found))
            for axis, own in enumerate(family.chosen):
                if len(own) < self.space.sizes[axis] and len(here):
                    here = here[np.isin(positions[axis][here], own)]
            if len(here):
                spread = value if value.ndim else value.reshape([1] * len(positions))
                found[here] = spread[tuple(p[here] if n > 1 else 0 for p, n in zip(positions, spread.shape))]
        return found

    def rows_at(self, numbers: Array) -> dict[str, Array]:
        """The rows of some points, in the order given."""
        if not len(numbers):
            none = {n: np.empty(0, dtype=object) for n in self._text_columns()}
            return self._rows(numbers, {n: np.empty(0) for n in self.question.columns}, none)
        positions = np.unravel_index(numbers, self.space.sizes)
        names = tuple(c.name for c in self.space.columns.values())
        shown_values = tuple(tuple(c.shown[k] for k in positions[c.axis]) for c in self.space.columns.values())
        points = Space(self.space.base, [Axis(names, shown_values)], self.space.given, self.space.documents)
        found = {n: np.zeros(len(numbers)) for n in self.question.columns}
        texts: dict[str, Array] = {}
        program = Program(points.sizes, small=1 << 62)
        for group in grouped(with_formulas([one for family in families(points) for one in variants(family)], self._memories)):
            self._fill(Reported(group, program), found, texts)
        return self._rows(numbers, found, texts)

    def _fill(self, reported: Reported, found: dict[str, Array], texts: dict[str, Array]) -> None:
        group, (count,) = reported.group, reported.program.sizes
        own = group.chosen[0][np.broadcast_to(group.running(), group.sizes)]
        for name in self.question.columns:
            made: Value | list[str] = shown(reported, name)
            if isinstance(made, list):
                texts.setdefault(name, np.array([""] * count, dtype=object))[own] = group.text_at(made, own, (count,))
            else:
                found[name][own] = np.broadcast_to(np.asarray(made.data, dtype=np.float64), (count,))[own]


def _reported(name: str) -> Column:
    """The column of a reported quantity, or of a definition's symbol."""
    if name in QUANTITIES:
        known = QUANTITIES[name]
        return Column(name, known.unit, known.meaning, known.kind)
    if name.startswith(EXPOSED):
        return Column(name, "s", f"messages over {name.removeprefix(EXPOSED)} that nothing hides", "number")
    return Column(name, "", "", "number")


def _numbers(chosen: Sequence[Array], positions: Array, sizes: Sequence[int]) -> Array:
    """Numbers in the whole grid of positions among those chosen (one row a point)."""
    found = np.zeros(len(positions), dtype=np.int64)
    for axis, own in enumerate(chosen):
        found = found * sizes[axis] + own[positions[:, axis]]
    return found


def whole(values: Array) -> Array:
    """Bytes and other counts as integers: a fraction of one, an uneven share, is rounded up (as `symsim eval` does).

    What lies within 2^-50 of itself, and 2^-12, of an integer is that integer: sums of shares over up to some thousand ranks are told apart
    from what rounding left of them, up to some 10^13.
    """
    near = np.rint(values)
    found = np.where(np.abs(values - near) <= 2.0**-50 * np.abs(values) + 2.0**-12, near, np.ceil(values))
    return np.minimum(found, _MOST).astype(np.int64)


def as_column(values: Sequence[Any]) -> Array:
    """Values of an axis as rows have them: numbers or truths, and text where they are of several kinds."""
    if _kind(values) == "text":
        return np.array([str(v).lower() if isinstance(v, bool) else printable(str(v)) for v in values], dtype=object)
    return np.array(values)


def _kind(values: Sequence[Any]) -> Any:
    if all(isinstance(v, bool) for v in values):
        return "boolean"
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return "integer"
    return "number" if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values) else "text"


def _nothing_runs(space: Space) -> InputError:
    """The reason for which the first point of the grid cannot run."""
    from symsim.grid.variant import strategy_at
    from symsim.lowering.checks import check

    family = next(families(space))
    point = tuple(int(c[0]) for c in family.chosen)
    try:
        check(family.fixed["architecture"], strategy_at(family.fields, point))
    except InputError as error:
        return InputError(f"none of the {space.points} configurations can run; of the first: {error}")
    return InputError(f"none of the {space.points} configurations can run")
