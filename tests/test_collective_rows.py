"""A collective is one row: what a rank gets back, its gradient, its bytes and its seconds follow, and no pass knows it by name."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import symsim
from symsim.algebra.expr import symbol
from symsim.algebra.formula import Derivation
from symsim.cost.collectives import Network
from symsim.cost.further import _amounts
from symsim.cost.reduce import in_buckets
from symsim.frameworks.choices import FRAMEWORKS
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.ir.collectives import COLLECTIVES, between
from symsim.ir.messages import Message
from symsim.ir.operations import OPERATIONS
from symsim.placement.mesh import mesh_of
from symsim.report.text import _messages
from symsim.report.totals import Totals

PACKAGE = Path(symsim.__file__).parent


def test_rows_are_sound() -> None:
    for name, row in COLLECTIVES.items():
        assert not row.transpose or row.transpose in COLLECTIVES, name
        n, group = symbol("n"), symbol("g")
        if row.transpose:  # what comes back of the gradient is what was handed in
            assert COLLECTIVES[row.transpose].got_back(row.got_back(n, group), group) == n, name
    assert {row.sends for row in OPERATIONS.values()} - {""} <= COLLECTIVES.keys()
    assert (between("partial", "whole"), between("shard", "whole")) == ("all_reduce", "all_gather")
    with pytest.raises(KeyError, match="from whole to partial"):
        between("whole", "partial")


@pytest.mark.parametrize("op", COLLECTIVES)
def test_one_of_another_name_is_the_same(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, buckets and the form of the seconds are those of the row."""
    monkeypatch.setitem(COLLECTIVES, "twin", COLLECTIVES[op])
    n, strategy = symbol("n"), Strategy(tp=16, ddp_bucket_size=1000, allgather_bucket_size=10)

    def said(name: str) -> list[str]:
        book = Derivation()
        network = Network(book, load_system("h100-sxm"), strategy, mesh_of(strategy))
        message = Message("step", name, "tp", symbol("tp"), n, COLLECTIVES[name].got_back(n, symbol("tp")), "bf16", "test")
        amounts = [q.expr for q in _amounts(message, network).values()]
        cut = in_buckets(message, strategy)
        made = [network.seconds(message).expr, *amounts, cut.count, cut.send_elements, cut.receive_elements]
        return [str(e).replace(name, "NAME") for e in (*made, *(d.expr for d in book.definitions.values()))]

    assert said(op) == said("twin")


def test_one_that_is_carried_otherwise_needs_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no ring by default."""
    monkeypatch.setitem(COLLECTIVES, "twin", replace(COLLECTIVES["all_gather"], carried="doubling"))  # type: ignore[arg-type]
    strategy, n = Strategy(tp=16), symbol("n")
    network = Network(Derivation(), load_system("h100-sxm"), strategy, mesh_of(strategy))
    with pytest.raises(KeyError, match="doubling"):
        network.seconds(Message("step", "twin", "tp", symbol("tp"), n, n * symbol("tp"), "bf16", "test"))


def test_counts_by_a_collective_of_one_more_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells ranks of their tokens, by a row that no pass has seen: a step, a table and definitions on demand."""

    def asked() -> symsim.Result:
        return symsim.derive("mixtral-8x7b", "ep=8,tp=2,sp=true,dp=8", system="h100-sxm")

    own = asked()
    monkeypatch.setitem(COLLECTIVES, "gather", replace(COLLECTIVES["all_gather"], said="gather"))
    monkeypatch.setitem(FRAMEWORKS, "te", replace(FRAMEWORKS["te"], counts="gather"))
    new = asked()
    assert new.value("time.step") == own.value("time.step")
    assert re.search(r"^  forward   gather +etp_ep +16 +32 +2 KiB +32 KiB", _messages(Totals(new)), re.MULTILINE)
    sent = {d.key.operation for d in new.further.of("on_wire") if "tokens per expert" in d.key.tensor}
    assert sent == {"gather"}


def test_no_pass_asks_for_a_collective_by_name() -> None:
    """Comparing what a message is with a name: the row says what a pass wants to know."""
    found = []
    for room in ("cost", "lowering", "report", "evaluation", "grid", "program"):
        for path in (PACKAGE / room).rglob("*.py"):
            found += [f"{path.name}: {line}" for line in _compared(path.read_text())]
    assert found == []
    assert _compared("message.op == 'all_gather'") and _compared("x in ('p2p', 'send')") and not _compared("kind == 'add'")


def _compared(source: str) -> list[str]:
    """Comparisons with the name of a collective; a strategy's cp_comm_type and assumptions have values that are called the same."""
    made = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            text = ast.unparse(node)
            names = {n.value for part in node.comparators for n in ast.walk(part) if isinstance(n, ast.Constant)}
            if names & COLLECTIVES.keys() and "comm_type" not in text and "assumptions[" not in text and "a2a+p2p" not in names:
                made.append(text)
    return made
