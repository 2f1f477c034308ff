"""Context parallelism as TransformerEngine does it: volumes read in context_parallel.py, for one attention layer."""

from __future__ import annotations

from collections import Counter

import pytest

from symsim.algebra.expr import expr, symbol
from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy

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
