"""Every operator has a row that every target is made from, and means the same in all of them: exact expressions, conditions on numbers and on arrays,
programs folded exactly and by NumPy, kernels in NumPy and in C, plain Python, compiled modules, intervals and SymPy.

A depth of a tree has a number for any leaves above zero (0 up to one leaf); of none or fewer there is no tree and no number.
What is no number stays none: the largest of it and 1 is none. (Kernels round up and down with a guard of 2^-49, so that values
here are not nearer than that to a whole number. Plain Python refuses to divide by zero and to round infinity.)
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import example, given
from hypothesis import strategies as st

from symsim.algebra.expr import Call, Expr, ceil, floor, log2, maximum, minimum, sqrt, symbol
from symsim.algebra.operators import EXACT, FUNCTIONS, OPERATORS, Operator, parsed
from symsim.algebra.typeset import latex
from symsim.algebra.view import view
from symsim.grid.conditions import evaluate, parse_condition, parse_quantity
from symsim.program import arrays, module, scalar
from symsim.program.bounds import interval
from symsim.program.c_kernel import CKernel, compiler
from symsim.program.numpy_kernel import NumpyKernel
from symsim.program.plan import C_LOOP, make_plan
from symsim.program.program import Program
from symsim.program.value import Value, numpy_operation

Number = int | float | Fraction
NUMBERS: list[Number] = [
    -math.inf,
    -1e300,
    -7,
    -2.5,
    -1,
    -0.5,
    0,
    0.25,
    0.3,
    1,
    1.5,
    2,
    3,
    4,
    5,
    1023,
    1024,
    1025,
    2**40,
    2**40 + 1,
    1e300,
    math.inf,
    math.nan,
]
DRAW = random.Random(5)
NUMBERS += [DRAW.choice((DRAW.randrange(-99, 99), Fraction(DRAW.randrange(-999, 999), 64), DRAW.randrange(1, 1 << 40))) for _ in range(12)]
NUMERIC = {name: row for name, row in OPERATORS.items() if row.primitive and not row.takes_truths and row.operands != 3}
ONE = tuple(name for name, row in NUMERIC.items() if row.operands == 1)
TWO = tuple(name for name, row in NUMERIC.items() if row.operands != 1)
CASES = [(op, (a,)) for op in ONE for a in NUMBERS] + [(op, pair) for op in TWO for pair in itertools.product(NUMBERS, NUMBERS)]
TRUTHS = [(op, pair) for op, row in OPERATORS.items() if row.takes_truths for pair in itertools.product((False, True), repeat=row.operands or 2)]


def meant(op: str, *args: Any) -> Any:
    """What a float of IEEE 754 gives, and what is said above."""
    if op in ("ceil", "floor"):
        return getattr(math, op)(args[0]) if math.isfinite(args[0]) else args[0]
    if op == "log2":
        (x,) = args
        return (
            math.nan if not x > 0 else math.inf if x == math.inf else sum(2**k < x for k in range(1100)) if x < 2**1000 else math.ceil(math.log2(x))
        )
    if op == "abs":
        return abs(args[0])
    if op == "sqrt":
        return math.nan if not args[0] >= 0 else math.sqrt(args[0])
    if op in ("max", "min"):
        return math.nan if any(x != x for x in args) else (max if op == "max" else min)(args)
    with np.errstate(all="ignore"):
        a, b = (np.float64(x) for x in args)
        return {
            "add": a + b,
            "sub": a - b,
            "mul": a * b,
            "div": a / b,
            "mod": np.mod(a, b),
            "lt": a < b,
            "le": a <= b,
            "eq": a == b,
            "ne": a != b,
        }[op]


def same(found: Any, expected: Any) -> bool:
    found, expected = float(found), float(expected)
    return found == expected or (found != found and expected != expected)


def compare(name: str, evaluated: Callable[[str, tuple[Any, ...]], Any], cases: Sequence[tuple[str, tuple[Any, ...]]] = CASES) -> None:
    wrong = [(op, args, found, meant(op, *args)) for op, args in cases if not same(found := evaluated(op, args), meant(op, *args))]
    assert not wrong, f"{name}: {len(wrong)} differ, first {wrong[:5]}"


def rounded(cases: Sequence[tuple[str, tuple[Any, ...]]]) -> list[tuple[str, tuple[Any, ...]]]:
    """Without the numbers above 2^48, of which a guard of 2^-49 is more than a half."""
    return [(op, args) for op, args in cases if op not in ("ceil", "floor") or not 2**48 < abs(args[0]) < math.inf]


def finite(cases: Sequence[tuple[str, tuple[Any, ...]]]) -> list[tuple[str, tuple[Any, ...]]]:
    return [(op, args) for op, args in cases if all(math.isfinite(a) for a in args) and not (op in ("div", "mod") and args[1] == 0)]


# the rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", OPERATORS.values(), ids=list(OPERATORS))
def test_a_row_says_all_that_its_targets_need(row: Operator) -> None:
    assert callable(row.exact)
    if row.sign:
        assert parsed()[type(_operator_of(row.text(*"ab"[: row.operands])))] == row.name
    if row.primitive:
        assert isinstance(getattr(np, row.numpy, None), np.ufunc) != bool(row.vector) or row.name in ("ceil", "floor")
        assert callable(getattr(arrays, row.arrays) if row.arrays else getattr(np, row.numpy))
        assert row.sign or row.python
        assert row.interval is not None or row.ways
        ast.parse(row.text(*"ab"[: row.operands]) if row.sign else row.python.format(*"abc"))
        assert row.twice == (re.search(r"\{0\}.*\{0\}", row.python) is not None)
    if row.name in FUNCTIONS:
        assert row.sympy is not None and (row.slope is None) == (row.chosen is not None)
        assert latex(Expr({((Call(row.name, (symbol("b"), symbol("s"))[: row.operands]), 1),): 1}))
    assert row.primitive or row.sign or row.name in FUNCTIONS


def _operator_of(text: str) -> ast.AST:
    tree: Any = ast.parse(text, mode="eval").body
    return tree.ops[0] if isinstance(tree, ast.Compare) else tree.op


def test_what_a_row_says_of_its_meaning_holds() -> None:
    """Of numbers drawn: which way it goes, its sign, whether it commutes and is whole, and the bounds that proofs use."""
    drawn = [Fraction(n, 4) for n in range(0, 33)]
    for name, row in NUMERIC.items():
        if name == "log2":
            drawn = drawn[1:]
        for k, args in itertools.product(range(row.operands or 2), itertools.product(drawn[1:], repeat=row.operands or 2)):
            more = [a + Fraction(3, 4) if k == j else a for j, a in enumerate(args)]
            value, raised = row.exact(*args), row.exact(*more)
            assert row.way(k) == 0 or (raised - value) * row.way(k) >= 0, (name, args, k)
            assert not row.keeps_sign or value >= 0
            assert not row.commutes or value == row.exact(*reversed(args))
            assert not row.whole or value == int(value)
        falls = [args for args in itertools.product(drawn[1:], repeat=row.operands or 2) if row.exact(*args) < 0]
        assert row.keeps_sign or row.gives_truth or falls, name
    for name, row in FUNCTIONS.items():
        for bounds, side in ((row.below, 1), (row.above, -1)):
            for x in (Fraction(n, 4) for n in range(-16, 33)):
                for bound, condition, strictly in bounds:
                    if condition(x) > 0 or (condition(x) == 0 and not strictly):
                        assert (row.exact(x) - bound(x)) * side >= 0, (name, x)
                if name not in ("log2", "sqrt") and bounds:
                    assert any(c(x) > 0 or (c(x) == 0 and not s) for _, c, s in bounds), "some bound holds everywhere"


def test_derivatives_are_differences() -> None:
    x, y = symbol("x"), symbol("y")
    step = Fraction(1, 1 << 20)
    for name, row in FUNCTIONS.items():
        # a divisor of several terms is such a call only as a divisor
        arguments = (x * 3,) if row.operands == 1 else (x * 3, y) * (2 if name == "at" else 1)
        of = Expr({((Call(name, arguments), 1),): 1})
        for at in (Fraction(7, 5), Fraction(-3, 7), Fraction(25, 7)):
            values = {"x": abs(at) if name in ("log2", "sqrt") else at, "y": Fraction(1, 3)}
            above, below = (of.evaluate({**values, "x": values["x"] + s}) for s in (step, -step))
            difference, slope = Fraction(above - below) / (2 * step), of.diff("x", values).evaluate(values)
            assert slope == difference or (name == "sqrt" and slope == pytest.approx(float(difference), rel=1e-8)), (name, at)


# the targets -----------------------------------------------------------------------------------------------------------


def test_exact_expressions() -> None:
    x, y = symbol("x"), symbol("y")
    made: dict[str, Expr] = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "max": maximum(x, y), "min": minimum(x, y)}
    made |= {"ceil": ceil(x), "floor": floor(x), "log2": log2(x), "sqrt": sqrt(x)}

    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        return made[op].evaluate(dict(zip("xy", (Fraction(a) for a in args))))

    compare(
        "expr",
        evaluated,
        [(op, args) for op, args in finite(CASES) if op in made and (op not in ("div", "mul", "add", "sub") or max(map(abs, args)) < 1e6)],
    )


def test_sympy() -> None:
    x, y = (sympy.Symbol(n, real=True) for n in "xy")
    made = {op: view(make(symbol("x"), symbol("y")), {"x": x, "y": y}) for op, make in (("max", maximum), ("min", minimum))}
    made |= {op: view(make(symbol("x")), {"x": x}) for op, make in (("ceil", ceil), ("floor", floor), ("log2", log2), ("sqrt", sqrt))}

    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        # 40 digits, rounded once: SymPy's own float of a root is off in the last bit
        return made[op].xreplace({v: sympy.Rational(Fraction(a)) for v, a in zip((x, y), args)}).evalf(40)

    kept = [(op, args) for op, args in finite(CASES) if op in made and max(map(abs, args)) < 1e15 and (op not in ("log2", "sqrt") or args[0] > 0)]
    compare("sympy", evaluated, kept)
    assert not made["log2"].xreplace({x: sympy.Integer(0)}).is_finite


def _of_conditions(op: str) -> Any:
    row = OPERATORS[op]
    return (parse_condition if row.gives_truth else parse_quantity)(row.text(*"ab"[: row.operands]))


def test_conditions_on_numbers() -> None:
    compare("conditions", lambda op, args: evaluate(_of_conditions(op), dict(zip("ab", args))))


def test_conditions_on_arrays() -> None:
    nodes = {op: _of_conditions(op) for op in (*ONE, *TWO)}
    compare("conditions on arrays", lambda op, args: evaluate(nodes[op], {n: np.array([a], dtype=float) for n, a in zip("ab", args)})[0])


def test_programs_folded_exactly() -> None:
    program = Program((3,), small=0)
    compare("program", lambda op, args: program.apply(op, *(program.number(a) for a in args)).data)


def test_programs_folded_by_numpy() -> None:
    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        with np.errstate(all="ignore"):
            return numpy_operation(op, *(np.array([float(a)]) for a in args))[0]

    compare("numpy", evaluated, rounded(CASES))


def _kernel_results(make: Callable[[Any], Any], numbers: Sequence[Number] = NUMBERS) -> dict[str, np.ndarray]:
    values = np.array(numbers, dtype=float)
    program = Program((len(values), len(values)), small=0)
    over_x, over_y = program.array(values[:, None]), program.array(values[None, :])
    truth = program.apply("lt", over_y, over_y)  # over the second axis, so that every output is over both

    def of(op: str) -> Value:
        found = program.apply(op, program.where(truth, over_y, over_x)) if op in ONE else program.apply(op, over_x, over_y)
        if OPERATORS[op].gives_truth:
            return program.where(found, program.number(1), program.number(0))
        return found

    plan = make_plan(program, [of(op) for op in (*ONE, *TWO)], longest=64, call=C_LOOP)
    kept: dict[int, list[np.ndarray]] = {}

    class Sink:
        def wanted(self, value: Any) -> bool:
            return True

        def __call__(self, vector: int, *outputs: Any) -> None:
            kept[vector] = [np.array(np.broadcast_to(o, (plan.length,))) for o in outputs]

    make(plan).scan(0, plan.blocks, Sink())
    stacked = [np.concatenate([kept[v][k] for v in sorted(kept)]) for k in range(len(plan.outputs))]
    square = {op: found.reshape(len(values), len(values)) for op, found in zip((*ONE, *TWO), stacked)}
    return {op: found.transpose(np.argsort(plan.order)) for op, found in square.items()}


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_kernels(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "c" and compiler() is None:
        pytest.skip("no C compiler here: neither $CC nor cc, gcc or clang answers")
    monkeypatch.setenv("SYMSIM_CACHE", str(tmp_path))
    found = _kernel_results(NumpyKernel if backend == "numpy" else CKernel)
    for op, (x,) in rounded([(op, (x,)) for op in ONE for x in NUMBERS]):
        row = found[op][NUMBERS.index(x)]
        assert all(same(v, meant(op, x)) for v in row), (op, x, row[0])
    wrong = [
        (op, x, y, found[op][i, j], meant(op, x, y))
        for op in TWO
        for i, x in enumerate(NUMBERS)
        for j, y in enumerate(NUMBERS)
        if not same(found[op][i, j], meant(op, x, y))
    ]
    assert not wrong, (len(wrong), wrong[:5])


def test_plain_python() -> None:
    """The scalar kernel: one point, numbers that are finite."""

    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        program = Program([1 << 20] * 2, small=0)
        # inputs are sizes, degrees and rates, never negative; their differences may be
        inputs = {n: program.input(n, k) for k, n in enumerate("ab"[: len(args)])}
        nothing = program.input("nothing", 0)
        value = program.apply(op, *(program.apply("sub", v, nothing) for v in inputs.values()))
        inputs["nothing"] = nothing
        made, before = scalar.plain_python(inputs, [value])
        lines = [*before, f"found = {made.text(value)}"]
        space: dict[str, Any] = {n: float(a) for n, a in zip(inputs, (*args, 0))}
        exec("\n".join([*scalar.HEAD, *lines]), space)
        return space["found"]

    compare("scalar", evaluated, rounded(finite(CASES)))


def test_compiled_modules() -> None:
    space: dict[str, Any] = {"np": np, "functools": __import__("functools")}
    for helper in module._HELPERS.values():
        exec(helper, space)
    made = {op: row.arrays or {"max": "largest", "min": "least"}.get(op, row.numpy) for op, row in FUNCTIONS.items() if op in NUMERIC}

    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        with np.errstate(all="ignore"):
            return (space.get(made[op]) or getattr(np, made[op]))(*(np.array([float(a)]) for a in args))[0]

    compare("module", evaluated, [(op, args) for op, args in rounded(CASES) if op in made])


def test_intervals_hold_every_value() -> None:
    """Of any points inside, and where some have no number nothing is certain."""
    ends = [x for x in NUMBERS[:23] if math.isfinite(x) and abs(x) < 1e6]
    intervals = [(float(a), float(b)) for a, b in itertools.combinations_with_replacement(ends, 2)]
    wrong = []
    with np.errstate(all="ignore"):
        for op in ONE:
            for low, high in intervals:
                least, most = interval(op, [(np.float64(low), np.float64(high))])
                found = [meant(op, x) for x in ends if low <= x <= high]
                certain = -math.inf < least or most < math.inf
                if any(f == f and not least <= f <= most for f in found) or (certain and any(f != f for f in found)):
                    wrong.append((op, low, high, float(least), float(most)))
        some = intervals[::3]
        for op in TWO:
            for (a, b), (c, d) in itertools.product(some, some):
                least, most = interval(op, [(np.float64(a), np.float64(b)), (np.float64(c), np.float64(d))])
                found = [meant(op, x, y) for x in (a, b) for y in (c, d)]
                if OPERATORS[op].gives_truth:
                    bad = (least and not all(found)) or (not most and any(found))
                else:
                    bad = any(f == f and not least <= f <= most for f in found)
                if bad:
                    wrong.append((op, a, b, c, d, least, most))
    assert not wrong, (len(wrong), wrong[:5])


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=20))
@example([2**51 + 1, -(2**51) - 1, 2**53 - 1, 1 - 2**53])
def test_whole_numbers_of_an_array_stay(wholes: list[int]) -> None:
    numbers = np.array(wholes, dtype=float)
    assert arrays.ceil(numbers).tolist() == arrays.floor(numbers).tolist() == wholes
    assert arrays.ceil_beside(numbers, np.abs(numbers) + 2.0**50).tolist() == wholes


@pytest.mark.parametrize("op", ["ceil", "floor"])
def test_rounding_is_guarded_alike(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 2^-49 of a number beside a whole one is taken for rounding, in every program and what is printed of it."""
    monkeypatch.setenv("SYMSIM_CACHE", str(tmp_path))
    numbers: list[Number] = [k * (1 + s * 2.0**e) for k in (-5.0, 3.0, 7.0) for s in (-1, 1) for e in (-51, -46)]
    expected = [round(x) if abs(x - round(x)) < 2.0**-49 * abs(x) else getattr(math, op)(x) for x in numbers]
    assert expected != [getattr(math, op)(x) for x in numbers]
    space: dict[str, Any] = {"np": np}
    exec(module._HELPERS[op], space)
    of_array = [numpy_operation(op, np.array(numbers)), space[op](np.array(numbers))]
    kernels = [NumpyKernel] + ([CKernel] if compiler() is not None else [])
    of_array += [_kernel_results(make, numbers)[op][:, 0] for make in kernels]
    for found in of_array:
        assert found.tolist() == expected
    for sign in (1, -1):
        program = Program([1 << 20] * 2, small=0)
        a, b = program.input("a", 0), program.input("b", 1)
        value = program.apply(op, a if sign > 0 else program.apply("sub", b, a))
        made, before = scalar.plain_python({"a": a, "b": b}, [value])
        for x, rounded_ in zip(numbers, expected):
            if x * sign > 0:
                scope: dict[str, Any] = {"a": abs(x), "b": 0.0}
                exec("\n".join([*scalar.HEAD, *before, f"found = {made.text(value)}"]), scope)
                assert scope["found"] == rounded_, x


@pytest.mark.parametrize(("op", "args"), TRUTHS)
def test_truths(op: str, args: tuple[bool, ...]) -> None:
    expected = {"and": all(args), "or": any(args), "not": not args[0]}[op]
    program = Program((2,), small=8)
    # the ends of truths that are known are themselves
    assert [bool(end) for end in interval(op, [(a, a) for a in args])] == [expected] * 2
    assert program.apply(op, *(program.number(a) for a in args)).data == expected
    assert bool(numpy_operation(op, *(np.array([a]) for a in args))[0]) == expected
    written = OPERATORS[op].text(*(f"{n} == 1" for n, _ in zip("ab", args)))
    assert evaluate(parse_condition(written), dict(zip("ab", map(int, args)))) == expected


@pytest.mark.parametrize("written", ["log2(0)", "log2(-3)", "7*log2(1-1)"])
def test_no_depth_is_refused_where_a_formula_is_read(written: str) -> None:
    from symsim.algebra.grammar import parse
    from symsim.errors import InputError

    with pytest.raises(InputError, match="log2"):
        parse(written)


def test_a_number_beyond_floats_by_nothing() -> None:
    assert [EXACT["div"](value, 0) for value in (10**400, -(10**400), 3)] == [math.inf, -math.inf, math.inf]
