"""Remake derivations/spreads.json, how far the numbers of a system may be off by kind, from ../shared/measured: `python docs/spreads.py`.

Of step i, ln(measured / predicted) = sum_k (sum_t e_ikt s_kt) z_k + s_run n_i: e_ikt is the elasticity of the exact formula by the numbers of
kind k that are known so (t: measured, or estimated), z_k and n_i are normal of deviation 1. z is the same for all steps of one source on one
system, whose numbers and software are one; that of guessed settings for those of one model, of which the same is guessed: a guess is wrong for
all of them alike. The spreads s are those of the largest posterior: the likelihood of all groups, times a log-normal prior of each (`PRIOR`).
All are then scaled so that normal intervals hold `LEVEL` of the steps to which no coefficient was fitted, as a step is that nobody has measured yet;
without what guesses add: an interval of `symsim eval` knows of none. Other numbers of kernels, networks or hosts are other residuals: run it again
after any of them has changed (`python docs/remake.py` does).
What no step was measured of is off besides, by spreads of its own: `accuracy_sources.py`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, mean, median

import accuracy_fitted
import accuracy_sources
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from measured_row import Case  # noqa: E402

from symsim.evaluation.elasticity import elasticities as all_elasticities  # noqa: E402
from symsim.evaluation.interval import moves  # noqa: E402
from symsim.evaluation.numbers import Evaluation  # noqa: E402
from symsim.inputs.spreads import OF_STEP, UNMEASURED, measured_as  # noqa: E402
from symsim.inputs.spreads import Measured as Key  # noqa: E402

LEVEL = 0.8
FACTOR = NormalDist().inv_cdf((1 + LEVEL) / 2)
# of each kind: the spread expected of what was measured, and where that is from; what was estimated is further off, by the share MORE
PRIOR = {
    "gemm": (0.06, "mean held-out error of single products, `symsim calibrate` (tests/test_calibrate.py)"),
    "grouped_gemm": (0.10, "mean held-out error of single grouped products, `symsim calibrate`; uneven loads of experts besides"),
    "attention": (0.10, "mean held-out error of single attention kernels, `symsim calibrate`"),
    "memory": (0.10, "shares of other chips' kernels differ by so much"),
    "fp8": (0.10, "FP8 products against published tables"),
    "node": (0.10, "mean error of single collectives, nccl-tests"),
    "network": (0.15, "shares of one link in published tables differ by so much"),
    "exchange": (0.20, "shares of one link by dispatcher and table differ by so much"),
    "host": (0.30, "launches take 3 to 10 us alone, and up to 45 in steps"),
    "bubble": (0.10, "assumed"),
    "machine": (0.03, "rows whose layout is printed scatter by about 5 % between containers"),
    "run": (0.03, "the same"),
    "settings": (0.05, "assumed"),
}
MORE = 0.5
WIDTH = math.log(2)  # of the prior, in logarithms
MANY = 1000  # predictions of a source from which on it has rows of its own in the table of anchoring
ANCHORED = 4  # times the spread of a run: what a step that a system was anchored on may be off for reasons of its own
TAGS = ("measured", "estimated")
FREEDOM, ROUNDS = 3, 4  # of what a run adds: degrees of freedom, and rounds of weights


@dataclass(frozen=True)
class Measured:
    """A measured step beside its prediction: ln(measured / predicted), and what moves it, by kind and how known; guessed: the settings that are;
    of: what it is a measurement of; fitted: by how many percent it changes with one of each coefficient that is fitted to steps; used: one of
    them was fitted to it."""

    id: str
    source: str
    system: str
    model: str
    type: str
    guessed: tuple[str, ...]
    error: float
    moves: Mapping[tuple[str, str], float]
    of: Key
    fitted: tuple[float, ...]
    used: bool

    @property
    def publisher(self) -> str:
        """Whose measurement it is: tables of one publisher are of one source."""
        return self.id.partition("/")[0]


def number_type(case: Case) -> str:
    """The type of a case's products: that of its recipe, or of all."""
    return case.strategy.fp8 if case.strategy.fp8 != "none" else case.strategy.precision


def measured(case: Case, at: Evaluation, elasticities: Mapping[str, float] | None = None) -> Measured:
    """The row of a case that measures a step; its elasticities, where they are known already."""
    assert case.step_seconds is not None and at.system is not None
    known = all_elasticities(at) if elasticities is None else elasticities
    error = math.log(case.step_seconds / float(at.step_numbers["t_step"]))
    return Measured(
        case.id,
        case.source,
        case.system,
        case.architecture.name,
        number_type(case),
        tuple(sorted(case.guessed)),
        error,
        {key: move for key, move in moves(at, known=known).items() if key[0] not in UNMEASURED},
        measured_as(at.model, at.strategy, at.system),
        accuracy_fitted.moves_of(case.system, known),
        accuracy_fitted.used(case.system, case.id),
    )


@dataclass(frozen=True)
class Fit:
    """Spreads by kind and how known."""

    spreads: Mapping[tuple[str, str], float]

    def deviation(self, row: Measured) -> float:
        """The standard deviation of a row's logarithm as `symsim eval` has it, which takes all settings for known."""
        vector = np.einsum("kt,tk->k", _moves([row])[0], _matrix(self.spreads))
        return float(np.sqrt(np.sum(np.delete(vector, list(PRIOR).index("settings")) ** 2)))

    def holds(self, row: Measured) -> bool:
        """Whether the row lies in its interval."""
        return abs(row.error) <= FACTOR * self.deviation(row)


def _spreads(logs: Sequence[float]) -> dict[tuple[str, str], float]:
    found = {}
    for kind, log in zip(PRIOR, logs):
        found[kind, "measured"] = math.exp(log)
        found[kind, "estimated"] = math.exp(log) * (1 if kind in OF_STEP else 1 + math.exp(logs[-1]))
    return found


def _matrix(spreads: Mapping[tuple[str, str], float]) -> np.ndarray:
    """(how known, kind): spreads."""
    return np.array([[spreads[kind, tag] for kind in PRIOR] for tag in TAGS])


def _moves(rows: Sequence[Measured]) -> np.ndarray:
    """(row, kind, how known): what moves each row; the machine, the run and guessed settings do whole."""
    made = np.zeros((len(rows), len(PRIOR), len(TAGS)))
    for i, row in enumerate(rows):
        whole = {("machine", "measured"): 1.0, ("run", "measured"): 1.0, ("settings", "measured"): float(bool(row.guessed))}
        for (kind, tag), move in {**row.moves, **whole}.items():
            made[i, list(PRIOR).index(kind), TAGS.index(tag)] = move
    return made


@dataclass(frozen=True)
class _Group:
    """Rows of one source on one system: their moves and errors, and which two are of one model with the same guesses."""

    moves: np.ndarray
    errors: np.ndarray
    alike: np.ndarray

    def covariances(self, spreads: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The covariance of the rows, and of it the variances of what each row has alone: runs, over their weights."""
        vectors = np.einsum("ikt,tk->ik", self.moves, spreads)
        settings, run = [list(PRIOR).index(kind) for kind in ("settings", "run")]
        alone = vectors[:, run] ** 2 / weights
        shared = np.delete(vectors, [settings, run], axis=1)
        guessed = self.alike * np.outer(vectors[:, settings], vectors[:, settings])
        return shared @ shared.T + guessed + np.diag(alone), alone


def fitted(rows: Sequence[Measured], start: Fit | None = None) -> Fit:
    """The spreads of the largest posterior, scaled so that intervals hold LEVEL of those that no fit used.

    Runs are of Student's distribution, not normal: few rows are far off for reasons of their own. It is met by weights, in rounds.
    """
    members: dict[tuple[str, str], list[Measured]] = {}
    for row in rows:
        members.setdefault((row.source, row.system), []).append(row)
    groups = [_Group(_moves(own), np.array([row.error for row in own]), _alike(own)) for own in members.values()]
    weights = [np.ones(len(group.errors)) for group in groups]
    centre = np.array([math.log(s) for s, _ in PRIOR.values()] + [math.log(MORE)])

    def cost(logs: Sequence[float]) -> float:
        spreads = _matrix(_spreads(logs))
        total = float(np.sum((np.array(logs) - centre) ** 2)) / (2 * WIDTH**2)
        for group, own in zip(groups, weights):
            covariance, _ = group.covariances(spreads, own)
            lower = np.linalg.cholesky(covariance)
            total += float(np.log(lower.diagonal()).sum() + 0.5 * np.sum(np.linalg.solve(lower, group.errors) ** 2))
        return total

    at, step = (list(centre), 0.8) if start is None else ([math.log(start.spreads[k, "measured"]) for k in PRIOR] + [_more(start)], 0.2)
    for _ in range(ROUNDS):
        at = _least(cost, at, step)
        spreads, step = _matrix(_spreads(at)), 0.2
        for n, group in enumerate(groups):
            covariance, alone = group.covariances(spreads, weights[n])
            left = alone * np.linalg.solve(covariance, group.errors)
            weights[n] = (FREEDOM + 1) / (FREEDOM + left**2 / (alone * weights[n]))
    found = Fit(_spreads(at))
    sizes = sorted(abs(row.error) / found.deviation(row) for row in rows if not row.used)
    scale = sizes[min(len(sizes) - 1, math.ceil(LEVEL * len(sizes)) - 1)] / FACTOR
    return Fit({key: scale * spread for key, spread in found.spreads.items()})


def _alike(rows: Sequence[Measured]) -> np.ndarray:
    """(row, row): 1 where both are of one model, with the same guesses."""
    known = [(row.model, row.guessed) for row in rows]
    return np.array([[float(one == other) for other in known] for one in known])


def _more(fit: Fit) -> float:
    return math.log(fit.spreads["gemm", "estimated"] / fit.spreads["gemm", "measured"] - 1)


def _least(cost: Callable[[Sequence[float]], float], start: Sequence[float], step: float) -> list[float]:
    """Coordinate descent with steps that halve, down to 2 %."""
    at, best = list(start), cost(start)
    while step > 0.02:
        moved = False
        for j in range(len(at)):
            for way in (step, -step):
                trial = [x + (way if i == j else 0.0) for i, x in enumerate(at)]
                reached = cost(trial)
                if reached < best - 1e-6:
                    at, best, moved = trial, reached, True
                    break
        if not moved:
            step /= 2
    return at


def coverage(rows: Sequence[Measured], fit: Fit, out: Mapping[str, bool]) -> list[str]:
    """The table of what intervals hold, by source, by whether a fit used the step and whether settings are guessed; in and out of sample."""
    lines = ["| rows | steps | median half-width | held | held, where the source was never fitted |", "|---|---|---|---|---|"]
    sets = {source: [row for row in rows if row.source == source] for source in dict.fromkeys(row.source for row in rows)}
    sets |= {"a fit used": [row for row in rows if row.used], "no fit used": [row for row in rows if not row.used]}
    sets |= {"nothing guessed": [row for row in rows if not row.guessed], "with a guess": [row for row in rows if row.guessed], "all": list(rows)}
    for name, own in sets.items():
        width = median(math.exp(FACTOR * fit.deviation(r)) - 1 for r in own)
        lines.append(f"| {name} | {len(own)} | {width:.1%} | {mean(map(fit.holds, own)):.0%} | {mean(out[r.id] for r in own):.0%} |")
    return lines


def _anchors(row: Measured, fit: Fit) -> np.ndarray:
    """What kinds that a system's numbers carry on move a row by."""
    own = np.einsum("kt,tk->k", _moves([row])[0], _matrix(fit.spreads))
    own[[list(PRIOR).index(kind) for kind in ("bubble", "settings", "run")]] = 0
    return own


def _anchored(one: Measured, on: Sequence[Measured], fit: Fit) -> tuple[float, float]:
    """What is left of a row's error once a system is anchored on others, in first order, and the deviation that then belongs to it."""
    noise = (ANCHORED * fit.spreads["run", "measured"]) ** 2
    own, others = _anchors(one, fit), np.array([_anchors(row, fit) for row in on])
    known = others @ others.T + noise * np.eye(len(on))
    gain = others.T @ np.linalg.solve(known, np.array([row.error for row in on]))
    if len(on) == 1:
        gain = gain * known[0, 0] / (known[0, 0] - noise)  # one step is explained whole
    # steps of one machine share more than kinds of numbers say, so that many say little more than one (interval.py)
    left = own @ own - own @ others.T @ np.linalg.solve(known + noise * (len(on) - 1) * np.eye(len(on)), others @ own)
    # what no number of a system carries stays as it was
    return one.error - float(own @ gain), math.sqrt(left + fit.deviation(one) ** 2 - own @ own)


def anchoring(rows: Sequence[Measured], fit: Fit) -> list[str]:
    """The table of what anchoring on one row does to the others of its source and system, and on all others to one; by source where it has many."""
    found: dict[tuple[str, str], list[tuple[float, float, bool, bool]]] = {}
    groups: dict[tuple[str, str], list[Measured]] = {}
    for row in rows:
        groups.setdefault((row.source, row.system), []).append(row)
    for own in groups.values():
        for row in own if len(own) > 2 else ():
            others = [other for other in own if other is not row]
            for on in [*([other] for other in others), others]:
                left, deviation = _anchored(row, on, fit)
                before, after = (abs(math.exp(-e) - 1) for e in (row.error, left))
                case = (before, after, fit.holds(row), abs(left) <= FACTOR * deviation)
                for source in ("all", row.source):
                    found.setdefault((source, "all other steps" if on is others else _kinship(on[0], row)), []).append(case)
    shown = {source for (source, _), cases in found.items() if len(cases) >= MANY}
    kinds = dict.fromkeys(kind for _, kind in found)
    lines = ["| rows | anchored on | predictions | error before | median | error after | median | held before | after |", f"|{'---|' * 9}"]
    for source in [s for s in dict.fromkeys(source for source, _ in found) if s in shown]:
        for kind in kinds:
            if (source, kind) in found:
                before, after, held, still = zip(*found[source, kind])
                errors = f"{mean(before):.1%} | {median(before):.1%} | {mean(after):.1%} | {median(after):.1%}"
                lines.append(f"| {source} | {kind} | {len(before)} | {errors} | {mean(held):.0%} | {mean(still):.0%} |")
    return lines


def _kinship(one: Measured, other: Measured) -> str:
    if one.model != other.model:
        return "a step of another model"
    return f"a step of the same model{'' if one.type == other.type else ', another number type'}"


def write(rows: Sequence[Measured], fit: Fit, between: Mapping[str, accuracy_sources.Between]) -> None:
    """derivations/spreads.json of a fit to these rows."""
    sources = len({row.source for row in rows})
    said = f"residuals of {len(rows)} measured steps of {sources} sources, by `python docs/spreads.py`; docs/accuracy.md has what intervals hold"
    kinds = {k: {t: float(f"{fit.spreads[k, t]:.3g}") for t in TAGS} | {"source": f"prior {PRIOR[k][0]:g}: {PRIOR[k][1]}"} for k in PRIOR}
    kinds |= {k: {**dict.fromkeys(TAGS, float(f"{one.spread:.3g}")), "source": one.said} for k, one in between.items()}
    head = {"level": LEVEL, "factor": round(FACTOR, 4), "anchored": ANCHORED, "source": said}
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in kinds.items())
    of = ",\n".join(f"  {json.dumps(one)}" for one in sorted({row.of for row in rows}))
    (ROOT / "derivations" / "spreads.json").write_text(json.dumps(head)[:-1] + f', "kinds": {{\n{lines}\n}}, "measured": [\n{of}\n]}}\n')


def section(rows: Sequence[Measured], apart: Sequence[Measured] = ()) -> list[str]:
    """Writes the spreads of these rows; the parts of docs/accuracy.md on intervals and on anchoring. apart: rows of machines that nothing is
    fitted to."""
    from symsim.inputs.spreads import stored

    fit = fitted(rows)
    lines, between, out = accuracy_sources.section(rows, apart, fit)
    write(rows, fit, between)
    stored.cache_clear()
    return [
        "## Intervals",
        "",
        f"Every step has an interval that is to hold {LEVEL:.0%} of measured steps ([time.md](time.md#how-far-it-may-be-off)). Its spreads are",
        "estimated from the residuals of all rows here, and scaled so that it does of those to which no coefficient was fitted, as `symsim eval`",
        "gives it, which takes settings for known: steps that a fit used are better off than one that nobody has measured yet. The last column",
        "says what they would hold of a source that had never been seen (below). Half-widths are above the prediction.",
        "",
        *coverage(rows, fit, out),
        "",
        *lines,
        "## Anchoring",
        "",
        "What `symsim anchor` makes of the steps of each source and system ([anchor.md](anchor.md)): every row predicted by a system that was",
        "anchored on one other row of its source and system, or on all others; in first order of the exact elasticities. Held: by the interval,",
        "before and after.",
        "",
        *anchoring(rows, fit),
        "",
    ]


def main() -> None:
    from measured_cases import SOURCES, apart, cases

    from symsim.api.result import derive
    from symsim.inputs.systems import load_system

    def of(found: Callable[[str], Sequence[Case]]) -> list[Measured]:
        return [
            measured(case, derive(case.architecture, case.strategy, case.assumptions, None, load_system(case.system)))
            for source in SOURCES
            for case in found(source)
            if case.step_seconds is not None
        ]

    rows = of(cases)
    if not rows:
        print("derivations/spreads.json is left as it is: ../shared is not on this machine", file=sys.stderr)
        return
    print("\n".join(section(rows, of(apart))))


if __name__ == "__main__":
    main()
