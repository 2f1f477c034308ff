"""A claim against a derivation: both sides under the facts, and what is between them.

symsim's side is the claim's `says`, an expression over definitions, with all that these stand on; the published side is the source's
formula in symsim's names. Facts are applied to their difference (`Formula.given`), divisors that are sums are multiplied away,
and what is left is zero or is not: no simplifier decides. A fact or a neglected term that is not needed for that is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import gcd, lcm

from symsim.algebra.expr import Call, Expr, Monomial, Number, Symbol, expr
from symsim.algebra.facts import Fact, declared, read_facts
from symsim.algebra.formula import Formula
from symsim.algebra.grammar import parse
from symsim.algebra.proof import cleared
from symsim.algebra.quantity import Definition
from symsim.algebra.vocabulary import domain
from symsim.audit.claims import Claim, mapped
from symsim.audit.subjects import Derived
from symsim.errors import InputError, cut, nearest


@dataclass(frozen=True)
class Sides:
    """A claim's two sides in symsim's names before any fact, with what the source leaves out."""

    says: Expr
    published: Expr
    neglected: tuple[Expr, ...]
    facts: tuple[Fact, ...]
    derived: Derived
    keep: tuple[str, ...] = ()
    fixed: Mapping[str, Expr] = field(default_factory=dict)
    made: dict[Expr, Formula] = field(default_factory=dict, compare=False, repr=False)

    def formula(self, amount: Expr) -> Formula:
        """An expression over definitions, with the symbols that are fixed for this subject put in."""
        if amount not in self.made:
            self.made[amount] = self._formula(amount)
        return self.made[amount]

    def _formula(self, amount: Expr) -> Formula:
        found = self.derived.result.formula_of(amount, self.keep).written_out()
        return replace(found, definitions=tuple(_with(d, exact(d.expr.substitute(self.fixed))) for d in found.definitions))

    @property
    def alone(self) -> Sides:
        """The same of the only stage where there is one: it holds the whole model, but for what facts say. As it is where one of them
        is of another stage (embedding_i = 0)."""
        only = self.derived.only_stage
        for fact in self.facts:
            apart = fact.difference.substitute(only) if fact.relation == "=" else expr(0)
            if apart and apart.is_constant:
                return self
        said = {n for f in self.facts for n in f.symbols}.union(self.keep)
        held = {n: v for n, v in only.items() if n not in said}
        return replace(self, fixed={**self.fixed, **held}, made={}) if held else self

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that symsim's side rests on."""
        return self.derived.result.formula_of(self.says, self.keep).assumptions

    @property
    def named(self) -> list[Fact]:
        """The facts but those that only say where a symbol lies."""
        return [f for f in self.facts if f.relation != ":"]

    @property
    def difference(self) -> Expr:
        return self.says - self.published - sum(self.neglected, expr(0))


@dataclass(frozen=True)
class Proof:
    """What is left of symsim less published under the facts; zero: proven for all values."""

    left: Expr
    facts: tuple[Fact, ...]

    @property
    def holds(self) -> bool:
        return is_zero(self.left)


def _with(definition: Definition, amount: Expr) -> Definition:
    return definition if amount is definition.expr else replace(definition, expr=amount)


def sides_of(claim: Claim, derived: Derived) -> Sides:
    """The claim's sides. InputError names file and line of a name that there is not, and of facts that do not read."""
    try:
        facts = read_facts(claim.given)
    except InputError as error:
        raise InputError(f"{claim.place('given')}: {error}") from None
    new = set(declared(facts))
    says = _read(claim.says, derived, new, claim.place("says"))
    neglected = tuple(_read(n.term, derived, new, claim.place(f"neglects.{k}.term")) for k, n in enumerate(claim.neglects))
    for name in claim.keep:
        if not derived.known(name):
            raise InputError(f"{claim.place('keep')}: {_no_name(name, derived, new)}")
    assert claim.formula is not None
    published = mapped(claim.formula, meanings(claim, claim.formula.symbols(), derived, new))
    # facts may say of all layers what their kinds do not, as L = 24*pp
    said = {n for f in facts for n in f.symbols if n == "L"}
    fixed = {n: v for n, v in derived.fixed.items() if n not in said.union(claim.keep)}
    settled = tuple(Fact(f.left.substitute(fixed), f.relation, f.right.substitute(fixed) if isinstance(f.right, Expr) else f.right) for f in facts)
    return Sides(says, published, neglected, settled, derived, claim.keep, fixed)


def meanings(claim: Claim, letters: Iterable[str], derived: Derived, new: set[str]) -> dict[str, Expr]:
    """What each letter of a source is in symsim's names."""
    found = {}
    for letter in letters:
        text = claim.letters[letter]
        place = claim.lines.get(f"symbols.{letter}") or claim.place("formula")
        found[letter] = _read(text, derived, new, place if text == letter else f"{place}: {letter} is '{cut(text)}'")
    return found


def _read(text: str, derived: Derived, new: set[str], where: str) -> Expr:
    found = parse(text, where=where)
    for name in sorted(found.symbols()):
        if name not in new and not derived.known(name) and domain(name) == "real":
            raise InputError(f"{where}: {_no_name(name, derived, new)}")
    return found


def _no_name(name: str, derived: Derived, new: set[str]) -> str:
    return f"{derived.subject.model} has no '{cut(name)}': {nearest(name, [*derived.names(), *new])}"


def prove(sides: Sides, facts: Sequence[Fact], amount: Expr) -> Proof:
    """An amount over definitions under facts. InputError where they contradict each other or say nothing of it."""
    formula = _closed(sides, facts, amount)
    # a domain is needed by `says` or by another fact, and may be of nothing that is left
    about = formula.symbols | {n for f in facts if f.relation != ":" for n in f.symbols}
    facts = [f for f in facts if f.relation != ":" or f.symbols & about]
    if facts:
        formula = formula.given(facts)
    return Proof(formula.expand(), formula.unused)


def _closed(sides: Sides, facts: Sequence[Fact], amount: Expr) -> Formula:
    """An amount over definitions as one expression, where no function is in it and no fact is about a definition."""
    formula = sides.formula(amount)
    if {n for f in facts for n in f.symbols} & {d.symbol for d in formula.definitions}:
        return formula
    closed = formula.expand()
    return formula if functions_in(closed) else Formula((replace(formula.result, expr=closed),))


def exact(amount: Expr) -> Expr:
    """The same with quotients for coefficients that are floats, which are exact too, but do not stay so in a division."""
    calls = any(isinstance(a, Call) for m in amount.terms for a, _ in m)
    if not calls and not any(isinstance(c, float) for c in amount.terms.values()):
        return amount
    terms: dict[Monomial, Number] = {}
    for monomial, number in amount.terms.items():
        atoms = ((Call(a.function, tuple(map(exact, a.arguments))) if isinstance(a, Call) else a, power) for a, power in monomial)
        kept = tuple(sorted(atoms, key=lambda item: item[0].key))
        terms[kept] = terms.get(kept, 0) + (Fraction(number) if isinstance(number, float) else number)
    return Expr(terms)


def functions_in(amount: Expr) -> bool:
    """Whether an expression has max, min, ceil, floor and the like."""
    return any(isinstance(a, Call) and (a.function != "sum" or functions_in(a.arguments[0])) for m in amount.terms for a, _ in m)


def about(sides: Sides, amount: Expr, facts: Sequence[Fact] | None = None) -> tuple[Fact, ...]:
    """Those facts, of a claim unless others are given, that say something of an amount over definitions."""
    facts = sides.facts if facts is None else facts
    formula = _closed(sides, facts, amount)
    names = formula.symbols | {d.symbol for d in formula.definitions}
    found: list[Fact] = []
    left = list(facts)
    while True:
        new = [f for f in left if f.symbols & names]
        if not new:
            return tuple(f for f in facts if f in found)
        found += new
        left = [f for f in left if f not in new]
        names = names | {n for f in new for n in f.symbols}


def is_zero(amount: Expr) -> bool:
    """Whether an expression is zero for all values of its symbols: divisors are multiplied away until none is left."""
    while amount:
        lowest = _divisors(amount)
        if not lowest:
            return False
        amount = cleared(amount, lowest)
    return True


def tidy(amount: Expr) -> Expr:
    """The same over one divisor of each sum, what all terms have in common taken out of it."""
    lowest = _divisors(amount)
    if not lowest:
        return amount
    found = cleared(amount, lowest)
    for atom, low in lowest.items():
        assert isinstance(atom, Call)
        inside = atom.arguments[0]
        common = _common(inside)
        found = found / common**-low / (inside / common) ** -low
    return found


def _divisors(amount: Expr) -> dict[Symbol | Call, int]:
    """The sums that some term is divided by, each with its lowest power."""
    lowest: dict[Symbol | Call, int] = {}
    for monomial in amount.terms:
        for atom, power in monomial:
            if isinstance(atom, Call) and atom.function == "sum" and power < lowest.get(atom, 0):
                lowest[atom] = power
    return lowest


def _common(amount: Expr) -> Expr:
    """The largest monomial that divides every term."""
    monomials = [dict(m) for m in amount.terms]
    powers = {a: min(m.get(a, 0) for m in monomials) for a in monomials[0]}
    numbers = [Fraction(c) for c in amount.terms.values()]
    number = Fraction(gcd(*(n.numerator for n in numbers)), lcm(*(n.denominator for n in numbers)))
    kept = tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda item: item[0].key))
    return Expr({kept: number})
