"""What a block of the model costs under all rows of options that are still free: its passes by themselves, for every value that they read.

The passes of one block are a program too, which reads few options. They are run for each row of a free option that they read first, of each
such again for what they read next, until all ways are known: the block of any strategy of the set is one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import Definition
from symsim.cost.block_time import block_time, kernel_times
from symsim.cost.count import derived_sizes
from symsim.cost.step_time import network_of
from symsim.errors import InputError
from symsim.grid.stored import Asked
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategies import read_strategy
from symsim.inputs.strategy import ANSWERS, Strategy
from symsim.inputs.system import System
from symsim.inputs.traced import Memory, once, order_of
from symsim.lowering.lower import declared_block, differentiated, placed_under, remembered
from symsim.lowering.lowered import Lowered
from symsim.lowering.tuned import tuned
from symsim.planning.frameworks import Choice

# of a block that has more, none are known
_MOST_WAYS = 16

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """A block under some rows of free options. definitions: by symbol, those of its passes. in_full: whether layers of it are under full
    recomputation, so that there are those too."""

    definitions: Mapping[str, Definition]
    in_full: bool


@dataclass(frozen=True)
class Rows:
    """The rows of a choice, as the options of a strategy have them; none where one of them is no strategy without further options."""

    names: tuple[str, ...]
    rows: tuple[Values, ...]


def rows_of(choice: Choice) -> Rows:
    try:
        made = [read_strategy(dict(zip(choice.names, row)))[0] for row in choice.rows]
    except InputError:
        return Rows(choice.names, ())
    return Rows(choice.names, tuple({name: one.__dict__[name] for name in choice.names} for one in made))


def answers_that_vary(base: Strategy, choices: Sequence[Choice], others: frozenset[str]) -> dict[str, frozenset[str]]:
    """The answers (`ANSWERS`) that are not the same for all rows of choices, or that follow from other axes too, with the options that they follow
    from."""
    found = {}
    for answer, of in ANSWERS.items():
        deciding = [rows_of(choice) for choice in choices if not of.isdisjoint(choice.names)]
        if of.isdisjoint(others) and all(rows.rows for rows in deciding):
            every = product(*(rows.rows for rows in deciding))
            if len({getattr(base.model_copy(update={n: v for row in rows for n, v in row.items()}), answer) for rows in every}) == 1:
                continue
        found[answer] = of
    return found


@dataclass(frozen=True)
class Free:
    """Choices that are still free, and answers that are not the same for all of their rows."""

    choices: tuple[Rows, ...]
    answers: Mapping[str, frozenset[str]]

    def asked_for(self, heard: Iterable[str], chosen: Mapping[int, Values]) -> int | None:
        """The number of the choice that an option is of which was read first, of those not chosen yet."""
        for name in heard:
            of = self.answers.get(name, frozenset((name,)))
            for at, rows in enumerate(self.choices):
                if at not in chosen and not of.isdisjoint(rows.names):
                    return at
        return None


def ways_of(asked: Asked, memory: Memory, model: Architecture, name: str, free: Free) -> list[Way] | None:
    """Of a block, under all rows of free choices; None where there are too many, or a row that cannot be derived. The memory's derivation is none
    of the strategy's afterwards."""
    found: list[Way] = []
    waiting: list[dict[int, Values]] = [{}]
    assert asked.system is not None
    same, given = tuned(model, memory.begin(asked.strategy)[0]), resolve(asked.assumptions)
    while waiting:
        chosen = waiting.pop()
        read, book = memory.begin(asked.strategy.model_copy(update={n: v for row in chosen.values() for n, v in row.items()}))
        try:
            # one object where its kinds of layers are the same
            if (tuned_here := tuned(model, read)) is not same:
                return None
            way = Way(book.definitions, _way(book, asked.system, tuned_here, read, given, name))
        except InputError:
            return None
        at = free.asked_for(order_of(memory.done)[0], chosen)
        if at is None:
            found.append(way)
            continue
        rows = free.choices[at].rows
        if not rows or len(found) + len(waiting) + len(rows) > _MOST_WAYS:
            return None
        waiting += [{**chosen, at: row} for row in rows]
    return found


@once
def _way(book: Derivation, system: System, model: Architecture, strategy: Strategy, given: Mapping[str, str], name: str) -> bool:
    """The passes of one block, as the derivation has them; whether layers of it are under full recomputation."""
    profile, mesh = placed_under(model, strategy, given)
    made = differentiated(declared_block(profile, mesh, name), profile, mesh)
    kernels = kernel_times(book, name, made.placed, made.backward, profile)
    forms = {False: remembered(made, profile, False)}
    if strategy.recompute not in ("none", "selective") and name in profile.model.layer_kinds:
        forms[True] = remembered(made, profile, True)
    lowered = Lowered(profile, mesh, {name: forms[False]}, {name: forms[True]} if True in forms else {})
    derived_sizes(book, lowered)
    network = network_of(book, system, lowered)
    for whole, form in forms.items():
        block_time(book, network, lowered, name, whole, form, kernels)
    return True in forms
