"""Names of other systems' keys: a few of each, and all of ../shared/vocabulary.yaml where it is there."""

from __future__ import annotations

import pytest
import yaml
from shared import SHARED


def of_vocabulary(system: str) -> list[str]:
    """Every key of the system in the vocabulary; a skip where it is not on this machine."""
    path = SHARED / "vocabulary.yaml"
    if not path.exists():
        pytest.skip("../shared/vocabulary.yaml is not on this machine")
    data = yaml.safe_load(path.read_text())
    mapped = {alias["key"] for entry in data["canonical"].values() for alias in entry["aliases"].get(system, [])}
    return sorted(mapped | set(data["no_cost_effect"][system]["keys"]))
