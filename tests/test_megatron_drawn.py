"""A few random Megatron-Core models of tests/draws/megatron.py, of a fixed seed; all with `python tests/draws/megatron.py`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = os.environ.get("SYMSIM_MEGATRON")


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("megatron_draws", Path(__file__).parent / "draws" / "megatron.py")
    assert spec is not None and spec.loader is not None
    sys.modules["megatron_draws"] = draws = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draws)
    return draws


def test_drawn_models_equal_megatron_core() -> None:
    draws = drawing()
    if not draws.SCRIPT.exists():
        pytest.skip("../shared/oracle/scripts/megatron_oracle.py is not on this machine")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if CHECKOUT is None:
        try:
            version = importlib.metadata.version("megatron-core")
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("megatron-core is not installed, and SYMSIM_MEGATRON names no checkout of Megatron-LM")
        if tuple(map(int, version.split(".")[:2])) < (0, 20):
            pytest.skip(f"megatron-core {version} is installed, and the rules are those of 0.20: name a checkout of Megatron-LM in SYMSIM_MEGATRON")
    tallies, _ = draws.compare(count=8, seed=3, tree=CHECKOUT)
    for kind, tally in tallies.items():
        assert not tally.different, f"{kind}: " + "; ".join(f"{c['name']}: {draws.differs(e, o)}" for c, e, o in tally.different)
    assert sum(tally.equal for tally in tallies.values()) >= 8
