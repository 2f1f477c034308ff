"""A formula as a function of one of its symbols, all others being numbers.

Whatever does not branch is multiplied out exactly, so that terms cancel as in algebra; each max, min, ceil, floor, log2, root or divisor of
several terms is a node with a name. A curve then is a short list of nodes and a Laurent polynomial, each over the symbol and the nodes
before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.expr import ZERO, Call, Expr, Number, Symbol, expr, symbol
from symsim.algebra.formula import Formula
from symsim.algebra.operators import EXACT, FUNCTIONS


@dataclass(frozen=True)
class Node:
    """name: as the curve's expressions call it. inside: the definition of the formula in which it is met first."""

    name: str
    call: Call
    inside: str

    @property
    def chooses(self) -> bool:
        """Whether it is one of its arguments: max, min, and `at`."""
        return FUNCTIONS[self.call.function].chosen is not None

    @property
    def steps(self) -> bool:
        """Whether it jumps from integer to integer."""
        return FUNCTIONS[self.call.function].whole


@dataclass(frozen=True)
class Curve:
    """nodes: in order, each over the symbol and those before it. result: over the symbol and the nodes."""

    symbol: str
    nodes: tuple[Node, ...]
    result: Expr

    def numbers(self, x: Number) -> dict[str, Number]:
        """The exact numbers of the symbol and of every node at x."""
        found: dict[str, Number] = {self.symbol: exactly(x)}
        for node in self.nodes:
            found[node.name] = exactly(EXACT[node.call.function](*(a.evaluate(found) for a in node.call.arguments)))
        return found

    def at(self, x: Number) -> Number:
        """The exact value at x, of a root its nearest fraction."""
        return self.result.evaluate(self.numbers(x))


def exactly(value: Number) -> Number:
    """A number of the system as the decimal that it was written as; integers and fractions as they are."""
    return Fraction(repr(value)) if isinstance(value, float) and value == value and abs(value) != float("inf") else value


def curve(formula: Formula, name: str, values: Mapping[str, Number | Expr]) -> Curve:
    """The formula as a function of one symbol. values: of all other symbols; what follows the symbol as an expression over it,
    and the symbol itself, where the formula has another number of it than is set.

    KeyError names a symbol without a value.
    """
    made = _Builder(name, values)
    for definition in formula.written_out().definitions:
        made.inside = definition.symbol
        made.known[definition.symbol] = made.put(definition.expr)
    return made.curve(made.known[formula.result.symbol])


class _Builder:
    def __init__(self, name: str, values: Mapping[str, Number | Expr]) -> None:
        self.known = {name: symbol(name)} | {n: v if isinstance(v, Expr) else expr(exactly(v)) for n, v in values.items()}
        self.name, self.inside = name, ""
        self.nodes: dict[Call, Node] = {}

    def put(self, amount: Expr) -> Expr:
        """An expression over definitions, over the symbol and nodes."""
        total = ZERO
        for monomial, coefficient in amount.terms.items():
            term = expr(exactly(coefficient))
            for atom, power in monomial:
                base = self.known[atom.name] if isinstance(atom, Symbol) else self._called(atom)
                if power < 0 and len(base.terms) > 1:
                    base = self._node(Call("sum", (base,)))
                term = term * base**power
            total = total + term
        return total

    def _called(self, call: Call) -> Expr:
        arguments = tuple(self.put(a) for a in call.arguments)
        if all(a.is_constant for a in arguments):
            return expr(exactly(EXACT[call.function](*(a.constant() for a in arguments))))
        if FUNCTIONS[call.function].chosen is not None and call.function != "at":
            arguments = _distinct(call.function, arguments)
        if len(set(arguments[::2])) == 1 and (call.function == "at" or len(arguments) == 1) and call.function in ("at", "max", "min", "sum"):
            return arguments[0]
        return self._node(Call(call.function, arguments))

    def _node(self, call: Call) -> Expr:
        if call not in self.nodes:
            self.nodes[call] = Node(f"~{len(self.nodes)}", call, self.inside)
        return symbol(self.nodes[call].name)

    def curve(self, result: Expr) -> Curve:
        """Of the nodes, those that the result stands on."""
        needed, kept = result.symbols(), []
        for node in reversed(self.nodes.values()):
            if node.name in needed:
                needed |= {n for a in node.call.arguments for n in a.symbols()}
                kept.append(node)
        return Curve(self.name, tuple(reversed(kept)), result)


def _distinct(function: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The arguments of a max or a min, of several numbers the one that counts."""
    numbers = [a.constant() for a in arguments if a.is_constant]
    varying = dict.fromkeys(a for a in arguments if not a.is_constant)
    return (*varying, *([expr(EXACT[function](*numbers))] if numbers else []))
