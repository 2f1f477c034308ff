"""Benchmark of a grid of many options, swept by the command `symsim sweep` from an empty cache; and of the same with one option more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from symsim.bench.figures import Block, Figure, three_digits
from symsim.bench.grids import timed
from symsim.bench.setting import FITS, Bench


def bench_options(bench: Bench) -> Iterator[Block]:
    setting = bench.setting
    alone, further = (min(_seconds(bench, axes) for _ in range(setting.rounds)) for axes in (setting.options, (*setting.options, setting.further)))
    figures = (
        Figure(f"{len(setting.options)} axes", alone, "s"),
        Figure(f"with {setting.further} too", further, "s"),
    )
    note = f"the further option takes {three_digits(100 * (further / alone - 1))} % more"
    title = f"symsim sweep {setting.models[-1].name}, the best {setting.top} of a grid of options, from start to exit, nothing kept"
    yield Block("options", title, figures, (note,))


def _seconds(bench: Bench, axes: Sequence[str]) -> float:
    """Wall seconds of a sweep over these axes."""
    setting = bench.setting
    given = [part for text in axes for part in ("--axis", text)]
    batch = ["-s", setting.options_base, "-y", setting.system, "--where", FITS, "--top", str(setting.top)]
    command = [sys.executable, "-m", "symsim", "sweep", setting.models[-1].name, *batch, *given]
    package = str(Path(__file__).parents[2])
    environment = os.environ | {"SYMSIM_CACHE": "off", "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))}
    return timed(command, environment)[0]
