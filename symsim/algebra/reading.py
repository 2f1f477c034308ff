"""What of a formula is shown: which definitions stand in it by name, a unit that it is divided by, terms too small to matter.

A formula is read as a paper has it: closed where that is short, else over named definitions, and over parts where these are many. What a
message or a schedule is made of (alpha, beta, mu of a group, n^(i) in flight) is always a name, and bytes of states are bytes
times the parameters of a rank.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from symsim.algebra.expr import ONE, Expr, Number, expr, symbol
from symsim.algebra.facts import Fact, Said, read_facts, solved
from symsim.algebra.grammar import parse
from symsim.algebra.key import Key
from symsim.algebra.parted import LONGEST, Part, in_order, parted
from symsim.algebra.quantity import BYTE, Definition
from symsim.algebra.quotient import cancelled
from symsim.algebra.typeset import entry, latex, names_of, word
from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import InputError, cut, nearest

if TYPE_CHECKING:
    from symsim.algebra.formula import Formula

SHAPES = ("g = a", "a*d = h", "f = 4*h")
ALL = "all"


@dataclass(frozen=True)
class Reading:
    """A formula as it is shown. of: what was asked for; per: what it is divided by; rest: a definition of the terms that were left out; parts: what
    stands in it under names that it has here alone."""

    formula: "Formula"
    of: Definition
    per: Expr = ONE
    rest: Definition | None = None
    parts: tuple[Part, ...] = ()

    @property
    def flat(self) -> bool:
        """Whether its terms stand one by one, as of what is divided by a unit."""
        return self.per != ONE


def read(formula: Formula, inline: str | Collection[str] = (), per: str | None = None, given: Said = (), drop_below: str | Number = 0) -> Reading:
    """The formula as it is read: under the facts, with definitions put in (those named; 'all'; else as many as leave it short).

    per: a product of symbols by their names or the letters of papers ('s*b*h/t'), by which it is divided; facts of the model's shape
    that hold at its sizes apply. drop_below: the share of the whole below which a term goes into one named rest, at its sizes.
    InputError for a name, fact or unit that says nothing here, and where sizes are needed that the formula does not have.
    """
    inline, drop_below = _names(inline), _share(drop_below)
    facts = tuple(_by_letters(f, formula) for f in read_facts(given))
    made = formula.given(facts) if facts else formula
    over = ONE
    if per is not None:
        over = _unit(per, formula)
        made = _closed(made, inline)
        made = _divided(made.given(_shapes(made, over)), over)
    else:
        made = _opened(made, inline)
    last = made.result
    made = replace(made, definitions=(*made.definitions[:-1], replace(last, expr=cancelled(last.expr))))
    reading = Reading(made, formula.result, over)
    if per is None and not inline and not drop_below:
        reading = _parted(reading)
    return _without_small(reading, drop_below) if drop_below else reading


def _names(inline: str | Collection[str]) -> Collection[str]:
    """Names by commas, or several."""
    found = [part.strip() for part in inline.split(",")] if isinstance(inline, str) else inline
    if not all(found):
        raise InputError(f"--inline '{inline}': names of definitions by commas, or all, are needed")
    return found


def _share(given: str | Number) -> Number:
    """'1%' or 0.01; 0 where no term is dropped."""
    if given == 0:
        return 0
    text = str(given).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0
    if not 0 < share < 1:
        raise InputError(f"--drop-below {cut(text)}: a share is needed, such as 1% or 0.01")
    return share


# which definitions ------------------------------------------------------------------------------------------------------


def _opened(formula: Formula, inline: Collection[str]) -> Formula:
    if inline:
        return _closed(formula, inline)
    by_name = _by_names(formula)
    if formula.can_inline(by_name):
        whole = formula.inline(by_name)
        if len(latex(whole.result.expr, names_of(whole.definitions))) <= LONGEST:
            return whole
    last = formula.result
    plain = {d.symbol: d.expr for d in formula.definitions if d.expr.is_constant}
    return replace(formula, definitions=(*formula.definitions[:-1], replace(last, expr=last.expr.substitute(plain))))


def _parted(reading: Reading) -> Reading:
    """With names for parts where the formula is still long."""
    before = reading.formula.definitions[:-1]
    last, parts = parted(reading.formula.result, {d.symbol: d for d in before}, names_of(before))
    if not parts:
        return reading
    return replace(reading, formula=replace(reading.formula, definitions=(*before, *in_order(parts), last)), parts=parts)


def _closed(formula: Formula, inline: Collection[str]) -> Formula:
    """With definitions in their places: those named, all, or all but those that are read by name."""
    if inline == (ALL,) or list(inline) == [ALL]:
        return formula.inline()
    known = [d.symbol for d in (*formula.definitions, *formula.written_out().definitions)]
    for name in inline:
        if name not in known:
            raise InputError(f"{formula.result.symbol} stands on no definition '{cut(name)}': {nearest(name, known)}")
    if inline:
        return formula.inline([name for name in known if name not in inline])
    return formula.inline(_by_names(formula))


def _by_names(formula: Formula) -> list[str]:
    return [d.symbol for d in formula.written_out().definitions if _by_name(d, formula.result)]


def _by_name(definition: Definition, result: Definition) -> bool:
    """Whether a definition is read by its name: of a message's seconds, of what is in flight, of the parameters behind bytes."""
    if definition.expr.is_constant:
        return False
    key = definition.key.at(None)
    parameters = key.quantity == "P" and key.scope == "stage" and result.unit == BYTE
    return key.scope == "network" or key.quantity == "alive_i" or parameters


# a unit -----------------------------------------------------------------------------------------------------------------


def _unit(text: str, formula: Formula) -> Expr:
    where = f"--per '{cut(text)}'"
    found = _with_letters(parse(text, where=where), formula)
    unknown = sorted(n for n in found.symbols() if n not in SYMBOLS and n not in formula.symbols)
    if unknown:
        raise InputError(f"{where}: there is no symbol '{cut(unknown[0])}': {nearest(unknown[0], sorted(formula.symbols))}")
    sizes = formula.sizes() if formula.sizes is not None else SYMBOLS
    without = sorted(n for n in found.symbols() if n not in formula.symbols and n not in sizes)
    if without:
        have = ", ".join(sorted(formula.symbols))
        raise InputError(f"{where}: {without[0]} ({entry(without[0]).meaning}) has no number here; {formula.result.symbol} has {have}")
    if found == ONE:
        raise InputError(f"{where}: what is divided by 1 stays as it is; a unit is a product of symbols, such as s*b*h/t")
    if len(found.terms) != 1:
        raise InputError(f"{where}: a product or quotient of symbols is needed, such as s*b*h/t")
    return found


def _with_letters(amount: Expr, formula: Formula) -> Expr:
    """An expression in which a letter of papers stands for the symbol that is printed so: t for tp, p for pp."""
    free = formula.symbols
    letters = {SYMBOLS[name].latex: name for name in SYMBOLS if name in free}
    return amount.substitute({n: symbol(letters[n]) for n in amount.symbols() - free if n in letters and n not in SYMBOLS})


def _by_letters(fact: Fact, formula: Formula) -> Fact:
    right = _with_letters(fact.right, formula) if isinstance(fact.right, Expr) else fact.right
    return replace(fact, left=_with_letters(fact.left, formula), right=right)


def _shapes(formula: Formula, per: Expr) -> tuple[Fact, ...]:
    """Facts of a model's shape that hold at its sizes, of symbols that are there."""
    sizes = formula.sizes() if formula.sizes is not None else {}
    there = formula.symbols | per.symbols()
    found = []
    for fact in read_facts(SHAPES):
        right = expr(fact.right) if isinstance(fact.right, Expr) else ONE
        if fact.symbols <= there and fact.symbols <= sizes.keys() and (fact.left - right).evaluate(sizes) == 0:
            found.append(fact)
    return tuple(f for f in found if f.symbols & formula.symbols)


def _divided(formula: Formula, per: Expr) -> Formula:
    last, shared = formula.result, per.substitute(solved(formula.facts))
    left = last.latex or entry(last.symbol).latex
    made = replace(last, key=Key(f"{last.symbol}_per", "pipeline"), expr=last.expr / shared, latex=left, meaning=f"{last.meaning}, per {per}")
    return replace(formula, definitions=(*formula.definitions[:-1], made))


# terms ------------------------------------------------------------------------------------------------------------------


def _without_small(reading: Reading, share: Number) -> Reading:
    """The terms of less than a share of the whole under one name."""
    formula = reading.formula
    if formula.sizes is None:
        raise InputError(f"{formula.result.symbol} has no sizes to tell small terms by: ask a result for its formula")
    last = formula.result
    # definitions of their own, since a sum or maximum over stages has a number where it is written out
    terms = {m: replace(last, key=Key(f"{last.symbol}_{n}", "pipeline"), expr=Expr({m: c})) for n, (m, c) in enumerate(last.expr.terms.items())}
    values = numbers(replace(formula, definitions=(*formula.definitions[:-1], *terms.values(), last)))
    whole = abs(float(values[last.symbol]))
    small = {m for m, term in terms.items() if abs(float(values[term.symbol])) < share * whole}
    if len(small) < 1 or len(small) == len(terms):
        return reading
    rest = Definition(
        Key(f"{reading.of.symbol}_rest", "pipeline"),
        Expr({m: c for m, c in last.expr.terms.items() if m in small}),
        last.unit,
        f"terms of less than {float(100 * share):.3g} % of it",
        rf"{{{last.latex or entry(last.symbol).latex}}}_{{{word('rest')}}}" if not reading.flat else word("rest"),
    )
    kept = Expr({m: c for m, c in last.expr.terms.items() if m not in small}) + rest.key.expr
    made = replace(formula, definitions=(*formula.definitions[:-1], rest, replace(last, expr=kept)))
    return replace(reading, formula=made, rest=rest)


def numbers(formula: Formula) -> dict[str, Number]:
    """Numbers of a formula's symbols and definitions at its sizes; none where it has no sizes."""
    if formula.sizes is None:
        return {}
    known: dict[str, Number] = dict(formula.sizes())
    for fact in formula.facts:
        if fact.relation == ":" and str(fact.left) not in known:
            return {}
    for definition in formula.written_out().definitions:
        known[definition.symbol] = definition.expr.evaluate(known)
    return known


def by_divisor(expression: Expr, values: Mapping[str, Number], rest: str = "") -> list[Expr]:
    """The terms of a sum one by one, as of what is divided by a unit: numbers first, then by what divides them, the simplest first, the
    largest of equal ones first where values are known; those that differ in their sizes alone over one divisor. rest: a name that comes last."""
    groups: dict[tuple[object, ...], Expr] = {}
    divisors: dict[tuple[object, ...], tuple[tuple[str, int], ...]] = {}
    for monomial, coefficient in expression.terms.items():
        under = tuple((str(a), -p) for a, p in monomial if p < 0)
        shared = under and Fraction(coefficient).denominator != 1
        group = (under, Fraction(coefficient) if shared else monomial)
        divisors[group] = under
        groups[group] = groups.get(group, Expr({})) + Expr({monomial: coefficient})

    def rank(group: tuple[object, ...]) -> tuple[bool, int, tuple[tuple[str, int], ...], bool, float]:
        term, under = groups[group], divisors[group]
        size = abs(float(term.evaluate(values))) if values else 0.0
        return (rest in term.symbols(), sum(power for _, power in under), under, not term.is_constant, -size)

    return [groups[group] for group in sorted(groups, key=rank)]
