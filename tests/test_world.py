"""`world`, the number of ranks, in a strategy: dp follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

import symsim
from symsim.errors import InputError
from symsim.inputs.settings import split_settings
from symsim.inputs.strategies import load_strategy


def refused(*arguments, **more) -> str:
    with pytest.raises(InputError) as caught:
        load_strategy(*arguments, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "dp"),
    [
        ("world=64,tp=8", 8),
        ("tp=8,world=64,pp=2", 4),
        ("world_size=48,tp=4,cp=2,pp=3", 2),
        ("world=8,tp=8", 1),
        ("world=64,tp=8,dp=8", 8),
        ("world=16,tp=2,ep=4", 8),
    ],
)
def test_dp_follows_from_the_ranks(text: str, dp: int, tmp_path: Path):
    assert load_strategy(text).dp == dp and "dp" in load_strategy(text).model_fields_set
    path = tmp_path / "s.yaml"
    path.write_text(text.replace(",", "\n").replace("=", ": "))
    assert load_strategy(str(path)) == load_strategy(text)


def test_dp_follows_from_what_is_changed_later():
    assert load_strategy("world=64,tp=8", {"pp": 2}).dp == 4
    assert load_strategy("tp=8,dp=2", {"world": 64, "dp": 8}).dp == 8
    assert load_strategy("tp=8", split_settings(["world=32"]).strategy).dp == 4
    assert symsim.load_strategy("tp=8", world=64).dp == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("world=64,tp=8,dp=4", "strategy 'world=64,tp=8,dp=4': world=64 and dp=4 disagree: tp*cp*dp*pp = 8*1*4*1 = 32 ranks"),
        ("world=64,tp=3", "world=64 is no multiple of tp*cp*pp = 3*1*1 = 3, so no dp gives it"),
        ("world=4,tp=8", "world=4 is no multiple of tp*cp*pp = 8*1*1 = 8"),
        ("world=0", "world is 0; it should be a whole number above 0"),
        ("world=1.5", "world is 1.5; it should be a whole number above 0"),
        ("world=many", 'world is "many"; it should be a whole number above 0'),
        ("world=true", "world is true; it should be a whole number above 0"),
        ("world=8,world_size=8", "world_size and world are the same setting"),
    ],
)
def test_what_the_ranks_do_not_allow_is_refused(text: str, said: str):
    assert said in refused(text)


def test_a_dp_in_a_file_that_the_ranks_contradict(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_text("tp: 8\ndp: 2\nworld: 64\n")
    assert refused(str(path)).startswith(f"{path}:3: world=64 and dp=2 disagree")


def test_a_sweep_over_a_strategy_with_ranks_keeps_them():
    over = {"tp": [1, 2, 4, 8], "pp": [1, 3]}
    rows = symsim.sweep("llama3-8b", over, "world=16,seq_length=2048", columns="world").rows
    assert rows["world"].tolist() == [16] * 4 and rows["dp"].tolist() == [16, 8, 4, 2]
    same = symsim.sweep("llama3-8b", {**over, "world": [16]}, "seq_length=2048", columns="world").rows
    assert same["dp"].tolist() == rows["dp"].tolist()
    for axes, said in (({"dp": [1, 2]}, "dp"), ({"world": [8, 16]}, "world")):
        with pytest.raises(InputError, match=f"world=16, from which dp follows; leave it or the axis {said} out"):
            symsim.sweep("llama3-8b", axes, "world=16,tp=2")
