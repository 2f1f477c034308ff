"""What is reported of a variant: its derivation lowered in a program, symbols as arrays over the axes of the grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from symsim.algebra.expr import Call, Expr
from symsim.algebra.key import layers_of_model
from symsim.algebra.reductions import Line, named
from symsim.cost.step_time import exposed_axes
from symsim.evaluation.quantities import EXPOSED, QUANTITIES
from symsim.grid import within
from symsim.grid.family import Array
from symsim.grid.names import DEGREES, MACHINE, RANKS, SIZES, Column, field_of, is_number, text_of
from symsim.grid.variant import Variant, joined, strategy_at
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import symbol_values
from symsim.inputs.watched import was_read, watched
from symsim.program.fullest import Pipeline
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.slots import Slots, make_slots
from symsim.program.value import Value

# Symbols of a strategy, and the field or property that gives each
SYMBOLS = {
    "b": "micro_batch_size",
    "s": "seq_length",
    "s_max": "seq_length",
    "u": "packed_document_length",
    "r": "lora_rank",
    "m": "microbatches",
    "tp": "tp",
    "cp": "cp",
    "pp": "pp",
    "vpp": "vpp",
    "ep": "ep",
    "etp": "expert_tp",
    "dp": "dp",
    "edp": "expert_dp",
    "inst": "num_distributed_optimizer_instances",
    "world": "world_size",
}


# pp and vpp, the (micro-batches, group size) that there are with them, and a point that runs
Cut = tuple[int, int, tuple[Array, Array], tuple[int, ...]]


class Reported:
    """The values of a variant's quantities, lowered on demand in one program.

    Quantities are named as in `symsim eval --json` (time.step, memory.peak, mfu), by a definition's symbol (t_step, N; of a stage's
    definition, such as M_stage_peak, the largest over stages), or by a field or symbol of the strategy (tp, b, world).
    """

    def __init__(self, variant: Variant, program: Program, moved: Mapping[str, float] = MappingProxyType({})):
        """moved: factors of symbols (`within.py`)."""
        self.variant, self.program, self.result, self._moved = variant, program, variant.result, moved
        self._masks: Value | None = None
        self._recomputed = {layers_of_model(k, again=True).text for k in self.result.lowered.checkpointed}

    @cached_property
    def _parted(self) -> tuple[dict[str, tuple[Expr, bool]], dict[str, tuple[Expr, bool]], dict[str, Call]]:
        """The definitions of a stage; all others, in which names stand for reductions over stages; and these reductions."""
        of_stage, others, over = dict[str, tuple[Expr, bool]](), dict[str, tuple[Expr, bool]](), dict[str, Call]()
        known = self.program.parts
        for symbol, d in self.result.derivation.definitions.items():
            part = known.get(id(d))
            if part is None:
                own = d.key.scope == "stage"
                expression, calls = (d.expr, {}) if own else named(d.expr)
                # kept with the definition, whose place in memory nothing else takes then
                part = known[id(d)] = (expression, d.counts), calls, own, d
            if part[2]:
                of_stage[symbol] = part[0]
                continue
            others[symbol] = part[0]
            if part[1]:
                over |= part[1]
        return of_stage, others, over

    @cached_property
    def base(self) -> Scope:
        return Scope(self.program, _Lazy(self._symbol), self._parted[1])

    @property
    def stage_definitions(self) -> dict[str, tuple[Expr, bool]]:
        return self._parted[0]

    # symbols -----------------------------------------------------------------------------------------------------------

    def _symbol(self, name: str) -> Value | None:
        """A symbol's value over the cell: of the strategy, of the reductions over stages, or a number."""
        found = self._known(name)
        return found if found is None or name not in self._moved else self.program.apply("mul", found, self.program.number(self._moved[name]))

    def _known(self, name: str) -> Value | None:
        strategy = self.variant.result.strategy
        name = "u" if name == "s" and strategy.padding_free else name
        if name in SYMBOLS and (name != "u" or strategy.document_lengths is None):
            return self._field(SYMBOLS[name])
        if name == "group":
            return self._array(self.variant.family.size("group"))
        if name in self._from_axes:
            return self._from_axes[name]
        if name in self._recomputed:
            return self.slots.summed_holding(f"{name}_i")
        if name in self._parted[2]:
            return self.slots.reduced(self._parted[2][name])
        number = self.result.values.get(name)
        return None if number is None else self.program.number(number)

    def _field(self, name: str) -> Value | None:
        found = self.variant.fields.get(name)
        if found is None:
            found = self.variant.family.size(name)
        return None if found is None else self._array(found)

    def _array(self, found: Any) -> Value:
        if isinstance(found, np.ndarray) and found.size > 1:
            return self.program.of_array(found)
        return self.program.number(found.reshape(-1)[0].item() if isinstance(found, np.ndarray) else found)

    @cached_property
    def _from_axes(self) -> dict[str, Value]:
        """Symbols that an axis of the grid gives directly: lam, numbers of the system, and ranks of a tier without limit."""
        family = self.variant.family
        found: dict[str, Value] = {}
        space, base = family.space, self.result.values
        for column in space.columns.values():
            own = column.values
            if column.place.part == "symbol":
                found[column.place.key] = self._array(family.along(column.axis, [float(v) for v in own]))
        found |= self._of_system()
        system = self.result.system
        if system is not None:
            for j, tier in enumerate(system.network, 1):
                if tier.ranks == "all":
                    world = self._field("world_size")
                    assert world is not None
                    found[f"R_{j}"] = world
        assert set(found) <= set(base)
        return found

    def _of_system(self) -> dict[str, Value]:
        """Symbols that numbers of the system decide which vary: each over all axes that it depends on together."""
        variant, family = self.variant, self.variant.family
        if self.result.system is None:
            return {}
        fixed = dict(family.space.base.system_changes)
        varying = []
        for column in family.space.columns.values():
            if column.place.part == "system":
                fixed[column.place.key] = column.values[variant.chosen[column.axis][0]]
                if is_number(column) and len(column.values) > 1:
                    varying.append(column)
        moved: dict[str, list[Column]] = {}
        if not varying:
            return {}
        strategy = strategy_at(variant.fields, variant.point)
        start = symbol_values(self._system(fixed), strategy)
        for column in varying:
            rows = [symbol_values(self._system({**fixed, column.place.key: v}), strategy) for v in column.values]
            assert all(r.keys() == start.keys() for r in rows)
            for name in start:
                if name != "world" and any(r[name] != start[name] for r in rows):
                    moved.setdefault(name, []).append(column)
        return {name: self._array(self._over(name, columns, fixed, strategy)) for name, columns in moved.items()}

    def _over(self, name: str, columns: Sequence[Column], fixed: Mapping[tuple[str, ...], str], strategy: Strategy) -> Array:
        """A symbol of the system over the axes of these columns (columns of one axis vary together)."""
        sizes = self.program.sizes
        axes = sorted({c.axis for c in columns})
        made = np.empty([sizes[a] if a in axes else 1 for a in range(len(sizes))])
        for position in np.ndindex(made.shape):
            changes = {**fixed, **{c.place.key: c.values[position[c.axis]] for c in columns}}
            made[position] = float(symbol_values(self._system(changes), strategy)[name])
        return made

    def _system(self, changes: Mapping[tuple[str, ...], str]) -> Any:
        return self.variant.family.space.system(self.variant.family.fixed["machine"], changes)

    # stages ------------------------------------------------------------------------------------------------------------

    @cached_property
    def slots(self) -> Slots:
        family = self.variant.family
        both = family.size("pp") * 100_000 + family.size("vpp")
        codes = np.asarray(both if isinstance(both, np.ndarray) else np.full([1] * len(self.program.sizes), both))
        m, group = (_spanning(family.size(n), len(self.program.sizes)) for n in ("microbatches", "group"))
        # rules over other axes too may let further points in, whose stages do no harm
        runs = joined([k for k in (*self.variant.masks, *self._inside()) if _axes(k) <= _axes(codes) | _axes(m) | _axes(group)], self.program.sizes)
        known, key = family.space.cuts, tuple((a.shape, a.tobytes()) for a in (codes, m, group, runs))
        if key not in known:
            known[key] = _cuts(codes, m, group, runs)
        cuts, which = known[key]
        lines = [self._line(*cut) for cut in cuts]
        return make_slots(self.program, self.base, lines, which, self.stage_definitions)

    def _line(self, pp: int, vpp: int, pairs: tuple[Array, Array], point: tuple[int, ...]) -> Line:
        """The stages of a pipeline; those of another variant where all options that they read are the same."""
        result, fields = self.result, self.variant.fields
        key = (pp, vpp, self.variant.family.spelt(result.model), *result.lowered.checkpointed)
        known = self.variant.family.space.pipelines.setdefault(key, {})
        for read, pipelines in known.items():
            found = pipelines.get(repr([fields[n] for n in read]))
            if found is not None:
                return found.line(*pairs)
        at = replace(result, strategy=watched(strategy_at(fields, point)))
        made = Pipeline(at.strategy, [at.stage_values(stage) for stage in at.stages])
        line = made.line(*pairs)
        read = tuple(sorted(was_read(at.strategy) - {*SIZES, *DEGREES}))
        known.setdefault(read, {})[repr([fields[n] for n in read])] = made
        return line

    def _inside(self) -> list[Array]:
        """Where an axis' positions are chosen, for axes of which not all are."""
        found = []
        for axis, positions in enumerate(self.variant.chosen):
            if len(positions) < self.program.sizes[axis]:
                inside = np.zeros(self.program.sizes[axis], dtype=bool)
                inside[positions] = True
                found.append(self.variant.family.along(axis, list(inside), bool))
        return found

    # what is asked for -------------------------------------------------------------------------------------------------

    def quantity(self, name: str) -> Value:
        """The value of a reported quantity; KeyError for an unknown name, or one that there is not without a system."""
        known = QUANTITIES.get(name)
        at = known.symbol if known is not None else name
        if known is not None and known.over == "fullest":
            return self.slots.of_fullest(at)
        if at == "memory" and self.result.system is not None:
            return self._capacity()
        if at in (within.LOW, within.HIGH) and self.result.system is not None:
            return within.end_of_interval(self, at, lambda factors: Reported(self.variant, self.program, factors))
        if at == "exposed" or name.startswith(EXPOSED):
            exposed = exposed_axes(self.result.derivation)
            if self.result.system is None:
                raise KeyError(name)
            axes = exposed if at == "exposed" else [name.removeprefix(EXPOSED)]
            return self.program.total([(self.base.value(exposed[a]), 1) for a in axes if a in exposed])
        if at in ("N_active", "N_trained") and at not in self.result.derivation.definitions:
            at = "N"
        if at in self.stage_definitions:
            return self.slots.largest_of(at)
        own = field_of(at)
        if own in Strategy.model_fields or own in RANKS:
            found = self._field({"world": "world_size", "num_microbatches": "microbatches", "etp": "expert_tp"}.get(own, own))
            if found is None:
                raise KeyError(name)
            return found
        along = self._axis(at)
        return along if along is not None else self.base.value(at)

    def _capacity(self) -> Value:
        """Memory of one accelerator, which an axis may vary."""
        family, memory = self.variant.family, ("accelerator", "memory")
        column = next((c for c in family.space.columns.values() if c.place.part == "system" and c.place.key == memory), None)
        assert self.result.system is not None
        if column is None:
            return self.program.number(int(self.result.system.accelerator.memory.value))
        changes = family.space.base.system_changes
        systems = [self._system({**changes, memory: text}) for text in column.values]
        return self._array(family.along(column.axis, [float(s.accelerator.memory.value) for s in systems]))

    def _axis(self, name: str) -> Value | None:
        """The values of an axis by its own name, where they are numbers."""
        column = next((c for c in self.variant.family.space.columns.values() if name in (c.name, ".".join(c.place.key))), None)
        if column is None or not all(isinstance(v, (int, float)) for v in column.shown):
            return None
        return self._array(self.variant.family.along(column.axis, [float(v) for v in column.shown]))

    def sort(self, name: str) -> str | None:
        """What a name holds here: a 'number', a 'truth' or 'text', or 'nothing' for an option not given; None for a name that there is not."""
        if name == MACHINE or name.startswith("assume."):
            return "text" if self.option(name) is not None else None
        own = field_of(name)
        if own in Strategy.model_fields:
            found = self.variant.fields.get(own, 0)
            if own in ("num_microbatches", "etp"):
                return "number"
            if isinstance(found, np.ndarray):
                return "truth" if found.dtype == bool else "number"
            return "nothing" if found is None else "truth" if isinstance(found, bool) else "text" if isinstance(found, (str, tuple)) else "number"
        if own in RANKS or self._axis(name) is not None:
            return "number"
        known = QUANTITIES.get(name)
        definitions = self.result.derivation.definitions
        if known is not None:
            if known.timed and self.result.system is None:
                return None
            return (
                "number" if known.symbol in (*definitions, "exposed", "memory", "world", "N_active", "N_trained", within.LOW, within.HIGH) else None
            )
        if name.startswith(EXPOSED):
            return "number" if name.removeprefix(EXPOSED) in exposed_axes(self.result.derivation) else None
        return "number" if name in definitions or name in self.result.values else None

    def option(self, name: str) -> str | None:
        """What a field, an assumption or the system is here, as text; None where it is no such name, or varies."""
        if name == MACHINE:
            return self.variant.family.fixed["machine"]
        if name.startswith("assume."):
            return self.result.assumptions.get(name.removeprefix("assume."))
        found = self.variant.fields.get(field_of(name))
        if field_of(name) not in self.variant.fields or isinstance(found, np.ndarray):
            return None
        return text_of(found)

    def runs(self) -> Value:
        """Where points of the variant can run: true or false."""
        program, found = self.program, self.program.number(True)
        for mask in sorted(self.variant.masks, key=lambda m: m.size):
            own = program.of_array(mask)
            found = program.apply("and", found, own) if found.mask or found.data is not True else own
        return found


class _Lazy(Mapping[str, Value]):
    """Symbols, made when they are asked for."""

    def __init__(self, make: Any):
        self._make = make
        self._known: dict[object, Value | None] = {}

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self._known:
            self._known[name] = self._make(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def __getitem__(self, name: str) -> Value:
        found = self._known[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(map(str, self._known))

    def __len__(self) -> int:
        return len(self._known)


def _spanning(x: Any, axes: int) -> Array:
    array = np.asarray(x)
    return array if array.ndim == axes else array.reshape([1] * axes)


def _axes(array: Array) -> set[int]:
    return {a for a, n in enumerate(array.shape) if n > 1}


def _cuts(codes: Array, m: Array, group: Array, runs: Array) -> tuple[list[Cut], Array]:
    """Pipelines at points that run, and which of them every point has."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    spread = np.broadcast_arrays(inverse.reshape(codes.shape), m.astype(np.int64), group.astype(np.int64), runs)
    points = np.flatnonzero(spread[3])
    which, *pair = (a.reshape(-1)[points] for a in spread[:3])
    there, first = np.unique(which, return_index=True)
    # of each pipeline the distinct (micro-batches, group size), in their order
    order = np.lexsort((pair[1], pair[0], which))
    rows = np.stack([which, *pair])[:, order]
    own, *pairs = rows[:, np.concatenate([[True], (rows[:, 1:] != rows[:, :-1]).any(axis=0)])]
    begin, end = (np.searchsorted(own, there, side=side) for side in ("left", "right"))
    cuts: list[Cut] = []
    for code, at, a, b in zip(distinct[there], first, begin, end):
        pp, vpp = divmod(int(code), 100_000)
        point = tuple(int(x) for x in np.unravel_index(int(points[at]), spread[3].shape))
        cuts.append((pp, vpp, (pairs[0][a:b], pairs[1][a:b]), point))
    # where nothing runs it does not matter whose stages stand there
    where_to = np.minimum(np.searchsorted(there, np.arange(len(distinct))), len(cuts) - 1)
    return cuts, where_to[inverse.reshape(codes.shape)]
