"""Conditions read comparisons and logic, refuse everything else, and mean the same on numbers and on arrays."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from symsim.errors import InputError
from symsim.grid.conditions import Node, evaluate, names, parse_any, parse_condition, parse_quantity, show


def name(text: str) -> Node:
    return Node("name", value=text)


def number(value: int | Fraction) -> Node:
    return Node("number", value=value)


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 250
    return sentence


A, B, C = map(name, "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < 0.1", Node("lt", (A, number(Fraction(1, 10))))),
        ("a <= 80e9", Node("le", (A, number(80 * 10**9)))),
        ("memory.peak > 1", Node("gt", (name("memory.peak"), number(1)))),
        ("1 < a*b <= 64", Node("and", (Node("lt", (number(1), Node("mul", (A, B)))), Node("le", (Node("mul", (A, B)), number(64)))))),
        ("a == b == c", Node("and", (Node("eq", (A, B)), Node("eq", (B, C))))),
        ("schedule != 'zb_h1'", Node("ne", (name("schedule"), Node("text", value="zb_h1")))),
        ('schedule == "a=b, c"', Node("eq", (name("schedule"), Node("text", value="a=b, c")))),
        ("a and b or not c", Node("or", (Node("and", (A, B)), Node("not", (C,))))),
        ("a and b and c", Node("and", (A, B, C))),
        ("a == true", Node("eq", (A, Node("bool", value=True)))),
        ("(a < b) == False", Node("eq", (Node("lt", (A, B)), Node("bool", value=False)))),
        ("true", Node("bool", value=True)),
        ("sp", Node("eq", (name("sp"), Node("bool", value=True)))),
        ("a\n>=\tb", Node("ge", (A, B))),
        ("a >= 50 %", Node("ge", (A, number(Fraction(1, 2))))),
        ("(a > 2.5% and b < 200%) or c", parse_condition("(a > 0.025 and b < 2) or c")),
        ("7 % 4 < a", Node("lt", (Node("mod", (number(7), number(4))), A))),
        ("a == 7 % -b", parse_condition("a == 7 % (-b)")),
    ],
)
def test_reads_conditions(text: str, expected: Node):
    assert parse_condition(text) == expected
    assert parse_any(text) == (expected if text != "sp" else name("sp"))


@pytest.mark.parametrize(
    ("text", "before", "behind"), [("fits", "", ""), ("not (fits and a < b)", "not (", " and a < b)"), ("a < b or fits", "a < b or ", "")]
)
def test_fits_is_a_condition(text: str, before: str, behind: str):
    """The word stands for the peak with what else a rank needs; compared or added to it is a name like others."""
    assert parse_condition(text) == parse_condition(f"{before}memory.peak + memory.reserve <= memory.capacity{behind}")
    assert names(parse_condition("fits > 1")) == ("fits",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time.exposed.tp", name("time.exposed.tp")),
        ("-a**2", Node("neg", (Node("pow", (A,), 2),))),
        ("a**-2", Node("pow", (A,), -2)),
        ("a - b - c", Node("sub", (Node("sub", (A, B)), C))),
        ("a/b//c%2", Node("mod", (Node("floordiv", (Node("div", (A, B)), C)), number(2)))),
        ("max(a, b, 1)", Node("max", (A, B, number(1)))),
        ("min(a)", Node("min", (A,))),
        ("ceil(a) + floor(b)", Node("add", (Node("ceil", (A,)), Node("floor", (B,))))),
        ("log2(abs(a))", Node("log2", (Node("abs", (A,)),))),
    ],
)
def test_reads_quantities(text: str, expected: Node):
    assert parse_quantity(text) == parse_any(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__import__('os').system('x')", "column 1: '__import__('os').system('x')' is not allowed: the only functions are"),
        ("a.b()", "column 1: 'a.b()' is not allowed: the only functions are"),
        ("a().b.c > 1", "column 1: 'a().b.c' is not a name"),
        ("a > b[0]", "column 5: 'b[0]' is not allowed in an expression (subscripts are not)"),
        ("lambda: 1", "(functions cannot be defined)"),
        ("(lambda: 1)()", "is not allowed: the only functions are"),
        ("f'{a}' == b", "(text with values in it is not)"),
        ("(a := 1)", "column 4: ':=' is not allowed in an expression: equality is written =="),
        ("tp = 8", "column 4: '=' is not allowed in an expression: equality is written =="),
        ("max(a, key=b)", "column 11: '='"),
        ("[a for a in b]", "(loops are not)"),
        ("{a: b}", "(mappings are not)"),
        ("(a, b)", "(lists are not)"),
        ("a if b else c", "('if' is not)"),
        ("9**9**9", "column 4: '9**9' is not an exponent"),
        ("a**b > 1", "column 4: 'b' is not an exponent"),
        ("a**0.5 > 1", "'0.5' is not an exponent"),
        ("a**65 > 1", "column 4: '65' is too large an exponent"),
        ("(((a**64)**64)**64)**64 > 1", "stands for too large a number"),
        ("1e999 > a", "column 1: '1e999' is too large a number"),
        ("a is b", "uses a comparison that is not one of < <= > >= == !="),
        ("a in b", "uses a comparison that is not one of"),
        ("a ^ b", "uses an operator that is not one of + - * / // % ** and or not; a power is written **"),
        ("a & b", "uses an operator that is not one of + - * / // % ** and or not"),
        ("~a", "is not allowed in an expression (only arithmetic, comparisons and logic are)"),
        ("+a > 1", "column 1: '+a' is not allowed"),
        ("a # b", "column 3: '#' is not allowed"),
        ("max() > 1", "needs at least one argument"),
        ("log2(a, b) > 1", "needs one argument"),
        ("max(*a) > 1", "arguments are expressions separated by commas"),
        ("0x10 < a", "column 1: '0x10' is neither a decimal number"),
        ("a == None", "column 6: 'None' is neither a decimal number"),
        ("a == b'x'", "nor plain 'text' in quotes"),
        ("a == 'x' 'y'", "nor plain 'text' in quotes"),
        ("a == 'x\\n'", "nor plain 'text' in quotes"),
        ("é > 1", "column 1: 'é' is not a name"),
        ("a <", "does not read as an expression"),
        ("a b", "column 3: 'b' does not read"),
        ("", "the expression is empty"),
        ("\ud800", "is not text"),
    ],
)
def test_refuses(text: str, expected: str):
    assert expected in refusal(parse_condition, text).removeprefix("here: ")
    assert refusal(parse_condition, text, "here").startswith("here: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + (b < c) > 1", "column 1: 'a + (b < c)' uses true or false where a number is needed"),
        ("a and 2", "'a and 2' uses a number where true or false is needed"),
        ("a < b and c + 1", "uses a number where true or false is needed"),
        ("not 3", "uses a number where true or false is needed"),
        ("(a < b) < c", "uses true or false where a number is needed"),
        ("max(a < b, 1) > 0", "uses true or false where a number is needed"),
        ("a < 'b'", "uses text where a number is needed; text is only compared, with == or !="),
        ("a and 'b'", "uses text where true or false is needed; text is only compared, with == or !="),
        ("(a < b) == 1", "compares true or false with a number"),
        ("a == 'b' == 3", "compares text with a number"),
        ("a == (b < c) == d", "compares true or false in a chain"),
        ("'abc'", "is text, which is only compared, with == or !="),
        ("a*b", "column 1: 'a*b' is a number, and true or false is needed: compare it"),
    ],
)
def test_refuses_one_sort_for_another(text: str, expected: str):
    assert expected in refusal(parse_condition, text)


def test_a_quantity_is_a_number():
    assert refusal(parse_quantity, "a < b", "--by") == "--by: column 1: 'a < b' is true or false, and a number is needed"
    assert "is true or false" in refusal(parse_quantity, "true")
    assert "is text" in refusal(parse_any, "'x'")


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_001,
        "(" * 5000 + "a" + ")" * 5000,
        "(" * 190 + "a" + ")" * 190 + "**2" * 3,
        "-" * 9000 + "a",
        "-" * 300 + "a > 1",
        "not " * 2000 + "a",
        "a+" * 4999 + "a > 1",
        "a+" * 300 + "a > 1",
        "max(" * 150 + "a" + ")" * 151,
        "a" + ".a" * 4000 + "()",
        "9" * 9000 + " > a",
        "9" * 450 + " > a",
        "*".join(["9**64"] * 190) + " > a",
        "(((9**64)**64)**64)**64 > a",
        "a==(" * 90 + "a" + "==a)" * 90 + "==a",
    ],
)
def test_bombs_are_refused_quickly(text: str):
    start = time.process_time()
    refusal(parse_condition, text)
    assert time.process_time() - start < 2


def test_the_deepest_that_is_read_is_also_shown_and_evaluated():
    tree = parse_quantity("a-(" * 190 + "a" + ")" * 190)
    assert parse_quantity(show(tree)) == tree
    assert evaluate(tree, {"a": 3}) == 3


def test_names_as_they_appear():
    assert names(parse_any("c*b < memory.peak + c and max(a, time.step) > b == c")) == ("c", "b", "memory.peak", "a", "time.step")
    assert names(parse_any("1 + 1")) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7/2", Fraction(7, 2)),
        ("6/3", 2),
        ("a/3*3", 10),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("a**20 + 1", 10**20 + 1),
        ("a**-1", Fraction(1, 10)),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("half*3", 1.5),
        ("ceil(a/4) + floor(a/4)", 5),
        ("abs(-a)", 10),
        ("min(a, 3, half)", 0.5),
        ("log2(1) + log2(2) + log2(9)", 5),
        ("log2(0.3)", 0),
        ("log2(2**60 + 1)", 61),
        ("a/0", math.inf),
        ("-a/0", -math.inf),
        ("a // -z", math.inf),
        ("z**-1", math.inf),
        ("(half - half)**-1", math.inf),
        ("1e300*a*(half*1e300)", math.inf),
        ("9**64 * 9**64 * 9**64 * 9**64 * 9**64 * 9**64 * half", math.inf),
        ("ceil(half/0)", math.inf),
        ("1 < a <= 10", True),
        ("1 < a < 10", False),
        ("0.1 + 0.2 == 0.3", True),
        ("kind == 'x' and kind != 'y'", True),
        ("sp == true or a > 1e6", True),
        ("not sp", False),
        ("0/0 == 0/0", False),
    ],
)
def test_evaluates_exactly(text: str, expected: Any):
    value = evaluate(parse_any(text), {"a": 10, "half": 0.5, "z": 0, "kind": "x", "sp": True})
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize("text", ["0/0", "a % 0", "log2(0)", "log2(-1)", "0.0*(1/0)", "max(0/0, 1)", "min(1, 0/0)", "(1/0) // 2"])
def test_what_has_no_value_is_nan(text: str):
    assert math.isnan(evaluate(parse_quantity(text), {"a": 1}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(evaluate(Node("add", (parse_quantity(text), name("zeros"))), {"a": np.array([1, 2]), "zeros": np.zeros(2)})).all()


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("tpp > 1", {"tp": 8}, "'tpp' has no value here: did you mean 'tp'?"),
        ("tp", {"tp": 8}, "'tp == true' compares a number with true or false"),
        ("tp and sp", {"tp": 8, "sp": True}, "'tp and sp' uses a number where true or false is needed"),
        ("sp*2 > 1", {"sp": True}, "'sp*2' uses true or false where a number is needed"),
        ("kind > 1", {"kind": "x"}, "'kind > 1' uses text where a number is needed"),
        ("kind == 1", {"kind": "x"}, "'kind == 1' compares text with a number"),
        ("kind == 1", {"kind": np.array(["x", "y"])}, "'kind == 1' compares text with a number"),
        ("sp*2 > 1", {"sp": np.array([True])}, "'sp*2' uses true or false where a number is needed"),
        ("etp > 1", {"etp": None}, "'etp' is neither a number nor true or false nor text here"),
        ("etp > 1", {"etp": np.array([1 + 2j])}, "'etp' is neither a number nor true or false nor text here"),
    ],
)
def test_values_that_do_not_fit(text: str, values: dict[str, Any], expected: str):
    assert refusal(evaluate, parse_condition(text), values).startswith(expected)


def test_arrays():
    values = {"tp": np.array([1, 2, 4]), "peak": np.array([10.0, 70.0, 90.0]), "sp": np.array([False, True, True]), "kind": np.array(["a", "b", "a"])}
    assert evaluate(parse_condition("tp > 1 and peak < 80"), values).tolist() == [False, True, False]
    assert evaluate(parse_condition("kind == 'a' and (sp or tp == 1)"), values).tolist() == [True, False, True]
    assert evaluate(parse_condition("kind != 'a'"), {"kind": np.array(["a", "b"], dtype=object)}).tolist() == [False, True]
    assert evaluate(parse_condition("sp"), values).tolist() == [False, True, True]
    assert evaluate(parse_quantity("max(tp, 2)/4"), values).tolist() == [0.5, 0.5, 1.0]
    assert evaluate(parse_quantity("peak // tp % 8"), values).tolist() == [2.0, 3.0, 6.0]
    assert evaluate(parse_condition("tp < 2 or 2 > 1"), values).tolist() == [True, True, True]


def test_arrays_of_integers_do_not_wrap_around():
    assert evaluate(parse_quantity("a*a*a"), {"a": np.array([2**40])}).tolist() == [float(2**120)]
    assert evaluate(parse_quantity("3 // a"), {"a": np.array([0, 2])}).tolist() == [math.inf, 1.0]
    assert evaluate(parse_condition("a < 2**64"), {"a": np.array([5])}).tolist() == [True]


@pytest.mark.parametrize("text", ["3/-z", "3 // -z", "(-z)**-1", "3/(z*-2)"])
def test_arrays_have_no_negative_zero_to_divide_by(text: str):
    assert evaluate(parse_quantity(text), {"z": 0}) == math.inf
    assert evaluate(parse_quantity(text), {"z": np.array([0])}).tolist() == [math.inf]


@given(st.lists(st.integers(1, 2**53), min_size=1, max_size=20))
@example([2**51 + 1, 2**53, 2**53 - 1])
def test_log2_of_an_array_is_exact(leaves: list[int]):
    expected = [(n - 1).bit_length() for n in leaves]
    assert evaluate(parse_quantity("log2(n)"), {"n": np.array(leaves)}).tolist() == expected
    assert [evaluate(parse_quantity("log2(n)"), {"n": n}) for n in leaves] == expected


DECIMALS = st.integers(0, 10**6) | st.tuples(st.integers(0, 10**9), st.integers(0, 30)).map(lambda p: Fraction(p[0], 10 ** p[1]))
LEAVES = st.sampled_from([A, B, C, name("memory.peak")]) | DECIMALS.map(lambda v: number(int(v) if v == int(v) else v))
TWO = ("add", "sub", "mul", "floordiv", "mod", "div")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def quantities(leaves: st.SearchStrategy[Node], two: tuple[str, ...] = TWO, exponents: tuple[int, int] = (-3, 3)) -> st.SearchStrategy[Node]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Node, st.sampled_from(two), st.tuples(inner, inner))
            | st.builds(Node, st.sampled_from(["neg", "ceil", "floor", "log2", "abs"]), st.tuples(inner))
            | st.builds(Node, st.sampled_from(["min", "max"]), st.lists(inner, min_size=1, max_size=3).map(tuple))
            | st.builds(Node, st.just("pow"), st.tuples(inner), st.integers(*exponents))
        ),
        max_leaves=6,
    )


def conditions(numbers: st.SearchStrategy[Node], others: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.recursive(
        st.builds(Node, st.sampled_from(COMPARISONS), st.tuples(numbers, numbers)) | others,
        lambda inner: (
            st.builds(Node, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
            | st.builds(Node, st.just("not"), st.tuples(inner))
            | st.builds(Node, st.sampled_from(["eq", "ne"]), st.tuples(inner, inner))
        ),
        max_leaves=5,
    )


TRUTHS = st.sampled_from(
    [Node("bool", value=True), Node("bool", value=False), Node("eq", (name("kind"), Node("text", value="it's"))), Node("ne", (name("sp"), A))]
)


@settings(max_examples=150)
@given(conditions(quantities(LEAVES), TRUTHS))
def test_what_a_tree_shows_reads_back(tree: Node):
    text = show(tree)
    assert parse_condition(text) == tree
    assert show(parse_condition(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "a - b - (c - 1) + 2",
        "a*b/c*(b/c) // 2",
        "-a**2 + (-a)**2",
        "-(a*b) + -a*b",
        "not a < b and (a == b or not (b > 1 and sp == true))",
        "memory.peak < 80000000000 and schedule != '1f1b'",
        "max(a, ceil(b/0.25)) % 3 <= 1e-20",
    ],
)
def test_shows_no_more_parentheses_than_it_needs(text: str):
    assert show(parse_any(text)) == text


@pytest.mark.parametrize("text", ["0.5e-400", "12.5e400", "1" * 390 + "e-400", "1" * 400, "." + "0" * 398 + "1", "1e13", "1e-13", "100", "0.001"])
def test_every_number_that_reads_is_shown_exactly(text: str):
    assert parse_quantity(show(parse_quantity(text))).value == Fraction(text)


SMALL = st.sampled_from([A, B, C]) | st.integers(0, 20).map(number)
EXACT_ON_ARRAYS = ("add", "sub", "mul", "floordiv", "mod")
POINTS = st.lists(st.tuples(*[st.integers(-30, 30)] * 3), min_size=1, max_size=4)


def parts(tree: Node) -> list[Node]:
    return [tree, *(part for argument in tree.arguments for part in parts(argument))]


def on_points(tree: Node, points: list[tuple[int, ...]]) -> list[Any]:
    return [evaluate(tree, dict(zip("abc", point))) for point in points]


def on_arrays(tree: Node, points: list[tuple[int, ...]]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(tree, {n: np.array([p[i] for p in points]) for i, n in enumerate("abc")})
    return np.broadcast_to(found, len(points)).tolist()


@settings(max_examples=200)
@given(
    conditions(quantities(SMALL, EXACT_ON_ARRAYS, (0, 3)), st.just(Node("lt", (A, B)))) | quantities(SMALL, EXACT_ON_ARRAYS, (0, 3)),
    POINTS,
)
def test_arrays_mean_what_numbers_mean(tree: Node, points: list[tuple[int, ...]]):
    """Without quotients, whose float64 is rounded, down to inf and nan."""
    for part in parts(tree):
        assume(all(abs(v) < 2**53 or math.isinf(v) for v in on_points(part, points) if v == v))
    for exact, found in zip(on_points(tree, points), on_arrays(tree, points)):
        assert exact == found or (exact != exact and found != found)


@settings(max_examples=100)
@given(quantities(SMALL, EXACT_ON_ARRAYS, (0, 2)), quantities(SMALL, EXACT_ON_ARRAYS, (0, 2)), st.sampled_from([1, -1, -2]), POINTS)
def test_quotients_of_arrays_are_near_the_exact_ones(above: Node, below: Node, exponent: int, points: list[tuple[int, ...]]):
    for part in (*parts(above), *parts(below)):
        assume(all(abs(v) < 2**53 or math.isinf(v) for v in on_points(part, points) if v == v))
    tree = Node("mul", (Node("div", (above, below)), Node("pow", (below,), exponent)))
    for exact, found in zip(on_points(tree, points), on_arrays(tree, points)):
        assert found == pytest.approx(float(exact), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b*c - a // b % c", lambda a, b, c: a + b * c - a // b % c),
        ("-a**2 // b*c", lambda a, b, c: -(a**2) // b * c),
        ("a - (b - c) - -b % c", lambda a, b, c: a - (b - c) - -b % c),
        ("a % (b + c)**2 * 3", lambda a, b, c: a % (b + c) ** 2 * 3),
        ("not a < b or a == c and b != c", lambda a, b, c: not a < b or (a == c and b != c)),
        ("(a < b or a < c) and not (b >= c) == (a <= c)", lambda a, b, c: (a < b or a < c) and (b >= c) != (a <= c)),
        ("a < b <= c > a", lambda a, b, c: a < b <= c > a),
        ("min(a, b)*max(b, c) - abs(a - b)", lambda a, b, c: min(a, b) * max(b, c) - abs(a - b)),
    ],
)
@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 9))
def test_means_what_it_means_in_python(text: str, meaning: Callable[..., Any], a: int, b: int, c: int):
    assert evaluate(parse_any(text), {"a": a, "b": b, "c": c}) == meaning(a, b, c)


@given(st.text("ab1.e+-*/(), <=>!max'not and or\n", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_condition_or_one_sentence(text: str):
    try:
        tree = parse_condition(text)
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert parse_condition(show(tree)) == tree
