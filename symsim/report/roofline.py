"""The chapter on the roofline: what the slowest stage's kernels reach, against what the machine allows."""

from __future__ import annotations

from symsim.algebra.kinds import in_words
from symsim.report.amounts import percent, seconds
from symsim.report.document import Code, Column, Paragraph, Point, Roofline, Row, Section, Table, spans
from symsim.report.ink import Ink
from symsim.report.kernels import RATES, Kernel, achieved, moves, often, peaks
from symsim.report.sources import ROOFLINE
from symsim.report.step import Step

_NAMED, _LISTED = 5, 20


def section(step: Step, ink: Ink) -> Section:
    which = f" of stage {step.slowest}, the slowest" if step.depth > 1 else ""
    whole = sum(k.total for k in step.kernels)
    moving = sum(k.total for k in step.kernels if not k.flops)
    said = (
        f"Kernels{which}: the FLOP/s each reaches over its FLOP a byte of HBM traffic. Attention counts the pairs of query and key that its "
        f"kernel works through. Kernels that multiply nothing (norms, activations, exchanges, the loss) take {percent(moving / whole)} of the "
        "kernels' time and have no place in the picture; the table gives what they reach of the HBM bandwidth."
    )
    by = spans(said, " The picture is that of ", ink.sources.cited(ROOFLINE), ".")
    return Section("Roofline", (Paragraph(by), picture(step), _table(step, whole)), 2)


def picture(step: Step) -> Roofline:
    """A point for each kernel that multiplies, the five longest with their names."""
    whole = sum(k.total for k in step.kernels)
    multiplying = [k for k in step.kernels if k.flops]
    points = tuple(
        Point(k.intensity, k.flops_per_second, k.total / whole, f"{k.operation}, {k.phase}" if n < _NAMED else "") for n, k in enumerate(multiplying)
    )
    values, reached = step.result.values, {k.peak for k in multiplying}
    # types of one rate share a roof, under the name of the strategy's own
    roofs = {rate: RATES[n] for n, rate in reversed(peaks(step.result).items()) if rate in reached}
    own = float(values["Phi"])
    roofs |= {own: step.result.strategy.precision} if own in roofs else {}
    caption = spans("Roofline: areas of points grow with their kernels' share of the time; the five longest are named.")
    return Roofline(caption, points, float(values["B_hbm"]), tuple((name, peak) for peak, name in sorted(roofs.items(), reverse=True)))


def _table(step: Step, whole: float) -> Table:
    rows = [_row(k, whole, step) for k in step.kernels[:_LISTED]]
    columns = (
        Column("block", 5),
        Column("kernel", 17),
        Column("calls", 3, True),
        Column("time", 5.5, True),
        Column("share", 4.5, True),
        Column("bound", 5),
        Column("FLOP/byte", 6, True),
        Column("reaches", 8, True),
        Column("of that", 5, True),
    )
    left = f", the {_LISTED} longest of {len(step.kernels)}" if len(step.kernels) > _LISTED else ""
    strategy = step.result.strategy
    differ = strategy.num_microbatches_with_partial_activation_checkpoints is not None or strategy.defer_embedding_wgrad_compute
    mean = ", their mean where micro-batches differ" if differ else ""
    said = f"Calls include those of recomputation{mean}; of that: of the peak rate where it multiplies, of the HBM bandwidth where it moves."
    return Table(spans(f"Kernels of one micro-batch{left}. {said}"), columns, tuple(rows), key="kernels")


def _row(kernel: Kernel, whole: float, step: Step) -> Row:
    roof = kernel.bytes_per_second / float(step.result.values["B_hbm"]) if moves(kernel) else kernel.flops_per_second / kernel.peak
    return Row(
        (
            Code(in_words(kernel.block)),
            (Code(kernel.operation), f", {kernel.phase}"),
            often(kernel),
            seconds(kernel.total),
            percent(kernel.total / whole),
            kernel.bound,
            f"{kernel.intensity:.4g}" if kernel.flops else "",
            achieved(kernel),
            percent(roof),
        )
    )
