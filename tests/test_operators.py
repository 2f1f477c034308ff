"""Every operator means the same in every place that evaluates it: exact expressions, conditions on numbers and on arrays,
programs folded exactly and by NumPy, kernels in NumPy and in C, plain Python, compiled modules, intervals and SymPy.

A depth of a tree has a number for any leaves above zero (0 up to one leaf); of none or fewer there is no tree and no number.
What is no number stays none: the largest of it and 1 is none. (Kernels round up and down with a guard of 2^-49, so that values
here are not nearer than that to a whole number. Plain Python refuses to divide by zero and to round infinity.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

from symsim.algebra.expr import Expr, ceil, floor, log2, maximum, minimum, symbol
from symsim.algebra.view import view
from symsim.grid.conditions import evaluate, parse_condition, parse_quantity
from symsim.program import module, scalar
from symsim.program.bounds import _interval
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
ONE = ("ceil", "floor", "log2", "abs")
TWO = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "max": "max", "min": "min", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
CASES = [(op, (a,)) for op in ONE for a in NUMBERS] + [(op, pair) for op in TWO for pair in itertools.product(NUMBERS, NUMBERS)]
TRUTHS = [(op, pair) for op in ("and", "or") for pair in itertools.product((False, True), repeat=2)]


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


def text(op: str, *names: str) -> str:
    if op in ("max", "min", *ONE):
        return f"{op}({', '.join(names)})"
    return f"{names[0]} {TWO[op]} {names[1]}"


def test_exact_expressions() -> None:
    x, y = symbol("x"), symbol("y")
    made: dict[str, Expr] = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "max": maximum(x, y), "min": minimum(x, y)}
    made |= {"ceil": ceil(x), "floor": floor(x), "log2": log2(x)}

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
    made |= {op: view(make(symbol("x")), {"x": x}) for op, make in (("ceil", ceil), ("floor", floor), ("log2", log2))}

    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        return made[op].xreplace({v: sympy.Rational(Fraction(a)) for v, a in zip((x, y), args)})

    kept = [(op, args) for op, args in finite(CASES) if op in made and max(map(abs, args)) < 1e15 and (op != "log2" or args[0] > 0)]
    compare("sympy", evaluated, kept)
    assert not made["log2"].xreplace({x: sympy.Integer(0)}).is_finite


def _of_conditions(op: str) -> Any:
    return (parse_condition if op in ("lt", "le", "eq", "ne", "and", "or", "not") else parse_quantity)(
        text(op, "a", "b") if op not in ONE else text(op, "a")
    )


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


def _kernel_results(make: Callable[[Any], Any]) -> dict[str, np.ndarray]:
    values = np.array(NUMBERS, dtype=float)
    program = Program((len(values), len(values)), small=0)
    over_x, over_y = program.array(values[:, None]), program.array(values[None, :])
    truth = program.apply("lt", over_y, over_y)  # over the second axis, so that every output is over both

    def of(op: str) -> Value:
        found = program.apply(op, over_x) if op in ONE else program.apply(op, over_x, over_y)
        if op in ("lt", "le", "eq", "ne"):
            return program.where(found, program.number(1), program.number(0))
        return found if op not in ONE else program.where(truth, over_y, found)

    plan = make_plan(program, [of(op) for op in (*ONE, *TWO)], longest=64, call=C_LOOP)
    kept: dict[int, list[np.ndarray]] = {}

    class Sink:
        def wanted(self, value: Any) -> bool:
            return True

        def __call__(self, vector: int, *outputs: Any) -> None:
            kept[vector] = [np.array(np.broadcast_to(o, (plan.length,))) for o in outputs]

    make(plan).scan(0, plan.blocks, Sink())
    stacked = [np.concatenate([kept[v][k] for v in sorted(kept)]) for k in range(len(plan.outputs))]
    return {op: found.reshape(len(values), len(values)) for op, found in zip((*ONE, *TWO), stacked)}


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
        printer = scalar._Printer(inputs, [value])
        lines = [*printer.statements(), f"found = {printer.text(value)}"]
        space: dict[str, Any] = {n: float(a) for n, a in zip(inputs, (*args, 0))}
        exec("\n".join([*scalar._HEAD, *lines]), space)
        return space["found"]

    compare("scalar", evaluated, [(op, args) for op, args in rounded(finite(CASES)) if op not in ("abs", "mod")])


def test_compiled_modules() -> None:
    space: dict[str, Any] = {"np": np, "functools": __import__("functools")}
    for helper in ("ceil", "floor", "tree_depth", "largest", "least"):
        exec(module._HELPERS[helper], space)
    made = {"ceil": "ceil", "floor": "floor", "log2": "tree_depth", "max": "largest", "min": "least"}

    def evaluated(op: str, args: tuple[Any, ...]) -> Any:
        with np.errstate(all="ignore"):
            return space[made[op]](*(np.array([float(a)]) for a in args))[0]

    compare("module", evaluated, [(op, args) for op, args in rounded(CASES) if op in made])


def test_intervals_hold_every_value() -> None:
    """Of any points inside, and where some have no number nothing is certain."""
    ends = [x for x in NUMBERS if math.isfinite(x) and abs(x) < 1e6]
    intervals = [(float(a), float(b)) for a, b in itertools.combinations_with_replacement(ends, 2)]
    wrong = []
    with np.errstate(all="ignore"):
        for op in ONE:
            for low, high in intervals:
                least, most = _interval(op, [(np.float64(low), np.float64(high))], False)
                found = [meant(op, x) for x in ends if low <= x <= high]
                certain = -math.inf < least or most < math.inf
                if any(f == f and not least <= f <= most for f in found) or (certain and any(f != f for f in found)):
                    wrong.append((op, low, high, float(least), float(most)))
        some = intervals[::3]
        for op in TWO:
            for (a, b), (c, d) in itertools.product(some, some):
                least, most = _interval(op, [(np.float64(a), np.float64(b)), (np.float64(c), np.float64(d))], op in ("lt", "le", "eq", "ne"))
                found = [meant(op, x, y) for x in (a, b) for y in (c, d)]
                if op in ("lt", "le", "eq", "ne"):
                    bad = (least and not all(found)) or (not most and any(found))
                else:
                    bad = any(f == f and not least <= f <= most for f in found)
                if bad:
                    wrong.append((op, a, b, c, d, least, most))
    assert not wrong, (len(wrong), wrong[:5])


@pytest.mark.parametrize(("op", "args"), TRUTHS)
def test_truths(op: str, args: tuple[bool, bool]) -> None:
    expected = all(args) if op == "and" else any(args)
    program = Program((2,), small=8)
    assert program.apply(op, *(program.number(a) for a in args)).data == expected
    assert bool(numpy_operation(op, *(np.array([a]) for a in args))[0]) == expected
    assert evaluate(parse_condition(f"a == 1 {op} b == 1"), {"a": int(args[0]), "b": int(args[1])}) == expected


@pytest.mark.parametrize("written", ["log2(0)", "log2(-3)", "7*log2(1-1)"])
def test_no_depth_is_refused_where_a_formula_is_read(written: str) -> None:
    from symsim.algebra.grammar import parse
    from symsim.errors import InputError

    with pytest.raises(InputError, match="log2"):
        parse(written)
