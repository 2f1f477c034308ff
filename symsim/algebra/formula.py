"""Formulas: short trees of named definitions with units, meanings and sources.

A `Quantity` is an expression with a unit; arithmetic on quantities checks units where the formula is built,
so adding bytes to FLOPs is an error. A `Derivation` collects definitions in order; `Formula` is one result
with the definitions it stands on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from symsim.algebra.expr import ONE, Expr, Number, expr
from symsim.algebra.facts import Fact, Said, apply, declared, read_facts
from symsim.algebra.key import Key
from symsim.algebra.quantity import Definition, Quantity, Unit, UnitError
from symsim.algebra.terms import MOST_TERMS, most_terms
from symsim.algebra.vocabulary import domain
from symsim.errors import InputError, cut, in_doubles, nearest

if TYPE_CHECKING:
    from symsim.algebra.reductions import Stages


@dataclass(frozen=True, repr=False)
class Formula:
    """A result and, in order, the definitions it stands on (the last one is the result).

    facts: what it holds under (`given`); unused: those of the facts that changed nothing. line: the stages of the pipeline, over whose
    classes the reductions of a step's definitions go (`reductions.py`); over: those over which they have been written out.
    sizes: its symbols' numbers in the configuration that it was asked of, of a stage those of the fullest or the slowest.
    """

    definitions: tuple[Definition, ...]
    facts: tuple[Fact, ...] = ()
    unused: tuple[Fact, ...] = ()
    line: "Stages | None" = None
    over: "Stages | None" = None
    sizes: Callable[[], Mapping[str, Number]] | None = field(default=None, compare=False)

    @property
    def result(self) -> Definition:
        return self.definitions[-1]

    @property
    def symbols(self) -> set[str]:
        """Free symbols: those no definition of this formula defines."""
        definitions = self.written_out().definitions
        return {s for d in definitions for s in d.expr.symbols()} - {d.symbol for d in definitions}

    def written_out(self) -> "Formula":
        """The formula with its reductions as plain sums and maxima over the classes of equal stages. Where the layers are cut evenly
        it is one in pp: a stage's definition NAME stands there as NAME_at_first, NAME_at_middle and NAME_at_last; elsewhere as
        NAME_at_0 and so on, for each class."""
        return self._written_out

    @cached_property
    def _written_out(self) -> "Formula":
        if self.line is None or self.result.key.scope == "stage" or not any(d.key.scope == "stage" for d in self.definitions):
            return self
        from symsim.algebra.written import written_out

        return replace(self, definitions=written_out(self.definitions, self.line), line=None, over=self.line)

    def expand(self) -> Expr:
        """One closed form over the free symbols. InputError where it has more terms than anyone reads, as of a run."""
        self._check_terms(())
        known: dict[str, Expr | Number] = {}
        for definition in self.written_out().definitions:
            known[definition.symbol] = definition.expr.substitute(known)
        return expr(known[self.result.symbol])

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that any of the definitions rests on."""
        return tuple(dict.fromkeys(a for d in self.definitions for a in d.assumptions))

    def given(self, facts: Said) -> "Formula":
        """The formula under facts (`facts.py`): 'g = a, m >= pp, dp -> oo', or values by name; they are recorded with it.

        InputError for a fact about what is not in the formula, that contradicts another, or a limit that is not finite.
        """
        every = (*self.facts, *read_facts(facts))
        definitions = self.written_out().definitions
        found, unused = apply([(d.symbol, d.expr) for d in definitions], every, len(self.facts))
        known = {d.symbol: d for d in definitions}
        made = tuple(replace(known[name], expr=amount) for name, amount in found)
        return Formula(made, every, (*self.unused, *unused), over=self.written_out().over, sizes=self.sizes)

    def inline(self, keep: Collection[str] = ()) -> "Formula":
        """The formula with the definitions named in `keep` (and the result's), all others put in their place, whose assumptions are theirs
        then. A stage's definition is kept for each class of stages. InputError for a name of none, and where it would have more terms than
        anyone reads, as of a run."""
        definitions = self.written_out().definitions
        names = [d.symbol for d in (*self.definitions, *definitions)]
        for name in keep:
            if name not in names:
                raise InputError(f"{self.result.symbol} stands on no definition '{cut(name)}': {nearest(name, names)}")
        self._check_terms(keep)
        inside: dict[str, Expr | Number] = {}
        rests: dict[str, tuple[str, ...]] = {}
        kept = []
        for definition in definitions:
            amount = definition.expr.substitute(inside)
            put_in = (a for name in inside.keys() & definition.expr.symbols() for a in rests[name])
            assumed = tuple(dict.fromkeys((*definition.assumptions, *sorted(put_in))))
            if _is_kept(definition, keep) or definition is definitions[-1]:
                kept.append(replace(definition, expr=amount, assumptions=assumed))
            else:
                inside[definition.symbol], rests[definition.symbol] = amount, assumed
        return replace(self.written_out(), definitions=tuple(kept))

    def can_inline(self, keep: Collection[str] = ()) -> bool:
        """Whether that has as few terms as someone may read."""
        terms: dict[str, int] = {}
        for definition in self.written_out().definitions:
            own = most_terms(definition.expr, terms)
            if own > MOST_TERMS:
                return False
            if not _is_kept(definition, keep):
                terms[definition.symbol] = own
        return True

    def _check_terms(self, keep: Collection[str]) -> None:
        if not self.can_inline(keep):
            raise InputError(f"{self.result.symbol} has more than {MOST_TERMS:,} terms with all definitions put in; it is read with some by name")

    def at(self, values: Mapping[str, Number] | None = None, /, **named: Number) -> Number:
        """The exact value with every free symbol given, by a mapping or by name: at(b=1, s=4096, ...).

        InputError for a name that is not a free symbol here, and for one that is missing.
        """
        known = {**(values or {}), **named}
        for name in known:
            self._check_free(name)
        self._check_complete(known)
        over = self.written_out().over
        if over is not None:
            over.check(known)
        return self.value(known)

    def _check_free(self, name: str) -> None:
        if any(d.symbol == name for d in self.definitions):
            raise InputError(f"'{cut(name)}' is defined in {self.result.symbol}: given({{'{cut(name)}': ...}}) replaces it")
        if name not in self.symbols:
            raise InputError(f"{self.result.symbol} has no symbol '{cut(name)}': {nearest(name, sorted(self.symbols))}")

    def _check_complete(self, values: Mapping[str, Number]) -> None:
        missing = sorted(self.symbols - values.keys())
        if missing:
            raise InputError(f"{self.result.symbol} also needs {', '.join(missing)}")

    def diff(self, symbol: str, values: Mapping[str, Number] | None = None) -> Expr:
        """The derivative of the closed form by a free symbol, along the branches active at the values (`Expr.diff`)."""
        self._check_free(symbol)
        return self.expand().diff(symbol, values)

    def elasticity(self, symbol: str, values: Mapping[str, Number], to: Number | None = None) -> Number:
        """Percent by which the result changes for a percent more of a free symbol, at the values.

        Of a real symbol the derivative d ln y / d ln x, exact for exact values; of an integer one the difference between x and
        `to` (x + 1, or the next value that is valid). With `to` a real symbol is taken so too. InputError where y is 0.
        """
        self._check_free(symbol)
        self._check_complete(values)
        x, y = values[symbol], self.value(values)
        if not y:
            raise InputError(f"{self.result.symbol} is 0 at these values: it has no elasticity")
        kind = declared(self.facts).get(symbol) or domain(symbol)
        if to is None and not kind.endswith("integer"):
            return _ratio(x * self.slope(symbol, values), y)
        to = x + 1 if to is None else to
        return _ratio((self.value({**values, symbol: to}) - y) * x, (to - x) * y)

    def slope(self, name: str, values: Mapping[str, Number]) -> Number:
        """The number of the derivative by a free symbol at the values (`diff`), definition by definition; 0 by any other symbol."""
        known, slopes = dict(values), {name: ONE.constant()}
        for definition in self.written_out().definitions:
            # a definition that does not change with the symbol has no slope here
            for inner in definition.expr.symbols() & slopes.keys():
                by = definition.expr.diff(inner, known).evaluate(known) * slopes[inner]
                slopes[definition.symbol] = slopes.get(definition.symbol, 0) + by
            known[definition.symbol] = definition.expr.evaluate(known)
        return slopes.get(self.result.symbol, 0)

    def value(self, values: Mapping[str, Number]) -> Number:
        """Exact value at the given sizes. InputError names symbols without a value."""
        known = dict(values)
        try:
            for definition in self.written_out().definitions:
                known[definition.symbol] = definition.expr.evaluate(known)
        except KeyError:
            missing = ", ".join(sorted(self.symbols - values.keys()))
            raise InputError(f"{self.result.symbol} has no value without {missing}: values are wanted for these symbols") from None
        return known[self.result.symbol]

    def sympy(self) -> Any:
        """The expanded closed form as a SymPy expression, its symbols in their domains."""
        from symsim.algebra.view import sympy_symbol, view

        closed, kinds = self.expand(), declared(self.facts)
        return view(closed, {name: sympy_symbol(name, kinds.get(name)) for name in closed.symbols()})

    def latex(self) -> str:
        """`name = closed form` in LaTeX; of a formula written out over stages, its definitions and what the stages hold, a row each."""
        from symsim.algebra.typeset import definition_latex, names_of
        from symsim.algebra.written import cases_latex

        if self.over is not None and len(self.definitions) > 1:
            names = names_of(self.definitions)
            rows = [*(definition_latex(d, names) for d in self.definitions), *cases_latex(self.over)]
            return "\n".join([r"\begin{aligned}", *(row.replace(" = ", " &= ", 1) + r" \\" for row in rows), r"\end{aligned}"])
        last = self.result
        return definition_latex(replace(last, expr=self.expand()))

    @in_doubles()
    def to(
        self,
        target: str = "text",
        *,
        per: str | None = None,
        given: Said = (),
        inline: str | Collection[str] = (),
        symbols: str | Mapping[str, str] = "symsim",
        drop_below: str | Number = 0,
    ) -> str:
        """The formula as it is read, as text, tex, md, html, typst, sympy, python, c or js (docs/formula.md).

        per: a unit that it is divided by ('s*b*h/t'); inline: definitions to put in, 't_slow,sum_t', or 'all'; symbols: symsim, megatron,
        korthikanti, a file, or letters by symbol; drop_below: a share of the whole ('1%', 0.01), terms below which go under one name.
        InputError for what says nothing.
        """
        from symsim.algebra.reading import read
        from symsim.report.formula import printed

        return printed(read(self, inline, per, given, drop_below), target, symbols)

    def _repr_latex_(self) -> str:
        """As it is read (docs/formula.md): the result over the parts that stand in it by name, and what these are; `latex()` has it whole."""
        from symsim.algebra.reading import read
        from symsim.report.formula import displayed

        return f"$\\displaystyle {displayed(read(self))}$"

    def _repr_mimebundle_(self, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> dict[str, str]:
        from symsim.report.notebook import bundle

        return bundle(self, include, exclude)

    def __repr__(self) -> str:
        """The result in a line; `print` gives every definition."""
        last = self.result
        return f"Formula({last.symbol} = {cut(str(last.expr), 100)} [{last.unit}], {last.meaning}; {len(self.definitions)} definitions)"

    def __str__(self) -> str:
        given = ["given " + ", ".join(map(str, self.facts))] if self.facts else []
        return "\n".join([*(f"{d.symbol} = {d.expr}  [{d.unit}] {d.meaning}" for d in self.definitions), *given, *self.cases])

    @property
    def cases(self) -> list[str]:
        """What stage i of the pipeline holds, a line for each class of equal stages, where the formula goes over them."""
        from symsim.algebra.written import cases

        line = self.line or self.over
        return cases(line) if line is not None else []


@dataclass
class Derivation:
    """Definitions in the order in which they were made; every name is defined once."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    # of so many of them, by their quantity
    _sorted: int = field(default=0, init=False, repr=False, compare=False)
    _by_quantity: dict[str, list[Definition]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def define(
        self,
        key: Key,
        quantity: Quantity,
        meaning: str,
        *,
        latex: str = "",
        source: str = "",
        assumptions: tuple[str, ...] = (),
        unit: Unit | None = None,
    ) -> Quantity:
        """Name a quantity; returns a reference to it. UnitError when it does not have the unit declared."""
        if unit is not None and quantity.expr and quantity.unit != unit:
            raise UnitError(f"{key.text} is {quantity.unit}, declared {unit}")
        unit = unit if unit is not None else quantity.unit
        made = Definition(key, quantity.expr, unit, meaning, latex, source, assumptions)
        known = self.definitions.get(made.symbol)
        if known is not None and known != made:
            raise ValueError(f"{made.symbol} is defined twice: {known.expr} and {made.expr}")
        self.keep(made)
        return Quantity(key.expr, unit)

    def keep(self, made: Definition) -> None:
        """Put a definition that is none yet, or the same."""
        self.definitions.setdefault(made.symbol, made)

    def get(self, name: str) -> Definition | None:
        return self.definitions.get(name)

    def __contains__(self, key: Key) -> bool:
        return key.text in self.definitions

    def __getitem__(self, key: Key) -> Definition:
        return self.definitions[key.text]

    def of(self, *quantities: str, **fields: object) -> list[Definition]:
        """Definitions of one of these quantities (of any where none is named) whose keys have these fields: of("M_at", scope="stage")."""
        return [self[key] for key in self.keys(*quantities, **fields)]

    def keys(self, *quantities: str, **fields: object) -> list[Key]:
        """Of what there are such definitions."""
        return self.matching(quantities, fields.items())

    def matching(self, quantities: tuple[str, ...], fields: Iterable[tuple[str, object]]) -> list[Key]:
        """As `keys`; nobody is told."""
        for made in islice(self.definitions.values(), self._sorted, None):
            self._by_quantity.setdefault(made.key.quantity, []).append(made)
        self._sorted = len(self.definitions)
        some = self._by_quantity.get(quantities[0], ()) if len(quantities) == 1 else self.definitions.values()
        there = (d.key for d in some if not quantities or d.key.quantity in quantities)
        return [k for k in there if all(getattr(k, name) == value for name, value in fields)]

    def formula(self, name: str) -> Formula:
        """The named result with everything it stands on, in order of definition."""
        needed = {name}
        for candidate in reversed(list(self.definitions.values())):
            if candidate.symbol in needed:
                needed |= candidate.expr.symbols()
        return Formula(tuple(d for d in self.definitions.values() if d.symbol in needed))


def _ratio(above: Number, below: Number) -> Number:
    return above / below if isinstance(above, float) or isinstance(below, float) else Fraction(above) / below


def _is_kept(definition: Definition, keep: Collection[str]) -> bool:
    return definition.symbol in keep or definition.key.at(None).text in keep
