"""What no strategy of a set can do without: a least time of a step and a least peak, as numbers over points of a grid.

A step takes at least m micro-batches of the slowest stage, and a stage its kernels and what nothing hides of its messages, none of them
negative; behind them come at least the update and what is left of the messages of gradients and parameters however long the stage is. A rank holds
at least its weights, gradients, optimizer states and what the layers keep of the micro-batches in flight. Where options are free that any of
these follows from, it is the least of its ways under them (`ways.py`); what has too many ways is left out of the sums.

What ways come to is evaluated once, over the points at which it is asked for first: of a block over the few axes that it depends on, of what stays
in memory and what follows the pipeline at every point. The bounds of a set are sums and maxima of these arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from typing import Any, cast

import numpy as np

from symsim.algebra.expr import ZERO, Expr, expr
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_stage
from symsim.algebra.key import of_block as block_key
from symsim.algebra.kinds import HEAD
from symsim.algebra.quantity import SECOND, Definition
from symsim.cost.count import Counted
from symsim.cost.deferred import deferred
from symsim.cost.memory_activations import in_flight
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.choices import framework_of
from symsim.grid.family import Array
from symsim.grid.reported import Reported
from symsim.grid.stored import Asked
from symsim.grid.variant import Variant
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import respelt
from symsim.inputs.watched import was_read, watched
from symsim.ir.roles import role_of
from symsim.lowering.lower import blocks_of
from symsim.lowering.lowered import Kept, Lowered
from symsim.lowering.tuned import tuned
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import runs
from symsim.planning.ways import BOUNDARY, KEPT_FREE, STAY, TAIL, Chosen, Derivations, Tree, Way, following, of_block, of_kernels, staying
from symsim.program.points import Points
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.value import Value

# options that the model which is derived follows from
OF_TRAINED = frozenset(("mtp_num_layers", "task_type"))
_OF_DEFERRAL = frozenset(("defer_embedding_wgrad_compute", "wgrad_deferral_limit"))
_PHASES = ("forward", "inputs", "weights", "again")
# of a block with more ways its kernels alone are known, of others with more nothing
_MOST_WAYS_OF_BLOCK, _MOST_WAYS = 40, 16
# longer than any stage
_EVER = 1e12
# options that it follows from which layers run again in full, and what a rank keeps of what they keep
_OF_LAYERS = frozenset(
    (
        "recompute",
        "recompute_method",
        "recompute_num_layers",
        "recompute_layers_per_stage",
        "num_microbatches_with_partial_activation_checkpoints",
        "cpu_offloading_num_layers",
        "offload_operations",
    )
)


class AllPasses:
    """The passes whose ways are looked for, the same for all points of a search."""

    def __init__(self) -> None:
        self.blocks, self.kernels, self.staying, self.following = cache(of_block), cache(of_kernels), staying(), following()
        self._amounts: tuple[Program | None, dict[Hashable, _Amounts]] = None, {}

    def amounts(self, program: Program) -> "dict[Hashable, _Amounts]":
        """What ways come to, by the values that the symbols which they stand on have in a program; those of one before it are forgotten."""
        if self._amounts[0] is not program:
            self._amounts = program, {}
        return self._amounts[1]


class Trees:
    """The passes of points that share a derivation, whichever options are chosen, and what their ways come to.

    base: as the points ask for a derivation, with the first row of every choice that is not made before all else.
    """

    def __init__(self, base: Asked, derivations: Derivations, passes: AllPasses):
        self.base = base
        names = blocks_of(respelt(tuned(base.trained, base.strategy)))
        # the longest first
        self.names = sorted(names, key=lambda name: role_of(name).single)
        self.blocks = {name: Tree(derivations, passes.blocks(name)) for name in names}
        # with what of them runs again; where that has too many ways, without it
        self.kernels = {name: [Tree(derivations, passes.kernels(name, again)) for again in (True, False)] for name in names}
        self.staying, self.following = Tree(derivations, passes.staying), Tree(derivations, passes.following)
        self._amounts = passes.amounts
        self.unknown = base.strategy.padding_free or base.strategy.placement is not None
        self._tables: Tables | None = None

    @cached_property
    def first(self) -> frozenset[str]:
        """The options that are to be chosen before bounds are asked for: those that numbers of symbols follow from (of a system that a recipe or an
        order of ranks changes), and the order of micro-batches."""
        strategy = watched(self.base.strategy)
        assert empty(self.base, strategy).values and schedule_of(strategy) and in_flight(strategy)
        return was_read(strategy)

    def tables(self, variant: Variant, points: Array, program: Program) -> "Tables":
        """What ways come to at points. variant: of all points of these trees under some options."""
        if self._tables is None or not self._tables.has(points):
            self._tables = Tables(variant, points, program, self._amounts(program))
        return self._tables


def empty(asked: Asked, strategy: Strategy, definitions: Iterable[Definition] = ()) -> Evaluation:
    """An evaluation with these definitions alone."""
    lowered = cast(Lowered, Kept({}))
    book = Derivation({d.symbol: d for d in definitions})
    model = respelt(tuned(asked.trained, strategy))
    return Evaluation(model, strategy, resolve(asked.assumptions), lowered, Counted(book, {}), dict(asked.overrides), asked.system)


@dataclass(frozen=True)
class _Amounts:
    """Of a block's way, of a micro-batch on one rank: seconds of a layer that does not run again in full, and of one that does; bytes that they keep;
    and those that wait for a weight gradient. Over the axes of the grid; None where there is none such."""

    seconds: tuple[Array, Array | None]
    kept: tuple[Array | None, Array | None]
    waiting: Array | None


@dataclass(frozen=True)
class _Place:
    """A stage of every pipeline, at points. there: whether there is one; count: how many it stands for; often: of each block how often it runs;
    alive: micro-batches in flight; loss: whether it has the head."""

    there: Array
    count: Array
    often: Mapping[str, Array]
    alive: Array
    loss: Array


class Tables:
    """points: rising, of which everything is known."""

    def __init__(self, variant: Variant, points: Array, program: Program, shared: dict[Hashable, _Amounts]):
        """shared: amounts of other points too."""
        self._variant, self.points, self._program, self._shared = variant, points, program, shared
        self._around = Reported(variant, program)
        self._inside = Points(points, program.sizes)
        self._amounts: dict[Hashable, _Amounts] = {}
        self._vectors: dict[Hashable, Any] = {}

    def has(self, points: Array) -> bool:
        return bool(np.isin(points, self.points, assume_unique=True).all())

    def at(self, points: Array) -> Array:
        return np.searchsorted(self.points, points)

    def spread(self, amount: Array, at: Array) -> Array:
        """What is known over some axes, at points."""
        return self._inside.spread(amount, at)

    @cached_property
    def m(self) -> Array:
        return self._values([self._around.base.value("m")])[0]

    @cached_property
    def rounds(self) -> tuple[Array, Array, Array]:
        """Stages, chunks of each, and micro-batches that a chunk has in a row."""
        pp, vpp, group = self._values([self._around.base.value(name) for name in ("pp", "vpp", "group")])
        return pp, vpp, np.minimum(group, self.m)

    @cached_property
    def exchanges(self) -> Array:
        """How often the pipeline waits for a boundary tensor, where its closed form says how often."""
        bubble = schedule_of(self._variant.result.strategy).bubble
        return self.of_sizes(bubble.substitute({"tc": expr(1)}) - bubble.substitute({"tc": ZERO}))

    def of_sizes(self, amount: Expr) -> Array:
        """What follows from sizes alone, at points."""
        key = "sizes", amount
        if key not in self._vectors:
            self._vectors[key] = self._values([self._around.base.lower(amount)])[0]
        return cast(Array, self._vectors[key])

    @cached_property
    def capacity(self) -> Array:
        return self._values([self._around.quantity("memory.capacity")])[0]

    @cached_property
    def places(self) -> tuple[list[_Place], int]:
        """Stages, one of every class first, so many of them, and then further places of the same that may hold more micro-batches in flight."""
        slots, strategy = self._around.slots, self._variant.result.strategy
        names = blocks_of(self._variant.result.model)
        order = [*slots.slots, *(slot for slot in slots.memory if slot not in slots.slots)]
        alive = in_flight(strategy)
        wanted: list[Value] = []
        for slot in order:
            scope = cast(Scope, slot.scope)
            wanted += [slot.there, slot.count, scope.value("loss_i"), scope.lower(alive), *(scope.value(runs(name)) for name in names)]
        values = self._values(wanted)
        found = []
        for k in range(0, len(values), len(names) + 4):
            there, count, loss, waiting, *often = values[k : k + len(names) + 4]
            found.append(_Place(there > 0, count, dict(zip(names, often)), waiting, loss))
        return found, len(slots.slots)

    def amounts(self, way: Way, name: str, kernels: bool, late: bool, partly: bool) -> _Amounts:
        """kernels: of these alone. late: without weight gradients of what is behind the layers. partly: some micro-batches run again, others not."""
        key = way, kernels, late, partly
        found = self._amounts.get(key)
        if found is None:
            symbols = tuple(self._around.base.value(name).id for name in way.symbols)
            found = self._shared.get((key, symbols))
            if found is None:
                found = self._shared[key, symbols] = _amounts(way, name, self._around, self._program, kernels, late, partly)
            self._amounts[key] = found
        return found

    def stay(self, way: Way) -> list[tuple[Array, Array]]:
        """Of every place bytes that stay for the whole step, without gradients and with them; and last what is kept free, and that for a byte of the
        peak."""
        return cast("list[tuple[Array, Array]]", self._vector(way, self._stay))

    def _stay(self, way: Way) -> list[tuple[Array, Array]]:
        own = self._reported(way.definitions.values())
        slots = own.slots
        order = [*slots.slots, *(slot for slot in slots.memory if slot not in slots.slots)]
        values = self._values([slot.scope.value(key.text) for slot in order for key in STAY])
        found = [(w + o + c, w + g + o + c) for w, g, o, c in zip(*(values[k :: len(STAY)] for k in range(len(STAY))))]
        reserve = sum((way.definitions[key.text].expr for key in KEPT_FREE), ZERO)
        none, one = (own.base.lower(reserve.substitute({"M_peak": expr(k)})) for k in (0, 1))
        nothing, share = self._values([none, one])
        return [*found, (nothing, share - nothing)]

    def tail(self, way: Way) -> tuple[Array, Array]:
        """Seconds that follow the pipeline at least (computation hides of messages what it never does), and those of a boundary tensor, at points."""
        return cast("tuple[Array, Array]", self._vector(way, self._tail))

    def _tail(self, way: Way) -> tuple[Array, Array]:
        ever = [Definition(of_stage("t", phase=phase), expr(_EVER), SECOND, "longer than any stage") for phase in _PHASES]
        own = self._reported([*way.definitions.values(), *ever])
        tail, boundary = self._values([own.quantity(TAIL.text), own.base.value(BOUNDARY.text)])
        return tail, boundary

    def _vector(self, way: Way, make: Callable[[Way], Any]) -> Any:
        key = make.__name__, way
        if key not in self._vectors:
            self._vectors[key] = make(way)
        return self._vectors[key]

    def _reported(self, definitions: Iterable[Definition]) -> Reported:
        counted = Counted(Derivation({d.symbol: d for d in definitions}), {})
        return Reported(replace(self._variant, result=replace(self._variant.result, counted=counted)), self._program, alike=self._around)

    def _values(self, values: Sequence[Value]) -> list[Array]:
        return self._inside.values(values)


def _amounts(way: Way, name: str, around: Reported, program: Program, kernels: bool, late: bool, partly: bool) -> _Amounts:
    keys = [d.key for d in way.definitions.values() if d.key.scope == "block" and d.key.block == name]
    own = [k for k in keys if (k.quantity == "t" and (k.operation or k.phase == "again") if kernels else not k.operation and k.phase)]
    always = [k for k in own if k.quantity == "t" and k.phase != "again" and not (late and k.phase in ("weights", "wgrad"))]
    varies = [k for k in own if (k.quantity == "t" and k.phase == "again") or (k.quantity == "e" and k.axis)] if not partly else []
    scope = around.scope(way.definitions)

    def summed(some: Iterable[Key]) -> Array:
        return _known(program.total([(scope.value(k.text), 1) for k in some]), program)

    def kept(whole: bool, part: str = "") -> Array | None:
        key = block_key("A", name, whole, part=part)
        return _known(scope.value(key.text), program) if key.text in way.definitions else None

    plain = summed([*always, *(k for k in varies if not k.again)])
    in_full = summed([*always, *(k for k in varies if k.again)]) if any(k.again for k in varies) else None
    return _Amounts((plain, in_full), (kept(False), kept(True)), kept(False, "waiting"))


def _known(value: Value, program: Program) -> Array:
    """A value as an array with a dimension for every axis."""
    if not value.known:
        numbers = np.arange(math.prod(program.sizes))
        return Points(numbers, program.sizes).values([value])[0].reshape(program.sizes)
    data = np.asarray(value.data, dtype=float)
    return data if data.ndim == len(program.sizes) else data.reshape([1] * len(program.sizes))


class Least:
    """The bounds of points of a grid that share a derivation, of which some options are chosen.

    asked: the choices not made that decide between ways, as far as was looked, those of the longest block first.
    """

    def __init__(self, trees: Trees, tables: Tables, strategy: Strategy, chosen: Chosen, free: frozenset[str], points: Array):
        """strategy: one that has the rows chosen."""
        self._trees, self._tables, self._chosen, self._free, self._strategy = trees, tables, chosen, free, strategy
        self._at = tables.at(points)
        self.asked: dict[int, None] = {}

    def only(self, inside: Array) -> None:
        """Some of the points from now on."""
        self._at = self._at[inside]

    @property
    def capacity(self) -> Array:
        return self._tables.capacity[self._at]

    def _ways(self, tree: Tree, most: int = _MOST_WAYS) -> list[Way] | None:
        if self._trees.unknown:
            return None
        found, asked = tree.ways(self._chosen, most)
        self.asked |= dict.fromkeys(asked)
        return found

    # time --------------------------------------------------------------------------------------------------------------

    def time_of_kernels(self) -> Array:
        """The least seconds of a step, of which kernels alone are looked at."""
        return self._time({name: self._of_kernels(name) for name in self._trees.names}, np.zeros(len(self._at)))

    def time(self) -> Array:
        """The least seconds of a step."""
        each, tails = self._blocks.items(), [self._tables.tail(way) for way in self._ways(self._trees.following) or ()]
        tail, boundary = (np.minimum.reduce([one[k][self._at] for one in tails]) if tails else np.zeros(len(self._at)) for k in (0, 1))
        pipeline = self._time({name: self._of_kernels(name) if ways is None else self._seconds(name, ways, False) for name, ways in each}, boundary)
        return pipeline if schedule_of(self._strategy).mirrored else pipeline + tail

    @cached_property
    def _blocks(self) -> Mapping[str, list[Way] | None]:
        return {name: self._ways(self._trees.blocks[name], _MOST_WAYS_OF_BLOCK) for name in self._trees.names}

    @property
    def blocks_known(self) -> bool:
        """Whether all ways of all blocks are."""
        return None not in self._blocks.values()

    def _of_kernels(self, name: str) -> Array | None:
        # while it is free what runs again, the least is that nothing does
        trees = self._trees.kernels[name][1 if "recompute" in self._free else 0 :]
        ways = next((found for tree in trees if (found := self._ways(tree))), None)
        return self._seconds(name, ways, True) if ways else None

    def _seconds(self, name: str, ways: Sequence[Way], kernels: bool) -> Array:
        """What a layer, or another block, takes at least of a micro-batch, over the axes of the grid."""
        return _least(self._of_layer(name, self._amounts(way, name, kernels).seconds) for way in ways)

    def _amounts(self, way: Way, name: str, kernels: bool) -> _Amounts:
        late, partly = "defer_embedding_wgrad_compute", "num_microbatches_with_partial_activation_checkpoints"
        waits = role_of(name).behind and (getattr(self._strategy, late) or late in self._free)
        return self._tables.amounts(way, name, kernels, waits, getattr(self._strategy, partly) is not None or partly in self._free)

    def _of_layer(self, name: str, pair: tuple[Array | None, Array | None]) -> Array:
        """Of a way's amounts without and with full recomputation of a layer that which holds, or the least where it is not known."""
        plain, in_full = pair
        assert plain is not None
        if in_full is None:
            return plain
        return in_full if self._all_in_full else np.minimum(plain, in_full)

    @cached_property
    def _all_in_full(self) -> bool:
        """Whether it is known that every layer runs again in full."""
        strategy = self._strategy
        elsewhere = strategy.recompute_layers_per_stage, strategy.num_microbatches_with_partial_activation_checkpoints
        uniform = strategy.recompute == "full" and strategy.recompute_method == "uniform" and elsewhere == (None, None)
        return uniform and self._free.isdisjoint(_OF_LAYERS)

    def _time(self, of_layer: Mapping[str, Array | None], boundary: Array) -> Array:
        """Of layers, and of a boundary tensor, what they take at least."""
        places, classes = self._tables.places
        at, strategy = self._at, self._strategy
        known = {name: self._tables.spread(one, at) for name, one in of_layer.items() if one is not None}
        stages = [sum((place.often[name][at] * own for name, own in known.items()), np.zeros(len(at))) for place in places[:classes]]
        m, schedule = self._tables.m[at], schedule_of(strategy)
        total = sum((place.count[at] * own for place, own in zip(places, stages)), np.zeros(len(at)))
        ranks = sum((place.count[at] for place in places[:classes]), np.zeros(len(at)))
        if schedule.mirrored:
            # the slowest pair of stages is no faster than their mean
            return cast(Array, m * total / ranks)
        slowest = np.maximum.reduce([np.where(place.there[at], own, 0.0) for place, own in zip(places, stages)])
        least = m * slowest
        # no rank works through its micro-batches before the others have done what comes first, as far as closed forms rise with every stage's time
        if strategy.pp > 1 and resolve(self._trees.base.assumptions)["step_barrier"] == "true":
            if schedule.name == "interleaved":
                least = least + (total - slowest) / self._tables.rounds[1][at] + self._returned(total, slowest, boundary)
            elif schedule.name == "1f1b":
                last = np.maximum.reduce([np.where(place.there[at] & (place.loss[at] > 0), own, 0.0) for place, own in zip(places, stages)])
                least = np.maximum(least, total + (m - 1) * last) + self._tables.exchanges[at] * boundary
        return cast(Array, least)

    def _returned(self, total: Array, slowest: Array, boundary: Array) -> Array:
        """What an interleaved pipeline waits for micro-batches on their way through the chunks: forward and backward together, which
        are no more than in its closed form each by itself."""
        pp, vpp, group = (one[self._at] for one in self._tables.rounds)
        waits = self._strategy.overlap_p2p_comm and not self._strategy.overlap_p2p_comm_warmup_flush
        back = np.maximum(2 * pp * boundary + (total - group * slowest) / vpp, 2 * group * boundary if waits else 0.0)
        waited = 0 if self._strategy.overlap_p2p_comm else self._tables.m[self._at] * vpp
        return cast(Array, (vpp - 1) * back + 2 * (pp - 1 + waited) * boundary)

    # memory ------------------------------------------------------------------------------------------------------------

    def memory_that_stays(self) -> tuple[Array, Array]:
        """The least bytes of a rank, of which what stays for the whole step is looked at alone; and those with what is kept free beside them."""
        return self._memory([np.zeros(len(self._at))] * len(self._tables.places[0]))

    def memory(self) -> tuple[Array, Array]:
        """The least bytes of a rank, with what layers keep when the last micro-batch in flight turns from forward to backward, whatever else is held
        then; and those with what is kept free beside them."""
        return self._memory(self._waiting())

    def _memory(self, waiting: Sequence[Array]) -> tuple[Array, Array]:
        ways, at = self._ways(self._trees.staying), self._at
        if not ways:
            return np.zeros(len(at)), np.zeros(len(at))
        main = framework_of(self._strategy, resolve(self._trees.base.assumptions)).main_gradients
        # of a step's first micro-batch there are no gradients yet, where no buffer waits for them
        made = (self._tables.m[at] > 1) | main
        most, needed = [], []
        for way in ways:
            *stay, (kept_free, share) = self._tables.stay(way)
            each = [
                np.where(place.there[at], np.maximum(whole[at], np.where(made, whole[at], without[at]) + own), 0.0)
                for place, (without, whole), own in zip(self._tables.places[0], stay, waiting)
            ]
            most.append(np.maximum.reduce(each))
            needed.append(most[-1] * (1 + share[at]) + kept_free[at])
        return np.minimum.reduce(most), np.minimum.reduce(needed)

    def _waiting(self) -> list[Array]:
        """Of every place what layers keep of the micro-batches in flight."""
        strategy, places = self._strategy, self._tables.places[0]
        nothing = [np.zeros(len(self._at))] * len(places)
        elsewhere = strategy.cpu_offloading_num_layers or strategy.offload_operations or strategy.recompute_layers_per_stage
        if elsewhere or self._free & (_OF_LAYERS - {"recompute"}) or schedule_of(strategy).mirrored:
            return nothing
        groups = strategy.recompute_num_layers if strategy.recompute_method == "uniform" else 1
        known = {}
        for name, ways in self._blocks.items():
            if role_of(name).single or not ways:
                continue
            kept = [self._amounts(way, name, False).kept for way in ways]
            of_layer = [self._of_layer(name, (plain, None if in_full is None else in_full / groups)) for plain, in_full in kept]
            known[name] = self._tables.spread(_least(of_layer), self._at)
        at = self._at
        none, waits = np.zeros(len(at)), self._deferred()
        return [
            place.alive[at] * sum((place.often[name][at] * own for name, own in known.items()), none) + place.loss[at] * waits for place in places
        ]

    def _deferred(self) -> Array:
        """What waits for weight gradients of the output layer on the stage that has it."""
        strategy, nothing = self._strategy, np.zeros(len(self._at))
        ways = self._blocks.get(HEAD)
        if not ways or not strategy.defer_embedding_wgrad_compute or self._free & _OF_DEFERRAL:
            return nothing
        each = [self._amounts(way, HEAD, False).waiting for way in ways]
        if any(one is None for one in each):
            return nothing
        return self._tables.spread(_least(cast("list[Array]", each)), self._at) * self._tables.of_sizes(deferred(strategy))[self._at]


def _least(amounts: Iterable[Array]) -> Array:
    return reduce(np.minimum, amounts)
