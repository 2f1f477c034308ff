"""What a question is about: quantities by the names that people use, and expressions over them, as exact formulas with their units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, Number, expr, function, symbol
from symsim.algebra.formula import Formula
from symsim.algebra.reductions import named, stages_at, stages_max
from symsim.algebra.typeset import entry
from symsim.asking.symbols import named_symbol
from symsim.cost.step_time import exposed_axes
from symsim.errors import InputError, cut
from symsim.evaluation.interval import ENDS
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.quantities import A_RUN, QUANTITIES
from symsim.grid.conditions import Node, parse_quantity, show
from symsim.grid.units import combined, said, spelt
from symsim.inputs.run import asks_run

_OPERATIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
_FUNCTIONS = ("max", "min", "sqrt", "ceil", "floor", "log2")
_OF_ONE = ("add", "sub", "max", "min")
# of what a number has a unit: the base unit, and those that people write
_UNITS = {
    "byte": ("GiB", "GB", "MiB", "B"),
    "s": ("s", "ms", "us"),
    "byte/s": ("GB/s", "TB/s"),
    "FLOP/s": ("TFLOP/s", "PFLOP/s"),
    "W": ("W",),
    "USD/s": ("USD/h",),
}


@dataclass(frozen=True)
class Subject:
    """A quantity of a result. text: as it was asked for; amount: over definitions and symbols; unit: in base units, '' where none is known."""

    text: str
    amount: Expr
    unit: str
    meaning: str

    def formula(self, result: Evaluation) -> Formula:
        return formula_of(result, self.amount)

    def number(self, result: Evaluation) -> Number:
        """Its exact number in a result."""
        return number_of(result, self.amount)


def subject(result: Evaluation, text: str) -> Subject:
    """What a text asks about: a quantity (time.step), a definition (t_step), a symbol (s), or arithmetic over some. InputError names the nearest."""
    node = parse_quantity(text, "the question")
    made = of_node(result, node)
    return Subject(text.strip(), made.amount, made.unit, made.meaning)


def of_node(result: Evaluation, node: Node) -> Subject:
    """A part of an expression or of a condition."""
    if node.kind == "name":
        return _named(result, str(node.value))
    if node.kind == "number":
        assert isinstance(node.value, (int, Fraction))
        return Subject(show(node), expr(node.value), combined(node, ()), "")
    parts = [of_node(result, a) for a in node.arguments]
    if node.kind in _OF_ONE:
        measured(parts, show(node))
    return Subject(show(node), _amount(node, [p.amount for p in parts]), combined(node, [p.unit for p in parts]), "")


def measured(parts: Sequence[Subject], text: str) -> None:
    """InputError, quoting the text, where a bare number stands beside bytes, seconds or what else is given with a unit; 0 needs none."""
    of = next((p for p in parts if p.unit in _UNITS), None)
    bare = next((p for p in parts if not p.unit and p.amount.is_constant and p.amount.constant()), None)
    if of is not None and bare is not None:
        words = _UNITS[of.unit]
        others = f" (or {', '.join(words[1:])})" if words[1:] else ""
        raise InputError(
            f"'{cut(text)}': {cut(of.text)} is in {said(of.unit)}, and {cut(bare.text)} has no unit: write {cut(bare.text)} {words[0]}{others}"
        )


def _amount(node: Node, parts: list[Expr]) -> Expr:
    kind = node.kind
    if kind in _OPERATIONS:
        if kind == "div" and not parts[1]:
            raise InputError(f"'{cut(show(node))}' divides by zero")
        return _OPERATIONS[kind](parts[0], parts[1])
    if kind in _FUNCTIONS:
        return function(kind, *parts)
    if kind == "neg":
        return -parts[0]
    if kind == "abs":
        return function("max", parts[0], -parts[0])
    if kind == "pow" and isinstance(node.value, int) and abs(node.value) <= 8:
        return parts[0] ** node.value
    if kind == "floordiv":
        return function("floor", parts[0] / parts[1])
    raise InputError(f"'{cut(show(node))}' is not asked about: + - * / // max min sqrt ceil floor log2 abs and powers up to 8 are")


def _named(result: Evaluation, name: str) -> Subject:
    if name in QUANTITIES:
        return _quantity(result, name)
    if name in ("world", "world_size"):
        return _quantity(result, "world")
    found = named_symbol(result, name)
    if found in result.values:
        return Subject(name, symbol(found), entry(found).unit, entry(found).meaning)
    definition = result.formula(name).result
    amount = symbol(definition.symbol)
    # of what each stage has its own of, the largest
    amount = stages_max(amount) if definition.key.scope == "stage" else amount
    return Subject(name, amount, spelt(str(definition.unit)), definition.meaning)


def _quantity(result: Evaluation, name: str) -> Subject:
    """A quantity of `symsim list quantities`."""
    if name in ENDS:
        raise InputError(f"{name} is an end of an interval and no formula; ask of time.step")
    known = QUANTITIES[name]
    if known.timed and result.system is None:
        raise InputError(f"{name} needs a system: -y h100-sxm gives one (in Python, system='h100-sxm')")
    if known.of_run and not asks_run(result.overrides):
        raise InputError(f"{name} needs a run: {A_RUN} (in Python, overrides={{'tokens': '15T'}})")
    # what else it lacks is said by its value
    value = result.value(name)
    if name == "memory.capacity":
        return Subject(name, expr(value), known.unit, known.meaning)
    if name == "world":
        amount = symbol("tp") * symbol("cp") * symbol("pp") * symbol("dp")
        return Subject(name, amount, known.unit, known.meaning)
    if known.symbol == "exposed":
        amount = ZERO
        for part in exposed_axes(result.derivation).values():
            amount = amount + symbol(part)
        return Subject(name, amount, known.unit, known.meaning)
    own = known.symbol
    if own in ("N_active", "N_trained") and own not in result.numbers:
        own = "N"
    if own in result.numbers or own in result.step_numbers:
        return Subject(name, symbol(own), known.unit, known.meaning)
    amount = stages_at(symbol(own), symbol("M_stage_peak")) if known.over == "fullest" else stages_max(symbol(own))
    return Subject(name, amount, known.unit, known.meaning)


def formula_of(result: Evaluation, amount: Expr) -> Formula:
    """An amount as a formula: of one definition that definition's own."""
    if len(amount.terms) == 1 and len(names := amount.symbols()) == 1 and amount == symbol(name := next(iter(names))):
        book = result.derivation if name in result.derivation.definitions else result.further
        if name in book.definitions:
            return result.formula(name)
    return result.formula_of(amount)


def number_of(result: Evaluation, amount: Expr) -> Number:
    """The exact number of an amount in a result: of what is evaluated there already from these numbers."""
    known = result.step_numbers
    if amount.symbols() <= known.keys() and not named(amount)[1]:
        return amount.evaluate(known)
    return formula_of(result, amount).value(result.values)
