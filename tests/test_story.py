"""A report as a story: the first page stands alone, chapters open with a formula, numbers and references agree in every format, and the short one
is four pages."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_live import needs_browser, titled
from test_report import undefined
from test_typst import measured

import symsim
from symsim.algebra.quantity import BYTE
from symsim.algebra.typeset import entry
from symsim.algebra.vocabulary import ACROSS
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.inputs.systems import load_system
from symsim.report import choices, front, gauges, html, latex, markdown, picture, resources, shown, typst, write_report
from symsim.report.amounts import human, plain, signed_percent, unbroken
from symsim.report.content import report
from symsim.report.document import Code, Equation, Equations, Figure, Gauges, Math, Paragraph, Picture, Ref, Report, Row, Section, Table, as_spans
from symsim.report.ink import Ink
from symsim.report.machine import joins, meaning
from symsim.report.numbering import numbered
from symsim.report.shown import most_shown
from symsim.report.step import Step
from symsim.report.text_run import duration
from symsim.report.totals import Totals

CASES = {
    "deepseek-v3": ("tp=8,pp=16,ep=8,sp=true", "h800-sxm"),
    "llama3-70b": ("tp=8,pp=4,sp=true,num_microbatches=8,dp=2", "h100-sxm"),
    "mixtral-8x7b": ("tp=4,pp=4,ep=8,etp=1,sp=true,dp=8,num_microbatches=16", "h100-sxm"),
}


@cache
def result_of(model: str) -> Result:
    strategy, system = CASES[model]
    return symsim.derive(model, strategy, system=system)


def step_of(model: str) -> Step:
    return Step(result_of(model))


@cache
def document_of(model: str, short: bool = False) -> Report:
    return report(result_of(model), short)


def references(node: object) -> Iterator[Ref]:
    if isinstance(node, Ref):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from references(part)
    elif is_dataclass(node):
        for field in fields(node):
            yield from references(getattr(node, field.name))


def anchors(document: Report) -> list[str]:
    found = []
    for section in document.sections:
        found.append(f"sec{section.number}")
        for part in section.parts:
            if isinstance(part, Equations):
                found += [f"eq{e.number}" for e in part.equations]
            elif not isinstance(part, Paragraph):
                found.append(f"{'tab' if isinstance(part, Table) else 'fig'}{part.number}")
                found += [r.anchor for r in part.rows if r.anchor] if isinstance(part, Table) else []
    return found


@pytest.mark.long_after(2)
@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("model", CASES)
def test_numbers_are_given_once_and_references_lead_to_them(model: str, short: bool) -> None:
    document = document_of(model, short)
    known = anchors(document)
    assert len(known) == len(set(known)) and "eq0" not in known
    found = list(references(document.sections))
    assert len(found) > 8 and {r.anchor for r in found} <= set(known)
    assert all(r.number and r.number in r.text for r in found)


def test_what_a_report_does_not_have_is_not_referred_to() -> None:
    said = Paragraph(("as in", Ref("Nowhere", " section {}"), Ref("=x", " {}"), "."))
    made = numbered(Report("t", "", (Section("s", (said, Equations((Equation("x", ("1",), "x"),)))),)))
    assert [s.text if isinstance(s, Ref) else s for s in made.sections[0].parts[0].spans] == ["as in", "", " (1)", "."]


@pytest.mark.parametrize("model", CASES)
def test_the_first_page_answers(model: str) -> None:
    result, (first, *_) = result_of(model), document_of(model).sections
    tables = {p.key: p for p in first.parts if isinstance(p, Table)}
    assert list(tables) == ["answer", "binds", "helps", "choices"]
    assert [p.key for p in first.parts if isinstance(p, Figure)] == ["time", "room", "flops"]
    rows = {r.cells[0]: r.cells[1] for r in tables["answer"].rows}
    assert rows["one step"].startswith(f"{float(result.value('time.step')):.4g}"[:4])
    names = [str(r.cells[0]) for r in tables["helps"].rows]
    assert any("B_{2}" in n for n in names) and any("HBM" in n for n in names)
    (doubled,) = (r for r in tables["choices"].rows if "twice" in str(r.cells[0]))
    strategy, system = CASES[model]
    count = 2 * result.strategy.microbatches
    strategy = re.sub(r",num_microbatches=\d+", "", strategy) + f",num_microbatches={count}"
    there = float(symsim.derive(model, strategy, system=system).value("tokens_per_second"))
    change = 100 * (there / float(result.value("tokens_per_second")) - 1)
    assert doubled.cells[2] == f"{change:+.1f}\u2009%"


def test_chapters_open_with_a_sentence_and_a_formula() -> None:
    opened = {s.heading: s.parts[:2] for s in document_of("deepseek-v3").sections if s.level == 1}
    for heading in ("The step", "The pipeline", "A stage", "Memory", "The model", "Blocks", "Kernels"):
        said, formula = opened[heading]
        assert isinstance(said, Paragraph) and isinstance(formula, Equations), heading
        assert len(formula.equations) == 1, heading


@pytest.mark.parametrize("model", CASES)
def test_a_short_report_is_four_pages_and_defines_what_it_uses(model: str, tmp_path: Path) -> None:
    document = document_of(model, True)
    assert undefined(document) == set()
    assert [s.heading for s in document.sections] == ["The answer", "The step", "The pipeline", "Memory", "Assumptions", "Notation", "Sources"]
    assert len(re.findall(rb"/Type */Page\b", typst.compile_pdf(typst.render(document)))) == 4


_DEEP = {
    "dualpipe": ("deepseek-v3", "deepseek-v3-2048"),
    "deep": ("deepseek-v3", "tp=8,pp=16,ep=8,sp=true,num_microbatches=64"),
    "interleaved": ("gpt3-175b", "tp=8,sp=true,pp=8,vpp=8,num_microbatches=64"),
    "V": ("mixtral-8x22b", "tp=4,sp=true,ep=8,etp=1,pp=4,vpp=2,schedule=zbv,dp=8,num_microbatches=32"),
    "recomputed": (
        "deepseek-v3.2",
        "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,num_microbatches=32,recompute=full,mtp_num_layers=1",
    ),
}


@pytest.mark.long_after(1)
@pytest.mark.parametrize("case", _DEEP)
def test_a_deep_pipeline_has_four_pages_too(case: str) -> None:
    document = report(symsim.derive(*_DEEP[case], system="h800-sxm"), short=True)
    assert undefined(document) == set()
    assert len(re.findall(rb"/Type */Page\b", typst.compile_pdf(typst.render(document)))) == 4


def test_a_formula_of_many_maxima_has_in_a_short_report_what_decides_here() -> None:
    """Put together from the report's own symbols, it is the pipeline's time."""
    result = symsim.derive(*_DEEP["V"], system="h800-sxm")
    (chapter,) = (s for s in report(result, short=True).sections if s.heading == "The pipeline")
    (formula,) = (e for p in chapter.parts if isinstance(p, Equations) for e in p.equations if e.key == "t_pipeline")
    assert r"\max" not in "".join(formula.lines) and "In place of maxima" in str(chapter.parts[0])
    known = result.step_numbers
    m, p = result.strategy.microbatches, result.strategy.pp
    spread = (known["sum_ti"] - known["ti"]) / 2
    whole = m * (known["tf"] + known["ti"] + known["tw"]) + (5 * p - 7) * known["tc"] + spread
    assert formula.lines[0].startswith("m(t_f + t_i + t_w) + (5p - 7)\\,t_c + ")
    assert float(whole) == pytest.approx(float(known["t_pipeline"]), rel=1e-12)


@pytest.mark.parametrize(
    ("model", "strategy", "said"),
    [
        ("mixtral-8x7b", "tp=2,sp=true,ep=8,etp=1,pp=4,dp=8,num_microbatches=32", ": nothing runs beside them"),
        ("deepseek-v3", "deepseek-v3-2048", " of what they take: kernels beside them hide the rest"),
        ("llama3-8b", "dp=16,zero=3,num_microbatches=2", " of what they take: kernels beside them hide the rest"),
        ("llama3-8b", "pp=8,num_microbatches=8", "most of what shows: pipeline messages"),
    ],
)
def test_the_first_page_says_which_message_shows_and_why(model: str, strategy: str, said: str) -> None:
    step = Step(symsim.derive(model, strategy, system="a100-pcie-80" if model == "llama3-8b" else "h800-sxm"))
    words, *_ = most_shown(step)
    assert said in words
    (front_page,) = (as_spans(r.cells[1]) for r in _binds(step) if r.cells[0] == "its messages")
    assert words in front_page
    (most,) = (p for p in step.parts if f": {p.of}, " in words)
    assert most.seconds == max(p.seconds for p in step.parts if "messages" in p.of or "parameters" in p.of)


def test_what_shows_of_gradients_is_their_share() -> None:
    """Backward of the stage with the longest tail hides as much of them as it takes."""
    placed = "tp=8,sp=true,pp=4,dp=4,num_microbatches=8"
    alone, beside = (symsim.derive("llama3-70b", placed + more, system="h100-sxm") for more in ("", ",overlap_grad_reduce=true"))
    assert shown._share(Step(alone), "dp") == 1
    last = max((beside.stage_numbers(s) for s in beside.stages), key=lambda numbers: numbers["t_tail_stage"])
    hidden = sum(last[name] for name in ("ti_stage", "tw_stage", "tr_stage"))
    whole = last["c_grad_stage"] + last["c_param_stage"]
    assert 0.1 < shown._share(Step(beside), "dp") < 0.9
    assert shown._share(Step(beside), "dp") == pytest.approx(float(1 - hidden / whole), rel=1e-12)


def test_what_layers_that_run_again_send_is_counted_with_them() -> None:
    placed = "tp=8,sp=true,tp_comm_overlap=true,recompute=full,num_microbatches=2"
    step = Step(symsim.derive("llama3-8b", placed, system="h100-sxm"))
    n = {name: float(value) for name, value in step.stage(0).items()}
    ends = sum(n[f"c_{phase}_{block}_tp"] for phase in "fb" for block in ("embedding", "head"))
    taken = ends + n["L_dense_ckpt_i"] * (n["c_f_dense_ckpt_tp"] + n["c_b_dense_ckpt_tp"])
    assert n["L_dense_ckpt_i"] == 32 and shown._share(step, "tp") == pytest.approx((n["e_f_tp_stage"] + n["e_b_tp_stage"]) / taken, rel=1e-12)


def test_a_short_report_asks_its_own_step_what_an_alternative_moves() -> None:
    result = symsim.derive("deepseek-v3", "deepseek-v3-2048", system="h800-sxm")
    (table,) = (p for s in report(result, short=True).sections if s.heading == "Assumptions" for p in s.parts if isinstance(p, Table))
    moved = {row.cells[0].text: row.cells[3] for row in table.rows}
    other = symsim.derive("deepseek-v3", "deepseek-v3-2048", system="h800-sxm", overrides={"assume.moe_exchange": "once_per_node"})
    change = 100 * float(other.value("time.step") / result.value("time.step") - 1)
    assert change < 0 and moved["moe_exchange"] == f"once_per_node: step \u2212{-change:.2g} %" and len(moved) == 4
    assert moved["attention_kernel"].startswith("math, eager: ")


def test_a_short_report_leaves_out_what_is_nothing_and_says_what_stages_run() -> None:
    text = markdown.render(document_of("llama3-70b", True))
    assert "t_{\\mathrm{place}}" in markdown.render(document_of("llama3-70b")) and "t_{\\mathrm{place}}" not in text
    assert "P^{(i)}_{\\mathrm{expert}}" not in text
    assert "Stage 0 runs embedding + 20 dense; stages 1\u20132 run 20 dense; stage 3 runs 20 dense + head." in text


def test_all_that_makes_a_stage_the_slowest_is_named() -> None:
    step = Step(symsim.derive("deepseek-v3", "deepseek-v3-2048", system="h800-sxm"))
    over, parts = re.fullmatch(r".* a micro-batch, (.*?) ms \(.*?\) above the mean of all: (.*)\.", step.why_slowest).groups()
    said = re.findall(r"(\S+) (ms|us) (?:in|elsewhere)", parts)
    amounts = [float(n.replace("\u2212", "-")) * {"ms": 1, "us": 1e-3}[unit] for n, unit in said]
    assert len(amounts) > 1 and sum(amounts) == pytest.approx(float(over), rel=1e-3)


def test_a_tier_is_said_by_its_name_and_its_reach() -> None:
    system = load_system("h100-sxm")
    assert meaning(system, "B_1") == "bandwidth of one rank over tier 1 (nvlink, inside a node of 8 ranks)"
    assert meaning(system, "eta_2_all_to_all").endswith("all_to_all reaches (infiniband, between nodes)")
    assert joins(load_system("a100-pcie-80"), 1) == "switch, among 4 ranks"


def test_an_indicator_of_the_mirrored_stage_is_said_to_be_of_it() -> None:
    symsim.derive("deepseek-v3", "deepseek-v3-2048")
    mirrored = [name for name, of in ACROSS.items() if "stage i" not in entry(of).meaning]
    assert mirrored and all("pp - 1 - i" in entry(name).meaning for name in mirrored)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("of 37.55 B.", "of 37.55\u202fB."),
        ("8.385 GiB (10 %) to", "8.385\u202fGiB (10\u202f%) to"),
        ("3\u2009272 tokens", "3\u202f272 tokens"),
        ("50 GB/s, 4 mesh", "50\u202fGB/s, 4 mesh"),
        ("stage 3 runs 20 dense", "stage 3 runs 20 dense"),
    ],
)
def test_no_line_ends_between_a_number_and_its_unit(text: str, kept: str) -> None:
    assert unbroken(text) == kept


def test_kernels_beside_an_exchange_are_counted_where_they_are_many() -> None:
    document = report(symsim.derive("deepseek-v3", "deepseek-v3-2048", system="h800-sxm"))
    tables = [p for s in document.sections for p in s.parts if isinstance(p, Table) and str(p.caption).startswith("('Messages of each block beside")]
    alone, table = tables
    assert [c.heading for c in alone.columns[2:]] == ["forward", "backward", "backward alone"] and alone.rows
    beside = ["".join(map(str, row.cells[4])) for row in table.rows]
    assert any(re.fullmatch(r"\d\d kernels", said) for said in beside)
    assert all(said.count(";") < 4 for said in beside)


def test_a_short_report_without_a_system_tells_of_stages_and_the_model() -> None:
    document = report(symsim.derive("llama3-8b", "tp=2,pp=2"), short=True)
    assert [s.heading for s in document.sections][:3] == ["The answer", "A stage", "The model"] and undefined(document) == set()


def test_numbers_are_the_same_in_every_format() -> None:
    document = document_of("llama3-70b", True)
    page, text, source = html.render(document), markdown.render(document), latex.render(document)
    numbers = [str(e.number) for s in document.sections for p in s.parts if isinstance(p, Equations) for e in p.equations]
    assert re.findall(r'<tr id="eq(\d+)"', page) == re.findall(r"&& \((\d+)\)", text) == numbers
    assert re.findall(r"\\label\{eq(\d+)\}", source) == numbers
    for ref in references(document.sections):
        assert f'href="#{ref.anchor}"' in page and page.count(f'id="{ref.anchor}"') == 1
        assert rf"\ref{{{ref.anchor}}}" in source and source.count(rf"\label{{{ref.anchor}}}") == 1
    # of align, every line either has a label or no number
    aligned = "".join(re.findall(r"\\begin\{align\}(.*?)\\end\{align\}", source, re.DOTALL))
    assert all(r"\label" in line or r"\notag" in line for line in aligned.strip().split(" \\\\\n"))


def test_four_pages_answer_what_is_asked() -> None:
    result, text = result_of("deepseek-v3"), markdown.render(document_of("deepseek-v3", True)).replace("\u2009", " ")
    stage = result.stage_numbers(result.stages[result.fullest])
    activations, bubble = float(stage["M_stage_activations"]) / 2**30, result.value("time.bubble") / result.value("time.step")
    size = int(result.ask("largest b where memory.peak <= memory.capacity").to_json()["value"])
    first = resources.words(result.system, next(iter(resources.shares(step_of("deepseek-v3").elasticities))))
    answers = {
        "how long does a step take": f"| one step | {float(result.value('time.step')):.4g} s",
        "between what may it lie": "| 80 % interval |",
        "tokens a second": f"| tokens a second | {float(result.value('tokens_per_second')):,.0f}".replace(",", " "),
        "MFU": f"| {100 * float(result.value('mfu')):.1f} % |",
        "does it fit": "| verdict | fits, ",
        "what binds": f"| the step | Faster by a percent, {first} shorten",
        "where its time goes": f"| its time | pipeline bubble (waiting), {100 * float(bubble):.1f} %",
        "what is the largest micro-batch": f"| largest micro-batch that fits | {size} sequences in the one micro-batch; {size + 1} take ",
        "how long does a trillion tokens take": f"| a trillion tokens | {duration(10**12 / float(result.value('tokens_per_second')))}, ",
        "what does it cost": "| cost of them | no price is known; `--set accelerator.price",
        "which stage is the slowest": f"Stage {result.slowest} is the slowest",
        "how much memory is activations": f"activations {activations:.4g} GiB",
        "what is B_2's effect": "| $`B_{2}`$ | bandwidth of one rank over tier 2 (infiniband, between nodes) | 50 GB/s | \u22120.",
        "what does recomputation cost": "| `recompute=full` | ",
        "how many tokens has a step": " of them: 32 768 tokens. ",
        "which message is the longest": r"| its calls | the longest of a micro-batch: all-gather of a forward over $`\tau`$, 448 MiB in ",
        "is it steps alone": "MWh, steps alone | ",
        "how large is the model": "671 B parameters, of which a token uses 37.55 B",
    }
    assert [asked for asked, answer in answers.items() if answer not in text] == []
    priced = markdown.render(document_of("llama3-70b", True)).replace("\u2009", " ")
    assert re.search(r"\| cost of them \| [0-9 ]+ USD, at 2\.95 USD/h for an accelerator \|", priced)


def test_the_verdict_says_what_stays_free() -> None:
    """Where there is room for the reserve its bytes are named beside the rest; where it decides, the verdict has its parts."""
    roomy = markdown.render(document_of("llama3-70b"))
    assert f"to spare, of which {human(step_of('llama3-70b').reserve['all'], BYTE)} stays free" in roomy
    tight = markdown.render(report(symsim.derive("deepseek-v3", "deepseek-v3-2048", system="h800-sxm"), short=True))
    assert "to spare, where 9." in tight and "stays free" not in tight


def test_degrees_stand_one_by_one() -> None:
    assert "tensor $`t = 4`$, data $`d_p = 8`$, pipeline $`p = 4`$ for dense tensors" in markdown.render(document_of("mixtral-8x7b", True))


def test_json_has_no_short_form(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--short is for a report that is read"):
        write_report(result_of("llama3-70b"), tmp_path / "x.json", short=True)
    assert not list(tmp_path.iterdir())


_ERRORS = """<script>const wrong = []; addEventListener("error", event => wrong.push(event.message));</script>"""
_ASKED = """<script>
const box = document.querySelector("#known"), told = () => box.hidden ? "" : box.textContent;
const over = e => { e.dispatchEvent(new PointerEvent("pointerover", {bubbles: true})); return told(); };
const inside = id => [...document.querySelectorAll(`#${id} math`)].flatMap(m => [...m.querySelectorAll("msub, mi")]);
const found = {};
const step = document.querySelector("#eq1 td:nth-child(2) math");
found.step = [...step.querySelectorAll("msub")].map(over);
found.link = box.querySelector("a").getAttribute("href");
found.row = document.querySelector("#eq1").dataset.is;
over(document.querySelector("h1")); found.away = told();
const arrow = e => { e.focus(); e.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true})); return document.activeElement; };
found.moved = arrow(document.querySelector("#eq1 math")) === step;
// a window without the keyboard is sent no such event
step.dispatchEvent(new FocusEvent("focusin", {bubbles: true})); found.keys = told();
step.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true})); found.entered = box.contains(document.activeElement);
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true})); found.back = document.activeElement === step;
step.dispatchEvent(new FocusEvent("focusin", {bubbles: true}));
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true})); found.escaped = told();
step.querySelector("msub").dispatchEvent(new MouseEvent("click", {bubbles: true}));
over(step.querySelector("msub")); step.querySelector("msub").dispatchEvent(new MouseEvent("click", {bubbles: true})); found.tapped = told();
const shown = box.getBoundingClientRect(); found.inside = !(shown.right > innerWidth + 1) ? shown.left > -1 : false;
found.wrong = wrong; found.width = document.documentElement.scrollWidth; found.room = innerWidth;
const all = [...document.querySelectorAll("table.equations td:nth-child(2) math")];
const asked = all.flatMap(m => [...m.querySelectorAll("msub, msubsup")]).filter(e => e.firstElementChild.localName !== "mo")
  .filter(e => !e.parentElement.closest("msub, msubsup"));
document.activeElement.blur();
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
found.unknown = [...new Set(asked.filter(e => over(e) === "").map(e => e.textContent))].slice(0, 20);
found.asked = asked.length;
document.title = JSON.stringify(found);
</script>"""


@needs_browser
@pytest.mark.parametrize("width", [1200, 500])
def test_a_symbol_opens_what_it_is_in_place(width: int, tmp_path: Path) -> None:
    text = html.render(document_of("llama3-70b"))
    script = text.split("<script>")[1]
    assert text.count("<script") == 1 and not re.search(r"fetch|XMLHttp|import|https?:", script)
    told = text.replace("<body>", f"<body>{_ERRORS}").replace("</body>", f"{_ASKED}</body>")
    found = json.loads(titled(told, tmp_path, width=width).replace("&amp;", "&"))
    assert found["wrong"] == [] and found["away"] == "" and found["escaped"] == ""
    assert "what follows the pipeline" in found["step"][0] and " ms" in found["step"][0] and found["link"].startswith("#eq")
    assert found["row"] == "one step" and found["moved"] and "the pipeline (1f1b" in found["keys"]
    assert found["tapped"] == found["step"][0] and found["inside"]
    # the equation that is told is reached by keys, too
    assert found["entered"] and found["back"]
    assert found["asked"] > 200 and found["unknown"] == [] and found["width"] <= found["room"]


@pytest.mark.parametrize(("dispatcher", "said"), [("alltoall", "token-count messages"), ("allgather", "expert-parallel (etp and ep)")])
def test_messages_over_two_axes_are_said_by_what_they_are(dispatcher: str, said: str) -> None:
    strategy = f"tp=4,pp=4,ep=8,etp=1,sp=true,dp=8,num_microbatches=16,moe_token_dispatcher_type={dispatcher}"
    step = Step(symsim.derive("mixtral-8x7b", strategy, system="h100-sxm"))
    assert {p.of for p in step.parts if p.definition == "exposed_etp_ep"} == {said}


def test_pictures_have_a_form_for_phones_in_which_nothing_is_cut() -> None:
    parts = [p for s in document_of("deepseek-v3").sections for p in s.parts if isinstance(p, (Picture, Gauges))]
    assert len(parts) == 4
    for part in parts:
        drawn = picture.svg(part, picture.NARROW) if isinstance(part, Picture) else gauges.svg(part, picture.NARROW)
        root = ElementTree.fromstring(drawn)
        texts = [(float(t.get("x")), t.get("text-anchor", "start"), t.text) for t in root.iter("{http://www.w3.org/2000/svg}text")]
        assert root.get("aria-label") and all(0 <= x and (anchor == "end" or x + 6.6 * len(text) <= picture.NARROW) for x, anchor, text in texts)
    page = html.render(document_of("deepseek-v3"))
    assert page.count('<div class="narrow">') == page.count('<div class="wide">') == 5 and 'viewBox="0 0 350 ' in page


def test_a_lone_bar_says_its_shares_in_words() -> None:
    first = document_of("llama3-70b").sections[0]
    bar, room = (next(p for p in first.parts if getattr(p, "key", "") == key) for key in ("time", "room"))
    assert all(words.endswith(" %") for words in picture.said(bar).values())
    assert picture.said(bar)["optimizer"] in latex.render(document_of("llama3-70b")).replace("\\%", "%").replace("\\,", " ")
    assert all(words.endswith("iB") for words in gauges.said(room).values())


def test_other_choices_are_what_symsim_eval_says_of_them() -> None:
    """One at a time: options, twice the batch, and the largest micro-batch that fits, as 'symsim ask' finds it."""
    model, strategy, system = "mixtral-8x7b", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,global_batch_size=256", "h100-sxm"
    now = symsim.derive(model, strategy, system=system)
    (table,) = (p for s in report(now, True).sections for p in s.parts if isinstance(p, Table) and p.key == "choices")
    said = {"".join(s if isinstance(s, str) else s.text for s in as_spans(r.cells[0])): r.cells[1:] for r in table.rows}
    size = int(now.ask("largest b where memory.peak <= memory.capacity").to_json()["value"])
    options = ("fp8=delayed", "recompute=full", "vpp=8,overlap_p2p_comm=true", "tp_comm_overlap=true")
    others = {
        **{option: f"{strategy},{option}" for option in options},
        "twice the micro-batches, 64, and so twice the batch": strategy.replace("=256", "=512"),
        f"micro-batches of {size}, {32 // size} of them: the largest that fit": f"{strategy},micro_batch_size={size}",
        f"micro-batches of {2 * size}, {16 // size} of them": f"{strategy},micro_batch_size={2 * size}",
        "tp=1,sp=false,dp=16": strategy.replace("tp=2,sp=true", "tp=1").replace("dp=8", "dp=16"),
        **{f"tp={tp},dp={dp}": strategy.replace("tp=2", f"tp={tp}").replace("dp=8", f"dp={dp}") for tp, dp in ((4, 4), (8, 2))},
        **{f"pp={pp},dp={dp}": strategy.replace("pp=4", f"pp={pp}").replace("dp=8", f"dp={dp}") for pp, dp in ((2, 16), (8, 4))},
    }
    assert others.keys() < said.keys() and len(said) == len(others) + 1
    for words, other in others.items():
        result = symsim.derive(model, other, system=system)
        room = result.value("memory.capacity") - result.value("memory.peak")
        verdict = "too much" if room < 0 else "tight" if room < result.value("memory.reserve") else ""
        assert said[words][0] == plain(float(result.value("tokens_per_second"))), words
        assert said[words][2:] == (human(int(result.value("memory.peak")), BYTE), verdict), words
    rates = [float(str(cells[0]).replace("\u2009", "")) for cells in said.values()]
    assert rates == sorted(rates, reverse=True)


def test_other_degrees_keep_the_ranks_and_the_batch() -> None:
    """Where no batch is given, micro-batches are said with the degree, since ranks that a degree takes from data parallelism have more of them."""
    now = symsim.derive("llama3-8b", "tp=2,sp=true,dp=8,num_microbatches=6", system="h100-sxm")
    (table,) = (p for s in report(now, True).sections for p in s.parts if isinstance(p, Table) and p.key == "choices")
    tried = {code.text for row in table.rows for code in as_spans(row.cells[0]) if isinstance(code, Code) and "tp=" in code.text}
    assert tried == {f"tp={tp}{sp},dp={16 // tp},num_microbatches={3 * tp}" for tp, sp in ((1, ",sp=false"), (4, ""), (8, ""))}
    # of a kind of layer that has no sequence parallelism, and where no node holds as many
    alone = symsim.derive("llama3-8b", "tp=1,dp=2,num_microbatches=3", system="h100-sxm")
    (table,) = (p for s in report(alone, True).sections for p in s.parts if isinstance(p, Table) and p.key == "choices")
    assert [c.text for r in table.rows for c in as_spans(r.cells[0]) if isinstance(c, Code) and "tp=" in c.text] == [
        "tp=2,sp=true,dp=1,num_microbatches=6"
    ]


def test_what_a_report_says_is_understood_without_the_code() -> None:
    """Kinds that a strategy tells apart, modules that are no attention alone, the host's bytes, and verbs of one thing and of several."""
    tuned = markdown.render(report(symsim.derive("llama3-8b", "freeze_parameters=embedding+layers.0-23"), True))
    assert "`dense_lowest`: the lowest trained layer, whose input needs no gradient. `dense_frozen`: a frozen layer below all" in tuned
    hybrid = symsim.derive("nemotron-h-8b", "dp=2,tuner_type=lora", system="h100-sxm")
    said = markdown.render(report(hybrid, True))
    assert "attention + mamba" in said and "`mamba_lowest + dense + mamba + " in said
    assert "attention + mamba" in hybrid.table() and "attention +" not in symsim.derive("deepseek-v3", "dp=2").table()
    strategy = "dp=8,zero=3,fusion=eager,optimizer_cpu_offload=true,recompute=full"
    moved = markdown.render(report(symsim.derive("llama3-8b", strategy, system="h100-sxm"), True))
    assert "$`H^{(i)}`$ is what a rank keeps in its host's memory" in moved and "copies to and from the host" in moved
    system = hybrid.system
    one, several = (resources.faster(system, {name: -1.0}) for name in ("B_hbm", "Phi_bf16"))
    assert "HBM traffic shortens it by 1.000" in one and "matrix products shorten it by 1.000" in several
    assert [signed_percent(n) for n in (-0.0002, 0.0, 0.0004, -0.01)] == ["0.0\u2009%", "0.0\u2009%", "0.0\u2009%", "\u22121.0\u2009%"]


def test_what_would_help_can_be_had_by_a_percent() -> None:
    """Not the ranks that a node joins; and the longest symbol has its room."""
    plan = "tp=4,sp=true,dp=16,zero=3,num_microbatches=2,fusion=compile,recompute=full"
    result = symsim.derive("gemma-3-27b", plan, {"unit_ranks": "full"}, system="h100-sxm")
    (table,) = (p for s in report(result, True).sections for p in s.parts if isinstance(p, Table) and p.key == "helps")
    assert "R_1" in Step(result).elasticities and len(table.rows) == 5
    assert not [row for row in table.rows for span in as_spans(row.cells[0]) if isinstance(span, Math) and span.latex == "R_{1}"]
    symbols = [span.latex for row in table.rows for span in as_spans(row.cells[0]) if isinstance(span, Math)]
    assert 5.5 < max(measured(symbols)) < table.columns[0].share


def test_one_more_of_a_unit_is_what_a_difference_gives() -> None:
    """A gigabyte a second, a hundredth of a share: to three digits of the slope."""
    asked = ("mixtral-8x7b", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,global_batch_size=256")
    result = symsim.derive(*asked, system="h100-sxm")
    (table,) = (p for s in report(result, True).sections for p in s.parts if isinstance(p, Table) and p.key == "helps")
    rows = {str(row.cells[0]): (str(row.cells[2]), str(row.cells[4])) for row in table.rows}
    for text, name, now, unit in (("B_{2}", "B_2", 50.0, "GB/s"), ("HBM", "B_hbm", 3350.0, "GB/s"), (r"\Phi", "Phi_bf16", 989.4, "TFLOP/s")):
        ((value, found),) = (cells for symbol, cells in rows.items() if text in symbol and "eta" not in symbol)
        assert value == f"{now:.4g} {unit}"
        low, high = (symsim.derive(*asked, system="h100-sxm", overrides={name: f"{now + by!r} {unit}"}) for by in (-0.01, 0.01))
        number, size = re.fullmatch(r"\u2212([0-9.]+) (ms|us)", found).groups()
        slope = float(high.value("time.step") - low.value("time.step")) / 0.02
        assert -float(number) * {"ms": 1e-3, "us": 1e-6}[size] == pytest.approx(slope, rel=6e-3), name
    share = next(cells for symbol, cells in rows.items() if "eta" in symbol)
    assert share[0].endswith("\u2009%") and share[1].startswith("\u2212")
    assert front._once(["B_2 (between)", "share of it (between)", "B_1 (inside)", "B_hbm"]) == [
        "B_2 (between)",
        "share of it",
        "B_1 (inside)",
        "B_hbm",
    ]


@pytest.mark.parametrize("strategy", ["tp=4,pp=2", "tp=4,pp=2,micro_batch_size=64", "dp=8", "tp=8,tp_comm_halves=layer,micro_batch_size=2"])
def test_the_largest_micro_batch_is_what_symsim_ask_finds(strategy: str) -> None:
    """Where no batch is given: upwards, downwards from one that does not fit, none, and even ones alone."""
    step = Step(symsim.derive("llama3-8b", strategy, system="h100-sxm"))
    found = choices.largest(step, choices.sizes(step))
    asked = step.result.ask("largest b where memory.peak <= memory.capacity").to_json()["value"]
    assert (found.fits.result.strategy.micro_batch_size if found.fits else None) == asked
    assert found.beyond is not None and found.beyond.peak > step.capacity
    assert ("in the one micro-batch" in found.said) == (found.fits is not None and found.now != asked and step.result.strategy.microbatches == 1)


@pytest.mark.parametrize(
    ("strategy", "holds"),
    [
        ("pp=4,num_microbatches=8", r"m \ge p"),
        ("pp=4,num_microbatches=3", ""),
        ("pp=4,vpp=2,num_microbatches=8", r"m \ge p and m \ge \gamma"),
        ("pp=1,num_microbatches=8", ""),
    ],
)
def test_minima_are_decided_where_sizes_decide_them(strategy: str, holds: str) -> None:
    """To the same numbers, and the chapter says where its formulas hold."""
    step = Step(symsim.derive("llama3-8b", strategy, system="h100-sxm"))
    book, numbers = step.result.derivation.definitions, {**step.result.step_numbers, **step.stage(0)}
    found = {n: step.decided(book[n].expr) for n in ("t_pipeline", "alive_i") if n in book}
    assert any(pairs for _, pairs in found.values()) == bool(holds)
    for name, (expression, pairs) in found.items():
        assert (expression == book[name].expr) == (not pairs), name
        # of a few operations in another order
        assert math.isclose(expression.evaluate(numbers), numbers[name], rel_tol=1e-14), name
    (said,) = (s.parts[0].spans for s in report(step.result, True).sections if s.heading == "The pipeline")
    text = "".join(s if isinstance(s, str) else s.latex if isinstance(s, Math) else "" for s in said)
    assert (f"Formulas here and below are those of {holds}." in text) if holds else ("Formulas here" not in text)


def _binds(step: Step) -> tuple[Row, ...]:
    return front.binds(step, Ink(step.result), Totals(step.result)).rows


@pytest.mark.parametrize("model", CASES)
def test_messages_with_the_most_bytes_are_those_of_the_json(model: str) -> None:
    """Of a micro-batch and of a step, on the stage whose rank has most of all."""
    step = Step(symsim.derive(model, CASES[model][0], system=CASES[model][1]))
    (said,) = (as_spans(r.cells[1]) for r in _binds(step) if r.cells[0] == "its messages")
    text = "".join(s if isinstance(s, str) else "*" for s in said)
    sent, received = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for m in step.result.to_json()["messages"]:
        kind = (m["stage"], m["per"], m["phase"], m["op"], m["axis"])
        sent[kind] += m["count"] * m["send_bytes"]
        received[kind] += m["count"] * m["recv_bytes"]
    stages = Counter[str]()
    for kind in sent:
        stages[kind[0]] += sent[kind] + received[kind]
    for per in ("microbatch", "step"):
        most = max(max(sent[k], received[k]) for k in sent if k[:2] == (max(stages, key=lambda n: stages[n]), per))
        assert human(most, BYTE) in text, (per, text)


@pytest.mark.parametrize("model", [*CASES, "deepseek-v3-2048"])
def test_what_binds_is_what_moves_the_step(model: str) -> None:
    """Shares by resource are those of the whole step, and the first of them has the number that moves it most."""
    known = {**CASES, "deepseek-v3-2048": ("deepseek-v3-2048", "h800-sxm")}[model]
    step = Step(symsim.derive(model.removesuffix("-2048"), known[0], system=known[1]))
    found = {resources.words(step.system, of): share for of, share in resources.shares(step.elasticities).items()}
    assert math.isclose(math.fsum(found.values()), 1, rel_tol=1e-12)
    rates = {n: e for n, e in step.elasticities.items() if entry(n).unit in ("byte/s", "FLOP/s", "s")}
    most = max(rates, key=lambda n: abs(rates[n]))
    first, *_ = found
    said = {str(r.cells[0]): "".join(s if isinstance(s, str) else s.text for s in as_spans(r.cells[1])) for r in _binds(step)[:2]}
    assert resources.words(step.system, resources.resource_of(most)) == first and said["the step"].startswith(
        f"Faster by a percent, {first} shorten{'s' if first == 'the host' else ''} it by 0."
    )
    # DualPipe's exchange takes longer than the kernels beside it
    assert ("counted as kernels" in said["its time"]) == (model == "deepseek-v3-2048")
    assert model != "deepseek-v3-2048" or (most == "B_2" and "infiniband" in first)


def test_cuda_graphs_are_tried_where_kernels_wait_for_their_launches() -> None:
    """A layer at a time under te, as Megatron-Core has it; whole iterations otherwise; not where nothing waits."""
    asked = {
        "tp=4,sp=true,pp=2,num_microbatches=8,seq_length=2048": "cuda_graph_impl=local",
        "fusion=eager,num_microbatches=8,seq_length=512": "cuda_graph_impl=full_iteration",
        "tp=8,sp=true,pp=4,num_microbatches=8,seq_length=8192": "",
    }
    for strategy, option in asked.items():
        now = symsim.derive("llama3-8b", strategy, system="h100-sxm")
        (table,) = (p for s in report(now, True).sections for p in s.parts if isinstance(p, Table) and p.key == "choices")
        tried = {code.text: row.cells[1] for row in table.rows for code in as_spans(row.cells[0]) if isinstance(code, Code) and "graph" in code.text}
        assert list(tried) == [option] * bool(option)
        if option:
            assert tried[option] == plain(float(symsim.derive("llama3-8b", f"{strategy},{option}", system="h100-sxm").value("tokens_per_second")))
