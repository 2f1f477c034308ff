"""The grammar of formulas and settings: arithmetic and nothing else, read without evaluating anything.

    number | name | a + b | a - b | a * b | a / b | a ** 3 | -a | (a) | max(a, ..) | min(a, ..) | sqrt(a) | ceil(a) | floor(a)
    | log2(a), the depth of a binary tree | at(a, x, b, y, ..), of a, b, .. the one whose x, y, .. is largest

Python's own parser makes the tree; only whitelisted nodes are turned into an `Expr`, and sizes are bounded so
that a short text cannot stand for an enormous expression.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection
from fractions import Fraction
from math import comb

from symsim.algebra.expr import Expr, expr, function, symbol
from symsim.algebra.operators import FUNCTIONS
from symsim.errors import InputError, cut, nearest

_LONGEST = 10_000
_DEEPEST = 200
_LARGEST_EXPONENT = 64
_LARGEST_DECIMAL_EXPONENT = 400
_MOST_TERMS = 4_000
_MOST_BITS = 20_000

_FUNCTIONS = {name: row for name, row in FUNCTIONS.items() if name != "sum"}
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([-+]?[0-9]+))?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_SPACE = re.compile(r"\s")


def parse(text: str, symbols: Collection[str] | None = None, where: str = "") -> Expr:
    """The expression `text` stands for; InputError quotes the part that does not read and its column.

    Names are checked against `symbols` when given. Numbers are exact: 0.1 is 1/10.
    """
    return _Reader(text, symbols, where).read()


def parse_value(text: str) -> int | float | bool | str:
    """The value of a NAME=VALUE setting: true and false, a number (1e6 is the integer 1000000), or else text."""
    stripped = text.strip()
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    unsigned = stripped.lstrip("+-")
    match = _NUMBER.fullmatch(unsigned)
    if not match or len(stripped) > _LARGEST_DECIMAL_EXPONENT or len(stripped) - len(unsigned) > 1:
        return stripped
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    # past 300 an exponent has no place in a size or a rate, and float() would answer inf
    if match[1] is None or abs(int(match[1])) > 300:
        return float(stripped) if match[1] is None else stripped
    exact = Fraction(stripped)
    return exact.numerator if exact.denominator == 1 else float(exact)


class _Reader:
    def __init__(self, text: str, symbols: Collection[str] | None, where: str) -> None:
        self.original = text
        self.symbols = symbols
        self.where = f"{where}: " if where else ""
        # Python ends an expression at a newline; here every kind of white space is a space
        self.text = _SPACE.sub(" ", text).rstrip()
        self.indent = len(self.text) - len(self.text.lstrip())
        # what is quoted, where something else of the same length is parsed
        self.shown = self.text

    def read(self) -> Expr:
        if len(self.original) > _LONGEST:
            raise InputError(f"{self.where}the expression has {len(self.original)} characters; at most {_LONGEST} are read")
        body = self.text.strip()
        if not body:
            raise InputError(f"{self.where}the expression is empty")
        if "#" in body:
            raise self._error(self.text.index("#"), "#", "is not allowed in an expression")
        try:
            with warnings.catch_warnings():
                # Python warns of '2if'; it is refused here like everything else that is not arithmetic
                warnings.simplefilter("ignore")
                tree = ast.parse(body, mode="eval")
        except SyntaxError as error:
            at = self.indent + min(max((error.offset or 1) - 1, 0), len(body))
            rest = self.shown[at:].strip()
            if not rest:
                raise InputError(f"{self.where}column {at + 1}: '{cut(self.shown.strip(), 40)}' ends too early") from None
            if "too many nested" in str(error.msg):
                raise InputError(f"{self.where}the expression is nested too deeply") from None
            raise self._error(at, rest, "does not read as an expression") from None
        except (MemoryError, RecursionError):
            raise InputError(f"{self.where}'{cut(body, 40)}' is nested too deeply") from None
        except ValueError:
            raise InputError(f"{self.where}{cut(body, 40)!a} is not text") from None
        try:
            return self._build(tree.body, 0)
        except RecursionError:
            raise InputError(f"{self.where}the expression is nested too deeply") from None

    def _error(self, at: int, quoted: str, reason: str) -> InputError:
        return InputError(f"{self.where}column {at + 1}: '{cut(quoted, 40)}' {reason}")

    def _source(self, node: ast.expr) -> tuple[int, str]:
        # ast counts columns in UTF-8 bytes
        raw = self.text[self.indent :].encode()
        at = self.indent + len(raw[: node.col_offset].decode())
        return at, self.shown[at : at + len(raw[node.col_offset : node.end_col_offset].decode())]

    def _refuse(self, node: ast.expr, reason: str) -> InputError:
        return self._error(*self._source(node), reason)

    def _checked(self, value: Expr, node: ast.expr, powers: bool = False) -> Expr:
        if len(value.terms) > _MOST_TERMS:
            raise self._refuse(node, f"has more than {_MOST_TERMS} terms when multiplied out")
        if powers and any(abs(power) > _LARGEST_EXPONENT for monomial in value.terms for _, power in monomial):
            raise self._refuse(node, f"has a power above {_LARGEST_EXPONENT} when multiplied out")
        return value

    def _build(self, node: ast.expr, depth: int) -> Expr:
        if depth > _DEEPEST:
            raise InputError(f"{self.where}the expression is nested more than {_DEEPEST} deep")
        if isinstance(node, ast.BinOp):
            return self._chain(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._build(node.operand, depth + 1)
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        raise self._refuse(node, f"is not allowed in an expression ({_KINDS.get(type(node), 'only arithmetic is')})")

    def _chain(self, node: ast.BinOp, depth: int) -> Expr:
        """a + b + c ... nests to the left as deep as it is long; walk that spine with a loop."""
        spine = [node]
        while isinstance(spine[-1].left, ast.BinOp):
            spine.append(spine[-1].left)
        # parentheses on the left nest along the same spine, so they are bounded by the text alone
        value = self._build(spine[-1].left, depth + 1)
        for step in reversed(spine):
            if isinstance(step.op, ast.Pow):
                value = self._power(value, step)
            elif isinstance(step.op, ast.Div):
                value = self._divide(value, step.right, depth + 1)
            elif isinstance(step.op, (ast.Add, ast.Sub, ast.Mult)):
                right = self._build(step.right, depth + 1)
                if isinstance(step.op, ast.Mult):
                    value = self._multiply(value, right, step)
                else:
                    value = self._checked(value + right if isinstance(step.op, ast.Add) else value - right, step)
            else:
                power = "; a power is written **" if isinstance(step.op, ast.BitXor) else ""
                raise self._refuse(step, f"uses an operator that is not one of + - * / **{power}")
        return value

    def _multiply(self, left: Expr, right: Expr, node: ast.expr) -> Expr:
        if len(left.terms) * len(right.terms) > 25 * _MOST_TERMS:
            raise self._refuse(node, f"has more than {_MOST_TERMS} terms when multiplied out")
        if _bits(left) + _bits(right) > _MOST_BITS:
            raise self._refuse(node, "is too large a number")
        return self._checked(left * right, node, powers=True)

    def _exponent(self, node: ast.BinOp) -> int:
        negative = isinstance(node.right, ast.UnaryOp) and isinstance(node.right.op, ast.USub)
        literal = node.right.operand if isinstance(node.right, ast.UnaryOp) and negative else node.right
        text = self._source(literal)[1]
        if not isinstance(literal, ast.Constant) or not _INTEGER.fullmatch(text):
            raise self._refuse(node.right, "is not an exponent: only a whole number is")
        if int(text) > _LARGEST_EXPONENT:
            raise self._refuse(node.right, f"is too large an exponent: at most {_LARGEST_EXPONENT} is read")
        return -int(text) if negative else int(text)

    def _power(self, base: Expr, node: ast.BinOp) -> Expr:
        power = self._exponent(node)
        terms, size = len(base.terms), abs(power)
        if terms and comb(size + terms - 1, size) > _MOST_TERMS:
            raise self._refuse(node, f"has more than {_MOST_TERMS} terms when multiplied out")
        if _bits(base) * size > _MOST_BITS:
            raise self._refuse(node, "is too large a number")
        if power >= 0:
            return self._checked(base**power, node, powers=True)
        value = expr(1)
        for _ in range(size):
            value = self._over(value, base, node)
        return value

    def _divide(self, value: Expr, divisor: ast.expr, depth: int) -> Expr:
        """Divide factor by factor: 1/(x*(y + z)**2) keeps y + z as the divisor it was written as."""
        if depth > _DEEPEST:
            raise InputError(f"{self.where}the expression is nested more than {_DEEPEST} deep")
        if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Mult):
            return self._divide(self._divide(value, divisor.left, depth + 1), divisor.right, depth + 1)
        if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Div):
            # a reciprocal has no value at zero, so x/(y/0) is refused though its zero would cancel
            if not self._build(divisor.right, depth + 1):
                raise self._refuse(divisor.right, "is zero, and something is divided by it")
            value = self._divide(value, divisor.left, depth + 1)
            return self._multiply(value, self._build(divisor.right, depth + 1), divisor)
        if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Pow):
            power = self._exponent(divisor)
            if power > 0:
                base = self._build(divisor.left, depth + 1)
                for _ in range(power):
                    value = self._over(value, base, divisor)
                return value
        return self._over(value, self._build(divisor, depth), divisor)

    def _over(self, value: Expr, divisor: Expr, node: ast.expr) -> Expr:
        if not divisor:
            raise self._refuse(node, "is zero, and something is divided by it")
        if _bits(value) + _bits(divisor) > _MOST_BITS:
            raise self._refuse(node, "is too large a number")
        return self._checked(value / divisor, node, powers=True)

    def _number(self, node: ast.Constant) -> Expr:
        at, text = self._source(node)
        match = _NUMBER.fullmatch(text)
        if not match:
            raise self._error(at, text, "is not a number: write it in decimal, as 4096 or 9.89e14")
        if match[1] is not None and abs(int(match[1])) > _LARGEST_DECIMAL_EXPONENT:
            raise self._error(at, text, "is too large a number")
        return expr(Fraction(text))

    def _name(self, node: ast.Name) -> Expr:
        at, text = self._source(node)
        if not _NAME.fullmatch(text):
            raise self._error(at, text, "is not a name: letters, digits and _ are")
        if self.symbols is not None and text not in self.symbols:
            raise self._error(at, text, f"is not a symbol here: {nearest(text, list(self.symbols))}")
        return symbol(text)

    def _call(self, node: ast.Call, depth: int) -> Expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS:
            raise self._refuse(node, "is not allowed: the only functions are max, min, sqrt, ceil, floor, log2 and at")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self._refuse(node, "is not allowed: arguments are expressions separated by commas")
        one = _FUNCTIONS[name].operands == 1
        if not node.args or (one and len(node.args) != 1):
            raise self._refuse(node, f"needs {'one argument' if one else 'at least one argument'}")
        if name == "at" and len(node.args) % 2:
            raise self._refuse(node, "needs pairs: a value and its key, a value and its key, ...")
        arguments = [self._build(a, depth + 1) for a in node.args]
        if name == "log2" and arguments[0].is_constant and not arguments[0].constant() > 0:
            raise self._refuse(node, "has no value: log2 is of numbers above zero")
        return function(name, *arguments)


_KINDS: dict[type, str] = {
    ast.Attribute: "attributes are not",
    ast.Subscript: "subscripts are not",
    ast.Lambda: "functions cannot be defined",
    ast.Compare: "comparisons are not",
    ast.BoolOp: "logic is not",
    ast.IfExp: "conditions are not",
    ast.Tuple: "lists are not",
    ast.List: "lists are not",
    ast.Dict: "mappings are not",
    ast.JoinedStr: "text is not",
}


def _bits(value: Expr) -> int:
    return max((max(abs(f.numerator), f.denominator).bit_length() for f in (Fraction(c) for c in value.terms.values())), default=0)
