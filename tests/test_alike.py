"""A block that has what an earlier one has says so, and what it says leads to the rows, messages and formulas that it leaves out."""

from __future__ import annotations

import re
from functools import cache

import pytest

import symsim
from symsim.algebra.expr import ONE, symbol
from symsim.api.result import Result
from symsim.ir.messages import Message
from symsim.report import alike
from symsim.report.blocks import Blocks, between_ranks
from symsim.report.content import report
from symsim.report.document import Equations, Report, Row, Section, Table
from symsim.report.ink import Ink
from symsim.report.markdown import render as markdown
from symsim.report.step import Step

DEPTH = "tp=4,sp=true,pp=8,ep=16,etp=4,dp=16,num_microbatches=32,mtp_num_layers=1"
CASES = [("deepseek-v3", DEPTH), ("deepseek-v3", f"{DEPTH},recompute=full"), ("glm-4.5", "tp=4,sp=true,pp=4,ep=8,dp=8,mtp_num_layers=1")]
_SAID = re.compile(r"(\d+)(?:\u2013(\d+))?: as (?:(\d+)(?:\u2013(\d+))? )?in (.+?)(, run again)?")


@cache
def derived(model: str, strategy: str) -> Result:
    return symsim.derive(model, strategy, system="h100-sxm")


@cache
def document(model: str, strategy: str) -> Report:
    return report(derived(model, strategy))


def tables(sections: object, words: str) -> dict[str, tuple[Row, ...]]:
    """Rows of the tables of operations, seconds or kept tensors, by block."""
    found = [p for s in sections for p in s.parts if isinstance(p, Table)]  # type: ignore[attr-defined]
    named = ((re.search(words, "".join(s for s in t.caption if isinstance(s, str))), t.rows) for t in found)
    return {said[1]: rows for said, rows in named if said}


def numbered(rows: tuple[Row, ...]) -> dict[int, Row]:
    return {int(r.cells[0]): r for r in rows if r.role in ("plain", "inner")}  # type: ignore[arg-type]


def written_out(rows: tuple[Row, ...], earlier: dict[str, dict[int, Row]]) -> dict[int, Row]:
    made = numbered(rows)
    for row in rows:
        if found := _SAID.fullmatch(str(row.cells[0])):
            first, last = int(found[1]), int(found[2] or found[1])
            start = int(found[3] or first)
            assert int(found[4] or found[3] or last) - start == last - first
            made |= {n: earlier[found[5]][n - first + start] for n in range(first, last + 1)}
    return made


@cache
def alone(model: str, strategy: str) -> list[Section]:
    """The section of every block as that of a report of no other."""
    result = derived(model, strategy)
    return [Blocks(result, Ink(result), Step(result)).section(name) for name in result.lowered.blocks]


@pytest.mark.long_after(2)
@pytest.mark.parametrize(("model", "strategy"), CASES)
@pytest.mark.parametrize(
    ("words", "compared"),
    [
        (r"Operations of (.+), forward", slice(2, 6)),
        (r"Seconds of the kernels of (.+) on one rank", slice(2, 8)),
        (r"What (.+) keeps for backward, on one rank", slice(3, 6)),
    ],
)
def test_rows_that_are_left_out_are_where_it_is_said(model: str, strategy: str, words: str, compared: slice) -> None:
    whole, short = tables(alone(model, strategy), words), tables(document(model, strategy).sections, words)
    assert whole.keys() == short.keys()
    # a depth that is recomputed keeps what no layer does
    said = any(_SAID.fullmatch(str(row.cells[0])) for row in short["mtp"])
    assert said != ("recompute" in strategy and words.startswith("What"))
    known: dict[str, dict[int, Row]] = {}
    for block, rows in short.items():
        known[block] = written_out(rows, known)
        ours = {n: row.cells[compared] for n, row in known[block].items()}
        assert ours == {n: row.cells[compared] for n, row in numbered(whole[block]).items()}


def test_a_depth_is_a_layer_and_a_head_and_what_it_adds() -> None:
    equations = {e.key: e for s in document("deepseek-v3", DEPTH).sections for p in s.parts if isinstance(p, Equations) for e in p.equations}
    assert "4bsh^{2} + F_{\\mathrm{moe}} + F_{\\mathrm{head}}" in "".join(equations["F_mtp"].lines)
    numbers = derived("deepseek-v3", DEPTH).numbers
    assert numbers["F_mtp"] == 4 * numbers["b"] * numbers["s"] * numbers["h"] ** 2 + numbers["F_moe"] + numbers["F_head"]


def test_messages_that_are_left_out_are_named() -> None:
    text = markdown(document("deepseek-v3", DEPTH))
    assert "Messages of mtp, beside those of moe and those of head, one micro-batch" in text
    assert (
        "Messages of moe, beside those of dense at `attention.k_pe_gather`, `attention.q_b_proj`, `attention.kv_b_proj`, `attention.o_proj`" in text
    )


def test_a_layer_that_is_recomputed_sends_its_forward_again() -> None:
    """Its messages are listed once; a total that is another is named."""
    text = markdown(document("deepseek-v3", f"{DEPTH},recompute=full"))
    dense = text.split("### 7.2 ")[1].split("### 7.3 ")[0]
    assert "Messages of dense, recomputed" not in dense
    assert r"R_{\mathrm{dense},\mathrm{ckpt}} &= F_{\mathrm{dense}} =" in dense
    assert "For backward, recomputed, moe keeps the same as dense, recomputed." in text


def sent(what: str, elements: str = "h") -> Message:
    return Message("forward", "all_gather", "tp", symbol("tp"), symbol(elements), symbol(elements) * symbol("tp"), "bf16", what, ONE)


def test_operations_that_run_again_send_what_they_did() -> None:
    """What is left out of the messages of a recomputed depth is what its forward has at these operations, no more and no less."""
    made = symsim.derive("deepseek-v3", "tp=2,sp=true,pp=4,ep=8,dp=8,recompute=full,mtp_num_layers=1,num_microbatches=8")
    remembered = made.lowered.blocks["mtp"]
    sent = between_ranks([*remembered.differentiated.forward_messages, *remembered.backward_messages])
    forward = [m for at, m in between_ranks(remembered.differentiated.forward_messages) if at in remembered.recomputed]
    left = alike.once([m for _, m in sent], forward)
    assert left is not None and len(sent) - len(left) == len(forward) == 15
    assert not [m for m in left if "recomputed" in m.what]
    assert alike.once([m for _, m in sent], forward[1:]) is None
    assert "in backward those of the operations that run again" in markdown(report(made))


def test_messages_are_alike_by_name_and_formula() -> None:
    layer = [sent(f"input of attention.{name}") for name in "abcd"]
    inside = [sent(f"input of mtp.attention.{name}") for name in "abcd"]
    assert alike.beside([*inside, sent("input of mtp.e")], {"layer": layer}) == (["layer"], [sent("input of mtp.e")])
    # one of another size, and one that is sent once where the layer has it twice
    other = [*inside[:3], sent("input of mtp.attention.d", "f")]
    assert alike.beside(other, {"layer": layer}) == ([], other)
    assert alike.beside(inside, {"layer": [*layer, layer[0]]}) == ([], inside)
    assert alike.without(inside, [layer[0], layer[0]]) is None


def test_a_few_rows_are_written_out_and_others_in_their_order() -> None:
    rows = [Row((str(n), name)) for n, name in enumerate("abcdefgh", start=1)]
    again = tuple(Row((str(n), name)) for n, name in enumerate("xbcdefgh", start=1))
    assert alike.since(again, {"first": rows}) == (again[0], Row(("2\u20138: as in first",), "group"))
    later = tuple(Row((str(n), name)) for n, name in enumerate("xyabcdz", start=1))
    assert [str(r.cells[0]) for r in alike.since(later, {"first": rows})] == ["1", "2", "3\u20136: as 1\u20134 in first", "7"]
    assert alike.since(later[2:5], {"first": rows}) == later[2:5]
