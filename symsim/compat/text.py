"""The ledger of differences as text: both answers, then a line for what each difference moves, largest first."""

from __future__ import annotations

import textwrap

from symsim.algebra.expr import Number
from symsim.compat.compare import Comparison

_WIDTH = 78
_MIB, _GIB, _PETA = 2**20, 2**30, 1e15


def comparison_text(made: Comparison) -> str:
    """Quantities of the stage that has most of each; every difference with its two sides once."""
    lines = [f"{'':<18} {'symsim':>14} {made.kind:>14}"]
    for name, here in made.here.items():
        mine, other = max(here), max(made.there[name])
        if mine or other:
            lines.append(f"{name:<18} {said(made.units[name], mine):>14} {said(made.units[name], other):>14} {_share(float(mine), float(other)):>9}")
    lines += ["", f"{'difference':<22} {'quantity':<17} {'symsim':>12} {'alone':>12}"]
    for move in made.moves:
        before, after = (said(made.units[move.quantity], value) for value in (move.here, move.alone))
        lines.append(f"{move.difference.name:<22} {move.quantity:<17} {before:>12} {after:>12} {_share(move.here, move.alone):>9}")
    lines.append("")
    for row in {move.difference.name: move.difference for move in made.moves}.values():
        lines += _wrapped(f"{row.name}: {row.here}; there {row.there} ({row.source})")
    if made.still:
        lines += ["", *_wrapped(f"nothing moves here for: {', '.join(row.name for row in made.still)}")]
    return "\n".join(lines) + "\n"


def said(unit: str, value: Number | float) -> str:
    """A number with its unit: MiB or GiB, TFLOP or milliseconds."""
    if unit == "second":
        return f"{1000 * float(value):,.1f} ms"
    if unit == "FLOP":
        return f"{float(value) / 1e12:,.2f} TF" if value < _PETA else f"{float(value) / _PETA:,.2f} PF"
    return f"{float(value) / _MIB:,.1f} MiB" if value < 10 * _GIB else f"{float(value) / _GIB:,.2f} GiB"


def _share(here: float, other: float) -> str:
    if here == other:
        return "equal"
    return f"{100 * (other - here) / here:+.2f} %" if here else "new"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ")
