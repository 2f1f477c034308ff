"""A few random Megatron-Core models of tests/draws/megatron.py, of a fixed seed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def test_drawn_models_equal_megatron_core() -> None:
    spec = importlib.util.spec_from_file_location("megatron_draws", Path(__file__).parent / "draws" / "megatron.py")
    assert spec is not None and spec.loader is not None
    draws = importlib.util.module_from_spec(spec)
    sys.modules["megatron_draws"] = draws
    spec.loader.exec_module(draws)
    if not draws.SCRIPT.exists():
        pytest.skip("../shared/oracle/scripts/megatron_oracle.py is not on this machine")
    for package in ("torch", "megatron.core"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            pytest.skip(f"{package} is not installed")
    tallies, _ = draws.compare(count=8, seed=3, tree=None)
    for kind, tally in tallies.items():
        assert not tally.different, f"{kind}: " + "; ".join(f"{c['name']}: {draws.differs(e, o)}" for c, e, o in tally.different)
    assert sum(tally.equal for tally in tallies.values()) >= 8
