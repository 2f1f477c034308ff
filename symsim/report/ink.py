"""Writes formulas for one report and remembers every symbol it wrote, so that the notation can define them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from symsim.algebra.expr import ONE, ZERO, Call, Expr, Number, expr, maximum, symbol
from symsim.algebra.quantity import BYTE, ELEMENT, NONE, SECOND, Unit
from symsim.algebra.reading import LONGEST
from symsim.algebra.typeset import bracket_size, entry, is_sum, latex, lines, names_of, symbol_latex, width, word
from symsim.evaluation.numbers import Evaluation
from symsim.ir.block import Block
from symsim.placement.mesh import Mesh, divisor
from symsim.report.amounts import human
from symsim.report.document import Equation, Math, Span, Spans, joined, spans
from symsim.report.over_kinds import OverKinds
from symsim.report.parts import Parts
from symsim.report.sources import Sources

LINE = 50.0  # em of a formula with its left side; fits A4 at 9 pt, a page of 60 rem, and GitHub
ROWS = r"\rho"
# dimensions named after no symbol
DIMENSIONS = {
    "R": "rows an expert rank computes, before its width is split",
    "R_u": "tokens that reach an expert rank, a copy of each",
    "d_qk": "query and key head dimension",
    "d_kv": "key (without position) and value head dimension",
    "r_kd": "joint key/value latent and rotary key",
}
MEBIBYTE = 2**20
_LONG_CALL = 30.0  # em of a max or min whose arguments get names
_SLACK = 4.0  # em by which a list of symbols with two scripts may be wider than estimated
_WORTH = 80  # characters of one that gets a name in a formula that would be too long
_INDEX = re.compile(r"(?:j = )?\bpp - 1 - i\b|(?<=stage )i\b")
_SHORT_ARGUMENT = 6.0  # em of one that needs none


class Ink:
    """names: LaTeX of definitions; used: symbols written so far; dims: dimensions named after no symbol, with their size."""

    def __init__(self, result: Evaluation):
        self.names = names_of(result.derivation.definitions.values())
        self.parts = Parts(result.derivation.definitions, self.names, self.local)
        self.kinds = OverKinds(result.model.kind_names(), self.names, self.local)
        self.sources = Sources()
        self.used: dict[str, None] = {}
        self.dims: dict[str, Expr] = {}
        self.defined: dict[str, None] = {}
        self.indices: dict[str, str] = {}  # what counts or runs in this report alone: LaTeX, and what it means
        self.own: dict[str, str] = {}  # symbols of this report alone, and what they mean where no equation defines them

    def note(self, *expressions: Expr) -> None:
        for expression in expressions:
            self.used.update(dict.fromkeys(sorted(expression.symbols() - self.own.keys())))

    def math(self, expression: Expr) -> Math:
        """For a table cell: one line, divisions by a slash."""
        self.note(expression)
        return Math(latex(expression, self.names, fractions=False))

    def symbol(self, name: str) -> Math:
        self.used[name] = None
        return Math(symbol_latex(name, self.names))

    def equation(
        self, name: str, expression: Expr, value: Number | None = None, unit: Unit | None = None, sum_of: str = "", beside: float = 0.0
    ) -> Equation:
        """name = (sum over the rows of a table =) expression (= value). beside: em of the widest left side in its block."""
        self.note(expression)
        expression = self._in_mebibytes(expression) if unit == BYTE else expression
        self.defined[name] = None
        left = symbol_latex(name, self.names)
        ending = _ending(expression, value, unit)
        start = rf"{{\textstyle\sum_n}} {sum_of}_n = " if sum_of else ""
        room = LINE - max(width(left), beside) - width("=")
        made = lines(expression, self.names, room, room - width(start), ending)
        definition = self.parts.book.get(name)
        return Equation(
            left,
            (start + made[0], *made[1:]),
            name,
            meaning=definition.meaning if definition is not None else self.parts.meanings.get(name, ""),
            value=human(value, unit) if value is not None and unit is not None else "",
        )

    def _in_mebibytes(self, expression: Expr) -> Expr:
        """Bytes that stand alone or beside guards with their unit, where they are many and whole."""
        unit = symbol(self.local("MiB", r"\mathrm{MiB}"))
        bare = {m: c for m, c in expression.terms.items() if not c % MEBIBYTE and all(isinstance(a, Call) for a, _ in m)}
        return expression + (unit / MEBIBYTE - 1) * Expr(bare) if bare else expression

    def _calls(self, expression: Expr) -> list[tuple[Expr, Expr]]:
        """Long maxima and minima that a formula compares other formulas by, each behind what it is multiplied by."""
        # one that is all of a formula has its name already
        inner = [(under, lone) for under, lone in _factors(expression) if lone != expression]
        return [(under, lone) for under, lone in inner if _compares(lone) and len(latex(lone, self.names)) > _WORTH]

    def fits(self, name: str, expression: Expr, value: Number | None = None, unit: Unit | None = None, beside: float = 0.0) -> bool:
        """Whether the equation is one line."""
        room = LINE - max(width(symbol_latex(name, self.names)), beside) - width("=")
        return len(lines(expression, self.names, room, room, _ending(expression, value, unit))) == 1

    def spelled(
        self,
        name: str,
        expression: Expr,
        value: Number | None = None,
        unit: Unit | None = None,
        beside: float = 0.0,
        known: Mapping[str, Number] | None = None,
    ) -> list[Equation]:
        """The equation; what stands inside a max or min too long for a line, and sums of a formula too long to be read, follow as
        equations of their own, with their values where all that they stand on is known."""
        shorter, apart = self._apart(name, expression)
        first = self.equation(name, shorter, value, unit, beside=beside)
        if first.length > LONGEST:
            shorter, more = self.parts.subtotals(shorter)
            apart += more
            first = self.equation(name, shorter, value, unit, beside=beside)
        if first.length > LONGEST:
            shorter, before = self.kinds.compared(self.kinds.summed(shorter)), shorter
            self.indices |= {"k": "kind of a layer; without a range a sum or a maximum over it goes over all"} if shorter != before else {}
            first = self.equation(name, shorter, value, unit, beside=beside)
        if first.length > LONGEST:
            shorter, more = self._over_kinds_apart(name, shorter)
            apart += more
            first = self.equation(name, shorter, value, unit, beside=beside)
        first, shorter, more = self._named_inside(self._calls, first, name, shorter, value, unit, beside)
        apart += more
        if first.length > LONGEST:
            shorter, more = self._apart(name, shorter, _LONG_CALL / 2)
            apart += more
            first = self.equation(name, shorter, value, unit, beside=beside)
            first, shorter, more = self._named_inside(_sums, first, name, shorter, value, unit, beside)
            apart += more
        while first.length > LONGEST and len(shorter.terms) > 2:
            part, argument, new = self.parts.rest(name, shorter)
            shorter = shorter + symbol(part) - argument
            apart += [(part, argument)] if new else []
            first = self.equation(name, shorter, value, unit, beside=beside)
        kept, others = _halves(shorter)
        if first.length > LONGEST and others:
            half = maximum(*others)
            part, new = self.parts.argument(name, half)
            shorter = maximum(*kept, symbol(part))
            apart += [(part, half)] if new else []
            first = self.equation(name, shorter, value, unit, beside=beside)
        made = [self._fitted(first, shorter, _ending(shorter, value, unit), beside)]
        for inner, argument in apart:
            worth = argument.evaluate(known) if known is not None and argument.symbols() <= known.keys() else None
            own = self._unit(inner, argument, unit) if worth is not None else None
            made += self.spelled(inner, argument, worth, own, beside, known)
        return made

    def _over_kinds_apart(self, name: str, expression: Expr) -> tuple[Expr, list[tuple[str, Expr]]]:
        """The expression with a name for each sum or maximum over kinds of layers that a lone maximum compares; those that are new."""
        found = [symbol(n) for n in sorted(expression.symbols() & self.kinds.stands.keys())]
        if len(expression.terms) != 1 or not found:
            return expression, []
        named = {over: self.parts.argument(name, over) for over in found}
        short = expression.substitute({str(over): symbol(part) for over, (part, _) in named.items()})
        return short, [(part, over) for over, (part, new) in named.items() if new]

    def _unit(self, part: str, argument: Expr, unit: Unit | None) -> Unit | None:
        """That of the definitions which a part adds up, where all are alike; else of what it is a part of. Bytes of parameters stay bytes."""
        found = {self.parts.book[name].unit for name in argument.symbols() & self.parts.book.keys()} - {NONE}
        if found == {ELEMENT} and unit == BYTE and part.startswith("M"):
            return BYTE
        if len(found) == 1 and found <= {BYTE, ELEMENT, SECOND}:
            return found.pop()
        return NONE if unit == SECOND and not any(self._takes_time(name) for name in argument.symbols()) else unit

    def _takes_time(self, name: str) -> bool:
        """Whether seconds are in the unit of a symbol: of seconds, or of a rate."""
        definition = self.parts.book.get(name)
        unit = str(definition.unit) if definition is not None else entry(name).unit if name not in self.own else ""
        return unit == "s" or str(SECOND) in unit or "/s" in unit or name in self.own

    def _named_inside(
        self,
        inside_of: Callable[[Expr], list[tuple[Expr, Expr]]],
        first: Equation,
        name: str,
        shorter: Expr,
        value: Number | None,
        unit: Unit | None,
        beside: float,
    ) -> tuple[Equation, Expr, list[tuple[str, Expr]]]:
        """An equation too long to be read, with the longest of what is inside of it as symbols; and what each new one stands for."""
        apart = []
        while first.length > LONGEST and (inside := inside_of(shorter)):
            whole, argument = max(inside, key=lambda found: len(latex(found[1], self.names)))
            part, new = self.parts.argument(name, argument)
            shorter = shorter + whole * (symbol(part) - argument)
            apart += [(part, argument)] if new else []
            first = self.equation(name, shorter, value, unit, beside=beside)
        return first, shorter, apart

    def _fitted(self, equation: Equation, expression: Expr, ending: str, beside: float) -> Equation:
        """A lone max or min too long for its line, broken between its arguments."""
        room = LINE - _SLACK - max(width(equation.left), beside) - width("=")
        if all(width(line) <= room for line in equation.lines) or len(expression.terms) != 1:
            return equation
        ((monomial, coefficient),) = expression.terms.items()
        call = monomial[0][0]
        if len(monomial) != 1 or coefficient != 1 or not isinstance(call, Call):
            return equation
        *first, last = (latex(argument, self.names) for argument in call.arguments)
        size = bracket_size("".join([*first, last]))
        made = [rf"\{call.function}\{size}l("]
        for text in (*(f"{t}, " for t in first), rf"{last}\{size}r){ending}"):
            if width(made[-1] + text) > room:
                made.append(r"\quad ")
            made[-1] += text
        return replace(equation, lines=tuple(made))

    def _apart(self, name: str, expression: Expr, longest: float = _LONG_CALL) -> tuple[Expr, list[tuple[str, Expr]]]:
        """The expression with long arguments of maxima and minima of more than so many em as symbols, and what each new one stands for."""
        found: list[tuple[str, Expr]] = []
        total = ZERO
        for monomial, coefficient in expression.terms.items():
            term = expr(coefficient)
            for atom, power in monomial:
                if isinstance(atom, Call) and width(latex(Expr({((atom, 1),): 1}), self.names)) > longest:
                    atom = Call(atom.function, tuple(self._part(name, a, found) for a in atom.arguments))
                term = term * Expr({((atom, 1),): 1}) ** power
            total = total + term
        return total, found

    def _part(self, name: str, argument: Expr, found: list[tuple[str, Expr]]) -> Expr:
        named = len(argument.terms) == 1 and argument.symbols() and str(argument) in argument.symbols()
        if named or width(latex(argument, self.names)) <= _SHORT_ARGUMENT:
            return argument
        made, new = self.parts.argument(name, argument)
        found += [(made, argument)] if new else []
        return symbol(made)

    def counted(self, name: str) -> list[Equation]:
        """Layers of a kind on a stage: in closed form where the order of kinds repeats soon, else counted one by one."""
        definition = self.parts.book[name]
        closed = self.equation(name, definition.expr)
        if closed.length <= LONGEST:
            return [closed]
        self.note(symbol("L"), symbol("i"), symbol("pp"))
        self.indices[r"\kappa_j"] = "kind of layer j, from zero, in the order of section 1"
        kind = word(definition.key.block)
        range_of = r"\sum_{j = \lfloor Li / p \rfloor}^{\lfloor L(i + 1) / p \rfloor - 1}"
        return [replace(closed, lines=(rf"{range_of} [\kappa_j = {kind}]",))]

    def taken_out(self, name: str, argument: Expr) -> tuple[Expr, list[Equation]]:
        """A symbol of this report in place of what a definition compares, and the equations that say what it is."""
        found: list[tuple[str, Expr]] = []
        short = self._part(name, argument, found)
        return short, [e for inner, own in found for e in self.spelled(inner, own)]

    def local(self, name: str, latex: str) -> str:
        """A symbol of this report alone, which an equation of it defines."""
        self.names[name] = latex
        self.own[name] = ""
        return name

    def valued(self, name: str, value: Number) -> Math:
        self.used[name] = None
        return Math(f"{symbol_latex(name, self.names)} = {value}")

    def zeros(self, names: Sequence[str]) -> list[Equation]:
        """Everything that is nothing, in as many equations of a line as it needs; none of none."""
        self.defined.update(dict.fromkeys(names))
        made: list[list[str]] = []
        for name in (symbol_latex(n, self.names) for n in names):
            line = made[-1] if made else []
            if line and width(" = ".join([*line, name])) <= LINE - _SLACK - width("=") and len(" = ".join([*line, name, "0"])) <= LONGEST:
                line.append(name)
            else:
                made.append([name])
        return [Equation(first, (" = ".join([*rest, "0"]),)) for first, *rest in made]

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
            degree = divisor(mesh, axes)
            if degree != ONE:
                over = self.math(degree).latex
                under = f"({over})" if len(degree.symbols()) > 1 else over
                made[f"{self.dimension(block, name)} / {under}"] = None
        return joined([spans(Math(m)) for m in made])


def _sums(expression: Expr) -> list[tuple[Expr, Expr]]:
    """Sums that a guard stands before, each behind that."""
    return [(lone, under) for under, lone in _factors(expression) if len(under.terms) > 1]


def _factors(expression: Expr) -> list[tuple[Expr, Expr]]:
    """Every call in a formula, behind all that it is multiplied by."""
    calls = {a for m in expression.terms for a, power in m if isinstance(a, Call) and power == 1}
    made = []
    for call in sorted(calls, key=str):
        under = {tuple(f for f in m if f[0] != call): c for m, c in expression.terms.items() if (call, 1) in m}
        made.append((Expr(under), Expr({((call, 1),): 1})))
    return made


def _compares(lone: Expr) -> bool:
    """Whether a call is of several formulas; one with a number is a guard."""
    ((monomial, _),) = lone.terms.items()
    call = monomial[0][0]
    return isinstance(call, Call) and len(call.arguments) > 1 and not any(a.is_constant for a in call.arguments)


def _halves(expression: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Of a lone maximum of four or more the arguments, halved; nothing of all else."""
    for monomial, coefficient in expression.terms.items():
        call = monomial[0][0] if len(monomial) == 1 and len(expression.terms) == 1 and coefficient == 1 and monomial[0][1] == 1 else None
        if isinstance(call, Call) and call.function == "max" and len(call.arguments) > 3:
            middle = (len(call.arguments) + 1) // 2
            return call.arguments[:middle], call.arguments[middle:]
    return (), ()


def _ending(expression: Expr, value: Number | None, unit: Unit | None) -> str:
    """A constant with a unit is its own value."""
    return f" = {in_units(human(value, unit))}" if value is not None and unit is not None and not expression.is_constant else ""


def in_units(text: str) -> str:
    """'12.3 TFLOP' in LaTeX."""
    number, _, unit = text.replace("\u2009", r"\,").partition(" ")
    return number + (rf"\,\mathrm{{{unit}}}" if unit else "")


def worded(text: str) -> Spans:
    """Words in which the index of a stage, and that of its mirror image, are set as mathematics."""
    made: list[Span] = []
    at = 0
    for found in _INDEX.finditer(text):
        made += [text[at : found.start()], Math(found[0].replace("pp", "p"))]
        at = found.end()
    return spans(*made, text[at:])


def dimension_latex(name: str) -> str:
    head, _, rest = name.partition("_")
    # R is the FLOPs that run again
    return ROWS if name == "R" else f"{head}_{{{rest}}}" if rest else head
