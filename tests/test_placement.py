"""A strategy as a table of placements: what it says, where it is shown, and that nothing else says it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import symsim
from symsim.api.result import Result
from symsim.inputs.strategy import Strategy
from symsim.placement import mesh
from symsim.placement import names as placement
from symsim.placement.names import Axes, placement_of, table
from symsim.report import html, latex, markdown
from symsim.report.content import report

BASE = "tp=2,sp=true,cp=2,ep=2,dp=4,zero=1"


def derived(model: str, strategy: str) -> Result:
    made = symsim.derive(model, strategy)
    assert isinstance(made, Result)
    return made


SPLIT_BY_TP = "a, g, f, f_s, V, h_o, h_c, H_k, H_v, H_m, G_m, D_i, G_o, a_2, g_2"


@pytest.mark.parametrize(
    ("strategy", "rows"),
    [
        ({}, [(SPLIT_BY_TP, "tp"), ("f_e", "etp"), ("E", "ep"), ("b", "dp"), ("s", "cp"), ("R, R_u", "etp where it is left")]),
        ({"sp": True}, [("s", "cp, sp")]),
        ({"cp": 2, "cp_comm_type": "a2a"}, [("a, g in attention", "tp, cp"), ("s in attention", "none")]),
        (
            {"cp": 4, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": (2, 2)},
            [("s", "cp_a2a, cp_p2p"), ("a, g in attention", "tp, cp_a2a"), ("s in attention", "cp_p2p")],
        ),
        ({"zero": 1}, [("store of optimizer states", "dp, cp; of experts: edp")]),
        ({"zero": 3}, [("store of parameters, gradients, optimizer states", "dp, cp; of experts: edp")]),
        ({"zero": 3, "gradient_sync": "last_microbatch"}, [("store of parameters, optimizer states", "dp, cp; of experts: edp")]),
    ],
)
def test_the_table_of_a_strategy(strategy, rows):
    found = table(placement_of(Strategy(**strategy)))
    assert [row for row in rows if row not in found] == []


def test_the_table_shows_what_the_model_has_and_more_than_one_rank_shares():
    result = derived("mixtral-8x7b", BASE)
    assert result.placed() == [
        ("a, g, V", "tp"),
        ("f_e", "etp"),
        ("E", "ep"),
        ("b", "dp"),
        ("s", "cp, sp"),
        ("R", "etp where it is left"),
        ("store of optimizer states", "dp, cp; of experts: edp"),
    ]
    assert derived("llama3-8b", "tp=1").placed() == []
    assert "V" in str(result.placement)


def test_reports_print_it():
    result = derived("mixtral-8x7b", BASE)
    rows = {markdown: "$`a`$, $`g`$, $`V`$ | `tp`", latex: r"$a$, $g$, $V$ & \code{tp}", html: 'a, g, V<td class="long">tp'}
    for target, row in rows.items():
        text = target.render(report(result))
        plain = re.sub(r"<(?!td class)[^>]*>", "", text) if target is html else text
        assert "Placement: the axes" in text and row in plain
    lines = [line.split() for line in result.table().splitlines()]
    assert ["a,", "g,", "V", "tp"] in lines and ["s", "cp,", "sp"] in lines


DIMS = ["a", "g", "f", "V", "f_e", "E", "s", "f_s", "h_o", "H_k", "H_v", "H_m", "G_m"]
WHERE = {
    "f_e": "mixtral-8x7b",
    "E": "mixtral-8x7b",
    "f_s": "deepseek-v3",
    "h_o": "deepseek-v3",
    "H_k": "qwen3-next-80b-a3b",
    "H_v": "qwen3-next-80b-a3b",
    "H_m": "nemotron-3-nano-30b-a3b",
    "G_m": "nemotron-3-nano-30b-a3b",
}


@pytest.mark.parametrize("dim", DIMS)
def test_every_row_of_the_table_is_read(dim, monkeypatch):
    """A row taken out of the table: the dimension is whole, and the counts of a rank are others."""
    model, strategy = (
        WHERE.get(dim, "llama3-8b"),
        "tp=2,cp=2,sp=true,ep=4,dp=8" + (",mtp_num_layers=1" if dim == "h_o" else "") if dim in WHERE else "tp=2,cp=2,sp=true",
    )
    before = derived(model, strategy).derivation.definitions
    real = mesh.placement_of

    def without(given: Strategy) -> placement.Placement:
        made = real(given)
        return replace(made, dims={**made.dims, dim: Axes()})

    monkeypatch.setattr(mesh, "placement_of", without)
    assert {n: str(d.expr) for n, d in derived(model, strategy).derivation.definitions.items()} != {n: str(d.expr) for n, d in before.items()}


@pytest.mark.parametrize(("store", "symbol"), [("parameters", "weights"), ("gradients", "gradients"), ("optimizer states", "optimizer")])
def test_every_store_is_read(store, symbol, monkeypatch):
    before = derived("llama3-8b", "dp=8,zero=3").to_json()["memory"]["stages"][0][symbol]
    real = mesh.placement_of
    monkeypatch.setattr(mesh, "placement_of", lambda given: replace(made := real(given), stores={**made.stores, store: ()}))
    assert derived("llama3-8b", "dp=8,zero=3").to_json()["memory"]["stages"][0][symbol] == 8 * before
