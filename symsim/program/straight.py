"""A formula as a function of Python, C or JavaScript: straight-line code in double precision.

C and JavaScript are tables of operators (`c` and `js` of a row of `symsim/algebra/operators.py`) and a few functions that every program
begins with; ceil and floor are guarded against rounding in all of them, as in the kernels.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symsim.algebra.operators import CALL, LOOSEST, OPERATORS
from symsim.algebra.quantity import Definition
from symsim.program.c_text import PRELUDE
from symsim.program.plain_python import HEAD, plain_python
from symsim.program.program import Program
from symsim.program.python_text import PythonText
from symsim.program.scope import Scope
from symsim.program.value import Value

JS_PRELUDE = """\
"use strict";

// what is no number stays none
const larger = (a, b) => (a > b || a !== a ? a : b);
const smaller = (a, b) => (a < b || a !== a ? a : b);
const up = (x) => Math.ceil(x > 0 ? x * (1 - 2 ** -49) : x * (1 + 2 ** -49));
const down = (x) => Math.floor(x > 0 ? x * (1 + 2 ** -49) : x * (1 - 2 ** -49));
// log2 rounded up of x rounded up; no tree has no leaves
const depth = (x) => {
  if (!(x > 0)) return NaN;
  let n = up(x), found = 0;
  if (n === Infinity) return n;
  for (; n > 1; n /= 2) found++;
  return found;
};
// the remainder with the sign of the divisor
const modulo = (a, b) => {
  const r = a % b;
  return r !== 0 && r < 0 !== b < 0 ? r + b : r;
};
"""
# signs that C and JavaScript write as Python does, binding as tightly
_SIGNS = frozenset("add sub mul div lt le eq ne".split())
_WIDTH = 100


@dataclass(frozen=True)
class Language:
    """templates: by operator. statement: a value under a name. opens, closes: a function of a name and its arguments."""

    templates: Mapping[str, str]
    statement: str
    comment: str
    prelude: str
    opens: Callable[[str, Sequence[str]], str]
    closes: str
    result: str


LANGUAGES = {
    "python": Language(
        {}, "{} = {}", "#", HEAD[0] + "\n", lambda name, given: f"def {name}({'*, ' if given else ''}{', '.join(given)}):", "", "return {}"
    ),
    "c": Language(
        {n: row.c for n, row in OPERATORS.items() if row.c},
        "const double {} = {};",
        "//",
        PRELUDE,
        lambda name, given: f"double {name}({', '.join(f'double {g}' for g in given) or 'void'}) {{",
        "}\n",
        "return {};",
    ),
    "js": Language(
        {n: row.js or row.c for n, row in OPERATORS.items() if row.c},
        "const {} = {};",
        "//",
        JS_PRELUDE,
        lambda name, given: f"function {name}({{ {', '.join(given)} }}) {{" if given else f"function {name}() {{",
        "}\n",
        "return {};",
    ),
}


def formula_source(definitions: Sequence[Definition], language: str, names: Mapping[str, str], free: Mapping[str, str]) -> str:
    """A function of the last definition's name over the free symbols; each definition is a statement with its meaning and unit.

    names: what symbols are called, where not by their own names. free: the meaning and unit of each free symbol.
    """
    own = LANGUAGES[language]
    program = Program([1 << 20] * max(1, len(free)), small=0)
    inputs = {name: program.input(names.get(name, name), axis) for axis, name in enumerate(free)}
    known, said = dict(inputs), dict[str, str]()
    for d in definitions:
        symbol = names.get(d.symbol, d.symbol)
        known[d.symbol] = program.kept(symbol, Scope(program, known, {}).lower(d.expr, d.counts))
        said[symbol] = f"{d.meaning} [{d.unit}]"
    last = known[definitions[-1].symbol]
    text, lines = statements(own, {names.get(n, n): v for n, v in inputs.items()}, [last])
    body = []
    for name, line in lines:
        body += [*_comment(own, said.pop(name))] if name in said else []
        body.append(line)
    given = [names.get(n, n) for n in free]
    head = [line for n in free for line in _comment(own, f"{names.get(n, n)}: {free[n]}")]
    title = names.get(definitions[-1].symbol, definitions[-1].symbol)
    inner = [*body, own.result.format(text.text(last))]
    return "\n".join([own.prelude, *head, own.opens(title, given), *(f"    {line}" for line in inner), own.closes]).rstrip("\n") + "\n"


def statements(own: Language, inputs: Mapping[str, Value], outputs: Sequence[Value]) -> tuple[PythonText, list[tuple[str, str]]]:
    """The text of values over inputs of these names, and the statements that it stands on, each with the name that it gives."""
    lines: list[tuple[str, str]] = []

    def named(value: Value) -> str:
        return value.name if value.op == "kept" else f"x{value.id}"

    if not own.templates:
        made, found = plain_python(inputs, outputs, named)
        return made, [(statement.partition(" = ")[0], statement) for statement in found]

    def assign(value: Value, text: str) -> str:
        lines.append((named(value), own.statement.format(named(value), text)))
        return named(value)

    def function(text: PythonText, value: Value) -> str:
        template = own.templates[value.op]
        # an argument of a call stands bare
        called = template.endswith(")")
        found = template.format(*(text.text(a, LOOSEST if called else CALL) for a in value.args))
        return found if called else f"({found})"

    made = PythonText(outputs, {v.id: n for n, v in inputs.items()}, function=function, number=number, assign=assign, signs=_SIGNS)
    made.print()
    return made, lines


def _comment(own: Language, text: str) -> list[str]:
    said = "".join(c if c.isprintable() else "?" for c in text)
    return textwrap.wrap(said, _WIDTH, initial_indent=f"{own.comment} ", subsequent_indent=f"{own.comment}   ", break_on_hyphens=False)


def number(x: Any) -> str:
    if isinstance(x, bool):
        return str(x).lower()
    return repr(x.numerator / x.denominator) if isinstance(x, Fraction) else repr(float(x))
