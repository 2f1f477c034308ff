"""The passes of all points of a search, and what their ways come to, by the derivations that points share.

Some options are chosen before bounds are asked for: those that numbers of symbols follow from, and those that it follows from which layers are of
which kind. Where rows of the latter come to the same kinds, points share a derivation under all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, cast

from symsim.algebra.formula import Derivation
from symsim.cost.count import Counted
from symsim.cost.memory_activations import in_flight
from symsim.evaluation.numbers import Evaluation
from symsim.grid.family import Array
from symsim.grid.stored import Asked, Memories, shape
from symsim.grid.variant import Variant
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategy import Strategy
from symsim.inputs.watched import was_read, watched
from symsim.ir.roles import role_of
from symsim.lowering.lower import blocks_of
from symsim.lowering.lowered import Kept, Lowered
from symsim.pipeline.schedules import schedule_of
from symsim.planning.kinds import Kinds
from symsim.planning.tables import Amounts, Tables
from symsim.planning.ways import OF_TRAINED, Derivations, Rows, Tree, following, of_block, of_kernels, staying
from symsim.program.program import Program


class AllPasses:
    """The passes whose ways are looked for, the same for all points of a search."""

    def __init__(self) -> None:
        self.blocks, self.kernels, self.staying, self.following = cache(of_block), cache(of_kernels), staying(), following()
        self._amounts: tuple[Program | None, dict[Hashable, Amounts]] = None, {}

    def amounts(self, program: Program) -> dict[Hashable, Amounts]:
        """What ways come to, by the values that the symbols which they stand on have in a program; those of one before it are forgotten."""
        if self._amounts[0] is not program:
            self._amounts = program, {}
        return self._amounts[1]


class Trees:
    """The passes of points that share a derivation, whichever options are chosen, and what their ways come to.

    base: as the points ask for a derivation, with the first row of every choice that is not made before all else. of_kinds: the options that it
    follows from which layers are of which kind.
    """

    def __init__(self, base: Asked, derivations: Derivations, passes: AllPasses):
        trained = derivations.kinds.of(base.strategy)
        self.base, self._model, self.of_kinds = base, trained.model, frozenset(trained.read)
        names = blocks_of(self._model)
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
    def of_numbers(self) -> frozenset[str]:
        """The options that numbers of symbols follow from (of a system that a recipe or an order of ranks changes), and the order of
        micro-batches."""
        strategy = watched(self.base.strategy)
        _ = self.evaluation(replace(self.base, strategy=strategy)).values, schedule_of(strategy), in_flight(strategy)
        return was_read(strategy)

    def evaluation(self, asked: Asked) -> Evaluation:
        """An evaluation of one of the points, without definitions."""
        lowered, counted = cast(Lowered, Kept({})), Counted(Derivation({}), {})
        return Evaluation(self._model, asked.strategy, resolve(asked.assumptions), lowered, counted, dict(asked.overrides), asked.system)

    def tables(self, variant: Callable[[], Variant], points: Array, program: Program) -> Tables:
        """What ways come to at points. variant: makes that of all points of these trees under some options."""
        if self._tables is None or not self._tables.has(points):
            self._tables = Tables(variant(), points, program, self._amounts(program))
        return self._tables


class AllTrees:
    """The trees of a search. rows: of its choices; answers: those that are not the same for all. first: the options that are to be chosen before
    bounds are asked for, as far as they are known."""

    def __init__(self, memories: Memories, rows: Sequence[Rows], answers: Mapping[str, frozenset[str]]):
        self._memories, self._rows, self._answers = memories, rows, answers
        self.passes = AllPasses()
        self.kept: dict[str, Trees] = {}
        self.first = OF_TRAINED
        # of these what is not read of kinds of layers alone
        self._of_numbers = OF_TRAINED
        self._kinds: dict[Hashable, Kinds] = {}

    def of(self, asked: Asked, staged: frozenset[str]) -> Trees:
        """What passes make at points that share a derivation, under all rows of the choices. staged: options that what stages hold follows from."""
        while True:
            found = self._of_base(asked)
            of_numbers = found.of_numbers | staged
            if self.first >= (first := of_numbers | found.of_kinds):
                return found
            self.first |= first
            self._of_numbers |= of_numbers

    def _of_base(self, asked: Asked) -> Trees:
        made: dict[str, Any] = {}
        for rows in self._rows:
            if rows.rows[0] is not None and self.first.isdisjoint(rows.names):
                made |= rows.rows[0]
        spelt = self._memories.spelt(asked.trained, asked.assumptions, asked.system)
        kinds = self._kinds.setdefault(spelt, Kinds(asked.trained))
        base = replace(asked, strategy=self._of_same_kinds(asked.strategy.model_copy(update=made), kinds))
        key = repr((spelt, shape(base.strategy, asked.trained)))
        if key not in self.kept:
            assert base.system is not None
            memory, model = self._memories.of(asked.trained, base.assumptions, base.system)
            of = Derivations(memory, model, kinds, base.strategy, base.system, base.assumptions, self._rows, self._answers)
            self.kept[key] = Trees(base, of, self.passes)
        return self.kept[key]

    def _of_same_kinds(self, strategy: Strategy, kinds: Kinds) -> Strategy:
        """With the first rows that come to the same kinds of layers, of choices that nothing else which is chosen first follows from."""
        for rows in self._rows:
            if not self.first.isdisjoint(rows.names) and self._of_numbers.isdisjoint(rows.names):
                others = (strategy.model_copy(update=values) for values in rows.rows if values is not None)
                strategy = next((other for other in others if kinds.same(other, strategy)), strategy)
        return strategy
