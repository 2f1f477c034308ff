"""Writes formulas for one report and remembers every symbol it wrote, so that the notation can define them all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from symsim.evaluation import Evaluation
from symsim.expr import ONE, Expr, Number, product
from symsim.formula import Unit
from symsim.ir import Block
from symsim.mesh import Mesh
from symsim.report.amounts import human
from symsim.report.document import Equation, Math, Spans, joined, spans
from symsim.typeset import is_sum, latex, lines, names_of, symbol_latex, width

LINE = 48.0  # em of a formula with its left side; fits A4 at 9 pt, a page of 60 rem, and GitHub
ROWS = r"\rho"


class Ink:
    """names: LaTeX of definitions; used: symbols written so far; dims: dimensions named after no symbol, with their size."""

    def __init__(self, result: Evaluation):
        self.names = names_of(result.derivation.definitions.values())
        self.used: dict[str, None] = {}
        self.dims: dict[str, Expr] = {}
        self.defined: dict[str, None] = {}

    def note(self, *expressions: Expr) -> None:
        for expression in expressions:
            self.used.update(dict.fromkeys(sorted(expression.symbols())))

    def math(self, expression: Expr) -> Math:
        """For a table cell: one line, divisions by a slash."""
        self.note(expression)
        return Math(latex(expression, self.names, fractions=False))

    def symbol(self, name: str) -> Math:
        self.used[name] = None
        return Math(symbol_latex(name, self.names))

    def equation(self, name: str, expression: Expr, value: Number | None = None, unit: Unit | None = None, sum_of: str = "") -> Equation:
        """name = (sum over the rows of a table =) expression (= value)."""
        self.note(expression)
        self.defined[name] = None
        left = symbol_latex(name, self.names)
        ending = f" = {in_units(human(value, unit))}" if value is not None and unit is not None and not expression.is_constant else ""
        start = rf"{{\textstyle\sum_n}} {sum_of}_n = " if sum_of else ""
        room = LINE - width(left) - width("=")
        made = lines(expression, self.names, room, room - width(start), ending)
        return Equation(left, (start + made[0], *made[1:]))

    def valued(self, name: str, value: Number) -> Math:
        self.used[name] = None
        return Math(f"{symbol_latex(name, self.names)} = {value}")

    def zeros(self, names: Sequence[str]) -> Equation:
        """Everything that is nothing, in one line."""
        self.defined.update(dict.fromkeys(names))
        first, *rest = (symbol_latex(n, self.names) for n in names)
        return Equation(first, (" = ".join([*rest, "0"]),))

    def dimension(self, block: Block, name: str) -> str:
        """A dimension as its symbol, its size when that is short (2f), or a name that the notation explains (d_qk)."""
        size = block.dims[name].size
        if len(size.terms) == 1 and size.symbols() == {name}:
            self.used[name] = None
            return symbol_latex(name, self.names)
        short = len(size.terms) == 1 and sum(abs(p) for m in size.terms for _, p in m) <= 1
        if not short and re.fullmatch(r"[A-Za-z](_\w+)?", name):
            self.dims[name] = size
            self.note(size)
            return dimension_latex(name)
        text = self.math(size).latex
        return f"({text})" if is_sum(size) else text

    def dimensions(self, block: Block, names: Iterable[str]) -> str:
        return " ".join(d for d in (self.dimension(block, n) for n in names) if d != "1") or "1"

    def placed(self, block: Block, mesh: Mesh, layout: Mapping[str, tuple[str, ...]]) -> Spans:
        """a/t, s/(ct): the dimensions that are split, and over what."""
        made: dict[str, None] = {}
        for name, axes in layout.items():
            degree = product(mesh.degree(a) for a in axes if a != "dp")
            if degree != ONE:
                over = self.math(degree).latex
                divisor = f"({over})" if len(degree.symbols()) > 1 else over
                made[f"{self.dimension(block, name)} / {divisor}"] = None
        return joined([spans(Math(m)) for m in made])


def in_units(text: str) -> str:
    """'12.3 TFLOP' in LaTeX."""
    number, _, unit = text.replace("\u2009", r"\,").partition(" ")
    return number + (rf"\,\mathrm{{{unit}}}" if unit else "")


def dimension_latex(name: str) -> str:
    head, _, rest = name.partition("_")
    # R is the FLOPs that run again
    return ROWS if name == "R" else f"{head}_{{{rest}}}" if rest else head
