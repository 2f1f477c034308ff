"""Reports of models with several kinds of layers: no long formula, no symbol undefined, and what is written once for all kinds is all of it."""

from __future__ import annotations

from functools import cache

import pytest
from test_report import undefined
from test_report_length import formulas

import symsim
from symsim.algebra.expr import maximum, symbol
from symsim.algebra.reading import LONGEST
from symsim.api.result import Result
from symsim.report import over_kinds
from symsim.report.content import report
from symsim.report.ink import Ink

# an order of kinds that does not repeat soon; kinds whose names begin alike, adapted ones of each, and weights that layers share
CASES = [
    ("nemotron-h-8b", "pp=2,tp=2,sp=true,dp=4,num_microbatches=8"),
    ("zamba2-7b", "pp=2,vpp=2,dp=4,zero=1,num_microbatches=8,recompute=full"),
    ("jamba-v0.1", "pp=2,vpp=2,dp=4,zero=1,num_microbatches=8,recompute=full"),
]


@cache
def made(model: str, strategy: str) -> Result:
    return symsim.derive(model, strategy, system="h100-sxm")


@pytest.mark.long_after(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_no_formula_of_a_hybrid_is_long_and_every_symbol_is_defined(case: tuple[str, str]) -> None:
    document = report(made(*case))
    assert max(map(len, formulas(document.sections))) <= LONGEST
    assert undefined(document) == set()


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case[0])
def test_what_is_written_for_all_kinds_is_the_formula(case: tuple[str, str]) -> None:
    ink, book = Ink(made(*case)), made(*case).derivation.definitions
    for name in ("tr_stage", "Z_stage", "A_stage", "X_stage"):
        whole = book[name].expr
        short = ink.kinds.summed(whole)
        assert short.substitute(ink.kinds.stands) == whole and len(short.terms) < len(whole.terms), name
    moments = [symbol(n) for n in book if n.startswith("M_at_")]
    short = ink.kinds.compared(maximum(*moments))
    ((((call, _),), _),) = short.terms.items()
    inner = [a.substitute(ink.kinds.stands) for a in call.arguments]
    assert set(maximum(*inner).symbols()) == {str(m) for m in moments} and len(inner) < len(moments) / 2


def test_a_kind_whose_name_begins_as_another_is_told_apart() -> None:
    ink = Ink(made(*CASES[1]))
    assert ink.kinds._shape(symbol("L_hybrid__again_i") * symbol("h"))[0] == ["hybrid__again"]
    assert ink.kinds._shape(symbol("L_kind__hybrid_i") * symbol("h"))[0] == ["kind__hybrid"]


def test_a_maximum_that_no_line_holds_is_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands behind one maximum over kinds is as wide as a line at most; together they compare the same."""
    result = made(*CASES[2])
    moments = [symbol(n) for n in result.derivation.definitions if n.startswith("M_at_")]
    found = []
    for widest in (over_kinds._WIDEST, 12.0):
        monkeypatch.setattr(over_kinds, "_WIDEST", widest)
        kinds = Ink(result).kinds
        ((((call, _),), _),) = kinds.compared(maximum(*moments)).terms.items()
        assert set(maximum(*(a.substitute(kinds.stands) for a in call.arguments)).symbols()) == {str(m) for m in moments}
        found.append(sum(1 for a in call.arguments if a.symbols() & kinds.stands.keys()))
    assert 0 < found[0] < found[1]
