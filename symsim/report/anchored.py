"""What `symsim anchor` prints: what was measured beside what is predicted, by how much kinds of numbers were off, and what moved."""

from __future__ import annotations

from symsim.calibration.anchor import Anchor
from symsim.inputs.spreads import KINDS
from symsim.report.amounts import seconds
from symsim.report.columns import table, wrapped

_MOST = 12  # numbers shown
_LEAST = 0.05  # of a spread
_RARE = 3.0


def anchor_table(found: Anchor) -> str:
    """The result in 80 columns of text."""
    rows = []
    for before, after in zip(found.before, found.after):
        error = before.predicted / before.seconds - 1
        rows.append([after.said, seconds(before.seconds), seconds(before.predicted), f"{100 * error:+.1f} %", seconds(after.predicted)])
    parts = [table("What was measured", ["", "measured", "predicted", "error", "now"], rows)]
    kinds = sorted(found.off.items(), key=lambda item: -abs(item[1]))
    off = [[KINDS[kind], f"{by:+.2f}"] for kind, by in kinds if abs(by) >= _LEAST]
    if off:
        parts.append(table("By how many of its spreads each kind was slower", ["", "spreads"], off))
    shown = list(found.changed.items())[:_MOST]
    if shown:
        more = f"\n  and {len(found.changed) - _MOST} more" if len(found.changed) > _MOST else ""
        parts.append(table("Numbers of the system", ["", "before", "now"], [[name, *values] for name, values in shown]) + more)
    if found.surprise > _RARE:
        said = f"The system is {found.surprise:.1f} spreads off, which is rare: rather a setting of the run is another than what is said."
        parts.append(wrapped(said))
    return "\n\n".join(parts) + "\n"
