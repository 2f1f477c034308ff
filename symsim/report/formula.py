"""One formula, as it is read, in the form that another place takes: a terminal, a paper, a page, SymPy, or code.

Text, LaTeX, Markdown, HTML and Typst show the result and the parts that stand in it by name, then what every symbol is, with units and,
where the formula has sizes, values. SymPy, Python, C and JavaScript are whole: every definition down to free symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from symsim.algebra.expr import Expr, Number
from symsim.algebra.plain import WIDTH, lines, plain
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, NONE, SECOND, Definition, Unit
from symsim.algebra.reading import Reading, by_divisor, numbers
from symsim.algebra.typeset import entry, latex, names_of, word
from symsim.algebra.typeset import lines as latex_lines
from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import InputError, cut, nearest
from symsim.inputs.letters import latex_of, letters
from symsim.report.amounts import THIN, exact, human, rate
from symsim.report.amounts import plain as four
from symsim.report.columns import wrapped

if TYPE_CHECKING:
    from symsim.algebra.formula import Formula

TARGETS = ("text", "tex", "md", "html", "typst", "sympy", "python", "c", "js")
_POWER = re.compile(r"\w+(\*\*\d+)?")
_FURTHER = 36  # column of the words behind a name too long for its own
_EM = 48.0  # of a formula's line in LaTeX
_UNITS = {"byte": BYTE, "s": SECOND, "1": NONE}


def printed(reading: Reading, target: str = "text", symbols: str | Mapping[str, str] = "symsim") -> str:
    """A formula for one of TARGETS. InputError for another, and where two symbols would be called the same."""
    if target not in TARGETS:
        raise InputError(f"--to {cut(target)}: {nearest(target, TARGETS)}")
    shown = _Shown(reading, letters(symbols))
    shown.check()
    return _WRITERS[target](shown)


@dataclass(frozen=True)
class _Row:
    """A symbol, what it is of a name, its unit, and its value in words."""

    symbol: str
    meaning: str
    unit: str
    value: str


@dataclass(frozen=True)
class _Shown:
    reading: Reading
    letters: Mapping[str, str]

    @property
    def formula(self) -> Formula:
        return self.reading.formula

    @cached_property
    def equations(self) -> tuple[Definition, ...]:
        """What is written out: the result, then its rest or its parts."""
        rest = self.reading.rest
        return (self.formula.result, *((rest,) if rest is not None else ()), *(part.definition for part in self.reading.parts))

    @cached_property
    def listed(self) -> Mapping[str, str]:
        """Parts that are sums over what is listed below, each with what these are of."""
        return {part.definition.symbol: part.over for part in self.reading.parts if part.over}

    @property
    def rest(self) -> str:
        return self.reading.rest.symbol if self.reading.rest is not None else ""

    @cached_property
    def values(self) -> Mapping[str, Number]:
        return numbers(self.formula)

    @cached_property
    def latex_names(self) -> dict[str, str]:
        return {**names_of(self.formula.definitions), **{name: latex_of(letter) for name, letter in self.letters.items()}}

    @cached_property
    def used(self) -> list[str]:
        """Symbols of what is written out, definitions first, each kind in its order."""
        own = {d.symbol for d in self.equations} - {part.definition.symbol for part in self.reading.parts}
        found = {s for d in self.equations for s in d.expr.symbols()} - own
        parts = [part.definition.symbol for part in self.reading.parts]
        order = {name: n for n, name in enumerate([*parts, *(d.symbol for d in self.formula.definitions if d.symbol not in parts)])}
        return sorted(found, key=lambda s: (s not in order, order.get(s, 0), s.casefold()))

    @cached_property
    def rows(self) -> list[_Row]:
        known = {d.symbol: d for d in self.formula.definitions}
        made = []
        for name in self.used:
            meaning, unit = (known[name].meaning, str(known[name].unit)) if name in known else (entry(name).meaning, entry(name).unit)
            made.append(_Row(name, meaning, unit, _amount(self.values[name], unit) if name in self.values else ""))
        return made

    @property
    def value(self) -> str:
        name = self.formula.result.symbol
        if name not in self.values:
            return ""
        return self.flat(name) if self.reading.flat else _amount(self.values[name], str(self.formula.result.unit))

    def flat(self, name: str) -> str:
        """The number of what is divided by a unit."""
        return four(float(self.values[name])).replace(THIN, ",") if name in self.values else ""

    @cached_property
    def said(self) -> list[str]:
        """What it holds under, and what it rests on."""
        facts, assumed = ", ".join(map(str, self.formula.facts)), ", ".join(self.formula.assumptions)
        found = [f"given {facts}"] if facts else []
        found += [f"assumptions: {assumed}"] if assumed else []
        found += [f"source: {self.reading.of.source}"] if self.reading.of.source else []
        return found

    @property
    def unit(self) -> str:
        return str(self.reading.of.unit)

    def called(self, name: str) -> str:
        return self.letters.get(name, name)

    def check(self) -> None:
        known = {*SYMBOLS, *self.formula.symbols, *(d.symbol for d in self.formula.definitions)}
        for name in self.letters:
            if name not in known:
                raise InputError(f"--symbols: {self.reading.of.symbol} has no symbol '{cut(name)}': {nearest(name, sorted(known))}")
        taken: dict[str, str] = {}
        for name in sorted({*self.formula.symbols, *(d.symbol for d in self.formula.definitions)}):
            other = taken.setdefault(self.called(name), name)
            if other != name:
                raise InputError(f"--symbols: {other} and {name} would both be called '{self.called(name)}' in {self.reading.of.symbol}")


def _amount(value: Number, unit: str) -> str:
    if unit in ("FLOP/s", "byte/s"):
        return rate(float(value), unit.replace("byte", "B"))
    known = {str(u): u for u in (FLOP, BYTE, ELEMENT, SECOND, NONE)} | _UNITS
    if unit == "second/byte":
        return f"{four(float(value) * 1e12)} ps/byte".replace(THIN, ",")
    if unit not in known:
        return f"{float(value):.4g} {unit}"
    found: Unit = known[unit]
    if found == NONE:
        return exact(value).replace(THIN, ",") if float(value) == int(value) else four(float(value)).replace(THIN, ",")
    return human(value, found).replace(THIN, ",")


# text -------------------------------------------------------------------------------------------------------------------


def _text(shown: _Shown) -> str:
    of, reading = shown.reading.of, shown.reading
    unit = plain(reading.per, shown.letters)
    left = of.symbol if not reading.flat else f"{of.symbol}/{unit if _POWER.fullmatch(unit) else f'({unit})'}"
    made = [wrapped(f"{left} [{shown.unit}]: {of.meaning}"), ""]
    for definition in shown.equations:
        result = definition is shown.formula.result
        name = left if result else definition.symbol
        value = shown.value if result else (shown.flat(name) if reading.flat else _of(shown, definition))
        over = shown.listed.get(definition.symbol)
        made += lines(name, f"sum({definition.key.text[:1]}_n, n in {over})" if over else _plain(shown, definition.expr), WIDTH)
        made += [f"  {' ' * min(len(name), 24)} = {value}"] if value else []
    # what is written out has its value there
    above = {d.symbol for d in shown.equations}
    rows = [(shown.called(r.symbol), r.value, _with_unit(r)) for r in shown.rows if r.symbol not in above]
    if rows:
        first, second = (min(max(len(r[k]) for r in rows), limit) for k, limit in ((0, 32), (1, 14)))
        made += ["", "where"]
        for name, value, meaning in rows:
            start = f"  {name.ljust(first)}  {value.rjust(max(0, second - max(0, len(name) - first)))}  "
            made.append(wrapped(start + meaning, hanging=6 + first + second if len(name) <= first else _FURTHER))
    made += ["", *map(wrapped, shown.said)] if shown.said else []
    return "\n".join(line.rstrip() for line in made) + "\n"


def _with_unit(row: _Row) -> str:
    """The meaning, and the unit where no value says it."""
    return row.meaning if row.value or row.unit in ("1", "") else f"{row.meaning} [{row.unit}]"


def _of(shown: _Shown, definition: Definition) -> str:
    return _amount(shown.values[definition.symbol], str(definition.unit)) if definition.symbol in shown.values else ""


def _plain(shown: _Shown, expression: Expr) -> str:
    order = [d.symbol for d in shown.formula.definitions]
    if not shown.reading.flat:
        return plain(expression, shown.letters, order)
    return _summed([plain(t, shown.letters, order) for t in by_divisor(expression, shown.values, shown.rest)])


def _summed(terms: Sequence[str]) -> str:
    return terms[0] + "".join(f" - {t[1:]}" if t.startswith("-") else f" + {t}" for t in terms[1:]) if terms else "0"


# mathematics ------------------------------------------------------------------------------------------------------------


def _equations(shown: _Shown, limit: float = _EM) -> list[list[str]]:
    """Each equation in lines of LaTeX, the first with its left side and an & before the =."""
    made = []
    for definition in shown.equations:
        left = definition.latex or shown.latex_names.get(definition.symbol) or entry(definition.symbol).latex
        if shown.reading.flat and definition is shown.formula.result:
            left = rf"{left} \,/\, {latex(shown.reading.per, shown.latex_names, sequence=tuple(shown.letters))}"
        text = latex_lines(definition.expr, shown.latex_names, limit, sequence=tuple(shown.letters))
        if over := shown.listed.get(definition.symbol):
            text = [rf"{{\textstyle\sum_{{n \in {word(over)}}}}} {definition.symbol[:1]}_n"]
        if shown.reading.flat:
            text = [
                _summed([latex(t, shown.latex_names, sequence=tuple(shown.letters)) for t in by_divisor(definition.expr, shown.values, shown.rest)])
            ]
        made.append([f"{left} &= {text[0]}", *(rf"&\quad {line}" for line in text[1:])])
    return made


def displayed(reading: Reading) -> str:
    r"""The equations in LaTeX, those of several lines aligned, and below them what stands in them by name: symbol, value, meaning."""
    from symsim.report.notebook import words

    shown = _Shown(reading, {})
    lines = [line for equation in _equations(shown) for line in equation]
    body = lines[0].replace(" &= ", " = ", 1)
    if len(lines) > 1:
        body = r"\begin{aligned}" + " \\\\\n".join(lines) + r"\end{aligned}"
    own = {d.symbol for d in shown.formula.definitions}
    rows = [f"{_symbol_latex(shown, r.symbol)} & {words(r.value)} & {words(_with_unit(r))}" for r in shown.rows if r.symbol in own]
    where = r"\begin{array}{lrl}" + " \\\\\n".join(rows) + r"\end{array}"
    return body if not rows else "\\begin{array}{l}\n\\displaystyle " + body + " \\\\[1em]\n" + where + "\n\\end{array}"


def _tex(shown: _Shown) -> str:
    body = " \\\\\n".join(line for equation in _equations(shown) for line in equation)
    notes = [f"% {shown.reading.of.symbol} [{shown.unit}]: {shown.reading.of.meaning}"]
    notes += [f"% {_symbol_latex(shown, r.symbol)}: {_with_unit(r)}{f' ({r.value})' if r.value else ''}" for r in shown.rows]
    notes += [f"% {text}" for text in shown.said]
    return "\n".join([*("".join(c if c.isprintable() else "?" for c in n) for n in notes), r"\begin{aligned}", body, r"\end{aligned}"]) + "\n"


def _symbol_latex(shown: _Shown, name: str) -> str:
    return shown.latex_names.get(name) or entry(name).latex


def _md(shown: _Shown) -> str:
    from symsim.report.markdown import escape as plain_text

    body = " \\\\\n".join(line for equation in _equations(shown) for line in equation)
    made = [f"{plain_text(shown.reading.of.meaning)} [{shown.unit}]", "", "```math", r"\begin{aligned}", body, r"\end{aligned}", "```"]
    if shown.rows:
        made += ["", "| symbol | meaning | value |", "|---|---|---:|"]
        made += [f"| $`{_symbol_latex(shown, r.symbol)}`$ | {plain_text(_with_unit(r))} | {plain_text(r.value)} |" for r in shown.rows]
    made += [line for text in shown.said for line in ("", plain_text(text))]
    return "\n".join(made) + "\n"


def _html(shown: _Shown) -> str:
    """A fragment: MathML, a table of symbols; nothing to load."""
    from symsim.report.mathml import mathml

    made = ['<figure class="formula">', f"<figcaption>{escape(shown.reading.of.meaning)} [{escape(shown.unit)}]</figcaption>"]
    for equation in _equations(shown):
        made += [f"<div>{mathml(line.replace('&', ' '))}</div>" for line in equation]
    if shown.rows:
        made.append("<table>")
        made += [
            f"<tr><td>{mathml(_symbol_latex(shown, r.symbol))}</td><td>{escape(_with_unit(r))}</td><td>{escape(r.value)}</td></tr>"
            for r in shown.rows
        ]
        made.append("</table>")
    return "\n".join([*made, *(f"<p>{escape(text)}</p>" for text in shown.said), "</figure>"]) + "\n"


def _typst(shown: _Shown) -> str:
    from symsim.report.typst_math import quoted, typst_math

    made = [f"#{quoted(f'{shown.reading.of.meaning} [{shown.unit}]')}", ""]
    for equation in _equations(shown):
        made += [f"$ {typst_math(line.replace('&', ' '))} $" for line in equation]
    for r in shown.rows:
        made.append(f"- ${typst_math(_symbol_latex(shown, r.symbol))}$: #{quoted(_with_unit(r) + (f' ({r.value})' if r.value else ''))}")
    return "\n".join([*made, *(f"\n#{quoted(text)}" for text in shown.said)]) + "\n"


# code -------------------------------------------------------------------------------------------------------------------


def _whole(shown: _Shown) -> tuple[Sequence[Definition], dict[str, str]]:
    """Every definition down to free symbols, and what these are."""
    whole = shown.formula.written_out()
    return whole.definitions, {n: f"{entry(n).meaning} [{entry(n).unit}]" for n in sorted(whole.symbols)}


def _code(language: str) -> Callable[[_Shown], str]:
    def write(shown: _Shown) -> str:
        from symsim.program.straight import formula_source

        definitions, free = _whole(shown)
        return formula_source(definitions, language, shown.letters, free)

    return write


def _sympy(shown: _Shown) -> str:
    """Statements that make every symbol in its domain, and the definitions in order."""
    from symsim.algebra.facts import declared
    from symsim.report.sympy_text import sympy_source

    definitions, free = _whole(shown)
    return sympy_source(definitions, shown.letters, free, declared(shown.formula.facts))


_WRITERS = {
    "text": _text,
    "tex": _tex,
    "md": _md,
    "html": _html,
    "typst": _typst,
    "sympy": _sympy,
    **{language: _code(language) for language in ("python", "c", "js")},
}
