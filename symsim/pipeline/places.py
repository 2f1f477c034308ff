"""What a pipeline takes where its stages differ: each counts with its place, and the rank that makes the others wait longest decides.

The symbols are those of `schedule.py`, and of a stage its seconds (`t_stage`, `tf_stage`, ..), its place `i` and whether it is the first.
"""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr, floor, maximum, minimum, symbol
from symsim.algebra.reductions import stages_after, stages_before, stages_max, stages_sum
from symsim.pipeline.schedule import i, is_positive, m, p, positive


def _longest_wait(times: Expr, forward: Expr) -> Expr:
    """What 1F1B takes longer than one micro-batch takes on all ranks, by the rank i that makes the others wait longest. times: of a micro-batch on
    a rank, of which forward is the first part.

    The rank does its own m; it stands idle until its first micro-batch is back from the ranks after it, but for the forwards
    that it does meanwhile (pp - 1 - i, or those that are left), and once more until its last is, but for as many backwards. With fewer micro-batches
    than ranks from here on its backwards begin behind its last forward, and only the first time counts.
    """
    behind, after = p - i, stages_after(times)
    first = positive(after - (minimum(m, behind) - 1) * forward)
    last = positive(after - (behind - 1) * (times - forward)) * is_positive(m - behind + 1)
    return stages_max((m - 1) * times - after + first + last)


T_PLACE = (m - 1) * symbol("t_slow") - _longest_wait(symbol("t_stage"), symbol("tf_stage"))
"""t_place in 1f1b: what the pipeline waits for is less than m - 1 micro-batches of the slowest stage, where that one has nothing left to do while
the last micro-batches drain behind it. Zero where all are equal; never more than the replay, nor a step that is shorter than its slowest
stage's work (tests)."""


def split_path(message: Expr) -> Expr:
    """The longest path of zb_h1 along the ranks, with as many micro-batches as ranks or more. message: seconds of one between neighbours.

    As in 1F1B a rank i has its first micro-batch when the ranks before it have run it forward, does its own m, and stands idle until the first is
    back and until the last is. Its last weight gradients, i of them, come then, or the input gradients of the ranks before it, of which
    the first has one weight gradient left. Before it has weight gradients a rank waits for a micro-batch to go to and fro between its neighbour and
    itself, as far as it is no slower than the ranks before it; the last one does later on too, where its weight gradients are shorter.
    """
    f, w = symbol("tf_stage"), symbol("tw_stage")
    x = symbol("ti_stage") + symbol("tr_stage")
    behind, after, before = p - 1 - i, stages_after(f + x), stages_before(f + x)
    first = positive(after + 2 * behind * message - behind * f)
    last = positive(after + 2 * behind * message * is_positive(m - behind - 1) - behind * (x + w))
    idle = stages_before(f) + i * message + first + last
    if message != ZERO:
        slower = i * (f + x) - before
        to_and_fro = 2 * positive(minimum(i, m - p + i - 1)) * message
        idle = idle + positive(to_and_fro - slower) - positive(-slower)
        later = (floor((m - 1) * (p - 1) / p) - (p - 1)) * positive(2 * message - w)
        idle = idle + positive(later) * is_positive(i - p + 2)
    of_first = stages_sum(symbol("first_i") * w)
    own = stages_max(idle + m * (f + x + w))
    return maximum(own, stages_max(idle + m * (f + x) + (m - 1 - i) * w + stages_before(x) + i * message) + of_first)
