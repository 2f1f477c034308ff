"""What is asked of a sweep: which points are wanted, which are best, and what is reported of them; lowered to values."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from symsim.algebra.operators import OPERATORS
from symsim.algebra.typeset import entry
from symsim.errors import InputError, nearest, printable
from symsim.evaluation.quantities import EXPOSED, QUANTITIES, default_columns, refuse_unknown
from symsim.grid.conditions import FITS, Node, evaluate, names, parse_condition, parse_quantity, show
from symsim.grid.names import MACHINE, RANKS, field_of
from symsim.grid.of_run import has_run
from symsim.grid.reported import Reported
from symsim.grid.symbols import Symbols
from symsim.grid.units import spelt, unit_of
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.run import asks_run
from symsim.inputs.strategy import Strategy
from symsim.program.value import Value


@dataclass(frozen=True)
class Question:
    """where: conditions of every point. top: how many of the best `by` a quantity; or pareto: the points that no other beats in all
    of these; with neither, all points. columns: reported quantities."""

    where: tuple[Node, ...] = ()
    top: int | None = None
    by: tuple[str, ...] = ()
    objectives: tuple[Node, ...] = ()
    largest: tuple[bool, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def pareto(self) -> bool:
        return self.top is None and len(self.objectives) > 1


def ask(
    *,
    where: Iterable[str] = (),
    top: int | None = None,
    by: str | None = None,
    pareto: str | None = None,
    columns: str | None = None,
    fits: bool = False,
    timed: bool,
    everything: bool = False,
) -> Question:
    """A question from the texts of the command line; InputError for what does not read or does not go together."""
    conditions = [*where, *([FITS] if fits else [])]
    if fits and not timed:
        raise InputError("--fits compares with the memory of an accelerator; name its system with -y")
    if pareto is not None and (top is not None or by is not None):
        raise InputError("--pareto lists every point that no other beats; it does not go together with --top or --by")
    if top is not None and not 1 <= top <= 10_000_000:
        raise InputError(f"--top {top}: a number of points from 1 to 10,000,000 is needed")
    wanted: list[str] = []
    if pareto is not None:
        wanted = _split(pareto)
        if len(wanted) != 2:
            raise InputError(f"--pareto {pareto}: two quantities separated by a comma are needed, such as time.step,memory.peak")
    elif top is not None or by is not None or not everything:
        wanted = [by if by is not None else "tokens_per_second" if timed else "memory.peak"]
        top = 10 if top is None else top
    objectives, largest = [], []
    for text in wanted:
        option = "--pareto" if pareto is not None else "--by"
        node = parse_quantity(text, option)
        objectives.append(node)
        largest.append(largest_first(node))
    shown = tuple(_split(columns)) if columns is not None else default_columns(timed)
    shown = tuple(dict.fromkeys([*shown, *(str(n.value) for n in objectives if n.kind == "name")]))
    if "" in shown:
        raise InputError(f"--columns {columns}: a name is missing between commas")
    return Question(
        tuple(parse_condition(text, "--where") for text in conditions),
        None if pareto is not None else top,
        tuple(wanted),
        tuple(objectives),
        tuple(largest),
        shown,
    )


def largest_first(node: Node) -> bool:
    """Whether more is better: every part of which that is known says so (tokens_per_second/world, but not world/tokens_per_second)."""
    votes: set[bool] = set()

    def walk(part: Node, rises: bool) -> None:
        if part.kind == "name" and str(part.value) in QUANTITIES:
            best = QUANTITIES[str(part.value)]
            if best.largest_first or best.is_cost:
                votes.add(best.largest_first == rises)
        for k, argument in enumerate(part.arguments):
            falls = part.kind == "pow" and isinstance(part.value, int) and part.value < 0
            walk(argument, rises != (falls or OPERATORS[part.kind].way(k) < 0))

    walk(node, True)
    return votes == {True}


def _split(text: str) -> list[str]:
    """Items between commas that are not inside parentheses."""
    items, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    return [*items, text[start:].strip()]


def objective(question: Question, reported: Reported, at: int = 0) -> Value:
    """An objective such that less is better."""
    value = lower(question.objectives[at], reported, "--pareto" if question.pareto else "--by")
    return reported.program.product(-1, [(value, 1)]) if question.largest[at] else value


def wanted(question: Question, reported: Reported) -> Value:
    """True where a point can run, also as many steps as are asked for, and meets every condition."""
    found, of_run = reported.runs(), has_run(reported)
    if of_run is not None:
        found = reported.program.apply("and", found, of_run)
    for node in question.where:
        found = reported.program.apply("and", found, lower(node, reported, "--where"))
    return found


def check_names(question: Question, own: Sequence[Symbols]) -> None:
    """InputError for a name that is no quantity in any of these variants, and for one that is used as what it is not."""
    pairs = [(n, "--pareto" if question.pareto else "--by") for n in question.objectives]
    for node, option in [*((n, "--where") for n in question.where), *pairs]:
        samples: dict[str, Any] = {}
        for name in names(node):
            sort = _sort(name, own, option)
            samples[name] = {"number": 1.0, "truth": True, "text": ""}[sort]
        try:
            found = evaluate(node, samples)
        except InputError as error:
            raise InputError(f"{option}: {error}") from None
        if option != "--where" and isinstance(found, (bool, str)):
            raise InputError(f"{option} {show(node)}: a number is needed, and this is {'text' if isinstance(found, str) else 'true or false'}")
        _check_texts(node, option)
    for node in question.where:
        # an objective may weigh what it adds: memory.peak/80e9 + time.step
        try:
            unit_of(node, lambda name: _unit(name, own))
        except InputError as error:
            raise InputError(f"--where: {error}") from None
    for name in question.columns:
        _sort(name, own, "--columns", given=False)


def _sort(name: str, own: Sequence[Symbols], where: str, *, given: bool = True) -> str:
    """What a name holds in the variants that have it. A message over an axis of one rank is not there, and costs nothing."""
    sorts = [s for s in (one.sort(name) for one in own) if s is not None]
    timed = own[0].result.system is not None
    if not sorts and name.removeprefix(EXPOSED) in DEGREES and name.startswith(EXPOSED) and timed:
        return "number"
    if not sorts:
        known = dict.fromkeys(n for one in own for n in (*one.variant.fields, *one.family.space.columns, *one.result.derivation.definitions))
        raise refuse_unknown(name, list(known), where, timed=timed, run=asks_run(own[0].result.overrides))
    if given and all(s == "nothing" for s in sorts):
        raise InputError(f"{where}: {name} is not given, so it has no value")
    return next((s for s in sorts if s != "nothing"), "text")


def _check_texts(node: Node, where: str) -> None:
    """A text that an option is compared with should be one that it can be."""
    if node.kind in ("eq", "ne") and {a.kind for a in node.arguments} == {"name", "text"}:
        name, text = sorted(node.arguments, key=lambda a: a.kind)
        choices = _choices(str(name.value))
        if choices and text.value not in choices:
            raise InputError(f"{where}: {name.value} is never '{text.value}': {nearest(str(text.value), choices)}")
    for argument in node.arguments:
        _check_texts(argument, where)


def _unit(name: str, own: Sequence[Symbols]) -> str:
    """What a number of that name is measured in, '' where that is not known."""
    if name in QUANTITIES:
        return QUANTITIES[name].unit
    if name.startswith(EXPOSED):
        return "s"
    if field_of(name) in (*Strategy.model_fields, *RANKS):
        return "1"
    for one in own:
        if name in one.result.derivation.definitions:
            return spelt(str(one.result.derivation.definitions[name].unit))
        if name in one.result.values:
            return entry(name).unit
    return ""


def _choices(name: str) -> list[str]:
    if name.startswith("assume."):
        known = ASSUMPTIONS.get(name.removeprefix("assume."))
        return list(known.choices) if known is not None else []
    field = Strategy.model_fields.get(field_of(name))
    parts = [] if field is None else [field.annotation, *get_args(field.annotation)]
    return [str(c) for part in parts if get_origin(part) is Literal for c in get_args(part)]


def lower(node: Node, reported: Reported, where: str) -> Value:
    """A tree of the condition grammar as a value of the program."""
    program = reported.program
    if node.kind in ("number", "bool"):
        assert node.value is not None and not isinstance(node.value, str)
        return program.number(node.value)
    if node.kind == "name":
        return _named(str(node.value), reported)
    if node.kind in ("eq", "ne") and any(a.kind == "text" for a in node.arguments):
        one, other = node.arguments
        return reported.every(lambda own: (_option(one, own, where) == _option(other, own, where)) == (node.kind == "eq"))
    a = [lower(x, reported, where) for x in node.arguments]
    if node.kind == "add":
        return program.total([(a[0], 1), (a[1], 1)])
    if node.kind == "sub":
        return program.total([(a[0], 1), (a[1], -1)])
    if node.kind == "neg":
        return program.product(-1, [(a[0], 1)])
    if node.kind == "mul":
        return program.product(1, [(a[0], 1), (a[1], 1)])
    if node.kind == "div":
        return program.product(1, [(a[0], 1), (a[1], -1)], exact=True)
    if node.kind == "floordiv":
        return program.apply("floor", program.product(1, [(a[0], 1), (a[1], -1)], exact=True))
    if node.kind == "pow":
        assert isinstance(node.value, int)
        return program.product(1, [(a[0], 1 if node.value > 0 else -1)] * abs(node.value))
    if node.kind in ("gt", "ge"):
        return program.apply("lt" if node.kind == "gt" else "le", a[1], a[0])
    if node.kind in ("min", "max"):
        return program.extreme(node.kind, a)
    return functools.reduce(functools.partial(program.apply, node.kind), a) if len(a) > 1 else program.apply(node.kind, a[0])


def _named(name: str, reported: Reported) -> Value:
    if reported.sort(name) in (None, "nothing"):
        # a definition that this variant does not have, such as a message over an axis of one rank, costs nothing
        return reported.program.number(0)
    return reported.quantity(name)


def _option(node: Node, own: Symbols, where: str) -> str:
    if node.kind == "text":
        return str(node.value)
    if node.kind == "name":
        found = own.option(str(node.value))
        if found is not None:
            return found
        raise InputError(f"{where}: {node.value} is a number and is compared with text")
    raise InputError(f"{where}: text is compared with names only")


def values_of(question: Question, reported: Reported) -> list[Value]:
    """Objectives and then whether a point is wanted."""
    return [*(objective(question, reported, k) for k in range(len(question.objectives))), wanted(question, reported)]


def is_text(name: str) -> bool:
    """Whether a column is an option, which is shown as text and is the same all over a variant."""
    own = field_of(name)
    return name == MACHINE or name.startswith("assume.") or (own in Strategy.model_fields and own not in (*SIZES, *DEGREES))


def shown(reported: Reported, name: str) -> Value | list[str]:
    """A column: a value, or the text of an option in every variant."""
    if is_text(name):
        return [printable(own.option(name) or "") for own in reported.own]
    return reported.quantity(name) if reported.sort(name) not in (None, "nothing") else reported.program.number(0)
