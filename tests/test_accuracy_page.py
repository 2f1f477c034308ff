"""What docs/accuracy.md says besides measured rows: published peaks, kernels that are further off, causes and the rows that show them."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
from measured_cases import SOURCES, cases
from test_kernel_tables import BEYOND

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import accuracy_causes  # noqa: E402
import accuracy_fitted  # noqa: E402
import accuracy_kernels  # noqa: E402
import accuracy_peaks  # noqa: E402
import accuracy_twins  # noqa: E402


@pytest.mark.parametrize("peak", accuracy_peaks.PEAKS, ids=lambda peak: f"{peak.what} {peak.said}")
def test_published_peaks_are_within_a_tenth_and_fit(peak: accuracy_peaks.Peak) -> None:
    found, fits = accuracy_peaks.predicted(peak)
    assert fits in ("yes", "tight")
    assert peak.published is None or abs(found / peak.published - 1) <= 0.1


def test_every_kernel_that_is_further_off_is_listed() -> None:
    lines = accuracy_kernels.section()
    assert len([line for line in lines if line.startswith("- ")]) == sum(map(len, BEYOND.values()))
    assert "| attention-mxfp8-gb200 | gb200-nvl72 | 70 | 4.0% | -0.9% | 2 | 13 |" in lines


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
    found = accuracy_fitted.refitted(_rows(0.04))
    assert found == pytest.approx([0.04, 0, 0], abs=2e-3) and found[2] == 0


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
