"""Fitting a system's coefficients to measured times, and saying what error remains.

The forms are those of `curves` and `collectives`, taken as they are: each point's sizes and the system's rates are put in,
and what is left depends on the coefficients alone. They are fitted in logarithms, so that they stay positive, by
Levenberg-Marquardt on the logarithm of predicted over measured time, with soft-L1 weights (Huber, Ann. Math. Stat. 35(1),
1964; the smooth form of Charbonnier et al., ICIP 1994), since a table of measurements holds runs under other clocks. Points
shorter than the median count less, as the square root of their time. A coefficient that no point depends on keeps its value.

Held-out error: the points of each shape are put into one of five folds, each fold is predicted by a fit to the other four.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symsim.algebra.expr import Expr, expr, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.vocabulary import domain
from symsim.calibration.points import Point, Points
from symsim.errors import InputError
from symsim.inputs import curves
from symsim.inputs.settable import system_path
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, symbol_values
from symsim.inputs.systems import format_system
from symsim.ir.collectives import COLLECTIVES

OPS = ("memory", "gemm", "grouped_gemm", "attention", "collective")
FOLDS = 5

_SOFT = 0.1  # relative error beyond which a point counts linearly
_SMALLEST_TIME, _SMALLEST_SHARE = 1e-10, 1e-4  # fitted to less than this, a coefficient is zero
_COEFFICIENTS: Mapping[str, tuple[str, ...]] = {
    "memory": ("eta_mem", "eta_permute", "eta_ce", "t_mem"),
    "gemm": ("eta_gemm", "phi_gemm", "t_gemm", "t_tile"),
    "grouped_gemm": ("eta_group", "phi_group"),
    "attention": ("eta_fa", "eta_fab", "zeta_fa", "tau_fa", "tau_fab", "omega_fa", "omega_fab", "psi_fa", "psi_fab", "kappa_fa", "phi_fa"),
}
# where a search begins, besides the system's own values: shares of one, seconds of another
_FIRST = {"eta": 0.6, "phi": 0.3, "zeta": 0.3, "t": 5e-6, "tau": 3e-8, "alpha": 5e-6, "lambda": 2e-5, "omega": 0.3, "psi": 0.8, "kappa": 128}


@dataclass(frozen=True)
class Errors:
    """Of predicted over measured time less one: mean, median, 90th percentile and largest of its size; `bias` of the summed time."""

    mean: float
    median: float
    ninety: float
    worst: float
    bias: float


@dataclass(frozen=True)
class Fit:
    """Coefficients of one operation as they are written, those that no point determines, and errors in and out of sample."""

    op: str
    points: int
    coefficients: Mapping[str, float]
    kept: tuple[str, ...]
    inside: Errors
    held_out: Errors | None


@dataclass(frozen=True)
class Calibration:
    """Fits in order, and the coefficients that the file gives as they are."""

    fits: tuple[Fit, ...]
    given: Mapping[str, float]
    before: Mapping[str, float]

    @property
    def coefficients(self) -> dict[str, float]:
        found = dict(self.given)
        for fit in self.fits:
            found |= {name: value for name, value in fit.coefficients.items() if name not in fit.kept}
        return found


def calibrate(system: System, measured: Points, op: str | None = None, shortest: float = 0.0) -> Calibration:
    """Fit a system's coefficients to measured points of one operation or of all, leaving out those of fewer than `shortest` seconds.

    A call repeated for less time than a chip takes to reach its power limit runs at a clock that a training step never
    sees: `shortest` leaves such points out. InputError where there is nothing to fit.
    """
    before = {name: float(value) for name, value in symbol_values(system, Strategy()).items()}
    known = dict(before)
    given = {}
    if op in (None, "memory"):
        given = {curves.MOVING[kind]: _rounded("eta", min(1.0, rate / known["B_hbm"])) for kind, rate in measured.bandwidths.items()}
        known |= given
    fits = []
    for name in (op,) if op else OPS:
        points = [p for p in measured.points if _group(p) == name and p.seconds >= shortest]
        if not points:
            continue
        fits.append(_fit(name, points, system, known))
        known |= fits[-1].coefficients
    if not fits and not given:
        longer = f" of {1000 * shortest:g} ms and more" if shortest else ""
        present = ", ".join(sorted({_group(p) for p in measured.points})) or "memory shares"
        raise InputError(f"the file holds no points of {op or 'any operation'}{longer}; it holds {present}")
    return Calibration(tuple(fits), given, before)


def _group(point: Point) -> str:
    return "collective" if point.op in COLLECTIVES else point.op


def seconds(point: Point, system: System) -> Expr:
    """The closed form of a point's time: its sizes are numbers, rates and coefficients are symbols."""
    of = point.sizes
    if point.op in ("gemm", "grouped_gemm"):
        return curves.gemm(
            of["m"],
            of["n"],
            of["k"],
            groups=of.get("groups", 1),
            kind=point.kind,
            width_in=of["width_in"],
            width_out=of["width_out"],
            peak=symbol(f"Phi_{point.precision}"),
            grouped=point.op == "grouped_gemm",
        )
    if point.op == "attention":
        return curves.attention(
            of["b"],
            of["heads"],
            of["s_q"],
            of["n_keys"],
            of["d_qk"],
            of["d_v"],
            causal=bool(of["causal"]),
            backward=point.kind == "backward",
            fp8=point.precision == "fp8",
            peak=symbol("Phi_bf16" if point.precision == "fp8" else f"Phi_{point.precision}"),
            moved=curves.attention_bytes(
                of["b"],
                of["heads"],
                of.get("groups", of["heads"]),
                of["s_q"],
                of["n_keys"],
                of["d_qk"] + of["d_v"],
                backward=point.kind == "backward",
            ),
            window=min(of["window"], of["n_keys"]) if "window" in of else None,
            summed=_summed(point),
        )
    if point.op == "memory":
        return curves.memory_bound(of["bytes"], kind=point.kind)
    return _collective(point, system)


def _summed(point: Point) -> Expr | int:
    of = point.sizes
    if point.kind != "backward" or point.precision != "fp8" or of.get("groups", of["heads"]) == of["heads"]:
        return 0
    return curves.summed_bytes(of["b"], of["heads"], of["n_keys"], of["d_qk"] + of["d_v"])


def _collective(point: Point, system: System) -> Expr:
    from symsim.cost.collectives import Network
    from symsim.ir.messages import Message
    from symsim.placement.mesh import mesh_of

    n, size = point.sizes["ranks"], point.sizes["bytes"]
    axis = "pp" if point.op == "p2p" else "tp"
    strategy = Strategy(**{axis: n})
    book, mesh = Derivation(), mesh_of(strategy)
    # what one rank hands in and gets back, of the whole buffer; a message of bytes, so of fp8 elements
    shard, whole = expr(size) / n, expr(size)
    row = COLLECTIVES[point.op]
    send = shard if row.gathers else whole
    time = Network(book, system, strategy, mesh).seconds(Message("", point.op, axis, mesh.degree(axis), send, row.got_back(send, expr(n)), "fp8", ""))
    known: dict[str, Any] = {axis: n} | {f"R_{j}": n if t.ranks == "all" else t.ranks for j, t in enumerate(system.network, 1)}
    for name, definition in book.definitions.items():
        known[name] = definition.expr.substitute(known)
    return time.expr.substitute(known)


def _fit(op: str, points: Sequence[Point], system: System, known: Mapping[str, float]) -> Fit:
    if op == "collective" and not system.network:
        raise InputError(f"the system {system.name} has no network, which points of collectives need")
    forms = [seconds(p, system) for p in points]
    for form in forms:
        for name in form.symbols() - known.keys():
            raise InputError(f"the system {system.name} gives no {name}, which points of {op} need")
    names = _COEFFICIENTS.get(op) or tuple(sorted(n for n in {s for f in forms for s in f.symbols()} if n.startswith(("alpha_", "lambda_", "eta_"))))
    # the starts of a product and of its tiles are told apart on machines only whose file has both
    names = tuple(n for n in names if n != "t_tile" or known[n])
    rest: dict[str, Any] = {n: v for n, v in known.items() if n not in names}
    reduced = [form.substitute(rest) for form in forms]
    used = [n for n in names if any(n in form.symbols() for form in reduced)]
    times = [p.seconds for p in points]
    shapes = len({p.shape for p in points})
    if shapes < len(used):
        raise InputError(
            f"{shapes} shape{'s' if shapes > 1 else ''} of {op} cannot determine its {len(used)} coefficients ({', '.join(used)}); measure more"
        )
    start = {n: known[n] for n in used}
    found = _search(reduced, times, used, start)
    idle = tuple(n for n in used if not _matters(reduced, found, n))
    found = {n: start[n] if n in idle else _rounded(n, v) for n, v in found.items()}
    try:
        inside = _errors([float(f.evaluate(found)) for f in reduced], times)
    except ZeroDivisionError:
        nothing = ", ".join(n for n, v in found.items() if not v)
        longer = f"the points of {op} take longer than any share of the peak explains"
        raise InputError(f"{longer}: {nothing} would be 0; are the times in seconds?") from None
    return Fit(op, len(points), found, idle, inside, _held_out(points, reduced, used, found))


def _held_out(points: Sequence[Point], forms: Sequence[Expr], names: Sequence[str], found: Mapping[str, float]) -> Errors | None:
    shapes = sorted({p.shape for p in points}, key=repr)
    if len(shapes) < FOLDS * 2 or len(shapes) <= len(names) + FOLDS:
        return None
    random.Random(0).shuffle(shapes)
    fold = {shape: i % FOLDS for i, shape in enumerate(shapes)}
    predicted = [0.0] * len(points)
    for out in range(FOLDS):
        inside = [i for i, p in enumerate(points) if fold[p.shape] != out]
        fitted = _descend([forms[i] for i in inside], [points[i].seconds for i in inside], names, found)[1]
        for i, p in enumerate(points):
            if fold[p.shape] == out:
                predicted[i] = float(forms[i].evaluate(fitted))
    return _errors(predicted, [p.seconds for p in points])


def _search(forms: Sequence[Expr], times: Sequence[float], names: Sequence[str], start: Mapping[str, float]) -> dict[str, float]:
    """The better of two descents: from the system's own coefficients, and from ordinary ones."""
    ordinary = {n: _FIRST[n.split("_")[0]] for n in names}
    return min((_descend(forms, times, names, begin) for begin in (start, ordinary)), key=lambda found: found[0])[1]


def _descend(forms: Sequence[Expr], times: Sequence[float], names: Sequence[str], start: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Levenberg-Marquardt from a start: the cost reached and the coefficients."""
    median = sorted(times)[len(times) // 2]
    weights = [min(1.0, t / median) ** 0.25 for t in times]

    def residuals(logs: Sequence[float]) -> list[float]:
        at = {n: math.exp(x) for n, x in zip(names, logs)}
        return [w * math.log(float(f.evaluate(at)) / t) for f, t, w in zip(forms, times, weights)]

    def cost(found: Iterable[float]) -> float:
        return sum(math.sqrt(1 + (r / _SOFT) ** 2) - 1 for r in found)

    at = [math.log(max(start[n], _SMALLEST_TIME if _is_time(n) else _SMALLEST_SHARE)) for n in names]
    # no more than the whole of a peak rate or of a bandwidth
    most = {n: 0.0 if domain(n) == "share" or n.startswith(("phi_", "omega_")) else 15.0 for n in names}
    now = residuals(at)
    best, damping = cost(now), 1e-2
    for _ in range(60):
        slopes = []
        for j in range(len(names)):
            moved = residuals([x + (1e-5 if i == j else 0) for i, x in enumerate(at)])
            slopes.append([(m - r) / 1e-5 for m, r in zip(moved, now)])
        soft = [1 / math.sqrt(1 + (r / _SOFT) ** 2) for r in now]
        normal = [[sum(s * a * b for s, a, b in zip(soft, slopes[i], slopes[j])) for j in range(len(names))] for i in range(len(names))]
        gradient = [sum(s * a * r for s, a, r in zip(soft, slopes[i], now)) for i in range(len(names))]
        gained = 0.0
        while damping < 1e8:
            damped = [[v + (damping * (v + 1e-9) if i == j else 0) for j, v in enumerate(row)] for i, row in enumerate(normal)]
            step = _solve(damped, gradient)
            # a coefficient moves by a factor of e^2 at most, within bounds that no machine leaves
            trial = [min(most[n], max(-24.0, x - min(2.0, max(-2.0, d)))) for n, x, d in zip(names, at, step)]
            after = residuals(trial)
            reached = cost(after)
            if reached < best:
                gained, at, now, best, damping = best - reached, trial, after, reached, damping / 5
                break
            damping *= 4
        if gained <= 1e-7 * best:
            break
        damping = max(damping, 1e-9)
    return best, {n: math.exp(x) for n, x in zip(names, at)}


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gaussian elimination with row exchange."""
    rows = [[*row, r] for row, r in zip(matrix, right)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    found = [0.0] * n
    for i in reversed(range(n)):
        found[i] = (rows[i][n] - sum(rows[i][j] * found[j] for j in range(i + 1, n))) / rows[i][i]
    return found


def _matters(forms: Sequence[Expr], at: Mapping[str, float], name: str) -> bool:
    """Whether any predicted time would change if a coefficient were half again as large."""
    larger = {**at, name: at[name] * 1.5}
    # a coefficient fitted to nothing is determined too: larger ones were tried
    floor = _SMALLEST_TIME if _is_time(name) else _SMALLEST_SHARE
    return at[name] <= floor or any(abs(float(f.evaluate(larger)) / float(f.evaluate(at)) - 1) > 1e-9 for f in forms)


def _is_time(name: str) -> bool:
    return name.startswith(("t_", "tau_", "alpha_", "lambda_"))


def _rounded(name: str, value: float) -> float:
    if value < (_SMALLEST_TIME if _is_time(name) else _SMALLEST_SHARE):
        return 0.0
    return float(f"{value:.3g}")


def _errors(predicted: Sequence[float], times: Sequence[float]) -> Errors:
    sizes = sorted(abs(p / t - 1) for p, t in zip(predicted, times))
    n = len(sizes)
    return Errors(sum(sizes) / n, sizes[n // 2], sizes[min(n - 1, int(0.9 * n))], sizes[-1], sum(predicted) / sum(times) - 1)


def table(calibration: Calibration) -> str:
    """Errors and coefficients in 80 columns."""
    text = f"{'':13}{'points':>7}{'mean':>8}{'median':>8}{'90 %':>8}{'worst':>8}{'time':>8}{'held out':>10}{'time':>8}\n"
    for fit in calibration.fits:
        e = fit.inside
        shares = "".join(f"{100 * share:8.1f}" for share in (e.mean, e.median, e.ninety, e.worst))
        out = f"{100 * fit.held_out.mean:10.1f}{100 * fit.held_out.bias:+8.1f}" if fit.held_out else f"{'-':>10}{'-':>8}"
        text += f"{fit.op:13}{fit.points:7d}{shares}{100 * e.bias:+8.1f}{out}\n"
    text += "(per cent of measured time; 'time': of the summed time; -: too few shapes)\n\n"
    kept = {name for fit in calibration.fits for name in fit.kept}
    for name, value in calibration.coefficients.items():
        text += f"{name:22}{_text(name, calibration.before[name]):>12} -> {_text(name, value):>12}\n"
    for name in sorted(kept - calibration.coefficients.keys()):
        text += f"{name:22}{_text(name, calibration.before[name]):>12}    kept: no point depends on it\n"
    return text


def _text(name: str, value: float) -> str:
    if not _is_time(name):
        return f"{value:.3g}"
    return f"{value * 1e9:.3g} ns" if 0 < value < 1e-6 else f"{value * 1e6:.3g} us"


def plain(reference: str) -> dict[str, Any]:
    """The plain data of a system that `load_system` takes by this name or path."""
    from symsim.inputs.reading import read_yaml
    from symsim.inputs.shipped import list_systems, models_directory

    return read_yaml(models_directory() / "systems" / f"{reference}.yaml" if reference in list_systems() else reference).data


def calibrated(data: Mapping[str, Any], calibration: Calibration, measured: str) -> dict[str, Any]:
    """A system's plain data with the fitted coefficients and their source; `measured` names the points. InputError where one is zero."""
    made = deepcopy(dict(data))
    source = unused_name("calibrated", made["sources"])
    made["sources"][source] = f"symsim calibrate, {measured} - {_summary(calibration)}"
    for name, value in calibration.coefficients.items():
        if value == 0 and domain(name) != "non-negative":
            raise InputError(f"{name} was fitted to zero, so no system file is written; the points do not fit the form")
        _put(made, name, [_text(name, value), "measured", source])
    stated = {str(entry[2]) for entry in entries(made)}
    made["sources"] = {name: text for name, text in made["sources"].items() if name in stated}
    return made


def write_system(path: Path, data: Mapping[str, Any], calibration: Calibration, measured: str) -> None:
    """Write a complete system file: `data` is the plain data of the system calibrated, `measured` names the points.

    The file is written whole or not at all; InputError says why it could not be.
    """
    from symsim.inputs.reading import write_text

    write_text(path, format_system({**calibrated(data, calibration, measured), "name": path.name.rsplit(".", 1)[0]}))


def _put(data: dict[str, Any], name: str, entry: list[str]) -> None:
    path = system_path(name)
    assert path is not None, name
    place: Any = data
    for part in path[:-1]:
        place = place[int(part) - 1] if isinstance(place, list) else place.setdefault(part, {})
    place[path[-1]] = entry


def entries(data: Any) -> Iterable[Sequence[Any]]:
    """Every [number, how it is known, source] of a system's plain data."""
    if isinstance(data, Mapping):
        for value in data.values():
            yield from entries(value)
    elif isinstance(data, (list, tuple)):
        if len(data) == 3 and not any(isinstance(part, (Mapping, list, tuple)) for part in data):
            yield data
        else:
            for value in data:
                yield from entries(value)


def unused_name(name: str, taken: Mapping[str, Any]) -> str:
    return name if name not in taken else next(f"{name}-{n}" for n in range(2, len(taken) + 3) if f"{name}-{n}" not in taken)


def _summary(calibration: Calibration) -> str:
    parts = []
    for fit in calibration.fits:
        held = f", {100 * fit.held_out.mean:.1f} held out" if fit.held_out else ""
        parts.append(f"{fit.points} points of {fit.op}, mean error {100 * fit.inside.mean:.1f} per cent{held}")
    if calibration.given:
        parts.append("memory shares as given")
    return "; ".join(parts)
