"""A closed form solves the formula that is printed above it, next to the answer; where none does, none is said."""

from __future__ import annotations

from functools import cache

import pytest

import symsim
from symsim.algebra.expr import Call, Expr
from symsim.api.result import Result
from symsim.asking.answers import Extreme


@cache
def _result() -> Result:
    return symsim.derive("llama3-8b", "tp=2,sp=true,dp=4,global_batch_size=64", system="h100-sxm")


def _unrounded(answer: Extreme, limit: float) -> list[float]:
    """Where the formula printed of the answer is the limit, what rounds up or down being its argument: by its three kinds of terms."""
    (holding,) = answer.holding
    form = holding.branch.active
    assert form is not None

    def at(x: float) -> float:
        return _smooth(form, x) - limit

    found, points = [], [1 + k / 8 for k in range(8 * 200)]
    for low, high in zip(points, points[1:]):
        if at(low) * at(high) <= 0:
            while high - low > 1e-12 * high:
                middle = (low + high) / 2
                low, high = (low, middle) if at(low) * at(middle) <= 0 else (middle, high)
            found.append(low)
    return found


def _smooth(form: Expr, x: float) -> float:
    """The formula at so many data ranks, what rounds being its argument at any depth."""
    found = 0.0
    for monomial, c in form.terms.items():
        made = float(c)
        for atom, power in monomial:
            made *= (_smooth(atom.arguments[0], x) if isinstance(atom, Call) else x) ** power
        found += made
    return found


@pytest.mark.parametrize("limit", [1.9, 2.0, 2.5])
def test_micro_batches_follow_the_ranks_that_share_a_batch(limit: float) -> None:
    """m is 64/dp: held where it is, the closed form of 2 s was -0.46."""
    found = _result().smallest("dp", f"t_step < {limit} s")
    assert found.closed is not None and found.closed.smooth and (found.value, found.beyond) == (8, 4)
    roots = _unrounded(found, limit)
    assert len(roots) == 2 and 4 < roots[0] < 8 < roots[1]
    assert found.closed.value == pytest.approx(roots[0], rel=1e-9)


def test_what_is_solved_far_from_the_answer_is_no_closed_form() -> None:
    """Without rounding s/10000 is 1.5 at 15,000, where the condition has long stopped to hold."""
    far, near = (_result().largest("s", f"ceil(s/10000) <= {most}") for most in (1.5, 1.05))
    assert far.value == near.value == 10_000 and far.closed is None
    assert near.closed is not None and near.closed.smooth and near.closed.value == pytest.approx(10_500)


def test_what_moves_along_is_solved_for_in_symbols_too() -> None:
    """Of m = 64/dp; with m as it is there was no root in symbols."""
    closed = _result().largest("dp", "m >= 5").closed
    assert closed is not None and (closed.value, closed.text) == (pytest.approx(12.8), "64/5")
