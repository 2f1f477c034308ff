"""A system file of Calculon as a system of symsim's: rates as they stand, of its steps of efficiency the highest.

Source: Calculon (git caa4b11), calculon/processor.py, memory.py, network.py: a collective of S bytes over n ranks takes its latency and
S scalar (1 + offset / n) / (bandwidth efficiency).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symsim.errors import InputError
from symsim.importers.keys import Entry, Fate, Given, Keys
from symsim.importers.several import as_name
from symsim.inputs.reading import Document, KeyPath, dotted
from symsim.inputs.system import System
from symsim.inputs.validation import validate

_SOURCE = "calculon"
_RATES = {"bfloat16": "bf16", "float16": "fp16", "float8": "fp8", "float32": "fp32"}
# S (n - 1) / n of a ring, twice for an all-reduce: what a scalar of theirs is set against
_RING = {"p2p": 1, "reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}
_MULTIPROCESSORS = 132
_LARGEST_STEP, _LARGEST_SCALAR = 1e12, 1e9
_NOT_KNOWN = "not in the file"


def read(document: Document, lenient: bool, multiplied: str | None = None) -> tuple[dict[str, Any], tuple[Entry, ...]]:
    """The contents of a system file and the ledger. multiplied: the type of the execution, where there is one. InputError for a key that
    Calculon does not have, and for a number that cannot be."""
    keys = Keys("Calculon's system", dict(_leaves(document, document.data, ())), {}, lenient)
    name = as_name(document.where.rpartition("/")[2].rpartition(".")[0], "calculon")
    found: dict[str, Any] = {
        "name": name,
        "title": f"{name}, as Calculon has it",
        "sources": {_SOURCE: f"{document.where.rpartition('/')[2]}, a system file of Calculon", "assumed": _NOT_KNOWN},
        "accelerator": _accelerator(keys),
        "kernels": _kernels(keys),
        "network": _network(keys, document),
    }
    capacity = _number(keys, "mem2.GiB", "host.memory")
    rate = _positive(keys, "mem2.GBps", "host.bandwidth")
    share = _highest(keys, "mem2.MB_efficiency", "host.bandwidth")
    # optimal_execution.py: what has no capacity is not there
    if capacity == 0:
        for key in ("mem2.GiB", "mem2.GBps", "mem2.MB_efficiency"):
            keys.note(key, "no_cost_effect", why="no second memory")
    elif rate is not None:
        found["host"] = {"bandwidth": [f"{rate * share:g} GB/s", "datasheet", _SOURCE]}
        found["host"] |= {"memory": [f"{capacity:g} GiB", "datasheet", _SOURCE]} if capacity is not None else {}
    _vectors(keys, multiplied)
    validate(System, found, document.where)
    return found, keys.finish()


def _leaves(document: Document, data: Any, path: KeyPath) -> Iterator[tuple[str, Given]]:
    """Keys with dots down to values; a list of steps, and an operation's pair, is one value."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(document, value, (*path, key))
    elif path == ("networks",) and isinstance(data, list):
        for place, value in enumerate(data):
            yield from _leaves(document, value, (*path, place))
    else:
        yield dotted(path), Given(data, document.place(path))


def _accelerator(keys: Keys) -> dict[str, Any]:
    peak: dict[str, Any] = {}
    for kind, here in _RATES.items():
        rate = _positive(keys, f"matrix.{kind}.tflops", f"accelerator.peak.{here}")
        if rate is not None:
            peak[here] = [f"{rate:g} TFLOP/s", "datasheet", _SOURCE]
    sixteen = peak.get("bf16") or peak.get("fp16")
    if sixteen is None:
        raise InputError(f"{keys.place('matrix.float16.tflops')}: matrix.float16.tflops is missing")
    memory, rate = _positive(keys, "mem1.GiB", "accelerator.memory"), _positive(keys, "mem1.GBps", "accelerator.memory_bandwidth")
    for key, value in (("mem1.GiB", memory), ("mem1.GBps", rate)):
        if value is None:
            raise InputError(f"{keys.place(key)}: {key} is missing")
    keys.note("multiprocessors", "derived", "accelerator.multiprocessors", f"{_MULTIPROCESSORS} assumed; {_NOT_KNOWN}")
    return {
        "peak": {"bf16": sixteen, "fp16": sixteen, **peak},
        "multiprocessors": [str(_MULTIPROCESSORS), "estimated", "assumed"],
        "memory": [f"{memory:g} GiB", "datasheet", _SOURCE],
        "memory_bandwidth": [f"{rate:g} GB/s", "datasheet", _SOURCE],
    }


def _vectors(keys: Keys, multiplied: str | None) -> None:
    """The engine of element-wise operations, of which nothing is taken."""
    why = "element-wise kernels are bound by memory here; their operations would add 5 to 15 % (an A100's rates)"
    for kind in _RATES:
        rate, steps = f"vector.{kind}.tflops", f"vector.{kind}.gflops_efficiency"
        _positive(keys, rate, "")
        _highest(keys, steps, "")
        for key in (rate, steps):
            if keys.has(key) and multiplied in (None, kind):
                keys.note(key, "not_modelled", why=why)
            elif keys.has(key):
                keys.note(key, "no_cost_effect", why=f"the execution's type is {multiplied}")


def _kernels(keys: Keys) -> dict[str, Any]:
    """Shares of the peaks: of every table of steps its highest, for the largest operations."""
    product = max(_highest(keys, f"matrix.{kind}.gflops_efficiency", "kernels.gemm.efficiency") for kind in _RATES)
    moved = _highest(keys, "mem1.MB_efficiency", "kernels.memory")
    mode = keys.choice("processing_mode", {"no_overlap": "1", "roofline": "0"}, "1", to="kernels.gemm.exposed", why="of the shorter part")
    gemm, elementwise, nothing = [f"{product:g}", "measured", _SOURCE], [f"{moved:g}", "measured", _SOURCE], ["0", "estimated", _SOURCE]
    return {
        "gemm": {"efficiency": gemm, "exposed": [mode, "estimated", _SOURCE], "start": ["0 us", "estimated", _SOURCE]},
        "grouped_gemm": {"efficiency": gemm, "exposed": [mode, "estimated", _SOURCE]},
        "attention": {
            "forward": gemm,
            "backward": gemm,
            "uneven": nothing,
            "key": ["0 ns", "estimated", "assumed"],
            "query": ["0 ns", "estimated", "assumed"],
        },
        "memory": {"elementwise": elementwise, "permute": elementwise, "cross_entropy": elementwise, "start": ["0 us", "estimated", _SOURCE]},
    }


def _network(keys: Keys, document: Document) -> list[dict[str, Any]]:
    """Tiers from the innermost out; the last joins all ranks."""
    networks = document.data.get("networks")
    if not isinstance(networks, list) or not networks:
        raise InputError(f"{document.where}: networks is missing; it should be a list of tiers")
    tiers = [_tier(keys, f"networks[{place}]", f"tier{place}") for place in range(len(networks))]
    sizes = {str(tier["ranks"]): tier for tier in sorted(tiers, key=lambda tier: int(tier["ranks"])) if tier["ranks"] > 1}
    if not sizes:
        raise InputError(f"{document.where}: networks has no tier of two or more ranks")
    ordered = list(sizes.values())
    ordered[-1]["ranks"] = "all"
    return ordered


def _tier(keys: Keys, at: str, name: str) -> dict[str, Any]:
    rate, share = _positive(keys, f"{at}.bandwidth", f"network.{name}.bandwidth"), _positive(keys, f"{at}.efficiency", f"network.{name}.efficiency")
    size = keys.integer(f"{at}.size", None, to=f"network.{name}.ranks", least=1)
    for key, value in (("bandwidth", rate), ("efficiency", share), ("size", size)):
        if value is None:
            raise InputError(f"{keys.place(f'{at}.{key}')}: {at}.{key} is missing")
    latency = keys.number(f"{at}.latency", 0, to=f"network.{name}.launch", why="of a call, whatever its ranks")
    shares = {op: [f"{min(1.0, share / _scalar(keys, at, name, op) * ring):.6g}", "measured", _SOURCE] for op, ring in _RING.items()}
    if keys.has(f"{at}.must_be_filled"):
        keys.note(f"{at}.must_be_filled", "no_cost_effect", why="which degrees there are allowed on it")
    usage = keys.number(f"{at}.processor_usage", 0)
    if not 0 <= usage < 1:
        raise keys.wrong(f"{at}.processor_usage", "a share from 0 up, below 1")
    if keys.has(f"{at}.processor_usage"):
        why = "computation beside a message waits for so much of its time"
        fate: Fate = "mapped" if usage else "no_cost_effect"
        keys.note(f"{at}.processor_usage", fate, f"network.{name}.processors" if usage else "", why if usage else "off at this value")
    return {
        **({"processors": [f"{usage:g}", "measured", _SOURCE]} if usage else {}),
        "name": name,
        "ranks": size,
        "bandwidth": [f"{rate:g} GB/s", "datasheet", _SOURCE],
        "latency": ["0 us", "estimated", _SOURCE],
        "launch": [f"{latency * 1e6:g} us", "measured", _SOURCE],
        "efficiency": {"default": [f"{min(1.0, share):g}", "measured", _SOURCE], **shares},
    }


def _scalar(keys: Keys, at: str, name: str, op: str) -> float:
    """The bytes on the wire of a byte of the buffer, for many ranks."""
    key = f"{at}.ops.{op}"
    if not keys.has(key):
        raise InputError(f"{keys.place(key)}: {key} is missing; it should be [scalar, offset]")
    pair = keys.given[key].value
    known = isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], (int, float)) and not isinstance(pair[0], bool)
    if not known or not 0 < pair[0] < _LARGEST_SCALAR or (pair[1] is not None and (isinstance(pair[1], bool) or not isinstance(pair[1], int))):
        raise keys.wrong(key, "[scalar, offset] with a scalar above zero and a whole offset or null")
    why = "" if pair[1] in (None, -1) else f"an offset of -1, as a ring has, in place of {pair[1]}"
    keys.note(key, "mapped", f"network.{name}.efficiency.{op}", why)
    return float(pair[0])


def _highest(keys: Keys, key: str, to: str) -> float:
    """The share of the largest operations, of steps [size, share] from the largest size down."""
    if not keys.has(key):
        return 1.0 if key.startswith("mem") else 0.0
    steps = keys.given[key].value
    rows: list[Any] = steps if isinstance(steps, list) and steps else [None]
    for row in rows:
        if not _is_step(row):
            raise keys.wrong(key, "a list of [size, share], each share above 0 and at most 1")
    if rows[-1][0]:
        raise keys.wrong(key, "a list of [size, share] down to the size 0")
    keys.note(key, "mapped", to, f"{rows[0][1]:g}, the share of the largest; smaller ones follow from the shapes of tiles")
    return float(rows[0][1])


def _is_step(row: Any) -> bool:
    numbers = isinstance(row, list) and len(row) == 2 and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in row)
    return numbers and 0 < row[1] <= 1 and 0 <= row[0] < _LARGEST_STEP


def _positive(keys: Keys, key: str, to: str) -> Any:
    value = _number(keys, key, to)
    if value == 0:
        raise keys.wrong(key, "a number above zero")
    return value


def _number(keys: Keys, key: str, to: str) -> Any:
    value = keys.number(key, None, to=to)
    if value is not None and value < 0:
        raise keys.wrong(key, "a number from zero up")
    return value
