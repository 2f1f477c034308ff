"""What a pass made, kept by what it read: options of a strategy add to the work of a derivation, and do not multiply it.

A pass that is marked `once` runs where it has not run on the same inputs before; else what it made is taken, its definitions among it. Its
inputs are what it is called with, and all that it reads meanwhile: options of the strategy, axes of the mesh, stores of parameters, groups
of ranks, definitions of the book. These reads are traced, in their order, so that nobody lists which option matters to which pass.

A number that a derivation knows by its symbol alone is not an input: of a size it is whether it is given, of degrees the answers of
`deciding` to which the degrees that were read are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar, cast

from symsim.algebra.expr import Expr
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key
from symsim.algebra.quantity import Definition
from symsim.inputs.assumptions import Remembered
from symsim.inputs.reads import Item, Reads
from symsim.inputs.strategy import ANSWERS, Strategy
from symsim.inputs.system import System
from symsim.inputs.traced_mappings import One, Parts, Reading

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = frozenset(Strategy.model_fields)
_PLAIN = frozenset((str, int, bool, float, Fraction, type(None), Expr, Key, frozenset))


def once(work: Callable[P, R]) -> Callable[P, R]:
    """A pass that is run once for each set of its inputs, where it is called with what stands on a traced strategy."""

    @wraps(work)
    def run(*args: P.args, **named: P.kwargs) -> R:
        memory = _memory_of(args)
        return work(*args, **named) if memory is None else cast(R, memory.made(work, args, named))

    return run


def reading(strategy: Strategy, kind: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mapping that follows from a strategy, as passes read it."""
    return strategy.memory.reading(kind, mapping) if type(strategy) is Traced else mapping


def parts_of(strategy: Strategy, kind: str, mapping: Mapping[str, R]) -> Mapping[str, R]:
    """What passes made by name, of which others read a part each: not the whole is read, but the fields that are asked for."""
    if type(strategy) is not Traced:
        return mapping
    return cast(Mapping[str, R], strategy.memory.reading(kind, mapping, Parts))


def _memory_of(args: tuple[Any, ...]) -> "Memory | None":
    for a in args:
        strategy = a if type(a) is Traced else getattr(getattr(a, "profile", a), "strategy", None)
        if type(strategy) is Traced:
            return strategy.memory
    return None


class Traced:
    """The strategy of the derivation at hand, as passes read it: what was made of an earlier one sees this one too."""

    __slots__ = ("memory",)

    def __init__(self, memory: "Memory"):
        self.memory = memory

    def __getattr__(self, name: str) -> Any:
        memory = self.memory
        if name in _OPTIONS:
            if memory.pass_ is not None:
                memory.pass_.option(name)
            else:
                memory.done.append(name)
            return memory.strategy.__dict__[name]
        if name in ANSWERS:
            if memory.pass_ is not None:
                memory.pass_.note(("answer", name))
            else:
                memory.done.append(name)
            return getattr(memory.strategy, name)
        found = getattr(Strategy, name)
        return found.fget(self) if isinstance(found, property) and found.fget is not None else found.__get__(self)


class _Book(Derivation):
    """The definitions of the derivation at hand, the reads and makings of which are traced."""

    def __init__(self, memory: "Memory"):
        super().__init__()
        self._memory = memory

    def keep(self, made: Definition) -> None:
        made = self._memory.one_of(made)
        self.definitions.setdefault(made.symbol, made)
        if self._memory.pass_ is not None:
            self._memory.pass_.writes[made.symbol] = made
        else:
            self._memory.done.append(made)

    def empty(self) -> None:
        """Without definitions, of which nobody is told."""
        self.definitions.clear()
        self._sorted, self._by_quantity = 0, {}

    def take(self, made: Mapping[str, Definition]) -> None:
        """Definitions by their symbols, of which nobody is told."""
        if self.definitions.keys().isdisjoint(made):
            self.definitions.update(made)
        else:
            self.definitions.update({name: one for name, one in made.items() if name not in self.definitions})

    def get(self, name: str) -> Definition | None:
        if self._memory.pass_ is not None:
            self._memory.pass_.definition(name)
        return self.definitions.get(name)

    def __contains__(self, key: Key) -> bool:
        if self._memory.pass_ is not None:
            self._memory.pass_.presence(key.text)
        return key.text in self.definitions

    def __getitem__(self, key: Key) -> Definition:
        found = self.get(key.text)
        if found is None:
            raise KeyError(key.text)
        return found

    def keys(self, *quantities: str, **fields: object) -> list[Key]:
        if self._memory.pass_ is not None:
            self._memory.pass_.keys(quantities, tuple(fields.items()))
        return self.matching(quantities, fields.items())


class _Pass:
    """A pass that runs: what it has read so far, in order, and what it has defined."""

    def __init__(self, memory: "Memory"):
        self.memory = memory
        self.reads: dict[Item, Hashable] = {}
        self.writes: dict[str, Definition] = {}
        self.mappings: dict[str, Mapping[str, Any]] = {}
        self.degrees: set[str] = set()

    def note(self, item: Item) -> None:
        # what it made itself follows from its reads
        if item not in self.reads and not (self.mappings and _mapping_of(item) in self.mappings):
            self.reads[item] = self.memory.value(item)

    def option(self, name: str) -> None:
        if name not in self.memory.degrees:
            self.note(("option", name))
        elif name not in self.degrees:
            self.degrees.add(name)
            for flag, needs in self.memory.needs.items():
                if name in needs and needs <= self.degrees:
                    self.note(("flag", flag))

    def definition(self, name: str) -> None:
        if name not in self.writes:
            self.note(("definition", name))

    def presence(self, name: str) -> None:
        if name not in self.writes:
            self.note(("presence", name))

    def keys(self, quantities: tuple[str, ...], fields: tuple[tuple[str, object], ...]) -> None:
        item = ("keys", (quantities, fields))
        if item not in self.reads:
            self.reads[item] = tuple(k for k in self.memory.book.matching(quantities, fields) if k.text not in self.writes)

    def inside(self, made: "Made") -> None:
        """A pass that ran, or was taken, inside of this one: what it read is read by this one too, but for what this one had made."""
        for item, value in made.reads:
            kind, which = item
            if kind == "keys":
                self.reads.setdefault(item, tuple(k for k in cast(Any, value) if k.text not in self.writes))
            elif kind in ("definition", "presence"):
                if which not in self.writes:
                    self.reads.setdefault(item, value)
            elif not self.mappings or _mapping_of(item) not in self.mappings:
                self.reads.setdefault(item, value)
        for name in made.degrees:
            self.option(name)
        self.writes.update(made.writes)
        self.mappings.update(made.mappings)


def _mapping_of(item: Item) -> Hashable:
    """Which mapping of the derivation is read: none of this name where it is something else."""
    kind, which = item
    return cast(tuple[str, ...], which)[0] if kind in ("field", "holds") else which if kind == "names" else kind


def order_of(done: "Iterable[Made | str | Definition]") -> tuple[dict[str, None], dict[str, tuple[int, Definition]]]:
    """Of what a derivation did (`Memory.done`) the options that were read, in their order; and by its symbol each definition, with how many of
    them it was made after: it stands on no option that is read only after it."""
    heard, made = dict[str, None](), dict[str, tuple[int, Definition]]()
    for one in done:
        if isinstance(one, str):
            heard[one] = None
        elif isinstance(one, Definition):
            made.setdefault(one.symbol, (len(heard), one))
        else:
            heard.update(dict.fromkeys(one.options))
            for symbol, definition in one.writes.items():
                made.setdefault(symbol, (len(heard), definition))
    return heard, made


@dataclass
class Made:
    """What a pass gave back, the definitions and the mappings that it made, what it read, and the degrees among that."""

    result: Any
    writes: Mapping[str, Definition]
    mappings: Mapping[str, Mapping[str, Any]]
    reads: tuple[tuple[Item, Hashable], ...]
    degrees: frozenset[str]

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Those that it read, and answers of several (`ANSWERS`), in their order."""
        return tuple(cast(str, which) for (kind, which), _ in self.reads if kind in ("option", "answer"))


class _Recorder:
    """A strategy that says which degrees were read of it."""

    def __init__(self, strategy: Strategy, degrees: frozenset[str]):
        self.strategy, self.degrees, self.read = strategy, degrees, set[str]()

    def __getattr__(self, name: str) -> Any:
        if name in self.degrees:
            self.read.add(name)
        found = getattr(Strategy, name, None)
        return found.fget(self) if isinstance(found, property) and found.fget is not None else getattr(self.strategy, name)


# the value of what a derivation has not come to yet: no pass read it so
_MISSING = object()


@dataclass(frozen=True)
class Before:
    """A derivation as far as a pass that is the first to define anything: what it is called with before all else, and what of the degrees and of what
    others made it can read. now: what is known of that; keys: of passes, with what else they are called with."""

    args: tuple[Any, ...]
    book: _Book
    mappings: Mapping[str, Mapping[str, Any]]
    flags: dict[str, Hashable]
    needs: dict[str, frozenset[str]]
    now: dict[Item, Hashable] = field(default_factory=dict)
    keys: dict[Hashable, Hashable] = field(default_factory=dict)


class Memory:
    """What passes made in the derivations of one model, under the same assumptions, on systems that give the same numbers.

    sizes: options of which it matters whether they are given. degrees: options of which `deciding` is what matters: by name, functions of a
    strategy. runs: how often a pass ran, and how often what it had made was taken, by its name.
    """

    def __init__(self, sizes: Iterable[str], degrees: Iterable[str], deciding: Mapping[str, Callable[[Any], Any]]):
        self.sizes, self.degrees, self._deciding = frozenset(sizes), frozenset(degrees), deciding
        self.pass_: _Pass | None = None
        self.mappings: dict[str, Mapping[str, Any]] = {}
        self.runs: dict[str, list[int]] = {}
        self._traced = Traced(self)
        self.readings: dict[str, Reading] = {}
        self._roots: dict[Hashable, Reads[Made]] = {}
        self._results: dict[Reads[Made], list[Any]] = {}
        self._definitions: dict[Definition, Definition] = {}
        self._numbers: dict[Hashable, int] = {}
        # of what was met, by its place in memory, which it must not leave: a number that equal ones share
        self._parts: dict[int, tuple[int | None, Any]] = {}

    def begin(self, strategy: Strategy) -> tuple[Strategy, Derivation]:
        """A derivation begins; the strategy that its passes are to read, and the book that they write."""
        self.strategy = strategy
        # those of another derivation are not this one's
        self.mappings = {}
        # in their order passes, and outside of them options that were read and definitions that were made
        self.done: list[Made | str | Definition] = []
        self.book = _Book(self)
        self._now: dict[Item, Hashable] = {}
        self._flags: dict[str, Hashable] = {}
        self.needs: dict[str, frozenset[str]] = {}
        for name, read in self._deciding.items():
            recorder = _Recorder(strategy, self.degrees)
            self._flags[name] = read(recorder)
            self.needs[name] = frozenset(recorder.read)
        return cast(Strategy, self._traced), self.book

    def reading(self, kind: str, mapping: Mapping[str, Any], form: type[Reading] = Reading) -> Mapping[str, Any]:
        """A mapping of this derivation whose reads are traced; the same object in all."""
        self.mappings[kind] = mapping
        if self.pass_ is not None:
            self.pass_.mappings[kind] = mapping
        if kind not in self.readings:
            self.readings[kind] = form(self, kind)
        return self.readings[kind]

    def one_of(self, made: Definition) -> Definition:
        """The one object of equal definitions."""
        return self._definitions.setdefault(made, made)

    def value(self, item: Item) -> Hashable:
        kind, which = item
        if kind == "definition":
            there = self.book.definitions.get(cast(str, which))
            return 0 if there is None else id(there)
        if kind == "presence":
            return which in self.book.definitions
        if kind == "keys":
            return tuple(self.book.matching(*cast(Any, which)))
        if item not in self._now:
            self._now[item] = self._part_value(kind, which) if kind in ("field", "holds", "names") else self._value(kind, cast(str, which))
        return self._now[item]

    def _part_value(self, kind: str, which: Any) -> Hashable:
        """Of a mapping its names, whether it holds one, or a field of what it holds; nothing of what it does not."""
        mapping = self.mappings.get(which if kind == "names" else which[0])
        if mapping is None:
            return _MISSING
        if kind == "names":
            return tuple(mapping)
        whole = mapping.get(which[1])
        if kind == "holds":
            return whole is not None
        return None if whole is None else self._part(getattr(whole, which[2]))

    def _value(self, kind: str, name: str) -> Hashable:
        if kind == "flag":
            return self._flags[name]
        if kind == "answer":
            return cast(bool, getattr(self.strategy, name))
        if kind == "option":
            found = self.strategy.__dict__[name]
            # true is 1, and another option than it
            return found is not None if name in self.sizes else (type(found), found)
        mapping = self.mappings.get(kind)
        if mapping is None:
            return _MISSING
        found = mapping.get(name)
        # of an axis of the mesh: whether there is one
        return found is not None and found > 1 if kind == "axis" else cast(Hashable, found)

    def made(self, work: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What a pass makes of these: as it did before, where it reads the same."""
        key = self._key(work, args, named)
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = Reads()
        found = root.found(self._now, self.value)
        counts = self.runs.setdefault(work.__name__, [0, 0])
        counts[found is not None] += 1
        if found is None:
            found = self._run(root, work, args, named)
        else:
            self.book.take(found.writes)
            self.mappings.update(found.mappings)
        if self.pass_ is not None:
            self.pass_.inside(found)
        else:
            self.done.append(found)
        return found.result

    def before(self, args: tuple[Any, ...]) -> Before:
        """The derivation at hand as far as passes (`once`) that are to be run on these, and on more."""
        assert not self.book.definitions
        return Before(args, self.book, dict(self.mappings), self._flags, self.needs)

    def resumed(self, before: Before, strategy: Strategy, work: Callable[..., Any], further: tuple[Any, ...]) -> Made:
        """What a pass makes, or made where it read the same, of a strategy under which a derivation comes to it in the same way. further: what it is
        called with besides.

        Raises what the pass does.
        """
        self.strategy, self.book, self.done = strategy, before.book, []
        self._flags, self.needs, self._now = before.flags, before.needs, before.now
        self.book.empty()
        self.mappings = dict(before.mappings)
        key = before.keys.get((work, further))
        if key is None:
            key = before.keys[work, further] = self._key(cast(Any, work).__wrapped__, (*before.args, *further), {})
        root = self._roots.get(key)
        found = None if root is None else root.found(self._now, self._anew)
        if found is None:
            self._now = dict(before.now)
            work(*before.args, *further)
            found = cast(Made, self.done[-1])
        return found

    def _anew(self, item: Item) -> Hashable:
        """A value; what follows from options alone is not kept."""
        kind, which = item
        return self._value(kind, cast(str, which)) if kind in ("option", "answer") else self.value(item)

    def _key(self, work: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable:
        return (work, *map(self._part, args), *((n, self._part(a)) for n, a in named.items()))

    def _run(self, root: Reads[Made], work: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Made:
        for a in args:
            if hasattr(a, "forget"):
                a.forget()
        outer, one = self.pass_, _Pass(self)
        self.pass_ = one
        try:
            result = work(*args, **named)
        finally:
            self.pass_ = outer
        # what comes out equal is one object, so that passes which take it are not run again
        before = self._results.setdefault(root, [])
        result = next((r for r in before if r == result), result)
        before.append(result)
        made = Made(result, one.writes, one.mappings, tuple(one.reads.items()), frozenset(one.degrees))
        root.keep(made.reads, made)
        return made

    def _part(self, a: Any) -> Hashable:
        """What tells an input from another: its value, that of what it stands on, or that it is this object."""
        if type(a) in _PLAIN:
            return cast(Hashable, a)
        known = self._parts.get(id(a))
        if known is None:
            if type(a) is One:
                return a.kind, a.name
            told = None
            if not isinstance(a, (Traced, _Book, Reading, System, Remembered)):
                found = self._composed(a)
                told = self._numbers.setdefault(found, len(self._numbers))
            known = self._parts[id(a)] = (told, a)
        return known[0]

    def _composed(self, a: Any) -> Hashable:
        if isinstance(a, tuple):
            return ("tuple", *map(self._part, a))
        stands_on = getattr(a, "stands_on", None)
        if stands_on is not None:
            return (type(a), *map(self._part, stands_on))
        if isinstance(a, Mapping):
            return tuple((k, self._part(v)) for k, v in a.items())
        return (id(a),)
