"""The measured part of docs/accuracy.md and its plots: symsim's predictions against every row of ../shared/measured.

`section(docs)` is called by `python docs/remake.py`. Plots need matplotlib (`pip install -e '.[docs]'`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import accuracy_beside
import accuracy_causes
import accuracy_fitted
import accuracy_kernels
import accuracy_peaks
import accuracy_twins
import spreads
from accuracy_adapters import adapters_section
from accuracy_beside import Step, step_of
from accuracy_fits import fits_section
from measured_cases import SOURCES, apart, cases, ran_out, uncovered
from measured_row import GIB, Case

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.systems import load_system

Predictor = Callable[[Case], tuple[float, float, str]]

# one colour (Okabe and Ito's palette, safe for colour-blind readers) and one marker for every machine
SYSTEMS = {
    "a100-pcie-80": ("#E69F00", "o"),
    "a100-sxm-80": ("#D55E00", "s"),
    "a800-sxm": ("#CC79A7", "^"),
    "h100-sxm": ("#0072B2", "D"),
    "h800-sxm": ("#0072B2", "d"),
    "h200-sxm": ("#0072B2", "p"),
    "h20": ("#0072B2", "h"),
    "b200-sxm": ("#009E73", "v"),
    "b300-sxm": ("#009E73", "^"),
    "gb200-nvl72": ("#56B4E9", "<"),
    "gb300-nvl72": ("#000000", ">"),
    "mi300x": ("#F0E442", "P"),
}
BAND = 0.10

# the mean absolute errors of the edition before (commit 04862ea), and why they moved since
BEFORE = {
    "Step time": {
        "b200_release_v1_2": 0.020,
        "b200_vpp_preview": 0.002,
        "a100_pcie": 0.018,
        "dense_qwen2.5_14b": 0.031,
        "moe_qwen1.5_moe_a2.7b": 0.091,
        "korthikanti2022": 0.040,
        "narayanan2021": 0.179,
        "megatron_readme_gpt3_example": 0.067,
        "megatron_core_h100": 0.040,
        "moe_parallel_folding_2025": 0.113,
        "megatron_bridge_performance": 0.136,
        "all": 0.105,
    },
    "Peak memory": {"b200_release_v1_2": 0.002, "a100_pcie": 0.012, "dense_qwen2.5_14b": 0.023, "moe_qwen1.5_moe_a2.7b": 0.043, "all": 0.010},
}
REASONS = (
    "the products of experts and of latent projections run at the FP8 rate under an FP8 recipe (they ran at that of BF16); two shares of "
    "gb300-nvl72 that had been fitted to steps in place of it are b200-sxm's again",
    "seconds and reports count the same HBM bytes (loss, written-out attention), and the dropout of embeddings and probabilities is counted",
    "the sum of tokens per expert for a router's bias is timed, and a table that three stages hold is summed over three",
    "the host: casts of experts take it longer with every expert, experts wait for it where it reads how many rows come, and a Grace takes longer "
    "than the hosts of x86",
    "rows of experts are copied to be padded under FP8 and FP4 recipes, and what merges the steps of a ring of attention is counted",
    "every tile of a product has a start on Hopper, few tiles are cut, the softmax of attention shows in FP8 up to heads of 256, and attention of "
    "b200-sxm runs at the clock of its steps",
    "the rows of Korthikanti et al. gather and reduce beside the products of backward, as the code of that paper did",
    "one FP8 share for GB200 and GB300, their all-to-all that of single calls",
    "backward of attention in FP8 sums the gradients of keys and values that several heads share in a pass of its own",
    "rows of Megatron-LM from before February 2022, when their product began to do it, add weight gradients to their sums in a pass of its own; the "
    "README's step is of January 2021, when stages sent each other whole tensors (chunks came a month later)",
)


@dataclass(frozen=True)
class Row:
    """One quantity of one case, in the unit of its table; `predicted` is None where there is no prediction, and `why` says why."""

    id: str
    system: str
    measured: float
    predicted: float | None
    guessed: bool = False
    why: str = ""

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        return None if self.predicted is None else (self.predicted - self.measured) / self.measured


def compared(found: Iterable[Case], predicted: Predictor, verdicts: dict[str, str]) -> tuple[list[Row], list[Row]]:
    """Rows of step time in seconds and of peak memory in GiB, for the cases that measure either; verdicts takes whether each fits."""
    steps, memories = [], []
    for case in found:
        step: float | None
        memory: float | None
        why = ""
        try:
            step, memory, verdicts[case.id] = predicted(case)
        except InputError as refusal:
            step, memory, why = None, None, str(refusal)
        if case.step_seconds is not None:
            steps.append(Row(case.id, case.system, case.step_seconds, step, bool(case.guessed), why))
        if case.memory_bytes is not None:
            value = None if memory is None else memory / GIB
            memories.append(Row(case.id, case.system, case.memory_bytes / GIB, value, bool(case.guessed), why))
    return steps, memories


def summary(rows: Iterable[Row]) -> tuple[int, int, float | None, float | None, Row | None]:
    """(rows, predicted, mean absolute error, mean error, worst row); the errors are None where nothing is predicted."""
    rows = list(rows)
    with_error = [(row, row.error) for row in rows if row.error is not None]
    if not with_error:
        return len(rows), 0, None, None, None
    worst = max(with_error, key=lambda pair: abs(pair[1]))[0]
    return len(rows), len(with_error), mean(abs(e) for _, e in with_error), mean(e for _, e in with_error), worst


def summary_line(name: str, rows: list[Row]) -> str:
    """A line of the page's first table."""
    count, predicted, absolute, signed, worst = summary(rows)
    if absolute is None or worst is None:
        return f"| {name} | {count} | 0 | | | |"
    return f"| {name} | {count} | {predicted} | {absolute:.1%} | {signed:+.1%} | {worst.error:+.1%} `{worst.id}` |"


def table(rows: list[Row], unit: str) -> list[str]:
    """Every row: measured, predicted, error; what was not predicted says why."""
    lines = [f"| row | system | measured ({unit}) | predicted ({unit}) | error |", "|---|---|---|---|---|"]
    for row in rows:
        mark = " *" if row.guessed else ""
        if row.predicted is None:
            lines.append(f"| `{row.id}`{mark} | {row.system} | {row.measured:.4g} | none | {row.why.replace('|', '&#124;')} |")
        else:
            lines.append(f"| `{row.id}`{mark} | {row.system} | {row.measured:.4g} | {row.predicted:.4g} | {row.error:+.1%} |")
    return lines


def plot(rows: list[Row], quantity: str, unit: str, path: Path) -> bool:
    """Predicted against measured as SVG, the same bytes for the same rows; False, with a message, where matplotlib is absent."""
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is left as it is: matplotlib is not installed (pip install -e '.[docs]')", file=sys.stderr)
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot

    shown = [(row, row.predicted) for row in rows if row.predicted is not None and row.predicted > 0]
    if not shown:
        return False
    # ids in the file are hashes of this salt, and text stays text, so that no run differs from another
    with matplotlib.rc_context({"svg.hashsalt": "symsim", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = pyplot.subplots(figsize=(6, 6))
        values = [v for row, predicted in shown for v in (row.measured, predicted)]
        ends = [min(values) / 1.5, max(values) * 1.5]
        axes.fill_between(
            ends, [e * (1 - BAND) for e in ends], [e * (1 + BAND) for e in ends], color="#BBBBBB", alpha=0.4, label=f"within {BAND:.0%}"
        )
        axes.plot(ends, ends, color="#555555", linewidth=1, label="predicted = measured")
        for system, (colour, marker) in SYSTEMS.items():
            points = [(row.measured, predicted) for row, predicted in shown if row.system == system]
            if points:
                label = f"{system} ({len(points)})"
                axes.scatter(*zip(*points), s=22, c=colour, marker=marker, alpha=0.75, linewidths=0, label=label)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        axes.set(xlabel=f"measured {quantity} ({unit})", ylabel=f"predicted {quantity} ({unit})")
        axes.grid(True, which="both", linewidth=0.3, alpha=0.5)
        axes.legend(loc="upper left", frameon=False, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return True


def moved(by_source: dict[str, tuple[list[Row], list[Row]]]) -> list[str]:
    """Mean absolute errors of the edition before, beside those of now, by source."""
    lines = ["## What moved", "", "| rows | quantity | mean absolute error before | now |", "|---|---|---|---|"]
    for which, (quantity, before) in enumerate(BEFORE.items()):
        now = {source: summary(pair[which])[2] for source, pair in by_source.items()}
        now["all"] = summary(row for pair in by_source.values() for row in pair[which])[2]
        lines += [f"| {source} | {quantity.lower()} | {error:.1%} | {now[source]:.1%} |" for source, error in before.items()]
    return [*lines, "", "Since the edition before:", "", *(f"- {reason}." for reason in REASONS), ""]


def page(
    by_source: dict[str, tuple[list[Row], list[Row]]], left_out: dict[str, list[tuple[str, str]]], plots: dict[str, str], further: list[str]
) -> str:
    """The page: summaries, plots (quantity -> file), further sections, every row, and every row that is no case."""
    steps = [row for found, _ in by_source.values() for row in found]
    memories = [row for _, found in by_source.values() for row in found]
    lines = [
        "# Measured runs",
        "",
        "Training runs that others measured and published, and what symsim predicts for the same settings. Error is (predicted -",
        "measured) / measured. Made by `python docs/remake.py`; every row is listed, whatever its error. A star marks a row whose source",
        "leaves out a setting that was guessed (`Case.guessed` in tests/).",
        "",
    ]
    for title, all_rows, which in (("Step time", steps, 0), ("Peak memory", memories, 1)):
        lines += [f"## {title}", "", "| rows | measured | predicted | mean absolute error | mean error | worst |", "|---|---|---|---|---|---|"]
        for source, pair in by_source.items():
            if pair[which]:
                lines.append(summary_line(source, pair[which]))
        for system in SYSTEMS:
            of_system = [row for row in all_rows if row.system == system]
            if of_system:
                lines.append(summary_line(f"on {system}", of_system))
        complete = [row for row in all_rows if not row.guessed]
        if len(complete) < len(all_rows):
            lines.append(summary_line("without a guessed setting", complete))
        lines += [summary_line("all", all_rows), ""]
        if title in plots:
            lines += [f"![{title}: predicted against measured]({plots[title]})", ""]
    lines += further + moved(by_source)
    for source, (step_rows, memory_rows) in by_source.items():
        for title, found, unit in (("step time", step_rows, "s"), ("peak memory", memory_rows, "GiB")):
            if found:
                lines += [f"## {source}: {title}", "", *table(found, unit), ""]
    if any(left_out.values()):
        lines += ["## Rows that are not compared", ""]
        lines += [f"- `{name}`: {reason}" for found in left_out.values() for name, reason in found]
        lines.append("")
    return "\n".join(lines)


def section(docs: Path) -> str:
    """The section, docs/img/ and derivations/spreads.json; ../shared/measured has to be there."""
    seen: list[Step] = []

    def predicted(case: Case) -> tuple[float, float, str]:
        """Step seconds and peak bytes of the fullest rank, of the case as it is, and whether that fits: yes, tight or no."""
        result = derive(case.architecture, case.strategy, case.assumptions, None, load_system(case.system))
        if case.step_seconds is not None:
            seen.append(step_of(case, result))
        memory = result.to_json()["memory"]
        return float(result.value("t_step")), float(memory["peak"]), str(memory["fits"])

    by_source: dict[str, tuple[list[Row], list[Row]]] = {}
    verdicts: dict[str, str] = {}
    for source in SOURCES:
        for group in dict.fromkeys(case.source for case in cases(source)):
            by_source[group] = compared([c for c in cases(source) if c.source == group], predicted, verdicts)
    ran = {case.id: case for source in SOURCES for case in cases(source)}
    out = {case.id: case for source in SOURCES for case in ran_out(source)}
    fits = fits_section(ran, out, verdicts | {name: predicted(case)[2] for name, case in out.items()})
    steps = [row for found, _ in by_source.values() for row in found]
    memories = [row for _, found in by_source.values() for row in found]
    found = (("step", steps), ("memory", memories))
    errors = {(row.id, what): row.error for what, rows in found for row in rows if row.error is not None}
    adapted = adapters_section(ran.values(), errors)
    plots = {}
    if plot(steps, "step time", "s", docs / "img" / "measured_step.svg"):
        plots["Step time"] = "img/measured_step.svg"
    if plot(memories, "peak memory", "GiB", docs / "img" / "measured_memory.svg"):
        plots["Peak memory"] = "img/measured_memory.svg"
    left_out = {source: [(row.id, row.reason) for row in uncovered(source)] for source in SOURCES}
    causes = accuracy_causes.section([(row.id, row.error) for row in steps if row.error is not None])
    measured, of_none = list(seen), [case for source in SOURCES for case in apart(source)]
    compared(of_none, predicted, {})
    rows = [step.row for step in seen]
    further = [*accuracy_beside.section(measured), *spreads.section(rows[: len(measured)], rows[len(measured) :]), *fits, *adapted]
    fitted = [*accuracy_fitted.section(measured), *accuracy_twins.section()]
    return page(by_source, left_out, plots, [*further, *fitted, *accuracy_peaks.section(), *accuracy_kernels.section(), *causes])
