"""What a pipeline waits for where its micro-batches differ, besides filling and draining: how many of a step's micro-batches take as long as the
longest of how many.

A rank of 1F1B has no work ahead: a micro-batch that takes longer keeps all ranks that it passes, and between them the step goes at the pace of the
longest of nearly all that are under way. Interleaved orders and those with weight gradients apart have work in between, which hides all but about as
many as there are ranks, as long as micro-batches differ by no more than a fifth; the more they do, the more of them show. The numbers are read off
orders (`symsim/pipeline/orders.py`) replayed with micro-batches that are drawn, normal, exponential and lognormal (`tests/draws/pipelines.py`).
"""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ONE, Expr, sqrt, symbol
from symsim.pipeline.schedule import first_group, is_positive, m, p, positive, v

# micro-batches, and of how many each is the longest
Pace = tuple[Expr, Expr]

_1F1B: Pace = positive(m - sqrt(p) - Fraction(1, 2)), Fraction(7, 8) * p
# standard deviation of a micro-batch's seconds, over their mean
DIFFER = symbol("differ")
_SHOWN = positive(m - p / 2) * positive((DIFFER - Fraction(1, 5)) / (DIFFER + Fraction(7, 10)))
_APART: Pace = Fraction(3, 5) * p + _SHOWN, p
_PAIRS = sqrt(p * sqrt(sqrt(p)))
# groups of as many micro-batches as ranks return when they are needed, larger ones before
_RETURNS = 1 + (v - 2) * (1 - is_positive(first_group - p))

PACES: dict[str, Pace] = {
    "1f1b": _1F1B,
    "ds_default": _1F1B,
    "merak_1f1b": _1F1B,
    "pre_recompute_1f1b": _1F1B,
    "last_no_recompute_1f1b": _1F1B,
    "shifted_critical_path": _1F1B,
    "interleaved": (p / v * _RETURNS + _SHOWN, p),
    "grouped_interleaved": (p / 4 + _SHOWN, p),
    "interleaved_zb": _APART,
    "zb_h1": (Fraction(2, 3) * p + _SHOWN, p),
    "zb_h2": (0 * ONE, ONE),
    "zbv": (p / 2, p / 2),
    "v_half": _APART,
    "v_min": (positive(m - sqrt(p) / 2), Fraction(3, 5) * p),
    "1f1b_v": (positive(m - sqrt(p)), p / 2),
    "dualpipe": (m - p / 2, _PAIRS),
    "dualpipev": (m - sqrt(p), _PAIRS),
}
"""By schedule; one that runs all forwards and then all backwards is none of them: it waits for the longest of all micro-batches."""
