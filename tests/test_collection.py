"""Memory of work in one process: what one sweep or plan left is not there for ever."""

from __future__ import annotations

import gc
import weakref

import pytest

from symsim.grid import collection
from symsim.grid.collection import no_collection


class _Cycle:
    def __init__(self) -> None:
        self.own = self


def _left() -> "weakref.ref[_Cycle]":
    with no_collection():
        return weakref.ref(_Cycle())


def test_cycles_of_earlier_work_are_gone_when_more_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_left", 0)
    left = _left()
    with no_collection():
        assert left() is not None
    monkeypatch.setattr(collection, "_MOST_LEFT", -1)
    with no_collection():
        assert left() is None
    assert gc.isenabled()


def test_objects_that_are_left_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_left", 0)
    with no_collection():
        made = [[] for _ in range(10_000)]
    assert 10_000 <= collection._left < 20_000 and len(made) == 10_000
