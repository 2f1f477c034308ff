"""The next knob in 80 columns: a change, the step and the memory before and after it, and the part of the step that it shortens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symsim.algebra.quantity import BYTE
from symsim.report.amounts import human, percent, seconds
from symsim.report.columns import wrapped

if TYPE_CHECKING:
    from symsim.planning.knobs import Change, Next

_TOGETHER = "Each alone, on the same ranks with the same batch; 'symsim plan' finds the best of all together."


def next_text(found: Next) -> str:
    """As `symsim eval --next` ends."""
    title = "Changes that shorten the step most" if found.fits else "Changes after which it fits, the shortest step first"
    nothing = "  none of one option or size does" if found.fits else "  none of one option or size is enough"
    lines = [f"{title} (of {found.evaluated} evaluated)", *(change_lines(found.changes) or [nothing])]
    if found.changes:
        lines.append(wrapped(_TOGETHER, "  ", hanging=2))
    if found.batch is not None:
        batch = found.batch
        said = f"{batch.before:,.0f} -> {batch.after:,.0f} tokens a second with num_microbatches={batch.enough}; twice as many gain less than 5 %."
        lines += ["", wrapped(f"No batch is given, so that a step is the least that can run: {said}")]
    return "\n".join(lines) + "\n"


def change_lines(changes: Sequence[Change]) -> list[str]:
    """Two lines a change, or more."""
    lines = []
    for change in changes:
        shorter = 1 - change.after / change.before
        step = f"{seconds(change.before)} -> {seconds(change.after)} ({percent(abs(shorter))} {'less' if shorter >= 0 else 'more'})"
        memory = f"memory {'+' if change.memory > 0 else '-'}{human(abs(change.memory), BYTE)}" if change.memory else "the same memory"
        part = f"; {change.part}: {seconds(change.part_before)} -> {seconds(change.part_after)}" if change.part_after < change.part_before else ""
        lines += [f"  {change.text}", wrapped(f"    {step}, {memory}{part}".replace("\u2009", " "), hanging=6)]
    return lines
