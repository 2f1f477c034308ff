"""What symsim's steps stand beside in docs/accuracy.md: one MFU for all rows of a kind, and what other systems predict for the same runs.

One MFU is the bar that any model has to beat: of a group of rows the geometric mean of their measured MFU, which is then taken for each of
them (in sample), or for each that of the others (leave one out).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from measured_row import Case
from shared import SHARED
from spreads import Measured, measured

from symsim.evaluation.elasticity import elasticities
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.reading import read_yaml

KORTHIKANTI = {"full": "full_recompute_no_sp", "seqsel": "selective_plus_sp"}


@dataclass(frozen=True)
class Step:
    """A measured step beside its prediction: the MFU that was measured, whether there are experts, and by how many percent the prediction
    changes for a percent of each of its symbols."""

    case: Case
    row: Measured
    mfu: float
    experts: bool
    elasticities: Mapping[str, float]

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return math.exp(-self.row.error) - 1


def step_of(case: Case, at: Evaluation) -> Step:
    """The step of a case that measures one."""
    found = elasticities(at)
    row = measured(case, at, found)
    return Step(case, row, float(at.step_numbers["mfu"]) / math.exp(row.error), case.architecture.moe is not None, found)


def one_type(step: Step) -> tuple[Any, ...]:
    return (step.case.system, step.row.type)


def split(step: Step) -> tuple[Any, ...]:
    return (step.case.system, step.row.type, step.experts)


def baseline(steps: Sequence[Step], key: Callable[[Step], tuple[Any, ...]], *, out: bool) -> dict[str, float]:
    """By row the error of one MFU for its group; out: that of the other rows of the group, none where there is no other."""
    groups: dict[tuple[Any, ...], list[Step]] = {}
    for step in steps:
        groups.setdefault(key(step), []).append(step)
    found = {}
    for step in steps:
        others = [other for other in groups[key(step)] if not out or other is not step]
        if others:
            found[step.case.id] = step.mfu / math.exp(mean(math.log(other.mfu) for other in others)) - 1
    return found


def peers() -> dict[str, dict[str, float]]:
    """By system and row the error of another system's own prediction."""
    found: dict[str, dict[str, float]] = {"SimuMax": {}, "Calculon": {}}
    simumax = read_yaml(SHARED / "measured" / "simumax.yaml").data
    for section in ("b200_release_v1_2", "b200_vpp_preview"):
        for at in simumax.get(section) or []:
            if "simumax_published" in at:
                found["SimuMax"][f"b200/{at['case']}"] = at["simumax_published"]["step_ms"] / at["measured"]["step_ms"] - 1
    for at in simumax.get("a100_pcie") or []:
        layers = (at.get("model_overrides") or {}).get("layer_num")
        name = f"a100/{at['model'].replace(' ', '-')}{f'-l{layers}' if layers else ''}-{at['parallel']}-mbc{at['mbc']}"
        found["SimuMax"][name] = at["simumax_v1_2_rerun"]["step_ms"] / at["implied_measured"]["step_ms"] - 1
    path = SHARED / "measured" / "calculon_validation.yaml"
    for at in read_yaml(path).data["rows"] if path.exists() else ():
        parts = at["id"].split("/")
        if at["quantity"] == "iteration_time_s" and parts[0] == "tab5":
            name = f"korthikanti/{parts[1].rsplit('-', 1)[1]}-{KORTHIKANTI[parts[2]]}"
            found["Calculon"][name] = at["predicted"] / at["measured"] - 1
        elif at["id"] == "sec6.3/530B_dp8":
            found["Calculon"]["korthikanti/530B-dp8"] = at["predicted"] / at["measured"] - 1
    return found


def table(steps: Sequence[Step]) -> list[str]:
    """Mean absolute errors by source and by system of symsim, of one MFU, and of other systems on the rows that they predict."""
    sets = [baseline(steps, key, out=out) for key in (one_type, split) for out in (False, True)]
    sets += peers().values()
    lines = [
        "| rows | steps | symsim | one MFU per system and type | left out | one per system, type, dense or experts | left out | SimuMax | Calculon |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys([*(s.case.source for s in steps), *(f"on {s.case.system}" for s in steps), "all"])
    for name in names:
        own = [s for s in steps if name in (s.case.source, f"on {s.case.system}", "all")]
        cells = [f"{mean(abs(s.error) for s in own):.1%}", *(_mean(found, own) for found in sets)]
        lines.append(f"| {name} | {len(own)} | {' | '.join(cells)} |")
    return lines


def _mean(found: Mapping[str, float], steps: Iterable[Step]) -> str:
    """The mean absolute error, with the number of rows where not all have one."""
    steps = list(steps)
    errors = [abs(found[s.case.id]) for s in steps if s.case.id in found]
    if not errors:
        return ""
    return f"{mean(errors):.1%}" + (f" ({len(errors)})" if len(errors) < len(steps) else "")


def by_guess(steps: Sequence[Step]) -> list[str]:
    """Errors of rows by the settings that their sources leave out; a row with several counts under each."""
    found: dict[str, list[Step]] = {"nothing": [s for s in steps if not s.case.guessed]}
    for step in steps:
        for setting in step.case.guessed:
            found.setdefault(setting, []).append(step)
    lines = ["| guessed | rows | mean absolute error | mean error |", "|---|---|---|---|"]
    for name, own in found.items():
        lines.append(f"| {name} | {len(own)} | {mean(abs(s.error) for s in own):.1%} | {mean(s.error for s in own):+.1%} |")
    return lines


def section(steps: Sequence[Step]) -> list[str]:
    """The parts of the page that set steps beside other predictions, and sort them by what is guessed."""
    return [
        "## Beside one MFU, and beside other systems",
        "",
        "Mean absolute errors of steps. One MFU is the bar that a model has to beat: the geometric mean of what the rows of a group measured,",
        "taken for each of them (fitted in sample), and for each that of the others (left out). SimuMax's and Calculon's are their own",
        "predictions for the same rows (SimuMax v1.2; Calculon caa4b11, system a100_80g); a number in parentheses counts the rows that have one.",
        "",
        *table(steps),
        "",
        "### By what is guessed",
        "",
        "Settings that a row's source leaves out; a row with several counts under each.",
        "",
        *by_guess(steps),
        "",
    ]
