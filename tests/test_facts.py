"""Facts given with a question: what they decide, what they leave, what they refuse; derivatives and elasticities."""

from __future__ import annotations

import doctest
import random
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symsim.algebra.expr import Call, Expr, Number, ceil, expr, floor, log2, maximum, minimum, of_largest, symbol
from symsim.algebra.facts import Fact, read_facts
from symsim.algebra.formula import Derivation, Formula
from symsim.algebra.grammar import parse
from symsim.algebra.key import Key
from symsim.algebra.proof import Inequality, _Point
from symsim.algebra.quantity import BYTE, NONE, Definition, Quantity
from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.pipeline.schedules import SCHEDULES

EQUAL = "sum_tf = pp*tf, sum_ti = pp*ti, sum_tw = pp*tw, sum_tr = pp*tr, tr = 0, tc = 0"


def formula_of(amount: Expr) -> Formula:
    return Formula((Definition(Key("answer"), amount, NONE, ""),))


def under(amount: Expr, facts: str) -> Expr:
    return formula_of(amount).given(facts).expand()


def schedule(name: str, part: str) -> Expr:
    return getattr(SCHEDULES[name], part)


# (schedule, closed form, facts, what the source says), in the papers' own terms: a backward is tb = ti + tw
PUBLISHED = [
    # Narayanan et al. (arXiv 2104.04473) section 2.2.1: (p - 1)(t_f + t_b)
    ("1f1b", "bubble", EQUAL + ", t_place = 0", "(pp - 1)*(tf + ti + tw)"),
    # and section 2.2.2, of v chunks, with micro-batches in whole groups of p
    ("interleaved", "bubble", EQUAL + ", q: positive integer, group = pp, m = q*pp", "(pp - 1)*(tf + ti + tw)/vpp"),
    ("gpipe", "bubble", EQUAL, "(pp - 1)*(tf + ti + tw)"),
    ("looped_bfs", "bubble", EQUAL + ", m >= pp", "(pp - 1)*(tf + ti + tw)/vpp"),
    # Qi et al. (arXiv 2401.10241) Table 2, ZB-H1: (p - 1)(T_F + T_B - T_W), where T_B is the input gradients'
    ("zb_h1", "bubble", EQUAL + ", t_uneven = 0, t_late = 0, m >= pp, pp >= 2, tw <= tf, tw <= ti", "(pp - 1)*(tf + ti - tw)"),
    ("zb_h1", "bubble", EQUAL + ", t_uneven = 0, t_late = 0, m >= pp, pp >= 2, tw >= tf, ti >= tf, tw >= ti", "(pp - 1)*ti"),
    ("zb_h2", "bubble", EQUAL + ", tw >= tf, tw >= ti", "max((pp - 1)*tf, (pp - 1)*(ti - tf))"),
    # DeepSeek-V3 (arXiv 2412.19437) Table 2, DualPipe: (PP/2 - 1)(F&B + B - 3W), B the whole backward, where F&B = F + B and B - W = F
    ("dualpipe", "bubble", EQUAL + ", tfb = tf + ti + tw, ti = tf, tw <= tf, pp >= 4, m >= 2*pp", "(pp/2 - 1)*(tf + 2*(ti + tw) - 3*tw)"),
    # activations: stage 0 of 1F1B holds p micro-batches; GPipe all; ZB-H2 2p - 1; DualPipe p + 1
    ("1f1b", "in_flight", "i = 0, m >= pp", "pp"),
    ("1f1b", "in_flight", "m >= pp, i <= pp - 1", "pp - i"),
    ("1f1b", "in_flight", "m < pp, i = 0", "m"),
    ("zb_h1", "in_flight", "m >= pp", "pp"),
    ("zb_h1", "before_input_gradients", "m >= pp", "pp - i"),
    # interleaved: 1 + (p - 1)/(p v) of v p chunks on stage 0 (arXiv 2205.05198 section 4.2.3)
    ("interleaved", "in_flight", "i = 0, group = pp, m >= 2*pp, vpp >= 2", "pp*vpp*(1 + (pp - 1)/(pp*vpp))"),
    ("zbv", "in_flight", "m >= 2*pp, i <= pp - 1", "2*pp"),
]


@pytest.mark.parametrize(("name", "part", "facts", "published"), PUBLISHED)
def test_published_under_its_conditions(name: str, part: str, facts: str, published: str) -> None:
    assert under(schedule(name, part), facts) == under_equalities(published, facts)


def under_equalities(text: str, facts: str) -> Expr:
    values = {str(f.left): f.right for f in read_facts(facts) if f.relation == "=" and not isinstance(f.right, str)}
    return parse(text).substitute(values).substitute(values)


def test_memory_of_a_worker_of_zb_h1() -> None:
    """Table 2 of arXiv 2401.10241, workers counted from one: (p - i + 1) M_B + (i - 1) M_W."""
    held, before = schedule("zb_h1", "in_flight"), schedule("zb_h1", "before_input_gradients")
    whole, weights = symbol("L_whole"), symbol("L_weights")
    amount = before * whole + (held - before) * weights
    i, p = symbol("i") + 1, symbol("pp")
    assert under(amount, "m >= pp") == (p - i + 1) * whole + (i - 1) * weights
    # without the fact a short step holds less
    assert amount.evaluate({"m": 1, "pp": 4, "i": 0, "L_whole": 5, "L_weights": 2}) == 5


@cache
def llama() -> Result:
    strategy = load_strategy("tp=8,sp=true,pp=4,dp=4,global_batch_size=128")
    return derive(load_model("llama3-70b").architecture, strategy, system=load_system("h100-sxm"))


def test_stage_0_activations() -> None:
    """Stage 0 holds pp micro-batches: of each layer 34 bsh/t without attention's own in arXiv 2205.05198; here what te keeps."""
    facts = "i = 0, m >= pp, first_i = 1, loss_i = 0"
    layer = llama().formula("A_dense").expand()
    found = llama().formula("M_stage_activations").given(facts).expand()
    p, b, s = symbol("pp"), symbol("b"), symbol("s")
    # the first stage also keeps 8 bytes for a token's id and one for its mask
    assert found == p * (symbol("L_dense_i") * layer + 9 * b * s)


def test_shape_facts_give_the_textbook_form() -> None:
    formula = llama().formula("F_dense").given("a*d = h, g = a, f = 4*h")
    b, s, h = symbol("b"), symbol("s"), symbol("h")
    # 24bsh^2 + 4bs^2h, and a third matrix of 4h: arXiv 2104.04473
    assert formula.expand() == 24 * b * s * h * h + 8 * b * s * h * h + 4 * b * s * s * h
    assert [str(f) for f in formula.facts] == ["a*d = h", "g = a", "f = 4*h"]


def test_guards_of_tiers_fall() -> None:
    """All ranks of a TP group in one node, of which there is more than one."""
    formula = llama().formula("c_f_dense_tp")
    assert under(parse("ceil(min(1, -1 + min(tp, max(1, R_1)))) + ceil(min(1, tp/min(tp, max(1, R_1)) - 1))"), "tp <= R_1, tp >= 2") == expr(1)
    near = formula.given("tp <= R_1, tp >= 2")
    assert near.expand().symbols() == formula.symbols - {"R_1", "B_2", "alpha_2", "lambda_2", "eta_2_all_gather", "eta_2_reduce_scatter"}
    ring = parse("4*b*s*h*(tp - 1)/tp")
    each = [ring / (symbol("B_1") * symbol(f"eta_1_{op}")) for op in ("all_gather", "reduce_scatter")]
    assert near.expand() == each[0] + each[1] + 4 * (symbol("tp") - 1) * symbol("alpha_1") + 4 * symbol("lambda_1")
    far = formula.given("tp <= R_1, tp >= 2, alpha_1 = 0, lambda_1 = 0, tp -> oo")
    assert far.expand() == 4 * symbol("b") * symbol("s") * symbol("h") * sum(
        (1 / (symbol("B_1") * symbol(f"eta_1_{op}")) for op in ("all_gather", "reduce_scatter")), start=expr(0)
    )


@pytest.mark.parametrize(
    ("amount", "facts", "expected"),
    [
        ("min(m, pp)", "m >= pp", "pp"),
        ("min(m, pp)", "m > pp", "pp"),
        ("min(m, pp)", "pp <= m", "pp"),
        ("min(m, pp)", "m >= 2*b, 2*b >= pp", "pp"),
        ("max(m, pp, 3)", "m >= max(pp, 3)", "m"),
        ("min(m, 8)", "m <= 8", "m"),
        ("max(i + 1, pp)", "0 <= i <= pp - 1", "pp"),
        ("max(1, b*s)", "b = 2", "2*s"),
        ("min(1, eta_gemm) + min(1, tp)", "tp >= 1", "eta_gemm + 1"),
        ("max(tp*b, 8*b) + min(tp, 9)", "tp <= 8", "8*b + tp"),
        ("max(0, tf - tw)", "tf > tw", "tf - tw"),
        ("floor(m/pp)", "q: positive integer, m = q*pp", "q"),
        ("floor(m/pp)", "m < pp", "0"),
        ("ceil(m/pp)", "m <= pp", "1"),
        ("ceil(1 + m/pp)", "m <= pp", "2"),
        ("floor(-m/pp)", "m <= pp", "-1"),
        ("log2(tp/pp)", "tp <= pp", "0"),
        ("max(s, i/(pp - 1))", "i <= pp - 1, pp >= 2", "s"),
        ("max(b*s/tp, s)", "b >= tp", "b*s/tp"),
        ("at(tf, b, tw, s)", "b >= s", "tf"),
        ("at(tf, b, tw, s)", "b < s", "tw"),
        ("at(tf, b, tw, s, ti, 1)", "b >= s", "tf"),
        ("max(ceil(m/pp), m)", "pp >= 1", "m"),
        ("max(min(m, pp), pp + 1)", "m >= 1", "pp + 1"),
        ("1/(m + min(m, pp))", "m >= pp", "1/(m + pp)"),
        ("max(m, 1 + max(m, b, s))", "b >= 1", "1 + max(m, b, s)"),
        ("min(1, max(0, m - pp))", "m > pp", "1"),
    ],
)
def test_decided(amount: str, facts: str, expected: str) -> None:
    formula = formula_of(parse(amount)).given(facts)
    assert formula.expand() == parse(expected)


@pytest.mark.parametrize(
    ("amount", "facts"),
    [
        ("min(m, pp)", "m >= pp - 1"),
        ("max(tf, tw)", "tf + 1 >= tw"),
        ("at(tf, b, tw, s)", "b <= s"),
        ("ceil(m/pp)", "m <= 2*pp"),
        ("floor(m/pp)", "m <= pp"),
        ("max(0, e_dp - tf)", "e_dp >= 1"),
        ("min(1, lam)", "lam <= 2"),
        ("max(i, pp - 1)", "i <= pp"),
        ("log2(tp)", "tp >= 1"),
        ("min(1, i)", "i <= pp"),
    ],
)
def test_left_where_it_is_not_so(amount: str, facts: str) -> None:
    formula = formula_of(parse(amount)).given(facts)
    assert formula.expand() == parse(amount)
    assert formula.unused == formula.facts


@pytest.mark.parametrize(
    ("amount", "facts", "expected"),
    [
        ("2*(dp - 1)/dp*s", "dp -> oo", "2*s"),
        ("m/(m + pp - 1)", "m -> oo", "1"),
        ("m - m**2/(m + pp - 1)", "m -> oo", "pp - 1"),
        ("(pp - 1)/(m + pp - 1)", "m -> oo", "0"),
        ("min(dp, s) + max(1/dp, b)", "dp -> oo", "s + b"),
        ("max(2*dp, dp + s)/dp", "dp -> oo", "2"),
        ("ceil(s/dp) + floor(b + 1/dp) + floor(b - 1/dp)", "dp -> oo", "2*b"),
        ("ceil(dp*s/128)/dp", "dp -> oo", "s/128"),
        ("sqrt(b/dp + 4)", "dp -> oo", "2"),
        ("log2(dp)/dp + b", "dp -> oo", "b"),
        ("at(tf, dp, tw, s)", "dp -> oo", "tf"),
        ("at(tf, s, tw, dp)", "dp -> oo", "tw"),
        ("s/(1 + 1/(1 + dp))", "dp -> oo", "s"),
        ("(b + alpha_1)/max(alpha_1, s)", "alpha_1 -> 0", "b/s"),
        ("1/dp + max(s, dp)/dp", "dp -> oo", "1"),
    ],
)
def test_limits(amount: str, facts: str, expected: str) -> None:
    formula = formula_of(parse(amount)).given(facts)
    assert formula.expand() == parse(expected)
    name, far = ("alpha_1", Fraction(1, 10**9)) if "alpha_1" in amount else (facts.split()[0], 10**9)
    at = {"s": 4096, "b": 3, "pp": 5, "tf": 7, "tw": 11}
    assert float(parse(amount).evaluate({**at, name: far})) == pytest.approx(float(parse(expected).evaluate(at)), abs=1e-4)


def test_a_definition_that_is_nothing_leads_no_limit() -> None:
    """1/(s (d + f/s)) with d = 0: d, put in as 0, must not stand for the whole sum as s grows."""
    nothing = Definition(Key("alpha", "network", axis="dp"), expr(0), NONE, "")
    sum_of = Definition(Key("c", "pipeline"), symbol("alpha_dp") + symbol("f") / symbol("s"), NONE, "")
    answer = Definition(Key("answer"), 1 / (symbol("c") * symbol("s")), NONE, "")
    assert Formula((nothing, sum_of, answer)).given("s -> oo").expand() == 1 / symbol("f")


@pytest.mark.parametrize(
    ("amount", "facts", "said"),
    [
        ("dp*s", "dp -> oo", "'dp*s' has no finite limit as dp -> oo"),
        ("log2(dp)", "dp -> oo", "is not known: a rounding or a logarithm stays in it"),
        ("ceil(dp/3) - dp/3", "dp -> oo", "a rounding or a logarithm stays in it"),
        ("max(dp*tr, dp*tw)/dp", "dp -> oo", "which argument of 'max(dp*tr, dp*tw)' counts as dp -> oo is not known"),
        ("ceil(lam + 1/dp)", "dp -> oo", "its argument may be an integer"),
        ("1/alpha_1", "alpha_1 -> 0", "has no finite limit as alpha_1 -> 0"),
        ("dp", "dp -> 0", "fact 'dp -> 0': dp is a positive integer"),
        ("1/dp", "dp -> 3", "a limit is to oo or to 0; to another value it is an equality"),
        ("1/dp", "dp <= 8, dp -> oo", "fact 'dp -> oo' contradicts 'dp <= 8'"),
        ("1/dp", "dp*s -> oo", "a symbol stands left of ->"),
        ("min(m, pp)", "dp >= 2", "fact 'dp >= 2' says nothing of answer, whose symbols are m, pp"),
        ("min(m, pp)", "mm >= pp", "fact 'mm >= pp': answer has no 'mm'"),
        ("min(hiden, pp)", "hidn >= pp", "answer has no 'hidn': did you mean 'hiden'?"),
        ("min(m, pp)", "m = q*pp", "'q': a new symbol is declared, as 'q: positive integer'"),
        ("min(m, pp)", "m >= pp, m < pp", "fact 'm < pp' cannot hold: 'm >= pp' says otherwise"),
        ("min(m, pp)", "m >= 2*pp, pp >= m", "fact 'pp >= m' cannot hold: 'm >= 2*pp' says otherwise"),
        ("min(m, pp)", "m < 1", "fact 'm < 1' cannot hold: the domains of its symbols say otherwise"),
        ("s/(m - pp)", "m = pp", "with these facts answer divides by zero"),
        ("s/(m - min(m, pp))", "m <= pp", "with these facts answer divides by zero"),
        ("min(m, pp)", "m = 3, m = 4", "fact 'm = 4' contradicts the others"),
        ("min(m, pp)", "m = 0", "fact 'm = 0': m is a positive integer"),
        ("min(m, pp)", "m = 5/2", "fact 'm = 5/2': m is a positive integer"),
        ("s*eta_gemm", "eta_gemm = 2", "eta_gemm is a share in (0, 1]"),
        ("min(m, pp)", "max(m, 2) = max(pp, 3)", "cannot be solved for a symbol"),
        ("min(m, pp)", "m", "'m' is no fact"),
        ("min(m, pp)", "m >=", "something is missing beside '>='"),
        ("min(m, pp)", "m >= pp.real", "fact 'm >= pp.real': column 2: 'pp.real' is not allowed in an expression"),
        ("min(m, pp)", "m != 3", "does not read"),
        ("min(m, pp)", "m: integer", "did you mean"),
        ("min(m, pp)", "answer = 3", "answer itself"),
    ],
)
def test_refused(amount: str, facts: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        formula_of(parse(amount)).given(facts)
    assert said in str(caught.value)


def test_a_sign_is_taken_from_floats_only_where_they_tell_it() -> None:
    x, y = symbol("x"), symbol("y")
    point = _Point(0, lambda name: "positive")
    point.update(x=Fraction(1, 3), y=Fraction(1, 3) + Fraction(1, 10**15))
    assert point.near(x) > 0 > point.near(x - 2 * y)
    assert point.near(y - x) == point.near(x**3000) == point.near(10**400 * x) == point.near(1 / (3 * x - 1)) == 0
    assert Inequality(y - x, True, 0).holds(point) and not Inequality(x - y, False, 0).holds(point)
    point.move(("x", 4 * y, expr(1)))
    assert point.near(x - 2 * y) > 0


def test_facts_in_python() -> None:
    m, p = symbol("m"), symbol("pp")
    formula = formula_of(minimum(m, p))
    assert formula.given(Fact(m, ">=", p)).expand() == p
    assert formula.given([Fact(m, ">=", p), "pp = 4"]).expand() == expr(4)
    assert formula.given({"m": 3}).given({"pp": 2}).expand() == expr(2)
    with pytest.raises(InputError, match="'~' relates nothing"):
        Fact(m, "~", p)
    with pytest.raises(InputError, match="an expression stands right of >="):
        Fact(m, ">=", "oo")


def test_facts_add_up() -> None:
    formula = formula_of(parse("min(m, pp) + max(0, b - s) + floor(q/b)".replace("q", "n_sm")))
    step = formula.given("m >= pp").given("b = 2*s")
    assert step.expand() == parse("pp + s + floor(n_sm/(2*s))")
    assert [str(f) for f in step.facts] == ["m >= pp", "b = 2*s"] and step.unused == ()
    assert [str(f) for f in formula.given("b = 2*s, pp >= 2").unused] == ["pp >= 2"]
    with pytest.raises(InputError, match="cannot hold: 'm >= pp' says otherwise"):
        step.given("m < pp")


# random expressions and points: what a fact decides is equal wherever the fact holds
NAMES = ("m", "pp", "b", "i", "tf", "tw", "eta_gemm")
_leaves = st.one_of(st.sampled_from([symbol(n) for n in NAMES]), st.integers(-2, 3).map(expr))
_trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
        st.tuples(inner, inner, inner, inner).map(lambda p: of_largest([(p[0], p[1]), (p[2], p[3])])),
        inner.map(lambda e: ceil(e / 3)),
        inner.map(lambda e: floor(e / symbol("pp"))),
        inner.map(lambda e: ceil(e / (symbol("m") + 1))),
        inner.map(lambda e: log2(maximum(e, 1))),
    ),
    max_leaves=8,
)
_FACTS = (
    "m >= pp",
    "m < pp",
    "i <= pp - 1",
    "tw <= tf",
    "tf < tw",
    "m >= 2*pp",
    "b <= 4",
    "pp >= 3",
    "m*b >= pp*i",
    "tf >= eta_gemm",
    "i >= 1",
    "b = m + pp",
    "tw = 2*tf",
)
_reals = st.fractions(Fraction(1, 4), 4, max_denominator=8)
_points = st.fixed_dictionaries(
    {
        **{n: st.integers(1, 9) for n in ("m", "pp", "b")},
        "i": st.integers(0, 6),
        "tf": _reals,
        "tw": _reals,
        "eta_gemm": st.fractions(Fraction(1, 8), 1, max_denominator=8),
    }
)


def holds(fact: Fact, at: dict[str, Number]) -> bool:
    value = fact.difference.evaluate(at)
    return value == 0 if fact.relation == "=" else value > 0 if fact.relation in ("<", ">") else value >= 0


@settings(max_examples=60)
@given(_trees, st.lists(st.sampled_from(_FACTS), max_size=3, unique=True), st.lists(_points, min_size=12, max_size=12))
def test_what_facts_decide_is_equal_where_they_hold(tree: Expr, facts: list[str], points: list[dict[str, Number]]) -> None:
    names = tree.symbols()
    every = [f for f in facts if read_facts(f)[0].symbols <= names]
    try:
        found = formula_of(tree).given(", ".join(every))
    except InputError as error:
        # facts that cannot hold together: none of the points satisfies them
        assert not any(all(holds(f, at) for f in read_facts(every)) for at in points), str(error)
        return
    values = {str(f.left): f.right for f in read_facts(every) if f.relation == "="}
    for at in points:
        point = dict(at)
        for name, value in values.items():
            assert isinstance(value, Expr)
            point[name] = value.evaluate(point)
        if all(holds(f, point) for f in read_facts(every)):
            try:
                expected = tree.evaluate(point)
            except ZeroDivisionError:
                continue
            assert found.value(point) == expected, (tree, every, point)


def test_a_call_at_in_sympy_takes_the_first_of_the_largest() -> None:
    import sympy

    chosen = Expr({((Call("at", tuple(map(parse, ("tf", "b", "tw", "s", "ti", "m")))), 1),): 1})
    view = formula_of(chosen + minimum(symbol("m"), symbol("pp"))).given("m >= pp").sympy()
    assert view.has(sympy.Piecewise) and not view.has(sympy.Min)
    draw = random.Random(3)
    for _ in range(40):
        at = {n: draw.randint(1, 3) for n in ("b", "s", "m", "pp", "tf", "tw", "ti")}
        assert view.subs({v: at[v.name] for v in view.free_symbols}) == chosen.evaluate(at) + at["pp"]
    assert formula_of(parse("s*q")).given("q: share, q >= 1/2").sympy().free_symbols == {
        v for v in formula_of(parse("s*q")).given("q: share").sympy().free_symbols
    }


def test_diff() -> None:
    x, y, at = symbol("lam"), symbol("u"), {"lam": Fraction(3), "u": Fraction(2)}
    assert (x**3 * y + 1 / x).diff("lam") == 3 * x**2 * y - 1 / x**2
    assert (1 / (x + y)).diff("lam") == -1 / (x + y) / (x + y)
    assert maximum(x * x, y).diff("lam", at) == 2 * x and minimum(x * x, y).diff("lam", at) == expr(0)
    assert (ceil(x) * x).diff("lam", at) == ceil(x)
    assert of_largest([(x, y), (x * y, 2 * y)]).diff("lam", at) == y
    # of equal ones the first, as the value itself
    assert maximum(3 * x, 9).diff("lam", at) == expr(3) and maximum(9, 3 * x).diff("lam", at) == expr(0)
    assert maximum(x + y, x).diff("lam") == expr(1)
    with pytest.raises(ValueError, match=r"which argument of max\(lam, u\) counts depends on values"):
        maximum(x, y).diff("lam")


def central(formula: Formula, name: str, at: dict[str, Number]) -> float:
    step = Fraction(1, 10**7)
    exact = {n: Fraction(v) for n, v in at.items()}
    high, low = (formula.value({**exact, name: exact[name] * (1 + way * step)}) for way in (1, -1))
    return float((high - low) / (2 * step) / formula.value(exact))


@pytest.mark.parametrize("name", ["c_f_dense_tp", "t_f_dense_attention_qkv", "t_f_dense", "t_step"])
def test_elasticities_are_central_differences(name: str) -> None:
    formula = llama().formula(name)
    numbers = {n: v for n, v in {**llama().values, **llama().step_numbers}.items() if n in formula.symbols}
    real = [n for n in sorted(formula.symbols) if not isinstance(numbers[n], int) or n.startswith(("B_", "Phi", "alpha", "eta"))]
    assert len(real) >= 4
    for symbol_name in real:
        expected = central(formula, symbol_name, numbers)
        assert float(formula.elasticity(symbol_name, numbers)) == pytest.approx(expected, rel=1e-6, abs=1e-12), symbol_name
        slope = formula.diff(symbol_name, numbers).evaluate(numbers) * numbers[symbol_name] / formula.value(numbers)
        assert float(slope) == pytest.approx(expected, rel=1e-6, abs=1e-12), symbol_name


def test_elasticity_of_an_integer_is_a_difference() -> None:
    formula, at = formula_of(ceil(symbol("s") / 128) * symbol("h")), {"s": 256, "h": 7}
    assert formula.elasticity("s", at) == 128  # from 2 tiles to 3 for one token of 256
    assert formula.elasticity("s", at, to=384) == 1
    assert formula.elasticity("h", at) == 1
    with pytest.raises(InputError, match="has no symbol 'hh'"):
        formula.elasticity("hh", at)
    with pytest.raises(InputError, match="answer also needs h"):
        formula.elasticity("s", {"s": 256})
    with pytest.raises(InputError, match="is 0 at these values"):
        formula_of(symbol("s") - 256).elasticity("s", at)


def small() -> Formula:
    book = Derivation()
    x = book.define(Key("x"), Quantity(symbol("b") * symbol("s"), BYTE), "x", assumptions=("causal",))
    y = book.define(Key("y"), x * minimum(symbol("m"), symbol("pp")), "y", assumptions=("fusion", "causal"))
    book.define(Key("z"), x + y, "z")
    return book.formula("z")


def test_at() -> None:
    assert small().at(b=1, s=2, m=3, pp=4) == small().at({"b": 1, "s": 2}, m=3, pp=4) == 8
    with pytest.raises(InputError, match="z has no symbol 'ss': did you mean 's'|valid names: b, m, pp, s"):
        small().at(b=1, ss=2, m=3, pp=4)
    with pytest.raises(InputError, match="z also needs m, pp"):
        small().at(b=1, s=2)
    with pytest.raises(InputError, match="'x' is defined in z"):
        small().at(x=1)


def test_inline() -> None:
    formula = small().inline(keep={"y"})
    assert [d.symbol for d in formula.definitions] == ["y", "z"]
    assert formula.result.expr == symbol("b") * symbol("s") + symbol("y")
    assert small().inline().result.expr == small().expand()
    assert formula.expand() == small().expand()
    with pytest.raises(InputError, match="z stands on no definition 'yy'"):
        small().inline(keep={"yy"})


def test_assumptions_are_those_of_every_definition() -> None:
    assert small().assumptions == ("causal", "fusion")
    formula = llama().formula("M_stage_peak")
    assert set(formula.assumptions) == {a for d in formula.definitions for a in d.assumptions} != set()


def test_facts_about_definitions() -> None:
    """A fact may name a definition: an equality replaces it, an inequality is used with it as it stands."""
    assert small().given("x = 5, m >= pp").expand() == 5 + 5 * symbol("pp")
    with pytest.raises(InputError, match="would be defined by itself"):
        small().given("x = 5*y")
    book = Derivation()
    x = book.define(Key("x"), Quantity(symbol("tf") + symbol("tw")), "x")
    book.define(Key("z"), Quantity(maximum(x.expr, symbol("ti"))), "z")
    assert book.formula("z").given("x >= ti").expand() == parse("tf + tw")
    # and what stands behind it is looked at
    assert book.formula("z").given("tf >= ti").expand() == parse("tf + tw")


def test_the_page_shows_what_is_printed() -> None:
    page = Path(__file__).parents[1] / "docs" / "formulas.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 10 and not failed


def test_a_definition_that_comes_to_a_symbol_is_put_in_place() -> None:
    names = [d.symbol for d in llama().formula("c_f_dense_tp").given("tp <= R_1, tp >= 2").definitions]
    assert "mu_tp_1" not in names and "alpha_tp" in names


def test_what_is_not_decided_takes_no_time() -> None:
    """Proofs give up: the peak of a stage, of maxima of sums over moments, under facts that decide little of it."""
    import time

    start = time.process_time()
    llama().formula("M_stage_peak").given("i = 0, m >= pp, pp >= 2, L_dense_i >= 2")
    assert time.process_time() - start < 5
