"""`symsim bench`: how fast symsim is on this machine, in relation to the machine.

Times and rates of two machines, or of one that others use too, do not compare. So every figure comes with its ratio to a fixed NumPy
workload of the same run: a rate is divided by the points a second that the workload evaluates, a time by the seconds that it takes a
point. Where a figure has a physical limit, the share of it that is reached is printed as well: the operations of a grid's
configurations are counted from the plan of its kernel and compared with what the same number of cores computes at most.

Every benchmark runs in a process of its own, so that none finds memory or kernels that another left behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from symsim.bench.compared import bench_peers, bench_searches
from symsim.bench.figures import Block, Figure, three_digits
from symsim.bench.formulas import bench_compile, bench_derive, bench_scalar
from symsim.bench.grids import bench_grid, bench_process, bench_search
from symsim.bench.machine import bench_limits, bench_workload, described, measured_limits, workload_rate
from symsim.bench.options import bench_options
from symsim.bench.processes import apart
from symsim.bench.setting import FULL, Bench, Setting
from symsim.errors import InputError, nearest
from symsim.report.columns import table, wrapped

BENCHMARKS: dict[str, Callable[[Bench], Iterator[Block]]] = {
    "limits": bench_limits,
    "workload": bench_workload,
    "derive": bench_derive,
    "compile": bench_compile,
    "scalar": bench_scalar,
    "grid": bench_grid,
    "search": bench_search,
    "process": bench_process,
    "options": bench_options,
    "peers": bench_peers,
    "searches": bench_searches,
}
_OF_PEERS = ("peers", "searches")


def run(names: Sequence[str], peers: bool, as_json: bool, write: Callable[[str], None], setting: Setting = FULL) -> None:
    """Run the benchmarks of these names (by default all but those of other systems, which `peers` adds), and write a block as each finishes, or one
    object.

    InputError for a name that is none.
    """
    for name in names:
        if name not in BENCHMARKS:
            raise InputError(f"there is no benchmark '{name}': {nearest(name, list(BENCHMARKS))}")
    chosen = list(dict.fromkeys([*(names or [n for n in BENCHMARKS if n not in _OF_PEERS]), *(_OF_PEERS if peers else ())]))
    machine = described()
    if not as_json:
        write(_head(machine))
    ((limits, _),) = apart(lambda: [measured_limits(setting)])
    bench, blocks, rates = Bench(setting, limits), list[Block](), []
    for name in chosen:
        # others may use the machine, more or less of it as time goes by
        ((rate, _),) = apart(lambda: [workload_rate(setting)])
        rates.append(rate)
        for block, held in apart(partial(BENCHMARKS[name], bench)):
            memory = (Figure("memory of all processes", held, "MiB"),) if block.held and held else ()
            blocks.append(replace(block, figures=(*block.figures, *memory), workload=rate))
            if not as_json:
                write(_printed(blocks[-1]))
    if as_json:
        write(json.dumps(_object(machine, blocks), indent=1) + "\n")
    else:
        write(f"the workload ran at {three_digits(min(rates) / 1e6)} to {three_digits(max(rates) / 1e6)} M points/s between these benchmarks\n")


def _head(machine: Mapping[str, Any]) -> str:
    load = f", load {machine['load']:.1f} before" if machine["load"] is not None else ""
    rows = (
        f"symsim {machine['symsim']} on {machine['cpu']}, {machine['cores']} cores{load}",
        f"{machine['system']}, Python {machine['python']}, NumPy {machine['numpy']}, {machine['compiler'] or 'no C compiler'}",
        "ratio: of a rate to the points/s of the workload, of a time to its s/point, measured on one core just before",
    )
    return "\n".join(wrapped(row, hanging=2) for row in rows) + "\n\n"


def _printed(block: Block) -> str:
    rows = []
    for f in block.figures:
        ratio = f.ratio(block.workload)
        shares = ["" if x is None else f"{x:.0%}" for x in (f.share, f.busy)]
        rows.append([f.what, three_digits(f.value), f.unit, "" if ratio is None else three_digits(ratio), *shares])
    header = ["", "", "unit", "ratio", "of limit", "busy"]
    shown = [c for c, head in enumerate(header) if head not in ("of limit", "busy") or any(row[c] for row in rows)]
    cells = table(wrapped(f"{block.name}: {block.title}"), [header[c] for c in shown], [[row[c] for c in shown] for row in rows])
    lines = [cells, *(wrapped(note, indent="  ", hanging=2) for note in block.notes)]
    return "\n".join(lines) + "\n\n"


def _object(machine: Mapping[str, Any], blocks: Sequence[Block]) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "benchmarks": [
            {
                "name": b.name,
                "title": b.title,
                "workload_points_per_second": b.workload,
                "figures": [
                    {"what": f.what, "value": f.value, "unit": f.unit, "ratio": f.ratio(b.workload), "share": f.share, "busy": f.busy}
                    for f in b.figures
                ],
                "notes": list(b.notes),
            }
            for b in blocks
        ],
    }
