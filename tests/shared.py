"""Where the ground truth outside this repository lies, and how tests skip without it."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("SYMSIM_SHARED") or Path(__file__).parents[2] / "shared")
# a few cases of each file, for a clone that stands alone; tests/oracle/reduce.py writes them
REDUCED = Path(__file__).parent / "oracle"


@cache
def oracle(name: str) -> Any:
    """The oracle file of that name, or some of its cases when ../shared is absent; None where there are none of these either."""
    path = next((folder / name for folder in (SHARED / "oracle", REDUCED) if (folder / name).exists()), None)
    return json.loads(path.read_text()) if path is not None else None


def cases(name: str, *keys: str) -> list[Any]:
    """A list (or the items of a mapping) inside an oracle file; one None when it is absent, so that the test can say so."""
    data = oracle(name)
    if data is None:
        return [None]
    for key in keys:
        data = data[key]
    return list(data.items()) if isinstance(data, dict) else list(data)


def needed(case: Any, name: str) -> Any:
    if case is None:
        pytest.skip(f"../shared/oracle/{name} is not on this machine")
    return case
