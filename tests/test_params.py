"""Parameters equal transformers' own counts (../shared/oracle/params.json), in total and by module."""

from __future__ import annotations

import param_cases
import pytest
from shared import cases, needed

FILE = "params.json"
CASES = cases(FILE, "models")


@pytest.mark.parametrize("case", CASES, ids=[c[0] if c else "absent" for c in CASES])
def test_equal(case: tuple[str, dict]) -> None:
    expected, computed = param_cases.parameters(*needed(case, FILE))
    assert computed == expected
