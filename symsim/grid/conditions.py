"""The grammar of filters, objectives and derived axes: arithmetic, comparisons and logic over named quantities.

    number | number unit | name.with.dots | 'text' | true | false | -a | a + b | a - b | a * b | a / b | a // b | a % b | a ** 3
    max(a, ..) | min(a, ..) | sqrt(a) | ceil(a) | floor(a) | log2(a) | abs(a)
    a < b | a <= b | a > b | a >= b | a == b | a != b | a < b <= c | a and b | a or b | not a | (a)

A unit is one of a system's files (80 GiB, 900 GB/s, 4 s): it makes a number of bytes, bytes a second, seconds, as quantities have them.
`50 %` is 0.5 where nothing to divide by follows. `fits` is the condition that `--fits` asks for.
Text is read as in `symsim.algebra.grammar`: Python's parser makes the tree, whitelisted nodes alone become a `Node`, and
sizes are bounded. A number, a truth and a text never stand for one another; what a name holds shows when it is evaluated.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Union

from symsim.algebra.grammar import _DEEPEST, _LARGEST_DECIMAL_EXPONENT, _LONGEST, _MOST_BITS, _NUMBER, _Reader
from symsim.algebra.operators import CALL, EXACT, OPERATORS, PRODUCT, SUM, parsed
from symsim.errors import InputError, cut, near, nearest
from symsim.inputs.known import UNITS

Exact = Union[int, Fraction]

_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_QUOTED = re.compile(r"""'[^'\\]*'|"[^"\\]*\"""")
# what a look ahead has found is not tried shorter: digits that no unit follows are gone through once
_MEASURED = re.compile(rf"(?<![\w.])(?=({_NUMBER.pattern}))\1\s*([A-Za-z]+)(/[A-Za-z]+)?(?!\w)")
# what is behind it tells a share from a remainder: nothing that can be divided by
_PERCENT = re.compile(rf"(?<![\w.])(?=({_NUMBER.pattern}))\1\s*%(?=\s*(?:$|[),<>=!]|(?:and|or)\b))")
_WORDS = frozenset("and or not in is if else".split())
_ASSIGNED = re.compile(r":=|(?<![<>=!])=(?!=)")

# the peak, and beside it what else a rank needs
FITS = "memory.peak + memory.reserve <= memory.capacity"
_A_NUMBER, _A_TRUTH, _A_TEXT = "a number", "true or false", "text"
# functions of one number, or of several
_FUNCTIONS = {name: row for name, row in OPERATORS.items() if row.primitive and not row.sign and row.operands in (1, None)}


@dataclass(frozen=True)
class Node:
    """One step of an expression. `value` is the number of a 'number' (exact; in base units, where it was given with a `unit`), the content
    of a 'text', the truth of a 'bool', the dotted name of a 'name' and the exponent of a 'pow'; every other kind has arguments only."""

    kind: str
    arguments: tuple["Node", ...] = ()
    value: Exact | str | bool | None = None
    unit: str = ""


def parse_condition(text: str, where: str = "") -> Node:
    """What is true or false of a point; `fits` becomes what it stands for, another name alone `name == true`, so that evaluating it cannot give a
    number.

    InputError quotes the part that does not read and its column.
    """
    found = _spelt_out(_read(text, where, _A_TRUTH))
    return Node("eq", (found, Node("bool", value=True))) if found.kind == "name" else found


def _spelt_out(node: Node) -> Node:
    """The same with what `fits` stands for, where it is said by itself, and not of a number."""
    if node == Node("name", value="fits"):
        return _read(FITS, "", _A_TRUTH)
    return replace(node, arguments=tuple(map(_spelt_out, node.arguments))) if node.kind in ("and", "or", "not") else node


def parse_quantity(text: str, where: str = "") -> Node:
    """A number of a point; InputError as `parse_condition`."""
    return _read(text, where, _A_NUMBER)


def parse_any(text: str, where: str = "") -> Node:
    """A number, or what is true or false; InputError as `parse_condition`."""
    return _read(text, where, "")


def names(node: Node) -> tuple[str, ...]:
    """Names that the expression uses, each once, as they first appear."""
    return tuple(dict.fromkeys(str(part.value) for part in _walk(node) if part.kind == "name"))


def evaluate(node: Node, values: Mapping[str, Any]) -> Any:
    """The expression's value where each name has its own: a number, a bool or text, or a NumPy array of one of these.

    Integers and fractions stay exact (a whole result is an int), and floats stay floats. Numbers in arrays are calculated as float64:
    integers are exact below 2**53, quotients are rounded. Division by zero gives inf with the sign of the dividend, or nan. log2 is the
    depth of a binary tree over so many leaves: log2 rounded up, 0 up to one leaf, nan at and below zero.
    InputError: a name without a value, or with one of a sort that does not fit.
    """
    if node.kind in ("number", "text", "bool"):
        return node.value
    if node.kind == "name":
        return _value_of(str(node.value), values)
    arguments = []
    for argument in node.arguments:
        arguments.append(evaluate(argument, values))
    complaint = _complaint(node.kind, [_sort_of_value(a) for a in arguments])
    if complaint:
        raise InputError(f"'{cut(show(node))}' {complaint}")
    if any(hasattr(a, "dtype") for a in arguments):
        return _on_arrays(node, arguments)
    return _on_numbers(node, arguments)


def show(node: Node) -> str:
    """A text that parses to the same tree."""
    if node.kind == "number":
        return f"{_decimal(_measured(node))} {node.unit}" if node.unit else _decimal(node.value)
    if node.kind == "text":
        return f'"{node.value}"' if "'" in str(node.value) else f"'{node.value}'"
    if node.kind == "bool":
        return "true" if node.value else "false"
    if node.kind == "name":
        return str(node.value)
    row = OPERATORS[node.kind]
    if node.kind == "pow":
        return row.text(_inside(node.arguments[0], CALL), str(node.value))
    return row.text(*(_inside(a, row.inside(k)) for k, a in enumerate(node.arguments)))


def _inside(node: Node, lowest: int) -> str:
    return show(node) if node.kind not in OPERATORS or OPERATORS[node.kind].binds >= lowest else f"({show(node)})"


def _measured(node: Node) -> Fraction:
    """A number in its own unit."""
    return Fraction(node.value or 0) / UNITS[node.unit][1]


def _decimal(value: Any) -> str:
    """A decimal number as the grammar reads it, without an exponent where that is short."""
    exact, places = Fraction(value), 0
    while 10**places % exact.denominator:
        places += 1
        if places > exact.denominator.bit_length():
            return f"({exact})"
    digits = str(exact.numerator * 10**places // exact.denominator)
    zeros = len(digits) - len(digits.rstrip("0"))
    if places == 0 and zeros > 12:
        exponent = min(zeros, _LARGEST_DECIMAL_EXPONENT)
        return f"{digits[:-exponent]}e{exponent}"
    exponent = min(places, _LARGEST_DECIMAL_EXPONENT) if places > 12 else 0
    point = places - exponent
    digits = digits.zfill(point + 1)
    return (f"{digits[:-point]}.{digits[-point:]}" if point else digits) + (f"e-{exponent}" if exponent else "")


def _walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(reversed(part.arguments))


def _sort_of_node(node: Node) -> str:
    """What a node stands for; empty for a name, which may hold anything."""
    if node.kind == "name":
        return ""
    if node.kind == "text":
        return _A_TEXT
    return _A_TRUTH if node.kind == "bool" or (node.kind in OPERATORS and OPERATORS[node.kind].gives_truth) else _A_NUMBER


def _sort_of_value(value: Any) -> str:
    if hasattr(value, "dtype"):
        return {"b": _A_TRUTH, "i": _A_NUMBER, "u": _A_NUMBER, "f": _A_NUMBER, "U": _A_TEXT, "T": _A_TEXT, "O": _A_TEXT}[value.dtype.kind]
    return _A_TRUTH if isinstance(value, bool) else _A_TEXT if isinstance(value, str) else _A_NUMBER


def _complaint(kind: str, sorts: Sequence[str]) -> str:
    """Why operands of these sorts do not fit an operation, or nothing; an empty sort fits everywhere."""
    known = [sort for sort in sorts if sort]
    if kind in ("eq", "ne"):
        return f"compares {known[0]} with {known[1]}" if len(set(known)) == 2 else ""
    wanted = _A_TRUTH if OPERATORS[kind].takes_truths else _A_NUMBER
    wrong = next((sort for sort in known if sort != wanted), "")
    if wrong == _A_TEXT:
        return f"uses text where {wanted} is needed; text is only compared, with == or !="
    return f"uses {wrong} where {wanted} is needed" if wrong else ""


def _read(text: str, where: str, wanted: str) -> Node:
    reader = _ConditionReader(text, None, where)
    found: Any = reader.read()
    sort = _sort_of_node(found)
    if sort == _A_TEXT:
        raise reader.refusal("is text, which is only compared, with == or !=")
    if wanted and sort and sort != wanted:
        raise reader.refusal(f"is {sort}, and {wanted} is needed" + (": compare it, as in tp > 1" if wanted == _A_TRUTH else ""))
    return found


class _ConditionReader(_Reader):
    """The reader of formulas with other leaves and branches: its bounds, its parser and its sentences about columns serve here too."""

    def read(self) -> Any:
        # blanked, so that an equals sign inside quotes is no concern
        bare = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), self.text) if len(self.text) <= _LONGEST else ""
        self._read_measured(bare)
        assigned = _ASSIGNED.search(bare)
        if assigned:
            raise self._error(assigned.start(), assigned[0], "is not allowed in an expression: equality is written ==")
        found: Any = super().read()
        if _bits(found) > _MOST_BITS:
            raise self.refusal("stands for too large a number")
        return found

    def _read_measured(self, bare: str) -> None:
        """Put a name of the same length where a number has its unit: Python's parser knows of none."""
        self.measured: dict[int, Node] = {}
        for found in _MEASURED.finditer(bare):
            number, word, rest = found[1], found[3], found[4] or ""
            unit = word + rest if word + rest in UNITS else word
            if word in _WORDS or (unit not in UNITS and not near(unit, list(UNITS))):
                continue
            if unit not in UNITS:
                raise self._error(found.start(), found[0], f"has a unit that is not known: {nearest(unit, list(UNITS))}")
            end = found.end() - (0 if unit != word else len(rest))
            self.measured[found.start()] = Node("number", value=_whole(self._exact(number, found.start()) * UNITS[unit][1]), unit=unit)
            self.text = self.text[: found.start()] + "_" * (end - found.start()) + self.text[end:]

        for found in _PERCENT.finditer(bare):
            share = _whole(self._exact(found[1], found.start()) / 100)
            self.measured[found.start()] = Node("number", value=share)
            self.text = self.text[: found.start()] + "_" * (found.end() - found.start()) + self.text[found.end() :]

    def _exact(self, number: str, at: int) -> Fraction:
        """A decimal number; InputError for one that is too large."""
        match = _NUMBER.fullmatch(number)
        if match is None or len(number) > _LARGEST_DECIMAL_EXPONENT or abs(int(match[1] or 0)) > _LARGEST_DECIMAL_EXPONENT:
            raise self._error(at, number, "is too large a number")
        return Fraction(number)

    def refusal(self, reason: str) -> InputError:
        """The whole expression does not do."""
        return self._error(self.indent, self.shown.strip(), reason)

    def _build(self, node: ast.expr, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InputError(f"{self.where}the expression is nested more than {_DEEPEST} deep")
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            return self._made(node, parsed()[type(node.op)], (self._build(node.operand, depth + 1),))
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth)
        if isinstance(node, ast.BoolOp):
            return self._made(node, parsed()[type(node.op)], tuple(self._build(part, depth + 1) for part in node.values))
        if isinstance(node, ast.Call):
            return self._function(node, depth)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._quantity(node)
        if isinstance(node, ast.Constant):
            return self._constant(node)
        raise self._refuse(node, f"is not allowed in an expression ({_NOT_READ.get(type(node), 'only arithmetic, comparisons and logic are')})")

    def _made(self, node: ast.expr, kind: str, arguments: tuple[Node, ...], value: int | None = None) -> Node:
        complaint = _complaint(kind, [_sort_of_node(a) for a in arguments])
        if complaint:
            raise self._refuse(node, complaint)
        return Node(kind, arguments, value)

    def _arithmetic(self, node: ast.BinOp, depth: int) -> Node:
        kind = parsed().get(type(node.op))
        if kind is None:
            power = "; a power is written **" if isinstance(node.op, ast.BitXor) else ""
            raise self._refuse(node, f"uses an operator that is not one of + - * / // % ** and or not{power}")
        left = self._build(node.left, depth + 1)
        if kind == "pow":
            return self._made(node, kind, (left,), self._exponent(node))
        return self._made(node, kind, (left, self._build(node.right, depth + 1)))

    def _comparison(self, node: ast.Compare, depth: int) -> Node:
        sides = [self._build(side, depth + 1) for side in (node.left, *node.comparators)]
        if any(_sort_of_node(side) == _A_TRUTH for side in sides[1:-1]):
            # a middle stands in two comparisons: chains inside chains would double with every level
            raise self._refuse(node, "compares true or false in a chain; join two comparisons with and")
        steps = []
        for sign, left, right in zip(node.ops, sides, sides[1:]):
            if type(sign) not in parsed():
                raise self._refuse(node, "uses a comparison that is not one of < <= > >= == !=")
            steps.append(self._made(node, parsed()[type(sign)], (left, right)))
        return steps[0] if len(steps) == 1 else Node("and", tuple(steps))

    def _function(self, node: ast.Call, depth: int) -> Node:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function not in _FUNCTIONS:
            raise self._refuse(node, "is not allowed: the only functions are min, max, sqrt, ceil, floor, log2 and abs")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self._refuse(node, "is not allowed: arguments are expressions separated by commas")
        several = _FUNCTIONS[function].operands is None
        if not node.args or (not several and len(node.args) != 1):
            raise self._refuse(node, f"needs {'at least one argument' if several else 'one argument'}")
        return self._made(node, function, tuple(self._build(a, depth + 1) for a in node.args))

    def _quantity(self, node: "ast.Name | ast.Attribute") -> Node:
        at, text = self._source(node)
        if at in self.measured:
            return self.measured[at]
        if text in ("true", "false"):
            return Node("bool", value=text == "true")
        if not _DOTTED.fullmatch(text):
            raise self._error(at, text, "is not a name: letters, digits and _ are, joined by dots")
        return Node("name", value=text)

    def _constant(self, node: ast.Constant) -> Node:
        at, text = self._source(node)
        if isinstance(node.value, bool):
            return Node("bool", value=node.value)
        if isinstance(node.value, str) and _QUOTED.fullmatch(text):
            return Node("text", value=text[1:-1])
        match = _NUMBER.fullmatch(text)
        if not match:
            raise self._error(at, text, "is neither a decimal number, as 4096 or 9.89e14, nor plain 'text' in quotes")
        return Node("number", value=_whole(self._exact(text, at)))


_NOT_READ: dict[type, str] = {
    ast.Subscript: "subscripts are not",
    ast.Lambda: "functions cannot be defined",
    ast.IfExp: "'if' is not",
    ast.Tuple: "lists are not",
    ast.List: "lists are not",
    ast.Dict: "mappings are not",
    ast.Set: "mappings are not",
    ast.ListComp: "loops are not",
    ast.SetComp: "loops are not",
    ast.DictComp: "loops are not",
    ast.GeneratorExp: "loops are not",
    ast.JoinedStr: "text with values in it is not",
}


def _bits(node: Node) -> int:
    """A bound on the bits of the numerator and denominator of an exact value, 64 for a name."""
    if node.kind == "number":
        exact = Fraction(node.value or 0)
        return max(abs(exact.numerator), exact.denominator).bit_length()
    if not node.arguments:
        return 64
    inside = [_bits(a) for a in node.arguments]
    if node.kind == "pow" and isinstance(node.value, int):
        return inside[0] * max(abs(node.value), 1)
    return sum(inside) if OPERATORS[node.kind].binds in (SUM, PRODUCT) else max(inside)


def _value_of(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise InputError(f"'{name}' has no value here: {nearest(name, list(values))}")
    value = values[name]
    usable = value.dtype.kind in "biufUTO" if hasattr(value, "dtype") else isinstance(value, (bool, int, float, Fraction, str))
    if not usable:
        raise InputError(f"'{name}' is neither a number nor true or false nor text here")
    return value


def _whole(value: Exact) -> Exact:
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _on_numbers(node: Node, arguments: Sequence[Any]) -> Any:
    if node.kind == "pow":
        return _whole(EXACT["pow"](arguments[0], node.value))
    if OPERATORS[node.kind].binds in (SUM, PRODUCT) and any(isinstance(a, float) for a in arguments):
        # a float beside an exact number makes a float; comparisons are exact even then
        arguments = list(map(_float, arguments))
    return _whole(EXACT[node.kind](*arguments))


def _on_arrays(node: Node, arguments: list[Any]) -> Any:
    import numpy as np

    from symsim.program import arrays

    sort = _sort_of_value(arguments[0])
    if sort == _A_TEXT:
        return arguments[0] == arguments[1] if node.kind == "eq" else arguments[0] != arguments[1]
    if sort == _A_NUMBER:
        # int64 would wrap around where the exact value does not
        arguments = [np.asarray(a, dtype=np.float64) if hasattr(a, "dtype") else np.float64(_float(a)) for a in arguments]
    with np.errstate(all="ignore"):
        if node.kind in ("div", "floordiv", "mod"):
            # the negative zero of floats divides as zero does: 1/-a is inf for the integer 0
            arguments[1] = arguments[1] + 0.0
        if node.kind == "pow":
            return _array_power(arguments[0], node.value)
        row = OPERATORS[node.kind]
        function = getattr(np, row.numpy) if row.numpy else getattr(arrays, row.arrays)
        return function(arguments[0]) if row.operands == 1 else functools.reduce(function, arguments)


def _array_power(base: Any, exponent: Any) -> Any:
    """By multiplication, which is exact for integers where NumPy's power may be off by a bit."""
    result, square, left = base**0, base + 0.0, abs(exponent)
    while left:
        if left % 2:
            result = result * square
        square, left = square * square, left // 2
    return result if exponent >= 0 else 1 / result
