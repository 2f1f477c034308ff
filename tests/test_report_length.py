"""In the reports that are kept no formula is longer than a reader takes in, every symbol is defined, and every number has its unit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_report import undefined

import symsim
from symsim.algebra.expr import symbol
from symsim.algebra.quantity import NONE
from symsim.algebra.typeset import latex
from symsim.api.result import Result
from symsim.report import typst
from symsim.report.amounts import seconds
from symsim.report.content import report
from symsim.report.document import Code, Emphasis, Equation, Equations, Fold, Math, Report
from symsim.report.markdown import render as markdown

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
from remake import EXAMPLES  # noqa: E402

LONGEST = 400
_NUMBER = r"-?(?:\d|\\,(?=\d))+(?:\.\d+)?"
_BARE = re.compile(rf"= ({_NUMBER})$")
# of bytes and the like in digits; in front of a unit a number is short
_LONG_NUMBER = re.compile(r"(?<![\d{_])\d(?:\\,\d{3}){2,}(?!\\,\\mathrm|\d)")


@cache
def result_of(model: str) -> Result:
    strategy, system = EXAMPLES[model]
    return symsim.derive(model, strategy, system=system)


@cache
def kept(model: str) -> Report:
    return report(result_of(model))


def formulas(node: Any) -> Iterator[str]:
    """The LaTeX of every equation and every formula in the text of a report."""
    if isinstance(node, Equation):
        yield f"{node.left} = {' '.join(node.lines)}"
    elif isinstance(node, Math):
        yield node.latex
    elif isinstance(node, tuple):
        for part in node:
            yield from formulas(part)
    elif is_dataclass(node) and not isinstance(node, (Code, Emphasis, Fold)):
        for field in fields(node):
            yield from formulas(getattr(node, field.name))


@pytest.mark.parametrize("model", EXAMPLES)
def test_no_formula_is_long_and_no_part_is_a_number(model: str) -> None:
    found = list(formulas(kept(model).sections))
    assert len(found) > 400
    assert max(map(len, found)) <= LONGEST, max(found, key=len)
    assert not [f for f in found if re.search(r"\bx_\{\d|\\lceil \\min\(1", f)]


@pytest.mark.parametrize("model", EXAMPLES)
def test_every_symbol_is_defined(model: str) -> None:
    assert undefined(kept(model)) == set()


@pytest.mark.parametrize("model", EXAMPLES)
def test_every_number_has_its_unit(model: str) -> None:
    """The value of an equation ends in the unit of its definition, and no term is a long number of none."""
    book = result_of(model).derivation.definitions
    equations = [e for s in kept(model).sections for p in s.parts if isinstance(p, Equations) for e in p.equations]
    unknown = [e.key for e in equations if (found := _BARE.search(f"= {' '.join(e.lines)}")) and found[1] != "0" and book[e.key].unit != NONE]
    assert unknown == []
    assert [e.key for e in equations if _LONG_NUMBER.search(" ".join(e.lines))] == []
    assert any(r"\mathrm{MiB}" in " ".join(e.lines) for e in equations if e.key == "M_reserve_communicators")


def pages(document: Report) -> int:
    return len(re.findall(rb"/Type */Page\b", typst.compile_pdf(typst.render(document))))


def test_the_whole_of_deepseek_is_at_most_25_pages() -> None:
    assert pages(kept("deepseek-v3")) <= 25


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    "strategy",
    [
        "tp=4,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,zero=1,num_microbatches=32,recompute=selective",
        "tp=2,sp=true,pp=16,ep=8,etp=2,dp=16,cp=4,cp_comm_type=a2a,zero=2,num_microbatches=32",
        "tp=4,sp=true,ep=32,etp=1,dp=64,cp=2,zero=3",
        "tp=2,sp=true,pp=4,vpp=2,ep=8,etp=1,dp=16,num_microbatches=16,recompute=full",
        "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,num_microbatches=32,recompute=full",
        "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,num_microbatches=32,recompute=full,mtp_num_layers=1",
        "tp=2,sp=true,pp=16,ep=8,etp=2,dp=16,cp=4,cp_comm_type=a2a,zero=2,num_microbatches=32,recompute=full,mtp_num_layers=1",
        "tp=4,sp=true,ep=32,etp=1,dp=64,cp=2,zero=3,mtp_num_layers=1,recompute=full",
        "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,num_microbatches=32,recompute=full,mtp_num_layers=1,fp8=blockwise",
        "tp=4,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,zero=1,num_microbatches=32,recompute=full,fp8=blockwise,mtp_num_layers=1",
        "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,cp=2,vpp=2,num_microbatches=32,recompute=full,mtp_num_layers=2,optimizer=muon",
    ],
)
def test_deepseek_is_at_most_25_pages_under_any_strategy(strategy: str) -> None:
    assert pages(report(symsim.derive("deepseek-v3", strategy, system="h100-sxm"))) <= 25


@pytest.mark.long
def test_a_model_of_six_kinds_is_at_most_28_pages() -> None:
    """Of 61 moments formulas that differ in the kind alone are written once, of 145 operations those that take next to nothing have a row."""
    document = report(symsim.derive("gemma-3n-e2b", "fusion=eager,zero=3,dp=8,recompute=full", system="h100-sxm"))
    assert pages(document) <= 28
    assert undefined(document) == set()
    assert "| 31 others, each below 0.2\u2009% of all |" in markdown(document)


def test_a_moment_is_read_for_another_kind_of_layers() -> None:
    """The formula that is not written gives its moment's number when each letter of one kind is read as the other's."""
    result = symsim.derive("nemotron-h-56b", "tp=8,sp=true,pp=4,dp=4,num_microbatches=16", system="h100-sxm")
    parts = [part for s in report(result).sections if s.heading == "Memory" for part in s.parts]
    written = {e.key for part in parts if isinstance(part, Equations) for e in part.equations}
    assert {"M_at_forward_mamba", "M_at_backward_mamba"} <= written and not {"M_at_backward_full", "M_at_forward_dense"} & written
    assert "for full read that of mamba, for dense read that of mamba" in markdown(report(result)).replace("`", "")
    for stage in result.stages:
        numbers = result.stage_numbers(stage)
        for other in ("full", "dense"):
            exchanged = {name.replace("mamba", other): value for name, value in numbers.items() if "mamba" in name}
            for moment in ("forward", "backward"):
                formula = result.derivation.definitions[f"M_at_{moment}_mamba"].expr
                back = {name.replace(other, "mamba"): value for name, value in numbers.items() if re.search(rf"(?<![a-z]){other}(?![a-z])", name)}
                assert formula.evaluate({**numbers, **exchanged, **back}) == numbers[f"M_at_{moment}_{other}"]


@pytest.mark.long
def test_an_update_by_matrices_is_read_in_one_formula() -> None:
    """What Muon keeps and moves was seven rests of sums over all matrices; it is the parameters, and those that are no matrix."""
    strategy = "tp=8,sp=true,pp=8,ep=16,etp=4,dp=16,num_microbatches=32,mtp_num_layers=2,optimizer=muon"
    document = report(symsim.derive("deepseek-v3", strategy, system="h100-sxm"))
    lines = {e.left: " ".join(e.lines) for s in document.sections for p in s.parts if isinstance(p, Equations) for e in p.equations}
    assert [left for left in lines if "rest" in left and ("opt" in left or "optimizer" in left)] == []
    (states,) = (line for left, line in lines.items() if left == r"M^{(i)}_{\mathrm{optimizer}}")
    of = r"\frac{%d\,P^{(i)}_{\mathrm{%s}}}{%s}"
    every = of % (8, "nonexpert", "d_p"), of % (8, "expert", "d_e"), of % (4, "nonexpert,scalar", "d_p")
    assert states.startswith(" + ".join(every) + " = ")
    assert undefined(document) == set()


@pytest.mark.long
def test_what_is_odd_is_read_too() -> None:
    """Eleven moments of a recomputed layer under FSDP were one maximum of 521 characters, seconds of a part had no unit, layers that a strategy
    tells apart stood as `dense + 79 * dense`, and an encoder had decoder layers."""
    quantized = "zero=3,dp=8,tuner_type=lora,quantize_base=nf4_double,lora_rank=16,num_microbatches=4,recompute=full"
    frozen = "dp=8,zero=3,trained_before=true,freeze_parameters=layers.0-15+embedding,num_microbatches=4"
    asked = (("llama3-70b", quantized), ("gemma-3-12b", frozen), ("bert-large", "dp=8,fusion=eager"))
    documents = {model: report(symsim.derive(model, strategy, system="h100-sxm")) for model, strategy in asked}
    assert max(len(f) for one in documents.values() for f in formulas(one.sections)) <= LONGEST
    equations = [e for one in documents.values() for s in one.sections for p in s.parts if isinstance(p, Equations) for e in p.equations]
    rests = [line for e in equations if r"\mathrm{fsdp}" in e.left and "rest" in e.left and not (line := " ".join(e.lines)).endswith(")")]
    assert len(rests) > 1 and [line for line in rests if _BARE.search(f"= {line}")] == []
    held = [e for e in equations if e.left.startswith(r"M^{(i)}_{\mathrm{part}")]
    assert len(held) > 1 and [e.left for e in held if re.search(r"= [^=]*\\mathrm\{[kMB]\}$", " ".join(e.lines))] == []
    texts = {model: markdown(one) for model, one in documents.items()}
    assert "80 decoder layers, `80 * dense`" in texts["llama3-70b"]
    assert "24 encoder layers" in texts["bert-large"] and "ecoder layer" not in texts["bert-large"]


def test_numbers_of_the_machine_are_whose_they_are() -> None:
    """The host's memory is not the accelerator's, and seconds a byte have both units."""
    text = markdown(kept("llama3-70b"))
    assert [row.split("|")[3].strip() for row in text.splitlines() if row.startswith("| `memory` ")][:2] == [
        "memory of an accelerator",
        "a rank's share of the memory of its node's host",
    ]
    assert re.search(r"beta[^|]*= 22\.22\\,\\mathrm\{ps/byte\}", text)


@pytest.mark.long
def test_numbers_of_formulas_and_of_nothing() -> None:
    assert [seconds(value) for value in (1.041e-17, -3e-18, 0, 2e-9)] == ["0 s", "0 s", "0 s", "0.002 us"]
    assert latex(symbol("b") * 2**30) == "2^{30}b" and latex(symbol("b") * 1048575) == r"1\,048\,575b"
