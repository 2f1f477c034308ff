"""What is reported of variants together: their derivations lowered in one program, symbols as arrays over the axes of the grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from symsim.algebra.expr import Call, Expr, expr, symbol
from symsim.algebra.key import layers_of_model
from symsim.algebra.quantity import Definition
from symsim.algebra.reductions import Line, named
from symsim.cost.step_time import exposed_axes
from symsim.evaluation.quantities import EXPOSED, QUANTITIES
from symsim.grid import within
from symsim.grid.family import Array
from symsim.grid.group import Group, group_of
from symsim.grid.names import RANKS, SPLITS, field_of
from symsim.grid.symbols import FOLLOWING, Symbols
from symsim.grid.variant import Variant, field_at, joined, strategy_at
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.strategy import Strategy
from symsim.inputs.watched import was_read, watched
from symsim.program.fullest import Pipeline
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.slots import Slots, make_slots
from symsim.program.value import Value

# pp and vpp, the (micro-batches, group size) that there are with them, a point that runs, and the number of its variant
Cut = tuple[int, int, tuple[Array, Array], tuple[int, ...], int]
# an expression, and whether it counts something
Counting = tuple[Expr, bool]
# that of a definition, with names for its reductions; these; whether it is of a stage; and the definition
Part = tuple[Counting, dict[str, Call], bool, Definition]
# more than a pipeline has stages, or a stage chunks
_DEPTHS = 1_000_000


class Reported:
    """The values of the quantities of variants, lowered on demand in one program.

    Quantities are named as in `symsim eval --json` (time.step, memory.peak, mfu), by a definition's symbol (t_step, N; of a stage's
    definition, such as M_stage_peak, the largest over stages), or by a field or symbol of the strategy (tp, b, world). What a variant does not
    have is 0 there.
    """

    def __init__(
        self, variants: Variant | Group, program: Program, moved: Mapping[str, float] = MappingProxyType({}), alike: "Reported | None" = None
    ):
        """moved: factors of symbols (`within.py`). alike: what is known of the same variants, whose definitions alone are others."""
        self.group = variants if isinstance(variants, Group) else group_of([variants])
        self.program, self._moved, self._alike = program, moved, alike
        self.own = [Symbols(v) for v in self.group.variants]
        self.results = [v.result for v in self.group.variants]
        self.system = self.results[0].system
        # where a form of a definition holds, by the name that stands for it there
        self._forms: dict[str, Array] = {}
        self._recomputed = {layers_of_model(k, again=True).text for result in self.results for k in result.lowered.checkpointed}

    # definitions -------------------------------------------------------------------------------------------------------

    @cached_property
    def _parted(self) -> tuple[dict[str, Counting], dict[str, Counting], dict[str, Call]]:
        """The definitions of a stage; all others, in which names stand for reductions over stages; and these reductions."""
        of_stage, others, over = dict[str, Counting](), dict[str, Counting](), dict[str, Call]()
        books = [result.derivation.definitions for result in self.results]
        for name in dict.fromkeys(name for book in books for name in book):
            given = [book.get(name) for book in books]
            # by their places in memory: what variants share is one object
            places = list(map(id, given))
            parts = {at: self._part(d) for at, d in dict(zip(places, given)).items() if d is not None}
            first = next(iter(parts.values()))
            (of_stage if first[2] else others)[name] = first[0] if len(books) == 1 else self._together(given, places, parts)
            for part in parts.values():
                over |= part[1]
        return of_stage, others, over

    def _part(self, d: Definition) -> Part:
        known = self.program.parts
        part = known.get(id(d))
        if part is None:
            own = d.key.scope == "stage"
            expression, calls = (d.expr, {}) if own else named(d.expr)
            # kept with the definition, whose place in memory nothing else takes then
            part = known[id(d)] = (expression, d.counts), calls, own, d
        return part

    def _together(self, given: Sequence[Definition | None], places: Sequence[int], parts: Mapping[int, Part]) -> Counting:
        """What a name is defined as in each variant, as one expression: that of the variant that a point is of."""
        numbers = {at: self.program.number_of(part[0][0])[0] for at, part in parts.items()} | {id(None): -1}
        members, where = self.group.forms(list(map(numbers.__getitem__, places)))
        of_members = [given[k] for k in members]
        found = [expr(0) if d is None else parts[id(d)][0][0] for d in of_members]
        counts = any(part[0][1] for part in parts.values())
        if len(found) == 1:
            return found[0], counts
        arguments = [found[0], expr(0)]
        for form, here in zip(found[1:], where):
            arguments += [form, symbol(self._form(here))]
        return Expr({((Call("at", tuple(arguments)), 1),): 1}), counts

    def _form(self, here: Array) -> str:
        """The name of where a form holds."""
        # no symbol of a formula is written so
        name = f"form {id(here)}"
        self._forms[name] = here
        return name

    @cached_property
    def base(self) -> Scope:
        return Scope(self.program, _Lazy(self._symbol), self._parted[1])

    def scope(self, definitions: Mapping[str, Definition]) -> Scope:
        """Other definitions, none of them of a stage, over the same points."""
        return Scope(self.program, self.base.symbols, {name: (d.expr, d.counts) for name, d in definitions.items()})

    @property
    def stage_definitions(self) -> dict[str, Counting]:
        return self._parted[0]

    # symbols -----------------------------------------------------------------------------------------------------------

    def _symbol(self, name: str) -> Value | None:
        """A symbol's value over the points: of the strategy, of the reductions over stages, or a number."""
        found = self._known(name)
        return found if found is None or name not in self._moved else self.program.apply("mul", found, self.program.number(self._moved[name]))

    def _known(self, name: str) -> Value | None:
        if name in self._forms:
            return self.program.of_array(self._forms[name])
        if name in self._recomputed:
            return self.slots.summed_holding(f"{name}_i")
        if name in self._parted[2]:
            return self.slots.reduced(self._parted[2][name])
        # most are numbers, or the same all over a family
        first_of, at, values = self._sources
        shared = [own.of_family(name) for own in first_of]
        own = [found if (found := shared[k]) is not None else one.get(name) for k, one in zip(at, values)]
        together = self.group.together(own)
        return None if together is None else self._array(together)

    @cached_property
    def _sources(self) -> tuple[list[Symbols], list[int], list[Mapping[str, Any]]]:
        """Of each family the symbols of a variant; of each variant the number of its family among them, and its own numbers."""
        if self._alike is not None:
            return self._alike._sources
        families = {id(own.family): own for own in self.own}
        number = {at: k for k, at in enumerate(families)}
        return list(families.values()), [number[id(own.family)] for own in self.own], self._numbers()

    def _numbers(self) -> list[Mapping[str, Any]]:
        """The numbers of each variant; those of another where all that they follow from is the same."""
        known: dict[Hashable, dict[tuple[str, ...], dict[str, Mapping[str, Any]]]] = {}
        found = []
        for variant in self.group.variants:
            result, fields = variant.result, variant.result.strategy.__dict__
            given = (variant.family.spelt(result.model), id(result.system), repr(result.overrides), *result.lowered.checkpointed)
            alike = known.setdefault(given, {})
            own = next((n for read, of in alike.items() if (n := of.get(repr([fields[name] for name in read]))) is not None), None)
            if own is None:
                at = replace(result, strategy=watched(result.strategy))
                own, read = at.values, tuple(sorted(was_read(at.strategy)))
                alike.setdefault(read, {})[repr([fields[name] for name in read])] = own
            found.append(own)
        return found

    def _all(self, read: Callable[[Symbols], Any]) -> Value | None:
        """What every variant has."""
        found = self.group.together([read(own) for own in self.own])
        return None if found is None else self._array(found)

    def _array(self, found: Any) -> Value:
        if isinstance(found, np.ndarray) and found.size > 1:
            return self.program.of_array(found)
        return self.program.number(found.reshape(-1)[0].item() if isinstance(found, np.ndarray) else found)

    # stages ------------------------------------------------------------------------------------------------------------

    @cached_property
    def slots(self) -> Slots:
        return make_slots(self.program, self.base, *self._pipelines, self.stage_definitions)

    @cached_property
    def _pipelines(self) -> tuple[list[Line], Array]:
        """The distinct pipelines, and which of them every point has."""
        if self._alike is not None:
            return self._alike._pipelines
        pp, vpp, m, group = (
            _spanning(self.group.together([own.family.size(n) for own in self.own]), len(self.program.sizes))
            for n in ("pp", "vpp", "microbatches", "group")
        )
        codes = self.group.which
        for name in SPLITS:
            codes = codes * 2 + _spanning(self.group.together([own.field(name) for own in self.own]), len(self.program.sizes)).astype(np.int64)
        codes = (codes * _DEPTHS + pp.astype(np.int64)) * _DEPTHS + vpp.astype(np.int64)
        # rules over other axes too may let further points in, whose stages do no harm
        decided = _axes(codes) | _axes(m) | _axes(group)
        runs = joined([k for k in (*self.group.masks, *self._inside()) if _axes(k) <= decided], self.program.sizes)
        known, key = self.group.variants[0].family.space.cuts, tuple((a.shape, a.tobytes()) for a in (codes, m, group, runs))
        if key not in known:
            known[key] = _cuts(codes, m, group, runs)
        cuts, which = known[key]
        lines, at = self._lines(cuts)
        return lines, at[which]

    def _lines(self, cuts: Sequence[Cut]) -> tuple[list[Line], Array]:
        """The distinct pipelines of these, and of each cut which it is. Pipelines of one grid have the same symbols."""
        given = [self._pipeline(pp, vpp, point, self.group.variants[number]) for pp, vpp, _, point, number in cuts]
        names = dict.fromkeys(name for pipeline in given for name in pipeline.stages[0])
        own: dict[Hashable, list[int]] = {}
        for k, pipeline in enumerate(given):
            own.setdefault(pipeline.held, []).append(k)
        lines, at = [], np.zeros(len(cuts), dtype=np.int64)
        for number, alike in enumerate(own.values()):
            pairs = np.unique(np.concatenate([np.stack(cuts[k][2]) for k in alike], axis=1), axis=1) if len(alike) > 1 else cuts[alike[0]][2]
            lines.append(given[alike[0]].of(names).line(pairs[0], pairs[1]))
            at[alike] = number
        return lines, at

    def _pipeline(self, pp: int, vpp: int, point: tuple[int, ...], variant: Variant) -> Pipeline:
        """The stages of a pipeline; those of another variant where all options that they read are the same."""
        result, space = variant.result, variant.family.space
        fields = {**variant.fields, **{n: field_at(variant.fields[n], point) for n in SPLITS}}
        key = (pp, vpp, variant.family.spelt(result.model), result.gathers_boundaries, *result.lowered.checkpointed)
        known = space.pipelines.setdefault(key, {})
        for read, pipelines in known.items():
            found = pipelines.get(repr([fields[n] for n in read]))
            if found is not None:
                return found
        at = replace(result, strategy=watched(strategy_at(fields, point)))
        made = Pipeline(at.strategy, [at.stage_values(stage) for stage in at.stages])
        read = tuple(sorted(was_read(at.strategy) - {*SIZES, *DEGREES}))
        known.setdefault(read, {})[repr([fields[n] for n in read])] = made
        return made

    def _inside(self) -> list[Array]:
        """Where an axis' positions are chosen, for axes of which not all are."""
        found = []
        for axis, positions in enumerate(self.group.chosen):
            if len(positions) < self.program.sizes[axis]:
                inside = np.zeros(self.program.sizes[axis], dtype=bool)
                inside[positions] = True
                found.append(self.group.variants[0].family.along(axis, list(inside), bool))
        return found

    # what is asked for -------------------------------------------------------------------------------------------------

    def quantity(self, name: str) -> Value:
        """The value of a reported quantity; KeyError for an unknown name, or one that there is not without a system."""
        known = QUANTITIES.get(name)
        at = known.symbol if known is not None else name
        if known is not None and known.over == "fullest":
            return self.slots.of_fullest(at)
        if at == "memory" and self.system is not None:
            return self.every(lambda own: own.capacity())
        if at in (within.LOW, within.HIGH) and self.system is not None:
            return within.end_of_interval(self, at, lambda factors: Reported(self.group, self.program, factors))
        if at == "exposed" or name.startswith(EXPOSED):
            exposed = {axis: own for result in self.results for axis, own in exposed_axes(result.derivation).items()}
            if self.system is None:
                raise KeyError(name)
            axes = exposed if at == "exposed" else [name.removeprefix(EXPOSED)]
            return self.program.total([(self.base.value(exposed[a]), 1) for a in axes if a in exposed])
        if at in ("N_active", "N_trained"):
            there = self.every(lambda own: at in own.result.derivation.definitions)
            return self.program.where(there, self.base.value(at), self.base.value("N")) if at in self._parted[1] else self.base.value("N")
        if at in self.stage_definitions:
            return self.slots.largest_of(at)
        own = field_of(at)
        if own in Strategy.model_fields or own in RANKS:
            field = FOLLOWING.get(own, own)
            return self.every(lambda own: own.field(field))
        along = self._all(lambda own: own.along(at))
        return along if along is not None else self.base.value(at)

    def every(self, read: Callable[[Symbols], Any]) -> Value:
        """What each variant has, of which one has it at least; KeyError where none does."""
        found = self._all(read)
        if found is None:
            raise KeyError
        return found

    def sort(self, name: str) -> str | None:
        """What a name holds in the variants that have it (`Symbols.sort`)."""
        sorts = {own.sort(name) for own in self.own}
        return next((s for s in ("number", "truth", "text", "nothing") if s in sorts), None)

    def runs(self) -> Value:
        """Where points can run: true or false."""
        program, found = self.program, self.program.number(True)
        for mask in sorted(self.group.masks, key=lambda m: m.size):
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
        number, pipeline = divmod(int(code), _DEPTHS**2)
        number >>= len(SPLITS)
        point = tuple(int(x) for x in np.unravel_index(int(points[at]), spread[3].shape))
        cuts.append((*divmod(pipeline, _DEPTHS), (pairs[0][a:b], pairs[1][a:b]), point, number))
    # where nothing runs it does not matter whose stages stand there
    where_to = np.minimum(np.searchsorted(there, np.arange(len(distinct))), len(cuts) - 1)
    return cuts, where_to[inverse.reshape(codes.shape)]
