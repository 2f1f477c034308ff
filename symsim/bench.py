"""`symsim bench`: how fast symsim is on this machine, in relation to the machine.

Times and rates of two machines, or of one that others use too, do not compare. So every figure comes with its ratio to a fixed NumPy
workload of the same run: a rate is divided by the points a second that the workload evaluates, a time by the seconds that it takes a
point. Where a figure has a physical limit, the share of it that is reached is printed as well: the operations of a grid's
configurations are counted from the plan of its kernel and compared with what the same number of cores computes at most.

Every benchmark runs in a process of its own, so that none finds memory or kernels that another left behind.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import symsim
from symsim.errors import InputError, nearest
from symsim.grid import c_kernel, numpy_kernel
from symsim.grid.answer import Engine, answer
from symsim.grid.axes import Axis
from symsim.grid.bounds import best_points
from symsim.grid.c_kernel import CKernel, CompilerError
from symsim.grid.command import make_sweep, sweep_options
from symsim.grid.engines import cores
from symsim.grid.numpy_kernel import NumpyKernel
from symsim.grid.plan import C_LOOP, NUMPY_CALL, Plan, make_plan
from symsim.grid.question import ask
from symsim.grid.scalar import scalar_kernel
from symsim.grid.space import Space, read_base
from symsim.grid.sweep import TASK_POINTS, Sweep
from symsim.grid.unrolled import at_base
from symsim.grid.work import Best, Numbering
from symsim.report.columns import table, wrapped

T = TypeVar("T")
Array = np.ndarray

FITS = "memory.peak <= memory.capacity"
# of an expression the least is best: seconds of all ranks for a token
BEST = "world/tokens_per_second"
ASKED = ("time.step", "memory.peak", "tokens_per_second", "mfu")
_LENGTHS = (1024, 2048, 4096, 8192)
# how often memory is looked at: reading what a process holds takes a millisecond or two
_WATCH_S = 0.1


@dataclass(frozen=True)
class Model:
    """A model, a strategy of it with more than one rank along each of its axes, and axes of grids: of degrees, and of sizes."""

    name: str
    strategy: str
    degrees: tuple[str, ...]
    sizes: tuple[str, ...]


DEEPSEEK = Model(
    "deepseek-v3",
    "tp=8,pp=4,ep=8,dp=16,sp=true,num_microbatches=32",
    ("tp=2,4,8", "cp=2,4", "pp=2,4,8,16", "vpp=2,3", "ep=8,16,32,64", "dp=8,16,32,64,128", "sp==tp>1"),
    ("micro_batch_size=1:16", "num_microbatches=16:1680:16", "seq_length=1024:65536:1024"),
)
LLAMA = Model(
    "llama3-70b",
    "tp=8,pp=4,dp=16,sp=true,num_microbatches=32",
    ("tp=2,4,8", "cp=2,4", "pp=2,4,8,16", "vpp=2,3", "dp=8,16,32,64,128", "sp==tp>1"),
    ("micro_batch_size=1:16", "num_microbatches=16:3360:16", "seq_length=1024:131072:1024"),
)


@dataclass(frozen=True)
class Setting:
    """How much is done. The first of the models is the one of the benchmarks that have one only.

    seconds: for which a short measurement is repeated, its least time being the figure. stream_bytes: of memory that no cache holds.
    search, process: axes of sizes of the grids that are searched by bounds and by `symsim sweep`. rounds: runs of `symsim sweep`.
    """

    models: tuple[Model, ...] = (DEEPSEEK, LLAMA)
    system: str = "h100-sxm"
    seconds: float = 0.4
    stream_bytes: int = 1 << 28
    workload_blocks: int = 2048
    top: int = 10
    search: tuple[str, ...] = ("micro_batch_size=1:16", "num_microbatches=16:17600:16", "seq_length=1024:65536:1024")
    search_top: int = 100
    process: tuple[str, ...] = ("micro_batch_size=1:8", "num_microbatches=16:480:16", "seq_length=1024:40960:1024")
    rounds: int = 2
    peer_seconds: float = 5.0
    peer_sequences: int = 1024


FULL = Setting()

# units of figures: how much one is of a second, a byte, or one of them a second
_RATES = {"GB/s": 1e9, "Gop/s": 1e9, "M/s": 1e6, "k/s": 1e3, "1/s": 1.0}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_OTHERS = {"MiB": 2.0**20, "%": 0.01, "x": 1.0}


@dataclass(frozen=True)
class Figure:
    """amount: seconds, bytes, a number, or any of these a second, shown in `unit`. limit: the most that the machine allows, likewise.
    busy: share of the time for which the cores that were used worked on it, where that was looked at."""

    what: str
    amount: float
    unit: str
    limit: float | None = None
    busy: float | None = None

    @property
    def value(self) -> float:
        """The amount in its unit."""
        return self.amount / {**_RATES, **_TIMES, **_OTHERS}[self.unit]

    @property
    def share(self) -> float | None:
        return None if self.limit is None else self.amount / self.limit

    def ratio(self, workload: float) -> float | None:
        """To the workload's points a second: of a rate how many there are in the time of a point, of a time how many points pass."""
        if self.unit in _RATES:
            return self.amount / workload
        return self.amount * workload if self.unit in _TIMES else None


@dataclass(frozen=True)
class Block:
    """What a benchmark found. held: whether the memory that its processes held is a figure of its own. workload: points of it a second
    just before."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    held: bool = False
    workload: float = math.nan


@dataclass(frozen=True)
class Limits:
    """What this machine does at most, a second, on one core and on all at once: bytes read and written, operations of NumPy and of
    compiled code."""

    one: Mapping[str, float]
    every: Mapping[str, float]
    cores: int

    def visits(self, backend: str, used: int, operations: float) -> float | None:
        """How often a second so many operations are done at most, on one core or on all; None where that was not measured."""
        rate = {"numpy": "multiply and add", "c": "compiled"}[backend]
        most = (self.one if used == 1 else self.every).get(rate)
        return None if most is None or not operations else most / operations


@dataclass(frozen=True)
class Bench:
    setting: Setting
    limits: Limits


# running ---------------------------------------------------------------------------------------------------------------


def run(names: Sequence[str], peers: bool, as_json: bool, write: Callable[[str], None], setting: Setting = FULL) -> None:
    """Run the benchmarks of these names (all but `peers` by default; `peers` adds it), and write a block as each finishes, or one object.

    InputError for a name that is none.
    """
    for name in names:
        if name not in BENCHMARKS:
            raise InputError(f"there is no benchmark '{name}': {nearest(name, list(BENCHMARKS))}")
    chosen = list(dict.fromkeys([*(names or [n for n in BENCHMARKS if n != "peers"]), *(["peers"] if peers else [])]))
    machine = _machine()
    if not as_json:
        write(_head(machine))
    ((limits, _),) = _apart(lambda: [_measured_limits(setting)])
    bench, blocks, rates = Bench(setting, limits), list[Block](), []
    for name in chosen:
        # others may use the machine, more or less of it as time goes by
        ((rate, _),) = _apart(lambda: [_workload_rate(setting)])
        rates.append(rate)
        for block, held in _apart(partial(BENCHMARKS[name], bench)):
            memory = (Figure("memory of all processes", held, "MiB"),) if block.held and held else ()
            blocks.append(replace(block, figures=(*block.figures, *memory), workload=rate))
            if not as_json:
                write(_printed(blocks[-1]))
    if as_json:
        write(json.dumps(_object(machine, blocks), indent=1) + "\n")
    else:
        write(f"the workload ran at {_number(min(rates) / 1e6)} to {_number(max(rates) / 1e6)} M points/s between these benchmarks\n")


def _machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    with suppress(OSError):
        models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    return {
        "symsim": symsim.__version__,
        "cpu": cpu,
        "cores": cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "compiler": c_kernel.compiler(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


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
        rows.append([f.what, _number(f.value), f.unit, "" if ratio is None else _number(ratio), *shares])
    header = ["", "", "unit", "ratio", "of limit", "busy"]
    shown = [c for c, head in enumerate(header) if head not in ("of limit", "busy") or any(row[c] for row in rows)]
    cells = table(wrapped(f"{block.name}: {block.title}"), [header[c] for c in shown], [[row[c] for c in shown] for row in rows])
    lines = [cells, *(wrapped(note, indent="  ", hanging=2) for note in block.notes)]
    return "\n".join(lines) + "\n\n"


def _number(x: float) -> str:
    """Three digits."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    digits = 2 - math.floor(math.log10(abs(x)))
    return f"{round(x, digits):,.{max(0, digits)}f}" if -4 < digits < 5 else f"{x:.2e}"


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


# processes -------------------------------------------------------------------------------------------------------------


def _apart(function: Callable[[], Iterable[T]]) -> Iterator[tuple[T, int]]:
    """What a function gives, one by one, in a process of its own; and the most bytes that it, this one and its own held meanwhile."""
    receiver, process = _forked(function, grouped=True)
    held = 0
    try:
        while True:
            if not receiver.poll(_WATCH_S):
                held = max(held, _held(os.getpid()))
                continue
            try:
                found = receiver.recv()
            except EOFError:
                break
            if isinstance(found, Exception):
                raise found
            yield found, held
            held = 0
        process.join()
        if process.exitcode:
            raise InputError(f"a benchmark's process was ended from outside (status {process.exitcode}), as happens where memory runs out")
    finally:
        if process.is_alive():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _together(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Results of functions that run at the same time, each in a process of its own."""
    running = [_forked(partial(_once, f)) for f in functions]
    found = []
    for receiver, process in running:
        found.append(receiver.recv())
        process.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def _once(function: Callable[[], T]) -> list[T]:
    return [function()]


def _forked(function: Callable[[], Iterable[Any]], grouped: bool = False) -> tuple[Connection, Any]:
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(function, sender, grouped))
    process.start()
    sender.close()
    return receiver, process


def _send(function: Callable[[], Iterable[Any]], sender: Connection, grouped: bool) -> None:
    if grouped:
        # Ctrl-C goes to the parent, which ends the group
        os.setpgid(0, 0)
    try:
        for found in function():
            sender.send(found)
    except Exception as error:  # whatever it is, the parent says it
        sender.send(error)


def _held(root: int) -> int:
    """Bytes that a process and its descendants hold, what they share counted once; 0 where the system does not say."""
    total, left = 0, [root]
    while left:
        own = Path(f"/proc/{left.pop()}")
        with suppress(OSError, ValueError):
            lines = (own / "smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
            left += [int(child) for task in (own / "task").iterdir() for child in (task / "children").read_text().split()]
    return total


def _least(call: Callable[[], Any], seconds: float) -> float:
    """Seconds of the fastest of several calls."""
    least, made, until = math.inf, 0, time.perf_counter() + seconds
    while made < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - began)
        made += 1
    return least


# the machine -----------------------------------------------------------------------------------------------------------


def workload(blocks: int) -> float:
    """The fixed NumPy workload: ten operations on each point of an open mesh of blocks x 16 x 512, in blocks that stay in cache.

    It must stay as it is: ratios of different versions of symsim compare as long as it does.
    """
    y, z = np.linspace(1.0, 3.0, 16)[:, None], np.linspace(1.0, 5.0, 512)
    a, b, c = (np.empty((16, 512)) for _ in range(3))
    beyond = np.empty((16, 512), dtype=bool)
    least = math.inf
    for x in np.linspace(1.0, 2.0, blocks):
        p, q = x * y, x + z
        np.multiply(p, z, out=a)
        np.add(p, q, out=b)
        np.maximum(a, b, out=a)
        np.multiply(b, q, out=c)
        np.add(a, c, out=a)
        np.divide(p, q, out=c)
        np.subtract(a, c, out=a)
        np.greater(b, 9.0, out=beyond)
        np.copyto(a, np.inf, where=beyond)
        least = min(least, float(a.min()))
    return least


_MULTIPLY_ADD = """\
#include <stdint.h>
typedef double Lanes __attribute__((vector_size(64)));
#define STEP(a) a = a * c + d;
double multiply_add(int64_t n, double by, double plus) {
    Lanes c = {by, by, by, by, by, by, by, by}, d = c * 0 + plus;
    Lanes p = c, q = c + 1, r = c + 2, s = c + 3, t = c + 4, u = c + 5;
    for (int64_t i = 0; i < n; i++) { STEP(p) STEP(q) STEP(r) STEP(s) STEP(t) STEP(u) }
    p = p + q + r + s + t + u;
    return p[0] + p[1] + p[2] + p[3] + p[4] + p[5] + p[6] + p[7];
}
"""
_STEPS = 100_000
# of a call of so many steps: six vectors of eight numbers, each multiplied and added to
_STEP_OPERATIONS = 6 * 8 * 2


def _measured_limits(setting: Setting) -> Limits:
    compiled = _compiled_operations()
    one = _core_rates(setting, compiled, lambda: None, setting.stream_bytes)
    if cores() == 1:
        return Limits(one, one, 1)
    barrier = get_context("fork").Barrier(cores(), timeout=60)
    each = partial(_core_rates, setting, compiled, barrier.wait, max(setting.stream_bytes * 2 // cores(), min(setting.stream_bytes, 1 << 25)))
    found = _together([each] * cores())
    return Limits(one, {name: sum(f[name] for f in found) for name in one}, cores())


def _compiled_operations() -> Callable[[], Any] | None:
    """A call that multiplies and adds in registers, each an instruction of its own as in a sweep's kernel; None without a C compiler."""
    command = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if command is None:
        return None
    with tempfile.TemporaryDirectory() as place, suppress(OSError, subprocess.SubprocessError):
        target = Path(place) / "limit.so"
        flags = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(target)]
        subprocess.run([command, *flags], input=_MULTIPLY_ADD, text=True, capture_output=True, timeout=60, check=True)
        function = ctypes.CDLL(str(target)).multiply_add
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_int64, ctypes.c_double, ctypes.c_double]
        return partial(function, _STEPS, 0.999, 0.001)
    return None


def _core_rates(setting: Setting, compiled: Callable[[], Any] | None, wait: Callable[[], Any], stream_bytes: int) -> dict[str, float]:
    """What one core does a second. wait: comes back when the other cores have come as far."""
    stream = np.ones(stream_bytes // 8)
    measures: dict[str, Callable[[], float]] = {
        "read": lambda: stream.nbytes / _least(stream.max, setting.seconds),
        "write": lambda: stream.nbytes / _least(lambda: stream.fill(1.0), setting.seconds),
        "multiply and add": lambda: _numpy_rate(_multiply_add, 2, setting.seconds),
        "max": lambda: _numpy_rate(_maximum, 1, setting.seconds),
    }
    if compiled is not None:
        measures["compiled"] = lambda: _STEPS * _STEP_OPERATIONS / _least(compiled, setting.seconds)
    found = {}
    for name, measure in measures.items():
        wait()
        found[name] = measure()
    return found


def _numpy_rate(call: Callable[[Array, Array, Array], None], operations: int, seconds: float) -> float:
    """Operations a second on vectors of the best of a few lengths that caches hold."""
    rates = []
    for length in _LENGTHS:
        a, b, out = np.full(length, 1.5), np.full(length, 0.5), np.empty(length)
        rates.append(100 * operations * length / _least(partial(_hundred, call, a, b, out), seconds / len(_LENGTHS)))
    return max(rates)


def _hundred(call: Callable[[Array, Array, Array], None], a: Array, b: Array, out: Array) -> None:
    for _ in range(100):
        call(a, b, out)


def _multiply_add(a: Array, b: Array, out: Array) -> None:
    np.multiply(a, b, out=out)
    np.add(out, b, out=out)


def _maximum(a: Array, b: Array, out: Array) -> None:
    np.maximum(a, b, out=out)


def _workload_rate(setting: Setting) -> float:
    return setting.workload_blocks * 16 * 512 / _least(lambda: workload(setting.workload_blocks), setting.seconds)


_SHOWN_LIMIT = {
    "read": ("memory read", "GB/s"),
    "write": ("memory written", "GB/s"),
    "multiply and add": ("NumPy multiply, add", "Gop/s"),
    "max": ("NumPy max", "Gop/s"),
    "compiled": ("compiled multiply, add", "Gop/s"),
}


def _limits(bench: Bench) -> Iterator[Block]:
    figures = []
    for name, rate in bench.limits.one.items():
        what, unit = _SHOWN_LIMIT[name]
        figures.append(Figure(f"{what}, 1 core", rate, unit))
        if bench.limits.cores > 1:
            figures.append(Figure(f"{what}, {bench.limits.cores} cores", bench.limits.every[name], unit))
    note = "float64; NumPy on vectors in cache, compiled code in registers, without fusing; 'of limit' below is the share of multiply and add"
    yield Block("limits", "what this machine does at most", tuple(figures), (note,))


def _workload(bench: Bench) -> Iterator[Block]:
    limits = bench.limits
    figures = [Figure("1 process", _workload_rate(bench.setting), "M/s", limits.visits("numpy", 1, 10))]
    if limits.cores > 1:
        every = sum(_together([partial(_workload_rate, bench.setting)] * limits.cores))
        figures.append(Figure(f"{limits.cores} processes", every, "M/s", limits.visits("numpy", limits.cores, 10)))
    yield Block("workload", "points of an open mesh, ten NumPy operations each", tuple(figures))


# one configuration -----------------------------------------------------------------------------------------------------


def _derive(bench: Bench) -> Iterator[Block]:
    model, figures = bench.setting.models[0], []
    for what, system in (("counts and memory", None), ("counts, memory and time", bench.setting.system)):
        base = read_base(model.name, model.strategy, system, ())
        result = at_base(base)
        figures += [
            Figure(f"{what}: derive", _least(partial(at_base, base), bench.setting.seconds), "ms"),
            Figure(f"{what}: evaluate exactly", _least(partial(_evaluated, result), bench.setting.seconds), "ms"),
        ]
    note = f"{len(result.derivation.definitions)} definitions under {model.strategy}"
    yield Block("derive", f"the closed forms of {model.name} on {bench.setting.system}", tuple(figures), (note,))


def _evaluated(result: Any) -> None:
    """Exact numbers of everything; of a copy, since a result keeps its numbers."""
    fresh = replace(result)
    for stage in fresh.stages:
        fresh.stage_numbers(stage)
    _ = fresh.step_numbers


def _scalar(bench: Bench) -> Iterator[Block]:
    setting, figures = bench.setting, []
    for model in setting.models:
        base = read_base(model.name, model.strategy, setting.system, ())
        began = time.perf_counter()
        kernel = scalar_kernel(base, ("b", "m", "s", "tp", "dp"), ASKED)
        made = time.perf_counter() - began
        points = [dict(zip(("b", "m", "s", "tp", "dp"), p)) for p in product((1, 2), (32, 64, 96), (4096, 8192), (2, 4, 8), (16, 32))]
        figures += [
            Figure(f"{model.name}, one configuration", _least(partial(_each, kernel, points), setting.seconds) / len(points), "us"),
            Figure(f"{model.name}, exactly", _least(partial(_evaluated, at_base(base)), setting.seconds), "us"),
            Figure(f"{model.name}, making the kernel", made, "ms"),
        ]
    yield Block("scalar", "one configuration by a function of plain Python", tuple(figures), (f"asked: {', '.join(ASKED)}",))


def _each(kernel: Callable[..., Any], points: Sequence[Mapping[str, Any]]) -> None:
    for point in points:
        kernel(**point)


# grids -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Walk:
    """A variant's kernel made ready. scan(first, last, worst): values and numbers of the best of some blocks. operations: of all blocks."""

    plan: Plan
    scan: Callable[[int, int, float], tuple[Array, Array]]
    operations: int


def _asked(bench: Bench, model: Model, sizes: Sequence[str], top: int, search: str) -> Sweep:
    options = sweep_options((FITS,), False, top, BEST, None, None, None, False, search, "auto", "local", None, None)
    return make_sweep(read_base(model.name, None, bench.setting.system, ()), [*model.degrees, *sizes], options)


def _sweep(bench: Bench, model: Model, sizes: Sequence[str], top: int, search: str) -> Sweep:
    made = _asked(bench, model, sizes, top, search)
    made.prepare()
    return made


def _plan(sweep: Sweep, index: int, backend: str) -> Plan:
    work = sweep.work(index)
    longest, call = (c_kernel.LONGEST, C_LOOP) if backend == "c" else (numpy_kernel.LONGEST, NUMPY_CALL)
    return make_plan(work.program, work.values, longest=longest, call=call)


def _walks(sweep: Sweep, backend: str, guard: int | None) -> list[_Walk]:
    """The kernels of a sweep's variants. guard: 0 to skip what cannot be among the best, None to compute every point."""
    made = []
    for index in range(len(sweep.variants)):
        if sweep.work(index).empty:
            continue
        plan = _plan(sweep, index, backend)
        numbering = Numbering(plan, sweep.variants[index].chosen, sweep.space.sizes)
        top = sweep.question.top
        assert top is not None
        if backend == "c":
            scan = partial(_scan_c, CKernel(plan, guard), numbering, top)
            # some of it is built when it is first wanted
            scan(0, 0, math.inf)
        else:
            scan = partial(_scan_numpy, NumpyKernel(plan, guard), numbering, top)
        made.append(_Walk(plan, scan, _operations(plan, backend)))
    return made


def _scan_c(kernel: CKernel, numbering: Numbering, top: int, first: int, last: int, worst: float) -> tuple[Array, Array]:
    return kernel.scan_best(first, last, top, worst, numbering)


def _scan_numpy(kernel: NumpyKernel, numbering: Numbering, top: int, first: int, last: int, worst: float) -> tuple[Array, Array]:
    sink = Best(top, worst)
    sink.begin(numbering, kernel.plan.length)
    kernel.scan(first, last, sink)
    found = sink.rows()
    return found["value"], found["number"]


def _operations(plan: Plan, backend: str) -> int:
    """How many numbers a plan computes if nothing is skipped: NumPy whole vectors, compiled code each operation over its own axes."""
    total, visits = sum(plan.program.points(v.mask) for v in plan.outer), 1
    for depth, values in enumerate(plan.levels):
        if depth == 1:
            visits *= plan.blocks
        elif depth > 1:
            visits *= plan.program.sizes[plan.loops[depth - 2]]
        vector = plan.mask(plan.vector)
        total += visits * sum(plan.length if backend == "numpy" else plan.program.points(v.mask & vector) for v in values)
    return total


def _tasks(walks: Sequence[_Walk]) -> list[tuple[int, int, int]]:
    """Parts of all walks that are worth handing over: (walk, first block, last block)."""
    tasks = []
    for index, walk in enumerate(walks):
        step = max(1, TASK_POINTS // walk.plan.block_points)
        tasks += [(index, k, min(k + step, walk.plan.blocks)) for k in range(0, walk.plan.blocks, step)]
    return tasks


def _taken(walks: Sequence[_Walk], tasks: Sequence[tuple[int, int, int]], top: int, following: Callable[[], int]) -> Best:
    """The best of the tasks whose numbers are drawn until there are no more."""
    best = Best(top)
    while (at := following()) < len(tasks):
        index, first, last = tasks[at]
        best.add(*walks[index].scan(first, last, best.worst))
    return best


def _walked(walks: Sequence[_Walk], backend: str, used: int, top: int, least: float) -> tuple[float, float, Best]:
    """Seconds of walking everything, again and again for `least` seconds; the share of them that the cores worked; and the best."""
    gc.collect()
    made, began, worked = 0, time.perf_counter(), sum(os.times()[:4])
    while (seconds := time.perf_counter() - began) < least or not made:
        best = _walked_once(walks, backend, used, top)
        made += 1
    return seconds / made, (sum(os.times()[:4]) - worked) / seconds / used, best


def _walked_once(walks: Sequence[_Walk], backend: str, used: int, top: int) -> Best:
    """By processes where it is NumPy, which keeps Python's lock, and by threads where it is C."""
    tasks = _tasks(walks)
    if used == 1 or backend == "c":
        following = count().__next__
        with ThreadPoolExecutor(used) as pool:
            found = [f.result() for f in [pool.submit(_taken, walks, tasks, top, following) for _ in range(used)]]
        parts = [(one.values, one.places) for one in found]
    else:
        counter = get_context("fork").Value("q", 0)

        def drawn() -> int:
            with counter.get_lock():
                counter.value += 1
                return int(counter.value) - 1

        def share() -> tuple[Array, Array]:
            one = _taken(walks, tasks, top, drawn)
            return one.values, one.places

        parts = _together([share] * used)
    best = Best(top)
    for values, places in parts:
        best.add(values, places)
    return best


def _compile(bench: Bench) -> Iterator[Block]:
    figures, notes, missing = [], list[str](), list[str]()
    for model in bench.setting.models:
        seconds = {"lower": 0.0, "plan and print NumPy": 0.0, "plan, print and compile C": 0.0}
        # a sweep that is to be scanned lowers when it is prepared
        sweep = _sweep(bench, model, model.sizes, bench.setting.top, "bounds")
        for index in range(len(sweep.variants)):
            began = time.perf_counter()
            sweep.work(index)
            lowered = time.perf_counter()
            NumpyKernel(_plan(sweep, index, "numpy"), 0)
            printed = time.perf_counter()
            seconds["lower"] += lowered - began
            seconds["plan and print NumPy"] += printed - lowered
        # of formulas that no NumPy kernel has computed a part of
        sweep = _sweep(bench, model, model.sizes, bench.setting.top, "bounds")
        kept, os.environ["SYMSIM_CACHE"] = os.environ.get("SYMSIM_CACHE"), "off"
        try:
            for index in range(len(sweep.variants)):
                sweep.work(index)
                began = time.perf_counter()
                CKernel(_plan(sweep, index, "c"), 0)
                seconds["plan, print and compile C"] += time.perf_counter() - began
        except CompilerError as error:
            del seconds["plan, print and compile C"]
            missing = [f"C is not timed: {error}"]
        finally:
            os.environ.pop("SYMSIM_CACHE")
            if kept is not None:
                os.environ["SYMSIM_CACHE"] = kept
        figures += [Figure(f"{model.name}, {what}", s, "ms") for what, s in seconds.items()]
        notes.append(f"{model.name}: {_size(sweep)}")
    yield Block("compile", "a sweep's kernels, their formulas being there", tuple(figures), tuple(notes + missing), held=True)


def _size(sweep: Sweep) -> str:
    derivations = len(sweep.variants)
    return f"{sweep.space.points:,} configurations, {sweep.running:,} can run, {derivations} derivation{'s' if derivations > 1 else ''}"


def _grid(bench: Bench) -> Iterator[Block]:
    for model in bench.setting.models:
        # apart, so that the memory of one is not counted with the other's
        (block,) = _together([partial(_grid_of, bench, model)])
        yield block


def _grid_of(bench: Bench, model: Model) -> Block:
    top, limits = bench.setting.top, bench.limits
    figures, notes, answers = list[Figure](), list[str](), list[Best]()
    fastest, points = 0.0, 0
    for how, guard in (("every point", None), (f"best {top}", 0)):
        for backend, name, runner, several in (("numpy", "NumPy", "process", "processes"), ("c", "C", "thread", "threads")):
            # each backend has formulas of its own: printing a kernel computes a part of them
            sweep = _sweep(bench, model, model.sizes, top, "scan")
            points, size = sweep.space.points, _size(sweep)
            try:
                walks = _walks(sweep, backend, guard)
            except CompilerError as error:
                notes += [f"C is not timed: {error}"] if guard is None else []
                continue
            operations = sum(w.operations for w in walks) / points
            if guard is None:
                notes.append(f"{name}: {_number(operations)} operations a configuration, none of them kept in memory")
            for used in sorted({1, limits.cores}):
                seconds, busy, best = _walked(walks, backend, used, top, bench.setting.seconds)
                answers.append(best)
                limit = limits.visits(backend, used, operations) if guard is None else None
                what = f"{name}, {used} {runner if used == 1 else several}, {how}"
                figures.append(Figure(what, points / seconds, "M/s", limit, busy))
                fastest = max(fastest, points / seconds if guard is None else 0.0)
    written = fastest * 16 / limits.every["write"]
    notes.append(f"time and memory of all, written as float64 at the fastest rate of every point: {written:.0%} of the memory's bandwidth")
    same = all(np.array_equal(a.places, answers[0].places) and np.allclose(a.values, answers[0].values, rtol=1e-12) for a in answers)
    notes.append(f"all find the same {len(answers[0].values)} points" if same else "THE ANSWERS DIFFER")
    title = f"configurations a second of {model.name} on {bench.setting.system}, by {BEST} where {FITS}; {size}"
    return Block("grid", title, tuple(figures), tuple(notes), held=True)


def _search(bench: Bench) -> Iterator[Block]:
    setting, model = bench.setting, bench.setting.models[0]
    sweep = _sweep(bench, model, setting.search, setting.search_top, "bounds")
    points, size = sweep.space.points, _size(sweep)
    began = time.perf_counter()
    searched = _by_bounds(sweep, setting.search_top)
    seconds = time.perf_counter() - began
    del sweep
    began = time.perf_counter()
    rows = answer(_sweep(bench, model, setting.search, setting.search_top, "auto"), Engine(workers=cores())).rows
    whole = Figure("a sweep to its rows, all cores", time.perf_counter() - began, "s")
    assert rows is not None
    figures: tuple[Figure, ...] = (whole,)
    if searched is None:
        note = "bounds are too loose on this grid for a search by them alone; sweeps scan it"
    else:
        best, evaluated = searched
        figures = (
            Figure("by bounds, 1 process", seconds, "s"),
            Figure("configurations decided", points / seconds, "M/s"),
            Figure("configurations evaluated", evaluated / points, "%"),
            whole,
        )
        values = rows["world"] / rows["tokens_per_second"]
        same = len(values) == len(best.values) and np.allclose(values, best.values, rtol=1e-9)
        note = f"both find the same {len(values)} points" if same else "THE ANSWERS DIFFER"
    title = f"the best {setting.search_top} of {model.name} on {setting.system} by {BEST} where {FITS}; {size}"
    yield Block("search", title, figures, (note,), held=True)


def _by_bounds(sweep: Sweep, top: int) -> tuple[Best, int] | None:
    """The best points, and how many were evaluated; None where bounds leave more than a scan would take."""
    best, evaluated = Best(top), 0
    for index, variant in enumerate(sweep.variants):
        work = sweep.work(index)
        if work.empty:
            continue
        found = best_points(work.program, work.values[0], work.values[1], top, best.worst)
        if found is None:
            return None
        own = [chosen[found.positions[:, axis]] for axis, chosen in enumerate(variant.chosen)]
        best.add(found.values, np.ravel_multi_index(own, sweep.space.sizes))
        evaluated += found.evaluated
    return best, evaluated


# the command -----------------------------------------------------------------------------------------------------------


def _process(bench: Bench) -> Iterator[Block]:
    setting, model = bench.setting, bench.setting.models[0]
    axes = [part for text in (*model.degrees, *setting.process) for part in ("--axis", text)]
    question = ["--where", FITS, "--by", BEST, "--top", str(setting.top)]
    command = [sys.executable, "-m", "symsim", "sweep", model.name, "-y", setting.system, *axes, *question]
    package = str(Path(symsim.__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))}
    notes = []
    with tempfile.TemporaryDirectory() as place:
        if sys.dont_write_bytecode:
            # what is installed has its byte code
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            environment["PYTHONPYCACHEPREFIX"] = f"{place}/code"
            notes.append("byte code, which this Python does not keep, is kept here, as where symsim is installed")
        _timed(command, environment | {"SYMSIM_CACHE": f"{place}/first"})
        warm, empty, most = math.inf, math.inf, 0
        for k in range(setting.rounds):
            seconds, held = _timed(command, environment | {"SYMSIM_CACHE": f"{place}/first"})
            warm, most = min(warm, seconds), max(most, held)
            seconds, held = _timed(command, environment | {"SYMSIM_CACHE": f"{place}/{k}"})
            empty, most = min(empty, seconds), max(most, held)
    figures = [Figure("formulas and kernels kept", warm, "s"), Figure("an empty cache", empty, "s")]
    figures += [Figure("memory of all its processes", most, "MiB")] if most else []
    points = _asked(bench, model, setting.process, setting.top, "auto").space.points
    title = f"symsim sweep {model.name}, the best {setting.top} of {points:,} configurations, from start to exit"
    yield Block("process", title, tuple(figures), tuple(notes))


def _timed(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, int]:
    """Wall seconds of a command, and the most bytes that it and its children held. InputError with its last words where it fails."""
    began = time.perf_counter()
    running = subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    over, held = threading.Event(), [0]

    def watch() -> None:
        while not over.wait(_WATCH_S / 2):
            held.append(_held(running.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _, said = running.communicate()
    finally:
        over.set()
        watcher.join()
    seconds = time.perf_counter() - began
    if running.returncode:
        raise InputError(f"the sweep that is timed ended with status {running.returncode}: {' '.join(said.split())[-300:]}")
    return seconds, max(held)


# peers -----------------------------------------------------------------------------------------------------------------


def _peers(bench: Bench) -> Iterator[Block]:
    from symsim.bench_peers import CONFIGURATIONS, peer_rates

    rates, missing = peer_rates(bench.setting.peer_seconds)
    scalar, sweep = _scalar_rate(bench, CONFIGURATIONS), _sweep_rate(bench, CONFIGURATIONS)
    figures = [Figure(f"{r.name} {r.version}", r.per_second, "1/s") for r in rates]
    figures += [Figure("symsim, one at a time", scalar, "1/s"), Figure("symsim, a sweep's kernel", sweep, "1/s")]
    figures += [Figure(f"symsim, one at a time / {r.name}", scalar / r.per_second, "x") for r in rates]
    figures += [Figure(f"symsim, a sweep's kernel / {r.name}", sweep / r.per_second, "x") for r in rates]
    every = f"all {len(CONFIGURATIONS)} configurations"
    notes = [
        *(f"{r.name}: {r.what}" for r in rates),
        *missing,
        f"symsim, one at a time: {every}, the whole model, by scalar kernels already made",
        f"symsim, a sweep's kernel: {every} at {bench.setting.peer_sequences} sequence lengths, every point computed, by NumPy",
    ]
    yield Block("peers", "configurations of llama3-70b on H100s in one process, CPU time", tuple(figures), tuple(notes))


def _scalar_rate(bench: Bench, configurations: Sequence[Sequence[int]]) -> float:
    """Configurations a CPU second by scalar kernels: one for each depth of the pipeline, with and without replicas."""
    kernels: dict[tuple[int, bool], Callable[..., Any]] = {}
    calls: list[Callable[[], Any]] = []
    for tp, pp, dp, b, m in configurations:
        key = (pp, dp > 1)
        free = {"tp": tp, "b": b, "m": m} | ({"dp": dp} if dp > 1 else {})
        if key not in kernels:
            strategy = f"tp={tp},pp={pp},dp={dp},sp=true,micro_batch_size={b},num_microbatches={m},seq_length=4096"
            kernels[key] = scalar_kernel(read_base("llama3-70b", strategy, bench.setting.system, ()), tuple(free), ASKED)
        calls.append(partial(kernels[key], **free))
    return len(calls) / _processor_seconds(lambda: [call() for call in calls], bench.setting.peer_seconds / 5)


def _sweep_rate(bench: Bench, configurations: Sequence[Sequence[int]]) -> float:
    """Configurations a CPU second by a sweep's NumPy kernels on one core."""
    lengths = tuple(range(64, 64 * (bench.setting.peer_sequences + 1), 64))
    joint = Axis(("tp", "pp", "dp", "micro_batch_size", "num_microbatches"), tuple(map(tuple, zip(*configurations))))
    base = read_base("llama3-70b", "sp=true,tp=2", bench.setting.system, ())
    question = ask(where=(FITS,), top=bench.setting.top, by=BEST, timed=True)
    sweep = Sweep(Space(base, [joint, Axis(("seq_length",), (lengths,))]), question, "scan", "numpy")
    sweep.prepare()
    walks = _walks(sweep, "numpy", None)
    return sweep.space.points / _processor_seconds(partial(_walked_once, walks, "numpy", 1, bench.setting.top), bench.setting.peer_seconds / 5)


def _processor_seconds(call: Callable[[], Any], least: float) -> float:
    """CPU seconds of a call, made again and again for `least` seconds."""
    made, began = 0, time.process_time()
    while (spent := time.process_time() - began) < least or not made:
        call()
        made += 1
    return max(spent, 1e-9) / made


BENCHMARKS: dict[str, Callable[[Bench], Iterator[Block]]] = {
    "limits": _limits,
    "workload": _workload,
    "derive": _derive,
    "compile": _compile,
    "scalar": _scalar,
    "grid": _grid,
    "search": _search,
    "process": _process,
    "peers": _peers,
}
