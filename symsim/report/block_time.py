"""Seconds of one block: what each of its kernels takes and what bounds it, and their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symsim.algebra.expr import Call, Expr
from symsim.algebra.key import Key, of_block
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import SECOND
from symsim.algebra.typeset import width
from symsim.cost.step_time import PHASES
from symsim.report.amounts import human, percent, seconds
from symsim.report.document import Code, Column, Equation, Math, Row, Span, Spans, Table, spans
from symsim.report.ink import LINE, Ink, in_units
from symsim.report.kernels import Kernel
from symsim.report.step import Step

_COLUMNS = ("forward", "input gradients", "weight gradients")
_ROWS = 64  # operations of a table in which each has a row
_SHARE = 0.002  # of a block's seconds, below which operations of a longer one are together


def rows(step: Step, name: str, numbers: Mapping[str, int]) -> tuple[Row, ...]:
    """A row an operation, by its number: seconds and bound of its kernels. Of very many, one for those that take next to nothing."""
    every: dict[str, list[Kernel]] = {}
    for kernel in step.block_kernels[name]:
        every.setdefault(kernel.operation, []).append(kernel)
    least = _SHARE * sum(k.seconds for k in step.block_kernels[name]) if len(every) > _ROWS else 0.0
    small = [operation for operation, own in every.items() if sum(k.seconds for k in own) < least]
    made = [Row((str(numbers[operation]), Code(operation), *_cells(own))) for operation, own in every.items() if operation not in small]
    if small:
        sums = _cells([k for operation in small for k in every[operation]])
        made.append(Row(("", f"{len(small)} others, each below {percent(_SHARE)} of all", *sums)))
    return tuple(made)


def _cells(kernels: Sequence[Kernel]) -> list[Span | Spans]:
    """Seconds and bound in every column."""
    cells: list[Span | Spans] = []
    for column in _COLUMNS:
        inside = [k for k in kernels if _column(k.phase) == column]
        cells.append(seconds(sum(k.seconds for k in inside)) if inside else "")
        cells.append(max(inside, key=lambda k: k.seconds).bound if inside else "")
    return cells


def table(name: str, found: tuple[Row, ...]) -> Table:
    said = f"Seconds of the kernels of {in_words(name)} on one rank, forward and for the gradients of inputs and of weights, and what bounds each."
    headings = [c for title in ("forward", "inputs", "weights") for c in (Column(title, 6, True), Column("bound", 4.8))]
    return Table(spans(said), (Column(Math("n"), 1.6, True), Column("operation", 15), *headings), found)


def _column(phase: str) -> str:
    return "forward" if phase == "forward" else "weight gradients" if phase == "wgrad" else "input gradients"


def sums(step: Step, ink: Ink, name: str) -> list[Equation]:
    """t^f = sum over the table's column = value; where the host may be slower, the larger of the two."""
    book, numbers = step.result.derivation, step.result.numbers
    made, nothing = [], []
    for definition in (book[key] for key in _parts_of(name) if key in book):
        if not definition.expr:
            nothing.append(definition.symbol)
            continue
        host = _host(definition.expr)
        left, text = ink.names[definition.symbol], r"{\textstyle\sum_n} t_n"
        ending = f" = {in_units(human(numbers[definition.symbol], SECOND))}"
        rest: list[Equation] = []
        if host is not None:
            if width(rf"{left} = \max({text}, {ink.math(host).latex}){ending}") > LINE:
                host, rest = ink.taken_out(definition.symbol, host)
            text = rf"\max({text}, {ink.math(host).latex})"
        ink.defined[definition.symbol] = None
        made += [Equation(left, (text + ending,), definition.symbol), *rest]
    return [*made, *ink.zeros(nothing)]


def _parts_of(name: str) -> list[Key]:
    """A block's seconds, and those of its being run again as it is recomputed in full."""
    return [of_block("t", name, again, phase=phase) for again in (False, True) for phase in PHASES]


def _host(formula: Expr) -> Expr | None:
    """The second argument where the formula is max(kernels, host)."""
    if len(formula.terms) != 1:
        return None
    ((monomial, _),) = formula.terms.items()
    atom = monomial[0][0]
    return atom.arguments[1] if isinstance(atom, Call) and atom.function == "max" and len(atom.arguments) == 2 else None
