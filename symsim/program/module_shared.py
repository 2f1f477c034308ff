"""Which parts of the expressions of a module occur more than once, and the names they have."""

from __future__ import annotations

from collections import Counter

from symsim.algebra.expr import Atom, Call, Expr, Symbol, symbol
from symsim.program.unrolled import Unrolled


class Shared:
    """Which parts of expressions occur more than once, and the names they have by now. Steps that say the same are one."""

    def __init__(self, unrolled: Unrolled):
        self._same: dict[str, Expr] = {}
        self._canonicals: dict[Expr, Expr] = {}
        bodies: dict[Expr, str] = {}
        self._often: Counter[Expr] = Counter()
        self._named: dict[Expr, str] = {}
        self._parts: Counter[str] = Counter()
        for step in unrolled.steps:
            body = self._canonical(step.body)
            if is_symbol(body):
                self._same[step.name] = body
            elif body in bodies:
                self._same[step.name] = symbol(bodies[body])
            else:
                bodies[body] = step.name
                self._count(body)
        for output in unrolled.outputs:
            self._count(self._canonical(output.body))

    def _count(self, expression: Expr) -> None:
        for monomial in expression.terms:
            for atom, _ in monomial:
                if isinstance(atom, Call) and atom.function == "sum":
                    self._count(atom.arguments[0])
                elif isinstance(atom, Call):
                    call = Expr({((atom, 1),): 1})
                    self._often[call] += 1
                    if self._often[call] == 1:
                        for argument in atom.arguments:
                            self._count_argument(argument)

    def _count_argument(self, argument: Expr) -> None:
        if argument.is_constant or is_symbol(argument):
            return
        if is_call(argument):
            self._count(argument)
            return
        self._often[argument] += 1
        if self._often[argument] == 1:
            self._count(argument)

    def _canonical(self, expression: Expr) -> Expr:
        """With one name for steps that say the same. Symbols stand after the steps that they name, so it is final once it is found."""
        found = self._canonicals.get(expression)
        if found is None:
            found = self._canonicals[expression] = expression.substitute(self._same)
        return found

    def again(self, part: Expr) -> bool:
        """Whether a call or an argument occurs more than once."""
        return self._often[self._canonical(part)] > 1

    def name_of(self, part: Expr) -> str | None:
        """The symbol that stands for a part by now; None where it has none, or is a symbol or a number itself."""
        return None if part.is_constant or is_symbol(part) else self._named.get(self._canonical(part))

    def keep(self, part: Expr, title: str) -> None:
        self._named[self._canonical(part)] = title

    def part(self, owner: str) -> int:
        """The number of the next part named after a definition."""
        self._parts[owner] += 1
        return self._parts[owner]


def is_symbol(expression: Expr) -> bool:
    return isinstance(_lone_atom(expression), Symbol)


def is_call(expression: Expr) -> bool:
    return isinstance(_lone_atom(expression), Call)


def _lone_atom(expression: Expr) -> Atom | None:
    """What an expression is that is one symbol or one call; else None."""
    if len(expression.terms) != 1:
        return None
    ((monomial, coefficient),) = expression.terms.items()
    return monomial[0][0] if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None
