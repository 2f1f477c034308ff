"""Context parallelism as TransformerEngine does it: volumes read in context_parallel.py, for one attention layer."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from symsim.algebra.expr import expr, symbol
from symsim.api.result import derive
from symsim.cost.kernel_time import forward_seconds, merging_seconds
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

b, s, a, g, d, t, c = (symbol(n) for n in ("b", "s", "a", "g", "d", "tp", "cp"))
Q, K = 2 * b * s * a * d / (c * t), 2 * b * s * g * d / (c * t)  # bytes one rank holds of queries (or outputs), of keys (or values)


def calls(kind: str) -> Counter:
    result = derive(load_model("llama3-8b").architecture, Strategy(tp=2, sp=True, cp=2, cp_comm_type=kind))
    block = result.lowered.blocks["dense"]
    found: Counter = Counter()
    for _, m in (*block.differentiated.forward_messages, *block.backward_messages):
        if m.axis == "cp":
            found[m.phase, m.op, m.send_bytes, m.receive_bytes, m.count] += 1
    return found


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("p2p", {("forward", "p2p", 2 * K, 2 * K, c - 1): 1, ("backward", "p2p", 2 * K, 2 * K, c - 1): 2}),
        (
            "all_gather",
            {("forward", "all_gather", K, c * K, 1): 2, ("backward", "all_gather", K, c * K, 1): 2, ("backward", "reduce_scatter", c * K, K, 1): 2},
        ),
        (
            "a2a",
            {
                ("forward", "all_to_all", Q, Q, 1): 2,
                ("forward", "all_to_all", K, K, 1): 2,
                ("backward", "all_to_all", Q, Q, 1): 2,
                ("backward", "all_to_all", K, K, 1): 2,
            },
        ),
    ],
)
def test_volumes(kind: str, expected: dict) -> None:
    assert calls(kind) == Counter({(phase, op, send, receive, expr(n)): times for (phase, op, send, receive, n), times in expected.items()})


@pytest.mark.parametrize(("kind", "n"), [("p2p", 4), ("all_gather", 4), ("a2a+p2p,hierarchical_context_parallel_sizes=2+4", 4)])
def test_the_last_of_contiguous_parts_has_most_keys(kind: str, n: int) -> None:
    """Its queries see s (1 - 1/2n) keys in the mean, of s/2: replayed over the queries of each rank; FLOPs of all ranks stay what they are."""
    s, cp = 65536, 8 if kind.startswith("a2a") else n
    work = [sum(query + 1 for query in range(s // n * rank, s // n * (rank + 1))) for rank in range(n)]
    times = {}
    for mode in ("zigzag", "contiguous"):
        given = f"cp={cp},cp_comm_type={kind},cp_partition_mode={mode},seq_length={s},recompute=full"
        result = derive(load_model("llama3-8b").architecture, load_strategy(given), system=load_system("h100-sxm"))
        block = result.lowered.blocks["dense"]
        at = next(i for i, op in enumerate(block.placed.block.ops) if op.kind == "attention")
        whole, merged = (of(block.placed, at, result.lowered.profile) for of in (forward_seconds, partial(merging_seconds, backward=False)))
        times[mode] = float((whole.expr - merged.expr).evaluate(result.numbers)), result.value("flops.forward")
    assert times["contiguous"][1] == times["zigzag"][1]
    assert times["contiguous"][0] / times["zigzag"][0] == pytest.approx(max(work) / (sum(work) / n), rel=1e-4)
    # an exchange of heads leaves every rank whole rows, and packed rows end where their documents do
    for more in ("cp_comm_type=a2a", "packed_document_length=4096"):
        steps = {
            mode: derive(
                load_model("llama3-8b").architecture,
                load_strategy(f"cp=4,seq_length={s},cp_partition_mode={mode},{more}"),
                system=load_system("h100-sxm"),
            ).value("time.step")
            for mode in ("zigzag", "contiguous")
        }
        assert steps["zigzag"] == steps["contiguous"]


def test_an_output_that_its_projection_keeps_comes_back_for_the_backward() -> None:
    """One copy of it is kept in place of two, of 2 bytes over ranks of tensors and of tokens, and exchanged once more."""
    found = {}
    for kept in ("attention", "projection"):
        asked = Strategy(tp=2, sp=True, cp=4, cp_comm_type="a2a", seq_length=4096, cp_saved_output=kept)
        found[kept] = derive(load_model("llama3-8b").architecture, asked, {}, None, load_system("h100-sxm"))
    bytes_of = {kept: float(result.stage_numbers(result.stages[0])["A_dense"]) for kept, result in found.items()}
    assert bytes_of["attention"] - bytes_of["projection"] == 2 * 4096 * 4096 / 2 / 4
    sent = {kept: [m for _, m in result.lowered.blocks["dense"].backward_messages if m.axis == "cp"] for kept, result in found.items()}
    (again,) = [m for m in sent["projection"] if m.purpose == "gathered again"]
    assert len(sent["projection"]) == len(sent["attention"]) + 1 and again.op == "all_to_all"
    seconds = {kept: float(result.value("t_step")) for kept, result in found.items()}
    assert seconds["projection"] > seconds["attention"]
    with pytest.raises(InputError, match="cp_saved_output=projection needs cp_comm_type=a2a and cp above 1"):
        derive(load_model("llama3-8b").architecture, Strategy(cp=4, cp_saved_output="projection"))
