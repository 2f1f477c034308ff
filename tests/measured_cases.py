"""Every measured training step of ../shared/measured as symsim's input.

`SYMSIM_SHARED` names another directory of the same schema. Schedules (merak.yaml) are tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import measured_axolotl
import measured_bridge
import measured_papers
import measured_simumax
import measured_swift
import measured_torchtune
from measured_row import Case, Rows, Uncovered
from shared import SHARED

from symsim.inputs.reading import read_yaml

SOURCES: dict[str, tuple[Callable[[dict[str, Any]], Rows], ...]] = {
    "simumax": (measured_simumax.rows,),
    "swift": (measured_swift.rows,),
    "published": (measured_papers.rows, measured_bridge.rows, measured_torchtune.rows, measured_axolotl.rows),
}


@cache
def _rows(source: str) -> tuple[Case | Uncovered, ...]:
    path = SHARED / "measured" / f"{source}.yaml"
    if not path.exists():
        return ()
    data = read_yaml(path).data
    return tuple(row for reader in SOURCES[source] for row in reader(data))


# systems that borrow every coefficient, with rows: what such a system is worth is seen where nothing is fitted to them
APART = ("b300-sxm",)


def cases(source: str) -> list[Case]:
    """The cases of one of SOURCES, in its file's order, but for those apart; none when the file is absent."""
    return [row for row in _rows(source) if isinstance(row, Case) and row.system not in APART]


def apart(source: str) -> list[Case]:
    """The cases of one of SOURCES on systems that nothing is fitted to."""
    return [row for row in _rows(source) if isinstance(row, Case) and row.system in APART]


def uncovered(source: str) -> list[Uncovered]:
    """The rows of one of SOURCES that are no case, each with its reason."""
    return [row for row in _rows(source) if isinstance(row, Uncovered)]


def ran_out(source: str) -> list[Case]:
    """What ran out of memory, of the rows of one of SOURCES."""
    return [row.ran_out for row in uncovered(source) if row.ran_out is not None]
