"""Questions asked backwards: elasticities equal differences, answers equal a scan, bounds hold what they bound, and bad input is one sentence."""

from __future__ import annotations

import json
import math
import random
import re
import xml.etree.ElementTree as ElementTree
from fractions import Fraction
from functools import cache
from pathlib import Path

import asks_cases
import in_process
import pytest

import symsim
from symsim.algebra.expr import Expr, ceil, floor, maximum, minimum, of_largest, sqrt, symbol
from symsim.algebra.formula import Formula
from symsim.algebra.key import Key
from symsim.algebra.quantity import NONE, Definition
from symsim.api.result import Result
from symsim.asking.branch import branch, solved
from symsim.asking.curve import Curve, curve
from symsim.asking.enclosure import Enclosed
from symsim.asking.moving import moving
from symsim.asking.questions import questions
from symsim.asking.signs import Range, sign, signs
from symsim.errors import InputError
from symsim.grid.conditions import parse_condition, parse_quantity
from symsim.grid.units import unit_of

ASKED = ("llama3-8b", "-s", "tp=2,sp=true,pp=2,dp=2,num_microbatches=4", "-y", "h100-sxm")
X = symbol("x")


@cache
def _result() -> Result:
    return symsim.derive(ASKED[0], ASKED[2], system=ASKED[4])


def _curve(amount: Expr) -> Curve:
    return curve(Formula((Definition(Key("y", "step"), amount, NONE, ""),)), "x", {})


def _random(rng: random.Random, depth: int = 3) -> Expr:
    """An expression in x with all that a formula may hold."""
    if not depth:
        return X ** rng.choice((-1, 0, 1, 1, 2)) * Fraction(rng.randrange(-9, 10), rng.randrange(1, 9))
    one, other = _random(rng, depth - 1), _random(rng, depth - 1)
    made = rng.choice(("sum", "product", "max", "min", "ceil", "floor", "at", "sqrt", "over"))
    if made == "sqrt":
        return sqrt(one * one + 1)
    if made == "over":
        return one / (maximum(other, 0) + X + 1)
    functions = {"max": maximum, "min": minimum}
    if made in functions:
        return functions[made](one, other)
    if made in ("ceil", "floor"):
        return (ceil if made == "ceil" else floor)(one) + other
    if made == "at":
        return of_largest([(one, other), (other, one + 1)])
    return one + other if made == "sum" else one * other


@pytest.mark.long
def test_a_range_of_too_many_values_is_one_sentence() -> None:
    """Each value is evaluated exactly, which takes milliseconds."""
    with pytest.raises(InputError, match=r"'s=1:100000:1' has 100,000 values, and at most 2,000 are asked: a longer step has fewer"):
        symsim.ask("gpt2", "N over s=1:100000:1")


def test_bounds_hold_every_value_and_every_chord() -> None:
    rng, looked = random.Random(5), 0
    for _ in range(150):
        made = _curve(_random(rng))
        low = Fraction(rng.randrange(1, 400), 16)
        high = low + Fraction(rng.randrange(1, 200), 32)
        bounds = Enclosed(made).over(float(low), float(high)).bounds
        points = [low + (high - low) * Fraction(k, 9) for k in range(10)]
        values = [float(made.at(p)) for p in points]
        slack = 1e-9 * (1 + max(map(abs, values)))
        assert bounds.values[0] - slack <= min(values) and max(values) <= bounds.values[1] + slack
        for a, b, u, v in zip(points, points[1:], values, values[1:]):
            chord = (v - u) / float(b - a)
            assert bounds.slopes[0] - 1e-7 * (1 + abs(chord)) <= chord <= bounds.slopes[1] + 1e-7 * (1 + abs(chord))
        looked += all(map(math.isfinite, bounds.values))
    assert looked > 80


def test_signs_are_those_of_a_scan() -> None:
    rng, crossed = random.Random(11), 0
    for _ in range(40):
        made, whole = _curve(_random(rng, 2) + _random(rng, 1) - rng.randrange(-20, 20)), rng.random() < 0.5
        found = signs(made, Range(1.0, 20.0, whole))
        points = range(1, 21) if whole else [Fraction(k, 7) for k in range(7, 141)]
        for x in points:
            at = [s for s in found.stretches if s.low <= float(x) <= s.high]
            assert not at or sign(made.at(x)) in {s.sign for s in at} or found.open, (made.result, x)
        crossed += len(found.stretches) > 1
    assert crossed > 8


def test_a_branch_holds_where_it_says_and_is_solved() -> None:
    made = _curve(maximum(3 * X + 1, X * X - 9, 20))
    found = branch(made, 6, Range(1.0, 100.0, False))
    assert str(found.active) == "-9 + x**2" and found.active is not None and found.active.evaluate({"x": 6}) == 27
    assert found.above is None and found.below is not None and abs(found.below.at - 29**0.5) < 1e-5
    assert found.below.changes == ("max in y",)
    a, b = symbol("a"), symbol("b")
    linear = solved(a / X - 2 * b / X + 3, "x", {"a": 1, "b": 2, "x": 1}, 1.0)
    assert linear is not None and (linear.value, linear.degree) == (1.0, 1) and "a" in linear.text
    quadratic = solved(a * X * X - 5 * X + 6, "x", {"a": 1, "x": 0}, 2.2)
    assert quadratic is not None and (quadratic.value, quadratic.degree) == (2.0, 2)


def test_elasticities_equal_central_differences() -> None:
    """Of symbols that other numbers follow from too: derived again a little below and above."""
    for name in ("B_1", "Phi_bf16", "t_mem"):
        one = moving(_result(), name)
        found = _result().elasticity("mfu", by=name)[name]
        now, step = Fraction(repr(float(one.now))), Fraction(1, 10**5)
        low, here, high = (asks_cases.number(one, "mfu", now * (1 + k * step)) for k in (-1, 0, 1))
        wanted = (high - low) / (2 * float(step) * here)
        assert found == pytest.approx(wanted, rel=1e-6), name


def test_a_number_that_can_only_rise_is_moved_up() -> None:
    """A load imbalance is no less than 1, where it stands unless given."""
    asked = "mixtral-8x7b", "tp=2,ep=4,etp=1,sp=true,dp=4"
    (move,) = symsim.derive(*asked, system="h100-sxm").elasticity("M_stage_peak", by="lam").moves
    here, there = (symsim.derive(*asked, overrides={"lam": lam}).value("memory.peak") for lam in (1, Fraction(5, 4)))
    assert move.elasticity > 0.05 and move.elasticity == pytest.approx(4 * float(there / here - 1), rel=1e-9)


def test_elasticities_of_all_symbols() -> None:
    found = _result().elasticity("t_step", by="B_1, eta_gemm, s")
    assert [abs(m.elasticity) for m in found.moves] == sorted((abs(m.elasticity) for m in found.moves), reverse=True)
    assert found["B_1"] == pytest.approx(float(_result().formula("t_step").elasticity("B_1", _result().values)))
    moved = next(m for m in found.moves if m.symbol == "s")
    assert moved.to == 4608 and "to 4,608" in repr(found)
    other = symsim.derive(ASKED[0], ASKED[2] + ",seq_length=4608", system=ASKED[4])
    now = _result().value("t_step")
    assert moved.elasticity == pytest.approx((other.value("t_step") / now - 1) * 8, rel=1e-12)
    assert max(map(len, repr(found).splitlines())) <= 80
    picture = ElementTree.fromstring(found.svg())
    svg = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f".//{svg}title")) == 3
    paper = picture.find(f"{svg}rect")
    assert paper is not None and picture.get("viewBox") == " ".join(paper.attrib[n] for n in ("x", "y", "width", "height"))


SCANNED = (
    ("s", "memory.peak", 4096, 4400),
    ("s", "time.step", 3900, 4300),
    ("B_1", "time.step", 10**11, 9 * 10**11),
    ("f", "time.step", 14000, 14600),
)


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("name", "quantity", "low", "high"), SCANNED)
def test_the_largest_is_that_of_a_scan(name: str, quantity: str, low: int, high: int) -> None:
    one = moving(_result(), name)
    every = asks_cases.values_of(one, Fraction(low), Fraction(high))[::8]
    numbers = [asks_cases.number(one, quantity, x) for x in every]
    limit = sorted(numbers)[3] * (1 + 1e-7)
    question = asks_cases.ranged(one, Fraction(low), Fraction(high)), f"{quantity} <= {limit!r} {'s' if quantity == 'time.step' else 'B'}"
    found = _result().largest(*question) if numbers[0] < numbers[-1] else _result().smallest(*question)
    assert found.value is not None and asks_cases.number(one, quantity, found.value) <= limit
    beyond = [x for x, n in zip(every, numbers) if (x > found.value if numbers[0] < numbers[-1] else x < found.value)]
    assert beyond and not any(n <= limit for x, n in zip(every, numbers) if x in beyond)
    if found.beyond is not None:
        assert asks_cases.number(one, quantity, found.beyond) > limit


def test_a_crossing_of_what_is_derived_value_by_value_lies_between_neighbours() -> None:
    """Equal at none of them: a bisection of where they are equal saw both ends unequal, and no crossing."""
    (found,) = _result().crossing("t_step", "0.8 s", over="L=8:64").meetings
    before, after = (symsim.derive(ASKED[0], ASKED[2], overrides={"L": int(x)}, system=ASKED[4]).value("t_step") for x in (found.value, found.until))
    assert before < 0.8 < after and found.until - found.value == 1 and (found.before, found.after) == (-1, 1)


def test_a_crossing_is_where_two_are_equal() -> None:
    found = _result().crossing("c_f_dense_tp", "t_f_dense", over="B_1")
    (meeting,) = found.meetings
    one = moving(_result(), "B_1")
    left, right = (float(_result().formula(n).value(one.values(Fraction(meeting.value)))) for n in ("c_f_dense_tp", "t_f_dense"))
    assert left == pytest.approx(right, rel=1e-12)
    assert (meeting.before, meeting.after) == (1, -1) and found.proved
    assert meeting.closed is not None and meeting.closed.value == pytest.approx(meeting.value, rel=1e-12)


def test_what_is_equal_everywhere_is_said_so() -> None:
    """Of what is one under two names neither is larger."""
    same = _result().crossing("M_peak", "memory.peak", over="s")
    assert not same.meetings and "they are equal everywhere from" in str(same) and "nowhere" not in str(same)


def test_a_size_that_cannot_run_is_no_answer() -> None:
    found = _result().largest("s", where="memory.peak <= 80 GiB")
    assert found.value % 2 == 0 and found.value < 2**17
    limit = 80 * 2**30
    for x, fits in ((found.value, True), (found.beyond, False)):
        again = symsim.derive(ASKED[0], f"{ASKED[2]},seq_length={x}", system=ASKED[4])
        assert (again.value("memory.peak") <= limit) == fits
    assert moving(_result(), "s").refused(int(found.value) + 1)
    fitting = _result().largest("s", where="fits")
    assert fitting.value < found.value
    for x, fits in ((fitting.value, True), (fitting.beyond, False)):
        again = symsim.derive(ASKED[0], f"{ASKED[2]},seq_length={x}", system=ASKED[4])
        assert (again.value("memory.peak") + again.value("memory.reserve") <= again.value("memory.capacity")) == fits
    degrees = _result().smallest("tp=1:32", where="memory.peak <= 20 GiB")
    assert 32 % degrees.value == 0 and "derived by itself" in degrees.how


def test_a_table_along_a_range() -> None:
    found = _result().along("t_step, memory.peak", "tp=1:4")
    assert [bool(row.refused) for row in found.rows] == [True, False, True, False]
    assert found.rows[1].numbers == (_result().value("t_step"), _result().value("memory.peak"))
    rates = _result().along("t_step", "B_1=200:400:100 GB/s").rows
    assert [row.value for row in rates] == [2 * 10**11, 3 * 10**11, 4 * 10**11]
    other = symsim.derive(ASKED[0], ASKED[2], overrides={"B_1": "300 GB/s"}, system=ASKED[4])
    assert float(rates[1].numbers[0]) == pytest.approx(float(other.value("t_step")), rel=1e-14)


def test_a_share_may_be_a_percentage() -> None:
    half, percent = (_result().needed("Phi_bf16", for_=f"mfu >= {text}") for text in ("0.5", "50 %"))
    assert percent.value == half.value is not None


BAD = (
    ("larget s where x", "'larget s where x' is no question: did you mean 'largest'?"),
    ("largest s where M_peek <= 80 GiB", "there is no 'M_peek': did you mean 'M_peak'?"),
    ("largest s where M_peak <= 80 GB/s", "M_peak is in bytes, and 80 GB/s in bytes a second"),
    ("largest s where M_peak <= 80 GiB and t_step <= 80 GiB", "t_step is in seconds, and 80 GiB in bytes"),
    ("needed B_1 for not (t_step/M_peak <= 4 s or s > 9)", "'t_step/M_peak <= 4 s': t_step/M_peak is in s/byte, and 4 s in seconds"),
    ("largest s where t_step*t_step + sqrt(t_step) <= 4", "t_step*t_step is in s^2, and sqrt(t_step) in s^0.5"),
    ("crossing t_bubble/t_step = t_step over s", "t_bubble/t_step is in no unit, and t_step in seconds"),
    ("largest s where 6*N*s <= 4 s", "6*N*s is in no unit, and 4 s in seconds"),
    ("largest s where M_peak <= 80 GIB", "'80 GIB' has a unit that is not known: did you mean 'GiB'?"),
    ("largest seq_lenght where M_peak <= 80 GiB", "that could move: did you mean 'seq_length'?"),
    ("largest edp where t_step <= 1 s", "edp follows from other symbols"),
    ("crossing t_step over s", "crossing QUANTITY = QUANTITY over SYMBOL is its form"),
    ("elasticity time.stpe", "there is no 'time.stpe': did you mean 'time.step'?"),
    ("t_step over B_1=1:3", "a number of byte/s has a unit, as 900 GB/s"),
    ("t_step over Phi_bf16=1,2", "a number of FLOP/s has a unit, as 989 TFLOP/s"),
    ("mfu over W_chip=1:3:1", "a number of W has a unit, as 700 W"),
    ("t_step over Phi_bf16=1:2 PB/s", "Phi_bf16=1 PB/s: it is in FLOP/s, of which 'PB/s' is no unit: valid names: GFLOP/s"),
    ("needed Phi_bf16=1:2 PFLOPS for t_step <= 1 s", "of which 'PFLOPS' is no unit: did you mean 'PFLOP/s'?"),
    ("t_step over s", "'s' is no range"),
    ("largest s where __import__('os').system('x') <= 1", "is not allowed"),
    ("needed eta_gemm=0.5:2 for t_step <= 1 s", "eta_gemm is a share"),
    ("elasticity time.step_low", "is an end of an interval"),
    ("elasticity t_step by", "'elasticity t_step by' does not read: elasticity QUANTITY [by SYMBOLS] is its form"),
    ("elasticity by", "elasticity QUANTITY [by SYMBOLS] is its form"),
    ("largest s=-5:10 where fits", "s: '-5' is not a number from 1 up"),
    ("largest s where M_peak <= 1e400 GiB", "a number becomes larger than 1.8e308, the largest of double precision"),
    ("crossing t_step = 1e400 s over B_1", "a number becomes larger than 1.8e308"),
    ("elasticity 1e400*t_step by B_1", "a number becomes larger than 1.8e308"),
    ("  ", "nothing is asked"),
)


def test_a_rate_of_fp8_is_what_is_set() -> None:
    """Products reach a share of it (fp8_share), and formulas have that: needed said 1.28 PFLOP/s where 1.54 are needed."""
    asked = ("llama3-8b", "tp=2,sp=true,dp=4,num_microbatches=8,fp8=delayed")
    result = symsim.derive(*asked, system="h800-sxm")
    assert result.values["Phi_fp8"] < 0.9 * 1978.9e12
    limit = 1.02 * float(result.value("t_step"))
    found = result.needed("Phi_fp8", for_=f"t_step <= {limit} s")
    assert found.now == 1978.9e12 and found.value < found.now
    there = symsim.derive(*asked, system="h800-sxm", overrides={"Phi_fp8": f"{float(found.value) / 1e12!r} TFLOP/s"})
    assert float(there.value("t_step")) == pytest.approx(limit, rel=1e-9)
    assert found.closed is not None and found.closed.value == pytest.approx(float(found.value), rel=1e-9)
    near = symsim.derive(*asked, system="h800-sxm", overrides={"Phi_fp8": f"{1978.9 * (1 + 1e-6)!r} TFLOP/s"})
    slope = (float(near.value("t_step")) / float(result.value("t_step")) - 1) * 1e6
    assert result.elasticity("t_step", by="Phi_fp8")["Phi_fp8"] == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("by", ["", " , ", [], [""]])
def test_symbols_that_are_asked_for_are_named(by: str | list[str]) -> None:
    with pytest.raises(InputError, match="by= names no symbol"):
        _result().elasticity("t_step", by=by)


def test_bad_questions_end_in_one_sentence() -> None:
    for question, said in BAD:
        with pytest.raises(InputError, match=re.escape(said)) as raised:
            _result().ask(questions([question])[0])
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


def test_units_that_fit_are_one_however_they_are_made() -> None:
    named = {"t": "s", "beta": "second/byte", "M": "byte", "N": "1", "P": "element", "B": "byte/s", "F": "FLOP/s", "x": ""}.__getitem__
    for text, unit in (
        ("t*t/t", "s"),
        ("beta*M", "s"),
        ("M/t", "byte/s"),
        ("sqrt(t**4)/t", "s"),
        ("t/t", "1"),
        ("t/t*M", "byte"),
        ("1/beta", "byte/s"),
        ("6*N*P", "count"),
        ("2*N*P/F", "s"),
        ("2*(N + 3)*P/B + t", "s"),
        ("2*t/M", "s/byte"),
        ("max(3, 2*t) - 1", "s"),
        ("t % 3", "s"),
        ("x*t", "s"),
        ("log2(t)", ""),
        ("ceil(M // t)", "byte/s"),
    ):
        assert unit_of(parse_quantity(text), named) == unit, text
    for fits in ("M/t <= B and 1/beta < 3 GB/s", "M <= 6*N", "N*P > 3", "N == 2*N", "t**2 < t*3 s", "t < 4 or M < 4", "x < 3 GiB and x < 3 s"):
        assert unit_of(parse_condition(fits), named) == ""


def test_words_and_options_are_the_question_in_quotes() -> None:
    for apart, quoted in (
        (["needed", "B_1", "--for", "time.exposed.tp <= 0.1 s"], "needed B_1 for time.exposed.tp <= 0.1 s"),
        (["crossing", "c_f_dense_tp", "t_f_dense", "--over", "B_1"], "crossing c_f_dense_tp = t_f_dense over B_1"),
    ):
        done = in_process.run("ask", *ASKED, *apart, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [_result().ask(quoted).to_json()]


def test_the_command(tmp_path: Path) -> None:
    plot = tmp_path / "a.svg"
    done = in_process.run(
        "ask", *ASKED, "elasticity t_step by B_1,B_2", "needed B_1=100:900 GB/s for time.exposed.tp <= 0.1 s", "--json", "--plot", str(plot)
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first["elasticities"][0]["symbol"] == "B_1" and second["symbol"] == "B_1"
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")
    for arguments, said in (
        (["largest s where M_peak <= 80 GiB", "--plot", str(plot)], "none is asked for"),
        (["x", "--plot", "a.png"], "ends in .svg"),
        (["largest", "s", "--over", "b"], "largest s --over: a question in words and options is one of: crossing A B --over X"),
    ):
        done = in_process.run("ask", *ASKED, *arguments)
        assert done.returncode == 2 and said in done.stderr


@pytest.mark.long
def test_whole_numbers_are_cut_between_whole_numbers() -> None:
    """The last that holds may be the first of the range, whose neighbour's cell no bound decides."""
    result = symsim.derive("deepseek-v2", "tp=2,sp=true,pp=2,num_microbatches=8", system="a100-sxm-80")
    one, two = (symsim.derive("deepseek-v2", f"tp=2,sp=true,pp=2,num_microbatches=8,micro_batch_size={b}", system="a100-sxm-80") for b in (1, 2))
    limit = (float(one.value("time.step")) + float(two.value("time.step"))) / 2
    assert result.largest("b", where=f"time.step <= {limit!r} s").value == 1
    assert result.largest("b", where=f"time.step <= {float(one.value('time.step')) * 1.001!r} s").value == 1


def test_ranks_that_a_tier_cannot_join_are_passed_over() -> None:
    """A tier joins two or more, and a multiple of what the one inside it does: the middle one of a100-pcie-80 8, 12, 16."""
    assert symsim.derive("llama3-8b", "tp=8,sp=true", system="h100-sxm").ask("smallest R_1 where t_step <= 10 s").value == 2
    around = symsim.derive("llama3-8b", "tp=8,sp=true,dp=4", system="a100-pcie-80")
    assert around.ask("smallest R_2 where t_step <= 100 s").value == 8
    found = around.ask("largest R_2 where t_step >= 3 s")
    there, beyond = (
        symsim.derive("llama3-8b", "tp=8,sp=true,dp=4", system="a100-pcie-80", overrides={"network.2.ranks": n}).value("time.step") for n in (12, 16)
    )
    assert found.value == 12 and there >= 3 > beyond


@cache
def _run() -> Result:
    return symsim.derive("mixtral-8x7b", "ep=4,dp=8,num_microbatches=4", system="h100-sxm", overrides={"tokens": "1e12"})


def test_a_range_ends_where_what_may_be_set_does() -> None:
    """A load imbalance lies between 1 and the ranks that share it, a site's power over its nodes' between 1 and 10, a share at 1."""
    assert [moving(_run(), name).bounds() for name in ("lam", "pue", "phi_gemm")] == [(1.0, 4.0), (1.0, 10.0), (0.000384, 1.0)]
    slowest = _run().largest("lam", "t_step <= 1000 s")
    assert (slowest.value, slowest.closed) == (4, None)
    assert "holds at no lam from 1 to 4" in str(_run().needed("lam", "t_step <= 1 ms"))
    with pytest.raises(InputError, match=r"'lam=0.5:3': --set lam=0.5: .* a number from 1 up"):
        _run().largest("lam=0.5:3", "t_step <= 1 s")


def test_numbers_of_a_run_are_asked_as_they_may_be() -> None:
    """Tokens are whole, and every so many are a step; where checkpoints go is 0 or 1."""
    most = _run().largest("tokens", "run.days <= 100")
    days = {n: _run_of(tokens=n).value("run.days") for n in (most.value, most.beyond)}
    assert most.beyond == most.value + 1 and days[most.value] <= 100 < days[most.beyond]
    assert _run().elasticity("run.days", "tokens")["tokens"] == pytest.approx(1, abs=1e-3)
    waits, beside = (row.numbers[0] for row in _run().along("run.days", "async_save=0,1").rows)
    assert beside < waits and _run().smallest("async_save", f"run.days <= {float(beside + waits) / 2!r}").value == 1


def _run_of(**overrides: object) -> Result:
    return symsim.derive("mixtral-8x7b", "ep=4,dp=8,num_microbatches=4", system="h100-sxm", overrides=overrides)


def test_a_term_that_is_not_there_is_not_taken_for_one_that_stays() -> None:
    """Ranks of equal times have no formula of their spread: what a spread does is asked from one that there is."""
    with pytest.raises(InputError, match="jitter is 0 here, and formulas are others where it is not: ask from there, with --set jitter=VALUE"):
        _run().largest("jitter", "run.days <= 200")
    spread = _run_of(tokens=10**12, jitter="1%")
    most = spread.largest("jitter", f"run.days <= {1.1 * float(_run().value('run.days'))!r}")
    there = _run_of(tokens=10**12, jitter=float(most.value))
    assert there.value("run.days") == pytest.approx(1.1 * float(_run().value("run.days")), rel=1e-6)


def test_a_closed_form_is_of_where_a_condition_ends() -> None:
    """Not of the end of a range, where nothing is equal."""
    site = _run().largest("pue", "run.energy <= 1000000")
    assert (site.value, site.closed) == (10, None)
    inside = _run().largest("pue", f"run.energy <= {2 * float(_run().value('run.energy'))!r}")
    assert inside.closed is not None and inside.closed.value == pytest.approx(2.2) == float(inside.value)


def test_neighbours_are_told_apart() -> None:
    """An answer and the next value have as many digits as differ."""
    text = str(_result().smallest("V", "M_peak > 40 GiB"))
    there, then = re.findall(r"M_peak is ([\d.]+) GiB", " ".join(text.split()))
    assert float(there) > 40 >= float(then)


def test_names_of_a_table_are_whole() -> None:
    """Beside wide numbers bars are short; of a list without blanks a line ends between names."""
    names = "tokens,mtbf,phi_gemm,t_restart,B_hbm,phi_group,eta_permute,eta_mem,eta_gemm,eta_1_reduce_scatter,eta_1_all_reduce"
    lines = str(_run().elasticity("run.days", names)).splitlines()
    assert max(map(len, lines)) <= 80 and not [line for line in lines if "~" in line]
    assert {"eta_1_reduce_scatter", "eta_1_all_reduce", "tokens"} <= {word.strip(",:") for word in " ".join(lines).split()}


@pytest.mark.parametrize("over", ["s=4096,8192", "h=3584,7168", "b=1,2"])
def test_kinds_keep_their_names_where_a_value_is_derived_again(over: str) -> None:
    """A kind whose name is spelt otherwise in formulas (hybrid: kind__hybrid) is spelt once, whatever is derived from."""
    result = symsim.derive("zamba2-7b", "pp=3,dp=4,num_microbatches=6")
    rows = result.along("F_kind__hybrid, A_hybrid__again", over).rows
    name, values = over.split("=")
    for row, value in zip(rows, values.split(",")):
        there = symsim.derive("zamba2-7b", "pp=3,dp=4,num_microbatches=6", overrides={name: int(value)})
        assert row.numbers == (there.value("F_kind__hybrid"), there.value("A_hybrid__again"))


@pytest.mark.long
def test_what_another_option_settles_is_left_out_with_its_reason() -> None:
    """The mean length of documents that are listed has no other value; all else has its elasticity."""
    found = symsim.derive("mixtral-8x7b", "ep=4,dp=8,document_lengths=lognormal:1000+1", system="h100-sxm").elasticity("t_step")
    assert found["Phi_bf16"] < 0
    assert ("u", "document_lengths and packed_document_length both say how long documents are; give one of them") in found.left


def test_numbers_of_a_run_in_units_of_their_own_are_plain() -> None:
    rows = _run().along("run.carbon", "carbon=0.1,0.2").rows
    assert rows[1].numbers[0] == pytest.approx(2 * rows[0].numbers[0])
