"""The machine: what it is, what it does at most, and how fast it runs the fixed workload that all figures are divided by."""

from __future__ import annotations

import ctypes
import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from symsim.bench.figures import Block, Figure
from symsim.bench.measuring import least_seconds
from symsim.bench.processes import together
from symsim.bench.setting import Bench, Limits, Setting
from symsim.grid.processes import cores
from symsim.program.c_build import CompilerError, compiler, library
from symsim.version import __version__

Array = np.ndarray

_LENGTHS = (1024, 2048, 4096, 8192)


def described() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    with suppress(OSError):
        models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    return {
        "symsim": __version__,
        "cpu": cpu,
        "cores": cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "compiler": compiler(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


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


def workload_rate(setting: Setting) -> float:
    return setting.workload_blocks * 16 * 512 / least_seconds(lambda: workload(setting.workload_blocks), setting.seconds)


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


def measured_limits(setting: Setting) -> Limits:
    compiled = _compiled_operations()
    one = _core_rates(setting, compiled, lambda: None, setting.stream_bytes)
    if cores() == 1:
        return Limits(one, one, 1)
    barrier = get_context("fork").Barrier(cores(), timeout=60)
    each = partial(_core_rates, setting, compiled, barrier.wait, max(setting.stream_bytes * 2 // cores(), min(setting.stream_bytes, 1 << 25)))
    found = together([each] * cores())
    return Limits(one, {name: sum(f[name] for f in found) for name in one}, cores())


def _compiled_operations() -> Callable[[], Any] | None:
    """A call that multiplies and adds in registers, each an instruction of its own as in a sweep's kernel; None without a C compiler."""
    try:
        function = library(_MULTIPLY_ADD).multiply_add
    except CompilerError:
        return None
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_int64, ctypes.c_double, ctypes.c_double]
    return partial(function, _STEPS, 0.999, 0.001)


def _core_rates(setting: Setting, compiled: Callable[[], Any] | None, wait: Callable[[], Any], stream_bytes: int) -> dict[str, float]:
    """What one core does a second. wait: comes back when the other cores have come as far."""
    stream = np.ones(stream_bytes // 8)
    measures: dict[str, Callable[[], float]] = {
        "read": lambda: stream.nbytes / least_seconds(stream.max, setting.seconds),
        "write": lambda: stream.nbytes / least_seconds(lambda: stream.fill(1.0), setting.seconds),
        "multiply and add": lambda: _numpy_rate(_multiply_add, 2, setting.seconds),
        "max": lambda: _numpy_rate(_maximum, 1, setting.seconds),
    }
    if compiled is not None:
        measures["compiled"] = lambda: _STEPS * _STEP_OPERATIONS / least_seconds(compiled, setting.seconds)
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
        rates.append(100 * operations * length / least_seconds(partial(_hundred, call, a, b, out), seconds / len(_LENGTHS)))
    return max(rates)


def _hundred(call: Callable[[Array, Array, Array], None], a: Array, b: Array, out: Array) -> None:
    for _ in range(100):
        call(a, b, out)


def _multiply_add(a: Array, b: Array, out: Array) -> None:
    np.multiply(a, b, out=out)
    np.add(out, b, out=out)


def _maximum(a: Array, b: Array, out: Array) -> None:
    np.maximum(a, b, out=out)


_SHOWN_LIMIT = {
    "read": ("memory read", "GB/s"),
    "write": ("memory written", "GB/s"),
    "multiply and add": ("NumPy multiply, add", "Gop/s"),
    "max": ("NumPy max", "Gop/s"),
    "compiled": ("compiled multiply, add", "Gop/s"),
}


def bench_limits(bench: Bench) -> Iterator[Block]:
    figures = []
    for name, rate in bench.limits.one.items():
        what, unit = _SHOWN_LIMIT[name]
        figures.append(Figure(f"{what}, 1 core", rate, unit))
        if bench.limits.cores > 1:
            figures.append(Figure(f"{what}, {bench.limits.cores} cores", bench.limits.every[name], unit))
    note = "float64; NumPy on vectors in cache, compiled code in registers, without fusing; 'of limit' below is the share of multiply and add"
    yield Block("limits", "what this machine does at most", tuple(figures), (note,))


def bench_workload(bench: Bench) -> Iterator[Block]:
    limits = bench.limits
    figures = [Figure("1 process", workload_rate(bench.setting), "M/s", limits.visits("numpy", 1, 10))]
    if limits.cores > 1:
        every = sum(together([partial(workload_rate, bench.setting)] * limits.cores))
        figures.append(Figure(f"{limits.cores} processes", every, "M/s", limits.visits("numpy", limits.cores, 10)))
    yield Block("workload", "points of an open mesh, ten NumPy operations each", tuple(figures))
