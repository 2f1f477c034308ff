"""A part of a space in which options are constant, and only sizes, degrees and numbers of the system vary: its fields as arrays, and
where its points can run.

Arrays have one dimension an axis of the whole space, of length 1 where they do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from symsim.cost.step_time import check_system
from symsim.errors import InputError
from symsim.grid.axes import DerivedAxis
from symsim.grid.conditions import evaluate, names
from symsim.grid.names import RANKS, SPLITS, Column, field_of, is_number, is_whole, largest
from symsim.grid.tabulate import tabulate, told_apart
from symsim.inputs.architecture import Architecture
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.models import override_architecture
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.trained import with_depths
from symsim.lowering.checks import Rule, whole_batches
from symsim.pipeline.schedules import schedule_sizes

if TYPE_CHECKING:
    from symsim.grid.space import Space

Array = np.ndarray
# of a point whose derived field would have a value that it cannot have: dp=0.5
DERIVED = "derived "


class Family:
    """A part of the space in which options are constant: for each axis the positions of its values.

    Arrays have one dimension an axis of the whole space, whatever positions the family holds of it.
    """

    def __init__(self, space: Space, chosen: Sequence[Array]):
        self.space, self.chosen = space, tuple(chosen)
        self._sizes: dict[str, Any] = {}
        # where a derived field takes a value that it can have
        self._derivable: dict[str, Array] = {}

    def along(self, axis: int, values: Sequence[Any], dtype: Any = np.float64) -> Array:
        """An array over one axis; the same one for the same values."""
        shape = [1] * len(self.space.sizes)
        shape[axis] = self.space.sizes[axis]
        made = np.array(values, dtype=dtype).reshape(shape)
        return self.space.along.setdefault((axis, made.dtype.str, made.tobytes()), made)

    def spelt(self, model: Architecture) -> str:
        """A model as text: two families' may be equal."""
        spelt = self.space.spelt
        if id(model) not in spelt:
            spelt[id(model)] = model, model.model_dump_json()
        return spelt[id(model)][1]

    def _first(self, column: Column) -> Any:
        return column.values[self.chosen[column.axis][0]]

    def cells(self) -> Iterator[tuple[Array, ...]]:
        """Positions along every axis of blocks in which no degree changes between 1 and more along any one axis."""
        groups = []
        for axis, positions in enumerate(self.chosen):
            own = [c for c in self.space.columns.values() if c.axis == axis and c.place.part == "strategy" and c.place.key in DEGREES]
            keys: dict[Any, list[int]] = {}
            for position in positions:
                keys.setdefault(tuple(c.values[position] is not None and c.values[position] > 1 for c in own), []).append(position)
            groups.append([np.array(at) for at in keys.values()])
        yield from product(*groups)

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """Parts of the input other than the strategy: architecture, assumptions, machine."""
        base = self.space.base
        changes, assumed, machine = {}, dict(base.assumptions), base.system
        for column in self.space.columns.values():
            if column.place.part == "architecture":
                changes[column.place.key] = self._first(column)
            elif column.place.part == "assumption":
                assumed[column.place.key] = self._first(column)
            elif column.place.part == "machine":
                machine = self._first(column)
        return {"architecture": override_architecture(base.architecture, changes), "assumptions": assumed, "machine": machine}

    @cached_property
    def system(self) -> System | None:
        """The system, with the first values of those of its numbers that vary (how many ranks a tier joins does not, in a family)."""
        changes = dict(self.space.base.system_changes)
        for column in self.space.columns.values():
            if column.place.part == "system":
                changes[column.place.key] = self._first(column)
        return self.space.system(self.fixed["machine"], changes)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every field of the strategy: its value, or an array of whole numbers (or of booleans) over its axes."""
        base = self.space.base.strategy
        found: dict[str, Any] = {n: getattr(base, n) for n in Strategy.model_fields}
        if "dp" not in base.model_fields_set:
            del found["dp"]
        extra: dict[str, Any] = {}
        for column in self.space.columns.values():
            if column.place.part == "ranks":
                extra |= {n: self.along(column.axis, column.values, np.int64) for n in RANKS}
            elif column.place.part == "strategy":
                key = column.place.key
                varies = is_number(column) and len(column.values) > 1
                found[key] = self.along(column.axis, column.values, bool if key in SPLITS else np.int64) if varies else self._first(column)
        waiting = dict(self.space.derived)
        while waiting:
            ready = [k for k, d in waiting.items() if not any(field_of(n) in waiting for n in names(d.expression))]
            if not ready:
                raise InputError(f"{self.space.option} {next(iter(waiting))}: derived axes stand on each other")
            for key in ready:
                one = waiting.pop(key)
                found[key] = self._derived(key, one, {**found, **extra})
        return found

    def _derived(self, key: str, one: DerivedAxis, known: Mapping[str, Any]) -> Any:
        """The values of a derived field; where they cannot be taken, another that can. Families where what it stands on is the same share them."""
        given = {}
        for name in names(one.expression):
            at = field_of(name)
            given[name] = known[at] if at in known else self.space.tables.of(("field", at), attrgetter(at), known)
            if given[name] is None:
                raise InputError(f"{self.space.option} {one.name}={one.text}: {name} is not given, so nothing follows from it")
        told = (key, *map(told_apart, given.values()))
        if told not in self.space.settled:
            self.space.settled[told] = *self._settled(key, one, given), given
        found, allowed, _ = self.space.settled[told]
        self._derivable[key] = allowed
        return found

    def _settled(self, key: str, one: DerivedAxis, given: Mapping[str, Any]) -> tuple[Any, Array]:
        """Values of a derived field, and where it can take them."""
        where = f"{self.space.option} {one.name}={one.text}"
        values = {n: v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype != bool else v for n, v in given.items()}
        try:
            result = evaluate(one.expression, values)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        found = np.asarray(result)
        if found.dtype == object or found.dtype.kind in "US":
            raise InputError(f"{where}: {one.name} would be text; only numbers, and true or false, can be derived")
        if found.ndim != len(self.space.sizes):
            found = found.reshape([1] * len(self.space.sizes))
        distinct, which = np.unique(found, return_inverse=True)
        read = [_taken_as(key, v.item()) for v in distinct]
        allowed = np.array([v is not None for v in read])[which.reshape(found.shape)]
        if not allowed.any():
            raise InputError(f"{where}: {key} cannot be {text_of(distinct[0].item())}")
        stand_in = next(v for v in read if v is not None)
        settled = np.array([stand_in if v is None else v for v in read])[which.reshape(found.shape)]
        return settled if settled.size > 1 else settled.reshape(-1)[0].item(), allowed

    def size(self, name: str) -> Any:
        """A field or property of the strategy over the axes that decide it, or `group` of its schedule; None for an option not given."""
        if name not in self._sizes:
            read = (lambda s: schedule_sizes(s)["group"]) if name == "group" else attrgetter(name)
            self._sizes[name] = self.space.tables.of(("size", name), read, self._known if name != "microbatches" else self.fields)
        return self._sizes[name]

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The fields, and the micro-batches of a step, which several fields decide together and many rules ask for."""
        return {**self.fields, "microbatches": self.size("microbatches")}

    def tabulated(self, name: str, function: Callable[[Any], Any]) -> Any:
        """A function of the family's architecture and of a strategy, over the axes that decide it."""
        return self.space.tables.of((name, self.spelt(self.architecture)), function, self._known)

    @cached_property
    def masks(self) -> list[Array]:
        """Where points of the family's options can run: for each rule that stops any, an array over few axes; a point runs where all hold."""
        return [allowed for _, allowed in self.allowed]

    @cached_property
    def architecture(self) -> Architecture:
        """The family's, with as many multi-token prediction depths as its strategies train."""
        given = self.fields["mtp_num_layers"]
        return with_depths(self.fixed["architecture"], given if isinstance(given, int) else None)

    @property
    def rules(self) -> dict[str, Rule]:
        """What a point is checked against, in this order, by name: the rules of the space, then the system's."""
        found: dict[str, Rule] = {rule.__name__.strip("_"): rule for rule in self.space.rules}
        if self.system is not None:
            system = self.system
            found["system"] = lambda _, strategy: check_system(system, strategy)
        return found

    @cached_property
    def allowed(self) -> list[tuple[str, Array]]:
        """The masks, each with the name of the rule that makes it; a derived value that cannot be and an imbalance come first."""
        found = [(DERIVED + key, w) for key, w in self._derivable.items() if not w.all()] if self.fields else []
        found += [("expert_load", m) for m in self._imbalances() if not m.all()]
        for name, rule in self.rules.items():
            allowed = self.mask(name, rule)
            if not allowed.all():
                found.append((name, allowed.reshape([1] * len(self.space.sizes)) if allowed.ndim == 0 else allowed))
        return found

    def mask(self, name: str, rule: Rule) -> Array:
        """Where a rule lets points run."""
        if rule is whole_batches:
            return _whole_batches(self.fields)
        passed = self.passing(rule)
        # one that is made for a family is no other family's
        return np.asarray(self.tabulated(f"rule {name}", passed) if rule in self.space.rules else tabulate(passed, self._known), dtype=bool)

    def passing(self, rule: Rule) -> Callable[[Any], bool]:
        """Whether a rule lets a strategy of the family run."""
        architecture = self.architecture

        def passed(strategy: Any) -> bool:
            try:
                rule(architecture, strategy)
            except InputError:
                return False
            return True

        return passed

    def _imbalances(self) -> Iterator[Array]:
        """The busiest of ep ranks gets at most ep times an even share of the tokens (symsim/api/result.py)."""
        given: Any = self.space.base.symbols.get("lam")
        column = next((c for c in self.space.columns.values() if c.place.part == "symbol" and c.place.key == "lam"), None)
        if column is not None:
            given = self.along(column.axis, [float(v) for v in column.values])
        if given is not None:
            within = np.asarray(given <= self.fields["ep"])
            yield within if within.ndim else within.reshape([1] * len(self.space.sizes))


def _taken_as(key: str, value: Any) -> Any:
    """A derived value as the strategy takes it; None where it does not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if key in (*SIZES, *DEGREES):
        return value if is_whole(value) and value <= largest(key) else None
    if isinstance(Strategy.model_fields[key].default, bool) != isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    try:
        return getattr(Strategy(**{key: value}), key)
    except ValidationError:
        return None


def _whole_batches(fields: Mapping[str, Any]) -> Array:
    """checks.whole_batches over arrays: of all rules the one that reads the most fields."""
    given, m = fields["global_batch_size"], fields["num_microbatches"]
    if given is None:
        return np.array(True)
    dp = fields["dp"] if "dp" in fields else tabulate(attrgetter("dp"), fields)
    each = np.asarray(fields["micro_batch_size"] * dp)
    # what does not fit an integer is more than any batch
    fits = np.asarray(fields["micro_batch_size"] * np.asarray(dp, dtype=np.float64) < 2.0**62)
    allowed = np.asarray(fits & (given % np.where(fits, each, 1) == 0))
    if m is None:
        return allowed
    return np.asarray(allowed & (m * np.asarray(each, dtype=np.float64) < 2.0**62) & (m * each == given))


def families(space: Space) -> Iterator[Family]:
    """Parts of the space in which only sizes, degrees and numbers of the system vary."""
    groups = []
    for axis, size in enumerate(space.sizes):
        own = [c for c in space.columns.values() if c.axis == axis and not is_number(c)]
        keys: dict[Any, list[int]] = {}
        for position in range(size):
            keys.setdefault(tuple(told_apart(c.values[position]) for c in own), []).append(position)
        groups.append([np.array(positions) for positions in keys.values()])
    for chosen in product(*groups):
        yield Family(space, chosen)
