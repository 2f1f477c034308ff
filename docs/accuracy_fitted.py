"""What docs/accuracy.md says of the coefficients that are fitted to steps: to which, and how far off rows are that a fit has not seen.

A coefficient is an efficiency, a rate or a time of a system file, in logarithms; a step moves with it by its exact elasticity, in first
order. A fit is by least squares of ln(predicted / measured) with soft-L1 weights, as those of `symsim calibrate`, and holds each coefficient to
where it is by `HELD`, so that one which no row determines stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from accuracy_beside import Step

SOFT = 0.1  # logarithm beyond which a row counts linearly
HELD = 0.01  # squared: what a step is off by itself over what a coefficient may move, 3 % over 30 %
ROUNDS = 50


@dataclass(frozen=True)
class Fit:
    """Coefficients of a system file fitted to steps, those fitted to single kernels and calls, and the steps used.

    moved: of each coefficient fitted to steps its name, the systems whose files share it, and the symbols that are moved with it.
    """

    system: str
    moved: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    calls: str
    count: int
    uses: Callable[[str], bool]

    @property
    def steps(self) -> str:
        return ", ".join(f"{name}{self._with(systems)}" for name, systems, _ in self.moved) or "none"

    def _with(self, systems: tuple[str, ...]) -> str:
        others = [name for name in systems if name != self.system]
        return f" (with {' and '.join(others)})" if others else ""


def _blackwell(name: str, machine: str) -> bool:
    early = any(f"/{container}-" in name for container in ("26.02", "26.04", "26.06")) and "GPT" not in name
    return machine in name and (early or "25.11-DeepSeek" in name or "25.11-Qwen3_235" in name)


RACKS = ("gb200-nvl72", "gb300-nvl72")
FITS = (
    Fit(
        "b200-sxm",
        (
            ("GEMM efficiency, which attention's follows", ("b200-sxm",), ("eta_gemm", "eta_fa", "eta_fab")),
            ("all-to-all share", ("b200-sxm",), ("eta_1_all_to_all",)),
        ),
        "GEMM exposed share, grouped GEMM 2, attention 5 (686 shapes; 6 from gb200-nvl72), ring share, all-reduce share, hop and call latency",
        14,
        lambda name: name.startswith(("b200/llama3_70b_l12_tp", "b200/llama3_70b_tp2", "b200/deepseekv2_tp1_ep8")) and "_cp" not in name,
    ),
    Fit(
        "a100-pcie-80",
        (("node bandwidth", ("a100-pcie-80",), ("B_2",)), ("what one ring moves", ("a100-pcie-80",), ("C_2",))),
        "GEMM 3, grouped GEMM 2, attention 5 (219 shapes), switch share, all-to-all share",
        14,
        lambda name: name.startswith(("a100/llama3-70b", "a100/ds-236b-l4-ep8")),
    ),
    Fit("a100-sxm-80", (), "ring share, hop and call latency (NCCL tables); kernels are those of a100-pcie-80", 3, lambda name: False),
    Fit(
        "a800-sxm",
        (("host launch", ("a800-sxm",), ("t_launch",)), ("host gather", ("a800-sxm",), ("t_gather",))),
        "none; kernels and links borrow from A100",
        2,
        lambda name: name.startswith("swift/moe") and "zero" in name,
    ),
    Fit(
        "h100-sxm",
        (
            ("FP8 share", ("h100-sxm",), ("Phi_fp8",)),
            ("start of a kernel", ("h100-sxm",), ("t_mem",)),
            ("all-to-all share between nodes", ("h100-sxm",), ("eta_2_all_to_all",)),
        ),
        "attention 6 (81 times) and start of a tile (28 products), with h200-sxm and h800-sxm; ring, all-reduce and all-to-all share, hop and call "
        "latency (nccl-tests)",
        15,
        lambda name: name.startswith("megatron-h100") or ("H100" in name and ("70B" in name or "235B" in name)),
    ),
    Fit(
        "gb200-nvl72",
        (("GEMM efficiency, grouped too", ("gb200-nvl72",), ("eta_gemm", "eta_group")), ("FP8 share", RACKS, ("Phi_fp8",))),
        "attention 11 (184 times)",
        13,
        lambda name: _blackwell(name, "GB200"),
    ),
    Fit(
        "gb300-nvl72",
        (
            ("GEMM efficiency, grouped too", ("gb300-nvl72",), ("eta_gemm", "eta_group")),
            ("FP8 share", RACKS, ("Phi_fp8",)),
            ("host launch", RACKS, ("t_launch",)),
        ),
        "attention 11 (174 times)",
        14,
        lambda name: _blackwell(name, "GB300"),
    ),
)


COEFFICIENTS = tuple(dict.fromkeys(one for fit in FITS for one in fit.moved))


def used(system: str, name: str) -> bool:
    """Whether a coefficient of the system was fitted to this step."""
    return any(fit.system == system and fit.uses(name) for fit in FITS)


def moves_of(system: str, elasticities: Mapping[str, float]) -> tuple[float, ...]:
    """By how many percent a step on this system changes with a percent of each of COEFFICIENTS."""
    return tuple(sum(elasticities.get(s, 0.0) for s in symbols) if system in systems else 0.0 for _, systems, symbols in COEFFICIENTS)


@dataclass(frozen=True)
class Row:
    """A step, ln(predicted / measured) of it, what it was run in, and whether a fit used it; moves: by coefficient, what a percent of it does."""

    id: str
    source: str
    system: str
    model: str
    container: str
    error: float
    used: bool
    moves: tuple[float, ...]


def _rows(steps: Iterable[Step]) -> list[Row]:
    made = []
    for step in steps:
        case = step.case
        # SimuMax cut its models to a few layers
        model = re.sub(r"-l[0-9]+$", "", case.architecture.name)
        container = case.id.partition("-")[0] if case.id.startswith("bridge/") else case.source
        moves = moves_of(case.system, step.elasticities)
        made.append(Row(case.id, case.source, case.system, model, container, -step.row.error, used(case.system, case.id), moves))
    return made


def refitted(errors: np.ndarray, moves: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """By how much each coefficient moves, in logarithms, when it is fitted to steps of these errors and moves. start: where it is without any."""
    found = start = np.zeros(moves.shape[1]) if start is None else start
    for _ in range(ROUNDS):
        weights = 1 / np.sqrt(1 + ((errors + moves @ found) / SOFT) ** 2)
        found = np.linalg.solve(moves.T @ (weights[:, None] * moves) + HELD * np.eye(len(found)), HELD * start - moves.T @ (weights * errors))
    return found


def left_out(rows: Sequence[Row], by: Callable[[Row], str]) -> dict[str, float]:
    """By id of the rows that are used, the relative error of a fit to those of other groups."""
    used, found = [row for row in rows if row.used], {}
    for group in dict.fromkeys(map(by, used)):
        others = [row for row in used if by(row) != group]
        moved = refitted(np.array([row.error for row in others]), np.array([row.moves for row in others]))
        found |= {row.id: math.exp(row.error + float(np.dot(row.moves, moved))) - 1 for row in used if by(row) == group}
    return found


def section(steps: Sequence[Step]) -> list[str]:
    """What was fitted, by system; and errors of the rows used when they, their model or their container are left out, by system and by source."""
    rows = _rows(steps)
    model, container = (left_out(rows, lambda row, at=at: f"{row.system} {getattr(row, at)}") for at in ("model", "container"))
    lines = [
        "## What was fitted",
        "",
        "Coefficients of each system file that were fitted: to whole steps, or to single kernels and collective calls (`docs/systems.md`;",
        "`symsim calibrate` repeats the latter, and `tests/test_calibrate.py` and `tests/test_kernel_tables.py` hold their errors). All other",
        "numbers are datasheet values or estimates. No coefficient belongs to a row.",
        "",
        "| system | fitted | to steps | to kernels and calls |",
        "|---|---|---|---|",
        *(f"| {fit.system} | {fit.count} | {fit.steps} | {fit.calls} |" for fit in FITS),
        "",
        "Mean absolute errors of the steps that were used: as they are, by a fit to the steps of other models, and by one to those of other",
        "containers (of a source that names none, other sources); and of the steps that no fit used. Fits are in first order of the exact",
        "elasticities.",
        "",
        "| rows | steps used | error | without their model | without their container | steps not used | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys([*(fit.system for fit in FITS), *(row.source for row in rows), "all"]):
        own = [row for row in rows if name in (row.system, row.source, "all")]
        used, others = ([row for row in own if row.used is wanted] for wanted in (True, False))
        cells = [_mean([math.exp(row.error) - 1 for row in used]), *(_mean([by[row.id] for row in used]) for by in (model, container))]
        lines.append(f"| {name} | {len(used)} | {' | '.join(cells)} | {len(others)} | {_mean([math.exp(row.error) - 1 for row in others])} |")
    return [*lines, ""]


def _mean(errors: Sequence[float]) -> str:
    return f"{mean(map(abs, errors)):.1%}" if errors else ""
