"""The space of a sweep: which names vary along which axes, cut into cells whose points share one derivation.

A point is a model, a strategy, assumptions and a system, as `symsim eval` would be given them. Along an axis vary one
name or several together: fields of the strategy, of the architecture (`hidden_size`, `moe.num_moe_experts`), assumptions
(`assume.causal`), numbers of the system (`B_2`, `accelerator.memory_bandwidth`), `lam`, `system` (names of systems), or `world`, the number of
ranks, from which dp follows. Derived names are expressions over the others.

Sizes and batches are symbols of one derivation; degrees are too, once they are above 1, because with one rank along an axis
messages disappear; anything else (schedules, types, options) makes a derivation of its own. A cell is a block of the grid within
which none of that changes along any one axis; what changes with several axes together (whether edp is above 1) cuts it into
variants with a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from symsim.errors import InputError, nearest
from symsim.grid.axes import Axis, DerivedAxis, parse_axis
from symsim.grid.conditions import names
from symsim.grid.names import MACHINE, RANKS, Column, Place, canonical, field_of, is_whole, largest
from symsim.grid.tabulate import Tables
from symsim.inputs.architecture import Architecture
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.limits import LARGEST_SIZE
from symsim.inputs.reading import Document
from symsim.inputs.settings import split_settings, text_of
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.systems import changed_system, system_document
from symsim.lowering.checks import RULES, Rule
from symsim.program.base import Base
from symsim.program.fullest import Pipeline

# values of an axis that is neither a size nor a degree
_MOST_READ = 10_000


class Space:
    """A grid of points over a base. `sizes`: points along each axis."""

    def __init__(
        self,
        base: Base,
        axes: Sequence[Axis],
        derived: Sequence[DerivedAxis] = (),
        documents: Mapping[str, Document] | None = None,
        option: str = "--axis",
        refused: Sequence[Rule] = (),
    ):
        """documents: files of systems, by reference, that have been read already (on another machine they may not be there). option: by which axes
        are given, as errors name it. refused: rules besides those of a strategy."""
        self.base, self.option = base, option
        self.rules: tuple[Rule, ...] = (*RULES, *refused)
        self.documents = dict(documents or {})
        if base.system is not None:
            self._document(base.system)
        self.axes = tuple(axes)
        self.given = tuple(derived)
        self.sizes = tuple(a.size for a in axes)
        # the stages of pipelines, for all variants: by what they follow from besides options, by the options that they read, by their values
        self.pipelines: dict[Any, dict[tuple[str, ...], dict[str, Pipeline]]] = {}
        # which pipelines there are, by the arrays that say it (`reported.py`)
        self.cuts: dict[Any, Any] = {}
        # what parts of the space with other options share (`family.py`): arrays along an axis, what functions of a strategy come to, derived
        # fields, and models as text
        self.along: dict[Any, Any] = {}
        self.tables = Tables()
        self.settled: dict[Any, Any] = {}
        self.spelt: dict[int, tuple[Architecture, str]] = {}
        self.columns: dict[str, Column] = {}
        self.derived: dict[str, DerivedAxis] = {}
        named = [(axis, n, v) for axis, given in enumerate(self.axes) for n, v in zip(given.names, given.columns)]
        # systems first: numbers of a system are checked against those that an axis names
        for axis, name, values in sorted(named, key=lambda one: one[1] != MACHINE):
            self._add(name, axis, values)
        # in the order given
        self.columns = dict(sorted(self.columns.items(), key=lambda item: item[1].axis))
        for one in derived:
            self._derive(one)
        if RANKS[0] in self.columns and "dp" not in self.columns and "dp" not in self.derived:
            follows = parse_axis("dp==world/(tp*cp*pp)")
            assert isinstance(follows, DerivedAxis)
            if "dp" in base.strategy.model_fields_set:
                raise InputError(f"world gives dp=world/(tp*cp*pp), and dp={base.strategy.dp} is given too; leave one of them out")
            self.derived["dp"] = follows

    def of(self, base: Base) -> "Space":
        """The same grid over a base with other options: what its parts share, they share with those of this one."""
        assert self._systems is not None
        made = copy(self)
        made.base = base
        return made

    @property
    def points(self) -> int:
        total = 1
        for n in self.sizes:
            total *= n
        return total

    def columns_of(self, axis: int) -> list[tuple[Any, ...]]:
        """The values along an axis, as the user wrote them, of each name that varies with it."""
        return [c.shown for c in self.columns.values() if c.axis == axis]

    # names -------------------------------------------------------------------------------------------------------------

    def _add(self, name: str, axis: int, values: Sequence[Any]) -> None:
        place, converted = self._converted(name, values)
        key = canonical(name, place)
        if key in self.base.settled:
            raise InputError(f"--set {key} and {self.option} {name} give the same setting; leave one of them out")
        if key in self.columns:
            raise InputError(f"{self.option} {name} and {self.option} {self.columns[key].name} vary the same setting; give one of them")
        # 1e3 and 1000, or two spellings of an option
        if len(self.axes[axis].names) == 1 and len(set(map(repr, converted))) < len(converted):
            twice = next(v for k, v in enumerate(values) if repr(converted[k]) in set(map(repr, converted[:k])))
            raise InputError(f"{self.option} {name} gives {text_of(twice)} twice")
        self.columns[key] = Column(name, axis, place, converted, tuple(values))

    def _converted(self, name: str, values: Sequence[Any]) -> tuple[Place, tuple[Any, ...]]:
        self._bounded(name, LARGEST_SIZE, [v for v in values if isinstance(v, (int, float))])
        if name in RANKS:
            for value in values:
                if not is_whole(value):
                    raise InputError(f"{self.option} {name}: {text_of(value)} is not a number of ranks")
            self._bounded(name, largest(name), values)
            return Place("ranks", "world"), tuple(values)
        if name == MACHINE:
            for value in values:
                self._document(str(value))
            return Place("machine", MACHINE), tuple(map(str, values))
        field_name = field_of(name)
        if field_name in (*SIZES, *DEGREES) and all(is_whole(v) for v in values):
            self._bounded(name, largest(field_name), values)
            return Place("strategy", field_name), tuple(values)
        if len(values) > _MOST_READ:
            raise InputError(f"{self.option} {name}: {len(values)} values, which are read one by one; at most {_MOST_READ} are")
        place, found = None, []
        # of what is the model's and the strategy's, a strategy alone has null
        strategys = field_name in Strategy.model_fields and any(text_of(v) == "null" for v in values)
        for value in values:
            try:
                asked = split_settings([f"{name}={text_of(value)}"])
                asked = asked._replace(strategy={field_name: value}, architecture={}) if strategys and asked.architecture else asked
            except InputError as error:
                raise InputError(str(error).replace("--set", self.option)) from None
            own, made = self._setting(name, asked, value)
            found.append(made)
            place = own
        assert place is not None
        return place, tuple(found)

    def _bounded(self, name: str, most: int, values: Sequence[Any]) -> None:
        if values and max(values) > most:
            raise InputError(f"{self.option} {name}: {text_of(max(values))} is more than the largest value that a grid takes, {most}")

    def _setting(self, name: str, asked: Any, value: Any) -> tuple[Place, Any]:
        try:
            if asked.strategy:
                ((given, data),) = asked.strategy.items()
                made = load_strategy(None, {given: data})
                (key,) = made.model_fields_set - ({"dp"} if given not in ("dp", "data_parallel_size") else set())
                return Place("strategy", key), getattr(made, key)
            if asked.architecture:
                ((path, data),) = asked.architecture.items()
                return Place("architecture", path), data
        except InputError as error:
            raise InputError(f"{self.option} {name}: {str(error).removeprefix('--set: ').removeprefix('--set ')}") from None
        if asked.assumptions:
            ((key, data),) = asked.assumptions.items()
            return Place("assumption", key), str(data).lower()
        if asked.symbols:
            ((key, data),) = asked.symbols.items()
            return Place("symbol", key), data
        ((path, text),) = asked.system.items()
        machines = [self.base.system] if MACHINE not in self.columns else self.columns[MACHINE].values
        for machine in machines:
            if path[-1] == "ranks" and machine is not None:
                # it must fit its neighbours', which may vary too
                continue
            if machine is None:
                raise InputError(f"{self.option} {name} varies a system's number, and none is named: give one with -y")
            try:
                self.system(machine, {**self.base.system_changes, path: text})
            except InputError as error:
                raise InputError(f"{self.option} {name}: {str(error).removeprefix('--set: ').removeprefix('--set ')}") from None
        return Place("system", path), text

    def _derive(self, one: DerivedAxis) -> None:
        key = field_of(one.name)
        if key not in Strategy.model_fields:
            raise InputError(
                f"{self.option} {one.name}: only fields of the strategy can be derived; {nearest(one.name, list(Strategy.model_fields))}"
            )
        if key in self.columns or key in self.derived:
            raise InputError(f"{self.option} {one.name} is given twice")
        if key in self.base.settled:
            raise InputError(f"--set {key} and {self.option} {one.name} give the same setting; leave one of them out")
        for name in names(one.expression):
            if field_of(name) == key:
                raise InputError(f"{self.option} {one.name}={one.text}: it stands on itself")
            if not self._known(name):
                known = nearest(name, [*self.columns, *DEGREES, *SIZES])
                hint = f"{self.option} {RANKS[0]}=128 gives it" if name in RANKS else known
                raise InputError(f"{self.option} {one.name}={one.text}: there is no axis or setting '{name}': {hint}")
        self.derived[key] = one

    def _known(self, name: str) -> bool:
        return field_of(name) in Strategy.model_fields or name in self.columns or (name in RANKS and RANKS[0] in self.columns)

    @cached_property
    def _systems(self) -> dict[Any, System]:
        return {}

    def system(self, reference: str | None, changes: Mapping[tuple[str, ...], str]) -> System | None:
        if reference is None:
            return None
        key = (reference, tuple(sorted(changes.items())))
        if key not in self._systems:
            self._systems[key] = changed_system(self._document(reference), changes)
        return self._systems[key]

    def _document(self, reference: str) -> Document:
        if reference not in self.documents:
            self.documents[reference] = system_document(reference)
        return self.documents[reference]
