"""The formulas of all variants of a sweep, by several processes where many are not yet kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symsim.grid.processes import forked, shared
from symsim.grid.variant import Undone, Variant

# fewer derivations than this are made before other processes have started
_WORTH_FORKING = 6


def derive_all(undone: Sequence[Undone], progress: Callable[[str, float, float], None], workers: int) -> list[Variant]:
    if workers > 1 and len(undone) >= _WORTH_FORKING:
        missing = [k for k, u in enumerate(undone) if not u.is_kept()]
        if len(missing) >= _WORTH_FORKING:
            with forked(undone, workers) as pool:
                for done, _ in enumerate(pool.map(_derive, missing, chunksize=2), 1):
                    progress("deriving", done, len(missing))
    made = []
    for k, one in enumerate(undone):
        made.append(one.derive())
        progress("deriving", k + 1, len(undone))
    return made


def _derive(index: int) -> None:
    shared()[index].derive()
