"""Formulas as MathML: numbers are numbers, letters are letters, nothing is read as a unit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from html import unescape

import pytest

from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.report.content import report
from symsim.report.document import Equations, Math, Paragraph, Table, as_spans
from symsim.report.html import math, pieces
from symsim.report.mathml import _TOKEN, _Another, _of_a_stranger, _Reader

CASES = [
    ("llama3-70b", "tp=8,sp=true,pp=4,dp=4,num_microbatches=32", "h100-sxm"),
    ("deepseek-v3", "ep=8,pp=4,cp=2,recompute=selective,zero=1", "h800-sxm"),
    ("mixtral-8x7b", "tp=2,sp=true,ep=4,pp=2,vpp=2,recompute=full", None),
    ("qwen3-next-80b-a3b", "ep=2,pp=3", "b200-sxm"),
]


def formulas(model: str, strategy: str, system: str | None) -> Iterator[str]:
    """The LaTeX of every formula of a report."""
    made = report(derive(load_model(model).architecture, load_strategy(strategy), system=load_system(system) if system else None))
    for section in made.sections:
        for part in section.parts:
            cells = []
            if isinstance(part, Equations):
                for equation in part.equations:
                    yield f"{equation.left} ="
                    yield from equation.lines
            elif isinstance(part, Table):
                cells = [c for row in part.rows for c in row.cells] + [part.caption]
            elif isinstance(part, Paragraph):
                cells = [part.spans]
            yield from (span.latex for cell in cells for span in as_spans(cell) if isinstance(span, Math) and span.latex)


def leaves(mathml: str) -> list[tuple[str, str]]:
    return [(e.tag.rpartition("}")[2], e.text or "") for e in ElementTree.fromstring(mathml.replace("&", "&amp;")).iter() if len(e) == 0]


@pytest.mark.parametrize(
    ("latex", "wanted"),
    [
        ("2pt_c", [("mn", "2"), ("mi", "p"), ("mi", "t"), ("mi", "c")]),
        ("3ex", [("mn", "3"), ("mi", "e"), ("mi", "x")]),
        ("12em + 4cm", [("mn", "12"), ("mi", "e"), ("mi", "m"), ("mo", "+"), ("mn", "4"), ("mi", "c"), ("mi", "m")]),
        (r"\frac{2mm}{16in}", [("mn", "2"), ("mi", "m"), ("mi", "m"), ("mn", "16"), ("mi", "i"), ("mi", "n")]),
        (r"5.5bsh", [("mn", "5.5"), ("mi", "b"), ("mi", "s"), ("mi", "h")]),
    ],
)
def test_letters_after_a_number_are_no_unit(latex: str, wanted: list[tuple[str, str]]):
    assert leaves(math(latex).replace("&#x0002B;", "+")) == wanted


@pytest.mark.parametrize(("model", "strategy", "system"), CASES)
def test_what_symsim_writes_is_what_latex2mathml_makes_of_it(model: str, strategy: str, system: str | None):
    for latex in dict.fromkeys(formulas(model, strategy, system)):
        made = _Reader(_TOKEN.findall(latex)).whole()
        assert plainly(f"<mrow>{made}</mrow>") == plainly(_of_a_stranger(latex)), latex


def plainly(mathml: str) -> str:
    """Characters as they are; without a row around one letter, and brackets of their own height as operators."""
    text = re.sub(r"<mrow>(<mi>[A-Za-z]</mi>)</mrow>", r"\1", re.sub("</?math[^>]*>", "", unescape(mathml)))
    return re.sub("<mi>([⌈⌉⌊⌋])</mi>", r'<mo stretchy="false">\1</mo>', text)


@pytest.mark.parametrize("latex", [r"\sqrt{x}", r"x^{a}^{b}", r"\begin{cases} 1 \end{cases}", r"a \mid b", "x'", r"x_12"])
def test_other_latex_is_left_to_latex2mathml(latex: str):
    with pytest.raises(_Another):
        _Reader(_TOKEN.findall(latex)).whole()


def test_digits_inside_a_name_stay_in_it():
    assert ("mtext", "bf16x2p") in leaves(math(r"\Phi_{\mathrm{bf16x2p}}"))


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("model", "strategy", "system"), CASES)
def test_every_formula_of_a_report_has_its_tokens(model: str, strategy: str, system: str | None):
    seen = 0
    for latex in dict.fromkeys(formulas(model, strategy, system)):
        names = Counter("\u00b5s" if name == "us" else name.replace("\\_", "_") for name in re.findall(r"\\mathrm\{([^{}]*)\}", latex))
        bare = re.sub(r"\\mathrm\{[^{}]*\}", "", latex)
        found = leaves(math(latex))
        assert all(re.fullmatch(r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|", text) for tag, text in found if tag == "mn"), latex
        digits = Counter(re.sub(r"[^0-9]", "", bare))
        assert Counter("".join(re.sub(r"[^0-9]", "", text) for tag, text in found if tag == "mn")) == digits, latex
        letters = Counter(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", bare)))
        assert Counter(text for tag, text in found if tag == "mi" and re.fullmatch("[A-Za-z]", text)) == letters, latex
        assert Counter(text for tag, text in found if tag == "mtext") == names, latex
        seen += 1
    assert seen > 200


@pytest.mark.parametrize(("model", "strategy", "system"), CASES[1:2])
def test_a_long_formula_of_a_cell_is_cut_between_its_terms_without_loss(model: str, strategy: str, system: str | None):
    cut = 0
    for latex in dict.fromkeys(formulas(model, strategy, system)):
        if latex.count("(") != latex.count(")"):
            continue  # a line of an equation that goes on in the next
        made = pieces(latex)
        assert " ".join(made) == latex and all(p.count("(") == p.count(")") and p.count("{") == p.count("}") for p in made)
        cut += len(made) > 1
    assert cut > 20
    assert pieces("N_{a} = bsh + x(y + z + bsh + bshd) - bsh") == ["N_{a} =", "bsh", "+ x(y + z + bsh + bshd)", "- bsh"]
