"""Bytes that PyTorch autograd keeps for backward, measured on transformers' modules (../shared/oracle/activations.json)."""

from __future__ import annotations

from collections.abc import Callable

import hf_cases as cases
import pytest
from shared import needed, oracle

from symsim.algebra.expr import Expr
from symsim.inputs.strategy import Strategy
from symsim.lowering.lower import lower

FILE = "activations.json"
CASES = list(cases.activation_cases()) or [None]


@pytest.mark.parametrize("case", CASES, ids=[c[0] if c else "absent" for c in CASES])
def test_kept_bytes(case: tuple[str, Expr, Callable[[], Expr], str]) -> None:
    name, expected, computed, reason = needed(case, FILE)
    if reason:
        assert computed() != expected, f"{name} is equal now: drop its exception ({reason})"
    else:
        assert computed() == expected


def test_the_exception_is_equal_where_there_is_more_than_one_sequence() -> None:
    case = needed(oracle(FILE), FILE)["cases"].get(cases.V2_LITE_EAGER)
    if case is None:
        pytest.skip(f"{cases.V2_LITE_EAGER} is not among the given cases")
    ours = cases.PARTS[cases.V2_LITE_EAGER]()
    for (b, s), kept in cases.measured(case).items():
        assert kept - ours.evaluate({"b": b, "s": s}) == (4096 * s if b == 1 else 0)


def test_rotary_tables_are_kept_once_for_all_layers() -> None:
    model = cases.bare(attention={"num_attention_heads": 32, "kv_channels": 128}, modelling="llama")
    block = lower(model, Strategy(fusion="eager"), {}).blocks["dense"]
    assert {(s.tensor.name, str(s.bytes)) for s in block.shared} == {("rotary.cos", "2*d*s"), ("rotary.sin", "2*d*s")}
