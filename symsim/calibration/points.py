"""Measured times to calibrate a system with: one point is one kernel or one collective, its sizes and its seconds.

A CSV file has a header and one point a line; columns that an operation does not use stay empty:

    op             one of gemm, grouped_gemm, attention, memory, or a collective (all_reduce, all_gather, ...)
    seconds        of one call
    m n k          rows, columns and depth of the product (gemm, grouped_gemm: of one group)
    groups         grouped_gemm: products; attention: heads of keys and values (those of queries if empty)
    kind           forward | dgrad | wgrad (gemm); forward | backward (attention); elementwise | permute | cross_entropy (memory)
    width_in       bytes of an operand's element (2 if empty)
    width_out      bytes of an output's element (if empty 2, and 4 of a wgrad)
    b heads s_q n_keys d_qk d_v    attention
    causal         1 or 0, attention
    window         keys that a query sees at most, attention (no bound if empty)
    bytes          memory: read and written; collective: the whole buffer (gathered, or before it is scattered)
    ranks          collective
    precision      bf16 (if empty), fp16, fp8, fp32: whose peak rate the operation is held against

A JSON file is a system file of SimuMax, whose tables hold efficiencies by shape, or a summary of nccl-tests runs of
all_reduce by ranks (`fits: {name_ranks: {busbw_16MB: GB/s, ...}}`). `FILE#NAME` takes the entries that begin with NAME.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.errors import InputError, cut, nearest
from symsim.inputs.limits import LARGEST_SIZE, MOST_RANKS, MOST_STAGES
from symsim.inputs.reading import read_json, read_text
from symsim.ir.collectives import COLLECTIVES

PRODUCTS = ("forward", "dgrad", "wgrad")
PRECISIONS = ("bf16", "fp16", "fp8", "fp32")

_SIZES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k", "width_in", "width_out"),
    "grouped_gemm": ("m", "n", "k", "groups", "width_in", "width_out"),
    "attention": ("b", "heads", "s_q", "n_keys", "d_qk", "d_v", "causal"),
    "memory": ("bytes",),
    **{name: ("ranks", "bytes") for name in COLLECTIVES},
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {"attention": ("groups", "window")}
_KINDS: Mapping[str, tuple[str, ...]] = {
    "gemm": PRODUCTS,
    "grouped_gemm": PRODUCTS,
    "attention": ("forward", "backward"),
    "memory": ("elementwise", "permute", "cross_entropy"),
}
_COLUMNS = ("op", "seconds", "kind", "precision", *dict.fromkeys(s for sizes in (*_SIZES.values(), *_OPTIONAL.values()) for s in sizes))
_GIB = 2**30


@dataclass(frozen=True)
class Point:
    """One measured call: `kind` is the transpose of a product, the direction of attention, or the class of a memory-bound kernel."""

    op: str
    kind: str
    sizes: Mapping[str, int]
    seconds: float
    precision: str = "bf16"

    @property
    def shape(self) -> tuple[Any, ...]:
        """What two runs of one shape have in common, whatever type they write."""
        return (self.op, self.kind, *(v for k, v in self.sizes.items() if k != "width_out"))


@dataclass(frozen=True)
class Points:
    """What a file says: points, and bytes per second where it gives a memory-bound class as one number."""

    points: tuple[Point, ...]
    bandwidths: Mapping[str, float]


def read_points(reference: str) -> Points:
    """The points of a CSV or JSON file (`FILE#NAME`: those named NAME); InputError says what does not fit, and where."""
    path, _, name = reference.partition("#")
    if name and not path.lower().endswith(".json"):
        raise InputError(f"{reference}: only a .json file has named entries")
    if path.lower().endswith(".csv"):
        found = Points(_table(path), {})
    elif path.lower().endswith(".json"):
        data = read_json(path).data
        if isinstance(data.get("accelerator"), dict):
            found = simumax_points(data["accelerator"], path)
        elif isinstance(data.get("fits"), dict):
            found = Points(_nccl(data["fits"], name, path), {})
        else:
            raise InputError(f"{path}: neither a SimuMax system (accelerator: op: ...) nor a summary of collectives (fits: ...)")
    else:
        raise InputError(f"{path}: measured points come in a .csv or .json file")
    if not found.points and not found.bandwidths:
        raise InputError(f"{reference}: there are no measured points in it")
    return found


def _table(path: str) -> tuple[Point, ...]:
    rows = _rows(path)
    columns = rows[0][1] if rows else []
    for column in columns:
        if column not in _COLUMNS:
            raise InputError(f"{path}:1: there is no column '{cut(column)}': {nearest(column, _COLUMNS)}")
    for column in ("op", "seconds"):
        if column not in columns:
            raise InputError(f"{path}:1: the column '{column}' is missing")
    for line, cells in rows[1:]:
        if len(cells) > len(columns):
            raise InputError(f"{path}:{line}: {len(cells)} cells, and the header names {len(columns)} columns")
    return tuple(_point(dict(zip(columns, cells)), f"{path}:{line}") for line, cells in rows[1:])


def _rows(path: str) -> list[tuple[int, list[str]]]:
    """Lines of a CSV file that are not empty, with their numbers."""
    reader = csv.reader(io.StringIO(read_text(path)), strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None


def _point(row: Mapping[str, str], where: str) -> Point:
    op = row.get("op", "")
    if op not in _SIZES:
        raise InputError(f"{where}: op '{cut(op)}' is not measured here: {nearest(op, list(_SIZES))}")
    kind = row.get("kind", "")
    if kind not in _KINDS.get(op, ("",)):
        raise InputError(f"{where}: kind '{cut(kind)}' of {op} should be one of {', '.join(_KINDS.get(op, ('(empty)',)))}")
    precision = row.get("precision") or "bf16"
    if precision not in PRECISIONS:
        raise InputError(f"{where}: precision '{cut(precision)}' is unknown: {nearest(precision, PRECISIONS)}")
    defaults = {"width_in": "2", "width_out": "4" if kind == "wgrad" else "2"}
    sizes = {}
    for name in (*_SIZES[op], *(n for n in _OPTIONAL.get(op, ()) if row.get(n))):
        text = row.get(name) or defaults.get(name, "")
        if not re.fullmatch(r"[0-9]{1,18}", text) or (int(text) == 0 and name != "causal") or (name == "causal" and int(text) > 1):
            want = "0 or 1" if name == "causal" else "a whole number above zero"
            raise InputError(f"{where}: {name} of {op} should be {want}, and is '{cut(text)}'")
        sizes[name] = int(text)
    _bounded(op, sizes, where)
    if sizes.get("ranks") == 1:
        raise InputError(f"{where}: ranks of {op} should be 2 or more; one rank exchanges nothing")
    return Point(op, kind, sizes, _seconds(row.get("seconds"), where), precision)


def _bounded(op: str, sizes: Mapping[str, int], where: str) -> None:
    for name, size in sizes.items():
        # ranks that send to each other are stages of a pipeline
        most = LARGEST_SIZE if name != "ranks" else MOST_STAGES if op == "p2p" else MOST_RANKS
        if size > most:
            raise InputError(f"{where}: {name} of {op} is {cut(str(size))}; at most {most} is read")


def _seconds(given: Any, where: str) -> float:
    return _positive(given, f"{where}: seconds")


def _positive(given: Any, where: str) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not (1e-15 < number < 1e15):
        bounds = ", from 1e-15 to 1e15" if number > 0 else ""
        raise InputError(f"{where} should be a number above zero{bounds}, and is '{cut(str(given))}'")
    return number


def simumax_points(accelerator: Mapping[str, Any], path: str) -> Points:
    """Times behind the efficiencies of SimuMax v1.2: FLOPs / (tflops 1e12 efficiency), attention counted without its mask
    as 2 and 5 b s^2 heads (d_qk + d_v) though it is causal (simumax/core/config.py; simu_tools/efficency_test)."""
    points = []
    ops = _mapping(accelerator, "op", path)
    for op, read in (("matmul", _simumax_gemm), ("group_matmul", _simumax_grouped), ("sdp_fwd", _simumax_forward), ("sdp_bwd", _simumax_backward)):
        table = _mapping(ops, op, path) if op in ops else {}
        for text, efficiency in _mapping(table, "accurate_efficient_factor", path).items() if "accurate_efficient_factor" in table else ():
            where = f"{path}: {op}: '{cut(text, 160)}'"
            fields = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
            try:
                name, kind, flops, sizes = read(fields)
            except (KeyError, ValueError) as error:
                raise InputError(f"{where}: not a shape of SimuMax v1.2: {error}") from None
            if min(v for k, v in sizes.items() if k != "causal") < 1:
                raise InputError(f"{where}: a size is below one")
            _bounded(name, sizes, where)
            rate = _positive(table.get("tflops"), f"{path}: {op}: tflops") * 1e12 * _positive(efficiency, where)
            points.append(Point(name, kind, sizes, flops / rate))
    bandwidths: dict[str, list[float]] = {}
    classes = _mapping(accelerator, "bandwidth", path) if "bandwidth" in accelerator else {}
    for key in classes:
        moved = {"default": "elementwise", "permute_fwd": "permute", "permute_bwd": "permute", "ce": "cross_entropy"}.get(key)
        if moved:
            share, where = _mapping(classes, key, path), f"{path}: bandwidth: {key}"
            rate = _positive(share.get("gbps"), where) * _GIB * _positive(share.get("efficient_factor"), where)
            bandwidths.setdefault(moved, []).append(rate)
    return Points(tuple(points), {kind: len(rates) / sum(1 / r for r in rates) for kind, rates in bandwidths.items()})


def _simumax_gemm(of: Mapping[str, str]) -> tuple[str, str, int, dict[str, int]]:
    kind = {"TN": "forward", "NN": "dgrad", "NT": "wgrad"}[of["layout"]]
    m, n, k = int(of["b"]) * int(of["m"]), int(of["n"]), int(of["k"])
    return "gemm", kind, 2 * m * n * k, {"m": m, "n": n, "k": k, "width_in": 2, "width_out": {"bf16": 2, "fp32": 4}[of["out_dtype"]]}


def _simumax_grouped(of: Mapping[str, str]) -> tuple[str, str, int, dict[str, int]]:
    """The key gives rows, outputs and inputs of the layer for all three passes."""
    groups, rows, outputs, inputs = (int(of[name]) for name in ("ng", "M", "N", "K"))
    kind = {"fwd": "forward", "bwd_grad_act": "dgrad", "bwd_grad_w": "wgrad"}[of["stage"]]
    m, n, k = {"forward": (rows, outputs, inputs), "dgrad": (rows, inputs, outputs), "wgrad": (outputs, inputs, rows)}[kind]
    out = {"bf16": 2, "fp32": 4}[of["main_grad_dtype"] if kind == "wgrad" else of["out_dtype"]]
    return "grouped_gemm", kind, 2 * groups * m * n * k, {"m": m, "n": n, "k": k, "groups": groups, "width_in": 2, "width_out": out}


def _simumax_forward(of: Mapping[str, str], products: int = 2, kind: str = "forward") -> tuple[str, str, int, dict[str, int]]:
    b, s, heads, d_qk, d_v = (int(of[name]) for name in ("batch", "seq_len", "head_num", "qk_head_dim", "v_head_dim"))
    sizes = {"b": b, "heads": heads, "s_q": s, "n_keys": s, "d_qk": d_qk, "d_v": d_v, "causal": 1, "groups": int(of["kv_head_num"])}
    return "attention", kind, products * b * s * s * heads * (d_qk + d_v), sizes


def _simumax_backward(of: Mapping[str, str]) -> tuple[str, str, int, dict[str, int]]:
    return _simumax_forward(of, 5, "backward")


def _nccl(fits: Mapping[str, Any], name: str, path: str) -> tuple[Point, ...]:
    """Bus bandwidth of an all-reduce of S bytes over n ranks is 2 (n - 1)/n S / seconds (nccl-tests, PERFORMANCE.md); MB is MiB."""
    points = []
    for key in fits:
        found = re.fullmatch(r"(.*)_([0-9]{1,18})", key)
        if found is None or int(found[2]) < 2:
            raise InputError(f"{path}: fits: '{cut(key)}' should end in the number of ranks, such as a100_8")
        if not key.startswith(name):
            continue
        n = int(found[2])
        for label, rate in _mapping(fits, key, path).items():
            size = re.fullmatch(r"busbw_([1-9][0-9]{0,17})(MB|GB)", label)
            if size:
                bytes = int(size[1]) * (2**20 if size[2] == "MB" else _GIB)
                sizes = {"ranks": n, "bytes": bytes}
                _bounded("all_reduce", sizes, f"{path}: {cut(key)}.{label}")
                seconds = 2 * (n - 1) / n * bytes / (_positive(rate, f"{path}: {key}.{label}") * 1e9)
                points.append(Point("all_reduce", "", sizes, seconds))
    return tuple(points)


def _mapping(data: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{path}: '{key}' should be a mapping")
    return value
