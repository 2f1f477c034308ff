"""The audit: claims read, proven, held against what was approved."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest

from symsim.algebra.expr import maximum, symbol
from symsim.api.cli import main
from symsim.audit.claims import Claim, claims_of
from symsim.audit.own import own_subject
from symsim.audit.proving import exact
from symsim.audit.python import audit_formula
from symsim.audit.subjects import Derivations
from symsim.audit.verdicts import Outcome, judge
from symsim.errors import InputError
from symsim.inputs.reading import parse_yaml

AT = "mine.yaml:6: "
IMPORT = "column 1: '__import__('os')' is not allowed: the only functions are max, min, sqrt, ceil, floor, log2 and at"
HEAD = """\
source: {title: T, authors: A et al., year: 2024, arxiv: "2401.00001"}
symbols: {t: tp}
same: [b, s, h, a, L]
of: {model: bare-gpt}
claims:
"""
DERIVATIONS = Derivations()


def claims(text: str, head: str = HEAD) -> list[Claim]:
    return claims_of(parse_yaml(head + text, "mine.yaml"))


def judged(text: str, head: str = HEAD) -> Outcome:
    (claim,) = claims(text, head)
    return judge(claim, DERIVATIONS)


def entry(formula: str, says: str, more: str = "") -> str:
    return f'- {{id: mine.one, at: eq. (1), status: seen, formula: "{formula}", says: "{says}"{more}}}\n'


def test_equal() -> None:
    found = judged(entry("2*b*s*h*a", "2*b*s*h*a"))
    assert (found.verdict, str(found.difference), found.red) == ("equal", "0", "")


def test_facts_and_neglected_terms() -> None:
    """24bsh^2 + 4bs^2h of Narayanan et al., without its second term."""
    more = ', given: ["a*d = h", "g = a", "f = 4*h"], neglects: [{term: "4*b*s**2*h", why: attention}]'
    assert judged(entry("24*b*s*h**2", "F_dense", more)).verdict == "equal_under"


def test_the_domain_of_a_symbol_that_cancels() -> None:
    found = judged(entry("2*b*s*h*steps", "2*b*s*h*steps", ', symbols: {steps: steps}, given: ["steps: positive integer"]'))
    assert (found.verdict, found.red) == ("equal_under", "")


def test_difference() -> None:
    found = judged(entry("24*b*s*h**2 + 2*b*s**2*h", "F_dense", ', given: ["a*d = h", "g = a", "f = 4*h"]'))
    assert (found.verdict, str(found.difference)) == ("differs", "2*b*h*s**2")
    assert found.red == "differs, and no verdict is stored"


def differing(switch: str) -> str:
    stored = f'{{is: differs, difference: "2*b*h*s**2", switch: "{switch}", why: half of the keys}}'
    return entry("24*b*s*h**2 + 2*b*s**2*h", "F_dense", f', given: ["a*d = h", "g = a", "f = 4*h"], verdict: {stored}')


def test_a_difference_is_none_with_its_switch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(differing("assume.causal=half")).passes
    wrong = judged(differing("fusion=eager"))
    assert wrong.red == "with fusion=eager it is not equal, symsim less published is 2*b*h*s**2"
    own = tmp_path / "own.yaml"
    own.write_text(HEAD + differing("assume.causal=half"))
    assert run(str(own)) == 0
    text = capsys.readouterr().out
    assert "equal with assume.causal=half" in text and text.endswith("\n1 claim: 1 differs\nall as approved\n")
    own.write_text(HEAD + differing("fusion=eager"))
    assert run("--accept", "mine.one", str(own)) == 2
    assert f"{own}:6: mine.one is not equal with fusion=eager: take the switch out, and accept it then" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry("2*q", "F"), "mine.yaml:6: the letter 'q' is mapped to nothing: say what it is in symbols, or that it is symsim's own in same"),
        (entry("2*B", "F"), "mine.yaml:6: the letter 'B' is mapped to nothing: say what it is in symbols, or "
            "that it is symsim's own in same (did you mean 'b'?)"),
        (entry("2*b", "F_dnse"), "mine.yaml:6: bare-gpt has no 'F_dnse': did you mean 'F_dense'?"),
        (entry("2*b +", "F"), "mine.yaml:6: column 1: '2*b +' does not read as an expression"),
        (entry("__import__('os')", "F"), AT + IMPORT),
        (entry("b", "F", ', of: {model: gpt5}'), "mine.yaml:6: there is no model 'gpt5': did you mean 'gpt' or 'gpt2'?"),
        (entry("b", "F", ', given: ["g = a", "g = a + 1"]'), "mine.yaml:6: fact 'g = 1 + a' contradicts the others: it would be -1 = 0"),
        (entry("b", "b", ', given: ["a*d = h"]'), "mine.yaml:6: mine.one does not need the fact 'a*d = h'"),
        (entry("5/b", "3/b", ', given: ["b -> oo"]'), "mine.yaml:6: under b -> oo nothing is left of what mine.one publishes"),
        (entry("24*b", "24*b", ', neglects: [{term: "0*s", why: no}]'), "mine.yaml:6: mine.one neglects 0*s, which is 0 under the facts"),
        (differing("fusion"), "mine.yaml:6: 'fusion' is not NAME=VALUE"),
        (
            differing("fusion=tee"),
            "mine.yaml:6: with fusion=tee: mine.yaml:6: --set: fusion is \"tee\"; valid: te, eager or compile (did you mean 'te'?)",
        ),
        (entry("b", "F", ", note: x, prof: 1"), "mine.yaml:6: unknown key 'prof' in claims[0]: valid names: of, note, keep, verdict, symbols, ..."),
    ],
)  # fmt: skip
def test_bad_claims(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        judged(text)
    assert str(caught.value) == said


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(HEAD + entry("2*b*s*h*a", "2*b*s*h*a"))
    assert run(str(own)) == 0
    own.write_text(HEAD + entry("2*b*s*h*a", "2*b*s*h*a", ", verdict: equal_under"))
    assert run(str(own), "--json") == 1
    printed = capsys.readouterr().out
    assert json.loads(printed[printed.index('{\n  "results"') :])["results"][0]["red"] == "stored equal_under, found equal"
    own.write_text(HEAD + entry("2*q", "F"))
    assert run(str(own)) == 2
    assert run("korthikanti.eq9") == 0


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["audit", *arguments])
    return left.value.code if isinstance(left.value.code, int) else 1


def test_random_points_where_no_proof_is_found() -> None:
    found = judged(entry("floor((s + 1)/2)", "ceil(s/2)"))
    assert (found.verdict, found.points, found.red) == ("tested", 64, "")
    assert judged(entry("floor(s/2)", "ceil(s/2)")).verdict == "differs"


def test_smallest_counter_model() -> None:
    found = judged(entry("floor((s + a)/2)", "floor(s/2)", ', given: ["a = 2*s"]'))
    assert found.counter_model is not None
    point, value = found.counter_model
    assert ({n: point[n] for n in ("a", "s")}, value) == ({"a": 2, "s": 1}, -1)


STATES = "M_stage_weights + M_stage_gradients + M_stage_optimizer"


@pytest.mark.parametrize(
    ("model", "strategy"), [("bare-gpt", "dp=8,zero=0"), ("bare-gpt-untied", "dp=8,zero=0,recompute=full"), ("gpt3-175b", ""), ("deepseek-v3", "")]
)
def test_the_only_stage_holds_the_whole_model(model: str, strategy: str) -> None:
    """18 bytes a parameter in BF16 without shards: weights 2, gradients 4, the copy and two moments 12."""
    derived = DERIVATIONS.of(own_subject(model, strategy, "", {}))
    (found, _) = audit_formula("18*N", STATES, model, strategy)
    assert found.verdict == "equal", found.difference
    assert {n: int(v.evaluate(derived.values)) for n, v in derived.only_stage.items() if n not in ("sum_t", "checkpoints_i")}.items() <= {
        **derived.values,
        **derived.result.stage_values(derived.result.stages[0]),
    }.items()


def test_layers_of_several_kinds_are_all_layers() -> None:
    """Of two kinds, L is L_dense + L_moe: no counterexample has one layer of each and one in all. A fact about L stands for itself."""
    more = ", symbols: {d_r: d_r, r_k: r_k}, of: {model: deepseek-v2}"
    assert judged(entry("(d_r + r_k)*L", "kv_cache", more)).verdict == "equal"
    assert str(judged(entry("(2*d_r + r_k)*L", "kv_cache", more)).difference) == "-L_dense*d_r - L_moe*d_r"
    assert judged(entry("(d_r + r_k)*L", "kv_cache", f'{more}, given: ["L = L_dense + L_moe"]')).passes


def test_facts_of_another_stage_stay_those_of_another() -> None:
    (whole, _) = audit_formula("18*N", STATES, "bare-gpt", given="L_dense_i = L, embedding_i = 1, output_i = 0")
    assert whole.verdict == "equal_under"
    (other, _) = audit_formula("18*N", STATES, "bare-gpt", given="embedding_i = 0, output_i = 0")
    assert "L_dense_i" in other.difference.symbols()
    (first, _) = audit_formula("18*N", STATES, "bare-gpt", "pp=4")
    assert {"L_dense_i", "embedding_i"} <= first.difference.symbols()


def test_a_counter_model_is_a_pipeline_that_there_can_be() -> None:
    """The rest of a step over a micro-batch of all ranks: at m = pp = 1 the two sides were apart only where sum_t was not t_slow."""
    text = entry("m*t_slow", "(m - 1)*t_slow + sum_t", ", keep: [t_slow, sum_t], of: {strategy: 'pp=4,num_microbatches=8', system: ideal}")
    found = judged(text, HEAD.replace("same: [", "same: [m, t_slow, "))
    assert found.counter_model is not None
    point, value = found.counter_model
    assert (point["t_slow"], point["sum_t"], value) == (1, 2, 1)
    (one, _) = audit_formula("sum_t", "t_slow", "bare-gpt", system="ideal", keep="sum_t, t_slow")
    assert one.verdict == "differs" and one.counter_model is None
    for formula, says in (("L", "max(L, L_dense_i)"), ("a", "a*embedding_i/embedding_i**2"), ("a", "a + max(0, i - pp)")):
        assert judged(entry(formula, says, ", of: {strategy: pp=4}")).counter_model is None


def test_a_counter_model_has_the_ranks_that_the_formula_is_of() -> None:
    """The bubble of a pipeline of one stage is none by either side; other formulas hold there."""
    bubble = "(pp-1)/(m+pp-1)", "bubble_share", "bare-gpt", "pp=4,num_microbatches=8", "ideal"
    (found, _) = audit_formula(*bubble)
    assert found.counter_model is not None and found.counter_model[0]["pp"] == 2
    (later, _) = audit_formula(*bubble, given="m >= 6")
    assert later.counter_model is not None and (later.counter_model[0]["pp"], later.counter_model[0]["m"]) == (2, 6)


def test_a_fact_says_how_many_ranks_a_counter_model_has() -> None:
    """Of a pipeline that a claim takes for one stage."""
    (found, _) = audit_formula("(pp-1)/(m+pp-1) + 1", "bubble_share", "bare-gpt", "pp=4,num_microbatches=8", "ideal", given="pp = 1")
    assert found.counter_model is not None and found.counter_model[0]["pp"] == 1


def test_size_of_a_difference_at_known_models() -> None:
    """Of GPT-3's forward pass at 4096 tokens attention's products are s/(6h + s)."""
    found = judged(entry("24*b*s*h**2", "F_dense", ', given: ["a*d = h", "g = a", "f = 4*h"]'))
    assert found.sizes["gpt3-175b"] == pytest.approx(4096 / (6 * 12288 + 4096))
    assert set(found.sizes) == {"gpt3-175b", "llama3-70b", "deepseek-v3"}


ONE = "# first\n- id: m.one\n  at: x\n  status: seen\n  formula: 6*s\n  says: s\n  verdict:"
BLOCK = "\n    is: differs  # so\n    why: >-\n      two\n      lines\n"
STORED = [
    (" {is: differs, why: w}\n", ' {is: differs, why: w, difference: "-5*s"}\n'),
    (' {is: differs, difference: "2*s", why: w}\n  # end\n', ' {is: differs, difference: "-5*s", why: w}\n  # end\n'),
    (BLOCK + "  # end\n", BLOCK + '    difference: "-5*s"\n  # end\n'),
]


@pytest.mark.parametrize(("before", "after"), STORED)
def test_accept_changes_its_verdict_and_no_other_byte(tmp_path: Path, before: str, after: str) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(HEAD + ONE + before)
    assert run(str(own)) == 1
    assert run(str(own), "--accept", "m.one") == 0
    assert own.read_text() == HEAD + ONE + after
    assert run(str(own)) == 0


def test_accept_writes_a_verdict_where_there_is_none(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(HEAD + entry("s", "s", ", verdict: {is: differs, difference: s, why: w}"))
    assert run(str(own), "--accept", "mine.one") == 0
    assert own.read_text() == HEAD + entry("s", "s", ", verdict: equal")
    own.write_text(HEAD + entry("2*s", "s"))
    assert run(str(own), "--accept", "mine.one") == 2  # it wants a why


OWN = ("--formula", "34*s*b*h + 5*a*s**2*b", "--is", "A_dense", "--model", "gpt3-175b", "--given", "f=4*h,a*d=h,g=a")


def test_own_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """34 + 5as/h of Korthikanti et al.: flash attention keeps no scores; with a kernel that does, the norms' statistics remain."""
    assert run(*OWN, "--explain") == 1
    printed = capsys.readouterr().out
    assert "symsim less published: -5*a*b*s**2 + 4*a*b*s + 16*b*s\n" in printed
    assert printed.endswith("nearest    assume.attention_kernel=math: symsim less published is 16*b*s\n")
    assert printed in (Path(__file__).parents[1] / "docs" / "audit.md").read_text()
    assert run(*OWN, "--set", "assume.attention_kernel=math", "--json") == 1
    assert json.loads(capsys.readouterr().out)["results"][0]["difference"] == "16*b*s"
    assert run("--formula", "6*N*b*s", "--is", "3*F", "--model", "bare-gpt", "--given", "V=h, tp>=2") == 1
    assert run("--formula", "24*b*s*h**2+4*b*s**2*h", "--is", "F_dense", "--model", "bare-gpt", "--given", "f=4*h,a*d=h,g=a,tp>=2") == 0


def test_a_long_difference_is_cut_behind_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    bubble = ("--formula", "(pp-1)/(m+pp-1)", "--is", "bubble_share", "--model", "bare-gpt", "-s", "pp=4,num_microbatches=8", "-y", "ideal")
    assert run(*bubble) == 1
    head, verdict, *rest = capsys.readouterr().out.splitlines()
    assert (head, verdict) == ("bubble_share of bare-gpt, pp=4,num_microbatches=8, ideal", "verdict    differs")
    assert len(rest) < 30 and max(map(len, rest)) <= 80
    assert re.search(r"\.\.\. \d{4} more lines of 19 terms: --json has all$", "\n".join(rest), re.M)
    assert run(*bubble, "--json") == 1
    whole = json.loads(capsys.readouterr().out)["results"][0]
    assert all(len(whole[side]) > 100_000 for side in ("difference", "derived")) and whole["published"] == "pp/(-1 + m + pp) - 1/(-1 + m + pp)"


def test_definitions_of_ones_own_claim_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """GPipe's bubble: of stages alike, whose messages take no time."""
    bubble = ("--formula", "(pp-1)/(m+pp-1)", "--is", "bubble_share", "--model", "bare-gpt", "-s", "pp=4,num_microbatches=8", "-y", "ideal")
    kept = ("--keep", "t_slow, sum_t", "--keep", "t_place,tc")
    assert run(*bubble, *kept, "--given", "sum_t=pp*t_slow, tc=0, t_place=0") == 0
    assert capsys.readouterr().out.endswith("kept       t_slow, sum_t, t_place, tc\n")
    assert run(*bubble, *kept, "--given", "sum_t=pp*t_slow, t_place=0") == 1
    (found, _) = audit_formula("(pp-1)/(m+pp-1)", "bubble_share", "bare-gpt", "pp=4,num_microbatches=8", "ideal", keep="t_slow,sum_t,t_place,tc")
    assert found.difference.symbols() == {"m", "pp", "t_slow", "sum_t", "t_place", "tc"}


@pytest.mark.parametrize(("name", "symbol_"), [("flops.forward", "F"), ("params.total", "N"), ("memory.weights", "M_stage_weights")])
def test_names_of_quantities_are_definitions(name: str, symbol_: str) -> None:
    (found, _) = audit_formula(symbol_, name, "bare-gpt")
    assert (found.verdict, found.claim.says) == ("equal", symbol_)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("b", "2*params.total", "gpt2"), "--is: in an expression params.total is N\n"),
        (("b", "time.step_low*2", "gpt2"), "--is: in an expression time.step_low is t_step_low\n"),
        (("b", "F", "gpt2", "--keep", "t_slw", "-y", "h100-sxm"), "--keep: gpt2 has no 't_slw': did you mean 't_slow'?\n"),
        (("h", "F", "gpt2", "--given", "f=4*h,f=2*h"), "--given: fact 'f = 2*h' contradicts 'f = 4*h': h would be 0, and is a positive integer\n"),
        (("__import__('os')", "F", "gpt2"), f"--formula: {IMPORT}"),
        (("b + q", "F", "gpt2"), "--formula: gpt2 has no 'q': did you mean"),
        (("b", "G_dense_of_mpl", "gpt2"), "--is: gpt2 has no 'G_dense_of_mpl': did you mean 'G_dense_of_mlp'?"),
        (("b", "F", "gpt33"), "--model: there is no model 'gpt33'"),
        (("b", "F", "gpt2", "--given", "a = 3, a = 4"), "--given: fact 'a = 4' contradicts the others: it would be -1 = 0"),
        (("b", "F", "gpt2", "--given", "a"), "--given: 'a' is no fact"),
        (("b", "F", "gpt2", "-s", "tp=5"), "--model: tp=5 does not divide"),
    ],
)
def test_bad_formulas(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    formula, says, model, *rest = arguments
    assert run("--formula", formula, "--is", says, "--model", model, *rest) == 2
    assert capsys.readouterr().err.startswith(f"symsim: {said}")


def test_claims_of_another_kind_of_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("claims.json").write_text("{}")
    with pytest.raises(SystemExit) as left:
        main(["audit", "claims.json"])
    assert (left.value.code, capsys.readouterr().err) == (2, "symsim: claims.json: claims are read from a .yaml file\n")


def test_python_of_the_page() -> None:
    ran = doctest.testfile(str(Path(__file__).parents[1] / "docs" / "audit.md"), module_relative=False)
    assert ran.attempted > 4 and ran.failed == 0


def test_the_claim_of_the_page_is_one() -> None:
    page = (Path(__file__).parents[1] / "docs" / "audit.md").read_text()
    (claim,) = claims_of(parse_yaml(page.split("```yaml\n")[1].split("```")[0], "page.yaml"))
    assert judge(claim, DERIVATIONS).verdict == "equal_under"


def test_floats_that_a_schedule_multiplies_by_stay_exact() -> None:
    third = exact(1.0 * symbol("m") + maximum(2.0 * symbol("pp"), symbol("m")))
    assert third == symbol("m") + maximum(2 * symbol("pp"), symbol("m"))
    assert not any(isinstance(c, float) for c in (1 / (3 * third)).terms.values())
