"""Switches of several systems that are one assumption here."""

from __future__ import annotations

from symsim.importers.keys import Keys

_IN_ORDER = "attention's backward at its largest measured loss; scatters and reductions in a fixed order, below that, are as ever"


def deterministic(keys: Keys, assumptions: dict[str, str], *names: str) -> None:
    """Kernels that give the same bits in every run."""
    for name in names:
        if keys.flag(name, False, to="assume.deterministic_attention", why=_IN_ORDER):
            assumptions["deterministic_attention"] = "true"


COLLECTED = "all ranks collect at the same step, so that none waits for another (assume.stragglers=none): a tenth of a second every so many steps"
