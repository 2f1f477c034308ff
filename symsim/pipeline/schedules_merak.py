"""Schedules by the step clock of DeepSpeed and Merak, in which neighbours exchange, then compute."""

from __future__ import annotations

from symsim.algebra.expr import ONE, maximum, minimum, symbol
from symsim.pipeline.places import T_PLACE
from symsim.pipeline.schedule import PIPE, Condition, Schedule, fill_b, fill_f, i, m, p, positive, sum_ti, sum_tw, tc, tf, ti, tr, tw, with_fill

_MERAK = "Merak (arXiv 2206.04959), Merak/core/pipeline/schedule.py"
# Merak sends and receives in one blocking exchange with the neighbour, so every one stands in the way
SHORT_EXCHANGES: tuple[Condition, ...] = (
    (tf - 2 * tc, "two exchanges take no longer than a forward"),
    (ti + tw - 2 * tc, "two exchanges take no longer than a backward"),
)
_DEEPER = minimum(1, p - 2)
# every send and receive a call of its own, and those of a step merged
SINGLE_EXCHANGES = 2 * (p - 1) + 2 * (m - 1) + 2 * _DEEPER * positive(m - 2)
MERGED_EXCHANGES = 2 * (p - 1) + (m - 1) + _DEEPER * positive(m - 2)
_HOISTED = fill_f + (sum_ti + sum_tw) - (ti + tw) + MERGED_EXCHANGES * tc
# a hoisted recompute as long as the forwards that it runs beside, or longer
_LONGER_RECOMPUTE = maximum(0, (p - 1) * (tr - tf), _DEEPER * (maximum(tr - tf, (p - 2) * (tr - tf)) + tc))
_BEFORE_LAST = positive(minimum(i - p + 3, p - 1 - i))


def ds_default() -> Schedule:
    return with_fill(
        "ds_default",
        "1F1B by the step clock of DeepSpeed, every send and receive a blocking call of its own",
        f"DeepSpeed runtime/pipe/schedule.py TrainSchedule; {_MERAK}:75-183",
        fill_f + fill_b - symbol("t_place") + SINGLE_EXCHANGES * tc,
        minimum(m, p - i),
        requires=(PIPE,),
        exact_while=SHORT_EXCHANGES,
        saved={"place": T_PLACE},
    )


def merak_1f1b() -> Schedule:
    return with_fill(
        "merak_1f1b",
        "ds_default with the send and the receive of a step merged",
        f"{_MERAK}:185-254",
        fill_f + fill_b - symbol("t_place") + MERGED_EXCHANGES * tc,
        minimum(m, p - i),
        requires=(PIPE,),
        exact_while=SHORT_EXCHANGES,
        saved={"place": T_PLACE},
    )


def pre_recompute() -> Schedule:
    return with_fill(
        "pre_recompute_1f1b",
        "merak_1f1b whose last pp - 1 - i recomputes on rank i run while the gradient is still on its way",
        f"{_MERAK}:256-331",
        _HOISTED + _LONGER_RECOMPUTE,
        minimum(m, p - i),
        whole=minimum(1, p - 1 - i),
        requires=(PIPE, (m - p, "num_microbatches of pp or more")),
        exact_while=SHORT_EXCHANGES,
    )


def last_no_recompute() -> Schedule:
    return with_fill(
        "last_no_recompute_1f1b",
        "pre_recompute_1f1b without recompute on the last rank, and the first recompute of the rank before it ahead of its gradient",
        f"{_MERAK}:334-430",
        positive(_HOISTED + _LONGER_RECOMPUTE - tr + tc + maximum(-tr, _DEEPER * tc - ti - tw)),
        minimum(m, p - i),
        whole=ONE,
        requires=(PIPE, (m - p, "num_microbatches of pp or more"), (m - 3, "3 micro-batches or more")),
        exact_while=SHORT_EXCHANGES,
    )


def shifted_critical_path() -> Schedule:
    behind = maximum(2 * (tr - tf), (p - 1) * (tr - tf))
    longer = maximum(0, minimum(p, m - 1) * (tr - tf) + _DEEPER * tc, _DEEPER * (behind + 2 * tc))
    swapped = maximum(-tr, tf - ti - tw + minimum(p - 1, 3) * _DEEPER * tc)
    return with_fill(
        "shifted_critical_path",
        "last_no_recompute_1f1b whose rank before the last runs a third forward ahead of its first backward",
        f"{_MERAK}:432-589",
        positive(_HOISTED + longer + swapped - 2 * tr + (2 - _DEEPER) * tc),
        minimum(m, p - i) + _BEFORE_LAST,
        whole=ONE,
        requires=(PIPE, (m - p, "num_microbatches of pp or more"), (m - 4, "4 micro-batches or more")),
        exact_while=SHORT_EXCHANGES,
    )
