"""The operators: a row says all that any part of symsim knows of one.

Formulas (`expr.py`), conditions of a sweep, programs and what is printed of them (NumPy, C, plain Python, modules), intervals,
SymPy, LaTeX, derivatives and proofs are each made from these rows. None tells an operator again; tests/test_operators.py holds them
against each other. Reductions over stages, which are no operators of numbers, are in `reductions.py`.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Union

from symsim.algebra import intervals

Number = Union[int, Fraction, float]
Bound = tuple[Callable[[Any], Any], Callable[[Any], Any], bool]
"""Of a function of x: a bound, what must not be negative for it to hold, and whether that must be positive."""

# how tightly Python's parser binds; what binds less than its place needs parentheses
LOOSEST, OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, POWER, CALL = range(10)


@dataclass(frozen=True)
class Operator:
    """What an operator means, and how each target says it. Templates have {} or {0}, {1}, .. for operands."""

    name: str
    # how many operands it has; None: one or more
    operands: int | None
    # on Python's numbers and truths; by zero infinity, of what has no value nan
    exact: Callable[..., Any]
    # whether it takes, and gives, true or false instead of numbers
    takes_truths: bool = False
    gives_truth: bool = False
    commutes: bool = False
    # 1 where the result rises with an operand, -1 where it falls, of operands that are not negative; none where that is not so.
    # of such operands the result is not negative either (keeps_sign); of negative ones it is no number (of_positive)
    ways: tuple[int, ...] = ()
    keeps_sign: bool = False
    of_positive: bool = False

    # in a grammar, as in Python: the sign between operands, without one a function of this name; how tightly it binds
    sign: str = ""
    binds: int = CALL
    # of plain Python over floats, where it has no sign; whether an operand stands there twice; of operands that are not negative
    python: str = ""
    twice: bool = False
    python_positive: str = ""

    # a function of NumPy; where programs need another over arrays, its name in `symsim.program.arrays`; statements of a kernel
    numpy: str = ""
    arrays: str = ""
    vector: tuple[str, ...] = ()
    # C, of doubles (of truths, where it takes them); without it no program holds it
    c: str = ""
    # the same where the first operand is known to be a number, if that is shorter
    c_of_number: str = ""
    # JavaScript, where it is not as in C
    js: str = ""
    # the ends of the result, of NumPy and the ends of every operand; without it they follow from `ways`, which then hold of all numbers
    interval: Callable[..., intervals.Interval] | None = None

    # in a formula: LaTeX, and of SymPy and its expressions; without them no formula holds it as a function
    latex: str = ""
    sympy: Callable[..., Any] | None = None
    # how fast it rises with its operand, or that of the operation itself; None: as the operand does whose key is `chosen` of all keys
    slope: int | Callable[[Any], Any] | None = None
    chosen: Callable[..., Any] | None = None
    whole: bool = False
    below: tuple[Bound, ...] = ()
    above: tuple[Bound, ...] = ()

    @property
    def primitive(self) -> bool:
        """Whether programs hold it as one operation."""
        return bool(self.c)

    def way(self, operand: int) -> int:
        """1 where the result rises with an operand, -1 where it falls, of operands that are not negative; 0 where that is not known."""
        return self.ways[min(operand, len(self.ways) - 1)] if self.ways else 0

    def text(self, *operands: str) -> str:
        """As a grammar has it."""
        if not self.sign:
            return f"{self.name}({', '.join(operands)})"
        return f"{self.sign}{operands[0]}" if self.operands == 1 else self.sign.join(operands)

    def inside(self, operand: int) -> int:
        """How tightly an operand must bind to stand bare: arithmetic groups to the left, comparisons and logic take none of their own."""
        if not self.sign:
            return LOOSEST
        return self.binds + (self.operands != 1 and (operand > 0 or self.gives_truth))


# meanings that Python does not have ------------------------------------------------------------------------------------


def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """The largest or the least of numbers; what is no number among them is the answer, where Python's depends on the order."""
    return lambda *values: next((v for v in values if v != v), None) or function(values)


def tree_depth(leaves: Number) -> Number:
    """The depth of a binary tree over so many leaves: log2 rounded up, 0 up to one leaf. No tree has no leaves, or fewer: nan."""
    if not leaves > 0:
        return math.nan
    return (math.ceil(leaves) - 1).bit_length() if leaves != math.inf else leaves


def square_root(x: Number) -> Number:
    """Exact where the root is rational; below zero nan."""
    if isinstance(x, float) or not x >= 0:
        return math.sqrt(x) if x >= 0 else math.nan
    exact = Fraction(x)
    over, under = math.isqrt(exact.numerator), math.isqrt(exact.denominator)
    found = Fraction(over, under)
    return math.sqrt(exact) if found * found != exact else over if under == 1 else found


def of_largest(*pairs: Number) -> Number:
    """Of values (even places) the one whose key (odd places) is the largest, the first of equal ones."""
    return pairs[2 * max(range(len(pairs) // 2), key=lambda k: pairs[2 * k + 1])]


def _rounded(function: Callable[[Any], int]) -> Callable[[Any], Any]:
    return lambda x: x if isinstance(x, float) and not math.isfinite(x) else function(x)


def _by_zero(x: Any) -> float:
    return math.nan if not x or x != x else math.inf if x > 0 else -math.inf


def _quotient(a: Any, b: Any) -> Any:
    return _by_zero(a) if not b else a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / b


def _power(base: Any, exponent: Any) -> Any:
    try:
        return base**exponent if isinstance(base, float) or exponent >= 0 else Fraction(base) ** exponent
    except (OverflowError, ZeroDivisionError):
        return -math.inf if base < 0 and exponent % 2 else math.inf


def _sympy_depth(sympy: Any, x: Any) -> Any:
    # so many leaves are whole, and one leaf is a tree of no depth
    return sympy.ceiling(sympy.log(sympy.ceiling(x), 2))


def _sympy_at(sympy: Any, *parts: Any) -> Any:
    """The value whose key no other exceeds, the first of equal ones."""
    pairs = list(zip(parts[::2], parts[1::2]))
    most = [sympy.Max(*(k for _, k in pairs[:n] + pairs[n + 1 :]), evaluate=False) for n in range(len(pairs))]
    # evaluated, a condition asks of whole formulas whether they are real
    pair = sympy.functions.elementary.piecewise.ExprCondPair
    branches = [pair(v, sympy.Ge(k, m, evaluate=False)) for (v, k), m in zip(pairs[:-1], most)]
    return sympy.Piecewise(*branches, (pairs[-1][0], True), evaluate=False)


# the table -------------------------------------------------------------------------------------------------------------

GUARD = 2.0**-49
"""A program rounds up what is lowered by this share, and down what is raised by it: less than that is taken for rounding."""
_LESS, _MORE = repr(1 - GUARD), repr(1 + GUARD)


def _guarded(function: str, guard: str) -> tuple[str, ...]:
    """A guarded rounding in a kernel."""
    share = ("np.copysign(GUARD, {0}, out={out})", f"np.{guard}(1, {{out}}, out={{out}})")
    return (*share, "np.multiply({0}, {out}, out={out})", f"np.{function}({{out}}, out={{out}})")


def _one(x: Any) -> int:
    return 1


def _zero(x: Any) -> int:
    return 0


def _itself(x: Any) -> Any:
    return x


def _arithmetic() -> Iterator[Operator]:
    binary = partial(Operator, operands=2)
    yield binary("add", exact=operator.add, commutes=True, ways=(1, 1), keeps_sign=True, sign=" + ", binds=SUM, numpy="add", c="{} + {}")
    yield binary("sub", exact=operator.sub, ways=(1, -1), sign=" - ", binds=SUM, numpy="subtract", c="{} - {}")
    product = partial(binary, ways=(1, 1), keeps_sign=True, binds=PRODUCT)
    yield product("mul", exact=operator.mul, commutes=True, sign="*", numpy="multiply", c="{} * {}", interval=intervals.product)
    yield product("div", exact=_quotient, ways=(1, -1), sign="/", numpy="divide", c="{} / {}", interval=intervals.quotient)
    yield product("floordiv", exact=lambda a, b: a // b if b else _by_zero(a), ways=(1, -1), sign=" // ", numpy="floor_divide")
    remainder = partial(product, ways=(), sign=" % ", numpy="mod", c="modulo({}, {})")
    yield remainder("mod", exact=lambda a, b: a % b if b else math.nan, interval=intervals.remainder)
    yield binary("pow", exact=_power, sign="**", binds=POWER)
    yield Operator("neg", 1, operator.neg, ways=(-1,), sign="-", binds=SIGN, numpy="negative")
    yield Operator(
        "abs", 1, abs, ways=(1,), keeps_sign=True, python="abs({})", numpy="absolute", c="fabs({})", js="Math.abs({})", interval=intervals.absolute
    )


def _extremes() -> Iterator[Operator]:
    several = partial(Operator, operands=None, commutes=True, ways=(1,), keeps_sign=True, twice=True)
    yield several(
        "max",
        exact=extreme(max),
        python="({0} if {0} > {1} else {1})",
        numpy="maximum",
        c="larger({}, {})",
        c_of_number="at_least({}, {})",
        latex=r"\max({})",
        sympy=lambda sympy, *x: sympy.Max(*x, evaluate=False),
        chosen=extreme(max),
    )
    yield several(
        "min",
        exact=extreme(min),
        python="({0} if {0} < {1} else {1})",
        numpy="minimum",
        c="smaller({}, {})",
        c_of_number="at_most({}, {})",
        latex=r"\min({})",
        sympy=lambda sympy, *x: sympy.Min(*x, evaluate=False),
        chosen=extreme(min),
    )
    yield Operator("at", None, of_largest, latex=r"\mathrm{at}({})", sympy=_sympy_at, chosen=extreme(max))
    yield Operator(
        "sqrt",
        1,
        square_root,
        ways=(1,),
        keeps_sign=True,
        twice=True,
        python="(sqrt({0}) if {0} >= 0 else nan)",
        python_positive="sqrt({0})",
        numpy="sqrt",
        c="sqrt({})",
        js="Math.sqrt({})",
        of_positive=True,
        latex=r"\sqrt{{}}",
        sympy=lambda sympy, x: sympy.sqrt(x),
        slope=lambda root: 1 / (2 * root),
        below=((_zero, _itself, False),),
    )
    # a divisor of several terms
    yield Operator("sum", 1, _itself, ways=(1,), latex="({})", sympy=lambda sympy, x: x, slope=1)


def _steps() -> Iterator[Operator]:
    """What jumps: in a program guarded against rounding."""
    step = partial(Operator, operands=1, ways=(1,), keeps_sign=True, twice=True, slope=0, whole=True)
    yield step(
        "ceil",
        exact=_rounded(math.ceil),
        python=f"ceil({{0}} * ({_LESS} if {{0}} > 0 else {_MORE}))",
        python_positive=f"ceil(({{0}}) * {_LESS})",
        numpy="ceil",
        arrays="ceil",
        vector=_guarded("ceil", "subtract"),
        c="up({})",
        latex=r"\lceil {} \rceil",
        sympy=lambda sympy, x: sympy.ceiling(x, evaluate=False),
        below=((_itself, _one, False), (_one, _itself, True)),
        above=((_zero, lambda x: -x, False), (_one, lambda x: 1 - x, False), (lambda x: x + 1, _one, False)),
    )
    yield step(
        "floor",
        exact=_rounded(math.floor),
        python=f"floor({{0}} * ({_MORE} if {{0}} > 0 else {_LESS}))",
        python_positive=f"floor(({{0}}) * {_MORE})",
        numpy="floor",
        arrays="floor",
        vector=_guarded("floor", "add"),
        c="down({})",
        latex=r"\lfloor {} \rfloor",
        sympy=lambda sympy, x: sympy.floor(x, evaluate=False),
        below=((lambda x: x - 1, _one, False), (_one, lambda x: x - 1, False), (_zero, _itself, False)),
        above=((_itself, _one, False), (_zero, lambda x: 1 - x, True)),
    )
    yield step(
        "log2",
        exact=tree_depth,
        of_positive=True,
        python=f"((ceil({{0}} * {_LESS}) - 1).bit_length() if {{0}} > 0 else nan)",
        arrays="tree_depth",
        vector=("{out}[:] = tree_depth({0})",),
        c="depth({})",
        latex=r"\lceil \log_2 {} \rceil",
        sympy=_sympy_depth,
        below=((_one, lambda x: x - 1, True), (_zero, _itself, True)),
        above=((_itself, _itself, True),),
    )


def _truths() -> Iterator[Operator]:
    """Comparisons, logic and what is chosen by a truth."""
    compared = partial(Operator, operands=2, gives_truth=True, binds=COMPARISON)
    yield compared("lt", exact=operator.lt, ways=(-1, 1), sign=" < ", numpy="less", c="{} < {}")
    yield compared("le", exact=operator.le, ways=(-1, 1), sign=" <= ", numpy="less_equal", c="{} <= {}")
    yield compared("gt", exact=operator.gt, ways=(1, -1), sign=" > ", numpy="greater")
    yield compared("ge", exact=operator.ge, ways=(1, -1), sign=" >= ", numpy="greater_equal")
    same = partial(compared, commutes=True)
    yield same("eq", exact=operator.eq, sign=" == ", numpy="equal", c="{} == {}", interval=intervals.equal)
    yield same("ne", exact=operator.ne, sign=" != ", numpy="not_equal", c="{} != {}", interval=intervals.unequal)
    joined = partial(Operator, operands=None, takes_truths=True, gives_truth=True, commutes=True, ways=(1,))
    yield joined("and", exact=lambda *truths: all(truths), sign=" and ", binds=AND, numpy="logical_and", c="{} & {}")
    yield joined("or", exact=lambda *truths: any(truths), sign=" or ", binds=OR, numpy="logical_or", c="{} | {}")
    yield joined("not", operands=1, exact=operator.not_, commutes=False, ways=(-1,), sign="not ", binds=NOT, numpy="logical_not", c="!{}")
    yield Operator(
        "where",
        3,
        lambda condition, yes, no: yes if condition else no,
        python="({1} if {0} else {2})",
        numpy="where",
        arrays="choose",
        vector=("np.copyto({out}, {2})", "np.copyto({out}, {1}, where={0})"),
        c="{} ? {} : {}",
        interval=intervals.choice,
    )


OPERATORS = {row.name: row for part in (_arithmetic, _extremes, _steps, _truths) for row in part()}
EXACT = {name: row.exact for name, row in OPERATORS.items()}
# those that a formula holds as functions; all but `sum` have a name in its grammar
FUNCTIONS = {name: row for name, row in OPERATORS.items() if row.latex}


@functools.cache
def parsed() -> dict[type[ast.AST], str]:
    """The operators by what Python's parser makes of their signs."""
    found: dict[type[ast.AST], str] = {}
    for row in OPERATORS.values():
        if row.sign:
            tree: Any = ast.parse(row.text(*"ab"[: row.operands]), mode="eval").body
            found[type(tree.ops[0] if isinstance(tree, ast.Compare) else tree.op)] = row.name
    return found
