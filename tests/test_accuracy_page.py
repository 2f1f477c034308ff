"""What docs/accuracy.md says besides measured rows: published peaks, kernels that are further off, causes and the rows that show them."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from measured_cases import SOURCES, cases
from test_kernel_tables import TABLES, errors

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import accuracy_causes  # noqa: E402
import accuracy_fitted  # noqa: E402
import accuracy_kernels  # noqa: E402
import accuracy_peaks  # noqa: E402
import accuracy_sources  # noqa: E402
import accuracy_twins  # noqa: E402
import spreads  # noqa: E402


@pytest.mark.parametrize("peak", accuracy_peaks.PEAKS, ids=lambda peak: f"{peak.what} {peak.said}")
def test_published_peaks_are_within_a_tenth_and_fit(peak: accuracy_peaks.Peak) -> None:
    found, fits = accuracy_peaks.predicted(peak)
    assert fits in ("yes", "tight")
    assert peak.published is None or abs(found / peak.published - 1) <= 0.1


def test_every_kernel_that_is_further_off_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [line for line in accuracy_kernels.section() if line.startswith("- ")]
    monkeypatch.setattr(accuracy_kernels, "WITHIN", 0.12)
    lines = accuracy_kernels.section()
    off = [error for name, (system, *_) in TABLES.items() for *_, error in errors(system, name) if abs(error) > 0.12]
    assert len([line for line in lines if line.startswith("- ")]) == len(off) > 5
    assert "| attention-mxfp8-gb200 | gb200-nvl72 | 70 | 4.2% | +0.6% | 0 | 13 |" in lines


def test_causes_that_steps_show_have_steps() -> None:
    found = [(case.id, 0.5) for source in SOURCES for case in cases(source) if case.step_seconds]
    if not found:
        pytest.skip("../shared/measured is not on this machine")
    shown = [cause for cause in accuracy_causes.CAUSES if cause.shows is not None]
    assert all(any(cause.shows(name) for name, _ in found) for cause in shown if cause.shows)
    rows = [line for line in accuracy_causes.section(found) if "50.0%" in line]
    assert len(rows) == len(shown)


@pytest.mark.parametrize("twins", accuracy_twins.TWINS, ids=lambda twins: " ".join(twins.systems))
def test_twins_have_one_value_or_a_reason(twins: accuracy_twins.Twins) -> None:
    alike, apart = accuracy_twins.differing(twins)
    assert [symbol for symbol in apart if not any(re.fullmatch(pattern, symbol) for pattern in twins.apart)] == []
    assert [pattern for pattern in twins.apart if not any(re.fullmatch(pattern, symbol) for symbol in apart)] == []
    assert len(alike) > len(apart)


def _rows(off: float, *, model: str = "a", count: int = 12) -> list[accuracy_fitted.Row]:
    """Rows that two coefficients move, the first of them off by so much in its logarithm, and a third that none of them moves with."""
    moves = [(-0.2 - 0.06 * n, 0.5 - 0.03 * n, 0.0) for n in range(count)]
    return [accuracy_fitted.Row(f"{model}{n}", "source", "system", model, "container", -off * own[0], True, own) for n, own in enumerate(moves)]


def test_a_fit_finds_what_was_off_and_leaves_what_no_row_moves_with() -> None:
    rows = _rows(0.04)
    errors, moves = np.array([row.error for row in rows]), np.array([row.moves for row in rows])
    found = accuracy_fitted.refitted(errors, moves)
    assert found == pytest.approx([0.04, 0, 0], abs=2e-3) and found[2] == 0
    # one that no row moves with stays where it was, one that rows do hardly feels where it began
    begun = accuracy_fitted.refitted(errors, moves, np.array([0.2, 0.0, 0.3]))
    assert begun == pytest.approx([0.04, 0, 0.3], abs=2e-2) and begun[2] == pytest.approx(0.3)


def test_rows_are_predicted_by_the_others() -> None:
    """Rows of one model that are off as those of the other are not: each is predicted with what the other says."""
    rows = [*_rows(0.04), *_rows(-0.04, model="b")]
    out = accuracy_fitted.left_out(rows, lambda row: row.model)
    assert set(out) == {row.id for row in rows}
    for row in rows:
        assert out[row.id] == pytest.approx(math.exp(2 * row.error) - 1, abs=3e-3)


def test_fits_name_systems_and_coefficients_that_there_are() -> None:
    for fit in accuracy_fitted.FITS:
        for _, systems, symbols in fit.moved:
            assert fit.system in systems
            known = {*accuracy_twins.coefficients(fit.system), "Phi_fp8", "B_2", "C_2"}
            assert set(symbols) <= known


def test_every_coefficient_fitted_to_steps_has_a_value_without_them() -> None:
    assert set(accuracy_sources.WITHOUT) == {(name, systems[0]) for name, systems, _ in accuracy_fitted.COEFFICIENTS}


def _measured(name: str, system: str, error: float, moves: float = 0.0, framework: str = "te", used: bool = False) -> spreads.Measured:
    of = (system, framework, "dense", "16-bit", "full")
    fitted = tuple(moves if k == 0 else 0.0 for k in range(len(accuracy_fitted.COEFFICIENTS)))
    return spreads.Measured(name, name.split("/")[0], system, "m", "bf16", (), error, {("gemm", "measured"): 1.0}, of, fitted, used)


FIT = spreads.Fit({(kind, tag): 0.02 if kind in ("gemm", "run") else 0.0 for kind in spreads.PRIOR for tag in spreads.TAGS})


def test_a_source_left_out_is_predicted_by_the_others() -> None:
    """Its coefficients are fitted to the others' steps; where there are none, they are what they would be without a step."""
    name, systems, _ = accuracy_fitted.COEFFICIENTS[0]
    rows = [_measured(f"{source}/{n}", systems[0], error, -0.8) for source, error in (("a", 0.08), ("b", 0.0)) for n in range(20)]
    found = {one.row.id: one for one in accuracy_sources.left_out(rows, [], FIT)}
    # b's steps say that the coefficient is as it was, a's that it is a tenth lower
    assert found["a/0"].residual == pytest.approx(0.08, abs=5e-3) and found["b/0"].residual == pytest.approx(-0.08, abs=5e-3)
    assert {one.tier for one in found.values()} == {""}
    alone = accuracy_sources.left_out(rows[:20], [_measured("c/0", "never", 0.3)], FIT)
    assert alone[0].residual == pytest.approx(0.08 + 0.8 * math.log(accuracy_sources.WITHOUT[name, systems[0]]))
    assert [alone[0].tier, alone[-1].tier, alone[-1].residual] == ["system", "system", 0.3]
    other = accuracy_sources.left_out([*rows, _measured("d/0", systems[0], 0.1, framework="eager")], [], FIT)
    assert [one.tier for one in other if one.row.publisher == "d"] == ["source"]


def test_intervals_hold_the_level_of_steps_that_no_fit_used() -> None:
    """Steps that coefficients were fitted to come out better than one that nobody has measured, and are no measure of it."""
    fresh = [_measured(f"a/{n}", "s", 0.01 * n) for n in range(10)]
    used = [_measured(f"b/{n}", "s", 0.001, used=True) for n in range(90)]
    found = spreads.fitted([*fresh, *used])
    assert sum(map(found.holds, fresh)) == 10 * spreads.LEVEL and all(map(found.holds, used))


def test_a_spread_is_the_least_that_holds_the_level_of_groups() -> None:
    """A group of many steps counts no more than one of few."""
    rows = [_measured(f"{source}/{n}", "s", off) for source, off, count in (("a", 0.5, 1), ("b", 0.0, 30), ("c", 0.1, 2)) for n in range(count)]
    found = [accuracy_sources.Left(row, row.error, "source", FIT.deviation(row)) for row in rows]
    spread = accuracy_sources.spread_of(found, 0.6, spreads.FACTOR)
    assert spread == pytest.approx(math.sqrt((0.1 / spreads.FACTOR) ** 2 - FIT.deviation(rows[-1]) ** 2), rel=1e-4)
    assert accuracy_sources.held(found, spread, spreads.FACTOR) == pytest.approx(2 / 3)
    assert accuracy_sources.held(found, 0.999 * spread, spreads.FACTOR) == pytest.approx(1 / 3)
    assert accuracy_sources.spread_of(found, 0.7, spreads.FACTOR) > 0.35 and accuracy_sources.spread_of(found, 0.3, spreads.FACTOR) == 0
