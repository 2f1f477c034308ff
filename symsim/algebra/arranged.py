"""The form in which a formula is read: what is common stands in front of what is left, products of sums stay products.

    4*P*beta - 4*P*beta/dp                      4P beta (dp - 1)/dp
    m*t_slow + 2*pp*tc + sum_t - t_slow - 2*tc  (m - 1) t_slow + 2(pp - 1) tc + sum_t
    ceil(min(1, mu - 1))                        [mu > 1], an Iverson bracket: 1 where it holds, else 0

Every target prints this tree (`typeset.py` as LaTeX, `plain.py` as text), and its value is that of the expression.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from symsim.algebra.expr import Atom, Call, Expr, Monomial, Number, Symbol
from symsim.algebra.vocabulary import domain

# The order in which the field writes a product: how many tokens, then heads, widths, and at last what divides.
_TOKENS = "m D b s K C lam n_z n_b n_w n_c n_v n_k n_j n_p n_e"
_WIDTHS = (
    "w k_x c_x z a a_x g H_k H_v H_m G_m d d_k d_r d_v d_x r_q r_k D_k D_v D_m D_i N_m N_i r_i W_c W_l W_m W_i Q_m C_l G_o r_o m_x "
    "h h_e h_y T_v V_t E f f_e f_s ell V P L i"
)
_RANKS = "inst dp edp ep etp cp cp_a2a cp_p2p tp pp vpp"
ORDER = {name: place for place, name in enumerate(f"{_TOKENS} {_WIDTHS} {_RANKS}".split())}
# Terms that are large together are read together: those with the same tokens over the same ranks.
_TOGETHER = frozenset(f"{_TOKENS} {_RANKS}".split())
_DEGREES = frozenset(_RANKS.split())
# sums with more terms or atoms than these are not searched for factors
_MOST_TERMS, _MOST_ATOMS = 64, 24
_LARGE = 1000
_RATES, _CALLS, _NAMES = 400, 500, 1000


@dataclass(frozen=True)
class Term:
    """coefficient * atoms to powers * sums in parentheses, all in reading order."""

    coefficient: Fraction
    monomial: Monomial
    inner: tuple["Sum", ...] = ()


Sum = tuple[Term, ...]
Terms = Mapping[Monomial, Number]


@dataclass(frozen=True)
class Guard:
    """1 where left > right (or >=), else 0."""

    left: Expr
    relation: Literal[">", ">="]
    right: Expr


@dataclass(frozen=True)
class Arranger:
    """order: names of definitions, each after what it stands on. first: symbols that a source writes in an order of its own."""

    order: Mapping[str, int]
    first: Mapping[str, int] = field(default_factory=dict)

    def place(self, atom: Atom) -> tuple[int, str]:
        if isinstance(atom, Call):
            return (_CALLS, atom.key[1])
        if atom.name in self.first:
            return (self.first[atom.name] - len(self.first), atom.name)
        if atom.name in self.order and atom.name not in ORDER:
            return (_NAMES + self.order[atom.name], atom.name)
        # how many layers, or whether a stage has a part, before sizes; rates and seconds behind them
        return (ORDER.get(atom.name, 1 if is_size(atom) else _RATES), atom.name)

    def arranged(self, terms: Terms) -> Sum:
        """The sum in reading order, with what is common to its terms in front of it, and groups of terms likewise."""
        if len(terms) == 1:
            ((monomial, coefficient),) = terms.items()
            return (Term(Fraction(coefficient), self._sorted(monomial)),)
        common, factor = _common(terms), _gcd(terms.values())
        sizes_alone = all(is_size(a) for m in terms for a, _ in m)
        groups = _by_tokens(terms) if sizes_alone else {}
        rest = {_divided(m, common): Fraction(c) / factor for m, c in terms.items()}
        if len(groups) < 2:
            alike = abs(factor) != 1 and len({abs(c) for c in rest.values()}) == 1 and (factor.denominator > 1 or not _any_size(terms))
            product = bool(common or (factor != 1 and sizes_alone) or alike) and not _of_shares(rest)
        else:
            # over one divisor, as (V + s)/(12 h)
            product = any(p < 0 for p in common.values()) and len({abs(Fraction(c)) for c in rest.values()}) == 1
        if product or factor < 0 or (common and _less_one(rest)) or _over_one(rest) or factors(terms):
            return (self._product(terms),)
        if not 1 < len(groups) < len(terms):
            groups = _by_less_one(terms) if not sizes_alone else {}
        if not 1 < len(groups) < len(terms):
            groups = self._by_divisor(terms)
        if len(groups) == 1:
            groups = self._by_most_frequent(terms)
        if len(groups) == 1 and not sizes_alone:
            groups = _by_number(terms)
        parts = [
            part
            for group in groups.values()
            for part in (_apart(self.arranged(group)) if len(groups) > 1 else (t for m, c in group.items() for t in self.arranged({m: c})))
        ]
        return tuple(sorted(parts, key=self._reading_order))

    def _product(self, terms: Terms) -> Term:
        """A number, atoms, and what is left as one sum or as several that are multiplied."""
        number, powers, left = split(terms)
        # how often comes before what: (m - 1)(t_f + t_b)
        sums = sorted(map(self.arranged, left), key=lambda s: (not _of_sizes(s), len(s)))
        return Term(number, self._sorted(tuple(powers.items())), tuple(sums))

    def _by_most_frequent(self, terms: Terms) -> dict[object, dict[Monomial, Number]]:
        """The terms that share one factor, and the rest; one group where nothing is shared or the sum is short."""
        seen: dict[Atom, int] = {}
        for monomial in terms:
            for atom, power in monomial:
                if power > 0:
                    seen[atom] = seen.get(atom, 0) + 1
        best = max(seen, key=lambda a: (seen[a], -self.place(a)[0]), default=None)
        if best is None or seen[best] < 2 or len(terms) < 3:
            return {0: dict(terms)}
        groups: dict[object, dict[Monomial, Number]] = {}
        for monomial, coefficient in terms.items():
            groups.setdefault(any(a == best and p > 0 for a, p in monomial), {})[monomial] = coefficient
        return groups

    def _by_divisor(self, terms: Terms) -> dict[object, dict[Monomial, Number]]:
        """The terms over one divisor that is no size, as a rate is, or a size that divides seconds alone, and the rest; one group where fewer than
        three are."""
        seen: dict[Atom, int] = {}
        for monomial in terms:
            for atom in (a for a, p in monomial if p < 0 and (not is_size(a) or _divides_no_size(monomial))):
                seen[atom] = seen.get(atom, 0) + 1
        best = max(seen, key=lambda a: (seen[a], -self.place(a)[0]), default=None)
        if best is None or not 3 <= seen[best] < len(terms):
            return {0: dict(terms)}
        groups: dict[object, dict[Monomial, Number]] = {}
        for monomial, coefficient in terms.items():
            groups.setdefault(any(a == best and p < 0 for a, p in monomial), {})[monomial] = coefficient
        return groups

    def _sorted(self, monomial: Monomial) -> Monomial:
        return tuple(sorted(monomial, key=lambda f: self.place(f[0])))

    def _reading_order(self, term: Term) -> tuple[bool, bool, int, list[tuple[int, str]]]:
        atoms = [self.place(a) for a, p in term.monomial if p > 0]
        # in a source's own letters the simpler term stands first
        degree = sum(p for _, p in term.monomial if p > 0) if self.first else 0
        return (term.coefficient < 0, not atoms, degree, atoms or [self.place(a) for a, _ in term.monomial])

    def guard(self, call: Call) -> Guard | None:
        """What a call says where it is 1 or 0: ceil(min(1, x - 1)) of a positive x, min(1, max(0, n)) of a whole n, min(1, n) of a count."""
        inside = _at_most_one(call.arguments[0]) if call.function == "ceil" else None
        if inside is not None:
            over = inside + 1
            if _is_positive(over):
                ((monomial, coefficient),) = over.terms.items()
                top, under = tuple(f for f in monomial if f[1] > 0), tuple((a, -p) for a, p in monomial if p < 0)
                fraction = Fraction(coefficient)
                return Guard(Expr({top: fraction.numerator}), ">", Expr({under: fraction.denominator}))
        counted = _at_most_one(Expr({((call, 1),): 1}))
        if counted is None:
            return None
        bare = _at_least_zero(counted)
        if bare is not None and _whole(bare):
            # of a product with what is positive the rest decides
            common: dict[Atom, int] = {a: p for a, p in _common(bare.terms).items() if isinstance(a, Symbol) and domain(a.name) == "positive integer"}
            bare = Expr({_divided(m, common): c for m, c in bare.terms.items()})
            left = Expr({m: c for m, c in bare.terms.items() if m and c > 0})
            constant = bare.terms.get((), 0)
            right = left + constant - bare
            return Guard(left, ">=", right) if constant == 1 else Guard(left, ">", right - constant)
        if bare is None and _whole(counted) and all(c > 0 for c in counted.terms.values()):
            return Guard(counted, ">", Expr({}))
        return None


@lru_cache(maxsize=1 << 12)
def _counts(name: str) -> bool:
    return domain(name).endswith("integer")


def _is_positive(amount: Expr) -> bool:
    """Of one term, as far as its symbols say so, and the least and largest of some."""
    if len(amount.terms) != 1:
        return False
    ((monomial, coefficient),) = amount.terms.items()
    return coefficient > 0 and all(_is_positive_atom(a) for a, _ in monomial)


def _is_positive_atom(atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return domain(atom.name).startswith(("positive", "share"))
    return {"min": all, "max": any}.get(atom.function, lambda _: False)(map(_is_positive, atom.arguments))


def _call(amount: Expr) -> Call | None:
    """The function that an expression is, if it is one alone."""
    if len(amount.terms) == 1:
        ((monomial, coefficient),) = amount.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Call):
            return monomial[0][0]
    return None


def _other_than(amount: Expr, function: str, number: int) -> Expr | None:
    """The other argument of a function of two, of which one is a number."""
    call = _call(amount)
    if call is None or call.function != function or len(call.arguments) != 2:
        return None
    rest = [a for a in call.arguments if not (a.is_constant and a.constant() == number)]
    return rest[0] if len(rest) == 1 else None


def _at_most_one(amount: Expr) -> Expr | None:
    return _other_than(amount, "min", 1)


def _at_least_zero(amount: Expr) -> Expr | None:
    return _other_than(amount, "max", 0)


def _whole(amount: Expr) -> bool:
    """Whether it is a whole number wherever it is defined, and no less than zero where nothing is taken off."""
    return all(c == int(c) and _whole_product(m) for m, c in amount.terms.items())


def _whole_product(monomial: Monomial) -> bool:
    # micro-batches of a rank are in flight by chunks: with v of them to a model, whole numbers of 1/v
    names = {a.name for a, p in monomial if isinstance(a, Symbol) and p > 0}
    return len(names) == len(monomial) and all(_counts(n) or (n == "alive_i" and "vpp" in names) for n in names)


def split(terms: Terms) -> tuple[Fraction, dict[Atom, int], list[Terms]]:
    """A sum as a number, atoms to powers, and sums of several terms, all multiplied."""
    number, powers, sums, left = Fraction(1), dict[Atom, int](), list[Terms](), [terms]
    while left:
        own = left.pop(0)
        common, by = _common(own), _gcd(own.values())
        over_rates = by.denominator == 1 and bool(common) and all(p < 0 for p in common.values()) and not _any_size(own)
        if over_rates and len({abs(c) for c in own.values()}) > 1:
            by /= abs(by)  # bytes of a parameter are read one by one: (12 P + 46 P/d)/B
        rest = {_divided(m, common): Fraction(c) / by for m, c in own.items()}
        over = _over_one(rest)
        rest = {_multiplied(m, tuple((a, -p) for a, p in over)): c for m, c in rest.items()} if over else rest
        if rest.get(()) == 1 and _less_one(less := {m: -c for m, c in rest.items()}) and all(_is_degree(a) for m in rest for a, _ in m):
            rest, by = less, -by  # -(e - 1), not (1 - e)
        number *= by
        for atom, power in (*common.items(), *over):
            powers[atom] = powers.get(atom, 0) + power
        if len(rest) == 1:
            continue
        more = factors(rest)
        if more is not None:
            left = [*more, *left]
        else:
            sums.append(rest)
    return number, {a: p for a, p in powers.items() if p}, sums


def factors(terms: Terms) -> tuple[Terms, Terms] | None:
    """Two sums of several terms whose product the sum is, if there are."""
    if not 4 <= len(terms) <= _MOST_TERMS:
        return None
    atoms = list(dict.fromkeys(a for m in terms for a, _ in m))
    if len(atoms) > _MOST_ATOMS:
        return None
    powers = [(dict(monomial), monomial, coefficient) for monomial, coefficient in terms.items()]
    for atom in atoms:
        seen: dict[int, int] = {}
        for own, _, _ in powers:
            power = own.get(atom, 0)
            seen[power] = seen.get(power, 0) + 1
        often = set(seen.values())
        if len(seen) < 2 or len(often) > 1 or often == {1}:
            continue
        parts: dict[int, dict[Monomial, Number]] = {}
        for own, monomial, coefficient in powers:
            parts.setdefault(own.get(atom, 0), {})[tuple(f for f in monomial if f[0] != atom)] = coefficient
        (_, base), *rest = parts.items()
        found: dict[Monomial, Number] = {_with((), atom, next(iter(parts))): 1}
        for power, part in rest:
            ratio = _ratio(part, base, atoms)
            if ratio is None:
                break
            found[_with(ratio[0], atom, power)] = ratio[1]
        else:
            return base, found
    return None


def _ratio(part: Terms, base: Terms, atoms: list[Atom]) -> tuple[Monomial, Fraction] | None:
    """The one term by which a sum is a multiple of another."""
    places = {a: n for n, a in enumerate(atoms)}

    def rank(monomial: Monomial) -> tuple[int, ...]:
        # exponents in the order of the atoms: a product with one monomial keeps the order
        powers = {places[a]: p for a, p in monomial}
        return tuple(powers.get(n, 0) for n in range(len(atoms)))

    first, second = max(part, key=rank), max(base, key=rank)
    times = Fraction(part[first]) / Fraction(base[second])
    shift = _divided(first, dict(second))
    shift += tuple((a, -p) for a, p in second if a not in dict(first))
    moved = {_multiplied(m, shift): Fraction(c) * times for m, c in base.items()}
    return (shift, times) if moved == {_multiplied(m, ()): Fraction(c) for m, c in part.items()} else None


def _apart(terms: Sum) -> Sum:
    """A group between others: - i - 1, not -(i + 1)."""
    if len(terms) == 1 and terms[0].coefficient == -1 and not terms[0].monomial and len(terms[0].inner) == 1:
        return tuple(replace(t, coefficient=-t.coefficient) for t in terms[0].inner[0])
    return terms


def _multiplied(monomial: Monomial, by: Monomial) -> Monomial:
    powers = dict(monomial)
    for atom, power in by:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda f: f[0].key))


def _with(monomial: Monomial, atom: Atom, power: int) -> Monomial:
    return _multiplied(monomial, ((atom, power),)) if power else _multiplied(monomial, ())


def _over_one(terms: Terms) -> Monomial:
    """1/x of 1 - 1/x, which is (x - 1)/x; x may be a product."""
    first, *rest = terms.values()
    if () not in terms or len(rest) != 1 or first + rest[0] != 0:
        return ()
    (monomial,) = (m for m in terms if m)
    return monomial if all(p == -1 for _, p in monomial) else ()


def is_size(atom: Atom) -> bool:
    """Whether it counts something: a size, a degree, layers, an indicator of a stage."""
    return isinstance(atom, Symbol) and (atom.name in ORDER or _counts(atom.name))


def _is_degree(atom: Atom) -> bool:
    """Whether it counts ranks."""
    return isinstance(atom, Symbol) and atom.name in _DEGREES


def _any_size(terms: Terms) -> bool:
    """Whether a term is so many times something."""
    return any(p > 0 and is_size(a) for m in terms for a, p in m)


def _of_sizes(terms: Sum) -> bool:
    return all(
        all(is_size(a) or (isinstance(a, Call) and a.function in ("ceil", "floor")) for a, _ in t.monomial) and all(map(_of_sizes, t.inner))
        for t in terms
    )


def counts_first(term: Term) -> bool:
    """Whether its sums say how often there is what its atoms are: (m - 1) t_slow."""
    of_rates = bool(term.monomial) and all(power > 0 and not is_size(a) for a, power in term.monomial)
    return of_rates and bool(term.inner) and all(map(_of_sizes, term.inner))


def less_one(terms: Sum) -> Monomial:
    """x of x - 1, a product of symbols."""
    if len(terms) != 2 or any(t.inner for t in terms) or [t.coefficient for t in terms] != [1, -1] or terms[1].monomial:
        return ()
    return terms[0].monomial if all(p == 1 for _, p in terms[0].monomial) else ()


def _less_one(terms: Terms) -> bool:
    """Of x - 1."""
    first, *rest = terms.values()
    return () in terms and len(rest) == 1 and first + rest[0] == 0 and any(len(m) == 1 and m[0][1] == 1 for m in terms)


def _divides_no_size(monomial: Monomial) -> bool:
    """Of t/v: seconds over a size."""
    return len(monomial) == 2 and all(p == -1 and is_size(a) or p == 1 and not is_size(a) for a, p in monomial)


def _by_less_one(terms: Terms) -> dict[object, dict[Monomial, Number]]:
    """Terms of v (x + y) - x - y, which are (v - 1)(x + y), and the rest; one group where there are no two such pairs of what stands nowhere else."""
    best: dict[Monomial, Number] = {}
    for atom in dict.fromkeys(a for m in terms for a, p in m if p == 1 and is_size(a)):
        of_atom = {m: _divided(m, {atom: 1}) for m in terms if (atom, 1) in m}
        pairs = {m: terms[m] for m, alone in of_atom.items() if terms.get(_multiplied(alone, ())) == -terms[m] and _twice(alone, terms)}
        if len(pairs) > 1 and 2 * len(pairs) > len(best):
            best = {**pairs, **{_multiplied(of_atom[m], ()): -c for m, c in pairs.items()}}
    rest = {m: c for m, c in terms.items() if m not in best}
    return {True: best, False: rest} if best and rest else {0: dict(terms)}


def _twice(monomial: Monomial, terms: Terms) -> bool:
    """Whether what a product is of besides sizes stands in two terms alone."""
    of = {a for a, _ in monomial if not is_size(a)}
    return bool(of) and sum(not of.isdisjoint(a for a, _ in m) for m in terms) == 2


def _of_shares(terms: Terms) -> bool:
    """Of 1 + 3/d: the whole and shares of it, which are read apart."""
    return () in terms and not _over_one(terms) and all(p < 0 for m in terms for _, p in m)


def _by_tokens(terms: Terms) -> dict[object, dict[Monomial, Number]]:
    groups: dict[object, dict[Monomial, Number]] = {}
    for monomial, coefficient in terms.items():
        groups.setdefault(tuple(f for f in monomial if isinstance(f[0], Symbol) and f[0].name in _TOGETHER), {})[monomial] = coefficient
    return groups


def _by_number(terms: Terms) -> dict[object, dict[Monomial, Number]]:
    """Terms with the same coefficient, where that says more than they do: it is large, or that of three and more."""
    groups: dict[object, dict[Monomial, Number]] = {}
    often = Counter(terms.values())
    for monomial, coefficient in terms.items():
        says = abs(Fraction(coefficient)) > _LARGE or abs(coefficient) != 1 and often[coefficient] > 2
        groups.setdefault(coefficient if says else (coefficient, monomial), {})[monomial] = coefficient
    return groups if 1 < len(groups) < len(terms) else {0: dict(terms)}


def _common(terms: Iterable[Monomial]) -> dict[Atom, int]:
    """Factors of every term; a divisor is one only when it divides all."""
    found: dict[Atom, int] | None = None
    for monomial in terms:
        powers = dict(monomial)
        if found is None:
            found = powers
        else:
            found = {a: (min if p > 0 else max)(p, powers[a]) for a, p in found.items() if a in powers and (powers[a] > 0) == (p > 0)}
    return found or {}


def _divided(monomial: Monomial, common: Mapping[Atom, int]) -> Monomial:
    left = tuple((a, p - common.get(a, 0)) for a, p in monomial if p != common.get(a, 0))
    return left + tuple((a, -p) for a, p in common.items() if all(a != b for b, _ in monomial))


def _gcd(coefficients: Iterable[Number]) -> Fraction:
    exact = [Fraction(c) for c in coefficients]
    sign = -1 if all(c < 0 for c in exact) else 1
    return Fraction(sign * math.gcd(*(c.numerator for c in exact)), math.lcm(*(c.denominator for c in exact)))
