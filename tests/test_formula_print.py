"""Formulas as they are printed: equal to what they print, whatever the target."""

from __future__ import annotations

import ast
import json
import random
import re
import shutil
import subprocess
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from in_process import run as in_process

import symsim
from symsim.algebra.arranged import Arranger, Sum
from symsim.algebra.expr import Call, Expr, Number, ceil, floor, maximum, minimum, symbol
from symsim.algebra.operators import EXACT
from symsim.algebra.plain import plain
from symsim.algebra.reading import LONGEST
from symsim.algebra.reading import read as read_formula
from symsim.algebra.reductions import FUNCTIONS as REDUCTIONS
from symsim.algebra.typeset import entry, latex, names_of
from symsim.algebra.vocabulary import SYMBOLS, domain
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.program.c_kernel import compiler
from symsim.program.javascript import javascript
from symsim.program.together import together
from symsim.program.unrolled import unroll
from symsim.report.formula import TARGETS

CASES = {
    "llama3-70b": ("tp=8,pp=4,dp=4,sp=true,global_batch_size=128,zero=1", "h100-sxm"),
    "deepseek-v3": ("tp=4,pp=16,ep=8,etp=1,dp=16,sp=true,num_microbatches=64,recompute=full", "h800-sxm"),
    "gpt3-175b": ("tp=8,pp=8,vpp=2,dp=2,num_microbatches=16,fusion=eager,attention_kernel=eager", None),
}


@cache
def result(model: str) -> Result:
    strategy, system = CASES[model]
    if "attention_kernel" in strategy:
        strategy, system = strategy.replace(",attention_kernel=eager", ""), "h100-sxm"
        return symsim.derive(model, strategy, {"attention_kernel": "eager"}, system=system)
    return symsim.derive(model, strategy, system=system)


# what is printed is what is meant ---------------------------------------------------------------------------------------


def read(text: str, values: Mapping[str, Number]) -> Number:
    """The value of a printed text; a bracket is 1 where it holds, else 0."""

    def of(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(operand=operand):
                return -of(operand)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = of(left), of(right)
                sign = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}[type(op)]
                return Fraction(a) ** b if sign == "pow" else EXACT[sign](Fraction(a), Fraction(b))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return EXACT[name](*map(of, arguments))
            case ast.List(elts=[ast.Compare(left=left, ops=[op], comparators=[right])]):
                return int(of(left) > of(right) if isinstance(op, ast.Gt) else of(left) >= of(right))
        raise AssertionError(ast.dump(node))

    return of(ast.parse(text, mode="eval").body)


def drawn(expression: Expr, draw: random.Random) -> dict[str, Number]:
    """Exact numbers in the domains of the symbols, small ones too, so that guards go both ways."""
    made: dict[str, Number] = {}
    for name in sorted(expression.symbols()):
        kind = domain(name)
        if kind == "share":
            made[name] = Fraction(draw.randrange(1, 17), 16)
        elif kind.endswith("integer"):
            made[name] = draw.choice((0, 1, 1, 2, 3, 8, 128, 4096)) if kind.startswith("non") else draw.choice((1, 1, 2, 3, 4, 8, 100, 4096))
        else:
            made[name] = Fraction(draw.randrange(1, 4000), draw.choice((1, 2, 3, 64)))
    return made


def reductions(expression: Expr) -> bool:
    return any(isinstance(a, Call) and (a.function in REDUCTIONS or any(map(reductions, a.arguments))) for m in expression.terms for a, _ in m)


@pytest.mark.parametrize("model", CASES)
def test_every_definition_prints_what_it_is(model: str) -> None:
    """Of all definitions and closed forms of a model: the text, read back, has the value of the expression, exactly, at points drawn."""
    draw, seen = random.Random(7), 0
    book = result(model).derivation.definitions
    closed = [result(model).formula(n).inline().result.expr for n in ("N", "F", "P_stage", "A_stage")]
    # a large model has many that differ in a name alone
    for expression in (*[d.expr for d in book.values()][:: 3 if len(book) > 400 else 1], *closed):
        if reductions(expression):
            continue
        text = plain(expression, order=list(book))
        for _ in range(2):
            values = drawn(expression, draw)
            try:
                expected = expression.evaluate(values)
            except ZeroDivisionError:
                continue
            assert read(text, values) == expected, (text, values)
            seen += 1
    assert seen > 300


def test_guards_of_what_is_put_in_are_brackets() -> None:
    """beta of a group down to degrees and tiers: whether it leaves a tier is asked of the least of some, which is positive where all are."""
    draw, formula = random.Random(3), result("llama3-70b").formula("beta_tp_all_gather")
    closed = formula.expand()
    text = plain(closed)
    assert "ceil(min" not in text and "[tp > max(1, tp/ceil(max(1, tp/R_1)))]" in text
    for _ in range(40):
        values = drawn(closed, draw)
        assert read(text, values) == closed.evaluate(values), values


def test_latex_and_text_have_one_form() -> None:
    """How often there is something comes before what it is, in both."""
    x, y, m, p = (symbol(n) for n in ("t_slow", "tc", "m", "pp"))
    expression = m * x - x + 2 * p * y - 2 * y
    assert plain(expression) == "(m - 1)*t_slow + 2*(pp - 1)*tc"
    assert latex(expression) == r"(m - 1)\,t_{\mathrm{slow}} + 2(p - 1)\,t_c"


def test_factors_stay_as_people_write_them() -> None:
    b, s, h, t, m, p, d = (symbol(n) for n in ("b", "s", "h", "tp", "m", "pp", "dp"))
    beta, gamma, alpha = symbol("beta_tp_all_gather"), symbol("beta_tp_reduce_scatter"), symbol("alpha_tp")
    tf, tb = symbol("tf"), symbol("ti")
    assert plain(4 * symbol("P") * beta * (d - 1) / d) == "4*P*beta_tp_all_gather*(dp - 1)/dp"
    assert plain(4 * b * s * h * (1 - 1 / t) * (beta + gamma) + 4 * alpha) == (
        "4*b*s*h*(tp - 1)/tp*(beta_tp_all_gather + beta_tp_reduce_scatter) + 4*alpha_tp"
    )
    assert plain(m * (tf + tb) + (p - 1) * (tf + tb)) == "(m + pp - 1)*(tf + ti)"
    assert plain(floor((m - 1) * (p - 1) / p)) == "floor((pp - 1)/pp*(m - 1))"


def test_what_is_common_stands_in_front() -> None:
    """One number of several quantities; bytes of parameters over one rate; a degree less one, and the brackets as high as they must be."""
    dense, expert, dp, rate, start = (symbol(n) for n in ("P_stage_dense", "P_stage_expert", "dp", "B_hbm", "t_mem"))
    assert plain(4 * dense + 4 * expert) == "4*(P_stage_dense + P_stage_expert)"
    seconds = 12 * start + (12 * dense + 46 * dense / dp + 12 * expert) / rate
    assert plain(seconds) == "12*t_mem + (12*P_stage_dense + 46*P_stage_dense/dp + 12*P_stage_expert)/B_hbm"
    assert latex(12 * (dense / dp + expert), {}).startswith(r"12\left(\frac{")
    assert plain(start + 4 * (1 - dp) * rate * dense) == "t_mem - 4*(dp - 1)*B_hbm*P_stage_dense"


def test_what_is_taken_off_stands_without_brackets() -> None:
    p, i, a = symbol("pp"), symbol("i"), symbol("A_stage")
    assert plain((p - i - 1) * a) == "(pp - i - 1)*A_stage"
    assert plain(a - (i + 1) * symbol("t_slow")) == "A_stage - (i + 1)*t_slow"


def test_times_v_and_once_less_is_v_less_one() -> None:
    """What an interleaved pipeline waits for; a factor that stands elsewhere too is left where it is."""
    v, m, tf, ti, sf, si = (symbol(n) for n in ("vpp", "m", "tf", "ti", "sum_tf", "sum_ti"))
    first, second = maximum(0, sf - tf), maximum(0, si - ti)
    waits = v * first + v * second - first - second + sf / v + si / v - tf / v - ti / v
    assert plain(waits) == "(vpp - 1)*(max(0, sum_tf - tf) + max(0, sum_ti - ti)) + (sum_tf + sum_ti - tf - ti)/vpp"
    sent = 2 * symbol("pp") * symbol("tc") - 2 * symbol("tc")
    assert plain(m * tf + m * ti + sent + waits) == f"m*(tf + ti) + 2*(pp - 1)*tc + {plain(waits)}"
    assert plain(v * first + v * second - first - second + m * first + sf).count("max(0, sum_tf - tf)") == 1


def test_guards_are_brackets() -> None:
    mu, t, i, m, p = (symbol(n) for n in ("mu_tp_1", "tp", "i", "m", "pp"))
    assert plain(ceil(minimum(1, mu - 1))) == "[mu_tp_1 > 1]"
    assert plain(ceil(minimum(1, t / mu - 1))) == "[tp > mu_tp_1]"
    assert plain(minimum(1, maximum(0, m + i - p + 1))) == "[m + i >= pp]"
    assert plain(minimum(1, symbol("L_dense_i"))) == "[L_dense_i > 0]"
    v, alive = symbol("vpp"), symbol("alive_i")
    assert plain(minimum(1, maximum(0, v * (m - alive)))) == "[m > alive_i]"
    # of what may be no whole number, or less than nothing, it would not be so
    assert plain(minimum(1, maximum(0, m - alive))) == "min(1, max(0, m - alive_i))"
    assert plain(minimum(1, symbol("t_place"))) == "min(1, t_place)"
    assert plain(minimum(1, symbol("L_dense_i") - symbol("L_dense_ckpt_i"))).startswith("min(1, ")
    assert latex(minimum(1, maximum(0, m + i - p + 1))) == r"[m + i \ge p]"


def test_the_tree_is_the_expression() -> None:
    """Sums drawn at random, products of sums among them: multiplied out, the tree is what it was made of."""
    draw = random.Random(3)
    names = [symbol(n) for n in "b s h tp pp m a d".split()] + [symbol("t_slow"), symbol("tc"), maximum(symbol("m"), symbol("pp"))]

    def value(terms: Sum) -> Expr:
        total = Expr({})
        for term in terms:
            made = Expr({tuple(sorted(term.monomial, key=lambda f: f[0].key)): term.coefficient})
            for inner in term.inner:
                made = made * value(inner)
            total = total + made
        return total

    for _ in range(300):
        product = Expr({(): 1})
        for _ in range(draw.randrange(1, 4)):
            terms = (draw.choice((-1, 1, 2, Fraction(1, 2))) * draw.choice(names) ** draw.choice((-1, 1)) for _ in range(draw.randrange(1, 4)))
            product = product * sum(terms, Expr({}))
        expression = product + draw.choice((0, 1)) * draw.choice(names)
        if expression:
            assert value(Arranger({}).arranged(expression.terms)) == expression


# targets ----------------------------------------------------------------------------------------------------------------


def test_every_target_prints() -> None:
    of = result("llama3-70b").formula("c_f_dense_tp")
    for target in TARGETS:
        text = of.to(target)
        assert "beta" in text or "&#x003B2;" in text or "\u03b2" in text, target
        assert re.search("second|byte", text), target


def code_values(name: str) -> tuple[Any, dict[str, Number], float]:
    of = result("llama3-70b").formula(name)
    assert of.sizes is not None
    values = {n: v for n, v in of.sizes().items() if n in of.symbols}
    return of, values, float(of.value(of.sizes()))


@pytest.mark.parametrize("name", ["A_dense", "c_f_dense_tp", "t_f_dense_attention_core", "t_step"])
def test_python_and_sympy_are_the_formula(name: str) -> None:
    of, values, expected = code_values(name)
    space: dict[str, Any] = {}
    exec(of.to("python"), space)
    assert space[name](**{n: float(v) for n, v in values.items()}) == pytest.approx(expected, rel=1e-12)
    if name.startswith("t_"):  # SymPy takes seconds to read what has many maxima
        return
    exec(of.to("sympy"), space)
    symbols = {s: v for s, v in values.items()}
    found = space[name].subs({s: symbols[s.name] for s in space[name].free_symbols}).doit()
    assert float(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here, in which JavaScript would run")
def test_javascript_is_the_formula(tmp_path: Path) -> None:
    names = ["A_dense", "c_f_dense_tp", "t_f_dense_attention_core", "t_step"]
    script, expected, strict = "", {}, '"use strict";'
    for name in names:
        of, values, expected[name] = code_values(name)
        given = json.dumps({n: float(v) for n, v in values.items()})
        script += f"{{\n{of.to('js').replace(strict, '')}\nconsole.log(JSON.stringify({name}({given})));\n}}\n"
    whole = together([unroll(result("llama3-70b"), ["b", "B_1"])])
    script += f"{{\n{javascript(whole).replace(strict, '')}\nconsole.log(JSON.stringify(kernel({{ b: 1 }})));\n}}\n"
    (tmp_path / "all.js").write_text(strict + script)
    lines = subprocess.run(["node", tmp_path / "all.js"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    for name, line in zip(names, lines):
        assert json.loads(line) == pytest.approx(expected[name], rel=1e-12), name
    found = json.loads(lines[-1])
    for name in ("time.step", "time.compute", "time.exposed.tp", "memory.peak", "mfu", "params.total", "flops.forward"):
        assert found[name] == pytest.approx(float(result("llama3-70b").value(name)), rel=1e-12), name


def test_javascript_says_every_operator() -> None:
    """Without node: each operator that a program may hold has its text."""
    from symsim.algebra.operators import OPERATORS
    from symsim.program.straight import LANGUAGES

    assert {n for n, row in OPERATORS.items() if row.primitive} == LANGUAGES["js"].templates.keys()
    assert not [t for t in LANGUAGES["js"].templates.values() if re.search(r"fabs|fmod", t)]


@pytest.mark.skipif(compiler() is None, reason="no C compiler here")
def test_c_is_the_formula(tmp_path: Path) -> None:
    of, values, expected = code_values("t_f_dense_attention_core")
    given = ", ".join(repr(float(values[n])) for n in sorted(values))
    main = f'int main(void) {{ printf("%.17g", t_f_dense_attention_core({given})); return 0; }}'
    (tmp_path / "f.c").write_text(f"{of.to('c')}\n#include <stdio.h>\n{main}\n")
    subprocess.run([compiler().partition(":")[0], "-o", tmp_path / "f", tmp_path / "f.c", "-lm"], check=True)
    assert float(subprocess.run([tmp_path / "f"], capture_output=True, text=True, check=True).stdout) == pytest.approx(expected, rel=1e-12)


# the command ------------------------------------------------------------------------------------------------------------


def asked(*arguments: str) -> tuple[int, str, str]:
    done = in_process("formula", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_divided_by_a_unit() -> None:
    """The issue's two: Llama's activations a layer, and GPT's."""
    dense = result("llama3-70b").formula("A_dense").to("text", per="s*b*h/t")
    assert "= 12 + 4*g/a + 6*f/h + 4*a/h + 8/h + 8*tp/(b*a)\n" in dense and "given a*d = h" in dense
    gpt = symsim.derive("gpt3-175b", "fusion=eager,tp=8,sp=true", {"attention_kernel": "eager", "save_gathered": "false"}).formula("A_dense")
    assert r"\frac{sbh}{t} &= 34 + \frac{5as}{h} + \frac{16}{h}" in gpt.to("tex", per="s*b*h/t", symbols="korthikanti")
    small = gpt.to("text", per="s*b*h/t", drop_below=0.01)
    assert "= 34 + 5*s*a/h + A_dense_rest\n" in small and "A_dense_rest = 16/h\n" in small


def test_small_terms_beside_what_is_of_all_stages_go_under_one_name() -> None:
    """A sum or maximum over stages has a number, too."""
    made = symsim.derive("llama3-8b", "pp=4,num_microbatches=8", system="h100-sxm")
    text = made.formula("t_compute").to(drop_below="5%")
    assert "t_compute = t_pipeline + t_compute_rest - t_bubble" in text and "t_compute_rest = -exposed_pp" in text
    assert "t_slow = stages_max(t_stage)" in made.formula("t_slow").to(drop_below="5%")


def test_a_sum_below_a_fraction_stands_without_brackets() -> None:
    """Those that are as high as a fraction in it, too."""
    assert latex(8 / (symbol("a") + symbol("b") / symbol("c"))) == r"\frac{8}{\frac{b}{c} + a}"
    assert latex(8 / (symbol("a") + symbol("b"))) == r"\frac{8}{b + a}"


def test_letters() -> None:
    of = result("llama3-70b").formula("F_dense_mlp_gate_up")
    assert "2*micro_batch_size*seq_length" not in of.to() and "micro_batch_size*seq_length*hidden_size*ffn_hidden_size" in of.to(symbols="megatron")
    assert "= 4*T*B*F*h\n" in of.to(symbols={"s": "T", "b": "B", "f": "F"})
    with pytest.raises(InputError, match="would both be called 's'"):
        of.to(symbols={"b": "s"})
    with pytest.raises(InputError, match="cannot be called"):
        of.to(symbols={"b": "</script>"})


def test_a_long_formula_names_its_parts() -> None:
    """alpha, beta and what is in flight are names; states are bytes times parameters; no definition that is nothing is left."""
    book = result("llama3-70b")
    assert {"alpha_tp", "beta_tp_all_gather"} <= {d.symbol for d in read_formula(book.formula("c_f_dense_tp")).formula.definitions}
    assert "= 12*P_stage_dense/dp\n" in book.formula("M_stage_optimizer").to()
    for name in ("t_step", "t_pipeline", "M_stage_peak", "t_f_dense", "c_f_dense_tp", "P_stage", "A_stage", "F", "N"):
        text = re.sub(r"(?m)^%.*\n", "", book.formula(name).to("tex"))
        assert len(text) < 900, (name, len(text))
    assert "alive_i" not in book.formula("M_stage_activations").to(inline=["all"])


@pytest.mark.parametrize(
    ("model", "strategy", "system", "asked"),
    [
        ("mixtral-8x7b", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,global_batch_size=256", "h100-sxm", ("t_f_moe", "W_bwd_moe")),
        ("deepseek-v3", "deepseek-v3-2048", "h800-sxm", ("t_f_moe", "W_bwd_moe", "e_f_moe_ep", "t_f_moe_attention_q_b_proj", "P_stage_dense_across")),
    ],
)
def test_parts_of_a_long_formula_are_short_and_make_it_whole(model: str, strategy: str, system: str, asked: tuple[str, ...]) -> None:
    result = symsim.derive(model, strategy, system=system)
    for name in asked:
        formula = result.formula(name)
        shown = read_formula(formula)
        written = [shown.formula.result, *(part.definition for part in shown.parts if not part.over)]
        known = names_of(shown.formula.definitions)
        # what the other stage of a pair holds is short enough in one piece
        assert (len(shown.parts) > 1) == (name != "P_stage_dense_across"), name
        assert max(len(f"{d.latex} = {latex(d.expr, known)}") for d in written) <= LONGEST, name
        assert {part.definition.symbol for part in shown.parts} <= {s for d in written for s in d.expr.symbols()}
        assert formula.sizes is not None
        sizes = formula.sizes()
        # exact, and at sizes where another branch is active
        for factor in (1, 8, Fraction(1, 8)):
            values = {n: Fraction(v) * (factor if n in ("s", "E", "t_launch", "B_hbm", "L_dense_i_across") else 1) for n, v in sizes.items()}
            assert shown.formula.value(values) == formula.value(values), (name, factor)
    text = result.formula("t_f_moe").to("text")
    assert "t_attention = sum(t_n, n in attention)" in text if model == "deepseek-v3" else "t_experts = " in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama3-8b", "A_dnese"), "did you mean 'A_dense'"),
        (("llama3-8b", "A_dense", "--to", "pdf"), "--to pdf"),
        (("llama3-8b", "A_dense", "--per", "s+b"), "a product or quotient"),
        (("llama3-8b", "A_dense", "--per", "s*zz"), "no symbol 'zz'"),
        (("llama3-8b", "A_dense", "--per", "1"), "--per '1': what is divided by 1 stays as it is"),
        (("llama3-8b", "A_dense", "--per", "h/h"), "--per 'h/h': what is divided by 1 stays as it is"),
        (("llama3-8b", "A_dense", "--per", "s*P"), "P (learned position embeddings) has no number here; A_dense has a, b, d, f, g, h, s"),
        (("llama3-8b", "A_dense", "--per", "N"), "--per 'N': N is a definition, and a unit is of symbols, of which A_dense has a, b, d, f, g, h, s"),
        (("llama3-8b", "A_dense", "--per", "__import__('os')"), "column"),
        (("llama3-8b", "A_dense", "--given", "b = 1e400"), "a number becomes larger than 1.8e308, the largest of double precision"),
        (("llama3-8b", "A_dense", "--given", "g <> a"), "'g <> a'"),
        (("llama3-8b", "A_dense", "--given", "h = h"), "fact 'h = h' says nothing: both sides are the same"),
        (("llama3-8b", "A_dense", "--given", "a*d >= d*a"), "says nothing: both sides are the same"),
        (("llama3-8b", "A_dense", "--inline", "t_step"), "stands on no definition 't_step'"),
        (("llama3-8b", "A_dense", "--inline", ",,"), "names of definitions"),
        (("llama3-8b", "A_dense", "--symbols", "megatrn"), "did you mean 'megatron'"),
        (("llama3-8b", "A_dense", "--symbols", "missing.yaml"), "no such file"),
        (("llama3-8b", "A_dense", "--drop-below", "2"), "a share is needed"),
        (("llama3-8b", "time.step"), "needs a system"),
        (("llama3-8b", "t_step"), "t_step needs a system: -y h100-sxm gives one"),
        (("llama3-8b", "A_dense", "--per", "b*s*h^2"), "a power is written **"),
        (("llama3-8b", "world"), "one number"),
    ],
)
def test_bad_input_is_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = asked(*arguments)
    assert code == 2 and said in err and err.count("\n") == 1 and not out


@pytest.mark.parametrize(("per", "left"), [("tp", "A_dense/tp"), ("h**2", "A_dense/h**2"), ("2", "A_dense/2"), ("1/h", "A_dense/(1/h)")])
def test_what_is_divided_by_a_unit_has_numbers_as_all_have(per: str, left: str) -> None:
    """Thousands apart by commas, and parentheses where a unit is more than one symbol."""
    formula = result("llama3-70b").formula("A_dense")
    assert formula.sizes is not None
    values = {**formula.sizes()}
    whole = float(formula.value(values)) / float(read(per, values))
    head, _, first, *rest = formula.to(per=per).splitlines()
    value = next(line for line in rest if line.strip().startswith("= "))
    assert head.startswith(f"{left} [byte]") and first.startswith(f"  {left} = ")
    assert float(value.split("= ")[1].replace(",", "")) == pytest.approx(whole, rel=1e-3)


def test_what_a_name_is_does_not_stand_on_the_line_above() -> None:
    """Rows are read alone: below a formula, and where a pointer rests on a symbol."""
    assert not [name for name in SYMBOLS if entry(name).meaning.startswith(("the same", "of these", "of them"))]
    windowed = symsim.derive("gpt-oss-20b")
    text = windowed.formula("n_w").to()
    assert text.startswith("n_w [1]: mean number of keys a query attends to inside a window\n")


def test_without_a_name_it_lists_what_there_is() -> None:
    code, out, _ = asked("llama3-8b", "-s", "tp=2")
    assert code == 0 and "Quantities" in out and "  A_dense " in out and max(map(len, out.splitlines())) <= 80


def test_kinds_are_printed_as_they_are_named() -> None:
    """Whatever their spelling in names; sizes of a kind's own say what they are, and thousands stand apart below a line too."""
    jamba = symsim.derive("jamba-v0.1")
    assert r"N_{\mathrm{mamba\_dense},\mathrm{attention}} &=" in jamba.formula("N_mamba__dense_attention").to("tex")
    assert r"\_\_" not in symsim.derive("zamba2-7b").formula("N_mlp").to("tex")
    assert latex(symbol("h") / 2048 + symbol("a") * Fraction(4097, 2048)) == r"\frac{4\,097a + h}{2\,048}"
    assert [entry(name).meaning for name in ("m_x_compressed", "w_near__by")] == [
        "tokens of an entry of layers of kind compressed",
        "window of attention in tokens of layers of kind near_by",
    ]
    assert entry("m_x_compressed").latex == r"m_{x,\mathrm{compressed}}"
