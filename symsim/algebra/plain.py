"""Formulas as text that fits a terminal: the form of `arranged.py` in the grammar of formulas, brackets for guards, lines broken at signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.arranged import Arranger, Sum, Term, counts_first, less_one
from symsim.algebra.expr import Atom, Expr, Symbol

WIDTH = 80


@dataclass(frozen=True)
class _Writer:
    arranger: Arranger
    names: Mapping[str, str]

    def whole(self, expression: Expr) -> str:
        return self.sum(self.arranger.arranged(expression.terms)) if expression.terms else "0"

    def sum(self, terms: Sum) -> str:
        return " ".join(self.signed(term, first=n == 0) for n, term in enumerate(terms))

    def signed(self, term: Term, first: bool) -> str:
        sign = "-" if first else "- "
        return (sign if term.coefficient < 0 else "" if first else "+ ") + self.term(term)

    def term(self, term: Term) -> str:
        """Number, sizes, sums, and what divides them; how often comes before what."""
        powers = dict(term.monomial)
        shares, sums = [], []
        for inner in term.inner:
            over = less_one(inner)
            if over and all(powers.get(a, 0) < 0 for a, _ in over):
                under = "*".join(self.atom(a, 1) for a, _ in over)
                shares.append(f"({self.sum(inner)})/{under if len(over) == 1 else f'({under})'}")
                powers |= {a: powers[a] + 1 for a, _ in over}
            else:
                sums.append(f"({self.sum(inner)})")
        sums = shares + sums
        top = [self.atom(a, p) for a, p in powers.items() if p > 0]
        bottom = [self.atom(a, -p) for a, p in powers.items() if p < 0]
        if term.coefficient.denominator != 1:
            bottom.insert(0, str(term.coefficient.denominator))
        number = abs(term.coefficient.numerator)
        above = [*([str(number)] if number != 1 else []), *(sums + top if counts_first(term) else top + sums)]
        under = "" if not bottom else "/" + (bottom[0] if len(bottom) == 1 else f"({'*'.join(bottom)})")
        return ("*".join(above) or "1") + under

    def atom(self, atom: Atom, power: int) -> str:
        if isinstance(atom, Symbol):
            text = self.names.get(atom.name, atom.name)
        elif guard := self.arranger.guard(atom):
            # a bracket is 0 or 1: so is each of its powers
            return f"[{self.whole(guard.left)} {guard.relation} {self.whole(guard.right)}]"
        elif atom.function == "sum":
            text = f"({self.whole(atom.arguments[0])})"
        else:
            text = f"{atom.function}({', '.join(map(self.whole, atom.arguments))})"
        return text if power == 1 else f"{text}**{power}"


def plain(expression: Expr, names: Mapping[str, str] | None = None, order: Sequence[str] = ()) -> str:
    """One line. names: of symbols, in the order in which a product has them, others are their own; order: definitions, each after what it
    stands on."""
    first = {name: n for n, name in enumerate(names or {})}
    return _Writer(Arranger({name: n for n, name in enumerate(order)}, first), names or {}).whole(expression)


def opened(term: Term) -> Expr:
    """What a term stands for, multiplied out."""
    made = Expr({tuple(sorted(term.monomial, key=lambda f: f[0].key)): Fraction(term.coefficient)})
    for inner in term.inner:
        made = made * sum((opened(t) for t in inner), Expr({}))
    return made


def lines(left: str, text: str, width: int = WIDTH, indent: str = "  ") -> list[str]:
    """left = text in lines of at most `width` characters where signs and commas allow it, what follows the first indented further."""
    made, room = [f"{indent}{left} ="], width
    for piece in _pieces(text):
        if len(made[-1]) + 1 + len(piece) > room and len(made[-1]) > len(indent) + 4:
            made.append(f"{indent}    {piece}")
        else:
            made[-1] += f" {piece}"
    return made


def _pieces(text: str) -> list[str]:
    """Words of a formula; what stands in brackets stays together while it is short."""
    words, depth, start = list[str](), 0, 0
    for k, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == " " and (depth == 0 or _breaks(text, k)):
            words.append(text[start:k])
            start = k + 1
    return _signs([*words, text[start:]])


def _breaks(text: str, at: int) -> bool:
    """Whether a line may be broken inside of brackets here: before a sign, behind a comma."""
    return text[at - 1] == "," or text[at + 1 : at + 3] in ("+ ", "- ")


def _signs(words: Sequence[str]) -> list[str]:
    """A sign stays with what follows it."""
    made: list[str] = []
    for word in words:
        if made and made[-1] in ("+", "-"):
            made[-1] += f" {word}"
        else:
            made.append(word)
    return made
