"""Functions that are decided: max, min, ceil, floor, log2 and `at` whose value is known for all values of the symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symsim.algebra.expr import Call, Expr, Symbol, expr, function
from symsim.algebra.operators import FUNCTIONS
from symsim.algebra.proof import Prover, is_whole


class Resolver:
    """Decides the functions of expressions by a prover's proofs, each call once; closed: what stands behind the names in them."""

    def __init__(self, prover: Prover, closed: Mapping[str, Expr]) -> None:
        self.prover, self.closed = prover, closed
        self._known: dict[Call, Expr] = {}

    def _nonnegative(self, amount: Expr) -> bool:
        if self.prover.nonnegative(amount):
            return True
        opened = amount.substitute(self.closed)
        return opened is not amount and self.prover.nonnegative(opened)

    def _positive(self, amount: Expr) -> bool:
        if self.prover.positive(amount):
            return True
        opened = amount.substitute(self.closed)
        return opened is not amount and self.prover.positive(opened)

    def resolve(self, amount: Expr) -> Expr:
        """The expression without the functions that are decided, equal to it wherever the facts hold."""
        if not any(isinstance(a, Call) for m in amount.terms for a, _ in m):
            return amount
        total = expr(0)
        for monomial, coefficient in amount.terms.items():
            term = Expr({tuple(i for i in monomial if isinstance(i[0], Symbol)): coefficient})
            for atom, power in monomial:
                if isinstance(atom, Call):
                    term = term * self._decided(atom) ** power
            total = total + term
        return total

    def _decided(self, call: Call) -> Expr:
        if call.function not in FUNCTIONS:
            return Expr({((call, 1),): 1})
        if call not in self._known:
            self._known[call] = self._decide(call.function, tuple(self.resolve(a) for a in call.arguments))
        return self._known[call]

    def _decide(self, name: str, arguments: tuple[Expr, ...]) -> Expr:
        if name in ("max", "min"):
            arguments = self._extremes(name, tuple(dict.fromkeys(arguments)))
        elif name == "at":
            arguments = self._candidates(arguments)
        elif name in ("ceil", "floor"):
            return self._rounded(name, arguments[0])
        elif name == "log2" and self._positive(arguments[0]) and self._nonnegative(1 - arguments[0]):
            return expr(0)
        return function(name, *arguments)

    def _extremes(self, name: str, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        kept = list(arguments)
        for argument in arguments:
            others = (k for k in kept if k is not argument)
            if any(self._nonnegative(k - argument if name == "max" else argument - k) for k in others):
                kept.remove(argument)
        return tuple(kept)

    def _candidates(self, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The pairs of `at` whose key may be the largest: a later one must be larger, an earlier one not smaller."""
        kept = list(zip(arguments[::2], arguments[1::2]))
        for pair in list(kept):
            place = kept.index(pair)
            earlier = any(self._nonnegative(key - pair[1]) for _, key in kept[:place])
            if earlier or any(self._positive(key - pair[1]) for _, key in kept[place + 1 :]):
                kept.remove(pair)
        if len({value for value, _ in kept}) == 1:
            kept = kept[:1]
        return tuple(part for pair in kept for part in pair)

    def _rounded(self, name: str, argument: Expr) -> Expr:
        """An integer and what is over: the integer where nothing is, one beside it where the rest lies between two."""
        whole = Expr({m: c for m, c in argument.terms.items() if is_whole(Expr({m: c}), self.prover.domain)})
        rest = argument - whole
        up = name == "ceil"
        for number in (1, 0) if up else (0, -1):
            low, high = (rest - (number - 1), number - rest) if up else (rest - number, number + 1 - rest)
            if self._positive(low if up else high) and self._nonnegative(high if up else low):
                return whole + number
        return function(name, argument)
