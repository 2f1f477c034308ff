"""Names for the parts of a formula that is too long to be read in one: the kernels of a module together, what a maximum compares.

Nothing is left out: the formula with its parts put back in is the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from symsim.algebra.arranged import is_size
from symsim.algebra.expr import Atom, Call, Expr, Monomial, Symbol, expr, symbol
from symsim.algebra.key import Key
from symsim.algebra.quantity import Definition
from symsim.algebra.typeset import entry, latex, word
from symsim.algebra.vocabulary import SYMBOLS, domain

LONGEST = 400  # characters of LaTeX of a formula that is read in one
_FEWEST = 3  # kernels that are summed under a name
_WORTH = 24  # characters of an argument that gets one
_COMPARES = ("max", "min")


@dataclass(frozen=True)
class Part:
    """A definition of the formula as it is shown. over: where it is a sum too long to be written out, what its terms are of."""

    definition: Definition
    over: str = ""


def parted(whole: Definition, book: Mapping[str, Definition], names: Mapping[str, str]) -> tuple[Definition, tuple[Part, ...]]:
    """A definition over parts, and these in the order in which they are read; without parts where it is short or has none.

    book: the definitions that it stands on, by symbol; names: their LaTeX.
    """
    return _Parting(whole, book, dict(names)).made()


@dataclass
class _Parting:
    whole: Definition
    book: Mapping[str, Definition]
    names: dict[str, str]
    parts: dict[Expr, Part] = field(default_factory=dict)

    def made(self) -> tuple[Definition, tuple[Part, ...]]:
        first = replace(self.whole, expr=self.shorter(self.whole.expr, self.whole.latex))
        read = 0
        # what is named may be long itself
        while read < len(self.parts):
            amount, part = list(self.parts.items())[read]
            if not part.over:
                short = self.shorter(part.definition.expr, part.definition.latex)
                self.parts[amount] = Part(replace(part.definition, expr=short))
            read += 1
        return first, tuple(self.parts.values())

    def long(self, amount: Expr, left: str) -> bool:
        return len(f"{left} = {latex(amount, self.names)}") > LONGEST

    def shorter(self, amount: Expr, left: str) -> Expr:
        for step in (self._of_modules, self._compared, self._counted):
            if self.long(amount, left):
                amount = step(amount, left)
        return amount

    # kernels ------------------------------------------------------------------------------------------------------------

    def _of_modules(self, amount: Expr, left: str) -> Expr:
        """With a name for each sum of a module's kernels, in maxima too."""
        amount = _in_calls(amount, lambda argument: self._of_modules(argument, left))
        groups: dict[tuple[str, str, Expr | int], list[str]] = {}
        for monomial, coefficient in amount.terms.items():
            key = self._kernel(monomial)
            if key is not None:
                groups.setdefault((key.block, key.module, int(coefficient)), []).append(key.text)
        for (_, module, times), found in groups.items():
            if len(found) >= _FEWEST:
                together = sum(map(symbol, found), Expr({}))
                amount = amount + times * (self._named(together, module) - together)
        return amount

    def _kernel(self, monomial: Monomial) -> Key | None:
        """What stands in a term alone, where it is a kernel of a module."""
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], Symbol):
            return None
        found = self.book.get(monomial[0][0].name)
        return found.key if found is not None and found.key.quantity == "t" and found.key.operation and found.key.module else None

    # maxima -------------------------------------------------------------------------------------------------------------

    def _compared(self, amount: Expr, left: str) -> Expr:
        """With names for all that a maximum or minimum of the formula's own unit compares, the longest of these first."""
        for call in sorted(_compares(amount), key=lambda c: -len(latex(Expr({((c, 1),): 1}), self.names))):
            if self.long(amount, left):
                for argument in call.arguments:
                    if len(latex(argument, self.names)) >= _WORTH:
                        amount = _with(amount, argument, self._named(argument))
        return amount

    # sums ---------------------------------------------------------------------------------------------------------------

    def _counted(self, amount: Expr, left: str) -> Expr:
        """With names for the sums behind what counts layers or tells stages apart, the longest first."""
        while self.long(amount, left):
            behind = [(atom, _behind(amount, atom)) for atom in dict.fromkeys(a for m in amount.terms for a, power in m if power == 1 and _counts(a))]
            found = [(atom, whole) for atom, whole in behind if len(whole.terms) > 1 and len(latex(whole, self.names)) >= _WORTH]
            if not found:
                break
            atom, whole = max(found, key=lambda one: len(latex(one[1], self.names)))
            amount = amount + Expr({((atom, 1),): 1}) * (self._named(whole) - whole)
        return amount

    # names --------------------------------------------------------------------------------------------------------------

    def _named(self, amount: Expr, module: str = "") -> Expr:
        if amount not in self.parts:
            self.parts[amount] = self._part(amount, module)
        return symbol(self.parts[amount].definition.symbol)

    def _part(self, amount: Expr, module: str) -> Part:
        letter = "t" if module else self.whole.key.quantity[:1]
        of = self.whole.symbol
        count, said = 1, f"{letter}_{module}" if module else f"{letter}_1"
        while said in self.book or said in self.whole.expr.symbols() or said in self.names or entry(said).meaning != said:
            count += 1
            said = f"{letter}_{module}_{count}" if module else f"{letter}_{count}"
        below = [word(module)] * bool(module) + [str(count)] * (count > 1 or not module)
        meaning = f"{module}: {len(amount.terms)} kernels together" if module else f"a part of {of}"
        key = Key(said, "pipeline")
        self.names[said] = f"{letter}_{{{','.join(below)}}}"
        over = module + f", {count}" * (count > 1) if module and self.long(amount, self.names[said]) else ""
        return Part(Definition(key, amount, self.whole.unit, meaning, self.names[said]), over)


def in_order(parts: tuple[Part, ...]) -> tuple[Definition, ...]:
    """Their definitions, each after what it stands on."""
    left, made = [part.definition for part in parts], list[Definition]()
    while left:
        waiting = {d.symbol for d in left}
        made += [d for d in left if not d.expr.symbols() & waiting]
        left = [d for d in left if d.expr.symbols() & waiting]
    return tuple(made)


def _compares(amount: Expr) -> Iterator[Call]:
    """Maxima and minima of the formula's own unit: alone in their terms, or a share of them."""
    for monomial in amount.terms:
        calls = [a for a, power in monomial if isinstance(a, Call) and a.function in _COMPARES and power == 1]
        others = [a for a, _ in monomial if a not in calls]
        if len(calls) == 1 and all(isinstance(a, Symbol) and domain(a.name) == "share" for a in others):
            yield calls[0]


def _counts(atom: Atom) -> bool:
    """Whether it counts layers of a kind or a stage, or says where there are any."""
    if isinstance(atom, Call):
        return atom.function == "min" and any(a.is_constant for a in atom.arguments)
    return atom.name not in SYMBOLS and is_size(atom)


def _behind(amount: Expr, atom: Atom) -> Expr:
    """What an atom is multiplied by."""
    return Expr({tuple(f for f in m if f[0] != atom): c for m, c in amount.terms.items() if (atom, 1) in m})


def _rebuilt(amount: Expr, of_call: Callable[[Call], Expr]) -> Expr:
    """The expression with something else for each of its calls."""
    total = Expr({})
    for monomial, coefficient in amount.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            term = term * (of_call(atom) if isinstance(atom, Call) else Expr({((atom, 1),): 1})) ** power
        total = total + term
    return total


def _in_calls(amount: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with what its maxima and minima compare changed."""
    return _rebuilt(
        amount, lambda c: Expr({((Call(c.function, tuple(map(change, c.arguments)) if c.function in _COMPARES else c.arguments), 1),): 1})
    )


def _with(amount: Expr, argument: Expr, name: Expr) -> Expr:
    """The expression with a name for what its maxima and minima compare."""
    return _in_calls(amount, lambda a: name if a == argument else a)
