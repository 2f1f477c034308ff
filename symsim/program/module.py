"""An unrolled derivation printed as a Python module that needs NumPy alone: straight-line code over arrays, for a person to read.

One assignment a named definition, in the order of `unrolled`, with a comment of its meaning and unit: the program keeps every definition as a
value of its own. What occurs again gets a name of its own:

    a product of arguments       b_s = b * s, cp_tp = cp * tp
    a short ceil, floor, log2    ceil_b_s_per_128_cp
    any other part               NAME_1, NAME_2 of the definition NAME in which it stands first

Texts of a user get into comments and the docstring alone (symsim.program.module_text); identifiers are built from ASCII letters, digits
and underscores.
"""

from __future__ import annotations

import builtins
import inspect
import json
import keyword
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from symsim.algebra.operators import OPERATORS, Number
from symsim.errors import InputError
from symsim.program import arrays
from symsim.program.base import Base
from symsim.program.module_text import WIDTH, comment, default, docstring, statement_lines
from symsim.program.plan import operations
from symsim.program.python_text import PythonText
from symsim.program.steps import lowered
from symsim.program.unrolled import Output, Unrolled, at_base, unroll
from symsim.program.value import Value

# a short call of these is named after what it stands for
_NAMED_CALLS = ("ceil", "floor", "tree_depth")
_SHORT = 32
_SECTIONS = {
    "sizes": "Sizes",
    "network": "The network: members of a group inside a unit, seconds a byte, latencies",
    "model": "The whole model",
    "pipeline": "Boundary tensors",
    "step": "The step",
}

# without the types, which would need an import
_HELPERS = {name: re.sub(r": Any\b| -> Any\b", "", inspect.getsource(made)) for name, made in inspect.getmembers(arrays, inspect.isfunction)}
_TAKEN = frozenset({"np", "functools", "kernel", *_HELPERS, *dir(builtins)})


def free_names(text: str | None) -> list[str] | None:
    """Names separated by commas, as the command line gives them; None for None. InputError where there is none."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"--free {text!r}: names of arguments separated by commas are needed, such as b,s,tp")
    return names


def compile_module(base: Base, free: Sequence[str] | None) -> str:
    """The source of a module whose `kernel` returns every reported quantity over arrays of the free symbols.

    free: names of arguments; None for all sizes, degrees above 1, lam where there are experts, and numbers of the system that something
    stands on. InputError for a combination that `symsim eval` refuses, or a name that cannot be an argument.
    """
    return module_source(unroll(at_base(base), free))


def module_source(unrolled: Unrolled) -> str:
    code = _Code(unrolled)
    lines = code.lines()
    helpers = [text.strip("\n") for name, text in _HELPERS.items() if name in code.called or (name == "arrays" and unrolled.arguments)]
    names = [code.names[a.name] for a in unrolled.arguments]
    defaults = [f"    {code.names[a.name]}={default(a.default)},\n" for a in unrolled.arguments]
    head = f"def kernel(\n    *,\n{''.join(defaults)}):" if defaults else "def kernel():"
    said = '    """All quantities at the given symbols, by name; the docstring of the module lists both."""'
    taken = [f"    {', '.join(own)}{',' if len(own) == 1 else ''} = arrays({', '.join(own)})" for own in _in_lines(names)]
    body = "\n".join([head, said, *taken, *(f"    {line}" if line else "" for line in lines)])
    imports = ["import functools"] if {"largest", "least"} & code.called else []
    return "\n\n\n".join(["\n\n".join([docstring(unrolled, code.names), *imports, "import numpy as np"]), *helpers, body]) + "\n"


def _in_lines(names: Sequence[str]) -> Iterator[list[str]]:
    """Names in runs that fit a line twice."""
    run: list[str] = []
    for name in names:
        if run and sum(len(n) + 2 for n in (*run, name)) > WIDTH // 2 - 10:
            yield run
            run = []
        run.append(name)
    if run:
        yield run


# code ------------------------------------------------------------------------------------------------------------------


class _Code:
    """The statements of `kernel`. names: identifiers by symbol. called: helpers that the statements call."""

    def __init__(self, unrolled: Unrolled):
        self.unrolled = unrolled
        self.names: dict[str, str] = {}
        self.called: set[str] = set()
        self._used: set[str] = set()
        for name in (*(a.name for a in unrolled.arguments), *(s.name for s in unrolled.steps)):
            self._identifier(name, name)
        self._steps = {step.name: step for step in unrolled.steps}
        self._lowered = lowered(unrolled, kept=True)
        # arguments, and products of them
        self._products = {value.id for value in self._lowered.inputs.values()}
        self._owners: dict[int, str] = {}
        self._parts: Counter[str] = Counter()
        self._section = ""
        self._waiting: list[str] = []
        self._lines: list[str] = []

    def _identifier(self, name: str, wish: str) -> str:
        """An identifier for a symbol, near what it is called."""
        plain = re.sub(r"[^0-9A-Za-z]+", "_", wish).strip("_") or "x"
        plain = f"x_{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) or plain in _TAKEN else plain
        found, again = plain, 1
        while found in self._used:
            again += 1
            found = f"{plain}_{again}"
        self._used.add(found)
        self.names[name] = found
        return found

    def lines(self) -> list[str]:
        """All statements and the dictionary that is returned."""
        results = self._lowered.results
        owner = ""
        for value in reversed(operations(results)):
            owner = value.name if value.op == "kept" else owner
            self._owners[value.id] = owner
        names = {value.id: self.names[name] for name, value in self._lowered.inputs.items()}
        text = PythonText(results, names, function=self._function, number=_number, assign=self._assign)
        text.print()
        returned = [self._returned(o.name, self._output(text, o, *self._lowered.outputs[o.name])) for o in self.unrolled.outputs]
        return [*self._lines, "", *self._waiting, "return {", *returned, "}"]

    def _returned(self, name: str, text: str) -> str:
        """A line of the dictionary; what is longer gets a name before it."""
        line = f"    {json.dumps(name)}: {text},"
        if len(line) <= WIDTH - 4:
            return line
        title = self._identifier(f"returned {name}", name)
        self._waiting += statement_lines(f"{title} = {text}")
        return f"    {json.dumps(name)}: {title},"

    def _assign(self, value: Value, text: str) -> str:
        """A definition under its comment, after its parts; the name of either."""
        if value.op != "kept":
            name = self._title(value, text)
            self._waiting += statement_lines(f"{name} = {text}")
            return name
        step = self._steps[value.name]
        if step.section != self._section:
            self._section = step.section
            block = step.section in self.unrolled.result.lowered.blocks
            self._lines += ["", *comment(f"Block {step.section}" if block else _SECTIONS.get(step.section, step.section)), ""]
        name = self.names[step.name]
        self._lines += [*self._waiting, *comment(f"{step.meaning} [{step.unit}]"), *statement_lines(f"{name} = {text}")]
        self._waiting = []
        return name

    def _title(self, value: Value, text: str) -> str:
        """A name for a part: after what it says where that is short, else after the definition in which it stands first."""
        owner = self._owners[value.id] or "part"
        function, _, inside = text.partition("(")
        if value.op == "mul" and all(a.id in self._products for a in value.args):
            self._products.add(value.id)
            wish = text.replace(" * ", "_")
        elif function in _NAMED_CALLS and len(text) <= _SHORT and not re.search(r"\w\(", inside):
            wish = text.replace("tree_depth", "log2").replace("/", "per")
        else:
            self._parts[owner] += 1
            wish = f"{owner}_{self._parts[owner]}"
        return self._identifier(f"part {value.id}", wish)

    def _function(self, text: PythonText, value: Value) -> str:
        row = OPERATORS[value.op]
        args = [text.text(a) for a in self._flat(text, value)]
        if len(args) > 2 and row.operands is None:
            return f"{self._helper({'max': 'largest', 'min': 'least'}[row.name])}({', '.join(args)})"
        return f"{self._helper(row.arrays) if row.arrays else f'np.{row.numpy}'}({', '.join(args)})"

    def _flat(self, text: PythonText, value: Value) -> Iterator[Value]:
        """Operands, of an extreme those of the extremes inside it too."""
        for arg in value.args:
            inside = arg.op == value.op and OPERATORS[value.op].operands is None and not arg.known and arg.id not in text.names
            yield from self._flat(text, arg) if inside else (arg,)

    def _helper(self, name: str) -> str:
        self.called.add(name)
        return name

    def _output(self, text: PythonText, output: Output, value: Value, left_of: Value | None = None) -> str:
        if value.known:
            return _number(int(-(-value.data // 1)) if output.rounded == "up" else value.data)
        if not output.rounded:
            return text.text(value)
        beside = "" if left_of is None else f", {text.text(left_of)}"
        helper = "floor" if output.rounded == "down" else "ceil_beside" if beside else "ceil"
        return f"{self._helper(helper)}({text.text(value)}{beside})"


def _number(x: Number) -> str:
    """A literal; whole numbers that floats hold exactly as such."""
    if isinstance(x, Fraction) and x.denominator != 1:
        return f"({x.numerator} / {x.denominator})"
    if isinstance(x, float):
        return repr(x)
    return str(int(x)) if -(2**53) < x < 2**53 else repr(float(x))
