"""The limit of an expression as a symbol grows without bound, exactly: leading powers of a quotient of two polynomials.

Of max, min and `at` the branch that wins in the end is taken; ceil and floor step up or down from an integer as their argument
comes from above or below. What stays unknown (a rounding that does not vanish) and what grows is an error.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Call, Expr, Symbol, expr, function, symbol
from symsim.algebra.operators import FUNCTIONS
from symsim.algebra.proof import Prover, cleared, is_whole
from symsim.errors import InputError, cut

_UNKNOWN = "~"  # what a rounding adds, or a logarithm: its size is not known, only that it grows slower than any power


class NoLimit(InputError):
    """An expression has no finite limit, or none that is known."""


def limit(amount: Expr, name: str, prover: Prover, words: str = "") -> Expr:
    """What the expression comes to as the symbol grows without bound. NoLimit where that is not finite or not known.

    words: how the error calls it ('dp -> oo').
    """
    return _Limit(name, prover, words or f"{name} -> oo").of(amount)


class _Limit:
    def __init__(self, name: str, prover: Prover, words: str) -> None:
        self.name, self.prover, self.words = name, prover, words

    def of(self, amount: Expr) -> Expr:
        if self.name not in amount.symbols():
            return amount
        degree, coefficient = self._leading(self._settled(amount))
        if degree > 0:
            raise NoLimit(f"'{cut(str(amount))}' has no finite limit as {self.words}")
        if degree < 0:
            return ZERO
        if any(n.startswith(_UNKNOWN) for n in coefficient.symbols()):
            raise NoLimit(f"the limit of '{cut(str(amount))}' as {self.words} is not known: a rounding or a logarithm stays in it")
        return coefficient

    def _leading(self, amount: Expr) -> tuple[int, Expr]:
        """The highest power of the symbol and what it is multiplied by."""
        if not amount:
            return -1, ZERO
        (top, above), (bottom, below) = (self._highest(part) for part in self._quotient(amount))
        return top - bottom, above / below

    def _highest(self, amount: Expr) -> tuple[int, Expr]:
        key = Symbol(self.name)
        top = max(dict(m).get(key, 0) for m in amount.terms)
        return top, Expr({tuple(i for i in m if i[0] != key): c for m, c in amount.terms.items() if dict(m).get(key, 0) == top})

    def _quotient(self, amount: Expr) -> tuple[Expr, Expr]:
        """Numerator and denominator without divisors that hold the symbol."""
        lowest: dict[Symbol | Call, int] = {}
        for monomial in amount.terms:
            for atom, power in monomial:
                if isinstance(atom, Call) and atom.function == "sum" and self.name in atom.arguments[0].symbols():
                    lowest[atom] = min(power, lowest.get(atom, 0))
        if not lowest:
            return amount, ONE
        denominator = ONE
        for atom, power in lowest.items():
            assert isinstance(atom, Call)
            denominator = denominator * atom.arguments[0] ** -power
        (n, d), (p, q) = self._quotient(cleared(amount, lowest)), self._quotient(denominator)
        return (n * q, d * p) if n else (ZERO, ONE)

    def _settled(self, amount: Expr) -> Expr:
        """The expression with what its functions of the symbol are once the symbol is large."""
        total = ZERO
        for monomial, coefficient in amount.terms.items():
            term = expr(coefficient)
            for atom, power in monomial:
                base = Expr({((atom, 1),): 1})
                if isinstance(atom, Call) and self.name in base.symbols():
                    base = self._settled_call(atom)
                term = term * base**power
            total = total + term
        return total

    def _settled_call(self, call: Call) -> Expr:
        arguments = tuple(self._settled(a) for a in call.arguments)
        if call.function == "sum":
            return arguments[0]
        row = FUNCTIONS.get(call.function)
        if row is not None and row.whole:
            return self._rounded(call.function, arguments[0])
        if call.function == "sqrt" and self._leading(arguments[0])[0] <= 0:
            return function("sqrt", self.of(arguments[0]))
        if row is None or row.chosen is None:
            raise NoLimit(f"the limit of '{cut(call.key[1])}' as {self.words} is not known: expand it first")
        values, keys = Call(call.function, arguments).branches
        for place, key in enumerate(keys):
            ahead = [other - key if call.function == "min" else key - other for other in keys]
            if all(self._in_the_end(a, strict=call.function == "at" and n < place) for n, a in enumerate(ahead) if n != place):
                return values[place]
        if call.function != "at" and all(self._leading(a)[0] <= 0 for a in arguments):
            return function(call.function, *map(self.of, arguments))
        raise NoLimit(f"which argument of '{cut(call.key[1])}' counts as {self.words} is not known: a fact may say it")

    def _in_the_end(self, amount: Expr, strict: bool = False) -> bool:
        """Whether the expression is not negative (positive, where strict) once the symbol is large."""
        if not amount:
            return not strict
        coefficient = self._leading(amount)[1]
        # a leading coefficient that may be zero says nothing
        return self.prover.positive(coefficient) or (self.prover.nonnegative(coefficient) and not strict and self.name not in amount.symbols())

    def _rounded(self, name: str, argument: Expr) -> Expr:
        degree, _ = self._leading(argument)
        if degree > 0:
            unknown = symbol(f"{_UNKNOWN}{name}({argument})")
            return unknown if name == "log2" else argument + unknown
        reached = self.of(argument)
        over = argument - reached
        whole = is_whole(reached, self.prover.domain)
        if not over or (reached.is_constant and not whole):
            return function(name, reached)
        above, below = self._in_the_end(over), self._in_the_end(-over)
        if whole and (above or below):
            if name == "floor":
                return reached if above else reached - 1
            return function(name, reached + 1 if above else reached)
        raise NoLimit(f"the limit of '{cut(name)}({cut(str(argument))})' as {self.words} is not known: its argument may be an integer")
