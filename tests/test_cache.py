"""The cache is believed and run, so it must be the user's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from symsim.program import cache


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMSIM_CACHE", str(tmp_path / "kept"))
    cache._warn.cache_clear()
    cache.save("things", "k", b"ours")
    assert cache.load("things", "k") == b"ours"
    return tmp_path / "kept"


def test_entries_are_for_their_owner_alone(root: Path):
    assert [p.stat().st_mode & 0o777 for p in (root, root / "things")] == [0o700, 0o700]


@pytest.mark.parametrize("inside", [".", "things"])
def test_a_directory_of_another_user_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch, capsys, inside: str):
    before = os.stat

    def foreign(path: Path, **more: object) -> os.stat_result:
        found = before(path, **more)  # type: ignore[arg-type]
        if Path(path) != root / inside:
            return found
        return os.stat_result([*found[:4], os.geteuid() + 1, *found[5:10]])

    monkeypatch.setattr(os, "stat", foreign)
    assert cache.load("things", "k") is None
    cache.save("things", "other", b"written")
    assert cache.load("things", "other") is None
    said = capsys.readouterr().err
    assert said.count("\n") == (inside == ".") and ("it belongs to another user" in said) == (inside == ".")
    monkeypatch.undo()
    assert not (root / "things" / "other").exists()


@pytest.mark.parametrize(("inside", "mode"), [(".", 0o777), (".", 0o720), ("things", 0o777)])
def test_a_directory_that_others_may_write_is_not_used(root: Path, capsys, inside: str, mode: int):
    (root / inside).chmod(mode)
    assert cache.load("things", "k") is None
    cache.save("things", "other", b"written")
    assert not (root / "things" / "other").exists()
    said = capsys.readouterr().err
    assert said.count("\n") == (inside == ".") and ("others may write there" in said) == (inside == ".")
