"""Names in a program: symbols with their values, and definitions, each lowered once when it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from symsim.algebra.expr import Call, Expr, Symbol
from symsim.algebra.operators import FUNCTIONS
from symsim.program.program import Program
from symsim.program.value import Value


class Scope:
    """Names and what they stand for: symbols with their values, and definitions, lowered when they are asked for."""

    def __init__(
        self,
        program: Program,
        symbols: Mapping[str, Value],
        definitions: Mapping[str, tuple[Expr, bool]],
        outer: "Scope | None" = None,
        label: str = "",
        outline: "Outline | None" = None,
    ):
        """definitions: by name, the expression and whether it counts something, so that quotients must come out whole. outline: numbers of these
        definitions; the program keeps what they come to with these symbols (the mapping itself)."""
        self.program, self.symbols, self.definitions, self.outer, self.label = program, symbols, definitions, outer, label
        self.outline = outline
        self._made: dict[str, Value] = {}

    def value(self, name: str) -> Value:
        """KeyError for a name that is neither a symbol nor defined."""
        found = self._made.get(name)
        if found is not None:
            return found
        found = self.symbols.get(name)
        if found is None:
            if name in self.definitions:
                found = self._defined(name)
            elif self.outer is not None:
                found = self.outer.value(name)
            else:
                raise KeyError(name)
        self._made[name] = found
        return found

    def _defined(self, name: str) -> Value:
        key, known = None, self.program.outlined
        if self.outline is not None:
            key = self.outline.number(name), id(self.symbols)
            found = known.get(key)
            if found is not None:
                return found
        expression, exact = self.definitions[name]
        found = self.lower(expression, exact)
        if not found.known and not found.name:
            found.name = f"{name}{self.label}"
        if key is not None:
            known[key] = found
        return found

    def lower(self, expression: Expr, exact: bool = False) -> Value:
        program, made = self.program, self._made
        number, used, _ = program.number_of(expression)
        key = (number, exact, *[(made.get(name) or self.value(name)).id for name in used])
        found = program.lowered.get(key)
        if found is None:
            found = program.lowered[key] = self._lower(expression, exact)
        return found

    def _lower(self, expression: Expr, exact: bool) -> Value:
        program = self.program
        terms = []
        for monomial, coefficient in expression.terms.items():
            factors = []
            for atom, power in monomial:
                value = self.value(atom.name) if isinstance(atom, Symbol) else self._call(atom, exact)
                factors += [(value, 1 if power > 0 else -1)] * abs(power)
            if len(factors) == 1 and factors[0][1] == 1:
                terms.append((factors[0][0], coefficient))
            else:
                terms.append((program.product(coefficient, factors, exact=exact), 1))
        if len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        return program.total(terms)

    def _call(self, call: Call, exact: bool) -> Value:
        if FUNCTIONS[call.function].whole:
            return self.program.apply(call.function, self.lower(call.arguments[0], True))
        arguments = [self.lower(a, exact) for a in call.arguments]
        if call.function == "sum":
            return arguments[0]
        if call.function == "at":
            return self.program.of_largest(list(zip(arguments[::2], arguments[1::2])))
        if FUNCTIONS[call.function].operands == 1:
            return self.program.apply(call.function, *arguments)
        return self.program.extreme(call.function, arguments)


class Outline:
    """Numbers of definitions over symbols that scopes give values to (a stage's own), in which other names stand for their values: equal numbers
    come to equal values in every one of these scopes."""

    def __init__(self, base: Scope, definitions: Mapping[str, tuple[Expr, bool]], symbols: Collection[str]):
        self.base, self.definitions = base, definitions
        self._known: dict[str, Hashable] = {name: (name,) for name in symbols}

    def number(self, name: str) -> Hashable:
        """KeyError for a name that is neither a symbol nor defined."""
        known = self._known
        found = known.get(name)
        if found is None:
            if name in self.definitions:
                expression, exact = self.definitions[name]
                program = self.base.program
                number, used, _ = program.number_of(expression)
                key = (number, exact, *[known.get(own) or self.number(own) for own in used])
                # below zero, where no value has its number
                found = program.outlines.setdefault(key, -1 - len(program.outlines))
            else:
                found = self.base.value(name).id
            known[name] = found
        return found
