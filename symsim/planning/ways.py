"""What passes make under every row of options that are still free: their reads are traced, and each row of an option is tried that was read.

Some passes are programs of their own, which read few options: those of a block, what stays in memory, what follows the pipeline. Run under the
first row of every option they tell which free option they read first; run for each row of it, and of each such again for what they read
next, they come to all ways in which any strategy has them. A way is kept by the rows that led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, cast

from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_stage, of_step
from symsim.algebra.key import of_block as block_key
from symsim.algebra.kinds import HEAD
from symsim.algebra.quantity import SECOND, Definition, total
from symsim.cost.block_time import block_time, kernel_times
from symsim.cost.collectives import Network
from symsim.cost.count import count_parameters, define_kept, derived_sizes
from symsim.cost.deferred import define_waiting
from symsim.cost.memory_rank import rank_of
from symsim.cost.memory_static import define_static
from symsim.cost.reserve import RESERVES, define_reserve
from symsim.cost.step_time import define_boundary, define_tail, network_of
from symsim.errors import InputError
from symsim.frameworks.kernels import Profile
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategies import read_strategy
from symsim.inputs.strategy import ANSWERS, Strategy
from symsim.inputs.system import System
from symsim.inputs.traced import Before, Made, Memory, once, order_of, parts_of
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import Differentiated
from symsim.lowering.lower import blocks_of, declared_block, differentiated, placed_under, remembered
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered
from symsim.lowering.tuned import tuned
from symsim.lowering.weights import of_weights
from symsim.placement.mesh import Mesh
from symsim.planning.frameworks import Choice
from symsim.planning.kinds import Kinds

# options that the model which is derived follows from
OF_TRAINED = frozenset(("mtp_num_layers", "task_type"))

Values = Mapping[str, Any]
Inputs = Callable[[Derivation, System, Architecture, Strategy, Mapping[str, str]], tuple[Any, ...]]
# by the number of a choice the row taken
Chosen = Mapping[int, int]


@dataclass(frozen=True)
class Rows:
    """The rows of a choice, as the options of a strategy have them; None for one that is no strategy without further options."""

    names: tuple[str, ...]
    rows: tuple[Values | None, ...]


def rows_of(choice: Choice) -> Rows:
    return Rows(choice.names, tuple(_row(choice, row) for row in choice.rows))


def _row(choice: Choice, row: Sequence[Any]) -> Values | None:
    try:
        made = read_strategy(dict(zip(choice.names, row)))[0]
    except InputError:
        return None
    return {name: made.__dict__[name] for name in choice.names}


def answers_that_vary(base: Strategy, choices: Sequence[Rows], others: frozenset[str]) -> dict[str, frozenset[str]]:
    """The answers (`ANSWERS`) that are not the same for all rows of choices, or that follow from other axes too, with the options that they follow
    from."""
    found = {}
    for answer, of in ANSWERS.items():
        deciding = [rows for rows in choices if not of.isdisjoint(rows.names)]
        if of.isdisjoint(others) and all(None not in rows.rows for rows in deciding):
            every = product(*(cast(tuple[Values, ...], rows.rows) for rows in deciding))
            if len({getattr(base.model_copy(update={n: v for row in rows for n, v in row.items()}), answer) for rows in every}) == 1:
                continue
        found[answer] = of
    return found


@dataclass(frozen=True, eq=False)
class Way:
    """What passes make under some rows, one object for what is the same. definitions: by symbol what is wanted, and what it stands on; each is the
    one object of its memory."""

    definitions: Mapping[str, Definition]
    _parts: dict[tuple[Key, ...], tuple[frozenset[int], Mapping[str, Definition]]] = field(default_factory=dict)

    def part(self, wanted: tuple[Key, ...]) -> tuple[frozenset[int], Mapping[str, Definition]]:
        """Of the definitions some, with all that they stand on; and what is equal where ways differ in others alone."""
        if wanted not in self._parts:
            closed = _closed(self.definitions, wanted.__contains__)
            self._parts[wanted] = frozenset(map(id, closed.values())), closed
        return self._parts[wanted]

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """What the definitions stand on that is none of them."""
        used = frozenset[str]().union(*(one.expr.symbols() for one in self.definitions.values()))
        return tuple(sorted(used - self.definitions.keys()))


@dataclass(frozen=True)
class Passes:
    """work: a pass (`once`) that defines what follows from what it is called with: from what `inputs` makes of a strategy as it is read, and further.
    wanted: which of it is asked for. several: sets of choices which, where none of them is made, led to more ways than were asked for, whatever the
    points."""

    inputs: Inputs
    work: Callable[..., None]
    wanted: Callable[[Key], bool]
    further: tuple[Any, ...] = ()
    several: set[frozenset[int]] = field(default_factory=set, compare=False)
    _ways: dict[int, tuple[Made, "Way"]] = field(default_factory=dict, compare=False)
    _distinct: dict[frozenset[int], "Way"] = field(default_factory=dict, compare=False)

    def way(self, made: Made) -> "Way":
        """Of what the pass made."""
        found = self._ways.get(id(made))
        if found is None:
            closed = _closed(made.writes, self.wanted)
            found = self._ways[id(made)] = made, self._distinct.setdefault(frozenset(map(id, closed.values())), Way(closed))
        return found[1]


@dataclass
class Derivations:
    """Points that share a derivation, under any rows of the choices. kinds: those of the model's layers. base: a strategy of theirs, with the first
    row of every choice that is not made before all else. answers: those that are not the same for all rows."""

    memory: Memory
    model: Architecture
    kinds: Kinds
    base: Strategy
    system: System
    assumptions: Mapping[str, str]
    choices: Sequence[Rows]
    answers: Mapping[str, frozenset[str]]
    _deciding: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _begun: dict[Inputs, list["_Begun"]] = field(default_factory=dict)

    @cached_property
    def tuned(self) -> Architecture:
        return tuned(self.model, self.memory.begin(self.base)[0])

    @cached_property
    def given(self) -> Mapping[str, str]:
        return resolve(self.assumptions)

    def has(self, at: int, row: int) -> bool:
        """Whether the base has this row of a choice."""
        values = self.choices[at].rows[row]
        return values is not None and all(_same(self.base.__dict__[name], value) for name, value in values.items())

    def under(self, chosen: Chosen) -> Strategy | None:
        """The base with these rows; None where one of them is no strategy."""
        values = [self.choices[at].rows[row] for at, row in chosen.items()]
        return None if None in values else self.base.model_copy(update={n: v for row in values if row is not None for n, v in row.items()})

    def deciding(self, name: str) -> tuple[int, ...]:
        """The choices that an option or answer follows from."""
        if name not in self._deciding:
            of = self.answers.get(name, frozenset((name,)))
            self._deciding[name] = tuple(at for at, rows in enumerate(self.choices) if not of.isdisjoint(rows.names))
        return self._deciding[name]

    @cached_property
    def of_kinds(self) -> tuple[int, ...]:
        """The choices that the kinds of layers follow from."""
        return tuple(sorted({at for name in self.kinds.of(self.base).read for at in self.deciding(name)}))

    def begun(self, inputs: Inputs, strategy: Strategy) -> "_Begun":
        """The derivation of a strategy under which layers are of the same kinds, as far as passes that are called with these."""
        known = self._begun.setdefault(inputs, [])
        found = next((one for one in known if one.holds(strategy)), None)
        if found is None:
            args = self._inputs(inputs, strategy)
            heard = tuple(dict.fromkeys(at for name in order_of(self.memory.done)[0] for at in self.deciding(name)))
            values = {name: strategy.__dict__[name] for at in heard for name in self.choices[at].names}
            found = _Begun(heard, values, None if args is None else self.memory.before(args))
            known.append(found)
        return found

    def _inputs(self, inputs: Inputs, strategy: Strategy) -> tuple[Any, ...] | None:
        """None where a derivation does not come to them."""
        model = self.tuned
        read, book = self.memory.begin(strategy)
        try:
            return inputs(book, self.system, model, read, self.given)
        except (InputError, _NotYet):
            return None


@dataclass
class _Node:
    """Some rows chosen, and what is made under them and the base's rows of the rest. way: None where that cannot be derived; heard: the choices of
    which options were read, in their order; at: the first of them that is not made."""

    way: Way | None
    heard: tuple[int, ...] = ()
    at: int | None = None
    rows: dict[int, "_Node"] = field(default_factory=dict)

    def after(self, chosen: Chosen) -> "_Node":
        """The same where further rows are chosen that the base has: nothing is made anew."""
        return _Node(self.way, self.heard, next((at for at in self.heard if at not in chosen), None))


@dataclass(frozen=True)
class _Begun:
    """A derivation as far as passes: the choices of which options were read until then, besides those that kinds of layers follow from, with the
    values that these had. before: None where it does not come to them."""

    heard: tuple[int, ...]
    values: Values
    before: Before | None

    def holds(self, strategy: Strategy) -> bool:
        return all(_same(strategy.__dict__[name], value) for name, value in self.values.items())


@dataclass
class Tree:
    """The ways of some passes at points that share a derivation, looked for as far as they are asked for."""

    of: Derivations
    passes: Passes
    _root: _Node | None = None

    def ways(self, chosen: Chosen, most: int) -> tuple[list[Way] | None, list[int]]:
        """Those that strategies have under the rows chosen (None where there are more than so many, or where one cannot be derived), and the choices
        not made that decide between them, as far as was looked."""
        for known in self.passes.several:
            if known.isdisjoint(chosen):
                return None, sorted(known)
        if self._root is None:
            self._root = self._made({})
        found: dict[Way, None] = {}
        asked: dict[int, None] = {}
        waiting: list[tuple[_Node, dict[int, int]]] = [(self._root, {})]
        runs = 0
        while waiting:
            node, at = waiting.pop()
            way, next_ = node.way, node.at
            if way is None:
                return None, list(asked)
            if next_ is None:
                found[way] = None
                runs += 1
                continue
            rows: Iterable[int] = (chosen[next_],) if next_ in chosen else range(len(self.of.choices[next_].rows))
            if next_ not in chosen:
                asked[next_] = None
            for row in rows:
                if row not in node.rows:
                    if runs + len(waiting) >= most:
                        self.passes.several.add(frozenset(asked))
                        return None, list(asked)
                    further = {**at, next_: row}
                    node.rows[row] = node.after(further) if self.of.has(next_, row) else self._made(further)
                waiting.append((node.rows[row], {**at, next_: row}))
            if runs + len(waiting) > most:
                self.passes.several.add(frozenset(asked))
                return None, list(asked)
        return list(found), list(asked)

    def _made(self, chosen: Chosen) -> _Node:
        of, passes = self.of, self.passes
        strategy = of.under(chosen)
        if strategy is None or not of.kinds.same(strategy, of.base):
            return _Node(None)
        begun = of.begun(passes.inputs, strategy)
        if begun.before is None:
            return _Node(None)
        try:
            made = of.memory.resumed(begun.before, strategy, passes.work, passes.further)
        except (InputError, _NotYet):
            return _Node(None)
        heard = (at for name in made.options for at in of.deciding(name))
        return _Node(passes.way(made), tuple(dict.fromkeys((*of.of_kinds, *begun.heard, *heard)))).after(chosen)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _closed(made: Mapping[str, Definition], wanted: Callable[[Key], bool]) -> dict[str, Definition]:
    """What is wanted of definitions, with all that it stands on."""
    found: dict[str, Definition] = {}
    waiting = [one for one in made.values() if wanted(one.key)]
    while waiting:
        one = waiting.pop()
        if one.symbol not in found:
            found[one.symbol] = one
            waiting += [made[name] for name in one.expr.symbols() if name in made]
    return found


# the passes -----------------------------------------------------------------------------------------------------------


def of_kernels(name: str, again: bool) -> Passes:
    """The kernels of a block, forward and backward; again: those that run again too."""

    def wanted(key: Key) -> bool:
        return key.scope == "block" and key.quantity == "t" and bool(key.operation or key.phase == "again")

    return Passes(_places, _kernels, wanted, (name, again))


def _places(book: Derivation, system: System, model: Architecture, strategy: Strategy, given: Mapping[str, str]) -> tuple[Any, ...]:
    return (book, *placed_under(model, strategy, given))


def of_block(name: str) -> Passes:
    """All that a block takes of a micro-batch's time, and what it keeps."""

    def wanted(key: Key) -> bool:
        """Sums of kernels by phase, messages that nothing hides by axis, and all that is kept, and that waits."""
        timed = (key.quantity == "t" and key.phase) or (key.quantity == "e" and key.axis)
        return key.scope == "block" and not key.operation and bool(timed or (key.quantity == "A" and not key.tensor and key.part in ("", "waiting")))

    return Passes(_connects, _block, wanted, (name,))


def _connects(book: Derivation, system: System, model: Architecture, strategy: Strategy, given: Mapping[str, str]) -> tuple[Any, ...]:
    profile, mesh = placed_under(model, strategy, given)
    return book, profile, mesh, network_of(book, system, Lowered(profile, mesh, {}, {}))


@once
def _kernels(book: Derivation, profile: Profile, mesh: Mesh, name: str, again: bool) -> None:
    made = differentiated(declared_block(profile, mesh, name), profile, mesh)
    kernels = kernel_times(book, name, made.placed, made.backward, profile)
    derived_sizes(book, Lowered(profile, mesh, {}, {}))
    for whole, form in _forms(made, profile, name).items() if again else ():
        repeated = total((seconds for i, seconds in kernels.forward.items() if i in form.recomputed), SECOND)
        book.define(block_key("t", name, whole, phase="again"), repeated, "kernels that run again", unit=SECOND)


def _forms(made: Differentiated, profile: Profile, name: str) -> dict[bool, Remembered]:
    """A block as the strategy recomputes it, and a layer in full where some may be."""
    forms = {False: remembered(made, profile, False)}
    if profile.strategy.recompute not in ("none", "selective") and name in profile.model.layer_kinds:
        forms[True] = remembered(made, profile, True)
    return forms


@once
def _block(book: Derivation, profile: Profile, mesh: Mesh, network: Network, name: str) -> None:
    made = differentiated(declared_block(profile, mesh, name), profile, mesh)
    kernels = kernel_times(book, name, made.placed, made.backward, profile)
    forms = _forms(made, profile, name)
    lowered = Lowered(profile, mesh, {name: forms[False]}, {name: forms[True]} if True in forms else {})
    derived_sizes(book, lowered)
    for whole, form in forms.items():
        block_time(book, network, lowered, name, whole, form, kernels)
        define_kept(book, name, form, profile, whole)
    if name == HEAD:
        define_waiting(book, lowered)


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


@dataclass(frozen=True)
class _Sending(_Block):
    """The same, with the messages that backward sends whatever is kept."""

    @property
    def backward_messages(self) -> Any:
        return self.differentiated.backward_messages


class _Unknown(Mapping[str, Any]):
    """The layers under full recomputation, while it is not known whether there are any."""

    def __getitem__(self, name: str) -> Any:
        raise _NotYet

    __iter__ = __len__ = __getitem__  # type: ignore[assignment]

    def get(self, name: str, default: Any = None) -> Any:
        raise _NotYet


@once
def _of_weights(made: Differentiated, profile: Profile) -> Differentiated:
    """What is read of a block here: all of it where states follow from shapes that kernels behind a product give, or where kernels are named."""
    strategy = profile.strategy
    return made if OPTIMIZERS[strategy.optimizer].by_shape or strategy.offload_operations is not None else of_weights(made)


@once
def _by_weights(profile: Profile, mesh: Mesh) -> dict[str, Differentiated]:
    return {name: _of_weights(differentiated(declared_block(profile, mesh, name), profile, mesh), profile) for name in blocks_of(profile.model)}


def _before_kept(model: Architecture, strategy: Strategy, given: Mapping[str, str]) -> tuple[Lowered, Lowered]:
    """Without what is kept for backward; and with the messages that backward sends whatever is kept."""
    profile, mesh = placed_under(model, strategy, given)
    made = _by_weights(profile, mesh)
    strict, sending = ({name: kind(one) for name, one in made.items()} for kind in (_Block, _Sending))
    parts = [("block early", strict), ("checkpointed early", _Unknown()), ("block sending", sending), ("checkpointed sending", _Unknown())]
    found = [cast(Mapping[str, Remembered], parts_of(strategy, kind, blocks)) for kind, blocks in parts]
    return Lowered(profile, mesh, *found[:2]), Lowered(profile, mesh, *found[2:])


def _stays(book: Derivation, system: System, model: Architecture, strategy: Strategy, given: Mapping[str, str]) -> tuple[Any, ...]:
    return (book, *_before_kept(model, strategy, given))


@once
def _staying(book: Derivation, lowered: Lowered, sending: Lowered) -> None:
    count_parameters(lowered, book)
    define_static(rank_of(book, lowered))
    define_reserve(rank_of(book, sending))


def _follows(book: Derivation, system: System, model: Architecture, strategy: Strategy, given: Mapping[str, str]) -> tuple[Any, ...]:
    lowered, _ = _before_kept(model, strategy, given)
    return book, network_of(book, system, lowered), lowered


@once
def _following(book: Derivation, network: Network, lowered: Lowered) -> None:
    count_parameters(lowered, book)
    define_tail(book, network, lowered)
    define_boundary(book, network, lowered)


STAY = tuple(of_stage("M", part) for part in ("weights", "gradients", "optimizer", "constant"))
KEPT_FREE = tuple(of_step("M_reserve", part) for part in RESERVES)
TAIL, BOUNDARY = of_stage("t", "tail"), Key("tc", "pipeline")


def staying() -> Passes:
    """What stays in memory for the whole step, and what is kept free beside it: the least, of groups that exchange messages whatever is kept for
    backward."""
    return Passes(_stays, _staying, lambda key: key in STAY or key in KEPT_FREE)


def following() -> Passes:
    """What follows the pipeline: gradients reduced, the update, parameters gathered; and what goes from stage to stage."""
    return Passes(_follows, _following, lambda key: key in (TAIL, BOUNDARY))
