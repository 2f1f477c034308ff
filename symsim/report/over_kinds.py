"""Formulas over kinds of layers, where a model has several and a formula would be too long with all of them: a term that every kind has is
written once, with k for the kind, behind a sum; arguments of a maximum behind a maximum."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from symsim.algebra.expr import ZERO, Call, Expr, maximum, symbol
from symsim.algebra.typeset import is_sum, latex, width, word

_FEWEST = 2
_WIDEST = 36.0  # em of what one maximum compares: it stands on one line, behind its name and range


class OverKinds:
    """Writes k for the kinds of layers of one model."""

    def __init__(self, kinds: Iterable[str], names: Mapping[str, str], local: Callable[[str, str], str]):
        """names: LaTeX by symbol; local: makes a symbol of the report, of a name and its LaTeX."""
        # the longest first: one may begin as another does
        self.labels = {kind: word(kind)[len(r"\mathrm{") : -1] for kind in sorted(kinds, key=len, reverse=True)}
        self.names, self.local = names, local
        self.stands: dict[str, Expr] = {}  # what the symbols made here stand for

    def summed(self, expression: Expr) -> Expr:
        """The expression with one sum for the terms that differ in their kind alone."""
        own: dict[str, dict[str, Expr]] = {}
        for monomial, coefficient in expression.terms.items():
            term = Expr({monomial: coefficient})
            of, shape = self._shape(term)
            if len(of) == 1:
                own.setdefault(of[0], {})[shape] = term
        for shape, terms in self._alike(own).items():
            under = rf"({shape})" if is_sum(next(iter(terms.values()))) or shape.startswith("-") else shape
            whole = sum(terms.values(), ZERO)
            made = self._made(f"sum over kinds: {shape}", rf"{{\textstyle\sum_{{{self._range(terms)}}}}}{under}", whole)
            expression = expression + made - whole
        return expression

    def compared(self, expression: Expr) -> Expr:
        """A lone maximum with one maximum over kinds for the arguments that differ in their kind alone."""
        if len(expression.terms) != 1:
            return expression
        ((monomial, coefficient),) = expression.terms.items()
        call = monomial[0][0]
        if len(monomial) != 1 or coefficient != 1 or not isinstance(call, Call) or call.function != "max":
            return expression
        shapes: dict[str, dict[str, Expr]] = {}
        others: list[Expr] = []
        for argument in call.arguments:
            of, shape = self._shape(argument)
            if len(of) == 1:
                shapes.setdefault(shape, {})[of[0]] = argument
            else:
                others.append(argument)
        ranges: dict[str, list[dict[str, Expr]]] = {}
        for shape, found in shapes.items():
            if len(found) < _FEWEST:
                others += found.values()
                continue
            lines = ranges.setdefault(self._range(found), [{}])
            if lines[-1] and width(", ".join((*lines[-1], shape))) > _WIDEST:
                lines.append({})
            lines[-1][shape] = maximum(*found.values())
        together = [
            self._made(f"maximum over {r} of {', '.join(s)}", rf"\max_{{{r}}}({', '.join(s)})", maximum(*s.values()))
            for r, lines in ranges.items()
            for s in lines
        ]
        return Expr({((Call("max", (*together, *others)), 1),): 1}) if together else expression

    def _made(self, name: str, latex: str, whole: Expr) -> Expr:
        self.stands[name] = whole
        return symbol(self.local(name, latex))

    def _shape(self, amount: Expr) -> tuple[list[str], str]:
        """The kinds that an expression names, and its LaTeX with k for them."""
        text, found = latex(amount, self.names), []
        for kind, label in self.labels.items():
            pattern = rf"\\mathrm\{{((?:[^{{}}]*\\_)?){re.escape(label)}((?:\\_[^{{}}]*)?)\}}"
            text, count = re.subn(pattern, lambda at: _indexed(at[1], at[2]), text)
            found += [kind] if count else []
        return found, text

    def _alike(self, own: Mapping[str, Mapping[str, Expr]]) -> dict[str, dict[str, Expr]]:
        """What all these kinds have, or else what several have in whole, by how it looks."""
        common = set.intersection(*map(set, own.values())) if own else set()
        made: dict[str, dict[str, Expr]] = {}
        for kind, terms in own.items():
            whole = sum((term for shape, term in terms.items() if shape in (common or terms)), ZERO)
            made.setdefault(self._shape(whole)[1], {})[kind] = whole
        return {shape: terms for shape, terms in made.items() if len(terms) >= _FEWEST}

    def _range(self, of: Iterable[str]) -> str:
        here = set(of)
        return "k" if here == set(self.labels) else rf"k \in \{{{', '.join(word(kind) for kind in reversed(self.labels) if kind in here)}\}}"


def _indexed(before: str, behind: str) -> str:
    """k among the words that stood around a kind."""
    words = (before.removesuffix(r"\_"), None, behind.removeprefix(r"\_"))
    return ",".join(rf"\mathrm{{{w}}}" if w else "k" for w in words if w != "")
