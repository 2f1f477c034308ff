"""Collectives of torch.distributed itself (../shared/oracle/comm.json): counts, types and local buffers."""

from __future__ import annotations

import comm_cases
import pytest
from shared import cases, needed

FILE = "comm.json"
CASES = cases(FILE, "cases")


@pytest.mark.parametrize("case", CASES, ids=[f"{c['kind']}-{c['name']}" if c else "absent" for c in CASES])
def test_equal(case: dict) -> None:
    kind = needed(case, FILE)["kind"]
    expected, computed = comm_cases.KINDS[kind](case)
    assert computed == expected
