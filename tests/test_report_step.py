"""Reports with a system: the step, its kernels, the pipeline, memory and the roofline, in text and in all five formats."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from test_report import expanded, undefined

from symsim import derive as derive_named
from symsim.algebra.expr import Expr, ceil, maximum, symbol
from symsim.algebra.quantity import BYTE
from symsim.algebra.typeset import _printer, names_of, width
from symsim.api.result import Result, derive
from symsim.cost.memory import binding_moment, moments
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.system import quantities
from symsim.inputs.systems import load_system, override_system
from symsim.pipeline.orders import order
from symsim.report import SUFFIXES, gauges, html, plot, render_markdown, timeline_tex, write_report
from symsim.report.amounts import human, percent, rate, seconds
from symsim.report.assumed import OF_A_SYSTEM
from symsim.report.content import report
from symsim.report.document import Code, Equations, Gauges, Point, Report, Roofline, Table, Timeline, as_spans
from symsim.report.ink import LINE, Ink
from symsim.report.kernels import BOUNDS, block_kernels, bounds, often, stage_kernels
from symsim.report.machine import symbol_of, title
from symsim.report.memory import bars
from symsim.report.pipeline import in_flight
from symsim.report.pipeline import picture as pipeline_picture
from symsim.report.roofline import picture as roofline_picture
from symsim.report.step import MEMORY_PARTS, Step, tags
from symsim.report.text import eval_table

CASES = {
    "dense": ("llama3-70b", "tp=8,pp=4,sp=true,dp=2,num_microbatches=8", "h100-sxm"),
    "moe": ("deepseek-v3", "tp=2,cp=2,pp=8,vpp=2,ep=8,dp=8,sp=true,num_microbatches=32,recompute=full", "b200-sxm"),
    "fsdp": ("llama3-8b", "zero=3,dp=64,num_microbatches=2", "a100-sxm-80"),
    "fp8": ("qwen3-235b-a22b", "tp=4,pp=4,ep=8,etp=1,sp=true,num_microbatches=16,fp8=blockwise,dp=8", "h100-sxm"),
    "window": ("gemma-3-12b", "tp=8,sp=true,seq_length=32768,recompute=full", "h100-sxm"),
    "chunk": ("llama4-scout", "tp=8,sp=true,seq_length=65536", "h100-sxm"),
    "eager": ("gpt2", "fusion=eager,dp=2,seq_length=1024", "mi300x"),
    "partial": (
        "llama3-8b",
        "tp=2,sp=true,pp=4,num_microbatches=8,recompute=full,recompute_method=block,recompute_num_layers=3,"
        "num_microbatches_with_partial_activation_checkpoints=1",
        "h100-sxm",
    ),
    "deferred": ("llama3-8b", "tp=2,sp=true,pp=4,num_microbatches=8,defer_embedding_wgrad_compute=true,wgrad_deferral_limit=3", "h100-sxm"),
    "too_large": ("llama3-70b", "tp=2,pp=2,num_microbatches=8", "h100-sxm"),
}
_made: dict[str, Result] = {}


def made(case: str) -> Result:
    if case not in _made:
        model, strategy, system = CASES[case]
        _made[case] = derive(load_model(model).architecture, load_strategy(strategy, {}), system=load_system(system, {}))
    return _made[case]


@cache
def document(case: str) -> Report:
    return report(made(case))


def step(case: str) -> Step:
    return Step(made(case))


def parts(case: str, kind: type) -> list:
    return [p for s in document(case).sections for p in s.parts if isinstance(p, kind)]


# numbers


@pytest.mark.parametrize("case", CASES)
def test_kernels_messages_and_launches_add_up_to_every_stage(case: str) -> None:
    found = step(case)
    for n, numbers in enumerate(map(found.stage, range(found.depth))):
        waiting = float(numbers["t_stage"]) - sum(k.total for k in stage_kernels(found.result, n, found.block_kernels)) - found.exposed(n)
        assert waiting >= -1e-12
        if found.result.system is not None and not found.result.values["t_launch"]:
            assert waiting == pytest.approx(0, abs=1e-9 * float(numbers["t_stage"]))


@pytest.mark.parametrize("case", CASES)
def test_blocks_and_parts_add_up(case: str) -> None:
    found = step(case)
    for numbers in map(found.stage, range(found.depth)):
        spent = found.blocks(numbers)
        # only parameters that are gathered or scattered for the whole stage belong to no block
        whole = sum(float(numbers[n]) for n in numbers if re.fullmatch(r"e_[fb]_(fsdp|zero2)_stage", n))
        assert spent[""] == pytest.approx(whole, abs=1e-12)
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.number("t_step"), rel=1e-12)
    assert sum(p.share for p in found.parts) == pytest.approx(1)
    time = found.result.to_json()["time"]
    waits = [time["launching"]] if "launching" in time else []
    said = sorted([time["compute"] - sum(waits), *waits, time["bubble"], time["optimizer"], *time["exposed"].values()])
    assert sorted(p.seconds for p in found.parts) == pytest.approx(said, abs=1e-12 * time["step"])


def test_calls_of_micro_batches_of_which_some_run_nothing_again() -> None:
    """Stage 0 holds 4 micro-batches, of which 1 keeps all: 3 of its 8 layers run again for 3 of 4."""
    found = step("partial")
    again = {k.operation: often(k) for k in stage_kernels(found.result, 0, found.block_kernels) if (k.block, k.phase) == ("dense", "forward")}
    assert again["mlp.gate_up"] == "10.25"


@pytest.mark.parametrize("case", CASES)
def test_no_kernel_beats_the_machine(case: str) -> None:
    """And the alone-times that name a kernel's bound do not exceed its seconds."""
    found = step(case)
    bandwidth = float(found.result.values["B_hbm"])
    for kernel in found.kernels:
        assert 0 < kernel.flops_per_second <= kernel.peak or kernel.flops == 0
        assert kernel.bytes_per_second <= bandwidth
        alone = bounds(found.result.derivation.definitions[kernel.definition].expr, found.result.numbers)
        assert set(alone) == set(BOUNDS) and max(alone.values()) <= kernel.seconds
        assert kernel.bound == max(alone, key=lambda b: alone[b])


def test_attention_works_through_its_own_document() -> None:
    """A row of eight documents is no faster than the machine: its kernel was charged for the keys of the row."""
    found = Step(derive_named("llama3-8b", "dp=2,packed_document_length=1024,seq_length=8192", system="h100-sxm"))
    cores = {k.phase: k for k in found.kernels if k.operation == "attention.core"}
    assert cores["forward"].flops == 4 * 8192 * 4096 * 1024 / 2
    assert all(k.flops_per_second <= k.peak for k in cores.values())


def test_bounds_by_hand() -> None:
    formula = maximum(symbol("work") / symbol("Phi_bf16"), symbol("bytes") / symbol("B_hbm")) + symbol("t_gemm")
    numbers = {"Phi_bf16": 1e12, "B_hbm": 1e9, "work": 3e12, "bytes": 2e9, "t_gemm": 0.5}
    assert bounds(formula, numbers) == {"compute": 3.0, "memory": 2.0, "latency": 0.5}
    tiles = ceil(symbol("rows") / 128) * symbol("t_mem")
    assert bounds(tiles, {"rows": 129, "t_mem": 1.0, "B_hbm": 1.0}) == {"compute": 0.0, "memory": 0.0, "latency": 2.0}


def test_a_products_bytes_and_flops_by_hand() -> None:
    """gpt2's output projection: 1024 x 768 x 768 in bf16."""
    kernels = {k.phase: k for k in block_kernels(made("eager"), "dense") if k.operation == "attention.o_proj"}
    size, tokens = 768, 1024
    assert kernels["forward"].flops == 2 * tokens * size * size
    assert kernels["forward"].bytes == 2 * (2 * tokens * size + size * size + size)  # and the bias
    assert kernels["forward"].intensity == pytest.approx(tokens * size / (2 * tokens + size + 1))


def test_attention_counts_half_the_pairs_whatever_is_charged() -> None:
    model, strategy, system = CASES["dense"]
    half = derive(load_model(model).architecture, load_strategy(strategy, {}), {"causal": "half"}, system=load_system(system, {}))
    for result in (made("dense"), half):
        (core,) = (k for k in block_kernels(result, "dense") if k.operation == "attention.core" and k.phase == "forward")
        assert core.flops == 2 * 2 * 64 // 8 * 128 * 4096 * 4096 / 2


@pytest.mark.parametrize("case", CASES)
def test_memory_at_the_peak_adds_up(case: str) -> None:
    found = step(case)
    for n, numbers in enumerate(map(found.stage, range(found.depth))):
        assert abs(sum(found.memory(n).values()) - found.peak(n)) <= len(MEMORY_PARTS)
        binding = binding_moment(found.result.derivation, numbers)
        assert found.moment(n) == binding.meaning and numbers[binding.symbol] == max(numbers[d.symbol] for d in moments(found.result.derivation))
    memory = found.result.to_json()["memory"]
    assert memory["peak"] == found.peak(found.fullest) == memory["stages"][found.fullest]["peak"]


def test_what_is_not_there_at_the_peak_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"peak": 100, "weights": 40, "gradients": 30, "optimizer": 40, "activations": 50, "transient": 0}
    found = step("dense")
    monkeypatch.setattr(found, "stage", lambda n: {f"M_stage_{part}": amount for part, amount in at.items()})
    assert found.memory(0) == {"weights": 40, "gradients": 0, "optimizer": 40, "activations": 25, "transient": 0}


def test_verdict() -> None:
    assert step("dense").fits and re.fullmatch(r"fits, [\d.]+ GiB \(\d+ %\) to spare", step("dense").verdict)
    found = step("too_large")
    over = found.peak(found.fullest) - found.capacity
    assert not found.fits and over > 0
    assert found.verdict == f"does not fit: {human(over, BYTE)} ({100 * over / found.capacity:.0f} %) too much on stages 0\u20131"


def test_slowest_stage_is_explained() -> None:
    found = step("dense")
    assert found.slowest == 3 and found.why_slowest.startswith("Stage 3 is the slowest: ") and "the output head and loss" in found.why_slowest
    assert step("fsdp").why_slowest == f"One stage: {seconds(found_stage('fsdp'))} a micro-batch."


def found_stage(case: str) -> float:
    return float(step(case).stage(0)["t_stage"])


# eval


@pytest.mark.parametrize("case", CASES)
def test_eval_says_what_the_result_holds(case: str) -> None:
    found, text = step(case), eval_table(made(case))
    flat = " ".join(text.split())
    assert text.isascii() and all(len(line) <= 80 for line in text.splitlines())
    numbers = found.result.step_numbers
    assert text.index("\nStep\n") < text.index("Where the time of a step goes") < text.index("Model, one micro-batch")
    assert f"one step takes {seconds(numbers['t_step'])} " in flat
    assert f"tokens a second {found.number('tokens_per_second'):,.0f} " in flat
    assert f"MFU {100 * found.number('mfu'):.1f} %" in flat and f"HFU {100 * found.number('hfu'):.1f} %" in flat
    assert f"peak memory {human(found.peak(found.fullest), BYTE)} of {human(found.capacity, BYTE)}" in flat
    assert found.verdict.replace("\u2013", "-") in flat
    for part in found.parts:
        assert not part.seconds or f"{part.name} {seconds(part.seconds)} {100 * part.share:.1f} %" in flat
    for kernel in found.kernels[:10]:
        assert f"{kernel.calls} {seconds(kernel.total)} " in flat
    for known, count in tags(found.system).items():
        assert f"{count} {known}" in flat


def test_cost_and_energy_are_shown_where_the_result_has_them() -> None:
    result = made("dense")
    assert all(name in eval_table(result) or name not in result.step_numbers for name in ("cost", "energy"))
    result.step_numbers.update({"cost_per_trillion_tokens": 1234567.0, "energy_per_trillion_tokens": 3456.7})
    try:
        flat = " ".join(eval_table(result).split())
        assert "1,235,000 USD a trillion tokens" in flat and "3,457 MWh a trillion tokens" in flat
        assert "1234567" in render_markdown(result).replace("\u2009", "")
    finally:
        del result.__dict__["step_numbers"]


def test_a_bar_is_as_long_as_its_share() -> None:
    lines = [line for line in eval_table(made("dense")).splitlines() if line.endswith("#")]
    strokes = {line.split("  ")[1]: len(line) - len(line.rstrip("#")) for line in lines}
    shares = {p.name: p.share for p in step("dense").parts}
    most = max(shares.values())
    for name, share in shares.items():
        if share:
            assert strokes[name] == max(1, round(20 * share / most))


# the report


@pytest.mark.long_after(3)
@pytest.mark.parametrize("case", CASES)
def test_chapters(case: str) -> None:
    headings = [s.heading for s in document(case).sections if s.level == 1]
    assert headings == [
        *("The answer", "The step", "The pipeline", "A stage", "Memory", "The model", "Blocks", "Kernels"),
        *("The machine", "Assumptions", "Notation", "Sources"),
    ]
    assert len(parts(case, Gauges)) == 2 and len(parts(case, Roofline)) == 1
    assert len(parts(case, Timeline)) == int(made(case).strategy.pp > 1)


def test_without_a_system_nothing_of_it_is_shown() -> None:
    result = made("dense")
    plain = derive(result.model, result.strategy)
    document = report(plain)
    assert not {"The step", "The pipeline", "Memory", "Kernels", "The machine"} & {s.heading for s in document.sections}
    assert not any(isinstance(p, (Gauges, Roofline, Timeline)) for s in document.sections for p in s.parts)
    text = eval_table(plain) + render_markdown(plain)
    assert not any(name in text for name in OF_A_SYSTEM - {"memory", "network"})
    changed = derive(result.model, result.strategy, {"memory": "reserved"})
    assert "memory=reserved" in eval_table(changed)


@pytest.mark.parametrize("case", CASES)
def test_every_symbol_is_defined(case: str) -> None:
    assert undefined(document(case)) == set()


@pytest.mark.parametrize("case", CASES)
def test_formulas_fit_their_line_and_a_section_a_page(case: str) -> None:
    for section in document(case).sections:
        lines = [(e, line) for p in section.parts if isinstance(p, Equations) for e in p.equations for line in e.lines]
        assert len(lines) <= 50, section.heading
        for equation, line in lines:
            assert width(equation.left) + width("=") + width(line) <= LINE, line


@pytest.mark.long
def test_maxima_over_many_kinds_fit_their_line() -> None:
    """Nine moments of four kinds of layers, on paper beside the number of the equation."""
    found = report(derive_named("gemma-3n-e4b", "fusion=eager,zero=3,dp=8,recompute=full", system="h100-sxm"))
    equations = [e for s in found.sections for p in s.parts if isinstance(p, Equations) for e in p.equations]
    over = [e for e in equations if any(r"\max_{k" in line for line in e.lines)]
    assert len(over) >= 3
    for equation in over:
        for line in equation.lines:
            assert width(equation.left) + width("=") + width(line) <= LINE, line


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_is_the_formula(case: str) -> None:
    book = made(case).derivation.definitions.values()
    printer = _printer(names_of(book), True)
    for definition in book:
        if definition.expr:
            assert expanded(printer.arranged(definition.expr)) == definition.expr, definition.symbol


def test_long_maxima_are_taken_apart_without_loss() -> None:
    result = made("moe")
    ink = Ink(result)
    inner = [symbol("b") * symbol("s") * symbol("h") * n + symbol("L_moe_i") * symbol("V") * symbol("f_e") for n in (2, 3, 4, 5)]
    whole = 3 * maximum(*inner) + symbol("d")
    shorter, apart = ink._apart("M_stage_peak", whole)
    assert len(apart) == 4 and shorter != whole and shorter.substitute(dict(apart)) == whole
    again, nothing = ink._apart("M_stage_peak", whole)
    assert again == shorter and nothing == []  # the same arguments keep their names
    equations = ink.spelled("M_stage_peak", maximum(*(symbol(n) for n in result.derivation.definitions if n.startswith("M_at_"))))
    text = "".join(line for e in equations for line in e.lines)
    of_kinds = {n: ink.kinds._shape(symbol(n))[1] for n in result.derivation.definitions if n.startswith("M_at_")}
    assert all(shape in text for shape in of_kinds.values()) and len(set(of_kinds.values())) < len(of_kinds)


def test_the_first_page_says_how_long_kernels_wait_for_the_host() -> None:
    """Of small kernels the host is what binds, though each kernel by itself is bound by something else."""
    result = derive_named("qwen3-next-80b-a3b", "tp=2,sp=true,pp=2,ep=8,etp=1,dp=16,num_microbatches=16", system="b200-sxm")
    one = Step(result)
    blocks = sum(float(one.stage(one.slowest)[n]) for n in ("tf_stage", "ti_stage", "tw_stage", "tr_stage"))
    waits = (blocks - one.exposed(one.slowest) - sum(k.total for k in one.kernels)) / blocks
    assert waits > 0.5 and f"{percent(waits)} of a micro-batch there goes by waiting for the host" in render_markdown(result)
    assert "waiting for the host" not in render_markdown(made("dense")).partition("## 2 ")[0]


@pytest.mark.long_after(2)
@pytest.mark.parametrize("case", CASES)
def test_the_machine_has_every_number_that_the_step_stands_on(case: str) -> None:
    """The others are named below the table: with half as much of each the step, its cost and its peak are the same."""
    result = made(case)
    assert result.system is not None
    (chapter,) = (s for s in document(case).sections if s.heading == "The machine")
    table = chapter.parts[1]
    assert isinstance(table, Table)
    groups, found = "", []
    for row in table.rows:
        groups = row.cells[0].text if row.role == "group" else groups
        found += [(f"{groups}.{row.cells[0].text}", row.cells[3], row.cells[4])] if row.role != "group" else []
    others = [s.text for p in chapter.parts[2:] for s in p.spans if isinstance(s, Code)]
    every = {title(result.system, path): (path, known) for path, known in quantities(result.system)}
    assert found == [(name, known.text, known.tag) for name, (_, known) in every.items() if name not in others]
    assert set(others) < set(every) and others and len(found) > 20
    for path, known in every.values():
        symbol = symbol_of(result.system, path)
        assert not symbol or float(result.values[symbol]) == float(known.value)
        assert symbol or path[-1] in ("memory", "default", "fp8_share", "fp8")
    for name in others:
        _, known = every[name]
        number, _, unit = known.text.partition(" ")
        other = override_system(result.system, {tuple(name.split(".")): f"{float(number) / 2} {unit}".strip()})
        moved = derive(result.model, result.strategy, system=other)
        assert [moved.value(q) for q in _HEADLINES] == [result.value(q) for q in _HEADLINES], name


_HEADLINES = ("time.step", "memory.peak", "cost_per_trillion_tokens", "energy_per_trillion_tokens")


def test_closed_forms_are_those_of_the_kernels() -> None:
    """The equations shown, put together again, are what `curves` computes."""
    from symsim.inputs import curves
    from symsim.report.closed_forms import _form, _replaced

    ink = Ink(made("dense"))
    formula = curves.gemm(symbol("rows"), symbol("columns"), symbol("depth"), kind="forward", width_in=2, width_out=2, peak=symbol("Phi"))
    equations = _form(ink, "product", formula)
    assert [e.left for e in equations] == [
        r"t_{\mathrm{product}}",
        r"t_{\mathrm{product},\mathrm{compute}}",
        r"n_{\mathrm{product},\mathrm{tiles}}",
        r"t_{\mathrm{product},\mathrm{memory}}",
    ]
    arguments = {a for m in formula.terms for atom, _ in m if hasattr(atom, "arguments") for a in atom.arguments}
    names = {a: f"part {n}" for n, a in enumerate(arguments)}
    shown = _replaced(formula, names)
    assert isinstance(shown, Expr) and shown != formula and shown.substitute({n: a for a, n in names.items()}) == formula


@pytest.mark.long_after(5)
@pytest.mark.parametrize("case", ["dense", "moe", "fsdp"])
@pytest.mark.parametrize("suffix", [s for s in SUFFIXES if s != ".pdf"])
def test_every_kind_is_written(case: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"report{suffix}"
    write_report(made(case), path)
    text = path.read_text()
    numbers = made(case).step_numbers
    if suffix == ".json":
        assert json.loads(text) == made(case).to_json() and json.loads(text)["time"]["step"] == numbers["t_step"]
        return
    text = re.sub("\u202f|" + re.escape("\\,"), " ", text)
    assert seconds(numbers["t_step"]) in text
    assert rate(float(made(case).values["B_hbm"]), "B/s") in text
    for kernel in step(case).kernels[:20]:
        assert seconds(kernel.total).replace("us", "\u00b5s") in text.replace(r"\textmu{}", "\u00b5")


@pytest.mark.parametrize("case", CASES)
def test_html_is_well_formed_and_loads_nothing(case: str) -> None:
    text = html.render(document(case))
    tree = ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))
    tags_ = {e.tag.rpartition("}")[2] for e in tree.iter()}
    assert not tags_ & {"link", "img", "iframe", "object", "use", "merror"}
    drawn = [e for e in tree.iter() if e.tag.endswith("}svg") or e.tag == "svg"]
    # all but the roofline twice: for pages and for phones
    assert len(drawn) == 1 + 2 * (4 + int(made(case).strategy.pp > 1))
    assert "\\" not in "".join(e.text or "" for e in tree.iter() if e.tag.startswith("{http://www.w3.org/1998/Math"))


@pytest.mark.long_after(3)
@pytest.mark.parametrize("case", CASES)
def test_markdown_pictures_are_80_columns(case: str) -> None:
    text = render_markdown(made(case))
    assert text.count("```") % 2 == 0 and "None" not in text
    after = text[text.index("\n## 3 The pipeline") :]
    for block in re.findall(r"```text\n(.*?)```", after, re.DOTALL):
        assert all(len(line) <= 80 for line in block.splitlines()), block


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX engine on this machine")
@pytest.mark.parametrize("case", ["dense", "moe", "fsdp"])
def test_latex_finds_no_box_too_wide(case: str, tmp_path: Path) -> None:
    write_report(made(case), tmp_path / "report.tex")
    # the first run measures columns, the second sets them
    for _ in range(2):
        done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "report.tex"], cwd=tmp_path, capture_output=True, check=True)
    assert b"Overfull \\hbox" not in done.stdout and b"Column widths have changed" not in done.stdout


def test_parts_of_a_formula_have_values_and_what_a_stage_waits_for_has_words() -> None:
    """A ring and a tree of a stage's gradients, members of a group, and seconds a byte."""
    found = {e.key: e for p in parts("dense", Equations) for e in p.equations}
    ring, tree = (next(e for key, e in found.items() if key.startswith("c^{(i)}: ") and key.endswith(word)) for word in ("ring", "tree"))
    assert ring.value.endswith("us") and tree.value.endswith("us") and ring.meaning and tree.meaning
    assert found["mu_tp_1"].value == "8" and found["beta_tp_reduce_scatter"].value == "2.897 ps/byte"
    (wait,) = (e for e in found.values() if "wait" in e.left)
    assert wait.left == r"t^{(i)}_{\mathrm{wait}}" and "rank i makes the others wait" in wait.meaning
    assert "makes them wait longest" in render_markdown(made("dense"))


# pictures


@pytest.mark.parametrize("case", CASES)
def test_gauges_are_the_peaks_on_one_scale(case: str) -> None:
    found = step(case)
    picture = bars(found)
    scale = found.capacity / picture.limit
    peaks = {human(found.peak(n), BYTE): found.peak(n) for n in range(found.depth)}
    for gauge in picture.gauges:
        assert sum(share for _, share, _ in gauge.parts) == pytest.approx(peaks[gauge.total] / scale, abs=1e-6)
        assert sum(share for _, share, _ in gauge.parts) <= 1
    assert (picture.limit < 1 / 1.02 - 1e-9) == (not found.fits)
    lines = gauges.lines(picture)
    assert all(len(line) <= 80 for line in lines) and len({line.index("|") for line in lines[: len(picture.gauges)]}) == 1


@pytest.mark.parametrize("case", CASES)
def test_roofline_holds_every_point_under_its_roof(case: str) -> None:
    picture = roofline_picture(step(case))
    edges = plot.frame(picture)
    peak = max(p for _, p in picture.peaks)
    for point in picture.points:
        assert edges.left <= math.log10(point.intensity) <= edges.right and edges.bottom <= math.log10(point.reached) <= edges.top
        assert point.reached <= min(peak, point.intensity * picture.bandwidth) * (1 + 1e-9)
    longest = [k for k in step(case).kernels if k.flops][:5]
    assert [p.label for p in plot.named(picture)] == [f"{k.operation}, {k.phase}" for k in longest]
    assert len(picture.points) == sum(1 for k in step(case).kernels if k.flops)
    for _, peak in picture.peaks:
        (x0, y0), (x1, y1), (x2, y2) = plot.roof(picture, edges, peak)
        assert y1 - y0 == pytest.approx(x1 - x0) and y2 == y1 and x2 == pytest.approx(edges.across)  # 45 degrees, then level


def test_the_slope_to_a_higher_roof_does_not_cross_the_name_of_a_lower_one() -> None:
    picture = roofline_picture(step("fp8"))
    edges, drawn = plot.frame(picture), plot.svg(picture)
    unit = min(440 / edges.across, 340 / edges.up)
    at = {name: float(x) for x, name in re.findall(r'<text x="([\d.]+)" y="[\d.]+"[^>]*>(fp8|bf16) ', drawn)}
    bends = {name: 96 + edges.x(peak / picture.bandwidth) * unit for name, peak in picture.peaks}
    # a line of text is 13 high and stands 5 above its roof, and the slope goes up by as much as across
    assert at["bf16"] > bends["bf16"] + 5 + 13 and at["fp8"] > bends["fp8"]


def test_fp8_and_bf16_have_roofs_of_their_own() -> None:
    assert [name for name, _ in roofline_picture(step("fp8")).peaks] == ["fp8", "bf16"]
    assert [name for name, _ in roofline_picture(step("dense")).peaks] == ["bf16"]


def test_labels_keep_apart_and_inside() -> None:
    near = tuple(Point(500.0 + n, 5e14 + n, 0.1, f"k{n}") for n in range(5))
    edges = plot.frame(Roofline((), near, 3e12, (("bf16", 1e15),)))
    for height in (90.0, 300.0):
        places = [at for _, at in plot._spread(list(near), edges, height, height / edges.up, 17)]
        assert all(a - b >= 17 - 1e-9 for a, b in zip(places, places[1:])) and places[-1] >= 8.5 - 1e-9 and places[0] <= height


def test_ticks() -> None:
    assert plot.ticks(2, 3) == pytest.approx([100, 200, 500, 1000]) and plot.ticks(0, 4) == pytest.approx([1, 10, 100, 1000, 10000])


@pytest.mark.parametrize(("schedule", "p", "m", "v"), [("1f1b", 4, 6, 1), ("interleaved", 2, 4, 2), ("zb_h1", 3, 6, 1), ("dualpipe", 4, 8, 1)])
def test_latex_draws_every_operation_of_a_short_step(schedule: str, p: int, m: int, v: int) -> None:
    drawn = timeline_tex.picture(Timeline((), schedule, p, m, v, {"tf": 1.0, "ti": 1.0, "tw": 1.0}, p))
    operations = sum(len(slot) for row in order(schedule, p, m, v, p) for slot in row)
    legend = len({o.kind for row in order(schedule, p, m, v, p) for slot in row for o in slot})
    assert drawn.count(r"\rule{") == operations + legend and "Cut" not in drawn


def test_a_long_pipeline_is_cut_and_says_so() -> None:
    drawn = timeline_tex.picture(Timeline((), "1f1b", 32, 64, 1, {"tf": 1.0, "ti": 1.0, "tw": 1.0}, 32))
    assert "Ranks 8 to 23 of 32 are left out" in drawn and "the first and the last" in drawn


def test_pipeline_is_drawn_with_the_strategys_sizes() -> None:
    drawn = pipeline_picture(step("moe"))
    assert (drawn.schedule, drawn.stages, drawn.microbatches, drawn.chunks, drawn.group) == ("interleaved", 8, 32, 2, 8)
    assert drawn.durations["tf"] == pytest.approx(1e3 * step("moe").number("tf"))
    many = step("dense").result
    longer = replace(many, strategy=many.strategy.model_copy(update={"num_microbatches": 100_000}))
    cut = pipeline_picture(Step(longer))
    assert cut.microbatches == 1000 and "1000 of 100\u2009000 micro-batches" in "".join(str(s) for s in as_spans(cut.caption))


def test_forwards_that_fall_evenly_are_a_sentence() -> None:
    deep = render_markdown(derive_named("llama3-70b", "tp=2,sp=true,pp=8,num_microbatches=16", system="h100-sxm"))
    said = "Of forwards whose backward is still to come, rank 0 holds at most 8, 1 fewer on each rank behind it, and rank 7 1."
    assert said in " ".join(deep.split())
    chunks = render_markdown(derive_named("llama3-70b", "tp=2,sp=true,pp=8,vpp=2,num_microbatches=16", system="h100-sxm"))
    assert "passes through one of its 2 chunks, 2 fewer on each rank behind it" in " ".join(chunks.split())


def test_messages_beside_which_nothing_runs_have_a_row_for_both_ways() -> None:
    text = render_markdown(derive_named("llama3-8b", "tp=2,sp=true", system="h100-sxm"))
    rows = [line for line in text.splitlines() if line.startswith("| `dense` | `tp` |")]
    assert len(rows) == 1 and rows[0].count(r"\epsilon") == 2 and rows[0].count(r",\mathrm{own}") == 1
    hidden = render_markdown(derive_named("llama3-8b", "tp=2,sp=true,tp_comm_overlap=true", system="h100-sxm"))
    assert "| `dense` | `tp` | forward |" in hidden and "| `embedding` | `tp` | $" in hidden


def test_in_flight_of_1f1b() -> None:
    assert [in_flight(step("dense"), n) for n in range(4)] == [4, 3, 2, 1]
