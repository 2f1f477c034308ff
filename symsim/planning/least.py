"""What no strategy of a set can do without: a least time of a step and a least peak, as numbers over points of a grid.

A step takes at least m micro-batches of the slowest stage, and a stage its kernels and what nothing hides of its messages, none of them
negative; behind them come at least the update and what is left of the messages of gradients and parameters however long the stage is. A rank holds
at least its weights, gradients, optimizer states and what the layers keep of the micro-batches in flight. Where options are free that any of
these follows from, it is the least of its ways under them (`ways.py`); what has too many ways is left out of the sums.

The bounds of a set are sums and maxima of what ways come to (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import cast

import numpy as np

from symsim.algebra.kinds import HEAD
from symsim.cost.deferred import deferred
from symsim.frameworks.choices import framework_of
from symsim.grid.family import Array
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategy import Strategy
from symsim.ir.roles import role_of
from symsim.pipeline.schedules import schedule_of
from symsim.planning.tables import Amounts, Tables
from symsim.planning.trees import Trees
from symsim.planning.ways import Chosen, Tree, Way

_OF_DEFERRAL = frozenset(("defer_embedding_wgrad_compute", "wgrad_deferral_limit"))
# of a block with more ways its kernels alone are known, of others with more nothing
_MOST_WAYS_OF_BLOCK, _MOST_WAYS = 40, 16
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
        """Some of the points from now on, by a mask or by their numbers."""
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
        blocks, following = self.ways_of_time()
        each, tails = blocks.items(), [self._tables.tail(way) for way in following]
        tail, boundary = (np.minimum.reduce([one[k][self._at] for one in tails]) if tails else np.zeros(len(self._at)) for k in (0, 1))
        pipeline = self._time({name: self._of_kernels(name) if ways is None else self._seconds(name, ways, False) for name, ways in each}, boundary)
        return pipeline if schedule_of(self._strategy).mirrored else pipeline + tail

    def ways_of_time(self) -> tuple[Mapping[str, list[Way] | None], list[Way]]:
        """Those of every block, None where they are too many, and of what follows the pipeline."""
        return self._blocks, self._ways(self._trees.following) or []

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

    def _amounts(self, way: Way, name: str, kernels: bool) -> Amounts:
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
        stages = [place.worked(known, at) for place in places[:classes]]
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
        ways, at = self._ways(self._trees.staying), self._at
        if not ways:
            return np.zeros(len(at)), np.zeros(len(at))
        each = [self._tables.most_that_stays(way) for way in ways]
        most, needed = (np.minimum.reduce([one[k][at] for one in each]) for k in (0, 1))
        return most, needed

    def memory(self) -> tuple[Array, Array]:
        """The least bytes of a rank, with what layers keep when the last micro-batch in flight turns from forward to backward, whatever else is held
        then; and those with what is kept free beside them."""
        ways, at = self._ways(self._trees.staying), self._at
        if not ways:
            return np.zeros(len(at)), np.zeros(len(at))
        waiting = self._waiting()
        main = framework_of(self._strategy, resolve(self._trees.base.assumptions)).main_gradients
        # of a step's first micro-batch there are no gradients yet, where no buffer waits for them
        made = (self._tables.m[at] > 1) | main
        there = [place.there[at] for place in self._tables.places[0]]
        most, needed = [], []
        for way in ways:
            stay, (kept_free, share) = self._tables.stay(way, at), self._tables.kept_free(way)
            turns = stay if made.all() else [np.where(made, whole, without) for whole, without in zip(stay, self._tables.stay(way, at, False))]
            each = [np.where(is_, np.maximum(whole, held + own), 0.0) for is_, whole, held, own in zip(there, stay, turns, waiting)]
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
        waits = self._deferred()
        return [place.alive[at] * place.worked(known, at) + place.loss[at] * waits for place in places]

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
