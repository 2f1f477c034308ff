"""An unrolled derivation printed as a Python module that needs NumPy alone: straight-line code over arrays, for a person to read.

One assignment a named definition, in the order of `unrolled`, with a comment of its meaning and unit. Sums are put over common divisors and
their common factors stand once, so a count is divided last and comes out whole. What occurs again gets a name of its own:

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
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from symsim.algebra.expr import Atom, Call, Expr, Monomial, Symbol, symbol
from symsim.algebra.operators import FUNCTIONS, Number
from symsim.errors import InputError
from symsim.program import arrays
from symsim.program.base import Base
from symsim.program.module_shared import Shared, is_call, is_symbol
from symsim.program.module_text import WIDTH, comment, default, docstring, statement_lines
from symsim.program.unrolled import DERIVED, Output, Step, Unrolled, at_base, unroll

# a short call of these is named after what it stands for
_NAMED_CALLS = ("ceil", "floor", "tree_depth")
_SHORT = 32
# products of arguments that occur less often stay as they are
_OFTEN = 3

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
    code = _Code(unrolled, _pairs(unrolled))
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

    def __init__(self, unrolled: Unrolled, pairs: Iterable[tuple[str, str]] = ()):
        """pairs: identifiers whose product gets a name, in order; the product is named `a_b`, and may stand in later pairs."""
        self.unrolled = unrolled
        self.names: dict[str, str] = {}
        self.called: set[str] = set()
        self.products: list[list[str]] = []
        self.owner = ""
        self._used: set[str] = set()
        for name in (*(a.name for a in unrolled.arguments), *(s.name for s in unrolled.steps)):
            self._identifier(name, name)
        self.shared = Shared(unrolled)
        # arguments and what follows from them: their products are made once, before the rest
        self.early = {a.name for a in unrolled.arguments} | {s.name for s in unrolled.steps if s.section == DERIVED}
        self.pairs: list[tuple[str, str, str]] = []
        made: dict[str, str] = {}
        for a, b in pairs:
            name = made[f"{a}_{b}"] = self._identifier(f"product {a} {b}", f"{a}_{b}")
            self.pairs.append((made.get(a, a), made.get(b, b), name))

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
        early = [s for s in self.unrolled.steps if s.name in self.early]
        rest = [s for s in self.unrolled.steps if s.name not in self.early]
        found: list[str] = []
        section = None
        for step in (*early, None, *rest):
            if step is None:
                found += self._products()
                continue
            if step.section != section:
                section = step.section
                block = section in self.unrolled.result.lowered.blocks
                found += ["", *comment(f"Block {section}" if block else _SECTIONS.get(section, section)), ""]
            found += self._statement(step)
        return [*found, "", *self._returned()]

    def _products(self) -> list[str]:
        if not self.pairs:
            return []
        return ["", "# Products that several formulas share", "", *(f"{name} = {a} * {b}" for a, b, name in self.pairs)]

    def _statement(self, step: Step) -> list[str]:
        self.owner = step.name
        text, before = self._text(step.body)
        return [*before, *comment(f"{step.meaning} [{step.unit}]"), *statement_lines(f"{self.names[step.name]} = {text}")]

    def _text(self, body: Expr) -> tuple[str, list[str]]:
        """A body as Python, and the statements of its parts that get a name here."""
        before: list[str] = []
        known = self.shared.name_of(body)
        if known is not None:
            return self.names[known], before
        made = self.expression(self._inside(body, before) if is_call(body) else self._named(body, before))
        self.shared.keep(body, self.owner)
        return made, before

    def _named(self, expression: Expr, before: list[str]) -> Expr:
        """The expression with parts that occur again replaced by names; those that get theirs here are written to `before`."""
        known = self.shared.name_of(expression)
        if known is not None:
            return symbol(known)
        if not any(isinstance(a, Call) for m in expression.terms for a, _ in m):
            return expression
        total = Expr({})
        for monomial, coefficient in expression.terms.items():
            term = Expr({(): coefficient})
            for atom, power in monomial:
                made = Expr({((atom, 1),): 1}) if isinstance(atom, Symbol) else self._called(atom, before)
                (((factor, _),),) = made.terms
                term = term * Expr({((factor, power),): 1})
            total = total + term
        return total

    def _called(self, call: Call, before: list[str]) -> Expr:
        """A call: by its name, by one that it gets here, or as it stands."""
        whole = Expr({((call, 1),): 1})
        known = self.shared.name_of(whole)
        if known is not None:
            return symbol(known)
        made = self._inside(whole, before)
        return self._kept(whole, made, before) if self.shared.again(whole) else made

    def _inside(self, call: Expr, before: list[str]) -> Expr:
        """A call whose arguments' parts go by their names."""
        (((atom, _),),) = call.terms
        assert isinstance(atom, Call)
        arguments = []
        for argument in atom.arguments:
            made = self._named(argument, before)
            own = atom.function != "sum" and not is_call(argument) and not is_symbol(made) and self.shared.again(argument)
            arguments.append(self._kept(argument, made, before) if own else made)
        return Expr({((Call(atom.function, tuple(arguments)), 1),): 1})

    def _kept(self, part: Expr, made: Expr, before: list[str]) -> Expr:
        """A name for a part, which is written to `before`."""
        text = self.expression(made)
        title = self._title(part, text)
        self.shared.keep(part, title)
        before.extend(statement_lines(f"{self.names[title]} = {text}"))
        return symbol(title)

    def _title(self, part: Expr, text: str) -> str:
        """A symbol for a part: after what it says where that is short, else after the definition it stands in."""
        function, _, inside = text.partition("(")
        short = is_call(part) and function in _NAMED_CALLS and len(text) <= _SHORT and not re.search(r"\w\(", inside)
        wish = text.replace("tree_depth", "log2").replace("/", "per") if short else f"{self.owner}_{self.shared.part(self.owner)}"
        self._identifier(f"part {wish}", wish)
        return f"part {wish}"

    # expressions -------------------------------------------------------------------------------------------------------

    def expression(self, expression: Expr) -> str:
        """A sum: terms over the same divisors together, with their common factors in front."""
        over: dict[Monomial, dict[Monomial, Number]] = {}
        for monomial, coefficient in sorted(expression.terms.items(), key=_reading_order):
            below = tuple((a, -p) for a, p in monomial if p < 0)
            over.setdefault(below, {})[tuple((a, p) for a, p in monomial if p > 0)] = coefficient
        parts = [part for below, terms in over.items() for part in self._quotient(terms, below)]
        parts.sort(key=lambda part: part[0])
        if not parts:
            return "0"
        (negative, text), *rest = parts
        return ("-" if negative else "") + text + "".join(f" {'-' if n else '+'} {t}" for n, t in rest)

    def _quotient(self, terms: Mapping[Monomial, Number], below: Monomial) -> list[tuple[bool, str]]:
        """Terms over the same divisors, as one product where they share anything: whether each is negative, and its absolute value."""
        divisor = math.lcm(*(Fraction(c).denominator for c in terms.values() if not isinstance(c, float)))
        common = _common(list(terms))
        if len(terms) == 1 or (not below and divisor == 1 and not common):
            return [(c < 0, self._product(_size(c * divisor), m, None, below, divisor)) for m, c in terms.items()]
        scaled: dict[Monomial, Number] = {m: c * divisor for m, c in terms.items()}
        whole = not any(isinstance(c, float) for c in scaled.values())
        front = math.gcd(*(int(c) for c in scaled.values())) if whole and common else 1
        negative = all(c < 0 for c in scaled.values())
        by = -front if negative else front
        inner = Expr({_without(m, common): (int(c) // by if whole else c / by) for m, c in scaled.items()})
        return [(negative, self._product(front, common, inner, below, divisor))]

    def _product(self, coefficient: Number, factors: Monomial, inner: Expr | None, below: Monomial, divisor: int) -> str:
        top, bottom = self._factors(factors), self._factors(below)
        if coefficient != 1 or not (top or inner is not None):
            top.insert(0, _number(coefficient))
        if divisor != 1:
            bottom.insert(0, _number(divisor))
        if inner is not None:
            sum_ = self.expression(inner)
            top.append(f"({sum_})" if top or bottom else sum_)
        text = " * ".join(top)
        if bottom:
            text += f" / {bottom[0]}" if len(bottom) == 1 else f" / ({' * '.join(bottom)})"
        return text

    def _factors(self, monomial: Monomial) -> list[str]:
        """Atoms as Python, arguments' products by their names first."""
        early: list[str] = []
        late: list[str] = []
        for atom, power in monomial:
            text = self._atom(atom)
            (early if isinstance(atom, Symbol) and atom.name in self.early else late).extend([text] * power)
        if self.owner in self.early:
            return [*early, *late]
        if len(early) > 1:
            self.products.append(list(early))
        for a, b, name in self.pairs:
            _replace_pair(early, a, b, name)
        return [*early, *late]

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.names[atom.name]
        texts = [self.expression(a) for a in atom.arguments]
        if atom.function == "sum":
            return f"({texts[0]})"
        if atom.function == "at":
            return f"{self._helper('of_largest')}(({', '.join(texts[1::2])}), ({', '.join(texts[::2])}))"
        row = FUNCTIONS[atom.function]
        if row.operands is None and len(texts) > 2:
            return f"{self._helper({'max': 'largest', 'min': 'least'}[row.name])}({', '.join(texts)})"
        return f"{self._helper(row.arrays) if row.arrays else f'np.{row.numpy}'}({', '.join(texts)})"

    def _helper(self, name: str) -> str:
        self.called.add(name)
        return name

    # what is returned --------------------------------------------------------------------------------------------------

    def _returned(self) -> list[str]:
        before: list[str] = []
        found = []
        for output in self.unrolled.outputs:
            self.owner = output.name
            found.append(f"    {json.dumps(output.name)}: {self._output(output, before)},")
        return [*before, "return {", *found, "}"]

    def _output(self, output: Output, before: list[str]) -> str:
        if output.body.is_constant:
            value = output.body.constant()
            return _number(int(-(-value // 1)) if output.rounded == "up" else value)
        text = self.expression(self._named(output.body, before))
        if not output.rounded:
            return text
        beside = "" if output.left_of is None else f", {self.expression(self._named(output.left_of, before))}"
        helper = "floor" if output.rounded == "down" else "ceil_beside" if beside else "ceil"
        self.called.add(helper)
        return f"{helper}({text}{beside})"


def _pairs(unrolled: Unrolled) -> list[tuple[str, str]]:
    """Products of two arguments, or of such products, that occur often: the most frequent first."""
    code = _Code(unrolled)
    code.lines()
    products = code.products
    found: list[tuple[str, str]] = []
    while True:
        counts: Counter[tuple[str, str]] = Counter()
        for factors in products:
            counts.update({(min(a, b), max(a, b)) for k, a in enumerate(factors) for b in factors[k + 1 :]})
        pair, often = max(counts.items(), key=lambda item: (item[1], item[0]), default=(("", ""), 0))
        if often < _OFTEN:
            return found
        found.append(pair)
        for factors in products:
            _replace_pair(factors, *pair, "_".join(pair))


def _common(monomials: Sequence[Monomial]) -> Monomial:
    """Factors that all share, at the least power."""
    powers = dict(monomials[0])
    for monomial in monomials[1:]:
        own = dict(monomial)
        powers = {a: min(p, own[a]) for a, p in powers.items() if a in own}
    return tuple((a, powers[a]) for a, _ in monomials[0] if a in powers)


def _without(monomial: Monomial, common: Monomial) -> Monomial:
    taken = dict(common)
    return tuple((a, p - taken.get(a, 0)) for a, p in monomial if p > taken.get(a, 0))


def _replace_pair(factors: list[str], a: str, b: str, name: str) -> None:
    while a in factors and b in factors and (a != b or factors.count(a) > 1):
        at = min(factors.index(a), factors.index(b))
        factors.remove(a)
        factors.remove(b)
        factors.insert(at, name)


def _reading_order(term: tuple[Monomial, Number]) -> Any:
    return [(atom.key, -power) for atom, power in term[0]]


def _size(x: Number) -> Number:
    return -x if x < 0 else x


def _number(x: Number) -> str:
    """A literal; whole numbers that floats hold exactly as such."""
    if isinstance(x, Fraction) and x.denominator != 1:
        return f"({x.numerator} / {x.denominator})"
    if isinstance(x, float):
        return repr(x)
    return str(int(x)) if _size(x) < 2**53 else repr(float(x))
