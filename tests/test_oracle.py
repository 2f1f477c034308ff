"""tests/oracle: some cases of every file of ../shared/oracle, so that a clone that stands alone is held against the truth too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import shared
from oracle import reduce

FEWEST = {
    "params": {"models": 20},
    "flops": {"cases": 15},
    "activations": {"cases": 15},
    "comm": {"cases": 15},
    "memory": {"cases": 4},
    "megatron": {"sections.params": 4, "sections.ddp": 4, "sections.trace": 10, "sections.schedule": 3},
    "schedules": {"cases": 7},
}


@pytest.mark.parametrize("name", reduce.REDUCED)
def test_each_file_has_cases_and_says_where_they_are_from(name: str) -> None:
    data = json.loads((shared.REDUCED / f"{name}.json").read_text())
    assert "torch" in data["source"] or "megatron_core" in data["source"]
    for path, fewest in FEWEST[name].items():
        found = data
        for key in path.split("."):
            found = found[key]
        assert len(found) >= fewest, path


def test_they_are_small() -> None:
    sizes = {path.stem: path.stat().st_size for path in shared.REDUCED.glob("*.json")}
    assert sizes.pop("adapter_configs") < 33_000 and sum(sizes.values()) < 236_000


@pytest.mark.parametrize("name", reduce.REDUCED)
def test_they_are_what_the_script_writes(name: str) -> None:
    if not (reduce.FULL / f"{name}.json").exists():
        pytest.skip(f"../shared/oracle/{name}.json is not on this machine")
    assert (shared.REDUCED / f"{name}.json").read_text() == reduce.written(reduce.reduced(name))


def test_they_are_read_where_the_whole_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared, "SHARED", tmp_path)
    read = shared.oracle.__wrapped__
    assert len(read("params.json")["models"]) >= 20 and read("params.json")["source"]["transformers"]
    assert read("nothing.json") is None
