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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
from pydantic import ValidationError

from symsim.architecture import Architecture
from symsim.checks import RULES, whole_batches
from symsim.errors import InputError, nearest
from symsim.grid.axes import Axis, DerivedAxis
from symsim.grid.conditions import evaluate, names
from symsim.loading import (
    ALIASES,
    STRATEGY_SYMBOLS,
    changed_system,
    load_model,
    load_strategy,
    override_architecture,
    split_settings,
    system_document,
)
from symsim.reading import Document
from symsim.schedules import schedule_sizes
from symsim.strategy import Strategy, default_dp
from symsim.system import System

# Fields that a derivation knows by their symbols alone
SIZES = ("micro_batch_size", "seq_length", "num_microbatches", "global_batch_size", "packed_document_length", "microbatch_group_size_per_vp_stage")
# Fields whose symbol appears once they are above 1
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "num_distributed_optimizer_instances")
# Names of an axis that are no setting of their own
RANKS = ("world", "world_size")
MACHINE = "system"

_LARGEST_SIZE = 2**40
# more sets of values than this are not asked of a rule one by one
_MOST_ASKED = 3_000_000
# fewer are not worth a try with whole arrays
_WORTH_ARRAYS = 20_000

Array = np.ndarray


@dataclass(frozen=True)
class Place:
    """Where a name of an axis belongs: a part of the input, and the key there."""

    part: str
    key: Any


@dataclass(frozen=True)
class Base:
    """What every point of the space has in common, before its own values: as `symsim eval` reads it. settled: what --set gave."""

    architecture: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str]
    symbols: Mapping[str, Any]
    system: str | None
    system_changes: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()


def read_base(model: str, strategy: str | None, system: str | None, settings: Sequence[str]) -> Base:
    """The fixed part of a sweep, from what the command line names; InputError as `symsim eval` raises it."""
    asked = split_settings(settings)
    loaded = load_model(model)
    placed = load_strategy(strategy if strategy is not None else loaded.strategy, asked.strategy)
    if asked.system and system is None:
        raise InputError(f"--set {'.'.join(next(iter(asked.system)))} changes a system's number, and none is named: give one with -y")
    architecture = override_architecture(loaded.architecture, asked.architecture)
    named = load_strategy(None, asked.strategy).model_fields_set if asked.strategy else set()
    settled = frozenset([*named, *map(".".join, asked.architecture), *asked.assumptions, *asked.symbols, *map(".".join, asked.system)])
    return Base(architecture, placed, asked.assumptions, asked.symbols, system, asked.system, settled)


@dataclass(frozen=True)
class Column:
    """The values of one name along its axis, as the derivation takes them, and as the user wrote them."""

    name: str
    axis: int
    place: Place
    values: tuple[Any, ...]
    shown: tuple[Any, ...]


class Space:
    """A grid of points over a base. `sizes`: points along each axis."""

    def __init__(self, base: Base, axes: Sequence[Axis], derived: Sequence[DerivedAxis] = (), documents: Mapping[str, Document] | None = None):
        """documents: files of systems, by reference, that have been read already (on another machine they may not be there)."""
        self.base = base
        self.documents = dict(documents or {})
        if base.system is not None:
            self._document(base.system)
        self.axes = tuple(axes)
        self.given = tuple(derived)
        self.sizes = tuple(a.size for a in axes)
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
            from symsim.grid.axes import parse_axis

            follows = parse_axis("dp==world/(tp*cp*pp)")
            assert isinstance(follows, DerivedAxis)
            if "dp" in base.strategy.model_fields_set:
                raise InputError(f"--axis world gives dp=world/(tp*cp*pp), and dp={base.strategy.dp} is given too; leave one of them out")
            self.derived["dp"] = follows

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
        key = _canonical(name, place)
        if key in self.base.settled:
            raise InputError(f"--set {key} and --axis {name} give the same setting; leave one of them out")
        if key in self.columns:
            raise InputError(f"--axis {name} and --axis {self.columns[key].name} vary the same setting; give one of them")
        # 1e3 and 1000, or two spellings of an option
        if len(self.axes[axis].names) == 1 and len(set(map(repr, converted))) < len(converted):
            twice = next(v for k, v in enumerate(values) if repr(converted[k]) in set(map(repr, converted[:k])))
            raise InputError(f"--axis {name} gives {_text(twice)} twice")
        self.columns[key] = Column(name, axis, place, converted, tuple(values))

    def _converted(self, name: str, values: Sequence[Any]) -> tuple[Place, tuple[Any, ...]]:
        if name in RANKS:
            for value in values:
                if not _whole(value):
                    raise InputError(f"--axis {name}: {_text(value)} is not a number of ranks")
            return Place("ranks", "world"), tuple(values)
        if name == MACHINE:
            for value in values:
                self._document(str(value))
            return Place("machine", MACHINE), tuple(map(str, values))
        field_name = field_of(name)
        if field_name in (*SIZES, *DEGREES) and all(_whole(v) for v in values):
            if max(values) > _LARGEST_SIZE:
                raise InputError(f"--axis {name}: {max(values)} is more than any size that can be trained (at most 2^40)")
            return Place("strategy", field_name), tuple(values)
        place, found = None, []
        for value in values:
            try:
                asked = split_settings([f"{name}={_text(value)}"])
            except InputError as error:
                raise InputError(str(error).replace("--set", "--axis")) from None
            own, made = self._setting(name, asked, value)
            found.append(made)
            place = own
        assert place is not None
        return place, tuple(found)

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
            raise InputError(f"--axis {name}: {str(error).removeprefix('--set: ').removeprefix('--set ')}") from None
        if asked.assumptions:
            ((key, data),) = asked.assumptions.items()
            return Place("assumption", key), str(data).lower()
        if asked.symbols:
            ((key, data),) = asked.symbols.items()
            return Place("symbol", key), data
        ((path, text),) = asked.system.items()
        machines = [self.base.system] if MACHINE not in self.columns else self.columns[MACHINE].values
        for machine in machines:
            if machine is None:
                raise InputError(f"--axis {name} varies a system's number, and none is named: give one with -y")
            try:
                self.system(machine, {**self.base.system_changes, path: text})
            except InputError as error:
                raise InputError(f"--axis {name}: {str(error).removeprefix('--set: ').removeprefix('--set ')}") from None
        return Place("system", path), text

    def _derive(self, one: DerivedAxis) -> None:
        key = field_of(one.name)
        if key not in Strategy.model_fields:
            raise InputError(f"--axis {one.name}: only fields of the strategy can be derived; {nearest(one.name, list(Strategy.model_fields))}")
        if key in self.columns or key in self.derived:
            raise InputError(f"--axis {one.name} is given twice")
        if key in self.base.settled:
            raise InputError(f"--set {key} and --axis {one.name} give the same setting; leave one of them out")
        for name in names(one.expression):
            if field_of(name) == key:
                raise InputError(f"--axis {one.name}={one.text}: it stands on itself")
            if not self._known(name):
                raise InputError(
                    f"--axis {one.name}={one.text}: there is no axis or setting '{name}': {nearest(name, [*self.columns, *DEGREES, *SIZES])}"
                )
        self.derived[key] = one

    def _known(self, name: str) -> bool:
        return field_of(name) in Strategy.model_fields or name in self.columns or (name in RANKS and RANKS[0] in self.columns)

    # families and cells ------------------------------------------------------------------------------------------------

    def families(self) -> Iterator["Family"]:
        """Parts of the space in which only sizes, degrees and numbers of the system vary."""
        groups = []
        for axis, size in enumerate(self.sizes):
            own = [c for c in self.columns.values() if c.axis == axis and not self._is_number(c)]
            keys: dict[Any, list[int]] = {}
            for position in range(size):
                keys.setdefault(tuple(c.values[position] for c in own), []).append(position)
            groups.append([np.array(positions) for positions in keys.values()])
        for chosen in product(*groups):
            yield Family(self, chosen)

    def _is_number(self, column: Column) -> bool:
        part, key = column.place.part, column.place.key
        return part in ("ranks", "symbol", "system") or (part == "strategy" and key in (*SIZES, *DEGREES))

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


def field_of(name: str) -> str:
    """The field of the strategy that a symbol or another system's name stands for; else the name itself."""
    return STRATEGY_SYMBOLS.get(name) or ALIASES.get(name) or name


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _canonical(name: str, place: Place) -> str:
    return place.key if isinstance(place.key, str) else ".".join(place.key)


class Watched:
    """A strategy whose fields may be arrays' elements, and which remembers the fields that were read."""

    def __init__(self, values: Mapping[str, Any]):
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "read", set())

    def __getattr__(self, name: str) -> Any:
        values = self._values
        if name in values:
            self.read.add(name)
            return values[name]
        found = getattr(Strategy, name, None)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        if name == "dp":
            return default_dp(self.tp, self.cp, self.ep, self.expert_tp)
        raise AttributeError(name)


class Family:
    """A part of the space in which options are constant: for each axis the positions of its values.

    Arrays have one dimension an axis of the whole space, whatever positions the family holds of it.
    """

    def __init__(self, space: Space, chosen: Sequence[Array]):
        self.space, self.chosen = space, tuple(chosen)
        # stages by (pp, vpp) and what else decides them, kept for all variants (symsim/grid/slots.py)
        self.pipelines: dict[Any, Any] = {}
        self._sizes: dict[str, Any] = {}

    def along(self, axis: int, values: Sequence[Any], dtype: Any = np.float64) -> Array:
        shape = [1] * len(self.space.sizes)
        shape[axis] = self.space.sizes[axis]
        return np.array(values, dtype=dtype).reshape(shape)

    def _first(self, column: Column) -> Any:
        return column.values[self.chosen[column.axis][0]]

    def cells(self) -> Iterator[tuple[Array, ...]]:
        """Positions along every axis of blocks in which no degree changes between 1 and more along any one axis."""
        groups = []
        for axis, positions in enumerate(self.chosen):
            own = [c for c in self.space.columns.values() if c.axis == axis and c.place.part == "strategy" and c.place.key in DEGREES]
            keys: dict[Any, list[int]] = {}
            for position in positions:
                keys.setdefault(tuple(self._kind(c.place.key, c.values[position]) for c in own), []).append(position)
            groups.append([np.array(at) for at in keys.values()])
        yield from product(*groups)

    def _kind(self, key: str, value: int) -> Any:
        few_groups = key == "tp" and value > self.fixed["architecture"].query_groups
        # ranks of a mirrored schedule hold pairs of stages, which differ from one depth to the next
        return (value > 1, few_groups, value if key == "pp" and self.fields["schedule"] == "dualpipe" else 0)

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
                varies = self.space._is_number(column) and len(column.values) > 1
                found[key] = self.along(column.axis, column.values, np.int64) if varies else self._first(column)
        waiting = dict(self.space.derived)
        while waiting:
            ready = [k for k, d in waiting.items() if not any(field_of(n) in waiting for n in names(d.expression))]
            if not ready:
                raise InputError(f"--axis {next(iter(waiting))}: derived axes stand on each other")
            for key in ready:
                one = waiting.pop(key)
                found[key] = self._derived(key, one, {**found, **extra})
        return found

    def _derived(self, key: str, one: DerivedAxis, known: Mapping[str, Any]) -> Any:
        where = f"--axis {one.name}={one.text}"
        values = {}
        for name in names(one.expression):
            at = field_of(name)
            value = known[at] if at in known else tabulate(attrgetter(at), known)
            if value is None:
                raise InputError(f"{where}: {name} is not given, so nothing follows from it")
            values[name] = value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype != bool else value
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
            raise InputError(f"{where}: {key} cannot be {_text(distinct[0].item())}")
        self._whole[key] = allowed
        stand_in = next(v for v in read if v is not None)
        settled = np.array([stand_in if v is None else v for v in read])[which.reshape(found.shape)]
        return settled if settled.size > 1 else settled.reshape(-1)[0].item()

    @cached_property
    def _whole(self) -> dict[str, Array]:
        return {}

    def size(self, name: str) -> Any:
        """A field or property of the strategy over the axes that decide it, or `group` of its schedule; None for an option not given."""
        if name not in self._sizes:
            read = (lambda s: schedule_sizes(s)["group"]) if name == "group" else attrgetter(name)
            self._sizes[name] = tabulate(read, self._known if name != "microbatches" else self.fields)
        return self._sizes[name]

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The fields, and the micro-batches of a step, which several fields decide together and many rules ask for."""
        return {**self.fields, "microbatches": self.size("microbatches")}

    def tabulated(self, function: Callable[[Any], Any]) -> Any:
        return tabulate(function, self._known)

    @cached_property
    def masks(self) -> list[Array]:
        """Where points of the family's options can run: for each rule that stops any, an array over few axes; a point runs where all hold."""
        architecture, found = self.fixed["architecture"], []
        fields = self.fields
        found += [w for w in self._whole.values() if not w.all()]
        depths = fields["mtp_num_layers"]
        if isinstance(depths, int) and depths != architecture.mtp_num_layers:
            architecture = architecture.model_copy(update={"mtp_num_layers": depths})

        def passes(rule: Callable[[Architecture, Any], None]) -> Callable[[Any], bool]:
            def passed(strategy: Any) -> bool:
                try:
                    rule(architecture, strategy)
                except InputError:
                    return False
                return True

            return passed

        found += [m for m in self._imbalances() if not m.all()]
        for rule in RULES:
            if rule is whole_batches:
                allowed = _whole_batches(fields)
            else:
                allowed = np.asarray(self.tabulated(passes(rule)), dtype=bool)
            if not allowed.all():
                found.append(allowed.reshape([1] * len(self.space.sizes)) if allowed.ndim == 0 else allowed)
        return found

    def _imbalances(self) -> Iterator[Array]:
        """The busiest of ep ranks gets at most ep times an even share of the tokens (symsim/result.py)."""
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
        return value if _whole(value) and value <= _LARGEST_SIZE else None
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
    allowed = np.asarray(given % each == 0)
    return allowed if m is None else np.asarray(allowed & (m * each == given))


def tabulate(function: Callable[[Any], Any], fields: Mapping[str, Any]) -> Any:
    """A function of a strategy over the axes of the fields that it reads, called once for each set of their values.

    InputError where these are too many to ask one by one.
    """
    read: set[str] = set()
    while True:
        varying = sorted(n for n in read if isinstance(fields[n], np.ndarray))
        if not varying:
            watched = Watched({n: v.reshape(-1)[0].item() if isinstance(v, np.ndarray) else v for n, v in fields.items()})
            result = function(watched)
            if all(not isinstance(fields[n], np.ndarray) for n in watched.read):
                return result
            read |= watched.read
            continue
        arrays = np.broadcast_arrays(*(fields[n] for n in varying))
        if arrays[0].size > _WORTH_ARRAYS:
            whole = _of_arrays(function, fields, read)
            if whole is not None:
                return whole
        codes = np.zeros(arrays[0].shape, dtype=np.int64)
        for name in varying:
            distinct, own = np.unique(fields[name], return_inverse=True)
            codes = codes * len(distinct) + own.reshape(fields[name].shape)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        if len(first) > _MOST_ASKED:
            raise InputError(f"{', '.join(varying)} take {len(first):,} different values together, too many to check (at most {_MOST_ASKED:,})")
        flat = [a.reshape(-1) for a in arrays]
        values = []
        missed: set[str] = set()
        constants = {n: v for n, v in fields.items() if not isinstance(v, np.ndarray)}
        stand_in = {n: v.reshape(-1)[0].item() for n, v in fields.items() if isinstance(v, np.ndarray)}
        for at in first:
            watched = Watched({**constants, **stand_in, **{n: f[at].item() for n, f in zip(varying, flat)}})
            values.append(function(watched))
            missed |= {n for n in watched.read if n not in read and isinstance(fields[n], np.ndarray)}
            if missed:
                break
        if not missed:
            return np.array(values)[inverse.reshape(codes.shape)]
        read |= missed


def _of_arrays(function: Callable[[Any], Any], fields: Mapping[str, Any], read: set[str]) -> Any:
    """The function on whole arrays, where it is plain arithmetic; None where it decides something, as arrays cannot."""
    watched = Watched(fields)
    try:
        result = function(watched)
    except (ValueError, TypeError):
        return None
    return result if isinstance(result, np.ndarray) and watched.read <= read else None
