"""The section of an HTML report that answers: its JavaScript gives what `symsim eval` gives, and refuses what it refuses.

A browser runs it; without one these tests skip, and what needs none is held without.
"""

from __future__ import annotations

import html
import json
import random
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from test_print import CHROMIUM, FLAGS

import symsim
from symsim.algebra.quantity import BYTE
from symsim.api.result import Result
from symsim.cost.step_time import check_system
from symsim.errors import InputError
from symsim.evaluation.beside import OF_RECOMPUTATION
from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import field_of
from symsim.grid.stored import shape
from symsim.inputs.settings import settings_of
from symsim.inputs.systems import load_system, override_system
from symsim.lowering.checks import check
from symsim.page.allowed import Rule, only_possible, rules_of
from symsim.page.inputs import Input, inputs_of
from symsim.page.live import live_section, quoted
from symsim.page.variants import Variants, variants
from symsim.program.javascript import javascript
from symsim.program.scalar import kernel_source
from symsim.program.together import together
from symsim.program.unrolled import Unrolled, unroll
from symsim.report import write_report
from symsim.report.amounts import human
from symsim.report.machine import tier_of
from symsim.report.step import Step

CASES = [
    ("llama3-8b", "", None),
    ("llama3-70b", "tp=8,sp=true,pp=4,vpp=2,dp=8,num_microbatches=16,recompute=full", "h100-sxm"),
    ("deepseek-v2-lite", "tp=2,sp=true,etp=1,ep=4,pp=3,dp=8,num_microbatches=8", "h800-sxm"),
    ("gemma-2-9b", "cp=2,cp_comm_type=a2a,pp=6,dp=4,num_microbatches=8,zero=1", "a100-sxm-80"),
]
DUALPIPE = ("deepseek-v3", "deepseek-v3-2048", "h800-sxm")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@cache
def result_of(case: tuple[str, str, str | None]) -> Result:
    return symsim.derive(case[0], case[1], system=case[2])


@cache
def unrolled_of(case: tuple[str, str, str | None]) -> Unrolled:
    return unroll(result_of(case), None)


def inputs_on(case: tuple[str, str, str | None]) -> list[Input]:
    return inputs_of(unrolled_of(case).arguments, result_of(case).system)


def refusal(inputs: list[Input], rules: list[Rule], values: dict[int, int]) -> str:
    """What a page says of whole numbers, by the position of their inputs."""
    for rule in rules:
        place = 0
        for k in rule.over:
            place = place * len(inputs[k].values) + inputs[k].values.index(values[k])
        if rule.broken[place]:
            return rule.sentences[rule.broken[place] - 1]
    return ""


def points_of(case: tuple[str, str, str | None], count: int) -> list[dict[str, float]]:
    """Values of all arguments: whole ones that a page offers and does not refuse, others within a factor of ten."""
    draw, found = random.Random(str(case)), []
    inputs = inputs_on(case)
    (rules,) = rules_of([result_of(case)], inputs)
    while len(found) < count:
        whole = {k: draw.choice(one.values) for k, one in enumerate(inputs) if one.values}
        if not refusal(inputs, rules, whole):
            rates = {one.name: float(one.base) * draw.uniform(0.1, 10) for one in inputs if not one.values and one.name != "memory"}
            found.append({**{inputs[k].name: float(v) for k, v in whole.items()}, **rates})
    return found


_NARROWEST = 500  # px of a browser's own window
_FRAMED = """<title></title><iframe id="page" style="border: 0; width: {width}px; height: 900px" src="page.html{address}"></iframe><script>
setInterval(() => {{ document.title = document.getElementById("page").contentDocument.title; }}, 50);</script>"""


def titled(page: str, folder: Path, address: str = "", width: int = 1200) -> str:
    """The title that a page has given itself when its scripts have run; one that is narrower than a window in a frame of its own."""
    file = folder / "page.html"
    file.write_text(page)
    if width < _NARROWEST:
        file, address = folder / "framed.html", html.escape(address)
        file.write_text(_FRAMED.format(width=width, address=address))
        address = ""
    sizes = [f"--window-size={max(width, _NARROWEST)},1000", "--virtual-time-budget=20000", "--allow-file-access-from-files"]
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={folder}/profile", *sizes, "--dump-dom", file.as_uri() + address]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return re.search(r"<title>(.*?)</title>", out, re.DOTALL)[1]


@needs_browser
def test_javascript_gives_what_python_gives_at_a_thousand_points(tmp_path: Path) -> None:
    scripts, expected = [], []
    for case in CASES:
        unrolled = unrolled_of(case)
        points = points_of(case, 250)
        space: dict[str, Any] = {}
        exec(kernel_source(unrolled), space)
        expected.append([space["kernel"](**point) for point in points])
        scripts.append(f"all.push((() => {{ {javascript(together([unrolled]))} return {quoted(points)}.map(kernel); }})());")
    page = f"<title></title><script>const all = [];\n{''.join(scripts)}\ndocument.title = JSON.stringify(all);</script>"
    found = json.loads(titled(page, tmp_path))
    assert sum(map(len, expected)) == 1000
    for case, here, there in zip(CASES, found, expected):
        for one, other in zip(here, there):
            assert one.keys() == other.keys()
            # what is a difference has the rounding of what it is a difference of
            whole = max(abs(v) for n, v in other.items() if n.startswith("time.")) if case[2] else 0
            for name, value in other.items():
                assert one[name] == pytest.approx(value, rel=1e-12, abs=1e-12 * whole if name.startswith("time.") else 0), (case, name)


@pytest.mark.parametrize("case", CASES[1:3], ids=lambda case: case[0])
def test_rules_of_the_page_are_those_of_eval(case: tuple[str, str, str]) -> None:
    result = result_of(case)
    inputs = inputs_on(case)
    (rules,) = rules_of([result], inputs)
    draw, refused = random.Random(3), 0
    moved = [k for k, one in enumerate(inputs) if one.values and one.group == "sizes"]
    for _ in range(60):
        values = {k: draw.choice(inputs[k].values) for k in moved}
        said = refusal(inputs, rules, values)
        changed = result.strategy.model_copy(update={field_of(inputs[k].name): v for k, v in values.items()})
        try:
            check(result.model, changed)
            check_system(result.system, changed)
        except InputError as error:
            assert str(error) == said
            refused += 1
            continue
        assert bool(said) == (shape(changed, result.model) != shape(result.strategy, result.model))
    assert 0 < refused < 60


_TOLD = """<script>
const wrong = [];
addEventListener("error", event => wrong.push(event.message));
</script>"""
_ASKED = """<script>
const named = [...document.querySelectorAll("#live input, #live button")].filter(e => !(e.getAttribute("aria-label") || e.textContent.trim()));
const slider = document.querySelector('#live input[aria-label^="B_2:"]');
const before = document.querySelector("#live-verdict").textContent, address = location.hash;
const binds = [...document.querySelectorAll("#live-binding tr")].map(row => row.innerText.split("\t"));
const furthest = document.querySelector("#live-furthest").textContent;
slider.value = 70; slider.dispatchEvent(new Event("input"));
requestAnimationFrame(() => requestAnimationFrame(() => {
  const after = document.querySelector("#live-verdict").textContent, then = location.hash, forget = document.querySelector("#live-forget");
  const width = document.documentElement.scrollWidth;
  forget.focus();
  forget.click();
  document.title = JSON.stringify({before, binds, furthest, after, address, then, wrong, unnamed: named.length, width,
    focused: document.activeElement.id});
}));
</script>"""


@needs_browser
def test_a_page_answers_from_its_address_and_by_its_sliders(tmp_path: Path) -> None:
    case = CASES[1]
    write_report(result_of(case), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert len(text) < 1_500_000 and not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    told = text.replace("<body>", f"<body>{_TOLD}").replace("</body>", f"{_ASKED}</body>")
    there = symsim.derive(*case[:2], system=case[2], overrides={"b": 2})
    # between the peak and the peak with its reserve, which the report calls tight, too
    tight = round(there.value("memory.peak") + there.value("memory.reserve") / 2)
    address = f"#b=2&memory={tight}&kept=1"
    found = json.loads(titled(told, tmp_path, address, 380).replace("&amp;", "&"))
    assert found["wrong"] == [] and found["unnamed"] == 0 and found["width"] <= 380
    # the button that forgets what is kept hides, and hands the focus on
    assert found["focused"] == "live-keep"
    assert "it fits, tight" in found["before"]
    shares = {row[0]: float(row[2].replace("\u2212", "-").removesuffix(" %")) for row in found["binds"]}
    most = sorted(((abs(share), name) for name, share in Step(there).elasticities.items() if tier_of(name) or "_" in name), reverse=True)
    assert list(shares) == [name for _, name in most[:3]] and list(shares.values()) == pytest.approx([-share for share, _ in most[:3]], rel=0.02)
    assert found["furthest"].endswith("all else as set: no value of b; no value of s.")
    assert found["before"].startswith(f"One step takes {float(there.value('time.step')):.4g}".rstrip("0"))
    assert f" on {there.value('world')} ranks: " in found["before"]
    assert found["address"] == address and found["after"] != found["before"]
    assert re.fullmatch(rf"#b=2&B_2=\d+(\.\d+)?&memory={tight}&kept=1", found["then"])


_BEHIND = """<script>
for (const folded of document.querySelectorAll("#live details")) folded.open = true;
const verdict = document.querySelector("#live-verdict"), controls = [...document.querySelectorAll("#live input, #live select")], behind = [];
controls.at(-1).scrollIntoView();
for (const one of controls.reverse()) {
  one.scrollIntoView({block: "nearest"});
  if (one.getBoundingClientRect().top < verdict.getBoundingClientRect().bottom) behind.push(one.id);
}
document.title = JSON.stringify([controls.length, behind]);
</script>"""


@pytest.mark.long
@needs_browser
def test_what_stays_in_sight_covers_no_control(tmp_path: Path) -> None:
    """Of 97 stops of Tab backwards 11 stood behind the verdict, on a phone 32."""
    write_report(result_of(CASES[1]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text().replace("</body>", f"{_BEHIND}</body>")
    for width in (1200, 380):
        count, behind = json.loads(titled(text, tmp_path, width=width))
        assert count > 60 and behind == []


_CUT = """<script>
const labels = [...document.querySelectorAll("#live label")];
for (const folded of document.querySelectorAll("#live details")) folded.open = true;
const cut = labels.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent);
document.title = JSON.stringify([labels.length, cut, document.documentElement.scrollWidth, document.querySelector("#live-verdict").textContent]);
</script>"""


@pytest.mark.long
@needs_browser
def test_labels_are_whole_and_ties_are_rounded_as_in_the_report(tmp_path: Path) -> None:
    """On a phone, too; and 13.625 GiB are 13.62, as Python writes it."""
    write_report(result_of(CASES[1]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text().replace("</body>", f"{_CUT}</body>")
    for size in (13.625, 13.375, 40.5):
        memory = round(size * 2**30)
        count, cut, width, verdict = json.loads(titled(text, tmp_path, f"#memory={memory}", 380).replace("&amp;", "&"))
        assert count > 30 and cut == [] and width <= 380
        assert f" of {human(memory, BYTE)}, " in verdict


def test_what_tells_formulas_apart_is_said() -> None:
    """Experts of one rank each way of data parallelism have no messages of gradients, which those of several have."""
    there = symsim.derive("mixtral-8x7b", "tp=2,sp=true,ep=4,dp=4,tuner_type=lora,num_microbatches=4", system="h100-sxm")
    inputs = inputs_of(unroll(there, None).arguments, there.system)
    (rules,) = rules_of([there], inputs)
    base = {k: one.values[one.values.index(int(one.base))] for k, one in enumerate(inputs) if one.values}
    said = refusal(inputs, rules, base | {k: 16 for k, one in enumerate(inputs) if one.name == "dp"})
    assert "experts with data-parallel ranks of their own, edp above 1, have messages that others have not" in said
    assert "expert_dp" not in "".join(sentence for rule in rules for sentence in rule.sentences)


def test_lora_is_said_of_all_parameters(tmp_path: Path) -> None:
    """Adapters of all experts are trained, not of those that one token uses."""
    there = symsim.derive("mixtral-8x7b", "tp=2,sp=true,ep=4,dp=4,tuner_type=lora,num_microbatches=4", system="h100-sxm")
    write_report(there, tmp_path / "report.md")
    assert "B parameters, of which a token uses 12.91 B and 109.6 M are trained." in " ".join((tmp_path / "report.md").read_text().split())


@needs_browser
def test_a_step_of_a_count_of_tiles_is_no_change_for_a_percent(tmp_path: Path) -> None:
    """Rows of experts that fill their tiles: a hundredth of a percent more load takes one more tile of each."""
    there = symsim.derive("mixtral-8x7b", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,global_batch_size=256", system="h100-sxm")
    write_report(there, tmp_path / "report.html")
    told = (tmp_path / "report.html").read_text().replace("<body>", f"<body>{_TOLD}").replace("</body>", f"{_ASKED}</body>")
    found = json.loads(titled(told, tmp_path).replace("&amp;", "&"))
    shares = {row[0]: float(row[2].replace("\u2212", "-").removesuffix(" %")) for row in found["binds"]}
    known = Step(there).elasticities
    assert len(shares) == 3 and shares == pytest.approx({name: known[name] for name in shares}, rel=0.02)


def chosen(beside: Variants) -> Iterator[tuple[dict[str, str], dict[str, Any], Evaluation | str]]:
    """Of every combination of what a page offers the labels, the options, and what is made of it."""
    values = product(*([(choice.name, said, options) for said, options in choice.values] for choice in beside.choices))
    for found, made in zip(values, beside.made, strict=True):
        yield {name: said for name, said, _ in found}, {n: v for _, _, options in found for n, v in options.items()}, made


@pytest.mark.long_after(1)
@needs_browser
@pytest.mark.parametrize("case", [*CASES[1:3], DUALPIPE], ids=lambda case: case[0])
def test_other_choices_of_a_page_are_what_eval_gives(case: tuple[str, str, str], tmp_path: Path) -> None:
    """Every pipeline, recomputation, FP8 or none, and sequence parallelism or none; at sizes that the rules of each allow."""
    result, asked = result_of(case), ("time.step", "mfu", "memory.peak", "memory.activations", "params.per_rank", "flops.recompute", "world")
    beside, inputs, draw = variants(result), inputs_on(case), random.Random(5)
    rules = rules_of(beside.derived, inputs)
    points, expected, seen = [], [], set()
    for _, options, made in chosen(beside):
        if isinstance(made, str):
            continue
        place = len(seen)
        seen.add(tuple(sorted(options.items())))
        for _ in range(80):
            whole = {k: draw.choice(one.values) for k, one in enumerate(inputs) if one.values and not one.name.startswith("R_")}
            ranks = {k: int(one.base) for k, one in enumerate(inputs) if one.name.startswith("R_")}
            if not refusal(inputs, rules[place], {**whole, **ranks}):
                moved = {inputs[k].name: v for k, v in whole.items()}
                given = {n: getattr(result.strategy, n) for n in result.strategy.model_fields_set}
                kept = {n: v for n, v in given.items() if not ("recompute" in options and n in OF_RECOMPUTATION)}
                there = symsim.derive(case[0], {**kept, **options, "global_batch_size": None}, system=case[2], overrides={**moved, "B_2": "31 GB/s"})
                points.append((place, {**moved, "B_2": 31e9}))
                expected.append([float(there.value(name)) for name in asked])
                break
    assert len({place for place, _ in points}) == len(beside.derived) == len(seen) > 3
    page = f"<title></title><script>{javascript(together([unroll(one, None, asked) for one in beside.derived]))}"
    page += f"document.title = JSON.stringify({quoted(points)}.map(([k, at]) => kernel(at, k)));</script>"
    for point, here, there in zip(points, json.loads(titled(page, tmp_path)), expected, strict=True):
        assert [here[name] for name in asked] == pytest.approx(there, rel=1e-9), point


_TOLD_VERDICTS = """<script>
const addresses = ADDRESSES, said = [];
const next = () => {
  said.push(document.querySelector("#live-verdict").textContent);
  if (said.length > addresses.length) document.title = JSON.stringify(said);
  else location.hash = addresses[said.length - 1];
};
addEventListener("hashchange", next);
next();
</script></body>"""


@pytest.mark.long_after(1)
@needs_browser
@pytest.mark.parametrize("case", [*CASES[1:3], DUALPIPE], ids=lambda case: case[0])
def test_a_page_moves_its_pipeline_and_what_runs_again(case: tuple[str, str, str], tmp_path: Path) -> None:
    """By menus, whose places stand in the address."""
    write_report(result_of(case), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert len(text) < 1_500_000
    beside = variants(result_of(case))
    menus = {choice.name: [label for label, _ in choice.values] for choice in beside.choices}
    tried = list(chosen(beside))[:: 1 if case is DUALPIPE else 3]
    addresses, expected = [], []
    for said, _, made in tried:
        assert all(f">{label}</option>" in text for label in said.values())
        addresses.append("&".join(f"{name}={menus[name].index(label)}" for name, label in said.items()))
        step = float(made.value("time.step")) if not isinstance(made, str) else 0.0
        expected.append(f"Cannot run: {made}." if not step else f"One step takes {f'{step:.4g} s' if step >= 1 else f'{1e3 * step:.4g} ms'}")
    # the first as the page is opened, the others as its address changes
    told = text.replace("</body>", _TOLD_VERDICTS.replace("ADDRESSES", json.dumps(addresses[1:])))
    verdicts = json.loads(html.unescape(titled(told, tmp_path, f"#{addresses[0]}")))
    assert len(verdicts) == len(tried) > 3
    for (said, _, _), verdict, start in zip(tried, verdicts, expected, strict=True):
        assert verdict.startswith(start), said


def test_what_cannot_run_is_not_offered() -> None:
    """Experts under tp need sequence parallelism, DualPipe's hidden exchanges no recomputed layers, and tp of 1 splits nothing along a sequence."""
    offered = {case[0]: {c.name: [said for said, _ in c.values] for c in variants(result_of(case)).choices} for case in (*CASES, DUALPIPE)}
    assert offered["llama3-8b"] == {"recompute": ["none", "selective, core_attn", "full"], "fp8": ["none", "delayed"]}
    assert offered["llama3-70b"]["recompute"] == ["full", "none", "selective, core_attn"] and offered["llama3-70b"]["sp"] == ["on", "off"]
    assert offered["deepseek-v2-lite"].keys() == {"pipeline", "recompute", "fp8"}
    # an A100 has no rate for it
    assert offered["gemma-2-9b"].keys() == {"pipeline", "recompute"}
    assert offered["deepseek-v3"] == {
        "pipeline": ["pp = 16, vpp = 1", "pp = 8, vpp = 1", "pp = 32, vpp = 1"],
        "recompute": ["selective, layernorm+mla_up_proj+moe_act", "none"],
        "fp8": ["blockwise", "none"],
    }


_ENDS = """<script>
const odd = [], sliders = [...document.querySelectorAll("#live input[type=range]")], reset = document.querySelector("#live-reset");
const set = (input, value) => { input.value = value; input.dispatchEvent(new Event("input")); };
for (const slider of sliders) for (const end of ["min", "max"]) {
  reset.click();
  set(slider, slider[end]);
  const text = ["verdict", "pictures", "results"].map(id => document.querySelector("#live-" + id).innerHTML).join();
  if (/NaN|Infinity|undefined|none(?!")/.test(text)) odd.push(slider.getAttribute("aria-label") + " " + slider.value);
}
reset.click();
const furthest = document.querySelector("#live-furthest").textContent, taken = {};
for (const input of document.querySelectorAll("#live input[type=number]")) for (const text of ["0", "0.25", "1.5", "6", "1e40"]) {
  reset.click();
  set(input, text);
  const [name, unit] = input.getAttribute("aria-label").split(" in "), there = document.querySelector("#live-verdict").textContent;
  (taken[name] ??= [unit ?? "", []])[1].push(input.getAttribute("aria-invalid") !== "true" && !there.startsWith("Cannot run"));
}
document.title = JSON.stringify({odd, wrong, furthest, sliders: sliders.length, taken});
</script>"""
_TYPED = ("0", "0.25", "1.5", "6", "1e40")
_AT_ONCE = "<script>window.requestAnimationFrame = done => done();</script>"


@pytest.mark.long
@needs_browser
def test_sliders_at_their_ends_give_numbers(tmp_path: Path) -> None:
    """And what is typed is taken only where eval takes it."""
    write_report(result_of(CASES[2]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    found = json.loads(titled(text.replace("<body>", f"<body>{_TOLD}{_AT_ONCE}").replace("</body>", f"{_ENDS}</body>"), tmp_path))
    assert found["sliders"] > 30 and found["odd"] == [] and found["wrong"] == []
    sizes = {name: int(size.replace("\u2009", "")) for name, size in re.findall(r"(b|s) = ([0-9\u2009]+)", found["furthest"])}
    room = result_of(CASES[2]).value("memory.capacity")
    for name, size in sizes.items():
        tried = [symsim.derive(*CASES[2][:2], system=CASES[2][2], overrides={name: size * times}) for times in (1, 2)]
        assert [one.value("memory.peak") + one.value("memory.reserve") <= room for one in tried] == [True, False], name
    assert sizes.keys() == {"b", "s"}
    assert len(found["taken"]) > 30 and "n_sm" not in found["taken"]
    for name, (unit, taken) in found["taken"].items():
        asked = [f"{text} {unit}".strip().replace("\u00b5", "u") for text in _TYPED]
        allowed = [evaluates(CASES[2], name, text) for text in asked]
        assert [(text, page) for text, page, eval_ in zip(asked, taken, allowed) if page and not eval_] == [], name
        # a share may be 0 in some files, and exceed 1 in others
        assert sum(taken) >= sum(allowed) - 2, name


def evaluates(case: tuple[str, str, str | None], name: str, text: str) -> bool:
    """Whether eval takes a number as it is typed."""
    try:
        if name == "lam":
            symsim.derive(*case[:2], system=case[2], overrides={name: float(text)})
        elif name == "memory":
            override_system(load_system(case[2]), {("accelerator", "memory"): text})
        else:
            override_system(load_system(case[2]), settings_of({name: text}).system)
    except InputError:
        return False
    return True


def test_tiers_of_a_page_fit_around_one_another_as_eval_asks() -> None:
    """A socket of more ranks than half of its node is refused where each alone can be moved."""
    there = symsim.derive("llama2-13b", "dp=16,zero=2,num_microbatches=2", system="a100-pcie-80")
    inputs = inputs_of(unroll(there, None).arguments, there.system)
    (rules,) = rules_of([there], inputs)
    base = {k: int(one.base) for k, one in enumerate(inputs) if one.values}
    first, second = (next(k for k in base if inputs[k].name == name) for name in ("R_1", "R_2"))
    refused = 0
    for inner, outer in product(inputs[first].values, inputs[second].values):
        said = refusal(inputs, rules, base | {first: inner, second: outer})
        try:
            symsim.derive("llama2-13b", there.strategy, system="a100-pcie-80", overrides={"R_1": inner, "R_2": outer})
            assert said == ""
        except InputError as error:
            refused += 1
            assert said and said in str(error)
    assert 0 < refused < len(inputs[first].values) * len(inputs[second].values)


def test_both_levels_of_context_parallelism_keep_to_the_rules_of_eval() -> None:
    """Heads are split over the ranks of the inner one."""
    given = "tp=4,sp=true,cp=4,pp=4,seq_length=65536,num_microbatches=4,cp_comm_type=a2a+p2p,hierarchical_context_parallel_sizes=2+2"
    there = symsim.derive("qwen2.5-72b", given, system="gb200-nvl72")
    inputs = inputs_of(unroll(there, None).arguments, there.system)
    (rules,) = rules_of([there], inputs)
    base = {k: int(one.base) for k, one in enumerate(inputs) if one.values}
    inner, outer = (next(k for k in base if inputs[k].name == name) for name in ("cp_a2a", "cp_p2p"))
    refused = 0
    for a, p in product(inputs[inner].values, inputs[outer].values):
        said = refusal(inputs, rules, base | {inner: a, outer: p})
        try:
            check(there.model, there.strategy.model_copy(update={"cp": a * p, "hierarchical_context_parallel_sizes": (a, p)}))
            assert said == ""
        except InputError as error:
            refused += 1
            assert said == str(error)
    assert 0 < refused < len(inputs[inner].values) * len(inputs[outer].values)


def test_values_that_nothing_allows_are_not_offered() -> None:
    inputs = inputs_on(CASES[1])
    left = {one.name: one.values for one in only_possible(inputs, rules_of([result_of(CASES[1])], inputs)[0])}
    # 8 key-value heads, beyond which the formulas are others; a multiple of 4 stages
    assert max({one.name: one.values for one in inputs}["m"]) == max(left["m"])
    units = {one.name: one.values for one in inputs if one.name.startswith("R_")}
    assert units and all(evaluates(CASES[1], name, str(ranks)) for name, several in units.items() for ranks in several)
    assert left["tp"] == (2, 4, 8) and all(m % 4 == 0 for m in left["m"])


def test_a_narrow_rate_is_shown_as_a_setting_takes_it() -> None:
    """Of an H100's FP8 rate, of which products reach a share, the data sheet's."""
    beside = variants(result_of(CASES[1]))
    made = together([unroll(one, None, ["time.step"]) for one in beside.derived])
    (rate,) = (one for one in inputs_of(made.arguments, result_of(CASES[1]).system) if one.name == "Phi_fp8")
    assert rate.base / rate.scale == pytest.approx(1978.9) and rate.base < 1.7e15


def test_no_text_of_a_user_ends_the_script() -> None:
    assert quoted("</script><!--\u2028") == '"\\u003c/script>\\u003c!--\\u2028"'
    assert "</script" not in str(live_section(result_of(CASES[0]))).split("<script>")[1].rsplit("</script>", 1)[0]
