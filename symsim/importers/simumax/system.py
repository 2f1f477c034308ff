"""A system file of SimuMax as a system of symsim's: rates as they stand, efficiency tables as points that its curves are fitted to.

Source: SimuMax v1.2 (git 4dcaae5), simumax/core/config.py, SystemConfig, compute_mem_access_time and compute_net_op_time: GB are GiB;
a collective takes bytes on the wire / (rate share) + hops latency + a constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from symsim.calibration.points import Points, simumax_points
from symsim.errors import InputError
from symsim.importers.keys import Entry, Given, Keys
from symsim.importers.several import as_name
from symsim.inputs.reading import Document, KeyPath, dotted
from symsim.inputs.shipped import list_systems
from symsim.inputs.system import System
from symsim.inputs.systems import load_system
from symsim.inputs.validation import validate

_LONGEST_CALL = 1e9  # microseconds
_SOURCE = "simumax"
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "p2p": "p2p",
    "all2all": "all_to_all",
}
_TABLES = ("accurate_efficient_factor", "fixed_latency_us_by_comm_num", "dp_fixed_bw")
_PCIE = re.compile(r"intra_node_pcie_([0-9]{1,3})x")
_NOT_READ = "not read there"
_ASSUMED_MULTIPROCESSORS = 132
_ENOUGH = 5  # points, for the coefficients of a curve


def read(document: Document, lenient: bool, fused_loss: bool = False) -> tuple[dict[str, Any], tuple[Entry, ...]]:
    """The contents of a system file and the ledger. fused_loss: the loss is one kernel, whose share may be its own. InputError for a key that
    SimuMax does not have, and for a number that cannot be."""
    keys = Keys("SimuMax's system", dict(_leaves(document, document.data, ())), {}, lenient)
    name = keys.text("sys_name", None, to="name") or "simumax"
    node = keys.integer("num_per_node", 8, to="network", why="ranks of the node's tier", least=1)
    found: dict[str, Any] = {
        "name": as_name(name, "simumax"),
        "title": f"{name[:60]}, {node} accelerators a node",
        "sources": {_SOURCE: f"{document.where.rpartition('/')[2]}, a system file of SimuMax", "assumed": "not in the file"},
    }
    found["accelerator"] = _accelerator(keys)
    found["kernels"] = _kernels(keys, found["accelerator"], fused_loss)
    found["network"] = _network(keys, document, node)
    _silence(keys)
    validate(System, found, document.where)
    points = simumax_points(document.data["accelerator"], document.where) if "accelerator" in document.data else Points((), {})
    of_loss = found["kernels"]["memory"]["cross_entropy"]
    if len(points.points) >= _ENOUGH:
        _fitted(found, points)
    if fused_loss:
        # what is fitted knows of the loss's passes apart
        found["kernels"]["memory"]["cross_entropy"] = of_loss
    return found, keys.finish()


def _leaves(document: Document, data: Any, path: KeyPath) -> Iterator[tuple[str, Given]]:
    """Keys with dots down to values; a table of numbers by shape or by ranks is one value."""
    if not isinstance(data, Mapping):
        yield dotted(path), Given(data, document.place(path))
        return
    if path and path[-1] in _TABLES:
        yield dotted(path), Given(dict(data), document.place(path))
        return
    for key, value in data.items():
        yield from _leaves(document, value, (*path, key))


def _accelerator(keys: Keys) -> dict[str, Any]:
    rate = _positive(keys, "accelerator.op.default.tflops", "accelerator.peak.bf16", None)
    product = _positive(keys, "accelerator.op.matmul.tflops", "accelerator.peak.bf16", rate)
    if product is None:
        raise InputError(f"{keys.place('accelerator.op.matmul.tflops')}: accelerator.op.matmul.tflops is missing")
    peak = {"bf16": [f"{rate or product:g} TFLOP/s", "datasheet", _SOURCE], "fp16": [f"{rate or product:g} TFLOP/s", "datasheet", _SOURCE]}
    fast = _positive(keys, "accelerator.op.fp8_matmul.tflops", "accelerator.peak.fp8", None)
    if fast is not None:
        peak["fp8"] = [f"{fast:g} TFLOP/s", "datasheet", _SOURCE]
    return {
        "peak": peak,
        "multiprocessors": [_multiprocessors(keys, rate or product), "estimated", "assumed"],
        "memory": [f"{_positive(keys, 'accelerator.mem_gbs', 'accelerator.memory', 80):g} GiB", "datasheet", _SOURCE],
        "memory_bandwidth": [f"{_bandwidth(keys):g} GiB/s", "datasheet", _SOURCE],
    }


def _multiprocessors(keys: Keys, rate: float) -> str:
    """Those of a shipped system with the same peak: SimuMax knows no tiles."""
    for shipped in list_systems():
        chip = load_system(shipped).accelerator
        if float(chip.peak.bf16.value) == rate * 1e12:
            count = int(chip.multiprocessors.value)
            keys.note("multiprocessors", "derived", "accelerator.multiprocessors", f"{count}, as {shipped} of the same peak; not in the file")
            return str(count)
    keys.note("multiprocessors", "derived", "accelerator.multiprocessors", f"{_ASSUMED_MULTIPROCESSORS} assumed; not in the file")
    return str(_ASSUMED_MULTIPROCESSORS)


def _bandwidth(keys: Keys) -> float:
    rate = _positive(keys, "accelerator.bandwidth.default.gbps", "accelerator.memory_bandwidth", None)
    if rate is None:
        raise InputError(f"{keys.place('accelerator.bandwidth.default.gbps')}: accelerator.bandwidth.default.gbps is missing")
    return rate


def _kernels(keys: Keys, accelerator: Mapping[str, Any], fused_loss: bool) -> dict[str, Any]:
    """Shares of the peak as the file's default factors; its tables change them afterwards (`_fitted`)."""

    def share(key: str, to: str, default: float) -> list[str]:
        known = keys.number(f"accelerator.{key}.efficient_factor", None, to=to)
        at = known if known is not None and known > 0 else default
        return [f"{min(at, 1.0):.4g}", "measured" if known else "estimated", _SOURCE if known else "assumed"]

    def half(key: str, to: str) -> list[str]:
        # the factor counts every pair of a causal kernel, which works through half of them
        known = keys.number(f"accelerator.op.{key}.efficient_factor", None, to=to, why="half of it: there the whole square of scores counts")
        return [f"{min((known or 1.0) / 2, 1.0):.4g}", "measured" if known else "estimated", _SOURCE if known else "assumed"]

    for op in ("default", "matmul", "fp8_matmul", "group_matmul", "fp8_group_matmul", "sdp_fwd", "sdp_bwd"):
        keys.number(f"accelerator.op.{op}.tflops", None, to="accelerator.peak")
        if keys.has(f"accelerator.op.{op}.accurate_efficient_factor"):
            keys.note(f"accelerator.op.{op}.accurate_efficient_factor", "mapped", "kernels", "points that the curves of kernels are fitted to")
    keys.number("accelerator.op.default.efficient_factor", None, to="kernels.gemm.efficiency", why="of an operation that has no entry")
    plain = share("op.matmul", "kernels.gemm.efficiency", 0.75)
    fast, slow = (keys.number(f"accelerator.op.{op}.efficient_factor", None, to="accelerator.fp8_share") for op in ("fp8_matmul", "matmul"))
    if fast and slow and "fp8" in accelerator["peak"]:
        accelerator["fp8_share"] = [f"{fast / slow:.4g}", "measured", _SOURCE]  # type: ignore[index]
    keys.number("accelerator.op.fp8_group_matmul.efficient_factor", None, to="accelerator.fp8_share", why="that of fp8_matmul decides")
    start = keys.number("accelerator.bandwidth.default.latency_us", 0, to="kernels.memory.start")
    given = []
    for way in ("fwd", "bwd"):
        key = f"accelerator.bandwidth.permute_{way}.efficient_factor"
        factor = keys.number(key, 0, to="kernels.memory.permute")
        if factor < 0:
            raise keys.wrong(key, "a share above 0")
        given += [factor] if factor else []
    nothing = ["0", "estimated", _SOURCE]
    return {
        "gemm": {"efficiency": plain, "exposed": nothing, "start": ["0 us", "estimated", _SOURCE]},
        "grouped_gemm": {"efficiency": share("op.group_matmul", "kernels.grouped_gemm.efficiency", float(plain[0])), "exposed": nothing},
        "attention": {
            "forward": half("sdp_fwd", "kernels.attention.forward"),
            "backward": half("sdp_bwd", "kernels.attention.backward"),
            "uneven": nothing,
            "key": ["0 ns", "estimated", _SOURCE],
            "query": ["0 ns", "estimated", _SOURCE],
        },
        "memory": {
            "elementwise": share("bandwidth.default", "kernels.memory.elementwise", 0.8),
            "permute": [f"{len(given) / sum(1 / p for p in given):.4g}", "measured", _SOURCE] if given else share("bandwidth.default", "", 0.8),
            "cross_entropy": share(_loss(keys, fused_loss), "kernels.memory.cross_entropy", 0.8),
            "start": [f"{start:g} us", "measured", _SOURCE],
        },
    }


def _loss(keys: Keys, fused: bool) -> str:
    """The class of the loss's passes: fused it has a share of its own, where the file says one."""
    other = fused and keys.has("accelerator.bandwidth.ce_fusion.efficient_factor")
    used, unused = ("ce_fusion", "ce") if other else ("ce", "ce_fusion")
    if keys.has(f"accelerator.bandwidth.{unused}.efficient_factor"):
        why = f"that of {used} is taken: cross_entropy_loss_fusion is {str(fused).lower()}"
        keys.note(f"accelerator.bandwidth.{unused}.efficient_factor", "no_cost_effect", why=why)
    return f"bandwidth.{used}"


def _network(keys: Keys, document: Document, node: int) -> list[dict[str, Any]]:
    """Tiers from the innermost out. A node's links to others are shared by its ranks."""
    networks = document.data.get("networks")
    if not isinstance(networks, Mapping):
        raise InputError(f"{document.where}: networks is missing; it should be a mapping of tiers")
    pcie = keys.flag("networks.intra_with_pcie", False, to="network", why="tiers by group size")
    sizes = {name: int(found[1]) for name in networks if (found := _PCIE.fullmatch(str(name)))}
    inner = sorted(sizes, key=lambda name: sizes[name]) if pcie else ["high_intra_node"]
    tiers: list[dict[str, Any]] = []
    for name in inner:
        ranks = sizes[name] if pcie else node
        if name in networks and 1 < ranks <= node and all(t["ranks"] != ranks for t in tiers):
            tiers.append(_tier(keys, name, "node" if ranks == node else f"group{ranks}", ranks, 1))
    if "inter_node" in networks:
        tiers.append(_tier(keys, "inter_node", "network", "all", node))
    if not tiers:
        raise InputError(f"{document.where}: networks has no tier high_intra_node, intra_node_pcie_Nx or inter_node")
    return tiers


def _tier(keys: Keys, tier: str, name: str, ranks: Any, sharing: int) -> dict[str, Any]:
    at = f"networks.{tier}"
    rate = _positive(keys, f"{at}.bandwidth.gbps", f"network.{name}.bandwidth", None)
    if rate is None:
        raise InputError(f"{keys.place(at + '.bandwidth.gbps')}: {at}.bandwidth.gbps is missing")
    if sharing > 1:
        keys.note(f"{at}.bandwidth.gbps", "mapped", f"network.{name}.bandwidth", f"of a node; a rank's share is 1/{sharing}")
    default = keys.number(f"{at}.bandwidth.efficient_factor", 1, to=f"network.{name}.efficiency.default")
    hop = keys.number(f"{at}.bandwidth.latency_us", 0, to=f"network.{name}.latency")
    hops, calls, shares = [], [], {"default": [f"{default:g}", "measured", _SOURCE]}
    shared: list[float] = []
    by_ranks: dict[str, Any] = {}
    for op, here in _COLLECTIVES.items():
        where = f"{at}.op.{op}"
        for key in ("scale", "offset"):
            if keys.has(f"{where}.{key}"):
                keys.note(f"{where}.{key}", "no_cost_effect", why="bytes on the wire follow from the algorithm here")
        share = keys.number(f"{where}.efficient_factor", None, to=f"network.{name}.efficiency.{here}")
        if share:
            shares[here] = [f"{share:g}", "measured", _SOURCE]
        own = keys.number(f"{where}.latency_us", None, to=f"network.{name}.latency", why="the mean over collectives")
        fixed = keys.number(f"{where}.fixed_latency_us", None, to=f"network.{name}.launch", why="the mean over collectives")
        if here != "p2p":
            hops += [own] if own is not None else []
            calls += [fixed] if fixed is not None else []
        shared += _of_two(keys, f"{where}.dp_fixed_bw", name)
        by_ranks |= _by_ranks(keys, f"{where}.fixed_latency_us_by_comm_num", name, here)
    once = keys.number(f"{at}.bandwidth.fixed_latency", None, to=f"network.{name}.launch")
    by_ranks |= _by_ranks(keys, f"{at}.bandwidth.fixed_latency_us_by_comm_num", name, "default")
    latency = sum(hops) / len(hops) if hops else hop
    launch = sum(calls) / len(calls) if calls else once
    made: dict[str, Any] = {"name": name, "ranks": ranks, "bandwidth": [f"{rate / sharing:g} GiB/s", "datasheet", _SOURCE]}
    if shared:
        made |= {"bandwidth": [f"{sum(shared) / len(shared):g} GiB/s", "measured", _SOURCE], "ring": _ring(rate, shares)}
        shares = {"default": ["1", "measured", _SOURCE]}
    made["latency"] = [f"{latency:.4g} us", "measured", _SOURCE]
    if launch:
        made["launch"] = [f"{launch:.4g} us", "measured", _SOURCE]
    if by_ranks:
        made["calls"] = by_ranks
    if name == "node" and keys.has("FC8") and keys.given["FC8"].value:
        keys.note("FC8", "mapped", f"network.{name}.fully_connected", "a group of n of the node's ranks has (n - 1)/(ranks - 1) of the rate")
        made["fully_connected"] = True
    return {**made, "efficiency": shares}


def _ring(rate: float, shares: Mapping[str, list[str]]) -> list[str]:
    gather = float((shares.get("all_gather") or shares["default"])[0])
    return [f"{rate * gather:.4g} GiB/s", "measured", _SOURCE]


def _of_two(keys: Keys, key: str, name: str) -> list[float]:
    """What a pair of ranks reaches where others share the link: a rank's share of it. The whole is one ring of all."""
    if not keys.has(key):
        return []
    if "pcie" not in key.removeprefix("networks.").partition(".")[0]:
        keys.note(key, "no_cost_effect", why="read of tiers of PCIe alone (core/config.py compute_net_op_time)")
        return []
    table = keys.given[key].value
    two = table.get("2") if isinstance(table, Mapping) else None
    if isinstance(two, bool) or not isinstance(two, (int, float)) or two <= 0:
        keys.note(key, "not_modelled", why="rates of data-parallel groups by their size, without one of two ranks")
        return []
    keys.note(key, "mapped", f"network.{name}.bandwidth, network.{name}.ring", "a pair's rate is a rank's share; one ring of all has the whole")
    return [float(two)]


def _by_ranks(keys: Keys, key: str, name: str, op: str) -> dict[str, dict[int, list[str]]]:
    """What a call costs whatever its bytes, by the ranks of its group: a table of the tier for one collective."""
    if not keys.has(key):
        return {}
    table = keys.given[key].value
    if not isinstance(table, Mapping):
        raise keys.wrong(key, "numbers of ranks with microseconds")
    if not table:
        keys.note(key, "no_cost_effect", why="empty")
        return {}
    found: dict[int, list[str]] = {}
    for ranks, constant in table.items():
        number = int(ranks) if str(ranks).isascii() and str(ranks).isdigit() and len(str(ranks)) < 7 else 0
        if number < 2 or isinstance(constant, bool) or not isinstance(constant, (int, float)) or not 0 <= constant < _LONGEST_CALL:
            raise keys.wrong(key, "numbers of ranks from 2 up with microseconds")
        found[number] = [f"{constant:g} us", "measured", _SOURCE]
    keys.note(key, "mapped", f"network.{name}.calls.{op}", "a constant of a call by the number of ranks")
    return {op: found}


def _silence(keys: Keys) -> None:
    """Keys that SimuMax has and nobody reads, and what is not modelled."""
    for key in keys.given:
        if key in keys.rows:
            continue
        if key == "FC8":
            why = "no tier joins a node's ranks alone" if keys.given[key].value else "off at this value"
            keys.note(key, "no_cost_effect", why=why)
        elif key in ("accelerator.backend", "sys_name") or key.endswith(".processor_usage"):
            keys.note(key, "no_cost_effect", why=_NOT_READ if key.endswith("usage") else "a label")
        elif key == "accelerator.mode":
            keys.note(key, "mapped", "kernels", "the longer of compute and memory time, and a share of the other")
        elif key.startswith("networks.low_intra_node."):
            keys.note(key, "no_cost_effect", why="a tier that is never selected there")
        elif re.fullmatch(r"accelerator\.bandwidth\.\w+\.(gbps|latency_us)", key):
            keys.note(key, "no_cost_effect", why="that of bandwidth.default holds for all classes here")
        elif re.fullmatch(r"accelerator\.bandwidth\.\w+\.(fixed_latency|fixed_latency_us_by_comm_num)", key):
            keys.note(key, "no_cost_effect", why=_NOT_READ)
        elif key.startswith("networks."):
            tier = key.split(".")[1]
            if tier == "high_intra_node" or _PCIE.fullmatch(tier):
                keys.note(key, "no_cost_effect", why="of a tier that groups of this system do not use")


def _fitted(found: dict[str, Any], points: Points) -> None:
    """The coefficients of the curves that the file's tables determine, in place of its default factors."""
    from symsim.calibration.calibrate import calibrate, calibrated

    system = validate(System, found, "the system")
    found |= calibrated(found, calibrate(system, points), "its efficiency tables")


def _positive(keys: Keys, key: str, to: str, default: Any) -> Any:
    value = keys.number(key, default, to=to)
    if value is not None and keys.has(key) and value <= 0:
        raise keys.wrong(key, "a number above zero")
    return value
