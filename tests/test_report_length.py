"""No formula of a report is longer than a reader takes in, and none is named by a number alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import symsim
from symsim.report.content import report
from symsim.report.document import Code, Emphasis, Equation, Fold, Math

LONGEST = 400
CASES = {
    "llama3-70b": "tp=8,pp=4,sp=true,micro_batch_size=1,num_microbatches=8,dp=2,seq_length=8192",
    "deepseek-v3": "tp=8,pp=16,ep=8,sp=true",
}


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


@pytest.mark.parametrize("model", CASES)
def test_no_formula_is_long_and_no_part_is_a_number(model: str) -> None:
    found = list(formulas(report(symsim.derive(model, CASES[model], system="h100-sxm")).sections))
    assert len(found) > 400
    assert max(map(len, found)) <= LONGEST, max(found, key=len)
    assert not [f for f in found if re.search(r"\bx_\{\d|\\lceil \\min\(1", f)]
