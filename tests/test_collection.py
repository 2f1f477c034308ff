"""Memory of work in one process: what one sweep or plan left is not there for ever."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from symsim.grid import collection
from symsim.grid.collection import no_collection

# in a process of its own: a collection here would walk through all that other tests keep
CYCLES = """
import gc, weakref
from symsim.grid import collection
from symsim.grid.collection import no_collection

class Cycle:
    def __init__(self):
        self.own = self

with no_collection():
    left = weakref.ref(Cycle())
with no_collection():
    print(left() is None)
collection._MOST_LEFT = -1
with no_collection():
    print(left() is None)
print(gc.isenabled())
"""


def test_cycles_of_earlier_work_are_gone_when_more_work_begins() -> None:
    done = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_objects_that_are_left_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_left", 0)
    # what other tests made since there was a collection is counted with it
    gc.collect(0)
    with no_collection():
        made = [[] for _ in range(11_000)]
    assert 10_000 <= collection._left < 20_000 and len(made) == 11_000
