"""What docs/accuracy.md says besides measured rows: published peaks, kernels that are further off, causes and the rows that show them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from measured_cases import SOURCES, cases
from test_kernel_tables import BEYOND

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import accuracy_causes  # noqa: E402
import accuracy_kernels  # noqa: E402
import accuracy_peaks  # noqa: E402


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
