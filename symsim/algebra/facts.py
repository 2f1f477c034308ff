"""Facts given with a question: equalities, inequalities, limits and domains, as text or built in Python.

    g = a                   the left side is what is replaced: a symbol, or the last factor of a product (a*d = h puts h/a for d)
    m >= pp, 1 <= i <= pp - 1, tw < tf
                            decide max, min, ceil, floor, log2 and `at` (`proof.py`)
    dp -> oo, alpha_1 -> 0  a limit: terms that vanish are dropped (`asymptote.py`)
    q: positive integer     a symbol that the vocabulary does not have, and where its values lie

Several are separated by commas, semicolons or newlines. Both sides are read by the grammar of formulas (`grammar.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Union

from symsim.algebra.asymptote import limit
from symsim.algebra.expr import ONE, ZERO, Call, Expr, Number, Symbol, expr, symbol
from symsim.algebra.grammar import parse
from symsim.algebra.proof import Inequality, Prover, is_whole
from symsim.algebra.resolve import Resolver
from symsim.algebra.terms import MOST_TERMS, most_terms
from symsim.algebra.vocabulary import domain
from symsim.errors import InputError, cut, nearest

RELATIONS = ("=", "<=", ">=", "<", ">", "->", ":")
DOMAINS = ("positive integer", "non-negative integer", "positive", "non-negative", "share", "real")
_RELATION = re.compile(r"(->|<=|>=|==|=|<|>|:)")
_INFINITE = ("oo", "inf", "infinity")


@dataclass(frozen=True)
class Fact:
    """left RELATION right; of a limit the right side is 'oo' or 0, of a domain one of DOMAINS. InputError for another."""

    left: Expr
    relation: str
    right: "Expr | str"

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise InputError(f"'{cut(self.relation)}' relates nothing: a fact has one of {' '.join(RELATIONS)}")
        if self.relation in ("->", ":") and not _is_symbol(self.left):
            raise InputError(f"'{cut(str(self.left))} {self.relation} ...': a symbol stands left of {self.relation}")
        if self.relation == "->" and self.right not in ("oo", ZERO):
            raise InputError(f"'{cut(str(self))}': a limit is to oo or to 0; to another value it is an equality")
        if self.relation == ":" and self.right not in DOMAINS:
            raise InputError(f"'{cut(str(self))}': {nearest(str(self.right), DOMAINS)}")
        if isinstance(self.right, str) and self.relation not in ("->", ":"):
            raise InputError(f"'{cut(str(self))}': an expression stands right of {self.relation}")

    @property
    def symbols(self) -> frozenset[str]:
        return self.left.symbols() | (self.right.symbols() if isinstance(self.right, Expr) else frozenset())

    @property
    def difference(self) -> Expr:
        """What is zero, or not negative, by the fact."""
        right = expr(self.right) if isinstance(self.right, Expr) else ZERO
        return right - self.left if self.relation in ("<", "<=") else self.left - right

    def __str__(self) -> str:
        return f"{self.left}{'' if self.relation == ':' else ' '}{self.relation} {self.right}"


Said = Union[str, Fact, Mapping[str, Union[Expr, Number]], Iterable[Union[str, Fact]]]
"""Facts as people give them: text, one or several objects, or values by name."""


def read_facts(said: Said) -> tuple[Fact, ...]:
    """Facts from text ('g = a, m >= pp'), from values by name, or as they are. InputError quotes what does not read."""
    if isinstance(said, Fact):
        return (said,)
    if isinstance(said, str):
        return tuple(f for part in _parts(said) for f in _chain(part))
    if isinstance(said, Mapping):
        return tuple(Fact(symbol(name), "=", expr(value)) for name, value in said.items())
    if not isinstance(said, Iterable):
        raise InputError(f"{cut(repr(said))} is no fact: text such as 'g = a', values by name, or several of these are")
    return tuple(f for one in said for f in read_facts(one))


def _parts(text: str) -> list[str]:
    """The text cut at commas outside parentheses, at semicolons and at newlines."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter in ";\n" or (letter == "," and depth <= 0):
            parts.append(text[start:at])
            start = at + 1
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def _chain(text: str) -> list[Fact]:
    """a <= b <= c is a <= b and b <= c."""
    sides = _RELATION.split(text)
    if len(sides) < 3:
        raise InputError(f"'{cut(text)}' is no fact: write an equality, an inequality, a limit (dp -> oo) or a domain (q: positive integer)")
    if not all(s.strip() for s in sides):
        raise InputError(f"'{cut(text)}': something is missing beside '{next(r for k, r in enumerate(sides) if k % 2)}'")
    found = []
    for left, relation, right in zip(sides[::2], sides[1::2], sides[2::2]):
        relation = "=" if relation == "==" else relation
        where = f"fact '{cut(text)}'"
        if relation == ":" or (relation == "->" and right.strip() in _INFINITE):
            side: Expr | str = right.strip() if relation == ":" else "oo"
        else:
            side = parse(right, where=where)
        found.append(Fact(parse(left, where=where), relation, side))
    return found


def declared(facts: Iterable[Fact]) -> dict[str, str]:
    """The domains that facts give to symbols."""
    return {str(f.left): str(f.right) for f in facts if f.relation == ":"}


def solved(facts: Iterable[Fact]) -> dict[str, Expr]:
    """What the equalities among the facts give, over symbols that none of them gives."""
    found: dict[str, Expr] = {}
    for fact in facts:
        if fact.relation != "=" or not isinstance(fact.right, Expr):
            continue
        left, right = fact.left.substitute(found), fact.right.substitute(found)
        if left != right:
            name, value = _solution(fact, left, right)
            found = {n: v.substitute({name: value}) for n, v in found.items()} | {name: value}
    return found


def _is_symbol(amount: Expr) -> bool:
    return len(amount.symbols()) == 1 and amount == symbol(next(iter(amount.symbols())))


Definitions = Sequence[tuple[str, Expr]]


def apply(definitions: Definitions, facts: Sequence[Fact], known: int = 0) -> tuple[list[tuple[str, Expr]], tuple[Fact, ...]]:
    """The definitions (in order, the last one is the result) as they are under the facts, and the facts that changed nothing.

    The first `known` facts were applied before. InputError for a fact about what is not there, or that contradicts another.
    """
    application = _Application(definitions, facts, known)
    application.check_names()
    application.solve_equalities()
    application.read_inequalities()
    application.decide()
    application.take_limits()
    return application.needed(), application.unused()


class _Application:
    def __init__(self, definitions: Definitions, facts: Sequence[Fact], known: int) -> None:
        self.definitions, self.facts, self.known = dict(definitions), facts, known
        self.result = definitions[-1][0]
        self.declared = declared(facts)
        self.solved: dict[str, Expr] = {}
        self.inequalities: list[Inequality] = []
        self.used = set(range(known))

    def domain(self, name: str) -> str:
        return self.declared.get(name) or domain(name)

    def check_names(self) -> None:
        there = self.definitions.keys() | {n for e in self.definitions.values() for n in e.symbols()}
        connected, left = set(there), list(self.facts[self.known :])
        earlier = {n for f in self.facts[: self.known] for n in f.symbols}
        connected |= earlier
        while True:
            met = [f for f in left if f.symbols & connected]
            if not met:
                break
            left = [f for f in left if f not in met]
            connected |= {n for f in met for n in f.symbols}
        free = sorted(there - self.definitions.keys())
        for fact in self.facts[self.known :]:
            if isinstance(fact.right, Expr) and fact.left == fact.right and fact.relation in ("=", "<=", ">="):
                raise InputError(f"fact '{cut(str(fact))}' says nothing: both sides are the same")
            new = sorted(n for n in fact.symbols - there - earlier if self.domain(n) == "real")
            if new:
                declare = f"a new symbol is declared, as '{new[0]}: positive integer'"
                raise InputError(f"fact '{cut(str(fact))}': {self.result} has no '{cut(new[0])}': {nearest(new[0], sorted(there), declare)}")
            if fact in left:
                raise InputError(f"fact '{cut(str(fact))}' says nothing of {self.result}, whose symbols are {_some(free)}")

    def solve_equalities(self) -> None:
        """Put one side of every equality in the place of a symbol of the other."""
        for number, fact in enumerate(self.facts):
            if fact.relation != "=" or not isinstance(fact.right, Expr):
                continue
            left, right = fact.left.substitute(self.solved), fact.right.substitute(self.solved)
            if left == right:
                continue
            if (left - right).is_constant:
                raise InputError(f"fact '{cut(str(fact))}' contradicts the others: it would be {left - right} = 0")
            name, value = _solution(fact, left, right)
            self._check_domain(number, name, value)
            if name in self.definitions or any(name in e.symbols() for e in self.definitions.values()):
                self.used.add(number)
            self.solved = {n: v.substitute({name: value}) for n, v in self.solved.items()} | {name: value}
            self.inequalities += self._bounds(name, value, number)
        if self.solved.keys() & {self.result}:
            raise InputError(f"a fact gives {self.result} itself, which is what is asked")
        kept: dict[str, Expr] = {}
        for name, amount in self.definitions.items():
            if name not in self.solved:
                with _divides_by_nothing(name):
                    kept[name] = amount.substitute(self.solved)
        self.definitions = _ordered(kept) if kept.keys() & {n for v in self.solved.values() for n in v.symbols()} else kept

    def _bounds(self, name: str, value: Expr, number: int) -> Iterator[Inequality]:
        """What the domain of a symbol says of the value that is put in its place."""
        kind, known = self.domain(name), Prover(self.domain, self.inequalities)
        if kind == "share" and not known.nonnegative(1 - value):
            yield Inequality(1 - value, False, number)
        if kind == "positive integer" and not known.nonnegative(value - 1):
            yield Inequality(value - 1, False, number)
        if kind in ("positive", "share") and not known.positive(value):
            yield Inequality(value, True, number)
        if kind.startswith("non-negative") and not known.nonnegative(value):
            yield Inequality(value, False, number)

    def _check_domain(self, which: int, name: str, value: Expr) -> None:
        if not value.is_constant:
            return
        fact = self.facts[which]
        number, kind = value.constant(), self.domain(name)
        outside = (kind.startswith("positive") or kind == "share") and number <= 0
        outside |= (kind.startswith("non-negative") and number < 0) or (kind == "share" and number > 1)
        if outside or (kind.endswith("integer") and number != int(number)):
            kind = kind.replace("share", "share in (0, 1]")
            earlier = [f for f in self.facts[:which] if f.relation == "=" and f.symbols & fact.symbols]
            if earlier:
                said = " and ".join(f"'{cut(str(f))}'" for f in earlier)
                raise InputError(f"fact '{cut(str(fact))}' contradicts {said}: {name} would be {number}, and is a {kind}")
            raise InputError(f"fact '{cut(str(fact))}': {name} is a {kind}")

    def read_inequalities(self) -> None:
        for number, fact in enumerate(self.facts):
            if fact.relation not in ("<", "<=", ">", ">="):
                continue
            amount, strict = fact.difference.substitute(self.solved), fact.relation in ("<", ">")
            if strict and is_whole(amount, self.domain):
                amount, strict = amount - 1, False
            others = Prover(self.domain, self.inequalities)
            if others.nonnegative(-amount) if strict else others.positive(-amount):
                raise InputError(f"fact '{cut(str(fact))}' cannot hold: {_against(self.facts, others.used)}")
            self.inequalities.append(Inequality(amount, strict, number))

    def decide(self) -> None:
        """Resolve the functions in every definition, with those before it at hand; what comes to a symbol or a number is put in place."""
        prover = Prover(self.domain, self.inequalities)
        closed: dict[str, Expr] = {}
        plain: dict[str, Expr] = {}
        terms: dict[str, int] = {}
        resolver = Resolver(prover, closed)
        for name, amount in self.definitions.items():
            with _divides_by_nothing(name):
                found = self.definitions[name] = resolver.resolve(amount.substitute(plain))
                # what is too long to be put in stands for itself
                terms[name] = most_terms(found, terms)
                if terms[name] <= MOST_TERMS:
                    closed[name] = found.substitute(closed)
                else:
                    terms[name] = 1
            # what is nothing must not lead a sum of which a limit is taken
            if not found or (found != amount and (found.is_constant or _is_symbol(found))):
                plain[name] = found
        self.used |= prover.used

    def take_limits(self) -> None:
        for number, fact in enumerate(self.facts):
            if fact.relation != "->" or number < self.known:
                continue
            name = str(fact.left)
            if name in self.definitions:
                raise InputError(f"fact '{cut(str(fact))}': {name} is a definition; a limit is of a symbol that it stands on")
            if name in self.solved:
                raise InputError(f"fact '{cut(str(fact))}' contradicts {name} = {self.solved[name]}")
            if fact.right == ZERO and self.domain(name).endswith("integer"):
                raise InputError(f"fact '{cut(str(fact))}': {name} is a {self.domain(name)}")
            self.used.add(number)
            self._take_limit(name, fact)
        if any(f.relation == "->" for f in self.facts[self.known :]):
            self.decide()

    def _take_limit(self, name: str, fact: Fact) -> None:
        """The limit of the result; what holds the symbol is put into it, since a part may grow where the whole does not."""
        bounds = [i for i in self.inequalities if fact.right == "oo" and name in i.amount.symbols() and _falls(i.amount, name)]
        inside: dict[str, Expr] = {}
        terms: dict[str, int] = {}
        for key, amount in self.definitions.items():
            several = most_terms(amount, terms)
            if several > MOST_TERMS:
                raise InputError(f"fact '{cut(str(fact))}': {key} has more than {MOST_TERMS:,} terms with all that holds {name} put in")
            opened = amount.substitute(inside)
            if name in opened.symbols():
                inside[key], terms[key] = opened, several
        if self.result in inside:
            prover, amount = Prover(self.domain, self.inequalities), inside[self.result]
            amount = amount if fact.right == "oo" else amount.substitute({name: ONE / symbol(name)})
            self.definitions[self.result] = limit(amount, name, prover, str(fact))
            self.used |= prover.used
        for one in bounds:
            # a bound that is a symbol grows too, which is no matter where the limit is free of it
            beside = one.amount.symbols() - {name}
            if not beside or beside & self.definitions[self.result].symbols():
                raise InputError(f"fact '{cut(str(fact))}' contradicts '{cut(str(self.facts[one.fact]))}'")

    def needed(self) -> list[tuple[str, Expr]]:
        """The definitions that the result stands on."""
        names = {self.result}
        for name, amount in reversed(self.definitions.items()):
            if name in names:
                names |= amount.symbols()
        return [(n, e) for n, e in self.definitions.items() if n in names]

    def unused(self) -> tuple[Fact, ...]:
        return tuple(f for k, f in enumerate(self.facts) if k not in self.used and f.relation != ":")


@contextmanager
def _divides_by_nothing(name: str) -> Iterator[None]:
    """InputError where what is put into a definition makes one of its divisors zero."""
    try:
        yield
    except ZeroDivisionError:
        raise InputError(f"with these facts {name} divides by zero") from None


def _solution(fact: Fact, left: Expr, right: Expr) -> tuple[str, Expr]:
    """A symbol and its value: the left side, or its last factor; else the same of the right side; else a term of either."""
    for side, other in ((left, right), (right, left)):
        free = [n for n in sorted(side.symbols() - other.symbols(), reverse=True) if len(side.terms) == 1 and _power(side, n) in (1, -1)]
        if free:
            rest = side / symbol(free[0]) ** _power(side, free[0])
            return free[0], other / rest if _power(side, free[0]) == 1 else rest / other
    for name in (*sorted(left.symbols()), *sorted(right.symbols())):
        slope = (left - right).diff(name) if _power(left - right, name) == 1 else ZERO
        if len(slope.terms) == 1 and name not in slope.symbols():
            return name, symbol(name) - (left - right) / slope
    raise InputError(f"fact '{cut(str(fact))}' cannot be solved for a symbol: one must stand alone, or as a factor, on one side")


def _power(amount: Expr, name: str) -> int:
    """The power of a symbol where it stands in one term and in no function, else 0."""
    powers = [dict(m).get(Symbol(name), 0) for m in amount.terms]
    inside = any(isinstance(a, Call) and any(name in g.symbols() for g in a.arguments) for m in amount.terms for a, _ in m)
    found = [p for p in powers if p]
    return found[0] if len(found) == 1 and not inside else 0


def _falls(amount: Expr, name: str) -> bool:
    """Whether an expression is negative in the end: its highest power of a symbol stands with a negative number."""
    powers = {m: dict(m).get(Symbol(name), 0) for m in amount.terms}
    highest = max(powers.values())
    return highest > 0 and all(amount.terms[m] < 0 for m, power in powers.items() if power == highest)


def _ordered(definitions: Mapping[str, Expr]) -> dict[str, Expr]:
    """The definitions with each after those that it stands on; InputError for one that stands on itself."""
    done: dict[str, Expr] = {}
    left = dict(definitions)
    while left:
        ready = [n for n, e in left.items() if not e.symbols() & left.keys()]
        if not ready:
            raise InputError(f"with these facts {next(iter(left))} would be defined by itself")
        done |= {n: left.pop(n) for n in ready}
    return done


def _against(facts: Sequence[Fact], used: Iterable[int]) -> str:
    said = [f"'{cut(str(facts[k]))}'" for k in sorted(used)]
    return f"{' and '.join(said)} {'says' if len(said) == 1 else 'say'} otherwise" if said else "the domains of its symbols say otherwise"


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:12]) + (", ..." if len(shown) > 12 else "")
