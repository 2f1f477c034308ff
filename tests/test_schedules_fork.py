"""Schedules of the zero-bubble fork of Megatron-LM: their orders by the fork's own rule, and how near the closed forms are to them."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache

import pytest
from schedule_cases import equal_stages, inexact, refused, sizes

from symsim.pipeline.orders import order, replay
from symsim.pipeline.schedules import SCHEDULES

GROUPED = SCHEDULES["grouped_interleaved"]
# drawn sizes come again and again, and an order takes longer than its replay
ordered = cache(order)


def _placed(p: int, m: int, v: int, group: int) -> list[list[tuple[str, int, int]]]:
    """Operations of each rank by their places in scheduler/group_interleaved_1f1b.py: a group takes three places a micro-batch and chunk, a rank
    starts one place after the rank before it, and the first backward as soon as its gradient can be there, two places a rank."""
    rows = []
    for rank in range(p):
        row = []
        backward = 3 * group * (v - 1) + rank + 3 * (p - 1 - rank) + 1
        for k in range(m):
            for chunk in range(v):
                place = 3 * (group * (v * (k // group) + chunk) + k % group)
                row.append((place + rank, "F", chunk * p + rank, k))
                row += [(backward + place + n, kind, (v - 1 - chunk) * p + rank, k) for n, kind in enumerate("IW")]
        rows.append([operation[1:] for operation in sorted(row)])
    return rows


@pytest.mark.parametrize("p", [2, 3, 4, 7, 8])
def test_groups_run_in_the_places_of_the_fork(p: int) -> None:
    for group in range((p + 1) // 2, p + 1):
        for m, v in ((1, 2), (group, 3), (2 * group, 2), (3 * p, 4), (3 * p + 1, 2), (4 * p - 1, 3)):
            if group <= m:
                assert [[tuple(slot[0]) for slot in row] for row in order("grouped_interleaved", p, m, v, group)] == _placed(p, m, v, group)


@pytest.mark.long
def test_groups_are_exact_as_far_as_they_say() -> None:
    """Of 500 drawn cases: exact where the row says so, never too long, and how low where only the last group is short, and elsewhere."""
    draw, said = random.Random(2), 0
    errors: dict[bool, list[float]] = {True: [], False: []}
    while said + sum(map(len, errors.values())) < 500:
        p, v, m = draw.randint(2, 9), draw.randint(2, 5), draw.randint(1, 30)
        size = sizes(p, m, v, draw.randint((p + 1) // 2, p))
        if refused(GROUPED, size):
            continue
        length = {kind: Fraction(draw.randint(5, 20), 10) for kind in "FIW"}
        c = draw.choice((Fraction(0), Fraction(1, 10), Fraction(1, 5)))
        end = max(t.end for t in replay(ordered("grouped_interleaved", p, m, v, int(size["group"])), lambda o, length=length: length[o.kind], c))
        values = size | equal_stages(p, v, *length.values(), c=c)
        reason, error = inexact(GROUPED, values), float(GROUPED.makespan.evaluate(values) / end - 1)
        if reason is None:
            assert error == 0
            said += 1
        else:
            errors["whole groups" in reason].append(error)
    short, other = errors[True], errors[False]
    assert max(short + other) == 0
    assert (said, len(short), sum(e == 0 for e in short), sum(e == 0 for e in other)) == (258, 188, 165, 30)
    assert -0.017 < min(short) and -0.138 < min(other)


# forwards, input and weight gradients or whole backwards of a rank in turn, of its second chunk in small letters; from the schedulers as they run
ORDERS = {
    ("v_half", 4, 7): (
        "FFFFFfiwfiwfIiwfWFIiwfWFIiwfiwIWWfiIwIWWIW",
        "FFFFffiwfiwIWFfiwIWFfiwIFWfiwIiwfWIiIwWWIW",
        "FFFfffiwFiIwWfFIiwfWFIiwfWFIiwfiIwIiwWIWWW",
        "FfFfFfiwIWFfiwIWFfiwIFWfiIwFWfiIiIwwiIwWWW",
    ),
    ("v_half", 5, 9): (
        "FFFFFfiwfiwfiwIWFfiwIWFfiwIWFfiwIWFfiwIWfiwIWfiIwWIWIW",
        "FFFFffiwFiwfIiwfWFIiwfWFIiwfWFIiwfWFIiwfWIiwfWIiwWIWIW",
        "FFFFffiwfiwIWFfiwIWFfiwIWFfiwIWFfiwIFWfiwIWfiIwWiIwWIW",
        "FFFfffiwFiIwWfFIiwfWFIiwfWFIiwfWFIiwfWFIiwfWIiwWIiwWIW",
        "FfFfFfiwIWFfiwIWFfiwIWFfiwIWFfiIwFWfiIwFWfiIwWiIwWiIwW",
    ),
    ("v_min", 4, 7): (
        "FFFfiwfiwIWFfiIwWFfiIwWFfiIwWFfiIwWfiIwWIW",
        "FFffiwFIiwWfFIiwWfFIiwWfFIiwWfFIiwWfIiwWIW",
        "FFffiwFIWifwIFWifwIFWifwIFWifwIFWifwIWiwIW",
        "FfFfiIwWFfiIwWFfiIwWFfiIwWFfiIwWFfiIwWiIwW",
    ),
    ("v_min", 3, 6): (
        "FFFfiwfIiwWfFIiwWfFIiwWfFIiwWfiIwWIW",
        "FFffiwIFWifwIFWifwIFWifwIFWifwIiwWIW",
        "FfFfiIwWFfiIwWFfiIwWFfiIwWFfiIwWiIwW",
    ),
    ("1f1b_v", 4, 7): (
        "FFFFFfbfbfbfbBFfbBFfbBfbBBBB",
        "FFFFffbfbFbfBbfFBbfFBbfBbBBB",
        "FFFfffbFbFBfbBfbFBfbFBfbBbBB",
        "FfFfFfbBFfbBFfbBFfbBFfbBbBbB",
    ),
    ("1f1b_v", 3, 6): ("FFFFFfbfbfbfBbFfBbfBbBBB", "FFFfFfbfbFBfbBfbFBfbBbBB", "FfFfFfbBFfbBFfbBFfbBbBbB"),
}


@pytest.mark.parametrize(("name", "p", "m"), ORDERS)
def test_orders_of_a_v_are_those_of_the_fork(name: str, p: int, m: int) -> None:
    rows = [[slot[0] for slot in row] for row in order(name, p, m, 2)]
    assert tuple("".join(o.kind if o.stage < p else o.kind.lower() for o in row) for row in rows) == ORDERS[name, p, m]
    for row in rows:
        for kind, stage in {(o.kind, o.stage) for o in row}:
            assert [o.microbatch for o in row if (o.kind, o.stage) == (kind, stage)] == list(range(m))


@pytest.mark.long_after(3)
@pytest.mark.parametrize(
    ("name", "inputs", "weights", "mean", "low", "high"),
    [
        ("v_half", (0.8, 1.5), (0.6, 1.1), 0.0012, -0.006, 0.005),
        ("v_half", (1.8, 2.6), (0.6, 1.1), 0.0014, -0.001, 0.019),  # with recompute
        ("v_half", (0.4, 2.5), (0, 2.5), 0.0033, -0.018, 0.02),
        ("v_min", (0.8, 1.5), (0.6, 1.1), 0.0013, -0.011, 0.004),
        ("v_min", (1.8, 2.6), (0.6, 1.1), 0.0004, -0.003, 0.001),
        ("v_min", (0.4, 2.5), (0, 2.5), 0.0037, -0.049, 0.013),
        ("1f1b_v", (1, 1.5), (1, 1.2), 0.0024, -0.007, 0.009),
        ("1f1b_v", (1.8, 2.6), (0.6, 1.1), 0.0019, -0.006, 0.007),
        ("1f1b_v", (0.4, 1), (0.1, 1), 0.0093, -0.05, 0.027),
    ],
)
def test_makespans_of_a_v_are_estimates(
    name: str, inputs: tuple[float, float], weights: tuple[float, float], mean: float, low: float, high: float
) -> None:
    """Of 200 drawn pipelines, over the seconds of a forward, messages up to a tenth of it: how far the makespan is from the order's."""
    draw, errors = random.Random(1), []
    for _ in range(200):
        p = draw.randint(3, 10)
        m, c = draw.choice((2 * p - 1, 2 * p, 3 * p, 4 * p)), draw.uniform(0, 0.1)
        parts = 1.0, draw.uniform(*inputs), draw.uniform(*weights)
        length = dict(zip("FIW", parts)) | {"B": parts[1] + parts[2]}
        end = max(t.end for t in replay(ordered(name, p, m, 2), lambda o, length=length: length[o.kind], c))
        values = sizes(p, m, 2) | equal_stages(p, 2, *parts, c=c)
        errors.append(float(SCHEDULES[name].makespan.evaluate(values)) / end - 1)
    assert sum(map(abs, errors)) / 200 < mean and low < min(errors) and max(errors) < high
