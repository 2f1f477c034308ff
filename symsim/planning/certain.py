"""What all members of a set of strategies have in common: the definitions of a derivation that were made before any of their differences was read.

A derivation is a program that reads options one after the other. What it defined before it first read an option is the same whatever
that option is, so the derivation of one strategy tells of all that differ from it in options that were read later, or never. Several
orders of the same passes are looked at: the kernels of one block first, what stays in memory first, all of memory first, and kernels and
messages of all blocks first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from symsim.algebra.expr import Expr
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_block
from symsim.algebra.quantity import Definition
from symsim.cost.block_time import block_times, kernel_times
from symsim.cost.count import Counted, count, count_parameters
from symsim.cost.memory import peak_memory
from symsim.cost.memory_activations import define_activations
from symsim.cost.memory_rank import rank_of
from symsim.cost.memory_static import define_static
from symsim.cost.reserve import define_reserve
from symsim.cost.step_time import check_system, from_blocks, network_of
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.grid.stored import Asked, Kept, Memories
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.conventions import OWN
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import order_of, parts_of
from symsim.inputs.trained import respelt
from symsim.inputs.watched import was_read, watched
from symsim.ir.operations import UNCOUNTED
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import Differentiated
from symsim.lowering.lower import declared_under, differentiated, lower
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered
from symsim.lowering.tuned import tuned


@dataclass(frozen=True)
class Order:
    """The passes in one order. heard: the options read, the first first. made: by symbol a definition, and how many had been read before it."""

    heard: Sequence[str]
    made: Mapping[str, tuple[int, Definition]]

    @staticmethod
    def of(done: Iterable[Any]) -> "Order":
        heard, made = order_of(done)
        return Order(tuple(heard), made)

    def made_before(self, heard: int) -> int:
        """How many definitions were made when so many options had been read."""
        return bisect_right(self._after, heard)

    @cached_property
    def _after(self) -> list[int]:
        return sorted(after for after, _ in self.made.values())

    def before(self, free: frozenset[str]) -> int:
        """How many options were read before the first of these."""
        return next((at for at, name in enumerate(self.heard) if name in free), len(self.heard))


@dataclass(frozen=True)
class Derived:
    """A derivation, and when it read what. again: by block, and whether all of it runs again, the kernels that recomputation runs once more, and
    how many options had been read when that was known. of_numbers: the options that the numbers of its symbols follow from."""

    result: Evaluation
    orders: tuple[Order, ...]
    again: Mapping[tuple[str, bool], tuple[str, ...]]
    known_again: int
    of_numbers: frozenset[str]

    @property
    def heard(self) -> tuple[str, ...]:
        """All options that were read, the first first."""
        return tuple(dict.fromkeys([*self.of_numbers, *(name for order in reversed(self.orders) for name in order.heard)]))

    def known_without(self, free: frozenset[str]) -> tuple[int, ...]:
        """How much is known where these options are: of each order how many definitions it made before it read one."""
        return tuple(order.made_before(order.before(free)) for order in self.orders)


# of a definition that an order does not make
_NEVER: tuple[float, None] = (math.inf, None)


class Common:
    """The definitions that all strategies have in common which differ from one in some options alone."""

    def __init__(self, derived: Derived, free: frozenset[str]):
        self.definitions = derived.result.derivation.definitions
        # which kernels run again is known in the last order
        self.again = derived.again if derived.orders and derived.orders[-1].before(free) >= derived.known_again else {}
        # of another order only what it made the same
        self._orders = [(order, order.before(free)) for order in derived.orders] if free.isdisjoint(derived.of_numbers) else []
        self._known: dict[str, bool] = {}

    def __contains__(self, symbol: str) -> bool:
        """Whether a definition is one of them, and stands on such alone. What is no definition is a size, or a number of the model or the system."""
        found = self._known.get(symbol)
        if found is None:
            found = self._known[symbol] = self._same(symbol)
        return found

    def _same(self, symbol: str) -> bool:
        made = self.definitions.get(symbol)
        if made is None:
            return True
        for order, most in self._orders:
            after, own = order.made.get(symbol, _NEVER)
            if after <= most and own == made:
                return self.holds(made.expr)
        return False

    def holds(self, amount: Expr) -> bool:
        """Whether an expression stands on such alone."""
        return all(name in self for name in amount.symbols())


def derived(asked: Asked, memories: Memories, whole: bool = True) -> Derived:
    """The derivation of a strategy, as of `symsim.derive`, with what was read when. whole: with all of it; else no more than kernels, messages and
    what stays in memory for the whole step."""
    assert asked.system is not None
    memory, model = memories.of(asked.trained, asked.assumptions, asked.system)
    given = resolve(asked.assumptions)
    if asked.strategy.padding_free or asked.strategy.placement is not None:
        # these change what passes have made, so that nothing can be said of others
        alone = evaluated(asked.trained, asked.strategy, asked.assumptions, asked.overrides, asked.system)
        return Derived(alone, (), {}, 0, frozenset())
    read, book = memory.begin(asked.strategy)
    done = memory.done
    apart = [*_kernels_apart(book, tuned(model, read), read, given, done), *_static_apart(book, tuned(model, read), read, given, done)]
    before = len(done)
    lowered = lower(tuned(model, read), read, given, OWN)
    of_lowering = len(done)
    again, known_again = _again(lowered), len(Order.of(done[before:]).heard)
    count(lowered, book)
    if whole:
        peak_memory(book, lowered)
    else:
        rank = rank_of(book, lowered)
        define_static(rank)
        define_activations(rank)
        define_reserve(rank)
    counted = len(done)
    network = network_of(book, asked.system, lowered)
    blocks = block_times(book, network, lowered)
    timed = Order.of([*done[before:of_lowering], *done[counted:]])
    if whole:
        check_system(asked.system, read)
        from_blocks(book, asked.system, lowered, network, blocks)
    kept = Counted(Derivation(dict(book.definitions)), {})
    shown = cast(Lowered, Kept(dict.fromkeys(lowered.checkpointed)))
    model = respelt(tuned(asked.trained, asked.strategy))
    found = Evaluation(model, asked.strategy, given, shown, kept, dict(asked.overrides), asked.system)
    return Derived(found, (*apart, Order.of(done[before:]), timed), again, known_again, _of_numbers(found))


def _kernels_apart(book: Derivation, model: Architecture, strategy: Strategy, given: Mapping[str, str], done: Sequence[Any]) -> list[Order]:
    """The kernels of each block as the first that is made: they do not wait for what other blocks read, nor for what runs again."""
    profile, mesh, declared = declared_under(model, strategy, given)
    shared, found = len(done), []
    for name, block in declared.items():
        begun = len(done)
        made = differentiated(block, profile, mesh)
        kernel_times(book, name, made.placed, made.backward, profile)
        found.append(Order.of([*done[:shared], *done[begun:]]))
    return found


class _NotYet(Exception):
    """What was asked for follows from what is kept for backward."""


@dataclass(frozen=True)
class _Block:
    """A block of which it is not known what is kept for backward."""

    differentiated: Differentiated

    @property
    def placed(self) -> Placed:
        return self.differentiated.placed

    def __getattr__(self, name: str) -> Any:
        raise _NotYet


class _Unknown(Mapping[str, Any]):
    """The layers under full recomputation, while it is not known whether there are any."""

    def __getitem__(self, name: str) -> Any:
        raise _NotYet

    __iter__ = __len__ = __getitem__  # type: ignore[assignment]

    def get(self, name: str, default: Any = None) -> Any:
        raise _NotYet


def _static_apart(book: Derivation, model: Architecture, strategy: Strategy, given: Mapping[str, str], done: Sequence[Any]) -> list[Order]:
    """What stays in memory for the whole step as the first that is made: it does not wait for what is kept for backward. None where it does."""
    begun = len(done)
    profile, mesh, declared = declared_under(model, strategy, given)
    blocks = {name: _Block(differentiated(block, profile, mesh)) for name, block in declared.items()}
    kinds = {"block": blocks, "checkpointed": _Unknown()}
    lowered = Lowered(profile, mesh, *(cast(Mapping[str, Remembered], parts_of(strategy, kind, known)) for kind, known in kinds.items()))
    try:
        count_parameters(lowered, book)
        define_static(rank_of(book, lowered))
    except _NotYet:
        return []
    return [Order.of(done[begun:])]


def _again(lowered: Lowered) -> dict[tuple[str, bool], tuple[str, ...]]:
    found = {}
    for whole, blocks in ((False, lowered.blocks), (True, lowered.checkpointed)):
        for name, remembered in blocks.items():
            ops = [op for at, op in enumerate(remembered.placed.block.ops) if at in remembered.recomputed and op.kind not in UNCOUNTED]
            found[name, whole] = tuple(of_block("t", name, operation=op.name, phase="forward").text for op in ops)
    return found


def _of_numbers(found: Evaluation) -> frozenset[str]:
    """The options that numbers of symbols follow from (numbers of the system that a recipe or an order of ranks changes)."""
    strategy = watched(found.strategy)
    again = Evaluation(found.model, strategy, found.assumptions, found.lowered, found.counted, found.overrides, found.system)
    assert again.values
    return was_read(strategy)
